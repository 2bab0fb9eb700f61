// SPDX-License-Identifier: GPL-2.0-only
/*
 * Detection of bursts and long runs of the whole machine, at ticks and without a timer: one CPU in each window of 10 ms.
 *
 * A *burst* is a storm of new work. Either of two detectors finds it:
 * - CUSUM (E. S. Page, Continuous Inspection Schemes, 1954) on the rate of enqueues: it sums up what each window has beyond the
 *   average and a quarter of it, and subtracts what a window lacks. It finds any change that lasts, and needs an average from
 *   before.
 * - New tasks, and wake-ups of immature tasks, against a fixed number: forks, from the first window on.
 *
 * A *long run* is a main DSQ that has not been empty for two seconds: some tasks compute all the time.
 */
#include "kernel/kernel.bpf.h"
#include <bpf/bpf_helpers.h>
#include "morpheus_abi.h"
#include "policy/policy.bpf.h"

/* The number of new tasks, and of wake-ups of immature tasks, in a window that makes a burst. src/scaling.rs sets it. */
const volatile __u32 burst_wakeups = 10;

#define WINDOW_NS 10000000ULL
/* The number of windows that make the first average. */
#define WARM_UP 16
/* An average moves by a sixteenth of each new value. */
#define BASELINE_SHIFT 4
/* The sum that makes a burst: this number of averages, and at least BURST_LEAST enqueues. */
#define BURST_AVERAGES 4
#define BURST_LEAST 64
/* A burst that lasts longer, in ns, is the usual load: the average starts anew. */
#define BURST_MOST_NS 1000000000ULL
#define LONGRUN_AFTER_NS 2000000000ULL

struct detectors {
	__u64 window_ns;
	/* The sums of all CPUs at the end of the last window. */
	__u64 enqueues;
	__u64 strangers;
	/* The average of earlier windows, in 1/16 enqueues. */
	__u64 baseline;
	__u64 sum;
	__u64 burst_since_ns;
	__u64 busy_since_ns;
	__u64 windows;
};

struct detectors detectors;

/* Whether the rate of enqueues has changed. The window took `passed_ns`. */
static __always_inline bool has_changed(__u64 enqueues, __u64 passed_ns)
{
	__u64 rate = (enqueues << BASELINE_SHIFT) * WINDOW_NS / passed_ns, usual;

	if (detectors.windows < WARM_UP) {
		detectors.windows++;
		detectors.baseline += (rate - detectors.baseline) / detectors.windows;
		return false;
	}
	usual = detectors.baseline + (detectors.baseline >> 2);
	if (rate > usual)
		detectors.sum += rate - usual;
	else
		detectors.sum -= usual - rate < detectors.sum ? usual - rate : detectors.sum;
	/* A change must not become the average while it is being detected. */
	if (!detectors.sum)
		detectors.baseline = detectors.baseline - (detectors.baseline >> BASELINE_SHIFT) +
				     (rate >> BASELINE_SHIFT);
	return detectors.sum > BURST_AVERAGES * detectors.baseline + (BURST_LEAST << BASELINE_SHIFT);
}

static __always_inline void detect_burst(__u64 now, __u64 passed_ns)
{
	__u64 enqueues = 0, strangers = 0;
	bool changed, storm;
	__u32 index;

	/* Each CPU counts in a line of its own, so that a wake-up writes to no shared line. */
	bpf_for(index, 0, cpu_count) {
		const struct cpu *cpu = cpu_at(index);

		if (!cpu)
			break;
		enqueues += READ_ONCE(cpu->enqueues);
		strangers += READ_ONCE(cpu->strangers);
	}
	enqueues -= detectors.enqueues;
	detectors.enqueues += enqueues;
	strangers -= detectors.strangers;
	detectors.strangers += strangers;
	changed = cusum_on && has_changed(enqueues, passed_ns);
	storm = wakeup_burst_on && strangers * WINDOW_NS / passed_ns > burst_wakeups;

	if (changed || storm) {
		if (!burst_now) {
			detectors.burst_since_ns = now;
			WRITE_ONCE(burst_now, 1);
			count(changed ? COUNTER_bursts_by_rate : COUNTER_bursts_by_wakes);
		} else if (changed && now - detectors.burst_since_ns > BURST_MOST_NS) {
			detectors.sum = 0;
			detectors.windows = 0;
			detectors.baseline = 0;
		}
	} else if (burst_now && (!cusum_on || !detectors.sum || detectors.windows < WARM_UP)) {
		WRITE_ONCE(burst_now, 0);
	}
}

/* The longest time that a main DSQ with tasks went without service, in ns. The daemon reads it and resets it. */
__u64 batch_waits_ns;

static __always_inline void detect_longrun(__u64 now)
{
	__u32 index;
	bool busy = false;

	bpf_for(index, 0, domain_count) {
		struct domain *domain = domain_at(index);
		__u64 waits_ns;

		if (!domain || scx_bpf_dsq_nr_queued(MAIN_DSQ(index)) <= 0)
			continue;
		busy = true;
		/* The clock of the other CPU may be ahead. */
		waits_ns = now - READ_ONCE(domain->main_served_ns);
		if ((__s64)waits_ns > (__s64)batch_waits_ns)
			WRITE_ONCE(batch_waits_ns, waits_ns);
	}
	if (!longrun_on)
		return;
	if (!busy) {
		detectors.busy_since_ns = 0;
		WRITE_ONCE(longrun_now, 0);
	} else if (!detectors.busy_since_ns) {
		detectors.busy_since_ns = now;
	} else if (!longrun_now && now - detectors.busy_since_ns > LONGRUN_AFTER_NS) {
		WRITE_ONCE(longrun_now, 1);
		count(COUNTER_longruns);
	}
}

/* At a tick of any CPU. */
int detect(__u64 now)
{
	__u64 began_ns = READ_ONCE(detectors.window_ns), passed_ns = now - began_ns;

	if ((__s64)passed_ns < (__s64)WINDOW_NS)
		return 0;
	/* One CPU takes the window. */
	if (__sync_val_compare_and_swap(&detectors.window_ns, began_ns, now) != began_ns)
		return 0;
	detect_burst(now, passed_ns);
	detect_longrun(now);
	return 0;
}
