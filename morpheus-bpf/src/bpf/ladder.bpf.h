/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What follows when a worker is stuck: demotion, throttling; and what a critical section gets.
 *
 * It is decided while the worker runs, by the timer's look and at each switch. Nothing here is undone by an event that
 * could be lost: each is about one episode, and whoever acts upon it compares.
 */
#ifndef MORPHEUS_LADDER_BPF_H
#define MORPHEUS_LADDER_BPF_H

#include "queue.bpf.h"

/* Demotes and throttles. Off: sees and reports only. */
const volatile bool enforce = true;
const volatile bool demotion_on = true;
const volatile bool throttling_on = true;
const volatile bool extensions_on = true;
/* One extension in a dispatch, and none for a section that outlived one. Off for tests: then lying pays. */
const volatile bool extension_bound_on = true;
/* How long a critical section may go on after its slice. */
const volatile __u64 extension_ns = 500000;
/* So often it is seen whether the section is over: then the extension is, too, before another section begins. */
#define EXTENSION_LOOK_NS 50000
/* From so many offences of a label on, its polls are throttled. */
const volatile __u32 repeat_offences = 8;

/* Offences by a process's label. Those that were not seen for long are forgotten first. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct process);
	__type(value, __u32);
} offences SEC(".maps");

/* A running worker is looked at: for cpuperf.bpf.h. */
static __always_inline void speed_at_look(__s32 index, struct worker *worker, const struct words *slot,
					  __u64 now);

static __always_inline void mark_stuck(__s32 index, struct cpu *cpu, bool stuck)
{
	struct domain *domain;

	if (!!cpu->stuck == stuck)
		return;
	cpu->stuck = stuck;
	domain = domain_at(domain_of(index));
	if (domain)
		mark(&domain->stuck_cpus, index, stuck);
}

/* The label of what runs: the runtime's number, or where it has none the slot's, with the highest bit set. */
static __always_inline struct process label_of(const struct worker *worker, const struct words *slot)
{
	__u32 number = slot->label;
	struct process label = worker->process;

	label.label = number ? number : worker->slot | 1U << 31;
	return label;
}

/* Counts an offence of what runs, once for each episode. Returns how many there were. */
static __always_inline __u32 count_offence(struct worker *worker, const struct words *slot, __u64 episode)
{
	struct process label = label_of(worker, slot);
	__u32 *known = bpf_map_lookup_elem(&offences, &label);
	__u32 one = 1;

	if (worker->offence == episode)
		return known ? *known : 1;
	worker->offence = episode;
	if (!known) {
		bpf_map_update_elem(&offences, &label, &one, BPF_ANY);
		return 1;
	}
	__sync_fetch_and_add(known, 1);
	return *known;
}

/* Whether a claim to a critical section still counts. */
static __always_inline bool is_protected(const struct worker *worker, const struct words *slot, __u64 episode)
{
	return slot->critical_depth && worker->outlived != episode;
}

/*
 * Only in place: a poll on a worker's own stack has tasks behind it that nobody can steal (in the LIFO slot, or those that
 * yielded there), and with a tenth of the weight they would wait ten times as long. Such a worker gives way to those who
 * serve, and that is all.
 */
static __always_inline bool may_be_demoted(const struct words *slot)
{
	const __u32 both = MORPHEUS_SLOT_DEMOTABLE | MORPHEUS_SLOT_HANDOFF;

	return (slot->flags & both) == both;
}

static __always_inline void say_step(struct worker *worker, __u64 episode, __u32 step, __u64 verdict, __u32 event,
				     __u64 detail, __u64 now)
{
	struct morpheus_kernel_slot *kernel = kernel_slot(worker);

	if (kernel) {
		WRITE_ONCE(kernel->step, step);
		give_verdict(worker, kernel, poll_of(episode), verdict);
	}
	emit(worker, event, poll_of(episode), now, detail, BPF_RB_FORCE_WAKEUP);
}

static __always_inline void over_budget(struct worker *worker, const struct words *slot,
					__u64 episode, __u64 used_ns, __u64 now, bool runs)
{
	__s32 index = bpf_get_smp_processor_id();
	struct cpu *cpu = cpu_at(index);
	__u32 number;

	if (cpu && runs)
		mark_stuck(index, cpu, true);
	if (!enforce || !demotion_on || worker->policy < MORPHEUS_POLICY_DEMOTE)
		return;
	if (!may_be_demoted(slot) || is_protected(worker, slot, episode))
		return;
	/* The grace is CPU time, as the budget is: who was preempted had no chance to answer the request. */
	if (!(episode & EPISODE_HOG) && (used_ns < offence_ns || used_ns < worker->budget_ns + worker->grace_ns))
		return;
	number = count_offence(worker, slot, episode);
	if (worker->demoted != episode) {
		worker->demoted = episode;
		count(COUNTER_demotions);
		say_step(worker, episode, MORPHEUS_STEP_DEMOTED, MORPHEUS_VERDICT_DEMOTED, MORPHEUS_EVENT_DEMOTED,
			 used_ns, now);
		/* Somebody may have waited less long than this one's vtime is now. */
		if (cpu && runs && !cpu->kicked)
			kick(index, cpu, COUNTER_kicks_at_demotion);
		return;
	}
	if (!throttling_on || worker->policy < MORPHEUS_POLICY_THROTTLE || worker->throttled == episode ||
	    number < repeat_offences)
		return;
	worker->throttled = episode;
	worker->window_ns = scx_now();
	worker->window_ran_ns = 0;
	count(COUNTER_throttles);
	say_step(worker, episode, MORPHEUS_STEP_THROTTLED, MORPHEUS_VERDICT_THROTTLED, MORPHEUS_EVENT_THROTTLED, number,
		 now);
}

static __always_inline void episode_ended(struct worker *worker, __u64 now)
{
	struct cpu *cpu = cpu_at(bpf_get_smp_processor_id());

	if (cpu && cpu->stuck)
		mark_stuck(bpf_get_smp_processor_id(), cpu, false);
	if (worker->demoted) {
		worker->demoted = 0;
		worker->throttled = 0;
		worker->relieved = 1;
		count(COUNTER_undemotions);
	}
}

/* Whether a worker has had its turn, and somebody waits for it to end. Within a critical section that waits for the tick. */
static __always_inline bool has_had_turn(__s32 index, const struct cpu *cpu, const struct words *slot,
					 __u64 now)
{
	__u64 waits;

	if (!worker_slice_ns || before(now + slice_ns, cpu->slice_end_ns + worker_slice_ns) || !cpu->since_ns ||
	    slot->critical_depth)
		return false;
	waits = least_waiting(index, cpu);
	return waits != NOBODY && before(waits, present_vtime(cpu, now));
}

/* A worker's turn, the extension of a critical section, and a throttled worker's share end between ticks. */
static __always_inline __u64 looked(struct worker *worker, const struct words *slot)
{
	__s32 index = bpf_get_smp_processor_id();
	struct cpu *cpu = cpu_at(index);
	__u64 sooner = NOBODY, now = scx_now();

	if (!cpu)
		return sooner;
	speed_at_look(index, worker, slot, now);
	if (cpu->extended_until_ns) {
		bool critical = slot->critical_depth;

		if (critical && before(now, cpu->extended_until_ns)) {
			sooner = cpu->extended_until_ns - now;
			if (sooner > EXTENSION_LOOK_NS)
				sooner = EXTENSION_LOOK_NS;
		} else {
			cpu->extended_until_ns = 0;
			if (critical && extension_bound_on) {
				worker->outlived = episode_of(worker, slot);
				count(COUNTER_extensions_outlived);
			}
			kick(index, cpu, COUNTER_kicks_at_extension_end);
		}
	}
	if (worker->throttled && !cpu->kicked && cpu->since_ns && before(cpu->since_ns, now)) {
		__u64 ran_ns = worker->window_ran_ns + (now - cpu->since_ns);

		if (ran_ns >= quota_ns && now - worker->window_ns < window_ns)
			kick(index, cpu, COUNTER_kicks_at_quota);
	}
	if (!cpu->kicked && has_had_turn(index, cpu, slot, now))
		kick(index, cpu, COUNTER_kicks_at_turn_end);
	return sooner;
}

/*
 * A worker's slice is over, or it was kicked, and somebody waits. Lets it finish its critical section: once in a
 * dispatch, for a bounded time, and charged like any other.
 */
static __always_inline bool extend(struct task_struct *task, struct cpu *cpu, struct worker *worker, __s32 index, __u64 now)
{
	struct look_timer *look_timer;
	struct words slot;
	__u32 key = index;

	if (!extensions_on)
		return false;
	if (!load_words(worker, &slot) || !slot.critical_depth || slot.state != MORPHEUS_WORKER_RUNNING)
		return false;
	if (extension_bound_on) {
		__u64 episode = episode_of(worker, &slot);

		if (worker->extended && cpu->extended_until_ns && before(now, cpu->extended_until_ns)) {
			/* Kicked before it is over: that somebody waits was known when it was given. */
			set_slice(task, cpu->extended_until_ns - now);
			return true;
		}
		if (worker->extended) {
			/* The timer is late. */
			if (cpu->extended_until_ns) {
				cpu->extended_until_ns = 0;
				worker->outlived = episode;
				count(COUNTER_extensions_outlived);
			}
			return false;
		}
		if (episode && worker->outlived == episode)
			return false;
	}
	worker->extended = 1;
	count(COUNTER_extensions);
	set_slice(task, extension_ns);
	cpu->extended_until_ns = now + extension_ns;
	look_timer = bpf_map_lookup_elem(&look_timers, &key);
	if (look_timer)
		arm(look_timer, extension_ns < EXTENSION_LOOK_NS ? extension_ns : EXTENSION_LOOK_NS);
	return true;
}

/* An extension goes on after an interruption; the task's slice is what was left of it. */
static __always_inline void extend_again(struct task_struct *task, struct cpu *cpu, __s32 index, __u64 now)
{
	struct look_timer *look_timer;
	__u32 key = index;

	cpu->extended_until_ns = now + task->scx.slice;
	look_timer = bpf_map_lookup_elem(&look_timers, &key);
	if (look_timer)
		arm(look_timer, EXTENSION_LOOK_NS);
}

#endif /* MORPHEUS_LADDER_BPF_H */
