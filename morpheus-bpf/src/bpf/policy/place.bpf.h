/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Placement on wake-up: the CPU of a task that wakes, and preemption of the task that runs there.
 *
 * The kernel finds idle CPUs by cores, caches and nodes. Where CPUs share a second-level cache, an idle one of these comes first
 * (options/near.bpf.c). A task without an idle CPU waits in a DSQ, and an idle CPU is kicked if one has become idle meanwhile.
 *
 * Otherwise the task may preempt. A kick makes a CPU dispatch, and dispatch takes the task with the least vtime, so that a kick
 * gives no share of the CPU. A kick costs an interrupt. So a task that has run for less than `min_run_ns` is left alone, since
 * most of those sleep again before the interrupt would have paid; the kick is made up for later (options/later.bpf.c). A CPU that
 * runs a stalled worker is kicked at once for a worker that serves and for the controller of a runtime (link/ladder.bpf.c).
 *
 * All CPUs that are checked are in the domain where the task waits: a CPU of another domain would search its own DSQs. Three
 * kinds are checked at most: the last CPU of the task; CPUs that run BATCH, for a task of the front DSQ (`batch_cpus`); and one
 * other CPU, the next in the domain each time. With many CPUs, one of them ends its slice soon in any case.
 */
#ifndef MORPHEUS_PLACE_BPF_H
#define MORPHEUS_PLACE_BPF_H

#include "policy/queue.bpf.h"

/* Tasks that wake preempt. `--without kick` */
const volatile bool kicks_on = true;
/*
 * A CPU that was idle gets up to `idle_depth` tasks by direct dispatch until it runs: with more, a task would wait there while
 * another CPU becomes free. `--with idle-depth`; the depth is set by src/scaling.rs.
 */
const volatile bool idle_depth_on = true;
const volatile __u32 idle_depth = 1;
/* A task of the tier LAT_CRITICAL preempts when it is enqueued again, too. `--with requeue-preemption` */
const volatile bool requeue_preemption_on = true;
/* Workers that serve preempt stalled workers at once. `--without kick-serving` */
const volatile bool serving_kicks_on = true;
/*
 * The most CPUs of the tier BATCH that are checked in a wake-up, from the one after the task's own on. It bounds the cost of a
 * wake-up.
 */
#define BATCH_SCANNED 8

/* Whether a task may preempt a CPU. */
enum target {
	/* Never: the running task has an equal claim. */
	TARGET_NO,
	/* After `min_run_ns`, or after the pause between two kicks of its kind. */
	TARGET_LATER,
	TARGET_NOW,
};

/* Chooses the CPU of a task that wakes. `is_idle`: that CPU was idle, and is claimed. */
static __always_inline __s32 place(struct task_struct *task, __s32 previous, __u64 flags, bool *is_idle)
{
	if (hybrid_on && !(flags & WAKE_SYNC)) {
		__s32 cpu = claim_fast(task, previous);

		if (cpu >= 0) {
			*is_idle = true;
			return cpu;
		}
	}
	if (l2_affinity_on && !(flags & WAKE_SYNC)) {
		__s32 cpu = find_near(task, previous, flags);

		if (cpu >= 0) {
			*is_idle = cpu & NEAR_IS_IDLE;
			return cpu & ~NEAR_IS_IDLE;
		}
	}
	if (!is_any_idle())
		return previous;
	return scx_bpf_select_cpu_dfl(task, previous, search_flags(flags), is_idle);
}

/* A global function, which the verifier checks once: for each path to such a pointer it searches all types of the kernel. */
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
		if (is_idle_for(task, index, idle))
			return index;
	}
	return -1;
}

/*
 * Kicks an idle CPU for a waiting task: the last CPU of the task before others of its domain, and these before all others. A CPU
 * is kicked once, until it idles again. Returns whether there was an idle CPU.
 *
 * Where all CPUs are busy, this only reads. An attempt to claim one would write to a cache line that all CPUs share, at each
 * wake-up.
 */
bool kick_idle(struct task_struct *task __arg_trusted)
{
	__s32 own = scx_bpf_task_cpu(task), index = -1;
	bool is_movable = task->nr_cpus_allowed > 1;

	if (!is_any_idle())
		return false;
	if (UNDER_RCU(bpf_cpumask_test_cpu(own, task->cpus_ptr)) && scx_bpf_test_and_clear_cpu_idle(own)) {
		index = own;
	} else if (domain_count > 1 && is_movable) {
		const struct cpumask *idle = idle_cpus(own);

		index = idle_in_domain(task, domain_of(own), idle);
		if (index >= 0 && !scx_bpf_test_and_clear_cpu_idle(index))
			index = -1;
		scx_bpf_put_idle_cpumask(idle);
	}
	if (index < 0 && is_movable)
		index = UNDER_RCU(pick_idle(task, own));
	if (index < 0)
		return false;
	scx_bpf_kick_cpu(index, KICK_IDLE);
	return true;
}

/*
 * Kicks an idle CPU for a task that was put into a DSQ. It is needed where the task did not wake (it was re-enqueued for a higher
 * class, or its CPUs have changed), and where a CPU became idle during the wake-up: the task would wait until some CPU
 * dispatches. One that shares the second-level cache of the last CPU goes first, if that one is busy. Returns whether there was an
 * idle CPU.
 */
static __always_inline bool notify_idle(struct task_struct *task)
{
	if (!idle_kicks_on || !((l2_affinity_on && kick_near(task)) || kick_idle(task)))
		return false;
	count(COUNTER_kicks_idle);
	return true;
}

/* Notes the tier of the running task of a CPU, and whether that CPU runs BATCH for tasks that search one to preempt. */
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

/* The time until a CPU may be kicked for this claim, in ns. */
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

/* Whether a task may preempt the running task of a CPU: now, later or never. */
static __always_inline enum target assess(__s32 index, const struct cpu *cpu, const struct claim *claim)
{
	__u64 margin = margin_ns(cpu, claim->tier), now = claim->now;

	if (!cpu->since_ns || cpu->kicked || !before(claim->vtime + margin, present_vtime(cpu, now)))
		return TARGET_NO;
	/* A kernel thread may hold a lock that others wait for, and sleeps soon. */
	if (cpu->kernel)
		return TARGET_NO;
	/* The task is in a critical section. The sampling timer kicks the CPU when the section is over. */
	if (cpu->extended_until_ns && before(now, cpu->extended_until_ns))
		return TARGET_NO;
	if (sync_rest_ns(index, cpu, claim))
		return TARGET_LATER;
	/* A rescued task has waited for at least `rescue_ns`, and would wait for as long again. */
	if (cpu->rescued && before(now, cpu->began_ns + min_run_ns))
		return TARGET_LATER;
	/* A BATCH task does not sleep soon. */
	if (!margin)
		return TARGET_NOW;
	return min_run_ns && before(now, cpu->began_ns + min_run_ns) ? TARGET_LATER : TARGET_NOW;
}

/* A CPU of the domain of `own`, but not this one, that runs BATCH and that `task` may preempt at once; or -1. */
static __noinline __s32 find_batch(struct task_struct *task, __s32 own, const struct claim *claim)
{
	__u32 index_of_domain = domain_of(own), place = places_of_cpus[(__u32)own & (MOST_CPUS - 1)], bits, later, seen;
	__u32 own_bit = place < DOMAIN_CPUS ? 1U << place : 0;
	struct domain *domain = domain_at(index_of_domain);

	if (!task || !domain)
		return -1;
	bits = READ_ONCE(domain->batch_cpus) & ~own_bit;
	if (!bits)
		return -1;
	/* Starts after the own CPU, so that kicks spread over the domain. */
	later = -(own_bit << 1);
	bpf_for(seen, 0, BATCH_SCANNED) {
		__u32 rest = bits & later ? bits & later : bits;
		struct cpu *cpu;
		__s32 index;

		if (!rest)
			break;
		index = cpu_in(index_of_domain, lowest_bit(rest));
		bits &= ~(rest & -rest);
		cpu = cpu_at(index);
		if (cpu && cpu->tier == TIER_BATCH && may_run_on(task, index) && assess(index, cpu, claim) == TARGET_NOW)
			return index;
	}
	return -1;
}

/* Kicks a CPU for a task that woke. */
static __always_inline void kick_for(__s32 index, struct cpu *cpu, const struct claim *claim)
{
	if (claim->waker)
		cpu->sync_kicked_ns = claim->now;
	kick(index, cpu, margin_ns(cpu, claim->tier) ? COUNTER_kicks_for_waiting : COUNTER_kicks_for_tier);
}

/* Leaves a CPU alone for the time being. */
static __always_inline void skip_kick(__s32 index, const struct cpu *cpu, const struct claim *claim)
{
	__u64 sync_ns = sync_rest_ns(index, cpu, claim);

	count(sync_ns ? COUNTER_kicks_skipped_for_sync : COUNTER_kicks_skipped);
	if (make_up_on)
		kick_later(index, claim, sync_ns);
}

/* Preempts for a task that woke and waits for this CPU alone. */
static __always_inline void preempt_own(struct cpu *cpu, __s32 index, const struct claim *claim)
{
	enum target target;

	if (!kicks_on || !cpu->since_ns)
		return;
	target = assess(index, cpu, claim);
	if (target == TARGET_NOW)
		kick_for(index, cpu, claim);
	else if (target == TARGET_LATER)
		skip_kick(index, cpu, claim);
}

/*
 * Preempts for a task that woke and waits in a DSQ. `serving` is the counter to use if the slot of the task says that others wait
 * for it, else 0. Global, so that the verifier checks it once and not for each path.
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
		/* Each CPU steps through the domain by itself. Two CPUs that check the same one at once do no harm. */
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
				skip_kick(other, other_cpu, claim);
				return 0;
			}
		}
	}
	if (own_target == TARGET_LATER)
		skip_kick(own, own_cpu, claim);
	return 0;
}

#endif /* MORPHEUS_PLACE_BPF_H */
