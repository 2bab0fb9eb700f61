/* SPDX-License-Identifier: GPL-2.0-only */
/* The length of slices where many tasks wait: for rescue.bpf.c, which counts them. */
#ifndef MORPHEUS_CROWD_BPF_H
#define MORPHEUS_CROWD_BPF_H

#include "policy/policy.bpf.h"

/* The time of a round of all tasks that wait for a CPU, in ns, unless slices would be shorter than LEAST_SLICE_NS. */
#define ROUND_NS 500000000ULL
/* Loads of CPUs are in parts of 1024 tasks. */
#define LOAD_SHIFT 10

/* The longest slice where this many tasks wait for a CPU, in ns, or 0 where ticks suffice. */
static __always_inline __u64 slice_in_crowd(__u64 load)
{
	__u64 slice = load ? (ROUND_NS << LOAD_SHIFT) / load : ROUND_NS;

	/* With ticks alone a slice takes up to twice its length. */
	if (slice >= 2 * slice_ns)
		return 0;
	if (slice > slice_ns)
		return slice_ns;
	return slice < LEAST_SLICE_NS ? LEAST_SLICE_NS : slice;
}

#endif /* MORPHEUS_CROWD_BPF_H */
