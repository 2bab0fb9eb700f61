/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What a task is like, from what it has done: its tier.
 *
 * A task runs, and sleeps; from one sleep to the next is a *turn*. Of its turns it is known how long they come apart, how
 * much CPU time each takes and how much that varies, and how often it was switched out in one: averages, each of which
 * moves by an eighth at a time. They make a score,
 *
 *	turns in 100 ms * switches in 100 ms / (CPU time of a turn + half its deviation, in units of 65 us)
 *
 * and the score makes a tier:
 *
 *	LAT_CRITICAL	wakes often and does little: audio, input, compositors, who answers requests
 *	INTERACTIVE	sleeps, and does not need much when it wakes
 *	BATCH		computes; or has not slept often enough to be known
 *
 * Whoever computes for longer at a stretch than `cpu_bound_ns`, and more than it sleeps, is BATCH whatever its score; from
 * within a turn that is twice as long as usual, until its next sleep.
 *
 * A tier gives no share of the CPU. Only who has had less than the others goes before them (is_eligible, queue.bpf.h): so
 * nobody gains by looking interactive.
 *
 * Workers of Morpheus are not guessed at: their slots say whether they serve.
 */
#ifndef MORPHEUS_CLASSIFY_BPF_H
#define MORPHEUS_CLASSIFY_BPF_H

#include "policy/policy.bpf.h"

/* What can be switched off. */
const volatile bool cpu_bound_on = true;
const volatile bool kworker_floor_on = true;
const volatile bool tier_slices_on = true;
const volatile bool immature_gate_on = true;

/* Each average moves by 1 / 2^AVERAGE_SHIFT of what is new. */
#define AVERAGE_SHIFT 3
/* Rates are those in such a time. */
#define RATE_NS 100000000ULL
/* Switches are counted in sixteenths. */
#define SWITCH_SHIFT 4
/* A name changes with exec: it is looked at again after so many turns, and in each of the first few. */
#define NAME_RUNS 64
#define YOUNG_AGE 4
/* So often what a mature task is like is told to the daemon. */
#define OBSERVE_RUNS 64

static __always_inline __u64 averaged(__u64 average, __u64 value)
{
	return average - (average >> AVERAGE_SHIFT) + (value >> AVERAGE_SHIFT);
}

/* What a turn takes, as far as one can rely on it. */
static __always_inline __u64 effective_ns(const struct behaviour *behaviour)
{
	return behaviour->runtime_ns + (behaviour->deviation_ns >> 1);
}

static __always_inline __u64 score_of(const struct behaviour *behaviour)
{
	__u64 runs = RATE_NS / (behaviour->gap_ns | 1);

	/* More than one in a microsecond nobody has. */
	if (runs > 100000)
		runs = 100000;
	return (runs * runs * behaviour->average_switches >> SWITCH_SHIFT) /
	       ((effective_ns(behaviour) >> 16) + 1);
}

__noinline int classify(struct behaviour *behaviour)
{
	__u64 needs_ns, score;

	if (!behaviour)
		return TIER_BATCH;
	needs_ns = effective_ns(behaviour);
	if (behaviour->boosted)
		return TIER_LAT_CRITICAL;
	if (needs_ns > knobs.cpu_bound_ns && needs_ns > behaviour->gap_ns >> 1)
		return TIER_BATCH;
	score = score_of(behaviour);
	if (score >= knobs.lat_critical_from)
		return TIER_LAT_CRITICAL;
	if (score >= knobs.interactive_from || needs_ns < knobs.cpu_bound_ns >> 2)
		return TIER_INTERACTIVE;
	return TIER_BATCH;
}

static __always_inline void init_behaviour(struct task_struct *task, __u32 home)
{
	struct behaviour *behaviour;

	if (!tiers_on && domain_count < 2)
		return;
	behaviour = bpf_task_storage_get(&behaviours, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!behaviour)
		return;
	behaviour->home = home;
	if (!tiers_on)
		return;
	behaviour->exec_ns = task->se.sum_exec_runtime;
	behaviour->tier = TIER_INTERACTIVE;
	check_name(task, behaviour);
}

/* A task is switched out. */
static __always_inline void account_run(struct task_struct *task, struct behaviour *behaviour, bool sleeps,
						 __u64 now)
{
	__u64 ran_ns, gap_ns, off_ns;
	__u32 tier;

	behaviour->switches++;
	if (!sleeps)
		return;
	ran_ns = task->se.sum_exec_runtime - behaviour->exec_ns;
	behaviour->exec_ns += ran_ns;
	gap_ns = behaviour->slept_ns ? now - behaviour->slept_ns : RATE_NS;
	behaviour->slept_ns = now;
	if (!behaviour->age) {
		behaviour->gap_ns = gap_ns;
		behaviour->runtime_ns = ran_ns;
		behaviour->deviation_ns = 0;
		behaviour->average_switches = behaviour->switches << SWITCH_SHIFT;
	} else {
		off_ns = ran_ns > behaviour->runtime_ns ? ran_ns - behaviour->runtime_ns : behaviour->runtime_ns - ran_ns;
		behaviour->gap_ns = averaged(behaviour->gap_ns, gap_ns);
		behaviour->runtime_ns = averaged(behaviour->runtime_ns, ran_ns);
		behaviour->deviation_ns = averaged(behaviour->deviation_ns, off_ns);
		behaviour->average_switches = averaged(behaviour->average_switches, behaviour->switches << SWITCH_SHIFT);
	}
	behaviour->switches = 0;
	behaviour->runs++;
	if (behaviour->age < YOUNG_AGE)
		behaviour->age++;
	if (behaviour->cpu_bound) {
		behaviour->cpu_bound = 0;
		count(COUNTER_cpu_bound_reversed);
	}
	tier = classify(behaviour);
	/* What completes others' I/O is part of the machine. */
	if (tier == TIER_BATCH && kworker_floor_on && task->flags & PF_WQ_WORKER) {
		tier = TIER_INTERACTIVE;
		count(COUNTER_kworkers_raised);
	}
	if (tier != behaviour->tier)
		count(tier == TIER_LAT_CRITICAL ? COUNTER_became_lat_critical :
		      tier == TIER_INTERACTIVE  ? COUNTER_became_interactive :
						  COUNTER_became_batch);
	behaviour->tier = tier;
	if (behaviour->age < YOUNG_AGE || !(behaviour->runs % NAME_RUNS))
		check_name(task, behaviour);
	if (profiles_on && !(behaviour->runs % OBSERVE_RUNS))
		report_name(behaviour);
}

/* It runs, and has not slept for long. Returns its tier. */
static __always_inline __u32 tier_within_run(struct task_struct *task, struct behaviour *behaviour)
{
	__u64 ran_ns;

	if (behaviour->tier == TIER_BATCH || behaviour->boosted || !cpu_bound_on)
		return behaviour->tier;
	ran_ns = task->se.sum_exec_runtime - behaviour->exec_ns;
	if (ran_ns < knobs.cpu_bound_ns || ran_ns < behaviour->runtime_ns * 2)
		return behaviour->tier;
	if (kworker_floor_on && task->flags & PF_WQ_WORKER)
		return TIER_INTERACTIVE;
	behaviour->tier = TIER_BATCH;
	behaviour->cpu_bound = 1;
	count(COUNTER_cpu_bound);
	return TIER_BATCH;
}

static __always_inline bool is_mature(const struct behaviour *behaviour)
{
	return behaviour->age >= MATURE_AGE;
}

/* How long a task's turn is. Without a behaviour it is BATCH. */
__noinline __u64 slice_for(struct behaviour *behaviour, __u32 tier)
{
	__u64 slice;

	if (!tiers_on || !tier_slices_on)
		return slice_ns;
	if (tier == TIER_BATCH || !behaviour)
		slice = knobs.batch_slice_ns;
	else if (tier == TIER_LAT_CRITICAL)
		slice = behaviour->runtime_ns + (behaviour->runtime_ns >> 1);
	else
		slice = behaviour->runtime_ns * 2;
	if (tier != TIER_BATCH) {
		if (slice > knobs.slice_ns)
			slice = knobs.slice_ns;
		if (slice < LEAST_SLICE_NS)
			slice = LEAST_SLICE_NS;
	}
	if ((READ_ONCE(burst_now) || READ_ONCE(longrun_now)) && slice > knobs.burst_slice_ns)
		slice = knobs.burst_slice_ns;
	return slice;
}

#endif /* MORPHEUS_CLASSIFY_BPF_H */
