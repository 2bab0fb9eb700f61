// SPDX-License-Identifier: GPL-2.0-only
/*
 * Rescue: a task that has waited for too long goes first, whatever its vtime is.
 *
 * The kernel ejects a scheduler when a task has waited for the timeout (5 s). Tasks of low weight among many would wait that
 * long, and so would a demoted one. While a task waits, a timer scans the DSQs ten times in a second and moves tasks to a rescue
 * DSQ, of their domain or, if they are pinned, of their CPU. Rescue DSQs are in order of arrival.
 *
 *	from `rescue_ns` on	up to RESCUES of each DSQ in each scan. Where all tasks wait for that time, the machine is full, and
 *				the order of vtime is to be kept; a task of nice 19 among twenty others, whose share is a slice
 *				in three seconds, so has more than one a second
 *	from AGED_NS on		all
 *	from URGENT_NS on	all, and each pick is a rescue
 *
 * Each CPU takes every second pick from the rescue DSQs, from its own and its domain's by turns, so that a task which wakes waits
 * for one rescued slice and not for all of them. While any task has aged, the slice of a rescued task is the shortest, so that
 * weights hold for the rest. With N tasks for each CPU, whose slices are R = LEAST_SLICE_NS when rescued and
 * T = max(ROUND_NS / N, LEAST_SLICE_NS) otherwise (crowd.bpf.h), the longest wait is
 *
 *	AGED_NS + RESCUE_PERIOD_NS + N * (R + T)
 *
 * and so at most 2.3 s for up to 1,000 tasks for each CPU, beside the cost of switching. Beyond that every pick is a rescue after
 * URGENT_NS. A rescued task is charged as usual.
 */
#include "kernel/kernel.bpf.h"
#include <bpf/bpf_helpers.h>
#include "morpheus_abi.h"
#include "options/crowd.bpf.h"
#include "options/rescue.bpf.h"

/* A task that has waited for this time, in ns, may go first: a tenth of the kernel's timeout. */
const volatile __u64 rescue_ns = 500000000;

#define RESCUE_PERIOD_NS 100000000ULL
/* The most tasks of a DSQ that are scanned: a bound for the verifier, beyond the number of tasks in a DSQ. */
#define RESCUE_SCANNED (1 << 20)
/* The most tasks of a DSQ that are rescued in a scan before they have aged. */
#define RESCUES 4
#define AGED_NS 1200000000ULL
#define URGENT_NS 2500000000ULL
/* The slices of rescued tasks stay short for this time after a task had aged, in ns. */
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

/* To the nearest number: a tick of 4 ms is one in 250, and the time that has passed lies anywhere between two ticks. */
static __always_inline void measure_jiffies(__u64 now)
{
	__u64 passed_us = (now - started_ns) / 1000;

	if (passed_us >= 1000000)
		jiffies_in_second = ((bpf_jiffies64() - started_jiffies) * 1000000 + passed_us / 2) / passed_us;
}

/* Domains whose rescue DSQ has a task that has waited for URGENT_NS: bits by their numbers. Of the one timer. */
static __u64 urgent_domains;

/* The result of a scan. */
struct found {
	/* The load of each CPU by the tasks that wait there, in parts of 1024 tasks. */
	__u64 load;
	/* The number of CPUs that share it. */
	__u32 cpus;
	/* Whether tasks were rescued, and whether some of them had aged. */
	__u32 brought;
	__u32 aged;
};

/*
 * Used by the one timer, which never runs twice at a time. Not on its stack: the verifier of Linux 7.2 would take each sum of a
 * loop for another state.
 */
static struct found found;

/*
 * Moves tasks that have waited for too long from one DSQ to another, and adds up the load.
 *
 * A task that may run on some of the CPUs only counts as if all such tasks shared the same CPUs: so the load is not less than
 * that of any CPU.
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
 * Whether a CPU that is online takes tasks. A CPU that goes offline stops to dispatch before this scheduler is told of it: in
 * between, the kernel waits for RCU readers, for up to seconds where CPUs are busy. Global, so that no loop has the value as a
 * state.
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

/* Notes whether the rescue DSQ of a domain has tasks for which each pick has to be a rescue. */
static __always_inline void note_urgent(struct domain *domain, __u32 index, bool urgent)
{
	WRITE_ONCE(domain->urgent, urgent);
	if (urgent)
		urgent_domains |= 1ULL << (index & (DOMAINS - 1));
	else
		urgent_domains &= ~(1ULL << (index & (DOMAINS - 1)));
}

/* Scans the DSQs of a domain. Returns whether a task waits there. */
static __always_inline int scan_domain_dsqs(__u32 index, __u64 now)
{
	struct domain *domain = domain_at(index);
	bool handed_over = false;
	__s32 rescued;

	if (!domain)
		return false;
	/* No CPU of the domain would take its tasks, and those of other domains only when they are idle. */
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
	/* The CPUs stop to read these DSQs when none of them has dispatched for a while. */
	if (scx_bpf_dsq_nr_queued(DEMOTED_DSQ(index)) > 0) {
		WRITE_ONCE(domain->demoted_until_ns, now + USED_FOR_NS);
		bring_forward(DEMOTED_DSQ(index), RESCUE_DSQ(index));
	}
	if (scx_bpf_dsq_nr_queued(THROTTLED_DSQ(index)) > 0) {
		WRITE_ONCE(domain->throttled_until_ns, now + USED_FOR_NS);
		bring_forward(THROTTLED_DSQ(index), RESCUE_DSQ(index));
	}
	domain->load = found.load;
	if (found.aged)
		domain->crowded_until_ns = now + CROWDED_FOR_NS;
	note_urgent(domain, index, rescued > 0 && head_has_waited(RESCUE_DSQ(index), URGENT_NS));
	if (found.brought || rescued > 0)
		WRITE_ONCE(domain->rescue, 1);
	return handed_over || found.load > 0;
}

/* Scans a domain in an RCU read-side section. Not static: the verifier then checks it once (count). */
int scan_domain(__u32 index, __u64 now)
{
	return UNDER_RCU(scan_domain_dsqs(index, now));
}

/* Scans the DSQ of a CPU's pinned tasks, and sets the longest slice there. Returns whether the timer is needed. */
static __always_inline int scan_pinned_dsq(__u32 index, __u64 now)
{
	struct domain *domain = domain_at(domain_of(index));
	struct cpu *cpu = cpu_at(index);
	__u64 crowd_slice_ns, rescued_slice_ns;
	__s32 rescued;

	if (!cpu || !domain)
		return false;
	/* The kernel waits for its threads there before it tells this scheduler that the CPU is gone. */
	if (!takes_tasks(index))
		return hand_over_pinned(index);
	rescued = scx_bpf_dsq_nr_queued(PINNED_RESCUE_DSQ(index));
	found = (struct found){ .cpus = 1, .load = rescued > 0 ? (__u64)rescued << LOAD_SHIFT : 0 };
	/* The marks are hints: a task that one misses would wait for ever. */
	if (scx_bpf_dsq_nr_queued(PINNED_DSQ(index)) > 0) {
		bring_forward(PINNED_DSQ(index), PINNED_RESCUE_DSQ(index));
		WRITE_ONCE(cpu->pinned, 1);
	}
	if (found.aged)
		cpu->crowded_until_ns = now + CROWDED_FOR_NS;
	if (rescued > 0 || found.brought)
		WRITE_ONCE(cpu->rescue, 1);
	/* Not by the marks: a CPU that has gone offline does not take its own back. */
	if (found.load)
		scx_bpf_kick_cpu(index, KICK_IDLE);
	WRITE_ONCE(cpu->urgent, rescued > 0 && head_has_waited(PINNED_RESCUE_DSQ(index), URGENT_NS));
	crowd_slice_ns = slice_in_crowd(domain->load + found.load);
	rescued_slice_ns = before(now, domain->crowded_until_ns) || before(now, cpu->crowded_until_ns) ? LEAST_SLICE_NS : crowd_slice_ns;
	if (cpu->crowd_slice_ns != crowd_slice_ns)
		WRITE_ONCE(cpu->crowd_slice_ns, crowd_slice_ns);
	if (cpu->rescued_slice_ns != rescued_slice_ns)
		WRITE_ONCE(cpu->rescued_slice_ns, rescued_slice_ns);
	/* The timer stays armed until slices are back to their usual length. */
	return found.load || crowd_slice_ns || rescued_slice_ns;
}

/* Scans a CPU in an RCU read-side section. */
int scan_cpu(__u32 index, __u64 now)
{
	return UNDER_RCU(scan_pinned_dsq(index, now));
}

/*
 * Lets a domain take a task from another one that has more to do. CPUs that have tasks of their own do not look at other domains:
 * without this, two hogs in one domain would have a CPU each for ever, and eight in the next one a quarter. A task that moves must not
 * make this domain the fuller one. Nor does one wait in a domain whose CPUs do not come to it while another one may run it.
 *
 * Each scan looks at one other domain, so that with 16 of them each is looked at in 1.5 s, and with 64 in 6.3 s. That is too late for
 * tasks that are urgent: while there are any, each second scan looks at one of their domains.
 */
int balance(__u32 index, __u32 turn)
{
	__u64 urgent = urgent_domains & ~(1ULL << (index & (DOMAINS - 1)));
	struct domain *own = domain_at(index), *from;
	__u32 other, step;
	__u64 more;

	if (urgent && turn & 1) {
		bpf_for(step, 0, (turn >> 1) % __builtin_popcountll(urgent)) {
			urgent &= urgent - 1;
		}
		other = urgent ? __builtin_ctzll(urgent) : 0;
	} else {
		turn >>= !!urgent;
		other = nearest_domains[index & (DOMAINS - 1)][turn % (domain_count - 1) & (DOMAINS - 1)];
	}
	from = domain_at(other);
	if (!own || !from || !own->online || !from->online)
		return 0;
	more = (1 << LOAD_SHIFT) / own->online + (1 << LOAD_SHIFT) / from->online;
	if (READ_ONCE(from->urgent) || from->load >= own->load + more) {
		WRITE_ONCE(own->pull, other + 1);
		WRITE_ONCE(own->rescue, 1);
	}
	return 0;
}

/* The number of scans. */
static __u32 scans;

static int rescue(void *map, __u32 *key, struct rescue_timer *timer)
{
	__u32 index, waiting = 0;
	__u64 now = scx_now();
	/* First: a task that comes during this scan arms the timer. */
	bool was_armed = __sync_lock_test_and_set(&rescue_armed, 0);

	measure_jiffies(now);
	count_online();
	bpf_for(index, 0, domain_count) {
		if (!scan_domain(index, now))
			continue;
		waiting = 1;
		if (idle_kicks_on)
			kick_missed(index);
	}
	if (steal_on && domain_count > 1) {
		scans++;
		bpf_for(index, 0, domain_count) {
			balance(index, scans);
		}
	}
	bpf_for(index, 0, cpu_count) {
		if (scan_cpu(index, now))
			waiting = 1;
	}
	if (waiting)
		rescue_armed = !bpf_timer_start(&timer->timer, RESCUE_PERIOD_NS, 0);
	else if (was_armed)
		/* Once more, and not armed: see watch_over_queues. */
		bpf_timer_start(&timer->timer, RESCUE_PERIOD_NS, 0);
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

/*
 * Arms the timer for a waiting task. `rescue_armed` is read without a lock and without a barrier: a CPU may read it from before a
 * scan that has not seen its task. The next scan does: the timer ends only after a scan for which no CPU had armed it.
 */
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
 * Keeps a rescued task in front that was re-enqueued for a higher class before it ran: otherwise it would wait for the timer once
 * more, and perhaps again. Returns whether it does.
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
	if (idle_kicks_on && kick_idle(task))
		count(COUNTER_kicks_idle);
	count(COUNTER_rescued_again);
	return true;
}

/* Takes a task from the rescue DSQ of a CPU's pinned tasks. */
static __always_inline bool take_rescued_pinned(struct cpu *cpu, __s32 index)
{
	if (READ_ONCE(cpu->rescue)) {
		/* Cleared first, so that a task that is rescued meanwhile is not missed. */
		WRITE_ONCE(cpu->rescue, 0);
		if (move_to_local(PINNED_RESCUE_DSQ(index))) {
			WRITE_ONCE(cpu->rescue, 1);
			cpu->rescued = cpu->out_of_order = 1;
			return true;
		}
	}
	WRITE_ONCE(cpu->urgent, 0);
	return false;
}

/*
 * Takes a task from the rescue DSQ of a domain. Where there is none, the domain may be due to take one from another domain
 * (balance).
 */
static __always_inline bool take_rescued_of_domain(__u32 domain_index, struct domain *domain, struct cpu *cpu)
{
	__u32 from;

	if (!READ_ONCE(domain->rescue))
		return false;
	/* Cleared first for the same reason. */
	WRITE_ONCE(domain->rescue, 0);
	if (move_to_local(RESCUE_DSQ(domain_index))) {
		WRITE_ONCE(domain->rescue, 1);
		cpu->rescued = cpu->out_of_order = 1;
		return true;
	}
	/* Its tasks may not run here. */
	if (scx_bpf_dsq_nr_queued(RESCUE_DSQ(domain_index)) > 0)
		WRITE_ONCE(domain->rescue, 1);
	from = READ_ONCE(domain->pull);
	WRITE_ONCE(domain->pull, 0);
	if (!from || !(move_to_local(RESCUE_DSQ(from - 1)) || move_to_local(MAIN_DSQ(from - 1)) ||
		       (tiers_on && move_to_local(FRONT_DSQ(from - 1)))))
		return false;
	cpu->out_of_order = 1;
	count(COUNTER_from_other_domains);
	return true;
}

/* Takes a rescued task: by turns one that is pinned and one of the domain, so that neither kind waits for all of the other. */
bool take_rescued(__u32 domain_index, __s32 index)
{
	struct domain *domain = domain_at(domain_index);
	struct cpu *cpu = cpu_at(index);

	if (!domain || !cpu)
		return false;
	cpu->pinned_went_first = !cpu->pinned_went_first;
	if (cpu->pinned_went_first)
		return take_rescued_pinned(cpu, index) || take_rescued_of_domain(domain_index, domain, cpu);
	return take_rescued_of_domain(domain_index, domain, cpu) || take_rescued_pinned(cpu, index);
}
