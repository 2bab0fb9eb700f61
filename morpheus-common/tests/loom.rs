//! The proof of `src/PROTOCOL.md`: every interleaving, and every value that a load may return, of small models.
//!
//! `RUSTFLAGS="--cfg loom" cargo test --release -p morpheus-common --test loom`
//!
//! The first half runs the crate's own slots. The second half models two protocols of the runtime's, without its
//! surroundings. A model that cannot fail proves nothing: those named `bug_…` put a mistake in, and must fail.
#![cfg(loom)]

use loom::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use loom::sync::atomic::{AtomicBool, AtomicU64, fence};
use loom::sync::{Condvar, Mutex};
use loom::thread;
// Not loom's: when it is dropped after a deadlock, which some models are about, the process aborts. Nothing here depends
// on what a reference count orders.
use std::sync::Arc;

use morpheus_common::slot::{
    KernelSlot, RuntimeSlot, SlotFlag, VerdictFlags, WorkerState, YieldReason,
};

#[derive(Default)]
struct Slots {
    runtime: RuntimeSlot,
    kernel: KernelSlot,
}

/// One look of the controller: says `STUCK` about the poll it sees, and returns that poll's number.
fn judge_one(slots: &Slots) -> Option<u64> {
    let seq = slots.runtime.observe_poll();
    if seq & 1 == 0 {
        return None;
    }
    // Recognisable, to see that it comes along with the verdict.
    slots.kernel.oncpu_ns.store(seq * 1000, Relaxed);
    slots.kernel.give_verdict(seq, VerdictFlags::STUCK);
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

/// A verdict is found by the poll that it is about or by none: not by an earlier one, not by the next. And what was
/// written before it (`oncpu_ns`) is there with it.
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

/// A slot that is handed from one thread to the next goes on with its numbers: what was said about the last poll of the
/// thread before, which ended in the middle of it, is not said about the first of this one.
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
                    verdict.store(u64::from(VerdictFlags::STUCK.bits()), Release);
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
                        let yields =
                            slots.runtime.yields[YieldReason::Request as usize].load(Relaxed);
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
                slots.runtime.count_yield(YieldReason::Request);
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
                runtime.set_flag(SlotFlag::InPlace);
                let seq = runtime.begin_poll();
                runtime.end_poll(seq);
            }
        });
        if runtime.observe_poll() != 0 {
            assert_eq!(runtime.label.load(Relaxed), 7);
            assert!(runtime.has_flag(SlotFlag::InPlace));
        }
        worker.join().unwrap();
    });
}

/// Who sees a worker parked sees what it did before; and saying it twice (a hook that runs twice) says it once.
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

/// Holding and releasing spares, as the runtime does it; see PROTOCOL.md, "Spares".
struct Spares {
    state: Mutex<Counts>,
    released: Condvar,
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

impl Spares {
    fn new(pending: u32) -> Arc<Self> {
        let spares = Arc::new(Self {
            state: Mutex::new(Counts::default()),
            released: Condvar::new(),
        });
        for _ in 0..pending {
            assert!(spares.request_hold());
        }
        spares
    }

    /// Before a hold task is injected.
    fn request_hold(&self) -> bool {
        let mut state = self.state.lock().unwrap();
        if state.closed {
            return false;
        }
        state.pending += 1;
        true
    }

    /// The poll of a hold task. Returns when it is released.
    fn hold(&self) {
        let mut state = self.state.lock().unwrap();
        state.pending -= 1;
        if state.closed {
            return;
        }
        if state.releases > 0 {
            state.releases -= 1;
            return;
        }
        state.held += 1;
        while state.releases == 0 && !state.closed {
            state = self.released.wait(state).unwrap();
        }
        state.held -= 1;
        state.releases = state.releases.saturating_sub(1);
    }

    /// The mistake: a hold task that does not look for releases when it arrives, and waits for a notification only.
    fn bug_hold_by_notification(&self) {
        let mut state = self.state.lock().unwrap();
        state.pending -= 1;
        state.held += 1;
        state = self.released.wait(state).unwrap();
        state.held -= 1;
        state.releases = state.releases.saturating_sub(1);
    }

    /// Whether there was a spare to release.
    fn release(&self) -> bool {
        let mut state = self.state.lock().unwrap();
        if state.held + state.pending <= state.releases {
            return false;
        }
        state.releases += 1;
        self.released.notify_one();
        true
    }

    /// The mistake: a release that counts those who wait, and not those on their way.
    fn bug_release_the_held_only(&self) -> bool {
        let mut state = self.state.lock().unwrap();
        if state.held <= state.releases {
            return false;
        }
        state.releases += 1;
        self.released.notify_one();
        true
    }

    fn close(&self) {
        self.state.lock().unwrap().closed = true;
        self.released.notify_all();
    }

    /// The mistake: a closed flag that only those find who arrive later.
    fn bug_close_without_notification(&self) {
        self.state.lock().unwrap().closed = true;
    }

    /// How many of `total` spares are out, or on their way out.
    fn out(&self, total: u32) -> u32 {
        let state = self.state.lock().unwrap();
        total - (state.held + state.pending - state.releases)
    }
}

fn spawn_hold(spares: &Arc<Spares>) -> thread::JoinHandle<()> {
    let spares = spares.clone();
    thread::spawn(move || spares.hold())
}

/// As many releases as spares, from two threads: each one succeeds, and frees one. A lost one is a deadlock.
#[test]
fn no_release_is_lost() {
    loom::model(|| {
        let spares = Spares::new(2);
        let holds = [spawn_hold(&spares), spawn_hold(&spares)];
        let other = thread::spawn({
            let spares = spares.clone();
            move || spares.release()
        });
        assert!(spares.release());
        assert!(other.join().unwrap());
        assert_eq!(
            spares.out(2),
            2,
            "a release counts from the moment it is made"
        );
        assert!(!spares.release(), "there is none left");
        for hold in holds {
            hold.join().unwrap();
        }
        assert_eq!(spares.out(2), 2);
    });
}

/// One release for two spares lets one out and leaves one in, whichever takes it: also when the one that is notified
/// finds that one who came later has taken it.
#[test]
fn one_release_frees_one() {
    loom::model(|| {
        let spares = Spares::new(2);
        let holds = [spawn_hold(&spares), spawn_hold(&spares)];
        assert!(spares.release());
        assert_eq!(spares.out(2), 1);
        assert!(spares.release());
        for hold in holds {
            hold.join().unwrap();
        }
    });
}

/// The one that comes after has no part in a release that another has used: it waits, and the count says so.
#[test]
fn a_release_is_used_once() {
    loom::model(|| {
        let spares = Spares::new(1);
        let hold = spawn_hold(&spares);
        assert!(spares.release());
        hold.join().unwrap();
        assert_eq!(spares.out(1), 1);

        assert!(spares.request_hold());
        assert_eq!(spares.out(1), 0);
        let again = spawn_hold(&spares);
        spares.close();
        again.join().unwrap();
    });
}

/// Closing frees those who wait, those on their way, and leaves a release that came before as it was. One who asks
/// afterwards is told.
#[test]
fn close_frees_everybody() {
    loom::model(|| {
        let spares = Spares::new(2);
        let holds = [spawn_hold(&spares), spawn_hold(&spares)];
        let _ = spares.release();
        spares.close();
        assert!(!spares.request_hold());
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

/// The controller's sleep; see PROTOCOL.md, "The controller's sleep".
///
/// The two `SeqCst` fences stand for a pair of which the workers' half is a compiler fence only, and the controller's
/// half is `membarrier`, which makes every thread of the process execute a full one.
///
/// The controller swaps where a store would do. Between a store and another thread's swap that did not read it loom keeps
/// no order, and then finds executions in which that swap comes after the store and still does not read it.
struct Sleep {
    slots: [RuntimeSlot; 2],
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
    fn new(fences: Fences) -> Arc<Self> {
        let sleep = Self {
            slots: [RuntimeSlot::new(), RuntimeSlot::new()],
            asleep: AtomicBool::new(false),
            fences,
        };
        for slot in &sleep.slots {
            slot.park();
        }
        Arc::new(sleep)
    }

    /// A worker comes back; returns whether it wakes the controller.
    fn come_back(&self, worker: usize) -> bool {
        self.slots[worker].unpark();
        if self.fences != Fences::ControllersOnly {
            fence(SeqCst);
        }
        self.asleep.load(Relaxed) && self.asleep.swap(false, Relaxed)
    }

    fn sample(&self) -> [u64; 2] {
        [0, 1].map(|worker| self.slots[worker].park_seq.load(Acquire))
    }

    /// The controller wants to sleep, having seen `before`; returns whether it does.
    fn fall_asleep(&self, before: [u64; 2]) -> bool {
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

/// Both workers come back while the controller falls asleep: it stays awake, or is woken, exactly once.
fn sleep_model(fences: Fences, fall_asleep: fn(&Sleep, [u64; 2]) -> bool) {
    loom::model(move || {
        let sleep = Sleep::new(fences);
        let before = sleep.sample();
        let workers = [0, 1].map(|worker| {
            let sleep = sleep.clone();
            thread::spawn(move || sleep.come_back(worker))
        });
        let sleeps = fall_asleep(&sleep, before);
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

/// Never both: a worker has come back, and the controller sleeps with no wake pending. And one sleep costs one wake,
/// however many come back.
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

/// The whole loop, with real sleeping: the controller gets to know of two changes of one worker, whether it was awake,
/// falling asleep or asleep. A lost one is a deadlock.
#[test]
fn controller_misses_nothing() {
    loom::model(|| {
        let sleep = Sleep::new(Fences::Both);
        let controller = thread::current();
        let worker = thread::spawn({
            let sleep = sleep.clone();
            move || {
                if sleep.come_back(0) {
                    controller.unpark();
                }
                sleep.slots[0].park();
                if sleep.come_back(0) {
                    controller.unpark();
                }
            }
        });
        let mut seen = sleep.sample();
        while seen[0] < 4 {
            if sleep.fall_asleep(seen) {
                // A wake that is left over from a sleep that did not come about makes this return at once, once.
                thread::park();
                sleep.asleep.swap(false, Relaxed);
            }
            seen = sleep.sample();
        }
        worker.join().unwrap();
    });
}
