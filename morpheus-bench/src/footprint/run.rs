//! The parent's side: all measurements in their order, each in a child.

use std::slice;
use std::time::{Duration, Instant};

use morpheus_harness::envelope::Envelope;
use morpheus_harness::pairs::Limit;
use morpheus_harness::progress::Progress;
use morpheus_harness::rows::{Figure, Rounds, Row, against, rounds};
use morpheus_harness::unit::Unit;
use morpheus_harness::{interrupt, supervised};

use super::child::{Answer, Found, Job, KEPT, Task, Tasks, Via};
use super::config::{Options, morpheus};
use super::memory::Growth;
use super::memory::Purpose::{File, Heap, Other, SmallStack, Stack};
use crate::compare::Contender;

/// The time that starting a child and building a runtime take, about.
const START: Duration = Duration::from_millis(60);
/// Tasks are measured in this many rounds, or in fewer if fewer are asked for: what they request is the same each time.
const TASK_ROUNDS: usize = 3;
/// A child may take this much longer than it sleeps: the machine may be slow and busy.
const GRACE: Duration = Duration::from_secs(120);

/// The memory, in bytes, that an idle runtime with its default number of spares may take beyond tokio's.
const IDLE_LIMIT: Limit = Limit::AtMost(1_048_576.0);
/// The memory, in bytes, that a watched task may request beyond an unwatched one.
const TASK_LIMIT: Limit = Limit::AtMost(32.0);

const IDLE: &str = "an idle runtime";
const TASK: &str = "a task that waits";
const OVER_TOKIO: &str = "over tokio";

const RESIDENT: Figure<Growth> = bytes("resident", |own| Some(own.of(|memory| memory.resident)));
/// The figures of an idle runtime, the less important last.
const IDLE_FIGURES: [Figure<Growth>; 11] = [
    RESIDENT,
    bytes("anonymous", |own| Some(own.of(|memory| memory.anonymous))),
    Figure::count("threads", |own| Some(own.of(|memory| memory.threads))),
    bytes("stacks", |own| Some(own.of(|memory| memory.of(Stack)))),
    bytes("heap", |own| Some(own.of(|memory| memory.of(Heap)))),
    bytes("files", |own| Some(own.of(|memory| memory.of(File)))),
    bytes("small stacks", |own| {
        Some(own.of(|memory| memory.of(SmallStack)))
    }),
    bytes("other", |own| Some(own.of(|memory| memory.of(Other)))),
    bytes("mapped", |own| Some(own.of(|memory| memory.mapped))),
    bytes("Pss", |own| Some(own.of(|memory| memory.proportional))),
    Figure::count("mappings", |own| Some(own.of(|memory| memory.mappings))),
];

const REQUESTED: Figure<Task> = bytes("requested", |task| Some(task.requested));
const TASK_FIGURES: [Figure<Task>; 3] = [
    REQUESTED,
    bytes("resident", |task| Some(task.resident)),
    Figure::count("blocks", |task| Some(task.blocks)),
];

const fn bytes<M>(name: &'static str, of: fn(&M) -> Option<f64>) -> Figure<M> {
    Figure::new(name, Unit::Bytes, of)
}

/// Measures everything, or until Ctrl-C.
pub fn measure(options: &Options) -> Envelope<Options> {
    let mut found = Envelope::new("footprint", options.clone());
    let (idle, tasks) = (options.idle(), options.tasks());
    let each = START + Duration::from_millis(options.settle_ms as u64);
    let task_rounds = options.runs.min(TASK_ROUNDS);
    let all = idle.len() * options.runs + tasks.len() * KEPT.len() * task_rounds;
    let mut progress = Progress::new(each * all as u32, options.json);
    let mut again = 0;
    let mut ask = |runtime: Contender, tasks: Option<Tasks>| {
        progress.say(runtime.to_string());
        let job = Job {
            runtime,
            workers: options.workers,
            settle_ms: options.settle_ms as u64,
            tasks,
        };
        let answer = ask(&job, each, &mut progress, &mut again);
        progress.finish_run(each);
        answer.map_err(|why| format!("{runtime}: {why}"))
    };
    let runtimes = fill(idle.len(), options.runs, |contender| {
        match ask(idle[contender], None)? {
            Found::Idle(growth) => Ok(growth),
            Found::Task(_) => Err("was asked for a runtime, and measured tasks".into()),
        }
    });
    let started = fill(tasks.len(), task_rounds, |contender| {
        let (runtime, via) = tasks[contender];
        let mut mean = Task::default();
        for kept in KEPT {
            let count = options.tasks;
            if let Found::Task(task) = ask(runtime, Some(Tasks { via, count, kept }))? {
                mean.add(task);
            }
        }
        Ok(mean)
    });
    progress.clear();
    let note = format!(
        "{again} measurements were repeated: the runtime had released a spare or reported a stall, and was not idle."
    );
    found.notes.extend((again > 0).then_some(note));
    if !idle.is_empty() {
        let about = "what it adds to a process that has served a few tasks";
        found.add(IDLE, about, idle_rows(&idle, &runtimes.0));
    }
    if !tasks.is_empty() {
        let rows = task_rows(&tasks, &started.0);
        found.add(TASK, "the mean of four sizes, 32 bytes apart", rows);
    }
    found.failed.extend(runtimes.1.into_iter().chain(started.1));
    found
}

/// Measures contenders in turns, `count` rounds. Returns also why the last round is missing, if a measurement failed.
fn fill<M>(
    contenders: usize,
    count: usize,
    mut measure: impl FnMut(usize) -> Result<M, String>,
) -> (Rounds<M>, Option<String>) {
    let mut rounds = Rounds::in_turns(contenders);
    let places = rounds::in_turns(contenders, count);
    let filled = rounds.fill(places, |place| measure(place.contender));
    (rounds, filled.err())
}

/// How much more than tokio each contender takes.
fn over_tokio(rows: &[Row], tokio: &str, figure: &str) -> Vec<Row> {
    against(rows, tokio, figure, (OVER_TOKIO, Unit::Bytes), |a, b| a - b)
}

/// The rows of idle runtimes, of which the first is tokio.
fn idle_rows(runtimes: &[Contender], rounds: &Rounds<Growth>) -> Vec<Row> {
    let names: Vec<String> = runtimes.iter().map(Contender::to_string).collect();
    let default = morpheus(None).to_string();
    let [resident, others @ ..] = &IDLE_FIGURES;
    let mut rows = rounds.rows(IDLE, &names, slice::from_ref(resident), |_, _| None);
    let over = over_tokio(&rows, &names[0], RESIDENT.name);
    rows.extend(over.into_iter().map(|row| {
        let is_held = row.contender == default;
        row.held(is_held.then_some(IDLE_LIMIT))
    }));
    rows.extend(rounds.rows(IDLE, &names, others, |_, _| None));
    rows
}

/// The rows of tasks, of which the first are tokio's.
fn task_rows(tasks: &[(Contender, Via)], rounds: &Rounds<Task>) -> Vec<Row> {
    let name = |(runtime, via): &(Contender, Via)| format!("{runtime}, {via}");
    let names: Vec<String> = tasks.iter().map(name).collect();
    let mut rows = rounds.rows(TASK, &names, &TASK_FIGURES, |_, _| None);
    let over = over_tokio(&rows, &names[0], REQUESTED.name);
    rows.extend(over.into_iter().map(|row| row.held(TASK_LIMIT)));
    rows
}

impl Task {
    /// Adds the part of one size.
    fn add(&mut self, one: Task) {
        let parts = KEPT.len() as f64;
        self.requested += one.requested / parts;
        self.blocks += one.blocks / parts;
        self.resident += one.resident / parts;
    }
}

/// The result of the first child whose runtime was idle.
///
/// Adds to `again` each child whose runtime had to act.
fn ask(
    job: &Job,
    each: Duration,
    progress: &mut Progress,
    again: &mut usize,
) -> Result<Found, String> {
    let until = Instant::now() + GRACE;
    loop {
        let own = supervised::own("footprint");
        let answer: Answer = supervised::ask(own, job, each + GRACE, |lasted| {
            progress.tick(lasted.min(each));
        });
        if let Some(found) = answer? {
            return Ok(found);
        }
        *again += 1;
        if interrupt::happened() || Instant::now() >= until {
            return Err(
                "the machine is too busy for an idle runtime: it had to act each time".into(),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use morpheus_harness::pairs::Bar;

    use super::super::config::tokio;
    use super::*;

    fn judged(rows: &[Row]) -> Vec<Option<Bar>> {
        let over = rows.iter().filter(|row| row.figure == OVER_TOKIO);
        over.map(|row| row.judged).collect()
    }

    /// Rows of tokio, of Morpheus with its default, which takes `over` bytes more, and of Morpheus with 8 spares.
    fn idle(over: i64, count: usize) -> Vec<Row> {
        let (rounds, _) = fill(3, count, |contender| {
            let mut growth = Growth::default();
            growth.after.resident = 100_000 + [0, over, over / 4][contender];
            Ok(growth)
        });
        idle_rows(&[tokio(0), morpheus(None), morpheus(Some(8))], &rounds)
    }

    #[test]
    fn the_default_is_held_against_a_megabyte_more_than_tokio() {
        assert_eq!(judged(&idle(1 << 20, 6)), [Some(Bar::Met), None]);
        assert_eq!(judged(&idle((1 << 20) + 1, 6))[0], Some(Bar::Missed));
        assert_eq!(judged(&idle(0, 1))[0], Some(Bar::Undecided), "one round");
        let rows = idle(400_000, 2);
        let over = rows.iter().filter(|row| row.figure == OVER_TOKIO);
        let over: Vec<f64> = over.filter_map(|row| row.median).collect();
        assert_eq!(over, [400_000.0, 100_000.0]);
    }

    #[test]
    fn a_watched_task_is_held_against_32_bytes_more() {
        let rows = |over: f64| {
            let (rounds, _) = fill(2, 2, |contender| {
                let mut mean = Task::default();
                for bytes in [256.0, 256.0, 256.0, 384.0] {
                    mean.add(Task {
                        requested: bytes + [0.0, over][contender],
                        blocks: 1.0,
                        resident: bytes,
                    });
                }
                Ok(mean)
            });
            task_rows(
                &[(tokio(0), Via::Tokio), (morpheus(None), Via::Spawn)],
                &rounds,
            )
        };
        assert_eq!(judged(&rows(32.0)), [Some(Bar::Met)]);
        assert_eq!(judged(&rows(32.25)), [Some(Bar::Missed)]);
        assert_eq!(rows(32.0)[0].median, Some(288.0));
    }

    #[test]
    fn what_failed_keeps_the_rounds_before_it() {
        let mut left = 5;
        let (rounds, failed) = fill(2, 6, |_| {
            left -= 1;
            if left >= 0 {
                Ok(())
            } else {
                Err("no threads".into())
            }
        });
        assert_eq!(
            (rounds.all().count(), failed.as_deref()),
            (4, Some("no threads"))
        );
    }
}
