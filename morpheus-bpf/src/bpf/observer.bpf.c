// SPDX-License-Identifier: GPL-2.0-only
/* The observer: watches workers, and schedules nothing. */
#include "kernel.bpf.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include "morpheus_abi.h"
#include "lease.bpf.h"
#include "watch.bpf.h"

char LICENSE[] SEC("license") = "GPL";

static __always_inline void over_budget(struct worker *worker, const struct words *slot,
					__u64 episode, __u64 used_ns, __u64 now, bool runs)
{
}

static __always_inline void episode_ended(struct worker *worker, __u64 now)
{
}

static __always_inline __u64 looked(struct worker *worker, const struct words *slot)
{
	return ~0ULL;
}

static __always_inline void switching(struct task_struct *next)
{
}

struct start_arguments {
	__u64 cpu;
};

/* Called once for each CPU. */
SEC("syscall")
int start(struct start_arguments *arguments)
{
	return start_look_timer(arguments->cpu);
}
