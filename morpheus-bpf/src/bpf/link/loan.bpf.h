/* SPDX-License-Identifier: GPL-2.0-only */
/* The interface of loans among the workers of one process (loan.bpf.c). */
#ifndef MORPHEUS_LOAN_BPF_H
#define MORPHEUS_LOAN_BPF_H

#include "link/ladder.bpf.h"

/*
 * Whether a worker that wakes serves others: it is in no poll that is known to be stalled. A parked worker wakes because there is
 * work, a held one because it is released.
 */
static __always_inline bool serves(struct worker *worker, const struct words *slot)
{
	__u64 episode = episode_of(worker, slot);

	return slot->state == MORPHEUS_WORKER_RUNNING && !worker->demoted && !(episode & EPISODE_HOG) &&
	       (!episode || worker->over != episode);
}

/* Gives a loan to a worker that serves, wakes and will wait in a DSQ. */
int borrow(struct task_struct *task __arg_trusted, struct worker *worker);
/* Repays from a worker that has just been charged and wants to go on on this CPU. */
int repay(struct task_struct *task __arg_trusted, struct worker *worker, __s32 index);

#endif /* MORPHEUS_LOAN_BPF_H */
