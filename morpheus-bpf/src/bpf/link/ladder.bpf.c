// SPDX-License-Identifier: GPL-2.0-only
/*
 * The ladder: demotion and throttling of a stalled worker, and the extension of a critical section.
 *
 * The ladder decides while the worker runs, at each sample of the timer and at each switch. No step needs an event to be undone,
 * since an event can be lost: each step belongs to one episode, and the code that acts on it compares the episode.
 */
#include "kernel/kernel.bpf.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "morpheus_abi.h"
#include "link/ladder.bpf.h"

/* Demotes and throttles. Off: reports only. */
const volatile bool enforce = true;
const volatile bool demotion_on = true;
const volatile bool throttling_on = true;
const volatile bool extensions_on = true;
/*
 * The slice of a worker that computes, in ns, if a task with less vtime waits. The sampling timer ends it between two ticks. A
 * worker that loses its CPU while it serves others then waits for short slices only. 0 with `--without worker-slice`.
 */
const volatile __u64 worker_slice_ns = 500000;
/*
 * The least time between two interruptions of a stalled worker by other processes on one CPU, in ns; 0: no bound. That a worker
 * serves is a claim of its process. Within this time a worker of another process preempts as any task does that wakes. A
 * process's own stalled workers are preempted each time.
 */
const volatile __u64 stalled_pause_ns = 2000000;
/* The period of samples during an extension, in ns. They end it when its section is over, before another section begins. */
#define EXTENSION_SAMPLE_NS 50000
/* Polls of a label are throttled from this number of hog polls on. */
const volatile __u32 repeat_hog_polls = 8;

/* Hog polls by label of a process. The entries that were not used for longest are dropped first. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct process);
	__type(value, __u32);
} hog_polls SEC(".maps");

int mark_stalled(__s32 index, bool stalled)
{
	struct domain *domain = domain_at(domain_of(index));
	struct cpu *cpu = cpu_at(index);

	if (!cpu || !domain || !!cpu->stalled == stalled)
		return 0;
	cpu->stalled = stalled;
	mark(&domain->stalled_cpus, index, stalled);
	return 0;
}

/* The label of the present poll: the number that the runtime gave, or else that of the slot with the highest bit set. */
static __always_inline struct process label_of(const struct worker *worker, const struct words *slot)
{
	__u32 number = slot->label;
	struct process label = worker->process;

	label.label = number ? number : worker->slot | 1U << 31;
	return label;
}

/* Counts a hog poll, once in an episode. Returns the number of hog polls of its label. */
static __always_inline __u32 count_hog_poll(struct worker *worker, const struct words *slot, __u64 episode)
{
	struct process label = label_of(worker, slot);
	__u32 *known = bpf_map_lookup_elem(&hog_polls, &label);
	__u32 one = 1;

	if (worker->hog_poll == episode)
		return known ? *known : 1;
	worker->hog_poll = episode;
	if (!known) {
		bpf_map_update_elem(&hog_polls, &label, &one, BPF_ANY);
		return 1;
	}
	__sync_fetch_and_add(known, 1);
	return *known;
}

/* Whether the critical section of a worker protects it: not after it has outlived an extension in this episode. */
static __always_inline bool is_protected(const struct worker *worker, const struct words *slot, __u64 episode)
{
	return slot->critical_depth && worker->outlived != episode;
}

/*
 * Whether the slot allows demotion: the poll is demotable, and was handed off. An inline poll has tasks behind it that no worker
 * can steal (in the LIFO slot, or in the list of those that yielded). With a tenth of the weight they would wait ten times as
 * long. Such a worker only gives way to those that serve.
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

int over_budget(struct worker *worker, const struct words *slot, const struct overrun *overrun)
{
	__s32 index = bpf_get_smp_processor_id();
	__u64 episode, used_ns, now;
	struct cpu *cpu;
	__u32 number;

	if (!worker || !slot || !overrun)
		return 0;
	episode = overrun->episode;
	used_ns = overrun->used_ns;
	now = overrun->now;
	cpu = overrun->runs ? cpu_at(index) : 0;
	if (cpu)
		mark_stalled(index, true);
	if (!enforce || !demotion_on || worker->policy < MORPHEUS_POLICY_DEMOTE)
		return 0;
	if (!may_be_demoted(slot) || is_protected(worker, slot, episode))
		return 0;
	/* The grace is CPU time, as the budget is: a worker that was preempted had no chance to answer the request. */
	if (!(episode & EPISODE_HOG) && (used_ns < hog_ns || used_ns < worker->budget_ns + worker->grace_ns))
		return 0;
	number = count_hog_poll(worker, slot, episode);
	if (worker->demoted != episode) {
		worker->demoted = episode;
		count(COUNTER_demotions);
		say_step(worker, episode, MORPHEUS_STEP_DEMOTED, MORPHEUS_VERDICT_DEMOTED, MORPHEUS_EVENT_DEMOTED,
			 used_ns, now);
		/* Its vtime may now be more than that of waiting tasks. */
		if (cpu && !cpu->kicked)
			kick(index, cpu, COUNTER_kicks_at_demotion);
		return 0;
	}
	if (!throttling_on || worker->policy < MORPHEUS_POLICY_THROTTLE || worker->throttled == episode ||
	    number < repeat_hog_polls)
		return 0;
	worker->throttled = episode;
	worker->window_ns = scx_now();
	worker->window_ran_ns = 0;
	count(COUNTER_throttles);
	say_step(worker, episode, MORPHEUS_STEP_THROTTLED, MORPHEUS_VERDICT_THROTTLED, MORPHEUS_EVENT_THROTTLED, number,
		 now);
	return 0;
}

int episode_ended(struct worker *worker)
{
	__s32 index = bpf_get_smp_processor_id();
	struct cpu *cpu = cpu_at(index);

	if (!worker)
		return 0;
	if (cpu && cpu->stalled)
		mark_stalled(index, false);
	if (worker->demoted) {
		worker->demoted = 0;
		worker->throttled = 0;
		worker->relieved = 1;
		count(COUNTER_undemotions);
	}
	return 0;
}

/*
 * Whether the episode of the demotion goes on. The slot is read anew, since the worker is about to be charged tenfold or to wait.
 */
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

__u64 charge_worker(struct task_struct *task __arg_trusted, struct worker *worker, __u64 ran_ns, __u64 now)
{
	__u64 times = 1;

	if (!worker)
		return times;
	if (is_demoted(worker))
		times = demotion;
	if (worker->throttled) {
		if (now - worker->window_ns >= window_ns) {
			worker->window_ns = now;
			worker->window_ran_ns = 0;
		}
		worker->window_ran_ns += ran_ns;
	}
	forgive(task, worker);
	return times;
}

bool put_demoted(struct task_struct *task __arg_trusted, struct worker *worker, __u64 slice, __u64 flags, __u64 now)
{
	__u32 domain_index = domain_of(scx_bpf_task_cpu(task));
	struct domain *domain = domain_at(domain_index);
	__u64 vtime = task->scx.dsq_vtime;

	if (!worker || !domain || !is_demoted(worker))
		return false;
	if (has_spent(worker, now)) {
		worker->true_vtime = vtime;
		worker->has_true_vtime = 1;
		WRITE_ONCE(domain->throttled_until_ns, now + USED_FOR_NS);
		insert_by_vtime(task, THROTTLED_DSQ(domain_index), slice, worker->window_ns + window_ns, flags);
		count(COUNTER_to_throttled);
		return true;
	}
	WRITE_ONCE(domain->demoted_until_ns, now + USED_FOR_NS);
	insert_by_vtime(task, DEMOTED_DSQ(domain_index), slice, vtime, flags);
	count(COUNTER_to_demoted);
	return true;
}

/* Whether the slice of a worker is over and a task waits for that. In a critical section the tick ends the slice. */
static __always_inline bool is_slice_over(__s32 index, const struct cpu *cpu, const struct words *slot,
					 __u64 now)
{
	__u64 waits;

	if (!worker_slice_ns || before(now + slice_ns, cpu->slice_end_ns + worker_slice_ns) || !cpu->since_ns ||
	    slot->critical_depth)
		return false;
	waits = least_waiting(index);
	return waits != NO_VTIME && before(waits, present_vtime(cpu, now));
}

/* Ends between ticks what is due: the slice of a worker, the extension of a critical section, the share of a throttled worker. */
__u64 sampled(struct worker *worker, const struct words *slot)
{
	__s32 index = bpf_get_smp_processor_id();
	struct cpu *cpu = cpu_at(index);
	__u64 sooner = NO_VTIME, now = scx_now();

	if (!cpu || !worker || !slot)
		return sooner;
	if (cpuperf_on)
		speed_at_sample(worker, slot, now);
	if (cpu->extended_until_ns) {
		bool critical = slot->critical_depth;

		if (critical && before(now, cpu->extended_until_ns)) {
			sooner = cpu->extended_until_ns - now;
			if (sooner > EXTENSION_SAMPLE_NS)
				sooner = EXTENSION_SAMPLE_NS;
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
	if (!cpu->kicked && is_slice_over(index, cpu, slot, now))
		kick(index, cpu, COUNTER_kicks_at_slice_end);
	return sooner;
}

/*
 * Lets a worker finish its critical section when its slice ends or a kick comes, and a task waits: once in a dispatch, for a
 * bounded time, and charged as usual.
 */
bool extend(struct task_struct *task __arg_trusted, struct worker *worker, __s32 index, __u64 now)
{
	struct cpu *cpu = cpu_at(index);
	struct words slot;

	if (!extensions_on || !worker || !cpu)
		return false;
	if (!load_words(worker, &slot) || !slot.critical_depth || slot.state != MORPHEUS_WORKER_RUNNING)
		return false;
	if (extension_bound_on) {
		__u64 episode = episode_of(worker, &slot);

		if (worker->extended && cpu->extended_until_ns && before(now, cpu->extended_until_ns)) {
			/* A kick came before the end of the extension. A waiting task was known when it was given. */
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
	sample_after(extension_ns < EXTENSION_SAMPLE_NS ? extension_ns : EXTENSION_SAMPLE_NS);
	return true;
}

/* Resumes an extension after an interruption. The slice of the task is the rest of the extension. */
int extend_again(struct task_struct *task __arg_trusted, __s32 index, __u64 now)
{
	struct cpu *cpu = cpu_at(index);

	if (cpu)
		cpu->extended_until_ns = now + task->scx.slice;
	sample_after(EXTENSION_SAMPLE_NS);
	return 0;
}

int count_preempted_section(struct task_struct *task __arg_trusted, struct worker *worker, __s32 index)
{
	struct cpu *cpu = cpu_at(index);
	struct words slot;

	if (!worker || !cpu || !load_words(worker, &slot) || !slot.critical_depth)
		return 0;
	if (cpu->kicked == KICK_OURS)
		count(COUNTER_critical_preempted_by_kick);
	else if (!cpu->kicked && !task->scx.slice)
		count(COUNTER_critical_preempted_at_slice_end);
	else
		count(COUNTER_critical_preempted_by_others);
	return 0;
}

/* Whether a task that serves may interrupt the stalled worker of a CPU. */
static __always_inline bool may_interrupt(const struct cpu *cpu, const struct task_struct *task, __u64 now)
{
	return cpu->worker == (__u32)task->tgid || !before(now, cpu->stalled_kicked_ns + stalled_pause_ns);
}

__s32 find_stalled(struct task_struct *task __arg_trusted, __u64 now)
{
	struct domain *domain;
	__u32 own, seen, bits;

	own = domain_of(scx_bpf_task_cpu(task));
	domain = domain_at(own);
	if (!domain)
		return -1;
	bits = READ_ONCE(domain->stalled_cpus);
	bpf_for(seen, 0, DOMAIN_CPUS) {
		struct cpu *cpu;
		__s32 index;

		if (!bits)
			break;
		index = cpu_in(own, lowest_bit(bits));
		bits &= bits - 1;
		cpu = cpu_at(index);
		if (cpu && cpu->stalled && cpu->since_ns && !cpu->kicked && may_interrupt(cpu, task, now) &&
		    may_run_on(task, index))
			return index;
	}
	return -1;
}
