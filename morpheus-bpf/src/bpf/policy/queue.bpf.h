/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The order of dispatch: DSQs by vtime.
 *
 * The vtime of a task is its CPU time divided by its weight. The task with the least vtime goes first. The clock of a domain is
 * the vtime at which tasks are picked at present; a task that wakes is placed up to `sleeper_ns` before it. Only a task that is
 * picked for its vtime advances the clock: not one that goes on after an interruption, a throttled one, nor a rescued one.
 *
 * A CPU that dispatches compares the heads of its DSQs with the task that it has just run, which is in no DSQ. Without that
 * comparison the running task would go last, and weights would mean nothing for tasks that never sleep. Only tasks of the front
 * DSQ go before those of the main DSQ with less vtime, and options/starvation.bpf.c bounds how often.
 *
 * A CPU takes the first task of:
 *	-  at every second pick, the rescue DSQs (options/rescue.bpf.c)
 *	1  the DSQ of its pinned tasks, if its head has the least vtime
 *	2  the main DSQ, when options/starvation.bpf.c says so
 *	3  the front DSQ
 *	4  the main DSQ, and demoted workers by their vtime
 *	5  other domains, the nearest first
 *	6  the task that it ran goes on
 *
 * No function here goes through all CPUs, and at most 16 CPUs contend for the lock of a DSQ. Only the number of domains that a
 * CPU without work searches grows with the machine.
 */
#ifndef MORPHEUS_QUEUE_BPF_H
#define MORPHEUS_QUEUE_BPF_H

#include "policy/classify.bpf.h"
#include "link/ladder.bpf.h"

/* The running task competes with waiting tasks by vtime. `--without previous` */
const volatile bool previous_on = true;
/* A task that comes to another domain keeps its distance from the clock. `--without domain-clock` */
const volatile bool domain_clock_on = true;
/* A pinned task is compared with the task that runs on its CPU (reference_of). `--without pinned-clock` */
const volatile bool pinned_clock_on = true;
/*
 * The most that a vtime may be after the clock, in ns; 0: no ceiling. src/scaling.rs sets it from 8 CPUs on. `--without
 * vtime-ceiling`
 */
const volatile __u64 vtime_ceiling_ns = 0;
/*
 * The clock moves in steps of this vtime, in ns. A clock that each CPU writes at each switch would move its cache line between
 * all CPUs.
 */
#define CLOCK_STEP_NS 50000ULL
/* The most tasks of a DSQ that are read for one that may run on a CPU. */
#define HEADS_READ 64

/*
 * Adapts the vtime of a task that comes to a domain: it keeps its distance from the clock. Each clock runs as fast as the tasks
 * of its domain get CPU time. By the other clock a task would wait until this one has caught up, or would have CPU time for
 * nothing.
 */
int keep_distance(struct task_struct *task __arg_trusted, struct behaviour *record, __u32 index)
{
	struct domain *domain = domain_at(index), *home;

	if (!record || !domain)
		return 0;
	home = record->home ? domain_at(record->home - 1) : 0;
	record->home = index + 1;
	if (home)
		set_vtime(task, task->scx.dsq_vtime - READ_ONCE(home->clock) + READ_ONCE(domain->clock));
	count(COUNTER_domains_changed);
	return 0;
}

static __always_inline void come_to_domain(struct task_struct *task, struct behaviour *record, __u32 index)
{
	if (domain_count > 1 && domain_clock_on && record && record->home != index + 1)
		keep_distance(task, record, index);
}

/* Advances the clock of a domain to the vtime of a task that was picked for it. */
static __always_inline void advance_clock(struct domain *domain, __u64 vtime)
{
	if (before(READ_ONCE(domain->clock) + CLOCK_STEP_NS, vtime))
		WRITE_ONCE(domain->clock, vtime);
}

/*
 * The vtime that the lower bound of a task relates to: the clock, or for a pinned task the vtime of the task that runs on its
 * CPU, if that is less. A pinned task competes with the tasks of its CPU alone. These may be behind the clock by `lag_ns`,
 * because a task that is alone on another CPU advances it. Placed by the clock, a pinned task would wait until they have caught
 * up.
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

/* Brings the vtime of a task within bounds: neither credit nor debt lasts for ever. */
__u64 bound_vtime(struct task_struct *task __arg_trusted, __u64 most_lag_ns)
{
	__u64 vtime = task->scx.dsq_vtime, clock = clock_of(task), least, most, slice_vtime, ceiling_ns = vtime_ceiling_ns;
	__u32 weight;

	/* Then this is the bound, whatever the weight is. */
	if (!has_groups() && !is_pinned(task) && before(vtime, clock - most_lag_ns)) {
		set_vtime(task, clock - most_lag_ns);
		return clock - most_lag_ns;
	}
	weight = weight_of(task);
	slice_vtime = by_weight(slice_ns, weight);
	most = clock + lead_ns + 2 * demotion * slice_vtime;
	/* With this bound in vtime, a heavy group could keep all others waiting for its weight times as much CPU time. */
	if (has_groups() && weight > USUAL_WEIGHT << WEIGHT_SHIFT)
		most_lag_ns = by_weight(most_lag_ns, weight);
	/* One slice of a light task moves its vtime by more. One that sleeps is not to wait for that. */
	if (ceiling_ns && slice_vtime > slice_ns && (has_groups() || most_lag_ns > sleeper_ns))
		ceiling_ns += 2 * (slice_vtime - slice_ns);
	least = reference_of(task, clock) - most_lag_ns;
	/* Where many CPUs take from one DSQ the clock runs fast, and a task far behind it would wait for as much. */
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

/*
 * The same, without its divisions where the vtime is within the bounds of any task already, as it nearly always is: none is narrower
 * than this. With groups the bound before the clock depends on the weight.
 */
static __always_inline __u64 bounded_vtime(struct task_struct *task, const struct domain *domain, __u64 most_lag_ns)
{
	__u64 most_lead_ns = vtime_ceiling_ns && vtime_ceiling_ns < lead_ns ? vtime_ceiling_ns : lead_ns;
	__u64 vtime = task->scx.dsq_vtime;

	if (domain && !has_groups() && vtime - (READ_ONCE(domain->clock) - most_lag_ns) <= most_lag_ns + most_lead_ns)
		return vtime;
	return bound_vtime(task, most_lag_ns);
}

/* Charges the running task for its CPU time since the last charge. */
static __always_inline void charge(struct task_struct *task, struct cpu *cpu, struct worker *worker, __u64 now)
{
	__u64 ran_ns, vtime;

	if (!cpu->since_ns)
		return;
	ran_ns = task->se.sum_exec_runtime - cpu->exec_ns;
	cpu->exec_ns += ran_ns;
	cpu->since_ns = now;
	if (has_limits() && cpu->group != ROOT_GROUP)
		pay_for(task, cpu, now);
	vtime = by_weight(ran_ns, cpu->weight);
	if (worker)
		vtime *= charge_worker(task, worker, ran_ns, now);
	vtime += task->scx.dsq_vtime;
	set_vtime(task, vtime);
	cpu->vtime = vtime;
}

/*
 * The least vtime in a DSQ of the tasks that may run on a CPU, or NO_VTIME. By the vtime of another one, which is not to be had here,
 * the running task would go last among those that are. Of the first HEADS_READ tasks, if none may run here, the last one counts.
 *
 * Before Linux 6.19 reading it takes the lock of the DSQ, so that an empty DSQ is skipped.
 */
static __noinline __u64 head_of(__u64 dsq, __s32 index)
{
	struct bpf_iter_scx_dsq iterator;
	struct task_struct *task;
	__u64 vtime = NO_VTIME;
	__u32 seen;

	if (bpf_ksym_exists(scx_bpf_dsq_peek)) {
		task = scx_bpf_dsq_peek(dsq);
		if (!task || bpf_cpumask_test_cpu(index, task->cpus_ptr))
			return task ? task->scx.dsq_vtime : NO_VTIME;
	} else if (scx_bpf_dsq_nr_queued(dsq) <= 0) {
		return NO_VTIME;
	}
	count(COUNTER_locks_to_peek);
	if (!bpf_iter_scx_dsq_new(&iterator, dsq, 0)) {
		bpf_for(seen, 0, HEADS_READ) {
			task = bpf_iter_scx_dsq_next(&iterator);
			vtime = task ? task->scx.dsq_vtime : NO_VTIME;
			if (!task || bpf_cpumask_test_cpu(index, task->cpus_ptr))
				break;
		}
	}
	bpf_iter_scx_dsq_destroy(&iterator);
	return vtime;
}

/* The lesser vtime of two. Either may be NO_VTIME. */
static __always_inline __u64 lesser(__u64 a, __u64 b)
{
	return b != NO_VTIME && (a == NO_VTIME || before(b, a)) ? b : a;
}

/* The least vtime in the DSQs that concern a CPU, or NO_VTIME: for timers, which hold no run queue. */
__u64 least_waiting(__s32 index)
{
	struct cpu *cpu = cpu_at(index);
	__u32 domain = domain_of(index);
	__u64 waits;

	bpf_rcu_read_lock();
	waits = head_of(MAIN_DSQ(domain), index);
	if (tiers_on)
		waits = lesser(waits, head_of(FRONT_DSQ(domain), index));
	if (cpu && cpu->pinned)
		waits = lesser(waits, head_of(PINNED_DSQ(index), index));
	bpf_rcu_read_unlock();
	return waits;
}

/*
 * Whether a task may go before those that compute: it is known to sleep, and has had no more than its fair share. By the tier
 * alone, a task that sleeps now and then would get all of the CPU. The tolerance is half a slice, since a task that has just run
 * is a little after the clock.
 */
static __always_inline bool is_eligible(__u32 tier, __u64 vtime, const struct domain *domain)
{
	return tiers_on && tier != TIER_BATCH && before(vtime, READ_ONCE(domain->clock) + slice_ns / 2);
}

/* Puts a runnable task into a DSQ. Returns whether that is the front DSQ. */
static __always_inline bool put(struct task_struct *task, __s32 index, struct worker *worker, struct behaviour *behaviour,
				const struct claim *claim, __u64 flags)
{
	__u64 slice = slice_for(behaviour, claim->tier), now = claim->now;
	__u32 domain_index = domain_of(index);
	struct domain *domain = domain_at(domain_index);
	__u64 vtime;

	if (worker)
		forgive(task, worker);
	vtime = bounded_vtime(task, domain, flags & ENQ_WAKEUP ? sleeper_ns : lag_ns);
	/*
	 * A pinned worker stays here even if it is demoted or throttled: it is charged for that, and its competitors cannot
	 * migrate either.
	 */
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
	if (is_eligible(claim->tier, vtime, domain)) {
		if (sync_ahead_ns && claim->waker && behaviour) {
			behaviour->ahead_ns += sync_ahead_ns;
			vtime -= sync_ahead_ns;
			count(COUNTER_put_ahead);
		}
		if (overflow_rescue_on)
			note_arrival(FRONT_DSQ(domain_index), &domain->front_served_ns, now);
		insert_by_vtime(task, FRONT_DSQ(domain_index), slice, vtime, flags);
		count(claim->tier == TIER_LAT_CRITICAL ? COUNTER_to_lat_critical : COUNTER_to_interactive);
		return true;
	}
	if (tiers_on)
		note_arrival(MAIN_DSQ(domain_index), &domain->main_served_ns, now);
	insert_by_vtime(task, MAIN_DSQ(domain_index), slice, vtime, flags);
	count(COUNTER_to_main);
	return false;
}

/* Moves the first task of a DSQ with tasks that may run here to the local DSQ. Returns whether there was one. */
static __always_inline bool take_known(__u64 dsq, enum counter counter)
{
	count(COUNTER_locks_to_take);
	if (!move_to_local(dsq))
		return false;
	count(counter);
	return true;
}

/* The same for a DSQ that may be empty. */
static __always_inline bool take(__u64 dsq, enum counter counter)
{
	/* An empty DSQ is not locked. */
	return scx_bpf_dsq_nr_queued(dsq) > 0 && take_known(dsq, counter);
}

/* The order here is by the time at which a task may run again. So such a task does not advance the clock. */
static __always_inline bool take_throttled(__u32 domain, struct cpu *cpu)
{
	bool taken = take(THROTTLED_DSQ(domain), COUNTER_from_throttled);

	cpu->out_of_order |= taken;
	return taken;
}

/* Both are done with the run queue of the CPU locked, so that the mark is exact. */
static __always_inline bool take_pinned(struct cpu *cpu, __s32 index)
{
	bool taken = take(PINNED_DSQ(index), COUNTER_from_pinned);

	cpu->picked |= taken;
	if (!scx_bpf_dsq_nr_queued(PINNED_DSQ(index)))
		cpu->pinned = 0;
	return taken;
}

/* Reads the least vtime of each DSQ that concerns a CPU. Fills in all of `heads`. */
int read_heads(struct heads *heads, __u32 domain_index, __s32 index, __u64 now)
{
	struct domain *domain = domain_at(domain_index);
	struct cpu *cpu = cpu_at(index);

	if (!heads || !domain || !cpu)
		return 0;
	heads->front = tiers_on ? head_of(FRONT_DSQ(domain_index), index) : NO_VTIME;
	heads->main = head_of(MAIN_DSQ(domain_index), index);
	heads->demoted = heads->pinned = NO_VTIME;
	heads->due = heads->throttled = false;
	if (before(now, domain->demoted_until_ns)) {
		heads->demoted = head_of(DEMOTED_DSQ(domain_index), index);
		if (heads->demoted != NO_VTIME)
			WRITE_ONCE(domain->demoted_until_ns, now + USED_FOR_NS);
	}
	if (before(now, domain->throttled_until_ns)) {
		__u64 time = head_of(THROTTLED_DSQ(domain_index), index);

		if (time != NO_VTIME) {
			WRITE_ONCE(domain->throttled_until_ns, now + USED_FOR_NS);
			heads->throttled = true;
			heads->due = !before(now, time);
		}
	}
	if (cpu->pinned) {
		heads->pinned = head_of(PINNED_DSQ(index), index);
		if (heads->pinned == NO_VTIME)
			cpu->pinned = 0;
	}
	heads->least = lesser(lesser(heads->front, heads->main), lesser(heads->demoted, heads->pinned));
	return 0;
}

/* Takes from the main DSQ, which has tasks, and restarts its time without service. */
static __always_inline bool take_main(__u32 index, struct domain *domain, struct cpu *cpu, enum counter counter, __u64 now)
{
	if (!take_known(MAIN_DSQ(index), counter))
		return false;
	cpu->picked = 1;
	if (deficit_on)
		domain->before_main = 0;
	if (tiers_on)
		WRITE_ONCE(domain->main_served_ns, now);
	return true;
}

/* Takes from the front DSQ, which has tasks. Each while tasks wait in the main DSQ counts toward the deficit. */
static __always_inline bool take_front(__u32 index, struct domain *domain, struct cpu *cpu, __u64 now)
{
	if (!take_known(FRONT_DSQ(index), COUNTER_from_front))
		return false;
	cpu->picked = 1;
	if (deficit_on)
		domain->before_main = scx_bpf_dsq_nr_queued(MAIN_DSQ(index)) > 0 ? domain->before_main + 1 : 0;
	if (overflow_rescue_on)
		WRITE_ONCE(domain->front_served_ns, now);
	return true;
}

/* Takes from the front DSQ, which has tasks, or from the main DSQ if that has waited for too long. */
static __always_inline bool take_by_tier(__u32 index, struct domain *domain, struct cpu *cpu, __u64 now)
{
	bool is_bounded = deficit_on || starvation_rescue_on || sojourn_rescue_on;
	enum counter why = is_bounded ? main_goes_first(domain, index, now) : COUNTERS;

	if (why != COUNTERS && take_main(index, domain, cpu, why, now))
		return true;
	return take_front(index, domain, cpu, now);
}

/* Whether all tasks that wait for a CPU are in the front and main DSQs. The clock is read where workers were demoted before. */
static __always_inline bool waits_by_tier(const struct cpu *cpu, const struct domain *domain)
{
	__u64 demoted_ns = READ_ONCE(domain->demoted_until_ns), throttled_ns = READ_ONCE(domain->throttled_until_ns), now;

	if (cpu->pinned)
		return false;
	if (!(demoted_ns | throttled_ns))
		return true;
	now = scx_now();
	return !before(now, demoted_ns) && !before(now, throttled_ns);
}

/* Takes from the front and main DSQs, without reading vtimes. Reads the clock if there is a task to take. */
static __always_inline bool take_waiting(__u32 index, struct domain *domain, struct cpu *cpu)
{
	if (tiers_on && scx_bpf_dsq_nr_queued(FRONT_DSQ(index)) > 0 && take_by_tier(index, domain, cpu, scx_now()))
		return true;
	return scx_bpf_dsq_nr_queued(MAIN_DSQ(index)) > 0 && take_main(index, domain, cpu, COUNTER_from_main, scx_now());
}

/* Takes the first task, in the order above, that may run here. */
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

		if ((overdue & FRONT_IS_OVERDUE && take_front(domain_index, domain, cpu, now)) ||
		    (overdue & MAIN_IS_OVERDUE && take_main(domain_index, domain, cpu, COUNTER_from_main, now))) {
			count(COUNTER_from_overflow_rescue);
			return true;
		}
	}
	if (!front && heads->demoted != NO_VTIME && heads->demoted == heads->least &&
	    take(DEMOTED_DSQ(domain_index), COUNTER_from_demoted))
		return true;
	if (heads->pinned != NO_VTIME && heads->pinned == heads->least &&
	    !(deficit_on && main && is_deficit_reached(domain)) && take_pinned(cpu, index)) {
		if (deficit_on && main)
			domain->before_main++;
		return true;
	}
	if (front && take_by_tier(domain_index, domain, cpu, now))
		return true;
	/* A task may have come to the main DSQ meanwhile. */
	if ((main || scx_bpf_dsq_nr_queued(MAIN_DSQ(domain_index)) > 0) &&
	    take_main(domain_index, domain, cpu, COUNTER_from_main, now))
		return true;
	if (heads->pinned != NO_VTIME && take_pinned(cpu, index))
		return true;
	return heads->demoted != NO_VTIME && take(DEMOTED_DSQ(domain_index), COUNTER_from_demoted);
}

/* Takes from other domains, one after the other, for a CPU whose own domain has no waiting task. */
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
