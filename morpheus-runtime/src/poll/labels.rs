//! The labels that the calling thread polls, found by spawn location before every poll, and its counts of their polls.
//!
//! A count is added to the label's total in lots, so that the label's cache line stays put. The table has no destructor, so an
//! access needs no check; [`AddRest`] adds what is left when the thread ends.

use std::cell::Cell;
use std::panic::Location;

use crate::report::label::{self, Label};

/// The number of spawn locations that a thread knows at the same time: any value of a [`Place`].
const PLACES: usize = 1 << u8::BITS;
/// A thread adds polls to a label's total in lots of this many.
const POLLS_A_LOT: u32 = 64;

/// The place of a spawn location in the thread's table.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place(u8);

impl Place {
    pub(crate) const FIRST: Place = Place(0);
}

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

/// Returns the label of a spawn location, and its place for [`count`].
#[inline]
pub(crate) fn at(location: &'static Location<'static>) -> (&'static Label, Place) {
    let place = Place((std::ptr::from_ref(location).addr() / align_of::<Location<'_>>()) as u8);
    ENTRIES.with(|entries| {
        let entry = &entries[usize::from(place.0)];
        match entry.known.get() {
            Some(known) if std::ptr::eq(known.location, location) => (known.label, place),
            _ => (entry.learn(location), place),
        }
    })
}

/// Counts a poll of a label that [`at`] returned with this place.
#[inline]
pub(crate) fn count(label: &'static Label, place: Place) {
    ENTRIES.with(|entries| {
        let entry = &entries[usize::from(place.0)];
        // The place is another location's if a poll of another runtime was nested in this one.
        if !entry
            .known
            .get()
            .is_some_and(|known| std::ptr::eq(known.label, label))
        {
            return label.totals.polls.add(1);
        }
        entry.polls.set(entry.polls.get() + 1);
        if entry.polls.get() >= POLLS_A_LOT {
            entry.add_to_total();
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With more locations than places, of which one that has no place any more is counted too.
    #[test]
    fn every_poll_is_counted_once() {
        let here = Location::caller();
        let copies: Vec<&'static Location<'static>> =
            (0..1_000).map(|_| &*Box::leak(Box::new(*here))).collect();
        let polls = std::thread::spawn(move || {
            let mut polls = 0;
            for (number, location) in copies.iter().enumerate() {
                let (label, place) = at(location);
                for _ in 0..number % 200 {
                    count(label, place);
                    polls += 1;
                }
                let (outer, outer_place) = at(copies[number / 2]);
                at(copies[(number * 7) % 1_000]);
                count(outer, outer_place);
                polls += 1;
            }
            polls
        });
        let polls = polls.join().unwrap();
        assert_eq!(label::at(here).totals.polls.get(), polls);
    }
}
