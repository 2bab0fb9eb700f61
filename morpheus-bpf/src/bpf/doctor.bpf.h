/* SPDX-License-Identifier: GPL-2.0-only */
/* The interface of the doctor's programs and src/doctor.rs: constants and structures, the same in both. */
#ifndef MORPHEUS_DOCTOR_BPF_H
#define MORPHEUS_DOCTOR_BPF_H

/* Kinds of threads of the process. */
#define KIND_UNKNOWN 0
/* It polls tasks of a runtime. */
#define KIND_WORKER 1
/* It does something else: a thread of a blocking pool, or of no runtime. */
#define KIND_OTHER 2

/* Kinds of known sleeps. */
#define SLEEP_PARK 1
/* In tokio's I/O driver. */
#define SLEEP_DRIVER 2
/* A spare worker of Morpheus, held in the poll of a task of its own. */
#define SLEEP_HELD 3

/* Kinds of events. */
#define EVENT_STACK 1
#define EVENT_END 2
#define EVENT_EXEC 3

/* Why a stack was copied. */
#define REASON_COMPUTES 1
#define REASON_WOKE 2
#define REASON_UNKNOWN_SLEEP 3
#define REASON_UNKNOWN_THREAD 4

#define MOST_SIGNATURES 32
#define MOST_RUNTIMES 16
#define NAME_BYTES 64
#define PATH_BYTES 128
/* Most stacks are copied whole by the smaller one. */
#define STACK_SMALL 16384
#define STACK_LARGE 65536
#define STACK_CHUNK 1024

/*
 * How a sleep of the executor's own is known: by its system call, and by a return address at a known distance from the stack
 * pointer, which is in a function that parks.
 */
struct signature {
	__u64 ip;
	__u64 return_address;
	__u32 return_offset;
	__u32 system_call;
	__u32 sleep;
	/* Where the worker keeps the pointer to its core, from the stack pointer; 0 where that is not known. */
	__u32 core_offset;
	/* Where in the core the number of polls is. */
	__u32 tick_offset;
	__u32 padding;
};

/* The roles of a runtime's workers, counted in one word, so that changes are atomic; and how long no worker served it. */
struct service {
	__u64 roles;
	__u64 unserved_since_ns;
	__u64 unserved_ns;
};

/* The record of a thread. */
struct thread {
	__u32 kind;
	/* Its runtime's index, and one; 0 where that is not known. */
	__u32 runtime;
	/* DRIVES, SERVES, STALLED */
	__u32 role;
	/* The sleep that it is in, or was last; 0: in no known one. */
	__u32 sleep;
	__u64 core_at;
	__u32 tick_offset;
	/* The number that the worker gave the poll, and whether it is known: TICK_OF_POLL, TICK_OF_PARK, TICK_OF_SLOT. */
	__u32 tick;
	__u32 has_tick;
	/* Its stack is to be copied as soon as it runs. */
	__u32 is_wanted;
	/*
	 * It runs, and from here on is not counted as computing yet; 0 of one that does not. Its CPU time since it began to run,
	 * in whatever poll, and the kernel's figure of its CPU time then.
	 */
	__u64 in_ns;
	__u64 ran_ns;
	__u64 in_exec_ns;
	__u64 out_ns;
	/* The poll: began at the latest, was seen last and had computed this much by then, its stack was copied last. */
	__u64 began_ns;
	__u64 seen_ns;
	__u64 seen_cpu_ns;
	__u64 copied_ns;
	__u64 cpu_ns;
	__u64 blocked_ns;
	__u64 unserved_base_ns;
	/* No copy before, while it is not known what the thread is. */
	__u64 quiet_until_ns;
	/* Where it sleeps. */
	__u64 ip;
	__u64 sp;
	__u64 bp;
	__u64 lr;
	__s64 system_call;
	__u64 arguments[3];
	/* The thread of the process that woke it last, and when. */
	__u32 waker;
	__u32 padding;
	__u64 woken_ns;
	/* Where it keeps the address of its slot; 0 of a thread that is not Morpheus's. */
	__u64 handle;
	/* Its worker's core is with another thread: no poll of its own holds up a worker. */
	__u32 is_handed_over;
	/* Its poll is known by its number. */
	__u32 is_exact;
	/* The stack is needed up to here: a little above where the worker parks. 0 where that is not known. */
	__u64 top;
};

struct event {
	__u32 kind;
	__u32 tid;
	__u64 now_ns;
	__u64 began_ns;
	__u64 cpu_ns;
	__u64 blocked_ns;
	__u64 unserved_ns;
	__u32 reason;
	__u32 runtime;
	/* The poll is known by its number, and not only by the worker's last park. */
	__u32 is_exact;
	__u32 length;
	__u64 ip;
	__u64 sp;
	__u64 bp;
	__u64 lr;
	__s64 system_call;
	__u64 arguments[3];
	/* How long it had slept, of a thread that woke. */
	__u64 slept_ns;
	/* The thread of the process that woke it last, and when. */
	__u32 waker;
	/* The type of the file that its first argument may name, as in stat; 0 where it names none. */
	__u32 mode;
	__u64 woken_ns;
	/* The number of the label of Morpheus's task, and one; 0 where there is none. */
	__u32 label;
	__u32 padding;
};

/* Of a thread that woke: what the arguments of its system call may name. Each may be nonsense. */
struct named {
	/* The file with the descriptor in the first argument, and its directory. */
	char file[NAME_BYTES];
	char directory[NAME_BYTES];
	/* The strings that the first two arguments point to. */
	char paths[2][PATH_BYTES];
};

/* Followed by as many bytes as the event says. */
struct stack_event {
	struct event event;
	struct named named;
	__u8 bytes[];
};

#endif /* MORPHEUS_DOCTOR_BPF_H */
