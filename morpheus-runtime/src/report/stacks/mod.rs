//! Stacks of polls that are stalled for [`report_after`](crate::Builder::report_after): the line that a stall is in.
//!
//! ```text
//!   controller                                              the caller, or a thread for a moment
//!   captor.rs ── blocked.rs  the copy of a sleeper's stack ─┐
//!       │                                                   ├─► groups.rs ── walk.rs ── symbols.rs
//!       └─────── signal.rs   a computing thread's own copy ─┘
//! ```
//!
//! - The controller ([`captor`]) finds a poll that is stalled for this time, once for each poll, and gets a
//!   copy of its thread's stack. No thread is stopped, and no thread but the stalled one does anything for it.
//!   Nothing changes on the path of a poll. While no poll is stalled nothing is done, nothing is allocated
//!   and no signal handler is installed.
//! - A thread that is blocked in the kernel is not disturbed ([`blocked`]): a signal would end its system
//!   call. One that computes is asked by a signal ([`signal`]).
//! - Copies wait until they are asked for ([`groups`]): by [`Runtime::stalls`](crate::Runtime::stalls), or
//!   by the summary at the end. When many wait, a thread that exists for a moment only walks them.
//!   Names and lines are looked up when they are asked for, not before.
//!
//! **Costs.** The thread that is asked was away for 13 µs where it had the CPU to itself, and for 59 to 60 µs where
//! it shared it with a compiler (of those 24 µs without a signal, too): medians of 101, four runs of
//! `a_stack_costs_its_thread_little` in `tests/stalls.rs`, debug build, two virtual CPUs. Others lose nothing. The
//! bench `capture` times the controller's side, too.
//!
//! **Bounds.** [`CAPTURES_A_SECOND`](captor), copies that wait, and groups have a limit each. Stalls beyond it
//! are counted ([`Stalls::not_captured`], [`Stalls::other_groups`]).
//!
//! **Machines.** x86-64 and aarch64: `x86_64.rs` and `aarch64.rs` know the way. Of a blocked thread the kernel tells the
//! instruction pointer and the stack pointer alone. What is missing, the frame pointer and on aarch64 the link register, is
//! found in the tables, in the code and on the stack; a frame that had to be searched for says so ([`Frame::searched`]).
//!
//! Without the cargo feature `stacks`, on other machines, with
//! [`Mechanism::Stacks`](crate::Mechanism::Stacks) switched off, or where the kernel refuses, there are the
//! same groups, by label and without a stack; [`StallGroup::no_stack`] says why.

use std::fmt;
use std::time::Duration;

#[cfg(all(target_os = "linux", not(morpheus_passthrough)))]
pub(crate) mod captor;
#[cfg(all(target_os = "linux", not(morpheus_passthrough)))]
pub(crate) mod groups;

#[cfg(all(target_os = "linux", not(morpheus_passthrough)))]
#[cfg_attr(
    not(all(
        feature = "stacks",
        any(target_arch = "x86_64", target_arch = "aarch64")
    )),
    path = "no_source.rs"
)]
mod source;

/// One stack, for benches: bytes, and whether the thread was asked.
#[cfg(all(target_os = "linux", not(morpheus_passthrough)))]
pub(crate) fn stack_of(tid: u32) -> Option<(usize, bool)> {
    match source::begin(tid, || true) {
        source::Begun::Copied(raw) => Some((raw.len(), false)),
        source::Begun::Asked(ask) => loop {
            match ask.answer() {
                Some(answer) => break answer.ok().map(|raw| (raw.len(), true)),
                // It may need this CPU to answer.
                None => std::thread::sleep(Duration::from_micros(20)),
            }
        },
        source::Begun::Moved | source::Begun::Failed(..) => None,
    }
}

/// Why a stalled poll was reported without a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NoStack {
    /// [`Mechanism::Stacks`](crate::Mechanism::Stacks) is off.
    Off,
    /// Built without the cargo feature `stacks`, or for a machine that it does not work on.
    NotBuilt,
    /// The poll ended before its stack was had.
    Over,
    /// The thread has all signals blocked, ours among them.
    SignalsBlocked,
    /// The program uses every real-time signal itself.
    NoSignal,
    /// The thread had not answered after 200 ms: it did not get the CPU.
    NoAnswer,
    /// The kernel refuses to read the process's own memory, or `/proc` is not there.
    Refused,
    /// More threads were to be asked at once than there are buffers.
    TooMany,
}

impl fmt::Display for NoStack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoStack::Off => "stacks are switched off",
            NoStack::NotBuilt => "built without stacks",
            NoStack::Over => "it ended before its stack was had",
            NoStack::SignalsBlocked => "its thread has signals blocked",
            NoStack::NoSignal => "the program uses every real-time signal",
            NoStack::NoAnswer => "its thread did not get the CPU",
            NoStack::Refused => {
                "the kernel refuses to read this process's memory, or /proc is not mounted"
            }
            NoStack::TooMany => "too many were stalled at once",
        })
    }
}

/// What a stalled thread was doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StallKind {
    /// It was blocked in the kernel: a lock, a sleep, a file, a socket.
    Blocked,
    /// It used the CPU.
    Computing,
}

impl fmt::Display for StallKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            StallKind::Blocked => "blocked",
            StallKind::Computing => "computing",
        })
    }
}

/// One function on a stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Frame {
    /// Its demangled name; an address where there is none.
    pub function: String,
    /// The source file, where the program has line tables (`debug = "line-tables-only"` in the profile).
    pub file: Option<String>,
    /// The line in it.
    pub line: Option<u32>,
    /// It is the application's own: not the Rust library's, tokio's, a registry's.
    pub is_application: bool,
    /// The tables did not lead to this frame; it was found by searching the stack for a return address.
    pub searched: bool,
}

impl fmt::Display for Frame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.function)?;
        if let Some(file) = &self.file {
            write!(f, " at {file}")?;
            if let Some(line) = self.line {
                write!(f, ":{line}")?;
            }
        }
        Ok(())
    }
}

/// Stalled polls of one label at one place.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StallGroup {
    /// The label of the watched task, or "not watched".
    pub label: String,
    /// What the thread was doing.
    pub kind: StallKind,
    /// Stalled polls.
    pub count: u64,
    /// How long the longest stood, as the controller's last look at it found; it looks once a millisecond.
    pub longest: Duration,
    /// All of them together.
    pub total: Duration,
    /// The stack of the first one, innermost function first; empty if there is none.
    pub stack: Vec<Frame>,
    /// Why there is no stack.
    pub no_stack: Option<NoStack>,
    culprit: Option<usize>,
}

impl StallGroup {
    /// The application's innermost frame: the line that the poll was stalled in. Where no frame is the
    /// application's, the innermost one that is not the Rust library's, the executor's or a C function.
    #[must_use]
    pub fn culprit(&self) -> Option<&Frame> {
        self.stack.get(self.culprit?)
    }
}

/// Where polls were stalled; what [`Runtime::stalls`](crate::Runtime::stalls) returns. Prints as a table.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stalls {
    /// By label, kind and application frame, those first that stood longest in all.
    pub groups: Vec<StallGroup>,
    /// Stalled polls that belong to further groups.
    pub other_groups: u64,
    /// Stalled polls that were not looked at, because too many were stalled within a second.
    pub not_captured: u64,
}

/// Frames that the table shows above the culprit, and below it.
const SHOWN_ABOVE: usize = 3;
const SHOWN_BELOW: usize = 1;

impl fmt::Display for Stalls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "morpheus: polls that were stalled, by label and line")?;
        writeln!(
            f,
            "  {:>8} {:>11} {:>11}  {:<9}  label: line",
            "count", "longest", "in all", "state"
        )?;
        for group in &self.groups {
            let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
            write!(
                f,
                "  {:>8} {:>8.1} ms {:>8.1} ms  {:<9}  {}: ",
                group.count,
                ms(group.longest),
                ms(group.total),
                group.kind,
                group.label
            )?;
            let Some(culprit) = group.culprit else {
                match (group.no_stack, group.stack.first()) {
                    (Some(why), _) => writeln!(f, "no stack: {why}")?,
                    (None, Some(top)) => writeln!(f, "in {top}")?,
                    (None, None) => writeln!(f, "no stack")?,
                }
                continue;
            };
            writeln!(f, "{}", group.stack[culprit])?;
            let first = culprit.saturating_sub(SHOWN_ABOVE);
            let end = group.stack.len().min(culprit + 1 + SHOWN_BELOW);
            for (index, frame) in group.stack[..end].iter().enumerate().skip(first) {
                let mark = if index == culprit { '>' } else { ' ' };
                let searched = if frame.searched { " (searched)" } else { "" };
                writeln!(f, "             {mark} {frame}{searched}")?;
            }
        }
        if self.other_groups > 0 {
            writeln!(f, "  {:>8} in other groups", self.other_groups)?;
        }
        if self.not_captured > 0 {
            writeln!(
                f,
                "  {:>8} not looked at: too many at once",
                self.not_captured
            )?;
        }
        Ok(())
    }
}
