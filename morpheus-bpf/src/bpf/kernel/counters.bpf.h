/* SPDX-License-Identifier: GPL-2.0-only */
/* The names of the counters. The daemon reads them from this file, so that no other file lists them. */
#ifndef MORPHEUS_COUNTERS_BPF_H
#define MORPHEUS_COUNTERS_BPF_H

#define MORPHEUS_COUNTERS \
	/* Events for applications; events that were lost because a ring was full. */ \
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
	/* Loans of vtime to workers, and payments by other workers of the process. */ \
	X(loans) \
	X(loans_repaid) \
	/* Preemption, by its reason. */ \
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
	X(preempted_for_sojourn) \
	X(claims_of_requeued) \
	/* Classification. */ \
	X(became_lat_critical) \
	X(became_interactive) \
	X(became_batch) \
	X(cpu_bound) \
	X(cpu_bound_reversed) \
	X(kworkers_raised) \
	X(boosts) \
	X(warm_starts) \
	X(immature) \
	/* Load of the machine. */ \
	X(bursts_by_rate) \
	X(bursts_by_wakes) \
	X(longruns) \
	/* Wake-ups, and tasks that were enqueued again while runnable. */ \
	X(wakeups) \
	X(enqueues_again) \
	/* Wake-ups by a task that woke many others in the same run, and said each time that it was about to sleep. */ \
	X(woken_among_many) \
	/* Tasks put ahead of their vtime, as their waker was about to sleep. */ \
	X(put_ahead) \
	/* Placement. */ \
	X(to_idle_cpu) \
	X(idle_cpu_full) \
	/* A task that would have gone on alone on an efficient core. */ \
	X(to_faster_cpu) \
	/* Wake-ups where the last CPU was busy and shares its second-level cache with others: on a CPU that shares it, or \
	 * elsewhere. By tier. */ \
	X(l2_hits_lat_critical) \
	X(l2_hits_interactive) \
	X(l2_hits_batch) \
	X(l2_misses_lat_critical) \
	X(l2_misses_interactive) \
	X(l2_misses_batch) \
	/* Tasks that waited near their last CPU instead, and kicks of idle CPUs when the wait was over. */ \
	X(near_waits) \
	X(near_waits_over) \
	/* Kicks of idle CPUs that share the cache, for tasks that did not wake. */ \
	X(near_kicks) \
	/* Kicks of CPUs that went idle while a task came to wait. */ \
	X(idle_missed) \
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
	/* Dispatch. */ \
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
	/* Locks of DSQs that dispatch took: to read the first task, and to take a task. */ \
	X(locks_to_peek) \
	X(locks_to_take) \
	X(yields) \
	/* Groups: weights that were made of several; cgroups that count as part of their parent; limits that do not hold, because \
	 * their cgroups count as part of others; tasks whose group had no quota, and tasks that were released; kicks and slices \
	 * that ended for a limit; tasks that were switched in without quota (breaths). */ \
	X(group_weights) \
	X(groups_merged) \
	X(limits_lost) \
	X(to_limited) \
	X(from_limited) \
	X(kicks_at_limit) \
	X(ended_at_limit) \
	X(breaths) \
	/* Full speed: requested and renewed, for workers and by tier; and requests of an idle CPU for none. */ \
	X(full_speed) \
	X(full_speed_kept) \
	X(full_speed_for_tier) \
	X(full_speed_for_tier_kept) \
	X(speed_dropped) \
	/* Rescues: all, those of tasks past AGED_NS, tasks that were re-enqueued and rescued again; tasks handed over to the \
	 * kernel for a CPU that goes offline; re-enqueues for a higher class. */ \
	X(rescues) \
	X(rescues_of_aged) \
	X(rescued_again) \
	X(handed_over) \
	X(reenqueues) \
	/* Workers that were found on a CPU without having been switched in; samples of running workers by the timer. */ \
	X(unseen_switches) \
	X(samples)

#define X(name) COUNTER_##name,
enum counter { MORPHEUS_COUNTERS COUNTERS };
#undef X

/* Adds one to a counter. */
int count(__u32 which);

#endif /* MORPHEUS_COUNTERS_BPF_H */
