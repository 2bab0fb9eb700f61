// SPDX-License-Identifier: GPL-2.0-only
/*
 * CPUs that go offline, and the tasks that wait for them.
 *
 * The kernel moves the tasks of such a CPU elsewhere as soon as they are in the local DSQ of that CPU, and the CPU goes offline
 * when it has none left. Where the affinity of a task names no other CPU, the kernel widens it then. A task in a DSQ of this
 * scheduler is not moved until a CPU picks it. No CPU does so where the affinity names none that is left; and in a domain without
 * CPUs only an idle CPU of another domain would. So each waiting task of the CPU is handed over to the kernel, which enqueues it
 * again on the CPU that it chooses.
 */
#include "kernel/kernel.bpf.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "morpheus_abi.h"
#include "link/ladder.bpf.h"
#include "options/groups.bpf.h"
#include "options/rescue.bpf.h"

/* The most tasks of a DSQ that are scanned: a bound for the verifier, beyond the number of tasks in a DSQ. */
#define HAND_OVERS (1 << 20)
/* Instead of the number of a CPU. */
#define ANY_CPU (-1)

/*
 * Hands over the tasks of a DSQ whose CPU is `index`, or all of them. Returns whether there were any. Static, as a function that
 * moves tasks has to be.
 */
static __noinline bool hand_over(__u64 dsq, __s32 index)
{
	struct bpf_iter_scx_dsq iterator;
	bool any = false;
	__u32 seen;

	if (!bpf_iter_scx_dsq_new(&iterator, dsq, 0)) {
		bpf_for(seen, 0, HAND_OVERS) {
			struct task_struct *task = bpf_iter_scx_dsq_next(&iterator);
			__s32 own;

			if (!task)
				break;
			own = scx_bpf_task_cpu(task);
			if (index != ANY_CPU && own != index)
				continue;
			any = true;
			if (scx_bpf_dsq_move(&iterator, task, DSQ_LOCAL_ON | (__u32)own, 0))
				count(COUNTER_handed_over);
		}
	}
	bpf_iter_scx_dsq_destroy(&iterator);
	return any;
}

/*
 * Hands over the tasks of a domain whose CPU is `index`, or all of them. The rescue DSQ is last: the rescue timer fills it from
 * the others.
 */
static __always_inline bool hand_over_of(__u32 domain_index, __s32 index)
{
	bool any = false;

	any |= hand_over(MAIN_DSQ(domain_index), index);
	any |= hand_over(FRONT_DSQ(domain_index), index);
	any |= hand_over(DEMOTED_DSQ(domain_index), index);
	any |= hand_over(THROTTLED_DSQ(domain_index), index);
	any |= hand_over(RESCUE_DSQ(domain_index), index);
	return any;
}

__hidden bool hand_over_domain(__u32 domain_index)
{
	return hand_over_of(domain_index, ANY_CPU);
}

__hidden bool hand_over_pinned(__s32 index)
{
	bool any = hand_over(PINNED_DSQ(index), index);

	return hand_over(PINNED_RESCUE_DSQ(index), index) | any;
}

/* Whether a domain has a CPU that is online, beside one that goes. The kernel takes CPUs offline one after the other. */
static __always_inline bool has_another_cpu(__u32 domain_index, __s32 going)
{
	const struct cpumask *online = scx_bpf_get_online_cpumask();
	bool has = false;
	__s32 index;

	bpf_for(index, 0, cpu_count) {
		if (index != going && domain_of(index) == domain_index && bpf_cpumask_test_cpu(index, online)) {
			has = true;
			break;
		}
	}
	scx_bpf_put_cpumask(online);
	return has;
}

/* A CPU goes offline. The kernel enqueues no task of this CPU with this scheduler from here on. */
int STRUCT_OPS(morpheus_cpu_offline, __s32 index)
{
	__u32 domain_index = domain_of(index);
	struct domain *domain = domain_at(domain_index);
	struct cpu *cpu = cpu_at(index);
	__u32 group;

	if (domain && !has_another_cpu(domain_index, index))
		WRITE_ONCE(domain->gone, 1);
	/* The kernel waits for them as for the others. First, so that one that is released meanwhile is found among those. */
	if (group_limits_on) {
		bpf_for(group, 1, MOST_GROUPS) {
			if (scx_bpf_dsq_nr_queued(LIMIT_QUEUE(group)) > 0)
				hand_over(LIMIT_QUEUE(group), index);
		}
	}
	hand_over_pinned(index);
	hand_over_of(domain_index, index);
	if (cpu) {
		mark_stalled(index, false);
		cpu->since_ns = 0;
		cpu->kicked = KICK_NONE;
	}
	return 0;
}

int STRUCT_OPS(morpheus_cpu_online, __s32 index)
{
	struct domain *domain = domain_at(domain_of(index));

	if (domain)
		WRITE_ONCE(domain->gone, 0);
	note_node(index);
	return 0;
}
