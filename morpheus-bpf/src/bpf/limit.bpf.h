/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What groups may use of the CPU at most (cpu.max): who has to wait, and until when.
 *
 * A task of a group that has used up its quota (quota.bpf.h) goes into a queue of that group, from which no CPU takes
 * anybody. The queue of throttled workers (queue.bpf.h) is another thing: a CPU that has nothing else to do takes from that
 * one, and it is in order of a time that is known beforehand. Here a limit may be lifted or changed meanwhile. When the
 * group's period is over, a timer moves its tasks to where they would have waited else. It runs while somebody waits, and a
 * little longer.
 *
 * A task that runs gives its CPU up when the quota ends: at the next tick, and where less than that is left, by a timer of
 * its CPU. With n CPUs the group may so use up to n times what was left at the last tick too much, 4 ms each with 250 ticks
 * in a second, and on one CPU some 0.1 ms. It owes that to the next periods.
 *
 * Not limited are the kernel's threads, tasks that end, and those that may not migrate at present: others may wait for what
 * they hold. What they use is charged all the same.
 *
 * The kernel throws a scheduler out whose tasks wait for 5 s. So whoever has waited for a second gets a breath: a CPU for
 * 0.1 ms, which is charged, too; four seconds are left for all of those whose second ends at once. It is what keeps a group
 * from standing still whose threads use all of its quota for being told that there is none. A hundred threads that want to
 * run with 1 ms in a second so get 10 ms.
 */
#ifndef MORPHEUS_LIMIT_BPF_H
#define MORPHEUS_LIMIT_BPF_H

#include "quota.bpf.h"
#include "rescue.bpf.h"

/* Who waits for so long gets a breath. */
#define BREATH_AFTER_NS 1000000000ULL
/* Of the group with this index. */
#define LIMIT_QUEUE(index) (1ULL << 33 | (index))
/* With less than this left, a timer tells the end of the quota: longer than a tick. */
#define TIMED_NS 10000000LL
/* So long may one run that has waited for too long. */
#define BREATH_NS 100000LL
/* A group's timer goes on for so long after somebody had to wait. */
#define LIMITED_FOR_NS 2000000000ULL
/* While somebody waits, it is looked so often for those that have waited too long. */
#define LONGEST_LOOK_NS 250000000ULL
#define SHORTEST_LOOK_NS 100000ULL
/* So many tasks are looked at in one go. */
#define MOST_WAITING (1 << 16)

/* Of a group, told when a period is over. */
struct period_timer {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MOST_GROUPS);
	__type(key, __u32);
	__type(value, struct period_timer);
} period_timers SEC(".maps");

/* Of a CPU, told when the quota is used up by what runs there. */
struct quota_timer {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct quota_timer);
} quota_timers SEC(".maps");

/* Whether a task that runs can be made to wait. */
static __always_inline bool can_wait(const struct task_struct *task)
{
	return is_of_live_process(task) && may_move(task, 0);
}

/* The index of the group for whose quota a task has to wait, or ROOT_GROUP. */
__noinline __u32 waits_for(struct task_struct *task __arg_trusted, __u64 now)
{
	struct member *member;

	/* Whether it may go on elsewhere, who asks has looked at. */
	if (!limit_count || !is_of_live_process(task))
		return ROOT_GROUP;
	member = bpf_task_storage_get(&members, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!member)
		return ROOT_GROUP;
	find_group(task, member);
	return spent_group(member->index, now);
}

static __always_inline void start_period_timer(__u32 index, const struct group *group, __u64 now)
{
	struct period_timer *period_timer = bpf_map_lookup_elem(&period_timers, &index);
	__u64 rest_ns = READ_ONCE(group->began_ns) + READ_ONCE(group->period_ns) - now;

	if ((__s64)rest_ns < (__s64)SHORTEST_LOOK_NS)
		rest_ns = SHORTEST_LOOK_NS;
	/* Without a limit nobody waits any more. */
	if (rest_ns > LONGEST_LOOK_NS || !READ_ONCE(group->quota_ns))
		rest_ns = LONGEST_LOOK_NS;
	if (period_timer)
		bpf_timer_start(&period_timer->timer, rest_ns, 0);
}

/* Somebody comes to wait there. */
static __always_inline void watch_group(__u32 index, struct group *group, __u64 now)
{
	/* First, so that a timer that is about to stop sees it, or is seen to have stopped. */
	__sync_lock_test_and_set(&group->waited_ns, now);
	if (!__sync_lock_test_and_set(&group->armed, 1))
		start_period_timer(index, group, now);
}

/* Puts a task that wants a CPU into the queue of a group whose quota is used up. */
__noinline int wait_in(__u32 index, struct task_struct *task __arg_trusted, __u64 flags, __u64 now)
{
	struct cpu *cpu = cpu_at(bpf_get_smp_processor_id());
	struct group *group = group_at(index);
	struct worker *worker = worker_of(task);

	if (!group || !group->prepared)
		return false;
	if (worker)
		restore_vtime(task, worker);
	bounded_vtime(task, flags & ENQ_WAKEUP ? sleeper_ns : lag_ns);
	/* It does not want the CPU at the expense of others meanwhile. */
	note_sleep(task);
	/* Nor go on with its turn afterwards. */
	if (cpu && !(flags & ENQ_WAKEUP))
		cpu->rest_ns = 0;
	insert_fifo(task, LIMIT_QUEUE(index), slice_ns, flags);
	count(COUNTER_to_limited);
	watch_group(index, group, now);
	return true;
}

/* A task was moved to where CPUs take it from: one that is idle looks there, if it may run it; from this one on. */
__noinline int wake_idle(__u32 from, bool pinned)
{
	__u32 step;

	if (pinned) {
		scx_bpf_kick_cpu(from, KICK_IDLE);
		return 0;
	}
	bpf_for(step, 0, cpu_count) {
		__u32 index = from + step;

		if (index >= cpu_count)
			index -= cpu_count;
		if (scx_bpf_test_and_clear_cpu_idle(index)) {
			scx_bpf_kick_cpu(index, KICK_IDLE);
			break;
		}
	}
	return 0;
}

/* It stays where it is. */
#define STAYS (~0ULL)
/* Beside a queue's number: it is one in order of vtime. */
#define BY_VTIME (1ULL << 60)

/*
 * Where a task belongs that waits in the queue of this group: what is in order of vtime is for those that may go on, and for a
 * pinned one that has a breath.
 */
__noinline __u64 place_for(struct task_struct *task __arg_trusted, __u32 own, __u64 now)
{
	__s32 index = scx_bpf_task_cpu(task);
	__u32 domain_index = domain_of(index), spent = ROOT_GROUP;
	struct domain *domain = domain_at(domain_index);
	struct cpu *cpu = cpu_at(index);
	struct member *member = bpf_task_storage_get(&members, task, 0, 0);

	if (!domain || !cpu)
		return STAYS;
	if (member)
		spent = spent_group(member->index, now);
	if (spent == ROOT_GROUP) {
		count(COUNTER_from_limited);
		if (!is_pinned(task)) {
			note_arrival(MAIN_QUEUE(domain_index), &domain->main_served_ns, now);
			return MAIN_QUEUE(domain_index) | BY_VTIME;
		}
	} else if (has_waited(task, BREATH_AFTER_NS)) {
		count(COUNTER_breaths);
		if (!is_pinned(task)) {
			WRITE_ONCE(domain->rescue, 1);
			return RESCUE_QUEUE(domain_index);
		}
	} else {
		if (spent != own) {
			struct group *group = group_at(spent);

			if (group && group->prepared) {
				watch_group(spent, group, now);
				return LIMIT_QUEUE(spent);
			}
		}
		return STAYS;
	}
	/*
	 * A breath, too: Linux 7.2 charges who is put into the local queue of an idle CPU from outside for the time since that
	 * CPU fell asleep. If it waits on, it is rescued next.
	 */
	cpu->pinned = 1;
	return PINNED_QUEUE(index) | BY_VTIME;
}

/* Looks at those that wait in the queue of a group: its period is over, or its limit, or some have waited for long. */
static __noinline int look_at_waiting(__u32 own, __u64 now)
{
	struct bpf_iter_scx_dsq iterator;
	__u32 seen;

	if (!bpf_iter_scx_dsq_new(&iterator, LIMIT_QUEUE(own), 0)) {
		bpf_for(seen, 0, MOST_WAITING) {
			struct task_struct *task = bpf_iter_scx_dsq_next(&iterator);
			__u64 queue, vtime;

			if (!task)
				break;
			queue = place_for(task, own, now);
			if (queue == STAYS)
				continue;
			if (queue & BY_VTIME) {
				vtime = task->scx.dsq_vtime;
				/* As one that has slept: else it would be far behind the others. */
				if (before(vtime, vtime_now - sleeper_ns))
					vtime = vtime_now - sleeper_ns;
				scx_bpf_dsq_move_set_vtime(&iterator, vtime);
				scx_bpf_dsq_move_vtime(&iterator, task, queue & ~BY_VTIME, 0);
			} else {
				scx_bpf_dsq_move(&iterator, task, queue, 0);
			}
			wake_idle(scx_bpf_task_cpu(task), is_pinned(task));
		}
	}
	bpf_iter_scx_dsq_destroy(&iterator);
	return 0;
}

static int period_ended(void *map, __u32 *key, struct period_timer *period_timer)
{
	__u64 now = scx_now(), waited_ns;
	__u32 index = *key;
	struct group *group = group_at(index);

	if (!group)
		return 0;
	bpf_rcu_read_lock();
	if (scx_bpf_dsq_nr_queued(LIMIT_QUEUE(index)) > 0)
		look_at_waiting(index, now);
	bpf_rcu_read_unlock();
	waited_ns = READ_ONCE(group->waited_ns);
	if (scx_bpf_dsq_nr_queued(LIMIT_QUEUE(index)) <= 0 && before(waited_ns + LIMITED_FOR_NS, now)) {
		__sync_lock_test_and_set(&group->armed, 0);
		/* Unless somebody came meanwhile who took it for armed. */
		if (READ_ONCE(group->waited_ns) == waited_ns || __sync_lock_test_and_set(&group->armed, 1))
			return 0;
	}
	start_period_timer(index, group, now);
	return 0;
}

/* On a CPU a quota may have ended: it looks when it chooses. */
static int quota_ended(void *map, __u32 *index, struct quota_timer *quota_timer)
{
	struct cpu *cpu = cpu_at(*index);

	if (cpu && cpu->since_ns && cpu->group != ROOT_GROUP && !cpu->kicked)
		kick(*index, cpu, COUNTER_kicks_at_limit);
	return 0;
}

static __always_inline int start_quota_timer(__u32 index)
{
	struct quota_timer *quota_timer = bpf_map_lookup_elem(&quota_timers, &index);

	if (!quota_timer)
		return -ESRCH;
	if (bpf_timer_init(&quota_timer->timer, &quota_timers, CLOCK_MONOTONIC))
		return -ENOMEM;
	return bpf_timer_set_callback(&quota_timer->timer, quota_ended);
}

/* So much is left to what runs here: if it is little, a timer tells the end. */
static __always_inline void time_quota(__u32 index, __s64 left_ns)
{
	struct quota_timer *quota_timer;

	if (left_ns >= TIMED_NS)
		return;
	quota_timer = bpf_map_lookup_elem(&quota_timers, &index);
	if (quota_timer)
		bpf_timer_start(&quota_timer->timer, left_ns, 0);
}

/* A task of a group was switched in. */
__noinline int begin_limited(struct task_struct *task __arg_trusted, __u64 now)
{
	__s32 index = bpf_get_smp_processor_id();
	struct cpu *cpu = cpu_at(index);
	__s64 left_ns;

	if (!cpu || cpu->group == ROOT_GROUP || !can_wait(task))
		return 0;
	left_ns = pay_quota(cpu->group, 0, now);
	if (left_ns <= 0 && has_waited(task, BREATH_AFTER_NS))
		time_quota(index, BREATH_NS);
	else if (left_ns <= 0)
		/* It was in another queue when the quota ended. */
		kick(index, cpu, COUNTER_kicks_at_limit);
	else
		time_quota(index, left_ns);
	return 0;
}

/* A task of a group has run up to a tick. What it weighs may be another thing by now. */
__noinline int tick_in_group(struct task_struct *task __arg_trusted, __u64 now)
{
	__s32 index = bpf_get_smp_processor_id();
	struct cpu *cpu = cpu_at(index);
	__s64 left_ns;

	if (!cpu || !cpu->since_ns)
		return 0;
	cpu->group = join_group(task);
	cpu->weight = weight_of(task);
	if (!limit_count || cpu->group == ROOT_GROUP)
		return 0;
	left_ns = pay(task, cpu, now);
	if (!can_wait(task))
		return 0;
	if (left_ns > 0) {
		time_quota(index, left_ns);
	} else if (task->scx.slice) {
		set_slice(task, 0);
		count(COUNTER_ended_at_limit);
	}
	return 0;
}

/* Whether the task that ran here has to wait now. It was charged. */
static __always_inline bool is_spent(struct task_struct *task, const struct cpu *cpu, __u64 now)
{
	return limit_count && cpu->group != ROOT_GROUP && waits_for(task, now) != ROOT_GROUP;
}

/* What a group needs to have a limit: once for each index. */
static __always_inline int prepare_limit(__u32 index, struct group *group)
{
	struct period_timer *period_timer = bpf_map_lookup_elem(&period_timers, &index);
	int error;

	if (!period_timer || group->prepared)
		return 0;
	error = scx_bpf_create_dsq(LIMIT_QUEUE(index), -1);
	if (error)
		return error;
	if (bpf_timer_init(&period_timer->timer, &period_timers, CLOCK_MONOTONIC))
		return -ENOMEM;
	error = bpf_timer_set_callback(&period_timer->timer, period_ended);
	if (!error)
		group->prepared = 1;
	return error;
}

/* A limit was set or lifted, or the group goes: those that wait need not, perhaps. */
static __always_inline void limit_changed(__u32 index, struct group *group)
{
	if (group->prepared && scx_bpf_dsq_nr_queued(LIMIT_QUEUE(index)) > 0) {
		struct period_timer *period_timer = bpf_map_lookup_elem(&period_timers, &index);

		group->armed = 1;
		if (period_timer)
			bpf_timer_start(&period_timer->timer, 0, 0);
	}
}

#endif /* MORPHEUS_LIMIT_BPF_H */
