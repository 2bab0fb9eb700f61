/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The interface between the core policy and its options.
 *
 * Each option is an object of its own in this directory, with its constants, its maps and its reasons. The core calls it in the
 * places below, in the order of a task's life. Each call is behind a word that says whether there is anything to do: where an
 * option is switched off, that word is a constant, and the kernel loads neither the call nor the option.
 *
 * Functions return 0 where nothing else is said. None of them is static, so that the verifier checks each once.
 */
#ifndef MORPHEUS_OPTIONS_BPF_H
#define MORPHEUS_OPTIONS_BPF_H

#include "kernel/scx.bpf.h"

struct behaviour;
struct claim;
struct cpu;
struct domain;
struct heads;
struct words;
struct worker;

/*
 * The knobs that the daemon changes about once a second (src/adapt). Each is written by itself: a reader of two may see one of
 * them from before a change.
 */
struct knobs {
	/* The longest slice of a task that others wait for (tiers LAT_CRITICAL and INTERACTIVE), in ns. */
	__u64 slice_ns;
	/* The slice of a BATCH task, in ns. */
	__u64 batch_slice_ns;
	/* The longest slice of all tasks during a burst and a long run, in ns. */
	__u64 burst_slice_ns;
	/* The time after which a tick may preempt a BATCH task, in ns; during a burst at once. */
	__u64 preempt_after_ns;
	/* A task that computes for longer in a run, and for more than half of the time, is BATCH, in ns. */
	__u64 cpu_bound_ns;
	/* The time that the main DSQ may go without service while others go before it, in ns. */
	__u64 sojourn_ns;
	/* The least scores of the two tiers (classify.bpf.h). */
	__u32 lat_critical_from;
	__u32 interactive_from;
	/* enum affinity */
	__u32 affinity;
	__u32 padding;
};

SHARED(struct knobs knobs, SEC(".data.knobs") = {
	.slice_ns = 4000000,
	.batch_slice_ns = 4000000,
	.burst_slice_ns = 1000000,
	.preempt_after_ns = 1000000,
	.cpu_bound_ns = 2500000,
	.sojourn_ns = 5000000,
	.lat_critical_from = 32,
	.interactive_from = 8,
	.affinity = 1,
});

/*
 * Jiffies in a second. The kernel tells in jiffies since when a task waits, and tells programs no number of them in a second: it
 * is measured from the start on, once a second has passed (rescue.bpf.c).
 */
SHARED(__u64 jiffies_in_second, = 250);

/* names.bpf.c: tasks that are known by their names, from the command line or from earlier runs. */
SHARED(const volatile bool profiles_on, = true);
SHARED(const volatile bool boost_on, = true);
static __always_inline bool knows_names(void)
{
	return boost_on || profiles_on;
}
int check_name(struct task_struct *task __arg_trusted, struct behaviour *behaviour);
int report_name(const struct behaviour *behaviour);

/* latency.bpf.c: the wait and the sleep of tasks, for the daemon. */
int note_wait(struct behaviour *behaviour, __u64 now);

/* detect.bpf.c: bursts and long runs, at each tick. */
SHARED(const volatile bool cusum_on, = true);
SHARED(const volatile bool wakeup_burst_on, = true);
SHARED(const volatile bool longrun_on, = true);
static __always_inline bool detects(void)
{
	return cusum_on || wakeup_burst_on || longrun_on;
}
SHARED(__u32 burst_now);
SHARED(__u32 longrun_now);
int detect(__u64 now);

/* near.bpf.c: idle CPUs that share a second-level cache with the last CPU of a task. */
enum affinity {
	AFFINITY_OFF,
	/* An idle CPU that shares the second-level cache; else any. */
	AFFINITY_WEAK,
	/* Else, if the last CPU is free soon, the task waits for a while before others are kicked. */
	AFFINITY_STRONG,
};

/* Some CPUs are near to others, and the option is on. Set by the daemon. */
SHARED(const volatile bool l2_affinity_on, = false);
/* Beside the number of a CPU: it is idle, and was claimed. */
#define NEAR_IS_IDLE (1 << 16)
/* Kicks an idle CPU near the last one of a task that is in a DSQ. Returns whether there was one, and the last one is busy. */
bool kick_near(struct task_struct *task __arg_trusted);
/* Returns the CPU for a waking task, or -1 where the kernel's search decides. */
__s32 find_near(struct task_struct *task __arg_trusted, __s32 previous, __u64 flags);
/* Whether a task that was put into a DSQ waits there for its last CPU, so that no other one is preempted. */
bool waits_near(struct task_struct *task __arg_trusted);
int start_near_timer(__u32 index);

/* hybrid.bpf.c: CPUs that differ in capacity. Set by the daemon where they do. */
SHARED(const volatile bool hybrid_on, = false);
/* Claims an idle performance core for a task. Returns its CPU, or -1. */
__s32 claim_fast(struct task_struct *task __arg_trusted, __s32 previous);
/* Dispatches a task that would go on alone to an idle performance core. Returns whether there is one. */
bool goes_to_fast(struct task_struct *task __arg_trusted, __s32 index);
/* Whether a task that would go on alone on this CPU is to be moved to a performance core. */
bool is_misplaced(struct task_struct *task __arg_trusted, __s32 index);

/* handoff.bpf.c: the flags of a wake-up for the kernel's search, without WAKE_SYNC where tasks wait for the waker's CPU. */
__u64 search_flags(__u64 flags);

/* sync.bpf.c: wake-ups by tasks that are about to sleep. */
/*
 * The least time between two kicks of a CPU for such wake-ups, in ns: one tick, which checks without a kick. The second is the time
 * that a waker on the same CPU gets to sleep, where the kernel does not set WAKE_SYNC. `--without sync-pause` makes both 0.
 */
SHARED(const volatile __u64 sync_pause_ns, = 4000000);
SHARED(const volatile __u64 unsaid_pause_ns, = 1000000);
/*
 * How far before its vtime a task that was woken so waits in the front DSQ, in ns: further than tasks of short runs are apart. A task
 * that waits with less vtime lets another one have this much CPU time at most. `--without sync-ahead` makes it 0.
 */
SHARED(const volatile __u64 sync_ahead_ns, = 500000);
/* Whether anything depends on it that a waker is about to sleep. */
static __always_inline bool uses_sync(void)
{
	return sync_pause_ns || sync_ahead_ns;
}
/* In `sync` of a behaviour: its waker has woken many others in the same run. */
#define ONE_OF_MANY (1U << 31)
/* The number + 1 of the CPU of a waker that says it is about to sleep, with ONE_OF_MANY where due; or 0. */
__u32 waker_that_sleeps(void);
/* Fills in the claim of a task that woke. Returns whether it waits as those that compute. */
bool check_waker(struct task_struct *task __arg_trusted, struct behaviour *behaviour, bool serves, struct claim *claim);

/* missed.bpf.c: an idle CPU is kicked for each task that it may run, also for one that it missed. `--without kick-idle` */
SHARED(const volatile bool idle_kicks_on, = true);
int kick_missed(__u32 domain);

/* later.bpf.c: preemption that is not due yet. Skipped kicks are made up for. `--without make-up` */
SHARED(const volatile bool make_up_on, = true);
int kick_later(__u32 index, const struct claim *claim, __u64 sync_ns);
int start_kick_timer(__u32 index);

/* starvation.bpf.c: when the main DSQ has tasks and goes before the front DSQ. Returns the counter of the reason, or COUNTERS. */
int main_goes_first(struct domain *domain, __u32 index, __u64 now);
/* Tasks of pinned DSQs count toward the deficit as those of the front DSQ do, and go after the main DSQ when it is reached. */
SHARED(const volatile bool deficit_on, = true);
SHARED(const volatile bool starvation_rescue_on, = true);
bool is_deficit_reached(const struct domain *domain);
/* At a tick, of a CPU that runs no BATCH task: its task makes way for one of the main DSQ if that is due. */
SHARED(const volatile bool sojourn_rescue_on, = true);
int make_way_at_tick(struct task_struct *task __arg_trusted, __s32 index, __u64 now);
/* The DSQs to serve in place of a pinned task, because they are overdue. */
SHARED(const volatile bool overflow_rescue_on, = true);
#define FRONT_IS_OVERDUE 1
#define MAIN_IS_OVERDUE 2
__u32 overdue_queues(const struct domain *domain, const struct heads *heads, __u64 now);

/* rescue.bpf.c, crowd.bpf.c: tasks that have waited for long, and slices where many wait. */
SHARED(const volatile bool rescue_on, = true);
/* The timer is armed, which it is while a task waits. */
SHARED(__u32 rescue_armed);
int watch_over_queues(void);
bool rescue_again(struct task_struct *task __arg_trusted, __u64 slice, __u64 flags);
bool take_rescued(__u32 domain, __s32 index);
/* CPUs take tasks from other domains: one without work does, and one of a domain that has less to do. `--without steal` */
SHARED(const volatile bool steal_on, = true);
int init_rescue(void);
int bound_slice(struct task_struct *task __arg_trusted, __u32 index, __u64 most_ns, __u64 now);
int start_slice_timer(__u32 index);

/* speed.bpf.c: speed requests of CPUs. */
SHARED(const volatile bool cpuperf_on, = false);
int speed_at_start(struct task_struct *task __arg_trusted, __s32 index, __u64 now);
int speed_at_sample(struct worker *worker, const struct words *slot, __u64 now);
int speed_at_tick(struct task_struct *task __arg_trusted, __s32 index, __u64 now);
int speed_at_end(__s32 index, __u64 now);
int start_speed(__u32 index);

/* groups.bpf.c, quota.bpf.c, limit.bpf.c: cgroups with a weight, and with a limit. */
#define ROOT_GROUP 0
/* The number of groups beside the root, and of groups with a limit. While they are 0 no other state of groups is read. */
SHARED(__u32 group_count);
SHARED(__u32 limit_count);
/* Each is off where the kernel does not tell. */
SHARED(const volatile bool group_weights_on, = true);
SHARED(const volatile bool group_limits_on, = true);
static __always_inline bool has_groups(void)
{
	return (group_weights_on || group_limits_on) && group_count;
}
static __always_inline bool has_limits(void)
{
	return group_limits_on && limit_count;
}
/* The weight of a task in parts of 1024, as of its last enqueue or switch. */
__u32 group_weight(struct task_struct *task __arg_trusted);
/* A task wants the CPU, or has got it and begins to run. Returns its group. */
__u32 join_group(struct task_struct *task __arg_trusted, bool begins);
/* At a tick, and when a CPU is about to idle: tells groups what the CPU has kept of their sums. */
int settle_groups(void);
/* It no longer wants the CPU. */
int note_sleep(struct task_struct *task __arg_trusted);
/* The group for whose quota a task has to wait, or ROOT_GROUP. */
__u32 waits_for(struct task_struct *task __arg_trusted, __u64 now);
/* Puts a task into the DSQ of that group. Returns whether it waits there. */
bool wait_in(__u32 group, struct task_struct *task __arg_trusted, __u64 flags, __u64 now);
/* Charges the account of a group. Returns the quota that remains. */
__s64 pay_quota(__u32 group, __u64 used_ns, __u64 now);
int begin_limited(struct task_struct *task __arg_trusted, __u64 now);
int tick_in_group(struct task_struct *task __arg_trusted, __u64 now);
int start_quota_timer(__u32 index);
int init_groups(void);

#endif /* MORPHEUS_OPTIONS_BPF_H */
