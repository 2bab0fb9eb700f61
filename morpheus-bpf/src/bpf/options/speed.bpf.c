// SPDX-License-Identifier: GPL-2.0-only
/*
 * How fast a CPU should be, for a governor that asks the scheduler: schedutil.
 *
 * The kernel's own scheduler tells it how busy a CPU has been. So who wakes now and then and has little to do is served
 * slowly, on a machine that is all but idle, and the more slowly the less often it wakes. Here a CPU asks for its full
 * speed as soon as a worker that serves is switched in. Such a worker is one that others wait for: its slot says that it
 * runs, it is in no poll that is over its budget, and it is no hog. A poll in place is a known offender's, and a controller
 * is done before a change would help. A critical section counts as long as its poll is within the budget: who claims one
 * for ever is stalled, and gets what others get.
 *
 * The same goes for who is LAT_CRITICAL (behaviour.bpf.h): a task that wakes often and does little, or that is in the list
 * of those that go first, is one that somebody waits for. Of a worker its slot says that, and its tier says nothing. Threads
 * of the kernel are left out: many wake that often on an idle machine, for nobody. INTERACTIVE tasks have no floor. A task
 * begins as one, and so is nearly all that wakes on an idle machine, timers and daemons: a floor for these would be the
 * speed that an idle machine has. Whoever of them is waited for wakes often enough to become LAT_CRITICAL.
 *
 * All others get what they use: the part of the time that the CPU was busy, of which half is forgotten in 34 ms, as the
 * kernel's own scheduler has it.
 *
 * A change takes time, and a governor refuses one that comes soon after another. So full speed is kept for `hold_ns` after
 * the last look at who asked for it, an idle CPU asks for nothing only after as long, and what is asked is asked again at
 * each switch to such a worker, each look and each tick. (Where the kernel cannot measure a CPU's speed, schedutil goes up
 * in steps of a quarter, one each time.)
 */
#include "kernel/kernel.bpf.h"
#include <bpf/bpf_helpers.h>
#include "morpheus_abi.h"
#include "link/loan.bpf.h"

/* Tiers count, and not only what slots say. */
const volatile bool cpuperf_tiers_on = true;
const volatile __u64 hold_ns = 20000000;

/* SCX_CPUPERF_ONE, which no kernel has as a type: the capacity of a CPU at full speed. */
#define FULL_SPEED 1024
/* Use is counted in parts of it. */
#define USE_SHIFT 20
#define FULL_USE ((__u64)FULL_SPEED << USE_SHIFT)
/* 2^25 ns are 34 ms. */
#define HALF_LIFE_SHIFT 25
/* Smaller changes wait for the tick. */
#define SPEED_STEP (FULL_SPEED / 16)

/* One for each CPU, and used on that one only. */
struct speed {
	/* Armed where the CPU may be about to become idle. */
	struct bpf_timer timer;
	/* How much of the time it was busy, up to `counted_ns`. */
	__u64 use;
	__u64 counted_ns;
	/* When somebody was last seen here who is to be served fast. */
	__u64 served_ns;
	/* What was last asked for. */
	__u32 asked;
	/* One of our tasks runs. */
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

/* Counts the time since the last call as busy or not. Within a half-life it goes in a straight line. */
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

/* Somebody runs here who is to be served fast. */
static __always_inline void ask_for_all(__s32 index, struct speed *speed, __u64 now)
{
	speed->served_ns = now;
	ask(index, speed, FULL_SPEED);
}

/* A worker that serves. */
static __always_inline void ask_for_worker(__s32 index, struct speed *speed, __u64 now)
{
	count(speed->asked == FULL_SPEED ? COUNTER_full_speed_kept : COUNTER_full_speed);
	ask_for_all(index, speed, now);
}

/* A task of the tier LAT_CRITICAL. */
static __always_inline void ask_for_tier(__s32 index, struct speed *speed, __u64 now)
{
	count(speed->asked == FULL_SPEED ? COUNTER_full_speed_for_tier_kept : COUNTER_full_speed_for_tier);
	ask_for_all(index, speed, now);
}

/* Whether the task that runs here is to be served fast for its tier. */
static __always_inline bool is_fast_by_tier(const struct cpu *cpu)
{
	return cpuperf_tiers_on && cpu && cpu->tier == TIER_LAT_CRITICAL && !cpu->worker && !cpu->kernel;
}

/* What is to be asked for where none of these runs. */
static __always_inline __u32 speed_by_use(const struct speed *speed, __u64 now)
{
	return before(now, speed->served_ns + hold_ns) ? FULL_SPEED : speed->use >> USE_SHIFT;
}

/*
 * Whether others wait for what a worker does. Who is just switched in may have been woken from a park or a hold a moment
 * ago, and not have had the time to say so.
 */
static __always_inline bool is_urgent(struct worker *worker, const struct words *slot, bool begins)
{
	return serves(worker, slot) &&
	       !(slot->flags & (MORPHEUS_SLOT_CONTROLLER | MORPHEUS_SLOT_HANDOFF)) &&
	       (begins || is_active(slot));
}

/* A task is switched in; what is known of it is known of the CPU by now. */
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

/* A tick: the only look at who is no worker. */
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

/* A running worker is looked at, by a timer. Who does not serve any more keeps the speed for `hold_ns`. */
int speed_at_sample(struct worker *worker, const struct words *slot, __u64 now)
{
	__s32 index = bpf_get_smp_processor_id();
	struct speed *speed = speed_at(index);

	if (speed && worker && slot && is_urgent(worker, slot, false))
		ask_for_worker(index, speed, now);
	return 0;
}

/* A task is switched out. */
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

/* An idle CPU needs no speed. Where several share one, the others would have it, too. */
static int speed_at_rest(void *map, __u32 *index, struct speed *speed)
{
	__u64 now = scx_now();

	speed->armed = 0;
	/* The CPU went away, and its timer moved; or it is not idle, and who runs there will go. */
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

/* To be called once for each CPU. */
int start_speed(__u32 index)
{
	struct speed *speed = speed_at(index);

	if (!speed)
		return -ESRCH;
	/* The kernel begins with full speed, and has told no governor: nobody wants the same. */
	speed->asked = 2 * FULL_SPEED;
	speed->counted_ns = scx_now();
	/* For long before. */
	speed->served_ns = speed->counted_ns - hold_ns;
	if (bpf_timer_init(&speed->timer, &speeds, CLOCK_MONOTONIC))
		return -ENOMEM;
	return bpf_timer_set_callback(&speed->timer, speed_at_rest);
}
