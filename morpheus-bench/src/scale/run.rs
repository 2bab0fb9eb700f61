//! Everything in its order: numbers of CPUs, iterations, schedulers in turns, cases; and who schedules meanwhile.

use std::path::Path;
use std::time::{Duration, Instant};

use morpheus_harness::host::Host;
use morpheus_harness::progress::Progress;
use morpheus_harness::record::Record;
use morpheus_harness::{interrupt, report, supervised};

use super::capture::{self, Capture};
use super::case::Case;
use super::child::{Answer, Job};
use super::config::Options;
use super::contender::{Contender, InForce};
use super::corpus;
use super::features;
use super::online::{self, Offline};
use super::result::{Measured, Report, Run};
use super::soak::{self, Soaking};
use super::tracing;
use crate::{cpus, scx};

/// The time that a measurement takes besides its duration, about: processes start, and run for a while before it counts.
const AROUND: Duration = Duration::from_millis(1_500);
/// A measurement may take this much longer: guests are slow, and so are some schedulers.
const GRACE: Duration = Duration::from_secs(60);
/// Between two checks of the scheduler in force, while nothing else happens.
const LOOK: Duration = Duration::from_millis(50);
/// How often a scheduler is loaded again.
const RELOADS: u64 = 5;

/// Measures everything, or until Ctrl-C. CPUs and the kernel's own scheduler are back when this returns.
///
/// # Errors
/// When CPUs cannot be taken offline. A case that cannot be measured has the reason in its run.
pub fn measure(options: &Options, chosen: &[Case]) -> Result<Report, String> {
    let host = Host::read();
    if options.json {
        Record::<Run>::Host(host.clone()).print();
    }
    let counts = match &options.cpus[..] {
        [] => vec![cpus::allowed().len()],
        counts => counts.to_vec(),
    };
    let expected = Duration::from_secs_f64(options.duration) + AROUND;
    let under = |scheduler| options.cases_under(scheduler, chosen).len();
    let cases: usize = options.schedulers.iter().map(under).sum();
    let all = counts.len() * options.iterations * cases;
    let mut measuring = Measuring {
        options,
        chosen,
        blocks_per_s: corpus::blocks_per_s(),
        expected,
        progress: Progress::new(expected * all as u32, options.json),
        runs: Vec::new(),
    };
    for count in counts {
        let _offline = match options.cpus.is_empty() {
            true => None,
            false => Offline::all_but(count, Path::new(online::DIRECTORY))?,
        };
        for iteration in 0..options.iterations {
            // By its number, as each may be made in a boot of its own.
            let number = options.first_iteration + iteration;
            for contender in interrupt::until(in_order(options, number)) {
                measuring.contender(contender, count, number);
            }
        }
    }
    measuring.progress.clear();
    Ok(Report {
        host: Some(host),
        runs: measuring.runs,
    })
}

/// The schedulers in the order of an iteration: each is first once. Those of an ablation are measured between the scheduler as it
/// is and the same again, backwards in every other one.
fn in_order(options: &Options, number: usize) -> Vec<&Contender> {
    let all = &options.schedulers;
    match options.ablation {
        None => rotated(all, number - 1).collect(),
        Some(_) if number.is_multiple_of(2) => all.iter().rev().collect(),
        Some(_) => all.iter().collect(),
    }
}

/// The same, beginning with another one each time.
fn rotated<T>(all: &[T], by: usize) -> impl Iterator<Item = &T> {
    all.iter().cycle().skip(by).take(all.len())
}

struct Measuring<'a> {
    options: &'a Options,
    chosen: &'a [Case],
    blocks_per_s: f64,
    expected: Duration,
    progress: Progress,
    runs: Vec<Run>,
}

impl Measuring<'_> {
    /// All cases under one scheduler.
    fn contender(&mut self, contender: &Contender, cpus: usize, iteration: usize) {
        self.progress.say(format!("starting {contender}"));
        let is_ablation = self.options.ablation.is_some();
        let argument = is_ablation.then_some(features::WITHOUT_DATABASE);
        let mut in_force = contender.put_in_force(argument.as_slice(), Path::new(scx::DIRECTORY));
        for case in interrupt::until(self.options.cases_under(contender, self.chosen)) {
            let what = format!("{contender}, {}, iteration {iteration}", case.name());
            self.progress.say(what.clone());
            if case == Case::Reload && !matches!(contender, Contender::Program(_)) {
                self.progress.finish_run(self.expected);
                continue;
            }
            let job = Job {
                case,
                cpus,
                duration_ns: Duration::from_secs_f64(self.options.duration).as_nanos() as u64,
                link: contender.link(),
                blocks_per_s: self.blocks_per_s,
            };
            let answer = match (&mut in_force, case) {
                (in_force, Case::Reload) => reload(contender, in_force),
                (Ok(in_force), Case::TracedStress) => self.traced(&job, in_force, &what),
                (Ok(in_force), Case::Soak) => self.soaked(&job, in_force),
                (Ok(in_force), _) => self.one(&job, in_force),
                (Err(error), _) => Err(error.clone()),
            };
            self.progress.finish_run(self.expected);
            if interrupt::happened() {
                return;
            }
            let ops = in_force.as_ref().ok().and_then(InForce::ops);
            let run = Run {
                bench: "scale".into(),
                case,
                scheduler: contender.to_string(),
                ops: ops.map(str::to_owned),
                cpus,
                iteration,
                failed: why_failed(case, &answer),
                measured: answer.ok(),
            };
            self.progress
                .suspend(|| eprintln!("{what}: {}", said(&run)));
            if self.options.json {
                Record::Run(run.clone()).print();
            }
            self.runs.push(run);
        }
    }

    /// One measurement, captured. The capture is saved when it fails.
    fn traced(&self, job: &Job, in_force: &mut InForce, what: &str) -> Answer {
        let capture = Capture::start(Path::new(tracing::DIRECTORY))?;
        let answer = self.one(job, in_force);
        let why = why_failed(job.case, &answer).filter(|_| !interrupt::happened());
        let Some(why) = why else {
            return answer;
        };
        let (directory, name) = (&self.options.capture, capture::file_name(what));
        match capture.save(directory, &name, &why) {
            Ok(events) => eprintln!(
                "scale: {} events are in {}",
                report::count(events),
                directory.join(name).with_extension("trace").display()
            ),
            Err(error) => eprintln!("scale: {error}"),
        }
        answer
    }

    /// One measurement, watched from outside, and for a while before it begins. The result contains the faults that were seen.
    fn soaked(&self, job: &Job, in_force: &mut InForce) -> Answer {
        let mut soaking = Soaking::start(Path::new(scx::DIRECTORY))?;
        let until = Instant::now() + soak::quiet(job.duration());
        while Instant::now() < until && !interrupt::happened() {
            in_force.check()?;
            std::thread::sleep(LOOK);
        }
        soaking.load();
        let begun = Instant::now();
        let answer = self.one(job, in_force);
        Ok(soaking.end(answer, begun.elapsed().as_nanos() as u64))
    }

    /// One measurement. The scheduler in force is checked before, twenty times a second, and after.
    fn one(&self, job: &Job, in_force: &mut InForce) -> Answer {
        in_force.check()?;
        let progress = &self.progress;
        let mut meanwhile = Ok(());
        let bound = self.expected + job.duration() + GRACE;
        let answer: Answer = supervised::ask(supervised::own("scale"), job, bound, |lasted| {
            progress.tick(lasted);
            if meanwhile.is_ok() {
                meanwhile = in_force.check();
            }
        });
        meanwhile.and_then(|()| in_force.check()).and(answer)
    }
}

/// Why a measurement is a failure, where it is one.
fn why_failed(case: Case, answer: &Answer) -> Option<String> {
    let measured = match answer {
        Ok(measured) => measured,
        Err(why) => return Some(why.clone()),
    };
    if let Some(soak) = &measured.soak {
        return soak.failed();
    }
    let about = case.about();
    let (value, limit) = measured.value.zip(about.at_most)?;
    let [value_shown, limit_shown] = [value, limit].map(|value| about.unit.show(value));
    (value > limit).then(|| {
        format!(
            "{} {value_shown}, and at most {limit_shown} is allowed",
            about.figure
        )
    })
}

/// Stops a scheduler and starts it again, a few times: it is in force each time, and gone in between. It is left in force.
fn reload(contender: &Contender, in_force: &mut Result<InForce, String>) -> Answer {
    let begun = Instant::now();
    let mut longest = Duration::ZERO;
    for _ in 0..RELOADS {
        // First the old one: a second one cannot be loaded beside it.
        let old = std::mem::replace(in_force, Err("it was being loaded again".into()));
        old?.check()?;
        let starting = Instant::now();
        *in_force = contender.put_in_force(&[], Path::new(scx::DIRECTORY));
        longest = longest.max(starting.elapsed());
        in_force.as_mut().map_err(|error| error.clone())?.check()?;
    }
    let ns = |time: Duration| time.as_nanos() as u64;
    Ok(Measured::longest(ns(longest), RELOADS, ns(begun.elapsed())))
}

/// A run in a line.
fn said(run: &Run) -> String {
    let about = run.case.about();
    let Some(measured) = run.figures() else {
        return run.failed.clone().unwrap_or_default();
    };
    match measured.value {
        Some(value) => format!("{} {}", about.figure, about.unit.show(value)),
        None => format!("{} too few samples ({})", about.figure, measured.count),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scheduler_is_first_once() {
        let order = |by| -> String { rotated(&['A', 'B', 'C'], by).collect() };
        assert_eq!([0, 1, 2, 3].map(order), ["ABC", "BCA", "CAB", "ABC"]);
        assert_eq!(rotated::<u8>(&[], 2).count(), 0);
    }

    #[test]
    fn a_wait_beyond_its_limit_is_a_failure() {
        let measured = |longest_ns| Ok(Measured::longest(longest_ns, 5, 1));
        let why = why_failed(Case::Sojourn, &measured(1_200_000_000)).unwrap();
        assert_eq!(why, "longest wait 1.20 s, and at most 1.00 s is allowed");
        assert_eq!(why_failed(Case::Latency, &measured(1_200_000_000)), None);
        assert_eq!(why_failed(Case::Sojourn, &measured(1_000)), None);
    }

    #[test]
    fn a_run_in_a_line() {
        let mut run = super::super::result::tests::run(Case::Latency, "default", 1, 2_100_000.0);
        assert_eq!(said(&run), "wake p99 2.10 ms");
        run.measured.as_mut().unwrap().value = None;
        assert_eq!(said(&run), "wake p99 too few samples (1)");
        run.failed = Some("thrown out".into());
        assert_eq!(said(&run), "thrown out");
    }
}
