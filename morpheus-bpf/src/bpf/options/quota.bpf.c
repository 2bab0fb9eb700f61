// SPDX-License-Identifier: GPL-2.0-only
/*
 * Limits of the CPU time of groups (cpu.max): accounts.
 *
 * A group has a quota for each period, and what its tasks use, wherever they run, is taken from its account and from those
 * of the groups that it is in. So the tightest limit counts. A new period is noticed by the CPU that looks first: while no
 * task waits, no timer runs.
 *
 * Use beyond the quota is owed and taken from the next periods. So the average is exact, and what is said of one period
 * is off by what was owed: how much that can be is in limit.bpf.h, where tasks are made to wait.
 */
#include "kernel/kernel.bpf.h"
#include <bpf/bpf_helpers.h>
#include "morpheus_abi.h"
#include "options/groups.bpf.h"

/* No group owes more than its quota of this time. */
#define MOST_OWED_NS 4000000000ULL
/* The CPU time left to groups without a limit. */
#define NO_LIMIT (1LL << 62)

/* A new period may have begun. */
static __always_inline void refill_group(struct group *group, __u64 now)
{
	__u64 quota = READ_ONCE(group->quota_ns), period = READ_ONCE(group->period_ns);
	__u64 began = READ_ONCE(group->began_ns), periods;
	__s64 left, most = quota + READ_ONCE(group->burst_ns), least;
	__u32 attempt;

	if (!period || before(now, began + period))
		return;
	periods = (now - began) / period;
	/* Another CPU has seen it, too. */
	if (__sync_val_compare_and_swap(&group->began_ns, began, began + periods * period) != began)
		return;
	if (periods > MOST_OWED_NS / period + 1)
		periods = MOST_OWED_NS / period + 1;
	least = -(__s64)(MOST_OWED_NS / period * quota);
	/* Others may be charged meanwhile. */
	bpf_for(attempt, 0, 16) {
		__s64 next;

		left = READ_ONCE(group->left_ns);
		next = (left < least ? least : left) + (__s64)(periods * quota);
		if (next > most)
			next = most;
		if (__sync_val_compare_and_swap(&group->left_ns, left, next) == left)
			return;
	}
}

/*
 * Takes what was used from a group's account and those above it. Returns the least that is left in one of them, and no more
 * than the slice in a group where many wait (limit.bpf.h).
 */
__s64 pay_quota(__u32 index, __u64 used_ns, __u64 now)
{
	__s64 least = NO_LIMIT;
	__u32 level;

	bpf_for(level, 0, MOST_LEVELS) {
		struct group *group = group_at(index);

		if (index == ROOT_GROUP || !group)
			break;
		if (READ_ONCE(group->quota_ns)) {
			__u64 slice = READ_ONCE(group->crowd_slice_ns);
			__s64 left;

			refill_group(group, now);
			left = __sync_fetch_and_add(&group->left_ns, -(__s64)used_ns) - (__s64)used_ns;
			if (slice && left > (__s64)slice)
				left = slice;
			if (left < least)
				least = left;
		}
		index = group->parent;
	}
	return least;
}

/*
 * Which of a group and those above it has used up its quota, or with `crowded` has more tasks waiting than its quota serves at
 * once; of several, the one next to the root. ROOT_GROUP: none.
 */
__u32 spent_group(__u32 index, bool crowded, __u64 now)
{
	__u32 spent = ROOT_GROUP, level;

	bpf_for(level, 0, MOST_LEVELS) {
		struct group *group = group_at(index);

		if (index == ROOT_GROUP || !group)
			break;
		if (READ_ONCE(group->quota_ns)) {
			refill_group(group, now);
			if (READ_ONCE(group->left_ns) <= 0 || (crowded && READ_ONCE(group->crowd_slice_ns)))
				spent = index;
		}
		index = group->parent;
	}
	return spent;
}

/* Sets or lifts a group's limit; in microseconds, as the kernel says it. */
int set_quota(__u32 index, __u64 period_us, __u64 quota_us, __u64 burst_us)
{
	bool limited = is_limit(period_us, quota_us), was_limited;
	struct group *group = group_at(index);

	if (!group)
		return 0;
	was_limited = group->quota_ns;
	group->period_ns = period_us * 1000;
	group->burst_ns = burst_us * 1000;
	group->began_ns = scx_now();
	group->left_ns = limited ? quota_us * 1000 : 0;
	WRITE_ONCE(group->quota_ns, limited ? quota_us * 1000 : 0);
	if (limited && !was_limited)
		__sync_fetch_and_add(&limit_count, 1);
	else if (!limited && was_limited)
		__sync_fetch_and_add(&limit_count, -1);
	return 0;
}

int refill(__u32 index, __u64 now)
{
	struct group *group = group_at(index);

	if (group)
		refill_group(group, now);
	return 0;
}
