//! Watches every task under the place that spawned it, through tokio's task hooks (`--cfg tokio_unstable`).
//!
//! A hooked poll is marked in the thread's slot as a [`Watched`](crate::Watched) one is. So the controller
//! samples it, asks it to yield, takes over from it and reports it alike. A poll of a slow task is handed off before it
//! begins ([`hooked_handoff`](crate::poll::hooked_handoff)).
//!
//! **One poll counts once.** A watched future inside the task has a mark of its own, with its own label. So
//! the task's mark is [paused](pause) while that future is polled. The parts before and after are watched.
//! The poll is counted for the task's label when it begins, and taken back when it is paused. Tasks that [`spawn`](crate::spawn)
//! makes are such futures as a whole, with the label of the task: they wait for permits without a thread, and no hook waits for them.
//! While they are healthy, the [mark of the task](join) serves for both.
//!
//! A thread that hands its core over inside the poll (`block_in_place`) stays in the poll, but no task waits
//! behind it. The watchdog asks tokio for that before it calls the poll stalled. Morpheus's own tasks, above
//! all the hold tasks of spares, are not watched.

use std::cell::{Cell, RefCell};
use std::mem::ManuallyDrop;
use std::num::NonZeroU64;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use morpheus_common::slot::VerdictFlags;
use tokio::runtime::TaskMeta;
use tokio::task::Id;

use crate::act::permit::Class;
use crate::decide::history::{History, InProgress};
use crate::decide::rating::{self, Rating};
use crate::domain::Domain;
use crate::poll::handoff::HandoffMark;
use crate::poll::hooked_handoff;
use crate::poll::mark::{PollMark, undo_demotion};
use crate::poll::own_verdict::{self, Began, Stalled};
use crate::poll::{handoff, known, labels, own_slot, short_polls};
use crate::report::label::Label;
use morpheus_link::handle::{self, SlotHandle};
use morpheus_system::slice;

/// The task poll that this thread is in.
#[derive(Clone, Copy)]
struct Hooked {
    task: Id,
    /// Where it was spawned, and the label of that.
    location: &'static Location<'static>,
    label: &'static Label,
    /// The sequence number of the part under way; `None` while the mark is paused.
    seq: Option<NonZeroU64>,
    /// Whether no watched future inside had a mark of its own.
    whole: bool,
    /// Whether [`prepare`] was called for the poll, so that [`learn`] has to be.
    is_prepared: bool,
    /// The verdict on the parts that have ended.
    verdict: VerdictFlags,
}

/// The preparation for a poll of a task whose label is not healthy. Undone when it is dropped.
enum Prepared {
    HandedOff(
        #[expect(dead_code, reason = "dropped after the poll")] HandoffMark,
        #[expect(dead_code, reason = "dropped after the poll")] Option<InProgress>,
        Began,
    ),
    Unproven(#[expect(dead_code, reason = "dropped after the poll")] InProgress),
}

/// The poll that this thread is in, in two forms: a healthy service's polls are *plain*, and their hooks write two words.
#[derive(Clone)]
struct Current {
    /// The task, in a plain poll: its label is healthy, and its mark has not been paused.
    plain: Cell<Option<Id>>,
    /// Where the task of a plain poll was spawned.
    location: Cell<Option<&'static Location<'static>>>,
    /// A poll that is not plain.
    other: Cell<Option<Hooked>>,
    /// The task that ended last on this thread: tokio says so before the end of its last poll.
    ended: Cell<Option<Id>>,
}

impl Current {
    const fn new() -> Current {
        Current {
            plain: Cell::new(None),
            location: Cell::new(None),
            other: Cell::new(None),
            ended: Cell::new(None),
        }
    }

    fn get(&self) -> Option<Hooked> {
        let Some(task) = self.plain.get() else {
            return self.other.get();
        };
        let location = self.location.get()?;
        Some(Hooked {
            task,
            location,
            label: labels::at(location),
            seq: handle::current().runtime.poll_under_way(),
            whole: true,
            is_prepared: false,
            verdict: VerdictFlags::EMPTY,
        })
    }

    fn set(&self, hooked: Option<Hooked>) {
        self.plain.set(None);
        self.other.set(hooked);
    }
}

thread_local! {
    static CURRENT: Current = const { Current::new() };
    static PREPARED: RefCell<Option<Prepared>> = const { RefCell::new(None) };
}

/// Marks the beginning of a poll of a task of `own`. Tokio calls it before the poll.
///
/// The thread may be one of another domain ([`own_slot::is_of`]). That is asked on the slow paths alone, which claim slots, make records and
/// hand polls off. A poll of a healthy label is then marked in the slot that the thread has, as a watched future is there.
#[inline]
pub(crate) fn before_poll(own: &Arc<Domain>, meta: &TaskMeta<'_>) {
    let slot = handle::current();
    // The stand-in of a thread without a slot is never settled.
    if slot.runtime.in_poll() || !slot.is_settled() {
        return before_other_poll(own, meta);
    }
    let location = meta.spawned_at();
    let Some(label) = labels::count_healthy(location) else {
        return before_other_poll(own, meta);
    };
    CURRENT.with(|current| {
        current.plain.set(Some(meta.id()));
        current.location.set(Some(location));
    });
    short_polls::count(meta.id());
    mark(slot, label);
}

/// Does the same for a label that is not healthy, or on a thread whose slot is not ready for a poll.
#[cold]
fn before_other_poll(own: &Arc<Domain>, meta: &TaskMeta<'_>) {
    let location = meta.spawned_at();
    let label = labels::at(location);
    if label.is_own() || !own_slot::is_of(own) || own_slot::claim().is_none() {
        return;
    }
    let slot = handle::current();
    if slot.runtime.in_poll() {
        // No version of tokio nests these calls. The poll that is under way keeps its mark.
        return;
    }
    let slot = own_slot::settled(slot);
    let is_prepared = !label.is_healthy() && !label.marks_itself();
    if is_prepared {
        prepare(meta.id(), label, slot);
    }
    let hooked = Hooked {
        task: meta.id(),
        location,
        label,
        seq: begin(slot, label),
        whole: true,
        is_prepared,
        verdict: VerdictFlags::EMPTY,
    };
    labels::count(location);
    CURRENT.with(|current| current.set(Some(hooked)));
}

/// Hands off the poll of a slow task. A poll of a task that is not known runs inline, and what queues behind it moves to where
/// other workers steal.
#[cold]
fn prepare(task: Id, label: &'static Label, slot: SlotHandle) {
    let prepared = own_slot::with_domain(|domain, index| {
        let history = domain.histories.of(label);
        let own = domain.records.enter(task, label);
        // Short polls of such a task say nothing about its next.
        let mixes = history.mixes();
        if own.is_proven() && !mixes {
            return None;
        }
        // A task that had long polls is judged by them alone: a poll that waited for a lock does not make it a hog among hogs.
        let is_unknown = own.is_clean();
        let had_short = match is_unknown {
            true => short_polls::of(task).saturating_add(own.good_polls()),
            false => 0,
        };
        // Relaxed: a hint. While it is false, there is a spare for the case that this poll is a long one all the same.
        let has_spare = !domain.spares_scarce.load(Ordering::Relaxed);
        if has_spare && (mixes || had_short >= rating::PROVEN_AFTER) {
            return None;
        }
        let rating = match is_unknown {
            true => history.rating(),
            false => own.rating(),
        };
        // A task that has shown nothing yet, among tasks of which some had long polls: its first polls are handed off, so that
        // no worker is stalled to find out.
        let is_untried_slow = is_unknown && history.rates_untried_slow();
        let is_slow = mixes || is_untried_slow || rating >= Rating::Slow;
        let has_room = mixes || !is_unknown || history.has_room_for_untried();
        if has_room && known::wants_handoff(domain, is_slow, history) && known::can_hand_off(domain)
        {
            // Also while it waits for its permit.
            let untried = is_unknown.then(|| History::begin_untried(history));
            let mut request = known::request(domain, domain.settings.demotable, rating, history, 0);
            request.blocks_thread = true;
            if mixes {
                request.class = Class::Mixed;
            } else if is_unknown {
                request.class = Class::Untried;
                request.short_polls = had_short;
            }
            let handed_off = hooked_handoff::hand_off(domain, index, slot, request);
            if let Some(handed_off) = handed_off {
                return Some(Prepared::HandedOff(handed_off, untried, Began::now()));
            }
        }
        let is_unrated = history.is_unrated();
        if !domain.observes() && (is_unrated || rating >= Rating::Slow) {
            handoff::flush_lifo();
        }
        is_unrated.then(|| Prepared::Unproven(History::begin_unproven(history)))
    });
    // Dropped after the borrow of the thread-local has ended.
    drop(PREPARED.replace(prepared.flatten()));
}

/// Learns from a poll that has ended, and undoes what [`prepare`] did, if it was called.
#[cold]
fn learn(
    own: &Arc<Domain>,
    task: Id,
    label: &'static Label,
    verdict: VerdictFlags,
    is_prepared: bool,
) {
    // Another domain has found the poll long, by its own budget.
    if !own_slot::is_of(own) {
        return;
    }
    let prepared = PREPARED.take();
    if matches!(prepared, Some(Prepared::HandedOff(..))) {
        // The thread has no core any more, and may serve blocking calls of the application.
        slice::leave_worker();
    }
    drop(prepared);
    let learned = own.records.learn(task, label, verdict, is_prepared);
    let counters = &own.counters;
    counters.slow_tasks.add(usize::from(learned.became_slow));
    counters.hog_tasks.add(usize::from(learned.became_hog));
    if let Some(is_repeated) = learned.is_repeated {
        own.histories.of(label).learn_repeated(is_repeated);
    }
    // The record that was made just now would stay for ever.
    if CURRENT.with(|current| current.ended.get()) == Some(task) {
        forget(own, task);
    }
}

/// Forgets the record of a task that has ended.
fn forget(domain: &Domain, task: Id) {
    if let Some(label) = domain.records.forget(task) {
        domain.histories.of(label).learn_repeated(false);
    }
}

/// Forgets a task that has ended. Tokio calls it in the last poll of the task, or when it drops the task.
pub(crate) fn ended(domain: &Domain, meta: &TaskMeta<'_>) {
    let task = meta.id();
    // A verdict that is still due on its last poll would make a new record.
    let will_learn = CURRENT.with(|current| {
        current.ended.set(Some(task));
        let other = current.other.get();
        other.is_some_and(|hooked| hooked.task == task && hooked.is_prepared)
    });
    if !will_learn {
        forget(domain, task);
    }
}

/// Marks the end of a poll of a task of `own`. Tokio calls it after the poll.
#[inline]
pub(crate) fn after_poll(own: &Arc<Domain>, meta: &TaskMeta<'_>) {
    let is_plain = CURRENT.with(|current| {
        let is_plain = current.plain.get() == Some(meta.id());
        if is_plain {
            current.plain.set(None);
        }
        is_plain
    });
    if !is_plain {
        return after_other_poll(own, meta);
    }
    let Some(seq) = handle::current().runtime.poll_under_way() else {
        return;
    };
    let verdict = end_mark(seq);
    if !verdict.is_empty() {
        after_stalled_poll(own, meta, verdict);
    }
}

/// Does the same if the label was not healthy, or the mark was paused.
#[cold]
fn after_other_poll(own: &Arc<Domain>, meta: &TaskMeta<'_>) {
    let task = meta.id();
    let ended = CURRENT.with(|current| {
        let ended = current.other.get().filter(|hooked| hooked.task == task)?;
        current.set(None);
        Some(ended)
    });
    let Some(hooked) = ended else { return };
    let seen = seen_by_itself(own, &hooked);
    let last = hooked.seq.map(end);
    let verdict = hooked.verdict | last.unwrap_or_default();
    let verdict = own_verdict::or_own(verdict, seen, || own.histories.of(hooked.label));
    // Also if watched futures took a part of it: the rest is the label's.
    let learns = verdict.is_empty() && !hooked.label.is_healthy();
    if learns && (hooked.whole || !hooked.label.marks_itself()) {
        // The controller counts the stalled polls itself.
        own_slot::with_history(hooked.label, History::learn_good);
    }
    if hooked.is_prepared || learns_verdict(hooked.label, verdict) {
        learn(own, task, hooked.label, verdict, hooked.is_prepared);
    }
}

/// The thread's own observation of its poll, which is about to end, if that was handed off and is stalled.
fn seen_by_itself(own: &Domain, hooked: &Hooked) -> Option<Stalled> {
    if !(hooked.whole && hooked.is_prepared) {
        return None;
    }
    PREPARED.with_borrow(|prepared| match prepared {
        Some(Prepared::HandedOff(.., began)) => began.ends(&own.settings),
        _ => None,
    })
}

/// Learns from a plain poll with a verdict, whose mark has ended.
#[cold]
fn after_stalled_poll(own: &Arc<Domain>, meta: &TaskMeta<'_>, verdict: VerdictFlags) {
    undo_demotion(verdict);
    let label = labels::at(meta.spawned_at());
    if learns_verdict(label, verdict) {
        learn(own, meta.id(), label, verdict, false);
    }
}

/// Whether a task of this label learns from the verdict. The watched future that a task is learns by itself.
fn learns_verdict(label: &Label, verdict: VerdictFlags) -> bool {
    !verdict.is_empty() && !label.marks_itself()
}

fn begin(slot: SlotHandle, label: &'static Label) -> Option<NonZeroU64> {
    if !label.is_healthy() {
        own_slot::with_domain(|domain, index| {
            if !domain.histories.of(label).is_healthy() {
                domain.slots.private[index].stamp(slot.runtime.next_poll());
            }
        });
    }
    mark(slot, label)
}

/// Marks the beginning of a poll in the slot. No guard marks its end.
#[inline]
fn mark(slot: SlotHandle, label: &'static Label) -> Option<NonZeroU64> {
    let mark = ManuallyDrop::new(PollMark::begin(slot, label));
    NonZeroU64::new(mark.seq)
}

/// Marks the end of a poll in the slot, and returns the verdict on it.
#[inline]
fn end_mark(seq: NonZeroU64) -> VerdictFlags {
    let slot = handle::current();
    slot.runtime.end_poll(seq.get());
    slot.kernel.verdict_for(seq.get())
}

fn end(seq: NonZeroU64) -> VerdictFlags {
    let verdict = end_mark(seq);
    undo_demotion(verdict);
    verdict
}

/// The task poll that a thread was in before it entered another domain, and what was prepared for it.
pub(crate) struct PutAside(Current, Option<Prepared>);

/// Sets the poll of the previous domain aside: the thread is about to poll tasks of another domain within it. Its mark stays in
/// the slot of that domain.
pub(crate) fn put_aside() -> PutAside {
    CURRENT.with(|current| {
        let before = current.clone();
        current.set(None);
        // A poll of the other domain would take its place, and so give the permit back in the middle of this poll.
        PutAside(before, PREPARED.take())
    })
}

/// Restores the poll that [`put_aside`] returned, after the thread has left the other domain.
pub(crate) fn put_back(PutAside(before, prepared): PutAside) {
    drop(PREPARED.replace(prepared));
    CURRENT.with(|current| {
        current.plain.swap(&before.plain);
        current.location.swap(&before.location);
        current.other.swap(&before.other);
    });
}

/// Lets the mark of a plain poll serve for the watched future with the same label that the task is. While the guard lives, a
/// watched future inside lends its label to the poll, as inside any other watched one.
#[inline]
pub(crate) fn join(label: &'static Label, slot: SlotHandle) -> Option<Joined> {
    let task = CURRENT.with(|current| current.plain.get())?;
    // Relaxed: the thread's own word.
    if slot.runtime.label.load(Ordering::Relaxed) != label.id() {
        return None;
    }
    let seq = slot.runtime.poll_under_way()?;
    CURRENT.with(|current| current.plain.set(None));
    Some(Joined { task, seq })
}

/// A plain poll, from the beginning of its watched future until this is dropped; made by [`join`].
#[must_use]
pub(crate) struct Joined {
    task: Id,
    pub(crate) seq: NonZeroU64,
}

impl Drop for Joined {
    #[inline]
    fn drop(&mut self) {
        CURRENT.with(|current| current.plain.set(Some(self.task)));
    }
}

/// Ends the mark of the task's poll until the guard is dropped, while a watched future is polled. `None` where there is no
/// mark, or where it is paused already.
#[inline]
pub(crate) fn pause() -> Option<Paused> {
    let is_marked =
        CURRENT.with(|current| current.plain.get().is_some() || current.other.get().is_some());
    if is_marked { pause_marked() } else { None }
}

#[cold]
fn pause_marked() -> Option<Paused> {
    let mut hooked = CURRENT.with(Current::get)?;
    let seq = hooked.seq.take()?;
    if hooked.whole {
        labels::take_back(hooked.location);
    }
    hooked.whole = false;
    hooked.verdict = hooked.verdict | end(seq);
    CURRENT.with(|current| current.set(Some(hooked)));
    Some(Paused(()))
}

/// Continues the mark when dropped; made by [`pause`].
#[must_use]
pub(crate) struct Paused(());

impl Drop for Paused {
    fn drop(&mut self) {
        CURRENT.with(|current| {
            if let Some(hooked) = current.other.get() {
                let seq = begin(own_slot::settled(handle::current()), hooked.label);
                current.set(Some(Hooked { seq, ..hooked }));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize};
    use std::time::{Duration, Instant};

    use morpheus_common::slot::SlotFlag;
    use morpheus_testing::wait_for;

    use super::*;
    use crate::report::label::{self, Origin, Totals};
    use crate::{Builder, Runtime, Watch as _};

    const NAP: Duration = Duration::from_millis(100);

    fn of_one_worker() -> Builder {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).max_spares(4);
        builder
    }

    fn one_worker() -> Runtime {
        of_one_worker().build().unwrap()
    }

    /// One worker that polls the test's tasks alone: a canary is a task, and marked, as any other.
    fn worker_without_canaries() -> Runtime {
        let mut builder = of_one_worker();
        #[cfg(feature = "unstable-ablation")]
        builder.without(crate::Mechanism::Canary);
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

    /// Its future is dropped after its last poll, within the poll of the task.
    struct Lingers(Duration);

    impl Future for Lingers {
        type Output = ();

        fn poll(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<()> {
            std::task::Poll::Ready(())
        }
    }

    impl Drop for Lingers {
        fn drop(&mut self) {
            std::thread::sleep(self.0);
        }
    }

    #[test]
    fn the_mark_of_a_task_serves_for_the_watched_future_that_it_is() {
        let runtime = worker_without_canaries();
        let at = Location::caller();
        let _context = runtime.enter();
        let spawn = |future: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>| {
            runtime.block_on(crate::spawn(future)).unwrap();
        };
        let seq = || handle::current().runtime.poll_under_way().unwrap().get();
        spawn(Box::pin(yields(40)));
        spawn(Box::pin(async move {
            let first = seq();
            for turn in 1..=50 {
                tokio::task::yield_now().await;
                assert_eq!(seq(), first + 2 * turn, "one mark a poll");
                let outer = seq();
                let within = async move { assert_eq!(seq(), outer, "a label that is lent") };
                within.watched("hooks: within a joined poll").await;
                assert_eq!(seq(), outer);
            }
        }));
        spawn(Box::pin(Lingers(Duration::ZERO)));
        spawn(Box::pin(Lingers(NAP)));
        drop(_context);
        drop(runtime);
        let label = label::all().find(|label| match label.origin() {
            Origin::At(own) => own.file() == at.file() && own.line() == at.line() + 3,
            _ => false,
        });
        let totals = &label.unwrap().totals;
        assert_eq!(totals.polls.get(), 41 + 51 + 1 + 1);
        assert_eq!(totals.stalled_polls.get(), 1, "the drop");
        let inner = &label::of(Origin::Named("hooks: within a joined poll")).totals;
        assert_eq!(inner.polls.get(), 50);
    }

    /// Its polls are never whole.
    #[test]
    fn a_task_around_a_watched_future_becomes_healthy() {
        let outer = totals_of(yields(40).watched("hooks: around"));
        let is_outer = |label: &&'static Label| std::ptr::eq(&raw const label.totals, outer);
        assert!(label::all().find(is_outer).unwrap().is_healthy());
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
        let context = runtime.enter();
        let task = crate::spawn(async {
            for _ in 0..5 {
                std::thread::sleep(NAP / 4);
                tokio::task::yield_now().await;
            }
        });
        drop(context);
        runtime.block_on(task).unwrap();
        // Six polls, the last of which only ends the task. With the hook it is eight.
        let handed_off = runtime.metrics().handoff_polls;
        assert!((4..=6).contains(&handed_off), "{handed_off}");
    }

    /// A slow future inside has no core to hand off any more, and its end must not end the mark of the task's own handoff.
    #[test]
    fn a_slow_future_inside_a_handed_off_poll_is_not_handed_off_again() {
        let runtime = one_worker();
        let (handed_off, inside) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (own, within) = (handed_off.clone(), inside.clone());
        let task = runtime.handle().spawn(async move {
            for _ in 0..8 {
                async { std::thread::sleep(NAP / 4) }
                    .watched("inside")
                    .await;
                let is_handed_off = handle::current().runtime.has_flag(SlotFlag::Handoff);
                within.fetch_add(1, Ordering::Relaxed);
                own.fetch_add(usize::from(is_handed_off), Ordering::Relaxed);
                std::thread::sleep(NAP / 4);
                tokio::task::yield_now().await;
            }
        });
        runtime.block_on(task).unwrap();
        let polls = runtime.metrics().handoff_polls;
        let (inside, handed_off) = (
            inside.load(Ordering::Relaxed),
            handed_off.load(Ordering::Relaxed),
        );
        // The first poll is not known to be long, and the ninth only ends the task.
        assert_eq!(inside, 8);
        assert!(
            handed_off >= 6,
            "{handed_off} of 8 were still handed off after the future inside"
        );
        assert!(polls <= 9, "{polls} handoffs for nine polls");
    }

    /// Another runtime's tasks are polled in the middle of a handed off poll.
    #[test]
    fn a_permit_is_kept_while_the_thread_serves_another_runtime() {
        let runtime = one_worker();
        let domain = runtime.domain().clone();
        let work = |domain: Arc<Domain>| async move {
            let state = || {
                let slot = handle::current().runtime;
                (
                    slot.has_flag(SlotFlag::Handoff),
                    domain.permits.handoffs().0,
                )
            };
            // Its first polls are not known to be long.
            while state() != (true, 1) {
                std::thread::sleep(NAP / 4);
                tokio::task::yield_now().await;
            }
            tokio::task::block_in_place(|| {
                let other = Builder::new_current_thread().build().unwrap();
                let task = async { tokio::spawn(async {}).await.unwrap() };
                other.block_on(task);
            });
            state()
        };
        let task = runtime.handle().spawn(work(domain.clone()));
        let after = runtime.block_on(task).unwrap();
        assert_eq!(after, (true, 1), "handed off, with a permit");
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
            assert!(slot.has_flag(SlotFlag::Handoff));
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

    /// All tasks are of one label, as the connections of a server are.
    #[test]
    fn a_task_with_short_polls_does_not_wait_behind_the_hogs_of_its_label() {
        let runtime = one_worker();
        let domain = runtime.domain().clone();
        let go_on = Arc::new(tokio::sync::Notify::new());
        let stop = Arc::new(AtomicBool::new(false));
        let work = |waits_for: Option<Arc<tokio::sync::Notify>>| {
            let stop = stop.clone();
            async move {
                if let Some(go_on) = waits_for {
                    return go_on.notified().await;
                }
                while !stop.load(Ordering::Relaxed) {
                    let end = Instant::now() + 2 * NAP;
                    while Instant::now() < end {
                        std::hint::spin_loop();
                    }
                    tokio::task::yield_now().await;
                }
            }
        };
        let waits_for = std::iter::once(Some(go_on.clone())).chain((0..16).map(|_| None));
        let mut tasks: Vec<_> = waits_for
            .map(|waits_for| runtime.handle().spawn(work(waits_for)))
            .collect();
        let is_hog = || {
            let mut histories = domain.histories.all();
            histories.any(|history| history.rating() == Rating::Hog)
        };
        wait_for("the hogs wait for each other", || {
            is_hog() && domain.permits.waiting() > 8
        });
        let asked = Instant::now();
        go_on.notify_one();
        runtime.block_on(tasks.swap_remove(0)).unwrap();
        let waited = asked.elapsed();
        stop.store(true, Ordering::Relaxed);
        for task in tasks {
            runtime.block_on(task).unwrap();
        }
        // Behind eight hogs it would be 0.8 s on two CPUs.
        assert!(waited < 3 * NAP, "{waited:?}");
    }

    /// A poll that slept with a core would keep it from all other tasks.
    #[test]
    fn a_poll_that_was_handed_off_has_no_core() {
        static WITH_CORE: AtomicU32 = AtomicU32::new(0);
        static HANDED_OFF: AtomicU32 = AtomicU32::new(0);
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(2).max_spares(2);
        let runtime = builder.build().unwrap();
        let sleeps = async || {
            for _ in 0..50 {
                if handle::current().runtime.has_flag(SlotFlag::Handoff) {
                    HANDED_OFF.fetch_add(1, Ordering::Relaxed);
                    WITH_CORE.fetch_add(u32::from(handoff::has_core()), Ordering::Relaxed);
                }
                std::thread::sleep(NAP / 20);
                tokio::task::yield_now().await;
            }
        };
        let tasks: Vec<_> = (0..64).map(|_| runtime.handle().spawn(sleeps())).collect();
        for task in tasks {
            runtime.block_on(task).unwrap();
        }
        assert!(HANDED_OFF.load(Ordering::Relaxed) > 2_000);
        assert_eq!(WITH_CORE.load(Ordering::Relaxed), 0);
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
