// SPDX-License-Identifier: GPL-2.0-only
/*
 * Handoffs: a task that wakes another one and is about to sleep gives it its CPU.
 *
 * Where any CPU idles, the kernel's search gives a task that is woken with WAKE_SYNC the waker's own CPU, and it goes to the local
 * DSQ there. A CPU dispatches when its local DSQ is empty. So where tasks hand it over to each other all the time, those that are
 * pinned to it, and those that wait in the DSQs of its domain, would wait until the kernel ejects the scheduler. Demoted and
 * throttled workers count once they are rescued.
 */
#include "kernel/kernel.bpf.h"
#include <bpf/bpf_helpers.h>
#include "morpheus_abi.h"
#include "policy/policy.bpf.h"

/* The flags of a wake-up for the kernel's search. */
__u64 search_flags(__u64 flags)
{
	__s32 here = bpf_get_smp_processor_id();
	__u32 index = domain_of(here);
	struct domain *domain;
	struct cpu *cpu;

	if (!(flags & WAKE_SYNC))
		return flags;
	cpu = cpu_at(here);
	domain = domain_at(index);
	if (!cpu || !domain || cpu->pinned || READ_ONCE(cpu->rescue) || READ_ONCE(domain->rescue) ||
	    scx_bpf_dsq_nr_queued(MAIN_DSQ(index)) > 0 || (tiers_on && scx_bpf_dsq_nr_queued(FRONT_DSQ(index)) > 0))
		return flags & ~WAKE_SYNC;
	return flags;
}
