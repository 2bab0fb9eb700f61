//! Tests the protocols of `src/PROTOCOL.md`: small models, checked in every interleaving and with every value that a
//! load may return.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p morpheus-common --test loom`
//!
//! The first half runs the crate's own slots. The second half models two protocols of the runtime without the
//! rest of it. A model that cannot fail proves nothing: the models named `bug_…` contain a mistake and must
//! fail.
#![cfg(loom)]

use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use loom::sync::{Condvar, Mutex};
use loom::thread;
// Not loom's: the process aborts if that one is dropped after a deadlock, which some models expect. No model
// depends on the ordering of a reference count.
use std::sync::Arc;

use loom::cell::UnsafeCell;
use morpheus_common::hand_over::{HandOver, Progress, Request};
use morpheus_common::slot::{KernelSlot, RuntimeSlot, SlotFlag, VerdictFlags, WorkerState};

#[derive(Default)]
struct Slots {
    runtime: RuntimeSlot,
    kernel: KernelSlot,
}

/// Takes one sample of the controller: gives the poll that it sees the verdict `STALLED`, and returns that
/// poll's number.
fn judge_one(slots: &Slots) -> Option<u64> {
    let seq = slots.runtime.observe_poll();
    if seq & 1 == 0 {
        return None;
    }
    // Derived from the number, so that the reader can check that it comes with the verdict.
    slots.kernel.oncpu_ns.store(seq * 1000, Relaxed);
    slots.kernel.give_verdict(seq, VerdictFlags::STALLED);
    Some(seq)
}

/// Runs one watched poll. Returns its number and the verdict that it found.
fn poll_once(slots: &Slots) -> (u64, VerdictFlags) {
    let seq = slots.runtime.begin_poll();
    thread::yield_now();
    slots.runtime.end_poll(seq);
    let verdict = slots.kernel.verdict_for(seq);
    if !verdict.is_empty() {
        assert!(
            slots.kernel.oncpu_ns.load(Relaxed) >= seq * 1000,
            "the verdict came without its CPU time"
        );
    }
    (seq, verdict)
}

/// A verdict is found by its own poll or by none: not by an earlier or a later one. A poll that finds it also
/// finds the `oncpu_ns` that was written before.
#[test]
fn verdict_is_about_its_own_poll() {
    loom::model(|| {
        let slots = Arc::new(Slots::default());
        let controller = thread::spawn({
            let slots = slots.clone();
            move || [judge_one(&slots), judge_one(&slots)]
        });
        let polls = [poll_once(&slots), poll_once(&slots)];
        let judged = controller.join().unwrap();
        for (seq, verdict) in polls {
            assert!(
                verdict.is_empty() || judged.contains(&Some(seq)),
                "poll {seq} has the verdict on another"
            );
        }
    });
}

/// A slot that passes from one thread to the next continues its numbers: the first poll of the next thread
/// does not find the verdict on a poll in which the last thread died.
#[test]
fn verdict_does_not_outlive_its_thread() {
    loom::model(|| {
        let slots = Arc::new(Slots::default());
        let controller = thread::spawn({
            let slots = slots.clone();
            move || judge_one(&slots)
        });
        let first = thread::spawn({
            let slots = slots.clone();
            move || {
                let seq = slots.runtime.begin_poll();
                slots.runtime.set_state(WorkerState::Dead);
                seq
            }
        });
        // The next thread takes the slot if it sees that the slot is free.
        let second = (slots.runtime.state() == Some(WorkerState::Dead)).then(|| poll_once(&slots));
        let (first, judged) = (first.join().unwrap(), controller.join().unwrap());
        if let Some((seq, verdict)) = second {
            assert_ne!(seq, first, "a poll's number was used twice");
            assert!(verdict.is_empty() || judged == Some(seq));
        }
    });
}

/// The mistake: a verdict does not name its poll.
#[test]
#[should_panic(expected = "has the verdict on another")]
fn bug_verdict_without_a_poll() {
    loom::model(|| {
        let runtime = Arc::new(RuntimeSlot::new());
        let verdict = Arc::new(AtomicU64::new(0));
        let controller = thread::spawn({
            let (runtime, verdict) = (runtime.clone(), verdict.clone());
            move || {
                let seq = runtime.observe_poll();
                if seq & 1 == 1 {
                    verdict.store(u64::from(VerdictFlags::STALLED.bits()), Release);
                }
                seq
            }
        });
        let polls = [(); 2].map(|()| {
            let seq = runtime.begin_poll();
            runtime.end_poll(seq);
            (seq, verdict.swap(0, Acquire))
        });
        let judged = controller.join().unwrap();
        for (seq, verdict) in polls {
            assert!(
                verdict == 0 || judged == seq,
                "poll {seq} has the verdict on another"
            );
        }
    });
}

/// A request is seen by its own poll or by none, and an answer that is seen was counted.
#[test]
fn request_is_seen_by_its_own_poll() {
    loom::model(|| {
        let slots = Arc::new(Slots::default());
        let controller = thread::spawn({
            let slots = slots.clone();
            move || {
                let seq = slots.runtime.observe_poll();
                if seq & 1 == 1 {
                    slots.kernel.request(seq);
                    if slots.runtime.acknowledged(seq) {
                        let yields = slots.runtime.yields.load(Relaxed);
                        assert!(yields >= 1, "the answer came without its yield");
                    }
                }
                seq
            }
        });
        let answered = [(); 2].map(|()| {
            let seq = slots.runtime.begin_poll();
            let requested = slots.kernel.requested(seq);
            if requested {
                slots.runtime.count_yield();
                slots.runtime.acknowledge(seq);
            }
            slots.runtime.end_poll(seq);
            (seq, requested)
        });
        let asked = controller.join().unwrap();
        for (seq, requested) in answered {
            assert!(
                !requested || asked == seq,
                "poll {seq} answered for another"
            );
        }
        assert!(
            !slots.kernel.requested(slots.runtime.observe_poll()),
            "no poll is asked when there is none"
        );
    });
}

/// The mistake: a request is a flag.
#[test]
#[should_panic(expected = "answered for another")]
fn bug_request_without_a_poll() {
    loom::model(|| {
        let runtime = Arc::new(RuntimeSlot::new());
        let request = Arc::new(AtomicBool::new(false));
        let controller = thread::spawn({
            let (runtime, request) = (runtime.clone(), request.clone());
            move || {
                let seq = runtime.observe_poll();
                if seq & 1 == 1 {
                    request.store(true, Release);
                }
                seq
            }
        });
        let answered = [(); 2].map(|()| {
            let seq = runtime.begin_poll();
            let requested = request.swap(false, Acquire);
            runtime.end_poll(seq);
            (seq, requested)
        });
        let asked = controller.join().unwrap();
        for (seq, requested) in answered {
            assert!(
                !requested || asked == seq,
                "poll {seq} answered for another"
            );
        }
    });
}

/// A reader that sees a poll sees the label and the flags that were set before it.
#[test]
fn poll_comes_with_its_label() {
    loom::model(|| {
        let runtime = Arc::new(RuntimeSlot::new());
        let worker = thread::spawn({
            let runtime = runtime.clone();
            move || {
                runtime.label.store(7, Relaxed);
                runtime.set_flag(SlotFlag::Handoff);
                let seq = runtime.begin_poll();
                runtime.end_poll(seq);
            }
        });
        if runtime.observe_poll() != 0 {
            assert_eq!(runtime.label.load(Relaxed), 7);
            assert!(runtime.has_flag(SlotFlag::Handoff));
        }
        worker.join().unwrap();
    });
}

/// A reader that sees a worker parked sees what it did before. A second call of the same function (a hook
/// that runs twice) has no effect.
#[test]
fn park_seq_tells_the_truth() {
    loom::model(|| {
        let runtime = Arc::new(RuntimeSlot::new());
        let worker = thread::spawn({
            let runtime = runtime.clone();
            move || {
                runtime.label.store(1, Relaxed);
                runtime.park();
                runtime.park();
                runtime.unpark();
                runtime.unpark();
                runtime.label.store(2, Relaxed);
                runtime.park();
            }
        });
        let parked = runtime.park_seq.load(Acquire);
        let did = runtime.label.load(Relaxed);
        assert!(
            did >= parked.div_ceil(2) as u32,
            "parked for the {parked}th time, with label {did} only"
        );
        worker.join().unwrap();
        assert_eq!(runtime.park_seq.load(Relaxed), 3);
        assert!(runtime.is_parked());
    });
}

/// A slot with two places, and the index of the present one. See PROTOCOL.md, "Moving a slot".
struct Moving {
    places: [RuntimeSlot; 2],
    area: AtomicU32,
}

fn moving_model(publish: Ordering, moves: fn(&Moving, Ordering)) {
    loom::model(move || {
        let moving = Arc::new(Moving {
            places: [RuntimeSlot::new(), RuntimeSlot::new()],
            area: AtomicU32::new(0),
        });
        moving.places[0].set_state(WorkerState::Running);
        let worker = thread::spawn({
            let moving = moving.clone();
            move || {
                let old = &moving.places[0];
                old.label.store(1, Relaxed);
                old.end_poll(old.begin_poll());
                moves(&moving, publish);
                let new = &moving.places[1];
                new.label.store(2, Relaxed);
                new.begin_poll();
            }
        });
        let mut before = 0;
        for _ in 0..2 {
            let slot = &moving.places[moving.area.load(Acquire) as usize];
            let seq = slot.observe_poll();
            assert!(seq >= before, "poll {seq} after {before}");
            let label = slot.label.load(Relaxed);
            assert!(
                label >= seq.div_ceil(2) as u32,
                "poll {seq} with label {label}"
            );
            before = seq;
        }
        worker.join().unwrap();
        let slot = &moving.places[moving.area.load(Acquire) as usize];
        assert_eq!(slot.observe_poll(), 3, "the last poll is seen");
        assert_eq!(slot.state(), Some(WorkerState::Running));
        assert_eq!(moving.places[0].state(), Some(WorkerState::Dead));
    });
}

/// A reader of `area` sees no number of a poll decrease, and misses no poll that lasts.
#[test]
fn a_slot_moves_with_all_its_words() {
    moving_model(Release, |moving, publish| {
        moving.places[1].continue_from(&moving.places[0]);
        moving.area.store(1, publish);
    });
}

#[test]
#[should_panic]
fn bug_a_slot_that_says_too_early_where_it_is() {
    moving_model(Release, |moving, publish| {
        moving.area.store(1, publish);
        moving.places[1].continue_from(&moving.places[0]);
    });
}

#[test]
#[should_panic]
fn bug_a_slot_that_says_where_it_is_without_release() {
    moving_model(Relaxed, |moving, publish| {
        moving.places[1].continue_from(&moving.places[0]);
        moving.area.store(1, publish);
    });
}

/// A slot that moves while the memory of a daemon that was lost becomes the next one's; see PROTOCOL.md, "Moving a
/// slot". Place 0 is the process's own memory, 1 is shared.
struct Vacating {
    target: AtomicU32,
    moving_to: AtomicU32,
    area: AtomicU32,
    /// The word of the slot in each place.
    words: [AtomicU64; 2],
}

#[derive(Clone, Copy, PartialEq)]
enum VacatingBug {
    None,
    /// The slot does not say where it is going.
    Silent,
    /// The slot does not look again where it should go.
    Rash,
    /// The link asks first where the slot is, then where it is going.
    Backwards,
}

impl Vacating {
    /// As `Table::settle`.
    fn settle(&self, bug: VacatingBug) -> &AtomicU64 {
        let target = loop {
            let target = self.target.load(Acquire);
            if bug != VacatingBug::Silent {
                self.moving_to.store(target, Release);
            }
            fence(SeqCst);
            if bug == VacatingBug::Rash || self.target.load(Acquire) == target {
                break target;
            }
        };
        let (from, to) = (self.area.load(Relaxed), target);
        if from != to {
            self.words[to as usize].store(self.words[from as usize].load(Relaxed), Relaxed);
            self.area.store(to, Release);
        }
        self.moving_to.store(0, Release);
        &self.words[to as usize]
    }

    /// As `Table::vacant`, of place 1.
    fn is_vacant(&self, bug: VacatingBug) -> bool {
        fence(SeqCst);
        if bug == VacatingBug::Backwards {
            let at = self.area.load(Acquire);
            return at != 1 && self.moving_to.load(Acquire) != 1;
        }
        let to = self.moving_to.load(Acquire);
        let at = self.area.load(Acquire);
        to != 1 && at != 1
    }
}

fn vacating_model(bug: VacatingBug) {
    loom::model(move || {
        let slot = Arc::new(Vacating {
            target: AtomicU32::new(1),
            moving_to: AtomicU32::new(0),
            area: AtomicU32::new(0),
            words: [AtomicU64::new(3), AtomicU64::new(0)],
        });
        let link = thread::spawn({
            let slot = slot.clone();
            move || {
                slot.target.store(0, Release);
                if slot.is_vacant(bug) {
                    slot.words[1].store(0, Relaxed);
                    slot.target.store(1, Release);
                }
            }
        });
        for number in 3..5 {
            let word = slot.settle(bug);
            assert_eq!(word.load(Relaxed), number, "a word of the slot was lost");
            word.store(number + 1, Relaxed);
        }
        link.join().unwrap();
        assert_eq!(slot.settle(bug).load(Relaxed), 5);
    });
}

#[test]
fn no_slot_is_in_memory_that_becomes_the_next_daemon_s() {
    vacating_model(VacatingBug::None);
}

#[test]
#[should_panic]
fn bug_a_slot_that_does_not_say_where_it_is_going() {
    vacating_model(VacatingBug::Silent);
}

#[test]
#[should_panic]
fn bug_a_slot_that_goes_where_it_should_have_gone_before() {
    vacating_model(VacatingBug::Rash);
}

#[test]
#[should_panic]
fn bug_a_slot_that_is_looked_for_behind_its_back() {
    vacating_model(VacatingBug::Backwards);
}

/// Holding and releasing spares, as in the runtime; see PROTOCOL.md, "Holding and releasing".
struct Spares {
    total: u32,
    /// Workers in addition to `total`, of which as many stay held.
    kept: u32,
    state: Mutex<Counts>,
    changed: Condvar,
}

#[derive(Default)]
struct Counts {
    /// Spares that wait.
    held: u32,
    /// Hold tasks on their way.
    pending: u32,
    /// Releases that no spare has taken yet. At most `held + pending`.
    releases: u32,
    closed: bool,
}

impl Counts {
    fn inactive(&self) -> u32 {
        assert!(
            self.releases <= self.held + self.pending,
            "a release that no spare can take"
        );
        self.held + self.pending - self.releases
    }
}

impl Spares {
    /// All spares have a hold task on its way.
    fn new(total: u32) -> Arc<Self> {
        Self::with_kept(total, 0)
    }

    fn with_kept(total: u32, kept: u32) -> Arc<Self> {
        let (state, changed) = (Mutex::new(Counts::default()), Condvar::new());
        let spares = Arc::new(Self {
            total,
            kept,
            state,
            changed,
        });
        for _ in 0..total + kept {
            assert!(spares.announce_hold());
        }
        spares
    }

    /// Announces a hold, before its task is injected.
    fn announce_hold(&self) -> bool {
        let mut state = self.state.lock().unwrap();
        if state.closed || state.inactive() >= self.total + self.kept {
            return false;
        }
        state.pending += 1;
        true
    }

    /// Runs the poll of a hold task. Returns when the spare is released, and whether it is the last at the end.
    fn hold(&self) -> bool {
        self.hold_while(|state| state.releases == 0 || state.held <= self.kept)
    }

    /// The mistake: a worker that takes a release does not look at how many stay.
    fn bug_hold_without_a_look_at_the_others(&self) -> bool {
        self.hold_while(|state| state.releases == 0)
    }

    fn hold_while(&self, waits: impl Fn(&Counts) -> bool) -> bool {
        let mut state = self.state.lock().unwrap();
        state.pending -= 1;
        state.held += 1;
        let was_held = !state.closed;
        while waits(&state) && !state.closed {
            state = self.changed.wait(state).unwrap();
        }
        state.held -= 1;
        if !state.closed {
            state.releases -= 1;
        }
        state.closed && was_held && state.held == 0
    }

    /// The mistake: a hold task waits for a notification even if a release is there.
    fn bug_hold_by_notification(&self) {
        let mut state = self.state.lock().unwrap();
        state.pending -= 1;
        state.held += 1;
        state = self.changed.wait(state).unwrap();
        state.held -= 1;
        state.releases -= 1;
    }

    /// Releases a spare. Returns whether there was one to release.
    fn release(&self) -> bool {
        let mut state = self.state.lock().unwrap();
        if state.closed || state.inactive() <= self.kept {
            return false;
        }
        state.releases += 1;
        self.changed.notify_one();
        true
    }

    /// The mistake: a release counts the spares that wait, and not those on their way.
    fn bug_release_the_held_only(&self) -> bool {
        let mut state = self.state.lock().unwrap();
        if state.held <= state.releases {
            return false;
        }
        state.releases += 1;
        self.changed.notify_one();
        true
    }

    fn close(&self) {
        self.state.lock().unwrap().closed = true;
        self.changed.notify_all();
    }

    /// The mistake: only spares that arrive later find the closed flag.
    fn bug_close_without_notification(&self) {
        self.state.lock().unwrap().closed = true;
    }

    /// Returns how many spares are active, or on their way there.
    fn active(&self) -> u32 {
        self.total + self.kept - self.state.lock().unwrap().inactive()
    }
}

fn spawn_hold(spares: &Arc<Spares>) -> thread::JoinHandle<bool> {
    spawn(spares, Spares::hold)
}

fn spawn(spares: &Arc<Spares>, hold: fn(&Spares) -> bool) -> thread::JoinHandle<bool> {
    let spares = spares.clone();
    thread::spawn(move || hold(&spares))
}

/// As many releases as spares, from two threads: each release succeeds and frees one spare. A lost release is
/// a deadlock.
#[test]
fn no_release_is_lost() {
    let mut model = loom::model::Builder::new();
    // Four threads: all interleavings take half a minute, those with up to three preemptions an instant.
    model.preemption_bound = Some(3);
    model.check(|| {
        let spares = Spares::new(2);
        let holds = [spawn_hold(&spares), spawn_hold(&spares)];
        let other = thread::spawn({
            let spares = spares.clone();
            move || spares.release()
        });
        assert!(spares.release());
        assert!(other.join().unwrap());
        assert_eq!(
            spares.active(),
            2,
            "a release counts from the moment it is made"
        );
        assert!(!spares.release(), "no spare is left");
        for hold in holds {
            hold.join().unwrap();
        }
        assert_eq!(spares.active(), 2);
    });
}

/// One release for two spares frees one and holds the other. This also holds if the notified spare finds that
/// a spare that came later has taken the release.
#[test]
fn one_release_frees_one() {
    loom::model(|| {
        let spares = Spares::new(2);
        let holds = [spawn_hold(&spares), spawn_hold(&spares)];
        assert!(spares.release());
        assert_eq!(spares.active(), 1);
        assert!(spares.release());
        for hold in holds {
            hold.join().unwrap();
        }
    });
}

/// A later hold does not take a release that another spare has used: it waits, and the count shows it.
#[test]
fn a_release_is_used_once() {
    loom::model(|| {
        let spares = Spares::new(1);
        let hold = spawn_hold(&spares);
        assert!(spares.release());
        hold.join().unwrap();
        assert_eq!(spares.active(), 1);

        assert!(spares.announce_hold());
        assert_eq!(spares.active(), 0);
        let again = spawn_hold(&spares);
        spares.close();
        again.join().unwrap();
    });
}

/// Closing frees the spares that wait and those on their way, and takes no release from a spare. Later calls
/// return false.
#[test]
fn close_frees_every_spare() {
    loom::model(|| {
        let spares = Spares::new(2);
        let holds = [spawn_hold(&spares), spawn_hold(&spares)];
        let _ = spares.release();
        spares.close();
        assert!(!spares.announce_hold() && !spares.release());
        for hold in holds {
            hold.join().unwrap();
        }
        let state = spares.state.lock().unwrap();
        assert_eq!((state.held, state.pending), (0, 0));
    });
}

/// A spare, and a worker that is kept: the spare is released while only the other is held. From when that one is held, one is at each
/// moment, and at the end exactly one of the workers learns that it was the last.
fn kept_model(hold: fn(&Spares) -> bool) {
    loom::model(move || {
        let spares = Spares::with_kept(1, 1);
        let workers = [spawn(&spares, hold), spawn(&spares, hold)];
        let was_held = spares.state.lock().unwrap().held > 0;
        assert!(spares.release() && !spares.release());
        assert_eq!(spares.active(), 1);
        let is_held = spares.state.lock().unwrap().held > 0;
        assert!(is_held || !was_held, "the worker that is kept left");
        spares.close();
        let lasts = workers.map(|worker| worker.join().unwrap());
        let held = lasts.iter().filter(|&&is_last| is_last).count();
        // None, if both come after the end.
        let is_one = (usize::from(is_held)..=1).contains(&held);
        assert!(is_one, "the worker that is kept left: {held} were the last");
    });
}

#[test]
fn one_worker_stays_held() {
    kept_model(Spares::hold);
}

#[test]
#[should_panic(expected = "the worker that is kept left")]
fn bug_hold_without_a_look_at_the_others() {
    kept_model(Spares::bug_hold_without_a_look_at_the_others);
}

#[test]
#[should_panic(expected = "deadlock")]
fn bug_hold_by_notification() {
    loom::model(|| {
        let spares = Spares::new(1);
        let hold = thread::spawn({
            let spares = spares.clone();
            move || spares.bug_hold_by_notification()
        });
        assert!(spares.release());
        hold.join().unwrap();
    });
}

#[test]
#[should_panic(expected = "a spare was on its way")]
fn bug_release_the_held_only() {
    loom::model(|| {
        let spares = Spares::new(1);
        let hold = spawn_hold(&spares);
        let released = spares.bug_release_the_held_only();
        spares.close();
        hold.join().unwrap();
        assert!(
            released,
            "a spare was on its way, and the release was refused"
        );
    });
}

#[test]
#[should_panic(expected = "deadlock")]
fn bug_close_without_notification() {
    loom::model(|| {
        let spares = Spares::new(1);
        let hold = spawn_hold(&spares);
        spares.bug_close_without_notification();
        hold.join().unwrap();
    });
}

/// How the controller falls asleep and is woken; see PROTOCOL.md, "Falling asleep".
///
/// The two `SeqCst` fences stand for a pair of barriers. The workers' half is only a compiler fence. The
/// controller's half is `membarrier`, which makes every thread of the process execute a full barrier.
///
/// The controller swaps where a store would do. Between a store and another thread's swap that did not read
/// it, loom keeps no order. It then finds executions in which that swap comes after the store and still does
/// not read it.
struct Sleep {
    slots: Vec<RuntimeSlot>,
    asleep: AtomicBool,
    fences: Fences,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fences {
    Both,
    ControllersOnly,
    WorkersOnly,
}

impl Sleep {
    /// All workers are parked.
    fn new(workers: usize, fences: Fences) -> Arc<Self> {
        let slots: Vec<_> = (0..workers).map(|_| RuntimeSlot::new()).collect();
        slots.iter().for_each(RuntimeSlot::park);
        Arc::new(Self {
            slots,
            asleep: AtomicBool::new(false),
            fences,
        })
    }

    /// A worker comes back from a park. Returns whether it wakes the controller.
    fn come_back(&self, worker: usize) -> bool {
        self.slots[worker].unpark();
        if self.fences != Fences::ControllersOnly {
            fence(SeqCst);
        }
        self.asleep.load(Relaxed) && self.asleep.swap(false, Relaxed)
    }

    fn sample(&self) -> Vec<u64> {
        self.slots
            .iter()
            .map(|slot| slot.park_seq.load(Acquire))
            .collect()
    }

    /// The controller wants to sleep after the sample `before`. Returns whether it sleeps.
    fn fall_asleep(&self, before: &[u64]) -> bool {
        self.asleep.swap(true, Relaxed);
        if self.fences != Fences::WorkersOnly {
            fence(SeqCst);
        }
        if self.sample() == before {
            return true;
        }
        self.asleep.swap(false, Relaxed);
        false
    }

    /// The mistake: no second sample.
    fn bug_fall_asleep_at_once(&self) -> bool {
        self.asleep.swap(true, Relaxed);
        fence(SeqCst);
        true
    }
}

/// Both workers come back while the controller falls asleep: it stays awake, or is woken exactly once.
fn sleep_model(fences: Fences, fall_asleep: fn(&Sleep, &[u64]) -> bool) {
    loom::model(move || {
        let sleep = Sleep::new(2, fences);
        let before = sleep.sample();
        let workers = [0, 1].map(|worker| {
            let sleep = sleep.clone();
            thread::spawn(move || sleep.come_back(worker))
        });
        let sleeps = fall_asleep(&sleep, &before);
        let wakes = workers.map(|worker| worker.join().unwrap());
        if sleeps {
            assert!(
                wakes.contains(&true),
                "the controller sleeps, and no worker wakes it"
            );
            assert!(wakes != [true, true], "woken twice");
            assert!(!sleep.asleep.load(Relaxed));
        }
    });
}

/// Never both: a worker has come back, and the controller sleeps with no wake pending. One sleep costs one
/// wake, even if several workers come back.
#[test]
fn no_wake_is_lost() {
    sleep_model(Fences::Both, Sleep::fall_asleep);
}

#[test]
#[should_panic(expected = "no worker wakes it")]
fn bug_worker_without_fence() {
    sleep_model(Fences::ControllersOnly, Sleep::fall_asleep);
}

#[test]
#[should_panic(expected = "no worker wakes it")]
fn bug_controller_without_fence() {
    sleep_model(Fences::WorkersOnly, Sleep::fall_asleep);
}

#[test]
#[should_panic(expected = "no worker wakes it")]
fn bug_no_second_sample() {
    sleep_model(Fences::Both, |sleep, _| sleep.bug_fall_asleep_at_once());
}

/// The controller's wait. A wake is a flag, so a controller that begins to wait later finds it.
struct Bed {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Bed {
    fn wake(&self) {
        *self.woken.lock().unwrap() = true;
        self.changed.notify_one();
    }

    fn wait(&self) {
        let mut woken = self.woken.lock().unwrap();
        while !*woken {
            woken = self.changed.wait(woken).unwrap();
        }
    }
}

/// The whole loop, with real waiting. The controller learns of two changes of one worker, whether it was
/// awake, falling asleep or asleep, and even if the wake for an earlier change arrives late. A lost wake is a
/// deadlock.
///
/// With `forget_late`, the mistake: the controller clears earlier wakes after it has announced its sleep.
fn loop_model(forget_late: bool) {
    loom::model(move || {
        let sleep = Sleep::new(1, Fences::Both);
        let bed = Arc::new(Bed {
            woken: Mutex::new(false),
            changed: Condvar::new(),
        });
        let worker = thread::spawn({
            let (sleep, bed) = (sleep.clone(), bed.clone());
            move || {
                if sleep.come_back(0) {
                    bed.wake();
                }
                sleep.slots[0].park();
                if sleep.come_back(0) {
                    bed.wake();
                }
            }
        });
        let mut seen = sleep.sample();
        // Parked, back, parked, back again.
        while seen[0] < 4 {
            if !forget_late {
                *bed.woken.lock().unwrap() = false;
            }
            if sleep.fall_asleep(&seen) {
                if forget_late {
                    *bed.woken.lock().unwrap() = false;
                }
                bed.wait();
                sleep.asleep.swap(false, Relaxed);
            }
            seen = sleep.sample();
        }
        worker.join().unwrap();
    });
}

#[test]
fn controller_misses_nothing() {
    loop_model(false);
}

#[test]
#[should_panic(expected = "deadlock")]
fn bug_wake_forgotten() {
    loop_model(true);
}

/// A buffer that is handed to a signal handler (`hand_over.rs`). Loom's cell fails if two threads access it
/// at once.
struct Handed {
    hand_over: HandOver,
    buffer: UnsafeCell<u64>,
}

impl Handed {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            hand_over: HandOver::new(),
            buffer: UnsafeCell::new(0),
        })
    }

    /// Claims the buffer and clears it, as the asker may. `None` while a handler writes.
    fn ask(&self) -> Option<Request> {
        let request = self.hand_over.claim()?;
        // SAFETY: the asker has claimed the buffer, and is its only owner; loom checks it.
        self.buffer.with_mut(|buffer| unsafe { *buffer = 0 });
        self.hand_over.publish(request);
        Some(request)
    }

    /// Runs the handler of the signal that came with `request`. It writes the request's number + 1.
    fn handler(&self, request: Request) {
        if self.hand_over.begin_write(request) {
            // SAFETY: the state is writing, so the handler is the buffer's only owner; loom checks it.
            self.buffer
                .with_mut(|buffer| unsafe { *buffer = request.number() + 1 });
            self.hand_over.end_write(request);
        }
    }

    /// Returns the value that was written for the request; an inner `None` if the request is over without
    /// one. `None` while the handler writes.
    fn settle(&self, request: Request, bug: bool) -> Option<Option<u64>> {
        if self.hand_over.progress(request) == Progress::Written {
            // SAFETY: the state is written, so the asker is the buffer's only owner; loom checks it.
            let found = self.buffer.with(|buffer| unsafe { *buffer });
            self.hand_over.free(request);
            return Some(Some(found));
        }
        if bug {
            // The mistake: the request is given up even while the handler writes.
            self.hand_over.free(request);
            return Some(None);
        }
        self.hand_over.give_up(request).then_some(None)
    }
}

/// Two requests, one after the other; the handler of each comes at any time. The value that is read was
/// written for this request. No handler writes while it is read, or writes for the other request.
fn hand_over_model(bug: bool) {
    loom::model(move || {
        let handed = Handed::new();
        let mut handlers = Vec::new();
        for _ in 0..2 {
            let Some(request) = handed.ask() else {
                // A handler still writes the first one.
                break;
            };
            handlers.push(thread::spawn({
                let handed = handed.clone();
                move || handed.handler(request)
            }));
            if let Some(Some(found)) = handed.settle(request, bug) {
                assert_eq!(found, request.number() + 1, "written for another");
            }
        }
        for handler in handlers {
            handler.join().unwrap();
        }
    });
}

#[test]
fn a_late_handler_writes_nowhere() {
    hand_over_model(false);
}

#[test]
#[should_panic]
fn bug_a_request_that_is_given_up_while_it_is_written() {
    hand_over_model(true);
}
