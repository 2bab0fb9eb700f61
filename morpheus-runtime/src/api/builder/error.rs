//! The reasons for which a runtime is not built.

use morpheus_link::LinkError;

/// The error of a runtime that could not be built. No thread of it is left running.
///
/// [`Builder::build`](super::Builder::build) returns it inside an [`io::Error`](std::io::Error), as tokio's does;
/// [`Builder::try_build`](super::Builder::try_build) returns it as it is.
///
/// ```
/// use morpheus_runtime::{BuildError, Builder};
///
/// let error = Builder::new_multi_thread().worker_threads(0).build().unwrap_err();
/// assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
/// let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<BuildError>());
/// assert!(matches!(inner, Some(BuildError::NoWorkers)));
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// `worker_threads(0)`.
    #[error("worker_threads must be at least 1")]
    NoWorkers,
    /// The variable `TOKIO_WORKER_THREADS` is set, and is no number of workers. Tokio panics then.
    #[error("TOKIO_WORKER_THREADS is {value:?}: it must be a number, and at least 1")]
    BadWorkersVariable {
        /// The variable's value.
        value: String,
    },
    /// More threads than a runtime may have.
    #[error("{asked} workers and spares are more than the {max} that a runtime may have")]
    TooManyWorkers {
        /// Workers and spares together.
        asked: usize,
        /// The maximum.
        max: usize,
    },
    /// `budget(Duration::ZERO)`.
    #[error("budget must not be zero: it is the time that a poll may take")]
    NoBudget,
    /// A reserve larger than the number of spares.
    #[error("a reserve of {reserve} cannot come out of {max_spares} spares: raise max_spares")]
    ReserveTooLarge {
        /// The reserve asked for.
        reserve: usize,
        /// The spares that the runtime would have.
        max_spares: usize,
    },
    /// The system gives too few threads even without spares.
    #[error(
        "the system gives {available} more threads, and {needed} are needed: raise the process limit \
         (ulimit -u, pids.max) or ask for fewer workers"
    )]
    TooFewThreads {
        /// Threads that the system gives.
        available: usize,
        /// Threads that are needed: the workers and the controller.
        needed: usize,
    },
    /// [`Link::Required`](crate::Link::Required), and there is no link to a daemon.
    #[error(transparent)]
    Link(#[from] LinkError),
    /// [`Link::Required`](crate::Link::Required) for a current-thread runtime, which joins no daemon.
    #[error(
        "a current-thread runtime joins no daemon: build a multi-thread one, or ask for Link::Auto"
    )]
    LinkOnOneThread,
    /// Tokio could not be started, for instance for lack of file descriptors.
    #[error("tokio could not be started: {0}")]
    Tokio(#[from] std::io::Error),
}

/// Converts to the error that tokio's builder would return. Tokio's own error stays as it is, with the
/// system's error number where it has one. Every other [`BuildError`] is wrapped in one of these kinds:
/// `InvalidInput` for invalid numbers, `QuotaExceeded` for threads that the system does not give, and for a
/// link `NotFound` without a daemon, `PermissionDenied` from a daemon that refuses
/// or is not trusted, or `Unsupported` outside of Linux.
impl From<BuildError> for std::io::Error {
    fn from(error: BuildError) -> std::io::Error {
        use std::io::ErrorKind;
        let kind = match error {
            BuildError::Tokio(error) => return error,
            BuildError::NoWorkers
            | BuildError::BadWorkersVariable { .. }
            | BuildError::TooManyWorkers { .. }
            | BuildError::NoBudget
            | BuildError::LinkOnOneThread
            | BuildError::ReserveTooLarge { .. } => ErrorKind::InvalidInput,
            BuildError::TooFewThreads { .. } => ErrorKind::QuotaExceeded,
            BuildError::Link(ref error) => error.kind(),
        };
        std::io::Error::new(kind, error)
    }
}
