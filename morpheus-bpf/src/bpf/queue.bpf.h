/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Who runs next: queues by vtime.
 *
 * A task's vtime is the CPU time that it has had, divided by its weight (and times `demotion` while it is demoted).
 * Whoever has the least goes first. The clock is the vtime at which tasks are picked at present; who comes back from
 * sleep is placed a little before it, wherever it was. So the clock moves with those who are picked for their vtime, and
 * with nobody else: not with who goes on after an interruption, whose time is over or has waited too long.
 *
 * Each domain of CPUs has three queues: main, batch (those that are demoted), and throttled (in order of the time at
 * which they may run again). Each CPU has one for the tasks that may run nowhere else. A CPU that has to choose takes
 * the least vtime of the heads that concern it and of the task that it ran up to now, which is in no queue: without
 * that comparison it would go last, and weights would mean nothing to a task that runs through.
 *
 * There is one domain. Nothing here goes through all CPUs, so that what grows with their number is the contention for
 * the lock of one queue: at 64 CPUs and slices of 4 ms that is 16,000 picks in a second, plus wakes, which one lock can
 * bear; at 512 it is not meant to be used like this. `domain_of` is where CPUs are divided; a CPU that finds nothing in
 * its own domain looks into the others in turn.
 */
#ifndef MORPHEUS_QUEUE_BPF_H
#define MORPHEUS_QUEUE_BPF_H

#include "scx.bpf.h"
#include "slot.bpf.h"

/* How long a task may run before others that wait are considered. The kernel looks at each of its ticks. */
const volatile __u64 slice_ns = 4000000;
/*
 * A worker that computes gives way after so long, if there is somebody with less vtime: between two ticks, by the timer
 * that looks at it. Whoever is switched out while it serves others then waits for short turns.
 */
const volatile __u64 worker_slice_ns = 500000;
/* How far before the clock a task is placed that comes back from sleep. */
const volatile __u64 sleeper_ns = 4000000;
/* How far before the clock one may be that wants to go on: what a tick is late, several times. */
const volatile __u64 lag_ns = 50000000;
/* How far after the clock one may be, beside what a slice can make. */
const volatile __u64 lead_ns = 200000000;
/* So many times a demoted task's time counts. */
const volatile __u64 demotion = 10;
/* Of each window of a throttled worker, so much is for it. */
const volatile __u64 window_ns = 100000000;
const volatile __u64 quota_ns = 5000000;
/* CPUs have numbers below this. */
const volatile __u32 cpu_count = 1;
/* The running task's vtime counts when a CPU chooses. Off for tests. */
const volatile bool previous_on = true;

#define DOMAINS 1
/* Queues of domain d are 8 * d and so on; those of CPUs come after all domains. */
#define QUEUES_PER_DOMAIN 8
#define MAIN_QUEUE(domain) ((__u64)(domain) * QUEUES_PER_DOMAIN)
#define BATCH_QUEUE(domain) (MAIN_QUEUE(domain) + 1)
#define THROTTLED_QUEUE(domain) (MAIN_QUEUE(domain) + 2)
/* In order of arrival. */
#define RESCUE_QUEUE(domain) (MAIN_QUEUE(domain) + 3)
#define PINNED_QUEUE(cpu) (1ULL << 32 | (__u32)(cpu))

/* No task's vtime. */
#define NOBODY (~0ULL)
/* After a batch or throttled queue was used, its domain's CPUs look into it for so long. */
#define USED_FOR_NS 200000000ULL
/* A clock that every CPU writes would be slow: it moves in steps. */
#define CLOCK_STEP_NS 50000ULL

/* Far from 0, so that whoever is before it is not after it. */
__u64 vtime_now = 1ULL << 48;

/* Why a CPU was last kicked. */
enum kick {
	KICK_NONE,
	/* Somebody waits. */
	KICK_OURS,
	/* One of its own kernel threads woke. */
	KICK_KERNEL,
};

/* Written on the CPU that it is about, and read by who wants it; `kicked` and `made_up` are written by those. */
struct cpu {
	/* Since when the task that runs has not been charged; 0 while none of ours runs. */
	__u64 since_ns;
	/* What its CPU time was then: that is what it is charged for. */
	__u64 exec_ns;
	/* When it was switched in. */
	__u64 began_ns;
	/* Its vtime at `since_ns`. */
	__u64 vtime;
	__u32 weight;
	/* It is a worker. */
	__u32 worker;
	/* It is a thread of the kernel. */
	__u32 kernel;
	/* It is a worker that is stuck: over its budget, or a hog. */
	__u32 stuck;
	/* It has said that others may go first. */
	__u32 yielded;
	/* The end of its critical section's extension, or 0. */
	__u64 extended_until_ns;
	/* enum kick, until it chooses. */
	__u32 kicked;
	/* The timer that makes up for a skipped kick is armed. */
	__u32 made_up;
	/* There may be tasks in its queue of pinned ones. */
	__u32 pinned;
	/* How many tasks in a row went to sleep here before they had run for the least time. */
	__u32 short_runs;
	/* How much of its slice was left to the task that one of the kernel's own threads has just interrupted. */
	__u64 rest_ns;
	/* When its slice ends, if nobody takes it. */
	__u64 slice_end_ns;
	/* The next one to run here was not picked for its vtime. */
	__u32 out_of_turn;
	__u64 padding[2];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct cpu);
} cpus SEC(".maps");

struct domain {
	/* Until when its batch and throttled queues are looked into. */
	__u64 batch_until_ns;
	__u64 throttled_until_ns;
	/* There is somebody in its rescue queue. */
	__u32 rescue;
	/* Whom to look at next for somebody to preempt. */
	__u32 cursor;
	__u64 padding[5];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, DOMAINS);
	__type(key, __u32);
	__type(value, struct domain);
} domains SEC(".maps");

static __always_inline struct cpu *cpu_at(__s32 index)
{
	__u32 key = index;

	return bpf_map_lookup_elem(&cpus, &key);
}

static __always_inline __u32 domain_of(__s32 cpu)
{
	return 0;
}

static __always_inline struct domain *domain_at(__u32 index)
{
	return bpf_map_lookup_elem(&domains, &index);
}

/* The worker that a task is, if it is one. */
static __always_inline struct worker *worker_of(struct task_struct *task)
{
	struct worker *worker;

	if (!leases || !task->mm)
		return 0;
	worker = bpf_task_storage_get(&workers, task, 0, 0);
	return worker && worker->lease ? worker : 0;
}

/* Whether the episode for which it was demoted goes on. Read anew: it is about to be charged tenfold, or to wait. */
static __always_inline bool is_demoted(struct worker *worker)
{
	struct morpheus_runtime_slot *runtime;

	if (!worker->demoted)
		return false;
	runtime = runtime_slot(worker);
	if (runtime && episode_of(worker, runtime) == worker->demoted)
		return true;
	worker->demoted = 0;
	worker->throttled = 0;
	worker->relieved = 1;
	count(COUNTER_undemotions);
	return false;
}

/* Whether a throttled worker has had its share of the present window. */
static __always_inline bool has_spent(struct worker *worker, __u64 now)
{
	return worker->throttled && worker->window_ran_ns >= quota_ns && now - worker->window_ns < window_ns;
}

static __always_inline bool before(__u64 a, __u64 b)
{
	return (__s64)(a - b) < 0;
}

static __always_inline __u64 by_weight(__u64 ns, __u32 weight)
{
	return ns * 100 / (weight ? weight : 1);
}

/*
 * A thread of the kernel has at least an ordinary weight. It may hold a lock that others wait for: khugepaged, at nice 19,
 * holds that of a process's memory, and beside busy threads it kept all of the process waiting for half a second.
 */
static __always_inline __u32 weight_of(const struct task_struct *task)
{
	__u32 weight = task->scx.weight;

	return task->flags & PF_KTHREAD && weight < 100 ? 100 : weight;
}

static __always_inline void advance_clock(__u64 vtime)
{
	__u64 clock = vtime_now;

	if (before(clock + CLOCK_STEP_NS, vtime))
		vtime_now = vtime;
}

/* Brings a task's vtime into bounds: nobody is helped or harmed for ever by what was long ago. */
static __always_inline __u64 bounded_vtime(struct task_struct *task, __u64 most_lag_ns)
{
	__u64 vtime = task->scx.dsq_vtime, least = vtime_now - most_lag_ns;
	__u64 most = vtime_now + lead_ns + 2 * demotion * by_weight(slice_ns, weight_of(task));

	if (before(vtime, least))
		vtime = least;
	if (before(most, vtime))
		vtime = most;
	if (vtime != task->scx.dsq_vtime)
		set_vtime(task, vtime);
	return vtime;
}

/* Its vtime was a time, while it stood in the queue of throttled ones. */
static __always_inline void restore_vtime(struct task_struct *task, struct worker *worker)
{
	if (worker->has_true_vtime) {
		worker->has_true_vtime = 0;
		set_vtime(task, worker->true_vtime);
	}
}

/* A task that was demoted owes nothing for that when it is over: it has waited for each tenfold charge but the last. */
static __always_inline void forgive(struct task_struct *task, struct worker *worker)
{
	__u64 most = vtime_now + by_weight(slice_ns, weight_of(task));

	if (!worker->relieved)
		return;
	worker->relieved = 0;
	if (before(most, task->scx.dsq_vtime))
		set_vtime(task, most);
}

/* The task that runs here pays for the time since it last did. */
static __always_inline void charge(struct task_struct *task, struct cpu *cpu, struct worker *worker, __u64 now)
{
	__u64 ran_ns, vtime;

	if (!cpu->since_ns)
		return;
	ran_ns = task->se.sum_exec_runtime - cpu->exec_ns;
	cpu->exec_ns += ran_ns;
	cpu->since_ns = now;
	vtime = by_weight(ran_ns, weight_of(task));
	if (worker) {
		if (is_demoted(worker))
			vtime *= demotion;
		if (worker->throttled) {
			if (now - worker->window_ns >= window_ns) {
				worker->window_ns = now;
				worker->window_ran_ns = 0;
			}
			worker->window_ran_ns += ran_ns;
		}
		forgive(task, worker);
	}
	vtime += task->scx.dsq_vtime;
	set_vtime(task, vtime);
	cpu->vtime = vtime;
}

/* The least vtime in a queue, or NOBODY. */
static __noinline __u64 head_of(__u64 queue)
{
	struct bpf_iter_scx_dsq iterator;
	struct task_struct *task;
	__u64 vtime = NOBODY;

	if (!bpf_iter_scx_dsq_new(&iterator, queue, 0)) {
		task = bpf_iter_scx_dsq_next(&iterator);
		if (task)
			vtime = task->scx.dsq_vtime;
	}
	bpf_iter_scx_dsq_destroy(&iterator);
	return vtime;
}

/* The least vtime among those who wait and may be for this CPU, or NOBODY. Not under a run queue's lock. */
static __always_inline __u64 least_waiting(__s32 index, const struct cpu *cpu)
{
	__u64 queue = MAIN_QUEUE(domain_of(index)), waits = NOBODY;

	bpf_rcu_read_lock();
	if (scx_bpf_dsq_nr_queued(queue) > 0)
		waits = head_of(queue);
	if (cpu->pinned) {
		__u64 pinned = head_of(PINNED_QUEUE(index));

		if (waits == NOBODY || (pinned != NOBODY && before(pinned, waits)))
			waits = pinned;
	}
	bpf_rcu_read_unlock();
	return waits;
}

/* What the task that runs there would have as vtime if it stopped now. */
static __always_inline __u64 present_vtime(const struct cpu *cpu, __u64 now)
{
	__u64 since_ns = READ_ONCE(cpu->since_ns);

	if (before(now, since_ns))
		return cpu->vtime;
	return cpu->vtime + by_weight(now - since_ns, cpu->weight);
}

/* Makes a CPU choose. */
static __always_inline void kick(__s32 index, struct cpu *cpu, enum counter counter)
{
	cpu->kicked = KICK_OURS;
	count(counter);
	scx_bpf_kick_cpu(index, KICK_PREEMPT);
}

/* Whether a task may run on one of several CPUs only. */
static __always_inline bool is_pinned(const struct task_struct *task)
{
	return cpu_count > 1 && task->nr_cpus_allowed == 1;
}

/* Puts a task that wants a CPU where it waits. */
static __always_inline void put(struct task_struct *task, struct worker *worker, __u64 flags, __u64 now)
{
	__s32 index = scx_bpf_task_cpu(task);
	struct domain *domain = domain_at(domain_of(index));
	__u64 vtime;

	if (worker) {
		restore_vtime(task, worker);
		forgive(task, worker);
	}
	vtime = bounded_vtime(task, flags & ENQ_WAKEUP ? sleeper_ns : lag_ns);
	/*
	 * Demoted or not: it is charged for it all the same. Throttled ones are not capped here: they compete with who
	 * may not go elsewhere either.
	 */
	if (is_pinned(task)) {
		struct cpu *cpu = cpu_at(index);

		if (cpu)
			cpu->pinned = 1;
		insert_by_vtime(task, PINNED_QUEUE(index), slice_ns, vtime, flags);
		count(COUNTER_to_pinned);
		return;
	}
	if (worker && domain && is_demoted(worker)) {
		if (has_spent(worker, now)) {
			worker->true_vtime = vtime;
			worker->has_true_vtime = 1;
			WRITE_ONCE(domain->throttled_until_ns, now + USED_FOR_NS);
			insert_by_vtime(task, THROTTLED_QUEUE(domain_of(index)), slice_ns,
					worker->window_ns + window_ns, flags);
			count(COUNTER_to_throttled);
			return;
		}
		WRITE_ONCE(domain->batch_until_ns, now + USED_FOR_NS);
		insert_by_vtime(task, BATCH_QUEUE(domain_of(index)), slice_ns, vtime, flags);
		count(COUNTER_to_batch);
		return;
	}
	insert_by_vtime(task, MAIN_QUEUE(domain_of(index)), slice_ns, vtime, flags);
	count(COUNTER_to_main);
}

static __always_inline bool take(__u64 queue, enum counter counter)
{
	if (!move_to_local(queue))
		return false;
	count(counter);
	return true;
}

/* By the time at which it may, and not by its vtime. */
static __always_inline bool take_throttled(__u32 domain, struct cpu *cpu)
{
	bool taken = take(THROTTLED_QUEUE(domain), COUNTER_from_throttled);

	if (taken)
		cpu->out_of_turn = 1;
	return taken;
}

/* Both are done under the lock of the CPU's run queue, so that the mark tells the truth. */
static __always_inline bool take_pinned(struct cpu *cpu, __s32 index)
{
	bool taken = take(PINNED_QUEUE(index), COUNTER_from_pinned);

	if (!scx_bpf_dsq_nr_queued(PINNED_QUEUE(index)))
		cpu->pinned = 0;
	return taken;
}

/* The queues that concern a CPU at present, and the least vtime in each. */
struct heads {
	__u64 main;
	__u64 batch;
	__u64 pinned;
	/* The least of them. */
	__u64 least;
	/* Somebody in the throttled queue may run again. */
	bool due;
	/* Somebody is in it. */
	bool throttled;
};

static __always_inline void look_into_queues(struct heads *heads, __u32 domain_index, struct domain *domain, __s32 index,
					     struct cpu *cpu, __u64 now)
{
	heads->main = head_of(MAIN_QUEUE(domain_index));
	heads->batch = heads->pinned = NOBODY;
	heads->due = heads->throttled = false;
	if (before(now, domain->batch_until_ns)) {
		heads->batch = head_of(BATCH_QUEUE(domain_index));
		if (heads->batch != NOBODY)
			WRITE_ONCE(domain->batch_until_ns, now + USED_FOR_NS);
	}
	if (before(now, domain->throttled_until_ns)) {
		__u64 time = head_of(THROTTLED_QUEUE(domain_index));

		if (time != NOBODY) {
			WRITE_ONCE(domain->throttled_until_ns, now + USED_FOR_NS);
			heads->throttled = true;
			heads->due = !before(now, time);
		}
	}
	if (cpu->pinned) {
		heads->pinned = head_of(PINNED_QUEUE(index));
		if (heads->pinned == NOBODY)
			cpu->pinned = 0;
	}
	heads->least = heads->main;
	if (heads->least == NOBODY || (heads->batch != NOBODY && before(heads->batch, heads->least)))
		heads->least = heads->batch;
	if (heads->least == NOBODY || (heads->pinned != NOBODY && before(heads->pinned, heads->least)))
		heads->least = heads->pinned;
}

/* Takes the first of them that may run here. */
static __always_inline bool take_least(const struct heads *heads, __u32 domain, __s32 index, struct cpu *cpu)
{
	if (heads->due && take_throttled(domain, cpu))
		return true;
	if (heads->batch != NOBODY && heads->batch == heads->least && take(BATCH_QUEUE(domain), COUNTER_from_batch))
		return true;
	if (heads->pinned != NOBODY && heads->pinned == heads->least && take_pinned(cpu, index))
		return true;
	if (take(MAIN_QUEUE(domain), COUNTER_from_main))
		return true;
	if (heads->pinned != NOBODY && take_pinned(cpu, index))
		return true;
	return heads->batch != NOBODY && take(BATCH_QUEUE(domain), COUNTER_from_batch);
}

/* Nothing waits in this domain: looks into the others, one after the other. */
static __always_inline bool take_from_others(__u32 own)
{
#if DOMAINS > 1
	__u32 step;

	bpf_for(step, 1, DOMAINS) {
		__u32 domain = (own + step) % DOMAINS;

		if (take(MAIN_QUEUE(domain), COUNTER_from_other_domains) ||
		    take(BATCH_QUEUE(domain), COUNTER_from_other_domains))
			return true;
	}
#endif
	return false;
}

#endif /* MORPHEUS_QUEUE_BPF_H */
