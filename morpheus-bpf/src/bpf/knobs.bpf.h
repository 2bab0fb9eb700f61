/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the daemon sets: once, by the number of CPUs and by what is switched off, and again and again while it runs, by
 * what it sees (knobs). The formulas for both are in src/scaling.rs and src/adapt.
 */
#ifndef MORPHEUS_KNOBS_BPF_H
#define MORPHEUS_KNOBS_BPF_H

/* Changed about once a second, each word by itself: whoever reads two may see one of before. */
struct knobs {
	/* The longest turn of a task that others wait for (tiers LAT_CRITICAL and INTERACTIVE). */
	__u64 slice_ns;
	/* The turn of one that computes (BATCH). */
	__u64 batch_slice_ns;
	/* The turn of everybody, at most, during a burst and a long run. */
	__u64 burst_slice_ns;
	/* After so long one that computes may be preempted at a tick; 0 during a burst. */
	__u64 preempt_after_ns;
	/* Who computes longer at a stretch, and more than it sleeps, is bound by the CPU. */
	__u64 cpu_bound_ns;
	/* The main queue may go without service for so long while others go before it. */
	__u64 sojourn_ns;
	/* From these scores on (behaviour.bpf.h). */
	__u32 lat_critical_from;
	__u32 interactive_from;
	/* enum affinity */
	__u32 affinity;
	__u32 padding;
};

struct knobs knobs SEC(".data.knobs") = {
	.slice_ns = 4000000,
	.batch_slice_ns = 4000000,
	.burst_slice_ns = 1000000,
	.preempt_after_ns = 1000000,
	.cpu_bound_ns = 2500000,
	.sojourn_ns = 5000000,
	.lat_critical_from = 32,
	.interactive_from = 8,
	.affinity = 1,
};

/* What the detectors have found (detect.bpf.h): a storm of new work; and that some computed all the time of late. */
__u32 burst_now;
__u32 longrun_now;

/* A CPU near the one where a task ran last. */
enum affinity {
	AFFINITY_OFF,
	/* One that shares the L2 cache, if it is idle; else any. */
	AFFINITY_WEAK,
	/* And else, if that one is soon free, it waits for a while before others are told (place.bpf.h). */
	AFFINITY_STRONG,
};

/* Scheduling domains: CPUs that share queues and a clock (queue.bpf.h). */
const volatile __u32 domain_count = 1;

/* By the number of CPUs; the defaults are those of two. */
const volatile __u64 overflow_rescue_ns = 4000000;
const volatile __u64 starvation_ns = 50000000;
const volatile __u32 deficit_budget = 6;
const volatile __u32 deficit_budget_longrun = 2;
const volatile __u32 idle_depth = 1;
/* New tasks, and wakes of tasks that nobody knows yet, in a detector's window. */
const volatile __u32 burst_wakeups = 10;
/* How far after the clock one may be; 0 without a ceiling. */
const volatile __u64 vtime_ceiling_ns = 0;

/* What can be switched off. */
const volatile bool tiers_on = true;
const volatile bool tier_slices_on = true;
const volatile bool cpu_bound_on = true;
const volatile bool boost_on = true;
const volatile bool kworker_floor_on = true;
const volatile bool immature_gate_on = true;
const volatile bool wakeup_preemption_on = true;
const volatile bool tick_preemption_on = true;
const volatile bool idle_depth_on = true;
const volatile bool overflow_rescue_on = true;
const volatile bool deficit_on = true;
const volatile bool starvation_rescue_on = true;
const volatile bool sojourn_rescue_on = true;
const volatile bool cusum_on = true;
const volatile bool wakeup_burst_on = true;
const volatile bool longrun_on = true;
const volatile bool profiles_on = true;
const volatile bool steal_on = true;

#endif /* MORPHEUS_KNOBS_BPF_H */
