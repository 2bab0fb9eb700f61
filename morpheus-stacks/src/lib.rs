//! The stack of a stalled thread of this process, taken without stopping it, grouped by line.
//!
//! An application uses `morpheus-runtime`, which tells its users the line that a poll is stalled in. This crate is a part of
//! it, and promises nothing to others but the types that the runtime shows: [`Stalls`] and all that is in it. It knows of no
//! runtime: the caller finds stalled polls, says what identifies one, and names their labels.
//!
//! ```text
//!   the caller                                              the caller, or a thread for a moment
//!   captor.rs ── blocked.rs  the copy of a sleeper's stack ─┐
//!       │                                                   ├─► groups.rs ── walk.rs ── symbols.rs
//!       └─────── signal.rs   a computing thread's own copy ─┘
//! ```
//!
//! - The caller hands over a poll that has been stalled for a while, once for each poll, and comes back regularly (a runtime's
//!   controller, once a millisecond): so `captor.rs` gets a copy of its thread's stack. No thread is stopped, and no thread
//!   but the stalled one does anything for it. Nothing changes on the path of a poll. While no poll is stalled nothing is
//!   done, nothing is allocated and no signal handler is installed.
//! - A thread that is blocked in the kernel is not disturbed (`blocked.rs`): a signal would end its system
//!   call. One that computes is asked by a signal (`signal.rs`).
//! - Copies wait until the groups are asked for (`groups.rs`). When many wait, a thread that exists for a moment only walks
//!   them. Names and lines are looked up when they are asked for, not before.
//!
//! **Costs.** The thread that is asked was away for 13 µs where it had the CPU to itself, and for 59 to 60 µs where
//! it shared it with a compiler (of those 24 µs without a signal, too): medians of 101, four runs of
//! `a_stack_costs_its_thread_little` in the runtime's `tests/stalls.rs`, debug build, two virtual CPUs. Others lose nothing.
//! The bench `capture` times the caller's side, too.
//!
//! **Bounds.** Captures within a second, copies that wait, and groups have a limit each. Stalls beyond it
//! are counted ([`Stalls::not_captured`], [`Stalls::other_groups`]).
//!
//! **Machines.** x86-64 and aarch64: `x86_64.rs` and `aarch64.rs` know the way. Of a blocked thread the kernel tells the
//! instruction pointer and the stack pointer alone. The missing registers, the frame pointer and on aarch64 the link register, are found in
//! the tables, in the code and on the stack; a frame that had to be searched for says so ([`Frame::searched`]).
//!
//! Without the cargo feature `unwind`, on other machines, where the caller switched it off, or where the kernel refuses, there
//! are the same groups, by label and without a stack; [`StallGroup::no_stack`] says why. On other systems than Linux there are
//! the types alone.
#![warn(missing_docs)]

#[cfg(all(target_os = "linux", not(morpheus_passthrough)))]
pub mod captor;
#[cfg(all(target_os = "linux", not(morpheus_passthrough)))]
pub mod groups;
pub mod owner;
#[cfg(all(target_os = "linux", not(morpheus_passthrough)))]
#[cfg_attr(
    not(all(
        feature = "unwind",
        any(target_arch = "x86_64", target_arch = "aarch64")
    )),
    path = "no_source.rs"
)]
mod source;
mod stalls;

pub use stalls::{Frame, NoStack, StallGroup, StallKind, Stalls, find_current_by};

/// Takes the stack of one thread, for benches and tests: waits for the answer where the thread is asked. Returns the number of
/// bytes copied, and whether the thread was asked by a signal; `None` where there is no stack.
///
/// A thread that is asked and does not get the CPU is waited for.
#[cfg(all(target_os = "linux", not(morpheus_passthrough)))]
#[must_use]
pub fn stack_of(tid: u32) -> Option<(usize, bool)> {
    match source::begin(tid, || true) {
        source::Begun::Copied(raw) => Some((raw.len(), false)),
        source::Begun::Asked(ask) => loop {
            match ask.answer() {
                Some(answer) => break answer.ok().map(|raw| (raw.len(), true)),
                // It may need this CPU to answer.
                None => std::thread::sleep(std::time::Duration::from_micros(20)),
            }
        },
        source::Begun::Moved | source::Begun::Failed(..) => None,
    }
}
