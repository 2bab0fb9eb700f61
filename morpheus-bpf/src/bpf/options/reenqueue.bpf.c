// SPDX-License-Identifier: GPL-2.0-only
/* Re-enqueue: tasks in the local DSQ of a CPU that a higher class takes go back to this scheduler. */
#include "kernel/kernel.bpf.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "morpheus_abi.h"
#include "link/watch.bpf.h"
#include "options/options.bpf.h"

/* `--without reenqueue` */
const volatile bool reenqueue_on = true;

/* Only tasks that ask for it are this scheduler's: the others are of the fair class, which is above it then. `--partial` */
const volatile bool partial_on = false;

/* Whether a task is of a class above this scheduler's. */
static __always_inline bool is_above(const struct task_struct *task)
{
	return task->prio < MAX_RT_PRIO || (partial_on && task->pid && task->policy != SCHED_EXT);
}

/*
 * A CPU switches between tasks. If the next task is of a higher class, the tasks in the local DSQ are re-enqueued where other
 * CPUs can take them. Before Linux 6.19 the callback cpu_release says so, and only it may re-enqueue.
 */
int switching(struct task_struct *next __arg_trusted)
{
	if (!reenqueue_on || !is_above(next))
		return 0;
	if (bpf_ksym_exists(scx_bpf_dsq_reenq)) {
		scx_bpf_dsq_reenq(DSQ_LOCAL, 0);
		count(COUNTER_reenqueues);
	} else if (bpf_ksym_exists(scx_bpf_reenqueue_local___v2___second)) {
		scx_bpf_reenqueue_local___v2___second();
		count(COUNTER_reenqueues);
	}
	return 0;
}

int STRUCT_OPS(morpheus_cpu_release, __s32 cpu, struct scx_cpu_release_args *arguments)
{
	if (!reenqueue_on)
		return 0;
	scx_bpf_reenqueue_local___first();
	count(COUNTER_reenqueues);
	return 0;
}
