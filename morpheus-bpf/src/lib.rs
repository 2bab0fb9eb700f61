// SPDX-License-Identifier: GPL-2.0-only
//! The kernel side of Morpheus.
//!
//! The daemon `scx_morpheus` loads BPF programs that read the control block of every connected application and see
//! what the application cannot: that a worker sleeps in the kernel in the middle of a poll, and how much CPU time a
//! poll has used. It tells the application through the area that is the kernel's, and through a ring of events.
//!
//! There are two of them, which watch workers with the same code:
//!
//! - the **observer** (`--observe`): tracing programs only, on a kernel with BTF, and the kernel's own scheduler schedules;
//! - the **scheduler**: schedules the whole machine with sched_ext, takes the CPU from a stalled worker for one that serves,
//!   demotes and throttles hogs, and lets critical sections finish.
//!
//! ```text
//!  application ── Hello, Register ──► broker ──► session ──► kernel ──► BPF programs of the observer
//!       │      ◄── two areas, ring ──                                │  or of the scheduler
//!       └────────────── slots (shared memory), events ◄──────────────┘
//! ```
//!
//! - [`broker`]: the socket, the connections, the loop.
//! - [`session`]: what one connection may ask for and gets; knows no socket and no BPF.
//! - [`bucket`]: how often it may ask. [`accounts`]: the account that a user is charged to. [`quota`]: how many connections
//!   and how much kernel memory an account may hold.
//! - [`peer`]: who is on the other side, and whether a thread is one of its.
//! - `leases`: where BPF finds the areas of a lease.
//! - [`kernel`]: what both kinds of BPF programs have in common: areas, bindings, counters.
//! - [`observer`], [`scheduler`]: loading and attaching them. [`exit`]: why the kernel ended the scheduler.
//!   [`restart`]: whether and when it starts again.
//! - [`machine`]: what the daemon does for the machine as a whole, once in a second.
//! - [`scaling`]: what of the policy depends on the number of CPUs.
//! - [`topology`]: which CPUs there are and what they share.
//! - [`adapt`]: from what the scheduler has counted to what it is told.
//! - [`procdb`]: what tasks of a name turned out to be, over many runs.
//! - [`stats`]: the counters, for those who ask; [`connections`]: which processes are connected, for the same.
//!   [`reporter`]: what the daemon says unasked. `morpheus-tools` reads both back, and has the format.
//! - [`pressure`]: how busy the machine is, for the area's header.
//! - `regular`: how the files below are read and written, in directories that others may write to, too.
//! - [`install`]: the files of the system that make a service of it.
//! - [`check`], [`start`]: what the commands of these names do; [`kernel_log`]: `dmesg`; [`run_log`]: what
//!   `start` keeps of it. The other commands are in `morpheus-tools`.
//!
//! The BPF programs, in `src/bpf`. Each `.bpf.c` is an object; `build.rs` links the objects of the observer and of the scheduler.
//! Where an object offers something to others, a header of the same name is its interface:
//!
//! | file | what |
//! |---|---|
//! | `observer.bpf.c`, `scheduler.bpf.c` | what the kernel gets: the link and nothing else; and the table of callbacks |
//! | **`policy/`** | **how tasks are scheduled, in five files** |
//! | `policy.bpf.h` | what the policy knows of the machine, of CPUs, of domains and of tasks |
//! | `classify.bpf.h` | what a task is like: its tier, and how long its slices are |
//! | `queue.bpf.h` | which task runs next: vtime, queues, what a CPU chooses |
//! | `place.bpf.h` | which CPU a task gets that wakes: an idle one, or one that it preempts |
//! | `policy.bpf.c` | the callbacks, in the order of a task's life |
//! | **`link/`** | **what the kernel side does for workers of applications** |
//! | `slot` | areas, bindings, events; what a worker is busy with |
//! | `lease` | what the daemon calls: bind, unbind, heartbeat |
//! | `watch` | sees workers block, and polls use up their budget |
//! | `ladder` | demotion, throttling, critical sections |
//! | `loan` | what workers of a process lend each other |
//! | **`options/`** | **what can be left out, behind `options.bpf.h`** |
//! | `names`, `latency` | tasks that are known by their names; how long tasks waited |
//! | `near`, `sync`, `later` | second-level caches; wakes by tasks that are about to sleep; preemption that is not due yet |
//! | `detect`, `starvation` | bursts and long runs; when the main queue goes before the front queue |
//! | `rescue`, `crowd` | against stalls; shorter slices where many tasks wait |
//! | `hotplug`, `reenqueue` | tasks that wait for a CPU that goes offline, or that a class above takes |
//! | `groups`, `quota`, `limit` | what a task weighs in its groups; accounts of what they may use at most, and tasks that wait for it |
//! | `hybrid`, `nodes` | CPUs that differ in capacity; masks of idle CPUs by node |
//! | `speed` | how fast a CPU should be, for the frequency governor |
//! | **`kernel/`** | **the few types of the kernel that are used, sched_ext under all its names, and the counters** |
//!
//! # Invariants
//!
//! - The statements of an application are checked here or in the BPF programs, never believed: a process reaches its
//!   own slots and its own threads.
//! - A connection is a lease. When it closes, its maps and bindings go.
//! - A claim of a process against itself (a hog) is believed; one for itself (a critical section, a controller) is bounded:
//!   the CPU time is charged, and vtime decides.
//! - When the scheduler ends, however it ends, the kernel's own schedules, and every connection is closed.
//! - The resources that a peer can make the daemon hold are bounded: connections, slots, one message at a time. So is the
//!   kernel memory that users keep: areas stay charged until the kernel no longer knows them.
#![warn(missing_docs)]

/// Says a line on standard error, with the arguments of `eprintln!`. That one panics where the line cannot be written, as
/// on a full disk or to a reader that has ended; a daemon that schedules the machine goes on.
///
/// It waits where standard error is a pipe that is full. The thread that serves applications does not say its lines so.
#[macro_export]
macro_rules! say {
    ($($text:tt)*) => {{
        use ::std::io::Write as _;
        let _ = ::std::writeln!(::std::io::stderr(), $($text)*);
    }};
}

pub mod accounts;
pub mod adapt;
pub mod broker;
pub mod bucket;
pub mod check;
pub mod connections;
pub mod doctor;
pub mod exit;
pub mod install;
pub mod kernel;
pub mod kernel_log;
pub mod machine;
pub mod observer;
pub mod peer;
pub mod pressure;
pub mod procdb;
pub mod quota;
pub mod reporter;
pub mod restart;
pub mod run_log;
pub mod scaling;
pub mod scheduler;
pub mod session;
pub mod start;
pub mod stats;
pub mod topology;

mod closer;
mod domains;
#[cfg(test)]
mod headers;
mod leases;
mod line_writer;
mod placement;
mod regular;
mod skeleton;
