//! Whether what is queued at one CPU gets to the others, and nothing that must stay there is forgotten.

use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use morpheus_harness::clock::monotonic_ns;
use morpheus_harness::thread;

use super::super::child::{Answer, Job};
use super::super::crowd::{Crowd, Member};
use super::super::result::Measured;
use super::contention::longest_wait;
use super::wake::WARMUP;
use crate::{cpus, work};

/// Tasks in a burst, for each CPU.
const BURST: usize = 8;
/// CPU time of each.
const TASK: Duration = Duration::from_millis(2);
/// Between two bursts.
const PAUSE: Duration = Duration::from_millis(20);
/// If no task has run on a CPU within this time, none will.
const SPREAD_WITHIN: Duration = Duration::from_secs(5);
/// Between two looks.
const LOOK: Duration = Duration::from_micros(500);

/// A thread on the first CPU wakes eight tasks for each CPU at once, again and again: until the last one is done.
pub fn wake_burst(job: &Job) -> Answer {
    let count = BURST * job.cpus;
    let gate = Arc::new(Barrier::new(count + 1));
    let (idle, idling) = mpsc::channel();
    for _ in 0..count {
        let (gate, idle) = (gate.clone(), idle.clone());
        thread::start(move || serve(&gate, &idle))?;
    }
    if let Some(first) = cpus::allowed().first() {
        cpus::pin(*first)?;
    }
    let wait_until_idle = || idling.iter().take(count).for_each(drop);
    wait_until_idle();
    let start = monotonic_ns();
    let (mut longest, mut bursts) = (0, 0);
    while monotonic_ns() - start < job.duration_ns {
        std::thread::sleep(PAUSE);
        let begun = monotonic_ns();
        gate.wait();
        wait_until_idle();
        longest = longest.max(monotonic_ns() - begun);
        bursts += 1;
    }
    Ok(Measured::longest(longest, bursts, monotonic_ns() - start))
}

/// A task of the bursts: it says that it is idle, waits at the gate to be woken with the others, computes, and begins again. It
/// ends with the process.
fn serve(gate: &Barrier, idle: &Sender<()>) {
    thread::name_current(c"scale-burst");
    while idle.send(()).is_ok() {
        gate.wait();
        work::burn(TASK, |_| ());
    }
}

/// Two hogs for each CPU that were all on the first one: until each of the others runs one.
pub fn steal(job: &Job) -> Answer {
    let all = cpus::allowed();
    let Some((first, others)) = all.split_first().filter(|(_, others)| !others.is_empty()) else {
        return Err("it needs two CPUs".into());
    };
    let crowd = Crowd::start(vec![Member::BATCH; 2 * job.cpus])?;
    let start = monotonic_ns();
    let (mut longest, mut times) = (0, 0);
    while monotonic_ns() - start < job.duration_ns {
        crowd.keep_to(&[*first])?;
        std::thread::sleep(WARMUP / 4);
        crowd.keep_to(&all)?;
        let begun = monotonic_ns();
        while let Some(empty) = others.iter().find(|cpu| crowd.last_on(**cpu) < begun) {
            if monotonic_ns() - begun > SPREAD_WITHIN.as_nanos() as u64 {
                return Err(format!(
                    "nobody runs on CPU {empty}, and {} tasks wait for CPU {first}",
                    2 * job.cpus - 1
                ));
            }
            std::thread::sleep(LOOK);
        }
        longest = longest.max(monotonic_ns() - begun);
        times += 1;
    }
    Ok(Measured::longest(longest, times, monotonic_ns() - start))
}

/// On each CPU a batch task that keeps to it, among interactive ones that do as well and want more than it has.
pub fn rescue(job: &Job) -> Answer {
    let all = cpus::allowed();
    let interactive = all.iter().flat_map(|cpu| [Member::INTERACTIVE.on(*cpu); 3]);
    let _interactive = Crowd::start(interactive)?;
    let batch = Crowd::start(all.iter().map(|cpu| Member::BATCH.on(*cpu)))?;
    std::thread::sleep(WARMUP);
    longest_wait(job, &batch, |_| Ok(()))
}
