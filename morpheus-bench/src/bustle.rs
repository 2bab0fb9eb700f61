//! Every CPU is kept computing while the scheduler changes.
//!
//! The kernel patches its own code then, and wakes an idle CPU for each patch, which at once runs the scheduler's code. An
//! emulator whose virtual CPUs run at the same time may translate a patched instruction between the moment in which it
//! drops the old translation and that in which the new bytes are there. It then keeps a breakpoint that the kernel has
//! already removed, and the guest is lost ("Oops: int3"). A CPU that computes is interrupted for the patch, and goes on.
//! On a real machine it is of no use, and soon over.

use std::sync::atomic::Ordering;

use morpheus_harness::thread::{self, Stop};

use crate::{cpus, work};

/// Between two pauses. An emulator that gives its virtual CPUs turns on one of the host's goes on with the next one at a
/// pause. Without pauses each of these CPUs would compute for 0.1 s before the thread that changes the scheduler goes on.
const PIECE: u64 = 1_000;
/// The thread that changes the scheduler goes first.
const NICE: libc::c_int = 19;

/// On each CPU that the caller may use, for as long as what is returned lives. Where a thread cannot be started, one is idle.
pub fn start() -> Stop {
    let over = Stop::default();
    for cpu in cpus::allowed() {
        let over = over.0.clone();
        let computing = move || {
            thread::name_current(c"scale-bustle");
            thread::set_nice(0, NICE);
            // It computes wherever it is.
            let _ = cpus::pin(cpu);
            // Relaxed: nothing else is told by it.
            while !over.load(Ordering::Relaxed) {
                work::compute_in_turn(PIECE);
            }
        };
        let _ = std::thread::Builder::new().spawn(computing);
    }
    // The caller does not wait for the threads: the last one may have to wait for its CPU.
    over
}
