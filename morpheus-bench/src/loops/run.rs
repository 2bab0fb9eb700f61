//! All measurements, in one watched task.

use std::hint::black_box;
use std::thread;
use std::time::{Duration, Instant};

use morpheus_harness::envelope::Envelope;
use morpheus_harness::pairs::Limit;
use morpheus_harness::progress::Progress;
use morpheus_harness::report::count;
use morpheus_harness::rows::{Figure, Rounds, Row, means, rounds};
use morpheus_harness::{clock, interrupt};
use morpheus_runtime::{Builder, Link, Policy, yield_requested};

use super::config::Options;
use super::data::{Data, Written};
use super::form::{Case, Form};

/// The one figure: CPU time of a run of the loop, in nanoseconds.
const FIGURE: Figure<f64> = Figure::time("CPU time", |ns| Some(*ns));

/// A block between two checkpoints takes this long.
const BLOCK: Duration = Duration::from_micros(20);
/// Longer than a poll's budget and what it takes to notice on a busy machine.
const SURELY_ASKED: Duration = Duration::from_secs(5);
/// A measurement during which the task changed threads is made again: at most this many attempts.
const TRIES: usize = 20;
/// A pass is calibrated by the fastest of this many trials.
const TRIALS: usize = 3;

/// Measures everything, or until Ctrl-C.
///
/// # Errors
/// When there is no runtime, or its tasks are not watched.
pub fn measure(options: &Options) -> Result<Envelope<Options>, String> {
    let found = Envelope::new("loops", options.clone());
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .max_spares(options.spares)
        .reserve(options.spares.min(1))
        .policy(Policy::Request)
        .link(Link::Watchdog)
        .build()
        .map_err(|error| format!("no runtime: {error}"))?;
    let task = runtime.spawn(all(found));
    let measured = runtime.handle().block_on(task);
    measured.map_err(|error| format!("the measuring task is gone: {error}"))?
}

async fn all(mut found: Envelope<Options>) -> Result<Envelope<Options>, String> {
    // Else every checkpoint would be a no-op, and cost little.
    let begun = Instant::now();
    while !yield_requested() {
        if begun.elapsed() > SURELY_ASKED {
            return Err("this task is not asked to yield: its checkpoints are not live".into());
        }
    }
    let options = found.config.clone();
    let cases = options.cases();
    let kinds = Form::COMPARED.len() + 2;
    let each = Duration::from_secs_f64(options.window_ms / 1e3) * (kinds * options.pairs) as u32;
    let mut progress = Progress::new(each * cases.len() as u32, options.json);
    let mut data = Data::new();
    for case in interrupt::until(cases) {
        progress.say(case.name.to_owned());
        let mut rounds = Rounds::new(Form::COMPARED.len());
        if let Err(why) = fill(case, &options, &mut data, &progress, &mut rounds).await {
            found.failed.push(format!("{}: {why}", case.name));
        }
        found.add(case.name, &about(case), rows(case, &rounds));
        progress.finish_run(each);
    }
    progress.clear();
    let means = means(
        &found.rows,
        |_| true,
        |row| {
            let mut forms = Form::COMPARED.iter();
            let form = forms.find(|form| form.to_string() == row.contender);
            form.and_then(|form| form.mean()).map(at_most)
        },
    );
    found.rows.extend(means);
    Ok(found)
}

/// The description of a loop, for a reader of the rows.
pub fn about(case: &Case) -> String {
    let vectorised = if case.vectorised { ", vectorised" } else { "" };
    let turns = count(case.turns as u64);
    format!("{}; {turns} turns{vectorised}", case.about)
}

/// A limit of `share` above plain.
fn at_most(share: f64) -> Limit {
    Limit::AtMost(1.0 + share)
}

fn rows(case: &Case, rounds: &Rounds<f64>) -> Vec<Row> {
    let forms = std::iter::once(Form::Plain).chain(Form::COMPARED);
    let forms: Vec<Form> = forms.collect();
    let names: Vec<String> = forms.iter().map(Form::to_string).collect();
    rounds.rows(case.name, &names, &[FIGURE], |_, contender| {
        forms[contender].worst().map(at_most)
    })
}

/// One loop in all forms.
async fn fill(
    case: &Case,
    options: &Options,
    data: &mut Data,
    progress: &Progress,
    rounds: &mut Rounds<f64>,
) -> Result<(), String> {
    let pass = calibrate(case, Form::Plain, data, 1).await?;
    let block = block_of(case.turns, pass);
    let window = options.window_ms * 1e6;
    let passes_in = |pass: f64| (window / pass).ceil().clamp(1.0, 1e6) as usize;
    let wanted = outcome(case, Form::Plain, data, case.turns, 1).await;
    let mut forms = vec![(Form::Plain, passes_in(pass))];
    for form in Form::COMPARED {
        if outcome(case, form, data, case.turns, block).await != wanted {
            return Err(format!("{form} does something else than plain"));
        }
        forms.push((form, passes_in(calibrate(case, form, data, block).await?)));
    }
    let mut done = Duration::ZERO;
    for place in interrupt::until(rounds::order(Form::COMPARED.len(), options.pairs)) {
        let (form, passes) = forms[place.contender];
        let took = timed(case, form, data, block, passes).await?;
        rounds.add(place, took);
        done += Duration::from_secs_f64(options.window_ms / 1e3);
        progress.tick(done);
    }
    Ok(())
}

/// Turns of a block that takes [`BLOCK`], when all of them take `pass_ns`.
fn block_of(turns: usize, pass_ns: f64) -> usize {
    let fitting = turns as f64 * BLOCK.as_nanos() as f64 / pass_ns.max(1.0);
    (fitting as usize).clamp(1, turns)
}

/// The result that a form computes, and its output.
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

/// Mean CPU time of a pass, in nanoseconds, over `passes` in a row. They begin with a poll.
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
    use morpheus_harness::pairs::Bar;

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

    #[test]
    fn a_form_is_judged_loop_by_loop_and_the_control_is_not() {
        let mut rounds = Rounds::new(Form::COMPARED.len());
        for place in rounds::order(Form::COMPARED.len(), 12) {
            let plain = 1e6 + 100.0 * ((place.round + place.number) % 3) as f64;
            let factor = [1.0, 1.002, 1.0, 1.2, 1.001, 9.0][place.contender];
            rounds.add(place, plain * factor);
        }
        let case = crate::loops::cases::all().next().unwrap();
        let rows = rows(case, &rounds);
        let judged = rows
            .iter()
            .filter_map(|row| row.ratio.as_ref())
            .map(|ratio| ratio.judged);
        let (met, missed) = (Some(Bar::Met), Some(Bar::Missed));
        assert!(judged.eq([met, met, missed, met, None]), "{rows:?}");
    }
}
