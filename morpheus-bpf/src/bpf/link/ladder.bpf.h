/* SPDX-License-Identifier: GPL-2.0-only */
/* The interface of the ladder (ladder.bpf.c): what the policy calls for a task that is a worker. */
#ifndef MORPHEUS_LADDER_BPF_H
#define MORPHEUS_LADDER_BPF_H

#include "policy/policy.bpf.h"
#include "link/watch.bpf.h"

/*
 * The factor by which the CPU time of a demoted worker counts. A tenth of its weight remains, as it may hold a lock that others
 * need.
 */
SHARED(const volatile __u64 demotion, = 10);
/* The CPU time that a throttled worker gets in each window, in ns: 5 % of a CPU. */
SHARED(const volatile __u64 window_ns, = 100000000);
SHARED(const volatile __u64 quota_ns, = 5000000);
/*
 * A worker gets one extension in a dispatch, and none for a section that outlived one: without this, a false claim gains CPU
 * time. `--without extension-bound`
 */
SHARED(const volatile bool extension_bound_on, = true);
/* The longest time that a critical section goes on after the slice, in ns. `--critical-extension-us` */
SHARED(const volatile __u64 extension_ns, = 500000);

/* Whether a throttled worker has used its share of the present window. */
static __always_inline bool has_spent(struct worker *worker, __u64 now)
{
	return worker->throttled && worker->window_ran_ns >= quota_ns && now - worker->window_ns < window_ns;
}

/* Restores the vtime of a worker that comes from the throttled DSQ, where a time stood in its place. */
static __always_inline void restore_vtime(struct task_struct *task, struct worker *worker)
{
	if (worker->has_true_vtime) {
		worker->has_true_vtime = 0;
		set_vtime(task, worker->true_vtime);
	}
}

/* Cancels the debt of a demotion that is over: the worker has waited for each tenfold charge but the last. */
static __always_inline void forgive(struct task_struct *task, struct worker *worker)
{
	__u64 most = clock_of(task) + by_weight(slice_ns, weight_of(task));

	if (!worker->relieved)
		return;
	worker->relieved = 0;
	if (before(most, task->scx.dsq_vtime))
		set_vtime(task, most);
}

/* Marks a CPU that starts or stops running a stalled worker. */
int mark_stalled(__s32 index, bool stalled);
/* Accounts for the CPU time of a worker. Returns the factor by which it counts. */
__u64 charge_worker(struct task_struct *task __arg_trusted, struct worker *worker, __u64 ran_ns, __u64 now);
/* Puts a demoted worker into the DSQ for those. Returns whether the worker is one. */
bool put_demoted(struct task_struct *task __arg_trusted, struct worker *worker, __u64 slice, __u64 flags, __u64 now);
/* Lets a worker that is to give its CPU up finish its critical section. Returns whether it goes on. */
bool extend(struct task_struct *task __arg_trusted, struct worker *worker, __s32 index, __u64 now);
/* Resumes an extension after an interruption. */
int extend_again(struct task_struct *task __arg_trusted, __s32 index, __u64 now);
/* Counts a worker that loses its CPU in a critical section, by the reason of the loss. */
int count_preempted_section(struct task_struct *task __arg_trusted, struct worker *worker, __s32 index);
/* A CPU of the task's domain that runs a stalled worker and that the task may use, or -1. */
__s32 find_stalled(struct task_struct *task __arg_trusted, __u64 now);

#endif /* MORPHEUS_LADDER_BPF_H */
