// SPDX-License-Identifier: GPL-2.0-only
/* The observer: watches workers, and schedules no task. */
#define DEFINES_SHARED
#include "kernel/kernel.bpf.h"
#include <bpf/bpf_helpers.h>
#include "morpheus_abi.h"
#include "link/watch.bpf.h"

char LICENSE[] SEC("license") = "GPL";

int over_budget(struct worker *worker, const struct words *slot, const struct overrun *overrun)
{
	return 0;
}

int episode_ended(struct worker *worker)
{
	return 0;
}

__u64 sampled(struct worker *worker, const struct words *slot)
{
	return ~0ULL;
}

int switching(struct task_struct *next __arg_trusted)
{
	return 0;
}

struct start_arguments {
	__u64 cpu;
};

/* Prepares a CPU; called once for each. */
SEC("syscall")
int start(struct start_arguments *arguments)
{
	return start_sample_timer(arguments->cpu);
}
