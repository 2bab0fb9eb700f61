//! The workers and spares of one runtime, as its controller sees and staffs them.
//!
//! Each sample brings the right number of spares into service: it samples tokio's cores ([`Cores`]), asks [`Staffing`]
//! how many spares that takes, releases or holds them, and reports cores that stalled in polls which are not watched. The
//! [`Canary`] shows whether waiting work is served at all.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::runtime::{Handle, RuntimeMetrics};

use crate::control::confiner::{Confiner, Worker};
use crate::control::hogs::{self, Hogs};
use crate::control::watchdog;
use crate::decide::confinement::Hog;
use crate::decide::reporting::{self, Unwatched};
use crate::decide::staffing::Staffing;
use crate::domain::Domain;
use crate::observe::canary::{Canary, CanaryState};
use crate::observe::cores::{self, Cores, is_asleep};
use crate::poll::hold;
use crate::report::event::{Report, Taken};
use crate::report::own;
use crate::report::stacks::{Long, Place};
#[cfg(doc)]
use crate::settings::Settings;
use morpheus_link::events::KernelEvents;
use morpheus_system::{clock, quota};

/// A core that gives no sign of life for this time is reported, also if its poll is not watched. Where signs of life come
/// seldom, [`Settings::signs_within_ns`] is longer and applies.
const STALLED_NS: u64 = 100_000_000;
/// The interval between two searches for such cores.
const STALLED_INTERVAL_NS: u64 = 50_000_000;
/// The least time between two reports that every spare is active.
const EXHAUSTED_INTERVAL_NS: u64 = 10_000_000_000;
/// Shortages of spares that follow one another within this time count as one.
const SAME_SHORTAGE_NS: u64 = 1_000_000_000;
/// The least time between two pokes because of events from the kernel.
const POKE_INTERVAL_NS: u64 = 1_000_000;

pub(crate) struct Workers {
    domain: Arc<Domain>,
    handle: Handle,
    pub(crate) metrics: RuntimeMetrics,
    pub(crate) cores: Cores,
    canary: Canary,
    staffing: Staffing,
    hogs: Hogs,
    confiner: Option<Confiner>,
    unwatched: Unwatched,
    exhausted_reported_ns: Option<u64>,
    /// The time at which more spares were last needed than there are.
    exhausted_ns: Option<u64>,
    searched_ns: u64,
    /// Watched polls that the last sample found stalled.
    stalled: usize,
    poked_ns: u64,
    /// Whether the process has a CPU quota and may run on more CPUs than the quota pays for. A second thread that computes then
    /// uses up the quota in a part of its period, and the kernel stops all of them for the rest: tens of milliseconds. So a
    /// late canary alone releases no spare, because busy tasks that yield make it late as well: a core has to stall.
    is_quota_tight: bool,
    /// Whether the controller may sample less often: nothing has stalled for ten seconds, and a worker is parked or a quota
    /// is tight.
    pub(crate) is_healthy: bool,
    /// Polls that are not watched and that the last search found stalled; their stacks are still to be taken.
    long: Vec<Long>,
}

impl Workers {
    pub(crate) fn new(domain: Arc<Domain>, handle: Handle) -> Workers {
        let now_ns = clock::now_ns();
        let metrics = handle.metrics();
        let is_quota_tight = domain.mask.is_none() && quota::leaves_cpus_unpaid();
        Workers {
            cores: Cores::new(
                metrics.num_workers(),
                &domain.settings,
                is_quota_tight,
                now_ns,
            ),
            canary: Canary::new(domain.clone()),
            staffing: Staffing::new(&domain.settings, quota::cpus_paid_for(), now_ns),
            hogs: Hogs::new(quota::cpus_paid_for()),
            confiner: Confiner::new(&domain, is_quota_tight),
            unwatched: Unwatched::default(),
            exhausted_reported_ns: None,
            exhausted_ns: None,
            searched_ns: now_ns,
            stalled: 0,
            poked_ns: 0,
            is_quota_tight,
            is_healthy: false,
            long: Vec::new(),
            metrics,
            handle,
            domain,
        }
    }

    /// The stalled polls whose stacks are still to be taken. Empties the list.
    pub(crate) fn take_long(&mut self) -> Vec<Long> {
        std::mem::take(&mut self.long)
    }

    /// Whether every active core is parked, asked of tokio at this moment.
    pub(crate) fn is_quiet(&self) -> bool {
        self.active_cores().all(|core| self.is_parked(core))
    }

    /// Whether an active core is parked: then anything that is queued has woken it, or does.
    pub(crate) fn has_parked(&self) -> bool {
        self.active_cores().any(|core| self.is_parked(core))
    }

    fn active_cores(&self) -> impl Iterator<Item = usize> {
        (0..self.metrics.num_workers()).filter(|&core| !self.domain.cores.is_held(core))
    }

    fn is_parked(&self, core: usize) -> bool {
        self.metrics.worker_park_unpark_count(core) % 2 == 1
    }

    /// Brings the right number of spares into service. Returns whether everything is quiet.
    pub(crate) fn staff(&mut self, now_ns: u64, polls: &watchdog::Sample) -> bool {
        let mechanisms = self.domain.settings.mechanisms;
        let cores = self.cores.sample(now_ns, &self.domain, &self.metrics);
        self.hogs
            .lengthen_slices(now_ns, &mut self.cores, &self.domain);
        self.confine(now_ns, &polls.hogs);
        if cores.is_sign && mechanisms.reserve {
            self.staffing.saw_pressure(now_ns, cores.parked);
        }
        self.release_for(now_ns, polls.stalled);
        let is_pressed = !self.is_quota_tight && self.staffing.is_under_pressure(now_ns);
        self.domain.relief.want(mechanisms.poke && is_pressed);
        // Under a quota samples use CPU time that the workers need, and the controller reacts only after 10 ms of a poll.
        self.is_healthy =
            (cores.parked > 0 || self.is_quota_tight) && self.staffing.is_healthy(now_ns);
        self.hogs.clear(&self.cores, &self.metrics, &self.domain);
        let poke = mechanisms.poke && (cores.wants_poke || polls.wants_poke);
        let idle = self.run_canary(now_ns, &cores, poke);
        let active = self.domain.spares.active();
        if self.staffing.may_hold(now_ns, active, polls.stalled) {
            self.hold_one();
        }
        let total = self.domain.spares.total();
        let scarce = total > 0 && self.domain.spares.active() + 1 >= total;
        // Relaxed: a hint to polls of slow tasks.
        self.domain.spares_scarce.store(scarce, Ordering::Relaxed);
        if cores.pressure {
            self.search_stalled_cores(now_ns, polls.stalled, active > 0);
        }
        let is_confining = self.confiner.as_ref().is_some_and(Confiner::is_busy);
        idle && cores.all_parked && !is_confining
    }

    /// Confines hogs: the watched polls of this sample, and threads whose cores give no sign of life.
    fn confine(&mut self, now_ns: u64, watched: &[Hog]) {
        let Some(mut confiner) = self.confiner.take() else {
            return;
        };
        let computing = self.cores.computing(now_ns);
        if !confiner.wants(computing.len() + watched.len(), &self.domain) {
            self.confiner = Some(confiner);
            return;
        }
        let mut hogs = hogs::demotable(computing, &self.domain);
        hogs.extend(watched);
        let thread = |core| {
            Some(Worker {
                tid: self.domain.cores.thread(core)?,
                alive_ns: self.cores.stalled_since(core)?,
            })
        };
        let workers = self.active_cores().filter_map(thread);
        confiner.sample(now_ns, hogs, &self.domain, workers);
        self.confiner = Some(confiner);
    }

    /// Releases the spares that `stalled` watched polls and the reserve call for.
    pub(crate) fn release_for(&mut self, now_ns: u64, stalled: usize) {
        self.stalled = stalled;
        let (_, for_reserve) = self.release_missing(now_ns, stalled);
        self.domain.counters.takeovers_reserve.add(for_reserve);
    }

    /// Releases what [`release_for`](Self::release_for) does, and counts nothing. Returns how many spares were released, and how many of those are for the reserve.
    fn release_missing(&mut self, now_ns: u64, stalled: usize) -> (usize, usize) {
        let active = self.domain.spares.active();
        let missing = self.staffing.missing(now_ns, active, stalled);
        let released = self.release(missing);
        let for_reserve = self.staffing.for_reserve(released, stalled);
        // The reserve is no promise; a spare for each stalled worker is.
        if released < missing && active + released < stalled {
            self.report_exhausted(now_ns);
        }
        (released, for_reserve)
    }

    /// Replaces workers that sleep in their polls, as events from the kernel say, if work waits and no worker is free
    /// to serve it.
    pub(crate) fn replace_sleepers(&mut self, now_ns: u64, events: &KernelEvents) {
        let domain = self.domain.clone();
        let (watched, unwatched) = events.settled(&domain.slots, |slot_index| {
            // Relaxed: a number that is compared. Threads of tokio's pool have slots, too, and sleep when they have
            // nothing to do; only those that have a core hold up others.
            let tid = domain.slots.runtime(slot_index).tid.load(Ordering::Relaxed);
            domain.cores.has_thread(tid)
        });
        if watched + unwatched == 0 {
            return;
        }
        if self.has_parked() {
            // A parked worker serves the queues, but perhaps not the I/O driver, which the sleeper may have had.
            if now_ns.saturating_sub(self.poked_ns) >= POKE_INTERVAL_NS
                && self.domain.settings.mechanisms.poke
            {
                self.poked_ns = now_ns;
                self.poke();
            }
            return;
        }
        self.staffing.saw_blocked(now_ns, unwatched);
        // The kernel's events are the reason for all of them, so none counts for the reserve.
        let (released, _) = self.release_missing(now_ns, self.stalled.max(watched));
        self.domain.counters.takeovers_kernel.add(released);
    }

    /// Sends a canary if there is a reason, and answers one that is late. Returns whether none is out.
    fn run_canary(&mut self, now_ns: u64, cores: &cores::Sample, poke: bool) -> bool {
        if !self.domain.settings.mechanisms.canary {
            if poke {
                self.poke();
            }
            return true;
        }
        match self.canary.state(now_ns) {
            CanaryState::Late { by_ns } => {
                if cores.pressure || !self.is_quota_tight {
                    self.answer_lateness(now_ns, by_ns);
                }
                false
            }
            CanaryState::Out => false,
            state @ (CanaryState::Idle | CanaryState::Back) => {
                if state == CanaryState::Idle {
                    self.staffing.punctual();
                }
                // Workers that park serve the work; where all are parked, there is none.
                let none_parked = !cores.any_parked_since && !cores.all_parked;
                if poke {
                    self.domain.counters.pokes.add(1);
                }
                if poke || none_parked {
                    self.canary.send(now_ns, &self.handle);
                }
                !(poke || none_parked)
            }
        }
    }

    fn answer_lateness(&mut self, now_ns: u64, by_ns: u64) {
        let queued = self.metrics.global_queue_depth();
        let wanted = self.staffing.late(now_ns, queued);
        let released = self.release(wanted);
        let counters = &self.domain.counters;
        if released > 0 {
            counters.takeovers_canary.add(released);
            let report = self
                .unwatched
                .late(now_ns, by_ns, released, Taken::SpareReleased);
            self.report(report);
        } else if wanted > 0 && self.domain.observes() {
            let report = self
                .unwatched
                .late(now_ns, by_ns, wanted, Taken::WouldReleaseSpare);
            self.report(report);
        }
        let active = self.domain.spares.active();
        if let Some(window_ns) = self.staffing.window_over(now_ns, active) {
            let stalled = self.cores.stalled(now_ns, window_ns, &self.domain);
            let excess = self.staffing.did_not_help(now_ns, active, stalled.len());
            self.domain.counters.taken_back.add(excess);
            for _ in 0..excess {
                self.hold_one();
            }
            if excess == 0 && released < wanted {
                self.report_exhausted(now_ns);
            }
        }
    }

    /// Reports cores that stalled in polls which are not watched. If the reserve serves the waiting work, the canary is
    /// never late, and only this search finds the stall. Cores that sleep count as stalled for a second, so that their
    /// spares stay released until the next such poll.
    fn search_stalled_cores(&mut self, now_ns: u64, watched: usize, is_served: bool) {
        if now_ns.saturating_sub(self.searched_ns) < STALLED_INTERVAL_NS {
            return;
        }
        self.searched_ns = now_ns;
        let window_ns = self.domain.settings.signs_within_ns().max(STALLED_NS);
        let stalled = self.cores.stalled(now_ns, window_ns, &self.domain);
        self.hogs.mark(&stalled, &self.cores, &self.domain);
        let unwatched = stalled.len().saturating_sub(watched);
        if unwatched == 0 {
            return;
        }
        self.long = self.unwatched_polls(&stalled);
        let is_blocked = |long: &&Long| is_asleep(long.tid) == Some(true);
        let blocked = self.long.iter().filter(is_blocked).count();
        let blocked = blocked.min(unwatched);
        self.staffing.saw_blocked(now_ns, blocked);
        let taken = match is_served {
            true => Taken::SpareReleased,
            false if self.domain.observes() => Taken::WouldReleaseSpare,
            false => Taken::Observed,
        };
        let report = self.unwatched.stalled(now_ns, unwatched, blocked, taken);
        self.report(report);
    }

    /// Those of the stalled cores whose thread is known, and is in no watched poll. It goes through cores and not through
    /// slots, because an idle thread of tokio's pool keeps its slot and would look asleep in a poll.
    fn unwatched_polls(&self, stalled: &[usize]) -> Vec<Long> {
        let is_watched = |tid: u32| {
            let slots = self.domain.slots.runtimes();
            // Relaxed: a thread that takes its slot at this moment polls nothing yet.
            let mut own = slots.filter(|slot| slot.tid.load(Ordering::Relaxed) == tid);
            own.any(|slot| slot.observe_poll() % 2 == 1)
        };
        let long = |&core: &usize| {
            let tid = self.domain.cores.thread(core)?;
            let since_ns = self.cores.stalled_since(core)?;
            (!is_watched(tid)).then_some(Long {
                place: Place::Core(core, since_ns),
                tid,
                label: None,
                since_ns,
            })
        };
        stalled.iter().filter_map(long).collect()
    }

    fn release(&mut self, count: usize) -> usize {
        if !self.domain.settings.mechanisms.takeover {
            return 0;
        }
        let released = (0..count)
            .take_while(|_| self.domain.spares.release())
            .count();
        let active = self.domain.spares.active();
        self.domain.counters.spares_peak.raise_to(active as u64);
        released
    }

    fn hold_one(&self) {
        // Counted first: a reader that sees the spare held finds it counted.
        self.domain.counters.holds.add(1);
        hold::ask_for_one(&self.domain, &self.handle);
    }

    /// Injects a no-op, so that a worker wakes and serves the I/O driver.
    fn poke(&self) {
        self.domain.counters.pokes.add(1);
        own::spawn(&self.handle, async {});
    }

    fn report(&self, report: Option<Report>) {
        if let Some(report) = report {
            self.domain.reports.send(report);
        }
    }

    fn report_exhausted(&mut self, now_ns: u64) {
        let domain = &self.domain;
        if !domain.settings.mechanisms.takeover || domain.spares.total() == 0 {
            return;
        }
        let is_within = |of_ns: u64| move |at_ns: u64| now_ns.saturating_sub(at_ns) < of_ns;
        let before_ns = self.exhausted_ns.replace(now_ns);
        if !before_ns.is_some_and(is_within(SAME_SHORTAGE_NS)) {
            domain.counters.spares_exhausted.add(1);
        }
        let reported_ns = self.exhausted_reported_ns;
        if reported_ns.is_some_and(is_within(EXHAUSTED_INTERVAL_NS)) {
            return;
        }
        self.exhausted_reported_ns = Some(now_ns);
        let polled: Vec<u32> = domain
            .slots
            .runtimes()
            .filter(|slot| slot.observe_poll() % 2 == 1)
            // Relaxed: a label that changes at this moment is as good as the one before.
            .map(|slot| slot.label.load(Ordering::Relaxed))
            .collect();
        domain.reports.send(Report::SparesExhausted {
            total: domain.spares.total(),
            worst: reporting::worst(&domain.histories, &polled),
        });
    }
}
