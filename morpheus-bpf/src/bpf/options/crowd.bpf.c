// SPDX-License-Identifier: GPL-2.0-only
/*
 * Crowds: where many tasks wait for a CPU, slices are shorter, so that a round of all of them takes ROUND_NS.
 *
 * A slice is a few milliseconds, and the kernel ends it at the first tick after that: sixty tasks have a round of half a second.
 * With more of them a timer of the CPU ends each slice on time, from LEAST_SLICE_NS on. The rescue timer (rescue.bpf.c) computes
 * the longest slice of each CPU (`crowd_slice_ns`, `rescued_slice_ns`), so that a switch counts no tasks.
 *
 * The timer is not armed for each slice: when it expires it reads the end of the present slice. So it expires about as often as
 * slices end on time, however short the slices are that end earlier by a sleep.
 */
#include "kernel/kernel.bpf.h"
#include <bpf/bpf_helpers.h>
#include "morpheus_abi.h"
#include "link/watch.bpf.h"
#include "options/crowd.bpf.h"

/* The least delay of the timer, in ns; and the time after its expiry from which it is armed anew, as lost. */
#define SHORTEST_TIMER_NS 100000ULL
#define LOST_NS 10000000ULL
/* The timer of a CPU that ends slices. */
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
	 * No task runs, or the crowd has gone: the next bounded slice arms it. The same where the timer was moved to another CPU,
	 * since a kick from there may arrive after the slice and end the next one.
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

/* Bounds the slice of a task that is switched in. */
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
