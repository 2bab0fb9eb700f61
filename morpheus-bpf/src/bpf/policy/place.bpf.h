/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which CPU a task gets that wakes: an idle one, or one that another task gives up.
 *
 * The kernel finds idle CPUs by cores, caches and nodes. Where CPUs share a second-level cache, one of these comes first
 * (options/near.bpf.c). A task for which none was idle waits in a queue, and an idle CPU is told of it in case that one has become
 * idle meanwhile.
 *
 * Else it may preempt. The kick is what costs and what helps. A task that has run for less than `min_run_ns` is left alone: most of
 * those sleep again before the interrupt would have paid; such a kick is made up later (options/later.bpf.c). A CPU that runs a
 * stalled worker is given up at once for a worker that serves and for a runtime's controller (link/ladder.bpf.c). All that a kick does
 * is to make the CPU choose; which task it takes is a matter of vtime, so that no task gains a share by it.
 *
 * All CPUs that are looked at are of the domain where the task waits: one of another domain would look into its own queues. At most
 * three kinds are looked at: the CPU where the task ran last; CPUs that run a task of the tier BATCH, for a task that goes before
 * those (`batch_cpus` tells where); and one of the others in turn. With many CPUs, one of them is done with its slice soon in any
 * case.
 */
#ifndef MORPHEUS_PLACE_BPF_H
#define MORPHEUS_PLACE_BPF_H

#include "policy/queue.bpf.h"

/* A CPU that is idle is told of each task that it may run. Off for tests. */
const volatile bool idle_kicks_on = true;
const volatile bool kicks_on = true;
/* A CPU that was idle and has been sent this number of tasks since gets no more. */
const volatile bool idle_depth_on = true;
const volatile __u32 idle_depth = 1;
/* Stalled workers are preempted at once by those that serve. Off for tests. */
const volatile bool serving_kicks_on = true;
/* This number of CPUs of the tier BATCH are looked at, from the one after this CPU on. */
#define BATCH_SCANNED 8

/* How a CPU looks to a task that wants to preempt. */
enum target {
	/* Not it: its task has as good a claim. */
	TARGET_NO,
	/* Not yet. */
	TARGET_LATER,
	TARGET_NOW,
};

/* Where a task that wakes is put, and whether that CPU was idle and is claimed. */
static __always_inline __s32 place(struct task_struct *task, __s32 previous, __u64 flags, bool *is_idle)
{
	if (l2_affinity_on && !(flags & WAKE_SYNC)) {
		__s32 cpu = find_near(task, previous, flags);

		if (cpu >= 0) {
			*is_idle = cpu & NEAR_IS_IDLE;
			return cpu & ~NEAR_IS_IDLE;
		}
	}
	return scx_bpf_select_cpu_dfl(task, previous, flags, is_idle);
}

/*
 * A function of its own, not for the machine but for the verifier: for each path on which it comes by such a pointer it looks
 * through all of the kernel's types, and what is global it visits once.
 */
bool may_run_on(struct task_struct *task __arg_trusted, __s32 index)
{
	return bpf_cpumask_test_cpu(index, task->cpus_ptr);
}

/* An idle CPU of a domain that the task may use, or -1. */
static __noinline __s32 idle_in_domain(struct task_struct *task, __u32 domain, const struct cpumask *idle)
{
	__u32 size = domain_sizes[domain & (DOMAINS - 1)], place;
	__s32 index;

	if (!task)
		return -1;
	bpf_for(place, 0, DOMAIN_CPUS) {
		if (place >= size)
			break;
		index = cpu_in(domain, place);
		if (bpf_cpumask_test_cpu(index, idle) && UNDER_RCU(bpf_cpumask_test_cpu(index, task->cpus_ptr)))
			return index;
	}
	return -1;
}

/*
 * Tells an idle CPU that it may run a task which waits: the task's last one before others of its domain, and these before all
 * others. Until it sleeps anew it is not told of another. Returns whether there was an idle CPU.
 *
 * Where all CPUs are busy, this only reads: to try and claim one would write to a line that all CPUs share, at each wake.
 */
bool kick_idle(struct task_struct *task __arg_trusted)
{
	const struct cpumask *idle = scx_bpf_get_idle_cpumask();
	bool is_movable = task->nr_cpus_allowed > 1, none = bpf_cpumask_empty(idle);
	__s32 own = scx_bpf_task_cpu(task), index = -1;

	if (!none) {
		if (UNDER_RCU(bpf_cpumask_test_cpu(own, task->cpus_ptr)) && scx_bpf_test_and_clear_cpu_idle(own)) {
			index = own;
		} else if (domain_count > 1 && is_movable) {
			index = idle_in_domain(task, domain_of(own), idle);
			if (index >= 0 && !scx_bpf_test_and_clear_cpu_idle(index))
				index = -1;
		}
	}
	scx_bpf_put_idle_cpumask(idle);
	if (index < 0 && !none && is_movable)
		index = UNDER_RCU(scx_bpf_pick_idle_cpu(task->cpus_ptr, 0));
	if (index < 0)
		return false;
	scx_bpf_kick_cpu(index, KICK_IDLE);
	return true;
}

/*
 * A task was put into a queue. An idle CPU is told where the task did not wake (it was put back for a class above, or its CPUs
 * have changed), and where it woke while a CPU became idle. Without this it would wait until some CPU chooses. Returns whether
 * there was an idle CPU.
 */
static __always_inline bool notify_idle(struct task_struct *task)
{
	if (!idle_kicks_on || !kick_idle(task))
		return false;
	count(COUNTER_kicks_idle);
	return true;
}

static __always_inline void mark_batch(__s32 index, struct cpu *cpu, __u32 tier)
{
	bool was_batch = cpu->tier == TIER_BATCH, is_batch = tier == TIER_BATCH;
	struct domain *domain;

	cpu->tier = tier;
	if (was_batch == is_batch)
		return;
	domain = domain_at(domain_of(index));
	if (domain)
		mark(&domain->batch_cpus, index, is_batch);
}

/* How long a CPU is not to be kicked for this claim. */
static __always_inline __u64 sync_rest_ns(__s32 index, const struct cpu *cpu, const struct claim *claim)
{
	__u64 passed_ns;

	if (!claim->waker)
		return 0;
	if (claim->waker == (__u32)index + 1)
		return claim->pause_ns;
	passed_ns = claim->now - cpu->sync_kicked_ns;
	return passed_ns < claim->pause_ns ? claim->pause_ns - passed_ns : 0;
}

static __always_inline enum target assess(__s32 index, const struct cpu *cpu, const struct claim *claim)
{
	__u64 margin = margin_ns(cpu, claim->tier), now = claim->now;

	if (!cpu->since_ns || cpu->kicked || !before(claim->vtime + margin, present_vtime(cpu, now)))
		return TARGET_NO;
	/* It may hold a lock that others wait for, and is soon done. */
	if (cpu->kernel)
		return TARGET_NO;
	/* It is in a critical section, and kicked when that is over. */
	if (cpu->extended_until_ns && before(now, cpu->extended_until_ns))
		return TARGET_NO;
	if (sync_rest_ns(index, cpu, claim))
		return TARGET_LATER;
	/* A rescued task has waited for long, and would wait for as long again. */
	if (cpu->rescued && before(now, cpu->began_ns + min_run_ns))
		return TARGET_LATER;
	/* It will not sleep soon. */
	if (!margin)
		return TARGET_NOW;
	return min_run_ns && before(now, cpu->began_ns + min_run_ns) ? TARGET_LATER : TARGET_NOW;
}

/*
 * A CPU of the domain of `own`, from the one after it on, that runs a task of the tier BATCH and that `task` may have at once;
 * or -1.
 */
static __noinline __s32 find_batch(struct task_struct *task, __s32 own, const struct claim *claim)
{
	__u32 index_of_domain = domain_of(own), place, seen;
	struct domain *domain = domain_at(index_of_domain);
	__u64 bits, later;

	if (!task || !domain)
		return -1;
	bits = READ_ONCE(domain->batch_cpus);
	/* Not always the first. */
	place = places_of_cpus[(__u32)own & (MOST_CPUS - 1)];
	later = place < DOMAIN_CPUS ? ~0ULL << (place + 1) : 0;
	bpf_for(seen, 0, BATCH_SCANNED) {
		__u64 rest = bits & later ? bits & later : bits;
		struct cpu *cpu;
		__s32 index;

		if (!rest)
			break;
		index = cpu_in(index_of_domain, __builtin_ctzll(rest));
		bits &= ~(rest & -rest);
		cpu = cpu_at(index);
		if (cpu && cpu->tier == TIER_BATCH && may_run_on(task, index) && assess(index, cpu, claim) == TARGET_NOW)
			return index;
	}
	return -1;
}

/* A task woke, and gets this CPU. */
static __always_inline void kick_for(__s32 index, struct cpu *cpu, const struct claim *claim)
{
	if (claim->waker)
		cpu->sync_kicked_ns = claim->now;
	kick(index, cpu, margin_ns(cpu, claim->tier) ? COUNTER_kicks_for_waiting : COUNTER_kicks_for_tier);
}

/* A task woke, and waits for this CPU alone. */
static __always_inline void preempt_own(struct cpu *cpu, __s32 index, const struct claim *claim)
{
	enum target target;

	if (!kicks_on || !cpu->since_ns)
		return;
	target = assess(index, cpu, claim);
	if (target == TARGET_NOW)
		kick_for(index, cpu, claim);
	else if (target == TARGET_LATER)
		kick_later(index, claim, sync_rest_ns(index, cpu, claim));
}

/*
 * A task woke, and waits in a queue. Its process may have said that it is in a hurry: then `serving` is what to count, else 0.
 * Global, so that it is verified once, and not for each way there.
 */
int preempt_for(struct task_struct *task __arg_trusted, __u32 serving, const struct claim *claim)
{
	__s32 own = scx_bpf_task_cpu(task), other = own, chosen = -1;
	enum target own_target, other_target = TARGET_NO;
	struct cpu *own_cpu, *other_cpu, *here;

	if (!kicks_on || !claim)
		return 0;
	if (serving && serving_kicks_on) {
		chosen = find_stalled(task, claim->now);
		if (chosen >= 0) {
			struct cpu *cpu = cpu_at(chosen);

			if (cpu) {
				if (cpu->worker != (__u32)task->tgid)
					cpu->stalled_kicked_ns = claim->now;
				kick(chosen, cpu, serving);
			}
			return 0;
		}
	}
	own_cpu = cpu_at(own);
	here = cpu_at(bpf_get_smp_processor_id());
	if (!own_cpu || !here)
		return 0;
	own_target = assess(own, own_cpu, claim);
	if (own_target == TARGET_NOW) {
		kick_for(own, own_cpu, claim);
		return 0;
	}
	if (tiers_on && wakeup_preemption_on && claim->tier != TIER_BATCH && cpu_count > 1) {
		chosen = find_batch(task, own, claim);
		if (chosen >= 0) {
			struct cpu *cpu = cpu_at(chosen);

			if (cpu)
				kick_for(chosen, cpu, claim);
			return 0;
		}
	}
	if (task->nr_cpus_allowed > 1 && cpu_count > 1) {
		/* Each CPU goes through the domain by itself: two that come to the same one at once are no harm. */
		__u32 domain = domain_of(own), size = domain_sizes[domain], next = here->cursor + 1;

		if (next >= size)
			next = 0;
		other = cpu_in(domain, next);
		if (other == own) {
			next = next + 1 < size ? next + 1 : 0;
			other = cpu_in(domain, next);
		}
		here->cursor = next;
		other_cpu = cpu_at(other);
		if (other_cpu && may_run_on(task, other)) {
			other_target = assess(other, other_cpu, claim);
			if (other_target == TARGET_NOW) {
				kick_for(other, other_cpu, claim);
				return 0;
			}
			if (other_target == TARGET_LATER && own_target != TARGET_LATER) {
				kick_later(other, claim, sync_rest_ns(other, other_cpu, claim));
				return 0;
			}
		}
	}
	if (own_target == TARGET_LATER)
		kick_later(own, claim, sync_rest_ns(own, own_cpu, claim));
	return 0;
}

#endif /* MORPHEUS_PLACE_BPF_H */
