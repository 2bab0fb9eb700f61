//! Two processes that talk: how long an answer takes beside hogs, and how many there are in a second without.

use std::time::Duration;

use morpheus_harness::clock::monotonic_ns;
use morpheus_harness::histogram::Latencies;
use morpheus_harness::rows::Part;
use morpheus_harness::thread;

use super::super::child::{Answer, Job};
use super::super::probes::{Echo, Probe};
use super::super::result::Measured;
use super::wake::WARMUP;
use crate::cpus;
use crate::jitter::sleep::Call;

/// Pairs that talk: where an answer takes long, one alone would not ask often enough for a percentile.
const PAIRS: usize = 8;
/// Between two questions of a pair. No multiple of a tick.
const PERIOD_NS: u64 = 3_300_000;
/// Round trips between two looks at the clock.
const BATCH: u64 = 64;
/// Both have by then found their CPUs.
const PIPE_WARMUP: Duration = Duration::from_millis(100);

/// Beside a hog for each CPU. In each pair a question waits for the answer to the one before, so a time counts from when the
/// question is asked.
pub fn round_trip(job: &Job) -> Answer {
    let echoes: Result<Vec<Echo>, String> = (0..PAIRS).map(|_| Echo::start(None)).collect();
    let _hogs = Probe::Hog.start(job.cpus)?;
    std::thread::sleep(WARMUP);
    let start = monotonic_ns();
    let mut latencies = Latencies::default();
    std::thread::scope(|scope| -> Result<(), String> {
        let askers: Vec<_> = echoes?
            .into_iter()
            .map(|echo| scope.spawn(move || ask(echo, start + job.duration_ns)))
            .collect();
        for asker in askers {
            latencies.add(&thread::joined(asker)??);
        }
        Ok(())
    })?;
    let wall_ns = monotonic_ns() - start;
    Ok(Measured::latencies(&latencies, wall_ns, Part::P99))
}

/// Asks now and then, until a time.
fn ask(mut echo: Echo, until_ns: u64) -> Result<Latencies, String> {
    thread::name_current(c"scale-ask");
    thread::set_timer_slack(1);
    let mut latencies = Latencies::default();
    while monotonic_ns() < until_ns {
        Call::Nanosleep.sleep_until(monotonic_ns() + PERIOD_NS);
        let asked = monotonic_ns();
        echo.ask().map_err(gone)?;
        latencies.record_ns(monotonic_ns() - asked);
    }
    Ok(latencies)
}

/// Each on a CPU of its own, one question after the other.
pub fn pipe(job: &Job) -> Answer {
    let [first, second, ..] = cpus::allowed()[..] else {
        return Err("it needs two CPUs".into());
    };
    let mut echo = Echo::start(Some(second))?;
    cpus::pin(first)?;
    thread::name_current(c"scale-ask");
    let start = monotonic_ns() + PIPE_WARMUP.as_nanos() as u64;
    let end = start + job.duration_ns;
    let (mut count, mut begun, mut now) = (0, None, monotonic_ns());
    while now < end {
        for _ in 0..BATCH {
            echo.ask().map_err(gone)?;
        }
        now = monotonic_ns();
        match begun {
            None if now >= start => begun = Some(now),
            None => {}
            Some(_) => count += BATCH,
        }
    }
    let wall_ns = now - begun.unwrap_or(now);
    if count == 0 {
        return Err("no round trip in all that time: give it a longer --duration".into());
    }
    Ok(Measured::rate(count, wall_ns))
}

fn gone(error: std::io::Error) -> String {
    format!("the process that answers has ended: {error}")
}
