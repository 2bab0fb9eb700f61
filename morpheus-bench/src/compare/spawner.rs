//! The small trait over the runtimes: how a task is started. Everything else in a case is tokio's own (`sync`, `time`,
//! `net`), which all of them have.
//!
//! It has two implementations and not one for each runtime: a case without watched tasks is the very same machine code on
//! tokio and on Morpheus. [`crate::executor::Executor`] starts tasks from anywhere, which costs each spawn a look for
//! its runtime; here that would be measured.

use std::future::Future;

use tokio::task::JoinHandle;

/// What a task of a case is: a future that goes from thread to thread, and its result likewise.
pub trait Task: Future<Output: Send + 'static> + Send + 'static {}

impl<F: Future<Output: Send + 'static> + Send + 'static> Task for F {}

/// How the tasks of a case are started, by code that is in a runtime's context.
pub trait Spawner: 'static {
    /// Starts a task.
    fn spawn<F: Task>(future: F) -> JoinHandle<F::Output>;
}

/// As a library does it: the task is not watched.
pub struct Plain;

/// Watched, labelled by the line that spawns.
pub struct Watched;

impl Spawner for Plain {
    #[inline]
    #[track_caller]
    fn spawn<F: Task>(future: F) -> JoinHandle<F::Output> {
        tokio::spawn(future)
    }
}

impl Spawner for Watched {
    #[inline]
    #[track_caller]
    fn spawn<F: Task>(future: F) -> JoinHandle<F::Output> {
        morpheus_runtime::spawn(future)
    }
}
