//! The parent's side: all measurements in their order, each in a child.

use std::time::Duration;

use super::cases::Case;
use super::child::{Answer, Job, Measurement};
use super::config::Options;
use super::contender::Contender;
use super::result::{Measured, Report, Rounds};
use crate::flagged;
use crate::host::Host;
use crate::interrupt;
use crate::order::interleaved;
use crate::progress::Progress;
use crate::supervised;

/// What starting a child, building a runtime and setting up a case take, about.
const START: Duration = Duration::from_millis(30);
/// The window, and the warm-up with it.
const WINDOWS: f64 = 1.6;
/// A child may take so many times as long as the window, and so long in any case: the machine may be slow and busy.
const MOST_WINDOWS: f64 = 100.0;
const GRACE: Duration = Duration::from_secs(60);

/// Who is measured in a round.
#[derive(Clone, Copy, Debug)]
enum Who {
    /// What is compared with.
    Reference,
    /// What is compared, by its number.
    Compared(usize),
    /// The reference again.
    Again,
}

/// Measures everything, or until Ctrl-C.
pub fn measure(options: &Options) -> Report {
    let host = Host::read();
    let cases = options.cases();
    let each = START + Duration::from_secs_f64(options.window_ms * WINDOWS / 1e3);
    let measurements = 1 + options.pairs * (options.runtime.len() + 2);
    let all = cases.len() * options.against.len() * measurements;
    let mut progress = Progress::new(each * all as u32, options.json);
    let mut measured = Vec::new();
    for against in &options.against {
        for case in &cases {
            if interrupt::happened() {
                break;
            }
            let mut measure = |contender: Contender, operations: Option<u64>| {
                progress.say(format!("{} on {contender}", case.name));
                let job = Job {
                    case: case.name.into(),
                    contender,
                    workers: options.workers,
                    operations,
                    window_ms: options.window_ms,
                };
                let answer = in_child(&job, |lasted| progress.tick(lasted.min(each)));
                progress.finish_run(each);
                answer.map_err(|error| format!("{contender}: {error}"))
            };
            measured.push(one(case, *against, options, &mut measure));
        }
    }
    progress.clear();
    Report::new(host, options, measured)
}

/// One case against one runtime.
fn one(
    case: &Case,
    against: Contender,
    options: &Options,
    measure: &mut impl FnMut(Contender, Option<u64>) -> Answer,
) -> Measured {
    let mut rounds = Rounds::new(options.runtime.len());
    let mut operations = 0;
    let mut all = || -> Result<(), String> {
        operations = measure(against, None)?.operations;
        let kinds: Vec<Who> = std::iter::once(Who::Reference)
            .chain((0..options.runtime.len()).map(Who::Compared))
            .chain([Who::Again])
            .collect();
        let mut round: Vec<Option<Measurement>> = Vec::new();
        for (number, who) in interleaved(&kinds, options.pairs) {
            if interrupt::happened() {
                return Ok(());
            }
            if round.is_empty() {
                round = vec![None; kinds.len()];
            }
            let (place, contender) = match who {
                Who::Reference => (0, against),
                Who::Again => (1, against),
                Who::Compared(i) => (2 + i, options.runtime[i]),
            };
            match measure(contender, Some(operations)) {
                Ok(measured) => round[place] = Some(measured),
                // Ctrl-C may end a child in the middle.
                Err(_) if interrupt::happened() => return Ok(()),
                Err(error) => return Err(format!("{error} (pair {})", number + 1)),
            }
            if round.iter().all(Option::is_some) {
                rounds.push(round.drain(..).flatten().collect());
            }
        }
        Ok(())
    };
    let failed = all().err();
    Measured::new(case, against, options, operations, &rounds, failed)
}

fn in_child(job: &Job, tick: impl FnMut(Duration)) -> Answer {
    let bound = GRACE + Duration::from_secs_f64(job.window_ms * MOST_WINDOWS / 1e3);
    let program = match job.contender.runtime.needs_flag() {
        true => flagged::command("compare")?,
        false => supervised::own("compare"),
    };
    supervised::ask(program, job, bound, tick)
}
