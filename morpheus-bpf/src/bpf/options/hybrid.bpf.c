// SPDX-License-Identifier: GPL-2.0-only
/*
 * Machines whose CPUs differ in capacity: tasks prefer performance cores.
 *
 *	on a wake-up	an idle performance core comes before all other CPUs: the previous one, then the others in order
 *	at a slice end	a task that would go on alone on an efficient core goes to a performance core, if one is idle
 *
 * The kernel's own search for an idle CPU does not know capacities. The second rule needs no kick and no search by the idle core:
 * an efficient core checks once in each slice, so that a task computes there for a slice and a tick at most.
 */
#include "kernel/kernel.bpf.h"
#include <bpf/bpf_helpers.h>
#include "morpheus_abi.h"
#include "policy/policy.bpf.h"

/* Performance cores, by their CPUs; others are not preferred. */
#define FAST_CPUS 64
const volatile __u16 fast_cpus[FAST_CPUS];
const volatile __u32 fast_count = 0;
/* The same as bits. */
const volatile __u64 fast_bits[MOST_CPUS / 64];

static __always_inline bool is_fast(__s32 index)
{
	__u32 word = (__u32)index / 64;

	return word < MOST_CPUS / 64 && fast_bits[word] & 1ULL << (index & 63);
}

/* An idle performance core that the task may use, or -1. `claim`: it is claimed. */
static __always_inline __s32 find_fast(struct task_struct *task, const struct cpumask *idle, bool claim)
{
	__u32 place;

	bpf_for(place, 0, FAST_CPUS) {
		__s32 index = fast_cpus[place & (FAST_CPUS - 1)];

		if (place >= fast_count)
			break;
		if (claim ? claims_idle(task, index, idle) : is_idle_for(task, index, idle))
			return index;
	}
	return -1;
}

/* A performance core without a busy thread, claimed: its CPU, or -1. */
__s32 claim_fast(struct task_struct *task __arg_trusted, __s32 previous)
{
	const struct cpumask *idle;
	__s32 found = -1;

	if (task->nr_cpus_allowed < 2)
		return -1;
	idle = scx_bpf_get_idle_smtmask();
	if (is_fast(previous) && claims_idle(task, previous, idle))
		found = previous;
	else if (!bpf_cpumask_empty(idle))
		found = find_fast(task, idle, true);
	scx_bpf_put_idle_cpumask(idle);
	return found;
}

bool goes_to_fast(struct task_struct *task __arg_trusted, __s32 index)
{
	__s32 fast = claim_fast(task, index);

	if (fast < 0)
		return false;
	insert_fifo(task, DSQ_LOCAL_ON | (__u32)fast, slice_ns, 0);
	scx_bpf_kick_cpu(fast, KICK_IDLE);
	count(COUNTER_to_faster_cpu);
	return true;
}

/* Whether a task that goes on alone on this CPU is to be moved: the CPU is an efficient one, and a performance core is idle. */
bool is_misplaced(struct task_struct *task __arg_trusted, __s32 index)
{
	const struct cpumask *idle;
	bool found;

	if (is_fast(index) || task->nr_cpus_allowed < 2 || !may_move(task, 0))
		return false;
	idle = scx_bpf_get_idle_smtmask();
	found = find_fast(task, idle, false) >= 0;
	scx_bpf_put_idle_cpumask(idle);
	return found;
}
