//! Single steps of the controller for benches: one release, one hold, one stack. This is no part of the API.
//!
//! Each does exactly what the controller does. The controller goes on beside them. A bench that counts active
//! spares builds the runtime without [`Mechanism::Takeover`](crate::Mechanism::Takeover), which leaves every
//! release to the caller.

use crate::api::runtime::Runtime;
use crate::poll::hold;

/// Releases one spare; false when all of them are active.
#[must_use]
pub fn release(runtime: &Runtime) -> bool {
    runtime.domain().spares.release()
}

/// Spawns a hold task. Which worker it holds, and when, depends on tokio's queues.
pub fn hold(runtime: &Runtime) {
    hold::ask_for_one(runtime.domain(), runtime.handle());
}

/// The number of spares that are held at this moment.
#[must_use]
pub fn held(runtime: &Runtime) -> usize {
    runtime.domain().spares.held()
}

/// Takes the stack of a thread as the controller does for a stalled one. Returns the number of bytes copied,
/// and whether the thread was asked by a signal; `None` where there is no stack.
#[must_use]
pub fn stack_of(tid: u32) -> Option<(usize, bool)> {
    morpheus_stacks::stack_of(tid)
}
