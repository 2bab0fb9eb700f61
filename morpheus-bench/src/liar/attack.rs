//! The liar: a task that is critical for ever, and what it and the others get.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime};

use morpheus_harness::envelope::Envelope;
use morpheus_harness::hdr_log::{self, Entry};
use morpheus_harness::histogram::{FROM_INTENDED_START, Latencies, Summary};
use morpheus_harness::progress::Progress;
use morpheus_harness::rows::{Figure, Rounds, rounds};
use morpheus_harness::thread::Stop;
use morpheus_harness::unit::Unit;
use morpheus_harness::{clock, host, interrupt, latency_figures};
use morpheus_runtime::critical_section;

use super::Counted;
use super::config::Options;
use crate::begin::Begin;
use crate::executor::{Executor, Spawn, morpheus::Morpheus};
use crate::neighbours::{self, Neighbours};
use crate::wake::{Clockwork, Mailbox};
use crate::work;

/// From one wake of the others to the next.
const PERIOD: Duration = Duration::from_millis(1);
/// Before anything counts: the runtime gets to know the liar.
const WARMUP: Duration = Duration::from_secs(1);

/// The task that runs beside the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    /// No task.
    Nobody,
    /// A task that computes for ever.
    Hog,
    /// The same within a critical section.
    Liar,
}

/// The measurements beside one attacking task.
#[derive(Debug)]
struct Attack {
    /// CPUs that it had; `None` where there is no such task.
    share: Option<f64>,
    /// CPUs that the busy processes had together.
    neighbours_share: Option<f64>,
    /// From the time at which another task was to be woken until it ran; wakes that were not served by the end are pending.
    wakes: Summary,
    counted: Counted,
}

const CASE: &str = "beside busy processes";
const OTHERS: [Figure<Attack>; 7] = [
    Figure::share("its CPU", |attack| attack.share),
    Figure::share("neighbours' CPU", |attack| attack.neighbours_share),
    Figure::count("demotions", |attack| Some(attack.counted.demotions as f64)),
    Figure::count("throttling", |attack| Some(attack.counted.throttles as f64)),
    Figure::count("requests", |attack| Some(attack.counted.requests as f64)),
    Figure::count("takeovers", |attack| Some(attack.counted.takeovers as f64)),
    Figure::count("unserved", |attack| Some(attack.wakes.pending as f64)),
];
const WAKES: [Figure<Attack>; 4] =
    latency_figures!("the others' wakes", |attack| Some(&attack.wakes));

const ALL: [Who; 3] = [Who::Nobody, Who::Hog, Who::Liar];
const NAMES: [&str; 3] = ["nobody", "hog", "liar"];

/// With this many busy processes the fair share of each thread, the liar's too, is half a CPU.
fn neighbours_beside(cpus: usize) -> usize {
    2 * cpus - 1
}

/// CPUs that one of these threads may have.
fn fair_share(cpus: usize, threads: usize) -> f64 {
    (cpus as f64 / threads as f64).min(1.0)
}

/// Measures all in turns, or until Ctrl-C, and adds the rows.
///
/// # Errors
/// When there is no such runtime, processes cannot be started, or the histograms not written.
pub fn measure(options: &Options, found: &mut Envelope<Options>) -> Result<(), String> {
    let each = WARMUP + Duration::from_secs_f64(options.duration_s);
    let mut progress = Progress::new(each * (ALL.len() * options.rounds) as u32, options.json);
    let start = SystemTime::now();
    let mut wakes = ALL.map(|_| Latencies::default());
    let mut rounds = Rounds::in_turns(ALL.len());
    let filled = rounds.fill(rounds::in_turns(ALL.len(), options.rounds), |place| {
        let who = ALL[place.contender];
        progress.say(format!("the others beside: {}", NAMES[place.contender]));
        let attack = attack(who, options, &mut wakes[place.contender], &progress)?;
        progress.finish_run(each);
        if interrupt::happened() {
            return Err("ended by Ctrl-C".into());
        }
        Ok(attack)
    });
    progress.clear();
    filled?;
    let (cpus, count) = (host::cpus(), neighbours_beside(host::cpus()));
    let fair = Unit::Share.show(fair_share(cpus, count + 1));
    let about =
        format!("{count} of them, so that the fair share of each thread is {fair} of a CPU");
    let names = NAMES.map(String::from);
    let [cpu, others @ ..] = OTHERS;
    let figures = [cpu].into_iter().chain(WAKES).chain(others);
    let figures: Vec<Figure<Attack>> = figures.collect();
    let rows = rounds.rows(CASE, &names, &figures, |_, _| None);
    found.add(CASE, &about, rows);
    found.notes.push(format!("{CASE}: {about}."));
    let about = format!("wakes, {FROM_INTENDED_START}");
    let histograms = NAMES.into_iter().zip(&wakes);
    let entries = histograms.map(|(name, latencies)| Entry::new(name, &about, latencies));
    let (path, lasted) = (options.histogram.as_deref(), start.elapsed());
    hdr_log::write(path, start, lasted.unwrap_or_default(), entries)
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

fn attack(
    who: Who,
    options: &Options,
    all: &mut Latencies,
    progress: &Progress,
) -> Result<Attack, String> {
    let morpheus = Morpheus::build_linked(options.workers, options.link)?;
    let busy = Neighbours::own(neighbours_beside(host::cpus()))?;
    // Ends the hog, whatever happens: the runtime waits for its poll.
    let stop = Stop::default();
    let cpu_ns = Arc::new(AtomicU64::new(0));
    if who != Who::Nobody {
        let (told, used) = (stop.0.clone(), cpu_ns.clone());
        let critical = who == Who::Liar;
        let task = async move { compute(critical, &told, &used) };
        morpheus.spawn(Spawn::Watched, task);
    }
    let begun = Instant::now();
    let from = begun + WARMUP;
    let mailbox = Mailbox::start(&morpheus, Begin::at(from));
    let waking = mailbox.clone();
    let clockwork = Clockwork::start(PERIOD, move |intended| waking.wake(intended))
        .map_err(|error| format!("no thread that wakes: {error}"))?;
    progress.wait_until(from, begun);
    let before = morpheus.escalations().unwrap_or_default();
    let first = (neighbours::cpu(&busy.pids()), cpu_ns.load(Relaxed));
    let from = Instant::now();
    let until = from + Duration::from_secs_f64(options.duration_s);
    progress.wait_until(until, begun);
    let last = (neighbours::cpu(&busy.pids()), cpu_ns.load(Relaxed));
    let end = Instant::now();
    let lasted = end - from;
    let after = morpheus.escalations().unwrap_or_default();
    let wakes = mailbox.close(end);
    clockwork.stop();
    morpheus.still_linked(options.link)?;
    let used_ns = last.1.saturating_sub(first.1);
    all.add(&wakes.intended);
    Ok(Attack {
        share: (who != Who::Nobody).then(|| used_ns as f64 / 1e9 / lasted.as_secs_f64()),
        neighbours_share: neighbours::share(&first.0, &last.0, lasted),
        wakes: wakes.intended.summary(),
        counted: Counted::since(&before, &after),
    })
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
        let stop = Stop::default();
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
