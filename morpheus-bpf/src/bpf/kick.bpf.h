/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Preemption: who woke and found no idle CPU may have one that is used by somebody else.
 *
 * The kick is what costs and what helps. A task that has run for less than `min_run_ns` is left alone: most of those
 * sleep again before the interrupt would have paid. Such a kick is not forgotten: a timer looks again when the time is
 * over. A CPU that runs a stuck worker is given up at once for a worker that serves and for a runtime's controller. All
 * that a kick does is to make the CPU choose; whom it takes is a matter of vtime, so that nobody gains a share by it.
 *
 * All CPUs that are looked at are of the domain where the task waits: one of another domain would look into its own queues.
 *
 * Who goes before those that compute (tiers INTERACTIVE and LAT_CRITICAL) preempts one of them at once: it will not sleep
 * soon. The bits of `batch_cpus` tell where.
 *
 * Else at most two CPUs are looked at, beside the hint for stuck ones: the one where the task ran last, and one of the
 * others in turn. With many CPUs, one of them is done with its slice soon in any case.
 */
#ifndef MORPHEUS_KICK_BPF_H
#define MORPHEUS_KICK_BPF_H

#include "loan.bpf.h"

/* 0: no task is safe. */
const volatile __u64 min_run_ns = 200000;
const volatile bool kicks_on = true;
/* A CPU that is idle is told of each task that it may run. Off for tests. */
const volatile bool idle_kicks_on = true;
/* Stuck workers are preempted at once by those that serve. Off for tests. */
const volatile bool serving_kicks_on = true;
/*
 * For this long after a process has interrupted another's stuck worker, none does so again on that CPU because it says
 * that it serves: that is a claim. It then preempts as any task does that wakes. A process's own stuck workers are
 * preempted each time. 0: no bound.
 */
const volatile __u64 stuck_pause_ns = 2000000;
/* Skipped kicks are made up. Off for tests. */
const volatile bool make_up_on = true;

/*
 * Who wakes another says so if it is about to sleep itself; the kernel's pipes and sockets say it for all their users. Its
 * own CPU will choose soon without a kick, and others are kicked for such wakes only so often: where some talk to each
 * other all the time, whoever is woken after a while finds more to do at once, and a kick for each message would cost more
 * than the message. 0: as for any other wake.
 */
const volatile __u64 sync_pause_ns = 4000000;
/*
 * Of a task that may run on one CPU only, the kernel does not say that its waker will sleep. Where that one runs on the same
 * CPU, it has so long to do so. Without it, a sender on a machine with one CPU was preempted for each of its messages: 16
 * thousand a second, with it 99, under the kernel's own scheduler 103 thousand.
 */
const volatile __u64 unsaid_pause_ns = 1000000;
/*
 * A task of the tier BATCH that has woken more than so many since it was switched in does not sleep after all, whatever it
 * says: whom it wakes then waits as those do that compute, without credit for its sleep, and finds more to do at once. A
 * worker, or another that serves many and sleeps, is believed. ~0: everybody always is.
 */
const volatile __u32 sync_wakes_believed = 4;

/* On x86, from Linux 6.15 on. */
extern const int __preempt_count __ksym __weak;

/*
 * Whether the task that runs here is the one that calls, and no interrupt: whoever is woken by a packet from outside is told
 * that its waker will sleep soon, which is then said of nobody. Where the kernel does not tell: no.
 */
static __always_inline bool in_task(void)
{
	const int *count;

	if (bpf_core_field_exists(((struct task_struct *)0)->thread_info.preempt.count)) {
		struct task_struct *task = bpf_get_current_task_btf();

		return !(task->thread_info.preempt.count & IN_INTERRUPT);
	}
	if (!bpf_ksym_exists(&__preempt_count))
		return false;
	count = bpf_this_cpu_ptr(&__preempt_count);
	return !(*count & IN_INTERRUPT);
}

/* Between two ticks, where CONFIG_HZ is 250: at each, those that wait are looked at. */
#define TICK_NS 4000000
/* So much less vtime must the one that woke have: equals would take turns for nothing. */
#define MARGIN_NS 1000000
/* So many tasks in a row that slept before the least time was over. */
#define SHORT_RUNS 64

/* One for each CPU, for who wants it to be kicked later; armed and run anywhere. */
struct kick_timer {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct kick_timer);
} kick_timers SEC(".maps");

/*
 * How much less vtime one of this tier needs to preempt there. Who may go before those that compute need not be ahead of
 * one that does.
 */
static __always_inline __u64 margin_ns(const struct cpu *cpu, __u32 tier)
{
	return wakeup_preemption_on && tiers_on && tier != TIER_BATCH && cpu->tier == TIER_BATCH ? 0 : MARGIN_NS;
}

static int make_up(void *map, __u32 *index, struct kick_timer *kick_timer)
{
	struct cpu *cpu = cpu_at(*index);
	__u64 now = scx_now(), waits;

	if (!cpu)
		return 0;
	cpu->make_up_ns = 0;
	if (!cpu->since_ns || cpu->kicked)
		return 0;
	/* Another one runs there by now, and whoever is woken looks at that one. */
	if (before(now, cpu->began_ns + min_run_ns))
		return 0;
	waits = least_waiting(*index, cpu);
	if (waits != NOBODY && before(waits + margin_ns(cpu, TIER_INTERACTIVE), present_vtime(cpu, now))) {
		/* It is not known who woke them. */
		cpu->sync_kicked_ns = now;
		kick(*index, cpu, COUNTER_kicks_made_up);
	}
	return 0;
}

static __always_inline int start_kick_timer(__u32 index)
{
	struct kick_timer *kick_timer = bpf_map_lookup_elem(&kick_timers, &index);

	if (!kick_timer)
		return -ESRCH;
	if (bpf_timer_init(&kick_timer->timer, &kick_timers, CLOCK_MONOTONIC))
		return -ENOMEM;
	return bpf_timer_set_callback(&kick_timer->timer, make_up);
}

/*
 * A function of its own, not for the machine but for the verifier: for each path on which it comes by such a pointer it looks
 * through all of the kernel's types, and what is global it visits once.
 */
__noinline bool may_run_on(struct task_struct *task __arg_trusted, __s32 index)
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
__noinline bool kick_idle(struct task_struct *task __arg_trusted)
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
static __always_inline bool tell_idle(struct task_struct *task)
{
	if (!idle_kicks_on || !kick_idle(task))
		return false;
	count(COUNTER_kicks_idle);
	return true;
}

/* Whether the stuck worker that runs there may be interrupted for a task that serves. */
static __always_inline bool may_interrupt(const struct cpu *cpu, const struct task_struct *task, __u64 now)
{
	return cpu->worker == (__u32)task->tgid || !before(now, cpu->stuck_kicked_ns + stuck_pause_ns);
}

/* A CPU of the task's domain that runs a stuck worker and that the task may use, or -1. */
static __noinline __s32 find_stuck(struct task_struct *task, __u64 now)
{
	struct domain *domain;
	__u32 own, seen;
	__u64 bits;

	if (!task)
		return -1;
	own = domain_of(scx_bpf_task_cpu(task));
	domain = domain_at(own);
	if (!domain)
		return -1;
	bits = READ_ONCE(domain->stuck_cpus);
	bpf_for(seen, 0, DOMAIN_CPUS) {
		struct cpu *cpu;
		__s32 index;

		if (!bits)
			break;
		index = cpu_in(own, __builtin_ctzll(bits));
		bits &= bits - 1;
		cpu = cpu_at(index);
		if (cpu && cpu->stuck && cpu->since_ns && !cpu->kicked && may_interrupt(cpu, task, now) &&
		    may_run_on(task, index))
			return index;
	}
	return -1;
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

/* So many of them are looked at, from the one after this CPU on. */
#define BATCH_LOOKS 8

/* How a CPU looks to who wants to preempt. */
enum target {
	/* Not it: its task has as good a claim. */
	TARGET_NO,
	/* Not yet. */
	TARGET_LATER,
	TARGET_NOW,
};

/* Who woke, and what it may ask for. */
struct claim {
	__u64 vtime;
	__u64 now;
	__u32 tier;
	/* The number, and one, of the CPU whose task woke it and is about to sleep; or 0. */
	__u32 waker;
	/* Between two kicks for such wakes, and until that task itself is preempted. */
	__u64 pause_ns;
};

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
	/* Another CPU's clock may be ahead. */
	return min_run_ns && before(now, cpu->began_ns + min_run_ns) ? TARGET_LATER : TARGET_NOW;
}

/* The CPU will be looked at again when its task has run long enough, and for long enough since the last such kick. */
static __always_inline void kick_later(__u32 index, struct cpu *cpu, const struct claim *claim)
{
	__u64 rest_ns = cpu->began_ns + min_run_ns - claim->now, sync_ns = sync_rest_ns(index, cpu, claim);
	struct kick_timer *kick_timer;

	count(sync_ns ? COUNTER_kicks_skipped_for_sync : COUNTER_kicks_skipped);
	/* A tick comes as soon, without a timer of its own. */
	if (!make_up_on || (sync_ns && tick_preemption_on && claim->pause_ns >= TICK_NS))
		return;
	/* Its task has run for longer. */
	if (rest_ns > min_run_ns)
		rest_ns = 0;
	/*
	 * Where tasks have only come and gone for a while, the one that runs now will go, too, and a timer every time would
	 * cost more than all of them.
	 */
	if (cpu->short_runs >= SHORT_RUNS)
		rest_ns *= 10;
	if (rest_ns < sync_ns)
		rest_ns = sync_ns;
	if (!rest_ns || (cpu->make_up_ns && before(cpu->make_up_ns, claim->now + rest_ns)))
		return;
	kick_timer = bpf_map_lookup_elem(&kick_timers, &index);
	if (!kick_timer)
		return;
	cpu->make_up_ns = claim->now + rest_ns;
	if (bpf_timer_start(&kick_timer->timer, rest_ns, 0))
		cpu->make_up_ns = 0;
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
	bpf_for(seen, 0, BATCH_LOOKS) {
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
		kick_later(index, cpu, claim);
}

/*
 * A task woke, and waits in a queue. Its process may have said that it is in a hurry: then `serving` is what to count, else 0.
 * Global, so that it is verified once, and not for each way there.
 */
__noinline int preempt_for(struct task_struct *task __arg_trusted, __u32 serving, const struct claim *claim)
{
	__s32 own = scx_bpf_task_cpu(task), other = own, chosen = -1;
	enum target own_target, other_target = TARGET_NO;
	struct cpu *own_cpu, *other_cpu, *here;

	if (!kicks_on || !claim)
		return 0;
	if (serving && serving_kicks_on) {
		chosen = find_stuck(task, claim->now);
		if (chosen >= 0) {
			struct cpu *cpu = cpu_at(chosen);

			if (cpu) {
				if (cpu->worker != (__u32)task->tgid)
					cpu->stuck_kicked_ns = claim->now;
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
				kick_later(other, other_cpu, claim);
				return 0;
			}
		}
	}
	if (own_target == TARGET_LATER)
		kick_later(own, own_cpu, claim);
	return 0;
}

#endif /* MORPHEUS_KICK_BPF_H */
