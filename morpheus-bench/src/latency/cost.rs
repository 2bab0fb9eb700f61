//! The cost of checkpoints: the same work with and without them, a fifth of a millisecond at a time.
//!
//! One task for each worker that has a CPU computes blocks in the order A B A' A' B A …: A without checkpoints, B
//! with them, A' without them again, which is the control. Their CPU time is compared, by the medians of many blocks:
//! what disturbs the machine hits a few blocks of each kind.

use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use morpheus_harness::envelope::Envelope;
use morpheus_harness::histogram::median;
use morpheus_harness::order::interleaved;
use morpheus_harness::pairs::Limit;
use morpheus_harness::progress::Progress;
use morpheus_harness::rows::{Figure, Rounds, rounds};
use morpheus_harness::settle::Settle;
use morpheus_harness::{clock, host, interrupt};

use super::config::Options;
use super::open::{ITERATIONS, operate};
use crate::executor::{Executor, Spawn, morpheus::Morpheus};
use crate::work;

/// How long a block computes: well within the budget of a poll.
const BLOCK: Duration = Duration::from_micros(200);
/// Blocks of each kind in a pair.
const BLOCKS: usize = 100;
/// Blocks after which it begins, whether the median has settled or not.
const WARMUP_MOST: usize = 1_000;
/// A task that reports nothing for this long has lost its CPU.
const STANDS_STILL: Duration = Duration::from_secs(60);

const CASE: &str = "an operation";
const NAMES: [&str; 2] = ["without checkpoints", "with checkpoints"];
const CPU: Figure<f64> = Figure::time("CPU time", |ns| Some(*ns));
/// The limit of the CPU time with checkpoints, as a ratio to that without.
const LIMIT: Limit = Limit::AtMost(1.005);

/// CPU time of an operation in one pair: without checkpoints, with them, and without again.
type Times = [f64; 3];
/// The places of these times.
const WITHOUT: usize = 0;
const WITH: usize = 1;
const AGAIN: usize = 2;

/// Measures, or until Ctrl-C, and adds the rows.
///
/// # Errors
/// When a task stands still.
pub fn measure(
    morpheus: &Morpheus,
    options: &Options,
    found: &mut Envelope<Options>,
) -> Result<(), String> {
    let tasks = options.workers.min(host::cpus());
    let every = options.checkpoint_every;
    let us = ITERATIONS as f64 / work::iterations_per_us();
    let operations = ((BLOCK.as_micros() as f64 / us) as usize).max(1);
    let pair = BLOCK * 3 * BLOCKS as u32;
    let mut progress = Progress::new(pair * options.pairs as u32, options.json);
    progress.say("pairs with and without checkpoints".into());
    let receivers: Vec<Receiver<Times>> = (0..tasks)
        .map(|_| {
            let (sender, receiver) = channel();
            let pairs = options.pairs;
            morpheus.spawn(Spawn::Watched, async move {
                warm_up(operations, every).await;
                for _ in 0..pairs {
                    let times = measure_pair(operations, every).await;
                    if interrupt::happened() || sender.send(times).is_err() {
                        return;
                    }
                }
            });
            receiver
        })
        .collect();
    let mut all: Vec<Times> = Vec::new();
    'pairs: for _ in 0..options.pairs {
        let mut sum = [0.0; 3];
        for receiver in &receivers {
            let Ok(times) = receiver.recv_timeout(STANDS_STILL) else {
                if interrupt::happened() {
                    break 'pairs;
                }
                return Err("a task stands still: the machine has no CPU for it".into());
            };
            sum.iter_mut().zip(times).for_each(|(sum, ns)| *sum += ns);
        }
        all.push(sum.map(|ns| ns / tasks as f64));
        progress.finish_run(pair);
    }
    progress.clear();
    report(&all, options, tasks, found);
    Ok(())
}

fn report(all: &[Times], options: &Options, tasks: usize, found: &mut Envelope<Options>) {
    let checkpoints = ITERATIONS.div_ceil(options.checkpoint_every);
    let mut rounds = Rounds::new(1);
    for place in rounds::order(1, all.len()) {
        rounds.add(place, all[place.round][place.number]);
    }
    let names = NAMES.map(String::from);
    let limit = |_: &Figure<f64>, _| Some(LIMIT);
    let rows = rounds.rows(CASE, &names, &[CPU], limit);
    found.add(CASE, "computes for about 2 µs", rows);
    let more = all.iter().map(|times| times[WITH] - times[WITHOUT]);
    found.notes.extend(median(more.collect()).map(|ns| {
        format!(
            "An operation passes {checkpoints} checkpoints, in {tasks} tasks; one takes {:.2} ns.",
            ns / checkpoints as f64
        )
    }));
}

async fn warm_up(operations: usize, every: usize) {
    let mut settle = Settle::new(10, 0.02);
    for _ in 0..WARMUP_MOST {
        let time = block::<false>(operations, every).await;
        if time.is_some_and(|ns| settle.feed(ns)) {
            return;
        }
    }
}

async fn measure_pair(operations: usize, every: usize) -> Times {
    let mut times: [Vec<f64>; 3] = Default::default();
    for (_, kind) in interleaved(&[WITHOUT, WITH, AGAIN], BLOCKS) {
        let time = match kind {
            WITH => block::<true>(operations, every).await,
            _ => block::<false>(operations, every).await,
        };
        times[kind].extend(time);
    }
    times.map(|times| median(times).unwrap_or(f64::NAN))
}

/// CPU time of an operation, in nanoseconds; none where a checkpoint moved the task to another thread.
async fn block<const CHECKPOINTS: bool>(operations: usize, every: usize) -> Option<f64> {
    // Each block is a poll of its own, so that none is ever asked to yield for its length.
    tokio::task::yield_now().await;
    let (thread, before) = (std::thread::current().id(), clock::thread_cpu());
    for _ in 0..operations {
        operate::<CHECKPOINTS>(every).await;
    }
    let same = std::thread::current().id() == thread;
    same.then(|| (clock::thread_cpu() - before).as_nanos() as f64 / operations as f64)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use morpheus_harness::pairs::Bar;

    use super::*;

    #[test]
    fn pairs_become_a_cost() {
        let options = Options::parse_from(["latency", "--paired", "--checkpoint-every", "300"]);
        let of = |all: &[Times]| {
            let mut found = Envelope::new("latency", options.clone());
            report(all, &options, 2, &mut found);
            found
        };
        let found = of(&[[2_000.0, 2_008.0, 2_000.0]; 12]);
        let ratio = found.rows[1].ratio.as_ref().unwrap();
        assert!((ratio.pairs.differences[0] - 0.004).abs() < 1e-12);
        assert_eq!(
            (found.rows[0].median, ratio.judged),
            (Some(2_000.0), Some(Bar::Met))
        );
        assert!(found.notes[0].contains("4 checkpoints, in 2 tasks; one takes 2.00 ns"));
        assert!(of(&[]).rows.is_empty());
    }
}
