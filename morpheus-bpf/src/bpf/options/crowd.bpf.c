// SPDX-License-Identifier: GPL-2.0-only
/*
 * Crowds: where many tasks wait for a CPU, turns are shorter, so that a round of all of them takes ROUND_NS.
 *
 * A turn is a slice of a few milliseconds, and the kernel ends it at the first tick after that. Sixty tasks have a round of
 * half a second then. With more of them a timer of the CPU ends each turn on time, from LEAST_SLICE_NS on. How long turns
 * may be is computed by the timer of rescue.bpf.h, for each CPU (`most_ns`, `rescued_slice_ns`), so that nothing is counted
 * when a task is switched in.
 *
 * The timer is armed once, and not for each turn: when it comes it looks when the present turn ends. So it comes about as
 * often as turns end on time, however short those are that sleep earlier.
 */
#include "kernel/kernel.bpf.h"
#include <bpf/bpf_helpers.h>
#include "morpheus_abi.h"
#include "link/watch.bpf.h"
#include "options/crowd.bpf.h"

/* The timer looks again after this time at least, and is armed anew if it did not come for LOST_NS. */
#define SHORTEST_TIMER_NS 100000ULL
#define LOST_NS 10000000ULL
/* Of a CPU, ends turns. */
struct slice_timer {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct slice_timer);
} slice_timers SEC(".maps");

static __always_inline void arm_slice_timer(__u32 index, struct cpu *cpu, __u64 now, __u64 rest_ns)
{
	struct slice_timer *slice_timer = bpf_map_lookup_elem(&slice_timers, &index);

	if (rest_ns < SHORTEST_TIMER_NS)
		rest_ns = SHORTEST_TIMER_NS;
	cpu->slice_timer_ns = now + rest_ns;
	if (slice_timer)
		bpf_timer_start(&slice_timer->timer, rest_ns, timer_flags);
}

static int slice_ended(void *map, __u32 *index, struct slice_timer *slice_timer)
{
	struct cpu *cpu = cpu_at(*index);
	__u64 now = scx_now(), end_ns;

	if (!cpu)
		return 0;
	/*
	 * Nothing runs, or the crowd has gone: the next turn that is to be bounded arms it. So it does where the timer was moved
	 * to another CPU, since a kick from there may arrive after the turn, and end the next one.
	 */
	if (!cpu->since_ns || !(cpu->crowd_slice_ns | cpu->rescued_slice_ns) || *index != bpf_get_smp_processor_id()) {
		cpu->slice_timer_ns = 0;
		return 0;
	}
	end_ns = cpu->slice_end_ns;
	if (cpu->extended_until_ns && before(end_ns, cpu->extended_until_ns))
		end_ns = cpu->extended_until_ns;
	if (!before(now, end_ns)) {
		if (!cpu->kicked && !cpu->kernel)
			kick(*index, cpu, COUNTER_kicks_in_crowd);
		end_ns = now + LEAST_SLICE_NS;
	} else if (before(now + slice_ns, end_ns)) {
		end_ns = now + slice_ns;
	}
	arm_slice_timer(*index, cpu, now, end_ns - now);
	return 0;
}

int start_slice_timer(__u32 index)
{
	struct slice_timer *slice_timer = bpf_map_lookup_elem(&slice_timers, &index);

	if (!slice_timer)
		return -ESRCH;
	if (bpf_timer_init(&slice_timer->timer, &slice_timers, CLOCK_MONOTONIC))
		return -ENOMEM;
	return bpf_timer_set_callback(&slice_timer->timer, slice_ended);
}

/* A task is switched in. */
int bound_slice(struct task_struct *task __arg_trusted, __u32 index, __u64 most_ns, __u64 now)
{
	struct cpu *cpu = cpu_at(index);

	if (!cpu)
		return 0;
	if (task->scx.slice > most_ns)
		set_slice(task, most_ns);
	if (!cpu->slice_timer_ns || before(cpu->slice_timer_ns + LOST_NS, now) || before(now + most_ns, cpu->slice_timer_ns))
		arm_slice_timer(index, cpu, now, most_ns);
	return 0;
}
