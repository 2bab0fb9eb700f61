//! The runtime under test, and the runtime outside of it.

use std::time::Duration;

use tokio::runtime::Handle;

use crate::hog::{Hogs, Kind, Until};
use crate::{WORKERS, in_time};

/// The number of hogs in flight: more than there are workers.
pub const HOGS: usize = 2 * WORKERS;

/// The kind of the runtime under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Tokio's, with [`WORKERS`] workers.
    Tokio,
    /// Morpheus's, with the same number of workers and the default spares.
    Morpheus,
}

/// A running runtime under test.
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

/// The runtimes and the hogs that a test builds its scene from.
#[derive(Clone, Debug)]
pub struct Stage {
    /// The kind of the runtime under test.
    pub subject: Subject,
    /// The runtime under test.
    pub inside: Handle,
    /// A tokio runtime without hogs: for the clients of a server under test, or the server of a client.
    pub outside: Handle,
    /// The hogs, which the handlers call.
    pub hogs: Hogs,
}

impl Stage {
    pub(crate) fn new(subject: Subject, kind: Kind, inside: Handle, outside: Handle) -> Stage {
        // Tokio can have one hog in its poll for each worker.
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

    /// Runs a future as a task of the runtime under test, and returns its output.
    ///
    /// # Panics
    ///
    /// When the task panics, or takes longer than [`PATIENCE`](crate::PATIENCE).
    pub async fn inside<F>(&self, future: F) -> F::Output
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        in_time(self.inside.spawn(future))
            .await
            .expect("the task does not panic")
    }

    /// Waits until `condition` holds.
    pub(crate) async fn wait_for(&self, what: &str, condition: impl Fn() -> bool) {
        let wait = async {
            while !condition() {
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
