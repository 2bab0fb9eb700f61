//! The watchdog: finds stalled watched polls by looking at the slots, once a sample.
//!
//! It needs nothing from the system but thread CPU clocks and `/proc/self/task`. A poll that stands since
//! the last sample is asked for its CPU time; whether it sleeps is read only when it looks asleep, for a
//! bounded number a sample, and at doubling intervals for those known to sleep.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use morpheus_common::ladder::{self, Action, Limits, Observation, Policy, Step};
use morpheus_common::slot::{SlotFlag, VerdictFlags};
use tokio::runtime::RuntimeMetrics;

use crate::decide::rating::{self, Rating};
use crate::domain::Domain;
#[cfg(tokio_unstable)]
use crate::observe::cores;
use crate::observe::kernel::OverBudget;
use crate::os::asleep::ThreadStats;
use crate::os::clock;
use crate::os::nice;
use crate::report::event::{Stall, Taken};
use crate::report::label;
use crate::report::stacks::captor::{Long, Place};

/// New polls whose CPU clock is read in one sample, at most; each read is a system call.
const NEW_POLLS_A_SAMPLE: usize = 24;
/// With no more polls than this whose beginning is known, there is an extra sample when the first is due.
const KNOWN_FOR_EXTRA_LOOK: usize = 8;
/// A poll of an origin that is known to be slow is asked to yield after this part of the budget: what it
/// costs an innocent one is a yield, and where it is no innocent, others wait half a millisecond less.
const KNOWN_ARE_ASKED_AFTER: u64 = 2;
/// After such a poll was seen on a worker, there are extra looks for so long.
const EXTRA_LOOKS_LAST_NS: u64 = 10_000_000;
/// Thread states that are read in one sample, at most.
const STATES_A_SAMPLE: usize = 16;
/// The longest interval between two looks at a thread that is known to sleep.
const LONGEST_LOOK_NS: u64 = 32_000_000;
/// A thread that used less than this share of the time it stood may be asleep.
const IDLE_SHARE: u64 = 4;

/// What is remembered of one slot from sample to sample.
#[derive(Debug, Default)]
struct Seen {
    /// The poll that is being followed; 0 when none is.
    seq: u64,
    since_ns: u64,
    /// The thread's CPU clock when the poll was first seen; unknown until a sample had room for it.
    cpu_at_first_ns: Option<u64>,
    step: Step,
    asleep: bool,
    next_state_ns: u64,
    state_interval_ns: u64,
    asked: bool,
    stalled: bool,
    is_hog: bool,
    demoted: bool,
    poked: bool,
    /// Its stack was asked for.
    reported: bool,
    /// Its label was known to be slow before.
    known: bool,
}

impl Seen {
    fn follow(&mut self, seq: u64, now_ns: u64) {
        *self = Seen {
            seq,
            since_ns: now_ns,
            ..Seen::default()
        };
    }
}

/// What one sample at all slots found.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    /// Watched polls that need a released spare: taken over, and their worker's core not served.
    pub(crate) stalled: usize,
    /// Handoff polls that sleep, by permit class.
    pub(crate) handoffs_asleep: [usize; 2],
    /// Polls under way, or begun since the last sample.
    pub(crate) busy: usize,
    /// A poll was found stalled just now: the driver may have been with it.
    pub(crate) wants_poke: bool,
    /// When there is something to be seen before the next sample, at the earliest: a poll whose beginning is
    /// known will have used up its budget, or half of it.
    pub(crate) due_ns: Option<u64>,
    /// To be reported once everything urgent is done.
    pub(crate) stalls: Vec<Stall>,
    /// Polls that have been stalled for as long as makes their stacks interesting, since this sample.
    pub(crate) long: Vec<Long>,
}

impl Sample {
    fn is_due(&mut self, at_ns: u64) {
        self.due_ns = Some(self.due_ns.map_or(at_ns, |other| other.min(at_ns)));
    }
}

pub(crate) struct Watchdog {
    domain: Arc<Domain>,
    limits: Limits,
    /// What the ladder goes by: the same, but in a dry run what would be done without.
    ladder: Limits,
    seen: Vec<Seen>,
    stats: ThreadStats,
    /// Where the next sample begins, so that a full one does not favour the first slots.
    start: usize,
    can_nice: bool,
    /// When a poll of a known origin was last seen on a worker that it holds up.
    known_inline_ns: Option<u64>,
}

/// What is left of the sample's allowance of system calls.
struct Allowance {
    clocks: usize,
    states: usize,
}

impl Watchdog {
    pub(crate) fn new(domain: Arc<Domain>, can_nice: bool) -> Watchdog {
        let limits = rating::limits(&domain.settings);
        let ladder = match domain.observes() {
            true => Limits {
                policy: Policy::Demote,
                ..limits
            },
            false => limits,
        };
        Watchdog {
            limits,
            ladder,
            domain,
            seen: Vec::new(),
            stats: ThreadStats::default(),
            start: 0,
            can_nice,
            known_inline_ns: None,
        }
    }

    pub(crate) fn sample(&mut self, now_ns: u64, metrics: Option<&RuntimeMetrics>) -> Sample {
        let domain = self.domain.clone();
        let mut sample = Sample::default();
        self.stats.close_unused(now_ns);
        let slots = domain.slots.in_use();
        if self.seen.len() < slots {
            self.seen.resize_with(slots, Seen::default);
        }
        let mut allowance = Allowance {
            clocks: NEW_POLLS_A_SAMPLE,
            states: STATES_A_SAMPLE,
        };
        let mut known = 0;
        for offset in 0..slots {
            let index = (self.start + offset) % slots;
            let seq = domain.slots.runtime(index).observe_poll();
            let seen = &mut self.seen[index];
            if seq.is_multiple_of(2) {
                seen.seq = 0;
                continue;
            }
            sample.busy += 1;
            if seq == seen.seq {
                self.follow_up(index, now_ns, metrics, &mut allowance, &mut sample);
                continue;
            }
            seen.follow(seq, now_ns);
            if let Some((begun_ns, begun_cpu_ns)) = domain.slots.private[index].begun(seq) {
                seen.since_ns = begun_ns.min(now_ns);
                seen.cpu_at_first_ns = Some(begun_cpu_ns);
                known += 1;
                self.follow_up(index, now_ns, metrics, &mut allowance, &mut sample);
            } else if allowance.clocks > 0 {
                allowance.clocks -= 1;
                let tid = domain.slots.runtime(index).tid.load(Ordering::Acquire);
                seen.cpu_at_first_ns = clock::cpu_ns_of(tid);
            }
        }
        if known > KNOWN_FOR_EXTRA_LOOK {
            sample.due_ns = None;
        } else if self
            .known_inline_ns
            .is_some_and(|at_ns| now_ns.saturating_sub(at_ns) < EXTRA_LOOKS_LAST_NS)
        {
            sample.is_due(now_ns + self.limits.budget_ns / KNOWN_ARE_ASKED_AFTER);
        }
        if slots > 0 {
            self.start = (self.start + NEW_POLLS_A_SAMPLE) % slots;
        }
        sample
    }

    /// Gives back what only samples need, before the controller sleeps.
    pub(crate) fn rest(&mut self) {
        self.stats.close_all();
    }

    /// The kernel side says that a poll has used up its budget.
    pub(crate) fn budget_exceeded(&mut self, over: OverBudget, now_ns: u64) {
        if self.seen.len() <= over.slot_index {
            self.seen.resize_with(over.slot_index + 1, Seen::default);
        }
        let slot = self.domain.slots.runtime(over.slot_index);
        if slot.observe_poll() != over.poll_seq {
            return;
        }
        let seen = &mut self.seen[over.slot_index];
        if seen.seq != over.poll_seq {
            seen.follow(over.poll_seq, now_ns);
        }
        seen.asked |= self.limits.policy >= Policy::Request;
        seen.since_ns = seen.since_ns.min(over.at_ns.saturating_sub(over.used_ns));
        // It ran on since, or did not: no more than this is known to be its own.
        let tid = slot.tid.load(Ordering::Acquire);
        if let Some(cpu_ns) = clock::cpu_ns_of(tid) {
            let at_first_ns = cpu_ns.saturating_sub(over.used_ns);
            seen.cpu_at_first_ns = Some(
                seen.cpu_at_first_ns
                    .map_or(at_first_ns, |known_ns| known_ns.min(at_first_ns)),
            );
        }
    }

    /// The poll at `index` was there at the last sample already.
    fn follow_up(
        &mut self,
        index: usize,
        now_ns: u64,
        metrics: Option<&RuntimeMetrics>,
        allowance: &mut Allowance,
        sample: &mut Sample,
    ) {
        let domain = &self.domain;
        let slot = domain.slots.runtime(index);
        let seen = &mut self.seen[index];
        let in_handoff = slot.has_flag(SlotFlag::Handoff);
        let stalled_ns = now_ns - seen.since_ns;
        if !in_handoff
            && !seen.stalled
            && stalled_ns >= self.limits.budget_ns
            && has_left_its_core(domain, index, metrics)
        {
            return;
        }
        // A known sleeper is left alone until its next sample is due.
        if !(seen.asleep && now_ns < seen.next_state_ns) {
            let tid = slot.tid.load(Ordering::Acquire);
            let Some(cpu_now_ns) = clock::cpu_ns_of(tid) else {
                return;
            };
            let cpu_ns = cpu_now_ns.saturating_sub(*seen.cpu_at_first_ns.get_or_insert(cpu_now_ns));
            let looks_asleep = stalled_ns >= self.limits.budget_ns
                && cpu_ns < stalled_ns / IDLE_SHARE
                || seen.asleep;
            seen.asleep = looks_asleep && {
                let stats = &mut self.stats;
                is_asleep(seen, stats, tid, now_ns, stalled_ns, allowance, domain)
            };
            self.judge(index, now_ns, stalled_ns, cpu_ns, in_handoff, sample);
            if !self.seen[index].stalled && !in_handoff {
                self.ask_known_early(index, now_ns, cpu_ns, sample);
            }
        }
        let seen = &mut self.seen[index];
        if !seen.stalled {
            return;
        }
        if stalled_ns >= self.domain.settings.report_after_ns && !seen.reported {
            seen.reported = true;
            let slot = self.domain.slots.runtime(index);
            sample.long.push(Long {
                place: Place::Slot(index, seen.seq),
                tid: slot.tid.load(Ordering::Acquire),
                // Relaxed: a label that changes under our hands is as good as the one before.
                label: Some(slot.label.load(Ordering::Relaxed)),
                since_ns: seen.since_ns,
            });
        }
        if in_handoff {
            let private = &self.domain.slots.private[index];
            if seen.asleep {
                let class = private.permit_class.load(Ordering::Relaxed) as usize;
                sample.handoffs_asleep[class.min(1)] += 1;
            }
            sample.stalled += usize::from(!core_was_seen(&self.domain, index, metrics));
        } else {
            sample.stalled += usize::from(seen.step >= Step::TakenOver);
        }
    }

    /// A poll that is not stalled yet, on the worker that it holds up. If its origin is known, its beginning
    /// is, too.
    fn ask_known_early(&mut self, index: usize, now_ns: u64, cpu_ns: u64, sample: &mut Sample) {
        let seen = &mut self.seen[index];
        if self.domain.slots.private[index].begun(seen.seq).is_none() {
            return;
        }
        self.known_inline_ns = Some(now_ns);
        let ask_at_ns = self.limits.budget_ns / KNOWN_ARE_ASKED_AFTER;
        if cpu_ns >= ask_at_ns && !seen.asked && self.limits.policy >= Policy::Request {
            seen.asked = true;
            request(&self.domain, index, seen.seq, now_ns);
        }
        let next_ns = if cpu_ns < ask_at_ns {
            ask_at_ns
        } else {
            ladder::stalled_cpu_ns(&self.limits)
        };
        sample.is_due(now_ns + next_ns.saturating_sub(cpu_ns));
    }

    fn judge(
        &mut self,
        index: usize,
        now_ns: u64,
        stalled_ns: u64,
        cpu_ns: u64,
        in_handoff: bool,
        sample: &mut Sample,
    ) {
        let domain = &self.domain;
        let slot = domain.slots.runtime(index);
        let kernel = domain.slots.kernel_to_write(index);
        let seen = &mut self.seen[index];
        let label_id = slot.label.load(Ordering::Relaxed);
        let history = label::by_id(label_id).map(|label| domain.histories.of(label));
        let observation = Observation {
            stalled_ns,
            cpu_ns,
            asleep: seen.asleep,
            critical: slot.in_critical(),
            demotable: slot.has_flag(SlotFlag::Demotable),
            hog_polls: history.map_or(0, |history| history.hog_polls()),
        };
        if !ladder::is_stalled(&observation, &self.limits) {
            return;
        }
        if let Some(kernel) = kernel {
            kernel.oncpu_ns.store(cpu_ns, Ordering::Relaxed);
        }
        let mut verdict = VerdictFlags::STALLED;
        if observation.asleep {
            verdict = verdict | VerdictFlags::BLOCKED;
        }
        if !seen.stalled {
            seen.stalled = true;
            sample.wants_poke |= !seen.poked && !in_handoff;
            seen.poked = true;
            if let Some(history) = history {
                seen.known = history.rating() >= Rating::Slow;
                history.learn_stalled(observation.asleep);
            }
        }
        if ladder::is_hog(&observation, &self.limits) && !seen.is_hog {
            seen.is_hog = true;
            if let Some(history) = history {
                history.learn_hog();
            }
        }
        if seen.is_hog {
            verdict = verdict | VerdictFlags::HOG;
        }
        if let Some(history) = history {
            history.label().saw_duration(stalled_ns);
        }
        let observes = domain.observes();
        let transition = ladder::advance(seen.step, &observation, &self.ladder);
        seen.step = transition.step;
        if let Some(kernel) = kernel
            && !observes
        {
            // Relaxed: for whoever looks at the slot from outside.
            kernel.step.store(seen.step as u32, Ordering::Relaxed);
        }
        let seq = seen.seq;
        let counters = &domain.counters;
        let count = |counter: &std::sync::atomic::AtomicU64| {
            counter.fetch_add(1, Ordering::Relaxed);
        };
        let mut taken = None;
        match transition.action {
            Action::None => {}
            // It was asked to yield, and there is no more to be done about it.
            Action::TakeOver if !in_handoff && !domain.has_workers() => {
                taken = Some(match observes {
                    true => Taken::Observed,
                    false => Taken::Requested,
                });
            }
            Action::TakeOver if observes => {
                taken = Some(match seen.known {
                    true => Taken::WouldHandOff,
                    false => Taken::WouldReleaseSpare,
                });
            }
            _ if observes => {}
            Action::Request => {
                if !seen.asked {
                    request(domain, index, seq, now_ns);
                }
                taken = (self.limits.policy == Policy::Request).then_some(Taken::Requested);
            }
            Action::TakeOver => {
                if in_handoff {
                    taken = Some(Taken::AlreadyHandedOff);
                } else {
                    count(&counters.takeovers_watched);
                    taken = Some(Taken::SpareReleased);
                }
            }
            Action::Demote => {
                count(&counters.demotions);
                if self.can_nice {
                    verdict = verdict | VerdictFlags::DEMOTED;
                    seen.demoted = true;
                }
            }
            Action::Throttle => {
                count(&counters.throttles);
                verdict = verdict | VerdictFlags::THROTTLED;
            }
        }
        if let Some(kernel) = kernel {
            kernel.give_verdict(seq, verdict);
            // What undoes it is the verdict.
            if transition.action == Action::Demote && self.can_nice {
                lower_unless_over(domain, index, seq);
            }
        }
        if let Some(taken) = taken {
            sample.stalls.push(Stall {
                label: label_id,
                stalled_ns,
                cpu_ns,
                blocked: observation.asleep,
                taken,
            });
        }
    }
}

fn request(domain: &Domain, index: usize, seq: u64, now_ns: u64) {
    // A kernel side asks by itself.
    let Some(kernel) = domain.slots.kernel_to_write(index) else {
        return;
    };
    kernel.request(seq);
    let counters = &domain.counters;
    counters.requests.fetch_add(1, Ordering::Relaxed);
    counters.last_request_ns.store(now_ns, Ordering::Relaxed);
}

/// Lowers the thread of a poll that was just reported so by its verdict, and raises it again if the poll
/// ended meanwhile: either the poll finds the verdict after this, or this finds the poll over.
fn lower_unless_over(domain: &Domain, index: usize, seq: u64) {
    let slot = domain.slots.runtime(index);
    let tid = slot.tid.load(Ordering::Acquire);
    if tid == 0 || slot.in_critical() {
        return;
    }
    if let Some(before) = nice::lower(tid)
        && slot.observe_poll() != seq
    {
        nice::raise_to(tid, before);
    }
}

/// Reads the thread's state, if there is room for it in this sample; else what was known before.
fn is_asleep(
    seen: &mut Seen,
    stats: &mut ThreadStats,
    tid: u32,
    now_ns: u64,
    stalled_ns: u64,
    allowance: &mut Allowance,
    domain: &Domain,
) -> bool {
    if allowance.states == 0 {
        return seen.asleep;
    }
    allowance.states -= 1;
    let asleep = match stats.is_asleep(tid, now_ns) {
        Some(asleep) => asleep,
        None => {
            // Not read, so guessed, and only where a preempted thread can hardly be meant.
            domain
                .counters
                .thread_states_missing
                .fetch_add(1, Ordering::Relaxed);
            stalled_ns >= 50_000_000
        }
    };
    if asleep {
        seen.state_interval_ns = (seen.state_interval_ns * 2).clamp(1_000_000, LONGEST_LOOK_NS);
        seen.next_state_ns = now_ns + seen.state_interval_ns;
    } else {
        seen.state_interval_ns = 0;
    }
    asleep
}

/// Whether the thread of a slot polls on without its core, which it handed over by itself (`block_in_place`): then
/// nothing waits behind it. Only an unstable tokio tells which thread has which core.
fn has_left_its_core(domain: &Domain, index: usize, metrics: Option<&RuntimeMetrics>) -> bool {
    #[cfg(tokio_unstable)]
    if let Some(metrics) = metrics {
        let tid = domain.slots.runtime(index).tid.load(Ordering::Acquire);
        let thread = domain.thread_ids.of(tid);
        return thread.is_some_and(|thread| !cores::has_core(thread, metrics));
    }
    let _ = (domain, index, metrics);
    false
}

/// Whether the core that a handoff poll handed over has been served since.
fn core_was_seen(domain: &Domain, index: usize, metrics: Option<&RuntimeMetrics>) -> bool {
    let private = &domain.slots.private[index];
    let core = private.core_handed_over.load(Ordering::Relaxed);
    match (core.checked_sub(1), metrics) {
        (Some(core), Some(metrics)) if (core as usize) < metrics.num_workers() => {
            metrics.worker_park_unpark_count(core as usize)
                != private.core_parks.load(Ordering::Relaxed)
        }
        // Not handed over yet, or somebody else's runtime: nothing to compensate.
        _ => true,
    }
}
