/* SPDX-License-Identifier: GPL-2.0-only */
/* How long a task has waited: for what looks through queues. */
#ifndef MORPHEUS_RESCUE_BPF_H
#define MORPHEUS_RESCUE_BPF_H

#include "policy/policy.bpf.h"

/* Whether a task has waited for so long. */
static __always_inline bool has_waited(const struct task_struct *task, __u64 ns)
{
	return (bpf_jiffies64() - task->scx.runnable_at) * 1000000000 >= ns * jiffies_in_second;
}

/* Whether the first task of a queue has waited for this time. */
bool head_has_waited(__u64 dsq, __u64 ns);
/* Hands over to the kernel all that wait in a domain without CPUs, and returns whether there were any (hotplug.bpf.c). */
bool hand_over_domain(__u32 domain);

#endif /* MORPHEUS_RESCUE_BPF_H */
