// SPDX-License-Identifier: GPL-2.0-only
/* Histograms of latencies: the wait of tasks after a wake-up, and their sleep before it. The daemon reads them. */
#include "kernel/kernel.bpf.h"
#include <bpf/bpf_helpers.h>
#include "morpheus_abi.h"
#include "policy/policy.bpf.h"

/*
 * Buckets of waits, by tier: bucket 0 is below 2 us, bucket i from 2^i us on, the last has no end. A task on an idle CPU did not
 * wait in a DSQ, and counts in bucket 0.
 */
#define LATENCY_BUCKETS 16
/* Buckets of sleeps: below 1 ms, 10 ms, 100 ms, and longer. */
#define SLEEP_BUCKETS 4

struct histograms {
	__u64 wakes[TIERS][LATENCY_BUCKETS];
	__u64 sleeps[SLEEP_BUCKETS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct histograms);
} histograms SEC(".maps");

/* The place of the highest bit, by halves: BPF has no instruction for it, and what compilers make of __builtin_clz is longer. */
static __always_inline __u32 latency_bucket(__u64 ns)
{
	__u64 us = ns / 1000;
	__u32 bucket = 0;

	if (us >> (LATENCY_BUCKETS - 1))
		return LATENCY_BUCKETS - 1;
	if (us >> 8) {
		us >>= 8;
		bucket = 8;
	}
	if (us >> 4) {
		us >>= 4;
		bucket += 4;
	}
	if (us >> 2) {
		us >>= 2;
		bucket += 2;
	}
	return bucket + (us >> 1);
}

/* Counts the wait of a task that is switched in. */
int note_wait(struct behaviour *behaviour, __u64 now)
{
	__u64 waited_ns = 0, slept_ns, woke_ns = now;
	struct histograms *counts;
	__u32 key = 0, tier, bucket;

	if (!behaviour)
		return 0;
	tier = behaviour->tier;
	/* It was preempted and has not slept since. */
	if (behaviour->switches)
		return 0;
	counts = bpf_map_lookup_elem(&histograms, &key);
	if (!counts)
		return 0;
	if (behaviour->woke_ns) {
		woke_ns = behaviour->woke_ns;
		behaviour->woke_ns = 0;
		/* It was dequeued, and put on an idle CPU at a later wake-up; or that CPU's clock is ahead. */
		if ((__s64)(woke_ns - behaviour->slept_ns) < 0)
			woke_ns = now;
		if ((__s64)(now - woke_ns) > 0)
			waited_ns = now - woke_ns;
	}
	bucket = latency_bucket(waited_ns) & (LATENCY_BUCKETS - 1);
	if (tier >= TIERS)
		return 0;
	counts->wakes[tier][bucket]++;
	if (!behaviour->slept_ns || (__s64)(woke_ns - behaviour->slept_ns) < 0)
		return 0;
	slept_ns = woke_ns - behaviour->slept_ns;
	bucket = slept_ns < 1000000 ? 0 : slept_ns < 10000000 ? 1 : slept_ns < 100000000 ? 2 : 3;
	counts->sleeps[bucket]++;
	return 0;
}
