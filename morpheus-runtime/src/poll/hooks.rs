//! Watches every task under the place that spawned it, through tokio's task hooks (`--cfg tokio_unstable`).
//!
//! A hooked poll is marked in the thread's slot as a [`Watched`](crate::Watched) one is. So the controller
//! samples it, asks it to yield, takes over from it and reports it alike. A poll of a slow task is handed off before it
//! begins ([`hooked_handoff`](crate::poll::hooked_handoff)).
//!
//! **One poll counts once.** A watched future inside the task has a mark of its own, with its own label. So
//! the task's mark is [paused](pause) while that future is polled. The parts before and after are watched.
//! The whole poll is counted for the task's label only if nothing was paused. Tasks that [`spawn`](crate::spawn) makes are such
//! futures as a whole, with the label of the task: they wait for permits without a thread, and no hook waits for them.
//!
//! A thread that hands its core over inside the poll (`block_in_place`) stays in the poll, but no task waits
//! behind it. The watchdog asks tokio for that before it calls the poll stalled. Morpheus's own tasks, above
//! all the hold tasks of spares, are not watched.

use std::cell::{Cell, RefCell};
use std::sync::atomic::Ordering;

use morpheus_common::slot::VerdictFlags;
use tokio::runtime::TaskMeta;
use tokio::task::Id;

use crate::decide::history::{History, Unproven};
use crate::decide::rating::Rating;
use crate::domain::Domain;
use crate::poll::hooked_handoff::{self, HandedOff};
use crate::poll::{handoff, known, own_slot};
use crate::report::label::{self, Label};
use morpheus_link::handle::{self, SlotHandle};

/// A thread adds polls to a label's total in lots of at most this many, so that the label's cache line stays
/// put.
const POLLS_A_LOT: u32 = 64;
/// The number of labels for which a thread keeps a count at the same time.
const COUNTED_LABELS: usize = 64;

/// The task poll that this thread is in.
#[derive(Clone, Copy)]
struct Hooked {
    task: Id,
    label: &'static Label,
    /// The sequence number of the part under way; `None` while the mark is paused.
    seq: Option<u64>,
    /// Whether no watched future inside had a mark of its own.
    whole: bool,
    /// Whether [`prepare`] was called for the poll, so that [`learn`] has to be.
    is_prepared: bool,
    /// Whether the task has ended in this poll: tokio says so before the poll's end.
    has_ended: bool,
    /// The verdict on the parts that have ended.
    verdict: VerdictFlags,
}

/// What was done before a poll of a task whose label is not healthy. Undone when it is dropped.
enum Prepared {
    HandedOff(#[expect(dead_code, reason = "dropped after the poll")] HandedOff),
    Unproven(#[expect(dead_code, reason = "dropped after the poll")] Unproven),
}

thread_local! {
    static HOOKED: Cell<Option<Hooked>> = const { Cell::new(None) };
    static PREPARED: RefCell<Option<Prepared>> = const { RefCell::new(None) };
    static COUNTS: Counts = const { Counts([const { Cell::new((None, 0)) }; COUNTED_LABELS]) };
}

/// Counts of polls that are not in the labels' totals yet.
struct Counts([Cell<(Option<&'static Label>, u32)>; COUNTED_LABELS]);

impl Counts {
    fn count(&self, label: &'static Label) {
        let entry = &self.0[label.id() as usize % COUNTED_LABELS];
        let (counted, polls) = entry.get();
        let is_same = counted.is_some_and(|counted| std::ptr::eq(counted, label));
        if is_same && polls + 1 < POLLS_A_LOT {
            entry.set((counted, polls + 1));
            return;
        }
        add(counted, polls);
        entry.set((Some(label), 1));
    }
}

impl Drop for Counts {
    fn drop(&mut self) {
        for entry in &self.0 {
            let (counted, polls) = entry.get();
            add(counted, polls);
        }
    }
}

fn add(label: Option<&'static Label>, polls: u32) {
    if let Some(label) = label {
        let total = &label.totals.polls;
        total.add(polls as usize);
    }
}

/// Marks the beginning of a task's poll. Tokio calls it before the poll.
pub(crate) fn before_poll(meta: &TaskMeta<'_>) {
    let label = label::at(meta.spawned_at());
    if label.is_own() || own_slot::claim().is_none() {
        return;
    }
    let slot = handle::current();
    if slot.runtime.in_poll() {
        // No version of tokio nests these calls. The poll that is under way keeps its mark.
        return;
    }
    let slot = own_slot::settled(slot);
    // Read once: the label may become healthy while the poll is under way.
    let is_prepared = !label.is_healthy() && !label.marks_itself();
    if is_prepared {
        prepare(meta.id(), label, slot);
    }
    HOOKED.set(Some(Hooked {
        task: meta.id(),
        label,
        seq: Some(begin(slot, label)),
        whole: true,
        is_prepared,
        has_ended: false,
        verdict: VerdictFlags::EMPTY,
    }));
}

/// Hands off the poll of a slow task. A poll of a task that is not known runs inline, and what queues behind it moves to where
/// other workers steal.
#[cold]
fn prepare(task: Id, label: &'static Label, slot: SlotHandle) {
    let prepared = own_slot::with_domain(|domain, index| {
        let history = domain.histories.of(label);
        let own = domain.records.rating(task);
        if own.is_proven() {
            return None;
        }
        // A task that had long polls is judged by them alone: a poll that waited for a lock does not make it a hog among hogs.
        let is_unknown = own.is_clean();
        let rating = match is_unknown {
            true => history.rating(),
            false => own.rating(),
        };
        // A task that has shown nothing yet, among tasks of which some had long polls: its first polls are handed off, so that
        // no worker is stalled to find out.
        let is_suspect = rating >= Rating::Counted && !history.is_unrated();
        let is_slow = is_suspect || rating >= Rating::Slow;
        if known::wants_handoff(domain, is_slow, history) && known::can_hand_off(domain) {
            let mut request = known::request(domain, domain.settings.demotable, rating, history, 0);
            request.blocks_thread = true;
            request.history = request.history.filter(|_| is_unknown);
            let is_known = || !is_unknown || history.rating() >= Rating::Slow;
            let handed_off = hooked_handoff::hand_off(domain, index, slot, request, is_known);
            if let Some(handed_off) = handed_off {
                return Some(Prepared::HandedOff(handed_off));
            }
        }
        let is_unrated = history.is_unrated();
        if !domain.observes() && (is_unrated || rating >= Rating::Slow) {
            handoff::flush_lifo();
        }
        is_unrated.then(|| Prepared::Unproven(History::begin_unproven(history)))
    });
    PREPARED.set(prepared.flatten());
}

/// Learns from a poll that has ended, and undoes what [`prepare`] did.
#[cold]
fn learn(hooked: Hooked, verdict: VerdictFlags) {
    drop(PREPARED.take());
    own_slot::with_domain(|domain, _| {
        let (became_slow, became_hog) = domain.records.learn(hooked.task, hooked.label, verdict);
        domain.counters.slow_tasks.add(usize::from(became_slow));
        domain.counters.hog_tasks.add(usize::from(became_hog));
        if hooked.has_ended {
            domain.records.forget(hooked.task);
        }
    });
}

/// Forgets a task that has ended. Tokio calls it in the last poll of the task, or when it drops the task.
pub(crate) fn ended(domain: &Domain, meta: &TaskMeta<'_>) {
    match HOOKED.try_with(Cell::get) {
        // Its last poll is still to be learned; the record would stay for ever.
        Ok(Some(hooked)) if hooked.task == meta.id() => HOOKED.set(Some(Hooked {
            has_ended: true,
            ..hooked
        })),
        _ => domain.records.forget(meta.id()),
    }
}

/// Marks the end of a task's poll. Tokio calls it after the poll.
pub(crate) fn after_poll(meta: &TaskMeta<'_>) {
    let Some(hooked) = HOOKED.get().filter(|hooked| hooked.task == meta.id()) else {
        return;
    };
    HOOKED.set(None);
    let verdict = hooked.verdict
        | hooked
            .seq
            .map_or(VerdictFlags::EMPTY, |seq| end(hooked, seq));
    if hooked.is_prepared || !verdict.is_empty() {
        learn(hooked, verdict);
    }
    if hooked.whole {
        // A thread that is being torn down counts nothing more.
        let _ = COUNTS.try_with(|counts| counts.count(hooked.label));
    }
}

fn begin(slot: SlotHandle, label: &'static Label) -> u64 {
    if !label.is_healthy() {
        own_slot::with_domain(|domain, index| {
            if !domain.histories.of(label).is_healthy() {
                domain.slots.private[index].stamp(slot.runtime.next_poll());
            }
        });
    }
    // Relaxed: `begin_poll` releases it.
    slot.runtime.label.store(label.id(), Ordering::Relaxed);
    let seq = slot.runtime.begin_poll();
    own_slot::notice(slot);
    seq
}

fn end(hooked: Hooked, seq: u64) -> VerdictFlags {
    let slot = handle::current();
    slot.runtime.end_poll(seq);
    let verdict = slot.kernel.verdict_for(seq);
    if verdict.contains(VerdictFlags::DEMOTED) {
        morpheus_system::nice::undo_own();
    }
    // The controller counts the stalled polls itself.
    if verdict.is_empty() && hooked.whole && !hooked.label.is_healthy() {
        own_slot::with_history(hooked.label, History::learn_good);
    }
    verdict
}

/// The task poll that a thread was in before it entered another domain.
pub(crate) struct PutAside(Option<Hooked>);

/// Sets the poll of the previous domain aside: the thread is about to poll tasks of another domain within it.
pub(crate) fn put_aside() -> PutAside {
    PutAside(HOOKED.take())
}

/// Restores the poll that [`put_aside`] returned, after the thread has left the other domain.
pub(crate) fn put_back(hooked: PutAside) {
    HOOKED.set(hooked.0);
}

/// Ends the mark of the task's poll until the guard is dropped, while a watched future with this label is polled. `None`
/// where there is no mark, or where it is paused already.
#[inline]
pub(crate) fn pause(label: &'static Label) -> Option<Paused> {
    let hooked = HOOKED.get()?;
    let seq = hooked.seq?;
    if std::ptr::eq(hooked.label, label) {
        label.note_marks_itself();
    }
    pause_slow(hooked, seq);
    Some(Paused(()))
}

fn pause_slow(hooked: Hooked, seq: u64) {
    let mut rest = Hooked {
        seq: None,
        whole: false,
        ..hooked
    };
    rest.verdict = rest.verdict | end(rest, seq);
    HOOKED.set(Some(rest));
}

/// Continues the mark when dropped; made by [`pause`].
#[must_use]
pub(crate) struct Paused(());

impl Drop for Paused {
    fn drop(&mut self) {
        if let Some(hooked) = HOOKED.get() {
            HOOKED.set(Some(Hooked {
                seq: Some(begin(own_slot::settled(handle::current()), hooked.label)),
                ..hooked
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::Location;
    use std::time::Duration;

    use morpheus_testing::wait_for;

    use super::*;
    use crate::report::label::{Origin, Totals};
    use crate::{Builder, Runtime, Watch as _};

    const NAP: Duration = Duration::from_millis(100);

    fn one_worker() -> Runtime {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).max_spares(4);
        builder.build().unwrap()
    }

    /// Spawns `future`, waits for it, and returns the totals of the caller's label after all threads have
    /// ended.
    #[track_caller]
    fn totals_of<F>(future: F) -> &'static Totals
    where
        F: Future<Output = ()> + Send + 'static,
    {
        totals_on(one_worker(), future)
    }

    #[track_caller]
    fn totals_on<F>(runtime: Runtime, future: F) -> &'static Totals
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let at = Location::caller();
        // Tracked through this function: the label is the test's line.
        let task = runtime.handle().spawn(future);
        runtime.block_on(task).unwrap();
        drop(runtime);
        &label::at(at).totals
    }

    async fn yields(times: u32) {
        for _ in 0..times {
            tokio::task::yield_now().await;
        }
    }

    #[test]
    fn polls_of_a_plain_task_are_counted() {
        let totals = totals_of(yields(99));
        assert_eq!(totals.polls.get(), 100);
    }

    #[test]
    fn a_watched_task_counts_once_and_under_its_own_label() {
        let outer = totals_of(yields(99).watched("hooks: once"));
        let inner = &label::of(Origin::Named("hooks: once")).totals;
        assert_eq!(inner.polls.get(), 100);
        assert_eq!(outer.polls.get(), 0);
    }

    #[test]
    fn a_stalled_poll_of_a_watched_task_is_stalled_once() {
        let stalled = async { std::thread::sleep(NAP) };
        let outer = totals_of(stalled.watched("hooks: stalled once"));
        let inner = &label::of(Origin::Named("hooks: stalled once")).totals;
        assert_eq!(inner.stalled_polls.get(), 1);
        assert_eq!(outer.stalled_polls.get(), 0);
    }

    #[test]
    fn the_parts_before_and_after_a_watched_future_are_watched() {
        let before = totals_of(async {
            std::thread::sleep(NAP);
            yields(0).watched("hooks: before").await;
        });
        assert_eq!(before.stalled_polls.get(), 1);
        let after = totals_of(async {
            yields(0).watched("hooks: after").await;
            std::thread::sleep(NAP);
        });
        assert_eq!(after.stalled_polls.get(), 1);
    }

    /// A few polls may be stalled: the pool may be late with a thread that takes the core over.
    #[test]
    fn a_task_that_handed_its_core_over_is_not_stalled() {
        let inline = totals_of(async {
            for _ in 0..10 {
                std::thread::sleep(NAP);
                tokio::task::yield_now().await;
            }
        });
        assert!(inline.stalled_polls.get() >= 8, "{inline:?}");
        // Without handoffs: a task that was found stalled once is handed off from then on, and its polls are as long.
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).max_spares(4).max_handoffs(0);
        let in_handoff = totals_on(builder.build().unwrap(), async {
            for _ in 0..10 {
                tokio::task::block_in_place(|| std::thread::sleep(NAP));
                tokio::task::yield_now().await;
            }
        });
        assert!(in_handoff.stalled_polls.get() <= 5, "{in_handoff:?}");
    }

    /// A hook that handed its task off as well would hold a permit, and a thread, while the task waits for a permit of its own.
    #[test]
    fn a_task_that_watches_itself_is_handed_off_once_a_poll() {
        let runtime = one_worker();
        let task = runtime.block_on(async {
            crate::spawn(async {
                for _ in 0..5 {
                    std::thread::sleep(NAP / 4);
                    tokio::task::yield_now().await;
                }
            })
        });
        runtime.block_on(task).unwrap();
        // Six polls, the last of which only ends the task. With the hook it is eight.
        let handed_off = runtime.metrics().handoff_polls;
        assert!((4..=6).contains(&handed_off), "{handed_off}");
    }

    #[test]
    fn a_task_that_ended_in_a_long_poll_leaves_no_record() {
        let runtime = one_worker();
        let domain = runtime.domain().clone();
        let task = runtime.handle().spawn(async { std::thread::sleep(NAP) });
        let id = task.id();
        runtime.block_on(task).unwrap();
        // The end of the poll follows the end of the task.
        wait_for("the poll is learned", || {
            domain.counters.slow_tasks.get() == 1
        });
        drop(runtime);
        assert!(domain.records.rating(id).is_clean());
        assert_eq!(domain.records.len(), 0);
    }

    /// The label may become healthy while the poll is under way.
    #[test]
    fn a_handed_off_poll_gives_its_permit_back() {
        let runtime = one_worker();
        let domain = runtime.domain().clone();
        let own = domain.clone();
        let is_handed_off = async move {
            let slot = handle::current().runtime;
            assert!(slot.has_flag(morpheus_common::slot::SlotFlag::Handoff));
            let label = label::by_id(slot.label.load(Ordering::Relaxed)).unwrap();
            for _ in 0..64 {
                own.histories.of(label).learn_good();
            }
            assert!(label.is_healthy());
        };
        let is_long = async { std::thread::sleep(NAP) };
        let futures: [std::pin::Pin<Box<dyn Future<Output = ()> + Send>>; 2] =
            [Box::pin(is_long), Box::pin(is_handed_off)];
        for future in futures {
            let task = runtime.handle().spawn(future);
            runtime.block_on(task).unwrap();
        }
        // The end of the poll follows the end of the task.
        wait_for("the permit is back", || domain.permits.handoffs().0 == 0);
    }

    #[test]
    fn a_poll_that_panics_has_ended() {
        let runtime = one_worker();
        for _ in 0..3 {
            let task = runtime.handle().spawn(async { panic!("on purpose") });
            assert!(runtime.block_on(task).is_err());
        }
        let last = runtime.handle().spawn(async {
            let slot = handle::current();
            slot.is_taken() && slot.runtime.in_poll()
        });
        assert!(runtime.block_on(last).unwrap());
    }

    #[test]
    fn held_spares_and_no_ops_are_not_watched() {
        let runtime = one_worker();
        runtime
            .handle()
            .spawn(async { std::thread::sleep(4 * NAP) });
        std::thread::sleep(4 * NAP);
        let metrics = runtime.metrics();
        assert!(metrics.debug.canaries > 0 && metrics.debug.spares_peak > 0);
        drop(runtime);
        for label in label::all().filter(|label| label.is_own()) {
            let totals = &label.totals;
            assert_eq!((totals.polls.get(), totals.stalled_polls.get()), (0, 0));
        }
    }
}
