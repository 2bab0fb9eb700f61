/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * State of the policy: of the machine, each CPU, each domain and each task; and the functions that all its parts use.
 *
 * A *domain* is a last-level cache, or a part of one with more than 16 CPUs (src/domains.rs). It has a clock and the DSQs below.
 * Each CPU has one DSQ for tasks that may run nowhere else. DSQs are in order of vtime: CPU time divided by weight.
 */
#ifndef MORPHEUS_POLICY_BPF_H
#define MORPHEUS_POLICY_BPF_H

#include "kernel/scx.bpf.h"
#include "kernel/counters.bpf.h"
#include "link/slot.bpf.h"
#include "options/nodes.bpf.h"
#include "options/options.bpf.h"

/* The slice of a task, in ns: 4 ms is one tick at 250 Hz, and the kernel checks slices at ticks. `--slice-us`. */
SHARED(const volatile __u64 slice_ns, = 4000000);
/* A task that wakes is placed at most this far before the clock, in ns: one slice, so that no task saves up its sleep. */
SHARED(const volatile __u64 sleeper_ns, = 4000000);
/*
 * A task that is put back while it is runnable may be this far before the clock, in ns. A slice ends at a tick, so that tasks
 * differ by several ticks; 50 ms is twelve of 4 ms.
 */
SHARED(const volatile __u64 lag_ns, = 50000000);
/*
 * A task may be this far after the clock, in ns, beside what its slices add (bound_vtime): no task waits longer than that for CPU
 * time that it had long ago.
 */
SHARED(const volatile __u64 lead_ns, = 200000000);
/*
 * A task that has run for less is not preempted, in ns; 0: each task may be. Most of those sleep again before a kick would have
 * paid. `--without min-run`
 */
SHARED(const volatile __u64 min_run_ns, = 200000);
/* Tasks are classified. Off: all are BATCH, and the front DSQ is not used. `--without tiers` */
SHARED(const volatile bool tiers_on, = true);
/* `--without tick-preemption`, `--without wakeup-preemption` (preempt_at_tick, margin_ns). */
SHARED(const volatile bool tick_preemption_on, = true);
SHARED(const volatile bool wakeup_preemption_on, = true);

/* CPU numbers are below this. */
SHARED(const volatile __u32 cpu_count, = 1);
/* The size of tables by CPU. A power of two, so that the verifier sees a mask as a bound. */
#define MOST_CPUS 1024
SHARED(const volatile __u32 domain_count, = 1);
/* The most domains, as in src/domains.rs. A power of two, so that the verifier sees a mask as a bound. */
#define DOMAINS 64
/*
 * The CPUs of a domain that have a place, and are found when a task looks for one to preempt. A domain has up to 16 CPUs, unless
 * the machine has more than 64 caches. Places are bits of a word (lowest_bit).
 */
#define DOMAIN_CPUS 32
_Static_assert(DOMAIN_CPUS <= 32, "lowest_bit takes a word of 32 bits");
/* The domain of each CPU, and its place there. A CPU without a place has DOMAIN_CPUS or more. */
SHARED(const volatile __u8 domains_of_cpus[MOST_CPUS]);
SHARED(const volatile __u8 places_of_cpus[MOST_CPUS]);
/* The CPUs of each domain by their places, and the number of places. */
SHARED(const volatile __u16 cpus_of_domains[DOMAINS][DOMAIN_CPUS]);
SHARED(const volatile __u32 domain_sizes[DOMAINS]);
/* The other domains of each domain, the nearest first. */
SHARED(const volatile __u8 nearest_domains[DOMAINS][DOMAINS]);

/* DSQ numbers: those of domain d begin at 8 * d, those of CPUs are beyond all domains. */
#define DSQS_PER_DOMAIN 8
#define MAIN_DSQ(domain) ((__u64)(domain) * DSQS_PER_DOMAIN)
/* Demoted workers, and throttled workers in order of the time at which they may run again (link/ladder.bpf.c). */
#define DEMOTED_DSQ(domain) (MAIN_DSQ(domain) + 1)
#define THROTTLED_DSQ(domain) (MAIN_DSQ(domain) + 2)
/* Tasks that have waited for longer than `rescue_ns`, in order of arrival (options/rescue.bpf.c). */
#define RESCUE_DSQ(domain) (MAIN_DSQ(domain) + 3)
/* Eligible tasks that sleep more than they compute. */
#define FRONT_DSQ(domain) (MAIN_DSQ(domain) + 4)
/* Tasks that may run on this CPU only, and those of them that have waited for longer than `rescue_ns`. */
#define PINNED_DSQ(cpu) (1ULL << 32 | (__u32)(cpu))
#define PINNED_RESCUE_DSQ(cpu) (1ULL << 34 | (__u32)(cpu))

/* A vtime that no task has. */
#define NO_VTIME (~0ULL)
/* A clock starts far from 0, so that a vtime before it does not wrap around. */
#define CLOCK_BEGINS (1ULL << 48)
/* The shortest slice, in ns. A shorter one costs more in switches than it saves in waiting. */
#define LEAST_SLICE_NS 500000ULL
/*
 * For this time after a demoted or throttled DSQ was used, the CPUs of its domain read its head, in ns: two windows of a throttled
 * worker. Each CPU that finds a task renews it, and so does the rescue timer every 100 ms for the throttled DSQ.
 */
#define USED_FOR_NS 200000000ULL
/*
 * The weight of a task with nice 0, and of a group by default. Weights have WEIGHT_SHIFT fractional bits, since groups divide
 * them.
 */
#define USUAL_WEIGHT 100
#define WEIGHT_SHIFT 10

/* The reason of the last kick of a CPU. */
enum kick {
	KICK_NONE,
	/* A task of this scheduler waits. */
	KICK_OURS,
	/* A kernel thread of the CPU woke. */
	KICK_KERNEL,
};

/* The numbers are those of src/tier.rs and of the process database's file. */
enum tier {
	TIER_LAT_CRITICAL,
	TIER_INTERACTIVE,
	TIER_BATCH,
	TIERS,
};

/* TASK_COMM_LEN. */
#define NAME_BYTES 16
/* A task is mature after this number of sleeps: the first run of a task is its start, and says little of later ones. */
#define MATURE_AGE 2

/* The record of a task (classify.bpf.h). */
struct behaviour {
	/* CPU time of the task when its present run began, in ns. */
	__u64 exec_ns;
	/* Time of the last sleep. */
	__u64 slept_ns;
	/* Time of a wake-up after which the task had to wait, until it runs; else 0. */
	__u64 woke_ns;
	/* Averages in ns: time from sleep to sleep, CPU time of a run, and its deviation. */
	__u64 gap_ns;
	__u64 runtime_ns;
	__u64 deviation_ns;
	/* How far before its vtime the task waits in the front DSQ, in ns; 0 once it runs. */
	__u64 ahead_ns;
	/* Average number of switches in a run, in sixteenths; and switches in the present run. */
	__u32 average_switches;
	__u32 switches;
	/* Number of sleeps, up to YOUNG_AGE; and number of runs. */
	__u32 age;
	__u32 runs;
	/* enum tier */
	__u32 tier;
	/* The task has computed for too long in the present run. */
	__u32 cpu_bound;
	/* The name is on the list of `--boost`: the task is LAT_CRITICAL always (options/names.bpf.c). */
	__u32 boosted;
	/*
	 * The number + 1 of the waker's CPU, if the waker has said that it is about to sleep (options/sync.bpf.c). 0 once the
	 * task is in a DSQ.
	 */
	__u32 sync;
	/* The task woke, and waits near its last CPU before any other CPU is kicked (options/near.bpf.c). */
	__u32 stays;
	/* The number + 1 of the domain whose clock the vtime relates to; 0: unknown. Used without tiers as well. */
	__u32 home;
	char name[NAME_BYTES];
};

struct behaviours {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct behaviour);
};

SHARED(struct behaviours behaviours SEC(".maps"));

/*
 * No two elements share a cache line: their size is a multiple of one, and the memory of a map that can be mapped starts at a
 * page.
 */
#define OWN_LINES __attribute__((aligned(64)))

/*
 * State of a CPU. The CPU itself writes it. Other CPUs read it when they look for one to preempt; they write `kicked` and
 * `make_up_ns`.
 */
struct cpu {
	/* The time up to which the running task has been charged; 0 while no task of this scheduler runs. */
	__u64 since_ns;
	/* CPU time of the running task at `since_ns`: it is charged for the difference. */
	__u64 exec_ns;
	/* The time at which the running task was switched in. */
	__u64 began_ns;
	/* Its vtime at `since_ns`. */
	__u64 vtime;
	__u32 weight;
	/* enum tier, of the running task. At first it is no tier: 0 and `since_ns` 0. */
	__u32 tier;
	/* The end of the slice, if no other task takes the CPU before. */
	__u64 slice_end_ns;
	/* The running task is a kernel thread. */
	__u32 kernel;
	/* The running task has called sched_yield. */
	__u32 yielded;
	/* enum kick, until the CPU dispatches. */
	__u32 kicked;
	/* The pinned DSQ may have tasks. */
	__u32 pinned;
	/* The next task to run here was not picked for its vtime, and does not advance the clock; or it was. */
	__u32 out_of_order;
	__u32 picked;
	/* The place in the domain of the last CPU that was checked for a task that woke here. */
	__u32 cursor;
	/* The rest of the slice of a task that a kernel thread of this CPU has just interrupted, in ns; else 0. */
	__u64 rest_ns;

	/* Of link/ladder.bpf.c. The process of the worker that runs here, or 0. */
	__u32 worker;
	/* The worker is stalled: its poll is over its budget, or it is a hog. */
	__u32 stalled;
	/* The end of the extension for a critical section, or 0. */
	__u64 extended_until_ns;
	/* The time at which another process last interrupted a stalled worker here. */
	__u64 stalled_kicked_ns;

	/* Of options/groups.bpf.c: the group of the running task, and its CPU time that the group has paid for, in `paid_ns`. */
	__u32 group;
	/*
	 * Of options/sync.bpf.c: tasks that the running task has woken while it said that it is about to sleep, up to the number
	 * that counts.
	 */
	__u32 sync_wakes;
	__u64 paid_ns;
	/* The time of the last kick for such a wake-up. */
	__u64 sync_kicked_ns;
	/* Of options/later.bpf.c: the expiry of the timer that makes up for a skipped kick, or 0. */
	__u64 make_up_ns;
	/* Number of consecutive tasks that slept here before they had run for `min_run_ns`. */
	__u32 short_runs;
	/*
	 * Of options/rescue.bpf.c: the rescue DSQ of pinned tasks may have tasks; its head has waited so long that each pick has
	 * to be a rescue; the last pick was a rescue; the last search for a rescued task began with pinned ones.
	 */
	__u32 rescue;
	__u32 urgent;
	__u32 rescued;
	__u32 pinned_went_first;
	__u64 crowded_until_ns;
	/*
	 * Of options/crowd.bpf.c: the longest slice of a task, and of a rescued task, in ns; 0: no bound beside the slice itself.
	 */
	__u64 crowd_slice_ns;
	__u64 rescued_slice_ns;
	/* The expiry of the timer that ends slices, or 0. */
	__u64 slice_timer_ns;
	/* Of options/detect.bpf.c: tasks that this CPU has enqueued, and the immature ones of them. */
	__u64 enqueues;
	__u64 strangers;
} OWN_LINES;

struct cpus {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpu);
};

SHARED(struct cpus cpus SEC(".maps"));

struct domain {
	/* The vtime at which tasks are picked at present. */
	__u64 clock;
	/*
	 * Bits by the places of CPUs: CPUs that run a stalled worker, and CPUs that run a BATCH task. Hints: the bit of a CPU
	 * that has gone idle remains.
	 */
	__u64 stalled_cpus;
	__u64 batch_cpus;
	/* Until this time CPUs read the heads of the demoted and of the throttled DSQ. */
	__u64 demoted_until_ns;
	__u64 throttled_until_ns;
	/* The time at which a task was last taken from the DSQ, or came to the empty DSQ. */
	__u64 main_served_ns;
	__u64 front_served_ns;
	/* Tasks that were taken from other DSQs since, while tasks waited in the main DSQ (options/starvation.bpf.c). */
	__u32 before_main;
	/* No CPU of the domain is online. */
	__u32 gone;
	/*
	 * Of options/rescue.bpf.c: the rescue DSQ has tasks; its head has waited so long that each pick has to be a rescue;
	 * online CPUs; a domain with more to do plus 1, of which the next rescue takes a task, or 0; waiting tasks for each
	 * online CPU, in parts of 1024.
	 */
	__u32 rescue;
	__u32 urgent;
	__u32 online;
	__u32 pull;
	__u64 load;
	__u64 crowded_until_ns;
} OWN_LINES;

struct domains {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, DOMAINS);
	__type(key, __u32);
	__type(value, struct domain);
};

SHARED(struct domains domains SEC(".maps"));

/* The claim of a task that woke to preempt another one (place.bpf.h). */
struct claim {
	__u64 vtime;
	__u64 now;
	__u32 tier;
	/* The number + 1 of the CPU whose task woke it and is about to sleep; or 0. */
	__u32 waker;
	/* The least time between two kicks for such wake-ups, and before the waker itself is preempted, in ns. */
	__u64 pause_ns;
};

/* The DSQs that concern a CPU, and the least vtime in each (queue.bpf.h). */
struct heads {
	__u64 front;
	__u64 main;
	__u64 demoted;
	__u64 pinned;
	/* The least of the four. */
	__u64 least;
	/* The throttled DSQ has tasks, and its head may run again. */
	__u32 throttled;
	__u32 due;
};

/* The record of a task where there is one: without tiers it is only `home`. */
static __always_inline struct behaviour *record_of(struct task_struct *task)
{
	return tiers_on || domain_count > 1 ? bpf_task_storage_get(&behaviours, task, 0, 0) : 0;
}

static __always_inline struct behaviour *behaviour_of(struct task_struct *task)
{
	return tiers_on ? bpf_task_storage_get(&behaviours, task, 0, 0) : 0;
}

static __always_inline struct cpu *cpu_at(__s32 index)
{
	__u32 key = index;

	return bpf_map_lookup_elem(&cpus, &key);
}

static __always_inline __u32 domain_of(__s32 cpu)
{
	return domains_of_cpus[(__u32)cpu & (MOST_CPUS - 1)] & (DOMAINS - 1);
}

static __always_inline struct domain *domain_at(__u32 index)
{
	return bpf_map_lookup_elem(&domains, &index);
}

/* The CPU at a place of a domain. */
static __always_inline __s32 cpu_in(__u32 domain, __u32 place)
{
	return cpus_of_domains[domain & (DOMAINS - 1)][place & (DOMAIN_CPUS - 1)];
}

/* Sets or clears a CPU's bit in a word of its domain. */
static __always_inline void mark(__u64 *word, __s32 index, bool on)
{
	__u32 place = places_of_cpus[(__u32)index & (MOST_CPUS - 1)];

	if (place >= DOMAIN_CPUS)
		return;
	if (on)
		__sync_fetch_and_or(word, 1ULL << place);
	else
		__sync_fetch_and_and(word, ~(1ULL << place));
}

/* The worker of a task, or 0. */
static __always_inline struct worker *worker_of(struct task_struct *task)
{
	struct worker *worker;

	if (!leases || !is_of_live_process(task))
		return 0;
	worker = bpf_task_storage_get(&workers, task, 0, 0);
	return worker && worker->lease ? worker : 0;
}

/* The clock of the domain where a task runs or waits. */
static __always_inline __u64 clock_of(const struct task_struct *task)
{
	struct domain *domain = domain_at(domain_of(scx_bpf_task_cpu(task)));

	return domain ? READ_ONCE(domain->clock) : task->scx.dsq_vtime;
}

/*
 * The weight of a task without groups. A kernel thread has at least the usual weight, since it may hold a lock that others wait
 * for: khugepaged, at nice 19, holds that of a process's memory, and beside busy threads it kept the whole process waiting for
 * 0.5 s.
 */
static __always_inline __u32 own_weight(const struct task_struct *task)
{
	__u32 weight = task->scx.weight;

	if (task->flags & PF_KTHREAD && weight < USUAL_WEIGHT)
		return USUAL_WEIGHT;
	return weight ? weight : 1;
}

/* The weight of a task in parts of 1024, with its groups. */
static __always_inline __u32 weight_of(struct task_struct *task)
{
	return has_groups() ? group_weight(task) : own_weight(task) << WEIGHT_SHIFT;
}

static __always_inline __u64 by_weight(__u64 ns, __u32 weight)
{
	/* Nearly all tasks have it, and divisions are slow. */
	if (weight == USUAL_WEIGHT << WEIGHT_SHIFT)
		return ns;
	return ns * (USUAL_WEIGHT << WEIGHT_SHIFT) / (weight ? weight : 1);
}

/* The vtime of the running task of a CPU if it stopped now. */
static __always_inline __u64 present_vtime(const struct cpu *cpu, __u64 now)
{
	__u64 since_ns = READ_ONCE(cpu->since_ns);

	if (before(now, since_ns))
		return cpu->vtime;
	return cpu->vtime + by_weight(now - since_ns, cpu->weight);
}

/* Whether a task may run on one of several CPUs only. */
static __always_inline bool is_pinned(const struct task_struct *task)
{
	return cpu_count > 1 && task->nr_cpus_allowed == 1;
}

/*
 * Whether a task may migrate. It may not while it holds something that belongs to its CPU. Some kernels count a running BPF
 * program in `migration_disabled` of the running task. A task that is re-enqueued for a higher class is seen by two programs, one
 * within the other.
 */
static __always_inline bool may_move(const struct task_struct *task, __u64 flags)
{
	__u32 forbidden = task->migration_disabled;

	return !forbidden || (bpf_get_current_task_btf() == task && forbidden <= (flags & ENQ_REENQ ? 2 : 1));
}

/* Notes that a task comes to a DSQ. In an empty DSQ it starts the time without service. */
static __always_inline void note_arrival(__u64 dsq, __u64 *served_ns, __u64 now)
{
	if (!scx_bpf_dsq_nr_queued(dsq))
		WRITE_ONCE(*served_ns, now);
}

/* Makes a CPU dispatch. */
static __always_inline void kick(__s32 index, struct cpu *cpu, enum counter counter)
{
	cpu->kicked = KICK_OURS;
	count(counter);
	scx_bpf_kick_cpu(index, KICK_PREEMPT);
}

/* Charges the group of the running task for the CPU time that it has used. Returns the quota that remains; below 0: too much. */
static __always_inline __s64 pay_for(const struct task_struct *task, struct cpu *cpu, __u64 now)
{
	__u64 used_ns = task->se.sum_exec_runtime - cpu->paid_ns;

	cpu->paid_ns += used_ns;
	return pay_quota(cpu->group, used_ns, now);
}

/* Whether a rescued task may wait for this CPU. */
static __always_inline bool is_rescue_pending(const struct cpu *cpu, const struct domain *domain)
{
	return rescue_on && (READ_ONCE(cpu->rescue) || READ_ONCE(domain->rescue));
}

/* Whether a CPU takes a rescued task first: at every second pick, and at each pick while one is urgent. */
static __always_inline bool is_rescue_due(struct cpu *cpu, const struct domain *domain)
{
	bool was_rescued = cpu->rescued;

	cpu->rescued = 0;
	return rescue_on && (READ_ONCE(cpu->rescue) || READ_ONCE(domain->rescue)) &&
	       (!was_rescued || READ_ONCE(domain->urgent) || READ_ONCE(cpu->urgent));
}

/* The lead in vtime that a task needs to preempt an equal, in ns. Without one, equal tasks would preempt each other in turn. */
#define PREEMPT_LEAD_NS 1000000

/*
 * The lead in vtime, in ns, that a task of this tier needs to preempt the running task of a CPU. A task of the front DSQ needs none
 * over BATCH, which runs for milliseconds. `--without wakeup-preemption`
 */
static __always_inline __u64 margin_ns(const struct cpu *cpu, __u32 tier)
{
	return wakeup_preemption_on && tiers_on && tier != TIER_BATCH && cpu->tier == TIER_BATCH ? 0 : PREEMPT_LEAD_NS;
}

/* Functions of the core for the link and the options. */

/* Brings the vtime of a task within bounds, and returns it (queue.bpf.h). */
__u64 bound_vtime(struct task_struct *task __arg_trusted, __u64 most_lag_ns);
/* The least vtime of the tasks that wait for this CPU, or NO_VTIME. Not to be called with a run queue locked. */
__u64 least_waiting(__s32 index);
/* Kicks an idle CPU that may run a waiting task. Returns whether there was one (place.bpf.h). */
bool kick_idle(struct task_struct *task __arg_trusted);
bool may_run_on(struct task_struct *task __arg_trusted, __s32 index);

/* Whether a CPU is in this mask of idle CPUs, and the task may use it. */
static __always_inline bool is_idle_for(struct task_struct *task, __s32 index, const struct cpumask *idle)
{
	return bpf_cpumask_test_cpu(index, idle) && UNDER_RCU(bpf_cpumask_test_cpu(index, task->cpus_ptr));
}

/* Claims such a CPU. Returns whether it was idle still. */
static __always_inline bool claims_idle(struct task_struct *task, __s32 index, const struct cpumask *idle)
{
	return is_idle_for(task, index, idle) && scx_bpf_test_and_clear_cpu_idle(index);
}

#endif /* MORPHEUS_POLICY_BPF_H */
