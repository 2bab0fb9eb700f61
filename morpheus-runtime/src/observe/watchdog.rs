//! The watchdog: finds stuck watched polls by looking at the slots, once a sample.
//!
//! It needs nothing from the system but thread CPU clocks and `/proc/self/task`. A poll that stands since
//! the last sample is asked for its CPU time; whether it sleeps is read only when it looks asleep, for a
//! bounded number a sample, and at doubling intervals for those known to sleep.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use morpheus_common::ladder::{self, Action, Limits, Observation, Policy, Step};
use morpheus_common::slot::{SlotFlag, VerdictFlags};
use tokio::runtime::RuntimeMetrics;

use crate::decide::offender::{self, Standing};
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
/// With no more polls than this whose beginning is known, there is an extra look when the first is due.
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

/// What is remembered of one seat from sample to sample.
#[derive(Debug, Default)]
struct Seen {
    /// The poll that is being followed; 0 when none is.
    seq: u64,
    since_ns: u64,
    /// The thread's CPU clock when the poll was first seen; unknown until a sample had room for it.
    cpu_at_first_ns: Option<u64>,
    step: Step,
    asleep: bool,
    next_look_ns: u64,
    look_interval_ns: u64,
    asked: bool,
    stuck: bool,
    offended: bool,
    demoted: bool,
    poked: bool,
    /// Its stack was asked for.
    told: bool,
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

/// What one look at all seats found.
#[derive(Debug, Default)]
pub(crate) struct Look {
    /// Watched polls that need a released spare: taken over, and their worker's core not served.
    pub(crate) stuck: usize,
    /// Polls in place that sleep, by permit class.
    pub(crate) in_place_asleep: [usize; 2],
    /// Polls under way, or begun since the last look.
    pub(crate) busy: usize,
    /// A poll was found stuck just now: the driver may have been with it.
    pub(crate) wants_poke: bool,
    /// When there is something to be seen before the next sample, at the earliest: a poll whose beginning is
    /// known will have used up its budget, or half of it.
    pub(crate) due_ns: Option<u64>,
    /// To be reported once everything urgent is done.
    pub(crate) stalls: Vec<Stall>,
    /// Polls that have been stuck for as long as makes their stacks interesting, since this look.
    pub(crate) long: Vec<Long>,
}

impl Look {
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
    /// Where the next sample begins, so that a full one does not favour the first seats.
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
        let limits = offender::limits(&domain.settings);
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

    pub(crate) fn look(&mut self, now_ns: u64, metrics: Option<&RuntimeMetrics>) -> Look {
        let domain = self.domain.clone();
        let mut look = Look::default();
        self.stats.close_unused(now_ns);
        let seats = domain.seats.in_use();
        if self.seen.len() < seats {
            self.seen.resize_with(seats, Seen::default);
        }
        let mut allowance = Allowance {
            clocks: NEW_POLLS_A_SAMPLE,
            states: STATES_A_SAMPLE,
        };
        let mut known = 0;
        for offset in 0..seats {
            let index = (self.start + offset) % seats;
            let seq = domain.seats.runtime(index).observe_poll();
            let seen = &mut self.seen[index];
            if seq.is_multiple_of(2) {
                seen.seq = 0;
                continue;
            }
            look.busy += 1;
            if seq == seen.seq {
                self.follow_up(index, now_ns, metrics, &mut allowance, &mut look);
                continue;
            }
            seen.follow(seq, now_ns);
            if let Some((begun_ns, begun_cpu_ns)) = domain.seats.private[index].begun(seq) {
                seen.since_ns = begun_ns.min(now_ns);
                seen.cpu_at_first_ns = Some(begun_cpu_ns);
                known += 1;
                self.follow_up(index, now_ns, metrics, &mut allowance, &mut look);
            } else if allowance.clocks > 0 {
                allowance.clocks -= 1;
                let tid = domain.seats.runtime(index).tid.load(Ordering::Acquire);
                seen.cpu_at_first_ns = clock::cpu_ns_of(tid);
            }
        }
        if known > KNOWN_FOR_EXTRA_LOOK {
            look.due_ns = None;
        } else if self
            .known_inline_ns
            .is_some_and(|at_ns| now_ns.saturating_sub(at_ns) < EXTRA_LOOKS_LAST_NS)
        {
            look.is_due(now_ns + self.limits.budget_ns / KNOWN_ARE_ASKED_AFTER);
        }
        if seats > 0 {
            self.start = (self.start + NEW_POLLS_A_SAMPLE) % seats;
        }
        look
    }

    /// Gives back what only samples need, before the controller sleeps.
    pub(crate) fn rest(&mut self) {
        self.stats.close_all();
    }

    /// The kernel side says that a poll has used up its budget.
    pub(crate) fn told_over_budget(&mut self, over: OverBudget, now_ns: u64) {
        if self.seen.len() <= over.seat {
            self.seen.resize_with(over.seat + 1, Seen::default);
        }
        let slot = self.domain.seats.runtime(over.seat);
        if slot.observe_poll() != over.poll_seq {
            return;
        }
        let seen = &mut self.seen[over.seat];
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
        look: &mut Look,
    ) {
        let domain = &self.domain;
        let slot = domain.seats.runtime(index);
        let seen = &mut self.seen[index];
        let in_place = slot.has_flag(SlotFlag::InPlace);
        let stood_ns = now_ns - seen.since_ns;
        if !in_place
            && !seen.stuck
            && stood_ns >= self.limits.budget_ns
            && has_left_its_core(domain, index, metrics)
        {
            return;
        }
        // A known sleeper is left alone until its next look is due.
        if !(seen.asleep && now_ns < seen.next_look_ns) {
            let tid = slot.tid.load(Ordering::Acquire);
            let Some(cpu_now_ns) = clock::cpu_ns_of(tid) else {
                return;
            };
            let cpu_ns = cpu_now_ns.saturating_sub(*seen.cpu_at_first_ns.get_or_insert(cpu_now_ns));
            let looks_asleep =
                stood_ns >= self.limits.budget_ns && cpu_ns < stood_ns / IDLE_SHARE || seen.asleep;
            seen.asleep = looks_asleep && {
                let stats = &mut self.stats;
                is_asleep(seen, stats, tid, now_ns, stood_ns, allowance, domain)
            };
            self.judge(index, now_ns, stood_ns, cpu_ns, in_place, look);
            if !self.seen[index].stuck && !in_place {
                self.ask_known_early(index, now_ns, cpu_ns, look);
            }
        }
        let seen = &mut self.seen[index];
        if !seen.stuck {
            return;
        }
        if stood_ns >= self.domain.settings.report_after_ns && !seen.told {
            seen.told = true;
            let slot = self.domain.seats.runtime(index);
            look.long.push(Long {
                place: Place::Seat(index, seen.seq),
                tid: slot.tid.load(Ordering::Acquire),
                // Relaxed: a label that changes under our hands is as good as the one before.
                label: Some(slot.label.load(Ordering::Relaxed)),
                since_ns: seen.since_ns,
            });
        }
        if in_place {
            let private = &self.domain.seats.private[index];
            if seen.asleep {
                let class = private.permit_class.load(Ordering::Relaxed) as usize;
                look.in_place_asleep[class.min(1)] += 1;
            }
            look.stuck += usize::from(!core_was_seen(&self.domain, index, metrics));
        } else {
            look.stuck += usize::from(seen.step >= Step::TakenOver);
        }
    }

    /// A poll that is not stuck yet, on the worker that it holds up. If its origin is known, its beginning
    /// is, too.
    fn ask_known_early(&mut self, index: usize, now_ns: u64, cpu_ns: u64, look: &mut Look) {
        let seen = &mut self.seen[index];
        if self.domain.seats.private[index].begun(seen.seq).is_none() {
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
            ladder::stuck_cpu_ns(&self.limits)
        };
        look.is_due(now_ns + next_ns.saturating_sub(cpu_ns));
    }

    fn judge(
        &mut self,
        index: usize,
        now_ns: u64,
        stood_ns: u64,
        cpu_ns: u64,
        in_place: bool,
        look: &mut Look,
    ) {
        let domain = &self.domain;
        let slot = domain.seats.runtime(index);
        let kernel = domain.seats.kernel_to_write(index);
        let seen = &mut self.seen[index];
        let label_id = slot.label.load(Ordering::Relaxed);
        let history = label::by_id(label_id).map(|label| domain.histories.of(label));
        let observation = Observation {
            stood_ns,
            cpu_ns,
            asleep: seen.asleep,
            critical: slot.in_critical(),
            escapable: slot.has_flag(SlotFlag::Escapable),
            offences: history.map_or(0, |history| history.all_offences()),
        };
        if !ladder::is_stuck(&observation, &self.limits) {
            return;
        }
        if let Some(kernel) = kernel {
            kernel.oncpu_ns.store(cpu_ns, Ordering::Relaxed);
        }
        let mut verdict = VerdictFlags::STUCK;
        if observation.asleep {
            verdict = verdict | VerdictFlags::BLOCKED;
        }
        if !seen.stuck {
            seen.stuck = true;
            look.wants_poke |= !seen.poked && !in_place;
            seen.poked = true;
            if let Some(history) = history {
                seen.known = history.standing() >= Standing::Suspect;
                history.learn_stuck(observation.asleep);
            }
        }
        if ladder::is_offence(&observation, &self.limits) && !seen.offended {
            seen.offended = true;
            if let Some(history) = history {
                history.learn_offence();
            }
        }
        if seen.offended {
            verdict = verdict | VerdictFlags::OFFENCE;
        }
        if let Some(history) = history {
            history.label().saw_duration(stood_ns);
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
            Action::TakeOver if !in_place && !domain.has_workers() => {
                taken = Some(match observes {
                    true => Taken::Observed,
                    false => Taken::Requested,
                });
            }
            Action::TakeOver if observes => {
                taken = Some(match seen.known {
                    true => Taken::WouldPollInPlace,
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
                if in_place {
                    taken = Some(Taken::AlreadyInPlace);
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
            look.stalls.push(Stall {
                label: label_id,
                stood_ns,
                cpu_ns,
                blocked: observation.asleep,
                taken,
            });
        }
    }
}

fn request(domain: &Domain, index: usize, seq: u64, now_ns: u64) {
    // A kernel side asks by itself.
    let Some(kernel) = domain.seats.kernel_to_write(index) else {
        return;
    };
    kernel.request(seq);
    let counters = &domain.counters;
    counters.requests.fetch_add(1, Ordering::Relaxed);
    counters.last_request_ns.store(now_ns, Ordering::Relaxed);
}

/// Lowers the thread of a poll that was just told so by its verdict, and raises it again if the poll
/// ended meanwhile: either the poll finds the verdict after this, or this finds the poll over.
fn lower_unless_over(domain: &Domain, index: usize, seq: u64) {
    let slot = domain.seats.runtime(index);
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
    stood_ns: u64,
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
            stood_ns >= 50_000_000
        }
    };
    if asleep {
        seen.look_interval_ns = (seen.look_interval_ns * 2).clamp(1_000_000, LONGEST_LOOK_NS);
        seen.next_look_ns = now_ns + seen.look_interval_ns;
    } else {
        seen.look_interval_ns = 0;
    }
    asleep
}

/// Whether the thread of a seat polls on without its core, which it handed over by itself (`block_in_place`): then
/// nothing waits behind it. Only an unstable tokio tells which thread has which core.
fn has_left_its_core(domain: &Domain, index: usize, metrics: Option<&RuntimeMetrics>) -> bool {
    #[cfg(tokio_unstable)]
    if let Some(metrics) = metrics {
        let tid = domain.seats.runtime(index).tid.load(Ordering::Acquire);
        let thread = domain.thread_ids.of(tid);
        return thread.is_some_and(|thread| !cores::has_core(thread, metrics));
    }
    let _ = (domain, index, metrics);
    false
}

/// Whether the core that a poll in place handed over has been served since.
fn core_was_seen(domain: &Domain, index: usize, metrics: Option<&RuntimeMetrics>) -> bool {
    let private = &domain.seats.private[index];
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
