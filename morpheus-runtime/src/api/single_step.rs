//! Holding and releasing one spare by hand, and taking one stack, so that a bench can time it. No part of the API.
//!
//! Both do exactly what the controller does. It goes on beside them: whoever counts on what is active builds the
//! runtime without [`Mechanism::Takeover`](crate::Mechanism::Takeover), which leaves every release to the caller.

use crate::api::runtime::Runtime;
use crate::poll::hold;
use crate::report::stacks;

/// Lets one spare go; false when all of them are active.
#[must_use]
pub fn release(runtime: &Runtime) -> bool {
    runtime.domain().spares.release()
}

/// Asks for one worker to be held. Which, and when, is up to tokio's queues.
pub fn hold(runtime: &Runtime) {
    hold::ask_for_one(runtime.domain(), runtime.handle());
}

/// Workers that sit in a hold at this moment.
#[must_use]
pub fn held(runtime: &Runtime) -> usize {
    runtime.domain().spares.held()
}

/// Takes the stack of a thread as the controller does for one that is stalled, and says how many bytes of it
/// were copied, and whether the thread was asked by a signal; `None` where it is not to be had.
#[must_use]
pub fn stack_of(tid: u32) -> Option<(usize, bool)> {
    stacks::stack_of(tid)
}
