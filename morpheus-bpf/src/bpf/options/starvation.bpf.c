// SPDX-License-Identifier: GPL-2.0-only
/*
 * Starvation bounds: when the main DSQ goes before the front DSQ, so that tasks that compute are served beside tasks that sleep
 * and wake.
 *
 *	deficit		after a number of tasks from the front DSQ and from DSQs of pinned tasks, one of the main DSQ goes first
 *	starvation	no task was taken from the main DSQ for `starvation_ns`
 *	sojourn		or for a shorter time that follows the load (knobs.sojourn_ns)
 *			and at a tick a task that is not BATCH makes way for it
 *	overflow	a DSQ of pinned tasks that is never empty, with little vtime in it, keeps its CPU from both
 *
 * The constants depend on the number of CPUs (src/scaling.rs); those here are for two.
 */
#include "kernel/kernel.bpf.h"
#include <bpf/bpf_helpers.h>
#include "morpheus_abi.h"
#include "policy/policy.bpf.h"

const volatile __u64 overflow_rescue_ns = 4000000;
const volatile __u64 starvation_ns = 50000000;
const volatile __u32 deficit_budget = 6;
const volatile __u32 deficit_budget_longrun = 2;

/* Whether no task was taken from a DSQ for this time. */
static __always_inline bool is_overdue(__u64 served_ns, __u64 most_ns, __u64 now)
{
	return before(served_ns + most_ns, now);
}

/*
 * Whether no task was taken from the main DSQ for the time that follows the load. Two slices of BATCH tasks that were taken from
 * it are no time without service: with less it would be overdue at each wake-up.
 */
static __always_inline bool is_main_overdue(const struct domain *domain, __u64 now)
{
	return is_overdue(domain->main_served_ns, knobs.sojourn_ns + 2 * knobs.batch_slice_ns, now);
}

bool is_deficit_reached(const struct domain *domain)
{
	return domain && domain->before_main >= (READ_ONCE(longrun_now) ? deficit_budget_longrun : deficit_budget);
}

int make_way_at_tick(struct task_struct *task __arg_trusted, __s32 index, __u64 now)
{
	__u32 domain_index = domain_of(index);
	struct domain *domain = domain_at(domain_index);
	struct cpu *cpu = cpu_at(index);

	if (!domain || !cpu || cpu->tier == TIER_BATCH || cpu->worker || !task->scx.slice ||
	    scx_bpf_dsq_nr_queued(MAIN_DSQ(domain_index)) <= 0 || !is_main_overdue(domain, now))
		return 0;
	/* Its vtime may be the least, as that of one that yields. */
	cpu->yielded = 1;
	set_slice(task, 0);
	count(COUNTER_preempted_for_sojourn);
	return 0;
}

int main_goes_first(struct domain *domain, __u32 index, __u64 now)
{
	int why = COUNTERS;

	if (!domain)
		return COUNTERS;
	if (deficit_on && is_deficit_reached(domain))
		why = COUNTER_from_deficit;
	else if (starvation_rescue_on && is_overdue(domain->main_served_ns, starvation_ns, now))
		why = COUNTER_from_starvation_rescue;
	else if (sojourn_rescue_on && is_main_overdue(domain, now))
		why = COUNTER_from_sojourn_rescue;
	if (why == COUNTERS || scx_bpf_dsq_nr_queued(MAIN_DSQ(index)) > 0)
		return why;
	/* An empty DSQ lacks no service. It is looked at again when it would be overdue anew, and not at each pick. */
	WRITE_ONCE(domain->main_served_ns, now);
	return COUNTERS;
}

__u32 overdue_queues(const struct domain *domain, const struct heads *heads, __u64 now)
{
	__u32 queues = 0;

	if (!domain || !heads)
		return 0;
	if (heads->front != NO_VTIME && is_overdue(domain->front_served_ns, overflow_rescue_ns, now))
		queues |= FRONT_IS_OVERDUE;
	if (heads->main != NO_VTIME && is_overdue(domain->main_served_ns, overflow_rescue_ns, now))
		queues |= MAIN_IS_OVERDUE;
	return queues;
}
