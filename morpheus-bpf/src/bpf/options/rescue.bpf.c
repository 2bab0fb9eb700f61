// SPDX-License-Identifier: GPL-2.0-only
/*
 * Against stalls: a task that has waited for too long goes first, whatever its vtime says.
 *
 * The kernel ejects a scheduler when a task has waited for the timeout (5 s). Tasks of low weight among many would, and so
 * would a demoted one. While a task waits, a timer looks through the queues ten times in a second and moves tasks to a
 * rescue queue, of their node or, if they are pinned, of their CPU. Rescue queues are in order of arrival.
 *
 *	from `rescue_ns` on	up to RESCUES of each queue at each look. Where all tasks wait for that time, the machine is full, and
 *				the order of vtime is to be kept; a task of nice 19 among twenty others, whose share is a turn
 *				in three seconds, so has more than one a second
 *	from AGED_NS on		all
 *	from URGENT_NS on	all, and no CPU picks another task before them
 *
 * Each CPU takes every second pick from the rescue queues, so that a task which wakes waits for one turn of a rescued task and
 * not for all of them. While any task has aged, a rescued task's turn is the shortest, so that weights hold for the rest. With
 * N tasks for each CPU, whose turns are R = LEAST_SLICE_NS when rescued and T = max(ROUND_NS / N, LEAST_SLICE_NS) otherwise
 * (crowd.bpf.h), the longest wait is
 *
 *	AGED_NS + RESCUE_PERIOD_NS + N * (R + T)
 *
 * and so at most 2.3 s for up to 1,000 tasks for each CPU, beside what switching takes. Beyond that every pick is a rescue after
 * URGENT_NS. A rescued task pays for its turn by vtime as for any other.
 */
#include "kernel/kernel.bpf.h"
#include <bpf/bpf_helpers.h>
#include "morpheus_abi.h"
#include "options/crowd.bpf.h"
#include "options/rescue.bpf.h"

/* A task that has waited for this time may go first. */
const volatile __u64 rescue_ns = 500000000;

#define RESCUE_PERIOD_NS 100000000ULL
/* Up to this many tasks of a queue are looked at, */
#define RESCUE_SCANNED 16384
/* and this many are brought forward that have not aged. */
#define RESCUES 4
#define AGED_NS 1200000000ULL
#define URGENT_NS 2500000000ULL
/* Rescued turns stay short for this time after a task had aged. */
#define CROWDED_FOR_NS 2000000000ULL

__u64 started_jiffies;
__u64 started_ns;

struct rescue_timer {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct rescue_timer);
} rescue_timers SEC(".maps");

static __always_inline void measure_jiffies(__u64 now)
{
	__u64 passed_ns = now - started_ns;

	if (passed_ns >= 1000000000)
		jiffies_in_second = (bpf_jiffies64() - started_jiffies) * 1000000 / (passed_ns / 1000);
}

/* What one look at queues has found. */
struct found {
	/* The load of each CPU by the tasks that wait there. */
	__u64 load;
	/* CPUs that share it. */
	__u32 cpus;
	/* Whether tasks were brought forward, and whether some of them had aged. */
	__u32 brought;
	__u32 aged;
};

/*
 * Of the one timer, which is never run twice at a time. Not on its stack: the verifier of Linux 7.2 would take each sum that a
 * loop may come to for another state.
 */
static struct found found;

/*
 * Moves tasks that have waited for too long from one queue to another, and counts the load.
 *
 * Tasks that may run on some of the CPUs only are counted as if all of them were to share the same ones: so the load is not less
 * than that of any CPU.
 */
static __noinline int bring_forward(__u64 from, __u64 to)
{
	struct bpf_iter_scx_dsq iterator;
	__u32 seen, brought = 0;

	if (!bpf_iter_scx_dsq_new(&iterator, from, 0)) {
		bpf_for(seen, 0, RESCUE_SCANNED) {
			struct task_struct *task = bpf_iter_scx_dsq_next(&iterator);
			__u32 cpus;
			bool aged;

			if (!task)
				break;
			cpus = task->nr_cpus_allowed;
			if (!cpus || cpus > found.cpus)
				cpus = found.cpus;
			found.load += (1 << LOAD_SHIFT) / (cpus ? cpus : 1);
			if (!has_waited(task, rescue_ns))
				continue;
			aged = has_waited(task, AGED_NS);
			if (!aged && brought >= RESCUES)
				continue;
			if (!scx_bpf_dsq_move(&iterator, task, to, 0))
				continue;
			count(COUNTER_rescues);
			if (aged) {
				found.aged = 1;
				count(COUNTER_rescues_of_aged);
			}
			/* With this bound the verifier sees that the loop has few states. */
			if (brought < RESCUES)
				brought++;
			found.brought = 1;
		}
	}
	bpf_iter_scx_dsq_destroy(&iterator);
	return 0;
}

__hidden bool head_has_waited(__u64 dsq, __u64 ns)
{
	struct bpf_iter_scx_dsq iterator;
	bool waited = false;

	if (!bpf_iter_scx_dsq_new(&iterator, dsq, 0)) {
		struct task_struct *task = bpf_iter_scx_dsq_next(&iterator);

		waited = task && has_waited(task, ns);
	}
	bpf_iter_scx_dsq_destroy(&iterator);
	return waited;
}

extern const struct cpuhp_cpu_state cpuhp_state __ksym __weak;

/*
 * Whether a CPU that is online takes tasks. One that goes offline stops to ask for tasks before this scheduler is told of it:
 * in between, the kernel waits until RCU's readers are done, for up to seconds where CPUs are busy. Global, so that no loop has
 * what was read as a state.
 */
bool takes_tasks(__u32 index)
{
	const struct cpuhp_cpu_state *state;

	if (!bpf_ksym_exists(&cpuhp_state))
		return true;
	state = bpf_per_cpu_ptr(&cpuhp_state, index);
	return !state || state->target >= state->state;
}

/* Counts the CPUs of each domain that take tasks. */
static __always_inline void count_online(void)
{
	const struct cpumask *online = scx_bpf_get_online_cpumask();
	__u32 index;

	bpf_for(index, 0, domain_count) {
		struct domain *domain = domain_at(index);

		if (domain)
			domain->online = 0;
	}
	bpf_for(index, 0, cpu_count) {
		struct domain *domain = domain_at(domain_of(index));

		if (domain && bpf_cpumask_test_cpu(index, online) && takes_tasks(index))
			domain->online++;
	}
	scx_bpf_put_cpumask(online);
}

/* Looks through the queues of a domain. Returns whether a task waits there. */
static __always_inline int scan_domain_dsqs(__u32 index, __u64 now)
{
	struct domain *domain = domain_at(index);
	bool handed_over = false;
	__s32 rescued;

	if (!domain)
		return false;
	/* No CPU of it would take them, and those of others only if they were idle. */
	if (READ_ONCE(domain->gone) || !domain->online)
		handed_over = hand_over_domain(index);
	found = (struct found){ .cpus = domain->online };
	rescued = scx_bpf_dsq_nr_queued(RESCUE_DSQ(index));
	if (rescued > 0)
		found.load = ((__u64)rescued << LOAD_SHIFT) / (found.cpus ? found.cpus : 1);
	if (scx_bpf_dsq_nr_queued(MAIN_DSQ(index)) > 0)
		bring_forward(MAIN_DSQ(index), RESCUE_DSQ(index));
	if (tiers_on && scx_bpf_dsq_nr_queued(FRONT_DSQ(index)) > 0)
		bring_forward(FRONT_DSQ(index), RESCUE_DSQ(index));
	if (scx_bpf_dsq_nr_queued(DEMOTED_DSQ(index)) > 0)
		bring_forward(DEMOTED_DSQ(index), RESCUE_DSQ(index));
	if (scx_bpf_dsq_nr_queued(THROTTLED_DSQ(index)) > 0) {
		/* Its CPUs forget this queue when none of them has chosen for a while. */
		WRITE_ONCE(domain->throttled_until_ns, now + USED_FOR_NS);
		bring_forward(THROTTLED_DSQ(index), RESCUE_DSQ(index));
	}
	domain->load = found.load;
	if (found.aged)
		domain->crowded_until_ns = now + CROWDED_FOR_NS;
	WRITE_ONCE(domain->urgent, rescued > 0 && head_has_waited(RESCUE_DSQ(index), URGENT_NS));
	if (found.brought || rescued > 0)
		WRITE_ONCE(domain->rescue, 1);
	return handed_over || found.load > 0;
}

/* The same, with what it needs. Not static, as others here: the verifier then looks at it once (count). */
int scan_domain(__u32 index, __u64 now)
{
	return UNDER_RCU(scan_domain_dsqs(index, now));
}

/* Looks through the queue of a CPU's pinned tasks, and sets how long turns are there. Returns whether a task waits there. */
static __always_inline int scan_pinned_dsq(__u32 index, __u64 now)
{
	struct domain *domain = domain_at(domain_of(index));
	struct cpu *cpu = cpu_at(index);
	__u64 crowd_slice_ns, rescued_slice_ns;

	if (!cpu || !domain)
		return false;
	found = (struct found){ .cpus = 1 };
	if (cpu->pinned) {
		bring_forward(PINNED_DSQ(index), PINNED_RESCUE_DSQ(index));
		if (found.brought)
			WRITE_ONCE(cpu->rescue, 1);
	}
	if (found.aged)
		cpu->crowded_until_ns = now + CROWDED_FOR_NS;
	if (cpu->rescue)
		found.load += (__u64)scx_bpf_dsq_nr_queued(PINNED_RESCUE_DSQ(index)) << LOAD_SHIFT;
	crowd_slice_ns = slice_in_crowd(domain->load + found.load);
	rescued_slice_ns = before(now, domain->crowded_until_ns) || before(now, cpu->crowded_until_ns) ? LEAST_SLICE_NS : crowd_slice_ns;
	if (cpu->crowd_slice_ns != crowd_slice_ns)
		WRITE_ONCE(cpu->crowd_slice_ns, crowd_slice_ns);
	if (cpu->rescued_slice_ns != rescued_slice_ns)
		WRITE_ONCE(cpu->rescued_slice_ns, rescued_slice_ns);
	/* It is armed until the turns are as usual again. */
	return cpu->pinned || cpu->rescue || crowd_slice_ns || rescued_slice_ns;
}

/* The same, with what it needs. */
int scan_cpu(__u32 index, __u64 now)
{
	return UNDER_RCU(scan_pinned_dsq(index, now));
}

static int rescue(void *map, __u32 *key, struct rescue_timer *timer)
{
	__u32 index, waiting = 0;
	__u64 now = scx_now();

	measure_jiffies(now);
	count_online();
	bpf_for(index, 0, domain_count) {
		if (scan_domain(index, now))
			waiting = 1;
	}
	bpf_for(index, 0, cpu_count) {
		if (scan_cpu(index, now))
			waiting = 1;
	}
	if (waiting)
		rescue_armed = !bpf_timer_start(&timer->timer, RESCUE_PERIOD_NS, 0);
	else
		rescue_armed = 0;
	return 0;
}

int init_rescue(void)
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
int watch_over_queues(void)
{
	__u32 key = 0;
	struct rescue_timer *timer;

	timer = bpf_map_lookup_elem(&rescue_timers, &key);
	if (!timer)
		return 0;
	rescue_armed = 1;
	if (bpf_timer_start(&timer->timer, RESCUE_PERIOD_NS, 0))
		rescue_armed = 0;
	return 0;
}

/*
 * Who was brought forward, and put back by a class above before it ran, does not wait for the timer once more, and then
 * perhaps again: it stays in front. Returns whether it does.
 */
bool rescue_again(struct task_struct *task __arg_trusted, __u64 slice, __u64 flags)
{
	__u32 index = domain_of(scx_bpf_task_cpu(task));
	struct domain *domain = domain_at(index);

	if (!domain || is_pinned(task) || !has_waited(task, rescue_ns))
		return false;
	insert_fifo(task, RESCUE_DSQ(index), slice, flags);
	WRITE_ONCE(domain->rescue, 1);
	if (!rescue_armed)
		watch_over_queues();
	count(COUNTER_rescued_again);
	return true;
}

/* Takes a task from a rescue queue, pinned ones first: none of them comes back there before AGED_NS. */
bool take_rescued(__u32 domain_index, __s32 index)
{
	struct domain *domain = domain_at(domain_index);
	struct cpu *cpu = cpu_at(index);

	if (!domain || !cpu)
		return false;
	if (READ_ONCE(cpu->rescue)) {
		/* First, so that a task that is brought forward meanwhile is not overlooked. */
		WRITE_ONCE(cpu->rescue, 0);
		if (move_to_local(PINNED_RESCUE_DSQ(index))) {
			WRITE_ONCE(cpu->rescue, 1);
			cpu->rescued = cpu->out_of_order = 1;
			return true;
		}
	}
	WRITE_ONCE(cpu->urgent, 0);
	if (!READ_ONCE(domain->rescue))
		return false;
	/* The same. */
	WRITE_ONCE(domain->rescue, 0);
	if (move_to_local(RESCUE_DSQ(domain_index))) {
		WRITE_ONCE(domain->rescue, 1);
		cpu->rescued = cpu->out_of_order = 1;
		return true;
	}
	/* Tasks in it may not run here. */
	if (scx_bpf_dsq_nr_queued(RESCUE_DSQ(domain_index)) > 0)
		WRITE_ONCE(domain->rescue, 1);
	return false;
}
