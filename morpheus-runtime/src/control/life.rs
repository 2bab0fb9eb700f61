//! The life of a controller's thread: how it starts, begins again after a panic, and ends with its runtime.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use tokio::runtime::Handle;

use crate::act::wake::Wake;
use crate::control::controller::Controller;
use crate::domain::Domain;
use crate::report::event::{Report, Thread};
use morpheus_system::supervise::supervise;
use morpheus_system::{nice, slice, threads};

/// Finds out once for a domain, before its controller starts, whether the process may raise niceness again.
pub(crate) fn prepare(domain: &Domain) {
    let can_nice = domain.settings.nice_hogs && nice::is_reversible();
    // Relaxed: the start of the controller's thread publishes it.
    domain.can_nice.store(can_nice, Ordering::Relaxed);
}

/// Starts a controller on a thread of its own, for a domain without workers. Without such a thread watched polls go unseen
/// there, and an event says so.
pub(crate) fn start(domain: &Arc<Domain>) -> Option<thread::JoinHandle<()>> {
    let own = domain.clone();
    let thread = thread::Builder::new().name("morpheus-ctl".into());
    let started = threads::start(thread, move || serve(&own, None));
    let go_on = |error| {
        // No poll waits for a permit yet.
        let _none = domain.go_on_without_controller();
        domain.reports.send(Report::NoController(error));
    };
    started.map_err(go_on).ok()
}

/// Runs a controller until the runtime ends: with the handle of a runtime that has workers, or with `None` for a domain
/// without.
///
/// After a panic a new controller begins with the state of the domain. After too many the runtime goes on without one.
pub(crate) fn serve(domain: &Arc<Domain>, handle: Option<Handle>) {
    let returned = supervise(
        || Controller::new(domain.clone(), handle.clone()).run(),
        |text, restarts| {
            let mut woken = Vec::new();
            if restarts {
                domain.counters.controller_restarts.add(1);
                // The controller's end of the link went with it: the joiner makes another.
                domain.link.lose();
                domain.link.wake_joiner();
            } else {
                woken = domain.go_on_without_controller();
            }
            domain.reports.send(Report::Panicked {
                thread: Thread::Controller,
                text: text.to_owned(),
                restarts,
            });
            woken.into_iter().for_each(Wake::elsewhere);
        },
    );
    if !returned {
        // The blocking pool keeps its thread: a hold that is under way may hand off its core.
        domain.sleeper.sleep_until_stopped();
    }
    // A thread of tokio's pool may go on to serve blocking calls.
    slice::leave_worker();
}
