//! How soon a spare runs what waits behind a worker that blocks in a poll.
//!
//! A chain of tasks on a runtime with one worker and no reserve: each spawns the next, which then waits
//! behind it, and blocks in the kernel until the chain is over. So every link of the chain needs a spare,
//! and its time is from the call that blocks until the next task runs.
//!
//! With `--rest-ms` the runtime is idle before each stall instead: its controller sleeps, every spare is held,
//! and the time is from the beginning of the poll that stalls.

use std::io::{PipeReader, PipeWriter, Read, pipe};
use std::process::ExitCode;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use clap::Parser;
use morpheus_bench::executor::morpheus::LinkName;
use morpheus_bench::histogram::{Latencies, Summary};
use morpheus_bench::host::Host;
use morpheus_bench::neighbours::{self, Neighbours};
use morpheus_bench::progress::Progress;
use morpheus_bench::{clock, interrupt, report, work};
use morpheus_runtime::{Builder, Mechanism, Runtime};
use serde::Serialize;

/// What a task computes before it blocks: the controller follows so many blocks a second, and no more.
const COMPUTES: Duration = Duration::from_micros(600);
/// By then every worker has been through a park, so that the kernel side knows it.
const SETTLES: Duration = Duration::from_millis(20);
/// A chain that stands still for so long will not go on.
const STANDS_STILL: Duration = Duration::from_secs(10);

const MORE: &str = "\
Examples:
  takeover --link watchdog
      Without a kernel side: the controller looks every millisecond.
  sudo scx_morpheus --observe & takeover --link observer --neighbours 2
      With it, beside two busy threads of other processes.
  takeover --rest-ms 400 --chain 1000
      A thousand stalls, each after 0.4 s in which the runtime was idle.

Exit codes: 0 measured, 1 a chain stood still or the link is not there, 2 bad usage, 130 after Ctrl-C.";

/// How soon a spare of Morpheus runs what waits behind a worker that blocks in a poll.
#[derive(Debug, Parser)]
#[command(name = "takeover", version, after_help = MORE, max_term_width = 110)]
struct Options {
    /// Where Morpheus learns of it: it looks by itself, or the daemon that runs tells it
    #[arg(long, value_name = "LINK", default_value = "watchdog")]
    link: LinkName,

    /// Tasks of a chain, each of which blocks a worker
    #[arg(long, value_name = "N", default_value = "100", value_parser = clap::value_parser!(u16).range(1..=1000))]
    chain: u16,

    /// Chains, each on a runtime of its own [default: 20, with --rest-ms 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=10_000))]
    chains: Option<u16>,

    /// Each task of a chain stalls alone, after the runtime was idle for this many milliseconds
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u16).range(100..=60_000))]
    rest_ms: Option<u16>,

    /// Busy threads, each in a process of its own
    #[arg(long, value_name = "N", default_value = "0", value_parser = clap::value_parser!(u16).range(0..=1024))]
    neighbours: u16,

    /// Tasks are plain tokio::spawn, which nobody watches
    #[arg(long)]
    unwatched: bool,

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
    watched: bool,
    neighbours: u16,
    /// The idle time before each stall; `null`: none.
    rest_ms: Option<u16>,
    /// From the call that blocks until the next task runs.
    waited_ns: Summary,
    /// From what the kernel side saw until the controller read of it: medians over the chains.
    detected_p50_ns: Option<u64>,
    detected_p99_ns: Option<u64>,
    interrupted: bool,
}

fn main() -> ExitCode {
    neighbours::become_one_if_asked();
    let options = Options::parse();
    interrupt::install();
    report::conclude(
        "takeover",
        measure(&options),
        options.json,
        |report| table(&options, report),
        |report| report::Ended::of(report.interrupted, false),
    )
}

fn measure(options: &Options) -> Result<Report, String> {
    let _neighbours = Neighbours::own(options.neighbours.into())?;
    let mut waited = Latencies::default();
    let (mut p50s, mut p99s) = (Vec::new(), Vec::new());
    let mut link = String::new();
    let chains = options.chains();
    let mut progress = Progress::new(expected(options) * chains.into(), options.json);
    for chain in 0..chains {
        if interrupt::happened() {
            break;
        }
        progress.say(format!("chain {} of {chains}", chain + 1));
        let runtime = build(options)?;
        link = runtime.link().to_string();
        let times = match options.rest() {
            None => run_chain(&runtime, options, options.chain)?,
            Some(rest) => stall_after_rests(&runtime, options, rest, &mut progress)?,
        };
        times.into_iter().for_each(|ns| waited.record_ns(ns));
        let seen = runtime.metrics().debug.detection_latency;
        if seen.count > 0 {
            p50s.push(seen.p50_ns as f64);
            p99s.push(seen.p99_ns as f64);
        }
        runtime.shutdown_timeout(Duration::from_secs(1));
        if options.rest_ms.is_none() {
            progress.finish_run(expected(options));
        }
    }
    progress.clear();
    let median = |values| morpheus_bench::histogram::median(values).map(|ns| ns as u64);
    Ok(Report {
        bench: "takeover",
        host: Host::read(),
        link,
        watched: !options.unwatched,
        neighbours: options.neighbours,
        rest_ms: options.rest_ms,
        waited_ns: waited.summary(),
        detected_p50_ns: median(p50s),
        detected_p99_ns: median(p99s),
        interrupted: interrupt::happened(),
    })
}

impl Options {
    fn rest(&self) -> Option<Duration> {
        self.rest_ms.map(|ms| Duration::from_millis(ms.into()))
    }

    fn chains(&self) -> u16 {
        let default = if self.rest_ms.is_some() { 1 } else { 20 };
        self.chains.unwrap_or(default)
    }
}

/// How long a chain takes when nothing holds it up for long.
fn expected(options: &Options) -> Duration {
    match options.rest() {
        None => SETTLES + (COMPUTES + Duration::from_micros(200)) * options.chain.into(),
        Some(rest) => (SETTLES + rest) * options.chain.into(),
    }
}

fn build(options: &Options) -> Result<Runtime, String> {
    let mut builder = Builder::new_multi_thread();
    builder
        .worker_threads(1)
        .reserve(0)
        // Tasks that have blocked before are polled in place, where nothing waits behind them.
        .without(Mechanism::Handoffs);
    if options.rest_ms.is_none() {
        builder
            .max_spares(usize::from(options.chain) + 2)
            // It releases spares beyond need, which would then be there for the next in the chain.
            .without(Mechanism::Canary);
    }
    options.link.build(&mut builder)
}

/// Lets one task stall at a time, each after a rest, on the same runtime.
fn stall_after_rests(
    runtime: &Runtime,
    options: &Options,
    rest: Duration,
    progress: &mut Progress,
) -> Result<Vec<u64>, String> {
    let mut all = Vec::new();
    for stall in 0..options.chain {
        if interrupt::happened() {
            break;
        }
        progress.say(format!("stall {} of {}", stall + 1, options.chain));
        std::thread::sleep(rest);
        all.extend(run_chain(runtime, options, 1)?);
        progress.finish_run(rest + SETTLES);
    }
    Ok(all)
}

/// What the tasks of a chain share.
struct Chain {
    /// Holds all of them up; the end of the writer lets them go.
    gate: Mutex<Vec<PipeReader>>,
    waited: Sender<u64>,
    watched: bool,
    /// How long each task computes before it blocks.
    computes: Duration,
}

fn run_chain(runtime: &Runtime, options: &Options, tasks: u16) -> Result<Vec<u64>, String> {
    let (readers, writers): (Vec<PipeReader>, Vec<PipeWriter>) = (0..tasks)
        .map(|_| pipe())
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| format!("no pipe to block on: {error}"))?
        .into_iter()
        .unzip();
    let (waited, times) = channel();
    let chain = Arc::new(Chain {
        gate: Mutex::new(readers),
        waited,
        watched: !options.unwatched,
        computes: match options.rest_ms {
            None => COMPUTES,
            Some(_) => Duration::ZERO,
        },
    });
    let _context = runtime.enter();
    std::thread::sleep(SETTLES);
    chain.next(None);
    drop(chain);
    let mut all = Vec::new();
    for _ in 0..tasks {
        let time = times.recv_timeout(STANDS_STILL);
        all.push(time.map_err(|_| format!("the chain stands still after {}", all.len()))?);
    }
    drop(writers);
    Ok(all)
}

impl Chain {
    /// Spawns the task that runs once the spawner, which blocks at `blocked_ns`, has been replaced.
    fn next(self: &Arc<Self>, blocked_ns: Option<u64>) {
        let chain = self.clone();
        let task = async move {
            if let Some(blocked_ns) = blocked_ns {
                let _ = chain
                    .waited
                    .send(clock::monotonic_ns().saturating_sub(blocked_ns));
            }
            chain.block();
        };
        if self.watched {
            drop(morpheus_runtime::spawn(task));
        } else {
            drop(tokio::spawn(task));
        }
    }

    fn block(self: &Arc<Self>) {
        work::burn(self.computes, |_| ());
        let gate = self.gate.lock().ok().and_then(|mut gate| gate.pop());
        let Some(mut gate) = gate else {
            return;
        };
        self.next(Some(clock::monotonic_ns()));
        // Takes the LIFO slot, where nobody could steal it, from the task before it.
        drop(tokio::spawn(async {}));
        let _ = gate.read(&mut [0]);
    }
}

fn table(options: &Options, report: &Report) -> String {
    let rest = options
        .rest_ms
        .map_or_else(String::new, |ms| format!(" after {ms} ms of rest"));
    let mut text = format!(
        "{}\n{} chains of {} tasks ({}), each blocks a worker{rest}; {} neighbours; link {}\n\n",
        report.host.line(report::WIDTH),
        options.chains(),
        options.chain,
        if report.watched {
            "watched"
        } else {
            "not watched"
        },
        report.neighbours,
        report.link
    );
    text += &format!(
        "what waits runs after   {}\n",
        report::percentiles(&report.waited_ns)
    );
    if let (Some(p50), Some(p99)) = (report.detected_p50_ns, report.detected_p99_ns) {
        text += &format!(
            "the controller knew after   p50 {}   p99 {}\n",
            report::time(p50),
            report::time(p99)
        );
    }
    report::note_early_end(&mut text, report.interrupted);
    text
}
