/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The interface of watching workers (watch.bpf.c): what it tells, to the observer (observer.bpf.c) or the ladder (ladder.bpf.c), and
 * what it does for those.
 */
#ifndef MORPHEUS_WATCH_BPF_H
#define MORPHEUS_WATCH_BPF_H

#include "link/slot.bpf.h"

/* CPU time that counts against a poll's label: as the runtime's watchdog has it. */
SHARED(const volatile __u64 hog_ns, = 5000000);
/* BPF_F_TIMER_CPU_PIN where the kernel has it. */
SHARED(const volatile __u64 timer_flags, = BPF_F_TIMER_CPU_PIN);

/* An episode that is over its budget. */
struct overrun {
	__u64 episode;
	/* CPU time that it has used. */
	__u64 used_ns;
	/* By the clock that applications see. */
	__u64 now;
	/*
	 * The worker has a CPU, and it is this one. Else the worker has just been switched out, and what is known of this CPU is about
	 * the next task: the kernel tells a scheduler of that one before the tracepoint comes.
	 */
	__u32 runs;
	__u32 padding;
};

/* The functions that are told. They may not write to the task: tracing programs call them. */

/* A worker's episode is over its budget. Said at each look. */
int over_budget(struct worker *worker, const struct words *slot, const struct overrun *overrun);
/* The worker is in another episode than it was. */
int episode_ended(struct worker *worker);
/* A look by the timer is over. Returns how long until something else has to be done with the worker on this CPU, in ns. */
__u64 sampled(struct worker *worker, const struct words *slot);
/* A CPU goes from one task to another; said first. */
int switching(struct task_struct *next __arg_trusted);

/* To be called once for each CPU. Returns 0 or a negative error number. */
int start_sample_timer(__u32 index);
/* Has the worker that runs on this CPU looked at after `delay_ns`. */
int sample_after(__u64 delay_ns);

#endif /* MORPHEUS_WATCH_BPF_H */
