//! The first step: a poll that computes is asked to yield, and knows of it.
//!
//! Counted is the CPU time that the poll had used by then: a budget is of CPU time, and what others took of the CPU meanwhile is
//! not the request's fault.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use morpheus_harness::envelope::Envelope;
use morpheus_harness::histogram::{Latencies, Summary};
use morpheus_harness::progress::Progress;
use morpheus_harness::rows::{Figure, Rounds};
use morpheus_harness::thread::lock;
use morpheus_harness::{clock, interrupt, latency_figures};
use morpheus_runtime::{Builder, Mechanism};

use super::config::Options;
use crate::executor::morpheus::Morpheus;
use crate::executor::{Executor, Spawn};
use crate::work;

const CASE: &str = "a poll that computes is asked to yield";
/// Between two checkpoints.
const DISTANCE: Duration = Duration::from_micros(10);
/// The runtime's default, which is what is measured.
const BUDGET: Duration = Duration::from_millis(1);
/// A poll that is not asked to yield within this time ends.
const NEVER: Duration = Duration::from_secs(1);
/// As with the higher percentiles: ten samples lie beyond it.
const SAMPLES_FOR_P90: u64 = 100;
/// After this number of polls that were not asked the task ends, and so does the measurement.
const GIVEN_UP: u64 = 3;
/// Polls that are not counted: the labels, the link and the caches are new to all.
const WARM_UP: u32 = 50;

/// The counts and latencies of the polls so far.
#[derive(Default)]
struct Polls {
    used: Latencies,
    passed: Latencies,
    never_asked: u64,
    done: u32,
}

/// The summary of all polls.
struct Found {
    used: Summary,
    used_p90_ns: Option<u64>,
    passed: Summary,
}

const USED: [Figure<Found>; 4] = latency_figures!("CPU time", |found| Some(&found.used));
/// 90 % of them knew by then.
const P90: Figure<Found> = Figure::time("CPU time p90", |found| {
    found.used_p90_ns.map(|ns| ns as f64)
});
const COUNT: Figure<Found> = Figure::count("polls", |found| Some(found.used.n as f64));
const PASSED: [Figure<Found>; 4] = latency_figures!("elapsed", |found| Some(&found.passed));

/// Adds the rows.
///
/// # Errors
/// There is no such link, or polls are not asked to yield; the text is for people.
pub fn measure(options: &Options, envelope: &mut Envelope<Options>) -> Result<(), String> {
    // A poll of a task that is known to be slow would be polled in place.
    let one_worker = |builder: &mut Builder| {
        builder.worker_threads(1);
    };
    let morpheus = Morpheus::build_with(one_worker, options.link, &[Mechanism::Handoffs])?;
    let shared = Arc::new(Mutex::new(Polls::default()));
    let polls = options.polls + WARM_UP;
    morpheus.spawn(Spawn::Watched, polls_until_asked(shared.clone(), polls));
    let progress = Progress::new(BUDGET * 2 * polls, options.json);
    let begun = Instant::now();
    loop {
        let done = lock(&shared).done;
        if done >= polls {
            break;
        }
        progress.say(format!("{done} of {polls} polls"));
        progress.tick(begun.elapsed());
        std::thread::sleep(Duration::from_millis(20));
    }
    progress.clear();
    let polls = lock(&shared);
    if polls.never_asked >= GIVEN_UP {
        return Err(format!(
            "{GIVEN_UP} of {} polls were not asked to yield within {NEVER:?}",
            polls.used.len()
        ));
    }
    if polls.never_asked > 0 {
        envelope.notes.push(format!(
            "{} polls computed for {NEVER:?} and were never asked to yield.",
            polls.never_asked
        ));
    }
    let is_enough = polls.used.len() >= SAMPLES_FOR_P90;
    let found = Rounds::once(vec![Found {
        used: polls.used.summary(),
        used_p90_ns: is_enough.then(|| polls.used.counts().value_at_quantile(0.9)),
        passed: polls.passed.summary(),
    }]);
    let [p50, p99, p999, max] = USED;
    let figures = [p50, P90, p99, p999, max, COUNT].into_iter().chain(PASSED);
    let figures: Vec<Figure<Found>> = figures.collect();
    let names = [format!("link {}", morpheus.link())];
    let rows = found.rows(CASE, &names, &figures, |_, _| None);
    let about = "its budget is 1 ms of CPU time, a checkpoint comes every 10 µs";
    envelope.add(CASE, about, rows);
    Ok(())
}

/// Computes in each poll until it is asked to yield; `polls` of them.
async fn polls_until_asked(shared: Arc<Mutex<Polls>>, polls: u32) {
    for poll in 1..=polls {
        let begun = Instant::now();
        let begun_cpu = clock::thread_cpu();
        let mut asked = false;
        while !asked && begun.elapsed() < NEVER && !interrupt::happened() {
            work::burn(DISTANCE, |_| ());
            asked = morpheus_runtime::checkpoint_sync();
        }
        let (used, passed) = (clock::thread_cpu() - begun_cpu, begun.elapsed());
        {
            let mut found = lock(&shared);
            if poll > WARM_UP && asked {
                found.used.record(used);
                found.passed.record(passed);
            } else if poll > WARM_UP && !interrupt::happened() {
                found.used.record_pending(used);
                found.passed.record_pending(passed);
            }
            found.never_asked += u64::from(!asked && !interrupt::happened());
            // After this many polls that were not asked, later ones will not be asked either.
            let over = interrupt::happened() || found.never_asked >= GIVEN_UP;
            found.done = if over { polls } else { poll };
            if over {
                return;
            }
        }
        tokio::task::yield_now().await;
    }
}
