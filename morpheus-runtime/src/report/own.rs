//! Spawns Morpheus's own tasks: hold tasks, canaries, no-ops, and calls of wakers.
//!
//! All of them are spawned at one place, by which the task hooks know them. Their sources do not tell: a build that compiles each crate in
//! its own directory has `src/…` for the files of every one of them, the application's included.

#[cfg(tokio_unstable)]
use std::panic::Location;
#[cfg(tokio_unstable)]
use std::sync::OnceLock;

use tokio::runtime::Handle;

/// The place. Set before the first of these tasks exists, and so before any hook asks for its label.
#[cfg(tokio_unstable)]
static PLACE: OnceLock<&'static Location<'static>> = OnceLock::new();

/// Spawns a task of Morpheus's own.
pub(crate) fn spawn<F>(handle: &Handle, task: F)
where
    F: Future<Output = ()> + Send + 'static,
{
    // This function has no `#[track_caller]`, so that tokio takes this line for the place, whoever calls.
    spawn_here(handle, task);
}

#[cfg_attr(tokio_unstable, track_caller)]
fn spawn_here<F>(handle: &Handle, task: F)
where
    F: Future<Output = ()> + Send + 'static,
{
    #[cfg(tokio_unstable)]
    {
        let place = Location::caller();
        PLACE.get_or_init(|| place);
    }
    drop(handle.spawn(task));
}

/// Whether tasks that were spawned there are Morpheus's own.
#[cfg(tokio_unstable)]
pub(crate) fn is_place(location: &Location<'_>) -> bool {
    // Not the address: each type of task may have a copy of the location.
    PLACE.get().is_some_and(|place| *place == location)
}

#[cfg(all(test, tokio_unstable))]
mod tests {
    use super::*;
    use crate::report::label::{self, Origin};

    /// The tests are compiled with the sources, and so have their paths, as an application that is compiled in its own directory.
    #[test]
    fn a_task_that_is_spawned_in_a_file_beside_the_sources_is_the_applications() {
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let runtime = runtime.unwrap();
        spawn(runtime.handle(), async {});
        let here = Location::caller();
        assert_eq!(here.file(), file!());
        assert!(!label::at(here).is_own());
        let own = PLACE.get().unwrap();
        assert_eq!(own.file(), here.file());
        assert!(label::at(own).is_own());
        assert!(!label::of(Origin::Named("own")).is_own());
    }
}
