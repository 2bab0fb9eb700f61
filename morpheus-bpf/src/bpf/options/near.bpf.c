// SPDX-License-Identifier: GPL-2.0-only
/*
 * Placement near a task's data: an idle CPU that shares the second-level cache of its last CPU, if there is one.
 *
 * The kernel's search for an idle CPU uses cores, last-level caches and nodes, and no second-level caches. Where several cores
 * share one (clusters of small cores, most often), a CPU that shares it with the previous one still has the data of the task, and
 * any other of the last-level cache has not. Then, by the knob `affinity` (`--affinity`, or src/adapt):
 *
 *	off	the kernel's search, as elsewhere
 *	weak	the previous CPU if it is idle; else an idle one that shares its cache; else the kernel's search
 *	strong	where weak would choose a CPU without the cache, and the previous CPU is likely to be free soon, the task waits in
 *		the DSQ, where each CPU that dispatches finds it. After `near_wait_ns` idle CPUs are kicked to search there.
 *
 * So strong reserves no CPU: a task waits in the usual DSQ, by the same order and with the same rescues, and only the kick of
 * idle CPUs is late, and repeated until the DSQ is empty. It applies where no other task waits, where the running task is known
 * to sleep soon, and to no task that others wait for (LAT_CRITICAL, and workers that serve).
 *
 * A task that is put into a DSQ without a wake-up, as one that a real-time thread displaces, has an idle CPU kicked: by weak and
 * strong, one that shares the cache goes first.
 *
 * A near CPU is taken only if its whole core is idle: beside a busy thread of the same core a task is slower than on an idle core
 * with a cold cache. For the same reason a cache that belongs to one core makes no CPUs near. Where one group is all of a
 * last-level cache, the kernel's search does the same (src/placement.rs, which makes the table). On such machines, most servers
 * among them, this file is not loaded.
 *
 * A wake-up that says that the waker is about to sleep uses the kernel's search, which may put the two on one CPU.
 */
#include "kernel/kernel.bpf.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "morpheus_abi.h"
#include "policy/policy.bpf.h"

/* The CPUs near each CPU: bits of those with the same number / 64. Others are not considered. */
const volatile __u64 near_cpus[MOST_CPUS];
/* The time before idle CPUs far away are kicked, in ns: several times what it takes to fill a second-level cache. */
const volatile __u64 near_wait_ns = 200000;

/* The most near CPUs that are checked in a wake-up. */
#define NEAR_SCANNED 8
/* The most idle CPUs that are kicked at once. */
#define FAR_KICKS 4

/* The timer of a CPU near which a task waits. */
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

/* The number of tasks that wait in a domain for any of its CPUs. */
static __always_inline __s32 waiting_in(__u32 domain)
{
	__s32 waiting = scx_bpf_dsq_nr_queued(MAIN_DSQ(domain));

	return tiers_on ? waiting + scx_bpf_dsq_nr_queued(FRONT_DSQ(domain)) : waiting;
}

/* Claims an idle core that shares the second-level cache of `previous`: its CPU, or -1. `idle` are the CPUs of idle cores. */
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
		if (claims_idle(task, index, idle))
			return index;
	}
	return -1;
}

/* Whether a task may wait for its previous CPU: it is free soon, and a short wait does no harm. */
static __always_inline bool may_stay(struct task_struct *task, struct behaviour *behaviour, __s32 previous, __u64 flags)
{
	struct cpu *cpu = cpu_at(previous);

	/* A new task has no data there; and enqueue does not know that it comes from here. */
	if (!(flags & WAKE_TTWU))
		return false;
	if (!behaviour || !cpu || behaviour->tier == TIER_LAT_CRITICAL || worker_of(task))
		return false;
	/* An idle CPU does not search for tasks that may not run there. */
	if ((__u32)task->nr_cpus_allowed < cpu_count)
		return false;
	if (!cpu->since_ns || cpu->tier == TIER_BATCH || cpu->worker || cpu->pinned || waiting_in(domain_of(previous)))
		return false;
	behaviour->stays = 1;
	return true;
}

/* Adds to one of three counters, in the order of enum tier. */
static __always_inline void count_by_tier(enum counter first, __u32 tier)
{
	count(first + (tier < TIERS ? tier : TIER_BATCH));
}

bool kick_near(struct task_struct *task __arg_trusted)
{
	__s32 own = scx_bpf_task_cpu(task), chosen = -1;
	const struct cpumask *idle;

	if (knobs.affinity == AFFINITY_OFF || !near(own))
		return false;
	idle = idle_cores(own);
	if (!bpf_cpumask_test_cpu(own, idle))
		chosen = claim_near(task, own, idle);
	scx_bpf_put_idle_cpumask(idle);
	if (chosen < 0)
		return false;
	scx_bpf_kick_cpu(chosen, KICK_IDLE);
	count(COUNTER_near_kicks);
	return true;
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
	idle = idle_cores(previous);
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

/* Kicks idle CPUs for tasks that still wait when the time is over. */
static int stop_waiting(void *map, __u32 *index, struct near_timer *timer)
{
	const struct cpumask *idle;
	__s32 waiting;
	bool told = false;
	__u32 seen;

	/* Before the count: a task that comes after it arms the timer again. */
	__sync_lock_test_and_set(&timer->armed, 0);
	waiting = waiting_in(domain_of(*index));
	if (waiting <= 0)
		return 0;
	idle = idle_cpus(*index);
	bpf_for(seen, 0, FAR_KICKS) {
		/* Starts at different CPUs, so that two timers do not kick the same one. */
		__u32 chosen = bpf_cpumask_any_distribute(idle);

		if (chosen >= cpu_count)
			break;
		scx_bpf_kick_cpu(chosen, KICK_IDLE);
		count(COUNTER_near_waits_over);
		told = true;
		/* Not a counter of its own, of which the verifier would try each value. */
		if (seen + 1 >= (__u32)waiting)
			break;
	}
	scx_bpf_put_idle_cpumask(idle);
	/* Where no CPU is idle, the next free CPU searches there. */
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
