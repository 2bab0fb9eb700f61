//! The events that the application's subscriber receives, under `morpheus::stall` and `morpheus::link`.

use std::fmt::{self, Write as _};

use crate::report::label::{self, Origin};
use morpheus_link::ActiveLink;

/// The action that was taken on a stall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    Observed,
    Requested,
    SpareReleased,
    /// A spare would have been released, and none is left.
    NoSpareLeft,
    AlreadyHandedOff,
    /// None, under [`Policy::Observe`](crate::Policy::Observe). Another policy would have released a spare.
    WouldReleaseSpare,
    /// None, under the same policy. Another policy would have handed off the poll.
    WouldHandOff,
}

impl Taken {
    fn words(self) -> &'static str {
        match self {
            Taken::Observed => "observed",
            Taken::Requested => "asked to yield",
            Taken::SpareReleased => "taken over",
            Taken::NoSpareLeft => "no spare left",
            Taken::AlreadyHandedOff => "handed off",
            Taken::WouldReleaseSpare => "would have been taken over",
            Taken::WouldHandOff => "would have been handed off",
        }
    }
}

/// A thread of Morpheus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Thread {
    Controller,
    Reporter,
    Joiner,
}

impl fmt::Display for Thread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Thread::Controller => "controller",
            Thread::Reporter => "reporter",
            Thread::Joiner => "joiner",
        })
    }
}

/// An event for the application's subscriber, on its way to the [reporter](crate::report::thread).
#[derive(Debug)]
pub(crate) enum Report {
    /// A watched poll is stalled.
    Stall { stall: Stall, suppressed: u64 },
    /// The canary is late. This many spares were released, or would have been.
    Late {
        late_ns: u64,
        released: usize,
        taken: Taken,
        suppressed: u64,
    },
    /// Workers give no sign of life, and `blocked` of them sleep.
    WorkersStalled {
        workers: usize,
        blocked: usize,
        taken: Taken,
        suppressed: u64,
    },
    /// Every spare is active; `worst` has the labels with the most stalled polls.
    SparesExhausted {
        total: usize,
        worst: Vec<(Origin, u64)>,
    },
    /// No daemon was joined; the text says why.
    NoLink(String),
    /// A daemon was joined.
    Joined(ActiveLink),
    /// The daemon has ended.
    DaemonGone(std::io::Error),
    /// The controller of a domain without workers has no thread.
    NoController(std::io::Error),
    /// A thread of Morpheus panicked.
    Panicked {
        thread: Thread,
        text: String,
        restarts: bool,
    },
    /// The subscriber panicked on this many reports.
    SubscriberPanicked { reports: u64 },
    /// Makes the reporter panic.
    #[cfg(test)]
    Fault,
}

impl Report {
    /// Emits the event, which calls the application's subscriber. Only the reporter's thread calls it.
    pub(crate) fn emit(&self) {
        match self {
            Report::Stall { stall, suppressed } => stall.emit(*suppressed),
            Report::Late {
                late_ns,
                released,
                taken,
                suppressed,
            } => tracing::warn!(
                target: "morpheus::stall",
                label = "not watched",
                late_us = late_ns / 1_000,
                released,
                step = taken.words(),
                suppressed,
                "work waits and no worker serves it"
            ),
            Report::WorkersStalled {
                workers,
                blocked,
                taken,
                suppressed,
            } => tracing::warn!(
                target: "morpheus::stall",
                label = "not watched",
                workers,
                blocked,
                step = taken.words(),
                suppressed,
                "workers are stalled in polls of unwatched tasks"
            ),
            Report::SparesExhausted { total, worst } => emit_spares_exhausted(*total, worst),
            Report::NoLink(error) => {
                tracing::debug!(target: "morpheus::link", %error, "no link");
            }
            Report::Joined(link) => {
                tracing::info!(target: "morpheus::link", %link, "joined the daemon");
            }
            Report::DaemonGone(error) => {
                tracing::warn!(target: "morpheus::link", %error, "the daemon has gone: the watchdog goes on alone");
            }
            Report::NoController(error) => {
                tracing::error!(target: "morpheus::stall", %error, "no thread for the controller: stalled polls are not found");
            }
            Report::Panicked {
                thread,
                text,
                restarts: true,
            } => {
                tracing::error!(target: "morpheus::stall", %thread, panic = %text, "a thread of Morpheus panicked, and starts again");
            }
            Report::Panicked {
                thread: Thread::Controller,
                text,
                restarts: false,
            } => {
                tracing::error!(target: "morpheus::stall", thread = %Thread::Controller, panic = %text, "the controller panicked again and again, and stays off: every spare worker is released permanently");
            }
            Report::Panicked {
                thread,
                text,
                restarts: false,
            } => {
                tracing::error!(target: "morpheus::stall", %thread, panic = %text, "a thread of Morpheus panicked again and again, and stays off");
            }
            Report::SubscriberPanicked { reports } => {
                tracing::error!(target: "morpheus::stall", reports, "the subscriber panicked on reports, which are lost");
            }
            #[cfg(test)]
            Report::Fault => {}
        }
    }
}

/// Whether the subscriber wants details. Reads only the level that the subscriber has set, and does not call it.
pub(crate) fn wants_details() -> bool {
    tracing::level_filters::LevelFilter::current() >= tracing::Level::DEBUG
}

/// A stalled watched poll, reported once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stall {
    pub(crate) label: u32,
    pub(crate) stalled_ns: u64,
    pub(crate) cpu_ns: u64,
    pub(crate) blocked: bool,
    pub(crate) taken: Taken,
}

impl Stall {
    fn emit(&self, suppressed: u64) {
        let Some(label) = label::by_id(self.label) else {
            return;
        };
        tracing::warn!(
            target: "morpheus::stall",
            label = %label.origin(),
            stalled_us = self.stalled_ns / 1_000,
            cpu_us = self.cpu_ns / 1_000,
            state = if self.blocked { "blocked" } else { "running" },
            step = self.taken.words(),
            suppressed,
            "a task holds up its worker"
        );
    }
}

/// Emits the error that the spares are exhausted, with the labels that have the most stalled polls.
fn emit_spares_exhausted(total: usize, worst: &[(Origin, u64)]) {
    let mut names = String::new();
    for (origin, stalled_polls) in worst {
        let _ = write!(names, "{origin} ({stalled_polls} stalled polls), ");
    }
    let slow_tasks = if names.is_empty() {
        "no watched task: spawn tasks with morpheus_runtime::spawn to find the slow ones"
    } else {
        names.trim_end_matches(", ")
    };
    tracing::error!(
        target: "morpheus::stall",
        spares = total,
        slow_tasks,
        "every spare worker is active and work still waits: raise max_spares, or shorten the polls of the slow tasks"
    );
}
