//! The watchdog: finds stalled watched polls, and takes each of them up the ladder. It observes the slots ([`Polls`]), decides
//! about each poll ([`Case`]), and acts: verdicts, requests, niceness, and what labels learn.

#[cfg(tokio_unstable)]
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
#[cfg(tokio_unstable)]
use std::thread::ThreadId;

use morpheus_common::ladder::{self, Action, Observation, Policy, Step};
use morpheus_common::slot::{SlotFlag, VerdictFlags};
use tokio::runtime::RuntimeMetrics;

use crate::act::cores::CoreTable;
use crate::act::permit::{self, CLASSES, Class};
use crate::act::verdict;
use crate::decide::case::{Case, Rules};
use crate::decide::confinement::Hog;
use crate::decide::rating::Rating;
use crate::domain::Domain;
#[cfg(tokio_unstable)]
use crate::observe::cores;
use crate::observe::polls::{Found, Polls, Reading};
use crate::report::event::{Stall, Taken};
use crate::report::label;
use crate::report::stacks::{Long, Place};
use morpheus_link::events::OverBudget;
use morpheus_system::{clock, slice};

/// With up to this many new polls that recorded when they began, there is an early sample when the first is due.
const EARLY_SAMPLE_POLLS: usize = 8;
/// A poll of a slow label is asked to yield after the budget divided by this. The
/// price: a poll that was about to end may yield once without need. The gain: tasks behind a long poll wait half a budget less.
const SLOW_ARE_ASKED_AFTER: u64 = 2;
/// After a poll of a slow label was last seen on a worker, early samples go on for this time, in nanoseconds.
const EARLY_SAMPLES_LAST_NS: u64 = 10_000_000;

/// One sample of all slots.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    /// Workers that need a spare: those that were taken over, and those whose cores are not served.
    pub(crate) stalled: usize,
    /// The threads of stalled polls that have their cores.
    taken_over: Vec<u32>,
    /// The cores that handoff polls handed off, and that were not served since. Several polls may have handed off the same one.
    unserved: Vec<usize>,
    /// Handoff polls that sleep and have no sleepers' permits, by permit class.
    pub(crate) handoffs_asleep: [usize; CLASSES],
    /// Polls under way, or begun since the last sample.
    pub(crate) busy: usize,
    /// A poll became stalled in this sample. Its worker may have had the I/O driver, so a no-op task has to wake another
    /// worker.
    pub(crate) wants_poke: bool,
    /// The time of an early sample, if one is due before the next sample: a poll of a slow label will have used up its
    /// budget, or half of it.
    pub(crate) due_ns: Option<u64>,
    /// Stalls to report.
    pub(crate) stalls: Vec<Stall>,
    /// Polls that have just been stalled for the time after which their stacks are taken.
    pub(crate) long: Vec<Long>,
    /// Polls that compute and may be demoted: stalled ones, and those with the permit of a hog.
    pub(crate) hogs: Vec<Hog>,
    /// The threads that had cores when a poll first asked in this sample: each answer of tokio's takes a lock.
    #[cfg(tokio_unstable)]
    with_core: Option<HashSet<ThreadId>>,
}

impl Sample {
    /// Counts each core once, by whichever polls it is known.
    fn count_stalled(&mut self, cores: &CoreTable) {
        let unserved = self.unserved.iter().filter(|&&core| {
            let thread = cores.thread(core);
            !thread.is_some_and(|tid| self.taken_over.contains(&tid))
        });
        self.stalled = self.taken_over.len() + unserved.count();
    }

    /// Whether the thread of a slot polls on without its core, which it handed off by itself (`block_in_place`): then
    /// no work waits behind it. Only an unstable tokio tells which thread has which core.
    fn has_left_its_core(
        &mut self,
        domain: &Domain,
        index: usize,
        metrics: Option<&RuntimeMetrics>,
    ) -> bool {
        #[cfg(tokio_unstable)]
        if let Some(metrics) = metrics {
            let tid = domain.slots.runtime(index).tid.load(Ordering::Acquire);
            let with_core = self
                .with_core
                .get_or_insert_with(|| cores::threads(metrics));
            let thread = domain.thread_ids.of(tid);
            return thread.is_some_and(|thread| !with_core.contains(&thread));
        }
        let _ = (domain, index, metrics);
        false
    }

    fn sample_by(&mut self, at_ns: u64) {
        self.due_ns = Some(self.due_ns.map_or(at_ns, |other| other.min(at_ns)));
    }
}

pub(crate) struct Watchdog {
    domain: Arc<Domain>,
    rules: Rules,
    polls: Polls,
    /// By slot.
    cases: Vec<Case>,
    /// The time at which a sample last saw a poll of a slow label run inline on a worker.
    slow_inline_ns: Option<u64>,
}

impl Watchdog {
    pub(crate) fn new(domain: Arc<Domain>) -> Watchdog {
        // Relaxed: the start of this thread published it.
        let can_nice = domain.can_nice.load(Ordering::Relaxed);
        Watchdog {
            rules: Rules::new(&domain.settings, can_nice, domain.has_workers()),
            polls: Polls::default(),
            cases: Vec::new(),
            slow_inline_ns: None,
            domain,
        }
    }

    pub(crate) fn sample(&mut self, now_ns: u64, metrics: Option<&RuntimeMetrics>) -> Sample {
        let mut sample = Sample::default();
        // Relaxed: see `note_irreversible_nice`.
        self.rules.can_nice = self.domain.can_nice.load(Ordering::Relaxed);
        let slots = self.domain.slots.in_use();
        self.make_room(slots);
        let mut stamped = 0;
        for index in self.polls.begin(slots, now_ns) {
            let found = self.polls.find(index, now_ns, &self.domain);
            if let Found::New { is_stamped } = found {
                self.cases[index] = Case::default();
                stamped += usize::from(is_stamped);
            }
            sample.busy += usize::from(found != Found::Nothing);
            if matches!(found, Found::Same | Found::New { is_stamped: true }) {
                self.follow_up(index, now_ns, metrics, &mut sample);
            }
        }
        let goes_on = |at_ns: u64| now_ns.saturating_sub(at_ns) < EARLY_SAMPLES_LAST_NS;
        if stamped > EARLY_SAMPLE_POLLS {
            sample.due_ns = None;
        } else if self.slow_inline_ns.is_some_and(goes_on) {
            sample.sample_by(now_ns + self.slow_are_asked_after_ns());
        }
        sample.count_stalled(&self.domain.cores);
        self.count_takeovers(&mut sample);
        sample
    }

    /// Counts the takeovers of a sample. Where more polls are stalled than there are spares, the last ones have no spare.
    fn count_takeovers(&self, sample: &mut Sample) {
        let takes_over = self.domain.settings.mechanisms.takeover;
        let spares = usize::from(takes_over) * self.domain.spares.total();
        let mut without = sample.stalled.saturating_sub(spares);
        let stalls = sample.stalls.iter_mut().rev();
        for stall in stalls.filter(|stall| stall.taken == Taken::SpareReleased) {
            if without > 0 {
                without -= 1;
                stall.taken = Taken::NoSpareLeft;
            } else {
                self.domain.counters.takeovers_watched.add(1);
            }
        }
    }

    fn make_room(&mut self, slots: usize) {
        if self.cases.len() < slots {
            self.cases.resize_with(slots, Case::default);
        }
    }

    fn slow_are_asked_after_ns(&self) -> u64 {
        self.rules.limits.budget_ns / SLOW_ARE_ASKED_AFTER
    }

    /// Closes the files that only samples need, before the controller sleeps.
    pub(crate) fn close_files(&mut self) {
        self.polls.close_files();
    }

    /// Takes an event of the kernel: a poll has used up its budget, and was asked to yield.
    pub(crate) fn budget_exceeded(&mut self, over: OverBudget, now_ns: u64) {
        let Some(is_new) = self.polls.learn(over, now_ns, &self.domain) else {
            return;
        };
        self.make_room(over.slot_index + 1);
        let case = &mut self.cases[over.slot_index];
        if is_new {
            *case = Case::default();
        }
        case.is_asked |= self.rules.limits.policy >= Policy::Request;
    }

    /// Follows a poll whose age is known: the last sample saw it, or its thread recorded when it began.
    fn follow_up(
        &mut self,
        index: usize,
        now_ns: u64,
        metrics: Option<&RuntimeMetrics>,
        sample: &mut Sample,
    ) {
        let domain = self.domain.clone();
        let in_handoff = domain.slots.runtime(index).has_flag(SlotFlag::Handoff);
        let budget_ns = self.rules.limits.budget_ns;
        let stalled_ns = now_ns - self.polls.at(index).since_ns;
        if !in_handoff
            && !self.cases[index].is_stalled
            && stalled_ns >= budget_ns
            && sample.has_left_its_core(&domain, index, metrics)
        {
            return;
        }
        match self.polls.read(index, now_ns, budget_ns, &domain) {
            Reading::Gone => return,
            Reading::StillAsleep => {}
            Reading::Used { cpu_ns } => {
                self.judge(index, now_ns, cpu_ns, in_handoff, sample);
                if !self.cases[index].is_stalled && !in_handoff {
                    self.ask_slow_early(index, now_ns, cpu_ns, sample);
                }
            }
        }
        let is_stalled = self.cases[index].is_stalled;
        let (poll, slot) = (self.polls.at(index), domain.slots.runtime(index));
        // Relaxed: only this thread changes the class of a poll that goes on.
        let word = domain.slots.private[index]
            .permit_class
            .load(Ordering::Relaxed);
        let is_hogs = word != 0 && Class::of_word(word) == Class::Hog;
        let computes = is_stalled || (in_handoff && is_hogs);
        if computes && !poll.asleep && slot.has_flag(SlotFlag::Demotable) && !slot.in_critical() {
            sample.hogs.push(Hog {
                since_ns: poll.since_ns,
                // Relaxed: the thread keeps its slot while it polls.
                tid: slot.tid.load(Ordering::Relaxed),
            });
        }
        if !is_stalled {
            return;
        }
        self.report_long(index, stalled_ns, sample);
        if in_handoff {
            if self.polls.at(index).asleep && !permit::is_sleepers(word) {
                sample.handoffs_asleep[Class::of_word(word) as usize] += 1;
            }
            let unserved = unserved_core(&domain, index, metrics);
            let is_new = |core: &usize| !sample.unserved.contains(core);
            sample.unserved.extend(unserved.filter(is_new));
        } else if self.cases[index].step >= Step::TakenOver {
            // Relaxed: a number that is compared.
            let tid = domain.slots.runtime(index).tid.load(Ordering::Relaxed);
            sample.taken_over.push(tid);
        }
    }

    /// Asks for the stack of a poll, once.
    fn report_long(&mut self, index: usize, stalled_ns: u64, sample: &mut Sample) {
        let (poll, case) = (self.polls.at(index), &mut self.cases[index]);
        if stalled_ns < self.domain.settings.report_after_ns || case.is_stack_asked {
            return;
        }
        case.is_stack_asked = true;
        let slot = self.domain.slots.runtime(index);
        sample.long.push(Long {
            place: Place::Slot(index, poll.seq),
            tid: slot.tid.load(Ordering::Acquire),
            // Relaxed: a label that changes at this moment is as good as the one before.
            label: Some(slot.label.load(Ordering::Relaxed)),
            since_ns: poll.since_ns,
        });
    }

    /// Asks a poll of a slow label to yield before it is stalled. Only polls of such labels, and of
    /// labels that are not rated yet, record when they begin.
    fn ask_slow_early(&mut self, index: usize, now_ns: u64, cpu_ns: u64, sample: &mut Sample) {
        let (slots, seq) = (&self.domain.slots, self.polls.at(index).seq);
        if slots.private[index].begun(seq).is_none() {
            return;
        }
        self.slow_inline_ns = Some(now_ns);
        let limits = &self.rules.limits;
        let ask_at_ns = self.slow_are_asked_after_ns();
        let next_ns = if cpu_ns < ask_at_ns {
            ask_at_ns
        } else {
            ladder::stalled_cpu_ns(limits)
        };
        let case = &mut self.cases[index];
        if cpu_ns >= ask_at_ns && !case.is_asked && limits.policy >= Policy::Request {
            case.is_asked = true;
            verdict::request(slots, &self.domain.counters, index, seq, now_ns);
        }
        sample.sample_by(now_ns + next_ns.saturating_sub(cpu_ns));
    }

    /// Decides about a poll, and carries the decision out.
    fn judge(
        &mut self,
        index: usize,
        now_ns: u64,
        cpu_ns: u64,
        in_handoff: bool,
        sample: &mut Sample,
    ) {
        let domain = &self.domain;
        let (poll, case) = (self.polls.at(index), &mut self.cases[index]);
        let slot = domain.slots.runtime(index);
        // Relaxed: a label that changes at this moment is as good as the one before.
        let label_id = slot.label.load(Ordering::Relaxed);
        let history = label::by_id(label_id).map(|label| domain.histories.of(label));
        let seen = Observation {
            stalled_ns: now_ns - poll.since_ns,
            cpu_ns,
            asleep: poll.asleep,
            critical: slot.in_critical(),
            demotable: slot.has_flag(SlotFlag::Demotable),
            hog_polls: history.map_or(0, |history| history.hog_polls()),
        };
        let rating = history.map_or(Rating::Healthy, |history| history.rating());
        let Some(judgement) = case.judge(&seen, in_handoff, rating, &self.rules) else {
            return;
        };
        sample.wants_poke |= judgement.begins_stall && !in_handoff;
        if let Some(history) = history {
            if judgement.begins_stall {
                history.learn_stalled(seen.asleep, poll.since_ns, now_ns);
            }
            if judgement.becomes_hog {
                history.learn_hog();
            }
            history.label().saw_duration(seen.stalled_ns);
        }
        let word = &domain.slots.private[index].permit_class;
        if (judgement.begins_stall && !seen.asleep) || judgement.becomes_hog {
            domain.permits.computes(word);
        }
        if judgement.begins_stall && in_handoff {
            let is_long = domain.permits.becomes_long(word);
            if is_long && seen.demotable && domain.may_lengthen_slices() {
                // Relaxed: the thread keeps its slot while it polls.
                let tid = slot.tid.load(Ordering::Relaxed);
                slice::lengthen_hogs(tid, || slot.observe_poll() != poll.seq);
            }
        }
        if judgement.becomes_hog && seen.demotable && self.rules.limits.policy >= Policy::Demote {
            domain.permits.becomes_hog(word);
        }
        self.count(judgement.action);
        if judgement.action == Action::Request {
            verdict::request(&domain.slots, &domain.counters, index, poll.seq, now_ns);
        }
        if let Some(kernel) = domain.slots.kernel_to_write(index) {
            // Relaxed, both: statistics for readers of the slot from outside.
            kernel.oncpu_ns.store(cpu_ns, Ordering::Relaxed);
            if !self.rules.only_observe() {
                kernel
                    .step
                    .store(self.cases[index].step as u32, Ordering::Relaxed);
            }
            kernel.give_verdict(poll.seq, judgement.verdict);
            // The poll undoes it when it finds the verdict.
            if judgement.verdict.contains(VerdictFlags::DEMOTED)
                && !verdict::lower_unless_over(&domain.slots, index, poll.seq)
            {
                domain.note_irreversible_nice();
            }
        }
        sample.stalls.extend(judgement.taken.map(|taken| Stall {
            label: label_id,
            stalled_ns: seen.stalled_ns,
            cpu_ns,
            blocked: seen.asleep,
            taken,
        }));
    }

    fn count(&self, action: Action) {
        let counters = &self.domain.counters;
        match action {
            Action::Demote => counters.demotions.add(1),
            Action::Throttle => counters.throttles.add(1),
            // `verdict::request` counts requests, and `count_takeovers` takeovers.
            Action::Request | Action::TakeOver | Action::None => {}
        }
    }
}

/// The core that a handoff poll handed off, if it has given no sign of life since. `None` also where it is not handed off yet, or is
/// that of a runtime of tokio's own: no spare is needed.
fn unserved_core(domain: &Domain, index: usize, metrics: Option<&RuntimeMetrics>) -> Option<usize> {
    let private = &domain.slots.private[index];
    // Relaxed, all three: the controller has acquired the flag that says that the poll is handed off.
    let core = private
        .core_handed_over
        .load(Ordering::Relaxed)
        .checked_sub(1)? as usize;
    let metrics = metrics.filter(|metrics| core < metrics.num_workers())?;
    let busy_ns = clock::nanos(metrics.worker_total_busy_duration(core));
    let is_served = metrics.worker_park_unpark_count(core)
        != private.core_parks.load(Ordering::Relaxed)
        || busy_ns != private.core_busy_ns.load(Ordering::Relaxed);
    (!is_served).then_some(core)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{self, TryRecvError};

    use tokio::task::JoinHandle;

    use super::*;
    use crate::poll::mark::PollMark;
    use crate::poll::own_slot;
    use crate::report::label::Origin;
    use crate::{Builder, Link, Runtime};
    use morpheus_link::table::Private;

    fn one_worker() -> Runtime {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).max_spares(0).link(Link::Watchdog);
        builder.build().unwrap()
    }

    /// A poll without its core, on a thread of its own.
    struct Handoff {
        index: usize,
        release: mpsc::Sender<()>,
        polled: JoinHandle<()>,
    }

    impl Handoff {
        /// `begins` has the private part of its slot before the poll begins, which computes or sleeps.
        fn begin(
            runtime: &Runtime,
            computes: bool,
            begins: impl FnOnce(&Private) + Send + 'static,
        ) -> Handoff {
            let (release, held) = mpsc::channel::<()>();
            let (began, is_begun) = mpsc::channel();
            let polled = runtime.handle().spawn_blocking(move || {
                let slot = own_slot::claim().unwrap();
                let index = own_slot::with_domain(|domain, index| {
                    begins(&domain.slots.private[index]);
                    index
                });
                slot.runtime.set_flag(SlotFlag::Handoff);
                let mark = PollMark::begin(slot, label::of(Origin::Named("watchdog, handed off")));
                began.send(index.unwrap()).unwrap();
                while computes && held.try_recv() == Err(TryRecvError::Empty) {
                    std::hint::spin_loop();
                }
                let _ = held.recv();
                drop(mark);
                slot.runtime.clear_flag(SlotFlag::Handoff);
            });
            Handoff {
                index: is_begun.recv().unwrap(),
                release,
                polled,
            }
        }

        fn end(self, runtime: &Runtime) {
            drop(self.release);
            runtime.block_on(self.polled).unwrap();
        }
    }

    /// It may have to share a CPU from its beginning, and has used none by then.
    #[test]
    fn a_poll_with_the_permit_of_a_hog_counts_as_one_before_it_stalls() {
        let runtime = one_worker();
        let [slow, hog] = [Class::Slow, Class::Hog].map(|class| {
            Handoff::begin(&runtime, true, move |private| {
                private.permit_class.store(class.word(), Ordering::Relaxed);
            })
        });
        let domain = runtime.domain();
        let mut watchdog = Watchdog::new(domain.clone());
        let now_ns = clock::now_ns();
        let mut hogs = |at_ns| {
            let sample = watchdog.sample(at_ns, None);
            assert_eq!(sample.stalled, 0);
            let tids: Vec<u32> = sample.hogs.iter().map(|hog| hog.tid).collect();
            tids
        };
        assert_eq!(hogs(now_ns), [], "new");
        let tid = domain.slots.runtime(hog.index).tid.load(Ordering::Relaxed);
        assert_eq!(hogs(now_ns + 1), [tid]);
        let slot = domain.slots.runtime(hog.index);
        slot.clear_flag(SlotFlag::Demotable);
        assert_eq!(hogs(now_ns + 2), []);
        [slow, hog].into_iter().for_each(|poll| poll.end(&runtime));
    }

    /// Three polls have handed off the one core, each to the next: one worker is stuck, and not three.
    #[test]
    fn a_core_that_many_polls_handed_off_needs_one_spare() {
        let runtime = one_worker();
        let metrics = runtime.handle().metrics();
        let polls = [(); 3].map(|()| {
            let metrics = metrics.clone();
            Handoff::begin(&runtime, false, move |private| {
                let busy_ns = clock::nanos(metrics.worker_total_busy_duration(0));
                let parks = metrics.worker_park_unpark_count(0);
                private.core_busy_ns.store(busy_ns, Ordering::Relaxed);
                private.core_parks.store(parks, Ordering::Relaxed);
                private.core_handed_over.store(1, Ordering::Relaxed);
            })
        });
        let indices = polls.each_ref().map(|poll| poll.index);
        let domain = runtime.domain();
        let mut watchdog = Watchdog::new(domain.clone());
        let now_ns = clock::now_ns();
        let mut stalled_at = |at_ns| watchdog.sample(at_ns, Some(&metrics)).stalled;
        assert_eq!(stalled_at(now_ns), 0);
        assert_eq!(stalled_at(now_ns + 50_000_000), 1);
        // The thread that has it is in a poll that has a spare already.
        let tid = domain.slots.runtime(indices[0]).tid.load(Ordering::Relaxed);
        let mut known = Sample {
            taken_over: vec![tid],
            unserved: vec![0],
            ..Sample::default()
        };
        domain.cores.note_thread(0, tid);
        known.count_stalled(&domain.cores);
        assert_eq!(known.stalled, 1);
        // It was busy since, without a park: one of its polls may be long, and it is served.
        for index in indices {
            let private = &domain.slots.private[index];
            private.core_busy_ns.store(u64::MAX, Ordering::Relaxed);
        }
        assert_eq!(stalled_at(now_ns + 60_000_000), 0);
        polls.into_iter().for_each(|poll| poll.end(&runtime));
    }
}
