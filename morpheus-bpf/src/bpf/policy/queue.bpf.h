/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Which task runs next: queues by vtime.
 *
 * A task's vtime is the CPU time that it has had, divided by its weight. The task with the least goes first. The clock is the vtime
 * at which tasks are picked at present; a task that comes back from sleep is placed a little before it. So the clock moves with the
 * tasks that are picked for their vtime, and with no others: not with one that goes on after an interruption, whose time is over or
 * that has waited too long.
 *
 * A CPU that has to choose takes the least vtime of the heads that concern it and of the task that it ran up to now, which is in no
 * queue: without that comparison it would go last, and weights would mean nothing to a task that runs through. Only tasks in the
 * front queue go before those of the main one with less vtime; how often is bounded (options/starvation.bpf.c).
 *
 * In the order in which a CPU that has nothing looks:
 *	-  at every second pick, the rescue queues (options/rescue.bpf.c)
 *	1  its own queue of pinned tasks
 *	2  the main queue, when it is its turn before the front one
 *	3  the front queue
 *	4  the main queue, and demoted workers by their vtime
 *	5  other domains, the nearest first
 *	6  the task that it ran goes on
 *
 * Nothing here goes through all CPUs, and at most 16 CPUs contend for the lock of a queue: what grows with their number is
 * how many domains a CPU without work looks into.
 */
#ifndef MORPHEUS_QUEUE_BPF_H
#define MORPHEUS_QUEUE_BPF_H

#include "policy/classify.bpf.h"
#include "link/ladder.bpf.h"

/* The running task's vtime counts when a CPU chooses. Off for tests. */
const volatile bool previous_on = true;
/* A task that comes to another domain keeps its distance from the clock. Off for tests. */
const volatile bool domain_clock_on = true;
/* A task that may run on one CPU only is compared with that CPU's runner (reference_of). Off for tests. */
const volatile bool pinned_clock_on = true;
const volatile bool steal_on = true;
/* How far after the clock a vtime may be; 0 without a ceiling. */
const volatile __u64 vtime_ceiling_ns = 0;
/* A clock that every CPU writes would be slow: it moves in steps. */
#define CLOCK_STEP_NS 50000ULL

/*
 * A task comes to a domain: its vtime keeps its distance from the clock. Each clock runs as fast as its domain's tasks get CPU
 * time, so that by another clock a task would wait for long, or have much for nothing.
 */
int come_to_domain(struct task_struct *task __arg_trusted, __u32 index)
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

static __always_inline void advance_clock(struct domain *domain, __u64 vtime)
{
	if (before(READ_ONCE(domain->clock) + CLOCK_STEP_NS, vtime))
		WRITE_ONCE(domain->clock, vtime);
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
__u64 bounded_vtime(struct task_struct *task __arg_trusted, __u64 most_lag_ns)
{
	__u32 weight = weight_of(task);
	__u64 slice_vtime = by_weight(slice_ns, weight), ceiling_ns = vtime_ceiling_ns;
	__u64 vtime = task->scx.dsq_vtime, clock = clock_of(task), least;
	__u64 most = clock + lead_ns + 2 * demotion * slice_vtime;

	if (group_count) {
		/* A heavy group could keep all others waiting for as much CPU time as that makes. */
		if (weight > USUAL_WEIGHT << WEIGHT_SHIFT)
			most_lag_ns = by_weight(most_lag_ns, weight);
		/* Those of a light one are as far as this after each of their turns. */
		if (ceiling_ns)
			ceiling_ns += 2 * slice_vtime;
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
		pay_for(task, cpu, now);
	vtime = by_weight(ran_ns, cpu->weight);
	if (worker)
		vtime *= charge_worker(task, worker, ran_ns, now);
	vtime += task->scx.dsq_vtime;
	set_vtime(task, vtime);
	cpu->vtime = vtime;
}

/*
 * The least vtime in a queue, or NO_VTIME. Before Linux 6.19 that takes the queue's lock, so that a queue which is empty is not
 * asked.
 */
static __noinline __u64 head_of(__u64 dsq)
{
	struct bpf_iter_scx_dsq iterator;
	struct task_struct *task;
	__u64 vtime = NO_VTIME;

	if (scx_bpf_dsq_nr_queued(dsq) <= 0)
		return NO_VTIME;
	if (bpf_ksym_exists(scx_bpf_dsq_peek)) {
		task = scx_bpf_dsq_peek(dsq);
		return task ? task->scx.dsq_vtime : NO_VTIME;
	}
	count(COUNTER_locks_to_peek);
	if (!bpf_iter_scx_dsq_new(&iterator, dsq, 0)) {
		task = bpf_iter_scx_dsq_next(&iterator);
		if (task)
			vtime = task->scx.dsq_vtime;
	}
	bpf_iter_scx_dsq_destroy(&iterator);
	return vtime;
}

/* The lesser vtime, either of which may be NO_VTIME. */
static __always_inline __u64 lesser(__u64 a, __u64 b)
{
	if (a == NO_VTIME)
		return b;
	return b != NO_VTIME && before(b, a) ? b : a;
}

__u64 least_waiting(__s32 index)
{
	struct cpu *cpu = cpu_at(index);
	__u32 domain = domain_of(index);
	__u64 waits;

	bpf_rcu_read_lock();
	waits = head_of(MAIN_DSQ(domain));
	if (tiers_on)
		waits = lesser(waits, head_of(FRONT_DSQ(domain)));
	if (cpu && cpu->pinned)
		waits = lesser(waits, head_of(PINNED_DSQ(index)));
	bpf_rcu_read_unlock();
	return waits;
}

/*
 * Whether a task may go before those that compute: it is known to sleep, and has had no more than the others. By the tier
 * alone, whoever sleeps now and then would have all of the CPU.
 */
static __always_inline bool is_eligible(__u32 tier, __u64 vtime, const struct domain *domain)
{
	return tiers_on && tier != TIER_BATCH && before(vtime, READ_ONCE(domain->clock) + slice_ns / 2);
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
	/* Demoted or not, or throttled: it is charged for that all the same, and competes with those that may not go elsewhere either. */
	if (is_pinned(task)) {
		struct cpu *cpu = cpu_at(index);

		if (cpu)
			cpu->pinned = 1;
		insert_by_vtime(task, PINNED_DSQ(index), slice, vtime, flags);
		count(COUNTER_to_pinned);
		return false;
	}
	if (!domain || (worker && worker->demoted && put_demoted(task, worker, slice, flags, now)))
		return false;
	if (is_eligible(tier, vtime, domain)) {
		note_arrival(FRONT_DSQ(domain_index), &domain->front_served_ns, now);
		insert_by_vtime(task, FRONT_DSQ(domain_index), slice, vtime, flags);
		count(tier == TIER_LAT_CRITICAL ? COUNTER_to_lat_critical : COUNTER_to_interactive);
		return true;
	}
	if (tiers_on)
		note_arrival(MAIN_DSQ(domain_index), &domain->main_served_ns, now);
	insert_by_vtime(task, MAIN_DSQ(domain_index), slice, vtime, flags);
	count(COUNTER_to_main);
	return false;
}

static __always_inline bool take(__u64 dsq, enum counter counter)
{
	/* An empty one is not locked. */
	if (scx_bpf_dsq_nr_queued(dsq) <= 0)
		return false;
	count(COUNTER_locks_to_take);
	if (!move_to_local(dsq))
		return false;
	count(counter);
	return true;
}

/* In order of the time at which a task may run again, and not of vtime. */
static __always_inline bool take_throttled(__u32 domain, struct cpu *cpu)
{
	bool taken = take(THROTTLED_DSQ(domain), COUNTER_from_throttled);

	if (taken)
		cpu->out_of_order = 1;
	return taken;
}

/* Both are done under the lock of the CPU's run queue, so that the mark tells the truth. */
static __always_inline bool take_pinned(struct cpu *cpu, __s32 index)
{
	bool taken = take(PINNED_DSQ(index), COUNTER_from_pinned);

	if (!scx_bpf_dsq_nr_queued(PINNED_DSQ(index)))
		cpu->pinned = 0;
	return taken;
}

/* Fills in all of `heads`. */
int read_heads(struct heads *heads, __u32 domain_index, __s32 index, __u64 now)
{
	struct domain *domain = domain_at(domain_index);
	struct cpu *cpu = cpu_at(index);

	if (!heads || !domain || !cpu)
		return 0;
	heads->front = tiers_on ? head_of(FRONT_DSQ(domain_index)) : NO_VTIME;
	heads->main = head_of(MAIN_DSQ(domain_index));
	heads->demoted = heads->pinned = NO_VTIME;
	heads->due = heads->throttled = false;
	if (before(now, domain->demoted_until_ns)) {
		heads->demoted = head_of(DEMOTED_DSQ(domain_index));
		if (heads->demoted != NO_VTIME)
			WRITE_ONCE(domain->demoted_until_ns, now + USED_FOR_NS);
	}
	if (before(now, domain->throttled_until_ns)) {
		__u64 time = head_of(THROTTLED_DSQ(domain_index));

		if (time != NO_VTIME) {
			WRITE_ONCE(domain->throttled_until_ns, now + USED_FOR_NS);
			heads->throttled = true;
			heads->due = !before(now, time);
		}
	}
	if (cpu->pinned) {
		heads->pinned = head_of(PINNED_DSQ(index));
		if (heads->pinned == NO_VTIME)
			cpu->pinned = 0;
	}
	heads->least = lesser(lesser(heads->front, heads->main), lesser(heads->demoted, heads->pinned));
	return 0;
}

static __always_inline bool take_main(__u32 index, struct domain *domain, enum counter counter, __u64 now)
{
	if (!take(MAIN_DSQ(index), counter))
		return false;
	if (tiers_on) {
		domain->fronts_in_a_row = 0;
		WRITE_ONCE(domain->main_served_ns, now);
	}
	return true;
}

static __always_inline bool take_front(__u32 index, struct domain *domain, bool others, __u64 now)
{
	if (!take(FRONT_DSQ(index), COUNTER_from_front))
		return false;
	domain->fronts_in_a_row = others ? domain->fronts_in_a_row + 1 : 0;
	WRITE_ONCE(domain->front_served_ns, now);
	return true;
}

/* Takes from the front or the main queue. `front` and `main`: somebody is there. */
static __always_inline bool take_by_tier(__u32 index, struct domain *domain, bool front, bool main, __u64 now)
{
	if (front) {
		enum counter why = main ? main_goes_first(domain, now) : COUNTERS;

		if (why != COUNTERS && take_main(index, domain, why, now))
			return true;
		if (take_front(index, domain, main, now))
			return true;
	}
	return take_main(index, domain, COUNTER_from_main, now);
}

/* Whether all that waits for a CPU is in the front and main queues. */
static __always_inline bool waits_by_tier(const struct cpu *cpu, const struct domain *domain, __u64 now)
{
	return !cpu->pinned && !before(now, domain->demoted_until_ns) && !before(now, domain->throttled_until_ns);
}

/* Takes from these. */
static __always_inline bool take_waiting(__u32 index, struct domain *domain, __u64 now)
{
	bool front = tiers_on && scx_bpf_dsq_nr_queued(FRONT_DSQ(index)) > 0;
	bool main = !front || scx_bpf_dsq_nr_queued(MAIN_DSQ(index)) > 0;

	return take_by_tier(index, domain, front, main, now);
}

/* Takes the first of them that may run here. */
bool take_least(struct heads *heads, __u32 domain_index, __s32 index, __u64 now)
{
	struct domain *domain = domain_at(domain_index);
	struct cpu *cpu = cpu_at(index);
	bool front, main;

	if (!heads || !domain || !cpu)
		return false;
	front = heads->front != NO_VTIME;
	main = heads->main != NO_VTIME;
	if (heads->due && take_throttled(domain_index, cpu))
		return true;
	if (tiers_on && overflow_rescue_on && heads->pinned != NO_VTIME && heads->pinned == heads->least) {
		__u32 overdue = overdue_queues(domain, heads, now);

		if ((overdue & FRONT_IS_OVERDUE && take_front(domain_index, domain, main, now)) ||
		    (overdue & MAIN_IS_OVERDUE && take_main(domain_index, domain, COUNTER_from_main, now))) {
			count(COUNTER_from_overflow_rescue);
			return true;
		}
	}
	if (!front && heads->demoted != NO_VTIME && heads->demoted == heads->least &&
	    take(DEMOTED_DSQ(domain_index), COUNTER_from_demoted))
		return true;
	if (heads->pinned != NO_VTIME && heads->pinned == heads->least && take_pinned(cpu, index))
		return true;
	if (take_by_tier(domain_index, domain, front, main, now))
		return true;
	if (heads->pinned != NO_VTIME && take_pinned(cpu, index))
		return true;
	return heads->demoted != NO_VTIME && take(DEMOTED_DSQ(domain_index), COUNTER_from_demoted);
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
		if (other && READ_ONCE(other->rescue) && take(RESCUE_DSQ(domain), COUNTER_from_other_domains)) {
			cpu->rescued = cpu->out_of_order = 1;
			return true;
		}
		if (take(FRONT_DSQ(domain), COUNTER_from_other_domains) ||
		    take(MAIN_DSQ(domain), COUNTER_from_other_domains) ||
		    take(DEMOTED_DSQ(domain), COUNTER_from_other_domains))
			return true;
	}
	return false;
}

#endif /* MORPHEUS_QUEUE_BPF_H */
