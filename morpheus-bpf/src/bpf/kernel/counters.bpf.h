/* SPDX-License-Identifier: GPL-2.0-only */
/* What the programs count. The daemon reads the names in this file, so that they stand here alone. */
#ifndef MORPHEUS_COUNTERS_BPF_H
#define MORPHEUS_COUNTERS_BPF_H

#define MORPHEUS_COUNTERS \
	/* Of the events for applications, and those for which a ring had no room. */ \
	X(events) \
	X(events_lost) \
	/* The ladder. */ \
	X(requests) \
	X(hogs_marked) \
	X(demotions) \
	X(undemotions) \
	X(throttles) \
	/* Critical sections. */ \
	X(extensions) \
	X(extensions_outlived) \
	X(critical_preempted_at_slice_end) \
	X(critical_preempted_by_kick) \
	X(critical_preempted_by_others) \
	/* Workers that went ahead at the expense of others of their process, and those that paid for it. */ \
	X(loans) \
	X(loans_repaid) \
	/* Preemption, by what asked for it. */ \
	X(kicks_for_serving) \
	X(kicks_for_controller) \
	X(kicks_for_waiting) \
	X(kicks_skipped) \
	X(kicks_skipped_for_sync) \
	X(kicks_made_up) \
	X(kicks_at_slice_end) \
	X(kicks_at_demotion) \
	X(kicks_at_extension_end) \
	X(kicks_at_quota) \
	X(kicks_idle) \
	X(kicks_for_tier) \
	X(kicks_in_crowd) \
	X(preempted_at_tick) \
	/* What tasks turned out to be. */ \
	X(became_lat_critical) \
	X(became_interactive) \
	X(became_batch) \
	X(cpu_bound) \
	X(cpu_bound_reversed) \
	X(kworkers_raised) \
	X(boosts) \
	X(warm_starts) \
	X(immature) \
	/* What goes on in the machine. */ \
	X(bursts_by_rate) \
	X(bursts_by_wakes) \
	X(longruns) \
	/* Wakes, and tasks that were put into a queue again. */ \
	X(wakeups) \
	X(enqueues_again) \
	/* By somebody that woke many others in the same turn, and said of each time that it was about to sleep. */ \
	X(woken_among_many) \
	/* Where tasks were put. */ \
	X(to_idle_cpu) \
	X(idle_cpu_full) \
	/* Wakes where the last CPU was busy and shares its second-level cache with others: near it, or elsewhere. By tier. */ \
	X(l2_hits_lat_critical) \
	X(l2_hits_interactive) \
	X(l2_hits_batch) \
	X(l2_misses_lat_critical) \
	X(l2_misses_interactive) \
	X(l2_misses_batch) \
	/* Or they waited for it; and idle CPUs were told that it took too long. */ \
	X(near_waits) \
	X(near_waits_over) \
	X(to_lat_critical) \
	X(to_interactive) \
	X(to_main) \
	X(vtime_ceilings) \
	X(to_demoted) \
	X(to_throttled) \
	X(to_pinned) \
	X(to_local) \
	X(to_next) \
	X(resumed) \
	/* What a CPU did when it had to choose. */ \
	X(from_front) \
	X(from_main) \
	X(from_overflow_rescue) \
	X(from_deficit) \
	X(from_starvation_rescue) \
	X(from_sojourn_rescue) \
	X(from_demoted) \
	X(from_throttled) \
	X(from_pinned) \
	X(from_other_domains) \
	X(domains_changed) \
	X(kept) \
	/* Locks of queues that it took: to look at the first task, and to take one. */ \
	X(locks_to_peek) \
	X(locks_to_take) \
	X(yields) \
	/* Groups: weights that were made of several, cgroups that count as part of their parent; tasks whose group had used up \
	 * its quota, and those that could go on; who was stopped for it, and who got a breath while waiting. Limits that do not \
	 * hold, because their cgroups count as part of others. */ \
	X(group_weights) \
	X(groups_merged) \
	X(limits_lost) \
	X(to_limited) \
	X(from_limited) \
	X(kicks_at_limit) \
	X(ended_at_limit) \
	X(breaths) \
	/* Full speed, asked for anew and again, for workers and by tier; and an idle CPU asks for none. */ \
	X(full_speed) \
	X(full_speed_kept) \
	X(full_speed_for_tier) \
	X(full_speed_for_tier_kept) \
	X(speed_dropped) \
	/* Against stalls: brought forward, and of those, tasks that had waited for as long as none is to. */ \
	X(rescues) \
	X(rescues_of_aged) \
	X(rescued_again) \
	X(handed_over) \
	X(reenqueues) \
	/* Looks at running workers by a timer, and workers found on a CPU without having been switched in. */ \
	X(unseen_switches) \
	X(samples)

#define X(name) COUNTER_##name,
enum counter { MORPHEUS_COUNTERS COUNTERS };
#undef X

/* Counts one more. */
int count(__u32 which);

#endif /* MORPHEUS_COUNTERS_BPF_H */
