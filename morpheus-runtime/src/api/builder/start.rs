//! Starts a runtime: tokio's, with the spares held, and the controller.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use morpheus_link::joiner;
use morpheus_system::seccomp::Call;
use morpheus_system::{clock, sleeper};
use tokio::runtime::Handle;

use super::{BuildError, Builder};
use crate::api::current;
use crate::api::runtime::Runtime;
use crate::control::life;
use crate::domain::Domain;
use crate::poll::hold;
use crate::report::summary;

impl Builder {
    pub(super) fn start(&mut self) -> Result<Runtime, BuildError> {
        summary::at_exit();
        sleeper::register_barrier();
        let settings = self.settings()?;
        // Here, because the trial of a call is a fork, which no worker and no sample should wait for.
        if settings.mechanisms.slice {
            let _ = Call::SetAttributes.is_allowed();
        }
        if settings.mechanisms.stacks && cfg!(feature = "stacks") {
            // The second for the thread that walks them.
            let _ = Call::ReadMemory.is_allowed();
            let _ = Call::SetPriority.is_allowed();
        }
        if settings.is_current_thread {
            let domain = Arc::new(Domain::without_workers(settings));
            let tokio = self.prepare(&domain, self.blocking_threads())?;
            life::prepare(&domain);
            let controller = life::start(&domain);
            return Ok(Runtime::from_parts(tokio, domain).with_controller(controller));
        }
        let domain = Arc::new(Domain::new(settings));
        let tokio = self.prepare(&domain, self.pool_threads())?;
        let handle = tokio.handle().clone();
        for _ in domain.settings.workers..domain.settings.cores() {
            hold::ask_for_one(&domain, &handle);
        }
        let runtime = Runtime::from_parts(tokio, domain.clone());
        match self.serve(&domain, &handle) {
            Ok(()) => Ok(runtime),
            Err(error) => {
                end(runtime);
                Err(error)
            }
        }
    }

    /// Starts the controller of a runtime with workers.
    fn serve(&self, domain: &Arc<Domain>, handle: &Handle) -> Result<(), BuildError> {
        warn_of_missing_spares(domain);
        wait_until_held(domain);
        // Release: pairs with the Acquire in `hold`; before the first task of the application.
        domain.has_tasks.store(true, Ordering::Release);
        life::prepare(domain);
        // Tokio panics where the system gives no thread: another thread of the process may have used up the
        // limit since it was checked.
        let start = || {
            let (domain, own) = (domain.clone(), handle.clone());
            drop(handle.spawn_blocking(move || life::serve(&domain, Some(own))));
        };
        if catch_unwind(AssertUnwindSafe(start)).is_err() {
            let available = domain.settings.cores();
            return Err(BuildError::TooFewThreads {
                available,
                needed: available + 1,
            });
        }
        joiner::start(domain, self.link, self.link_socket.clone())?;
        Ok(())
    }

    /// Builds tokio's runtime for a domain, and makes the two known to each other.
    fn prepare(
        &mut self,
        domain: &Arc<Domain>,
        blocking_threads: usize,
    ) -> Result<tokio::runtime::Runtime, BuildError> {
        self.set_hooks(domain);
        let tokio = self.build_tokio(domain.settings.cores(), blocking_threads)?;
        let _ = domain.runtime.set(tokio.handle().id());
        current::register(domain);
        Ok(tokio)
    }
}

/// Ends a runtime that the application does not get. Its drop waits for the threads, which tokio allows nowhere in async code: a thread of
/// its own waits. Where there is none to be had, nothing waits.
fn end(runtime: Runtime) {
    let (send, receive) = mpsc::channel::<Runtime>();
    let ends = thread::Builder::new().spawn(move || drop(receive.recv()));
    let Ok(ends) = ends else {
        return runtime.shutdown_background();
    };
    drop(send.send(runtime));
    let _ = ends.join();
}

/// Says how many spares could not be started.
fn warn_of_missing_spares(domain: &Domain) {
    let (spares, missing) = (domain.settings.spares, domain.settings.spares_unavailable);
    if missing > 0 {
        tracing::warn!(
            target: "morpheus::stall",
            "the system gives threads for {spares} spares only, {missing} fewer than asked for: raise the process \
             limit (ulimit -u, pids.max)"
        );
    }
}

/// Waits up to 200 ms until every spare is held, so that the application's first tasks run on the workers
/// asked for. On a machine too busy for that, the remaining ones are held later.
fn wait_until_held(domain: &Domain) {
    let until_ns = clock::now_ns() + 200_000_000;
    while !domain.spares.are_all_held() && clock::now_ns() < until_ns {
        thread::sleep(Duration::from_micros(50));
    }
}
