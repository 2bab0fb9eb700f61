//! Which link a runtime asks for, which one it has, and why it has none. The part of the links that needs no Linux.

use std::io;

use morpheus_common::abi;
use morpheus_common::broker::Refusal;

/// Which link a runtime asks for; see [`Builder::link`](crate::Builder::link).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Link {
    /// A daemon's while there is one, else the watchdog. A daemon that starts later is joined then, and
    /// when it ends the watchdog goes on alone. A current-thread runtime joins none.
    ///
    /// Where no daemon has been (its directory, `/run/morpheus`, is not there, and no other socket was named), that costs
    /// no thread and no descriptor: the controller looks for the directory once a second, while it is awake.
    #[default]
    Auto,
    /// The controller looks by itself, every millisecond while anything is busy. Needs no rights.
    Watchdog,
    /// As `Auto`, but a runtime that finds no daemon is not built.
    Required,
}

/// The link in force; see [`Runtime::link`](crate::Runtime::link).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ActiveLink {
    /// No daemon: the controller looks by itself.
    Watchdog,
    /// A daemon sees and reports, and the kernel's own scheduler schedules.
    Observer,
    /// The daemon's scheduler schedules.
    Scheduler,
    /// None, and no watchdog either: outside of Linux the runtime is tokio's alone
    /// ([`Limitation::Protection`](crate::Limitation::Protection)).
    None,
}

impl ActiveLink {
    pub(crate) fn of_mode(mode: u32) -> ActiveLink {
        match mode {
            abi::MORPHEUS_MODE_ENFORCE => ActiveLink::Scheduler,
            _ => ActiveLink::Observer,
        }
    }
}

impl std::fmt::Display for ActiveLink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            ActiveLink::Watchdog => "watchdog",
            ActiveLink::Observer => "observer",
            ActiveLink::Scheduler => "scheduler",
            ActiveLink::None => "none",
        })
    }
}

/// Why there is no link to a daemon.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkError {
    /// There is no socket, or nobody listens at it.
    #[error(
        "no daemon listens at {path}: start scx_morpheus, or name its socket in MORPHEUS_SOCKET"
    )]
    Absent {
        /// Where it was looked for.
        path: String,
    },
    /// The daemon says no.
    #[error("the daemon at {path} refuses: {refusal}")]
    Refused {
        /// Where it listens.
        path: String,
        /// Why.
        refusal: Refusal,
    },
    /// Whoever listens there is neither root nor the user of this process, and is not believed.
    #[error(
        "the daemon at {path} runs as user {uid}: only root's, or one of your own, is believed"
    )]
    Stranger {
        /// Where it listens.
        path: String,
        /// Who it is.
        uid: u32,
    },
    /// The system has no daemon: it is not Linux.
    #[error("no daemon runs on this system: protection needs Linux")]
    Unsupported,
    /// Something else went wrong.
    #[error("no link to the daemon at {path}: {source}")]
    Failed {
        /// Where it listens.
        path: String,
        /// What.
        source: io::Error,
    },
}
