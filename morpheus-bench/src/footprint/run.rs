//! The parent's side: all measurements in their order, each in a child.

use std::time::{Duration, Instant};

use super::child::{Answer, Found, Job, KEPT, Tasks};
use super::config::Options;
use super::result::{Idle, Report, Task};
use crate::host::Host;
use crate::interrupt;
use crate::order::interleaved;
use crate::progress::Progress;
use crate::supervised;

/// What starting a child and building a runtime take, about.
const START: Duration = Duration::from_millis(60);
/// Tasks are measured in so many rounds, or in fewer if fewer are asked for: what they request is the same each time.
const TASK_ROUNDS: usize = 3;
/// A child may take so long beyond what it sleeps: the machine may be slow and busy.
const GRACE: Duration = Duration::from_secs(120);

/// Measures everything, or until Ctrl-C.
pub fn measure(options: &Options) -> Report {
    let host = Host::read();
    let (idle, tasks) = (idle_jobs(options), task_jobs(options));
    let each = START + Duration::from_millis(options.settle_ms as u64);
    let task_rounds = options.runs.min(TASK_ROUNDS);
    let all = idle.len() * options.runs + tasks.len() * task_rounds;
    let mut progress = Progress::new(each * all as u32, options.json);
    let mut failed = None;
    let mut rounds = |jobs: &[Job], rounds: usize| {
        all_rounds(jobs, rounds, |job| {
            progress.say(job.runtime.to_string());
            let answer = ask(job, each, &mut progress);
            progress.finish_run(each);
            // Ctrl-C may end a child in the middle.
            let why = answer.as_ref().err().filter(|_| !interrupt::happened());
            failed = failed
                .take()
                .or(why.map(|why| format!("{}: {why}", job.runtime)));
            answer.ok()
        })
    };
    let idle_found = rounds(&idle, options.runs);
    let tasks_found = rounds(&tasks, task_rounds);
    progress.clear();
    let idle = idle.iter().map(|job| job.runtime).zip(idle_found);
    let tasks = options
        .tasks()
        .into_iter()
        .zip(tasks_found.chunks(KEPT.len()));
    let idle: Vec<Idle> = Idle::all(idle.collect());
    let tasks: Vec<Task> = Task::all(tasks.collect());
    Report::new(host, options, idle, tasks, failed)
}

/// What a child found, the first whose runtime was idle.
fn ask(job: &Job, each: Duration, progress: &mut Progress) -> Result<Found, String> {
    let until = Instant::now() + GRACE;
    loop {
        let own = supervised::own("footprint");
        let answer: Answer = supervised::ask(own, job, each + GRACE, |lasted| {
            progress.tick(lasted.min(each));
        });
        if let Some(found) = answer? {
            return Ok(found);
        }
        if interrupt::happened() || Instant::now() >= until {
            return Err(
                "the machine is too busy for an idle runtime: it had to act each time".into(),
            );
        }
    }
}

/// What each job found in each round; a round that did not come to its end is not there.
fn all_rounds(
    jobs: &[Job],
    rounds: usize,
    mut measure: impl FnMut(&Job) -> Option<Found>,
) -> Vec<Vec<Found>> {
    let mut all = vec![Vec::new(); jobs.len()];
    let places: Vec<usize> = (0..jobs.len()).collect();
    let mut round = vec![None; jobs.len()];
    for (_, place) in interleaved(&places, rounds) {
        if interrupt::happened() {
            break;
        }
        let Some(found) = measure(&jobs[place]) else {
            break;
        };
        round[place] = Some(found);
        if round.iter().all(Option::is_some) {
            for (all, found) in all.iter_mut().zip(&mut round) {
                all.extend(found.take());
            }
        }
    }
    all
}

fn job(options: &Options, runtime: crate::compare::Contender, tasks: Option<Tasks>) -> Job {
    Job {
        runtime,
        workers: options.workers,
        settle_ms: options.settle_ms as u64,
        tasks,
    }
}

fn idle_jobs(options: &Options) -> Vec<Job> {
    let all = options.idle().into_iter();
    all.map(|runtime| job(options, runtime, None)).collect()
}

/// One for each way and each size, the sizes of a way together.
fn task_jobs(options: &Options) -> Vec<Job> {
    let of = |(runtime, via)| {
        KEPT.into_iter().map(move |kept| {
            let count = options.tasks;
            job(options, runtime, Some(Tasks { via, count, kept }))
        })
    };
    options.tasks().into_iter().flat_map(of).collect()
}
