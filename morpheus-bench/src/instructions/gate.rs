//! The counts, compared with the expected ones.

use morpheus_harness::histogram::median;
use morpheus_harness::pairs::{Bar, Limit};
use morpheus_harness::rows::Row;
use morpheus_harness::unit::Unit;
use serde::{Deserialize, Serialize};

use super::callgrind::Counted;
use super::ops::{Measurement, Op, Place};

/// A difference may grow by this share of what it is a difference to …
const SHARE: f64 = 0.02;
/// … or by this many instructions, where that is more: compilers place a register move here or there.
const INSTRUCTIONS: f64 = 2.0;

/// The differences: an operation, the two places that are compared, and the name of the figure.
const DIFFERENCES: &[(Op, Place, Place, &str)] = &[
    (Op::Spawn, Place::Unwatched, Place::Tokio, OVER_TOKIO),
    (Op::Spawn, Place::Watched, Place::Unwatched, OVER_UNWATCHED),
    (Op::Wake, Place::Unwatched, Place::Tokio, OVER_TOKIO),
    (Op::Wake, Place::Watched, Place::Unwatched, OVER_UNWATCHED),
    (Op::Poll, Place::Unwatched, Place::Tokio, OVER_TOKIO),
    (Op::Poll, Place::Watched, Place::Unwatched, OVER_UNWATCHED),
    (Op::Checkpoint, Place::Watched, Place::Loop, OVER_LOOP),
    (Op::CheckpointSync, Place::Watched, Place::Loop, OVER_LOOP),
];
const OVER_TOKIO: &str = "over tokio";
const OVER_UNWATCHED: &str = "over unwatched";
const OVER_LOOP: &str = "over the loop";

/// A line of `instructions.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Expected {
    /// The operation.
    pub op: Op,
    /// Where.
    pub place: Place,
    /// The place whose count is subtracted.
    pub without: Place,
    /// Instructions of one operation here, less those of one there.
    pub difference: f64,
}

/// The counts, and the verdict on them.
#[derive(Debug, Default)]
pub struct Judged {
    /// Instructions of each operation, and the differences with their limits.
    pub rows: Vec<Row>,
    /// Advice, in sentences.
    pub notes: Vec<String>,
    /// Whether something takes more than it should, or it is not known how much it should.
    pub takes_more: bool,
    /// The differences that the file would hold if these counts were right.
    pub differences: Vec<Expected>,
}

impl Judged {
    /// Of what was counted.
    pub fn new(counted: &[Counted], expected: &[Expected]) -> Self {
        let mut found = Self::default();
        let row = |op: Op, place: Place, figure: &str, rounds: Vec<f64>| {
            Row::new(op.name(), place.name(), figure, Unit::Count, rounds)
        };
        for one in counted {
            let Measurement { op, place } = one.measurement;
            let rounds = one.rounds.clone();
            found.rows.push(row(op, place, "instructions", rounds));
        }
        let each = |op, place| {
            // The loop around both kinds of checkpoint is one.
            let op = match place {
                Place::Loop => Op::Checkpoint,
                _ => op,
            };
            let wanted = Measurement { op, place };
            let one = counted.iter().find(|one| one.measurement == wanted)?;
            median(one.rounds.clone())
        };
        let mut takes_fewer = false;
        for &(op, place, without, named) in DIFFERENCES {
            let Some((here, there)) = each(op, place).zip(each(op, without)) else {
                continue;
            };
            let difference = here - there;
            let tolerance = (SHARE * there).max(INSTRUCTIONS);
            let row = row(op, place, named, vec![difference]);
            let is_it = |one: &&Expected| (one.op, one.place, one.without) == (op, place, without);
            let row = match expected.iter().find(is_it) {
                Some(expected) => {
                    takes_fewer |= difference < expected.difference - tolerance;
                    row.held_exactly(Limit::AtMost(expected.difference + tolerance))
                }
                None => {
                    found.takes_more = true;
                    found.notes.push(format!(
                        "The file has nothing of {}, {} {named}: instructions --bless.",
                        op.name(),
                        place.name()
                    ));
                    row
                }
            };
            found.takes_more |= row.judged == Some(Bar::Missed);
            found.rows.push(row);
            found.differences.push(Expected {
                op,
                place,
                without,
                // Plus zero: no file says −0.0.
                difference: (difference * 10.0).round() / 10.0 + 0.0,
            });
        }
        if found.takes_more {
            found.notes.push(
                "Something takes more instructions than instructions.json says. If that is meant to be so: instructions --bless, and the \
                 diff is part of the change."
                    .into(),
            );
        } else if takes_fewer {
            found.notes.push(
                "Something takes fewer than instructions.json says: instructions --bless keeps it so.".into(),
            );
        }
        found
    }

    /// The text of the file if this were right: a line for each difference.
    pub fn as_expected(&self) -> String {
        let lines = self.differences.iter();
        let lines: Vec<String> = lines
            .map(|one| format!("  {}", morpheus_harness::report::json(one).trim_end()))
            .collect();
        format!("[\n{}\n]\n", lines.join(",\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instructions::ops::{MEASUREMENTS, ROUNDS};

    fn counted(watched: f64) -> Vec<Counted> {
        let each = |place| match place {
            Place::Tokio | Place::Unwatched => 1_000.0,
            Place::Watched => watched,
            Place::Loop => 4.0,
        };
        let one = |measurement: &Measurement| Counted {
            measurement: *measurement,
            rounds: vec![each(measurement.place); ROUNDS],
        };
        MEASUREMENTS.iter().map(one).collect()
    }

    #[test]
    fn what_takes_more_than_it_may_is_seen() {
        let expected = Judged::new(&counted(1_100.0), &[]).differences;
        assert_eq!(expected.len(), DIFFERENCES.len());
        let judged = |watched| {
            let found = Judged::new(&counted(watched), &expected);
            let mut rows = found.rows.iter();
            let spawn = rows.find(|row| row.figure == OVER_UNWATCHED).unwrap();
            assert_eq!(spawn.case, "spawn and join");
            let says_fewer = found.notes.iter().any(|note| note.contains("fewer"));
            (found.takes_more, spawn.judged, says_fewer)
        };
        assert_eq!(judged(1_100.0), (false, Some(Bar::Met), false));
        assert_eq!(judged(1_101.0), (false, Some(Bar::Met), false));
        assert_eq!(judged(1_121.0), (true, Some(Bar::Missed), false));
        assert_eq!(judged(1_000.0), (false, Some(Bar::Met), true));
    }

    #[test]
    fn a_file_that_lacks_something_is_no_approval() {
        let found = Judged::new(&counted(1_100.0), &[]);
        assert!(found.takes_more);
        assert!(found.notes.iter().any(|note| note.contains("--bless")));
    }

    #[test]
    fn what_is_written_can_be_read() {
        let found = Judged::new(&counted(1_100.0), &[]);
        let read: Vec<Expected> = serde_json::from_str(&found.as_expected()).unwrap();
        assert_eq!(read, found.differences);
    }

    #[test]
    fn the_projects_file_has_everything() {
        let text = include_str!("../../instructions.json");
        let expected: Vec<Expected> = serde_json::from_str(text).unwrap();
        let found = Judged::new(&counted(1_100.0), &expected);
        assert!(
            !found
                .notes
                .iter()
                .any(|note| note.contains("has nothing of"))
        );
    }
}
