/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The areas that are shared with applications, who is bound to which slot, and the events.
 *
 * A process that is connected has a lease, with a number that is never used again. Everything hangs on that number and
 * not on the process's: when the lease ends its maps are taken out, and a thread that is still bound to it finds
 * nothing, whatever has connected since.
 *
 * What stands in the runtime's area is a claim. Each word is loaded once into a local, which is then used; none of them
 * is an index or a pointer, and none is passed on to another process.
 */
#ifndef MORPHEUS_SLOT_BPF_H
#define MORPHEUS_SLOT_BPF_H

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
struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct area);
} runtime_areas SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct area);
} kernel_areas SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH_OF_MAPS);
	__uint(max_entries, 1);
	__type(key, __u32);
	__array(values, struct ring);
} rings SEC(".maps");

/*
 * A worker, bound to its slot. It is the thread's own, and goes when the thread does.
 *
 * It is written on the CPU that switches the thread in or out or that runs it, one after the other, and when the
 * thread is bound.
 */
struct worker {
	/* 0: not bound. */
	__u32 lease;
	__u32 slot;
	/* enum morpheus_policy */
	__u32 policy;
	__u64 budget_ns;
	/* CPU time since it was bound, up to when it was last switched in. */
	__u64 ran_ns;
	/* When it was switched in; 0 while it has no CPU. */
	__u64 since_ns;
	/* The watched poll that was last seen, 0 if there was none, and what ran_ns was then. */
	__u64 poll_seq;
	__u64 poll_ran_ns;
	/* The last poll that was found over its budget. */
	__u64 over_seq;
	/* When it was reported BLOCKED, until it runs again, and in which poll. */
	__u64 asleep_ns;
	__u64 asleep_seq;
	/* The last verdict: a copy that nobody else can read or write. */
	__u64 verdict;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct worker);
} workers SEC(".maps");

/* Counters for the daemon to print. */
__u64 events_sent;
__u64 events_lost;
__u64 requests_made;
/* Workers that were found on a CPU without having been switched in. */
__u64 unseen_switches;

static __always_inline struct morpheus_runtime_slot *runtime_slot(const struct worker *worker)
{
	__u32 lease = worker->lease, entry = worker->slot + 1;
	void *area = bpf_map_lookup_elem(&runtime_areas, &lease);

	return area ? bpf_map_lookup_elem(area, &entry) : 0;
}

static __always_inline struct morpheus_kernel_slot *kernel_slot(const struct worker *worker)
{
	__u32 lease = worker->lease, entry = worker->slot + 1;
	void *area = bpf_map_lookup_elem(&kernel_areas, &lease);

	return area ? bpf_map_lookup_elem(area, &entry) : 0;
}

/* The watched poll that is in progress, or 0. */
static __always_inline __u64 watched_poll(const struct morpheus_runtime_slot *slot)
{
	__u64 seq = READ_ONCE(slot->poll_seq);

	return seq & 1 ? seq : 0;
}

/* Whether the worker says of itself that it can be stuck. Who says no is not helped; the controller is none. */
static __always_inline bool in_play(const struct morpheus_runtime_slot *slot)
{
	return READ_ONCE(slot->state) == MORPHEUS_WORKER_RUNNING &&
	       !(READ_ONCE(slot->flags) & (MORPHEUS_SLOT_HELD | MORPHEUS_SLOT_CONTROLLER)) && !(READ_ONCE(slot->park_seq) & 1);
}

/* Adds flags to what was said about a poll; what was said about another one is replaced. */
static __always_inline void give_verdict(struct worker *worker, struct morpheus_kernel_slot *slot, __u64 seq,
					 __u64 flags)
{
	__u64 about = seq << MORPHEUS_VERDICT_SHIFT;
	__u64 mask = (1ULL << MORPHEUS_VERDICT_SHIFT) - 1;
	__u64 before = (worker->verdict & ~mask) == about ? worker->verdict & mask : 0;

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
		__sync_fetch_and_add(&events_lost, 1);
	else
		__sync_fetch_and_add(&events_sent, 1);
}

#endif /* MORPHEUS_SLOT_BPF_H */
