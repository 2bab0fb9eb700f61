//! How late tasks wake that sleep, beside batch work of several kinds: one task, or four, which give samples for a percentile in two
//! seconds.

use std::time::Duration;

use morpheus_harness::clock::monotonic_ns;
use morpheus_harness::histogram::Latencies;
use morpheus_harness::rows::Part;
use morpheus_harness::thread;

use super::super::child::{Answer, Job};
use super::super::crowd::{Crowd, Member};
use super::super::probes::{EDITOR_WORK, Probe};
use super::super::result::Measured;
use crate::jitter::sleep::Call;
use crate::pace::Pace;
use crate::{cpus, work};

/// Between two wakes. No multiple of a tick, so that they fall on every part of one.
pub const PERIOD_NS: u64 = 4_900_000;
/// Hogs have by then started.
pub const WARMUP: Duration = Duration::from_millis(700);
/// Batch work has by then been running for long.
pub const LONG: Duration = Duration::from_millis(2_500);
/// Tasks that have slept often, and then compute.
const TURNCOAT: Member = Member {
    name: c"scale-turncoat",
    work: Duration::from_millis(120),
    sleep: Duration::from_millis(40),
    ..Member::INTERACTIVE
};
/// CPU time of a job: a task of its own, as a compiler is one for each file.
const JOB: Duration = Duration::from_millis(5);
/// Jobs at a time, for each CPU.
const JOBS: usize = 3;

/// Tasks that sleep, and whose latencies are measured once everything else has started.
#[derive(Clone, Copy)]
pub struct Sleepers {
    count: usize,
    /// Until everything else has started.
    warmup: Duration,
    /// CPU time of each at a wake.
    work: Duration,
    /// The CPU to which they keep, where one is given.
    cpu: Option<usize>,
}

/// One that only wakes.
pub const ONE: Sleepers = Sleepers {
    count: 1,
    warmup: WARMUP,
    work: Duration::ZERO,
    cpu: None,
};
/// Four of these.
pub const FOUR: Sleepers = Sleepers { count: 4, ..ONE };
/// Four that together want more than half of two CPUs: they are ahead of hogs now and then.
pub const FOUR_WORKING: Sleepers = Sleepers {
    work: Duration::from_millis(1),
    ..FOUR
};
/// Four that work as an editor does.
pub const FOUR_EDITORS: Sleepers = Sleepers {
    work: EDITOR_WORK,
    ..FOUR
};

/// Beside two hogs for each CPU.
pub fn beside_hogs(job: &Job, sleepers: Sleepers) -> Answer {
    let _hogs = Probe::Hog.start(2 * job.cpus)?;
    sleepers.wakes(job)
}

/// The same while processes are started in bursts.
pub fn beside_bursts(job: &Job, sleepers: Sleepers) -> Answer {
    let _storm = Probe::Storm.start(1)?;
    beside_hogs(job, sleepers)
}

/// Beside two compressors for each CPU that have been running for long.
pub fn beside_longrun(job: &Job, sleepers: Sleepers) -> Answer {
    let _compressors = Probe::Grind.start(2 * job.cpus)?;
    let warmup = LONG;
    Sleepers { warmup, ..sleepers }.wakes(job)
}

/// Beside a compressor for each CPU, other tasks that work a little, and bursts.
pub fn mixed(job: &Job) -> Answer {
    let _compressors = Probe::Grind.start(job.cpus)?;
    let _others = Probe::Editor.start(job.cpus)?;
    let _storm = Probe::Storm.start(1)?;
    let work = EDITOR_WORK;
    Sleepers { work, ..ONE }.wakes(job)
}

/// Beside interactive tasks that want more than there is.
pub fn interactive(job: &Job) -> Answer {
    let _others = Crowd::start(vec![Member::INTERACTIVE; 2 * job.cpus])?;
    FOUR_EDITORS.wakes(job)
}

/// Beside tasks that sleep for long enough to be known as sleepers, and then compute.
pub fn turncoats(job: &Job) -> Answer {
    let _others = Crowd::start(vec![TURNCOAT; 3 * job.cpus])?;
    FOUR.wakes(job)
}

/// Beside jobs that are new tasks, compute, and end.
pub fn jobs(job: &Job) -> Answer {
    for _ in 0..JOBS * job.cpus {
        thread::start(start_jobs)?;
    }
    FOUR.wakes(job)
}

/// One after the other, until the process ends.
fn start_jobs() {
    thread::name_current(c"scale-make");
    let one = || {
        thread::name_current(c"scale-job");
        work::burn(JOB, |_| ());
    };
    while let Ok(running) = thread::start(one) {
        // One that panicked has said so.
        let _ = running.join();
    }
}

/// On the first CPU, beside a hog on each CPU that keeps to it.
pub fn pinned(job: &Job) -> Answer {
    let all = cpus::allowed();
    let _hogs = Crowd::start(all.iter().map(|cpu| Member::BATCH.on(*cpu)))?;
    let cpu = all.first().copied();
    Sleepers { cpu, ..FOUR }.wakes(job)
}

impl Sleepers {
    /// The latencies of all of them. The calling thread is one, so that a single one is no new task.
    fn wakes(self, job: &Job) -> Answer {
        std::thread::sleep(self.warmup);
        let start = monotonic_ns();
        let sleeper = || -> Result<Latencies, String> {
            self.cpu.map_or(Ok(()), cpus::pin)?;
            Ok(probe(job.duration_ns, self.work))
        };
        let all = std::thread::scope(|scope| -> Result<Latencies, String> {
            let others: Vec<_> = (1..self.count).map(|_| scope.spawn(sleeper)).collect();
            let mut all = sleeper()?;
            for other in others {
                all.add(&thread::joined(other)??);
            }
            Ok(all)
        })?;
        let wall_ns = monotonic_ns() - start;
        Ok(Measured::latencies(&all, wall_ns, Part::P99))
    }
}

/// Wakes at a fixed rate for `duration_ns`, and computes for the CPU time `work` each time. Latencies count from the
/// intended wake: one that is so late that the next is due counts for both.
pub fn probe(duration_ns: u64, work: Duration) -> Latencies {
    thread::name_current(c"scale-probe");
    // Slack would be added to what the scheduler does. The slice is left as it is: that is the scheduler's.
    thread::set_timer_slack(1);
    let mut latencies = Latencies::default();
    let start = monotonic_ns();
    let end = start + duration_ns;
    let mut pace = Pace::every(start, PERIOD_NS);
    while pace.due() < end {
        Call::Nanosleep.sleep_until(pace.due());
        let now = monotonic_ns();
        while let Some(due) = pace.take_due(now) {
            latencies.record_ns(now - due);
        }
        if !work.is_zero() {
            work::burn(work, |_| ());
        }
    }
    latencies
}
