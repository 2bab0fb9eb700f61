// SPDX-License-Identifier: GPL-2.0-only
/*
 * The watch over workers: finds workers that sleep in a poll, and polls that use up their budget.
 *
 * The functions follow the life of a worker: it is switched in and out (on_switch), and sampled while it runs (tick; or
 * on_interrupt where that timer is not armed). The consequences are decided elsewhere (watch.bpf.h).
 */
#include "kernel/kernel.bpf.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "morpheus_abi.h"
#include "link/watch.bpf.h"

/*
 * The period of samples of a running worker, in ns. The start of a poll, and so the end of its budget, is seen up to one period
 * late. Each sample costs the worker a timer interrupt. `--timer-period-us`
 */
const volatile __u64 period_ns = 250000;
/* A poll over its budget is requested to yield. `--without request` */
const volatile bool requests_on = true;
/* A timer samples running workers. `--without timer` */
const volatile bool timer_on = true;

/* The timer of a CPU, used on that CPU only. */
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
 * Samples a worker: notes the CPU time at which its poll was first seen, and requests a yield when the budget is used up. A poll
 * counts from the first sample, so that no request comes too early.
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
	/* A hog has no budget: its process has marked it. */
	if (seq && used_ns < worker->budget_ns)
		return;
	if (!is_active(slot))
		return;
	kernel = kernel_slot(worker);
	if (!kernel)
		return;
	if (seq) {
		/* Grows during the poll, so that its CPU time is known at its end, to one period. */
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

/* The time until the next sample, in ns: the rest of the budget, up to a period. */
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

/* Samples the worker that runs on this CPU. The timer is not armed again if no worker runs. */
static int tick(void *map, __u32 *index, struct sample_timer *sample_timer)
{
	struct task_struct *current = bpf_get_current_task_btf();
	struct worker *worker;
	struct words slot;
	__u64 now, next, sooner;

	sample_timer->armed = 0;
	/* The timer was moved, as its CPU went offline. */
	if (*index != bpf_get_smp_processor_id())
		return 0;
	worker = bpf_task_storage_get(&workers, current, 0, 0);
	if (!worker)
		return 0;
	if (!load_words(worker, &slot))
		return 0;
	now = bpf_ktime_get_ns();
	count(COUNTER_samples);
	/* The worker was bound while it ran, or its switch was not seen. */
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

/* Reports that a worker runs again which was reported BLOCKED. */
static __always_inline void woken(struct worker *worker, __u64 now)
{
	__u64 slept_ns = now - worker->asleep_ns, seq = worker->asleep_seq;

	worker->asleep_ns = 0;
	/* No wakeup of the reader: it gets this event with the next one. */
	emit(worker, MORPHEUS_EVENT_WOKEN, seq, now, slept_ns, BPF_RB_NO_WAKEUP);
	if (seq && slept_ns >= worker->budget_ns) {
		struct morpheus_kernel_slot *kernel = kernel_slot(worker);

		if (kernel)
			give_verdict(worker, kernel, seq, MORPHEUS_VERDICT_STALLED);
	}
}

/* Accounts for a worker that loses its CPU, and reports it if it sleeps in a poll. */
static __always_inline void switched_out(struct task_struct *prev, struct worker *worker, bool preempt, __u64 now)
{
	/* Initialised also where there is no slot: the compiler may read it all the same, which the verifier refuses. */
	struct words slot = {};
	bool has_slot = load_words(worker, &slot);
	unsigned int state = prev->__state;
	__u64 seq;

	/*
	 * The switch to this worker was not seen. A kernel may not report the switches of a thread (seen on 6.18: of the first
	 * process's, none; ftrace and perf lack them, too), nor then the switch to the thread that follows.
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
	/* A preempted thread may be about to sleep, and is runnable until then. */
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

/* Starts to account for a worker that gets this CPU, and arms the timer. */
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
 * Finds a worker that runs while the timer of its CPU is not armed, at any timer interrupt of the CPU (the tick is one, about
 * every 4 ms on a busy CPU): the worker was bound while it ran, or its switch was not seen. Arms the timer, so that the budget of
 * such a worker ends at most a tick late, and not with its next switch.
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
