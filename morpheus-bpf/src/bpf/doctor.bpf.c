// SPDX-License-Identifier: GPL-2.0-only
/*
 * The doctor: sees each long poll of one process's tokio workers, and copies its stack. It changes nothing.
 *
 * A poll lies between two parks. A park is known by its signature (doctor.bpf.h), which user space finds in the first stacks. Between
 * two parks there may be many polls: the worker counts them itself, in a word whose place user space finds as well. A timer on each
 * CPU where a worker runs looks twice per threshold while there are long polls. While there are none, interrupts that come anyway are
 * enough, as the tick (on_interrupt), and the timer is for CPUs without. The stack of a poll that is over the threshold is copied
 * there, in the worker's own context, where it is what it is. A poll that slept is copied when the worker runs again, from its timer,
 * too: only polls that slept for long are, and a sleeper's registers are those of its system call until then.
 */
#include "kernel/kernel.bpf.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>
#include "doctor.bpf.h"
#include "morpheus_abi.h"

#define NULL ((void *)0)

char LICENSE[] SEC("license") = "GPL";

struct timerqueue_node {
	__s64 expires;
} __attribute__((preserve_access_index));

struct hrtimer {
	/* When it is due at the latest, by its own clock. */
	struct timerqueue_node node;
} __attribute__((preserve_access_index));

/* The registers of user space, as the kernel saved them. */
#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long bp;
	unsigned long dx;
	unsigned long si;
	unsigned long di;
	unsigned long orig_ax;
	unsigned long ip;
	unsigned long sp;
} __attribute__((preserve_access_index));
#else
struct user_pt_regs {
	__u64 regs[31];
	__u64 sp;
	__u64 pc;
} __attribute__((preserve_access_index));
struct pt_regs {
	struct user_pt_regs user_regs;
	__s32 syscallno;
} __attribute__((preserve_access_index));
#endif

/* The way from a descriptor to its file. */
struct qstr {
	const unsigned char *name;
} __attribute__((preserve_access_index));

struct dentry {
	struct dentry *d_parent;
	struct qstr d_name;
} __attribute__((preserve_access_index));

struct path {
	struct dentry *dentry;
} __attribute__((preserve_access_index));

struct inode {
	unsigned short i_mode;
} __attribute__((preserve_access_index));

struct file {
	struct inode *f_inode;
	struct path f_path;
} __attribute__((preserve_access_index));

struct fdtable {
	unsigned int max_fds;
	struct file **fd;
} __attribute__((preserve_access_index));

struct files_struct {
	struct fdtable *fdt;
} __attribute__((preserve_access_index));

struct task_struct___files {
	struct files_struct *files;
} __attribute__((preserve_access_index));

const volatile __u32 target = 0;
const volatile __u64 longer_than_ns = 1000000;
/* How often a running worker is looked at while there are long polls, and at least while there are none. */
const volatile __u64 period_ns = 500000;
const volatile __u64 relaxed_period_ns = 5000000;
/* Whether ticks come often enough, and a CPU that had one lately has the next: none computes without (nohz_full). */
const volatile bool ticks_are_enough = false;
/*
 * How long after a long poll workers are looked at often. Each look is an interrupt of its own then, so this lasts about as long as the
 * polls are worth: where there are long polls ten times a second, each has its stack; a single one has it where a tick meets it.
 */
const volatile __u64 attention_ns = 250000000;
/* A long poll is copied again after this time and a quarter of the poll's age at its last copy. */
const volatile __u64 again_ns = 10000000;
const volatile __u64 timer_flags = BPF_F_TIMER_CPU_PIN;

/* Written by user space. */
struct signature signatures[MOST_SIGNATURES];
__u32 signature_count = 0;
/* How many stacks of unknown sleeps and threads may be copied; user space fills it up. */
__s64 unknown_copies = 0;
/* Descriptors of the runtimes' drivers, found here. */
__u64 drivers[MOST_RUNTIMES];
__u32 driver_count = 0;

/* Until then workers are looked at often. */
__u64 attentive_until_ns = 0;
/* Events for which there was no room. */
__u64 lost = 0;
/* Written at each park, while what stands above is only read: no line of theirs is shared. */
struct service services[MOST_RUNTIMES] __attribute__((aligned(64)));

/* Not used: what a global variable is of has a type in user space. */
struct event form_of_event;
struct named form_of_named;

struct sample_timer {
	struct bpf_timer timer;
	__u32 armed;
	/* When it ends, if it is armed; the last look on its CPU; and the last interrupt that came anyway while the process ran there. */
	__u64 due_ns;
	__u64 looked_ns;
	__u64 ticked_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sample_timer);
} timers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct thread);
} threads SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 * 1024 * 1024);
} events SEC(".maps");

/*
 * Roles of a worker (struct thread.role); 0 is none: it parks beside the driver, or has no core. Each has 16 bits of service.roles, in
 * this order from the lowest.
 */
#define DRIVES 1
#define SERVES 2
#define STALLED 3

static __always_inline bool is_unserved(__u64 roles)
{
	return (roles >> 32 & 0xffff) && !(roles & 0xffffffff);
}

/* The amount that a worker with this role adds to service.roles. */
static __always_inline __u64 amount(__u32 role)
{
	return role ? 1ULL << 16 * (role - 1) : 0;
}

static __always_inline void set_role(struct thread *thread, __u32 role, __u64 now)
{
	struct service *service;
	__u64 before, after;
	__u32 index;

	/* Where there is one runtime, as there mostly is, it is also that of a worker which was never in its driver. */
	if (!thread->runtime && driver_count <= 1)
		thread->runtime = 1;
	index = thread->runtime - 1;
	if (index >= MOST_RUNTIMES) {
		thread->role = 0;
		return;
	}
	if (thread->role == role)
		return;
	service = &services[index];
	after = amount(role) - amount(thread->role);
	thread->role = role;
	before = __sync_fetch_and_add(&service->roles, after);
	after += before;
	if (is_unserved(before) == is_unserved(after))
		return;
	if (is_unserved(after))
		service->unserved_since_ns = now;
	else if (service->unserved_since_ns && now > service->unserved_since_ns)
		__sync_fetch_and_add(&service->unserved_ns, now - service->unserved_since_ns);
}

/* How long no worker has served the runtime, up to now. */
static __always_inline __u64 unserved(const struct thread *thread, __u64 now)
{
	__u32 index = thread->runtime - 1;
	__u64 ns;

	if (index >= MOST_RUNTIMES)
		return 0;
	ns = services[index].unserved_ns;
	if (is_unserved(services[index].roles) && now > services[index].unserved_since_ns)
		ns += now - services[index].unserved_since_ns;
	return ns;
}

static __always_inline void begin_poll(struct thread *thread, __u64 now)
{
	thread->began_ns = now;
	thread->seen_ns = now;
	thread->seen_cpu_ns = 0;
	thread->copied_ns = 0;
	/* Wanted was the stack of the poll before. */
	thread->is_wanted = 0;
	thread->cpu_ns = 0;
	thread->blocked_ns = 0;
	/* Of one that began without a number, its end is not known either: several may have gone by. */
	thread->is_exact = thread->has_tick != 0;
	thread->unserved_base_ns = unserved(thread, now);
}

/* The CPU time of the thread that runs here in its poll, as far as is known before it stops (end_run). */
static __always_inline __u64 computed(const struct thread *thread, __u64 now)
{
	return thread->cpu_ns + (thread->in_ns ? now - thread->in_ns : 0);
}

/* A thread has computed until now. */
static __always_inline void add_up(struct thread *thread, __u64 now)
{
	__u64 ns = thread->in_ns ? now - thread->in_ns : 0;

	thread->cpu_ns += ns;
	thread->ran_ns += ns;
	if (thread->in_ns)
		thread->in_ns = now;
}

/* A thread runs from now on. */
static __always_inline void begin_run(const struct task_struct *task, struct thread *thread, __u64 now)
{
	thread->in_ns = now;
	thread->ran_ns = 0;
	thread->in_exec_ns = task->se.sum_exec_runtime;
}

/*
 * A thread stops running. The kernel's own figure leaves out what the host of a virtual machine took, and interrupts, where the kernel is
 * built for that. It is exact at both ends of a run: what the thread has not computed is left out of the last poll.
 */
static __always_inline void end_run(const struct task_struct *task, struct thread *thread, __u64 now)
{
	__u64 exec_ns = task->se.sum_exec_runtime - thread->in_exec_ns;
	__u64 taken_ns;

	add_up(thread, now);
	taken_ns = thread->in_ns && thread->ran_ns > exec_ns ? thread->ran_ns - exec_ns : 0;
	thread->cpu_ns -= taken_ns < thread->cpu_ns ? taken_ns : thread->cpu_ns;
	thread->in_ns = 0;
}

/*
 * A timer interrupts a thread later than it was due: meanwhile the thread did not compute, as the host had taken the CPU away. This is
 * known long before the run ends, and where the kernel does not account for it.
 */
static __always_inline void missed(struct thread *thread, __u64 due_ns, __u64 now)
{
	if (!thread->in_ns)
		return;
	if (due_ns > thread->in_ns)
		add_up(thread, due_ns);
	thread->in_ns = now;
}

static __always_inline void fill(struct event *event, __u32 kind, __u32 tid, const struct thread *thread, __u64 now)
{
	event->kind = kind;
	event->tid = tid;
	event->now_ns = now;
	event->began_ns = thread->began_ns;
	event->cpu_ns = computed(thread, now);
	event->blocked_ns = thread->blocked_ns;
	event->unserved_ns = unserved(thread, now) - thread->unserved_base_ns;
	event->reason = 0;
	event->runtime = thread->runtime;
	event->is_exact = thread->is_exact;
	event->length = 0;
	event->ip = 0;
	event->sp = 0;
	event->bp = 0;
	event->lr = 0;
	event->system_call = -1;
	event->arguments[0] = event->arguments[1] = event->arguments[2] = 0;
	event->slept_ns = 0;
	event->waker = thread->waker;
	event->mode = 0;
	event->woken_ns = thread->woken_ns;
	event->label = 0;
	event->padding = 0;
}

/* Reads the slot of the thread that runs here. Returns whether it polls a task that Morpheus watches. */
static __always_inline bool read_slot(const struct thread *thread, struct morpheus_runtime_slot *slot)
{
	__u64 at = 0;

	if (!thread->handle || bpf_probe_read_user(&at, sizeof(at), (void *)thread->handle))
		return false;
	return !bpf_probe_read_user(slot, sizeof(*slot), (void *)at) && (slot->poll_seq & 1);
}

/* The number of the label of the task that the thread which runs here polls, and one. */
static __always_inline __u32 read_label(const struct thread *thread)
{
	struct morpheus_runtime_slot slot;

	return read_slot(thread, &slot) ? slot.label + 1 : 0;
}

/* Not inlined, as all that is rare: most switches then run through a few lines of code. */
static __noinline int tell_end(__u32 tid, struct thread *thread, __u64 ended, __u64 now)
{
	struct event *event;

	thread->copied_ns = 0;
	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event) {
		__sync_fetch_and_add(&lost, 1);
		return 0;
	}
	fill(event, EVENT_END, tid, thread, now);
	event->now_ns = ended;
	/* The time after that is another poll's. */
	if (ended < now)
		event->cpu_ns = thread->seen_cpu_ns;
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	return 0;
}

/* A poll is over. Only one whose stack was copied is of interest. */
static __always_inline void end_poll(__u32 tid, struct thread *thread, __u64 ended, __u64 now)
{
	if (thread->copied_ns)
		tell_end(tid, thread, ended, now);
}

/*
 * A poll is over, and both its ends are known. Of a long one there should be a stack; if there is none, there was no look at it in
 * time: looks are frequent from now on, and it is told as well, for the count.
 */
static __always_inline void end_known_poll(__u32 tid, struct thread *thread, __u64 now)
{
	if (!thread->copied_ns && now - thread->began_ns < longer_than_ns)
		return;
	if (!thread->copied_ns && computed(thread, now) >= longer_than_ns)
		attentive_until_ns = now + attention_ns;
	tell_end(tid, thread, now, now);
}

/* The registers of a task's user space. */
static __always_inline void read_registers(struct task_struct *task, struct thread *thread)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);

#if defined(__TARGET_ARCH_x86)
	thread->ip = regs->ip;
	thread->sp = regs->sp;
	thread->bp = regs->bp;
	thread->lr = 0;
	thread->system_call = regs->orig_ax;
	thread->arguments[0] = regs->di;
	thread->arguments[1] = regs->si;
	thread->arguments[2] = regs->dx;
#else
	thread->ip = BPF_CORE_READ(regs, user_regs.pc);
	thread->sp = BPF_CORE_READ(regs, user_regs.sp);
	thread->bp = BPF_CORE_READ(regs, user_regs.regs[29]);
	thread->lr = BPF_CORE_READ(regs, user_regs.regs[30]);
	thread->system_call = BPF_CORE_READ(regs, syscallno);
	thread->arguments[0] = BPF_CORE_READ(regs, user_regs.regs[0]);
	thread->arguments[1] = BPF_CORE_READ(regs, user_regs.regs[1]);
	thread->arguments[2] = BPF_CORE_READ(regs, user_regs.regs[2]);
#endif
}

/* Of a system call, what tells a sleep of the executor's own from others. */
struct call {
	__u64 ip;
	__u64 sp;
	__s64 system_call;
	__u64 argument;
};

static __always_inline void read_call(struct task_struct *task, struct call *call)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);

#if defined(__TARGET_ARCH_x86)
	call->ip = regs->ip;
	call->sp = regs->sp;
	call->system_call = regs->orig_ax;
	call->argument = regs->di;
#else
	call->ip = BPF_CORE_READ(regs, user_regs.pc);
	call->sp = BPF_CORE_READ(regs, user_regs.sp);
	call->system_call = BPF_CORE_READ(regs, syscallno);
	call->argument = BPF_CORE_READ(regs, user_regs.regs[0]);
#endif
}

/* The known sleep that the system call of the thread which runs here is, by its stack; 0 if it is none. */
static __always_inline __u32 known_sleep(struct thread *thread, const struct call *call)
{
	for (__u32 index = 0; index < MOST_SIGNATURES; index++) {
		const struct signature *signature = &signatures[index];
		__u64 word = 0;

		if (index >= signature_count)
			break;
		if (signature->ip != call->ip || signature->system_call != (__u32)call->system_call)
			continue;
		if (bpf_probe_read_user(&word, sizeof(word), (void *)(call->sp + signature->return_offset)))
			continue;
		if (word != signature->return_address)
			continue;
		if (signature->core_offset) {
			thread->core_at = call->sp + signature->core_offset;
			thread->tick_offset = signature->tick_offset;
		}
		return signature->sleep;
	}
	return 0;
}

/* Reads what the system call of the thread that runs here may be about. */
static __always_inline void read_names(struct event *event, struct named *named)
{
	struct task_struct___files *task = (void *)bpf_get_current_task();
	struct fdtable *table = BPF_CORE_READ(task, files, fdt);
	__u64 descriptor = event->arguments[0];
	struct file *file = NULL;
	struct dentry *entry;

	bpf_probe_read_user_str(named->paths[0], PATH_BYTES, (void *)event->arguments[0]);
	bpf_probe_read_user_str(named->paths[1], PATH_BYTES, (void *)event->arguments[1]);
	if (descriptor >= BPF_CORE_READ(table, max_fds))
		return;
	bpf_probe_read_kernel(&file, sizeof(file), BPF_CORE_READ(table, fd) + descriptor);
	if (!file)
		return;
	event->mode = BPF_CORE_READ(file, f_inode, i_mode);
	entry = BPF_CORE_READ(file, f_path.dentry);
	bpf_probe_read_kernel_str(named->file, NAME_BYTES, BPF_CORE_READ(entry, d_name.name));
	bpf_probe_read_kernel_str(named->directory, NAME_BYTES, BPF_CORE_READ(entry, d_parent, d_name.name));
}

/* The bytes above the stack pointer of a park: the frames of the worker's loop. */
#define ABOVE_PARK 4096

static __always_inline void copy_bytes(__u32 tid, struct thread *thread, __u32 reason, __u64 slept_ns, __u64 now,
				       const __u32 bytes)
{
	struct stack_event *event = bpf_ringbuf_reserve(&events, sizeof(*event) + bytes, 0);
	__u64 sp = thread->sp;
	__u32 at = 0;

	if (!event) {
		__sync_fetch_and_add(&lost, 1);
		return;
	}
	fill(&event->event, EVENT_STACK, tid, thread, now);
	event->event.reason = reason;
	event->event.ip = thread->ip;
	event->event.sp = sp;
	event->event.bp = thread->bp;
	event->event.lr = thread->lr;
	event->event.system_call = thread->system_call;
	event->event.arguments[0] = thread->arguments[0];
	event->event.arguments[1] = thread->arguments[1];
	event->event.arguments[2] = thread->arguments[2];
	event->event.slept_ns = slept_ns;
	event->event.label = read_label(thread);
	/* The earlier content of the ring is not to be taken for a name. */
	event->named.file[0] = event->named.directory[0] = event->named.paths[0][0] = event->named.paths[1][0] = 0;
	if (reason == REASON_WOKE && thread->system_call >= 0)
		read_names(&event->event, &event->named);
	/* Until something is not mapped, or not there. */
	for (__u32 chunk = 0; chunk < bytes / STACK_CHUNK; chunk++) {
		if (thread->top && sp + at >= thread->top)
			break;
		if (bpf_probe_read_user(&event->bytes[chunk * STACK_CHUNK], STACK_CHUNK, (void *)(sp + chunk * STACK_CHUNK)))
			break;
		at += STACK_CHUNK;
	}
	event->event.length = at;
	bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);
	thread->copied_ns = now;
}

/* Copies the stack of the thread that runs here; its registers have been read. */
static __noinline int copy_stack(__u32 tid, struct thread *thread, __u32 reason, __u64 slept_ns, __u64 now)
{
	/* Another stack than the one it parked on: a coroutine's. */
	if (thread->sp >= thread->top)
		thread->top = 0;
	if (thread->top && thread->top - thread->sp <= STACK_SMALL)
		copy_bytes(tid, thread, reason, slept_ns, now, STACK_SMALL);
	else
		copy_bytes(tid, thread, reason, slept_ns, now, STACK_LARGE);
	return 0;
}

/* Takes one of the copies of what is unknown. */
static __always_inline bool may_learn(struct thread *thread, __u64 now)
{
	if (now < thread->quiet_until_ns || unknown_copies <= 0)
		return false;
	__sync_fetch_and_add(&unknown_copies, -1);
	thread->quiet_until_ns = now + 20000000;
	return true;
}

/* struct thread.has_tick */
#define TICK_OF_POLL 1
#define TICK_OF_PARK 2
/* It is the slot's number of the poll: of a task of Morpheus whose worker was handed over. */
#define TICK_OF_SLOT 3

enum ticks { TICK_UNKNOWN, TICK_SAME, TICK_OTHER, TICK_NO_CORE };

/* Reads the number of the poll from the slot of the thread that runs here, whose core is with another thread. */
static __always_inline enum ticks read_slot_tick(struct thread *thread)
{
	struct morpheus_runtime_slot slot;
	__u32 tick;
	bool same;

	if (!read_slot(thread, &slot))
		return TICK_NO_CORE;
	tick = slot.poll_seq;
	same = thread->has_tick == TICK_OF_SLOT && tick == thread->tick;
	thread->has_tick = TICK_OF_SLOT;
	thread->tick = tick;
	thread->is_handed_over = 1;
	return same ? TICK_SAME : TICK_OTHER;
}

/* Reads the number of the poll that the thread which runs here is in. */
static __always_inline enum ticks read_tick(struct thread *thread)
{
	__u64 core = 0;
	__u32 tick = 0;
	bool same;

	thread->is_handed_over = 0;
	if (!thread->core_at)
		return TICK_UNKNOWN;
	if (bpf_probe_read_user(&core, sizeof(core), (void *)thread->core_at))
		return TICK_UNKNOWN;
	if (!core)
		return read_slot_tick(thread);
	if (bpf_probe_read_user(&tick, sizeof(tick), (void *)(core + thread->tick_offset)))
		return TICK_UNKNOWN;
	/*
	 * tokio counts before it looks for a task: the first poll after a park has the next number. That one began with the end of
	 * the park.
	 */
	same = (thread->has_tick == TICK_OF_POLL && tick == thread->tick) ||
	       (thread->has_tick == TICK_OF_PARK && tick - thread->tick <= 1);
	thread->has_tick = TICK_OF_POLL;
	thread->tick = tick;
	return same ? TICK_SAME : TICK_OTHER;
}

/* Whether the thread that runs here is a worker, or polls a task of a worker that it has handed over. */
static __always_inline bool is_worker(struct thread *thread)
{
	struct morpheus_runtime_slot slot;

	if (thread->kind != KIND_WORKER && read_slot(thread, &slot))
		thread->kind = KIND_WORKER;
	return thread->kind == KIND_WORKER;
}

/* The role of a thread in a poll, which does not hold up a worker that was handed over. */
static __always_inline __u32 role_in(const struct thread *thread, __u32 role)
{
	return thread->is_handed_over ? 0 : role;
}

/* A poll was over at `ended` at the latest, and another begins. */
static __always_inline void change_poll(__u32 tid, struct thread *thread, __u64 ended, __u64 now)
{
	add_up(thread, now);
	end_poll(tid, thread, ended, now);
	begin_poll(thread, now);
}

/* Brings the poll of the thread that runs here up to date. Returns whether it is in one. */
static __always_inline bool look(__u32 tid, struct thread *thread, __u64 now)
{
	switch (read_tick(thread)) {
	case TICK_NO_CORE:
		/* tokio has moved its core to another thread: it may block. */
		change_poll(tid, thread, thread->seen_ns, now);
		set_role(thread, 0, now);
		return false;
	case TICK_OTHER:
		/* The first look after a park finds the first poll, or a later one: it began then at the latest. */
		change_poll(tid, thread, thread->seen_ns, now);
		break;
	case TICK_SAME:
	case TICK_UNKNOWN:
		break;
	}
	thread->seen_ns = now;
	thread->seen_cpu_ns = computed(thread, now);
	return true;
}

static __always_inline void arm(struct sample_timer *timer, __u64 delay_ns, __u64 now)
{
	timer->due_ns = now + delay_ns;
	timer->armed = !bpf_timer_start(&timer->timer, delay_ns, timer_flags);
}

/* Whether a thread is looked at often: also while its polls have no number, since only several stacks tell one poll from many then. */
static __always_inline bool is_attentive(const struct thread *thread, __u64 now)
{
	return now < attentive_until_ns || (thread->kind != KIND_OTHER && !thread->has_tick);
}

/* How long until the next look where nothing is to be seen again. */
static __always_inline __u64 period(const struct thread *thread, __u64 now)
{
	return is_attentive(thread, now) ? period_ns : relaxed_period_ns;
}

/*
 * How long until the next look at a worker whose poll is not long yet. While polls are long from time to time, a look each period sees
 * each of them. While none is, only a poll that is half as long already is worth an interrupt of its own.
 */
static __always_inline __u64 until_next_look(const struct thread *thread, __u64 now)
{
	__u64 left = longer_than_ns - computed(thread, now);

	if (left > longer_than_ns / 2 && !is_attentive(thread, now))
		return relaxed_period_ns;
	return left < period_ns ? left : period_ns;
}

/* Whether the thread that runs here is in the system call of a known sleep: about to park, or back from it. */
static __always_inline bool is_at_park(struct task_struct *current, struct thread *thread)
{
	struct call call;

	read_call(current, &call);
	return known_sleep(thread, &call);
}

/* Looks at the thread of the process that runs here. Returns how long until the next look. */
static __always_inline __u64 examine(struct task_struct *current, struct thread *thread, __u64 now)
{
	__u32 tid = current->pid;
	bool was_wanted = thread->is_wanted;
	__u64 again;

	thread->is_wanted = 0;
	if (!is_worker(thread)) {
		if (now - thread->began_ns >= longer_than_ns && may_learn(thread, now)) {
			read_registers(current, thread);
			copy_stack(tid, thread, REASON_UNKNOWN_THREAD, 0, now);
			thread->copied_ns = 0;
		}
		return period(thread, now);
	}
	if (was_wanted && !is_at_park(current, thread)) {
		/* Before the number is read: the poll that slept may be over by now, and its stack is still the best there is. */
		read_registers(current, thread);
		copy_stack(tid, thread, REASON_WOKE, now - thread->out_ns, now);
		return period_ns;
	}
	if (!look(tid, thread, now))
		return period(thread, now);
	set_role(thread, role_in(thread, now - thread->began_ns < longer_than_ns ? SERVES : STALLED), now);
	/* Ready and without a CPU is no fault of a line. */
	if (computed(thread, now) < longer_than_ns && thread->blocked_ns < longer_than_ns)
		return until_next_look(thread, now);
	/* Without a number, only stacks that are alike tell one poll from several: they are copied sooner again. */
	again = (thread->is_exact ? again_ns : 4 * period_ns) + (thread->copied_ns - thread->began_ns) / 4;
	if (!thread->copied_ns || now - thread->copied_ns >= again) {
		if (is_at_park(current, thread)) {
			change_poll(tid, thread, now, now);
			return period_ns;
		}
		read_registers(current, thread);
		copy_stack(tid, thread, REASON_COMPUTES, 0, now);
	}
	if (thread->is_exact)
		attentive_until_ns = now + attention_ns;
	return period_ns;
}

/* How long a tick speaks for the next ones. */
#define TICKS_GO_ON_NS 1000000000
/* Interrupts that are disabled in a system call delay a timer less, as a rule. */
#define LATE_NS 100000

/*
 * Sees to the next look. While none is urgent, the CPU's ticks do: a timer that ends before them makes the kernel set up the CPU's
 * clock, which a virtual machine pays with an exit, some 10 µs for each.
 */
static __always_inline void plan(struct sample_timer *timer, __u64 delay_ns, __u64 now)
{
	if (delay_ns >= relaxed_period_ns && ticks_are_enough && now - timer->ticked_ns < TICKS_GO_ON_NS)
		return;
	arm(timer, delay_ns, now);
}

/* Looks at the thread of the process that runs on this CPU, and arms the CPU's timer for the next look. */
static __noinline int look_here(struct sample_timer *timer, struct thread *thread, __u64 now)
{
	timer->looked_ns = now;
	plan(timer, examine(bpf_get_current_task_btf(), thread, now), now);
	return 0;
}

static int tick(void *map, __u32 *index, struct sample_timer *timer)
{
	struct task_struct *current = bpf_get_current_task_btf();
	__u32 tid = current->pid;
	struct thread *thread;

	timer->armed = 0;
	if (*index != bpf_get_smp_processor_id() || current->tgid != target)
		return 0;
	thread = bpf_map_lookup_elem(&threads, &tid);
	if (thread)
		look_here(timer, thread, bpf_ktime_get_ns());
	return 0;
}

/* How late a timer's interrupt is. The clock of each is its own. */
static __always_inline __u64 lateness(const struct hrtimer *hrtimer, const __s64 *clock)
{
	__s64 now, late_ns;

	if (!bpf_core_field_exists(hrtimer->node.expires) || bpf_probe_read_kernel(&now, sizeof(now), clock))
		return 0;
	late_ns = now - hrtimer->node.expires;
	return late_ns > 0 ? late_ns : 0;
}

/*
 * A timer of the kernel interrupts the CPU, as its tick does: a look costs no interrupt here, which is some microseconds.
 */
SEC("tp_btf/hrtimer_expire_entry")
int BPF_PROG(on_interrupt, struct hrtimer *hrtimer, __s64 *clock)
{
	struct task_struct *current = bpf_get_current_task_btf();
	__u32 index = bpf_get_smp_processor_id(), tid = current->pid;
	struct sample_timer *timer;
	struct thread *thread;
	__u64 now, late_ns;

	if (current->tgid != target)
		return 0;
	timer = bpf_map_lookup_elem(&timers, &index);
	thread = bpf_map_lookup_elem(&threads, &tid);
	if (!timer || !thread)
		return 0;
	now = bpf_ktime_get_ns();
	late_ns = lateness(hrtimer, clock);
	if (late_ns >= LATE_NS)
		missed(thread, now - late_ns, now);
	/* The timer is what ends, and looks itself. */
	if (timer->armed && now >= timer->due_ns)
		return 0;
	timer->ticked_ns = now;
	/* Another timer ended a moment ago. */
	if (now - timer->looked_ns < period_ns)
		return 0;
	return look_here(timer, thread, now);
}

/* The runtime whose driver has this descriptor, and one. */
static __always_inline __u32 runtime_of(__u64 driver)
{
	for (__u32 index = 0; index < MOST_RUNTIMES; index++) {
		if (index >= driver_count)
			break;
		if (drivers[index] == driver + 1)
			return index + 1;
	}
	if (driver_count < MOST_RUNTIMES) {
		/* Two CPUs that find two at once lose one, which is found again. */
		__u32 index = driver_count & (MOST_RUNTIMES - 1);

		drivers[index] = driver + 1;
		driver_count = index + 1;
		return index + 1;
	}
	return 0;
}

/* A thread of the process sleeps. */
static __always_inline void falls_asleep(struct task_struct *task, __u32 tid, struct thread *thread, __u64 now)
{
	__u32 tick_before, runtime, turns;
	struct call call;
	bool is_seen;

	read_call(task, &call);
	thread->sleep = known_sleep(thread, &call);
	switch (thread->sleep) {
	case SLEEP_DRIVER:
		runtime = runtime_of(call.argument);
		if (runtime != thread->runtime) {
			set_role(thread, 0, now);
			thread->runtime = runtime;
		}
		/* Fall through. */
	case SLEEP_PARK:
		thread->kind = KIND_WORKER;
		thread->top = call.sp + ABOVE_PARK;
		/*
		 * The park has a number of its own: a poll just before it was seen to the end if its number is the one before, or if it
		 * is the only one since the last park.
		 */
		tick_before = thread->tick;
		turns = thread->has_tick == TICK_OF_PARK ? 2 : 1;
		switch (read_tick(thread)) {
		case TICK_UNKNOWN:
			end_poll(tid, thread, now, now);
			break;
		default:
			is_seen = thread->tick - tick_before <= turns;
			thread->has_tick = TICK_OF_PARK;
			if (is_seen && thread->is_exact)
				end_known_poll(tid, thread, now);
			else
				end_poll(tid, thread, is_seen ? now : thread->seen_ns, now);
		}
		set_role(thread, thread->sleep == SLEEP_DRIVER ? DRIVES : 0, now);
		return;
	case SLEEP_HELD:
		end_poll(tid, thread, now, now);
		set_role(thread, 0, now);
		return;
	}
	read_registers(task, thread);
	if (is_worker(thread) && look(tid, thread, now))
		set_role(thread, role_in(thread, STALLED), now);
	if (may_learn(thread, now)) {
		__u64 copied_ns = thread->copied_ns;

		copy_stack(tid, thread, REASON_UNKNOWN_SLEEP, 0, now);
		thread->copied_ns = copied_ns;
	}
}

static __noinline int add_thread(__u32 tid, __u64 now)
{
	struct thread fresh = { .began_ns = now, .seen_ns = now };

	return bpf_map_update_elem(&threads, &tid, &fresh, BPF_NOEXIST);
}

/* The record of a thread, a new one where there was none; NULL if there are too many. */
static __always_inline struct thread *thread_of(__u32 tid, __u64 now)
{
	struct thread *thread = bpf_map_lookup_elem(&threads, &tid);

	if (thread)
		return thread;
	add_thread(tid, now);
	return bpf_map_lookup_elem(&threads, &tid);
}

static __always_inline void switched_out(struct task_struct *task, bool preempt, __u64 now)
{
	__u32 tid = task->pid;
	struct thread *thread = thread_of(tid, now);
	unsigned int state = task->__state;

	if (!thread)
		return;
	end_run(task, thread, now);
	if (state & TASK_DEAD) {
		end_poll(tid, thread, now, now);
		set_role(thread, 0, now);
		bpf_map_delete_elem(&threads, &tid);
		return;
	}
	if (!preempt && state)
		falls_asleep(task, tid, thread, now);
	else
		thread->sleep = 0;
	thread->out_ns = !preempt && state ? now : 0;
}

static __always_inline void switched_in(struct task_struct *task, __u64 now)
{
	__u32 index = bpf_get_smp_processor_id(), tid = task->pid;
	struct thread *thread = bpf_map_lookup_elem(&threads, &tid);
	struct sample_timer *timer = bpf_map_lookup_elem(&timers, &index);
	bool is_new;

	if (!thread || !timer)
		return;
	is_new = !thread->in_exec_ns;
	begin_run(task, thread, now);
	if (thread->sleep) {
		thread->sleep = 0;
		begin_poll(thread, now);
		set_role(thread, SERVES, now);
	} else if (thread->out_ns) {
		__u64 slept_ns = now - thread->out_ns;

		thread->blocked_ns += slept_ns;
		/* The poll that slept goes on. */
		thread->seen_ns = now;
		thread->seen_cpu_ns = thread->cpu_ns;
		if (thread->kind == KIND_WORKER) {
			/* Many short sleeps are as long as one: no look might meet the thread while it runs between them. */
			if (slept_ns >= longer_than_ns || (!thread->copied_ns && thread->blocked_ns >= longer_than_ns)) {
				thread->is_wanted = 1;
				arm(timer, 1, now);
				return;
			}
			set_role(thread, role_in(thread, now - thread->began_ns < longer_than_ns ? SERVES : STALLED), now);
		} else {
			/* Should it be a worker, its poll began after the sleep at the latest. */
			begin_poll(thread, now);
		}
	} else if (is_new) {
		/* It was adopted asleep. User space knows that sleep; a poll that goes on counts from now. */
		begin_poll(thread, now);
	}
	if (!timer->armed)
		plan(timer, period(thread, now), now);
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	bool out = prev->tgid == target, in = next->tgid == target;
	__u64 now;

	if (!out && !in)
		return 0;
	now = bpf_ktime_get_ns();
	if (out)
		switched_out(prev, preempt, now);
	if (in)
		switched_in(next, now);
	return 0;
}

SEC("tp_btf/sched_waking")
int BPF_PROG(on_wake, struct task_struct *task)
{
	struct task_struct *waker;
	struct thread *thread;
	__u32 tid;

	if (task->tgid != target)
		return 0;
	waker = bpf_get_current_task_btf();
	tid = task->pid;
	thread = bpf_map_lookup_elem(&threads, &tid);
	/* A sleep between polls needs no reason for its end. */
	if (!thread || thread->sleep)
		return 0;
	thread->waker = waker->tgid == target ? waker->pid : 0;
	thread->woken_ns = bpf_ktime_get_ns();
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(on_exec, struct task_struct *task)
{
	struct event *event;

	if (task->tgid != target)
		return 0;
	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event)
		return 0;
	*event = (struct event){ .kind = EVENT_EXEC, .tid = task->pid };
	bpf_ringbuf_submit(event, BPF_RB_FORCE_WAKEUP);
	return 0;
}

struct start_arguments {
	__u64 cpu;
};

/* Prepares a CPU; called once for each. */
SEC("syscall")
int start(struct start_arguments *arguments)
{
	__u32 index = arguments->cpu;
	struct sample_timer *timer = bpf_map_lookup_elem(&timers, &index);

	if (!timer)
		return -ESRCH;
	if (bpf_timer_init(&timer->timer, &timers, CLOCK_MONOTONIC))
		return -ENOMEM;
	return bpf_timer_set_callback(&timer->timer, tick);
}

struct adopt_arguments {
	__u64 tid;
	__u64 kind;
	__u64 core_at;
	__u64 tick_offset;
	__u64 quiet_until_ns;
	__u64 handle;
};

/* User space says what a thread is. */
SEC("syscall")
int adopt(struct adopt_arguments *arguments)
{
	struct thread *thread = thread_of(arguments->tid, bpf_ktime_get_ns());

	if (!thread)
		return -ENOMEM;
	if (arguments->kind != KIND_UNKNOWN)
		thread->kind = arguments->kind;
	if (arguments->core_at) {
		thread->core_at = arguments->core_at;
		thread->tick_offset = arguments->tick_offset;
	}
	if (arguments->quiet_until_ns)
		thread->quiet_until_ns = arguments->quiet_until_ns;
	if (arguments->handle)
		thread->handle = arguments->handle;
	return 0;
}

struct greet_arguments {
	__u64 tgid;
};

/* Whether the doctor knows itself by the number that the kernel has for it. */
SEC("syscall")
int greet(struct greet_arguments *arguments)
{
	struct task_struct *current = bpf_get_current_task_btf();

	return current->tgid == arguments->tgid ? 0 : -EINVAL;
}
