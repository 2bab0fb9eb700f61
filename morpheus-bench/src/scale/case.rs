//! What there is to measure: the cases of each suite, the figure of each, and which way is better.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use crate::report::{self, Table, WIDTH};
use crate::unit::Unit;

/// A group of cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Suite {
    /// Latencies and throughput, to compare schedulers by
    Scale,
    /// Nobody waits for long, whatever the others do: six phases
    Contention,
    /// What is on one CPU's queue gets to the others, and nothing is left there
    Pcpu,
    /// Schedulers come and go, and live through stress
    Scx,
    /// Stress, and a capture of who ran and woke, saved when it fails
    Trace,
    /// Everything at once for long, watched from outside
    Soak,
    /// What tasks of Morpheus's runtime feel beside hogs of their own and busy threads of other processes
    Runtime,
}

/// Something to measure.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ValueEnum,
)]
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
    /// Light load, some, too much, and light load again.
    Regimes,
    /// Batch work among interactive tasks that want more than there is.
    Sojourn,
    /// Batch work that has been running for long, and a storm.
    LongrunShares,
    /// Before, in and after a storm.
    BurstRecovery,
    /// Batch work that sleeps now and then, among some that does not.
    IoBatch,
    /// A CPU goes and comes back.
    Hotplug,
    /// Many tasks that are woken at once by one CPU.
    WakeBurst,
    /// Tasks that were on one CPU and may use all.
    Steal,
    /// Batch work that may use one CPU only, among interactive tasks that may not either.
    Rescue,
    /// Starting and stopping the scheduler.
    Reload,
    /// Everything at once.
    Stress,
    /// The same, captured.
    TracedStress,
    /// Everything at once for long, with CPUs that go and come.
    Soak,
    /// Tasks of the runtime beside two hogs.
    RuntimeHogs2,
    /// Beside six.
    RuntimeHogs6,
    /// Beside twenty.
    RuntimeHogs20,
    /// Beside two that are watched.
    RuntimeWatched2,
    /// Beside six of these.
    RuntimeWatched6,
    /// Beside twenty of these.
    RuntimeWatched20,
    /// A server.
    RuntimeServer,
    /// A server beside six watched hogs.
    RuntimeServerHogs,
}

/// What the cases beside those of the suite `scale` are judged by: nothing runnable may wait for longer.
pub const LONGEST_WAIT_NS: f64 = 1e9;

/// What is to be said of a case.
#[derive(Clone, Copy, Debug)]
pub struct About {
    /// The suite that it is in.
    pub suite: Suite,
    /// The figure by which schedulers are compared, for the head of a table.
    pub figure: &'static str,
    /// Its unit.
    pub unit: Unit,
    /// A greater figure is a failure.
    pub at_most: Option<f64>,
    /// What happens, in a line.
    pub what: &'static str,
}

const fn rate(figure: &'static str, unit: Unit, what: &'static str) -> About {
    About {
        suite: Suite::Scale,
        figure,
        unit,
        at_most: None,
        what,
    }
}

const fn wake(what: &'static str) -> About {
    rate("wake p99", Unit::Time, what)
}

const fn runtime(figure: &'static str, unit: Unit, what: &'static str) -> About {
    About {
        suite: Suite::Runtime,
        ..rate(figure, unit, what)
    }
}

const fn wait(suite: Suite, figure: &'static str, what: &'static str) -> About {
    About {
        suite,
        at_most: Some(LONGEST_WAIT_NS),
        ..rate(figure, Unit::Time, what)
    }
}

impl Case {
    /// What is to be said of it.
    #[rustfmt::skip]
    pub fn about(self) -> About {
        use Suite::{Contention, Pcpu, Scx, Soak, Trace};
        match self {
            Self::Throughput => rate("compressed/s", Unit::BytesPassed, "a compressor for each CPU"),
            Self::Latency => wake("a task that wakes every 5 ms, beside two hogs for each CPU"),
            Self::Burst => wake("a task that wakes every 5 ms, beside two hogs for each CPU, while bursts of processes are started"),
            Self::Longrun => wake("a task that wakes every 5 ms, beside compressors that have been running for seconds"),
            Self::Mixed => wake("a task that works 0.3 ms at each wake, beside batch work, others like it, and bursts"),
            Self::Deadline => rate("frames missed", Unit::Share, "frames of 16.6 ms, a quarter of which is computed in four pieces, beside two hogs for each CPU"),
            Self::Ipc => rate("round trip p99", Unit::Time, "a byte to another process and back, once a millisecond, beside a hog for each CPU"),
            Self::Launch => rate("launch p50", Unit::Time, "fork, exec and the end of a process, beside two hogs for each CPU"),
            Self::Messaging => rate("messages/s", Unit::Count, "two groups of five senders and five receivers on sockets"),
            Self::Pipe => rate("round trips/s", Unit::Count, "a byte to and fro between processes on two CPUs"),
            Self::Regimes => wait(Contention, "longest wake", "light load, half of the CPUs, four hogs for each, and light load again, when wakes must be as short as before"),
            Self::Sojourn => wait(Contention, "longest wait", "batch work among interactive tasks that want nearly two times the machine: the batch work's longest wait"),
            Self::LongrunShares => wait(Contention, "longest wait", "equal batch work for seconds, beside a storm of processes: equal shares, and the longest wait"),
            Self::BurstRecovery => wait(Contention, "longest wait", "before, in and after a storm of processes: wakes as short afterwards, and batch work's longest wait"),
            Self::IoBatch => wait(Contention, "longest wait", "batch work that sleeps now and then among some that does not: its share, and the longest wait of both"),
            Self::Hotplug => wait(Contention, "longest wait", "a CPU goes offline and comes back, again and again: it is used again, and batch work's longest wait"),
            Self::WakeBurst => wait(Pcpu, "longest until done", "eight tasks for each CPU, woken at once by one of them, compute for 2 ms: until the last one is done"),
            Self::Steal => wait(Pcpu, "longest until spread", "two hogs for each CPU, all on the first one, may use the others: until each of these runs one"),
            Self::Rescue => wait(Pcpu, "longest wait", "on each CPU a pinned batch task among pinned interactive ones that want more than it has"),
            Self::Reload => About { at_most: None, ..wait(Scx, "longest start", "stopped and started five times, and in force each time; not for the kernel's own") },
            Self::Stress => wait(Scx, "longest wait", "batch work, editors, storms, messages and round trips at once, and stress-ng where it is installed"),
            Self::TracedStress => wait(Trace, "longest wait", "the same as stress, with sched_switch, sched_wakeup and sched_ext_dump captured; saved when it fails"),
            Self::Soak => wait(Soak, "longest wait", "storms of processes, hogs (also niced ones), pipes, timers, sleepers, messages, and CPUs that go and come, all at once: the longest wait of any runnable task of the machine, the scheduler in force, and the kernel's log clean"),
            Self::RuntimeHogs2 => runtime("wake p99", Unit::Time, "a task of Morpheus beside two hogs of 200 ms, and a busy thread of another process for each CPU"),
            Self::RuntimeHogs6 => runtime("wake p99", Unit::Time, "the same beside six hogs"),
            Self::RuntimeHogs20 => runtime("wake p99", Unit::Time, "the same beside twenty"),
            Self::RuntimeWatched2 => runtime("wake p99", Unit::Time, "the same beside two hogs that are watched"),
            Self::RuntimeWatched6 => runtime("wake p99", Unit::Time, "the same beside six of these"),
            Self::RuntimeWatched20 => runtime("wake p99", Unit::Time, "the same beside twenty of these"),
            Self::RuntimeServer => runtime("requests/s", Unit::Count, "a TCP server on Morpheus, beside a busy thread of another process for each CPU"),
            Self::RuntimeServerHogs => runtime("requests/s", Unit::Count, "the same beside six watched hogs"),
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
}
