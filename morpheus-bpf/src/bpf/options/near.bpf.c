// SPDX-License-Identifier: GPL-2.0-only
/*
 * A task that wakes goes near its data, if that is nearly free.
 *
 * The kernel's own search for an idle CPU knows cores, last-level caches and nodes, and no second-level cache. Where one
 * is shared by several cores (clusters of small cores, most of all), a CPU that shares it with the previous one still
 * has what the task used, and any other of the last-level cache has not. Then, by the knob `affinity`:
 *
 *	off	the kernel's search, as elsewhere
 *	weak	the previous CPU if it is idle; else an idle one that shares its cache; else the kernel's search
 *	strong	where weak would go far away, and it is likely that the previous CPU is free in a moment, the task waits in
 *		the queue, where every CPU that has to choose finds it. After `near_wait_ns` an idle one is told to look there.
 *
 * So strong keeps nobody for anybody: a task waits where all others do, by the same order and with the same rescues, and
 * only idle CPUs are told of it later, over and over until the queue is empty. It does so where nobody else waits, where
 * the one that runs is known to sleep soon, and for no task that others wait for (LAT_CRITICAL, and workers that serve).
 *
 * A near CPU is taken only if its whole core is idle: next to a busy thread of the same core a task is slower than it would
 * be on an idle core with a cold cache. That is also why a cache that is the core's own makes no CPUs near, and where all
 * of a last-level cache is one such group, the kernel's search knows as much (src/placement.rs, which makes the table). On
 * such machines, most servers among them, nothing of this is left in the programs.
 *
 * A wake that says that the waker is about to sleep goes by the kernel's search: it may put the two on one CPU.
 */
#include "kernel/kernel.bpf.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "morpheus_abi.h"
#include "policy/policy.bpf.h"

/* The CPUs near one, of those whose numbers begin with the same CPU / 64; others are not considered. */
const volatile __u64 near_cpus[MOST_CPUS];
/* For so long an idle CPU far away is not told: some times what it takes to fill a second-level cache. */
const volatile __u64 near_wait_ns = 200000;

/* So many near CPUs are looked at. */
#define NEAR_SCANNED 8
/* So many idle CPUs are told at once. */
#define FAR_KICKS 4

/* One for each CPU whose neighbours somebody waits for. */
struct near_timer {
	struct bpf_timer timer;
	__u64 armed;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct near_timer);
} near_timers SEC(".maps");

static __always_inline __u64 near(__s32 index)
{
	return near_cpus[(__u32)index & (MOST_CPUS - 1)];
}

/* How many wait in a domain where one goes that woke. */
static __always_inline __s32 waiting_in(__u32 domain)
{
	__s32 waiting = scx_bpf_dsq_nr_queued(MAIN_DSQ(domain));

	return tiers_on ? waiting + scx_bpf_dsq_nr_queued(FRONT_DSQ(domain)) : waiting;
}

/* Claims an idle core that shares the second-level cache of `previous`: its CPU, or -1. `idle` are those of idle cores. */
static __always_inline __s32 claim_near(struct task_struct *task, __s32 previous, const struct cpumask *idle)
{
	__u64 bits = near(previous);
	__u32 seen;

	bpf_for(seen, 0, NEAR_SCANNED) {
		__s32 index;

		if (!bits)
			break;
		index = (previous & ~63) + __builtin_ctzll(bits);
		bits &= bits - 1;
		if (bpf_cpumask_test_cpu(index, idle) && may_run_on(task, index) &&
		    scx_bpf_test_and_clear_cpu_idle(index))
			return index;
	}
	return -1;
}

/* Whether a task may wait for the previous CPU for a while: it is soon free, and a moment is no harm. */
static __always_inline bool may_stay(struct task_struct *task, struct behaviour *behaviour, __s32 previous, __u64 flags)
{
	struct cpu *cpu = cpu_at(previous);

	/* A new task has no data there; and enqueue does not know that it comes from here. */
	if (!(flags & WAKE_TTWU))
		return false;
	if (!behaviour || !cpu || behaviour->tier == TIER_LAT_CRITICAL || worker_of(task))
		return false;
	/* An idle CPU does not look for those that may not run there. */
	if ((__u32)task->nr_cpus_allowed < cpu_count)
		return false;
	if (!cpu->since_ns || cpu->tier == TIER_BATCH || cpu->worker || cpu->pinned || waiting_in(domain_of(previous)))
		return false;
	behaviour->stays = 1;
	return true;
}

/* One of three counters, in the order of enum tier. */
static __always_inline void count_by_tier(enum counter first, __u32 tier)
{
	count(first + (tier < TIERS ? tier : TIER_BATCH));
}

__s32 find_near(struct task_struct *task __arg_trusted, __s32 previous, __u64 flags)
{
	__u32 tier = TIER_BATCH;
	struct behaviour *behaviour;
	const struct cpumask *idle;
	bool whole, some;
	__s32 cpu = -1;

	if (knobs.affinity == AFFINITY_OFF || !near(previous))
		return -1;
	idle = scx_bpf_get_idle_smtmask();
	whole = bpf_cpumask_test_cpu(previous, idle);
	some = !bpf_cpumask_empty(idle);
	if (!whole && some)
		cpu = claim_near(task, previous, idle);
	scx_bpf_put_idle_cpumask(idle);
	if (whole || !some)
		return -1;
	behaviour = behaviour_of(task);
	if (behaviour)
		tier = behaviour->tier;
	if (cpu >= 0) {
		count_by_tier(COUNTER_l2_hits_lat_critical, tier);
		return cpu | NEAR_IS_IDLE;
	}
	if (knobs.affinity == AFFINITY_STRONG && may_stay(task, behaviour, previous, flags)) {
		count(COUNTER_near_waits);
		return previous;
	}
	count_by_tier(COUNTER_l2_misses_lat_critical, tier);
	return -1;
}

/* A moment is over. Idle CPUs are told of tasks that wait still. */
static int stop_waiting(void *map, __u32 *index, struct near_timer *timer)
{
	const struct cpumask *idle;
	__s32 waiting;
	bool told = false;
	__u32 seen;

	/* Before the look: a task that comes after it arms the timer again. */
	__sync_lock_test_and_set(&timer->armed, 0);
	waiting = waiting_in(domain_of(*index));
	if (waiting <= 0)
		return 0;
	idle = scx_bpf_get_idle_cpumask();
	bpf_for(seen, 0, FAR_KICKS) {
		/* From different places on, or all would tell the same one. */
		__u32 chosen = bpf_cpumask_any_distribute(idle);

		if (chosen >= cpu_count)
			break;
		scx_bpf_kick_cpu(chosen, KICK_IDLE);
		count(COUNTER_near_waits_over);
		told = true;
		/* Not a count of its own, of which the verifier would try every value. */
		if (seen + 1 >= (__u32)waiting)
			break;
	}
	scx_bpf_put_idle_cpumask(idle);
	/* Where none is idle, whoever is free next looks there anyway. */
	if (told && !__sync_lock_test_and_set(&timer->armed, 1) &&
	    bpf_timer_start(&timer->timer, near_wait_ns, 0))
		timer->armed = 0;
	return 0;
}

bool waits_near(struct task_struct *task __arg_trusted)
{
	struct behaviour *behaviour = behaviour_of(task);
	__u32 key = scx_bpf_task_cpu(task);
	struct near_timer *timer;

	if (!behaviour || !behaviour->stays)
		return false;
	behaviour->stays = 0;
	timer = bpf_map_lookup_elem(&near_timers, &key);
	if (!timer)
		return false;
	if (!__sync_lock_test_and_set(&timer->armed, 1) && bpf_timer_start(&timer->timer, near_wait_ns, 0)) {
		timer->armed = 0;
		return false;
	}
	return true;
}

int start_near_timer(__u32 index)
{
	struct near_timer *timer = bpf_map_lookup_elem(&near_timers, &index);

	if (!timer)
		return -ESRCH;
	if (bpf_timer_init(&timer->timer, &near_timers, CLOCK_MONOTONIC))
		return -ENOMEM;
	return bpf_timer_set_callback(&timer->timer, stop_waiting);
}
