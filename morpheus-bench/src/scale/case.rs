//! The cases of each suite: how each is measured, and its figure.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::cases::{
    bounds, contention, deadline, groups, ipc, launch, messaging, pcpu, runtime, soak, spread,
    stress, throughput, wake,
};
use super::child::{Answer, Job};
use crate::arguments::name_of;
use crate::report::{self, Table, WIDTH};
use crate::unit::Unit;

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
    /// Wakes of several tasks beside two hogs for each CPU.
    Sleepers,
    /// The same of tasks that work a while.
    SleepersWorking,
    /// The same while processes are started in bursts.
    SleepersBurst,
    /// The same of tasks that work a little, beside compressors that have been running for long.
    SleepersLongrun,
    /// Beside interactive tasks that want more than there is.
    SleepersInteractive,
    /// Beside tasks that have slept, and then compute.
    SleepersTurncoats,
    /// Beside jobs that are new tasks, compute, and end.
    SleepersJobs,
    /// On one CPU, beside hogs that keep to theirs.
    SleepersPinned,
    /// Starting a process beside hogs that have been running for long.
    LaunchLongrun,
    /// Starting several at a time.
    LaunchStorm,
    /// Compression by several processes for each CPU.
    ThroughputCrowd,
    /// A hog of low priority among others.
    Light,
    /// A daemon of low priority among hogs.
    LightSleeper,
    /// Batch work among interactive tasks of high priority.
    BehindFront,
    /// Batch work beside pinned hogs of high priority.
    BehindPinned,
    /// Hogs that were started on half of the CPUs.
    Halves,
    /// A hog that real-time threads displace.
    Displaced,
    /// Hogs that come to where more compute.
    Newcomer,
    /// Frames of a compositor.
    Compositor,
    /// A group with a low weight and many threads.
    GroupWeight,
    /// A group with a limit.
    GroupLimit,
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

const fn rate(figure: &'static str, unit: Unit, measure: Measure, what: &'static str) -> About {
    About {
        suite: Suite::Scale,
        figure,
        unit,
        at_most: None,
        measure,
        what,
    }
}

const fn wakes(measure: Measure, what: &'static str) -> About {
    rate("wake p99", Unit::Time, measure, what)
}

const fn of_runtime(
    figure: &'static str,
    unit: Unit,
    measure: Measure,
    what: &'static str,
) -> About {
    About {
        suite: Suite::Runtime,
        ..rate(figure, unit, measure, what)
    }
}

const fn feature(figure: &'static str, unit: Unit, measure: Measure, what: &'static str) -> About {
    About {
        suite: Suite::Features,
        ..rate(figure, unit, measure, what)
    }
}

const fn wait(suite: Suite, figure: &'static str, measure: Measure, what: &'static str) -> About {
    About {
        suite,
        at_most: Some(LONGEST_WAIT_NS),
        ..rate(figure, Unit::Time, measure, what)
    }
}

impl Case {
    /// The description of this case.
    #[rustfmt::skip]
    pub fn about(self) -> About {
        use Suite::{Contention, Pcpu, Scx, Soak, Trace};
        match self {
            Self::Throughput => rate("compressed/s", Unit::BytesPassed, throughput::measure, "a compressor for each CPU"),
            Self::Latency => wakes(wake::latency, "a task that wakes every 5 ms, beside two hogs for each CPU"),
            Self::Burst => wakes(wake::burst, "a task that wakes every 5 ms, beside two hogs for each CPU, while bursts of processes are started"),
            Self::Longrun => wakes(wake::longrun, "a task that wakes every 5 ms, beside compressors that have been running for seconds"),
            Self::Mixed => wakes(wake::mixed, "a task that works 0.3 ms at each wake, beside batch work, others like it, and bursts"),
            Self::Deadline => rate("frames missed", Unit::Share, deadline::measure, "frames of 16.6 ms, a quarter of which is computed in four pieces, beside two hogs for each CPU"),
            Self::Ipc => rate("round trip p99", Unit::Time, ipc::round_trip, "a byte to another process and back, once a millisecond, beside a hog for each CPU"),
            Self::Launch => rate("launch p50", Unit::Time, launch::measure, "fork, exec and the end of a process, beside two hogs for each CPU"),
            Self::Messaging => rate("messages/s", Unit::Count, messaging::measure, "two groups of five senders and five receivers on sockets"),
            Self::Pipe => rate("round trips/s", Unit::Count, ipc::pipe, "a byte to and fro between processes on two CPUs"),
            Self::Regimes => wait(Contention, "longest wake", contention::regimes, "light load, half of the CPUs, four hogs for each, and light load again, when wakes must be as short as before"),
            Self::Sojourn => wait(Contention, "longest wait", contention::sojourn, "batch work among interactive tasks that want nearly two times the machine: the batch work's longest wait"),
            Self::LongrunShares => wait(Contention, "longest wait", contention::longrun_shares, "equal batch work for seconds, beside a storm of processes: equal shares, and the longest wait"),
            Self::BurstRecovery => wait(Contention, "longest wait", contention::burst_recovery, "before, in and after a storm of processes: wakes as short afterwards, and batch work's longest wait"),
            Self::IoBatch => wait(Contention, "longest wait", contention::io_batch, "batch work that sleeps now and then among some that does not: its share, and the longest wait of both"),
            Self::Hotplug => wait(Contention, "longest wait", contention::hotplug, "a CPU goes offline and comes back, again and again: it is used again, and batch work's longest wait"),
            Self::WakeBurst => wait(Pcpu, "longest until done", pcpu::wake_burst, "eight tasks for each CPU, woken at once by one of them, compute for 2 ms: until the last one is done"),
            Self::Steal => wait(Pcpu, "longest until spread", pcpu::steal, "two hogs for each CPU, all on the first one, may use the others: until each of these runs one"),
            Self::Rescue => wait(Pcpu, "longest wait", pcpu::rescue, "on each CPU a pinned batch task among pinned interactive ones that want more than it has"),
            Self::Reload => About { at_most: None, ..wait(Scx, "longest start", |_| Err("the parent does this, who may start schedulers".into()), "stopped and started five times, and in force each time; not for the kernel's own") },
            Self::Stress => wait(Scx, "longest wait", stress::measure, "batch work, editors, storms, messages and round trips at once, and stress-ng where it is installed"),
            Self::TracedStress => wait(Trace, "longest wait", stress::measure, "the same as stress, with sched_switch, sched_wakeup and sched_ext_dump captured; saved when it fails"),
            Self::Soak => wait(Soak, "longest wait", soak::measure, "storms of processes, hogs (also niced ones), pipes, timers, sleepers, messages, and CPUs that go and come, all at once: the longest wait of any runnable task of the machine, the scheduler in force, and the kernel's log clean"),
            Self::RuntimeHogs2 => of_runtime("wake p99", Unit::Time, |job| runtime::measure(job, "--hogs 2"), "a task of Morpheus beside two hogs of 200 ms, and a busy thread of another process for each CPU"),
            Self::RuntimeHogs6 => of_runtime("wake p99", Unit::Time, |job| runtime::measure(job, "--hogs 6"), "the same beside six hogs"),
            Self::RuntimeHogs20 => of_runtime("wake p99", Unit::Time, |job| runtime::measure(job, "--hogs 20"), "the same beside twenty"),
            Self::RuntimeWatched2 => of_runtime("wake p99", Unit::Time, |job| runtime::measure(job, "--hogs 2 --hog-via spawn"), "the same beside two hogs that are watched"),
            Self::RuntimeWatched6 => of_runtime("wake p99", Unit::Time, |job| runtime::measure(job, "--hogs 6 --hog-via spawn"), "the same beside six of these"),
            Self::RuntimeWatched20 => of_runtime("wake p99", Unit::Time, |job| runtime::measure(job, "--hogs 20 --hog-via spawn"), "the same beside twenty of these"),
            Self::RuntimeServer => of_runtime("requests/s", Unit::Count, |job| runtime::measure(job, "--hogs 0 --load 4 --load-rate 100"), "a TCP server on Morpheus, beside a busy thread of another process for each CPU"),
            Self::RuntimeServerHogs => of_runtime("requests/s", Unit::Count, |job| runtime::measure(job, "--hogs 6 --hog-via spawn --load 4 --load-rate 100"), "the same beside six watched hogs"),
            Self::Sleepers => feature("wake p99", Unit::Time, wake::of_four, "four tasks that wake every 5 ms, beside two hogs for each CPU"),
            Self::SleepersWorking => feature("wake p99", Unit::Time, wake::of_four_working, "four tasks that work 1 ms every 5 ms, beside two hogs for each CPU"),
            Self::SleepersBurst => feature("wake p99", Unit::Time, wake::burst_of_four, "four tasks that wake every 5 ms, beside two hogs for each CPU, while bursts of processes are started"),
            Self::SleepersLongrun => feature("wake p99", Unit::Time, wake::longrun_of_four, "four tasks that work 0.3 ms every 5 ms, beside two compressors for each CPU that have been running for seconds"),
            Self::SleepersInteractive => feature("wake p99", Unit::Time, wake::interactive, "four tasks that work 0.3 ms every 5 ms, beside interactive ones that want more than there is"),
            Self::SleepersTurncoats => feature("wake p99", Unit::Time, wake::turncoats, "four tasks that wake every 5 ms, beside three for each CPU that sleep for 40 ms and then compute for 120"),
            Self::SleepersJobs => feature("wake p99", Unit::Time, wake::jobs, "four tasks that wake every 5 ms, beside three jobs for each CPU at a time, each a new task that computes 5 ms"),
            Self::LaunchLongrun => feature("launch p50", Unit::Time, launch::longrun, "fork, exec and the end of a process, beside two hogs for each CPU that have been running for seconds"),
            Self::LaunchStorm => feature("launch p50", Unit::Time, launch::storm, "fork, exec and the end of four processes for each CPU at a time, beside two hogs for each CPU"),
            Self::ThroughputCrowd => feature("compressed/s", Unit::BytesPassed, throughput::crowd, "three compressors for each CPU"),
            Self::SleepersPinned => feature("wake p99", Unit::Time, wake::pinned, "four tasks on one CPU that wake every 5 ms, beside a hog on each CPU that keeps to it"),
            Self::Light => feature("longest wait", Unit::Time, bounds::light, "a hog of nice 19 among four of nice 0 for each CPU"),
            Self::LightSleeper => feature("longest wait", Unit::Time, bounds::light_sleeper, "a task of nice 19 that works 2 ms and sleeps 20, among two hogs of nice 0 for each CPU"),
            Self::BehindFront => feature("longest wait", Unit::Time, bounds::behind_front, "a batch task for each CPU among four interactive ones of nice -20 for each, which want two times the machine"),
            Self::BehindPinned => feature("longest wait", Unit::Time, bounds::behind_pinned, "a batch task for each CPU that may use all, on each of which two hogs of nice -20 are that keep to it"),
            Self::Halves => feature("CPUs used", Unit::Count, spread::halves, "a hog for each CPU, started in the first half of the CPUs; all may use all CPUs"),
            Self::Displaced => feature("CPUs used", Unit::Count, spread::displaced, "a hog that may use two CPUs, of which real-time threads take one after the other for 3 of each 10 ms"),
            Self::Newcomer => feature("wait p50", Unit::Time, spread::newcomer, "hogs that come from the half of the CPUs that run one each to the half that run four each, again and again: the median of their longest waits there"),
            Self::Compositor => feature("frame p50", Unit::Time, deadline::compositor, "frames of 16.6 ms of a task with a compositor's name, which computes 9 ms in each, beside a hog for each CPU"),
            Self::GroupWeight => feature("share of the light group", Unit::Share, groups::weight, "a group with a quarter of the weights and three quarters of the threads, which all compute"),
            Self::GroupLimit => feature("CPUs used", Unit::Share, groups::limit, "a group with a hog for each CPU that may use 20 ms of each 100, beside as many hogs outside"),
        }
    }

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
