// SPDX-License-Identifier: GPL-2.0-only
/* The counters, one set for each CPU. */
#include "kernel/kernel.bpf.h"
#include <bpf/bpf_helpers.h>
#include "kernel/counters.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNTERS);
	__type(key, __u32);
	__type(value, __u64);
} counters SEC(".maps");

/*
 * Not static: the verifier then checks it once, and not at each of a hundred calls, after each of which it would follow two
 * paths. The same reason holds for most functions that objects call of each other.
 */
int count(__u32 which)
{
	__u32 key = which;
	__u64 *counter = bpf_map_lookup_elem(&counters, &key);

	if (counter)
		(*counter)++;
	return 0;
}
