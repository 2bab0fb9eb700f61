//! All measurements, in one watched task.

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use morpheus_runtime::{Builder, Link, Policy, yield_requested};

use super::config::Options;
use super::data::{Data, Written};
use super::form::{Case, Form};
use super::result::{Measured, Report, Rounds};
use crate::host::Host;
use crate::order::interleaved;
use crate::progress::Progress;
use crate::{clock, interrupt};

/// Blocks between two checkpoints take so long.
const BLOCK: Duration = Duration::from_micros(20);
/// Longer than a poll's budget and what it takes to notice on a busy machine.
const SURELY_ASKED: Duration = Duration::from_secs(5);
/// A measurement in the middle of which the task changed threads is made again, so often at most.
const TRIES: usize = 20;
/// Of a pass, for its calibration: the fastest of so many.
const TRIALS: usize = 3;

/// Measures everything, or until Ctrl-C.
///
/// # Errors
/// When there is no runtime, or its tasks are not watched.
pub fn measure(options: &Options) -> Result<Report, String> {
    let host = Host::read();
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .max_spares(options.spares)
        .reserve(options.spares.min(1))
        .policy(Policy::Request)
        .link(Link::Watchdog)
        .build()
        .map_err(|error| format!("no runtime: {error}"))?;
    let own = options.clone();
    let task = runtime.spawn(async move { all(&own).await });
    let measured = runtime
        .handle()
        .block_on(task)
        .map_err(|error| format!("the measuring task is gone: {error}"))?;
    Ok(Report::new(host, options, measured?))
}

async fn all(options: &Options) -> Result<Vec<Measured>, String> {
    // Else every checkpoint would be a no-op, and cost little.
    let begun = Instant::now();
    while !yield_requested() {
        if begun.elapsed() > SURELY_ASKED {
            return Err("this task is not asked to yield: its checkpoints are not live".into());
        }
    }
    let cases = options.cases();
    let kinds = Form::COMPARED.len() + 2;
    let each = Duration::from_secs_f64(options.window_ms / 1e3) * (kinds * options.pairs) as u32;
    let mut progress = Progress::new(each * cases.len() as u32, options.json);
    let mut data = Data::new();
    let mut measured = Vec::new();
    for case in cases {
        if interrupt::happened() {
            break;
        }
        progress.say(case.name.to_owned());
        measured.push(one(case, options, &mut data, &progress).await);
        progress.finish_run(each);
    }
    progress.clear();
    Ok(measured)
}

/// Who is measured in a round.
#[derive(Clone, Copy)]
struct Kind {
    form: Form,
    place: usize,
}

/// One loop in all forms.
async fn one(case: &Case, options: &Options, data: &mut Data, progress: &Progress) -> Measured {
    let mut rounds = Rounds::default();
    let mut block = 1;
    let failed = fill(case, options, data, progress, &mut rounds, &mut block)
        .await
        .err();
    Measured::new(case, block, &rounds, failed)
}

async fn fill(
    case: &Case,
    options: &Options,
    data: &mut Data,
    progress: &Progress,
    rounds: &mut Rounds,
    block: &mut usize,
) -> Result<(), String> {
    let pass = calibrate(case, Form::Plain, data, 1).await?;
    *block = block_of(case.turns, pass);
    let window = options.window_ms * 1e6;
    let passes_in = |pass: f64| (window / pass).ceil().clamp(1.0, 1e6) as usize;
    let wanted = outcome(case, Form::Plain, data, case.turns, 1).await;
    let mut kinds = vec![(Form::Plain, passes_in(pass))];
    for form in Form::COMPARED {
        if outcome(case, form, data, case.turns, *block).await != wanted {
            return Err(format!("{form} does something else than plain"));
        }
        kinds.push((form, passes_in(calibrate(case, form, data, *block).await?)));
    }
    kinds.push(kinds[0]);
    let places: Vec<Kind> = (0..kinds.len())
        .map(|place| Kind {
            form: kinds[place].0,
            place,
        })
        .collect();
    let mut round = vec![None; places.len()];
    let mut done = Duration::ZERO;
    for (_, kind) in interleaved(&places, options.pairs) {
        if interrupt::happened() {
            return Ok(());
        }
        let passes = kinds[kind.place].1;
        let took = timed(case, kind.form, data, *block, passes).await?;
        round[kind.place] = Some(took);
        done += Duration::from_secs_f64(options.window_ms / 1e3);
        progress.tick(done);
        if round.iter().all(Option::is_some) {
            let ns = round.iter_mut().filter_map(Option::take).collect();
            rounds.push(ns);
        }
    }
    Ok(())
}

/// Turns of a block, when all of them take so many nanoseconds.
fn block_of(turns: usize, pass_ns: f64) -> usize {
    let fitting = turns as f64 * BLOCK.as_nanos() as f64 / pass_ns.max(1.0);
    (fitting as usize).clamp(1, turns)
}

/// What a form computes, and what it writes.
async fn outcome(
    case: &Case,
    form: Form,
    data: &mut Data,
    turns: usize,
    block: usize,
) -> (u64, Written) {
    let _ = data.take();
    let result = case.run(form, data, turns, block).await;
    (result, data.take())
}

/// Nanoseconds of a pass.
async fn calibrate(case: &Case, form: Form, data: &mut Data, block: usize) -> Result<f64, String> {
    let mut fastest = f64::INFINITY;
    for _ in 0..TRIALS {
        fastest = fastest.min(timed(case, form, data, block, 1).await?);
    }
    Ok(fastest.max(1.0))
}

/// CPU time of a pass, in nanoseconds, of so many one after another. They begin with a poll.
async fn timed(
    case: &Case,
    form: Form,
    data: &mut Data,
    block: usize,
    passes: usize,
) -> Result<f64, String> {
    for _ in 0..TRIES {
        tokio::task::yield_now().await;
        let on = thread::current().id();
        let begun = clock::thread_cpu();
        for _ in 0..passes {
            black_box(case.run(form, data, case.turns, block).await);
        }
        let took = clock::thread_cpu().saturating_sub(begun);
        if thread::current().id() == on {
            return Ok(took.as_nanos() as f64 / passes as f64);
        }
    }
    Err(format!(
        "{form}: the task changes threads in each measurement"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_as_long_as_it_should_be_and_never_empty() {
        assert_eq!(block_of(1_000, 200_000.0), 100);
        assert_eq!(block_of(1_000, 1_000.0), 1_000);
        assert_eq!(block_of(10, 1e9), 1);
    }

    /// With few turns, since this is not optimised; before a measurement it is checked for all.
    #[tokio::test]
    async fn all_forms_do_the_same() {
        let mut data = Data::new();
        for case in crate::loops::cases::all() {
            let turns = case.turns.min(if case.turns > 2_000 { 2_000 } else { 40 });
            let wanted = outcome(case, Form::Plain, &mut data, turns, 1).await;
            for form in Form::COMPARED {
                let is = outcome(case, form, &mut data, turns, 7).await;
                assert!(is == wanted, "{} with {form}: {}", case.name, is.0);
            }
        }
    }
}
