/* SPDX-License-Identifier: GPL-2.0-only */
/* The interface of the ladder (ladder.bpf.c): what the policy does for a task that is a worker. */
#ifndef MORPHEUS_LADDER_BPF_H
#define MORPHEUS_LADDER_BPF_H

#include "policy/policy.bpf.h"
#include "link/watch.bpf.h"

/* A demoted worker's CPU time counts this number of times. */
SHARED(const volatile __u64 demotion, = 10);
/* A throttled worker has this part of each window. */
SHARED(const volatile __u64 window_ns, = 100000000);
SHARED(const volatile __u64 quota_ns, = 5000000);
/* One extension in a dispatch, and none for a section that outlived one. Off for tests: then lying pays. */
SHARED(const volatile bool extension_bound_on, = true);
/* How long a critical section may go on after its slice. */
SHARED(const volatile __u64 extension_ns, = 500000);

/* Whether a throttled worker has had its share of the present window. */
static __always_inline bool has_spent(struct worker *worker, __u64 now)
{
	return worker->throttled && worker->window_ran_ns >= quota_ns && now - worker->window_ns < window_ns;
}

/* Its vtime was a time, while it stood in the queue of throttled ones. */
static __always_inline void restore_vtime(struct task_struct *task, struct worker *worker)
{
	if (worker->has_true_vtime) {
		worker->has_true_vtime = 0;
		set_vtime(task, worker->true_vtime);
	}
}

/* A task that was demoted owes nothing for that when it is over: it has waited for each tenfold charge but the last. */
static __always_inline void forgive(struct task_struct *task, struct worker *worker)
{
	__u64 most = clock_of(task) + by_weight(slice_ns, weight_of(task));

	if (!worker->relieved)
		return;
	worker->relieved = 0;
	if (before(most, task->scx.dsq_vtime))
		set_vtime(task, most);
}

/* A CPU runs a stalled worker, or no longer. */
int mark_stalled(__s32 index, bool stalled);
/* A worker has run. Returns how many times that counts. */
__u64 charge_worker(struct task_struct *task __arg_trusted, struct worker *worker, __u64 ran_ns, __u64 now);
/* Puts a worker that is demoted into the queue for those. Returns whether it is one. */
bool put_demoted(struct task_struct *task __arg_trusted, struct worker *worker, __u64 slice, __u64 flags, __u64 now);
/* Lets a worker that is to give its CPU up finish its critical section. Returns whether it goes on. */
bool extend(struct task_struct *task __arg_trusted, struct worker *worker, __s32 index, __u64 now);
/* An extension goes on after an interruption. */
int extend_again(struct task_struct *task __arg_trusted, __s32 index, __u64 now);
/* A worker loses its CPU: within a critical section that is counted, by what took the CPU. */
int count_preempted_section(struct task_struct *task __arg_trusted, struct worker *worker, __s32 index);
/* A CPU of the task's domain that runs a stalled worker and that the task may use, or -1. */
__s32 find_stalled(struct task_struct *task __arg_trusted, __u64 now);

#endif /* MORPHEUS_LADDER_BPF_H */
