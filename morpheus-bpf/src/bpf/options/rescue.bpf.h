/* SPDX-License-Identifier: GPL-2.0-only */
/* The waiting time of a task: for the programs that scan DSQs. */
#ifndef MORPHEUS_RESCUE_BPF_H
#define MORPHEUS_RESCUE_BPF_H

#include "policy/policy.bpf.h"

/* Whether a task has waited for this time. */
static __always_inline bool has_waited(const struct task_struct *task, __u64 ns)
{
	return (bpf_jiffies64() - task->scx.runnable_at) * 1000000000 >= ns * jiffies_in_second;
}

/* Whether the first task of a DSQ has waited for this time. */
bool head_has_waited(__u64 dsq, __u64 ns);
/* Hands all waiting tasks of a domain without CPUs over to the kernel. Returns whether there were any (hotplug.bpf.c). */
bool hand_over_domain(__u32 domain);
/* The same for the tasks that are pinned to a CPU. */
bool hand_over_pinned(__s32 index);

#endif /* MORPHEUS_RESCUE_BPF_H */
