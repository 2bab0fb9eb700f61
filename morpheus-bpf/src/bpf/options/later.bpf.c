// SPDX-License-Identifier: GPL-2.0-only
/*
 * Delayed preemption: a timer makes up for a kick that was skipped, when the running task has had `min_run_ns`, or when the pause
 * between two kicks of its kind is over.
 */
#include "kernel/kernel.bpf.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "morpheus_abi.h"
#include "policy/policy.bpf.h"

/* After this number of consecutive tasks that slept before `min_run_ns`, the running one is expected to sleep as soon, too. */
#define SHORT_RUNS 64

/* The timer of a CPU that is to be kicked later; any CPU arms and runs it. */
struct kick_timer {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct kick_timer);
} kick_timers SEC(".maps");

static int make_up(void *map, __u32 *index, struct kick_timer *kick_timer)
{
	struct cpu *cpu = cpu_at(*index);
	__u64 now = scx_now(), waits;

	if (!cpu)
		return 0;
	cpu->make_up_ns = 0;
	if (!cpu->since_ns || cpu->kicked)
		return 0;
	/* Another task runs there by now, and tasks that wake check that one. */
	if (before(now, cpu->began_ns + min_run_ns))
		return 0;
	waits = least_waiting(*index);
	if (waits != NO_VTIME && before(waits + margin_ns(cpu, TIER_INTERACTIVE), present_vtime(cpu, now))) {
		/* It is not known which task woke them. */
		cpu->sync_kicked_ns = now;
		kick(*index, cpu, COUNTER_kicks_made_up);
	}
	return 0;
}

int start_kick_timer(__u32 index)
{
	struct kick_timer *kick_timer = bpf_map_lookup_elem(&kick_timers, &index);

	if (!kick_timer)
		return -ESRCH;
	if (bpf_timer_init(&kick_timer->timer, &kick_timers, CLOCK_MONOTONIC))
		return -ENOMEM;
	return bpf_timer_set_callback(&kick_timer->timer, make_up);
}

/* Arms the timer of a CPU: for the end of `min_run_ns` of its task, and of the pause since the last such kick. */
int kick_later(__u32 index, const struct claim *claim, __u64 sync_ns)
{
	struct cpu *cpu = cpu_at(index);
	struct kick_timer *kick_timer;
	__u64 rest_ns;

	if (!cpu || !claim)
		return 0;
	rest_ns = cpu->began_ns + min_run_ns - claim->now;
	/* A tick comes as soon, and checks without a timer (preempt_at_tick). */
	if (sync_ns && tick_preemption_on && claim->pause_ns * jiffies_in_second >= 1000000000)
		return 0;
	/* Its task has run for longer. */
	if (rest_ns > min_run_ns)
		rest_ns = 0;
	/*
	 * Where tasks have only slept soon for a while, the running one will, too, and a timer for each would cost more than all
	 * of them.
	 */
	if (cpu->short_runs >= SHORT_RUNS)
		rest_ns *= 10;
	if (rest_ns < sync_ns)
		rest_ns = sync_ns;
	if (!rest_ns || (cpu->make_up_ns && before(cpu->make_up_ns, claim->now + rest_ns)))
		return 0;
	kick_timer = bpf_map_lookup_elem(&kick_timers, &index);
	if (!kick_timer)
		return 0;
	cpu->make_up_ns = claim->now + rest_ns;
	if (bpf_timer_start(&kick_timer->timer, rest_ns, 0))
		cpu->make_up_ns = 0;
	return 0;
}
