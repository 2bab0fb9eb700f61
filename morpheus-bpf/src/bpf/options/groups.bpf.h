/* SPDX-License-Identifier: GPL-2.0-only */
/* The common part of weights (groups.bpf.c), accounts (quota.bpf.c) and tasks that wait (limit.bpf.c) of groups. */
#ifndef MORPHEUS_GROUPS_BPF_H
#define MORPHEUS_GROUPS_BPF_H

#include "policy/policy.bpf.h"

#define MOST_GROUPS 4096
/* The queue of tasks that wait for the quota of the group with this index (limit.bpf.c). */
#define LIMIT_QUEUE(index) (1ULL << 33 | (index))
/* The last of them are for groups with a limit. */
#define RESERVED_GROUPS 512
#define FIRST_RESERVED (MOST_GROUPS - RESERVED_GROUPS)
/* A group is this deep below the root at most. */
#define MOST_LEVELS 16

struct group {
	/* The cgroup's number; 0: the index is free. */
	__u64 id;
	__u32 parent;
	__u32 level;
	__u32 weight;
	/* Its weight as it is counted in its parent at present, or 0. */
	__u32 counted;
	/* How many of its tasks, and of the groups in it, want the CPU, and the sum of their weights. */
	__u32 active;
	/* Of this index, there are the queue and the timer (limit.bpf.h). */
	__u32 prepared;
	/* The groups in it, at any depth. */
	__u32 below;
	__u32 padding;
	__u64 total;
	/* The CPU time in each period; 0: no limit. */
	__u64 quota_ns;
	__u64 period_ns;
	/* So much that was left over may be used later. */
	__u64 burst_ns;
	/* When the present period began, and what is left of its quota; less than 0 is owed. */
	__u64 began_ns;
	__s64 left_ns;
	/* When a task last had to wait for the next period; and its timer is armed. */
	__u64 waited_ns;
	__u32 armed;
	/* Tasks that were released from its queue and have not run since (limit.bpf.h). */
	__s32 released;
	/* While more tasks wait in its queue than its quota serves at once: the longest slice in the group; else 0. */
	__u64 crowd_slice_ns;
	/* When its queue was last looked at. */
	__u64 looked_ns;
};

struct groups {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, MOST_GROUPS);
	__type(key, __u32);
	__type(value, struct group);
};

SHARED(struct groups groups SEC(".maps"));

/* Where a task belongs, and what it is counted as. */
struct member {
	__u64 cgroup;
	/* The group's `id`: the index may have got another one. */
	__u64 id;
	__u32 index;
	/* Of its own, as it is counted; 0: not counted. */
	__u32 counted;
	/* Effective, in parts of 1024. */
	__u32 weight;
	/* The group from whose queue it was released and has not run since, or ROOT_GROUP (limit.bpf.h). */
	__u32 released;
	/* `group_epoch` when it was seen. */
	__u32 epoch;
	__u32 padding;
};

struct members {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct member);
};

SHARED(struct members members SEC(".maps"));

static __always_inline struct group *group_at(__u32 index)
{
	return bpf_map_lookup_elem(&groups, &index);
}

/* A task that was released from the queue of a group runs now, or waits anew. */
static __always_inline void end_release(struct member *member)
{
	struct group *group = group_at(member->released);

	member->released = ROOT_GROUP;
	if (group)
		__sync_fetch_and_add(&group->released, -1);
}

/* Whether this is a limit, as the kernel says it. */
static __always_inline bool is_limit(__u64 period_us, __u64 quota_us)
{
	return quota_us != ~0ULL && quota_us && period_us;
}

/* Finds where a task belongs. Returns whether it had been seen elsewhere, or never. */
bool find_group(struct task_struct *task __arg_trusted, struct member *member);
/* Which of a group and those above it has used up its quota (quota.bpf.c). */
__u32 spent_group(__u32 index, bool crowded, __u64 now);
int refill(__u32 index, __u64 now);
int set_quota(__u32 index, __u64 period_us, __u64 quota_us, __u64 burst_us);
/* Prepares an index for a group with a limit, once for each; and a limit was set or lifted, or the group goes (limit.bpf.c). */
int prepare_limit(__u32 index);
int limit_changed(__u32 index);

#endif /* MORPHEUS_GROUPS_BPF_H */
