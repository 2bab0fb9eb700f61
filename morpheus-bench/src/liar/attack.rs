//! The liar: a task that is critical for ever, and what it and the others get.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use morpheus_runtime::critical_section;
use serde::{Deserialize, Serialize};

use super::config::Options;
use super::honest::Counted;
use crate::begin::Begin;
use crate::executor::{Executor, Spawn, morpheus::Morpheus};
use crate::histogram::Latencies;
use crate::neighbours::{self, Neighbours};
use crate::progress::Progress;
use crate::wake::{Clockwork, Mailbox};
use crate::{clock, host, interrupt, work};

/// From one wake of the others to the next.
const PERIOD: Duration = Duration::from_millis(1);
/// Before anything counts: the runtime gets to know the liar.
const WARMUP: Duration = Duration::from_secs(1);
/// How often Ctrl-C is looked for, and the bar moves.
const LOOK: Duration = Duration::from_millis(100);

/// Who is beside the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Who {
    /// Nobody.
    Nobody,
    /// A task that computes for ever.
    Hog,
    /// The same within a critical section.
    Liar,
}

/// What was measured beside one.
#[derive(Debug)]
pub struct Attack {
    /// Who.
    pub who: Who,
    /// CPUs that it had; none where it is nobody.
    pub share: Option<f64>,
    /// CPUs that are its fair share.
    pub fair: f64,
    /// CPUs that the busy processes had together.
    pub neighbours_share: Option<f64>,
    /// Busy processes.
    pub neighbours: usize,
    /// From the time at which another task was to be woken until it ran.
    pub wakes: Latencies,
    /// Wakes that were not served by the end; they count with their age.
    pub unserved: u64,
    /// What the runtime did.
    pub counted: Counted,
    /// For how long.
    pub lasted: Duration,
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Nobody => "nobody",
            Self::Hog => "hog",
            Self::Liar => "liar",
        })
    }
}

/// So many busy processes that everybody's fair share, the liar's too, is half a CPU.
fn neighbours_beside(cpus: usize) -> usize {
    2 * cpus - 1
}

/// CPUs that one of these threads may have.
fn fair_share(cpus: usize, threads: usize) -> f64 {
    (cpus as f64 / threads as f64).min(1.0)
}

/// Measures all, or until Ctrl-C.
///
/// # Errors
/// When there is no such runtime, or processes cannot be started.
pub fn measure(options: &Options) -> Result<Vec<Attack>, String> {
    let each = WARMUP + Duration::from_secs_f64(options.duration);
    let mut progress = Progress::new(each * 3, options.json);
    let mut attacks = Vec::new();
    for who in [Who::Nobody, Who::Hog, Who::Liar] {
        if interrupt::happened() {
            break;
        }
        progress.say(format!("the others beside: {who}"));
        attacks.push(attack(who, options, &progress)?);
        progress.finish_run(each);
    }
    progress.clear();
    Ok(attacks)
}

/// Computes until told to stop, in one poll, and puts down the CPU time that it has used.
fn compute(critical: bool, stop: &AtomicBool, cpu_ns: &AtomicU64) {
    let section = critical.then(critical_section);
    while !stop.load(Relaxed) {
        work::burn(Duration::from_micros(100), |_| ());
        cpu_ns.store(clock::thread_cpu().as_nanos() as u64, Relaxed);
    }
    drop(section);
}

/// Ends the hog, whatever happens: the runtime waits for its poll.
struct Stop(Arc<AtomicBool>);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn attack(who: Who, options: &Options, progress: &Progress) -> Result<Attack, String> {
    let morpheus = Morpheus::build_linked(options.workers, options.link, &[])?;
    let cpus = host::cpus();
    let count = neighbours_beside(cpus);
    let busy = Neighbours::own(count)?;
    let stop = Stop(Arc::default());
    let cpu_ns = Arc::new(AtomicU64::new(0));
    if who != Who::Nobody {
        let (told, used) = (stop.0.clone(), cpu_ns.clone());
        let critical = who == Who::Liar;
        morpheus.spawn(
            Spawn::Watched,
            async move { compute(critical, &told, &used) },
        );
    }
    let begun = Instant::now();
    let from = begun + WARMUP;
    let mailbox = Mailbox::start(&morpheus, Begin::at(from));
    let waking = mailbox.clone();
    let clockwork = Clockwork::start(PERIOD, move |intended| waking.wake(intended))
        .map_err(|error| format!("no thread that wakes: {error}"))?;
    wait_until(from, begun, progress);
    let before = morpheus.escalations().unwrap_or_default();
    let first = (neighbours::cpu(&busy.pids()), cpu_ns.load(Relaxed));
    let from = Instant::now();
    wait_until(
        from + Duration::from_secs_f64(options.duration),
        begun,
        progress,
    );
    let last = (neighbours::cpu(&busy.pids()), cpu_ns.load(Relaxed));
    let end = Instant::now();
    let lasted = end - from;
    let after = morpheus.escalations().unwrap_or_default();
    let wakes = mailbox.close(end);
    clockwork.stop();
    morpheus.still_linked(options.link)?;
    let used_ns = last.1.saturating_sub(first.1);
    Ok(Attack {
        who,
        share: (who != Who::Nobody).then(|| used_ns as f64 / 1e9 / lasted.as_secs_f64()),
        fair: fair_share(cpus, count + 1),
        neighbours_share: neighbours::share(&first.0, &last.0, lasted),
        neighbours: count,
        wakes: wakes.intended,
        unserved: wakes.unserved,
        counted: Counted::since(&before, &after),
        lasted,
    })
}

fn wait_until(at: Instant, begun: Instant, progress: &Progress) {
    while !interrupt::happened() && Instant::now() < at {
        progress.tick(begun.elapsed());
        clock::sleep_until(at.min(Instant::now() + LOOK));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everybody_has_half_a_cpu() {
        for cpus in [1, 2, 8, 64] {
            assert_eq!(fair_share(cpus, neighbours_beside(cpus) + 1), 0.5, "{cpus}");
        }
        assert_eq!(fair_share(4, 2), 1.0);
    }

    #[test]
    fn a_hog_puts_down_its_cpu_time_and_ends() {
        let stop = Stop(Arc::default());
        let (told, cpu_ns) = (stop.0.clone(), Arc::new(AtomicU64::new(0)));
        let used = cpu_ns.clone();
        let hog = std::thread::spawn(move || compute(true, &told, &used));
        while cpu_ns.load(Relaxed) < 1_000_000 {
            std::thread::yield_now();
        }
        drop(stop);
        hog.join().unwrap();
    }
}
