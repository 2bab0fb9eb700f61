//! Tokio as an expert tunes it for tasks that block and compute: more workers, short slices, and two unstable switches.

use morpheus_runtime::slice::{self, WORKER_SLICE_NS};
use tokio::runtime::Builder;

use crate::flagged;

/// Workers beside one for each CPU: as many as Morpheus has spares by default.
pub const MORE_WORKERS: usize = 32;

/// Gives each thread of a runtime the short slice that Morpheus's workers have, the threads for blocking calls included.
pub fn shorten_slices(builder: &mut Builder) {
    builder.on_thread_start(|| {
        slice::set_current(WORKER_SLICE_NS);
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
