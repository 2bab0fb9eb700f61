//! The events that the application's subscriber gets, under `morpheus::stall`.

use std::fmt::{self, Write as _};

use crate::link::ActiveLink;
use crate::report::label::{self, Origin};

/// What was done about a stall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    Observed,
    Requested,
    SpareReleased,
    AlreadyHandedOff,
    /// Nothing, under [`Policy::Observe`](crate::Policy::Observe); else a spare would have been released.
    WouldReleaseSpare,
    /// The same; else the poll would have been in place.
    WouldHandOff,
}

impl Taken {
    fn words(self) -> &'static str {
        match self {
            Taken::Observed => "observed",
            Taken::Requested => "asked to yield",
            Taken::SpareReleased => "taken over",
            Taken::AlreadyHandedOff => "polled in place",
            Taken::WouldReleaseSpare => "would have been taken over",
            Taken::WouldHandOff => "would have been polled in place",
        }
    }
}

/// A thread of Morpheus's own.
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
    /// The canary is late, and this many spares were released, or would have been.
    Late {
        late_ns: u64,
        released: usize,
        taken: Taken,
        suppressed: u64,
    },
    /// Workers have given no sign of life, `blocked` of them because they sleep.
    Rating {
        workers: usize,
        blocked: usize,
        taken: Taken,
        suppressed: u64,
    },
    /// Every spare is active; with the worst labels.
    SparesUsedUp {
        total: usize,
        worst: Vec<(Origin, u64)>,
    },
    /// No daemon was joined.
    NoLink(String),
    /// A daemon was joined.
    Joined(ActiveLink),
    /// The daemon has gone.
    DaemonGone(std::io::Error),
    /// A controller of a domain without workers has no thread.
    NoController(std::io::Error),
    /// A thread panicked.
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
    /// Makes the event. Calls the application's subscriber: for the reporter's thread alone.
    pub(crate) fn tell(&self) {
        match self {
            Report::Stall { stall, suppressed } => stall.tell(*suppressed),
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
                "work waits and nobody serves it"
            ),
            Report::Rating {
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
                "workers stand in polls of tasks that are not watched"
            ),
            Report::SparesUsedUp { total, worst } => tell_spares_used_up(*total, worst),
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
                tracing::error!(target: "morpheus::stall", %error, "no thread for the controller: watched polls go unseen");
            }
            Report::Panicked {
                thread,
                text,
                restarts: true,
            } => {
                tracing::error!(target: "morpheus::stall", %thread, panic = %text, "a thread of Morpheus's panicked, and starts again");
            }
            Report::Panicked {
                thread: Thread::Controller,
                text,
                restarts: false,
            } => {
                tracing::error!(target: "morpheus::stall", thread = %Thread::Controller, panic = %text, "the controller panicked again and again, and stays off: every spare worker is released for good");
            }
            Report::Panicked {
                thread,
                text,
                restarts: false,
            } => {
                tracing::error!(target: "morpheus::stall", %thread, panic = %text, "a thread of Morpheus's panicked again and again, and stays off");
            }
            Report::SubscriberPanicked { reports } => {
                tracing::error!(target: "morpheus::stall", reports, "the subscriber panicked on reports: those are lost");
            }
            #[cfg(test)]
            Report::Fault => {}
        }
    }
}

/// Whether the subscriber wants details. Asks it nothing: that is a word that it set.
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
    fn tell(&self, suppressed: u64) {
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

/// The spares are used up: said loudly, with the worst slow tasks known.
fn tell_spares_used_up(total: usize, worst: &[(Origin, u64)]) {
    let mut names = String::new();
    for (origin, stalled_polls) in worst {
        let _ = write!(names, "{origin} ({stalled_polls} stalled polls), ");
    }
    let offenders = if names.is_empty() {
        "nobody that is watched: spawn suspects with morpheus_runtime::spawn to find out"
    } else {
        names.trim_end_matches(", ")
    };
    tracing::error!(
        target: "morpheus::stall",
        spares = total,
        offenders,
        "every spare worker is in play and work still waits: raise max_spares, or mend the offenders"
    );
}
