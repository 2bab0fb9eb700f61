/* SPDX-License-Identifier: GPL-2.0-only */
/* How long turns are where many tasks wait: for rescue.bpf.c, which counts them. */
#ifndef MORPHEUS_CROWD_BPF_H
#define MORPHEUS_CROWD_BPF_H

#include "policy/policy.bpf.h"

/* How long a round takes of all tasks that wait for a CPU, as long as turns are not shorter than LEAST_SLICE_NS. */
#define ROUND_NS 500000000ULL
/* Loads of CPUs are counted in parts of 1024 tasks. */
#define LOAD_SHIFT 10

/* The longest turn where this many tasks wait for a CPU, or 0 where ticks do. */
static __always_inline __u64 slice_in_crowd(__u64 load)
{
	__u64 slice = load ? (ROUND_NS << LOAD_SHIFT) / load : ROUND_NS;

	/* With ticks alone a turn takes up to two slices. */
	if (slice >= 2 * slice_ns)
		return 0;
	if (slice > slice_ns)
		return slice_ns;
	return slice < LEAST_SLICE_NS ? LEAST_SLICE_NS : slice;
}

#endif /* MORPHEUS_CROWD_BPF_H */
