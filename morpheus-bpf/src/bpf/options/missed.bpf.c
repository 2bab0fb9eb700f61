// SPDX-License-Identifier: GPL-2.0-only
/*
 * Idle CPUs that missed a task.
 *
 * A task is in its DSQ when the program that enqueues it has returned, and is told to an idle CPU before that (notify_idle). A CPU
 * that has found the DSQs empty, and counts as idle a moment later, is not seen by the one and does not see the other: the task would
 * wait beside it until a busy CPU is done. So each CPU that is busy looks at its ticks, and the rescue timer at its scans, whether tasks
 * wait beside an idle CPU.
 */
#include "kernel/kernel.bpf.h"
#include <bpf/bpf_helpers.h>
#include "morpheus_abi.h"
#include "policy/policy.bpf.h"

/* The most tasks of a DSQ for which a CPU is searched at once. */
#define SEARCHED 4

/* Kicks idle CPUs for the first tasks of a DSQ. */
static __noinline int kick_for_first(__u64 dsq)
{
	struct bpf_iter_scx_dsq iterator;
	__u32 seen;

	if (!bpf_iter_scx_dsq_new(&iterator, dsq, 0)) {
		bpf_for(seen, 0, SEARCHED) {
			struct task_struct *task = bpf_iter_scx_dsq_next(&iterator);

			if (!task)
				break;
			if (kick_idle(task))
				count(COUNTER_idle_missed);
			else if (task->nr_cpus_allowed >= (__s32)cpu_count)
				break;
		}
	}
	bpf_iter_scx_dsq_destroy(&iterator);
	return 0;
}

/* In an RCU read-side section: the rescue timer is in none. */
static __always_inline int search_for_waiting(__u32 domain)
{
	if (tiers_on && scx_bpf_dsq_nr_queued(FRONT_DSQ(domain)) > 0)
		kick_for_first(FRONT_DSQ(domain));
	if (scx_bpf_dsq_nr_queued(MAIN_DSQ(domain)) > 0)
		kick_for_first(MAIN_DSQ(domain));
	if (scx_bpf_dsq_nr_queued(RESCUE_DSQ(domain)) > 0)
		kick_for_first(RESCUE_DSQ(domain));
	return 0;
}

/* Kicks idle CPUs for tasks that wait in a domain. */
int kick_missed(__u32 domain)
{
	return is_any_idle() ? UNDER_RCU(search_for_waiting(domain)) : 0;
}
