//! What was counted, beside what is expected.

use serde::{Deserialize, Serialize};

use super::callgrind::Counted;
use super::ops::{Measurement, Op, Place};
use crate::report::{Table, WIDTH, wrap};

/// A difference may grow by this share of what it is a difference to …
const SHARE: f64 = 0.02;
/// … or by so many instructions, where that is more: compilers place a register move here or there.
const INSTRUCTIONS: f64 = 2.0;

/// What is compared with what.
const DIFFERENCES: &[(Op, Place, Place)] = &[
    (Op::Spawn, Place::Unwatched, Place::Tokio),
    (Op::Spawn, Place::Watched, Place::Unwatched),
    (Op::Wake, Place::Unwatched, Place::Tokio),
    (Op::Wake, Place::Watched, Place::Unwatched),
    (Op::Poll, Place::Unwatched, Place::Tokio),
    (Op::Poll, Place::Watched, Place::Unwatched),
    (Op::Checkpoint, Place::Watched, Place::Loop),
    (Op::CheckpointSync, Place::Watched, Place::Loop),
];

/// A line of `instructions.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Expected {
    /// The operation.
    pub op: Op,
    /// Where.
    pub place: Place,
    /// What is taken away.
    pub without: Place,
    /// Instructions of one operation there, less those of one here.
    pub difference: f64,
}

/// A difference, and how it is judged.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Difference {
    /// The operation.
    pub op: Op,
    /// Where.
    pub place: Place,
    /// What is taken away.
    pub without: Place,
    /// Instructions of one operation here.
    pub instructions: f64,
    /// And there.
    pub instructions_without: f64,
    /// What they differ by.
    pub difference: f64,
    /// How far the rounds of the two lie apart, without the outermost, both together.
    pub spread: f64,
    /// What was expected.
    pub expected: Option<f64>,
    /// By how much it may be more, or less without being called better.
    pub tolerance: f64,
    /// What that makes of it.
    pub judged: Judged,
}

/// What is said of a difference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Judged {
    /// Within the tolerance.
    AsExpected,
    /// It takes fewer: `--bless` keeps it so.
    Better,
    /// It takes more.
    Worse,
    /// The file has nothing of it.
    Unknown,
}

/// What `--json` prints.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// `instructions`.
    pub bench: String,
    /// All of them.
    pub differences: Vec<Difference>,
}

impl Report {
    /// Of what was counted.
    pub fn new(counted: &[Counted], expected: &[Expected]) -> Self {
        let find = |op, place| {
            // The loop around both kinds of checkpoint is one.
            let op = if place == Place::Loop {
                Op::Checkpoint
            } else {
                op
            };
            let wanted = Measurement { op, place };
            counted.iter().find(move |one| one.measurement == wanted)
        };
        let differences = DIFFERENCES.iter().filter_map(|&(op, place, without)| {
            let (here, there) = (find(op, place)?, find(op, without)?);
            let difference = here.each - there.each;
            let is_it = |one: &&Expected| (one.op, one.place, one.without) == (op, place, without);
            let expected = expected.iter().find(is_it).map(|one| one.difference);
            let spread = here.spread + there.spread;
            let tolerance = (SHARE * there.each).max(INSTRUCTIONS);
            Some(Difference {
                op,
                place,
                without,
                instructions: here.each,
                instructions_without: there.each,
                difference,
                spread,
                expected,
                tolerance,
                judged: judge(difference, expected, tolerance),
            })
        });
        Self {
            bench: "instructions".into(),
            differences: differences.collect(),
        }
    }

    /// Whether something takes more than it should, or nobody knows how much it should.
    pub fn takes_more(&self) -> bool {
        let bad = [Judged::Worse, Judged::Unknown];
        self.differences.iter().any(|one| bad.contains(&one.judged))
    }

    /// What would be expected if this were right.
    pub fn expected(&self) -> Vec<Expected> {
        let line = |one: &Difference| Expected {
            op: one.op,
            place: one.place,
            without: one.without,
            // Plus zero: no file says −0.0.
            difference: (one.difference * 10.0).round() / 10.0 + 0.0,
        };
        self.differences.iter().map(line).collect()
    }

    /// The same as the text of the file: a line for each.
    pub fn as_expected(&self) -> String {
        let lines: Vec<String> = self
            .expected()
            .iter()
            .map(|one| format!("  {}", crate::report::json(one).trim_end()))
            .collect();
        format!("[\n{}\n]\n", lines.join(",\n"))
    }
}

fn judge(difference: f64, expected: Option<f64>, tolerance: f64) -> Judged {
    match expected {
        None => Judged::Unknown,
        Some(expected) if difference > expected + tolerance => Judged::Worse,
        Some(expected) if difference < expected - tolerance => Judged::Better,
        Some(_) => Judged::AsExpected,
    }
}

/// The output for people.
pub fn render(report: &Report) -> String {
    let all = &report.differences;
    let column = |cell: &dyn Fn(&Difference) -> String| all.iter().map(cell).collect::<Vec<_>>();
    let mut table = Table::default();
    table.column("operation", 0, column(&|one| format!("{:?}", one.op)));
    table.column("where", 0, column(&|one| format!("{:?}", one.place)));
    table.column("", 0, column(&|one| format!("{:.1}", one.instructions)));
    table.column("without", 0, column(&|one| format!("{:?}", one.without)));
    table.column(
        "",
        0,
        column(&|one| format!("{:.1}", one.instructions_without)),
    );
    table.column(
        "difference",
        0,
        column(&|one| format!("{:+.1}", one.difference)),
    );
    let expected = |one: &Difference| {
        one.expected
            .map_or("–".into(), |expected| format!("{expected:+.1}"))
    };
    table.column("expected", 0, column(&expected));
    table.column("±", 0, column(&|one| format!("{:.1}", one.tolerance)));
    table.column("rounds ±", 1, column(&|one| format!("{:.2}", one.spread)));
    let word = |one: &Difference| match one.judged {
        Judged::AsExpected => "".into(),
        Judged::Better => "better".into(),
        Judged::Worse => "MORE".into(),
        Judged::Unknown => "unknown".into(),
    };
    table.column("", 0, column(&word));
    let mut text =
        "Instructions of one operation, on one worker, counted by callgrind\n\n".to_owned();
    text += &table.render(WIDTH);
    let some = |judged| all.iter().any(|one| one.judged == judged);
    if report.takes_more() {
        text += &wrap(
            "Something takes more instructions than instructions.json says. If that is meant to be so: instructions --bless, \
             and the diff is part of the change.",
            WIDTH,
        );
        text += "\n";
    } else if some(Judged::Better) {
        text += "Something takes fewer than instructions.json says: instructions --bless keeps it so.\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::instructions::ops::MEASUREMENTS;

    fn counted(watched: f64) -> Vec<Counted> {
        let each = |place| match place {
            Place::Tokio | Place::Unwatched => 1_000.0,
            Place::Watched => watched,
            Place::Loop => 4.0,
        };
        let one = |measurement: &Measurement| Counted {
            measurement: *measurement,
            each: each(measurement.place),
            spread: 0.25,
        };
        MEASUREMENTS.iter().map(one).collect()
    }

    #[test]
    fn what_takes_more_than_it_may_is_seen() {
        let expected = Report::new(&counted(1_100.0), &[]).expected();
        assert_eq!(expected.len(), DIFFERENCES.len());
        let judged = |watched| {
            let report = Report::new(&counted(watched), &expected);
            let spawn = &report.differences[1];
            assert_eq!((spawn.op, spawn.place), (Op::Spawn, Place::Watched));
            (report.takes_more(), spawn.judged)
        };
        assert_eq!(judged(1_100.0), (false, Judged::AsExpected));
        assert_eq!(judged(1_101.0), (false, Judged::AsExpected));
        assert_eq!(judged(1_121.0), (true, Judged::Worse));
        assert_eq!(judged(1_000.0), (false, Judged::Better));
    }

    #[test]
    fn a_file_that_lacks_something_is_no_approval() {
        let report = Report::new(&counted(1_100.0), &[]);
        assert!(report.takes_more());
        assert!(render(&report).contains("--bless"));
    }

    #[test]
    fn what_is_written_can_be_read() {
        let report = Report::new(&counted(1_100.0), &[]);
        let read: Vec<Expected> = serde_json::from_str(&report.as_expected()).unwrap();
        assert_eq!(read, report.expected());
    }

    #[test]
    fn the_projects_file_has_everything() {
        let text = include_str!("../../instructions.json");
        let expected: Vec<Expected> = serde_json::from_str(text).unwrap();
        let report = Report::new(&counted(1_100.0), &expected);
        let unknown = |one: &Difference| one.judged == Judged::Unknown;
        assert!(!report.differences.iter().any(unknown));
    }

    #[test]
    fn lines_fit() {
        let text = render(&Report::new(&counted(123_456.0), &[]));
        assert!(
            text.lines().all(|line| line.chars().count() <= WIDTH),
            "{text}"
        );
    }
}
