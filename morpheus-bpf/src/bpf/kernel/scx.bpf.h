/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The interface of sched_ext from Linux 6.13 on, with one name for each thing.
 *
 * Three things differ between kernels, and each is decided when the programs are loaded:
 * - functions that were renamed or got other arguments: both are declared weak, and the existing one is called. The part of a
 *   name from its last "___" on is not part of the kernel's name. Two tests must not be joined by "or": the compiler would choose
 *   between two addresses, which the verifier refuses.
 * - values of enumerations: relocated by name.
 * - members of the table of callbacks: absent ones must be empty.
 */
#ifndef MORPHEUS_SCX_BPF_H
#define MORPHEUS_SCX_BPF_H

#include <bpf/bpf_core_read.h>

/* The counter of bpf_for; Linux 6.4. */
struct bpf_iter_num {
	__u64 opaque[1];
} __attribute__((aligned(8)));

enum scx_enq_flags {
	SCX_ENQ_WAKEUP = 1ULL,
	SCX_ENQ_HEAD = 16ULL,
	SCX_ENQ_PREEMPT = 1ULL << 32,
	SCX_ENQ_REENQ = 1ULL << 40,
	SCX_ENQ_LAST = 1ULL << 41,
};

enum scx_wake_flags {
	SCX_WAKE_TTWU = 8,
	SCX_WAKE_SYNC = 16,
};

enum scx_dsq_id_flags {
	SCX_DSQ_INVALID = 1ULL << 63,
	SCX_DSQ_LOCAL = 1ULL << 63 | 2,
	SCX_DSQ_LOCAL_ON = 1ULL << 63 | 1ULL << 62,
};

enum scx_kick_flags {
	SCX_KICK_IDLE = 1,
	SCX_KICK_PREEMPT = 2,
};

enum scx_ent_flags {
	SCX_TASK_QUEUED = 1,
};

#define ENQ_WAKEUP bpf_core_enum_value(enum scx_enq_flags, SCX_ENQ_WAKEUP)
#define ENQ_HEAD bpf_core_enum_value(enum scx_enq_flags, SCX_ENQ_HEAD)
#define ENQ_PREEMPT bpf_core_enum_value(enum scx_enq_flags, SCX_ENQ_PREEMPT)
#define ENQ_REENQ bpf_core_enum_value(enum scx_enq_flags, SCX_ENQ_REENQ)
#define DSQ_INVALID bpf_core_enum_value(enum scx_dsq_id_flags, SCX_DSQ_INVALID)
#define DSQ_LOCAL bpf_core_enum_value(enum scx_dsq_id_flags, SCX_DSQ_LOCAL)
#define DSQ_LOCAL_ON bpf_core_enum_value(enum scx_dsq_id_flags, SCX_DSQ_LOCAL_ON)
#define ENQ_LAST bpf_core_enum_value(enum scx_enq_flags, SCX_ENQ_LAST)
#define WAKE_SYNC bpf_core_enum_value(enum scx_wake_flags, SCX_WAKE_SYNC)
#define WAKE_TTWU bpf_core_enum_value(enum scx_wake_flags, SCX_WAKE_TTWU)
#define KICK_IDLE bpf_core_enum_value(enum scx_kick_flags, SCX_KICK_IDLE)
#define KICK_PREEMPT bpf_core_enum_value(enum scx_kick_flags, SCX_KICK_PREEMPT)
#define TASK_QUEUED bpf_core_enum_value(enum scx_ent_flags, SCX_TASK_QUEUED)

enum scx_exit_kind {
	SCX_EXIT_NONE = 0,
};

struct scx_exit_info {
	enum scx_exit_kind kind;
	__s64 exit_code;
	const char *reason;
	char *msg;
	char *dump;
} __attribute__((preserve_access_index));

struct scx_cpu_release_args;

/* The initial settings of a cgroup. The bandwidth: Linux 6.17. */
struct scx_cgroup_init_args {
	__u32 weight;
	__u64 bw_period_us;
	__u64 bw_quota_us;
	__u64 bw_burst_us;
} __attribute__((preserve_access_index));

/* Linux 6.19. */
struct scx_bpf_dsq_insert_vtime_args {
	__u64 dsq_id;
	__u64 slice;
	__u64 vtime;
	__u64 enq_flags;
};

struct bpf_iter_scx_dsq {
	__u64 opaque[6];
} __attribute__((aligned(8)));

/* The members that are used here; libbpf finds them by name in the kernel's type. */
struct sched_ext_ops {
	__s32 (*select_cpu)(struct task_struct *task, __s32 previous, __u64 flags);
	void (*enqueue)(struct task_struct *task, __u64 flags);
	void (*dispatch)(__s32 cpu, struct task_struct *previous);
	void (*running)(struct task_struct *task);
	void (*stopping)(struct task_struct *task, bool runnable);
	void (*tick)(struct task_struct *task);
	bool (*yield)(struct task_struct *from, struct task_struct *to);
	void (*enable)(struct task_struct *task);
	void (*disable)(struct task_struct *task);
	void (*cpu_release)(__s32 cpu, struct scx_cpu_release_args *arguments);
	void (*cpu_online)(__s32 cpu);
	void (*cpu_offline)(__s32 cpu);
	__s32 (*cgroup_init)(struct cgroup *cgroup, struct scx_cgroup_init_args *arguments);
	void (*cgroup_exit)(struct cgroup *cgroup);
	void (*cgroup_set_weight)(struct cgroup *cgroup, __u32 weight);
	void (*cgroup_set_bandwidth)(struct cgroup *cgroup, __u64 period_us, __u64 quota_us, __u64 burst_us);
	__s32 (*init)(void);
	void (*exit)(struct scx_exit_info *info);
	__u64 flags;
	__u32 timeout_ms;
	__u32 exit_dump_len;
	__u64 hotplug_seq;
	char name[128];
};

__s32 scx_bpf_create_dsq(__u64 dsq, __s32 node) __ksym;
__s32 scx_bpf_select_cpu_dfl(struct task_struct *task, __s32 previous, __u64 flags, bool *is_idle) __ksym;
bool scx_bpf_test_and_clear_cpu_idle(__s32 cpu) __ksym;
/* Claims one of these CPUs that is idle; it is not found again until it has idled anew. Negative: none is idle. */
__s32 scx_bpf_pick_idle_cpu(const struct cpumask *allowed, __u64 flags) __ksym;
const struct cpumask *scx_bpf_get_idle_cpumask(void) __ksym;
/* CPUs of idle cores; without SMT the same as the idle CPUs. */
const struct cpumask *scx_bpf_get_idle_smtmask(void) __ksym;
void scx_bpf_put_idle_cpumask(const struct cpumask *mask) __ksym;
/* Linux 6.15: the same by node, and only these, where the table of the callbacks has SCX_OPS_BUILTIN_IDLE_PER_NODE. */
int scx_bpf_cpu_node(__s32 cpu) __ksym __weak;
const struct cpumask *scx_bpf_get_idle_cpumask_node(int node) __ksym __weak;
const struct cpumask *scx_bpf_get_idle_smtmask_node(int node) __ksym __weak;
/* This node first, and then the others, the nearest first. */
__s32 scx_bpf_pick_idle_cpu_node(const struct cpumask *allowed, int node, __u64 flags) __ksym __weak;
const struct cpumask *scx_bpf_get_online_cpumask(void) __ksym;
void scx_bpf_put_cpumask(const struct cpumask *mask) __ksym;
__s32 scx_bpf_dsq_nr_queued(__u64 dsq) __ksym;
__s32 scx_bpf_task_cpu(const struct task_struct *task) __ksym;
void scx_bpf_kick_cpu(__s32 cpu, __u64 flags) __ksym;
bool scx_bpf_dsq_move(struct bpf_iter_scx_dsq *iterator, struct task_struct *task, __u64 dsq, __u64 flags) __ksym;
void scx_bpf_dsq_move_set_vtime(struct bpf_iter_scx_dsq *iterator, __u64 vtime) __ksym;
bool scx_bpf_dsq_move_vtime(struct bpf_iter_scx_dsq *iterator, struct task_struct *task, __u64 dsq, __u64 flags) __ksym;
int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *iterator, __u64 dsq, __u64 flags) __ksym;
struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *iterator) __ksym;
void bpf_iter_scx_dsq_destroy(struct bpf_iter_scx_dsq *iterator) __ksym;
/* Around loops through DSQs in timers: Linux 6.16 takes the function of a timer for one that may sleep. */
void bpf_rcu_read_lock(void) __ksym;
void bpf_rcu_read_unlock(void) __ksym;

/* The value of an expression, computed in an RCU read-side section. */
#define UNDER_RCU(expression)				\
	({						\
		typeof(expression) value_;		\
							\
		bpf_rcu_read_lock();			\
		value_ = (expression);			\
		bpf_rcu_read_unlock();			\
		value_;					\
	})

void *bpf_rdonly_cast(const void *object, __u32 type) __ksym;

/*
 * The same pointer as an untrusted one: a read through it is a read from any address. It costs nothing. Where a pointer is read
 * through a trusted one, the verifier checks whether the new one can be trusted as well, and searches all types of the kernel
 * three times, on each path.
 */
#define UNTRUSTED(type, pointer) ((const type *)bpf_rdonly_cast(pointer, bpf_core_type_id_kernel(type)))

bool bpf_cpumask_empty(const struct cpumask *mask) __ksym;
__u32 bpf_cpumask_any_distribute(const struct cpumask *mask) __ksym;
bool bpf_cpumask_test_cpu(__u32 cpu, const struct cpumask *mask) __ksym;

/*
 * Linux 6.14: the time of the last update of the CPU's run queue, much cheaper than reading a clock. It is another clock than
 * CLOCK_MONOTONIC. The scheduler and its timers use this one, and what applications see is in the other.
 */
__u64 scx_bpf_now(void) __ksym __weak;
/* 6.13, 6.19 */
void scx_bpf_dsq_insert___first(struct task_struct *task, __u64 dsq, __u64 slice, __u64 flags) __ksym __weak;
bool scx_bpf_dsq_insert___v2___second(struct task_struct *task, __u64 dsq, __u64 slice, __u64 flags) __ksym __weak;
void scx_bpf_dsq_insert_vtime(struct task_struct *task, __u64 dsq, __u64 slice, __u64 vtime, __u64 flags) __ksym __weak;
bool __scx_bpf_dsq_insert_vtime(struct task_struct *task, struct scx_bpf_dsq_insert_vtime_args *arguments) __ksym __weak;
/* 6.13, 7.1 */
bool scx_bpf_dsq_move_to_local___first(__u64 dsq) __ksym __weak;
bool scx_bpf_dsq_move_to_local___v2___second(__u64 dsq, __u64 flags) __ksym __weak;
/* 6.12; from 6.15 on also where no run queue is locked. */
void scx_bpf_cpuperf_set(__s32 cpu, __u32 speed) __ksym __weak;
/* 6.12 (from cpu_release only), 6.19, 7.1 */
__u32 scx_bpf_reenqueue_local___first(void) __ksym __weak;
void scx_bpf_reenqueue_local___v2___second(void) __ksym __weak;
void scx_bpf_dsq_reenq(__u64 dsq, __u64 flags) __ksym __weak;
/* Linux 6.19: the first task of a DSQ, without its lock. In an RCU read-side section. */
struct task_struct *scx_bpf_dsq_peek(__u64 dsq) __ksym __weak;
/* 6.19; before, programs write the fields. */
bool scx_bpf_task_set_slice(struct task_struct *task, __u64 slice) __ksym __weak;
bool scx_bpf_task_set_dsq_vtime(struct task_struct *task, __u64 vtime) __ksym __weak;

/* The numbers of bits by the upper five bits of their product with LOWEST_BIT: a de Bruijn sequence, in which each differs. */
#define LOWEST_BIT 0x077cb531U
static const __u8 numbers_of_bits[32] = { 0,  1,  28, 2,  29, 14, 24, 3, 30, 22, 20, 15, 25, 17, 4,  8,
						   31, 27, 13, 23, 21, 19, 16, 7, 26, 12, 18, 6,  11, 5,  10, 9 };

/* The number of the lowest bit of a word that is not 0. BPF has no instruction for it, and clang's code is four times as long. */
static __always_inline __u32 lowest_bit(__u32 word)
{
	return numbers_of_bits[(word & -word) * LOWEST_BIT >> 27];
}

/* Compares two times or two vtimes, which may wrap around. */
static __always_inline bool before(__u64 a, __u64 b)
{
	return (__s64)(a - b) < 0;
}

static __always_inline __u64 scx_now(void)
{
	if (bpf_ksym_exists(scx_bpf_now))
		return scx_bpf_now();
	return bpf_ktime_get_ns();
}

static __always_inline void insert_fifo(struct task_struct *task, __u64 dsq, __u64 slice, __u64 flags)
{
	if (bpf_ksym_exists(scx_bpf_dsq_insert___v2___second))
		scx_bpf_dsq_insert___v2___second(task, dsq, slice, flags);
	else
		scx_bpf_dsq_insert___first(task, dsq, slice, flags);
}

static __always_inline void insert_by_vtime(struct task_struct *task, __u64 dsq, __u64 slice, __u64 vtime, __u64 flags)
{
	if (bpf_core_type_exists(struct scx_bpf_dsq_insert_vtime_args)) {
		struct scx_bpf_dsq_insert_vtime_args arguments = {
			.dsq_id = dsq,
			.slice = slice,
			.vtime = vtime,
			.enq_flags = flags,
		};

		__scx_bpf_dsq_insert_vtime(task, &arguments);
	} else {
		scx_bpf_dsq_insert_vtime(task, dsq, slice, vtime, flags);
	}
}

static __always_inline bool move_to_local(__u64 dsq)
{
	if (bpf_ksym_exists(scx_bpf_dsq_move_to_local___v2___second))
		return scx_bpf_dsq_move_to_local___v2___second(dsq, 0);
	return scx_bpf_dsq_move_to_local___first(dsq);
}

static __always_inline void set_slice(struct task_struct *task, __u64 slice)
{
	if (bpf_ksym_exists(scx_bpf_task_set_slice))
		scx_bpf_task_set_slice(task, slice);
	else
		task->scx.slice = slice;
}

static __always_inline void set_vtime(struct task_struct *task, __u64 vtime)
{
	if (bpf_ksym_exists(scx_bpf_task_set_dsq_vtime))
		scx_bpf_task_set_dsq_vtime(task, vtime);
	else
		task->scx.dsq_vtime = vtime;
}

#define STRUCT_OPS(name, arguments...) \
	SEC("struct_ops/" #name) \
	BPF_PROG(name, ##arguments)

#define STRUCT_OPS_SLEEPABLE(name, arguments...) \
	SEC("struct_ops.s/" #name) \
	BPF_PROG(name, ##arguments)

#endif /* MORPHEUS_SCX_BPF_H */
