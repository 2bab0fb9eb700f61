//! How long a task waits at most that others have a better claim than: by weight, by tier, by being pinned.

use std::time::Duration;

use super::super::child::{Answer, Job};
use super::super::crowd::{Crowd, Member};
use super::contention::{feel, waits};
use super::wake::WARMUP;
use crate::cpus;

/// Hogs of the usual weight for each CPU, beside the one of the least.
const HOGS: usize = 4;
/// The heaviest tasks that there are, which work for short times and want half of a CPU each, and more in an emulator.
const HEAVY: Member = Member {
    name: c"scale-heavy",
    work: Duration::from_micros(200),
    sleep: Duration::from_micros(200),
    nice: -20,
    ..Member::INTERACTIVE
};
/// A daemon of low priority: it works a little now and then.
const LIGHT_SLEEPER: Member = Member {
    name: c"scale-light",
    work: Duration::from_millis(2),
    sleep: Duration::from_millis(20),
    nice: 19,
    ..Member::BATCH
};

/// A hog of nice 19 among many of nice 0.
pub fn light(job: &Job) -> Answer {
    let _hogs = Crowd::start(vec![Member::BATCH; HOGS * job.cpus])?;
    let light = Member {
        nice: 19,
        ..Member::BATCH
    };
    wait_of(job, vec![light])
}

/// A daemon of nice 19 among hogs of nice 0.
pub fn light_sleeper(job: &Job) -> Answer {
    let _hogs = Crowd::start(vec![Member::BATCH; 2 * job.cpus])?;
    wait_of(job, vec![LIGHT_SLEEPER])
}

/// Batch work among interactive tasks of nice -20 that want more than the machine.
pub fn behind_front(job: &Job) -> Answer {
    let _heavy = Crowd::start(vec![HEAVY; 4 * job.cpus])?;
    wait_of(job, vec![Member::BATCH; job.cpus])
}

/// Batch work that may use all CPUs, on each of which hogs of nice -20 are that keep to it.
pub fn behind_pinned(job: &Job) -> Answer {
    let heavy = Member {
        nice: -20,
        ..Member::BATCH
    };
    let all = cpus::allowed().into_iter();
    let _heavy = Crowd::start(all.flat_map(|cpu| [heavy.on(cpu); 2]))?;
    wait_of(job, vec![Member::BATCH; job.cpus])
}

/// The longest wait of these, one that goes on at the end included; some may never run.
fn wait_of(job: &Job, members: Vec<Member>) -> Answer {
    let crowd = Crowd::start(members)?;
    std::thread::sleep(WARMUP);
    Ok(waits(job, &feel(job, &crowd, |_| Ok(()))?))
}
