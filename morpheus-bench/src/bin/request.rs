//! How soon a poll that computes is asked to yield, and knows of it.
//!
//! One watched task computes, with a checkpoint every 10 µs, until a checkpoint says that it was asked; that ends
//! the poll, and the next begins. Counted is the CPU time that the poll had used by then: a budget is of CPU time, and
//! what others took of the CPU meanwhile is not the request's fault. The wall time stands beside it.

use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use clap::Parser;
use morpheus_bench::executor::morpheus::{LinkName, Morpheus};
use morpheus_bench::executor::{Executor, Spawn};
use morpheus_bench::histogram::{Latencies, Summary};
use morpheus_bench::host::Host;
use morpheus_bench::neighbours::{self, Neighbours};
use morpheus_bench::progress::Progress;
use morpheus_bench::{clock, interrupt, report, work};
use morpheus_runtime::Mechanism;
use serde::Serialize;

/// Between two checkpoints.
const DISTANCE: Duration = Duration::from_micros(10);
/// The runtime's default, which is what is measured.
const BUDGET: Duration = Duration::from_millis(1);
/// A poll that nobody asks for so long is given up.
const NEVER: Duration = Duration::from_secs(1);
/// As with the higher percentiles: ten samples lie beyond it.
const SAMPLES_FOR_P90: u64 = 100;
/// After so many of these there will be no other end.
const GIVEN_UP: u64 = 3;
/// Polls that are not counted: the labels, the link and the caches are new to all.
const WARM_UP: u32 = 50;

const MORE: &str = "\
Examples:
  request
      By the watchdog, which looks every millisecond.
  sudo scx_morpheus --observe & request --link observer
      By the kernel's account of the CPU time.

Exit codes: 0 measured, 1 nobody asked or the link is not there, 2 bad usage, 130 after Ctrl-C.";

/// How soon a poll that computes is asked to yield, and knows of it.
#[derive(Debug, Parser)]
#[command(name = "request", version, after_help = MORE, max_term_width = 110)]
struct Options {
    /// Who asks: Morpheus by itself, or the daemon that runs
    #[arg(long, value_name = "LINK", default_value = "watchdog")]
    link: LinkName,

    /// Polls, one after the other
    #[arg(long, value_name = "N", default_value = "2000", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    polls: u32,

    /// Busy threads, each in a process of its own
    #[arg(long, value_name = "N", default_value = "0", value_parser = clap::value_parser!(u16).range(0..=1024))]
    neighbours: u16,

    /// Print one JSON object and nothing else
    #[arg(long)]
    json: bool,
}

/// The object that `--json` prints. Times in nanoseconds.
#[derive(Serialize)]
struct Report {
    bench: &'static str,
    host: Host,
    /// The link that was in force.
    link: String,
    neighbours: u16,
    budget_ns: u64,
    /// Polls that computed for a second and were never asked.
    never_asked: u64,
    /// CPU time of a poll when it knew.
    used_ns: Summary,
    /// 90 % of them knew by then; from [`SAMPLES_FOR_P90`] polls.
    used_p90_ns: Option<u64>,
    /// The same by the wall.
    passed_ns: Summary,
    interrupted: bool,
}

/// What the polls found so far.
#[derive(Default)]
struct Found {
    used: Latencies,
    passed: Latencies,
    never_asked: u64,
    polls: u32,
}

fn main() -> ExitCode {
    neighbours::become_one_if_asked();
    let options = Options::parse();
    interrupt::install();
    report::conclude(
        "request",
        measure(&options),
        options.json,
        table,
        |report| report::Ended::of(report.interrupted, false),
    )
}

fn measure(options: &Options) -> Result<Report, String> {
    // A poll of a task that is known to be slow would be polled in place.
    let morpheus = Morpheus::build_linked(1, options.link, &[Mechanism::Handoffs])?;
    let _neighbours = Neighbours::own(options.neighbours.into())?;
    let found = Arc::new(Mutex::new(Found::default()));
    let polls = options.polls + WARM_UP;
    let task = polls_until_asked(found.clone(), polls);
    morpheus.spawn(Spawn::Watched, task);
    let progress = Progress::new(BUDGET * 2 * polls, options.json);
    let begun = Instant::now();
    loop {
        let done = found.lock().expect("no code panics under it").polls;
        if done >= polls {
            break;
        }
        progress.say(format!("{done} of {polls} polls"));
        progress.tick(begun.elapsed());
        std::thread::sleep(Duration::from_millis(20));
    }
    progress.clear();
    let found = found.lock().expect("no code panics under it");
    if found.used.summary().n == 0 && !interrupt::happened() {
        return Err(format!("no poll was asked to yield within {NEVER:?}"));
    }
    Ok(Report {
        bench: "request",
        host: Host::read(),
        link: morpheus.link(),
        neighbours: options.neighbours,
        budget_ns: BUDGET.as_nanos() as u64,
        never_asked: found.never_asked,
        used_ns: found.used.summary(),
        used_p90_ns: (found.used.len() >= SAMPLES_FOR_P90)
            .then(|| found.used.counts().value_at_quantile(0.9)),
        passed_ns: found.passed.summary(),
        interrupted: interrupt::happened(),
    })
}

/// Computes in each poll until it is asked to yield; `polls` of them.
async fn polls_until_asked(found: Arc<Mutex<Found>>, polls: u32) {
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
            let mut found = found.lock().expect("no code panics under it");
            if poll > WARM_UP && asked {
                found.used.record_ns(used.as_nanos() as u64);
                found.passed.record_ns(passed.as_nanos() as u64);
            }
            found.never_asked += u64::from(!asked && !interrupt::happened());
            // Who is not asked once will not be asked.
            let over = interrupt::happened() || found.never_asked >= GIVEN_UP;
            found.polls = if over { polls } else { poll };
            if over {
                return;
            }
        }
        tokio::task::yield_now().await;
    }
}

fn table(report: &Report) -> String {
    let line =
        |name: &str, summary: &Summary| format!("{name:<26} {}\n", report::percentiles(summary));
    let mut text = format!(
        "{}\nA task that computes, a checkpoint every {DISTANCE:?}, budget {}; {} neighbours; link {}\n\n",
        report.host.line(report::WIDTH),
        report::time(report.budget_ns),
        report.neighbours,
        report.link
    );
    text += &line("CPU time used when asked", &report.used_ns);
    if let Some(p90) = report.used_p90_ns {
        text += &format!("{:<26} p90 {}\n", "", report::time(p90));
    }
    text += &line("passed by the wall", &report.passed_ns);
    if report.never_asked > 0 {
        text += &format!("never asked, within {NEVER:?}: {}\n", report.never_asked);
    }
    report::note_early_end(&mut text, report.interrupted);
    text
}
