// SPDX-License-Identifier: GPL-2.0-only
/*
 * Tasks that are known by their names: some are LAT_CRITICAL always (`--boost`), and the daemon remembers how tasks of a name have
 * behaved in earlier runs, so that a new one does not begin as an unknown one.
 */
#include "kernel/kernel.bpf.h"
#include <bpf/bpf_helpers.h>
#include "morpheus_abi.h"
#include "policy/policy.bpf.h"

const volatile bool boost_on = true;

struct name {
	char text[NAME_BYTES];
};

/* Names that are LAT_CRITICAL always, from the command line. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 256);
	__type(key, struct name);
	__type(value, __u32);
} boosts SEC(".maps");

/* What is known of a name: from earlier runs (profiles, written by the daemon), and of late (observed, read by it). */
struct profile {
	__u64 runtime_ns;
	__u32 tier;
	__u32 seen;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, struct name);
	__type(value, struct profile);
} profiles SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, struct name);
	__type(value, struct profile);
} observed SEC(".maps");

/* Who it is may have changed, by exec or by its own doing: then what is known of it is of somebody else. */
int check_name(struct task_struct *task __arg_trusted, struct behaviour *behaviour)
{
	struct profile *profile;
	struct name name = {};

	if (!task || !behaviour)
		return 0;
	/* Zeroes behind its end, as in the keys of the maps. */
	bpf_probe_read_kernel_str(&name, sizeof(name), task->comm);
	if (!__builtin_memcmp(&name, behaviour->name, sizeof(name)))
		return 0;
	__builtin_memcpy(behaviour->name, &name, sizeof(name));
	behaviour->boosted = boost_on && bpf_map_lookup_elem(&boosts, &name);
	if (behaviour->boosted) {
		behaviour->tier = TIER_LAT_CRITICAL;
		count(COUNTER_boosts);
		return 1;
	}
	behaviour->age = 0;
	behaviour->tier = TIER_INTERACTIVE;
	profile = profiles_on ? bpf_map_lookup_elem(&profiles, &name) : 0;
	if (profile) {
		behaviour->runtime_ns = profile->runtime_ns;
		behaviour->tier = profile->tier < TIERS ? profile->tier : TIER_BATCH;
		behaviour->age = MATURE_AGE;
		count(COUNTER_warm_starts);
	}
	return 1;
}

int report_name(const struct behaviour *behaviour)
{
	struct profile profile = {};
	struct name name;

	if (!behaviour)
		return 0;
	profile.runtime_ns = behaviour->runtime_ns;
	profile.tier = behaviour->tier;
	profile.seen = behaviour->runs;
	__builtin_memcpy(&name, behaviour->name, sizeof(name));
	bpf_map_update_elem(&observed, &name, &profile, BPF_ANY);
	return 0;
}
