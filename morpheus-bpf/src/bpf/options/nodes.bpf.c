// SPDX-License-Identifier: GPL-2.0-only
/* Idle CPUs by nodes: what goes through all nodes. */
#include "kernel/kernel.bpf.h"
#include <bpf/bpf_helpers.h>
#include "options/nodes.bpf.h"

/* A node that had no CPU at the start has one by now. It is not in the list, so that CPUs may be idle that are not found. */
__u32 is_list_short;

bool is_any_node_idle(void)
{
	const struct cpumask *idle;
	bool none;
	__u32 at;

	if (!bpf_ksym_exists(scx_bpf_get_idle_cpumask_node) || READ_ONCE(is_list_short))
		return true;
	/* The verifier knows the number. So it takes no iterator to bound the loop, whose calls are as long as the rest. */
	for (at = 0; at < MOST_NODES && at < node_count; at++) {
		idle = scx_bpf_get_idle_cpumask_node(nodes[at]);
		none = bpf_cpumask_empty(idle);
		scx_bpf_put_idle_cpumask(idle);
		if (!none)
			return true;
	}
	return false;
}

int note_node(__s32 index)
{
	int node;
	__u32 at;

	if (!idle_by_node_on || !bpf_ksym_exists(scx_bpf_cpu_node))
		return 0;
	node = scx_bpf_cpu_node(index);
	for (at = 0; at < MOST_NODES && at < node_count; at++) {
		if (nodes[at] == node)
			return 0;
	}
	WRITE_ONCE(is_list_short, 1);
	return 0;
}
