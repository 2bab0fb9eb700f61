//! The small trait over the runtimes: how a task is started. Everything else in a case is tokio's own (`sync`, `time`,
//! `net`), which all of them have.
//!
//! It has two implementations and not one for each runtime: a case without watched tasks is the very same machine code on
//! tokio and on Morpheus. [`crate::executor::Executor`] starts tasks from anywhere, which costs each spawn a look for
//! its runtime; here that would be measured.

use std::future::Future;

use tokio::task::JoinHandle;

/// How the tasks of a case are started, by code that is in a runtime's context.
pub trait Spawner: 'static {
    /// Starts a task.
    fn spawn<F>(future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static;
}

/// As a library does it: the task is not watched.
pub struct Plain;

/// Watched, labelled by the line that spawns.
pub struct Watched;

impl Spawner for Plain {
    #[inline]
    #[track_caller]
    fn spawn<F>(future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        tokio::spawn(future)
    }
}

impl Spawner for Watched {
    #[inline]
    #[track_caller]
    fn spawn<F>(future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        morpheus_runtime::spawn(future)
    }
}
