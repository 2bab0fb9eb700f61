/* SPDX-License-Identifier: GPL-2.0-only */
/* Idle CPUs by nodes: each node has masks of its own. */
#ifndef MORPHEUS_NODES_BPF_H
#define MORPHEUS_NODES_BPF_H

#include "kernel/scx.bpf.h"

/*
 * Each node has masks of its own of its idle CPUs, so that a CPU which idles writes to no memory of another node. Set by the daemon
 * where there are several. `--without idle-by-node`
 */
SHARED(const volatile bool idle_by_node_on, = false);

/* The idle CPUs: all, or those of the node of this CPU. To be put back (scx_bpf_put_idle_cpumask). */
static __always_inline const struct cpumask *idle_cpus(__s32 index)
{
	if (idle_by_node_on && bpf_ksym_exists(scx_bpf_get_idle_cpumask_node))
		return scx_bpf_get_idle_cpumask_node(scx_bpf_cpu_node(index));
	return scx_bpf_get_idle_cpumask();
}

/* The same of CPUs whose cores are idle. */
static __always_inline const struct cpumask *idle_cores(__s32 index)
{
	if (idle_by_node_on && bpf_ksym_exists(scx_bpf_get_idle_smtmask_node))
		return scx_bpf_get_idle_smtmask_node(scx_bpf_cpu_node(index));
	return scx_bpf_get_idle_smtmask();
}

/* Claims an idle CPU for a task, of the node of this CPU if there is one there. Negative: none is idle. In an RCU section. */
static __always_inline __s32 pick_idle(const struct task_struct *task, __s32 index)
{
	if (idle_by_node_on && bpf_ksym_exists(scx_bpf_pick_idle_cpu_node))
		return scx_bpf_pick_idle_cpu_node(task->cpus_ptr, scx_bpf_cpu_node(index), 0);
	return scx_bpf_pick_idle_cpu(task->cpus_ptr, 0);
}

/* The most nodes that can have masks of their own: src/scheduler.rs switches them off where there are more. */
#define MOST_NODES 64
/* The kernel's numbers of the nodes that have CPUs at the start. */
SHARED(const volatile __u32 node_count, = 0);
SHARED(const volatile __u16 nodes[MOST_NODES]);

/* Whether a CPU of any node is idle (nodes.bpf.c). */
bool is_any_node_idle(void);
/* A CPU has come online. */
int note_node(__s32 index);

/*
 * Whether a CPU of the machine is idle. Where none is, this reads a word for each 64 CPUs or for each node. The kernel's searches
 * come to the same after some hundred instructions.
 */
static __always_inline bool is_any_idle(void)
{
	const struct cpumask *idle;
	bool none;

	if (idle_by_node_on)
		return is_any_node_idle();
	idle = scx_bpf_get_idle_cpumask();
	none = bpf_cpumask_empty(idle);
	scx_bpf_put_idle_cpumask(idle);
	return !none;
}

#endif /* MORPHEUS_NODES_BPF_H */
