// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sync wake-ups: a task wakes another one and is about to sleep.
 *
 * A waker says so with WAKE_SYNC; the kernel's pipes and sockets say it for all their users. The waker's own CPU dispatches soon
 * without a kick, and other CPUs are kicked for such wake-ups once in `sync_pause_ns` only. Where tasks exchange messages all the
 * time, a task that is woken a little later finds more to do at once, and a kick for each message would cost more than the
 * message.
 *
 * In the front DSQ a task that was woken so goes ahead of its vtime by `sync_ahead_ns`: what a waker has begun ends before the next
 * task begins. By their vtimes alone, which are alike, each of several tasks that talk would wait for the questions of all others
 * before its answer. It is an order only: the task has its own vtime again when it runs.
 */
#include "kernel/kernel.bpf.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "morpheus_abi.h"
#include "policy/policy.bpf.h"

/*
 * The number of sync wake-ups of a BATCH task since it was switched in that count. A task that has made more does not sleep after
 * all: a task that it wakes then waits as those that compute, without credit for its sleep, and finds more to do at once. The
 * sync wake-ups of a worker, or of another task that serves many and sleeps, always count. ~0: those of all tasks do.
 */
const volatile __u32 sync_wakes_believed = 4;

/* On x86, from Linux 6.15 on. */
extern const int __preempt_count __ksym __weak;

/*
 * Whether the running task is the caller, and not an interrupt: a packet from outside wakes its receiver with the same flag,
 * which then is about no task. Where the kernel does not tell: no.
 */
static __always_inline bool in_task(void)
{
	const int *count;

	if (bpf_core_field_exists(((struct task_struct *)0)->thread_info.preempt.count)) {
		struct task_struct *task = bpf_get_current_task_btf();

		return !(task->thread_info.preempt.count & IN_INTERRUPT);
	}
	if (!bpf_ksym_exists(&__preempt_count))
		return false;
	count = bpf_this_cpu_ptr(&__preempt_count);
	return !(*count & IN_INTERRUPT);
}

/* Whether a sync wake-up by the running task counts: the task is known to sleep, or has not yet made too many of them. */
static __always_inline bool is_believed(void)
{
	struct cpu *cpu = cpu_at(bpf_get_smp_processor_id());

	if (!cpu || sync_wakes_believed == ~0U || cpu->tier != TIER_BATCH)
		return true;
	if (cpu->sync_wakes >= sync_wakes_believed)
		return false;
	cpu->sync_wakes++;
	return true;
}

__u32 waker_that_sleeps(void)
{
	if (!in_task())
		return 0;
	return (bpf_get_smp_processor_id() + 1) | (is_believed() ? 0 : ONE_OF_MANY);
}

/* The number + 1 of the CPU whose task has just woken this one, which may run there only; or 0. */
static __always_inline __u32 waker_beside(const struct task_struct *task)
{
	__s32 index = bpf_get_smp_processor_id();

	if (!unsaid_pause_ns || task->nr_cpus_allowed > 1 || scx_bpf_task_cpu(task) != index || !in_task())
		return 0;
	return index + 1;
}

/*
 * Decides by the waker how a task waits. A worker that serves does not wait as those that compute: its slot says that others wait
 * for it.
 */
bool check_waker(struct task_struct *task __arg_trusted, struct behaviour *behaviour, bool serves, struct claim *claim)
{
	bool is_among_many;

	if (!behaviour || !claim)
		return false;
	is_among_many = behaviour->sync & ONE_OF_MANY;
	claim->waker = behaviour->sync & ~ONE_OF_MANY;
	claim->pause_ns = sync_pause_ns;
	behaviour->sync = 0;
	if (!claim->waker) {
		claim->waker = waker_beside(task);
		claim->pause_ns = unsaid_pause_ns;
		is_among_many = claim->waker && !is_believed();
	}
	is_among_many &= !serves;
	if (is_among_many) {
		claim->tier = TIER_BATCH;
		bound_vtime(task, 0);
		count(COUNTER_woken_among_many);
	}
	return is_among_many;
}
