//! The labels that the calling thread polls, found by spawn location before every poll, and its counts of their polls.
//!
//! A count is added to the label's total in lots, so that the label's cache line stays put. The table has no destructor, so an
//! access needs no check; [`AddRest`] adds what is left when the thread ends.

use std::cell::Cell;
use std::panic::Location;

use crate::report::label::{self, Label};

/// The number of spawn locations that a thread knows at the same time.
const PLACES: usize = 1 << u8::BITS;
/// A thread adds polls to a label's total in lots of this many.
const POLLS_A_LOT: u32 = 256;

#[derive(Clone, Copy)]
struct Known {
    location: &'static Location<'static>,
    label: &'static Label,
}

struct Entry {
    known: Cell<Option<Known>>,
    /// Polls that are not in the label's total yet.
    polls: Cell<u32>,
}

thread_local! {
    static ENTRIES: [Entry; PLACES] = const {
        [const { Entry { known: Cell::new(None), polls: Cell::new(0) } }; PLACES]
    };
    static ADD_REST: AddRest = const { AddRest };
}

/// Adds the thread's counts to the totals when the thread ends.
struct AddRest;

impl Drop for AddRest {
    fn drop(&mut self) {
        ENTRIES.with(|entries| entries.iter().for_each(Entry::add_to_total));
    }
}

impl Entry {
    #[inline]
    fn label_of(&self, location: &'static Location<'static>) -> Option<&'static Label> {
        let known = self.known.get()?;
        std::ptr::eq(known.location, location).then_some(known.label)
    }

    #[inline]
    fn count(&self) {
        self.polls.set(self.polls.get() + 1);
        if self.polls.get() >= POLLS_A_LOT {
            self.add_to_total();
        }
    }

    #[cold]
    fn add_to_total(&self) {
        let polls = self.polls.replace(0);
        if let Some(known) = self.known.get().filter(|_| polls > 0) {
            known.label.totals.polls.add(polls as usize);
        }
    }

    #[cold]
    fn learn(&self, location: &'static Location<'static>) -> &'static Label {
        // A thread that is being torn down counts nothing more.
        let _ = ADD_REST.try_with(|_| ());
        self.add_to_total();
        let label = label::at(location);
        self.known.set(Some(Known { location, label }));
        label
    }
}

#[inline]
fn with_entry<R>(location: &'static Location<'static>, f: impl FnOnce(&Entry) -> R) -> R {
    let place = (std::ptr::from_ref(location).addr() / align_of::<Location<'_>>()) as u8;
    ENTRIES.with(|entries| f(&entries[usize::from(place)]))
}

/// Counts a poll of a task that was spawned there, and returns its label. `None`, and nothing is counted, if the label is not
/// healthy or the thread does not know it.
#[inline]
pub(crate) fn count_healthy(location: &'static Location<'static>) -> Option<&'static Label> {
    with_entry(location, |entry| {
        let label = entry
            .label_of(location)
            .filter(|label| label.is_healthy())?;
        entry.count();
        Some(label)
    })
}

/// Returns the label of a spawn location.
pub(crate) fn at(location: &'static Location<'static>) -> &'static Label {
    with_entry(location, |entry| {
        let known = entry.label_of(location);
        known.unwrap_or_else(|| entry.learn(location))
    })
}

/// Counts a poll of the task that was spawned there.
pub(crate) fn count(location: &'static Location<'static>) {
    at(location);
    with_entry(location, Entry::count);
}

/// Takes back a poll that this thread has counted.
pub(crate) fn take_back(location: &'static Location<'static>) {
    let label = at(location);
    with_entry(location, |entry| match entry.polls.get() {
        // It is in the total: a lot was full, or the place was another location's meanwhile.
        0 => label.totals.polls.take_back(),
        polls => entry.polls.set(polls - 1),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With more locations than places, of which one that has no place any more is counted too, and taken back.
    #[test]
    fn every_poll_is_counted_once() {
        let here = Location::caller();
        let copies: Vec<&'static Location<'static>> =
            (0..1_000).map(|_| &*Box::leak(Box::new(*here))).collect();
        let polls = std::thread::spawn(move || {
            let mut polls = 0;
            for (number, location) in copies.iter().enumerate() {
                for _ in 0..number % 200 {
                    count(location);
                    polls += 1;
                }
                let outer = copies[number / 2];
                count(outer);
                at(copies[(number * 7) % 1_000]);
                match number % 2 {
                    0 => take_back(outer),
                    _ => polls += 1,
                }
            }
            polls
        });
        let polls = polls.join().unwrap();
        assert_eq!(label::at(here).totals.polls.get(), polls);
    }
}
