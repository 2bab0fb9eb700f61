//! Watched futures: each poll leaves its mark in the thread's slot.
//!
//! A poll of a future of which nothing bad is known costs two stores to the thread's own cache line and
//! one look at the verdict word; no clock is read. Futures with a record take the slow way, which may
//! poll them in place and make them wait for a permit.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};

use morpheus_common::ladder::Policy;
use morpheus_common::slot::{SlotFlag, VerdictFlags};

use crate::clock;
use crate::domain::Domain;
use crate::history::History;
use crate::in_place;
use crate::label::{self, Label, Origin};
use crate::names;
use crate::offender::{Offender, Record, Standing};
use crate::permit::{Answer, Class, NoPermit, Permit, Request, Waiter};
use crate::seat::{self, Seat};

/// A throttled offender gets one part in this many of a CPU.
const THROTTLED_SHARE: u64 = 4;

/// Who is to be polled inline is, after so many tries to leave nothing behind, whatever is.
const TRIES_INLINE: u8 = 8;

/// Polls are added to the label's total in lots of this size, so that the label's cache line stays put.
const POLLS_A_LOT: u16 = 256;

pin_project_lite::pin_project! {
    /// A future that is watched while it is polled; made by [`watch`] and [`Watch::watched`].
    ///
    /// A poll may return `Pending` without polling the future inside; see [`watch`].
    #[must_use = "futures do nothing unless polled"]
    #[derive(Debug)]
    pub struct Watched<F> {
        #[pin]
        future: F,
        file: File,
    }
}

/// What is known of one watched future. The reference points to the label, which lives for ever.
#[derive(Debug)]
struct File {
    label: &'static Label,
    waiter: Option<Arc<Waiter>>,
    not_before_ns: u64,
    polls: u16,
    record: Record,
    /// It is escapable if the runtime says so. Two bytes and no `Option<bool>`: comparing that with `None` costs a poll up to
    /// three instructions.
    escapable_by_default: bool,
    /// What it says itself, where it does.
    escapable: bool,
    may_offend: bool,
    /// So often it was to be polled inline, and its worker lost its core over what that takes.
    tries_inline: u8,
}

/// What a watched task has more than another. Tokio puts tasks on whole lines of 128 bytes, so that eight bytes more can be
/// another line.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<File>() == 32);

impl Drop for File {
    fn drop(&mut self) {
        self.count_polls();
        if let Some(waiter) = self.waiter.take() {
            waiter.leave();
        }
    }
}

impl File {
    fn count_polls(&mut self) {
        let polls = std::mem::take(&mut self.polls);
        self.label
            .totals
            .polls
            .fetch_add(u64::from(polls), Ordering::Relaxed);
    }

    /// Nothing is known, so nothing has to be looked up.
    #[inline]
    fn is_clean(&self) -> bool {
        self.record.is_clean()
            && self.waiter.is_none()
            && self.escapable_by_default
            && self.label.is_calm()
    }

    /// What the task says, if it says anything.
    fn own_escapable(&self) -> Option<bool> {
        (!self.escapable_by_default).then_some(self.escapable)
    }

    /// Counts a poll. It wraps, which only a future can reach that panics in 65,536 polls in a row: any other one's
    /// are added to the label's total before.
    #[inline]
    fn count_poll(&mut self) {
        self.polls = self.polls.wrapping_add(1);
    }

    fn standing(&self, history: &History) -> Standing {
        self.record.standing().max(history.standing())
    }
}

pub(crate) struct Options {
    pub(crate) label: &'static Label,
    /// `None`: as the runtime says.
    pub(crate) escapable: Option<bool>,
    pub(crate) offender: Offender,
}

impl<F> Watched<F> {
    pub(crate) fn with(future: F, options: Options) -> Watched<F> {
        Watched {
            future,
            file: File {
                label: options.label,
                waiter: None,
                not_before_ns: 0,
                polls: 0,
                record: Record::clean(),
                escapable_by_default: options.escapable.is_none(),
                escapable: options.escapable.unwrap_or_default(),
                may_offend: options.offender == Offender::Allowed,
                tries_inline: 0,
            },
        }
    }

    pub(crate) fn labelled(future: F, label: &'static Label) -> Watched<F> {
        Watched::with(
            future,
            Options {
                label,
                escapable: None,
                offender: Offender::Allowed,
            },
        )
    }
}

/// Watches a future that is part of somebody else's task, under the place of this call as its label.
///
/// Works on every runtime. On Morpheus's a stuck poll is asked to yield, worked around and remembered;
/// on a plain tokio runtime it is asked and reported, and offenders are polled in place where tokio
/// allows it (a worker of a multi-thread runtime). A watched future inside another watched one lends its
/// label to the time it is polled.
///
/// In a program built with `panic = "abort"` no poll runs in place on a plain tokio runtime, nor on the first worker of one
/// of Morpheus's: tokio says by a panic that it does not allow it there.
///
/// A poll may return `Pending` without polling the future inside, once this future or its label was found slow: it waits
/// for a permit then, and is woken when it has one. So code that polls once and gives up (`now_or_never`, a timeout of
/// zero) can find nothing although the future inside is ready. Watch such a future from outside of that code, or use
/// [`Offender::Never`](crate::task::Offender::Never), which never waits.
///
/// ```
/// # #[morpheus_runtime::main(worker_threads = 1, max_spares = 1)]
/// # async fn main() {
/// let sum = morpheus_runtime::watch(async { (1..=10).sum::<u32>() }).await;
/// assert_eq!(sum, 55);
/// # }
/// ```
#[track_caller]
pub fn watch<F: Future>(future: F) -> Watched<F> {
    Watched::labelled(future, label::at(std::panic::Location::caller()))
}

/// [`watch`] as a method, with a name for the label.
pub trait Watch: Future + Sized {
    /// Watches the future under a name: everything under one name shares one record on each runtime.
    ///
    /// ```
    /// use morpheus_runtime::Watch as _;
    ///
    /// # #[morpheus_runtime::main(worker_threads = 1, max_spares = 1)]
    /// # async fn main() {
    /// let answer = async { 42 }.watched("answers").await;
    /// assert_eq!(answer, 42);
    /// # }
    /// ```
    fn watched(self, label: &'static str) -> Watched<Self> {
        Watched::labelled(self, label::of(Origin::Named(label)))
    }

    /// The same, under a name that is made while the program runs. Labels live for ever, so a process keeps the
    /// first 1024 such names, cut off after 96 bytes, and what comes later shares one.
    ///
    /// ```
    /// use morpheus_runtime::Watch as _;
    ///
    /// # #[morpheus_runtime::main(worker_threads = 1, max_spares = 1)]
    /// # async fn main() {
    /// for kind in ["mail", "invoice"] {
    ///     async { 42 }.watched_as(&format!("job: {kind}")).await;
    /// }
    /// # }
    /// ```
    fn watched_as(self, label: &str) -> Watched<Self> {
        Watched::labelled(self, names::GIVEN.label(format_args!("{label}")))
    }
}

impl<F: Future> Watch for F {}

impl<F: Future> Future for Watched<F> {
    type Output = F::Output;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        if seat::claim().is_none() {
            // More threads than seats: unwatched, and counted as such.
            return this.future.poll(cx);
        }
        // The mark of the task around it, if it has one: this poll gets its own.
        #[cfg(tokio_unstable)]
        let _paused = crate::hooks::pause();
        let seat = seat::current();
        if seat.runtime.in_poll() {
            return poll_within(this.future, this.file, seat, cx);
        }
        let seat = seat.settled();
        this.file.count_poll();
        if !this.file.is_clean() {
            return poll_known(this.future, this.file, seat, cx);
        }
        let (result, verdict) = poll_inline(this.future, this.file.label, seat, cx);
        if !verdict.is_empty() || this.file.polls >= POLLS_A_LOT {
            learn(this.file, verdict);
        }
        result
    }
}

/// Marks the end of a poll, also of one that panics.
struct PollMark {
    seat: Seat,
    seq: u64,
}

impl PollMark {
    #[inline]
    fn begin(seat: Seat, label: &'static Label) -> PollMark {
        // Relaxed: `begin_poll` releases it.
        seat.runtime.label.store(label.id(), Ordering::Relaxed);
        let seq = seat.runtime.begin_poll();
        seat.notice();
        PollMark { seat, seq }
    }
}

impl Drop for PollMark {
    #[inline]
    fn drop(&mut self) {
        self.seat.runtime.end_poll(self.seq);
    }
}

#[inline]
fn poll_inline<F: Future>(
    future: Pin<&mut F>,
    label: &'static Label,
    seat: Seat,
    cx: &mut Context<'_>,
) -> (Poll<F::Output>, VerdictFlags) {
    let mark = PollMark::begin(seat, label);
    let seq = mark.seq;
    let result = future.poll(cx);
    drop(mark);
    (result, seat.kernel.verdict_for(seq))
}

/// A watched future inside the poll of another one: it lends its label for the time.
#[cold]
fn poll_within<F: Future>(
    future: Pin<&mut F>,
    file: &mut File,
    seat: Seat,
    cx: &mut Context<'_>,
) -> Poll<F::Output> {
    struct Restore(Seat, u32);
    impl Drop for Restore {
        fn drop(&mut self) {
            self.0.runtime.label.store(self.1, Ordering::Relaxed);
        }
    }
    file.count_poll();
    if file.polls >= POLLS_A_LOT {
        file.count_polls();
    }
    // Relaxed: the thread's own word; the controller takes the label that it happens to find.
    let outer = seat.runtime.label.load(Ordering::Relaxed);
    let _restore = Restore(seat, outer);
    seat.runtime.label.store(file.label.id(), Ordering::Relaxed);
    future.poll(cx)
}

/// A future with a record, or under a label with one, or with none yet; or one that says whether it is escapable.
#[cold]
fn poll_known<F: Future>(
    future: Pin<&mut F>,
    file: &mut File,
    seat: Seat,
    cx: &mut Context<'_>,
) -> Poll<F::Output> {
    let says_so_already = file
        .own_escapable()
        .is_none_or(|escapable| escapable == seat.runtime.has_flag(SlotFlag::Escapable));
    let has_no_record = file.record.is_clean() && file.waiter.is_none();
    if says_so_already && has_no_record && is_calm_here(file.label) {
        let (result, verdict) = poll_inline(future, file.label, seat, cx);
        if !verdict.is_empty() || file.polls >= POLLS_A_LOT {
            learn(file, verdict);
        }
        return result;
    }
    let done = seat::with_home(|domain, index| {
        let history = domain.histories.of(file.label);
        let may_go = may_go_in_place(file, domain, history);
        let turn = may_go.then(|| permit_for(file, domain, history, cx.waker()));
        let (permit, is_refused) = match turn {
            Some(Turn::Now(permit)) => (Some(permit), false),
            Some(Turn::Later) => {
                // Counted by the caller, and not polled after all.
                file.polls = file.polls.wrapping_sub(1);
                return Poll::Pending;
            }
            Some(Turn::Inline) => (None, true),
            None => (None, false),
        };
        let _escapable = file
            .own_escapable()
            .and_then(|escapable| Escapable::mark(seat, escapable));
        domain.seats.private[index].stamp(seat.runtime.next_poll());
        let (result, verdict) = match permit {
            Some(permit) => {
                let _in_place = in_place::Visit::begin(domain, index, seat, &permit);
                let label = file.label;
                let begun = std::cell::Cell::new(0);
                let result = in_place::poll(domain, future, cx, || {
                    let mark = PollMark::begin(seat, label);
                    begun.set(mark.seq);
                    mark
                });
                (result, seat.kernel.verdict_for(begun.get()))
            }
            None => {
                // It may hold up its worker for long: what waits in the LIFO slot would wait with it.
                let on_probation = history.is_on_probation();
                let may_flush = !is_refused && !domain.observes();
                if may_flush && (on_probation || file.standing(history) >= Standing::Suspect) {
                    in_place::evict_lifo();
                }
                let _unproven = on_probation.then(|| history.begin_unproven());
                poll_inline(future, file.label, seat, cx)
            }
        };
        if domain.settings.policy >= Policy::Throttle && verdict.contains(VerdictFlags::THROTTLED) {
            let used_ns = seat.kernel.oncpu_ns.load(Ordering::Relaxed);
            file.not_before_ns = clock::now_ns() + used_ns.saturating_mul(THROTTLED_SHARE - 1);
        }
        if verdict.contains(VerdictFlags::DEMOTED) {
            crate::nice::undo_own();
        }
        learn(file, verdict);
        result
    });
    // A thread that has a seat has a home, but for one that is being torn down, which polls nothing.
    done.unwrap_or(Poll::Pending)
}

/// Has the slot's `escapable` flag say for one poll what the task says, and not what the runtime says.
struct Escapable {
    before: bool,
}

impl Escapable {
    /// `None` where the flag says so already.
    fn mark(seat: Seat, escapable: bool) -> Option<Escapable> {
        let before = seat.runtime.has_flag(SlotFlag::Escapable);
        (before != escapable).then(|| {
            Escapable::set(seat, escapable);
            Escapable { before }
        })
    }

    fn set(seat: Seat, escapable: bool) {
        match escapable {
            true => seat.runtime.set_flag(SlotFlag::Escapable),
            false => seat.runtime.clear_flag(SlotFlag::Escapable),
        }
    }
}

impl Drop for Escapable {
    fn drop(&mut self) {
        // The thread's slot of this moment, which has the flags of the one before if it moved.
        Escapable::set(seat::current(), self.before);
    }
}

/// Whether the calling thread's runtime has nothing against a label.
fn is_calm_here(label: &'static Label) -> bool {
    label.is_calm() || seat::with_history(label, History::is_calm).unwrap_or(true)
}

fn may_go_in_place(file: &mut File, domain: &Arc<Domain>, history: &History) -> bool {
    let known = file.waiter.is_some()
        || (file.may_offend
            && domain.settings.mechanisms.offenders
            && domain.settings.policy >= Policy::Takeover
            && (file.standing(history) >= Standing::Suspect || history.has_unproven()));
    // Without a controller nobody would end the wait for a permit.
    if known && !domain.permits.is_closed() && in_place::is_allowed(domain) {
        return true;
    }
    // It may have queued on a worker and be polled elsewhere now.
    if let Some(waiter) = file.waiter.take() {
        waiter.leave();
    }
    false
}

enum Turn {
    Now(Permit),
    Later,
    Inline,
}

fn permit_for(
    file: &mut File,
    domain: &Arc<Domain>,
    history: &Arc<History>,
    waker: &Waker,
) -> Turn {
    if let Some(waiter) = file.waiter.take() {
        match waiter.take_up(waker) {
            Ok(Some(permit)) => return Turn::Now(permit),
            Ok(None) => {
                file.waiter = Some(waiter);
                return Turn::Later;
            }
            // It took too long to come: from the start.
            Err(NoPermit::TakenBack) => {}
            Err(NoPermit::Inline) => {
                let turn = refused(file, domain, waker);
                if matches!(turn, Turn::Later) {
                    file.waiter = Some(waiter);
                }
                return turn;
            }
        }
    }
    let escapable = file.own_escapable().unwrap_or(domain.settings.escapable);
    let may_demote = escapable && domain.settings.policy >= Policy::Demote;
    let class = if may_demote && file.standing(history) == Standing::Convict {
        Class::Convict
    } else {
        Class::Suspect
    };
    let request = Request {
        class,
        history: may_demote.then_some(history),
        sleeps: history.sleeps(),
        not_before_ns: file.not_before_ns,
    };
    let scarce = domain.spares_scarce.load(Ordering::Relaxed);
    match domain.permits.ask(request, scarce, waker) {
        Answer::Granted(permit) => Turn::Now(permit),
        Answer::Wait(waiter) => {
            file.waiter = Some(waiter);
            // Its turn may depend on the controller's clock.
            domain.wake_controller();
            Turn::Later
        }
        Answer::Full => refused(file, domain, waker),
    }
}

/// No place to be polled in place: inline, once nothing that waits on this worker alone is left behind the poll.
///
/// It asks again where the worker lost its core over that: without one it would be one more in place. Not for ever: on a
/// machine that is full, cores change hands more often than not.
fn refused(file: &mut File, domain: &Domain, waker: &Waker) -> Turn {
    if file.tries_inline < TRIES_INLINE && domain.permits.has_places() {
        file.tries_inline += 1;
        if !in_place::try_to_leave_nothing_behind(domain) {
            waker.wake_by_ref();
            return Turn::Later;
        }
        // Takes the LIFO slot, so that the next one wakes somebody, who comes and looks.
        in_place::evict_lifo();
    }
    file.tries_inline = 0;
    domain
        .counters
        .in_place_refused
        .fetch_add(1, Ordering::Relaxed);
    in_place::evict_lifo();
    Turn::Inline
}

#[cold]
fn learn(file: &mut File, verdict: VerdictFlags) {
    file.count_polls();
    let was_clean = file.record.is_clean();
    let convicted = file.record.learn(verdict);
    if verdict.is_empty() && !file.label.is_calm() {
        seat::with_history(file.label, History::learn_good);
    }
    if convicted || (was_clean && !file.record.is_clean()) {
        seat::with_home(|domain, _| {
            let counters = &domain.counters;
            if was_clean {
                counters.suspects.fetch_add(1, Ordering::Relaxed);
            }
            if convicted {
                counters.convicts.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use super::*;
    use crate::{Builder, Runtime, task};

    fn runtime(escapable: bool) -> Runtime {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).max_spares(1).escapable(escapable);
        builder.link(crate::Link::Watchdog);
        builder.build().unwrap()
    }

    /// Whether the calling thread may be demoted, as its slot says.
    fn says_escapable() -> bool {
        seat::current().runtime.has_flag(SlotFlag::Escapable)
    }

    #[test]
    fn a_task_says_for_its_own_polls_whether_it_is_escapable() {
        for of_runtime in [true, false] {
            let runtime = runtime(of_runtime);
            let task = runtime.handle().spawn(async move {
                for of_task in [Some(true), Some(false), None, Some(true)] {
                    let mut builder = task::Builder::new().label("watch: escapable");
                    if let Some(escapable) = of_task {
                        builder = builder.escapable(escapable);
                    }
                    // Long enough to become calm under its label, so that both ways are taken.
                    for _ in 0..40 {
                        let found = builder.watch(async { says_escapable() }).await;
                        assert_eq!(found, of_task.unwrap_or(of_runtime), "{of_task:?}");
                        let restored = async { says_escapable() }.watched("watch: other").await;
                        assert_eq!(restored, of_runtime, "after {of_task:?}");
                    }
                }
            });
            runtime.block_on(task).unwrap();
        }
    }

    /// Polls of a future that waits for a permit are none of its label's, and as many as its task likes.
    #[test]
    fn a_poll_that_waits_for_a_permit_is_not_counted() {
        static POLLED: AtomicU32 = AtomicU32::new(0);
        let runtime = runtime(true);
        let task = runtime.handle().spawn(async {
            async {}.watched("watch: sits down").await;
            let domain = seat::with_home(|domain, _| domain.clone()).unwrap();
            let mut taken = Vec::new();
            let mut queued = Vec::new();
            // So many wait in front of it that its turn does not come within the test.
            while queued.len() < 1_000 {
                let request = Request {
                    class: Class::Convict,
                    history: None,
                    sleeps: false,
                    not_before_ns: 0,
                };
                match domain.permits.ask(request, false, Waker::noop()) {
                    Answer::Granted(permit) => taken.push(permit),
                    Answer::Wait(waiter) => queued.push(waiter),
                    Answer::Full => break,
                }
            }
            let polled = std::future::poll_fn(|_| {
                POLLED.fetch_add(1, Ordering::Relaxed);
                Poll::Ready(())
            });
            let mut watched = std::pin::pin!(polled.watched("watch: waits"));
            {
                let file = watched.as_mut().project().file;
                let offence = VerdictFlags::STUCK | VerdictFlags::OFFENCE;
                assert!(file.record.learn(offence));
                file.polls = u16::MAX;
            }
            for _ in 0..10 {
                let mut cx = Context::from_waker(Waker::noop());
                assert!(watched.as_mut().poll(&mut cx).is_pending());
            }
            let zero = tokio::time::timeout(std::time::Duration::ZERO, watched.as_mut());
            assert!(zero.await.is_err(), "a ready future, and no time for it");
            assert_eq!(watched.as_mut().project().file.polls, u16::MAX);
            assert_eq!(POLLED.load(Ordering::Relaxed), 0);
            for waiter in queued {
                waiter.leave();
            }
            drop(taken);
            watched.as_mut().project().file.polls = 0;
            watched.await;
            assert_eq!(POLLED.load(Ordering::Relaxed), 1);
        });
        runtime.block_on(task).unwrap();
        let totals = &label::of(Origin::Named("watch: waits")).totals;
        assert_eq!(totals.polls.load(Ordering::Relaxed), 1);
    }
}
