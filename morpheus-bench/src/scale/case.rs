//! What there is to measure: the cases of each suite, the figure of each, and which way is better.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::report::{self, Table, WIDTH};

/// A group of cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Suite {
    /// Latencies and throughput, to compare schedulers by
    Scale,
}

/// Something to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Case {
    /// Compression by a process for each CPU.
    Throughput,
    /// Wakes beside two hogs for each CPU.
    Latency,
    /// The same while processes are started in bursts.
    Burst,
    /// Wakes beside compressors that have been running for long.
    Longrun,
    /// Wakes of a task that works a little, beside batch work, other interactive tasks and bursts.
    Mixed,
    /// Frames of 16.6 ms.
    Deadline,
    /// A byte to another process and back.
    Ipc,
    /// Starting a process and waiting for its end.
    Launch,
    /// Groups of senders and receivers.
    Messaging,
    /// A byte to and fro between two CPUs.
    Pipe,
}

/// What a figure is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds.
    Time,
    /// Bytes a second.
    Bytes,
    /// Events a second.
    Rate,
    /// A share of 1.
    Share,
}

/// What is to be said of a case.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// The suite that it is in.
    pub suite: Suite,
    /// The figure by which schedulers are compared, for the head of a table.
    pub figure: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// Whether more is better.
    pub more_is_better: bool,
    /// What happens, in a line.
    pub what: &'static str,
}

impl Unit {
    /// For people.
    pub fn show(self, value: f64) -> String {
        match self {
            Self::Time => report::time(value as u64),
            Self::Bytes => format!("{:.2} MB/s", value / 1e6),
            Self::Rate => format!("{}/s", report::count(value.round() as u64)),
            Self::Share => format!("{:.1} %", value * 100.0),
        }
    }

    /// As Prometheus names it: base units, and a factor to get them.
    pub fn base(self) -> (&'static str, f64) {
        match self {
            Self::Time => ("seconds", 1e-9),
            Self::Bytes => ("bytes_per_second", 1.0),
            Self::Rate => ("per_second", 1.0),
            Self::Share => ("ratio", 1.0),
        }
    }
}

const fn wake(what: &'static str) -> About {
    About {
        suite: Suite::Scale,
        figure: "wake p99",
        unit: Unit::Time,
        more_is_better: false,
        what,
    }
}

const fn rate(figure: &'static str, unit: Unit, what: &'static str) -> About {
    About {
        suite: Suite::Scale,
        figure,
        unit,
        more_is_better: true,
        what,
    }
}

impl Case {
    /// What is to be said of it.
    pub fn about(self) -> About {
        match self {
            Self::Throughput => rate("compressed", Unit::Bytes, "a compressor for each CPU"),
            Self::Latency => wake("a task that wakes every 5 ms, beside two hogs for each CPU"),
            Self::Burst => wake("the same while bursts of processes are started"),
            Self::Longrun => wake("the same beside compressors that have been running for seconds"),
            Self::Mixed => wake(
                "one that works 0.3 ms at each wake, beside batch work, others like it, and bursts",
            ),
            Self::Deadline => About {
                figure: "frames missed",
                unit: Unit::Share,
                ..wake(
                    "frames of 16.6 ms, a quarter of which is computed in four pieces, beside two hogs for each CPU",
                )
            },
            Self::Ipc => About {
                figure: "round trip p99",
                ..wake(
                    "a byte to another process and back, once a millisecond, beside a hog for each CPU",
                )
            },
            Self::Launch => About {
                figure: "launch p50",
                ..wake("fork, exec and the end of a process, beside two hogs for each CPU")
            },
            Self::Messaging => rate(
                "messages",
                Unit::Rate,
                "two groups of five senders and five receivers on sockets",
            ),
            Self::Pipe => rate(
                "round trips",
                Unit::Rate,
                "a byte to and fro between processes on two CPUs",
            ),
        }
    }

    /// As on the command line.
    pub fn name(self) -> String {
        let value = self.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

impl Suite {
    /// Its cases, in the order in which they are measured.
    pub fn cases(self) -> Vec<Case> {
        let all = Case::value_variants().iter().copied();
        all.filter(|case| case.about().suite == self).collect()
    }
}

/// All cases, for people.
pub fn list() -> String {
    let cases = Case::value_variants();
    let (mut table, column) = (Table::default(), |cell: fn(Case) -> String| {
        cases.iter().map(|case| cell(*case)).collect()
    });
    table.column("case", 0, column(Case::name));
    let suite = |case: Case| {
        let value = case.about().suite.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    };
    table.column("suite", 0, column(suite));
    table.column("figure", 0, column(|case| case.about().figure.to_owned()));
    let mut text = table.render(WIDTH);
    text.push('\n');
    for case in cases {
        let line = format!("{}: {}.", case.name(), case.about().what);
        text += &report::wrap(&line, WIDTH);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_is_in_a_suite_and_named_as_in_its_records() {
        for case in Case::value_variants() {
            assert!(case.about().suite.cases().contains(case), "{case:?}");
            let record = serde_json::to_string(case).unwrap();
            assert_eq!(record.trim_matches('"'), case.name());
        }
    }

    #[test]
    fn the_list_names_all_and_fits() {
        let text = list();
        for case in Case::value_variants() {
            assert!(text.contains(&case.name()), "{text}");
        }
        assert!(
            text.lines().all(|line| line.chars().count() <= WIDTH),
            "{text}"
        );
    }

    #[test]
    fn figures_have_units() {
        let shown = [
            Unit::Time.show(1_249_000.0),
            Unit::Bytes.show(3_456_789.0),
            Unit::Rate.show(12_345.4),
            Unit::Share.show(0.0213),
        ];
        assert_eq!(shown, ["1.2 ms", "3.46 MB/s", "12,345/s", "2.1 %"]);
    }
}
