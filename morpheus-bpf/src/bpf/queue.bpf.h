/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Who runs next: queues by vtime.
 *
 * A task's vtime is the CPU time that it has had, divided by its weight (and times `demotion` while it is demoted).
 * Whoever has the least goes first. The clock is the vtime at which tasks are picked at present; who comes back from
 * sleep is placed a little before it, wherever it was. So the clock moves with those who are picked for their vtime, and
 * with nobody else: not with who goes on after an interruption, whose time is over or has waited too long.
 *
 * Each domain of CPUs, a last-level cache or a part of a large one (src/domains.rs), has a clock and these queues: front
 * (tasks that sleep more than they compute, and have had less than others), main, demoted, and throttled (in order of the
 * time at which they may run again). Each CPU has one for the tasks that may run nowhere else. A CPU that has to choose
 * takes the least vtime of the heads that concern it and of the task that it ran up to now, which is in no queue: without
 * that comparison it would go last, and weights would mean nothing to a task that runs through. Only who is in the front
 * queue goes before those of the main one with less vtime; how often it may is bounded thrice (turn_of_main).
 *
 * In the order in which a CPU that has nothing looks:
 *	-  at every second pick, the rescue queues (rescue.bpf.h)
 *	0  overdue ones, where a queue of pinned tasks would go before them
 *	1  its own queue of pinned tasks
 *	2, 3, 5  the main queue, when it is its turn before the front one
 *	4  the front queue
 *	6  the main queue, and demoted ones by their vtime
 *	7  other domains, the nearest first
 *	8  the task that it ran goes on
 *
 * Nothing here goes through all CPUs, and at most 16 CPUs contend for the lock of a queue: what grows with their number is
 * how many domains a CPU without work looks into.
 */
#ifndef MORPHEUS_QUEUE_BPF_H
#define MORPHEUS_QUEUE_BPF_H

#include "scx.bpf.h"
#include "slot.bpf.h"
#include "behaviour.bpf.h"
#include "cgroup.bpf.h"
#include "quota.bpf.h"

/* How long a task may run before others that wait are considered. The kernel looks at each of its ticks. */
const volatile __u64 slice_ns = 4000000;
/*
 * A worker that computes gives way after so long, if there is somebody with less vtime: between two ticks, by the timer
 * that looks at it. Whoever is switched out while it serves others then waits for short turns.
 */
const volatile __u64 worker_slice_ns = 500000;
/* How far before the clock a task is placed that comes back from sleep. */
const volatile __u64 sleeper_ns = 4000000;
/* How far before the clock one may be that wants to go on: what a tick is late, several times. */
const volatile __u64 lag_ns = 50000000;
/* How far after the clock one may be, beside what a slice can make. */
const volatile __u64 lead_ns = 200000000;
/* So many times a demoted task's time counts. */
const volatile __u64 demotion = 10;
/* Of each window of a throttled worker, so much is for it. */
const volatile __u64 window_ns = 100000000;
const volatile __u64 quota_ns = 5000000;
/* CPUs have numbers below this. */
const volatile __u32 cpu_count = 1;
#define MOST_CPUS 1024
/* Domains at most, as in src/domains.rs; a power of two. */
#define DOMAINS 64
/* A task that wants to preempt a CPU looks at this many of a domain at most. Few domains have more. */
#define DOMAIN_CPUS 32
/* The domain of each CPU, and its place there, from DOMAIN_CPUS on for those that are not looked at. */
const volatile __u8 domains_of_cpus[MOST_CPUS];
const volatile __u8 places_of_cpus[MOST_CPUS];
/* The CPUs of each domain by their places, and how many have one. */
const volatile __u16 cpus_of_domains[DOMAINS][DOMAIN_CPUS];
const volatile __u32 domain_sizes[DOMAINS];
/* The other domains of each, the nearest first. */
const volatile __u8 nearest_domains[DOMAINS][DOMAINS];
/* The running task's vtime counts when a CPU chooses. Off for tests. */
const volatile bool previous_on = true;
/* A task that comes to another domain keeps its distance from the clock. Off for tests. */
const volatile bool domain_clock_on = true;
/* A task that may run on one CPU only is compared with that CPU's runner (reference_of). Off for tests. */
const volatile bool pinned_clock_on = true;

/* Queues of domain d are 8 * d and so on; those of CPUs come after all domains. */
#define QUEUES_PER_DOMAIN 8
/* Shorter turns cost more than they help. */
#define LEAST_SLICE_NS 500000ULL
#define MAIN_QUEUE(domain) ((__u64)(domain) * QUEUES_PER_DOMAIN)
#define DEMOTED_QUEUE(domain) (MAIN_QUEUE(domain) + 1)
#define THROTTLED_QUEUE(domain) (MAIN_QUEUE(domain) + 2)
/* In order of arrival. */
#define RESCUE_QUEUE(domain) (MAIN_QUEUE(domain) + 3)
/* Those that sleep more than they compute, as long as they have had less than others. */
#define FRONT_QUEUE(domain) (MAIN_QUEUE(domain) + 4)
#define PINNED_QUEUE(cpu) (1ULL << 32 | (__u32)(cpu))
/* In order of arrival. */
#define PINNED_RESCUE_QUEUE(cpu) (1ULL << 34 | (__u32)(cpu))

/* No task's vtime. */
#define NOBODY (~0ULL)
/* After a demoted or throttled queue was used, its domain's CPUs look into it for so long. */
#define USED_FOR_NS 200000000ULL
/* A clock that every CPU writes would be slow: it moves in steps. */
#define CLOCK_STEP_NS 50000ULL

/* A clock begins far from 0, so that what is before it is not after it. */
#define CLOCK_BEGINS (1ULL << 48)

/* Why a CPU was last kicked. */
enum kick {
	KICK_NONE,
	/* Somebody waits. */
	KICK_OURS,
	/* One of its own kernel threads woke. */
	KICK_KERNEL,
};

/*
 * No two elements share a line of a cache: their size is a multiple of one, and the memory of a map that can be mapped begins
 * with a page.
 */
#define OWN_LINES __attribute__((aligned(64)))

/* Written on the CPU that it is about, and read by who wants it; `kicked` and `make_up_ns` are written by those. */
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
	/* The number of the process whose worker it is, or 0. */
	__u32 worker;
	/* It is a thread of the kernel. */
	__u32 kernel;
	/* It is a worker that is stuck: over its budget, or a hog. */
	__u32 stuck;
	/* It has said that others may go first. */
	__u32 yielded;
	/* The end of its critical section's extension, or 0. */
	__u64 extended_until_ns;
	/* enum kick, until it chooses. */
	__u32 kicked;
	/* There may be tasks in its queue of pinned ones. */
	__u32 pinned;
	/* How many tasks in a row went to sleep here before they had run for the least time. */
	__u32 short_runs;
	/* How much of its slice was left to the task that one of the kernel's own threads has just interrupted. */
	__u64 rest_ns;
	/* When its slice ends, if nobody takes it. */
	__u64 slice_end_ns;
	/* The next one to run here was not picked for its vtime. */
	__u32 out_of_turn;
	/* Of the task that runs: enum tier; at first that of none. */
	__u32 tier;
	/* Tasks that were put into queues by this CPU, and those of them that nothing was known of (detect.bpf.h). */
	__u64 enqueues;
	__u64 strangers;
	/* Of the task that runs: its group's index, and up to which CPU time of its own the group has paid. */
	__u32 group;
	__u64 paid_ns;
	/* For when the timer is armed that makes up for a skipped kick, or 0. */
	__u64 make_up_ns;
	/* When it was last kicked for a wake by somebody who was about to sleep. */
	__u64 sync_kicked_ns;
	/* When its stuck worker was last interrupted by another process. */
	__u64 stuck_kicked_ns;
	/* How many the task that runs has woken, saying each time that it is about to sleep; no more than is believed. */
	__u32 sync_wakes;
	/* There may be tasks in its queue of rescued pinned ones. */
	__u32 rescue;
	/* A pinned task there has waited for so long that each pick has to be a rescue. */
	__u32 urgent;
	/* The last pick was a rescued task. */
	__u32 rescued;
	/* A turn ends after this time, and a rescued task's; 0: with its slice. Written by the timer of rescue.bpf.h. */
	__u64 turn_ns;
	__u64 rescued_turn_ns;
	/* Until when short rescued turns last, for pinned tasks. */
	__u64 crowded_until_ns;
	/* For when the timer is armed that ends turns, or 0. */
	__u64 turn_timer_ns;
	/* The place in the domain of the CPU that was last looked at for a task which woke here. */
	__u32 cursor;
} OWN_LINES;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpu);
} cpus SEC(".maps");

struct domain {
	/* The vtime at which its tasks are picked at present. */
	__u64 clock;
	/* By the places of its CPUs: those that run a stuck worker, and a task of the tier BATCH. Hints: bits of idle ones stay. */
	__u64 stuck_cpus;
	__u64 batch_cpus;
	/* Until when its demoted and throttled queues are looked into. */
	__u64 demoted_until_ns;
	__u64 throttled_until_ns;
	/* There is somebody in its rescue queue. */
	__u32 rescue;
	/* The first one there has waited for so long that each pick has to be a rescue. */
	__u32 urgent;
	/* When somebody was last taken from there, or came where nobody was. */
	__u64 main_served_ns;
	__u64 front_served_ns;
	/* How many were taken from the front queue since, while somebody was in the main one. */
	__u32 fronts_in_a_row;
	/* None of its CPUs is online. */
	__u32 gone;
	/* Of the timer of rescue.bpf.h: CPUs that are online, waiting tasks for each in parts of 1024, and `crowded_until_ns`. */
	__u32 online;
	__u64 load;
	__u64 crowded_until_ns;
} OWN_LINES;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, DOMAINS);
	__type(key, __u32);
	__type(value, struct domain);
} domains SEC(".maps");

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

/* The clock of the domain where a task runs or waits. */
static __always_inline __u64 clock_of(const struct task_struct *task)
{
	struct domain *domain = domain_at(domain_of(scx_bpf_task_cpu(task)));

	return domain ? READ_ONCE(domain->clock) : task->scx.dsq_vtime;
}

/*
 * A task comes to a domain: its vtime keeps its distance from the clock. Each clock runs as fast as its domain's tasks get CPU
 * time, so that by another clock a task would wait for long, or have much for nothing.
 */
__noinline int come_to_domain(struct task_struct *task __arg_trusted, __u32 index)
{
	struct behaviour *behaviour;
	struct domain *domain, *home;

	if (domain_count < 2 || !domain_clock_on)
		return 0;
	behaviour = bpf_task_storage_get(&behaviours, task, 0, 0);
	domain = domain_at(index);
	if (!behaviour || !domain || behaviour->home == index + 1)
		return 0;
	home = behaviour->home ? domain_at(behaviour->home - 1) : 0;
	behaviour->home = index + 1;
	if (home)
		set_vtime(task, task->scx.dsq_vtime - READ_ONCE(home->clock) + READ_ONCE(domain->clock));
	count(COUNTER_domains_changed);
	return 0;
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

/* Whether the episode for which it was demoted goes on. Read anew: it is about to be charged tenfold, or to wait. */
static __always_inline bool is_demoted(struct worker *worker)
{
	struct words slot;

	if (!worker->demoted)
		return false;
	if (load_words(worker, &slot) && episode_of(worker, &slot) == worker->demoted)
		return true;
	worker->demoted = 0;
	worker->throttled = 0;
	worker->relieved = 1;
	count(COUNTER_undemotions);
	return false;
}

/* Whether a throttled worker has had its share of the present window. */
static __always_inline bool has_spent(struct worker *worker, __u64 now)
{
	return worker->throttled && worker->window_ran_ns >= quota_ns && now - worker->window_ns < window_ns;
}

/* Weights are in parts of 1024 here and below (weight_of). */
static __always_inline __u64 by_weight(__u64 ns, __u32 weight)
{
	return ns * (USUAL_WEIGHT << WEIGHT_SHIFT) / (weight ? weight : 1);
}

static __always_inline void advance_clock(struct domain *domain, __u64 vtime)
{
	if (before(READ_ONCE(domain->clock) + CLOCK_STEP_NS, vtime))
		WRITE_ONCE(domain->clock, vtime);
}

/* Whether a task may run on one of several CPUs only. */
static __always_inline bool is_pinned(const struct task_struct *task)
{
	return cpu_count > 1 && task->nr_cpus_allowed == 1;
}

/*
 * What a task's vtime may not be far before: the clock. A pinned task competes with the tasks of its own CPU. These may be
 * behind the clock by `lag_ns`, because a task that is alone on another CPU takes the clock along. So a pinned task may be as
 * far behind as the one that runs there: placed by the clock, it would wait until that one has caught up.
 */
static __always_inline __u64 reference_of(const struct task_struct *task, __u64 clock)
{
	struct cpu *cpu;

	if (!pinned_clock_on || !is_pinned(task))
		return clock;
	cpu = cpu_at(scx_bpf_task_cpu(task));
	if (!cpu || !cpu->since_ns || !before(cpu->vtime, clock))
		return clock;
	return cpu->vtime;
}

/* Brings a task's vtime into bounds: nobody is helped or harmed for ever by what was long ago. */
__noinline __u64 bounded_vtime(struct task_struct *task __arg_trusted, __u64 most_lag_ns)
{
	__u32 weight = weight_of(task);
	__u64 turn_ns = by_weight(slice_ns, weight), ceiling_ns = vtime_ceiling_ns;
	__u64 vtime = task->scx.dsq_vtime, clock = clock_of(task), least;
	__u64 most = clock + lead_ns + 2 * demotion * turn_ns;

	if (group_count) {
		/* A heavy group could keep all others waiting for as much CPU time as that makes. */
		if (weight > USUAL_WEIGHT << WEIGHT_SHIFT)
			most_lag_ns = by_weight(most_lag_ns, weight);
		/* Those of a light one are as far as this after each of their turns. */
		if (ceiling_ns)
			ceiling_ns += 2 * turn_ns;
	}
	least = reference_of(task, clock) - most_lag_ns;
	/* Where many CPUs take from one queue, the clock runs fast, and who is far behind waits for as long. */
	if (ceiling_ns && before(clock + ceiling_ns, vtime)) {
		vtime = clock + ceiling_ns;
		count(COUNTER_vtime_ceilings);
	}
	if (before(vtime, least))
		vtime = least;
	if (before(most, vtime))
		vtime = most;
	if (vtime != task->scx.dsq_vtime)
		set_vtime(task, vtime);
	return vtime;
}

/* Its vtime was a time, while it stood in the queue of throttled ones. */
static __always_inline void restore_vtime(struct task_struct *task, struct worker *worker)
{
	if (worker->has_true_vtime) {
		worker->has_true_vtime = 0;
		set_vtime(task, worker->true_vtime);
	}
}

/* A task that was demoted owes nothing for that when it is over: it has waited for each tenfold charge but the last. */
static __always_inline void forgive(struct task_struct *task, struct worker *worker)
{
	__u64 most = clock_of(task) + by_weight(slice_ns, weight_of(task));

	if (!worker->relieved)
		return;
	worker->relieved = 0;
	if (before(most, task->scx.dsq_vtime))
		set_vtime(task, most);
}

/* What the task that runs here has used is taken from its group's quota. Returns what is left, less than 0 if too much. */
static __always_inline __s64 pay(const struct task_struct *task, struct cpu *cpu, __u64 now)
{
	__u64 used_ns = task->se.sum_exec_runtime - cpu->paid_ns;

	cpu->paid_ns += used_ns;
	return pay_quota(cpu->group, used_ns, now);
}

/* The task that runs here pays for the time since it last did. */
static __always_inline void charge(struct task_struct *task, struct cpu *cpu, struct worker *worker, __u64 now)
{
	__u64 ran_ns, vtime;

	if (!cpu->since_ns)
		return;
	ran_ns = task->se.sum_exec_runtime - cpu->exec_ns;
	cpu->exec_ns += ran_ns;
	cpu->since_ns = now;
	if (limit_count && cpu->group != ROOT_GROUP)
		pay(task, cpu, now);
	vtime = by_weight(ran_ns, cpu->weight);
	if (worker) {
		if (is_demoted(worker))
			vtime *= demotion;
		if (worker->throttled) {
			if (now - worker->window_ns >= window_ns) {
				worker->window_ns = now;
				worker->window_ran_ns = 0;
			}
			worker->window_ran_ns += ran_ns;
		}
		forgive(task, worker);
	}
	vtime += task->scx.dsq_vtime;
	set_vtime(task, vtime);
	cpu->vtime = vtime;
}

/*
 * The least vtime in a queue, or NOBODY. Before Linux 6.19 that takes the queue's lock, so that a queue which is empty is not
 * asked.
 */
static __noinline __u64 head_of(__u64 queue)
{
	struct bpf_iter_scx_dsq iterator;
	struct task_struct *task;
	__u64 vtime = NOBODY;

	if (scx_bpf_dsq_nr_queued(queue) <= 0)
		return NOBODY;
	if (bpf_ksym_exists(scx_bpf_dsq_peek)) {
		task = scx_bpf_dsq_peek(queue);
		return task ? task->scx.dsq_vtime : NOBODY;
	}
	count(COUNTER_locks_to_look);
	if (!bpf_iter_scx_dsq_new(&iterator, queue, 0)) {
		task = bpf_iter_scx_dsq_next(&iterator);
		if (task)
			vtime = task->scx.dsq_vtime;
	}
	bpf_iter_scx_dsq_destroy(&iterator);
	return vtime;
}

/* The lesser vtime, either of which may be NOBODY. */
static __always_inline __u64 lesser(__u64 a, __u64 b)
{
	if (a == NOBODY)
		return b;
	return b != NOBODY && before(b, a) ? b : a;
}

/* The least vtime among those who wait and may be for this CPU, or NOBODY. Not under a run queue's lock. */
static __always_inline __u64 least_waiting(__s32 index, const struct cpu *cpu)
{
	__u32 domain = domain_of(index);
	__u64 waits;

	bpf_rcu_read_lock();
	waits = head_of(MAIN_QUEUE(domain));
	if (tiers_on)
		waits = lesser(waits, head_of(FRONT_QUEUE(domain)));
	if (cpu->pinned)
		waits = lesser(waits, head_of(PINNED_QUEUE(index)));
	bpf_rcu_read_unlock();
	return waits;
}

/* What the task that runs there would have as vtime if it stopped now. */
static __always_inline __u64 present_vtime(const struct cpu *cpu, __u64 now)
{
	__u64 since_ns = READ_ONCE(cpu->since_ns);

	if (before(now, since_ns))
		return cpu->vtime;
	return cpu->vtime + by_weight(now - since_ns, cpu->weight);
}

/* Makes a CPU choose. */
static __always_inline void kick(__s32 index, struct cpu *cpu, enum counter counter)
{
	cpu->kicked = KICK_OURS;
	count(counter);
	scx_bpf_kick_cpu(index, KICK_PREEMPT);
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

/*
 * Whether a task may go before those that compute: it is known to sleep, and has had no more than the others. By the tier
 * alone, whoever sleeps now and then would have all of the CPU.
 */
static __always_inline bool is_entitled(__u32 tier, __u64 vtime, const struct domain *domain)
{
	return tiers_on && tier != TIER_BATCH && before(vtime, READ_ONCE(domain->clock) + slice_ns / 2);
}

/* Somebody comes where nobody was: from here on it is counted how long nobody is taken. */
static __always_inline void note_arrival(__u64 queue, __u64 *served_ns, __u64 now)
{
	if (!scx_bpf_dsq_nr_queued(queue))
		WRITE_ONCE(*served_ns, now);
}

/* Puts a task that wants a CPU where it waits. Returns whether that is the front queue. */
static __always_inline bool put(struct task_struct *task, struct worker *worker, __u32 tier, __u64 slice, __u64 flags,
				__u64 now)
{
	__s32 index = scx_bpf_task_cpu(task);
	__u32 domain_index = domain_of(index);
	struct domain *domain = domain_at(domain_index);
	__u64 vtime;

	if (worker)
		forgive(task, worker);
	vtime = bounded_vtime(task, flags & ENQ_WAKEUP ? sleeper_ns : lag_ns);
	/*
	 * Demoted or not: it is charged for it all the same. Throttled ones are not capped here: they compete with who
	 * may not go elsewhere either.
	 */
	if (is_pinned(task)) {
		struct cpu *cpu = cpu_at(index);

		if (cpu)
			cpu->pinned = 1;
		insert_by_vtime(task, PINNED_QUEUE(index), slice, vtime, flags);
		count(COUNTER_to_pinned);
		return false;
	}
	if (!domain)
		return false;
	if (worker && is_demoted(worker)) {
		if (has_spent(worker, now)) {
			worker->true_vtime = vtime;
			worker->has_true_vtime = 1;
			WRITE_ONCE(domain->throttled_until_ns, now + USED_FOR_NS);
			insert_by_vtime(task, THROTTLED_QUEUE(domain_index), slice, worker->window_ns + window_ns, flags);
			count(COUNTER_to_throttled);
			return false;
		}
		WRITE_ONCE(domain->demoted_until_ns, now + USED_FOR_NS);
		insert_by_vtime(task, DEMOTED_QUEUE(domain_index), slice, vtime, flags);
		count(COUNTER_to_demoted);
		return false;
	}
	if (is_entitled(tier, vtime, domain)) {
		note_arrival(FRONT_QUEUE(domain_index), &domain->front_served_ns, now);
		insert_by_vtime(task, FRONT_QUEUE(domain_index), slice, vtime, flags);
		count(tier == TIER_LAT_CRITICAL ? COUNTER_to_lat_critical : COUNTER_to_interactive);
		return true;
	}
	if (tiers_on)
		note_arrival(MAIN_QUEUE(domain_index), &domain->main_served_ns, now);
	insert_by_vtime(task, MAIN_QUEUE(domain_index), slice, vtime, flags);
	count(COUNTER_to_main);
	return false;
}

static __always_inline bool take(__u64 queue, enum counter counter)
{
	/* An empty one is not locked. */
	if (scx_bpf_dsq_nr_queued(queue) <= 0)
		return false;
	count(COUNTER_locks_to_take);
	if (!move_to_local(queue))
		return false;
	count(counter);
	return true;
}

/* By the time at which it may, and not by its vtime. */
static __always_inline bool take_throttled(__u32 domain, struct cpu *cpu)
{
	bool taken = take(THROTTLED_QUEUE(domain), COUNTER_from_throttled);

	if (taken)
		cpu->out_of_turn = 1;
	return taken;
}

/* Both are done under the lock of the CPU's run queue, so that the mark tells the truth. */
static __always_inline bool take_pinned(struct cpu *cpu, __s32 index)
{
	bool taken = take(PINNED_QUEUE(index), COUNTER_from_pinned);

	if (!scx_bpf_dsq_nr_queued(PINNED_QUEUE(index)))
		cpu->pinned = 0;
	return taken;
}

/* The queues that concern a CPU at present, and the least vtime in each. */
struct heads {
	__u64 front;
	__u64 main;
	__u64 demoted;
	__u64 pinned;
	/* The least of them. */
	__u64 least;
	/* Somebody in the throttled queue may run again. */
	bool due;
	/* Somebody is in it. */
	bool throttled;
};

/* Fills in all of `heads`. */
__noinline int look_into_queues(struct heads *heads, __u32 domain_index, __s32 index, __u64 now)
{
	struct domain *domain = domain_at(domain_index);
	struct cpu *cpu = cpu_at(index);

	if (!heads || !domain || !cpu)
		return 0;
	heads->front = tiers_on ? head_of(FRONT_QUEUE(domain_index)) : NOBODY;
	heads->main = head_of(MAIN_QUEUE(domain_index));
	heads->demoted = heads->pinned = NOBODY;
	heads->due = heads->throttled = false;
	if (before(now, domain->demoted_until_ns)) {
		heads->demoted = head_of(DEMOTED_QUEUE(domain_index));
		if (heads->demoted != NOBODY)
			WRITE_ONCE(domain->demoted_until_ns, now + USED_FOR_NS);
	}
	if (before(now, domain->throttled_until_ns)) {
		__u64 time = head_of(THROTTLED_QUEUE(domain_index));

		if (time != NOBODY) {
			WRITE_ONCE(domain->throttled_until_ns, now + USED_FOR_NS);
			heads->throttled = true;
			heads->due = !before(now, time);
		}
	}
	if (cpu->pinned) {
		heads->pinned = head_of(PINNED_QUEUE(index));
		if (heads->pinned == NOBODY)
			cpu->pinned = 0;
	}
	heads->least = lesser(lesser(heads->front, heads->main), lesser(heads->demoted, heads->pinned));
	return 0;
}

/* Whether nobody was taken from a queue for so long. */
static __always_inline bool is_overdue(__u64 served_ns, __u64 most_ns, __u64 now)
{
	return before(served_ns + most_ns, now);
}

/*
 * Whether the main queue is served before the front one this once, and why: enough of those in front have gone before
 * (2), or nobody was taken from it for far too long (3), or for too long as things are at present (5). COUNTERS: no.
 */
__noinline int turn_of_main(struct domain *domain, __u64 now)
{
	__u32 budget = READ_ONCE(longrun_now) ? deficit_budget_longrun : deficit_budget;

	if (!domain)
		return COUNTERS;
	if (deficit_on && domain->fronts_in_a_row >= budget)
		return COUNTER_from_deficit;
	if (starvation_rescue_on && is_overdue(domain->main_served_ns, starvation_ns, now))
		return COUNTER_from_starvation_rescue;
	/* The turns of those that were taken from it are no sojourn: less would make it overdue at every wake. */
	if (sojourn_rescue_on && is_overdue(domain->main_served_ns, knobs.sojourn_ns + 2 * knobs.batch_slice_ns, now))
		return COUNTER_from_sojourn_rescue;
	return COUNTERS;
}

static __always_inline bool take_main(__u32 index, struct domain *domain, enum counter counter, __u64 now)
{
	if (!take(MAIN_QUEUE(index), counter))
		return false;
	if (tiers_on) {
		domain->fronts_in_a_row = 0;
		WRITE_ONCE(domain->main_served_ns, now);
	}
	return true;
}

static __always_inline bool take_front(__u32 index, struct domain *domain, bool others, __u64 now)
{
	if (!take(FRONT_QUEUE(index), COUNTER_from_front))
		return false;
	domain->fronts_in_a_row = others ? domain->fronts_in_a_row + 1 : 0;
	WRITE_ONCE(domain->front_served_ns, now);
	return true;
}

/* Takes from the front or the main queue. `front` and `main`: somebody is there. */
static __always_inline bool take_by_tier(__u32 index, struct domain *domain, bool front, bool main, __u64 now)
{
	if (front) {
		enum counter why = main ? turn_of_main(domain, now) : COUNTERS;

		if (why != COUNTERS && take_main(index, domain, why, now))
			return true;
		if (take_front(index, domain, main, now))
			return true;
	}
	return take_main(index, domain, COUNTER_from_main, now);
}

/* Whether those that wait for a CPU are in the front and main queues only. */
static __always_inline bool waits_by_tier(const struct cpu *cpu, const struct domain *domain, __u64 now)
{
	return !cpu->pinned && !before(now, domain->demoted_until_ns) && !before(now, domain->throttled_until_ns);
}

/* Takes from these. */
static __always_inline bool take_waiting(__u32 index, struct domain *domain, __u64 now)
{
	bool front = tiers_on && scx_bpf_dsq_nr_queued(FRONT_QUEUE(index)) > 0;
	bool main = !front || scx_bpf_dsq_nr_queued(MAIN_QUEUE(index)) > 0;

	return take_by_tier(index, domain, front, main, now);
}

/*
 * Takes the first of them that may run here.
 *
 * A queue of pinned tasks that is never empty, with little vtime in it, could keep its CPU from the others for long: those
 * are overdue (0) then, and go first.
 */
__noinline int take_least(struct heads *heads, __u32 domain_index, __s32 index, __u64 now)
{
	struct domain *domain = domain_at(domain_index);
	struct cpu *cpu = cpu_at(index);
	bool front, main;

	if (!heads || !domain || !cpu)
		return false;
	front = heads->front != NOBODY;
	main = heads->main != NOBODY;
	if (heads->due && take_throttled(domain_index, cpu))
		return true;
	if (tiers_on && overflow_rescue_on && heads->pinned != NOBODY && heads->pinned == heads->least) {
		if (front && is_overdue(domain->front_served_ns, overflow_rescue_ns, now) &&
		    take_front(domain_index, domain, main, now)) {
			count(COUNTER_from_overflow_rescue);
			return true;
		}
		if (main && is_overdue(domain->main_served_ns, overflow_rescue_ns, now) &&
		    take_main(domain_index, domain, COUNTER_from_main, now)) {
			count(COUNTER_from_overflow_rescue);
			return true;
		}
	}
	if (!front && heads->demoted != NOBODY && heads->demoted == heads->least &&
	    take(DEMOTED_QUEUE(domain_index), COUNTER_from_demoted))
		return true;
	if (heads->pinned != NOBODY && heads->pinned == heads->least && take_pinned(cpu, index))
		return true;
	if (take_by_tier(domain_index, domain, front, main, now))
		return true;
	if (heads->pinned != NOBODY && take_pinned(cpu, index))
		return true;
	return heads->demoted != NOBODY && take(DEMOTED_QUEUE(domain_index), COUNTER_from_demoted);
}

/* Nothing waits in this domain: looks into the others, one after the other. */
static __always_inline bool take_from_others(__u32 own, struct cpu *cpu)
{
	__u32 step;

	if (domain_count < 2 || !steal_on)
		return false;
	bpf_for(step, 0, domain_count - 1) {
		__u32 domain = nearest_domains[own & (DOMAINS - 1)][step & (DOMAINS - 1)];
		struct domain *other;

		other = domain_at(domain);
		if (other && READ_ONCE(other->rescue) && take(RESCUE_QUEUE(domain), COUNTER_from_other_domains)) {
			cpu->rescued = cpu->out_of_turn = 1;
			return true;
		}
		if (take(FRONT_QUEUE(domain), COUNTER_from_other_domains) ||
		    take(MAIN_QUEUE(domain), COUNTER_from_other_domains) ||
		    take(DEMOTED_QUEUE(domain), COUNTER_from_other_domains))
			return true;
	}
	return false;
}

#endif /* MORPHEUS_QUEUE_BPF_H */
