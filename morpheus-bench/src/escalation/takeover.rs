//! The second step: a spare runs what waits behind a worker that blocks in a poll.

use std::io::{self, PipeReader, PipeWriter, Read, pipe};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use morpheus_harness::envelope::Envelope;
use morpheus_harness::histogram::{self, Latencies, Summary};
use morpheus_harness::progress::Progress;
use morpheus_harness::rows::{Figure, Rounds};
use morpheus_harness::{clock, interrupt, latency_figures};
use morpheus_runtime::{Builder, Mechanism, Runtime};

use super::config::Options;
use crate::work;

const CHAIN: &str = "a worker that blocks is replaced";
const COLD: &str = "a worker that blocks after a rest is replaced";
/// A task computes for this time before it blocks. The controller cannot follow more blocks a second.
const COMPUTES: Duration = Duration::from_micros(600);
/// By then every worker has been through a park, so that the kernel side knows it.
const SETTLES: Duration = Duration::from_millis(20);
/// A chain that makes no progress within this time has failed.
const STANDS_STILL: Duration = Duration::from_secs(10);

/// The summary over all runtimes.
#[derive(Default)]
struct Found {
    waited: Summary,
    /// From what the kernel side saw until the controller read of it: medians over the runtimes.
    detected_p50_ns: Option<f64>,
    detected_p99_ns: Option<f64>,
}

const WAITED: [Figure<Found>; 4] = latency_figures!("next task", |found| Some(&found.waited));
const OTHERS: [Figure<Found>; 3] = [
    Figure::count("stalls", |found| Some(found.waited.n as f64)),
    Figure::time("detected p50", |found| found.detected_p50_ns),
    Figure::time("detected p99", |found| found.detected_p99_ns),
];

/// The latencies of the runtimes so far.
#[derive(Default)]
struct Seen {
    link: String,
    waited: Latencies,
    detected_p50s: Vec<f64>,
    detected_p99s: Vec<f64>,
}

/// Adds the rows of chains of tasks that block.
///
/// # Errors
/// There is no such link, or a chain stands still; the text is for people.
pub fn measure(options: &Options, envelope: &mut Envelope<Options>) -> Result<(), String> {
    let each = SETTLES + (COMPUTES + Duration::from_micros(200)) * options.chain.into();
    let mut progress = Progress::new(each * options.chains.into(), options.json);
    let mut seen = Seen::default();
    for chain in interrupt::until(0..options.chains) {
        progress.say(format!("chain {} of {}", chain + 1, options.chains));
        let mut builder = builder();
        builder
            .max_spares(usize::from(options.chain) + 2)
            // It releases spares beyond need, which would then be there for the next in the chain.
            .without(Mechanism::Canary);
        let runtime = options.link.build(&mut builder)?;
        seen.add(run_chain(&runtime, options, options.chain, COMPUTES)?);
        seen.end(runtime);
        progress.finish_run(each);
    }
    progress.clear();
    let about = "one after the other; with one worker, no reserve, no canary and no handoffs, each of which would be sooner";
    seen.put(CHAIN, about, envelope);
    Ok(())
}

/// Adds the rows of stalls of a runtime that was idle.
///
/// # Errors
/// As [`measure`].
pub fn measure_cold(options: &Options, envelope: &mut Envelope<Options>) -> Result<(), String> {
    let rest = Duration::from_millis(options.rest_ms.into());
    let each = rest + SETTLES;
    let mut progress = Progress::new(each * options.stalls.into(), options.json);
    let mut seen = Seen::default();
    let runtime = options.link.build(&mut builder())?;
    for stall in 0..options.stalls {
        progress.say(format!("stall {} of {}", stall + 1, options.stalls));
        std::thread::sleep(rest);
        if interrupt::happened() {
            break;
        }
        seen.add(run_chain(&runtime, options, 1, Duration::ZERO)?);
        progress.finish_run(each);
    }
    progress.clear();
    seen.end(runtime);
    let about = "its controller slept and every spare was held; with one worker, no reserve and no handoffs";
    seen.put(COLD, about, envelope);
    Ok(())
}

fn builder() -> Builder {
    let mut builder = Builder::new_multi_thread();
    // Tasks that have blocked before are polled in place, where nothing waits behind them.
    builder
        .worker_threads(1)
        .reserve(0)
        .without(Mechanism::Handoffs);
    builder
}

impl Seen {
    fn add(&mut self, times: Vec<u64>) {
        times.into_iter().for_each(|ns| self.waited.record_ns(ns));
    }

    fn end(&mut self, runtime: Runtime) {
        self.link = runtime.link().to_string();
        let detected = runtime.metrics().debug.detection_latency;
        if detected.count > 0 {
            self.detected_p50s.push(detected.p50_ns as f64);
            self.detected_p99s.push(detected.p99_ns as f64);
        }
        runtime.shutdown_timeout(Duration::from_secs(1));
    }

    fn put(self, case: &str, about: &str, envelope: &mut Envelope<Options>) {
        if self.waited.is_empty() {
            return;
        }
        let found = Rounds::once(vec![Found {
            waited: self.waited.summary(),
            detected_p50_ns: histogram::median(self.detected_p50s),
            detected_p99_ns: histogram::median(self.detected_p99s),
        }]);
        let figures: Vec<Figure<Found>> = WAITED.into_iter().chain(OTHERS).collect();
        let names = [format!("link {}", self.link)];
        let rows = found.rows(case, &names, &figures, |_, _| None);
        envelope.add(case, about, rows);
    }
}

/// The state that the tasks of a chain share.
struct Chain {
    /// Holds all of them up; the end of the writer lets them go.
    gate: Mutex<Vec<PipeReader>>,
    waited: Sender<u64>,
    watched: bool,
    /// How long each task computes before it blocks.
    computes: Duration,
}

fn run_chain(
    runtime: &Runtime,
    options: &Options,
    tasks: u16,
    computes: Duration,
) -> Result<Vec<u64>, String> {
    let pipes: io::Result<(Vec<PipeReader>, Vec<PipeWriter>)> =
        (0..tasks).map(|_| pipe()).collect();
    let (readers, writers) = pipes.map_err(|error| format!("no pipe to block on: {error}"))?;
    let (waited, times) = channel();
    let chain = Arc::new(Chain {
        gate: Mutex::new(readers),
        waited,
        watched: !options.unwatched,
        computes,
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
                let waited_ns = clock::monotonic_ns().saturating_sub(blocked_ns);
                let _ = chain.waited.send(waited_ns);
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
        // Moves the task before it out of the LIFO slot, from which no worker steals.
        drop(tokio::spawn(async {}));
        let _ = gate.read(&mut [0]);
    }
}
