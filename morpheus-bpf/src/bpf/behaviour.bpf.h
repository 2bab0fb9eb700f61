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
 * A tier gives no share of the CPU. Only who has had less than the others goes before them (is_entitled, queue.bpf.h): so
 * nobody gains by looking interactive.
 *
 * Workers of Morpheus are not guessed at: their slots say whether they serve.
 */
#ifndef MORPHEUS_BEHAVIOUR_BPF_H
#define MORPHEUS_BEHAVIOUR_BPF_H

#include "knobs.bpf.h"
#include "counters.bpf.h"

/* The numbers are those of src/tier.rs, and of the process database's file. */
enum tier {
	TIER_LAT_CRITICAL,
	TIER_INTERACTIVE,
	TIER_BATCH,
	TIERS,
};

/* Each average moves by 1 / 2^AVERAGE_SHIFT of what is new. */
#define AVERAGE_SHIFT 3
/* Rates are those in such a time. */
#define RATE_NS 100000000ULL
/* Switches are counted in sixteenths. */
#define SWITCH_SHIFT 4
/* After so many sleeps a task is known. */
#define MATURE_AGE 2
/* A name changes with exec: it is looked at again after so many turns, and in each of the first few. */
#define NAME_TURNS 64
#define YOUNG_AGE 4
/* So often what a mature task is like is told to the daemon. */
#define OBSERVE_TURNS 64
#define NAME_BYTES 16

/* In `sync` of a task: its waker has woken many others in the same turn (kick.bpf.h). */
#define ONE_OF_MANY (1U << 31)

struct behaviour {
	/* Its CPU time when the present turn began. */
	__u64 exec_ns;
	/* When it last went to sleep. */
	__u64 slept_ns;
	/* When it woke and had to wait, until it runs. */
	__u64 woke_ns;
	/* Averages: from sleep to sleep, CPU time of a turn, and how far that is from its average. */
	__u64 gap_ns;
	__u64 runtime_ns;
	__u64 deviation_ns;
	/* Of a turn, in sixteenths. */
	__u32 average_switches;
	/* In the present turn. */
	__u32 switches;
	/* How often it has slept, as far as that matters. */
	__u32 age;
	__u32 turns;
	/* enum tier */
	__u32 tier;
	/* In the present turn it computes for too long. */
	__u32 cpu_bound;
	/* It is in the list of those that are to be LAT_CRITICAL. */
	__u32 boosted;
	/*
	 * Who woke it has said that it will sleep soon itself: the number, and one, of the CPU where that one runs, and
	 * ONE_OF_MANY. 0 once it is put into a queue.
	 */
	__u32 sync;
	/* It woke, and waits near its last CPU before any other is told (place.bpf.h). */
	__u32 stays;
	/* The number, and one, of the domain by whose clock its vtime is; 0: it is not known. Without tiers as well. */
	__u32 home;
	char name[NAME_BYTES];
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct behaviour);
} behaviours SEC(".maps");

struct name {
	char text[NAME_BYTES];
};

/* Names that are LAT_CRITICAL always, from the command line. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, struct name);
	__type(value, __u32);
} boosts SEC(".maps");

/* What is known of a name: from earlier runs (profiles, written by the daemon), and of late (observed, read by it). */
struct profile {
	__u64 runtime_ns;
	__u32 tier;
	__u32 seen;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct name);
	__type(value, struct profile);
} profiles SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, struct name);
	__type(value, struct profile);
} observed SEC(".maps");

/*
 * How long tasks waited from their wake until they ran, by tier: bucket 0 is below 2 us, bucket i from 2^i us on, the last
 * has no end. Who was put on an idle CPU did not wait in a queue, and stands in bucket 0.
 */
#define LATENCY_BUCKETS 16
/* How long they had slept: below 1 ms, 10 ms, 100 ms, and longer. */
#define SLEEP_BUCKETS 4

struct histograms {
	__u64 wakes[TIERS][LATENCY_BUCKETS];
	__u64 sleeps[SLEEP_BUCKETS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct histograms);
} histograms SEC(".maps");

static __always_inline struct behaviour *behaviour_of(struct task_struct *task)
{
	return tiers_on ? bpf_task_storage_get(&behaviours, task, 0, 0) : 0;
}

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
	__u64 turns = RATE_NS / (behaviour->gap_ns | 1);

	/* More than one in a microsecond nobody has. */
	if (turns > 100000)
		turns = 100000;
	return (turns * turns * behaviour->average_switches >> SWITCH_SHIFT) /
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

/* Who it is may have changed, by exec or by its own doing: then what is known of it is of somebody else. */
static __noinline int look_at_name(struct task_struct *task, struct behaviour *behaviour)
{
	struct profile *profile;
	struct name name = {};

	if (!task || !behaviour)
		return 0;
	/* Zeroes behind its end, as in the keys of the maps. */
	bpf_probe_read_kernel_str(&name, sizeof(name), task->comm);
	if (!__builtin_memcmp(&name, behaviour->name, sizeof(name)))
		return 0;
	__builtin_memcpy(behaviour->name, &name, sizeof(name));
	behaviour->boosted = boost_on && bpf_map_lookup_elem(&boosts, &name);
	if (behaviour->boosted) {
		behaviour->tier = TIER_LAT_CRITICAL;
		count(COUNTER_boosts);
		return 1;
	}
	behaviour->age = 0;
	behaviour->tier = TIER_INTERACTIVE;
	profile = profiles_on ? bpf_map_lookup_elem(&profiles, &name) : 0;
	if (profile) {
		behaviour->runtime_ns = profile->runtime_ns;
		behaviour->tier = profile->tier < TIERS ? profile->tier : TIER_BATCH;
		behaviour->age = MATURE_AGE;
		count(COUNTER_warm_starts);
	}
	return 1;
}

static __always_inline void meet(struct task_struct *task, __u32 home)
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
	look_at_name(task, behaviour);
}

static __always_inline void tell(const struct behaviour *behaviour)
{
	struct profile profile = {
		.runtime_ns = behaviour->runtime_ns,
		.tier = behaviour->tier,
		.seen = behaviour->turns,
	};
	struct name name;

	__builtin_memcpy(&name, behaviour->name, sizeof(name));
	bpf_map_update_elem(&observed, &name, &profile, BPF_ANY);
}

/* A task is switched out. */
static __always_inline void turn_goes_on_or_ends(struct task_struct *task, struct behaviour *behaviour, bool sleeps,
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
	behaviour->turns++;
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
	if (behaviour->age < YOUNG_AGE || !(behaviour->turns % NAME_TURNS))
		look_at_name(task, behaviour);
	if (profiles_on && !(behaviour->turns % OBSERVE_TURNS))
		tell(behaviour);
}

/* It runs, and has not slept for long. Returns its tier. */
static __always_inline __u32 tier_within_turn(struct task_struct *task, struct behaviour *behaviour)
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

static __always_inline __u32 latency_bucket(__u64 ns)
{
	__u64 us = ns / 1000;
	__u32 bucket = us < 2 ? 0 : 63 - __builtin_clzll(us);

	return bucket < LATENCY_BUCKETS ? bucket : LATENCY_BUCKETS - 1;
}

/* A task is switched in. */
__noinline int note_wait(struct behaviour *behaviour, __u64 now)
{
	__u64 waited_ns = 0, slept_ns, woke_ns = now;
	struct histograms *counts;
	__u32 key = 0, tier, bucket;

	if (!behaviour)
		return 0;
	tier = behaviour->tier;
	/* It has run since it last slept, and was preempted. */
	if (behaviour->switches)
		return 0;
	counts = bpf_map_lookup_elem(&histograms, &key);
	if (!counts)
		return 0;
	if (behaviour->woke_ns) {
		woke_ns = behaviour->woke_ns;
		behaviour->woke_ns = 0;
		/* It was taken out of the queue, and put on an idle CPU at a later wake; or that CPU's clock is ahead. */
		if ((__s64)(woke_ns - behaviour->slept_ns) < 0)
			woke_ns = now;
		if ((__s64)(now - woke_ns) > 0)
			waited_ns = now - woke_ns;
	}
	bucket = latency_bucket(waited_ns) & (LATENCY_BUCKETS - 1);
	if (tier >= TIERS)
		return 0;
	counts->wakes[tier][bucket]++;
	if (!behaviour->slept_ns || (__s64)(woke_ns - behaviour->slept_ns) < 0)
		return 0;
	slept_ns = woke_ns - behaviour->slept_ns;
	bucket = slept_ns < 1000000 ? 0 : slept_ns < 10000000 ? 1 : slept_ns < 100000000 ? 2 : 3;
	counts->sleeps[bucket]++;
	return 0;
}

#endif /* MORPHEUS_BEHAVIOUR_BPF_H */
