//! The cases of each suite: how each is measured, and its figure.

use clap::ValueEnum;
use morpheus_harness::arguments::name_of;
use morpheus_harness::report::{self, Table, WIDTH};
use morpheus_harness::unit::Unit;
use serde::{Deserialize, Serialize};

use super::cases::wake::{LONG, WARMUP};
use super::cases::{
    bounds, contention, deadline, groups, ipc, launch, messaging, pcpu, runtime, soak, spread,
    stress, throughput, wake,
};
use super::child::{Answer, Job};

/// A group of cases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Suite {
    /// Latencies and throughput, to compare schedulers by
    Scale,
    /// No task waits for long, whatever the others do: six phases
    Contention,
    /// Tasks on one CPU's queue get to the others, and none is left there
    Pcpu,
    /// Schedulers come and go, and live through stress
    Scx,
    /// Stress, and a capture of who ran and woke, saved when it fails
    Trace,
    /// Everything at once for long, watched from outside
    Soak,
    /// The latency of tasks of Morpheus's runtime beside hogs of their own and busy threads of other processes
    Runtime,
    /// The purpose of features of Morpheus's scheduler, a load and a figure for each
    Features,
}

/// The limit of the cases outside of the suite `scale`, in nanoseconds: no runnable task may wait for longer.
pub const LONGEST_WAIT_NS: f64 = 1e9;

/// The description of a case.
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
    /// Measures it, in a child process of its own. Whatever was started has ended when this returns.
    pub measure: Measure,
    /// The load, in a line.
    pub what: &'static str,
}

/// How a case is measured.
type Measure = fn(&Job) -> Answer;

/// The cases, one a line: its name, its suite, its figure and the unit of that, beyond what a figure is a failure, how it is
/// measured, and the load in a line.
macro_rules! cases {
    ($($case:ident: $suite:ident, $figure:literal $unit:ident $(at most $most:ident)?, $measure:expr, $what:literal;)*) => {
        /// Something to measure.
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ValueEnum,
        )]
        #[serde(rename_all = "kebab-case")]
        pub enum Case {
            $(#[doc = $what] $case,)*
        }

        impl Case {
            /// The description of this case.
            pub fn about(self) -> About {
                match self {
                    $(Self::$case => About {
                        suite: Suite::$suite,
                        figure: $figure,
                        unit: Unit::$unit,
                        at_most: [$($most)?].into_iter().next(),
                        measure: $measure,
                        what: $what,
                    },)*
                }
            }
        }
    };
}

cases! {
    Throughput: Scale, "compressed/s" BytesPassed, |job| throughput::measure(job, 1), "a compressor for each CPU";
    Latency: Scale, "wake p99" Time, |job| wake::beside_hogs(job, wake::ONE), "a task that wakes every 5 ms, beside two hogs for each CPU";
    Burst: Scale, "wake p99" Time, |job| wake::beside_bursts(job, wake::ONE), "a task that wakes every 5 ms, beside two hogs for each CPU, while bursts of processes are started";
    Longrun: Scale, "wake p99" Time, |job| wake::beside_longrun(job, wake::ONE), "a task that wakes every 5 ms, beside compressors that have been running for seconds";
    Mixed: Scale, "wake p99" Time, wake::mixed, "a task that works 0.3 ms at each wake, beside batch work, others like it, and bursts";
    Deadline: Scale, "frames missed" Share, deadline::measure, "frames of 16.6 ms, a quarter of which is computed in four pieces, beside two hogs for each CPU";
    Ipc: Scale, "round trip p99" Time, ipc::round_trip, "a byte to another process and back, once a millisecond, beside a hog for each CPU";
    Launch: Scale, "launch p50" Time, |job| launch::measure(job, WARMUP, 1), "fork, exec and the end of a process, beside two hogs for each CPU";
    Messaging: Scale, "messages/s" Count, messaging::measure, "two groups of five senders and five receivers on sockets";
    Pipe: Scale, "round trips/s" Count, ipc::pipe, "a byte to and fro between processes on two CPUs";
    Regimes: Contention, "longest wake" Time at most LONGEST_WAIT_NS, contention::regimes, "light load, half of the CPUs, four hogs for each, and light load again, when wakes must be as short as before";
    Sojourn: Contention, "longest wait" Time at most LONGEST_WAIT_NS, contention::sojourn, "batch work among interactive tasks that want nearly two times the machine: the batch work's longest wait";
    LongrunShares: Contention, "longest wait" Time at most LONGEST_WAIT_NS, contention::longrun_shares, "equal batch work for seconds, beside a storm of processes: equal shares, and the longest wait";
    BurstRecovery: Contention, "longest wait" Time at most LONGEST_WAIT_NS, contention::burst_recovery, "before, in and after a storm of processes: wakes as short afterwards, and batch work's longest wait";
    IoBatch: Contention, "longest wait" Time at most LONGEST_WAIT_NS, contention::io_batch, "batch work that sleeps now and then among some that does not: its share, and the longest wait of both";
    Hotplug: Contention, "longest wait" Time at most LONGEST_WAIT_NS, contention::hotplug, "a CPU goes offline and comes back, again and again: it is used again, and batch work's longest wait";
    WakeBurst: Pcpu, "longest until done" Time at most LONGEST_WAIT_NS, pcpu::wake_burst, "eight tasks for each CPU, woken at once by one of them, compute for 2 ms: until the last one is done";
    Steal: Pcpu, "longest until spread" Time at most LONGEST_WAIT_NS, pcpu::steal, "two hogs for each CPU, all on the first one, may use the others: until each of these runs one";
    Rescue: Pcpu, "longest wait" Time at most LONGEST_WAIT_NS, pcpu::rescue, "on each CPU a pinned batch task among pinned interactive ones that want more than it has";
    Reload: Scx, "longest start" Time, |_| Err("the parent does this, who may start schedulers".into()), "stopped and started five times, and in force each time; not for the kernel's own";
    Stress: Scx, "longest wait" Time at most LONGEST_WAIT_NS, stress::measure, "batch work, editors, storms, messages and round trips at once, and stress-ng where it is installed";
    TracedStress: Trace, "longest wait" Time at most LONGEST_WAIT_NS, stress::measure, "the same as stress, with sched_switch, sched_wakeup and sched_ext_dump captured; saved when it fails";
    Soak: Soak, "longest wait" Time at most LONGEST_WAIT_NS, soak::measure, "storms of processes, hogs (also niced ones), pipes, timers, sleepers, messages, and CPUs that go and come, all at once: the longest wait of any runnable task of the machine, the scheduler in force, and the kernel's log clean";
    RuntimeHogs2: Runtime, "wake p99" Time, |job| runtime::measure(job, "--hogs 2"), "a task of Morpheus beside two hogs of 200 ms, and a busy thread of another process for each CPU";
    RuntimeHogs6: Runtime, "wake p99" Time, |job| runtime::measure(job, "--hogs 6"), "the same beside six hogs";
    RuntimeHogs20: Runtime, "wake p99" Time, |job| runtime::measure(job, "--hogs 20"), "the same beside twenty";
    RuntimeWatched2: Runtime, "wake p99" Time, |job| runtime::measure(job, "--hogs 2 --hog-via spawn"), "the same beside two hogs that are watched";
    RuntimeWatched6: Runtime, "wake p99" Time, |job| runtime::measure(job, "--hogs 6 --hog-via spawn"), "the same beside six of these";
    RuntimeWatched20: Runtime, "wake p99" Time, |job| runtime::measure(job, "--hogs 20 --hog-via spawn"), "the same beside twenty of these";
    RuntimeServer: Runtime, "requests/s" Count, |job| runtime::measure(job, "--hogs 0 --load 4 --load-rate 100"), "a TCP server on Morpheus, beside a busy thread of another process for each CPU";
    RuntimeServerHogs: Runtime, "requests/s" Count, |job| runtime::measure(job, "--hogs 6 --hog-via spawn --load 4 --load-rate 100"), "the same beside six watched hogs";
    Sleepers: Features, "wake p99" Time, |job| wake::beside_hogs(job, wake::FOUR), "four tasks that wake every 5 ms, beside two hogs for each CPU";
    SleepersWorking: Features, "wake p99" Time, |job| wake::beside_hogs(job, wake::FOUR_WORKING), "four tasks that work 1 ms every 5 ms, beside two hogs for each CPU";
    SleepersBurst: Features, "wake p99" Time, |job| wake::beside_bursts(job, wake::FOUR), "four tasks that wake every 5 ms, beside two hogs for each CPU, while bursts of processes are started";
    SleepersLongrun: Features, "wake p99" Time, |job| wake::beside_longrun(job, wake::FOUR_EDITORS), "four tasks that work 0.3 ms every 5 ms, beside two compressors for each CPU that have been running for seconds";
    SleepersInteractive: Features, "wake p99" Time, wake::interactive, "four tasks that work 0.3 ms every 5 ms, beside interactive ones that want more than there is";
    SleepersTurncoats: Features, "wake p99" Time, wake::turncoats, "four tasks that wake every 5 ms, beside three for each CPU that sleep for 40 ms and then compute for 120";
    SleepersJobs: Features, "wake p99" Time, wake::jobs, "four tasks that wake every 5 ms, beside three jobs for each CPU at a time, each a new task that computes 5 ms";
    SleepersPinned: Features, "wake p99" Time, wake::pinned, "four tasks on one CPU that wake every 5 ms, beside a hog on each CPU that keeps to it";
    LaunchLongrun: Features, "launch p50" Time, |job| launch::measure(job, LONG, 1), "fork, exec and the end of a process, beside two hogs for each CPU that have been running for seconds";
    LaunchStorm: Features, "launch p50" Time, |job| launch::measure(job, WARMUP, 4 * job.cpus), "fork, exec and the end of four processes for each CPU at a time, beside two hogs for each CPU";
    ThroughputCrowd: Features, "compressed/s" BytesPassed, |job| throughput::measure(job, 3), "three compressors for each CPU";
    Light: Features, "longest wait" Time, bounds::light, "a hog of nice 19 among four of nice 0 for each CPU";
    LightSleeper: Features, "longest wait" Time, bounds::light_sleeper, "a task of nice 19 that works 2 ms and sleeps 20, among two hogs of nice 0 for each CPU";
    BehindFront: Features, "longest wait" Time, bounds::behind_front, "a batch task for each CPU among four interactive ones of nice -20 for each, which want two times the machine";
    BehindPinned: Features, "longest wait" Time, bounds::behind_pinned, "a batch task for each CPU that may use all, on each of which two hogs of nice -20 are that keep to it";
    Halves: Features, "CPUs used" Count, spread::halves, "a hog for each CPU, started in the first half of the CPUs; all may use all CPUs";
    Displaced: Features, "CPUs used" Count, spread::displaced, "a hog that may use two CPUs, of which real-time threads take one after the other for 3 of each 10 ms";
    Newcomer: Features, "wait p50" Time, spread::newcomer, "hogs that come from the half of the CPUs that run one each to the half that run four each, again and again: the median of their longest waits there";
    Compositor: Features, "frame p50" Time, deadline::compositor, "frames of 16.6 ms of a task with a compositor's name, which computes 9 ms in each, beside a hog for each CPU";
    GroupWeight: Features, "share of the light group" Share, groups::weight, "a group with a quarter of the weights and three quarters of the threads, which all compute";
    GroupLimit: Features, "CPUs used" Share, groups::limit, "a group with a hog for each CPU that may use 20 ms of each 100, beside as many hogs outside";
}

impl Case {
    /// Whether more of its figure is better: so of rates, and of times and shares less is.
    pub fn more_is_better(self) -> bool {
        !matches!(self.about().unit, Unit::Time | Unit::Share)
    }

    /// As on the command line.
    pub fn name(self) -> String {
        name_of(&self)
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
    table.column("suite", 0, column(|case| name_of(&case.about().suite)));
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
