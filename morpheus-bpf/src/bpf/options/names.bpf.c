// SPDX-License-Identifier: GPL-2.0-only
/*
 * Classification by name: some names are LAT_CRITICAL always (`--boost`), and the daemon remembers how tasks of a name have
 * behaved in earlier runs of the machine, so that a new task of that name starts with a tier.
 */
#include "kernel/kernel.bpf.h"
#include <bpf/bpf_helpers.h>
#include "morpheus_abi.h"
#include "policy/policy.bpf.h"


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

/*
 * The behaviour of a name: of earlier runs of the daemon (profiles, which it writes), and of this one (observed, which it reads).
 */
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

/*
 * Checks the name of a task. It may have changed, by exec or by the task itself: then its behaviour is that of another program.
 */
int check_name(struct task_struct *task __arg_trusted, struct behaviour *behaviour)
{
	struct profile *profile;
	struct name name = {};

	if (!task || !behaviour)
		return 0;
	/* Zeroes beyond its end, as in the keys of the maps. */
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
