//! Whether anybody is forgotten while others want more than there is, in six phases. Each fails where its rule is broken.

use std::path::Path;
use std::time::Duration;

use morpheus_harness::clock::{self, monotonic_ns};
use morpheus_harness::histogram::Latencies;

use super::super::child::{Answer, Job};
use super::super::crowd::{self, Crowd, Felt, Member};
use super::super::online::{self, Offline};
use super::super::probes::Probe;
use super::super::result::Measured;
use super::wake::{LONG, WARMUP, probe};

/// Between two changes of a CPU's state.
const HOTPLUG_PAUSE: Duration = Duration::from_millis(300);
/// A CPU that came back has to be used within this.
const USED_WITHIN: Duration = Duration::from_secs(1);
/// A task that has had less than this part of an equal share is starved.
const LEAST_SHARE: f64 = 0.5;

/// Light load, some, too much, and light load again: after that wakes have to be as short as before.
pub fn regimes(job: &Job) -> Answer {
    let hogs = [0, job.cpus.div_ceil(2), 4 * job.cpus, 0];
    let phases: Result<Vec<Latencies>, String> = hogs
        .into_iter()
        .map(|hogs| {
            let _hogs = Probe::Hog.start(hogs)?;
            std::thread::sleep(WARMUP);
            Ok(probe(job.duration_ns / 4, Duration::ZERO))
        })
        .collect();
    let phases = phases?;
    recovered(&phases[0], &phases[3])?;
    let mut all = Latencies::default();
    phases.iter().for_each(|phase| all.add(phase));
    let longest = all.summary().max.unwrap_or(0);
    Ok(Measured::longest(longest, all.len(), job.duration_ns))
}

/// Wakes after a load beside those before it.
fn recovered(before: &Latencies, after: &Latencies) -> Result<(), String> {
    let median = |latencies: &Latencies| latencies.summary().p50.unwrap_or(0);
    let (before, after) = (median(before), median(after));
    if after > 4 * before + 1_000_000 {
        return Err(format!(
            "after the load half of the wakes take more than {}, before it was {}",
            morpheus_harness::report::time(after),
            morpheus_harness::report::time(before)
        ));
    }
    Ok(())
}

/// Batch work among interactive tasks that want nearly two times the machine.
pub fn sojourn(job: &Job) -> Answer {
    let _interactive = Crowd::start(vec![Member::INTERACTIVE; 3 * job.cpus])?;
    let batch = Crowd::start(vec![Member::BATCH; job.cpus])?;
    std::thread::sleep(WARMUP);
    longest_wait(job, &batch, |_| Ok(()))
}

/// Equal batch work that has been running for long, and a storm: all get the same.
pub fn longrun_shares(job: &Job) -> Answer {
    let batch = Crowd::start(vec![Member::BATCH; 2 * job.cpus])?;
    std::thread::sleep(LONG);
    let _storm = Probe::Storm.start(1)?;
    let felt = feel(job, &batch, |_| Ok(()))?;
    let share = crowd::least_share(&felt);
    if share < LEAST_SHARE {
        return Err(format!(
            "of equal batch tasks one had {:.0} % of the mean",
            share * 100.0
        ));
    }
    Ok(waits(job, &felt))
}

/// Before, in and after a storm: batch work goes on, and wakes are as short afterwards.
pub fn burst_recovery(job: &Job) -> Answer {
    let batch = Crowd::start(vec![Member::BATCH; 2 * job.cpus])?;
    std::thread::sleep(WARMUP);
    longest_wait(job, &batch, |duration_ns| {
        let before = probe(duration_ns / 3, Duration::ZERO);
        let storm = Probe::Storm.start(1)?;
        probe(duration_ns / 3, Duration::ZERO);
        drop(storm);
        // The processes that it had started have still to end.
        std::thread::sleep(WARMUP);
        recovered(&before, &probe(duration_ns / 3, Duration::ZERO))
    })
}

/// Batch work that sleeps now and then, among as much that does not: sleeping must not cost it its share.
pub fn io_batch(job: &Job) -> Answer {
    let pure = Crowd::start(vec![Member::BATCH; job.cpus])?;
    let io = Crowd::start(vec![Member::IO; job.cpus])?;
    std::thread::sleep(WARMUP);
    pure.felt();
    let mut felt = feel(job, &io, |_| Ok(()))?;
    let least = felt.iter().map(|felt| felt.cpu_ns).min().unwrap_or(0);
    // Two for each CPU, so a half is fair; it wants more than that.
    let share = least as f64 / job.duration_ns as f64 / 0.5;
    if share < LEAST_SHARE {
        return Err(format!(
            "batch work that sleeps now and then had {:.0} % of its share",
            share * 100.0
        ));
    }
    felt.extend(pure.felt());
    ran(&felt)?;
    Ok(waits(job, &felt))
}

/// A CPU goes and comes back, again and again: it is used again, and no task waits for it meanwhile.
pub fn hotplug(job: &Job) -> Answer {
    let directory = Path::new(online::DIRECTORY);
    let cpus = online::online(directory)?;
    let [first, .., last] = cpus[..] else {
        return Err("it needs two CPUs".into());
    };
    debug_assert!(first < last);
    let batch = Crowd::start(vec![Member::BATCH; 2 * job.cpus])?;
    std::thread::sleep(WARMUP);
    longest_wait(job, &batch, |duration_ns| {
        let end = monotonic_ns() + duration_ns;
        loop {
            let offline = Offline::all_but(cpus.len() - 1, directory)?;
            std::thread::sleep(HOTPLUG_PAUSE);
            drop(offline);
            let back = monotonic_ns();
            let pause = Duration::from_millis(1);
            if !clock::within(USED_WITHIN, pause, || batch.last_on(last) >= back) {
                return Err(format!("CPU {last} has come back, and nobody runs there"));
            }
            if monotonic_ns() >= end {
                return Ok(());
            }
            std::thread::sleep(HOTPLUG_PAUSE);
        }
    })
}

/// The longest wait of a crowd while something happens. Each of its tasks has to run.
pub fn longest_wait(
    job: &Job,
    crowd: &Crowd,
    meanwhile: impl FnOnce(u64) -> Result<(), String>,
) -> Answer {
    let felt = feel(job, crowd, meanwhile)?;
    ran(&felt)?;
    Ok(waits(job, &felt))
}

/// The waits and CPU time of a crowd during `meanwhile`, or for the whole time where that takes none.
pub fn feel(
    job: &Job,
    crowd: &Crowd,
    meanwhile: impl FnOnce(u64) -> Result<(), String>,
) -> Result<Vec<Felt>, String> {
    crowd.felt();
    let begun = monotonic_ns();
    meanwhile(job.duration_ns)?;
    let left_ns = job.duration_ns.saturating_sub(monotonic_ns() - begun);
    std::thread::sleep(Duration::from_nanos(left_ns));
    Ok(crowd.felt())
}

/// A thread that did not run at all has noticed nothing, and no wait either.
fn ran(felt: &[Felt]) -> Result<(), String> {
    let forgotten = felt.iter().filter(|felt| felt.cpu_ns == 0).count();
    if forgotten > 0 {
        return Err(format!(
            "{forgotten} of {} tasks did not run at all",
            felt.len()
        ));
    }
    Ok(())
}

/// The longest wait of these.
pub fn waits(job: &Job, felt: &[Felt]) -> Measured {
    let mut measured = Measured::longest(
        crowd::longest(felt),
        felt.iter().map(|felt| felt.turns).sum(),
        job.duration_ns,
    );
    measured.cpu_ns = Some(crowd::cpu_ns(felt));
    measured
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(us: u64) -> Latencies {
        let mut latencies = Latencies::default();
        (0..10).for_each(|_| latencies.record_ns(us * 1_000));
        latencies
    }

    #[test]
    fn wakes_have_recovered_or_not() {
        assert!(recovered(&of(500), &of(2_900)).is_ok());
        let error = recovered(&of(500), &of(3_100)).unwrap_err();
        assert!(
            error.contains("3.1 ms") && error.contains("500 µs"),
            "{error}"
        );
    }

    #[test]
    fn who_did_not_run_is_forgotten() {
        let ran_once = Felt {
            cpu_ns: 1,
            ..Felt::default()
        };
        assert!(ran(&[ran_once]).is_ok());
        let error = ran(&[ran_once, Felt::default()]).unwrap_err();
        assert!(error.contains("1 of 2"), "{error}");
    }
}
