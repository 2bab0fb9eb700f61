//! The report: stalled polls in groups, each with its stack, and how they print.

use std::fmt;
use std::sync::OnceLock;
use std::time::Duration;

/// Why a stalled poll was reported without a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NoStack {
    /// `Mechanism::Stacks` is off (feature `unstable-ablation`).
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

/// The state of a stalled thread.
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
    /// The state of the thread.
    pub kind: StallKind,
    /// Stalled polls.
    pub count: u64,
    /// The length of the longest, as of the controller's last sample of it.
    pub longest: Duration,
    /// All of them together.
    pub total: Duration,
    /// The stack of the first one, innermost function first; empty if there is none.
    pub stack: Vec<Frame>,
    /// Why there is no stack.
    pub no_stack: Option<NoStack>,
    /// The index of [`culprit`](StallGroup::culprit) in the stack.
    pub(crate) culprit: Option<usize>,
}

impl StallGroup {
    /// The application's innermost frame: the line that the poll was stalled in. Where no frame is the
    /// application's, the innermost one that is not the Rust library's, the executor's or a C function.
    #[must_use]
    pub fn culprit(&self) -> Option<&Frame> {
        self.stack.get(self.culprit?)
    }
}

/// Where polls were stalled; what [`Runtime::stalls`] returns. Prints as a table.
///
/// [`Runtime::stalls`]: https://docs.rs/morpheus-runtime/latest/morpheus_runtime/struct.Runtime.html#method.stalls
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stalls {
    /// By label, kind and application frame, those first that were stalled longest in all.
    pub groups: Vec<StallGroup>,
    /// Stalled polls that belong to further groups.
    pub other_groups: u64,
    /// Stalled polls that were not looked at, because too many were stalled within a second.
    pub not_captured: u64,
}

/// Answers [`Stalls::current`]. Set once.
static FIND_CURRENT: OnceLock<fn() -> Option<Stalls>> = OnceLock::new();

impl Stalls {
    /// The stalled polls of the current runtime, for instance for a handler that shows them. `None` outside a
    /// runtime, and on a runtime that is not Morpheus's. It looks up symbol names as
    /// [`Runtime::stalls`] does: call it where that may block.
    ///
    /// [`Runtime::stalls`]: https://docs.rs/morpheus-runtime/latest/morpheus_runtime/struct.Runtime.html#method.stalls
    #[must_use]
    pub fn current() -> Option<Stalls> {
        let find = FIND_CURRENT.get()?;
        find()
    }
}

/// Has [`Stalls::current`] call `find`. The first call in a process counts, and until then there are none.
pub fn find_current_by(find: fn() -> Option<Stalls>) {
    let _ = FIND_CURRENT.set(find);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_finds_the_current_ones_counts() {
        assert!(Stalls::current().is_none());
        find_current_by(|| {
            Some(Stalls {
                not_captured: 7,
                ..Stalls::default()
            })
        });
        find_current_by(|| None);
        assert_eq!(Stalls::current().map(|stalls| stalls.not_captured), Some(7));
    }
}
