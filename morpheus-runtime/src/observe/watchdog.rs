//! The watchdog: finds stalled watched polls in the slots, and takes each of them up the ladder.
//!
//! It needs nothing from the system but thread CPU clocks and `/proc/self/task`. It reads the CPU time of each poll that
//! was there at the last sample already. It reads the state of a thread only if that used little CPU time, for a bounded
//! number of threads a sample, and at doubling intervals for those that sleep.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use morpheus_common::ladder::{self, Action, Limits, Observation, Policy, Step};
use morpheus_common::slot::{SlotFlag, VerdictFlags};
use tokio::runtime::RuntimeMetrics;

use crate::act::verdict;
use crate::decide::rating::{self, Rating};
use crate::domain::Domain;
#[cfg(tokio_unstable)]
use crate::observe::cores;
use crate::report::event::{Stall, Taken};
use crate::report::label;
use crate::report::stacks::{Long, Place};
use morpheus_link::events::OverBudget;
use morpheus_system::asleep::ThreadStats;
use morpheus_system::clock;

/// New polls whose CPU clock is read in one sample, at most: each read is a system call.
const NEW_POLLS_A_SAMPLE: usize = 24;
/// With up to this many new polls of slow labels, there is an early sample when the first is due.
const EARLY_SAMPLE_POLLS: usize = 8;
/// A poll of a slow label is asked to yield after the budget divided by this. A short poll loses a yield by that, and behind
/// a long one other tasks wait half a millisecond less.
const SLOW_ARE_ASKED_AFTER: u64 = 2;
/// Early samples go on for this time after such a poll was seen on a worker.
const EARLY_SAMPLES_LAST_NS: u64 = 10_000_000;
/// Thread states that are read in one sample, at most.
const STATES_A_SAMPLE: usize = 16;
/// The longest interval between two reads of the state of a thread that sleeps.
const LONGEST_STATE_NS: u64 = 32_000_000;
/// A thread that used less CPU time than the stalled time divided by this may be asleep.
const IDLE_SHARE: u64 = 4;

/// The watched poll in one slot, from sample to sample.
#[derive(Debug, Default)]
struct Poll {
    /// Its number; 0 for none.
    seq: u64,
    since_ns: u64,
    /// The thread's CPU clock when the poll was first poll; `None` until a sample had room to read it.
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
    /// Its stack is being taken.
    reported: bool,
    /// Its label was slow before.
    was_slow: bool,
}

impl Poll {
    fn follow(&mut self, seq: u64, now_ns: u64) {
        *self = Poll {
            seq,
            since_ns: now_ns,
            ..Poll::default()
        };
    }
}

/// One sample of all slots.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    /// Watched polls that need a spare: taken over, and the core of their worker is not served.
    pub(crate) stalled: usize,
    /// Handoff polls that sleep, by permit class.
    pub(crate) handoffs_asleep: [usize; 2],
    /// Polls under way, or begun since the last sample.
    pub(crate) busy: usize,
    /// A poll was just found stalled: its worker may have had the I/O driver.
    pub(crate) wants_poke: bool,
    /// The time of an early sample, if one is due before the next sample: a poll of a slow label will have used up its
    /// budget, or half of it.
    pub(crate) due_ns: Option<u64>,
    /// Stalls to report.
    pub(crate) stalls: Vec<Stall>,
    /// Polls that have just been stalled for the time after which their stacks are taken.
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
    /// The limits for the ladder: the same, but in a dry run those of the default policy.
    ladder: Limits,
    /// By slot.
    polls: Vec<Poll>,
    stats: ThreadStats,
    /// The slot that the next sample begins with, so that a full one does not favour the first slots.
    start: usize,
    can_nice: bool,
    /// The last time at which a poll of a slow label was seen on a worker that it holds up.
    slow_inline_ns: Option<u64>,
}

/// System calls that a sample may still make.
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
            polls: Vec::new(),
            stats: ThreadStats::default(),
            start: 0,
            can_nice,
            slow_inline_ns: None,
        }
    }

    pub(crate) fn sample(&mut self, now_ns: u64, metrics: Option<&RuntimeMetrics>) -> Sample {
        let domain = self.domain.clone();
        let mut sample = Sample::default();
        self.stats.close_unused(now_ns);
        let slots = domain.slots.in_use();
        if self.polls.len() < slots {
            self.polls.resize_with(slots, Poll::default);
        }
        let mut allowance = Allowance {
            clocks: NEW_POLLS_A_SAMPLE,
            states: STATES_A_SAMPLE,
        };
        let mut slow = 0;
        for offset in 0..slots {
            let index = (self.start + offset) % slots;
            let seq = domain.slots.runtime(index).observe_poll();
            let poll = &mut self.polls[index];
            if seq.is_multiple_of(2) {
                poll.seq = 0;
                continue;
            }
            sample.busy += 1;
            if seq == poll.seq {
                self.follow_up(index, now_ns, metrics, &mut allowance, &mut sample);
                continue;
            }
            poll.follow(seq, now_ns);
            if let Some((begun_ns, begun_cpu_ns)) = domain.slots.private[index].begun(seq) {
                poll.since_ns = begun_ns.min(now_ns);
                poll.cpu_at_first_ns = Some(begun_cpu_ns);
                slow += 1;
                self.follow_up(index, now_ns, metrics, &mut allowance, &mut sample);
            } else if allowance.clocks > 0 {
                allowance.clocks -= 1;
                let tid = domain.slots.runtime(index).tid.load(Ordering::Acquire);
                poll.cpu_at_first_ns = clock::cpu_ns_of(tid);
            }
        }
        if slow > EARLY_SAMPLE_POLLS {
            sample.due_ns = None;
        } else if self
            .slow_inline_ns
            .is_some_and(|at_ns| now_ns.saturating_sub(at_ns) < EARLY_SAMPLES_LAST_NS)
        {
            sample.is_due(now_ns + self.limits.budget_ns / SLOW_ARE_ASKED_AFTER);
        }
        if slots > 0 {
            self.start = (self.start + NEW_POLLS_A_SAMPLE) % slots;
        }
        sample
    }

    /// Closes the files that only samples need, before the controller sleeps.
    pub(crate) fn rest(&mut self) {
        self.stats.close_all();
    }

    /// Takes an event of the kernel: a poll has used up its budget.
    pub(crate) fn budget_exceeded(&mut self, over: OverBudget, now_ns: u64) {
        if self.polls.len() <= over.slot_index {
            self.polls.resize_with(over.slot_index + 1, Poll::default);
        }
        let slot = self.domain.slots.runtime(over.slot_index);
        if slot.observe_poll() != over.poll_seq {
            return;
        }
        let poll = &mut self.polls[over.slot_index];
        if poll.seq != over.poll_seq {
            poll.follow(over.poll_seq, now_ns);
        }
        poll.asked |= self.limits.policy >= Policy::Request;
        poll.since_ns = poll.since_ns.min(over.at_ns.saturating_sub(over.used_ns));
        // Whether it ran on since is not known: no more than `used_ns` is counted as its own.
        let tid = slot.tid.load(Ordering::Acquire);
        if let Some(cpu_ns) = clock::cpu_ns_of(tid) {
            let at_first_ns = cpu_ns.saturating_sub(over.used_ns);
            poll.cpu_at_first_ns = Some(
                poll.cpu_at_first_ns
                    .map_or(at_first_ns, |known_ns| known_ns.min(at_first_ns)),
            );
        }
    }

    /// Follows a poll that was there at the last sample already.
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
        let poll = &mut self.polls[index];
        let in_handoff = slot.has_flag(SlotFlag::Handoff);
        let stalled_ns = now_ns - poll.since_ns;
        if !in_handoff
            && !poll.stalled
            && stalled_ns >= self.limits.budget_ns
            && has_left_its_core(domain, index, metrics)
        {
            return;
        }
        // The state of a sleeper is read again at its own interval.
        if !(poll.asleep && now_ns < poll.next_state_ns) {
            let tid = slot.tid.load(Ordering::Acquire);
            let Some(cpu_now_ns) = clock::cpu_ns_of(tid) else {
                return;
            };
            let cpu_ns = cpu_now_ns.saturating_sub(*poll.cpu_at_first_ns.get_or_insert(cpu_now_ns));
            let looks_asleep = stalled_ns >= self.limits.budget_ns
                && cpu_ns < stalled_ns / IDLE_SHARE
                || poll.asleep;
            poll.asleep = looks_asleep && {
                let stats = &mut self.stats;
                is_asleep(poll, stats, tid, now_ns, stalled_ns, allowance, domain)
            };
            self.judge(index, now_ns, stalled_ns, cpu_ns, in_handoff, sample);
            if !self.polls[index].stalled && !in_handoff {
                self.ask_slow_early(index, now_ns, cpu_ns, sample);
            }
        }
        let poll = &mut self.polls[index];
        if !poll.stalled {
            return;
        }
        if stalled_ns >= self.domain.settings.report_after_ns && !poll.reported {
            poll.reported = true;
            let slot = self.domain.slots.runtime(index);
            sample.long.push(Long {
                place: Place::Slot(index, poll.seq),
                tid: slot.tid.load(Ordering::Acquire),
                // Relaxed: a label that changes at this moment is as good as the one before.
                label: Some(slot.label.load(Ordering::Relaxed)),
                since_ns: poll.since_ns,
            });
        }
        if in_handoff {
            let private = &self.domain.slots.private[index];
            if poll.asleep {
                let class = private.permit_class.load(Ordering::Relaxed) as usize;
                sample.handoffs_asleep[class.min(1)] += 1;
            }
            sample.stalled += usize::from(!is_core_served(&self.domain, index, metrics));
        } else {
            sample.stalled += usize::from(poll.step >= Step::TakenOver);
        }
    }

    /// Asks a poll of a slow label to yield before it is stalled. Only polls of slow labels note when they begin.
    fn ask_slow_early(&mut self, index: usize, now_ns: u64, cpu_ns: u64, sample: &mut Sample) {
        let poll = &mut self.polls[index];
        if self.domain.slots.private[index].begun(poll.seq).is_none() {
            return;
        }
        self.slow_inline_ns = Some(now_ns);
        let ask_at_ns = self.limits.budget_ns / SLOW_ARE_ASKED_AFTER;
        if cpu_ns >= ask_at_ns && !poll.asked && self.limits.policy >= Policy::Request {
            poll.asked = true;
            verdict::request(
                &self.domain.slots,
                &self.domain.counters,
                index,
                poll.seq,
                now_ns,
            );
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
        let poll = &mut self.polls[index];
        let label_id = slot.label.load(Ordering::Relaxed);
        let history = label::by_id(label_id).map(|label| domain.histories.of(label));
        let observation = Observation {
            stalled_ns,
            cpu_ns,
            asleep: poll.asleep,
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
        if !poll.stalled {
            poll.stalled = true;
            sample.wants_poke |= !poll.poked && !in_handoff;
            poll.poked = true;
            if let Some(history) = history {
                poll.was_slow = history.rating() >= Rating::Slow;
                history.learn_stalled(observation.asleep);
            }
        }
        if ladder::is_hog(&observation, &self.limits) && !poll.is_hog {
            poll.is_hog = true;
            if let Some(history) = history {
                history.learn_hog();
            }
        }
        if poll.is_hog {
            verdict = verdict | VerdictFlags::HOG;
        }
        if let Some(history) = history {
            history.label().saw_duration(stalled_ns);
        }
        let observes = domain.observes();
        let transition = ladder::advance(poll.step, &observation, &self.ladder);
        poll.step = transition.step;
        if let Some(kernel) = kernel
            && !observes
        {
            // Relaxed: a statistic for readers of the slot from outside.
            kernel.step.store(poll.step as u32, Ordering::Relaxed);
        }
        let seq = poll.seq;
        let counters = &domain.counters;
        let count = |counter: &std::sync::atomic::AtomicU64| {
            counter.fetch_add(1, Ordering::Relaxed);
        };
        let mut taken = None;
        match transition.action {
            Action::None => {}
            // It was asked to yield, and no worker can take over.
            Action::TakeOver if !in_handoff && !domain.has_workers() => {
                taken = Some(match observes {
                    true => Taken::Observed,
                    false => Taken::Requested,
                });
            }
            Action::TakeOver if observes => {
                taken = Some(match poll.was_slow {
                    true => Taken::WouldHandOff,
                    false => Taken::WouldReleaseSpare,
                });
            }
            _ if observes => {}
            Action::Request => {
                if !poll.asked {
                    verdict::request(&domain.slots, &domain.counters, index, seq, now_ns);
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
                    poll.demoted = true;
                }
            }
            Action::Throttle => {
                count(&counters.throttles);
                verdict = verdict | VerdictFlags::THROTTLED;
            }
        }
        if let Some(kernel) = kernel {
            kernel.give_verdict(seq, verdict);
            // The poll undoes it when it finds the verdict.
            if transition.action == Action::Demote && self.can_nice {
                verdict::lower_unless_over(&domain.slots, index, seq);
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

/// Whether a thread sleeps: reads its state if the sample may still do so, else takes the state from before.
fn is_asleep(
    poll: &mut Poll,
    stats: &mut ThreadStats,
    tid: u32,
    now_ns: u64,
    stalled_ns: u64,
    allowance: &mut Allowance,
    domain: &Domain,
) -> bool {
    if allowance.states == 0 {
        return poll.asleep;
    }
    allowance.states -= 1;
    let asleep = match stats.is_asleep(tid, now_ns) {
        Some(asleep) => asleep,
        None => {
            // The state cannot be read. A thread that got no CPU for this long is hardly just preempted.
            domain
                .counters
                .thread_states_missing
                .fetch_add(1, Ordering::Relaxed);
            stalled_ns >= 50_000_000
        }
    };
    if asleep {
        poll.state_interval_ns = (poll.state_interval_ns * 2).clamp(1_000_000, LONGEST_STATE_NS);
        poll.next_state_ns = now_ns + poll.state_interval_ns;
    } else {
        poll.state_interval_ns = 0;
    }
    asleep
}

/// Whether the thread of a slot polls on without its core, which it handed off by itself (`block_in_place`): then
/// no work waits behind it. Only an unstable tokio tells which thread has which core.
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

/// Whether the core that a handoff poll handed off has been served since.
fn is_core_served(domain: &Domain, index: usize, metrics: Option<&RuntimeMetrics>) -> bool {
    let private = &domain.slots.private[index];
    let core = private.core_handed_over.load(Ordering::Relaxed);
    match (core.checked_sub(1), metrics) {
        (Some(core), Some(metrics)) if (core as usize) < metrics.num_workers() => {
            metrics.worker_park_unpark_count(core as usize)
                != private.core_parks.load(Ordering::Relaxed)
        }
        // Not handed off yet, or a runtime of tokio's own: no spare is needed.
        _ => true,
    }
}
