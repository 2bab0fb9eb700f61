// SPDX-License-Identifier: GPL-2.0-only
/*
 * Groups of tasks (cgroups) with weights (cpu.weight).
 *
 * Weights are flattened. A group shares what its parent has with the parent's other groups and tasks that want the CPU, each
 * by its weight, as with the kernel's own scheduler; so a task's effective weight is
 *
 *	own weight * product over its groups up to the root of (weight of the group / sum of weights that want the CPU in it)
 *
 * Tasks of the root group keep their own: what is said of groups is relative to those. Charged by this weight (charge,
 * queue.bpf.h), all of the machine's tasks stay in the same queues, in which a group has no place of its own. Ten threads
 * of a group are charged ten times as much as one of another of the same weight, and both groups get the same. It costs one
 * walk to the root each time that a task is switched in, and no queue that could run empty or starve.
 *
 * A group's sums are read by all CPUs, and tasks come and go far more often than the sums change by much. So each CPU first keeps
 * what its tasks add and take away to itself (struct pending), and adds the balance to the group at its next tick, or when it is
 * about to idle: a task that sleeps and wakes within a tick writes to no line that CPUs share. Sums are late by a tick at most.
 *
 * Tasks that want the CPU are counted where they come by in any case (enqueue, running, stopping), and not in callbacks of
 * their own (runnable, quiescent), which would be called where there are no groups, too. For the same reason there are no
 * callbacks for moves between groups: a task that waits or runs is put into a queue anew when it is moved, one that sleeps
 * when it wakes, and then it is seen where it is. A task remembers what it was counted as, so that it can be taken back.
 *
 * A group is found by its cgroup's number, which the kernel never uses again; by index from then on. There may be
 * MOST_GROUPS, MOST_LEVELS deep: others are merged, that is, they count as part of the next one above that has an index. Some
 * indices are kept for groups with a limit (cpu.max), since nothing holds a limit but a group of its own: a merged group gets
 * one of them when a limit is set for it. Limits for which none is left are counted (limits_lost), and the daemon says so.
 * One part of the tree does not get all indices, since it may be a user's own: up to half of them are for the groups in one next to
 * the root, a quarter for those one level deeper, and so on to a 16th (share_of).
 */
#include "kernel/kernel.bpf.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "morpheus_abi.h"
#include "options/groups.bpf.h"

/* Off: a group's weight is that of its tasks. */
/* A cgroup deeper than this below one with an index counts as part of the root. */
#define MOST_DEPTH 256
/* The least effective weight: a 64th. The charge for a turn then is some 6,000 times the turn, and is waited for. */
#define LEAST_WEIGHT (1U << WEIGHT_SHIFT >> 6)
/* Of the products on the way there. A task's weight and a group's have 14 bits each. */
#define PRODUCT_SHIFT 30

/* The index of a cgroup's group, by the cgroup's number. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, MOST_GROUPS);
	__type(key, __u64);
	__type(value, __u32);
} group_indices SEC(".maps");

/* A cgroup without an index. */
struct merged {
	__u32 weight;
	/* A cgroup below it has an index, and has the group above this one as its parent. */
	__u32 passed;
};

/* By the cgroup's number. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16 * MOST_GROUPS);
	__type(key, __u64);
	__type(value, struct merged);
} merged_groups SEC(".maps");

/* The amounts that the tasks of one CPU have added to a group's `total` and `active`, and that are not there yet. */
struct pending {
	/* The group's `id`: the index may have got another one. */
	__u64 id;
	__s64 total;
	__s32 active;
	__u32 index;
};

/* A CPU keeps changes of this number of groups, whose indices differ modulo it; a power of two. */
#define PENDING 8

struct pendings {
	struct pending of[PENDING];
	/* Something was kept since the groups were last told. */
	__u32 dirty;
	__u32 padding;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct pendings);
} pendings SEC(".maps");

/* Goes up when a merged group gets an index: where tasks belong, as they remember it, may be out of date. */
__u32 group_epoch;

/* Where to look for the next index, of all and of the reserved ones. */
__u32 group_cursor;
__u32 reserved_cursor;

__u32 group_weight(struct task_struct *task __arg_trusted)
{
	if (group_weights_on) {
		struct member *member = bpf_task_storage_get(&members, task, 0, 0);

		if (member && member->weight)
			return member->weight;
	}
	return own_weight(task) << WEIGHT_SHIFT;
}

/*
 * Counts a group in its parent by what it weighs now, if a task in it wants the CPU; and so on upwards, where that makes a
 * difference. Others do the same at the same time, without a lock: a CPU that changes something looks afterwards whether
 * its count is still right, so that the last one leaves it right.
 */
int count_group(__u32 index)
{
	__u32 step;

	/* Twice as often as there are levels: for those that have to be looked at again. */
	bpf_for(step, 0, 2 * MOST_LEVELS) {
		struct group *group = group_at(index), *parent;
		__u32 due, old;

		if (index == ROOT_GROUP || !group)
			break;
		parent = group_at(group->parent);
		if (!parent)
			break;
		/* Less than 0: one CPU has told that a task sleeps before another that it wanted the CPU. */
		due = (__s32)READ_ONCE(group->active) > 0 ? READ_ONCE(group->weight) : 0;
		if (READ_ONCE(group->counted) != due) {
			old = __sync_lock_test_and_set(&group->counted, due);
			__sync_fetch_and_add(&parent->total, (__u64)due - old);
			if (!old && due)
				__sync_fetch_and_add(&parent->active, 1);
			else if (old && !due)
				__sync_fetch_and_add(&parent->active, -1);
			continue;
		}
		index = group->parent;
	}
	return 0;
}

/* A task's effective weight, by its own. */
__u32 weight_in(__u32 index, __u32 own)
{
	__u64 weight = (__u64)own << PRODUCT_SHIFT;
	__u32 least = own, level;

	bpf_for(level, 0, MOST_LEVELS) {
		struct group *group = group_at(index);
		__u64 total;

		if (index == ROOT_GROUP || !group)
			break;
		/* A task or group that is counted at this moment may not be in the total yet. */
		total = READ_ONCE(group->total);
		if (total < least || (__s64)total < 0)
			total = least ? least : 1;
		least = READ_ONCE(group->weight);
		weight = weight / total * least;
		index = group->parent;
	}
	weight >>= PRODUCT_SHIFT - WEIGHT_SHIFT;
	return weight < LEAST_WEIGHT ? LEAST_WEIGHT : weight;
}

/* Tells a group what this CPU has kept of it. */
int settle(struct pending *pending)
{
	struct group *group;

	if (!pending || !(pending->total | pending->active))
		return 0;
	group = group_at(pending->index);
	if (group && group->id == pending->id) {
		__sync_fetch_and_add(&group->total, pending->total);
		if (pending->active)
			__sync_fetch_and_add(&group->active, pending->active);
		count_group(pending->index);
	}
	pending->total = 0;
	pending->active = 0;
	return 0;
}

int settle_groups(void)
{
	__u32 key = 0, place;
	struct pendings *own = bpf_map_lookup_elem(&pendings, &key);

	if (!own || !own->dirty)
		return 0;
	/* First: an interrupt on this CPU may add to what is told already. */
	own->dirty = 0;
	bpf_for(place, 0, PENDING)
		settle(&own->of[place & (PENDING - 1)]);
	return 0;
}

/* On this CPU a group's sums change. `begins`: the CPU is about to run a task, and so will have a tick. */
static __always_inline void change_sums(__u32 index, __u64 id, __s64 total, __s32 active, bool begins)
{
	struct cpu *cpu = cpu_at(bpf_get_smp_processor_id());
	struct pending *pending;
	struct pendings *own;
	__u32 key = 0;

	own = bpf_map_lookup_elem(&pendings, &key);
	if (!own)
		return;
	pending = &own->of[index & (PENDING - 1)];
	if (pending->index != index || pending->id != id) {
		settle(pending);
		pending->index = index;
		pending->id = id;
	}
	pending->total += total;
	pending->active += active;
	own->dirty = 1;
	/* An idle CPU, to which an interrupt came, has no tick. */
	if (cpu && !cpu->since_ns && !begins)
		settle(pending);
}

/* Of the group in which a task is counted, no longer. */
static __always_inline void leave_group(struct member *member)
{
	__u32 counted = member->counted;

	member->counted = 0;
	if (counted && member->index != ROOT_GROUP)
		change_sums(member->index, member->id, -(__s64)counted, -1, false);
}

static __always_inline __u64 id_of(const struct cgroup *cgroup)
{
	return UNTRUSTED(struct cgroup, cgroup)->kn->id;
}

/* The cgroup above, or none. */
static __always_inline const struct cgroup *above(const struct cgroup *cgroup)
{
	const struct cgroup_subsys_state *parent = UNTRUSTED(struct cgroup, cgroup)->self.parent;

	return parent ? parent->cgroup : 0;
}

/* The index of a cgroup's group, or of the next one above it that has an index. */
static __always_inline __u32 group_of(const struct cgroup *cgroup)
{
	__u32 step;

	bpf_for(step, 0, MOST_DEPTH) {
		__u64 id;
		__u32 *index;

		if (!cgroup)
			break;
		id = id_of(cgroup);
		index = bpf_map_lookup_elem(&group_indices, &id);
		if (index)
			return *index;
		cgroup = above(cgroup);
	}
	return ROOT_GROUP;
}

bool find_group(struct task_struct *task __arg_trusted, struct member *member)
{
	const struct task_group *where = UNTRUSTED(struct task_struct, task)->sched_task_group;
	/* Tasks of a session that has no cgroup of its own (autogroup) belong to the root. */
	const struct cgroup *cgroup = where ? where->css.cgroup : 0;
	__u64 id = cgroup ? id_of(cgroup) : 0;
	__u32 epoch = READ_ONCE(group_epoch), index;
	struct group *group;

	if (!member)
		return false;
	if (member->cgroup == id && member->id && member->epoch == epoch)
		return false;
	leave_group(member);
	index = group_of(cgroup);
	group = index == ROOT_GROUP ? 0 : group_at(index);
	member->cgroup = id;
	member->epoch = epoch;
	member->index = group ? index : ROOT_GROUP;
	/* Anything but 0, for those that have none. */
	member->id = group ? group->id : 1;
	return true;
}

/*
 * A task wants the CPU, or has got it (`begins`): where it belongs, and what it weighs there. Returns its group's index. One that
 * waited for quota is counted from here until it waits again; if that is a moment, no other CPU is told of it.
 */
__u32 join_group(struct task_struct *task __arg_trusted, bool begins)
{
	struct member *member;
	struct group *group;
	__u32 own, index;

	member = bpf_task_storage_get(&members, task, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!member)
		return ROOT_GROUP;
	if (member->released != ROOT_GROUP)
		end_release(member);
	find_group(task, member);
	index = member->index;
	own = own_weight(task);
	group = group_at(index);
	if (index == ROOT_GROUP || !group || !group_weights_on) {
		member->weight = own << WEIGHT_SHIFT;
		return index;
	}
	if (member->counted != own) {
		change_sums(index, member->id, (__s64)own - member->counted, !member->counted, begins);
		member->counted = own;
	}
	member->weight = weight_in(index, own);
	count(COUNTER_group_weights);
	return index;
}

/* A task no longer wants the CPU. */
int note_sleep(struct task_struct *task __arg_trusted)
{
	struct member *member;

	member = bpf_task_storage_get(&members, task, 0, 0);
	if (!member)
		return 0;
	if (member->released != ROOT_GROUP)
		end_release(member);
	leave_group(member);
	return 0;
}

/* The number of groups that may be in one of this level, at any depth. */
static __always_inline __u32 share_of(__u32 level)
{
	return FIRST_RESERVED >> (level < 4 ? level : 4);
}

/* Whether a group, and each one above it, may have one more in it. */
static __noinline bool has_room(__u32 index)
{
	__u32 step;

	bpf_for(step, 0, MOST_LEVELS) {
		struct group *group = group_at(index);

		if (index == ROOT_GROUP || !group)
			break;
		if (READ_ONCE(group->below) >= share_of(group->level))
			return false;
		index = group->parent;
	}
	return true;
}

/* A group, and each one above it, has one more in it, or one less. */
static __noinline int count_below(__u32 index, __s32 change)
{
	__u32 step;

	bpf_for(step, 0, MOST_LEVELS) {
		struct group *group = group_at(index);

		if (index == ROOT_GROUP || !group)
			break;
		__sync_fetch_and_add(&group->below, change);
		index = group->parent;
	}
	return 0;
}

/* Finds an index that no group has, of `count` from `first` on. Returns ROOT_GROUP where there is none. */
static __noinline __u32 claim_from(__u64 id, __u32 first, __u32 count, __u32 start)
{
	__u32 step;

	bpf_for(step, 0, count) {
		__u32 index = first + (start + step) % count;
		struct group *group = group_at(index);

		if (index != ROOT_GROUP && group && !__sync_val_compare_and_swap(&group->id, 0, id))
			return index;
	}
	return ROOT_GROUP;
}

/* Finds an index for a group, with `limited` also a reserved one. Returns ROOT_GROUP where there is none. */
static __always_inline __u32 claim_group(__u64 id, bool limited)
{
	__u32 index = claim_from(id, 0, group_limits_on ? FIRST_RESERVED : MOST_GROUPS, group_cursor);

	if (index != ROOT_GROUP) {
		group_cursor = index + 1;
	} else if (limited && group_limits_on) {
		index = claim_from(id, FIRST_RESERVED, RESERVED_GROUPS, reserved_cursor);
		reserved_cursor = index + 1 - FIRST_RESERVED;
	}
	return index;
}

/* The index of the group that is this cgroup's own, or ROOT_GROUP. */
static __always_inline __u32 own_index(const struct cgroup *cgroup)
{
	__u64 id = id_of(cgroup);
	__u32 *index = bpf_map_lookup_elem(&group_indices, &id);

	return index ? *index : ROOT_GROUP;
}

/* The group that is this cgroup's own, and not one that it counts as part of. */
static __always_inline struct group *own_group(const struct cgroup *cgroup)
{
	__u32 index = own_index(cgroup);

	return index == ROOT_GROUP ? 0 : group_at(index);
}

/* A cgroup gets this index, in the group of its parent. Returns whether it has. */
static __always_inline bool place_group(__u64 id, __u32 index, __u32 parent, __u32 level, __u32 weight)
{
	struct group *own = group_at(index);

	if (!own)
		return false;
	own->parent = parent;
	own->level = level;
	own->weight = weight;
	own->counted = 0;
	own->active = 0;
	own->below = 0;
	own->total = 0;
	own->quota_ns = 0;
	own->crowd_slice_ns = 0;
	own->released = 0;
	if (bpf_map_update_elem(&group_indices, &id, &index, BPF_ANY)) {
		own->id = 0;
		return false;
	}
	__sync_fetch_and_add(&group_count, 1);
	count_below(parent, 1);
	return true;
}

/* A cgroup below this one gets an index: merged ones between it and the next one with an index can have none any more. */
static __always_inline void pass_merged(const struct cgroup *cgroup)
{
	__u32 step;

	bpf_for(step, 0, MOST_DEPTH) {
		struct merged *merged;
		__u64 id;

		if (!cgroup)
			break;
		id = id_of(cgroup);
		merged = bpf_map_lookup_elem(&merged_groups, &id);
		if (!merged)
			break;
		merged->passed = 1;
		cgroup = above(cgroup);
	}
}

/* A cgroup gets a group, which has a limit or not. Returns its index, or ROOT_GROUP for one without a group of its own. */
static __always_inline __u32 add_group(const struct cgroup *cgroup, __u32 weight, bool limited)
{
	const struct cgroup *container = above(cgroup);
	__u64 id = id_of(cgroup);
	__u32 parent, index = ROOT_GROUP;
	struct group *group;

	if (!container)
		return ROOT_GROUP;
	parent = group_of(container);
	group = group_at(parent);
	if (!group)
		return ROOT_GROUP;
	if (group->level + 1 < MOST_LEVELS && has_room(parent))
		index = claim_group(id, limited);
	if (index != ROOT_GROUP && place_group(id, index, parent, group->level + 1, weight)) {
		pass_merged(container);
		return index;
	}
	struct merged merged = { .weight = weight };

	count(COUNTER_groups_merged);
	if (limited)
		count(COUNTER_limits_lost);
	bpf_map_update_elem(&merged_groups, &id, &merged, BPF_ANY);
	return ROOT_GROUP;
}

/* A merged cgroup is to have a limit. Returns the group that it has from now on, or none. */
static __always_inline struct group *separate_group(const struct cgroup *cgroup)
{
	const struct cgroup *container = above(cgroup);
	__u64 id = id_of(cgroup);
	struct merged *merged = bpf_map_lookup_elem(&merged_groups, &id);
	__u32 parent, index;
	struct group *group;

	if (!container || !merged || merged->passed)
		return 0;
	parent = group_of(container);
	group = group_at(parent);
	if (!group || group->level + 1 >= MOST_LEVELS || !has_room(parent))
		return 0;
	index = claim_group(id, true);
	if (index == ROOT_GROUP || !place_group(id, index, parent, group->level + 1, merged->weight))
		return 0;
	pass_merged(container);
	bpf_map_delete_elem(&merged_groups, &id);
	__sync_fetch_and_add(&group_epoch, 1);
	return group_at(index);
}

/* A cgroup has another weight. */
static __always_inline void weigh_group(const struct cgroup *cgroup, __u32 weight)
{
	struct group *group = own_group(cgroup);
	__u64 id = id_of(cgroup);
	struct merged *merged;

	if (group) {
		WRITE_ONCE(group->weight, weight);
		count_group(own_index(cgroup));
		return;
	}
	merged = bpf_map_lookup_elem(&merged_groups, &id);
	if (merged)
		merged->weight = weight;
}

/* A cgroup goes, and no task is in it. */
static __always_inline void remove_group(const struct cgroup *cgroup)
{
	struct group *group = own_group(cgroup);
	__u64 id = id_of(cgroup);

	if (!group) {
		bpf_map_delete_elem(&merged_groups, &id);
		return;
	}
	/* Those that have ended and were not seen to: no task is left in it. */
	group->active = 0;
	count_group(own_index(cgroup));
	group->quota_ns = 0;
	count_below(group->parent, -1);
	__sync_fetch_and_add(&group_count, -1);
	bpf_map_delete_elem(&group_indices, &id);
	STORE_RELEASE(group->id, 0);
}

/* Not in the table where groups have no say: these are told of all that there are, and of what becomes of them. */
int STRUCT_OPS_SLEEPABLE(morpheus_cgroup_init, struct cgroup *cgroup, struct scx_cgroup_init_args *arguments)
{
	bool tells = group_limits_on && bpf_core_field_exists(arguments->bw_quota_us);
	bool limited = tells && is_limit(arguments->bw_period_us, arguments->bw_quota_us);
	__u32 index = add_group(cgroup, arguments->weight, limited);
	struct group *group = index == ROOT_GROUP ? 0 : group_at(index);
	int error;

	if (!group || !tells)
		return 0;
	error = prepare_limit(index);
	if (!error)
		set_quota(index, arguments->bw_period_us, arguments->bw_quota_us, arguments->bw_burst_us);
	else
		/* The kernel makes no cgroup then, and so tells of no end. */
		remove_group(cgroup);
	return error;
}

int STRUCT_OPS(morpheus_cgroup_exit, struct cgroup *cgroup)
{
	struct group *group = own_group(cgroup);

	if (group) {
		set_quota(own_index(cgroup), 0, ~0ULL, 0);
		limit_changed(own_index(cgroup));
	}
	remove_group(cgroup);
	return 0;
}

int STRUCT_OPS(morpheus_cgroup_set_weight, struct cgroup *cgroup, __u32 weight)
{
	weigh_group(cgroup, weight);
	return 0;
}

int STRUCT_OPS(morpheus_cgroup_set_bandwidth, struct cgroup *cgroup, __u64 period_us, __u64 quota_us, __u64 burst_us)
{
	struct group *group = own_group(cgroup);
	bool limited = is_limit(period_us, quota_us);

	if (!group && limited)
		group = separate_group(cgroup);
	if (group && group->prepared) {
		set_quota(own_index(cgroup), period_us, quota_us, burst_us);
		limit_changed(own_index(cgroup));
	} else if (limited) {
		count(COUNTER_limits_lost);
	}
	return 0;
}

int init_groups(void)
{
	__u32 index;
	int error = 0;

	/* A limit is set where nothing can be made. */
	bpf_for(index, FIRST_RESERVED, MOST_GROUPS) {
		struct group *group = group_at(index);

		error = group ? prepare_limit(index) : 0;
		if (error)
			break;
	}
	return error;
}
