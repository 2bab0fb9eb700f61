//! The proof of `src/PROTOCOL.md`: every interleaving, and every value that a load may return, of
//! small models.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p morpheus-common --test loom`
//!
//! The first half runs the crate's own slots. The second half models two protocols of the
//! runtime's, without its surroundings. A model that cannot fail proves nothing: those named
//! `bug_…` put a mistake in, and must fail.
#![cfg(loom)]

use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use loom::sync::{Condvar, Mutex};
use loom::thread;
// Not loom's: when it is dropped after a deadlock, which some models are about, the process aborts.
// Nothing here depends on what a reference count orders.
use std::sync::Arc;

use loom::cell::UnsafeCell;
use morpheus_common::hand_over::{HandOver, Progress, Request};
use morpheus_common::slot::{KernelSlot, RuntimeSlot, SlotFlag, VerdictFlags, WorkerState};

#[derive(Default)]
struct Slots {
    runtime: RuntimeSlot,
    kernel: KernelSlot,
}

/// One look of the controller: says `STALLED` about the poll it sees, and returns that poll's number.
fn judge_one(slots: &Slots) -> Option<u64> {
    let seq = slots.runtime.observe_poll();
    if seq & 1 == 0 {
        return None;
    }
    // Recognisable, to see that it comes along with the verdict.
    slots.kernel.oncpu_ns.store(seq * 1000, Relaxed);
    slots.kernel.give_verdict(seq, VerdictFlags::STALLED);
    Some(seq)
}

/// One watched poll; returns its number, and what it found said about itself.
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

/// A verdict is found by the poll that it is about or by none: not by an earlier one, not by the
/// next. And what was written before it (`oncpu_ns`) is there with it.
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
                "poll {seq} was convicted for another"
            );
        }
    });
}

/// A slot that is handed from one thread to the next goes on with its numbers: what was said about
/// the last poll of a thread that died in the middle of it is not said about the first poll of the
/// next thread.
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
        // The next thread takes the slot when it sees that it is free.
        let second = (slots.runtime.state() == Some(WorkerState::Dead)).then(|| poll_once(&slots));
        let (first, judged) = (first.join().unwrap(), controller.join().unwrap());
        if let Some((seq, verdict)) = second {
            assert_ne!(seq, first, "a poll's number was used twice");
            assert!(verdict.is_empty() || judged == Some(seq));
        }
    });
}

/// The mistake: a verdict that does not say whom it is about.
#[test]
#[should_panic(expected = "was convicted for another")]
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
                "poll {seq} was convicted for another"
            );
        }
    });
}

/// A request is seen by the poll that it is for or by none, and an answer that is seen was counted.
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

/// The mistake: a request that is a flag.
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

/// A poll that is seen comes with the label and the flags it was begun with.
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

/// Who sees a worker parked sees what it did before; and saying it twice (a hook that runs twice)
/// says it once.
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
            "parked for the {parked}th time, and had done only {did}"
        );
        worker.join().unwrap();
        assert_eq!(runtime.park_seq.load(Relaxed), 3);
        assert!(runtime.is_parked());
    });
}

/// A slot in two places, and where it is now: 0 or 1. See PROTOCOL.md, "Moving a slot".
struct Moving {
    places: [RuntimeSlot; 2],
    home: AtomicU32,
}

fn moving_model(says_where: Ordering, moves: fn(&Moving, Ordering)) {
    loom::model(move || {
        let moving = Arc::new(Moving {
            places: [RuntimeSlot::new(), RuntimeSlot::new()],
            home: AtomicU32::new(0),
        });
        moving.places[0].set_state(WorkerState::Running);
        let worker = thread::spawn({
            let moving = moving.clone();
            move || {
                let old = &moving.places[0];
                old.label.store(1, Relaxed);
                old.end_poll(old.begin_poll());
                moves(&moving, says_where);
                let new = &moving.places[1];
                new.label.store(2, Relaxed);
                new.begin_poll();
            }
        });
        let mut before = 0;
        for _ in 0..2 {
            let slot = &moving.places[moving.home.load(Acquire) as usize];
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
        let slot = &moving.places[moving.home.load(Acquire) as usize];
        assert_eq!(slot.observe_poll(), 3, "the last poll is seen");
        assert_eq!(slot.state(), Some(WorkerState::Running));
        assert_eq!(moving.places[0].state(), Some(WorkerState::Dead));
    });
}

/// Whoever asks where the slot is sees no poll go back, and misses none that lasts.
#[test]
fn a_slot_moves_with_all_its_words() {
    moving_model(Release, |moving, says_where| {
        moving.places[1].continue_from(&moving.places[0]);
        moving.home.store(1, says_where);
    });
}

#[test]
#[should_panic]
fn bug_a_slot_that_says_too_early_where_it_is() {
    moving_model(Release, |moving, says_where| {
        moving.home.store(1, says_where);
        moving.places[1].continue_from(&moving.places[0]);
    });
}

#[test]
#[should_panic]
fn bug_a_slot_that_says_where_it_is_without_release() {
    moving_model(Relaxed, |moving, says_where| {
        moving.places[1].continue_from(&moving.places[0]);
        moving.home.store(1, says_where);
    });
}

/// Holding and releasing spares, as the runtime does it; see PROTOCOL.md, "Holding and releasing".
struct Spares {
    total: u32,
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
    fn out_of_play(&self) -> u32 {
        assert!(
            self.releases <= self.held + self.pending,
            "a release that nobody can take"
        );
        self.held + self.pending - self.releases
    }
}

impl Spares {
    /// All of the spares have their hold task on its way.
    fn new(total: u32) -> Arc<Self> {
        let (state, changed) = (Mutex::new(Counts::default()), Condvar::new());
        let spares = Arc::new(Self {
            total,
            state,
            changed,
        });
        for _ in 0..total {
            assert!(spares.announce_hold());
        }
        spares
    }

    /// Before a hold task is injected.
    fn announce_hold(&self) -> bool {
        let mut state = self.state.lock().unwrap();
        if state.closed || state.out_of_play() >= self.total {
            return false;
        }
        state.pending += 1;
        true
    }

    /// The poll of a hold task. Returns when it is released.
    fn hold(&self) {
        let mut state = self.state.lock().unwrap();
        state.pending -= 1;
        state.held += 1;
        while state.releases == 0 && !state.closed {
            state = self.changed.wait(state).unwrap();
        }
        state.held -= 1;
        if !state.closed {
            state.releases -= 1;
        }
    }

    /// The mistake: a hold task that waits for a notification, whatever was released before.
    fn bug_hold_by_notification(&self) {
        let mut state = self.state.lock().unwrap();
        state.pending -= 1;
        state.held += 1;
        state = self.changed.wait(state).unwrap();
        state.held -= 1;
        state.releases -= 1;
    }

    /// Whether there was a spare to release.
    fn release(&self) -> bool {
        let mut state = self.state.lock().unwrap();
        if state.closed || state.out_of_play() == 0 {
            return false;
        }
        state.releases += 1;
        self.changed.notify_one();
        true
    }

    /// The mistake: a release that counts those who wait, and not those on their way.
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

    /// The mistake: a closed flag that only those find who arrive later.
    fn bug_close_without_notification(&self) {
        self.state.lock().unwrap().closed = true;
    }

    /// How many spares are active, or on their way there.
    fn in_play(&self) -> u32 {
        self.total - self.state.lock().unwrap().out_of_play()
    }
}

fn spawn_hold(spares: &Arc<Spares>) -> thread::JoinHandle<()> {
    let spares = spares.clone();
    thread::spawn(move || spares.hold())
}

/// As many releases as spares, from two threads: each one succeeds, and frees one. A lost one is a
/// deadlock.
#[test]
fn no_release_is_lost() {
    let mut model = loom::model::Builder::new();
    // Four threads: all of the interleavings take half a minute, those with three preemptions an
    // instant.
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
            spares.in_play(),
            2,
            "a release counts from the moment it is made"
        );
        assert!(!spares.release(), "there is none left");
        for hold in holds {
            hold.join().unwrap();
        }
        assert_eq!(spares.in_play(), 2);
    });
}

/// One release for two spares lets one out and leaves one in, whichever takes it: also when the one
/// that is notified finds that one who came later has taken it.
#[test]
fn one_release_frees_one() {
    loom::model(|| {
        let spares = Spares::new(2);
        let holds = [spawn_hold(&spares), spawn_hold(&spares)];
        assert!(spares.release());
        assert_eq!(spares.in_play(), 1);
        assert!(spares.release());
        for hold in holds {
            hold.join().unwrap();
        }
    });
}

/// The one that comes after has no part in a release that another has used: it waits, and the count
/// says so.
#[test]
fn a_release_is_used_once() {
    loom::model(|| {
        let spares = Spares::new(1);
        let hold = spawn_hold(&spares);
        assert!(spares.release());
        hold.join().unwrap();
        assert_eq!(spares.in_play(), 1);

        assert!(spares.announce_hold());
        assert_eq!(spares.in_play(), 0);
        let again = spawn_hold(&spares);
        spares.close();
        again.join().unwrap();
    });
}

/// Closing frees those who wait and those on their way, and takes nothing from one that was
/// released before. Who asks afterwards is told.
#[test]
fn close_frees_everybody() {
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

/// How the controller falls asleep, and who wakes it; see PROTOCOL.md, "Falling asleep".
///
/// The two `SeqCst` fences stand for a pair of which the workers' half is a compiler fence only,
/// and the controller's half is `membarrier`, which makes every thread of the process execute a
/// full one.
///
/// The controller swaps where a store would do. Between a store and another thread's swap that did
/// not read it loom keeps no order, and then finds executions in which that swap comes after the
/// store and still does not read it.
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

    /// A worker comes back; returns whether it wakes the controller.
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

    /// The controller wants to sleep, having seen `before`; returns whether it does.
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

    /// The mistake: no second look.
    fn bug_fall_asleep_at_once(&self) -> bool {
        self.asleep.swap(true, Relaxed);
        fence(SeqCst);
        true
    }
}

/// Both workers come back while the controller falls asleep: it stays awake, or is woken, exactly
/// once.
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
                "the controller sleeps, and nobody wakes it"
            );
            assert!(wakes != [true, true], "woken twice");
            assert!(!sleep.asleep.load(Relaxed));
        }
    });
}

/// Never both: a worker has come back, and the controller sleeps with no wake pending. And one
/// sleep costs one wake, however many come back.
#[test]
fn no_wake_is_lost() {
    sleep_model(Fences::Both, Sleep::fall_asleep);
}

#[test]
#[should_panic(expected = "nobody wakes it")]
fn bug_worker_without_fence() {
    sleep_model(Fences::ControllersOnly, Sleep::fall_asleep);
}

#[test]
#[should_panic(expected = "nobody wakes it")]
fn bug_controller_without_fence() {
    sleep_model(Fences::WorkersOnly, Sleep::fall_asleep);
}

#[test]
#[should_panic(expected = "nobody wakes it")]
fn bug_no_second_look() {
    sleep_model(Fences::Both, |sleep, _| sleep.bug_fall_asleep_at_once());
}

/// What the controller waits on: a wake is a flag, so that it is found by one who comes to wait
/// later.
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

/// The whole loop, with real waiting: the controller gets to know of two changes of one worker,
/// whether it was awake, falling asleep or asleep, and however late the wake for an earlier one
/// arrives. A lost one is a deadlock.
///
/// With `forget_late`, the mistake: it forgets earlier wakes when it has announced its sleep
/// already.
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

/// A buffer that is handed to a signal handler (`hand_over.rs`): loom's cell finds two who have it at once.
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

    /// Claims it, and clears the buffer, as the asker may. `None` while a handler writes.
    fn ask(&self) -> Option<Request> {
        let request = self.hand_over.claim()?;
        // SAFETY: claimed; loom checks it.
        self.buffer.with_mut(|buffer| unsafe { *buffer = 0 });
        self.hand_over.publish(request);
        Some(request)
    }

    /// The handler of the signal that went with `request`, which writes the number, and whose it is.
    fn handler(&self, request: Request) {
        if self.hand_over.begin_write(request) {
            // SAFETY: writing; loom checks it.
            self.buffer
                .with_mut(|buffer| unsafe { *buffer = request.number() + 1 });
            self.hand_over.end_write(request);
        }
    }

    /// What was written for the request, or nothing, in which case it is over. `None` while it is being
    /// written.
    fn settle(&self, request: Request, bug: bool) -> Option<Option<u64>> {
        if self.hand_over.progress(request) == Progress::Written {
            // SAFETY: written; loom checks it.
            let found = self.buffer.with(|buffer| unsafe { *buffer });
            self.hand_over.free(request);
            return Some(Some(found));
        }
        if bug {
            // The mistake: it is given up whatever the handler does.
            self.hand_over.free(request);
            return Some(None);
        }
        self.hand_over.give_up(request).then_some(None)
    }
}

/// Two requests, one after the other; the handler of each comes at any time. What is read was written
/// for this request, and nobody writes while it is read, or for the other.
fn hand_over_model(bug: bool) {
    loom::model(move || {
        let handed = Handed::new();
        let mut handlers = Vec::new();
        for _ in 0..2 {
            let Some(request) = handed.ask() else {
                // The first is being written still.
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
