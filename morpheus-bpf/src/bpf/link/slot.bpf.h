/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The areas that are shared with applications, the binding of threads to slots, and the events.
 *
 * A connected process has a lease, with a number that is never used again. All state belongs to that number and not to the
 * process's: when the lease ends, its maps are taken out, and a thread that is still bound to it finds nothing, whichever process
 * has connected since.
 *
 * The words in the runtime's area are claims. They are loaded once for each decision (load_words). None of them is an index or a
 * pointer, and none is passed on to another process.
 */
#ifndef MORPHEUS_SLOT_BPF_H
#define MORPHEUS_SLOT_BPF_H

#include "kernel/counters.bpf.h"

/* Both areas have 64 bytes an entry, and entry 0 is the header. The daemon makes one of each kind for a lease. */
struct area {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE | BPF_F_INNER_MAP);
	__uint(max_entries, 2);
	/* Sizes and not types: clang keeps no whole types for a map within a map. */
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct morpheus_kernel_slot));
};

struct ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 65536);
};

/* The areas by the number of the lease. The daemon sets the sizes. */
struct areas {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct area);
};

SHARED(struct areas runtime_areas SEC(".maps"));
SHARED(struct areas kernel_areas SEC(".maps"));

struct rings {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct ring);
};

SHARED(struct rings rings SEC(".maps"));

/*
 * A process, distinct from a later one with the same number. The debt of a process and its hog polls belong to this key, since a
 * process can get a new lease at no cost.
 */
struct process {
	__u64 started_ns;
	__u32 tgid;
	/* A label of the process, or 0. */
	__u32 label;
};

/*
 * A worker, bound to its slot. The state is in the storage of the thread, and is freed with it.
 *
 * It is written by the CPU that runs the thread or switches it, which are ordered, and when the thread is bound.
 *
 * The present activity of a worker has a number, its *episode*: that of the watched poll or, if its process has marked it as a
 * hog, a number that is made from how often it has parked. 0 is neither. Each consequence of an episode ends with it.
 */
struct worker {
	/* 0: not bound. */
	__u32 lease;
	__u32 slot;
	/* The process of the worker; its label is 0. */
	struct process process;
	/* enum morpheus_policy */
	__u32 policy;
	__u64 budget_ns;
	__u64 grace_ns;
	/* CPU time since it was bound, up to the last time it was switched in, in ns. */
	__u64 ran_ns;
	/* The time at which it was switched in; 0 while it does not run. */
	__u64 since_ns;
	/* The episode of the last sample, and `ran_ns` at its start. */
	__u64 episode;
	__u64 episode_ran_ns;
	/* The last episode that was over its budget. */
	__u64 over;
	/* The last episode that was a hog poll. */
	__u64 hog_poll;
	/* The number of parks when the mark of a hog was first seen, plus 1; 0 without the mark. */
	__u64 marked;
	/* The time of the report BLOCKED, until the worker runs again, and the poll of that report. */
	__u64 asleep_ns;
	__u64 asleep_seq;
	/* The last verdict: a copy that no other process can read or write. */
	__u64 verdict;

	/* The scheduler's part. The episode of a demotion and of a throttling, or 0. */
	__u64 demoted;
	__u64 throttled;
	/* The last episode with a critical section that outlived its extension. */
	__u64 outlived;
	/* The start of the present window of a throttled worker, and its CPU time in that window. */
	__u64 window_ns;
	__u64 window_ran_ns;
	/* The vtime of a worker in the throttled DSQ, where its vtime is a time. */
	__u64 true_vtime;
	__u32 has_true_vtime;
	/* It has had the extension of this dispatch. */
	__u32 extended;
	/* It goes on where a kernel thread interrupted it: not a new dispatch. */
	__u32 resumes;
	/* It was demoted until now, and has not been charged since. */
	__u32 relieved;
};

struct workers {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct worker);
};

SHARED(struct workers workers SEC(".maps"));

/* The number of leases, written by the daemon: without any, a switch costs one read of this word. */
SHARED(__u32 leases);

static __always_inline struct morpheus_kernel_slot *kernel_slot(const struct worker *worker)
{
	__u32 lease = worker->lease, entry = worker->slot + 1;
	void *area = bpf_map_lookup_elem(&kernel_areas, &lease);

	return area ? bpf_map_lookup_elem(area, &entry) : 0;
}

/*
 * The words of a slot, loaded once. The process may write to the slot at any moment, and a decision has to use one set of words.
 * Each word is one that the process wrote there at some time.
 */
struct words {
	__u64 poll_seq;
	__u64 park_seq;
	__u32 state;
	__u32 critical_depth;
	__u32 flags;
	__u32 label;
};

/* Loads the words of a slot of a lease. Returns whether there is one. No other function reads what the runtime wrote. */
static __always_inline bool load_words_of(__u32 lease, __u32 index, struct words *words)
{
	const struct morpheus_runtime_slot *slot;
	__u32 entry = index + 1;
	void *area = bpf_map_lookup_elem(&runtime_areas, &lease);

	if (!area)
		return false;
	slot = bpf_map_lookup_elem(area, &entry);
	if (!slot)
		return false;
	/* First: the label and the flags of a poll are written before its number, where loads keep their order. */
	words->poll_seq = READ_ONCE(slot->poll_seq);
	words->park_seq = READ_ONCE(slot->park_seq);
	words->state = READ_ONCE(slot->state);
	words->critical_depth = READ_ONCE(slot->critical_depth);
	words->flags = READ_ONCE(slot->flags);
	words->label = READ_ONCE(slot->label);
	return true;
}

/* Loads the words of a worker's slot. Returns whether there is one. */
static __always_inline bool load_words(const struct worker *worker, struct words *words)
{
	return load_words_of(worker->lease, worker->slot, words);
}

/* The watched poll that is in progress, or 0. */
static __always_inline __u64 watched_poll(const struct words *slot)
{
	__u64 seq = slot->poll_seq;

	return seq & 1 ? seq : 0;
}

/* Whether the slot says that its worker can stall. A worker that denies it gets no help. The controller never stalls. */
static __always_inline bool is_active(const struct words *slot)
{
	return slot->state == MORPHEUS_WORKER_RUNNING &&
	       !(slot->flags & (MORPHEUS_SLOT_HELD | MORPHEUS_SLOT_CONTROLLER)) &&
	       !(slot->park_seq & 1);
}

/* Set in the episode of a hog; numbers of polls do not reach this bit. */
#define EPISODE_HOG (1ULL << 63)

/*
 * The episode of a worker. The mark of a hog holds until it is cleared or the worker parks: a process that leaves it there for
 * ever has one hog episode.
 */
static __always_inline __u64 episode_of(struct worker *worker, const struct words *slot)
{
	__u64 parked = slot->park_seq;

	if (!(slot->flags & MORPHEUS_SLOT_HOG)) {
		worker->marked = 0;
		return watched_poll(slot);
	}
	if (!worker->marked)
		worker->marked = parked + 1;
	if (worker->marked == parked + 1 && !(parked & 1))
		return EPISODE_HOG | parked;
	return watched_poll(slot);
}

/* The poll of an episode, or 0. */
static __always_inline __u64 poll_of(__u64 episode)
{
	return episode & EPISODE_HOG ? 0 : episode;
}

/* Adds flags to the verdict on a poll, and drops the verdict on another poll. */
static __always_inline void give_verdict(struct worker *worker, struct morpheus_kernel_slot *slot, __u64 seq,
					 __u64 flags)
{
	__u64 about = seq << MORPHEUS_VERDICT_SHIFT;
	__u64 mask = (1ULL << MORPHEUS_VERDICT_SHIFT) - 1;
	__u64 before = (worker->verdict & ~mask) == about ? worker->verdict & mask : 0;

	/* No poll would read it. */
	if (!seq)
		return;
	worker->verdict = about | before | flags;
	/* Release, pairs with the Acquire in verdict_for: with the verdict comes its oncpu_ns. */
	STORE_RELEASE(slot->verdict, worker->verdict);
}

static __always_inline void emit(const struct worker *worker, __u32 kind, __u64 seq, __u64 now, __u64 detail,
				 __u64 wakeup)
{
	__u32 lease = worker->lease;
	struct morpheus_event event = {
		.kind = kind,
		.slot = worker->slot,
		.poll_seq = seq,
		.at_ns = now,
		.detail = detail,
	};
	void *ring = bpf_map_lookup_elem(&rings, &lease);

	if (!ring)
		return;
	/* A full ring loses events of the process that does not read it, and of no other process. */
	if (bpf_ringbuf_output(ring, &event, sizeof(event), wakeup))
		count(COUNTER_events_lost);
	else
		count(COUNTER_events);
}

#endif /* MORPHEUS_SLOT_BPF_H */
