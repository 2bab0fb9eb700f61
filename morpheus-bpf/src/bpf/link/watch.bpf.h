/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The interface of the watch over workers (watch.bpf.c): the functions that it calls in the observer (observer.bpf.c) or the
 * ladder (ladder.bpf.c), and those that it has for them.
 */
#ifndef MORPHEUS_WATCH_BPF_H
#define MORPHEUS_WATCH_BPF_H

#include "link/slot.bpf.h"

/* CPU time that makes a hog poll, in ns: the same as in the runtime's watchdog. */
SHARED(const volatile __u64 hog_ns, = 5000000);
/* BPF_F_TIMER_CPU_PIN where the kernel has it. */
SHARED(const volatile __u64 timer_flags, = BPF_F_TIMER_CPU_PIN);

/* An episode that is over its budget. */
struct overrun {
	__u64 episode;
	/* CPU time that it has used. */
	__u64 used_ns;
	/* CLOCK_MONOTONIC, the clock that applications see. */
	__u64 now;
	/*
	 * The worker runs, on this CPU. Otherwise it has just been switched out, and the state of this CPU is that of the next
	 * task: the kernel calls a scheduler for that one before the tracepoint comes.
	 */
	__u32 runs;
	__u32 padding;
};

/* The functions that the watch calls. They may not write to the task, since tracing programs call them. */

/* The episode of a worker is over its budget; called at each sample. */
int over_budget(struct worker *worker, const struct words *slot, const struct overrun *overrun);
/* The worker is in another episode than before. */
int episode_ended(struct worker *worker);
/* A sample by the timer is done. Returns the time until something else has to be done with the worker on this CPU, in ns. */
__u64 sampled(struct worker *worker, const struct words *slot);
/* A CPU switches between tasks; called first. */
int switching(struct task_struct *next __arg_trusted);

/* Prepares the timer of a CPU; called once for each CPU. Returns 0 or a negative error number. */
int start_sample_timer(__u32 index);
/* Samples the worker that runs on this CPU after `delay_ns`. */
int sample_after(__u64 delay_ns);

#endif /* MORPHEUS_WATCH_BPF_H */
