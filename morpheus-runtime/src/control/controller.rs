//! The controller: one thread per runtime that observes, decides, acts and reports.
//!
//! While anything is busy it takes a sample at each step of its [`Pace`]: of watched polls ([`Watchdog`]), of tokio's cores
//! and of the canary ([`Workers`]). It acts on what cannot wait first, and reports last. Once nothing has moved for 20 ms it
//! sleeps until a worker unparks.
//!
//! It runs as a blocking task of the tokio runtime that it serves, so that the blocking pool always has a
//! thread (see [`handoff`](crate::poll::handoff)). Domains without workers, of current-thread runtimes and of threads of
//! other runtimes, have a thread for it, and no cores, canary or spares.
//!
//! No code of the application runs here: events go to the [reporter](crate::report::thread), wakers to a task of their
//! runtime ([`Wake::elsewhere`]). The one exception are hooks that the application gave to a tokio with `--cfg
//! tokio_unstable` for tasks that are spawned: the canary is one. A panic ends in [`life::serve`](crate::control::life),
//! which starts again.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::runtime::Handle;

use crate::act::wake::Wake;
use crate::control::daemon::Daemon;
use crate::control::watchdog::{self, Watchdog};
use crate::control::workers::Workers;
use crate::decide::pace::Pace;
use crate::decide::reporting;
use crate::domain::Domain;
use crate::report::stacks::{Captor, Long, Place};
use morpheus_system::{clock, slice, threads};

/// The controller sleeps after this many quiet samples.
const QUIET_SAMPLES: u32 = 20;

pub(crate) struct Controller {
    domain: Arc<Domain>,
    watchdog: Watchdog,
    /// Only for a runtime with workers.
    workers: Option<Workers>,
    daemon: Daemon,
    captor: Captor,
    quiet_samples: u32,
}

impl Controller {
    pub(crate) fn new(domain: Arc<Domain>, handle: Option<Handle>) -> Controller {
        let workers = handle.map(|handle| Workers::new(domain.clone(), handle));
        Controller {
            watchdog: Watchdog::new(domain.clone()),
            captor: Captor::new(domain.stacks.clone(), domain.settings.mechanisms.stacks),
            daemon: Daemon::new(domain.clone()),
            workers,
            domain,
            quiet_samples: 0,
        }
    }

    /// The loop, until the runtime ends.
    pub(crate) fn run(mut self) {
        self.begin();
        let mut now_ns = clock::now_ns();
        let mut pace = Pace::begin(now_ns);
        while !self.domain.sleeper.stops() {
            self.nap(now_ns, pace.wake_ns(now_ns));
            now_ns = clock::now_ns();
            self.answer_events(now_ns);
            if !pace.is_sample_due(now_ns) {
                if pace.is_early_sample_due(now_ns) {
                    let next_ns = self.early_sample(now_ns);
                    pace.plan_early(now_ns, next_ns);
                }
                continue;
            }
            self.daemon.sample(now_ns);
            let polls = self.sample(now_ns);
            let workers = self.workers.as_ref();
            let is_healthy = workers.is_some_and(|workers| workers.is_healthy);
            pace.plan(now_ns, polls.busy, is_healthy);
            // A kernel side says when a budget is used up. To look for it as well would not only be double work:
            // a controller that has just run has no claim to the CPU when the next event comes.
            let alone = self.daemon.events().is_none();
            pace.plan_early(now_ns, polls.due_ns.filter(|_| alone));
            if self.quiet_samples >= QUIET_SAMPLES {
                self.sleep();
                now_ns = clock::now_ns();
                pace = Pace::begin(now_ns);
            }
        }
    }

    fn begin(&mut self) {
        if self.domain.settings.mechanisms.slice && !slice::become_worker() {
            self.domain.counters.slices_refused.add(1);
        }
        // SAFETY: names this thread only; the string is nul-terminated.
        unsafe { libc::prctl(libc::PR_SET_NAME, c"morpheus-ctl".as_ptr()) };
        // Relaxed: a number; the joiner asks for it again when it is woken.
        let tid = threads::own_tid();
        self.domain.controller_tid.store(tid, Ordering::Relaxed);
        self.domain.link.wake_joiner();
        if let Some(workers) = &mut self.workers {
            workers.release_for(clock::now_ns(), 0);
        }
    }

    fn nap(&self, now_ns: u64, wake_ns: u64) {
        let workers = self.workers.as_ref();
        let is_served = || workers.is_none_or(Workers::has_parked);
        self.daemon.nap(now_ns, wake_ns, is_served);
    }

    /// One sample: observes, decides and acts, then reports.
    fn sample(&mut self, now_ns: u64) -> watchdog::Sample {
        let metrics = self.workers.as_ref().map(|workers| &workers.metrics);
        let polls = if self.domain.settings.mechanisms.watch {
            self.watchdog.sample(now_ns, metrics)
        } else {
            watchdog::Sample::default()
        };
        #[cfg(test)]
        self.domain.faults.controller.strike();
        #[cfg(tokio_unstable)]
        self.domain.records.sweep(now_ns);
        let permits = &self.domain.permits;
        // Relaxed: written by this thread.
        let scarce = self.domain.spares_scarce.load(Ordering::Relaxed);
        let woken = permits.tick(now_ns, polls.handoffs_asleep, scarce);
        woken.into_iter().for_each(Wake::elsewhere);
        let are_quiet = match &mut self.workers {
            Some(workers) => workers.staff(now_ns, &polls),
            None => true,
        };
        self.report(now_ns, &polls);
        let is_quiet = are_quiet && polls.busy == 0 && !self.domain.permits.is_busy();
        self.quiet_samples = if is_quiet { self.quiet_samples + 1 } else { 0 };
        let counters = &self.domain.counters;
        counters.samples.add(1);
        counters.last_sample_ns.set(now_ns);
        counters.controller_cpu_ns.set(clock::own_cpu_ns());
        polls
    }

    /// A sample of watched polls alone, at the time when a poll of a slow label will have used up its budget: it is asked to
    /// yield, and replaced, that much earlier. Returns the time of the next one.
    fn early_sample(&mut self, now_ns: u64) -> Option<u64> {
        let metrics = self.workers.as_ref().map(|workers| &workers.metrics);
        let polls = self.watchdog.sample(now_ns, metrics);
        if let Some(workers) = &mut self.workers {
            workers.release_for(now_ns, polls.stalled);
        }
        self.report(now_ns, &polls);
        polls.due_ns
    }

    /// Reads the events of the kernel, and acts on what cannot wait for the next sample.
    fn answer_events(&mut self, now_ns: u64) {
        let Some(events) = self.daemon.read(now_ns) else {
            return;
        };
        self.quiet_samples = 0;
        for over in &events.over_budget {
            self.watchdog.budget_exceeded(*over, now_ns);
        }
        if events.settled
            && let (Some(workers), Some(kernel)) = (&mut self.workers, self.daemon.events())
        {
            workers.replace_sleepers(now_ns, kernel);
        }
        if !events.over_budget.is_empty() {
            let _ = self.early_sample(now_ns);
        }
    }

    /// Sends events about stalled polls, and takes their stacks, which no task waits for.
    fn report(&mut self, now_ns: u64, polls: &watchdog::Sample) {
        let histories = &self.domain.histories;
        let stalls = polls.stalls.iter();
        for report in stalls.filter_map(|stall| reporting::stall(*stall, now_ns, histories)) {
            self.domain.reports.send(report);
        }
        let unwatched = self.workers.as_mut().map(Workers::take_long);
        let (domain, workers) = (&self.domain, &self.workers);
        let is_same = |place| match place {
            Place::Slot(index, seq) => domain.slots.runtime(index).observe_poll() == seq,
            Place::Core(core, since_ns) => workers.as_ref().is_some_and(|workers| {
                let cores = &workers.cores;
                cores.is_still_stalled(core, since_ns, &workers.metrics)
            }),
        };
        let new: Vec<Long> = unwatched
            .into_iter()
            .flatten()
            .filter(|long| !self.captor.follows(long.place))
            .chain(polls.long.iter().copied())
            .collect();
        self.captor.tend(now_ns, &new, is_same);
    }

    /// Sleeps until something moves. The condition is read again after the barrier.
    fn sleep(&mut self) {
        self.quiet_samples = 0;
        self.watchdog.close_files();
        let domain = &self.domain;
        let workers = self.workers.as_ref();
        domain.counters.sleeps.add(1);
        let is_quiet = || {
            let mut slots = domain.slots.runtimes();
            slots.all(|slot| slot.observe_poll() % 2 == 0)
                && !domain.permits.is_busy()
                && workers.is_none_or(Workers::is_quiet)
        };
        let by_events = self
            .daemon
            .events()
            .map(|events| || events.sleep(&domain.link));
        domain.sleeper.sleep_while(is_quiet, by_events);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::{Duration, Instant};

    use morpheus_testing::wait_for;

    use super::*;
    use crate::report::thread as reporter;
    use crate::{ActiveLink, Link};
    use crate::{Builder, Runtime, task};

    fn runtime() -> Runtime {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(2).max_spares(6).link(Link::Watchdog);
        builder.build().unwrap()
    }

    /// Tasks under one label that compute for 30 ms a poll, until `stop`: CPU hogs, most of which wait.
    fn hogs(
        runtime: &Runtime,
        label: &'static str,
        stop: &Arc<AtomicBool>,
    ) -> Vec<tokio::task::JoinHandle<()>> {
        let computes = |stop: Arc<AtomicBool>| async move {
            while !stop.load(Ordering::Relaxed) {
                let until = Instant::now() + Duration::from_millis(30);
                while Instant::now() < until && !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
                tokio::task::yield_now().await;
            }
        };
        let spawn = |_| {
            task::Builder::new()
                .label(label)
                .spawn_on(computes(stop.clone()), runtime.handle())
        };
        (0..12).map(spawn).collect()
    }

    #[test]
    fn a_controller_that_panics_starts_again() {
        let runtime = runtime();
        let domain = runtime.domain();
        domain.faults.controller.arm(2);
        let stop = Arc::new(AtomicBool::new(false));
        let tasks = hogs(&runtime, "controller, restarts", &stop);
        wait_for("two restarts", || {
            runtime.metrics().debug.controller_restarts == 2
        });
        let before = runtime.metrics();
        wait_for("it goes on", || {
            let metrics = runtime.metrics();
            metrics.debug.samples > before.debug.samples + 20
                && metrics.debug.sample_age_ns < clock::SECOND_NS
        });
        assert!(!runtime.metrics().controller_off);
        stop.store(true, Ordering::Relaxed);
        for task in tasks {
            runtime.block_on(task).unwrap();
        }
        let taken_over = before.debug.takeovers_watched;
        let hog = task::Builder::new()
            .label("controller, after its restarts")
            .handoff(task::Handoff::Never)
            .spawn_on(
                async { std::thread::sleep(Duration::from_millis(200)) },
                runtime.handle(),
            );
        runtime.block_on(hog).unwrap();
        assert!(runtime.metrics().debug.takeovers_watched > taken_over);
    }

    #[test]
    fn after_too_many_panics_the_runtime_goes_on_without_a_controller() {
        let runtime = runtime();
        let stop = Arc::new(AtomicBool::new(false));
        let tasks = hogs(&runtime, "controller, off", &stop);
        wait_for("some wait for a permit", || {
            runtime.metrics().permits_waiting >= 4
        });
        reporter::testing::install();
        // A handed over poll that outlasts the controller must not keep a worker held.
        assert!(runtime.domain().handed_over.begin());
        runtime.domain().faults.controller.arm(usize::MAX);
        let said = |words: &str| reporter::testing::count(&["ERROR", "controller", words]);
        wait_for("it is off", || runtime.metrics().controller_off);
        wait_for("the last handoff polls end", || {
            runtime.metrics().debug.handoffs_now == 0
        });
        wait_for("an event says so", || said("stays off") == 1);
        assert!(said("starts again") >= 3);
        let metrics = runtime.metrics();
        assert_eq!(metrics.debug.controller_restarts, 3);
        assert_eq!((metrics.spares_released, metrics.permits_waiting), (6, 0));
        assert_eq!(runtime.link(), ActiveLink::Watchdog);
        // No task waits for a permit, and no poll is handed off any more.
        let in_handoff = metrics.handoff_polls;
        std::thread::sleep(Duration::from_millis(200));
        let metrics = runtime.metrics();
        assert_eq!(
            (metrics.handoff_polls, metrics.permits_waiting),
            (in_handoff, 0)
        );
        assert_eq!(metrics.spares_released, 6);
        assert!(metrics.debug.sample_age_ns > 100_000_000 && !metrics.debug.controller_sleeps);
        stop.store(true, Ordering::Relaxed);
        for task in tasks {
            runtime.block_on(task).unwrap();
        }
        // The workers and the spares are all there is: that many tasks may block at once.
        let barrier = Arc::new(std::sync::Barrier::new(8));
        let block = |_| {
            let barrier = barrier.clone();
            runtime.handle().spawn(async move {
                barrier.wait();
            })
        };
        for task in (0..8).map(block).collect::<Vec<_>>() {
            runtime.block_on(task).unwrap();
        }
        runtime.domain().handed_over.end();
    }

    /// The ways in which a waker of the application behaves.
    enum Waking {
        Returns,
        Panics,
        Blocks(std::sync::Mutex<std::sync::mpsc::Receiver<()>>),
    }

    struct Waker {
        waking: Waking,
        called_on: std::sync::mpsc::Sender<u32>,
    }

    impl std::task::Wake for Waker {
        fn wake(self: Arc<Self>) {
            self.called_on
                .send(morpheus_system::threads::own_tid())
                .unwrap();
            match &self.waking {
                Waking::Returns => {}
                Waking::Panics => panic!("a waker, on purpose"),
                Waking::Blocks(until) => drop(until.lock().unwrap().recv()),
            }
        }
    }

    #[test]
    fn wakers_are_not_called_by_the_controller() {
        use crate::act::permit::{Answer, Class, Request};
        let runtime = runtime();
        let domain = runtime.domain();
        let (called_on, calls) = std::sync::mpsc::channel();
        let (go_on, until) = std::sync::mpsc::channel();
        let kinds = [
            Waking::Panics,
            Waking::Blocks(std::sync::Mutex::new(until)),
            Waking::Returns,
        ];
        let _on_the_runtime = runtime.enter();
        let waiters = kinds.map(|waking| {
            let called_on = called_on.clone();
            let waker = std::task::Waker::from(Arc::new(Waker { waking, called_on }));
            let request = Request {
                sleeps: true,
                // Only the controller's clock ends that wait.
                not_before_ns: clock::now_ns() + 20_000_000,
                ..Request::for_tests(Class::Slow)
            };
            match domain.permits.ask(request, false, &waker) {
                Answer::Wait(waiter) => waiter,
                Answer::Granted(_) | Answer::Full => panic!("expected to wait"),
            }
        });
        domain.wake_controller();
        let controller = domain.controller_tid.load(Ordering::Relaxed);
        for _ in 0..waiters.len() {
            let tid = calls.recv_timeout(Duration::from_secs(60)).unwrap();
            assert_ne!(tid, controller);
        }
        let before = runtime.metrics();
        wait_for("the controller goes on", || {
            runtime.metrics().debug.samples > before.debug.samples + 5
        });
        assert_eq!(before.debug.controller_restarts, 0);
        for waiter in waiters {
            waiter.leave();
        }
        drop(go_on);
    }
}
