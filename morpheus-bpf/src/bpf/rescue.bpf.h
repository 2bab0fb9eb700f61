/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Against stalls: whoever has waited for too long, whatever its vtime says, goes first.
 *
 * The kernel throws a scheduler out when a task has waited for the timeout (5 s). A demoted task of low weight among
 * many would. While something waits, a timer looks through the queues ten times in a second and brings those forward
 * that have waited for `rescue_ns`: at most a few each time, since where everybody waits so long the machine is full,
 * and the order of vtime is to be kept. Somebody of nice 19, whose share among twenty others is a turn in three seconds,
 * so has more than one a second.
 */
#ifndef MORPHEUS_RESCUE_BPF_H
#define MORPHEUS_RESCUE_BPF_H

#include "queue.bpf.h"
#include "hotplug.bpf.h"

const volatile __u64 rescue_ns = 500000000;
const volatile bool rescue_on = true;

#define RESCUE_PERIOD_NS 100000000ULL
/* So many tasks of a queue are looked at, */
#define RESCUE_LOOKS 4096
/* and so many are brought forward. */
#define RESCUES 4

/*
 * Since when a task waits, the kernel tells in jiffies, and how many of those make a second is not told to programs: it is
 * measured since the start, once that was a second ago.
 */
__u64 jiffies_in_second = 250;
__u64 started_jiffies;
__u64 started_ns;

/* Armed while something waits. */
__u32 rescue_armed;

struct rescue_timer {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct rescue_timer);
} rescue_timers SEC(".maps");

/* Whether a task has waited for so long. */
static __always_inline bool has_waited(const struct task_struct *task, __u64 ns)
{
	return (bpf_jiffies64() - task->scx.runnable_at) * 1000000000 >= ns * jiffies_in_second;
}

static __always_inline void measure_jiffies(__u64 now)
{
	__u64 passed_ns = now - started_ns;

	if (passed_ns >= 1000000000)
		jiffies_in_second = (bpf_jiffies64() - started_jiffies) * 1000000 / (passed_ns / 1000);
}

/* Brings those who have waited too long from one queue to another. Returns how many. */
static __noinline int bring_forward(__u64 from, __u64 to)
{
	struct bpf_iter_scx_dsq iterator;
	int brought = 0;
	__u32 seen;

	if (!bpf_iter_scx_dsq_new(&iterator, from, 0)) {
		bpf_for(seen, 0, RESCUE_LOOKS) {
			struct task_struct *task = bpf_iter_scx_dsq_next(&iterator);

			if (!task || brought >= RESCUES)
				break;
			if (!has_waited(task, rescue_ns))
				continue;
			if (scx_bpf_dsq_move(&iterator, task, to, 0)) {
				brought++;
				count(COUNTER_rescues);
			}
		}
	}
	bpf_iter_scx_dsq_destroy(&iterator);
	return brought;
}

static int rescue(void *map, __u32 *key, struct rescue_timer *timer)
{
	__u32 index, waiting = 0;
	__u64 now = scx_now();

	measure_jiffies(now);
	bpf_rcu_read_lock();
	bpf_for(index, 0, domain_count) {
		struct domain *domain = domain_at(index);
		int brought = 0;

		if (!domain)
			continue;
		if (READ_ONCE(domain->gone) && hand_over_domain(index))
			waiting = 1;
		if (scx_bpf_dsq_nr_queued(MAIN_QUEUE(index)) > 0) {
			waiting = 1;
			brought += bring_forward(MAIN_QUEUE(index), RESCUE_QUEUE(index));
		}
		if (tiers_on && scx_bpf_dsq_nr_queued(FRONT_QUEUE(index)) > 0) {
			waiting = 1;
			brought += bring_forward(FRONT_QUEUE(index), RESCUE_QUEUE(index));
		}
		if (scx_bpf_dsq_nr_queued(DEMOTED_QUEUE(index)) > 0) {
			waiting = 1;
			brought += bring_forward(DEMOTED_QUEUE(index), RESCUE_QUEUE(index));
		}
		if (scx_bpf_dsq_nr_queued(THROTTLED_QUEUE(index)) > 0) {
			waiting = 1;
			/* Its CPUs forget this queue when none of them has chosen for a while. */
			WRITE_ONCE(domain->throttled_until_ns, now + USED_FOR_NS);
			brought += bring_forward(THROTTLED_QUEUE(index), RESCUE_QUEUE(index));
		}
		if (brought || scx_bpf_dsq_nr_queued(RESCUE_QUEUE(index)) > 0) {
			waiting = 1;
			WRITE_ONCE(domain->rescue, 1);
		}
	}
	bpf_for(index, 0, cpu_count) {
		struct cpu *cpu = cpu_at(index);

		if (!cpu || !cpu->pinned)
			continue;
		waiting = 1;
		bring_forward(PINNED_QUEUE(index), DSQ_LOCAL_ON | index);
	}
	bpf_rcu_read_unlock();
	if (waiting)
		rescue_armed = !bpf_timer_start(&timer->timer, RESCUE_PERIOD_NS, 0);
	else
		rescue_armed = 0;
	return 0;
}

static __always_inline int init_rescue(void)
{
	__u32 key = 0;
	struct rescue_timer *timer = bpf_map_lookup_elem(&rescue_timers, &key);

	if (!timer)
		return -ESRCH;
	started_jiffies = bpf_jiffies64();
	started_ns = scx_now();
	if (bpf_timer_init(&timer->timer, &rescue_timers, CLOCK_MONOTONIC))
		return -ENOMEM;
	return bpf_timer_set_callback(&timer->timer, rescue);
}

/* Something waits. Whether it is armed is looked at without a lock: who is missed arms it with the next wait. */
static __always_inline void watch_over_queues(void)
{
	__u32 key = 0;
	struct rescue_timer *timer;

	if (!rescue_on || rescue_armed)
		return;
	timer = bpf_map_lookup_elem(&rescue_timers, &key);
	if (!timer)
		return;
	rescue_armed = 1;
	if (bpf_timer_start(&timer->timer, RESCUE_PERIOD_NS, 0))
		rescue_armed = 0;
}

/*
 * Who was brought forward, and put back by a class above before it ran, does not wait for the timer once more, and then
 * perhaps again: it stays in front. Returns whether it does.
 */
static __always_inline bool rescue_again(struct task_struct *task, __u64 slice, __u64 flags)
{
	__u32 index = domain_of(scx_bpf_task_cpu(task));
	struct domain *domain = domain_at(index);

	if (!rescue_on || !domain || is_pinned(task) || !has_waited(task, rescue_ns))
		return false;
	insert_fifo(task, RESCUE_QUEUE(index), slice, flags);
	WRITE_ONCE(domain->rescue, 1);
	watch_over_queues();
	count(COUNTER_rescued_again);
	return true;
}

/* Takes somebody who was brought forward. */
static __always_inline bool take_rescued(__u32 index, struct domain *domain, struct cpu *cpu)
{
	if (!READ_ONCE(domain->rescue))
		return false;
	/* First, so that who is brought forward meanwhile is not overlooked. */
	WRITE_ONCE(domain->rescue, 0);
	if (move_to_local(RESCUE_QUEUE(index))) {
		WRITE_ONCE(domain->rescue, 1);
		cpu->out_of_turn = 1;
		return true;
	}
	/* Whoever is there may not run here. */
	if (scx_bpf_dsq_nr_queued(RESCUE_QUEUE(index)) > 0)
		WRITE_ONCE(domain->rescue, 1);
	return false;
}

#endif /* MORPHEUS_RESCUE_BPF_H */
