// SPDX-License-Identifier: GPL-2.0-only
/*
 * The observer: sees when a worker goes to sleep within a poll, and when a poll uses up its budget. It schedules
 * nothing.
 *
 * In the order of a worker's life: it is bound (bind), switched in and out (on_switch), looked at while it runs (tick; and
 * on_interrupt, where nobody has set that timer), and unbound (unbind). The programs of the section "syscall" are called by the
 * daemon.
 */
#include "kernel.bpf.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "morpheus_abi.h"
#include "slot.bpf.h"

char LICENSE[] SEC("license") = "GPL";

/*
 * How often a running worker is looked at. The start of a poll is seen up to one period late, and so is its budget's
 * end; each look costs the worker the time of a timer interrupt.
 */
const volatile __u64 period_ns = 250000;
/* BPF_F_TIMER_CPU_PIN where the kernel has it. */
const volatile __u64 timer_flags = BPF_F_TIMER_CPU_PIN;

/* CPU time that counts against a poll's label: as the runtime's watchdog has it. */
const volatile __u64 offence_ns = 5000000;

/* How many leases there are, written by the daemon: without any, a switch costs a look at this. */
__u32 leases;

/* One for each CPU, used on that one only. */
struct cpu {
	struct bpf_timer timer;
	__u32 armed;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpu);
} cpus SEC(".maps");

/* Linux 6.2. */
struct task_struct *bpf_task_from_pid(__s32 pid) __ksym;
void bpf_task_release(struct task_struct *task) __ksym;

struct bind_arguments {
	/* As the initial PID namespace sees them. */
	__u64 tid;
	__u64 tgid;
	__u64 lease;
	__u64 slot;
	__u64 policy;
	__u64 budget_ns;
};

/*
 * A thread that has a CPU already has its time counted from now on, and its poll, which may have begun long ago. Nobody
 * can set another CPU's timer from here: on_interrupt does.
 */
static __always_inline void count_from_now(struct worker *worker, struct task_struct *task, __u32 lease)
{
	__u32 entry = worker->slot + 1;
	struct morpheus_runtime_slot *runtime;
	void *area;

	if (!task->on_cpu)
		return;
	if (!worker->since_ns)
		worker->since_ns = bpf_ktime_get_ns();
	area = bpf_map_lookup_elem(&runtime_areas, &lease);
	if (!area)
		return;
	runtime = bpf_map_lookup_elem(area, &entry);
	if (!runtime)
		return;
	worker->poll_seq = watched_poll(runtime);
	worker->poll_ran_ns = worker->ran_ns + (bpf_ktime_get_ns() - worker->since_ns);
}

/* Returns -ESRCH when there is no such thread in that process: the process may reach its own threads only. */
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
	worker->policy = arguments->policy;
	worker->budget_ns = arguments->budget_ns;
	worker->poll_seq = 0;
	worker->over_seq = 0;
	worker->asleep_ns = 0;
	worker->verdict = 0;
	count_from_now(worker, task, arguments->lease);
	WRITE_ONCE(worker->lease, arguments->lease);
	result = 0;
release:
	bpf_task_release(task);
	return result;
}

/* Does nothing when the thread has gone, or has another slot by now. */
SEC("syscall")
int unbind(struct bind_arguments *arguments)
{
	struct task_struct *task = bpf_task_from_pid((__s32)arguments->tid);
	struct worker *worker;

	if (!task)
		return 0;
	worker = bpf_task_storage_get(&workers, task, 0, 0);
	if (worker && worker->lease == (__u32)arguments->lease && worker->slot == (__u32)arguments->slot)
		bpf_task_storage_delete(&workers, task);
	bpf_task_release(task);
	return 0;
}

/*
 * Looks at a worker's poll: remembers when its CPU time began, and asks it to yield when it has used up its budget.
 *
 * A poll counts from when it was first seen, so that nobody is asked too early.
 */
static __always_inline void look(struct worker *worker, const struct morpheus_runtime_slot *runtime, __u64 now)
{
	__u64 seq = watched_poll(runtime);
	__u64 ran_ns = worker->ran_ns + (worker->since_ns ? now - worker->since_ns : 0);
	struct morpheus_kernel_slot *kernel;
	__u64 used_ns;

	if (seq != worker->poll_seq) {
		worker->poll_seq = seq;
		worker->poll_ran_ns = ran_ns;
	}
	if (!seq)
		return;
	used_ns = ran_ns - worker->poll_ran_ns;
	if (used_ns < worker->budget_ns)
		return;
	if (!in_play(runtime))
		return;
	kernel = kernel_slot(worker);
	if (!kernel)
		return;
	/* Goes on growing while the poll does: how much it took is known when it ends, to a period. */
	WRITE_ONCE(kernel->oncpu_ns, used_ns);
	if (used_ns >= offence_ns && !(worker->verdict & MORPHEUS_VERDICT_OFFENCE))
		give_verdict(worker, kernel, seq, MORPHEUS_VERDICT_OFFENCE);
	if (worker->over_seq == seq)
		return;
	worker->over_seq = seq;
	give_verdict(worker, kernel, seq, MORPHEUS_VERDICT_STUCK);
	if (worker->policy >= MORPHEUS_POLICY_REQUEST) {
		WRITE_ONCE(kernel->step, MORPHEUS_STEP_REQUESTED);
		STORE_RELEASE(kernel->request_seq, seq);
		__sync_fetch_and_add(&requests_made, 1);
	}
	emit(worker, MORPHEUS_EVENT_BUDGET, seq, now, used_ns, BPF_RB_FORCE_WAKEUP);
}

/* How long until the next look: as long as the budget lasts, and at most a period. */
static __always_inline __u64 until_next_look(const struct worker *worker, __u64 now)
{
	__u64 used_ns = worker->ran_ns + (now - worker->since_ns) - worker->poll_ran_ns;

	if (worker->poll_seq && worker->over_seq != worker->poll_seq && used_ns < worker->budget_ns &&
	    worker->budget_ns - used_ns < period_ns)
		return worker->budget_ns - used_ns;
	return period_ns;
}

static __always_inline void arm(struct cpu *cpu, __u64 delay_ns)
{
	cpu->armed = !bpf_timer_start(&cpu->timer, delay_ns, timer_flags);
}

/* Runs on the CPU where it was armed, over whatever runs there. It is not armed again when that is no worker. */
static int tick(void *map, __u32 *index, struct cpu *cpu)
{
	struct task_struct *current = bpf_get_current_task_btf();
	struct morpheus_runtime_slot *runtime;
	struct worker *worker;
	__u64 now;

	cpu->armed = 0;
	/* The CPU went away, and its timer moved. */
	if (*index != bpf_get_smp_processor_id())
		return 0;
	worker = bpf_task_storage_get(&workers, current, 0, 0);
	if (!worker)
		return 0;
	runtime = runtime_slot(worker);
	if (!runtime)
		return 0;
	now = bpf_ktime_get_ns();
	/* Bound while it ran, or not seen to be switched in. */
	if (!worker->since_ns)
		worker->since_ns = now;
	look(worker, runtime, now);
	arm(cpu, until_next_look(worker, now));
	return 0;
}

/* A worker that was reported BLOCKED runs again. */
static __always_inline void woken(struct worker *worker, __u64 now)
{
	__u64 slept_ns = now - worker->asleep_ns, seq = worker->asleep_seq;

	worker->asleep_ns = 0;
	/* Nobody has to hurry for this one: it is read with the next event. */
	emit(worker, MORPHEUS_EVENT_WOKEN, seq, now, slept_ns, BPF_RB_NO_WAKEUP);
	if (seq && slept_ns >= worker->budget_ns) {
		struct morpheus_kernel_slot *kernel = kernel_slot(worker);

		if (kernel)
			give_verdict(worker, kernel, seq, MORPHEUS_VERDICT_STUCK);
	}
}

/* prev gives its CPU away. */
static __always_inline void switched_out(struct task_struct *prev, struct worker *worker, bool preempt, __u64 now)
{
	struct morpheus_runtime_slot *runtime = runtime_slot(worker);
	unsigned int state = prev->__state;
	__u64 seq;

	/*
	 * It ran, and was not seen to be switched in. There are threads whose switches a kernel does not tell (seen on 6.18:
	 * of the first process's, never; ftrace and perf lack them, too), and who comes after them comes unseen.
	 */
	if (runtime && worker->asleep_ns)
		woken(worker, now);
	if (runtime)
		look(worker, runtime, now);
	if (worker->since_ns)
		worker->ran_ns += now - worker->since_ns;
	else
		__sync_fetch_and_add(&unseen_switches, 1);
	worker->since_ns = 0;
	/* A preempted thread may be about to sleep, and does not yet. */
	if (!runtime || preempt || !state || state & TASK_DEAD || !in_play(runtime))
		return;
	seq = watched_poll(runtime);
	worker->asleep_ns = now;
	worker->asleep_seq = seq;
	emit(worker, MORPHEUS_EVENT_BLOCKED, seq, now, 0, BPF_RB_FORCE_WAKEUP);
	/* Found when the poll ends. */
	if (seq) {
		struct morpheus_kernel_slot *kernel = kernel_slot(worker);

		if (kernel)
			give_verdict(worker, kernel, seq, MORPHEUS_VERDICT_BLOCKED);
	}
}

/* A worker gets this CPU. */
static __always_inline void switched_in(struct worker *worker, __u64 now)
{
	__u32 index = bpf_get_smp_processor_id();
	struct morpheus_runtime_slot *runtime = runtime_slot(worker);
	struct cpu *cpu;

	worker->since_ns = now;
	if (!runtime)
		return;
	if (worker->asleep_ns)
		woken(worker, now);
	look(worker, runtime, now);
	cpu = bpf_map_lookup_elem(&cpus, &index);
	if (cpu && !cpu->armed)
		arm(cpu, until_next_look(worker, now));
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	struct worker *worker;
	__u64 now = 0;

	if (!leases)
		return 0;
	/* Kernel threads are no workers. */
	if (prev->mm) {
		worker = bpf_task_storage_get(&workers, prev, 0, 0);
		if (worker && worker->lease) {
			now = bpf_ktime_get_ns();
			switched_out(prev, worker, preempt, now);
		}
	}
	if (next->mm) {
		worker = bpf_task_storage_get(&workers, next, 0, 0);
		if (worker && worker->lease)
			switched_in(worker, now ? now : bpf_ktime_get_ns());
	}
	return 0;
}

/*
 * Any timer interrupt of this CPU; the scheduler's tick is one, about every 4 ms on a CPU that is not idle. Finds a worker
 * that runs while its CPU's timer is not set: it was bound while it ran, or its switch was not seen. Sets the timer, so
 * that such a worker's budget ends at most a tick late, and not with its next switch.
 */
SEC("tp_btf/hrtimer_expire_entry")
int BPF_PROG(on_interrupt)
{
	__u32 index = bpf_get_smp_processor_id();
	struct task_struct *current;
	struct worker *worker;
	struct cpu *cpu;
	__u64 now;

	if (!leases)
		return 0;
	cpu = bpf_map_lookup_elem(&cpus, &index);
	if (!cpu || cpu->armed)
		return 0;
	current = bpf_get_current_task_btf();
	if (!current->mm)
		return 0;
	worker = bpf_task_storage_get(&workers, current, 0, 0);
	if (!worker || !worker->lease)
		return 0;
	now = bpf_ktime_get_ns();
	if (worker->since_ns) {
		arm(cpu, until_next_look(worker, now));
		return 0;
	}
	__sync_fetch_and_add(&unseen_switches, 1);
	switched_in(worker, now);
	return 0;
}

struct heartbeat_arguments {
	__u64 lease;
	__u64 psi_cpu;
	__u64 psi_io;
	__u64 psi_memory;
	__u64 run_queue_depth;
};

/* The area is frozen: nobody in user space can write to it any more, not even the daemon. */
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

struct start_arguments {
	__u64 cpu;
	/* The daemon's process as it sees itself. */
	__u64 tgid;
};

/* Called once for each CPU. -EINVAL: the daemon is in a PID namespace, where threads have other numbers. */
SEC("syscall")
int start(struct start_arguments *arguments)
{
	__u32 index = arguments->cpu;
	struct cpu *cpu = bpf_map_lookup_elem(&cpus, &index);

	if (bpf_get_current_pid_tgid() >> 32 != arguments->tgid)
		return -EINVAL;
	if (!cpu)
		return -ESRCH;
	if (bpf_timer_init(&cpu->timer, &cpus, CLOCK_MONOTONIC))
		return -ENOMEM;
	return bpf_timer_set_callback(&cpu->timer, tick);
}
