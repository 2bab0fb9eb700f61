/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The few types of the kernel that the programs need, in place of a vmlinux.h of thousands. The build then needs
 * neither a running kernel with BTF nor a header of some version: each access to a field is relocated when the
 * programs are loaded, by the field's name.
 */
#ifndef MORPHEUS_KERNEL_BPF_H
#define MORPHEUS_KERNEL_BPF_H

/* What follows takes the place of vmlinux.h: nobody may include <linux/types.h> beside it. */
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

/* Of some length. A declaration alone would not match the kernel's, where it is an argument. */
struct cpumask {
	unsigned long bits[1];
} __attribute__((preserve_access_index));

/* What sched_ext has of a task, where the kernel has sched_ext. */
struct sched_ext_entity {
	__u64 dsq_vtime;
	/* The queue that the task was put into in select_cpu, until the kernel has done it. */
	__u64 ddsp_dsq_id;
	/* enum scx_ent_flags */
	__u32 flags;
	/* 100 for nice 0. */
	__u32 weight;
	/* When it last became runnable, in jiffies. */
	unsigned long runnable_at;
	/* How much longer it may run, in ns. */
	__u64 slice;
} __attribute__((preserve_access_index));

enum cpuhp_state { CPUHP_OFFLINE = 0 };

/* How far a CPU is between offline and online, and where it is to be: more is nearer to online. */
struct cpuhp_cpu_state {
	enum cpuhp_state state;
	enum cpuhp_state target;
} __attribute__((preserve_access_index));

struct sched_entity {
	/* CPU time, without that of interrupts where the kernel tells it apart. */
	__u64 sum_exec_runtime;
} __attribute__((preserve_access_index));

struct preemption {
	__u32 count;
} __attribute__((preserve_access_index));

struct thread_info {
	/* Where it is not a variable of the CPU, as on x86: what the task's CPU is in the midst of. */
	struct preemption preempt;
} __attribute__((preserve_access_index));

struct kernfs_node {
	/* Of a cgroup, its number: no other one ever has it. */
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

/* What the kernel's CPU controller has of a cgroup. */
struct task_group {
	struct cgroup_subsys_state css;
} __attribute__((preserve_access_index));

struct task_struct {
	struct thread_info thread_info;
	/* 0 while it runs or could. */
	unsigned int __state;
	unsigned int flags;
	/* Whether it has a CPU at this moment. A byte since Linux 7.2: the loader adjusts numbers without a sign only. */
	unsigned int on_cpu;
	int pid;
	int tgid;
	struct task_struct *group_leader;
	/* When it was created, in ns; of the first thread of a process, when the process was. */
	__u64 start_time;
	/* Below MAX_RT_PRIO: of a class above the fair one. */
	int prio;
	int nr_cpus_allowed;
	const struct cpumask *cpus_ptr;
	char comm[16];
	struct sched_entity se;
	struct sched_ext_entity scx;
	/* Where cgroups share the CPU. */
	struct task_group *sched_task_group;
	/* Above 0 while it may not be moved to another CPU. */
	unsigned short migration_disabled;
	/* Above 0 while it reads what RCU protects; not there where that forbids to take its CPU. */
	int rcu_read_lock_nesting;
} __attribute__((preserve_access_index));

/* A flag of task_struct.__state: the thread has ended, and is switched out for the last time. */
#define TASK_DEAD 0x80
/* Flags of task_struct.flags: one that is about to end, */
#define PF_EXITING 0x4
/* one that does what others in the kernel put off, */
#define PF_WQ_WORKER 0x20
/* a thread of the kernel. */
#define PF_KTHREAD 0x200000
/* One that is bound to its CPU for good. */
#define PF_NO_SETAFFINITY 0x4000000
#define MAX_RT_PRIO 100

/*
 * Whether a task is one of a process, and not about to end: only such a one can be a worker. By its flags: each time that the
 * verifier comes past the load of a pointer like `mm`, it searches the types of the whole kernel by name, thrice.
 */
#define is_of_live_process(task) (!((task)->flags & (PF_KTHREAD | PF_EXITING)))

/* Bits of the count of what a CPU is in the midst of: an NMI, an interrupt, what an interrupt has put off. */
#define IN_INTERRUPT 0xff0100

/* errno.h, whose numbers the daemon gets from the programs that it calls. */
#define ESRCH 3
#define ENOMEM 12
#define EINVAL 22

/*
 * A program is linked from several objects. What they share, variables and maps, is written once, in the header of its subject:
 * the object that defines DEFINES_SHARED, one for each program, defines it with the value, and the others declare it.
 *
 * Functions that objects call of each other are global: the verifier looks at each once, as if its arguments could be anything. One
 * that moves tasks of a queue has to be static, since it may do so in an RCU section of its caller only: it is __hidden, which
 * libbpf takes for that.
 */
#ifdef DEFINES_SHARED
#define SHARED(declaration, value...) declaration value
#else
#define SHARED(declaration, value...) extern declaration
#endif

#define READ_ONCE(word) (*(const volatile typeof(word) *)&(word))
#define WRITE_ONCE(word, value) (*(volatile typeof(word) *)&(word) = (value))
/* Everything that was written before is seen by who sees this: the store of BPF that says so is an exchange. */
#define STORE_RELEASE(word, value) ((void)__sync_lock_test_and_set(&(word), (value)))

#endif /* MORPHEUS_KERNEL_BPF_H */
