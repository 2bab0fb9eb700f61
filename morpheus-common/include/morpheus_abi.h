/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What an application that runs on Morpheus and the kernel side share. This is the only definition:
 * src/abi.autogen.rs is made from it, and tests/abi.rs fails when they differ.
 *
 * An application and the kernel side share two areas, each an array of 64-byte entries. Entry 0 is
 * the area's header, entry 1 + n is slot n. The runtime's area is written by the application alone
 * and the kernel's by the kernel side alone (by the runtime's controller where there is no kernel
 * side).
 *
 * Everything in the runtime's area is a claim: load a word once, clamp it, and never let it decide
 * over another process. src/PROTOCOL.md says how the words are used together.
 *
 * Units: _ns is nanoseconds of CLOCK_MONOTONIC, or of CPU time where said.
 */
#ifndef MORPHEUS_ABI_H
#define MORPHEUS_ABI_H

/* A BPF program has these types from vmlinux.h, which must not be mixed with the header below. */
#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

/* "MORPHEUS", read from the highest byte down. */
#define MORPHEUS_ABI_MAGIC 0x4d4f525048455553ULL
/* Goes up whenever a word's meaning changes. Both sides refuse another version than their own. */
#define MORPHEUS_ABI_VERSION 1
/* The most slots that one process may have. */
#define MORPHEUS_MAX_SLOTS 4096
/* A verdict word is poll_seq << MORPHEUS_VERDICT_SHIFT | verdict flags. */
#define MORPHEUS_VERDICT_SHIFT 8

/* morpheus_runtime_slot.state. Requests and escalation happen only in RUNNING. */
enum morpheus_worker_state {
	/* Nobody has the slot: all zeroes mean this. */
	MORPHEUS_WORKER_INIT = 0,
	/* A worker in play, or a held spare. */
	MORPHEUS_WORKER_RUNNING = 2,
	/* The thread has ended; the slot may be given to another one. */
	MORPHEUS_WORKER_DEAD = 4,
};

/* morpheus_runtime_slot.flags */
enum morpheus_slot_flags {
	/* A held spare: it blocks in a poll on purpose, and is never stalled. */
	MORPHEUS_SLOT_HELD = 1,
	/* Polls in place: its core has been handed to another thread, nothing waits behind it. */
	MORPHEUS_SLOT_HANDOFF = 2,
	/* The kernel side may demote and throttle this thread, while it polls in place. */
	MORPHEUS_SLOT_DEMOTABLE = 4,
	/*
	 * The runtime found that a task which nobody watches keeps this worker: the thread is over its
	 * budget although poll_seq is even, until the flag goes or the worker parks. A claim of a
	 * process against itself; it gives way to those who serve.
	 */
	MORPHEUS_SLOT_HOG = 8,
	/*
	 * The thread is the runtime's controller, no worker: it has no polls, is never stalled, and
	 * serves the others of its process.
	 */
	MORPHEUS_SLOT_CONTROLLER = 16,
};

/* The lower byte of morpheus_kernel_slot.verdict */
enum morpheus_verdict_flags {
	/* The poll used up its budget, on the CPU or asleep. */
	MORPHEUS_VERDICT_STALLED = 1,
	/* The thread slept in the kernel during the poll. */
	MORPHEUS_VERDICT_BLOCKED = 2,
	/* The poll used so much CPU that it counts against its label. */
	MORPHEUS_VERDICT_HOG = 4,
	MORPHEUS_VERDICT_DEMOTED = 8,
	MORPHEUS_VERDICT_THROTTLED = 16,
};

/* morpheus_event.kind */
enum morpheus_event_kind {
	/* A worker went to sleep within a poll, and not because it parked. */
	MORPHEUS_EVENT_BLOCKED = 0,
	/* A poll used up its budget on the CPU. detail: CPU time of the poll in ns. */
	MORPHEUS_EVENT_BUDGET = 1,
	/* detail: CPU time of the poll in ns. */
	MORPHEUS_EVENT_DEMOTED = 2,
	/* detail: hog polls of the label. */
	MORPHEUS_EVENT_THROTTLED = 3,
	/* A worker that was reported BLOCKED runs again. detail: how long it slept, in ns. */
	MORPHEUS_EVENT_WOKEN = 4,
};

/*
 * morpheus_runtime_header.policy: how far the ladder may go. The number of a policy is that of its
 * last step.
 */
enum morpheus_policy {
	MORPHEUS_POLICY_OBSERVE = 0,
	MORPHEUS_POLICY_REQUEST = 1,
	MORPHEUS_POLICY_TAKEOVER = 2,
	MORPHEUS_POLICY_DEMOTE = 3,
	MORPHEUS_POLICY_THROTTLE = 4,
};

/* morpheus_kernel_slot.step: how far the ladder has gone with the present poll. */
enum morpheus_step {
	MORPHEUS_STEP_WATCHING = 0,
	MORPHEUS_STEP_REQUESTED = 1,
	MORPHEUS_STEP_TAKEN_OVER = 2,
	MORPHEUS_STEP_DEMOTED = 3,
	MORPHEUS_STEP_THROTTLED = 4,
};

/* morpheus_kernel_header.mode */
enum morpheus_kernel_mode {
	/* No kernel side. */
	MORPHEUS_MODE_NONE = 0,
	/* It sees and reports, and slows nobody down. */
	MORPHEUS_MODE_OBSERVE = 1,
	/* It schedules, and demotes and throttles where the policy allows it. */
	MORPHEUS_MODE_ENFORCE = 2,
};

/* Entry 0 of the runtime's area. */
struct morpheus_runtime_header {
	__u64 magic;
	__u32 abi_version;
	/* How many slots follow, at most MORPHEUS_MAX_SLOTS. */
	__u32 slots;
	/* The process, as it sees itself. The kernel side goes by the socket's credentials. */
	__u32 tgid;
	/* enum morpheus_policy */
	__u32 policy;
	/* A poll that lasts longer is stalled. */
	__u64 budget_ns;
	/* How much longer it has to answer a request. */
	__u64 grace_ns;
	__u64 reserved[3];
};

/* Entry 0 of the kernel's area. */
struct morpheus_kernel_header {
	__u64 magic;
	__u32 abi_version;
	__u32 slots;
	/* When the kernel side last said that it is there. */
	__u64 heartbeat_ns;
	/* enum morpheus_kernel_mode */
	__u32 mode;
	/* Pressure, "some avg10", in hundredths of a percent. */
	__u32 psi_cpu;
	__u32 psi_io;
	__u32 psi_memory;
	/* Runnable threads in the whole machine that have no CPU. */
	__u32 run_queue_depth;
	__u32 reserved[5];
};

/* Entry 1 + n of the runtime's area: what worker n says of itself. */
struct morpheus_runtime_slot {
	/*
	 * Odd while a watched poll is in progress. Never reset, not even when the slot goes to
	 * another thread: so (slot, poll_seq) names one poll for ever.
	 */
	__u64 poll_seq;
	/* Odd while the worker is parked. Never reset either. */
	__u64 park_seq;
	/* The poll_seq of the last request that was answered. */
	__u64 ack_seq;
	__u32 tid;
	/* enum morpheus_worker_state */
	__u32 state;
	/* How many critical sections the thread is in. */
	__u32 critical_depth;
	/* enum morpheus_slot_flags, several */
	__u32 flags;
	/* What runs: the runtime's number of a spawn location or a name. 0 is unknown. */
	__u32 label;
	/* Requests that the worker's tasks answered with a yield. It wraps. */
	__u32 yields;
	__u32 reserved[4];
};

/* Entry 1 + n of the kernel's area: what is said to worker n. */
struct morpheus_kernel_slot {
	/* Equal to poll_seq: that poll is asked to yield. Else it is about one that is over. */
	__u64 request_seq;
	/* poll_seq << MORPHEUS_VERDICT_SHIFT | enum morpheus_verdict_flags, several */
	__u64 verdict;
	/* CPU time of the poll that the verdict is about. */
	__u64 oncpu_ns;
	/* enum morpheus_step */
	__u32 step;
	__u32 reserved0;
	__u64 reserved[4];
};

/* An entry of the ring buffer from the kernel side to the controller. 32 bytes. */
struct morpheus_event {
	/* enum morpheus_event_kind */
	__u32 kind;
	__u32 slot;
	/* The poll that the event is about. */
	__u64 poll_seq;
	__u64 at_ns;
	/* Depends on the kind; 0 where it says nothing of it. */
	__u64 detail;
};

#define MORPHEUS_ASSERT_SIZE(type, size) \
	_Static_assert(sizeof(struct type) == (size), #type " has another size")
#define MORPHEUS_ASSERT_OFFSET(type, field, offset) \
	_Static_assert(__builtin_offsetof(struct type, field) == (offset), \
		       #type "." #field " is elsewhere")

MORPHEUS_ASSERT_SIZE(morpheus_runtime_header, 64);
MORPHEUS_ASSERT_OFFSET(morpheus_runtime_header, magic, 0);
MORPHEUS_ASSERT_OFFSET(morpheus_runtime_header, abi_version, 8);
MORPHEUS_ASSERT_OFFSET(morpheus_runtime_header, slots, 12);
MORPHEUS_ASSERT_OFFSET(morpheus_runtime_header, tgid, 16);
MORPHEUS_ASSERT_OFFSET(morpheus_runtime_header, policy, 20);
MORPHEUS_ASSERT_OFFSET(morpheus_runtime_header, budget_ns, 24);
MORPHEUS_ASSERT_OFFSET(morpheus_runtime_header, grace_ns, 32);
MORPHEUS_ASSERT_OFFSET(morpheus_runtime_header, reserved, 40);

MORPHEUS_ASSERT_SIZE(morpheus_kernel_header, 64);
MORPHEUS_ASSERT_OFFSET(morpheus_kernel_header, magic, 0);
MORPHEUS_ASSERT_OFFSET(morpheus_kernel_header, abi_version, 8);
MORPHEUS_ASSERT_OFFSET(morpheus_kernel_header, slots, 12);
MORPHEUS_ASSERT_OFFSET(morpheus_kernel_header, heartbeat_ns, 16);
MORPHEUS_ASSERT_OFFSET(morpheus_kernel_header, mode, 24);
MORPHEUS_ASSERT_OFFSET(morpheus_kernel_header, psi_cpu, 28);
MORPHEUS_ASSERT_OFFSET(morpheus_kernel_header, psi_io, 32);
MORPHEUS_ASSERT_OFFSET(morpheus_kernel_header, psi_memory, 36);
MORPHEUS_ASSERT_OFFSET(morpheus_kernel_header, run_queue_depth, 40);
MORPHEUS_ASSERT_OFFSET(morpheus_kernel_header, reserved, 44);

MORPHEUS_ASSERT_SIZE(morpheus_runtime_slot, 64);
MORPHEUS_ASSERT_OFFSET(morpheus_runtime_slot, poll_seq, 0);
MORPHEUS_ASSERT_OFFSET(morpheus_runtime_slot, park_seq, 8);
MORPHEUS_ASSERT_OFFSET(morpheus_runtime_slot, ack_seq, 16);
MORPHEUS_ASSERT_OFFSET(morpheus_runtime_slot, tid, 24);
MORPHEUS_ASSERT_OFFSET(morpheus_runtime_slot, state, 28);
MORPHEUS_ASSERT_OFFSET(morpheus_runtime_slot, critical_depth, 32);
MORPHEUS_ASSERT_OFFSET(morpheus_runtime_slot, flags, 36);
MORPHEUS_ASSERT_OFFSET(morpheus_runtime_slot, label, 40);
MORPHEUS_ASSERT_OFFSET(morpheus_runtime_slot, yields, 44);

MORPHEUS_ASSERT_SIZE(morpheus_kernel_slot, 64);
MORPHEUS_ASSERT_OFFSET(morpheus_kernel_slot, request_seq, 0);
MORPHEUS_ASSERT_OFFSET(morpheus_kernel_slot, verdict, 8);
MORPHEUS_ASSERT_OFFSET(morpheus_kernel_slot, oncpu_ns, 16);
MORPHEUS_ASSERT_OFFSET(morpheus_kernel_slot, step, 24);
MORPHEUS_ASSERT_OFFSET(morpheus_kernel_slot, reserved0, 28);
MORPHEUS_ASSERT_OFFSET(morpheus_kernel_slot, reserved, 32);

MORPHEUS_ASSERT_SIZE(morpheus_event, 32);
MORPHEUS_ASSERT_OFFSET(morpheus_event, kind, 0);
MORPHEUS_ASSERT_OFFSET(morpheus_event, slot, 4);
MORPHEUS_ASSERT_OFFSET(morpheus_event, poll_seq, 8);
MORPHEUS_ASSERT_OFFSET(morpheus_event, at_ns, 16);
MORPHEUS_ASSERT_OFFSET(morpheus_event, detail, 24);

#endif /* MORPHEUS_ABI_H */
