// SPDX-License-Identifier: GPL-2.0-only
/*
 * Loans of vtime among the workers of one process.
 *
 * Tasks of a runtime move from worker to worker, so that the vtime of a worker says nothing of its next poll. A worker that has
 * just been through a long poll is often the one that wakes to serve what came meanwhile. By its own vtime it would wait until
 * each thread that computes has had a slice.
 *
 * So a worker that wakes to serve is placed as one that has slept (credit), and its process owes the difference (debt). A worker
 * of the same process that wants to go on when its CPU dispatches repays: its vtime grows by what it repays, and it waits for
 * that. The process gets no more than the sum of its workers' shares, and others wait no longer.
 *
 * A debt belongs to the process and not to its lease: a new lease does not cancel it. A process that ends leaves its debt, and
 * gains nothing by that: the threads of its successor start at the clock, as those of any new process do.
 *
 * Both sides are bounded. A process that owes `loan_most_ns` gets no loan. A worker repays up to a slice at once, so that no
 * worker repays for all. It does not repay beyond the wait that follows: further after the clock than `lead_ns` its vtime would
 * be cut, and the payment with it.
 */
#include "kernel/kernel.bpf.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "morpheus_abi.h"
#include "link/loan.bpf.h"

const volatile bool loans_on = true;
/* CPU time that the workers of a process may owe together, in ns. */
const volatile __u64 loan_most_ns = 50000000;

/*
 * CPU time that the workers of a process owe, whatever their lease is. The entries that were not used for longest are dropped
 * first: those of processes that have ended.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, struct process);
	__type(value, __u64);
} debts SEC(".maps");

/* The CPU time that makes this vtime. */
static __always_inline __u64 of_weight(__u64 vtime, __u32 weight)
{
	return vtime * weight / (USUAL_WEIGHT << WEIGHT_SHIFT);
}

int borrow(struct task_struct *task __arg_trusted, struct worker *worker)
{
	__u64 vtime = task->scx.dsq_vtime, clock = clock_of(task), target = clock - sleeper_ns, lent_ns, *debt;
	__u32 weight = weight_of(task);
	struct process process;

	if (!worker)
		return 0;
	process = worker->process;

	/* It is far enough before the tasks that compute. */
	if (!loans_on || !before(clock - sleeper_ns / 2, vtime))
		return 0;
	lent_ns = of_weight(vtime - target, weight);
	debt = bpf_map_lookup_elem(&debts, &process);
	if (!debt) {
		__u64 none = 0;

		bpf_map_update_elem(&debts, &process, &none, BPF_NOEXIST);
		debt = bpf_map_lookup_elem(&debts, &process);
		if (!debt)
			return 0;
	}
	/* Two loans at once may exceed the bound by one loan. */
	if (READ_ONCE(*debt) + lent_ns > loan_most_ns)
		return 0;
	__sync_fetch_and_add(debt, lent_ns);
	set_vtime(task, target);
	count(COUNTER_loans);
	return 0;
}

int repay(struct task_struct *task __arg_trusted, struct worker *worker, __s32 index)
{
	__u64 vtime = task->scx.dsq_vtime, room = clock_of(task) + lead_ns - vtime, owed_ns, paid_ns, *debt;
	struct cpu *cpu = cpu_at(index);
	__u32 weight = weight_of(task);
	struct process process;

	if (!worker || !cpu)
		return 0;
	process = worker->process;

	if ((__s64)room <= 0)
		return 0;
	debt = bpf_map_lookup_elem(&debts, &process);
	if (!debt)
		return 0;
	owed_ns = READ_ONCE(*debt);
	if (!owed_ns)
		return 0;
	paid_ns = of_weight(room, weight);
	if (paid_ns > owed_ns)
		paid_ns = owed_ns;
	if (paid_ns > slice_ns)
		paid_ns = slice_ns;
	/* Another CPU borrows or repays at this moment. This worker repays at its next dispatch. */
	if (__sync_val_compare_and_swap(debt, owed_ns, owed_ns - paid_ns) != owed_ns)
		return 0;
	vtime += by_weight(paid_ns, weight);
	set_vtime(task, vtime);
	cpu->vtime = vtime;
	count(COUNTER_loans_repaid);
	return 0;
}
