//! The runtime under test, and who is not on it.

use std::time::Duration;

use tokio::runtime::Handle;

use crate::hog::{Hogs, Kind, Until};
use crate::{WORKERS, in_time};

/// So many hogs are in flight: more than there are workers.
pub const HOGS: usize = 2 * WORKERS;

/// Which runtime is under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Tokio's, with [`WORKERS`] workers.
    Tokio,
    /// Ours, with as many, and the spares that it has by default.
    Morpheus,
}

/// The runtime itself.
pub(crate) enum Running {
    Tokio(tokio::runtime::Runtime),
    Morpheus(morpheus_runtime::Runtime),
}

impl Running {
    pub(crate) fn start(subject: Subject) -> Running {
        match subject {
            Subject::Tokio => Running::Tokio(
                tokio::runtime::Builder::new_multi_thread()
                    .worker_threads(WORKERS)
                    .enable_all()
                    .build()
                    .expect("tokio starts"),
            ),
            Subject::Morpheus => Running::Morpheus(
                morpheus_runtime::Builder::new_multi_thread()
                    .worker_threads(WORKERS)
                    .build()
                    .expect("Morpheus starts"),
            ),
        }
    }

    pub(crate) fn handle(&self) -> &Handle {
        match self {
            Running::Tokio(runtime) => runtime.handle(),
            Running::Morpheus(runtime) => runtime.handle(),
        }
    }
}

/// What a test sets its scene on.
#[derive(Clone, Debug)]
pub struct Stage {
    /// Which runtime is under test.
    pub subject: Subject,
    /// The runtime under test.
    pub inside: Handle,
    /// A tokio of its own, on which no hog runs: the clients of a server under test, the server of a client.
    pub outside: Handle,
    /// What the handlers call.
    pub hogs: Hogs,
}

impl Stage {
    pub(crate) fn new(subject: Subject, kind: Kind, inside: Handle, outside: Handle) -> Stage {
        // Tokio gets as many hogs into their polls as it has workers.
        let hogs = match subject {
            Subject::Tokio => Hogs::new(kind, Until::Time, WORKERS),
            Subject::Morpheus => Hogs::new(kind, Until::Answered, HOGS),
        };
        Stage {
            subject,
            inside,
            outside,
            hogs,
        }
    }

    /// Runs a future as a task of the runtime under test, and gives what it gives.
    ///
    /// # Panics
    ///
    /// When the task does, or takes longer than [`PATIENCE`](crate::PATIENCE).
    pub async fn inside<F>(&self, future: F) -> F::Output
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        in_time(self.inside.spawn(future))
            .await
            .expect("the task does not panic")
    }

    /// Waits until it is so.
    pub(crate) async fn wait_for(&self, what: &str, is_so: impl Fn() -> bool) {
        let wait = async {
            while !is_so() {
                tokio::time::sleep(Duration::from_micros(200)).await;
            }
        };
        if tokio::time::timeout(crate::PATIENCE, wait).await.is_err() {
            panic!(
                "{:?}: {what}: not so within {:?}: {:?}",
                self.subject,
                crate::PATIENCE,
                self.hogs
            );
        }
    }
}
