// SPDX-License-Identifier: GPL-2.0-only
/*
 * Speed requests: how fast a CPU should be, for the governor schedutil, which asks the scheduler.
 *
 * The kernel's own scheduler reports how busy a CPU has been. A task that wakes now and then and has little to do is so served
 * slowly on an idle machine, and more slowly the less often it wakes. Here a CPU requests full speed when a worker that serves is
 * switched in: its slot says that it runs, it is in no poll over its budget, and it is no hog. A handed-off poll is that of a
 * slow task, and a controller is done before a change would help. A critical section counts while its poll is within the budget:
 * a worker that claims one for ever is stalled, and gets the speed of others.
 *
 * The same holds for a LAT_CRITICAL task (classify.bpf.h), which wakes often and does little, or is on the list of `--boost`:
 * others wait for it. The slot of a worker says that, and its tier says nothing. Kernel threads are left out: many wake that
 * often on an idle machine while no task waits for them. INTERACTIVE tasks have no floor. A new task is INTERACTIVE, and so is
 * nearly each task that wakes on an idle machine, timers and daemons: a floor for these would be the speed of an idle machine.
 * Those that others wait for wake often enough to become LAT_CRITICAL.
 *
 * All other tasks get the speed that they use: the busy part of the CPU's time, of which half is forgotten in 34 ms, as in the
 * kernel's own scheduler.
 *
 * A change takes time, and a governor refuses a change soon after another one. So full speed is kept for `hold_ns` after the last
 * request for it, an idle CPU requests none only after the same time, and a request is repeated at each switch to such a worker,
 * each sample and each tick. (Where the kernel cannot measure the speed of a CPU, schedutil goes up by a quarter each time.)
 */
#include "kernel/kernel.bpf.h"
#include <bpf/bpf_helpers.h>
#include "morpheus_abi.h"
#include "link/loan.bpf.h"

/* LAT_CRITICAL tasks request full speed, and not only workers. `--without cpuperf-tiers` */
const volatile bool cpuperf_tiers_on = true;
/* Full speed is kept for this time after the last request for it, in ns: a governor refuses a change soon after another. */
const volatile __u64 hold_ns = 20000000;

/* SCX_CPUPERF_ONE, which no kernel has as a type: the capacity of a CPU at full speed. */
#define FULL_SPEED 1024
/* Fractional bits of the use of a CPU. */
#define USE_SHIFT 20
#define FULL_USE ((__u64)FULL_SPEED << USE_SHIFT)
/* 2^25 ns are 34 ms. */
#define HALF_LIFE_SHIFT 25
/* Smaller changes wait for the tick. */
#define SPEED_STEP (FULL_SPEED / 16)

/* The state of a CPU, used on that CPU only. */
struct speed {
	/* Armed when the CPU may be about to become idle. */
	struct bpf_timer timer;
	/* The busy part of its time, up to `counted_ns`. */
	__u64 use;
	__u64 counted_ns;
	/* The time of the last request for full speed. */
	__u64 served_ns;
	/* The last request. */
	__u32 asked;
	/* A task of this scheduler runs. */
	__u32 busy;
	__u32 armed;
	__u32 padding;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct speed);
} speeds SEC(".maps");

static __always_inline struct speed *speed_at(__s32 index)
{
	__u32 key = index;

	return bpf_map_lookup_elem(&speeds, &key);
}

/* Counts the time since the last call as busy or not. The decay is linear within a half-life. */
static __always_inline void count_use(struct speed *speed, __u64 now)
{
	__u64 passed_ns = now - speed->counted_ns, away;

	if (before(now, speed->counted_ns))
		return;
	speed->counted_ns = now;
	away = speed->busy ? FULL_USE - speed->use : speed->use;
	if (passed_ns >> HALF_LIFE_SHIFT >= 32) {
		away = 0;
	} else {
		away >>= passed_ns >> HALF_LIFE_SHIFT;
		away -= away * (passed_ns & ((1ULL << HALF_LIFE_SHIFT) - 1)) >> (HALF_LIFE_SHIFT + 1);
	}
	speed->use = speed->busy ? FULL_USE - away : away;
}

static __always_inline void ask(__s32 index, struct speed *speed, __u32 speed_wanted)
{
	speed->asked = speed_wanted;
	if (bpf_ksym_exists(scx_bpf_cpuperf_set))
		scx_bpf_cpuperf_set(index, speed_wanted);
}

/* Requests full speed. */
static __always_inline void ask_for_all(__s32 index, struct speed *speed, __u64 now)
{
	speed->served_ns = now;
	ask(index, speed, FULL_SPEED);
}

/* Requests full speed for a worker that serves. */
static __always_inline void ask_for_worker(__s32 index, struct speed *speed, __u64 now)
{
	count(speed->asked == FULL_SPEED ? COUNTER_full_speed_kept : COUNTER_full_speed);
	ask_for_all(index, speed, now);
}

/* Requests full speed for a LAT_CRITICAL task. */
static __always_inline void ask_for_tier(__s32 index, struct speed *speed, __u64 now)
{
	count(speed->asked == FULL_SPEED ? COUNTER_full_speed_for_tier_kept : COUNTER_full_speed_for_tier);
	ask_for_all(index, speed, now);
}

/* Whether the tier of the running task asks for full speed. */
static __always_inline bool is_fast_by_tier(const struct cpu *cpu)
{
	return cpuperf_tiers_on && cpu && cpu->tier == TIER_LAT_CRITICAL && !cpu->worker && !cpu->kernel;
}

/* The request where no such task runs. */
static __always_inline __u32 speed_by_use(const struct speed *speed, __u64 now)
{
	return before(now, speed->served_ns + hold_ns) ? FULL_SPEED : speed->use >> USE_SHIFT;
}

/*
 * Whether others wait for what a worker does. A worker that is just switched in may have been woken from a park or a hold, and
 * had no time to say so.
 */
static __always_inline bool is_urgent(struct worker *worker, const struct words *slot, bool begins)
{
	return serves(worker, slot) &&
	       !(slot->flags & (MORPHEUS_SLOT_CONTROLLER | MORPHEUS_SLOT_HANDOFF)) &&
	       (begins || is_active(slot));
}

/* Requests the speed for a task that is switched in. The state of the CPU already describes that task. */
int speed_at_start(struct task_struct *task __arg_trusted, __s32 index, __u64 now)
{
	struct worker *worker = worker_of(task);
	struct speed *speed = speed_at(index);
	__u32 wanted, asked;
	struct words slot;

	if (!speed)
		return 0;
	count_use(speed, now);
	speed->busy = 1;
	if (worker && load_words(worker, &slot) && is_urgent(worker, &slot, true)) {
		ask_for_worker(index, speed, now);
		return 0;
	}
	if (is_fast_by_tier(cpu_at(index))) {
		ask_for_tier(index, speed, now);
		return 0;
	}
	wanted = speed_by_use(speed, now);
	asked = speed->asked;
	if (wanted > asked + SPEED_STEP || asked > wanted + SPEED_STEP)
		ask(index, speed, wanted);
	return 0;
}

/* Requests the speed at a tick, the only request for tasks that are no workers and run on. */
int speed_at_tick(struct task_struct *task __arg_trusted, __s32 index, __u64 now)
{
	struct worker *worker = worker_of(task);
	struct speed *speed = speed_at(index);
	struct words slot;

	if (!speed)
		return 0;
	count_use(speed, now);
	if (worker && load_words(worker, &slot) && is_urgent(worker, &slot, false))
		ask_for_worker(index, speed, now);
	else if (is_fast_by_tier(cpu_at(index)))
		ask_for_tier(index, speed, now);
	else
		ask(index, speed, speed_by_use(speed, now));
	return 0;
}

/* Requests the speed at a sample of a running worker. A worker that no longer serves keeps full speed for `hold_ns`. */
int speed_at_sample(struct worker *worker, const struct words *slot, __u64 now)
{
	__s32 index = bpf_get_smp_processor_id();
	struct speed *speed = speed_at(index);

	if (speed && worker && slot && is_urgent(worker, slot, false))
		ask_for_worker(index, speed, now);
	return 0;
}

/* Counts the time of a task that is switched out. */
int speed_at_end(__s32 index, __u64 now)
{
	struct speed *speed = speed_at(index);

	if (!speed)
		return 0;
	count_use(speed, now);
	speed->busy = 0;
	if (speed->asked && !speed->armed)
		speed->armed = !bpf_timer_start(&speed->timer, hold_ns, timer_flags);
	return 0;
}

/* Drops the request of an idle CPU: where several CPUs share a speed, the others would have it, too. */
static int speed_at_rest(void *map, __u32 *index, struct speed *speed)
{
	__u64 now = scx_now();

	speed->armed = 0;
	/* The timer was moved, as its CPU went offline; or the CPU is not idle, and the end of its task arms the timer again. */
	if (*index != bpf_get_smp_processor_id() || speed->busy)
		return 0;
	if (before(now, speed->counted_ns + hold_ns)) {
		speed->armed = !bpf_timer_start(&speed->timer, speed->counted_ns + hold_ns - now, timer_flags);
		return 0;
	}
	count(COUNTER_speed_dropped);
	ask(*index, speed, 0);
	return 0;
}

/* Prepares a CPU; called once for each. */
int start_speed(__u32 index)
{
	struct speed *speed = speed_at(index);

	if (!speed)
		return -ESRCH;
	/* The kernel starts with full speed and has told no governor. This value makes the first request differ. */
	speed->asked = 2 * FULL_SPEED;
	speed->counted_ns = scx_now();
	/* Long ago. */
	speed->served_ns = speed->counted_ns - hold_ns;
	if (bpf_timer_init(&speed->timer, &speeds, CLOCK_MONOTONIC))
		return -ENOMEM;
	return bpf_timer_set_callback(&speed->timer, speed_at_rest);
}
