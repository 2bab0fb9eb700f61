//! Labels: group the tasks of one origin, which is a spawn location or a given name.
//!
//! Labels live for the whole process in one table of bounded size, so that a slot in shared memory can name one by
//! its number. Each runtime has a budget of its own, and so keeps its own history of a label's polls. A label that is
//! healthy on every runtime costs each poll one relaxed load here ([`Label::is_healthy`]).

use std::cell::Cell;
use std::collections::HashMap;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};

use crate::report::counters::Counter;
#[cfg(tokio_unstable)]
use crate::report::own;
use morpheus_common::directory;
use morpheus_link::directory::publish_labels;
use morpheus_system::lock::lock;

/// Most labels of a process. Labels after these share the last one.
pub(crate) const MAX_LABELS: usize = 4096;

/// The origin of a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Origin {
    Named(&'static str),
    At(&'static Location<'static>),
    /// Shared by all origins that found the table full.
    Overflow,
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Origin::Named(name) => f.write_str(name),
            Origin::At(location) => write!(f, "{}:{}", location.file(), location.line()),
            Origin::Overflow => f.write_str("(more labels than the table holds)"),
        }
    }
}

/// `repr(C)` for its first field, which tools outside of the process read.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Label {
    name: directory::Label,
    id: u32,
    origin: Origin,
    /// Number of runtimes with a stalled poll among their last ones; plus one until the first runtime has found the
    /// label healthy.
    doubts: AtomicU32,
    /// Whether a first runtime has found the label healthy.
    is_proven: AtomicBool,
    #[cfg(tokio_unstable)]
    is_own: bool,
    #[cfg(tokio_unstable)]
    marks_itself: AtomicBool,
    pub(crate) totals: Totals,
}

/// Totals of all runtimes, for the summary and the exported series. Controllers write them, except for `polls`.
///
/// They have cache lines of their own (two: CPUs fetch lines in pairs): every poll reads the label's other words, on all
/// threads, and would wait for the line whenever another thread has added its polls.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Totals {
    pub(crate) polls: Counter,
    pub(crate) stalled_polls: Counter,
    pub(crate) stalled_blocked: Counter,
    pub(crate) hog_polls: Counter,
    pub(crate) longest_ns: Counter,
    pub(crate) hog_ratings: Counter,
}

impl Totals {
    pub(crate) fn count_stalled(&self, blocked: bool) {
        self.stalled_polls.add(1);
        if blocked {
            self.stalled_blocked.add(1);
        }
    }
}

impl Label {
    fn new(id: u32, origin: Origin) -> Label {
        let name = match origin {
            Origin::Named(name) => directory::Label::new(name, 0),
            Origin::At(location) => directory::Label::new(location.file(), location.line()),
            Origin::Overflow => directory::Label::new("", 0),
        };
        Label {
            name,
            id,
            origin,
            doubts: AtomicU32::new(1),
            is_proven: AtomicBool::new(false),
            #[cfg(tokio_unstable)]
            is_own: matches!(origin, Origin::At(at) if own::is_place(at)),
            #[cfg(tokio_unstable)]
            marks_itself: AtomicBool::new(false),
            totals: Totals::default(),
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    pub(crate) fn origin(&self) -> Origin {
        self.origin
    }

    /// Whether its tasks are Morpheus's own: hold tasks and no-ops. Nothing is learned of such a label, so it is never healthy.
    #[cfg(tokio_unstable)]
    pub(crate) fn is_own(&self) -> bool {
        self.is_own
    }

    /// Records that the tasks spawned at this place are watched futures as a whole, as [`spawn`](crate::spawn) makes them.
    #[cfg(tokio_unstable)]
    pub(crate) fn note_marks_itself(&self) {
        // Relaxed, pairs with nothing: a task carries it to the thread that polls it. Written once, so that the line stays shared.
        // The overflow label stands for other places, too.
        if !self.marks_itself() && self.origin != Origin::Overflow {
            self.marks_itself.store(true, Ordering::Relaxed);
        }
    }

    /// Whether the tasks spawned at this place are watched futures as a whole. Those have handoff options of their own and wait
    /// for permits without a thread, so a hook must not hand their polls off.
    #[cfg(tokio_unstable)]
    pub(crate) fn marks_itself(&self) -> bool {
        // Relaxed: see `note_marks_itself`.
        self.marks_itself.load(Ordering::Relaxed)
    }

    /// Whether no runtime doubts the label. If one does, the history on the poll's own runtime decides.
    #[inline]
    pub(crate) fn is_healthy(&self) -> bool {
        // Relaxed, pairs with nothing: a poll that misses a change runs inline once more, which is always allowed.
        self.doubts.load(Ordering::Relaxed) == 0
    }

    /// Adds a runtime's doubt after its first stalled poll, until [`end_doubt`](Self::end_doubt).
    pub(crate) fn doubt(&self) {
        // Relaxed, pairs with nothing: see `is_healthy`. A doubt may end before it is counted. The sum then wraps,
        // and is right after both.
        self.doubts.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end_doubt(&self) {
        // Relaxed, pairs with nothing: see `doubt`.
        self.doubts.fetch_sub(1, Ordering::Relaxed);
    }

    /// Records that a runtime has found the label healthy.
    pub(crate) fn prove(&self) {
        // Relaxed, pairs with nothing: exactly one thread finds it unset.
        if !self.is_proven.swap(true, Ordering::Relaxed) {
            self.end_doubt();
        }
    }

    pub(crate) fn saw_duration(&self, stalled_ns: u64) {
        self.totals.longest_ns.raise_to(stalled_ns);
    }
}

struct Table {
    by_origin: Mutex<HashMap<Origin, &'static Label>>,
    by_id: &'static [AtomicPtr<Label>],
}

fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| {
        let by_id: Box<[AtomicPtr<Label>]> = (0..MAX_LABELS)
            .map(|_| AtomicPtr::new(std::ptr::null_mut()))
            .collect();
        let table = Table {
            by_origin: Mutex::default(),
            by_id: Box::leak(by_id),
        };
        // The overflow label has the last number, and exists from the start.
        let overflow = Box::leak(Box::new(Label::new(
            MAX_LABELS as u32 - 1,
            Origin::Overflow,
        )));
        table.by_id[MAX_LABELS - 1].store(overflow, Ordering::Release);
        publish_labels(table.by_id);
        table
    })
}

/// Returns the label of an origin, and makes it at the first call. Never fails: a full table returns the overflow
/// label.
pub(crate) fn of(origin: Origin) -> &'static Label {
    let table = table();
    let mut known = lock(&table.by_origin);
    if let Some(label) = known.get(&origin) {
        return label;
    }
    let id = known.len();
    if id >= MAX_LABELS - 1 {
        return by_id(MAX_LABELS as u32 - 1).expect("the overflow label exists from the start");
    }
    let label: &'static Label = Box::leak(Box::new(Label::new(id as u32, origin)));
    known.insert(origin, label);
    // Release, pairs with the Acquire in `by_id`: a controller that sees the label sees it initialised.
    table.by_id[id].store(std::ptr::from_ref(label).cast_mut(), Ordering::Release);
    label
}

/// The labels that a thread remembers of each kind: to spawn or to watch a task is a hot path, and [`of`] takes a lock that all share.
const REMEMBERED: usize = 16;
type Recent<K> = [Cell<Option<(K, &'static Label)>>; REMEMBERED];

/// Returns the label of an origin from those that the calling thread remembers. `place` is one of the numbers below [`REMEMBERED`].
#[inline]
fn remembered<T: ?Sized>(
    recent: &Recent<&'static T>,
    place: usize,
    known: &'static T,
    origin: Origin,
) -> &'static Label {
    let entry = &recent[place % REMEMBERED];
    match entry.get() {
        Some((before, label)) if std::ptr::eq(before, known) => label,
        _ => {
            let label = of(origin);
            entry.set(Some((known, label)));
            label
        }
    }
}

/// Returns the label of a spawn location.
pub(crate) fn at(location: &'static Location<'static>) -> &'static Label {
    thread_local! {
        static RECENT: Recent<&'static Location<'static>> = const { [const { Cell::new(None) }; REMEMBERED] };
    }
    let place = std::ptr::from_ref(location).addr() / align_of::<Location<'_>>();
    RECENT.with(|recent| remembered(recent, place, location, Origin::At(location)))
}

/// Returns the label with a name.
pub(crate) fn named(name: &'static str) -> &'static Label {
    thread_local! {
        static RECENT: Recent<&'static str> = const { [const { Cell::new(None) }; REMEMBERED] };
    }
    // Names lie one after the other in a program, each as long as it is.
    let place = name.as_ptr().addr().wrapping_add(name.len()) / 4;
    RECENT.with(|recent| remembered(recent, place, name, Origin::Named(name)))
}

/// Returns the label with a number from a slot. The number is a claim, so it is looked up and not trusted.
pub(crate) fn by_id(id: u32) -> Option<&'static Label> {
    let label = table()
        .by_id
        .get(id as usize)?
        // Acquire, pairs with the Release in `of`.
        .load(Ordering::Acquire);
    // SAFETY: non-null entries are leaked boxes. They were initialised before they were stored, and are never freed.
    unsafe { label.as_ref() }
}

/// Iterates over all labels, in the order in which they were first seen.
pub(crate) fn all() -> impl Iterator<Item = &'static Label> {
    (0..MAX_LABELS as u32).filter_map(by_id)
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;

    #[test]
    fn one_origin_has_one_label() {
        let here = Location::caller();
        assert!(std::ptr::eq(at(here), at(here)));
        assert!(std::ptr::eq(at(here), by_id(at(here).id()).unwrap()));
        assert!(std::ptr::eq(named("x"), of(Origin::Named("x"))));
        assert!(std::ptr::eq(named("x"), named("x")));
        assert!(!std::ptr::eq(named("x"), named("y")));
        assert!(by_id(u32::MAX).is_none());
    }

    #[test]
    fn a_thread_that_knows_a_name_waits_for_no_other() {
        let ((ask, asked), (answer, answered)) = (mpsc::channel(), mpsc::channel());
        let knows = std::thread::spawn(move || {
            for () in asked {
                answer
                    .send(named("a name that a thread knows").id())
                    .unwrap();
            }
        });
        ask.send(()).unwrap();
        let first = answered.recv().unwrap();
        let held = lock(&table().by_origin);
        ask.send(()).unwrap();
        let second = answered.recv_timeout(Duration::from_secs(10));
        drop(held);
        assert_eq!(second, Ok(first));
        drop(ask);
        knows.join().unwrap();
    }
}
