/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The areas that are shared with applications, who is bound to which slot, and the events.
 *
 * A process that is connected has a lease, with a number that is never used again. Everything hangs on that number and
 * not on the process's: when the lease ends its maps are taken out, and a thread that is still bound to it finds
 * nothing, whatever has connected since.
 *
 * What stands in the runtime's area is a claim. Its words are loaded once for each decision (load_words); none of them is
 * an index or a pointer, and none is passed on to another process.
 */
#ifndef MORPHEUS_SLOT_BPF_H
#define MORPHEUS_SLOT_BPF_H

#include "kernel/counters.bpf.h"

/* Both areas: 64 bytes an entry, entry 0 the header. The daemon makes one of each kind for every lease. */
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

/* From a lease's number to what it has. The daemon sets the sizes. */
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
 * A process, apart from a later one with the same number. What a process owes, and what its polls have done, hangs on this:
 * a lease can be had again for nothing.
 */
struct process {
	__u64 started_ns;
	__u32 tgid;
	/* Which of its labels, where it is about one. */
	__u32 label;
};

/*
 * A worker, bound to its slot. It is the thread's own, and goes when the thread does.
 *
 * It is written on the CPU that switches the thread in or out or that runs it, one after the other, and when the
 * thread is bound.
 *
 * What a worker is busy with has a number here, its *episode*: that of the watched poll, or, where its process has
 * marked it as a hog, one that is made from how often it has parked. 0 is neither. What was done because of one episode
 * ends with it.
 */
struct worker {
	/* 0: not bound. */
	__u32 lease;
	__u32 slot;
	/* Whose worker it is; its label is 0. */
	struct process process;
	/* enum morpheus_policy */
	__u32 policy;
	__u64 budget_ns;
	__u64 grace_ns;
	/* CPU time since it was bound, up to when it was last switched in. */
	__u64 ran_ns;
	/* When it was switched in; 0 while it has no CPU. */
	__u64 since_ns;
	/* The episode that was last seen, and what ran_ns was then. */
	__u64 episode;
	__u64 episode_ran_ns;
	/* The last episode that was found over its budget. */
	__u64 over;
	/* The last that was an offence. */
	__u64 hog_poll;
	/* How often it had parked when the mark of a hog was first seen, plus 1; 0 without the mark. */
	__u64 marked;
	/* When it was reported BLOCKED, until it runs again, and in which poll. */
	__u64 asleep_ns;
	__u64 asleep_seq;
	/* The last verdict: a copy that nobody else can read or write. */
	__u64 verdict;

	/* From here on the scheduler's. The episode for which it is demoted, throttled, or 0. */
	__u64 demoted;
	__u64 throttled;
	/* The last episode with a critical section that outlived its extension. */
	__u64 outlived;
	/* Throttled: when its present window began, and what it has run in it. */
	__u64 window_ns;
	__u64 window_ran_ns;
	/* What its vtime was before it went to the queue of those that are throttled, where it stands for a time. */
	__u64 true_vtime;
	__u32 has_true_vtime;
	/* It has had the extension of this dispatch. */
	__u32 extended;
	/* It goes on where one of the kernel's own threads interrupted it; then this is no new dispatch. */
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

/* How many leases there are, written by the daemon: without any, a switch costs a look at this. */
SHARED(__u32 leases);

static __always_inline struct morpheus_kernel_slot *kernel_slot(const struct worker *worker)
{
	__u32 lease = worker->lease, entry = worker->slot + 1;
	void *area = bpf_map_lookup_elem(&kernel_areas, &lease);

	return area ? bpf_map_lookup_elem(area, &entry) : 0;
}

/*
 * What a slot says, loaded once: the process may write to it at any moment, and one decision goes by one set of words, of
 * which each is what the process wrote there at some time.
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
	/* First: with a poll come the label and the flags that it was begun with, where loads keep their order. */
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

/* Whether the worker says of itself that it can be stalled. Who says no is not helped; the controller is none. */
static __always_inline bool is_active(const struct words *slot)
{
	return slot->state == MORPHEUS_WORKER_RUNNING &&
	       !(slot->flags & (MORPHEUS_SLOT_HELD | MORPHEUS_SLOT_CONTROLLER)) &&
	       !(slot->park_seq & 1);
}

/* Numbers of polls do not come so far, and what is made up does not look like one. */
#define EPISODE_HOG (1ULL << 63)

/*
 * What the worker is busy with. The mark of a hog holds until it goes or the worker parks: who leaves it there for ever
 * is a hog once.
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

/* The poll that an episode is, for those who know polls only. */
static __always_inline __u64 poll_of(__u64 episode)
{
	return episode & EPISODE_HOG ? 0 : episode;
}

/* Adds flags to what was said about a poll; what was said about another one is replaced. */
static __always_inline void give_verdict(struct worker *worker, struct morpheus_kernel_slot *slot, __u64 seq,
					 __u64 flags)
{
	__u64 about = seq << MORPHEUS_VERDICT_SHIFT;
	__u64 mask = (1ULL << MORPHEUS_VERDICT_SHIFT) - 1;
	__u64 before = (worker->verdict & ~mask) == about ? worker->verdict & mask : 0;

	/* There is nobody to find it. */
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
	/* A full ring loses events of the process that does not read it, and nobody else's. */
	if (bpf_ringbuf_output(ring, &event, sizeof(event), wakeup))
		count(COUNTER_events_lost);
	else
		count(COUNTER_events);
}

#endif /* MORPHEUS_SLOT_BPF_H */
