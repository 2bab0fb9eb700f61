// SPDX-License-Identifier: GPL-2.0-only
/*
 * Watching workers: sees when one goes to sleep within a poll, and when a poll uses up its budget.
 *
 * In the order of a worker's life: it is switched in and out (on_switch), and looked at while it runs (tick; and
 * on_interrupt, where that timer is not set). What follows from it is decided elsewhere (watch.bpf.h).
 */
#include "kernel/kernel.bpf.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "morpheus_abi.h"
#include "link/watch.bpf.h"

/*
 * How often a running worker is looked at. The start of a poll is seen up to one period late, and so is its budget's
 * end; each look costs the worker the time of a timer interrupt.
 */
const volatile __u64 period_ns = 250000;
/* A poll that is over its budget is asked to yield. Off for tests. */
const volatile bool requests_on = true;
/* Running workers are looked at by a timer. Off for tests. */
const volatile bool timer_on = true;

/* One for each CPU, used on that one only. */
struct sample_timer {
	struct bpf_timer timer;
	__u32 armed;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sample_timer);
} sample_timers SEC(".maps");

/*
 * Looks at what a worker is busy with: remembers when its CPU time began, and asks it to yield when it has used up its
 * budget.
 *
 * A poll counts from when it was first seen, so that nobody is asked too early.
 */
static __always_inline void sample(struct worker *worker, const struct words *slot, __u64 now, bool runs)
{
	__u64 episode = episode_of(worker, slot), seq = poll_of(episode);
	__u64 ran_ns = worker->ran_ns + (worker->since_ns ? now - worker->since_ns : 0);
	struct morpheus_kernel_slot *kernel;
	__u64 used_ns;

	if (episode != worker->episode) {
		episode_ended(worker);
		worker->episode = episode;
		worker->episode_ran_ns = ran_ns;
		if (episode & EPISODE_HOG)
			count(COUNTER_hogs_marked);
	}
	if (!episode)
		return;
	used_ns = ran_ns - worker->episode_ran_ns;
	/* Who is marked as a hog has been found to be one. */
	if (seq && used_ns < worker->budget_ns)
		return;
	if (!is_active(slot))
		return;
	kernel = kernel_slot(worker);
	if (!kernel)
		return;
	if (seq) {
		/* Goes on growing while the poll does: how much it took is known when it ends, to a period. */
		WRITE_ONCE(kernel->oncpu_ns, used_ns);
		if (used_ns >= hog_ns && !(worker->verdict & MORPHEUS_VERDICT_HOG))
			give_verdict(worker, kernel, seq, MORPHEUS_VERDICT_HOG);
	}
	if (seq && worker->over != seq) {
		give_verdict(worker, kernel, seq, MORPHEUS_VERDICT_STALLED);
		if (requests_on && worker->policy >= MORPHEUS_POLICY_REQUEST) {
			WRITE_ONCE(kernel->step, MORPHEUS_STEP_REQUESTED);
			STORE_RELEASE(kernel->request_seq, seq);
			count(COUNTER_requests);
		}
		emit(worker, MORPHEUS_EVENT_BUDGET, seq, now, used_ns, BPF_RB_FORCE_WAKEUP);
	}
	worker->over = episode;
	struct overrun overrun = { .episode = episode, .used_ns = used_ns, .now = now, .runs = runs };

	over_budget(worker, slot, &overrun);
}

/* How long until the next look: as long as the budget lasts, and at most a period. */
static __always_inline __u64 until_next_sample(const struct worker *worker, __u64 now)
{
	__u64 used_ns = worker->ran_ns + (now - worker->since_ns) - worker->episode_ran_ns;

	if (worker->episode && worker->over != worker->episode && used_ns < worker->budget_ns &&
	    worker->budget_ns - used_ns < period_ns)
		return worker->budget_ns - used_ns;
	return period_ns;
}

static __always_inline void arm(struct sample_timer *sample_timer, __u64 delay_ns)
{
	if (timer_on)
		sample_timer->armed = !bpf_timer_start(&sample_timer->timer, delay_ns, timer_flags);
}

/* Runs on the CPU where it was armed, over whatever runs there. It is not armed again when that is no worker. */
static int tick(void *map, __u32 *index, struct sample_timer *sample_timer)
{
	struct task_struct *current = bpf_get_current_task_btf();
	struct worker *worker;
	struct words slot;
	__u64 now, next, sooner;

	sample_timer->armed = 0;
	/* The CPU went away, and its timer moved. */
	if (*index != bpf_get_smp_processor_id())
		return 0;
	worker = bpf_task_storage_get(&workers, current, 0, 0);
	if (!worker)
		return 0;
	if (!load_words(worker, &slot))
		return 0;
	now = bpf_ktime_get_ns();
	count(COUNTER_samples);
	/* Bound while it ran, or not seen to be switched in. */
	if (!worker->since_ns)
		worker->since_ns = now;
	sample(worker, &slot, now, true);
	next = until_next_sample(worker, now);
	sooner = sampled(worker, &slot);
	arm(sample_timer, sooner < next ? sooner : next);
	return 0;
}

int start_sample_timer(__u32 index)
{
	struct sample_timer *sample_timer = bpf_map_lookup_elem(&sample_timers, &index);

	if (!sample_timer)
		return -ESRCH;
	if (bpf_timer_init(&sample_timer->timer, &sample_timers, CLOCK_MONOTONIC))
		return -ENOMEM;
	return bpf_timer_set_callback(&sample_timer->timer, tick);
}

int sample_after(__u64 delay_ns)
{
	__u32 index = bpf_get_smp_processor_id();
	struct sample_timer *sample_timer = bpf_map_lookup_elem(&sample_timers, &index);

	if (sample_timer)
		arm(sample_timer, delay_ns);
	return 0;
}

/* A worker that was reported BLOCKED runs again. */
static __always_inline void woken(struct worker *worker, __u64 now)
{
	__u64 slept_ns = now - worker->asleep_ns, seq = worker->asleep_seq;

	worker->asleep_ns = 0;
	/* Nobody has to hurry for this one: it is read with the next event. */
	emit(worker, MORPHEUS_EVENT_WOKEN, seq, now, slept_ns, BPF_RB_NO_WAKEUP);
	if (seq && slept_ns >= worker->budget_ns) {
		struct morpheus_kernel_slot *kernel = kernel_slot(worker);

		if (kernel)
			give_verdict(worker, kernel, seq, MORPHEUS_VERDICT_STALLED);
	}
}

/* prev gives its CPU away. */
static __always_inline void switched_out(struct task_struct *prev, struct worker *worker, bool preempt, __u64 now)
{
	/* Not left unset where there is no slot: the compiler may read it all the same, which the verifier refuses. */
	struct words slot = {};
	bool has_slot = load_words(worker, &slot);
	unsigned int state = prev->__state;
	__u64 seq;

	/*
	 * It ran, and was not seen to be switched in. There are threads whose switches a kernel does not tell (seen on 6.18:
	 * of the first process's, never; ftrace and perf lack them, too), and who comes after them comes unseen.
	 */
	if (has_slot && worker->asleep_ns)
		woken(worker, now);
	if (has_slot)
		sample(worker, &slot, now, false);
	if (worker->since_ns)
		worker->ran_ns += now - worker->since_ns;
	else
		count(COUNTER_unseen_switches);
	worker->since_ns = 0;
	/* A preempted thread may be about to sleep, and does not yet. */
	if (!has_slot || preempt || !state || state & TASK_DEAD || !is_active(&slot))
		return;
	seq = watched_poll(&slot);
	worker->asleep_ns = now;
	worker->asleep_seq = seq;
	emit(worker, MORPHEUS_EVENT_BLOCKED, seq, now, 0, BPF_RB_FORCE_WAKEUP);
	/* Found when the poll ends. */
	if (seq) {
		struct morpheus_kernel_slot *kernel = kernel_slot(worker);

		if (kernel)
			give_verdict(worker, kernel, seq, MORPHEUS_VERDICT_BLOCKED);
	}
}

/* A worker gets this CPU. */
static __always_inline void switched_in(struct worker *worker, __u64 now)
{
	__u32 index = bpf_get_smp_processor_id();
	struct sample_timer *sample_timer;
	struct words slot;

	worker->since_ns = now;
	if (!load_words(worker, &slot))
		return;
	if (worker->asleep_ns)
		woken(worker, now);
	sample(worker, &slot, now, true);
	sample_timer = bpf_map_lookup_elem(&sample_timers, &index);
	if (sample_timer && !sample_timer->armed)
		arm(sample_timer, until_next_sample(worker, now));
}

SEC("tp_btf/sched_switch")
int BPF_PROG(on_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	struct worker *worker;
	__u64 now = 0;

	switching(next);
	if (!leases)
		return 0;
	if (is_of_live_process(prev)) {
		worker = bpf_task_storage_get(&workers, prev, 0, 0);
		if (worker && worker->lease) {
			now = bpf_ktime_get_ns();
			switched_out(prev, worker, preempt, now);
		}
	}
	if (is_of_live_process(next)) {
		worker = bpf_task_storage_get(&workers, next, 0, 0);
		if (worker && worker->lease)
			switched_in(worker, now ? now : bpf_ktime_get_ns());
	}
	return 0;
}

/*
 * Any timer interrupt of this CPU; the scheduler's tick is one, about every 4 ms on a CPU that is not idle. Finds a worker
 * that runs while its CPU's timer is not set: it was bound while it ran, or its switch was not seen. Sets the timer, so
 * that such a worker's budget ends at most a tick late, and not with its next switch.
 */
SEC("tp_btf/hrtimer_expire_entry")
int BPF_PROG(on_interrupt)
{
	__u32 index = bpf_get_smp_processor_id();
	struct sample_timer *sample_timer;
	struct task_struct *current;
	struct worker *worker;
	__u64 now;

	if (!leases)
		return 0;
	sample_timer = bpf_map_lookup_elem(&sample_timers, &index);
	if (!sample_timer || sample_timer->armed)
		return 0;
	current = bpf_get_current_task_btf();
	if (!is_of_live_process(current))
		return 0;
	worker = bpf_task_storage_get(&workers, current, 0, 0);
	if (!worker || !worker->lease)
		return 0;
	now = bpf_ktime_get_ns();
	if (worker->since_ns) {
		arm(sample_timer, until_next_sample(worker, now));
		return 0;
	}
	count(COUNTER_unseen_switches);
	switched_in(worker, now);
	return 0;
}
