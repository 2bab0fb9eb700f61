/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The types of the kernel that the programs need, in place of a vmlinux.h of thousands. The build then needs neither a running
 * kernel with BTF nor a header of some version: each access to a field is relocated by the field's name when the programs are
 * loaded.
 */
#ifndef MORPHEUS_KERNEL_BPF_H
#define MORPHEUS_KERNEL_BPF_H

/* The types below replace vmlinux.h: no file may include <linux/types.h> beside them. */
#define __VMLINUX_H__

typedef unsigned char __u8;
typedef signed char __s8;
typedef unsigned short __u16;
typedef short __s16;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;
typedef __u32 __wsum;
typedef _Bool bool;

enum { false = 0, true = 1 };

/* From here to the next comment: numbers of the kernel's interface to user space, which never change. */
enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_HASH_OF_MAPS = 13,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};

enum {
	BPF_ANY = 0,
	BPF_NOEXIST = 1,
	BPF_F_NO_PREALLOC = 1,
	BPF_F_MMAPABLE = 1024,
	BPF_F_INNER_MAP = 4096,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
	BPF_RB_NO_WAKEUP = 1,
	BPF_RB_FORCE_WAKEUP = 2,
	/* Linux 6.7. */
	BPF_F_TIMER_CPU_PIN = 2,
};

enum { CLOCK_MONOTONIC = 1 };

struct bpf_timer {
	__u64 opaque[2];
} __attribute__((aligned(8)));

/* Of unknown length. A declaration alone would not match the kernel's type where it is an argument. */
struct cpumask {
	unsigned long bits[1];
} __attribute__((preserve_access_index));

/* The part of a task that sched_ext uses, where the kernel has sched_ext. */
struct sched_ext_entity {
	__u64 dsq_vtime;
	/* The DSQ that select_cpu has chosen, until the kernel has inserted the task. */
	__u64 ddsp_dsq_id;
	/* enum scx_ent_flags */
	__u32 flags;
	/* 100 for nice 0. */
	__u32 weight;
	/* The time at which it last became runnable, in jiffies. */
	unsigned long runnable_at;
	/* The rest of its slice, in ns. */
	__u64 slice;
} __attribute__((preserve_access_index));

enum cpuhp_state { CPUHP_OFFLINE = 0 };

/* The state of a CPU between offline and online, and the state it is to reach: higher is nearer to online. */
struct cpuhp_cpu_state {
	enum cpuhp_state state;
	enum cpuhp_state target;
} __attribute__((preserve_access_index));

struct sched_entity {
	/* CPU time in ns, without that of interrupts where the kernel accounts for it. */
	__u64 sum_exec_runtime;
} __attribute__((preserve_access_index));

struct preemption {
	__u32 count;
} __attribute__((preserve_access_index));

struct thread_info {
	/* The preemption count of the task's CPU, where it is not a variable of the CPU, as on x86. */
	struct preemption preempt;
} __attribute__((preserve_access_index));

struct kernfs_node {
	/* The number of a cgroup, which no other one ever has. */
	__u64 id;
} __attribute__((preserve_access_index));

struct cgroup;

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
} __attribute__((preserve_access_index));

struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
} __attribute__((preserve_access_index));

/* The kernel's CPU controller of a cgroup. */
struct task_group {
	struct cgroup_subsys_state css;
} __attribute__((preserve_access_index));

struct task_struct {
	struct thread_info thread_info;
	/* 0 while it is runnable. */
	unsigned int __state;
	unsigned int flags;
	/* Whether it runs at this moment. A byte since Linux 7.2: the loader adjusts unsigned numbers only. */
	unsigned int on_cpu;
	int pid;
	int tgid;
	struct task_struct *group_leader;
	/* The time of its creation, in ns; of a group leader, that of the process. */
	__u64 start_time;
	/* Below MAX_RT_PRIO: of a class above the fair one. */
	int prio;
	/* The class that it asks for. */
	unsigned int policy;
	int nr_cpus_allowed;
	const struct cpumask *cpus_ptr;
	char comm[16];
	struct sched_entity se;
	struct sched_ext_entity scx;
	/* Where cgroups share the CPU. */
	struct task_group *sched_task_group;
	/* Above 0 while it may not migrate. */
	unsigned short migration_disabled;
	/* Above 0 within an RCU read-side section; absent in kernels where such a section disables preemption. */
	int rcu_read_lock_nesting;
} __attribute__((preserve_access_index));

/* A flag of task_struct.__state: the thread has ended, and is switched out for the last time. */
#define TASK_DEAD 0x80
/* Flags of task_struct.flags: the task exits; */
#define PF_EXITING 0x4
/* it works on a work queue of the kernel; */
#define PF_WQ_WORKER 0x20
/* it is a kernel thread; */
#define PF_KTHREAD 0x200000
/* it is bound to its CPU for ever. */
#define PF_NO_SETAFFINITY 0x4000000
#define MAX_RT_PRIO 100
/* A value of task_struct.policy. */
#define SCHED_EXT 7

/*
 * Whether a task is one of a process, and does not exit: only such a task can be a worker. It is told by the flags: each time
 * that the verifier passes the load of a pointer like `mm`, it searches the types of the whole kernel by name, three times.
 */
#define is_of_live_process(task) (!((task)->flags & (PF_KTHREAD | PF_EXITING)))

/* Bits of the preemption count: NMI, interrupt, softirq. */
#define IN_INTERRUPT 0xff0100

/* Numbers of errno.h, which the daemon gets from the programs that it calls. */
#define ESRCH 3
#define ENOMEM 12
#define EBUSY 16
#define EEXIST 17
#define EINVAL 22

/*
 * A program is linked from several objects. The variables and maps that they share are written once, in the header of their
 * subject. One object of each program defines DEFINES_SHARED, and so defines them with their values; the others declare them.
 *
 * Functions that objects call of each other are global: the verifier checks each once, with any arguments. A function that moves
 * tasks between DSQs has to be static, since it may do so only in an RCU section of its caller: it is __hidden, which libbpf
 * makes static.
 */
#ifdef DEFINES_SHARED
#define SHARED(declaration, value...) declaration value
#else
#define SHARED(declaration, value...) extern declaration
#endif

#define READ_ONCE(word) (*(const volatile typeof(word) *)&(word))
#define WRITE_ONCE(word, value) (*(volatile typeof(word) *)&(word) = (value))
/* A CPU that reads this sees all that was written before. BPF has no store with release order; an exchange has it. */
#define STORE_RELEASE(word, value) ((void)__sync_lock_test_and_set(&(word), (value)))

#endif /* MORPHEUS_KERNEL_BPF_H */
