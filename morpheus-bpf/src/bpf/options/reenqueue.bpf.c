// SPDX-License-Identifier: GPL-2.0-only
/* Tasks that wait for a CPU which a class above takes. */
#include "kernel/kernel.bpf.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "morpheus_abi.h"
#include "link/watch.bpf.h"
#include "options/options.bpf.h"

/* Off for tests. */
const volatile bool reenqueue_on = true;

/*
 * A class above takes the CPU: what waits for this CPU alone in the kernel's own queue is put back to where others can
 * take it. Before 6.19 a callback of the table says so, and only there it may be done.
 */
int switching(struct task_struct *next __arg_trusted)
{
	if (next->prio >= MAX_RT_PRIO || !reenqueue_on)
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
