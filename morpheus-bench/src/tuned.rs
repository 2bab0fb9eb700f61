//! Tokio as an expert tunes it for tasks that block and compute: more workers, short slices, and two unstable switches.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use morpheus_runtime::slice::{self, WORKER_SLICE_NS};
use tokio::runtime::Builder;

use crate::flagged;

/// Workers beside one for each CPU: as many as Morpheus has spares by default.
pub const MORE_WORKERS: usize = 32;

/// As many workers, each with the short slice that Morpheus's have. Threads for blocking calls start after them and keep theirs: what
/// computes there is to come after the workers.
pub fn with_short_slices(builder: &mut Builder, workers: usize) {
    let started = AtomicUsize::new(0);
    builder.worker_threads(workers).on_thread_start(move || {
        // Relaxed: a number for each thread, and nothing behind it.
        if started.fetch_add(1, Relaxed) < workers {
            slice::set_current(WORKER_SLICE_NS);
        }
    });
}

/// The same, and turns on `enable_eager_driver_handoff` and `disable_lifo_slot`. [`MORE_WORKERS`] are the caller's to add.
///
/// # Errors
///
/// If this program was built without `--cfg tokio_unstable`.
pub fn tune(builder: &mut Builder, workers: usize) -> Result<(), String> {
    flagged::require()?;
    #[cfg(tokio_unstable)]
    builder.enable_eager_driver_handoff().disable_lifo_slot();
    with_short_slices(builder, workers);
    Ok(())
}
