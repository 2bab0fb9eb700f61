// SPDX-License-Identifier: GPL-2.0-only
/*
 * Loans among the workers of one process.
 *
 * A runtime's tasks move from worker to worker, so that what a worker has had of the CPU says nothing of what it does
 * next: one that has just been through a long poll is, as often as not, the one that is woken to serve what came
 * meanwhile. By its own vtime it would wait until every thread that computes has had a slice.
 *
 * So a worker that wakes to serve is placed as one that has slept for long, and what it is spared its process owes. A
 * worker of the same process that wants to go on when its CPU has to choose pays: its vtime grows by what it pays, and it
 * waits for that. The process gets no more than the sum of its workers' shares, and others wait no longer.
 *
 * A debt is the process's and not its lease's: a new lease does not shed it. A process that ends leaves its debt unpaid,
 * and gains nothing: its successor's threads begin at the clock, as those of any new process do.
 *
 * Bounded on both sides. Nobody lends to a process that owes `loan_most_ns`. Nobody pays more than a slice at once, so that
 * none carries the debts of all, nor beyond what it will have to wait for: further ahead of the clock than `lead_ns` its
 * vtime would be cut, and the payment with it.
 */
#include "kernel/kernel.bpf.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "morpheus_abi.h"
#include "link/loan.bpf.h"

const volatile bool loans_on = true;
/* CPU time that the workers of a process may owe together. */
const volatile __u64 loan_most_ns = 50000000;

/*
 * CPU time that the workers of a process owe, whatever lease they have. The debts that were not looked at for long are
 * forgotten first: those of processes that have ended.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, struct process);
	__type(value, __u64);
} debts SEC(".maps");

/* CPU time that makes so much vtime. */
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

	/* It is far enough ahead of those that compute. */
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
	/* Two that borrow at once may exceed the bound by one loan. */
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
	/* Another CPU pays or borrows at this moment: next time. */
	if (__sync_val_compare_and_swap(debt, owed_ns, owed_ns - paid_ns) != owed_ns)
		return 0;
	vtime += by_weight(paid_ns, weight);
	set_vtime(task, vtime);
	cpu->vtime = vtime;
	count(COUNTER_loans_repaid);
	return 0;
}
