//! Labels: what tasks of one origin have in common, be it a spawn location or a name that was given.
//!
//! Labels live for the whole process, in one table of bounded size, so that a slot in shared memory can
//! name one by number. How their polls went is known by each runtime for itself, which has a budget of its own
//! (its history). A label against which no runtime has anything costs its polls one relaxed load
//! here ([`Label::is_healthy`]).

use std::collections::HashMap;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

/// How many labels a process may have; whatever comes later shares the last one.
pub(crate) const MAX_LABELS: usize = 4096;

/// Where a label comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Origin {
    Named(&'static str),
    At(&'static Location<'static>),
    /// All that found the table full.
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

#[derive(Debug)]
pub(crate) struct Label {
    id: u32,
    origin: Origin,
    /// Runtimes with a stalled poll among its last ones, and one more until the first runtime has found it calm.
    doubts: AtomicU32,
    /// That first one has.
    is_proven: AtomicBool,
    #[cfg(tokio_unstable)]
    is_own: bool,
    pub(crate) totals: Totals,
}

/// Of all runtimes together: for the summary table and the exported series. Written by controllers, but for `polls`.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) polls: AtomicU64,
    pub(crate) stalled_polls: AtomicU64,
    pub(crate) stalled_blocked: AtomicU64,
    pub(crate) hog_polls: AtomicU64,
    pub(crate) longest_ns: AtomicU64,
    pub(crate) hog_ratings: AtomicU64,
}

impl Totals {
    pub(crate) fn count_stalled(&self, blocked: bool) {
        self.stalled_polls.fetch_add(1, Ordering::Relaxed);
        if blocked {
            self.stalled_blocked.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Label {
    fn new(id: u32, origin: Origin) -> Label {
        Label {
            id,
            origin,
            doubts: AtomicU32::new(1),
            is_proven: AtomicBool::new(false),
            #[cfg(tokio_unstable)]
            is_own: is_own(origin),
            totals: Totals::default(),
        }
    }

    pub(crate) fn id(&self) -> u32 {
        self.id
    }

    pub(crate) fn origin(&self) -> Origin {
        self.origin
    }

    /// Whether its tasks are Morpheus's own: held spares, and no-ops.
    #[cfg(tokio_unstable)]
    pub(crate) fn is_own(&self) -> bool {
        self.is_own
    }

    /// Whether no runtime has anything against it. If one has, the history on the poll's own runtime counts.
    #[inline]
    pub(crate) fn is_healthy(&self) -> bool {
        // Relaxed: whoever misses a change by one poll polls inline once more, which is always allowed.
        self.doubts.load(Ordering::Relaxed) == 0
    }

    /// A runtime that had nothing against it has found a stalled poll; until [`end_doubt`](Self::end_doubt).
    pub(crate) fn doubt(&self) {
        // Relaxed: see `is_healthy`. A doubt may end before it is counted: the sum wraps, and is right after both.
        self.doubts.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end_doubt(&self) {
        // Relaxed: see `doubt`.
        self.doubts.fetch_sub(1, Ordering::Relaxed);
    }

    /// A runtime has found it calm.
    pub(crate) fn prove(&self) {
        // Relaxed: one thread finds it unset, whichever.
        if !self.is_proven.swap(true, Ordering::Relaxed) {
            self.end_doubt();
        }
    }

    pub(crate) fn saw_duration(&self, stalled_ns: u64) {
        self.totals
            .longest_ns
            .fetch_max(stalled_ns, Ordering::Relaxed);
    }
}

/// Whether a label is that of tasks which this crate spawns for itself. Where a poll is hooked, only tests spawn.
#[cfg(tokio_unstable)]
fn is_own(origin: Origin) -> bool {
    let sources = file!().trim_end_matches("report/label.rs");
    matches!(origin, Origin::At(at) if at.file().starts_with(sources) && !at.file().ends_with("poll/hooks.rs"))
}

struct Table {
    by_origin: Mutex<HashMap<Origin, &'static Label>>,
    by_id: Box<[AtomicPtr<Label>]>,
}

fn table() -> &'static Table {
    static TABLE: OnceLock<Table> = OnceLock::new();
    TABLE.get_or_init(|| {
        let table = Table {
            by_origin: Mutex::default(),
            by_id: (0..MAX_LABELS)
                .map(|_| AtomicPtr::new(std::ptr::null_mut()))
                .collect(),
        };
        // The last number is the overflow label's; it exists from the start.
        let overflow = Box::leak(Box::new(Label::new(
            MAX_LABELS as u32 - 1,
            Origin::Overflow,
        )));
        table.by_id[MAX_LABELS - 1].store(overflow, Ordering::Release);
        table
    })
}

/// The label of an origin, made on first sight. Never fails: a full table gives the overflow label.
pub(crate) fn of(origin: Origin) -> &'static Label {
    let table = table();
    let mut known = table
        .by_origin
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    if let Some(label) = known.get(&origin) {
        return label;
    }
    let id = known.len();
    if id >= MAX_LABELS - 1 {
        return by_id(MAX_LABELS as u32 - 1).expect("the overflow label exists from the start");
    }
    let label: &'static Label = Box::leak(Box::new(Label::new(id as u32, origin)));
    known.insert(origin, label);
    // Release: pairs with the Acquire in `by_id`, so that a controller sees the label initialised.
    table.by_id[id].store(std::ptr::from_ref(label).cast_mut(), Ordering::Release);
    label
}

/// The label of a spawn location. A thread remembers the last few it asked for, because spawning is a
/// hot path.
pub(crate) fn at(location: &'static Location<'static>) -> &'static Label {
    use std::cell::Cell;
    // With the task hooks it is asked before every poll.
    const REMEMBERED: usize = if cfg!(tokio_unstable) { 256 } else { 16 };
    type Entry = Cell<Option<(&'static Location<'static>, &'static Label)>>;
    thread_local! {
        static RECENT: [Entry; REMEMBERED] = const { [const { Cell::new(None) }; REMEMBERED] };
    }
    let address = std::ptr::from_ref(location) as usize;
    RECENT.with(|recent| {
        let entry = &recent[(address / align_of::<Location<'_>>()) % REMEMBERED];
        match entry.get() {
            Some((known, label)) if std::ptr::eq(known, location) => label,
            _ => {
                let label = of(Origin::At(location));
                entry.set(Some((location, label)));
                label
            }
        }
    })
}

/// The label with a number that was read from a slot: a claim, so it is looked up, not trusted.
pub(crate) fn by_id(id: u32) -> Option<&'static Label> {
    let label = table()
        .by_id
        .get(id as usize)?
        // Acquire: pairs with the Release in `of`.
        .load(Ordering::Acquire);
    // SAFETY: non-null entries are leaked boxes, initialised before they were stored and never freed.
    unsafe { label.as_ref() }
}

/// All labels, in the order in which they were first seen.
pub(crate) fn all() -> impl Iterator<Item = &'static Label> {
    (0..MAX_LABELS as u32).filter_map(by_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_origin_has_one_label() {
        let here = Location::caller();
        assert!(std::ptr::eq(at(here), at(here)));
        assert!(std::ptr::eq(at(here), by_id(at(here).id()).unwrap()));
        assert!(std::ptr::eq(of(Origin::Named("x")), of(Origin::Named("x"))));
        assert!(by_id(u32::MAX).is_none());
    }
}
