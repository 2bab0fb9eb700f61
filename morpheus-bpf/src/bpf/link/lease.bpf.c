// SPDX-License-Identifier: GPL-2.0-only
/* The programs that the daemon calls (section "syscall"), the same in the observer and the scheduler. */
#include "kernel/kernel.bpf.h"
#include <bpf/bpf_helpers.h>
#include "morpheus_abi.h"
#include "link/slot.bpf.h"

/* Linux 6.2. */
struct task_struct *bpf_task_from_pid(__s32 pid) __ksym;
void bpf_task_release(struct task_struct *task) __ksym;

struct bind_arguments {
	/* Numbers of the initial PID namespace. */
	__u64 tid;
	__u64 tgid;
	__u64 lease;
	__u64 slot;
	__u64 policy;
	__u64 budget_ns;
	__u64 grace_ns;
};

/*
 * Starts to account for a thread that runs while it is bound, and for its poll, which may have begun long before. The timer of
 * another CPU cannot be armed from here: on_interrupt arms it.
 */
static __always_inline void count_from_now(struct worker *worker, struct task_struct *task, __u32 lease)
{
	struct words slot;

	if (!task->on_cpu)
		return;
	if (!worker->since_ns)
		worker->since_ns = bpf_ktime_get_ns();
	if (!load_words_of(lease, worker->slot, &slot))
		return;
	worker->episode = episode_of(worker, &slot);
	worker->episode_ran_ns = worker->ran_ns + (bpf_ktime_get_ns() - worker->since_ns);
}

/* Reports a thread that sleeps in a poll while it is bound as BLOCKED from now on: no switch was seen. */
static __always_inline void find_asleep(struct worker *worker, struct task_struct *task)
{
	unsigned int state = task->__state;
	struct words slot;
	__u64 now;

	if (task->on_cpu || !state || state & TASK_DEAD || !load_words(worker, &slot) || !is_active(&slot))
		return;
	now = bpf_ktime_get_ns();
	worker->asleep_seq = watched_poll(&slot);
	worker->asleep_ns = now;
	emit(worker, MORPHEUS_EVENT_BLOCKED, worker->asleep_seq, now, 0, BPF_RB_FORCE_WAKEUP);
}

/* Binds a thread to a slot. Returns -ESRCH when the process has no such thread: a process may bind its own threads only. */
SEC("syscall")
int bind(struct bind_arguments *arguments)
{
	struct task_struct *task = bpf_task_from_pid((__s32)arguments->tid);
	struct worker *worker;
	int result = -ESRCH;

	if (!task)
		return -ESRCH;
	if (task->tgid != (int)arguments->tgid)
		goto release;
	result = -ENOMEM;
	worker = bpf_task_storage_get(&workers, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!worker)
		goto release;
	/* Unbound while the rest is written: the thread may run at this moment. */
	WRITE_ONCE(worker->lease, 0);
	worker->slot = arguments->slot;
	worker->process.started_ns = task->group_leader->start_time;
	worker->process.tgid = task->tgid;
	worker->policy = arguments->policy;
	worker->budget_ns = arguments->budget_ns;
	worker->grace_ns = arguments->grace_ns;
	worker->episode = 0;
	worker->over = 0;
	worker->hog_poll = 0;
	worker->marked = 0;
	worker->asleep_ns = 0;
	worker->verdict = 0;
	worker->outlived = 0;
	/* The thread may be demoted for a poll of its earlier binding, which is over. */
	if (worker->demoted)
		worker->relieved = 1;
	worker->demoted = 0;
	worker->throttled = 0;
	count_from_now(worker, task, arguments->lease);
	WRITE_ONCE(worker->lease, arguments->lease);
	find_asleep(worker, task);
	result = 0;
release:
	bpf_task_release(task);
	return result;
}

/* Unbinds the thread of this number, if it is bound so. */
static __always_inline void unbind_thread(__u64 tid, const struct bind_arguments *arguments)
{
	struct task_struct *task = bpf_task_from_pid((__s32)tid);
	struct worker *worker;

	if (!task)
		return;
	worker = bpf_task_storage_get(&workers, task, 0, 0);
	if (worker && worker->lease == (__u32)arguments->lease && worker->slot == (__u32)arguments->slot)
		bpf_task_storage_delete(&workers, task);
	bpf_task_release(task);
}

/*
 * Unbinds a thread. Does nothing when the thread has ended, or has another slot by now. A thread that called execve is its
 * process's first one, and has that one's number.
 */
SEC("syscall")
int unbind(struct bind_arguments *arguments)
{
	unbind_thread(arguments->tid, arguments);
	if (arguments->tgid != arguments->tid)
		unbind_thread(arguments->tgid, arguments);
	return 0;
}

struct heartbeat_arguments {
	__u64 lease;
	__u64 psi_cpu;
	__u64 psi_io;
	__u64 psi_memory;
	__u64 run_queue_depth;
};

/* Writes the heartbeat and what it carries. The area is frozen: no process can write to it, not even the daemon. */
SEC("syscall")
int heartbeat(struct heartbeat_arguments *arguments)
{
	__u32 lease = arguments->lease, entry = 0;
	void *area = bpf_map_lookup_elem(&kernel_areas, &lease);
	struct morpheus_kernel_header *header;

	if (!area)
		return -ESRCH;
	header = bpf_map_lookup_elem(area, &entry);
	if (!header)
		return -ESRCH;
	WRITE_ONCE(header->psi_cpu, (__u32)arguments->psi_cpu);
	WRITE_ONCE(header->psi_io, (__u32)arguments->psi_io);
	WRITE_ONCE(header->psi_memory, (__u32)arguments->psi_memory);
	WRITE_ONCE(header->run_queue_depth, (__u32)arguments->run_queue_depth);
	WRITE_ONCE(header->heartbeat_ns, bpf_ktime_get_ns());
	return 0;
}

struct greet_arguments {
	/* The process of the daemon as it sees itself. */
	__u64 tgid;
};

/* Checks that the daemon sees the numbers of the initial PID namespace. Returns -EINVAL if it is in another one. */
SEC("syscall")
int greet(struct greet_arguments *arguments)
{
	return bpf_get_current_pid_tgid() >> 32 == arguments->tgid ? 0 : -EINVAL;
}
