//! The choice of a link: the link that a runtime asks for, the one in force, and the errors. Needs no Linux.

use std::io;

use morpheus_common::abi;
use morpheus_common::broker::Refusal;

/// Which link a runtime asks for; see `Builder::link`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Link {
    /// A daemon while one is there, otherwise the watchdog. A daemon that starts later is joined then. When it ends,
    /// the watchdog continues alone. A current-thread runtime joins no daemon.
    ///
    /// Without a sign of a daemon this costs no thread and no descriptor: if the directory `/run/morpheus` does not
    /// exist and no other socket is named, the controller checks for the directory once a second while it is awake.
    #[default]
    Auto,
    /// The controller samples the workers itself, every 1 to 4 ms while any of them is busy. Needs no rights.
    Watchdog,
    /// As `Auto`, but building a runtime fails if there is no daemon.
    Required,
}

/// The link in force; see `Runtime::link`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ActiveLink {
    /// No daemon: the controller samples the workers itself.
    Watchdog,
    /// A daemon observes and reports, and the kernel's own scheduler schedules.
    Observer,
    /// The daemon's scheduler schedules.
    Scheduler,
    /// No link and no watchdog: outside of Linux the runtime is tokio alone
    /// (`Limitation::Protection`).
    None,
}

impl ActiveLink {
    /// The link to a daemon in a mode (`MORPHEUS_MODE_…` of the ABI).
    #[must_use]
    pub fn of_mode(mode: u32) -> ActiveLink {
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
    /// There is no socket, or no process listens at it.
    #[error(
        "no daemon listens at {path}: start scx_morpheus, or name its socket in MORPHEUS_SOCKET"
    )]
    Absent {
        /// Path of the socket.
        path: String,
    },
    /// The daemon refuses the connection.
    #[error("the daemon at {path} refuses: {refusal}")]
    Refused {
        /// Path of the socket.
        path: String,
        /// The daemon's reason.
        refusal: Refusal,
    },
    /// The process that listens runs as neither root nor the user of this process, and is not trusted.
    #[error(
        "the daemon at {path} runs as user {uid}: only a daemon of root or of your own user is trusted"
    )]
    Stranger {
        /// Path of the socket.
        path: String,
        /// User ID of the process that listens.
        uid: u32,
    },
    /// The system has no daemon, because it is not Linux.
    #[error("no daemon runs on this system: protection needs Linux")]
    Unsupported,
    /// Another operation failed.
    #[error("no link to the daemon at {path}: {source}")]
    Failed {
        /// Path of the socket.
        path: String,
        /// The error of the operation.
        source: io::Error,
    },
}

impl LinkError {
    /// The error of an operation on the link to the daemon at `path`.
    pub(crate) fn failed(path: &std::path::Path, source: io::Error) -> LinkError {
        LinkError::Failed {
            path: path.display().to_string(),
            source,
        }
    }

    /// The kind of an I/O error that says the same.
    #[must_use]
    pub fn kind(&self) -> io::ErrorKind {
        match self {
            LinkError::Absent { .. } => io::ErrorKind::NotFound,
            LinkError::Refused { .. } | LinkError::Stranger { .. } => {
                io::ErrorKind::PermissionDenied
            }
            LinkError::Unsupported => io::ErrorKind::Unsupported,
            LinkError::Failed { source, .. } => source.kind(),
        }
    }
}
