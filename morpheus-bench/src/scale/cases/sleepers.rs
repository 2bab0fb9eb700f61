//! How late several tasks wake that sleep: as `wake`, with samples for a percentile in two seconds.

use std::time::Duration;

use super::super::child::{Answer, Job};
use super::super::crowd::{Crowd, Member};
use super::super::probes::{EDITOR_WORK, Probe};
use super::super::result::Measured;
use super::wake::{LONG, WARMUP, probe};
use crate::clock::monotonic_ns;
use crate::histogram::Latencies;
use crate::{cpus, thread, work};

/// Tasks that sleep.
const SLEEPERS: usize = 4;
/// Tasks that have slept often, and then compute.
const TURNCOAT: Member = Member {
    name: c"scale-turncoat",
    work: Duration::from_millis(120),
    sleep: Duration::from_millis(40),
    ..Member::INTERACTIVE
};
/// CPU time of each thread at a wake, where they work.
const WORK: Duration = Duration::from_millis(1);
/// CPU time of a job: a task of its own, as a compiler is one for each file.
const JOB: Duration = Duration::from_millis(5);
/// Jobs at a time, for each CPU.
const JOBS: usize = 3;

/// Beside two hogs for each CPU.
pub fn hogs(job: &Job) -> Answer {
    let _hogs = Probe::Hog.start(2 * job.cpus)?;
    wakes(job, WARMUP, Duration::ZERO, None)
}

/// Beside two hogs for each CPU, and together they want more than half of the machine: they are ahead of the hogs now and then.
pub fn working(job: &Job) -> Answer {
    let _hogs = Probe::Hog.start(2 * job.cpus)?;
    wakes(job, WARMUP, WORK, None)
}

/// The same while processes are started in bursts.
pub fn burst(job: &Job) -> Answer {
    let _hogs = Probe::Hog.start(2 * job.cpus)?;
    let _storm = Probe::Storm.start(1)?;
    wakes(job, WARMUP, Duration::ZERO, None)
}

/// Beside two compressors for each CPU that have been running for long; the sleepers work a little.
pub fn longrun(job: &Job) -> Answer {
    let _compressors = Probe::Grind.start(2 * job.cpus)?;
    wakes(job, LONG, EDITOR_WORK, None)
}

/// Beside interactive tasks that want more than there is.
pub fn interactive(job: &Job) -> Answer {
    let _others = Crowd::start(vec![Member::INTERACTIVE; 2 * job.cpus])?;
    wakes(job, WARMUP, EDITOR_WORK, None)
}

/// Beside tasks that sleep for long enough to be known as sleepers, and then compute.
pub fn turncoats(job: &Job) -> Answer {
    let _others = Crowd::start(vec![TURNCOAT; 3 * job.cpus])?;
    wakes(job, WARMUP, Duration::ZERO, None)
}

/// Beside jobs that are new tasks, compute, and end.
pub fn jobs(job: &Job) -> Answer {
    for _ in 0..JOBS * job.cpus {
        std::thread::Builder::new()
            .spawn(start_jobs)
            .map_err(|error| format!("cannot start a thread: {error}"))?;
    }
    wakes(job, WARMUP, Duration::ZERO, None)
}

/// One after the other, until the process ends.
fn start_jobs() {
    thread::name_current(c"scale-make");
    let one = || {
        thread::name_current(c"scale-job");
        work::burn(JOB, |_| ());
    };
    while let Ok(running) = std::thread::Builder::new().spawn(one) {
        // One that panicked has said so.
        let _ = running.join();
    }
}

/// On the first CPU, beside a hog on each CPU that keeps to it.
pub fn pinned(job: &Job) -> Answer {
    let all = cpus::allowed();
    let on = |cpu: &usize| Member {
        cpu: Some(*cpu),
        ..Member::BATCH
    };
    let _hogs = Crowd::start(all.iter().map(on))?;
    wakes(job, WARMUP, Duration::ZERO, all.first().copied())
}

/// The latencies of all sleepers, once everything else has started; each keeps to `cpu`, where one is given.
fn wakes(job: &Job, warmup: Duration, work: Duration, cpu: Option<usize>) -> Answer {
    std::thread::sleep(warmup);
    let start = monotonic_ns();
    let sleeper = || -> Result<Latencies, String> {
        cpu.map_or(Ok(()), cpus::pin)?;
        Ok(probe(job.duration_ns, work))
    };
    let mut all = Latencies::default();
    std::thread::scope(|scope| -> Result<(), String> {
        let sleepers: Vec<_> = (0..SLEEPERS).map(|_| scope.spawn(sleeper)).collect();
        for sleeper in sleepers {
            all.add(&sleeper.join().map_err(|_| "a thread panicked")??);
        }
        Ok(())
    })?;
    let wall_ns = monotonic_ns() - start;
    Ok(Measured::latencies(&all, wall_ns, |summary| summary.p99))
}
