/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The memory that an application on Morpheus and the kernel side share. This header is its only
 * definition: src/abi.autogen.rs is generated from it, and tests/abi.rs fails if they differ.
 *
 * There are two shared areas, each an array of 64-byte entries. Entry 0 is the area's header, entry
 * 1 + n is slot n. Only the application writes the runtime's area. Only the kernel side writes the
 * kernel's area; without a kernel side, the runtime's controller does.
 *
 * Every word in the runtime's area is a claim: load it once, clamp it, and never let it decide over
 * another process. src/PROTOCOL.md says how the words are used together.
 *
 * Units: a name that ends in _ns counts nanoseconds, of CLOCK_MONOTONIC unless the comment says CPU
 * time.
 */
#ifndef MORPHEUS_ABI_H
#define MORPHEUS_ABI_H

/* A BPF program has these types from vmlinux.h, which cannot be combined with the header below. */
#ifndef __VMLINUX_H__
#include <linux/types.h>
#endif

/* "MORPHEUS", read from the highest byte to the lowest. */
#define MORPHEUS_ABI_MAGIC 0x4d4f525048455553ULL
/* Increases with every change of a word's meaning. Each side refuses other versions than its own. */
#define MORPHEUS_ABI_VERSION 1
/* Most slots of one process. */
#define MORPHEUS_MAX_SLOTS 4096
/* A verdict word is poll_seq << MORPHEUS_VERDICT_SHIFT | verdict flags. */
#define MORPHEUS_VERDICT_SHIFT 8

/* morpheus_runtime_slot.state. Requests and escalation happen only in RUNNING. */
enum morpheus_worker_state {
	/* No thread has the slot. Memory that is all zeroes means this. */
	MORPHEUS_WORKER_INIT = 0,
	/* An active worker or a held spare. */
	MORPHEUS_WORKER_RUNNING = 2,
	/* The thread has ended. The slot may be given to another thread. */
	MORPHEUS_WORKER_DEAD = 4,
};

/* morpheus_runtime_slot.flags */
enum morpheus_slot_flags {
	/* A held spare: it blocks in a poll on purpose, and is never stalled. */
	MORPHEUS_SLOT_HELD = 1,
	/* A handoff poll: another thread has the core, and no task waits behind the poll. */
	MORPHEUS_SLOT_HANDOFF = 2,
	/* The kernel side may demote and throttle this thread during a handoff poll. */
	MORPHEUS_SLOT_DEMOTABLE = 4,
	/*
	 * A CPU hog: the runtime found that an unwatched task keeps this worker. The thread counts as
	 * over its
	 * budget although poll_seq is even, until the flag is cleared or the worker parks. The process
	 * makes
	 * this claim against itself: the thread gives way to workers that serve.
	 */
	MORPHEUS_SLOT_HOG = 8,
	/*
	 * The thread is the runtime's controller and no worker: it has no polls, is never stalled, and
	 * serves the workers of its process.
	 */
	MORPHEUS_SLOT_CONTROLLER = 16,
};

/* The lower byte of morpheus_kernel_slot.verdict */
enum morpheus_verdict_flags {
	/* The poll used up its budget, on the CPU or asleep. */
	MORPHEUS_VERDICT_STALLED = 1,
	/* The thread slept in the kernel during the poll. */
	MORPHEUS_VERDICT_BLOCKED = 2,
	/* The poll used enough CPU time to count as a hog poll of its label. */
	MORPHEUS_VERDICT_HOG = 4,
	MORPHEUS_VERDICT_DEMOTED = 8,
	MORPHEUS_VERDICT_THROTTLED = 16,
};

/* morpheus_event.kind */
enum morpheus_event_kind {
	/* A worker fell asleep within a poll, and did not park. */
	MORPHEUS_EVENT_BLOCKED = 0,
	/* A poll used up its budget on the CPU. detail: CPU time of the poll, in ns. */
	MORPHEUS_EVENT_BUDGET = 1,
	/* The thread was demoted. detail: CPU time of the poll, in ns. */
	MORPHEUS_EVENT_DEMOTED = 2,
	/* The thread was throttled. detail: hog polls of the label. */
	MORPHEUS_EVENT_THROTTLED = 3,
	/* A worker that was reported as BLOCKED runs again. detail: duration of the sleep, in ns. */
	MORPHEUS_EVENT_WOKEN = 4,
};

/*
 * morpheus_runtime_header.policy: the last step that the ladder may take. A policy has the number of
 * its last step.
 */
enum morpheus_policy {
	MORPHEUS_POLICY_OBSERVE = 0,
	MORPHEUS_POLICY_REQUEST = 1,
	MORPHEUS_POLICY_TAKEOVER = 2,
	MORPHEUS_POLICY_DEMOTE = 3,
	MORPHEUS_POLICY_THROTTLE = 4,
};

/* morpheus_kernel_slot.step: the last step that the ladder took with the present poll. */
enum morpheus_step {
	MORPHEUS_STEP_WATCHING = 0,
	MORPHEUS_STEP_REQUESTED = 1,
	MORPHEUS_STEP_TAKEN_OVER = 2,
	MORPHEUS_STEP_DEMOTED = 3,
	MORPHEUS_STEP_THROTTLED = 4,
};

/* morpheus_kernel_header.mode */
enum morpheus_kernel_mode {
	/* There is no kernel side. */
	MORPHEUS_MODE_NONE = 0,
	/* The kernel side observes and reports, and slows no thread down. */
	MORPHEUS_MODE_OBSERVE = 1,
	/* The kernel side schedules, and demotes and throttles if the policy allows it. */
	MORPHEUS_MODE_ENFORCE = 2,
};

/* Entry 0 of the runtime's area. */
struct morpheus_runtime_header {
	__u64 magic;
	__u32 abi_version;
	/* Number of slots that follow, at most MORPHEUS_MAX_SLOTS. */
	__u32 slots;
	/* The process, in its own PID namespace. The kernel side uses the socket's credentials instead. */
	__u32 tgid;
	/* enum morpheus_policy */
	__u32 policy;
	/* A poll that lasts longer is stalled. */
	__u64 budget_ns;
	/* Further time that a poll has to answer a request, in CPU time. */
	__u64 grace_ns;
	__u64 reserved[3];
};

/* Entry 0 of the kernel's area. */
struct morpheus_kernel_header {
	__u64 magic;
	__u32 abi_version;
	__u32 slots;
	/* Time of the kernel side's last heartbeat. */
	__u64 heartbeat_ns;
	/* enum morpheus_kernel_mode */
	__u32 mode;
	/* Pressure stall information, "some avg10", in hundredths of a percent. */
	__u32 psi_cpu;
	__u32 psi_io;
	__u32 psi_memory;
	/* Runnable threads of the whole machine that have no CPU. */
	__u32 run_queue_depth;
	__u32 reserved[5];
};

/* Entry 1 + n of the runtime's area: the words that worker n writes about itself. */
struct morpheus_runtime_slot {
	/*
	 * Odd while a watched poll is in progress. Never reset, not even when another thread takes the
	 * slot. So (slot, poll_seq) names one poll for ever.
	 */
	__u64 poll_seq;
	/* Odd while the worker is parked. Never reset. */
	__u64 park_seq;
	/* The poll_seq of the last request that was answered. */
	__u64 ack_seq;
	__u32 tid;
	/* enum morpheus_worker_state */
	__u32 state;
	/* Number of critical sections that the thread is in. */
	__u32 critical_depth;
	/* enum morpheus_slot_flags, several */
	__u32 flags;
	/* Label of the running task: the runtime's number of a spawn location or a name. 0 is unknown. */
	__u32 label;
	/* Number of requests that the worker's tasks answered with a yield. It wraps. */
	__u32 yields;
	__u32 reserved[4];
};

/* Entry 1 + n of the kernel's area: the words that are written about worker n. */
struct morpheus_kernel_slot {
	/* Number of the poll that is asked to yield. If it is not poll_seq, that poll is over. */
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

/* A record of the ring buffer from the kernel side to the controller. 32 bytes. */
struct morpheus_event {
	/* enum morpheus_event_kind */
	__u32 kind;
	__u32 slot;
	/* The poll that the event is about. */
	__u64 poll_seq;
	__u64 at_ns;
	/* Depends on the kind; 0 where the kind does not mention it. */
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
