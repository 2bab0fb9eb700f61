//! The controller: one thread per runtime that keeps enough workers running.
//!
//! Once a millisecond, while anything is busy, it looks at tokio's cores ([`Cores`]), at the watched
//! polls ([`Watchdog`]) and at the [`Canary`], asks [`Staffing`] how many spares that takes, and releases
//! or holds them. Everything urgent comes first in a sample, reports last. Once nothing has moved for
//! 20 ms it sleeps until a worker unparks.
//!
//! It runs as a blocking task of the tokio runtime it serves, so that the blocking pool always has a
//! thread (see [`handoff`](crate::poll::handoff)); the process-wide one for other runtimes, and that of a current-thread
//! runtime, have a thread of their own, and no cores, canary or spares.
//!
//! No code of the application runs here: events go to the [reporter](crate::report::thread), wakers to a task of their
//! runtime ([`Wake::elsewhere`]). The one exception are hooks that the application gave to a tokio with `--cfg
//! tokio_unstable` for tasks that are spawned: the canary is one. A panic ends in [`serve`], which starts again.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::runtime::{Handle, RuntimeMetrics};

use crate::act::wake::Wake;
use crate::control::hogs::Hogs;
use crate::control::joiner;
use crate::decide::reporting::{self, Unwatched};
use crate::decide::staffing::Staffing;
use crate::domain::Domain;
use crate::observe::canary::{Canary, CanaryState};
use crate::observe::cores::{self, Cores, is_asleep};
use crate::observe::kernel::{Events, Mapped};
use crate::observe::watchdog::{self, Watchdog};
use crate::os::clock;
use crate::os::quota;
use crate::os::slack::OnTime;
use crate::os::slice;
use crate::os::supervise::supervise;
use crate::poll::hold;
use crate::report::event::{Report, Taken, Thread};
use crate::report::stacks::captor::{Captor, Long, Place};
#[cfg(doc)]
use crate::settings::Settings;

/// How often the controller looks. Five times as often cost 8.5 % of a core and bought nothing.
const SAMPLE_NS: u64 = 1_000_000;
/// Between two looks there is at least this.
const SHORTEST_NAP_NS: u64 = 200_000;
/// On a good day, with a worker parked at the time, it looks that much less often: whatever comes next has a worker to
/// serve it, and a thread that wakes a thousand times a second costs a service that is mostly idle a third of its CPU time.
const HEALTHY_SHIFT: usize = 2;
/// With more polls under way than this, it looks half as often, with twice as many a quarter.
const BUSY_POLLS: usize = 64;
/// Quiet for so many samples, it sleeps.
const QUIET_SAMPLES: u32 = 20;
/// A worker that gives no sign of life for this time is reported, though nobody knows what it polls: it is one poll
/// that long, or many of more than a budget. At least: where signs come seldom, see [`Settings::signs_within_ns`].
const STANDING_NS: u64 = 100_000_000;
/// How often that is looked for.
const STANDING_INTERVAL_NS: u64 = 50_000_000;
/// Wakes by the kernel side's events that the controller follows in a sample, and how many it saves up: a
/// program that blocks all the time must not keep it running.
const EVENT_WAKES_A_SAMPLE: u32 = 2;
const EVENT_WAKES_AT_ONCE: u32 = 32;
/// How often it is looked whether a daemon has come to a machine that had none.
const DAEMON_INTERVAL_NS: u64 = 1_000_000_000;
/// "Used up" is said at most so often.
const USED_UP_INTERVAL_NS: u64 = 10_000_000_000;

pub(crate) struct Controller {
    domain: Arc<Domain>,
    watchdog: Watchdog,
    /// Only where there is a runtime of our own.
    own: Option<Own>,
    /// Only while a daemon is joined.
    mapped: Option<Mapped>,
    looked_for_daemon_ns: u64,
    captor: Captor,
    event_wakes: u32,
    quiet_samples: u32,
}

/// What belongs to a runtime of our own.
struct Own {
    domain: Arc<Domain>,
    handle: Handle,
    metrics: RuntimeMetrics,
    cores: Cores,
    canary: Canary,
    staffing: Staffing,
    unwatched: Unwatched,
    used_up_ns: Option<u64>,
    looked_for_standing_ns: u64,
    /// Watched polls that the last sample found stalled.
    stalled: usize,
    poked_ns: u64,
    /// Under a quota that the threads are not confined to. A second thread that computes then uses up the quota in a part of
    /// its period, and the kernel stops all of them for the rest: tens of milliseconds. A late canary alone is no reason
    /// for that, because a worker whose quota is used by tasks that yield is late as well; a core has to stand.
    is_throttled: bool,
    /// Nothing was stalled for long, and the last sample found a worker parked, or there is no hurry.
    is_healthy: bool,
    hogs: Hogs,
    /// Polls that nobody watches and that stand, since the last sample at their threads.
    long: Vec<Long>,
}

/// What is found out once for a domain, before its controller starts.
pub(crate) fn prepare(domain: &Domain) {
    let can_nice = domain.settings.nice_hogs && crate::os::nice::is_reversible();
    // Relaxed: the start of the controller's thread publishes it.
    domain.can_nice.store(can_nice, Ordering::Relaxed);
}

/// Starts a controller on a thread of its own, for a domain without workers. Without such a thread watched polls are as
/// unwatched ones there, and an event says so.
pub(crate) fn start(domain: &Arc<Domain>) -> Option<std::thread::JoinHandle<()>> {
    let started = std::thread::Builder::new()
        .name("morpheus-ctl".into())
        .spawn({
            let domain = domain.clone();
            move || serve(&domain, None)
        });
    match started {
        Ok(thread) => Some(thread),
        Err(error) => {
            // Nobody waits yet.
            let _nobody = domain.go_on_without_controller();
            domain.reports.send(Report::NoController(error));
            None
        }
    }
}

/// The life of the controller's thread, until the runtime ends: for the domain of a runtime with workers with its handle,
/// or with `None` for one without.
///
/// After a panic a new controller begins with what the domain says. After too many the runtime goes on without one.
pub(crate) fn serve(domain: &Arc<Domain>, handle: Option<Handle>) {
    let returned = supervise(
        || Controller::new(domain.clone(), handle.clone()).run(),
        |text, restarts| {
            let mut woken = Vec::new();
            if restarts {
                // Relaxed: a statistic.
                domain
                    .counters
                    .controller_restarts
                    .fetch_add(1, Ordering::Relaxed);
                // Its end of the link went with it: the joiner makes another.
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
        // The blocking pool keeps its thread: a hold that is under way may hand its core over.
        domain.sleeper.sleep_until_stopped();
    }
    // A thread of tokio's pool may go on to serve others.
    slice::leave_worker();
}

impl Controller {
    fn new(domain: Arc<Domain>, handle: Option<Handle>) -> Controller {
        let own = handle.map(|handle| Own::new(domain.clone(), handle));
        let can_nice = domain.can_nice.load(Ordering::Relaxed);
        Controller {
            watchdog: Watchdog::new(domain.clone(), can_nice),
            captor: Captor::new(domain.stacks.clone(), domain.settings.mechanisms.stacks),
            domain,
            own,
            mapped: None,
            looked_for_daemon_ns: clock::now_ns(),
            event_wakes: EVENT_WAKES_AT_ONCE,
            quiet_samples: 0,
        }
    }

    fn run(mut self) {
        if self.domain.settings.mechanisms.slice && !slice::become_worker() {
            let refused = &self.domain.counters.slices_refused;
            refused.fetch_add(1, Ordering::Relaxed);
        }
        // SAFETY: names this thread only; the string is nul-terminated.
        unsafe { libc::prctl(libc::PR_SET_NAME, c"morpheus-ctl".as_ptr()) };
        let tid = crate::os::threads::own_tid();
        self.domain.controller_tid.store(tid, Ordering::Relaxed);
        self.domain.link.wake_joiner();
        if let Some(own) = &mut self.own {
            own.fill_reserve(clock::now_ns());
        }
        let mut now_ns = clock::now_ns();
        let mut tick_ns = now_ns + SAMPLE_NS;
        let mut due_ns = None;
        while !self.domain.sleeper.stops() {
            let wake_ns = due_ns.map_or(tick_ns, |due_ns: u64| {
                due_ns.clamp(
                    now_ns + SHORTEST_NAP_NS,
                    tick_ns.max(now_ns + SHORTEST_NAP_NS),
                )
            });
            self.nap(now_ns, wake_ns);
            now_ns = clock::now_ns();
            self.handle_events(now_ns);
            if now_ns < tick_ns {
                if due_ns.is_some_and(|due_ns| due_ns <= now_ns) {
                    due_ns = self.early_sample(now_ns);
                }
                continue;
            }
            self.event_wakes = (self.event_wakes + EVENT_WAKES_A_SAMPLE).min(EVENT_WAKES_AT_ONCE);
            self.tend_link(now_ns);
            let sample = self.sample(now_ns);
            // A kernel side says when a budget is used up. To look for it as well would not only be double work:
            // a controller that has just run has no claim to the CPU when the next event comes.
            let by_itself = self.mapped.is_none();
            due_ns = sample.due_ns.filter(|&due_ns| by_itself && due_ns > now_ns);
            let is_healthy =
                sample.busy == 0 && self.own.as_ref().is_some_and(|own| own.is_healthy);
            let shift = if is_healthy {
                HEALTHY_SHIFT
            } else {
                (sample.busy / BUSY_POLLS).min(2)
            };
            tick_ns = now_ns + (SAMPLE_NS << shift);
            let counters = &self.domain.counters;
            counters.samples.fetch_add(1, Ordering::Relaxed);
            counters.last_sample_ns.store(now_ns, Ordering::Relaxed);
            counters
                .controller_cpu_ns
                .store(clock::own_cpu_ns(), Ordering::Relaxed);
            if self.quiet_samples >= QUIET_SAMPLES {
                self.sleep();
                now_ns = clock::now_ns();
                tick_ns = now_ns + SAMPLE_NS;
                due_ns = None;
            }
        }
    }

    /// Until `wake_ns`, or until the kernel side has something to say, or a sleeper is to be looked at.
    fn nap(&self, now_ns: u64, wake_ns: u64) {
        // Once the wakes are used up, events wait for the next sample.
        let mapped = self.mapped.as_ref().filter(|_| self.event_wakes > 0);
        let due_ns = mapped
            .and_then(Mapped::due_ns)
            .filter(|&due_ns| due_ns < wake_ns);
        match (mapped, due_ns) {
            (Some(mapped), None) => {
                let _on_time = OnTime::begin();
                mapped.wait(wake_ns.saturating_sub(now_ns));
            }
            // Whoever else goes to sleep before a sleeper is due is read of then.
            (Some(mapped), Some(due_ns))
                if mapped.is_worth_staying() && !self.is_somebody_free() =>
            {
                // A thread that sleeps for less time than it has just run is not eligible when it wakes, and
                // waits for a tick of the kernel's (EEVDF): beside hogs that is milliseconds for the takeover.
                while clock::now_ns() < due_ns {
                    std::hint::spin_loop();
                }
            }
            (_, due_ns) => {
                let until_ns = due_ns.unwrap_or(wake_ns);
                let _on_time = OnTime::begin();
                std::thread::sleep(Duration::from_nanos(until_ns.saturating_sub(now_ns)));
            }
        }
    }

    fn is_somebody_free(&self) -> bool {
        self.own.as_ref().is_none_or(Own::is_somebody_free)
    }

    /// Joins or leaves a daemon, as the joiner says, or because it has fallen silent.
    fn tend_link(&mut self, now_ns: u64) {
        let link = &self.domain.link;
        if now_ns.saturating_sub(self.looked_for_daemon_ns) >= DAEMON_INTERVAL_NS {
            self.looked_for_daemon_ns = now_ns;
            if link.has_found_directory() {
                joiner::start_late(&self.domain);
            }
        }
        if let Some(handed) = link.take_handed() {
            self.mapped = Some(Mapped::new(self.domain.clone(), handed));
        }
        let Some(mapped) = &self.mapped else {
            return;
        };
        if !link.is_lost() && !mapped.is_alive(now_ns) {
            link.lose();
            link.wake_joiner();
        }
        if link.is_lost() {
            self.mapped = None;
        }
    }

    /// Reads what the kernel side says, and does at once what cannot wait.
    fn handle_events(&mut self, now_ns: u64) {
        let Some(mapped) = &mut self.mapped else {
            return;
        };
        let events: Events = mapped.read(now_ns);
        if events.is_empty() {
            return;
        }
        self.event_wakes = self.event_wakes.saturating_sub(1);
        self.quiet_samples = 0;
        for over in &events.over_budget {
            self.watchdog.budget_exceeded(*over, now_ns);
        }
        if let (Some(own), true) = (&mut self.own, events.settled) {
            own.take_over_sleepers(now_ns, mapped);
        }
        if !events.over_budget.is_empty() {
            let _ = self.early_sample(now_ns);
        }
    }

    fn sample(&mut self, now_ns: u64) -> watchdog::Sample {
        let metrics = self.own.as_ref().map(|own| &own.metrics);
        let sample = if self.domain.settings.mechanisms.watch {
            self.watchdog.sample(now_ns, metrics)
        } else {
            watchdog::Sample::default()
        };
        #[cfg(test)]
        self.domain.faults.controller.strike();
        let scarce = self.domain.spares_scarce.load(Ordering::Relaxed);
        let woken = self
            .domain
            .permits
            .tick(now_ns, sample.handoffs_asleep, scarce);
        woken.into_iter().for_each(Wake::elsewhere);
        let own_is_quiet = match &mut self.own {
            Some(own) => own.staff(now_ns, &sample),
            None => true,
        };
        self.report_stalls(now_ns, &sample);
        self.take_stacks(now_ns, &sample);
        let quiet = own_is_quiet && sample.busy == 0 && !self.domain.permits.is_busy();
        self.quiet_samples = if quiet { self.quiet_samples + 1 } else { 0 };
        sample
    }

    fn report_stalls(&self, now_ns: u64, sample: &watchdog::Sample) {
        let histories = &self.domain.histories;
        let reports = sample.stalls.iter();
        for report in reports.filter_map(|stall| reporting::stall(*stall, now_ns, histories)) {
            self.domain.reports.send(report);
        }
    }

    /// Looks at the threads of polls that have been stalled for long; last, because nobody waits for it.
    fn take_stacks(&mut self, now_ns: u64, sample: &watchdog::Sample) {
        let (domain, own) = (&self.domain, &mut self.own);
        let unwatched = match own {
            Some(own) if !own.long.is_empty() => std::mem::take(&mut own.long),
            _ => Vec::new(),
        };
        let is_same = |place| match place {
            Place::Slot(slot_index, seq) => domain.slots.runtime(slot_index).observe_poll() == seq,
            Place::Core(core, since_ns) => own
                .as_ref()
                .is_some_and(|own| own.cores.still_stands(core, since_ns, &own.metrics)),
        };
        if !unwatched.is_empty() {
            let new: Vec<Long> = unwatched
                .into_iter()
                .filter(|long| !self.captor.follows(long.place))
                .collect();
            self.captor.tend(now_ns, &new, is_same);
        }
        self.captor.tend(now_ns, &sample.long, is_same);
    }

    /// An extra sample between two samples, at the time when a poll of an origin that is known to be slow
    /// will have used up its budget: it is asked to yield, and replaced, that much earlier.
    fn early_sample(&mut self, now_ns: u64) -> Option<u64> {
        let sample = self
            .watchdog
            .sample(now_ns, self.own.as_ref().map(|own| &own.metrics));
        if let Some(own) = &mut self.own {
            own.stalled = sample.stalled;
            own.fill(now_ns, sample.stalled);
        }
        self.report_stalls(now_ns, &sample);
        self.take_stacks(now_ns, &sample);
        sample.due_ns.filter(|&due_ns| due_ns > now_ns)
    }

    /// Sleeps until something moves. What "moves" means is read again after the barrier.
    fn sleep(&mut self) {
        self.quiet_samples = 0;
        self.watchdog.rest();
        let domain = &self.domain;
        let own = self.own.as_ref();
        domain.counters.sleeps.fetch_add(1, Ordering::Relaxed);
        let still_quiet = || {
            domain
                .slots
                .runtimes()
                .all(|slot| slot.observe_poll() % 2 == 0)
                && !domain.permits.is_busy()
                && own.is_none_or(Own::is_quiet)
        };
        let by_events = self.mapped.as_ref().map(|mapped| || mapped.sleep());
        domain.sleeper.sleep_while(still_quiet, by_events);
    }
}

impl Own {
    fn new(domain: Arc<Domain>, handle: Handle) -> Own {
        let now_ns = clock::now_ns();
        let metrics = handle.metrics();
        let is_throttled = domain.mask.is_none() && quota::leaves_cpus_unpaid();
        Own {
            cores: Cores::new(
                metrics.num_workers(),
                &domain.settings,
                is_throttled,
                now_ns,
            ),
            canary: Canary::new(domain.clone()),
            staffing: Staffing::new(&domain.settings, quota::cpus_paid_for(), now_ns),
            unwatched: Unwatched::default(),
            used_up_ns: None,
            looked_for_standing_ns: now_ns,
            stalled: 0,
            poked_ns: 0,
            is_throttled,
            is_healthy: false,
            hogs: Hogs::default(),
            long: Vec::new(),
            metrics,
            handle,
            domain,
        }
    }

    /// Every active core is parked, asked of tokio at this moment.
    fn is_quiet(&self) -> bool {
        (0..self.metrics.num_workers()).all(|core| {
            self.domain.cores.is_held(core) || self.metrics.worker_park_unpark_count(core) % 2 == 1
        })
    }

    /// Brings the right number of spares into play. Returns whether everything is quiet.
    fn staff(&mut self, now_ns: u64, sample: &watchdog::Sample) -> bool {
        let mechanisms = self.domain.settings.mechanisms;
        let cores = self.cores.sample(now_ns, &self.domain, &self.metrics);
        if cores.pressure && mechanisms.reserve {
            self.staffing.saw_pressure(now_ns, cores.parked);
        }
        self.stalled = sample.stalled;
        self.fill(now_ns, sample.stalled);
        // Under a quota what the controller uses is missing elsewhere, and it waits for 10 ms of a poll anyway.
        self.is_healthy =
            (cores.parked > 0 || self.is_throttled) && self.staffing.is_healthy(now_ns);
        self.hogs.forgive(&self.domain, &self.metrics);
        let poke = mechanisms.poke && (cores.wants_poke || sample.wants_poke);
        let idle = self.tend_canary(now_ns, &cores, poke);
        let active = self.domain.spares.active();
        if self.staffing.may_hold(now_ns, active, sample.stalled) {
            self.hold_one();
        }
        let scarce = self.domain.spares.total() > 0
            && self.domain.spares.active() + 1 >= self.domain.spares.total();
        self.domain.spares_scarce.store(scarce, Ordering::Relaxed);
        if cores.pressure {
            self.tend_standing(now_ns, sample.stalled, active > 0);
        }
        idle && cores.all_parked
    }

    /// Reports workers that stand in polls which are not watched: a reserve that served what waited keeps
    /// the canary from being late, and nobody would hear of them. Those that sleep there count as stalled from
    /// then on, so that the reserve is not held again to be missed in the next poll.
    fn tend_standing(&mut self, now_ns: u64, watched: usize, served: bool) {
        if now_ns.saturating_sub(self.looked_for_standing_ns) < STANDING_INTERVAL_NS {
            return;
        }
        self.looked_for_standing_ns = now_ns;
        let standing_ns = self.domain.settings.signs_within_ns().max(STANDING_NS);
        let standing = self.cores.standing(now_ns, standing_ns, &self.domain);
        self.hogs.mark(&standing, &self.domain, &self.metrics);
        let unwatched = standing.len().saturating_sub(watched);
        if unwatched > 0 {
            self.long = self.unwatched_polls(&standing);
            let blocked = self.long.iter().filter(|long| is_asleep(long.tid)).count();
            let blocked = blocked.min(unwatched);
            self.staffing.saw_blocked(now_ns, blocked);
            let taken = match served {
                true => Taken::SpareReleased,
                false if self.domain.observes() => Taken::WouldReleaseSpare,
                false => Taken::Observed,
            };
            let report = self.unwatched.standing(now_ns, unwatched, blocked, taken);
            self.report(report);
        }
    }

    /// Those of the cores that stand whose thread is known, and polls nothing that is watched. Asked of cores, because
    /// threads of tokio's pool that served one have slots, too, and sleep when they have nothing to do.
    fn unwatched_polls(&self, standing: &[usize]) -> Vec<Long> {
        let polls_watched = |tid: u32| {
            self.domain
                .slots
                .runtimes()
                // Relaxed: a thread that sits down at this moment polls nothing yet.
                .filter(|slot| slot.tid.load(Ordering::Relaxed) == tid)
                .any(|slot| slot.observe_poll() % 2 == 1)
        };
        standing
            .iter()
            .filter_map(|&core| {
                let tid = self.domain.cores.thread(core)?;
                let since_ns = self.cores.stands_since(core)?;
                (!polls_watched(tid)).then_some(Long {
                    place: Place::Core(core, since_ns),
                    tid,
                    label: None,
                    since_ns,
                })
            })
            .collect()
    }

    fn fill_reserve(&mut self, now_ns: u64) {
        self.fill(now_ns, 0);
    }

    /// Releases what the stalled workers and the reserve call for.
    fn fill(&mut self, now_ns: u64, stalled: usize) {
        let (_, for_reserve) = self.release_missing(now_ns, stalled);
        self.domain
            .counters
            .takeovers_reserve
            .fetch_add(for_reserve as u64, Ordering::Relaxed);
    }

    /// The same, uncounted. Returns how many spares were released, and how many of those are for the reserve.
    fn release_missing(&mut self, now_ns: u64, stalled: usize) -> (usize, usize) {
        let active = self.domain.spares.active();
        let missing = self.staffing.missing(now_ns, active, stalled);
        let released = self.release(missing);
        let for_reserve = self.staffing.for_reserve(released, stalled);
        // The reserve is no promise; a stalled worker without a spare is.
        if released < missing && active + released < stalled {
            self.say_used_up(now_ns);
        }
        (released, for_reserve)
    }

    /// Workers that have slept in their polls for a moment, as the kernel side says. Where work waits and
    /// nobody is free to serve it, each is replaced now.
    fn take_over_sleepers(&mut self, now_ns: u64, mapped: &Mapped) {
        let domain = self.domain.clone();
        let (watched, unwatched) = mapped.settled(|slot_index| {
            // Relaxed: the threads of tokio's pool have slots, too, and sleep when they have nothing to do;
            // only those that have a core hold anybody up.
            let tid = domain.slots.runtime(slot_index).tid.load(Ordering::Relaxed);
            domain.cores.has_thread(tid)
        });
        if watched + unwatched == 0 {
            return;
        }
        if self.is_somebody_free() {
            // One that is parked serves what is queued, but perhaps not the driver, which the sleeper may
            // have had.
            if now_ns.saturating_sub(self.poked_ns) >= SAMPLE_NS
                && self.domain.settings.mechanisms.poke
            {
                self.poked_ns = now_ns;
                self.poke();
            }
            return;
        }
        self.staffing.saw_blocked(now_ns, unwatched);
        // All of them because of what the kernel side saw, and so none counts for the reserve.
        let (released, _) = self.release_missing(now_ns, self.stalled.max(watched));
        self.domain
            .counters
            .takeovers_kernel
            .fetch_add(released as u64, Ordering::Relaxed);
    }

    /// Whether an active core is parked: then whatever is queued has woken it, or does.
    fn is_somebody_free(&self) -> bool {
        (0..self.metrics.num_workers()).any(|core| {
            !self.domain.cores.is_held(core) && self.metrics.worker_park_unpark_count(core) % 2 == 1
        })
    }

    /// Returns whether none is out and none was sent.
    fn tend_canary(&mut self, now_ns: u64, cores: &cores::Sample, poke: bool) -> bool {
        let mechanisms = self.domain.settings.mechanisms;
        if !mechanisms.canary {
            if poke {
                self.poke();
            }
            return true;
        }
        match self.canary.state(now_ns) {
            CanaryState::Late { by_ns } => {
                if cores.pressure || !self.is_throttled {
                    self.answer_lateness(now_ns, by_ns);
                }
                false
            }
            CanaryState::Out => false,
            state @ (CanaryState::Idle | CanaryState::Back) => {
                if state == CanaryState::Idle {
                    self.staffing.punctual();
                }
                // With workers that park, work is being served; where all are parked, there is none.
                let nobody_parked = !cores.any_parked_since && !cores.all_parked;
                if poke {
                    self.domain.counters.pokes.fetch_add(1, Ordering::Relaxed);
                }
                if poke || nobody_parked {
                    self.canary.send(now_ns, &self.handle);
                    return false;
                }
                true
            }
        }
    }

    fn answer_lateness(&mut self, now_ns: u64, by_ns: u64) {
        let queued = self.metrics.global_queue_depth();
        let wanted = self.staffing.late(now_ns, queued);
        let released = self.release(wanted);
        if released > 0 {
            self.domain
                .counters
                .takeovers_canary
                .fetch_add(released as u64, Ordering::Relaxed);
            let taken = Taken::SpareReleased;
            let report = self.unwatched.late(now_ns, by_ns, released, taken);
            self.report(report);
        } else if wanted > 0 && self.domain.observes() {
            let taken = Taken::WouldReleaseSpare;
            let report = self.unwatched.late(now_ns, by_ns, wanted, taken);
            self.report(report);
        }
        let active = self.domain.spares.active();
        if let Some(window_ns) = self.staffing.window_over(now_ns, active) {
            let standing = self.cores.standing(now_ns, window_ns, &self.domain);
            let excess = self.staffing.did_not_help(now_ns, active, standing.len());
            self.domain
                .counters
                .taken_back
                .fetch_add(excess as u64, Ordering::Relaxed);
            for _ in 0..excess {
                self.hold_one();
            }
            if excess == 0 && released < wanted {
                self.say_used_up(now_ns);
            }
        }
    }

    fn release(&mut self, count: usize) -> usize {
        if !self.domain.settings.mechanisms.takeover {
            return 0;
        }
        let released = (0..count)
            .take_while(|_| self.domain.spares.release())
            .count();
        let active = self.domain.spares.active();
        self.domain
            .counters
            .spares_peak
            .fetch_max(active, Ordering::Relaxed);
        released
    }

    fn report(&self, report: Option<Report>) {
        if let Some(report) = report {
            self.domain.reports.send(report);
        }
    }

    fn hold_one(&self) {
        // Counted first: whoever sees the spare held finds it counted.
        self.domain.counters.holds.fetch_add(1, Ordering::Relaxed);
        hold::ask_for_one(&self.domain, &self.handle);
    }

    fn poke(&self) {
        self.domain.counters.pokes.fetch_add(1, Ordering::Relaxed);
        drop(self.handle.spawn(async {}));
    }

    fn say_used_up(&mut self, now_ns: u64) {
        if !self.domain.settings.mechanisms.takeover || self.domain.spares.total() == 0 {
            return;
        }
        self.domain
            .counters
            .spares_exhausted
            .fetch_add(1, Ordering::Relaxed);
        let said = self
            .used_up_ns
            .is_some_and(|at_ns| now_ns.saturating_sub(at_ns) < USED_UP_INTERVAL_NS);
        if !said {
            self.used_up_ns = Some(now_ns);
            let polled: Vec<u32> = self
                .domain
                .slots
                .runtimes()
                .filter(|slot| slot.observe_poll() % 2 == 1)
                .map(|slot| slot.label.load(Ordering::Relaxed))
                .collect();
            self.domain.reports.send(Report::SparesUsedUp {
                total: self.domain.spares.total(),
                worst: reporting::worst(&self.domain.histories, &polled),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::Instant;

    use super::*;
    use crate::link::{ActiveLink, Link};
    use crate::report::thread as reporter;
    use crate::{Builder, Runtime, task};

    #[track_caller]
    fn wait_for(what: &str, is_so: impl Fn() -> bool) {
        let until = Instant::now() + Duration::from_secs(60);
        while !is_so() {
            assert!(Instant::now() < until, "{what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn runtime() -> Runtime {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(2).max_spares(6).link(Link::Watchdog);
        builder.build().unwrap()
    }

    /// Tasks under one label that compute for 30 ms a poll, until `stop`: CPU hogs, most of which wait.
    fn convicts(
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
        let tasks = convicts(&runtime, "controller, restarts", &stop);
        wait_for("two restarts", || {
            runtime.metrics().controller_restarts == 2
        });
        let before = runtime.metrics();
        wait_for("it goes on", || {
            let metrics = runtime.metrics();
            metrics.samples > before.samples + 20 && metrics.sample_age_ns < clock::SECOND_NS
        });
        assert!(!runtime.metrics().controller_off);
        stop.store(true, Ordering::Relaxed);
        for task in tasks {
            runtime.block_on(task).unwrap();
        }
        let taken_over = before.takeovers_watched;
        let hog = task::Builder::new()
            .label("controller, after its restarts")
            .handoff(task::Handoff::Never)
            .spawn_on(
                async { std::thread::sleep(Duration::from_millis(200)) },
                runtime.handle(),
            );
        runtime.block_on(hog).unwrap();
        assert!(runtime.metrics().takeovers_watched > taken_over);
    }

    #[test]
    fn after_too_many_panics_the_runtime_goes_on_without_a_controller() {
        let runtime = runtime();
        let stop = Arc::new(AtomicBool::new(false));
        let tasks = convicts(&runtime, "controller, off", &stop);
        wait_for("some wait for a permit", || {
            runtime.metrics().permits_waiting >= 4
        });
        reporter::testing::install();
        runtime.domain().faults.controller.arm(usize::MAX);
        let said = |words: &str| reporter::testing::count(&["ERROR", "controller", words]);
        wait_for("it is off", || runtime.metrics().controller_off);
        wait_for("the last polls in place end", || {
            runtime.metrics().handoffs_now == 0
        });
        wait_for("an event says so", || said("stays off") == 1);
        assert!(said("starts again") >= 3);
        let metrics = runtime.metrics();
        assert_eq!(metrics.controller_restarts, 3);
        assert_eq!((metrics.spares_released, metrics.permits_waiting), (6, 0));
        assert_eq!(runtime.link(), ActiveLink::Watchdog);
        // Nobody waits for a permit, and nothing is handed off any more.
        let in_handoff = metrics.handoff_polls;
        std::thread::sleep(Duration::from_millis(200));
        let metrics = runtime.metrics();
        assert_eq!(
            (metrics.handoff_polls, metrics.permits_waiting),
            (in_handoff, 0)
        );
        assert_eq!(metrics.spares_released, 6);
        assert!(metrics.sample_age_ns > 100_000_000 && !metrics.controller_sleeps);
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
    }

    /// What a waker of the application's does.
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
            self.called_on.send(crate::os::threads::own_tid()).unwrap();
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
                class: Class::Slow,
                history: None,
                sleeps: true,
                // Only the controller's clock ends that wait.
                not_before_ns: clock::now_ns() + 20_000_000,
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
            runtime.metrics().samples > before.samples + 5
        });
        assert_eq!(before.controller_restarts, 0);
        for waiter in waiters {
            waiter.leave();
        }
        drop(go_on);
    }
}
