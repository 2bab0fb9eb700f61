//! Tokio as an expert tunes it for tasks that block and compute: more workers, short slices, and two unstable switches.

use std::cell::Cell;

use morpheus_runtime::slice::{self, WORKER_SLICE_NS};
use tokio::runtime::Builder;

use crate::flagged;

/// Workers beside one for each CPU: as many as Morpheus has spares by default.
pub const MORE_WORKERS: usize = 32;

/// Gives each worker of a runtime the short slice that Morpheus's have, when it first parks. Threads for blocking calls never park, and
/// keep theirs: what computes there is to come after the workers.
pub fn shorten_slices(builder: &mut Builder) {
    thread_local! {
        static IS_SHORT: Cell<bool> = const { Cell::new(false) };
    }
    builder.on_thread_park(|| {
        if !IS_SHORT.replace(true) {
            slice::set_current(WORKER_SLICE_NS);
        }
    });
}

/// Shortens the slices and turns on `enable_eager_driver_handoff` and `disable_lifo_slot`. [`MORE_WORKERS`] are the caller's to
/// add.
///
/// # Errors
///
/// If this program was built without `--cfg tokio_unstable`.
pub fn tune(builder: &mut Builder) -> Result<(), String> {
    flagged::require()?;
    #[cfg(tokio_unstable)]
    builder.enable_eager_driver_handoff().disable_lifo_slot();
    shorten_slices(builder);
    Ok(())
}
