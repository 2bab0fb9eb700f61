/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Classification: the tier of a task, from its past behaviour.
 *
 * A *run* is the time from a wake-up of a task to its next sleep. Four averages describe the runs of a task: the time from one
 * sleep to the next, the CPU time of a run, the deviation of that CPU time, and the context switches in a run. An average moves
 * by an eighth of each new value. The averages make a score,
 *
 *	runs in 100 ms * switches in 100 ms / (CPU time of a run + half its deviation, in units of 65 us)
 *
 * and the score makes a tier:
 *
 *	LAT_CRITICAL	wakes often and runs for a short time: audio, input, compositors, servers that answer requests
 *	INTERACTIVE	sleeps, and needs little CPU time when it wakes
 *	BATCH		computes, or has not slept often enough to be known
 *
 * A task that computes for longer than `cpu_bound_ns` in a run, and for more than half of the time from sleep to sleep, is BATCH
 * whatever its score is. A task that has done so in its present run, and for twice its average, is BATCH until its next sleep.
 *
 * A tier gives no share of the CPU: only an eligible task goes before others (is_eligible, queue.bpf.h). So no task gains by
 * looking interactive.
 *
 * Workers of Morpheus are not classified: their slots say whether they serve.
 */
#ifndef MORPHEUS_CLASSIFY_BPF_H
#define MORPHEUS_CLASSIFY_BPF_H

#include "policy/policy.bpf.h"

/* Switches of `--without`: cpu-bound, kworker-floor, tier-slices, immature-gate. */
const volatile bool cpu_bound_on = true;
const volatile bool kworker_floor_on = true;
const volatile bool tier_slices_on = true;
const volatile bool immature_gate_on = true;

/* An average moves by 1 / 2^AVERAGE_SHIFT of each new value: it follows a change within some eight runs. */
#define AVERAGE_SHIFT 3
/* The period of rates, in ns: a LAT_CRITICAL task has many runs in 100 ms. */
#define RATE_NS 100000000ULL
/* Switches are counted in sixteenths, so that an average of less than one switch remains visible. */
#define SWITCH_SHIFT 4
/*
 * A name changes with exec. It is checked in each of the first YOUNG_AGE runs, when most programs call exec, and then every
 * NAME_RUNS runs, since few names change later.
 */
#define NAME_RUNS 64
#define YOUNG_AGE 4
/*
 * Runs of a task between two reports of its behaviour to the daemon (report_name). A report writes to a map that all CPUs share.
 */
#define OBSERVE_RUNS 64

static __always_inline __u64 averaged(__u64 average, __u64 value)
{
	return average - (average >> AVERAGE_SHIFT) + (value >> AVERAGE_SHIFT);
}

/* The CPU time that a run is expected to take, in ns. */
static __always_inline __u64 effective_ns(const struct behaviour *behaviour)
{
	return behaviour->runtime_ns + (behaviour->deviation_ns >> 1);
}

/* The score of a task, by the formula above. */
static __always_inline __u64 score_of(const struct behaviour *behaviour)
{
	__u64 runs = RATE_NS / (behaviour->gap_ns | 1);

	/* One run in a microsecond is more than any task has. The bound keeps the product within 64 bits. */
	if (runs > 100000)
		runs = 100000;
	return (runs * runs * behaviour->average_switches >> SWITCH_SHIFT) /
	       ((effective_ns(behaviour) >> 16) + 1);
}

/* The tier of a task by its averages. */
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

/* Starts the record of a task that comes to this scheduler: it is INTERACTIVE, unless its name is known. */
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
	if (knows_names())
		check_name(task, behaviour);
}

/* Accounts for a task that is switched out: the run ends if the task sleeps, and goes on otherwise. */
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
	/* Other tasks wait for the I/O that a work queue completes. */
	if (tier == TIER_BATCH && kworker_floor_on && task->flags & PF_WQ_WORKER) {
		tier = TIER_INTERACTIVE;
		count(COUNTER_kworkers_raised);
	}
	if (tier != behaviour->tier)
		count(tier == TIER_LAT_CRITICAL ? COUNTER_became_lat_critical :
		      tier == TIER_INTERACTIVE  ? COUNTER_became_interactive :
						  COUNTER_became_batch);
	behaviour->tier = tier;
	if (knows_names() && (behaviour->age < YOUNG_AGE || !(behaviour->runs % NAME_RUNS)))
		check_name(task, behaviour);
	if (profiles_on && !(behaviour->runs % OBSERVE_RUNS))
		report_name(behaviour);
}

/* The tier of a task that is in its run for some time already. It becomes BATCH here if it computes for too long. */
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

/*
 * The slice of a task, in ns: for the tiers that sleep a little more than a usual run, so that the slice ends none of them. A
 * task without `behaviour` is BATCH. LEAST_SLICE_NS and the knobs are the bounds.
 */
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
