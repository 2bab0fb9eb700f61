//! How many CPUs computing tasks have that may use more than they were started on, or that a class above displaces.

use std::time::Duration;

use morpheus_harness::clock::monotonic_ns;
use morpheus_harness::histogram::median;
use morpheus_harness::thread;

use super::super::child::{Answer, Job};
use super::super::crowd::{self, Crowd, Member};
use super::super::result::Measured;
use super::contention::feel;
use super::wake::WARMUP;
use crate::jitter::sleep::Call;
use crate::policy::Policy;
use crate::{cpus, work};

/// From one thread of a class above to the next, on the next CPU.
const STEP_NS: u64 = 10_000_000;
/// How long each of them computes.
const DISPLACING: Duration = Duration::from_millis(3);
/// CPUs that the displaced task may use: one of them is always idle.
const DISPLACED_CPUS: usize = 2;
/// Hogs for each CPU of the half with more of them.
const CROWD: usize = 4;
/// Newcomers stay for this long.
const STAY: Duration = Duration::from_millis(400);

/// A hog for each CPU, started in the first half of the CPUs: all may use all of them from then on.
pub fn halves(job: &Job) -> Answer {
    let all = cpus::allowed();
    let crowd = Crowd::start(vec![Member::BATCH; all.len()])?;
    crowd.keep_to(&all[..all.len().div_ceil(2)])?;
    std::thread::sleep(WARMUP);
    crowd.keep_to(&all)?;
    cpus_used(job, &crowd)
}

/// A hog that may use two CPUs, of which real-time threads take one after the other for 3 of each 10 ms.
pub fn displaced(job: &Job) -> Answer {
    let all = cpus::allowed();
    let Some(own) = all.get(..DISPLACED_CPUS) else {
        return Err("it needs two CPUs".into());
    };
    for (place, cpu) in own.iter().copied().enumerate() {
        thread::start(move || displace(cpu, place as u64))?;
    }
    let crowd = Crowd::start([Member::BATCH])?;
    crowd.keep_to(own)?;
    std::thread::sleep(WARMUP);
    cpus_used(job, &crowd)
}

/// The life of a real-time thread, which ends with the process.
fn displace(cpu: usize, place: u64) {
    if let Err(why) = cpus::pin(cpu).and_then(|()| Policy::Fifo.take(1, Duration::ZERO)) {
        eprintln!("scale: {why}");
        return;
    }
    let round_ns = STEP_NS * DISPLACED_CPUS as u64;
    loop {
        let next = (monotonic_ns() / round_ns + 1) * round_ns + STEP_NS * place;
        Call::Nanosleep.sleep_until(next);
        work::burn(DISPLACING, |_| ());
    }
}

/// The CPUs that a crowd uses.
fn cpus_used(job: &Job, crowd: &Crowd) -> Answer {
    let cpu_ns = crowd::cpu_ns(&feel(job, crowd, |_| Ok(()))?);
    let cpus = cpu_ns as f64 / job.duration_ns as f64;
    Ok(Measured::part(cpus, cpu_ns, job.duration_ns))
}

/// Hogs that come from the first half of the CPUs, where each runs one, to the second, where each has four, again and again: how
/// long each waits there at most, half of the times.
pub fn newcomer(job: &Job) -> Answer {
    let all = cpus::allowed();
    let (first, second) = all.split_at(all.len() / 2);
    if first.is_empty() {
        return Err("it needs two CPUs".into());
    }
    let crowd = Crowd::start(vec![Member::BATCH; CROWD * second.len()])?;
    crowd.keep_to(second)?;
    let newcomers = Crowd::start(vec![Member::BATCH; first.len()])?;
    let start = monotonic_ns();
    let mut waits = Vec::new();
    while monotonic_ns() - start < job.duration_ns {
        newcomers.keep_to(first)?;
        std::thread::sleep(WARMUP);
        newcomers.keep_to(second)?;
        newcomers.felt();
        std::thread::sleep(STAY);
        let felt = newcomers.felt().into_iter();
        waits.extend(felt.map(|felt| felt.longest_wait_ns as f64));
    }
    let count = waits.len() as u64;
    Ok(Measured {
        value: median(waits),
        count,
        wall_ns: monotonic_ns() - start,
        ..Measured::default()
    })
}
