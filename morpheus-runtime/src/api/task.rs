//! Spawning watched tasks.

use std::panic::Location;

use tokio::task::JoinHandle;

use crate::api::watch::Watched;
use crate::decide::rating::Options;
use crate::report::label::{self, Label};

pub use crate::decide::rating::Handoff;

/// Spawns a watched task: tokio's `spawn`, with the place of this call as its label.
///
/// ```
/// # #[morpheus_runtime::main(worker_threads = 1, max_spares = 1)]
/// # async fn main() {
/// let task = morpheus_runtime::spawn(async { 6 * 7 });
/// assert_eq!(task.await.unwrap(), 42);
/// # }
/// ```
///
/// # Panics
///
/// Outside a tokio runtime, as tokio's `spawn` does.
#[track_caller]
pub fn spawn<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    Builder::new().spawn(future)
}

/// Options for a watched task.
///
/// ```
/// use morpheus_runtime::task::{Builder, Handoff};
///
/// # #[morpheus_runtime::main(worker_threads = 1, max_spares = 1)]
/// # async fn main() {
/// let task = Builder::new()
///     .label("journal")
///     .demotable(false)
///     .handoff(Handoff::Never)
///     .spawn(async { "written" });
/// assert_eq!(task.await.unwrap(), "written");
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Builder {
    name: Option<&'static str>,
    demotable: Option<bool>,
    handoff: Handoff,
}

impl Default for Builder {
    fn default() -> Self {
        Self::new()
    }
}

impl Builder {
    /// Options of a task with the place of the spawn as its label. It is demotable if the runtime's tasks
    /// are, and handed off once it is slow.
    #[must_use]
    pub const fn new() -> Builder {
        Builder {
            name: None,
            demotable: None,
            handoff: Handoff::Allowed,
        }
    }

    /// Sets a name as the label, instead of the place of the spawn. All tasks of one label share one history
    /// on each runtime.
    #[must_use]
    pub const fn label(mut self, label: &'static str) -> Builder {
        self.name = Some(label);
        self
    }

    /// Sets the label, as [`label`](Self::label) does: a task's name is its label.
    #[must_use]
    pub const fn name(self, name: &'static str) -> Builder {
        self.label(name)
    }

    /// Whether the task may be demoted or throttled. It overrides the runtime's
    /// [`demotable`](crate::Builder::demotable), which is the default. A task that is not demotable is still
    /// asked to yield, taken over from and reported.
    #[must_use]
    pub const fn demotable(mut self, demotable: bool) -> Builder {
        self.demotable = Some(demotable);
        self
    }

    /// Whether polls of the task may be handed off once it was found slow.
    #[must_use]
    pub const fn handoff(mut self, handoff: Handoff) -> Builder {
        self.handoff = handoff;
        self
    }

    #[track_caller]
    fn options(self) -> Options {
        let label: &'static Label = match self.name {
            Some(name) => label::named(name),
            None => label::at(Location::caller()),
        };
        Options {
            label,
            demotable: self.demotable,
            handoff: self.handoff,
        }
    }

    /// The options of a task that is spawned at the caller's place. Whether its polls are handed off is decided by them alone.
    #[track_caller]
    fn options_of_task(self) -> Options {
        let options = self.options();
        #[cfg(tokio_unstable)]
        {
            let place = match self.name {
                Some(_) => label::at(Location::caller()),
                None => options.label,
            };
            place.note_marks_itself();
        }
        options
    }

    /// Watches a future with these options, and spawns nothing: for a `JoinSet`, a `LocalSet`, or a part of
    /// another task. Without a name the label is the place of this call.
    ///
    /// ```
    /// use morpheus_runtime::task::Builder;
    ///
    /// # #[morpheus_runtime::main(worker_threads = 1, max_spares = 1)]
    /// # async fn main() {
    /// let mut tasks = tokio::task::JoinSet::new();
    /// tasks.spawn(Builder::new().label("journal").demotable(false).watch(async { "written" }));
    /// assert_eq!(tasks.join_all().await, ["written"]);
    /// # }
    /// ```
    #[track_caller]
    pub fn watch<F: Future>(self, future: F) -> Watched<F> {
        Watched::with(future, self.options())
    }

    /// Spawns the task on the current runtime.
    ///
    /// # Panics
    ///
    /// Outside a tokio runtime, as tokio's `spawn` does.
    #[track_caller]
    pub fn spawn<F>(self, future: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        tokio::spawn(Watched::with(future, self.options_of_task()))
    }

    /// Spawns the task on the runtime of `handle`.
    #[track_caller]
    pub fn spawn_on<F>(self, future: F, handle: &tokio::runtime::Handle) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        handle.spawn(Watched::with(future, self.options_of_task()))
    }
}
