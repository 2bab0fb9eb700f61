/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the policy knows: of the machine, of each CPU, of each domain and of each task; and what all its parts do with that.
 *
 * A *domain* is a last-level cache, or a part of a large one (src/domains.rs). It has a clock and the queues below. Each CPU has one
 * queue for tasks that may run nowhere else. Queues are in order of vtime: CPU time divided by weight.
 */
#ifndef MORPHEUS_POLICY_BPF_H
#define MORPHEUS_POLICY_BPF_H

#include "kernel/scx.bpf.h"
#include "kernel/counters.bpf.h"
#include "link/slot.bpf.h"
#include "options/options.bpf.h"

/* How long a task may run before others that wait are considered. The kernel looks at each of its ticks. */
SHARED(const volatile __u64 slice_ns, = 4000000);
/* How far before the clock a task is placed that comes back from sleep. */
SHARED(const volatile __u64 sleeper_ns, = 4000000);
/* How far before the clock a task may be that wants to go on: what a tick is late, several times. */
SHARED(const volatile __u64 lag_ns, = 50000000);
/* How far after the clock a task may be, beside what a slice can make. */
SHARED(const volatile __u64 lead_ns, = 200000000);
/* A task that has run for less is not preempted; 0: no task is safe. */
SHARED(const volatile __u64 min_run_ns, = 200000);
/* Tasks are classified. Off: all are BATCH. */
SHARED(const volatile bool tiers_on, = true);
SHARED(const volatile bool tick_preemption_on, = true);
SHARED(const volatile bool wakeup_preemption_on, = true);

/* CPUs have numbers below this. */
SHARED(const volatile __u32 cpu_count, = 1);
#define MOST_CPUS 1024
SHARED(const volatile __u32 domain_count, = 1);
/* As in src/domains.rs; a power of two. */
#define DOMAINS 64
/* A task that looks for a CPU to preempt sees this number of CPUs of its domain at most. Few domains have more. */
#define DOMAIN_CPUS 32
/* The domain of each CPU, and its place there, from DOMAIN_CPUS on for those that are not looked at. */
SHARED(const volatile __u8 domains_of_cpus[MOST_CPUS]);
SHARED(const volatile __u8 places_of_cpus[MOST_CPUS]);
/* The CPUs of each domain by their places, and how many have one. */
SHARED(const volatile __u16 cpus_of_domains[DOMAINS][DOMAIN_CPUS]);
SHARED(const volatile __u32 domain_sizes[DOMAINS]);
/* The other domains of each, the nearest first. */
SHARED(const volatile __u8 nearest_domains[DOMAINS][DOMAINS]);

/* Queues of domain d are 8 * d and so on; those of CPUs come after all domains. */
#define DSQS_PER_DOMAIN 8
#define MAIN_DSQ(domain) ((__u64)(domain) * DSQS_PER_DOMAIN)
/* Demoted workers, and throttled ones in order of the time at which they may run again (link/ladder.bpf.c). */
#define DEMOTED_DSQ(domain) (MAIN_DSQ(domain) + 1)
#define THROTTLED_DSQ(domain) (MAIN_DSQ(domain) + 2)
/* Tasks that have waited for long, in order of arrival (options/rescue.bpf.c). */
#define RESCUE_DSQ(domain) (MAIN_DSQ(domain) + 3)
/* Tasks that sleep more than they compute, as long as they have had no more than others. */
#define FRONT_DSQ(domain) (MAIN_DSQ(domain) + 4)
#define PINNED_DSQ(cpu) (1ULL << 32 | (__u32)(cpu))
#define PINNED_RESCUE_DSQ(cpu) (1ULL << 34 | (__u32)(cpu))

/* No task's vtime. */
#define NO_VTIME (~0ULL)
/* A clock begins far from 0, so that a vtime before it is not after it. */
#define CLOCK_BEGINS (1ULL << 48)
/* Shorter turns cost more than they help. */
#define LEAST_SLICE_NS 500000ULL
/* After a demoted or throttled queue was used, its domain's CPUs look into it for this time. */
#define USED_FOR_NS 200000000ULL
/* The weight of an ordinary task, and of an ordinary group. Weights are counted in parts of 1024. */
#define USUAL_WEIGHT 100
#define WEIGHT_SHIFT 10

/* Why a CPU was last kicked. */
enum kick {
	KICK_NONE,
	/* A task waits. */
	KICK_OURS,
	/* One of its own kernel threads woke. */
	KICK_KERNEL,
};

/* The numbers are those of src/tier.rs, and of the process database's file. */
enum tier {
	TIER_LAT_CRITICAL,
	TIER_INTERACTIVE,
	TIER_BATCH,
	TIERS,
};

#define NAME_BYTES 16
/* After this number of sleeps a task is known. */
#define MATURE_AGE 2

/* What is known of a task (classify.bpf.h). */
struct behaviour {
	/* Its CPU time when the present turn began. */
	__u64 exec_ns;
	/* When it last went to sleep. */
	__u64 slept_ns;
	/* When it woke and had to wait, until it runs. */
	__u64 woke_ns;
	/* Averages: from sleep to sleep, CPU time of a turn, and how far that is from its average. */
	__u64 gap_ns;
	__u64 runtime_ns;
	__u64 deviation_ns;
	/* Switches in a turn, in sixteenths; and those of the present turn. */
	__u32 average_switches;
	__u32 switches;
	/* How often it has slept, up to YOUNG_AGE; and how many turns it has had. */
	__u32 age;
	__u32 runs;
	/* enum tier */
	__u32 tier;
	/* In the present turn it computes for too long. */
	__u32 cpu_bound;
	/* Its name is in the list of those that are LAT_CRITICAL always (options/names.bpf.c). */
	__u32 boosted;
	/* Its waker has said that it is about to sleep (options/sync.bpf.c). 0 once the task is in a queue. */
	__u32 sync;
	/* It woke, and waits near its last CPU before any other is told (options/near.bpf.c). */
	__u32 stays;
	/* The number, and one, of the domain by whose clock its vtime is; 0: it is not known. Without tiers as well. */
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
 * No two elements share a line of a cache: their size is a multiple of one, and the memory of a map that can be mapped begins
 * with a page.
 */
#define OWN_LINES __attribute__((aligned(64)))

/* Written on the CPU that it is about, and read by CPUs that want it; these write `kicked` and `make_up_ns`. */
struct cpu {
	/* Since when the task that runs has not been charged; 0 while none of ours runs. */
	__u64 since_ns;
	/* What its CPU time was then: that is what it is charged for. */
	__u64 exec_ns;
	/* When it was switched in. */
	__u64 began_ns;
	/* Its vtime at `since_ns`. */
	__u64 vtime;
	__u32 weight;
	/* enum tier; at first that of no task. */
	__u32 tier;
	/* When its slice ends, if the CPU is not taken from it. */
	__u64 slice_end_ns;
	/* It is a thread of the kernel. */
	__u32 kernel;
	/* It has said that others may go first. */
	__u32 yielded;
	/* enum kick, until the CPU chooses. */
	__u32 kicked;
	/* There may be tasks in its queue of pinned ones. */
	__u32 pinned;
	/* The next one to run here was not picked for its vtime. */
	__u32 out_of_order;
	/* The place in the domain of the CPU that was last looked at for a task which woke here. */
	__u32 cursor;
	/* How much of its slice was left to the task that one of the kernel's own threads has just interrupted. */
	__u64 rest_ns;

	/* The link's (link/ladder.bpf.c). The number of the process whose worker runs here, or 0. */
	__u32 worker;
	/* The worker is stalled: over its budget, or a hog. */
	__u32 stalled;
	/* The end of its critical section's extension, or 0. */
	__u64 extended_until_ns;
	/* When a stalled worker was last interrupted here by another process. */
	__u64 stalled_kicked_ns;

	/* Of options/groups: the running task's group, and up to which CPU time of its own the group has paid. */
	__u32 group;
	/* Of options/sync: how many the task that runs has woken, saying that it is about to sleep; no more than is believed. */
	__u32 sync_wakes;
	__u64 paid_ns;
	/* When the CPU was last kicked for such a wake. */
	__u64 sync_kicked_ns;
	/* Of options/later: for when the timer is armed that makes up for a skipped kick, or 0. */
	__u64 make_up_ns;
	/* How many tasks in a row went to sleep here before they had run for `min_run_ns`. */
	__u32 short_runs;
	/* Of options/rescue: there may be tasks in the queue of rescued pinned ones; the first has waited for so long that each pick
	 * has to be a rescue; and the last pick was one. */
	__u32 rescue;
	__u32 urgent;
	__u32 rescued;
	__u64 crowded_until_ns;
	/* Of options/crowd: a turn ends after this time, and a rescued task's; 0: with its slice. */
	__u64 crowd_slice_ns;
	__u64 rescued_slice_ns;
	/* For when the timer is armed that ends turns, or 0. */
	__u64 slice_timer_ns;
	/* Of options/detect: tasks that were put into queues by this CPU, and those of them that nothing was known of. */
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
	/* The vtime at which its tasks are picked at present. */
	__u64 clock;
	/* By the places of its CPUs: those that run a stalled worker, and a task of the tier BATCH. Hints: bits of idle ones stay. */
	__u64 stalled_cpus;
	__u64 batch_cpus;
	/* Until when its demoted and throttled queues are looked into. */
	__u64 demoted_until_ns;
	__u64 throttled_until_ns;
	/* When a task was last taken from there, or came where none was. */
	__u64 main_served_ns;
	__u64 front_served_ns;
	/* How many were taken from the front queue since, while tasks were in the main one (options/starvation.bpf.c). */
	__u32 fronts_in_a_row;
	/* None of its CPUs is online. */
	__u32 gone;
	/* Of options/rescue: there are tasks in the rescue queue, the first of which has waited for so long that each pick has to be a
	 * rescue; CPUs that are online, and waiting tasks for each in parts of 1024. */
	__u32 rescue;
	__u32 urgent;
	__u32 online;
	__u32 padding;
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

/* A task that woke, and what it may ask for (place.bpf.h). */
struct claim {
	__u64 vtime;
	__u64 now;
	__u32 tier;
	/* The number, and one, of the CPU whose task woke it and is about to sleep; or 0. */
	__u32 waker;
	/* The time between two kicks for such wakes, and until that task itself is preempted. */
	__u64 pause_ns;
};

/* The queues that concern a CPU at present, and the least vtime in each (queue.bpf.h). */
struct heads {
	__u64 front;
	__u64 main;
	__u64 demoted;
	__u64 pinned;
	/* The least of them. */
	__u64 least;
	/* There are tasks in the throttled queue, and one may run again. */
	__u32 throttled;
	__u32 due;
};

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

/* The worker that a task is, if it is one. */
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
 * A thread of the kernel has at least an ordinary weight. It may hold a lock that others wait for: khugepaged, at nice 19,
 * holds that of a process's memory, and beside busy threads it kept all of the process waiting for half a second.
 */
static __always_inline __u32 own_weight(const struct task_struct *task)
{
	__u32 weight = task->scx.weight;

	if (task->flags & PF_KTHREAD && weight < USUAL_WEIGHT)
		return USUAL_WEIGHT;
	return weight ? weight : 1;
}

/* A task's weight in parts of 1024, which its groups have a say in. */
static __always_inline __u32 weight_of(struct task_struct *task)
{
	return group_count ? group_weight(task) : own_weight(task) << WEIGHT_SHIFT;
}

static __always_inline __u64 by_weight(__u64 ns, __u32 weight)
{
	return ns * (USUAL_WEIGHT << WEIGHT_SHIFT) / (weight ? weight : 1);
}

/* What the task that runs there would have as vtime if it stopped now. */
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
 * Whether a task may go on elsewhere: not while it holds something that belongs to its CPU. For as long as a program like
 * this one runs, some kernels forbid it to the task that runs; put back for a class above, that one is asked about by two
 * programs, one within the other.
 */
static __always_inline bool may_move(const struct task_struct *task, __u64 flags)
{
	__u32 forbidden = task->migration_disabled;

	return !forbidden || (bpf_get_current_task_btf() == task && forbidden <= (flags & ENQ_REENQ ? 2 : 1));
}

/* A task comes where none was: from here on it is counted how long none is taken. */
static __always_inline void note_arrival(__u64 dsq, __u64 *served_ns, __u64 now)
{
	if (!scx_bpf_dsq_nr_queued(dsq))
		WRITE_ONCE(*served_ns, now);
}

/* Makes a CPU choose. */
static __always_inline void kick(__s32 index, struct cpu *cpu, enum counter counter)
{
	cpu->kicked = KICK_OURS;
	count(counter);
	scx_bpf_kick_cpu(index, KICK_PREEMPT);
}

/* What the task that runs here has used is taken from its group's quota. Returns what is left, less than 0 if too much. */
static __always_inline __s64 pay_for(const struct task_struct *task, struct cpu *cpu, __u64 now)
{
	__u64 used_ns = task->se.sum_exec_runtime - cpu->paid_ns;

	cpu->paid_ns += used_ns;
	return pay_quota(cpu->group, used_ns, now);
}

/* Whether a rescued task may wait for this CPU. */
static __always_inline bool is_rescue_pending(const struct cpu *cpu, __u32 domain_index)
{
	struct domain *domain = domain_at(domain_index);

	return READ_ONCE(cpu->rescue) || (domain && READ_ONCE(domain->rescue));
}

/* Whether a CPU that has to choose takes a rescued task first, if there is one. */
static __always_inline bool is_rescue_due(struct cpu *cpu, const struct domain *domain)
{
	bool was_rescued = cpu->rescued;

	cpu->rescued = 0;
	return (READ_ONCE(cpu->rescue) || READ_ONCE(domain->rescue)) &&
	       (!was_rescued || READ_ONCE(domain->urgent) || READ_ONCE(cpu->urgent));
}

/*
 * How much less vtime a task of this tier needs to preempt there: equals would take turns for nothing. A task that may go before
 * those that compute need not be ahead of one that does.
 */
static __always_inline __u64 margin_ns(const struct cpu *cpu, __u32 tier)
{
	return wakeup_preemption_on && tiers_on && tier != TIER_BATCH && cpu->tier == TIER_BATCH ? 0 : 1000000;
}

/* What the core does for the link and the options. */

/* Brings a task's vtime into bounds, and returns it (queue.bpf.h). */
__u64 bounded_vtime(struct task_struct *task __arg_trusted, __u64 most_lag_ns);
/* The least vtime among the tasks that wait and may be for this CPU, or NO_VTIME. Not under a run queue's lock. */
__u64 least_waiting(__s32 index);
/* Tells an idle CPU that it may run a task which waits. Returns whether there was one (place.bpf.h). */
bool kick_idle(struct task_struct *task __arg_trusted);
bool may_run_on(struct task_struct *task __arg_trusted, __s32 index);

#endif /* MORPHEUS_POLICY_BPF_H */
