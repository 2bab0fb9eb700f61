// SPDX-License-Identifier: GPL-2.0-only
/*
 * Limits of the CPU time of groups (cpu.max): which tasks wait, and until when.
 *
 * A task of a group that has used up its quota (quota.bpf.h) goes to the end of a queue of that group, which no CPU serves. Of
 * several spent groups, nested, it is the one next to the root. A timer of the group releases tasks from the head of the queue
 * to where they would have waited else. It runs while tasks wait, and a little longer.
 *
 * At each look, at the begin of a period and then every CROWD_LOOK_NS while quota is left, the timer releases
 *
 *	without a crowd	all: up to MOST_RELEASED tasks, and no more than one for each USEFUL_NS that are left
 *	in a crowd	as many as the rest of the quota serves, a slice and a switch each, up to MOST_RELEASED of those that have
 *			not run since
 *
 * A crowd is what is more than that. In a crowd of N tasks a slice in the group is quota / period * CROWD_ROUND_NS / N, from
 * LEAST_CROWD_SLICE_NS to the usual one, so that each task has one in CROWD_ROUND_NS, and a task that stops or wakes goes to
 * the end of the queue, whatever is left. Else a few of them would keep the CPU, and the rest would not be released. Neither
 * vtime nor niceness count between the tasks of such a group then; between groups they do.
 *
 * A task that runs gives its CPU up when the quota or such a slice ends: at the next tick, and where that is soon, by a timer of
 * its CPU. With n CPUs the group may so use up to n times what was left at the last tick too much, 4 ms each with 250 ticks
 * in a second, and on one CPU some 0.1 ms. It owes that to the next periods.
 *
 * The kernel ejects a scheduler when a task has waited for 5 s since it was last switched in. A task that has waited for
 * BREATH_AFTER_NS is released without quota, to a rescue queue, and has to stop as soon as it is switched in (a breath); one of
 * BREATHS_FOR_A_SLICE has BREATH_SLICE_NS. Breaths are charged like anything else. The queue is in order of age, so that only
 * its head is asked. A task that has waited elsewhere for OLD_NS is not put at its end, but is switched in first. Of N tasks
 * N / BREATH_ROUND_NS get a breath, so that CPUs have no bursts of them, and HURRY times as many when the head has waited for
 * HURRY_AFTER_NS. So the longest wait is
 *
 *	OLD_NS + HURRY_AFTER_NS + LONGEST_LOOK_NS + BREATH_ROUND_NS / HURRY = 4.5 s
 *
 * beside what CPUs take to pick a rescued task, with up to 28,000 tasks. A group whose quota does not serve all of its tasks in
 * that time uses a switch for each in BREATH_ROUND_NS, and BREATH_SLICE_NS for one of BREATHS_FOR_A_SLICE, in place of its
 * quota if that is more: by breaths alone 0.8 us * N in a second for N tasks, beside the switches.
 *
 * A look moves MOST_RELEASED + 4 * CPUs + MOST_BREATHS tasks at most, and asks for an idle CPU until none is found.
 *
 * Not limited are the kernel's threads, tasks that end, those that may not migrate at present, and those in the midst of
 * reading what RCU protects: others may wait for what they hold. Their CPU time is charged all the same.
 */
#include "kernel/kernel.bpf.h"
#include <bpf/bpf_helpers.h>
#include "morpheus_abi.h"
#include "options/groups.bpf.h"
#include "options/rescue.bpf.h"

/* With less than this left, a timer tells the end of the quota: longer than a tick. */
#define TIMED_NS 10000000LL
/* A group's timer goes on for this time after a task had to wait. */
#define LIMITED_FOR_NS 2000000000ULL
/* The longest and the shortest time between two looks of the timer while tasks wait. */
#define LONGEST_LOOK_NS 100000000ULL
#define SHORTEST_LOOK_NS 1000000ULL
/* While quota is left that a crowd waits for, or tasks wait that are due for a breath. */
#define CROWD_LOOK_NS 4000000ULL
/* While a group above has used up its quota. */
#define ABOVE_LOOK_NS 20000000ULL
/* Up to this many are released at once, and 4 for each CPU. */
#define MOST_RELEASED 64
/* Each of them is to find this much quota, or most would run to be told that there is none. */
#define USEFUL_NS 100000
/* In this time each task of a crowd has a slice, */
#define CROWD_ROUND_NS 2000000000ULL
/* which is not shorter than this. */
#define LEAST_CROWD_SLICE_NS 20000ULL
/* The longest time that a switch to a task takes: an emulated machine's. */
#define SWITCH_NS 50000
/* From this time on tasks that wait get breaths, evenly: as many as wait in BREATH_ROUND_NS; */
#define BREATH_AFTER_NS 2500000000ULL
#define BREATH_ROUND_NS 3800000000ULL
/* from this time on HURRY times as many, */
#define HURRY_AFTER_NS 3700000000ULL
#define HURRY 8
/* and at most this number at a look. */
#define MOST_BREATHS 256
/* A look that is late makes up for this much. */
#define MOST_LATE_NS 20000000ULL
/* One breath of this number, a power of two, has a slice: a group whose breaths take all of its quota does not stand still. */
#define BREATHS_FOR_A_SLICE 32
#define BREATH_SLICE_NS 100000LL
/* A task that has waited for this time is not put at the end of a queue. */
#define OLD_NS 250000000ULL

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

/*
 * Whether a task has lost its CPU, or would, while it reads what RCU protects. The whole machine waits for its end: the kernel
 * complains after 21 s, and ejects the scheduler. A program like this one is a reader itself, in the name of the task that runs.
 */
static __always_inline bool reads_rcu(const struct task_struct *task)
{
	return bpf_core_field_exists(task->rcu_read_lock_nesting) &&
	       task->rcu_read_lock_nesting > (bpf_get_current_task_btf() == task ? 1 : 0);
}

/* Whether a task that runs can be made to wait. */
static __always_inline bool can_wait(const struct task_struct *task)
{
	return is_of_live_process(task) && may_move(task, 0) && !reads_rcu(task);
}

/* The index of the group for whose quota a task has to wait, or ROOT_GROUP. */
__u32 waits_for(struct task_struct *task __arg_trusted, __u64 now)
{
	struct member *member;

	/* Whether it may go on elsewhere, who asks has looked at. */
	if (!limit_count || !is_of_live_process(task) || reads_rcu(task))
		return ROOT_GROUP;
	member = bpf_task_storage_get(&members, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!member)
		return ROOT_GROUP;
	find_group(task, member);
	return spent_group(member->index, true, now);
}

/* Until a group's present period ends, within bounds. */
static __always_inline __u64 period_rest_ns(const struct group *group, __u64 now)
{
	__u64 rest_ns = READ_ONCE(group->began_ns) + READ_ONCE(group->period_ns) - now;

	if ((__s64)rest_ns < (__s64)SHORTEST_LOOK_NS)
		return SHORTEST_LOOK_NS;
	/* Without a limit no task waits any more. */
	return rest_ns > LONGEST_LOOK_NS || !READ_ONCE(group->quota_ns) ? LONGEST_LOOK_NS : rest_ns;
}

/* Where that fails, the next task that comes to wait tries it anew. */
static __always_inline void start_period_timer(__u32 index, struct group *group, __u64 rest_ns)
{
	struct period_timer *period_timer = bpf_map_lookup_elem(&period_timers, &index);

	if (!period_timer || bpf_timer_start(&period_timer->timer, rest_ns, 0))
		WRITE_ONCE(group->armed, 0);
}

/* A task comes to wait there. */
static __always_inline void watch_group(__u32 index, struct group *group, __u64 now)
{
	/* First, so that a timer that is about to stop sees it, or is seen to have stopped. */
	__sync_lock_test_and_set(&group->waited_ns, now);
	if (!__sync_lock_test_and_set(&group->armed, 1))
		start_period_timer(index, group, period_rest_ns(group, now));
}

/* Puts a task that wants a CPU into the queue of a group whose quota is used up. */
bool wait_in(__u32 index, struct task_struct *task __arg_trusted, __u64 flags, __u64 now)
{
	struct cpu *cpu = cpu_at(bpf_get_smp_processor_id());
	struct group *group = group_at(index);

	/* The queue is in order of age: an old task is not put at its end. */
	if (!group || !group->prepared || has_waited(task, OLD_NS))
		return false;
	bound_vtime(task, flags & ENQ_WAKEUP ? sleeper_ns : lag_ns);
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

/* It stays where it is. */
#define STAYS (~0ULL)
/* Beside a queue's number: it is one in order of vtime. */
#define BY_VTIME (1ULL << 60)
/* Beside a queue's number: the task gets a breath. */
#define BREATH (1ULL << 61)

/* The queue for a task that gets a breath. */
static __always_inline __u64 place_for_breath(struct task_struct *task)
{
	__s32 index = scx_bpf_task_cpu(task);

	count(COUNTER_breaths);
	if (!rescue_on)
		return BY_VTIME | (is_pinned(task) ? PINNED_DSQ(index) : MAIN_DSQ(domain_of(index)));
	return BREATH | (is_pinned(task) ? PINNED_RESCUE_DSQ(index) : RESCUE_DSQ(domain_of(index)));
}

/*
 * The queue to which a task goes that waits in the queue of group `own`, which has quota left or owes the task a breath. A
 * task whose inner group is spent, and which is old, goes on: it runs for a moment and waits there then.
 */
__u64 place_for(struct task_struct *task __arg_trusted, __u32 own, bool breath, __u64 now)
{
	__s32 index = scx_bpf_task_cpu(task);
	__u32 domain_index = domain_of(index), spent = ROOT_GROUP;
	struct domain *domain = domain_at(domain_index);
	struct member *member = bpf_task_storage_get(&members, task, 0, 0);
	struct group *group = group_at(own);

	if (!domain || !group)
		return STAYS;
	if (breath)
		return place_for_breath(task);
	if (member)
		spent = spent_group(member->index, false, now);
	if (spent != ROOT_GROUP) {
		struct group *other = group_at(spent);
		__u32 level = group->level;

		if (spent != own && other && other->prepared && !has_waited(task, OLD_NS)) {
			watch_group(spent, other, now);
			return LIMIT_QUEUE(spent);
		}
		if (spent == own || (other && other->level < level))
			return has_waited(task, BREATH_AFTER_NS) ? place_for_breath(task) : STAYS;
	}
	count(COUNTER_from_limited);
	if (member) {
		if (member->released != ROOT_GROUP)
			end_release(member);
		member->released = own;
		__sync_fetch_and_add(&group->released, 1);
	}
	if (!is_pinned(task)) {
		note_arrival(MAIN_DSQ(domain_index), &domain->main_served_ns, now);
		return MAIN_DSQ(domain_index) | BY_VTIME;
	}
	/*
	 * Not the local queue of an idle CPU: Linux 7.2 charges a task that is put there from outside for the time since that CPU
	 * fell asleep.
	 */
	return PINNED_DSQ(index) | BY_VTIME;
}

/* A task was moved to a rescue queue: CPUs look there at each pick. */
int announce_breath(struct task_struct *task __arg_trusted)
{
	__s32 index = scx_bpf_task_cpu(task);
	struct domain *domain = domain_at(domain_of(index));
	struct cpu *cpu = cpu_at(index);

	if (!domain || !cpu)
		return 0;
	if (is_pinned(task)) {
		WRITE_ONCE(cpu->urgent, 1);
		WRITE_ONCE(cpu->rescue, 1);
	} else {
		/* Until the timer of rescue.bpf.c looks. */
		WRITE_ONCE(domain->urgent, 1);
		WRITE_ONCE(domain->rescue, 1);
	}
	if (rescue_on && !rescue_armed)
		watch_over_queues();
	return 0;
}

/*
 * Tells a CPU that a task was moved to its pinned DSQ. Not before the move: it may look meanwhile, and take the mark back. The move
 * takes the lock of its run queue, under which it looks.
 */
static __always_inline void mark_pinned(const struct task_struct *task)
{
	struct cpu *cpu = cpu_at(scx_bpf_task_cpu(task));

	if (cpu)
		WRITE_ONCE(cpu->pinned, 1);
}

/*
 * Releases tasks from the head of a group's queue: `by_quota` of them, after those up to `breaths` that are due for a breath,
 * and HURRY times as many that are overdue.
 */
static __noinline int release(__u32 own, __u32 by_quota, __u32 breaths, __u64 now)
{
	struct bpf_iter_scx_dsq iterator;
	bool idle = true;
	__u32 seen;

	if (!bpf_iter_scx_dsq_new(&iterator, LIMIT_QUEUE(own), 0)) {
		bpf_for(seen, 0, by_quota + (breaths + 1) * HURRY) {
			struct task_struct *task = bpf_iter_scx_dsq_next(&iterator);
			bool breath = seen >= by_quota, moved;
			__u64 queue, vtime, least;

			if (!task)
				break;
			if (breath && !has_waited(task, seen < by_quota + breaths ? BREATH_AFTER_NS : HURRY_AFTER_NS))
				break;
			queue = place_for(task, own, breath, now);
			if (queue == STAYS)
				continue;
			if (queue & BY_VTIME) {
				vtime = task->scx.dsq_vtime;
				/* As one that has slept: else it would be far behind the others. */
				least = clock_of(task) - sleeper_ns;
				if (before(vtime, least))
					vtime = least;
				scx_bpf_dsq_move_set_vtime(&iterator, vtime);
				moved = scx_bpf_dsq_move_vtime(&iterator, task, queue & ~BY_VTIME, 0);
			} else {
				moved = scx_bpf_dsq_move(&iterator, task, queue & ~BREATH, 0);
			}
			if (!moved)
				continue;
			if (queue & BREATH)
				announce_breath(task);
			else if (is_pinned(task))
				mark_pinned(task);
			/* A task that may run on some of the CPUs only says nothing of the others. */
			if (idle || task->nr_cpus_allowed < cpu_count)
				idle &= kick_idle(task) || task->nr_cpus_allowed < cpu_count;
		}
	}
	bpf_iter_scx_dsq_destroy(&iterator);
	return 0;
}

/* How long a task of a group may run, by the number of its tasks that wait. */
static __always_inline __u64 crowd_slice(const struct group *group, __u32 waiting)
{
	__u64 quota_ns = READ_ONCE(group->quota_ns), period_ns = READ_ONCE(group->period_ns), slice;

	/* A quota for 1024 CPUs or more is no bound, and its product would be none either. */
	if (!period_ns || !waiting || quota_ns / period_ns >= 1024)
		return slice_ns;
	slice = CROWD_ROUND_NS / waiting * (quota_ns >> 10) / (period_ns >> 10);
	if (slice < LEAST_CROWD_SLICE_NS)
		return LEAST_CROWD_SLICE_NS;
	return slice < slice_ns ? slice : slice_ns;
}

/* How many of the tasks that wait in a group's queue its quota serves now. Finds out whether they are a crowd. */
static __always_inline __u32 served_by_quota(__u32 own, struct group *group, __u32 waiting, __u64 now)
{
	__u32 most = MOST_RELEASED + 4 * cpu_count;
	__s32 released = READ_ONCE(group->released);
	__u64 serves = most, slice;
	__s64 left_ns;

	if (!READ_ONCE(group->quota_ns)) {
		WRITE_ONCE(group->crowd_slice_ns, 0);
		return most;
	}
	refill(own, now);
	left_ns = READ_ONCE(group->left_ns);
	if (left_ns <= 0)
		return 0;
	serves = (__u64)left_ns / USEFUL_NS + 1;
	if (serves > most)
		serves = most;
	if (waiting <= serves) {
		WRITE_ONCE(group->crowd_slice_ns, 0);
		return serves;
	}
	slice = crowd_slice(group, waiting);
	WRITE_ONCE(group->crowd_slice_ns, slice);
	serves = (__u64)left_ns / (slice + SWITCH_NS) + 1;
	if (serves > most)
		serves = most;
	return released < 0 ? serves : serves > (__u32)released ? serves - released : 0;
}

/* How many of the tasks that wait are to get a breath now. */
static __always_inline __u32 breaths_due(struct group *group, __u32 waiting, __u64 now)
{
	__u64 breaths;

	if (before(group->looked_ns + MOST_LATE_NS, now))
		group->looked_ns = now - MOST_LATE_NS;
	breaths = waiting * (now - group->looked_ns) / BREATH_ROUND_NS;
	/* A rest that is not enough for one counts at the next look. */
	group->looked_ns += breaths * BREATH_ROUND_NS / waiting;
	return breaths < MOST_BREATHS / HURRY ? breaths : MOST_BREATHS / HURRY - 1;
}

/* Looks at the queue of a group. Returns when to look again. */
static __always_inline __u64 look_at_queue(__u32 own, __u64 now)
{
	struct group *group = group_at(own);
	__s32 waiting = scx_bpf_dsq_nr_queued(LIMIT_QUEUE(own));

	if (!group)
		return LONGEST_LOOK_NS;
	if (waiting > 0) {
		release(own, served_by_quota(own, group, waiting, now), breaths_due(group, waiting, now), now);
		waiting = scx_bpf_dsq_nr_queued(LIMIT_QUEUE(own));
	}
	if (waiting <= 0) {
		WRITE_ONCE(group->crowd_slice_ns, 0);
		return period_rest_ns(group, now);
	}
	if (pay_quota(own, 0, now) > 0 || head_has_waited(LIMIT_QUEUE(own), BREATH_AFTER_NS))
		return CROWD_LOOK_NS;
	if (READ_ONCE(group->left_ns) > 0)
		return ABOVE_LOOK_NS;
	return period_rest_ns(group, now);
}

/* The same, with what it needs. Not static, as others here: the verifier then looks at it once (count). */
__u64 look_at_waiting(__u32 own, __u64 now)
{
	return UNDER_RCU(look_at_queue(own, now));
}

static int period_ended(void *map, __u32 *key, struct period_timer *period_timer)
{
	__u64 now = scx_now(), waited_ns, rest_ns;
	__u32 index = *key;
	struct group *group = group_at(index);

	if (!group)
		return 0;
	rest_ns = look_at_waiting(index, now);
	waited_ns = READ_ONCE(group->waited_ns);
	if (scx_bpf_dsq_nr_queued(LIMIT_QUEUE(index)) <= 0 && before(waited_ns + LIMITED_FOR_NS, now)) {
		__sync_lock_test_and_set(&group->armed, 0);
		/* Unless a task came meanwhile and took it for armed. */
		if (READ_ONCE(group->waited_ns) == waited_ns || __sync_lock_test_and_set(&group->armed, 1))
			return 0;
	}
	start_period_timer(index, group, rest_ns);
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

int start_quota_timer(__u32 index)
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
int begin_limited(struct task_struct *task __arg_trusted, __u64 now)
{
	__s32 index = scx_bpf_task_cpu(task);
	struct cpu *cpu = cpu_at(index);
	__s64 left_ns;

	if (!cpu || cpu->group == ROOT_GROUP || !is_of_live_process(task) || !may_move(task, 0))
		return 0;
	left_ns = pay_quota(cpu->group, 0, now);
	if (left_ns > 0)
		time_quota(index, left_ns);
	else if (reads_rcu(task) ||
		 (has_waited(task, BREATH_AFTER_NS) && !(bpf_get_prandom_u32() & (BREATHS_FOR_A_SLICE - 1))))
		time_quota(index, BREATH_SLICE_NS);
	else
		/* A breath, or it was in another queue when the quota ended. */
		kick(index, cpu, COUNTER_kicks_at_limit);
	return 0;
}

/* A task of a group has run up to a tick. Its weight may be another by now. */
int tick_in_group(struct task_struct *task __arg_trusted, __u64 now)
{
	__s32 index = bpf_get_smp_processor_id();
	struct cpu *cpu = cpu_at(index);
	__s64 left_ns;

	settle_groups();
	if (!cpu || !cpu->since_ns)
		return 0;
	cpu->group = join_group(task, false);
	cpu->weight = weight_of(task);
	if (!limit_count || cpu->group == ROOT_GROUP) {
		/* A limit that is set later is not about this. */
		cpu->paid_ns = task->se.sum_exec_runtime;
		return 0;
	}
	left_ns = pay_for(task, cpu, now);
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

/* Prepares an index for a group with a limit, once for each. It goes on where it failed before. */
int prepare_limit(__u32 index)
{
	struct period_timer *period_timer = bpf_map_lookup_elem(&period_timers, &index);
	struct group *group = group_at(index);
	int error;

	if (!period_timer || !group || group->prepared)
		return 0;
	error = scx_bpf_create_dsq(LIMIT_QUEUE(index), -1);
	if (error && error != -EEXIST)
		return error;
	error = bpf_timer_init(&period_timer->timer, &period_timers, CLOCK_MONOTONIC);
	if (error && error != -EBUSY)
		return -ENOMEM;
	error = bpf_timer_set_callback(&period_timer->timer, period_ended);
	if (!error)
		group->prepared = 1;
	return error;
}

/* A limit was set or lifted, or the group goes: those that wait need not, perhaps. */
int limit_changed(__u32 index)
{
	struct group *group = group_at(index);

	if (group && group->prepared && scx_bpf_dsq_nr_queued(LIMIT_QUEUE(index)) > 0) {
		group->armed = 1;
		start_period_timer(index, group, 0);
	}
	return 0;
}
