//! Runs tokio's own tests on Morpheus.
//!
//! Tokio publishes them with its crate; they are built in the target directory, against a crate that is called `tokio` and
//! has Morpheus's runtime in place of tokio's multi-thread one. [`workspace`] writes both, [`libtest`] reads what the tests
//! print, and [`difference`] lists the tests that have to fail, and says why.
//!
//! Each file of tests has a process of its own, as with tokio: some listen to signals, and some set a panic hook.

mod difference;
mod libtest;
mod workspace;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use self::difference::{DIFFERENCES, How, Verdict};
use self::libtest::Ended;
use self::workspace::{PUBLISHED, SUITE, Tokio};
use crate::context::Context;
use crate::counts::Counts;
use crate::interrupt;
use crate::process::{self, Output, Stream};
use crate::requirement::{Version, of_lock};
use crate::runner::{self, Outcome};

/// How long cargo may take.
const BUILD_LIMIT: Duration = Duration::from_secs(1800);
/// How long the tests of a file may take.
const FILE_LIMIT: Duration = Duration::from_secs(300);
/// How long a test may take that runs alone.
const TEST_LIMIT: Duration = Duration::from_secs(60);
/// How long a test may take that does not end.
const HANG_LIMIT: Duration = Duration::from_secs(10);

/// How many tests there are at the least: tokio 1.54 has 1414. A wrong `cfg` must not look like success.
const LEAST: usize = 1300;

/// Tells the crate that stands in for tokio which [`Mode`] to take.
const MODE: &str = "TOKIO_SUITE_MODE";

/// The runtime that tests run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Mode {
    /// Morpheus, with tasks as the test spawns them.
    Unwatched,
    /// Morpheus, with a watch around what `tokio::spawn` gets.
    Watched,
    /// Tokio: the control.
    Tokio,
}

impl Mode {
    const ON_MORPHEUS: [Mode; 2] = [Mode::Unwatched, Mode::Watched];

    /// The variable's value.
    fn name(self) -> &'static str {
        match self {
            Mode::Unwatched => "unwatched",
            Mode::Watched => "watched",
            Mode::Tokio => "tokio",
        }
    }
}

/// Tests the version of tokio that is locked; with `newest` also the newest one, if that is another.
///
/// # Errors
///
/// Something cannot be read or written, or cargo or the tests cannot be started.
pub(crate) fn run(
    context: &Context,
    newest: bool,
    on_line: &mut dyn FnMut(&str),
) -> io::Result<Outcome> {
    let mut step = Step {
        context,
        base: context.target.join("tokio-suite"),
        outcome: Outcome::default(),
        on_line,
    };
    let lock = fs::read_to_string(context.root.join("Cargo.lock"))?;
    let Some(locked) = of_lock(&lock, "tokio") else {
        step.outcome.fail("Cargo.lock: no tokio", step.on_line);
        return Ok(step.outcome);
    };
    step.test(locked, true)?;
    if newest
        && !step.outcome.interrupted
        && let Some(newest) = step.newest()?
    {
        if newest == locked {
            step.outcome.note.push_str("; it is the newest");
        } else {
            step.test(newest, false)?;
        }
    }
    // A thread whose child was interrupted has put the signal back for the others.
    step.outcome.interrupted |= interrupt::take();
    Ok(step.outcome)
}

/// The command line that does the same by hand.
pub(crate) fn shell_line() -> String {
    format!(
        "{MODE}=<unwatched, watched> CARGO_TARGET_DIR=target \
         cargo test --manifest-path target/tokio-suite/<version>/Cargo.toml --package {SUITE} --lib"
    )
}

/// A program that has all tests of a version.
struct Suite {
    /// The current directory of the tests.
    directory: PathBuf,
    executable: PathBuf,
}

/// One process, to be run.
#[derive(Clone, Debug)]
struct Job {
    mode: Mode,
    /// The file, or the test where there is one only.
    name: String,
    tests: Vec<String>,
    limit: Duration,
}

/// How a process went.
#[derive(Debug)]
struct Ran {
    endings: HashMap<String, Ended>,
    output: String,
    took: Duration,
    timed_out: bool,
    interrupted: bool,
}

struct Step<'a> {
    context: &'a Context,
    base: PathBuf,
    outcome: Outcome,
    on_line: &'a mut dyn FnMut(&str),
}

impl Step<'_> {
    /// The newest tokio there is, or `None` and a failure in the outcome.
    fn newest(&mut self) -> io::Result<Option<Version>> {
        let directory = self.base.join("newest");
        self.write_shim(&directory, "1")?;
        let mut update = self.cargo(&directory);
        update
            .args(["update", "--package", "tokio"])
            // The newest is the newest, also when it wants a newer compiler than the workspace does.
            .env("CARGO_RESOLVER_INCOMPATIBLE_RUST_VERSIONS", "allow");
        if self.output_of(&mut update)?.is_none() {
            return Ok(None);
        }
        let newest = of_lock(&fs::read_to_string(directory.join("Cargo.lock"))?, "tokio");
        if newest.is_none() {
            self.outcome
                .fail("Cargo.lock: no newest tokio", self.on_line);
        }
        Ok(newest)
    }

    /// Builds the tests of a version, and runs them.
    fn test(&mut self, version: Version, is_locked: bool) -> io::Result<()> {
        self.outcome
            .say(&format!("--- tokio {version}"), self.on_line);
        let Some(suite) = self.build(version)? else {
            return Ok(());
        };
        let mut list = suite.command(Mode::Tokio);
        list.args(["--list", "--format", "terse"]);
        let Some(list) = self.output_of(&mut list)? else {
            return Ok(());
        };
        let modules = libtest::modules(&list);
        let tests = modules.values().map(Vec::len).sum::<usize>();
        if tests < LEAST {
            self.outcome.fail(
                &format!("{tests} tests are too few: a `cfg` leaves some out"),
                self.on_line,
            );
        }
        if is_locked {
            for gone in absent(&modules) {
                self.outcome.fail(
                    &format!("{gone}: there is no such test: remove it from the table"),
                    self.on_line,
                );
            }
        }
        let endings = self.run_all(&suite, jobs(&modules))?;
        if !self.outcome.interrupted {
            self.judge_all(version, &suite, &endings)?;
        }
        Ok(())
    }

    /// Writes and builds the program; `None` and a failure in the outcome where that does not work.
    fn build(&mut self, version: Version) -> io::Result<Option<Suite>> {
        let directory = self.base.join(version.to_string());
        self.write_shim(&directory, &format!("={version}"))?;
        let host = runner::host(self.context)?;
        let mut metadata = self.cargo(&directory);
        metadata.args([
            "metadata",
            "--format-version",
            "1",
            "--filter-platform",
            &host,
        ]);
        let Some(metadata) = self.output_of(&mut metadata)? else {
            return Ok(None);
        };
        let metadata: Value = serde_json::from_str(&metadata)?;
        let Some(tokio) = Tokio::of_metadata(&metadata) else {
            self.outcome.fail("cargo metadata: no tokio", self.on_line);
            return Ok(None);
        };
        workspace::write_suite(&directory, &tokio)?;
        let mut build = self.cargo(&directory);
        build.args(["test", "--no-run", "--lib", "--package", SUITE]);
        build.args(["--message-format", "json-render-diagnostics"]);
        let Some(messages) = self.output_of(&mut build)? else {
            return Ok(None);
        };
        let Some(executable) = executable(&messages) else {
            self.outcome.fail("cargo test: no program", self.on_line);
            return Ok(None);
        };
        Ok(Some(Suite {
            directory: directory.join(PUBLISHED),
            executable,
        }))
    }

    /// Writes the crate that stands in for tokio. The versions of all else are the checkout's; what the checkout does not
    /// have stays as it was resolved until the checkout's change.
    fn write_shim(&self, directory: &Path, requirement: &str) -> io::Result<()> {
        workspace::write_shim(directory, &self.context.root, requirement)?;
        let checkout = fs::read(self.context.root.join("Cargo.lock"))?;
        let basis = directory.join("checkout.lock");
        if fs::read(&basis).is_ok_and(|basis| basis == checkout) {
            return Ok(());
        }
        fs::write(directory.join("Cargo.lock"), &checkout)?;
        fs::write(basis, checkout)
    }

    /// Runs processes, one for each CPU at once, and collects how their tests ended.
    fn run_all(
        &mut self,
        suite: &Suite,
        jobs: Vec<Job>,
    ) -> io::Result<BTreeMap<(Mode, String), Ended>> {
        let at_once = thread::available_parallelism().map_or(1, |cpus| cpus.get());
        let queue = Mutex::new(jobs.into_iter());
        let (sender, ended) = mpsc::channel();
        let mut endings = BTreeMap::new();
        thread::scope(|scope| {
            for _ in 0..at_once {
                let (sender, queue) = (sender.clone(), &queue);
                scope.spawn(move || {
                    let next = || queue.lock().expect("no holder panics").next();
                    while let Some(job) = next() {
                        if interrupt::came() {
                            break;
                        }
                        let ran = suite.run(&job);
                        if ran.as_ref().is_ok_and(|ran| ran.interrupted) {
                            // The one beside this has not seen it.
                            interrupt::put_back();
                        }
                        // Where the receiver is gone, a run before could not be started.
                        let _ = sender.send((job, ran));
                    }
                });
            }
            drop(sender);
            for (job, ran) in ended {
                let ran = ran?;
                self.outcome.say(&job.line(&ran), self.on_line);
                self.outcome.interrupted |= ran.interrupted;
                let ended = ran.endings.into_iter();
                endings.extend(ended.map(|(test, ended)| ((job.mode, test), ended)));
            }
            Ok(endings)
        })
    }

    /// Counts each test, and says what is worth knowing of it.
    fn judge_all(
        &mut self,
        version: Version,
        suite: &Suite,
        endings: &BTreeMap<(Mode, String), Ended>,
    ) -> io::Result<()> {
        let mut tally: BTreeMap<&str, usize> = BTreeMap::new();
        // A control serves both modes.
        let mut controls: HashMap<&str, Ended> = HashMap::new();
        for ((mode, test), ended) in endings {
            let mut output = String::new();
            let verdict = difference::judge(
                *ended,
                difference::expected(test, *mode),
                &mut || {
                    let ran = suite.run(&Job::alone(*mode, test))?;
                    output = ran.output;
                    Ok(ran.endings[test])
                },
                &mut || {
                    if let Some(ended) = controls.get(test.as_str()) {
                        return Ok(*ended);
                    }
                    let control = Job::alone(Mode::Tokio, test);
                    let mut ended = suite.run(&control)?.endings[test];
                    if ended != Ended::Passed {
                        ended = suite.run(&control)?.endings[test];
                    }
                    controls.insert(test, ended);
                    Ok(ended)
                },
            )?;
            // After a signal to end, the last runs mean nothing.
            if interrupt::came() {
                self.outcome.interrupted = true;
                return Ok(());
            }
            let name = format!("{test} ({})", mode.name());
            match verdict {
                Verdict::Passed => self.outcome.counts += Counts::PASSED,
                Verdict::PassedAlone => {
                    self.outcome.counts += Counts::PASSED;
                    self.outcome
                        .say(&format!("{name}: passes when it runs alone"), self.on_line);
                    *tally.entry("passed when they ran alone").or_default() += 1;
                }
                Verdict::Differs(why) => {
                    self.outcome.counts += Counts::PASSED;
                    self.outcome
                        .say(&format!("{name}: differs: {why}"), self.on_line);
                    *tally.entry("differ as listed").or_default() += 1;
                }
                Verdict::Ignored => self.outcome.counts += Counts::SKIPPED,
                Verdict::FailsOnTokio => {
                    self.outcome.counts += Counts::SKIPPED;
                    self.outcome
                        .say(&format!("{name}: fails on tokio as well"), self.on_line);
                    *tally.entry("fail on tokio as well").or_default() += 1;
                }
                Verdict::Wrong(why) => {
                    self.outcome.output.push_str(&output);
                    self.outcome.fail(&format!("{name}: {why}"), self.on_line);
                }
            }
        }
        let tests = endings.len() / Mode::ON_MORPHEUS.len();
        let mut note = format!("tokio {version}: {tests} tests, twice");
        for (word, count) in tally {
            let _ = write!(note, ", {count} {word}");
        }
        if !self.outcome.note.is_empty() {
            self.outcome.note.push_str("; ");
        }
        self.outcome.note.push_str(&note);
        Ok(())
    }

    fn cargo(&self, directory: &Path) -> Command {
        let mut command = self.context.cargo();
        command.current_dir(directory);
        command
    }

    /// The standard output of a command; `None` and a failure in the outcome where it fails.
    fn output_of(&mut self, command: &mut Command) -> io::Result<Option<String>> {
        let (mut stdout, mut stderr) = (Vec::new(), Output::default());
        let (said, on_line) = (&mut self.outcome.output, &mut *self.on_line);
        let mut say = |line: &str| {
            on_line(line);
            said.push_str(line);
            said.push('\n');
        };
        let ending =
            process::stream(
                command,
                BUILD_LIMIT,
                &mut |_| {},
                &mut |stream, chunk| match stream {
                    Stream::Stdout => stdout.extend_from_slice(chunk),
                    Stream::Stderr => stderr.add(chunk, &mut say),
                },
            )?;
        stderr.end(&mut say);
        self.outcome.interrupted |= ending.interrupted;
        if ending.interrupted {
            return Ok(None);
        }
        if !ending.status.success() {
            let arguments: Vec<_> = command
                .get_args()
                .map(|arg| arg.to_string_lossy())
                .collect();
            let program = command.get_program().to_string_lossy().into_owned();
            let arguments = arguments.join(" ");
            self.outcome.fail(
                &format!("{program} {arguments}: {}", ending.status),
                self.on_line,
            );
            return Ok(None);
        }
        Ok(Some(String::from_utf8_lossy(&stdout).into_owned()))
    }
}

impl Suite {
    fn command(&self, mode: Mode) -> Command {
        let mut command = Command::new(&self.executable);
        command
            .current_dir(&self.directory)
            .env(MODE, mode.name())
            .env("RUST_BACKTRACE", "0");
        command
    }

    fn run(&self, job: &Job) -> io::Result<Ran> {
        let mut command = self.command(job.mode);
        command.arg("--exact").args(&job.tests);
        let (mut stdout, mut all) = (Vec::new(), Vec::new());
        let started = Instant::now();
        let ending = process::stream(
            &mut command,
            job.limit,
            &mut |_| {},
            &mut |stream, chunk| {
                all.extend_from_slice(chunk);
                if stream == Stream::Stdout {
                    stdout.extend_from_slice(chunk);
                }
            },
        )?;
        Ok(Ran {
            endings: libtest::endings(&String::from_utf8_lossy(&stdout), &job.tests),
            output: String::from_utf8_lossy(&all).into_owned(),
            took: started.elapsed(),
            timed_out: ending.timed_out,
            interrupted: ending.interrupted,
        })
    }
}

impl Job {
    fn alone(mode: Mode, test: &str) -> Job {
        let hangs =
            difference::expected(test, mode).is_some_and(|difference| difference.how == How::Hangs);
        Job {
            mode,
            name: test.to_string(),
            tests: vec![test.to_string()],
            limit: if hangs { HANG_LIMIT } else { TEST_LIMIT },
        }
    }

    /// The line that sums it up; a test that did not end is named.
    fn line(&self, ran: &Ran) -> String {
        let of = |ended| {
            ran.endings
                .values()
                .filter(|other| **other == ended)
                .count()
        };
        let mut line = format!(
            "{} ({}): {} passed",
            self.name,
            self.mode.name(),
            of(Ended::Passed)
        );
        for (ended, word) in [
            (Ended::Failed, "failed"),
            (Ended::Ignored, "ignored"),
            (Ended::Unfinished, "did not end"),
        ] {
            let names: Vec<&str> = self
                .tests
                .iter()
                .filter(|test| ran.endings[*test] == ended)
                .map(String::as_str)
                .collect();
            if !names.is_empty() {
                let _ = write!(line, ", {} {word} ({})", names.len(), names.join(", "));
            }
        }
        let limit = if ran.timed_out { ", the limit" } else { "" };
        let _ = write!(line, " in {:.1} s{limit}", ran.took.as_secs_f64());
        line
    }
}

/// A process for each file, in both modes; and one for each test that does not end.
fn jobs(modules: &BTreeMap<String, Vec<String>>) -> Vec<Job> {
    let mut jobs = Vec::new();
    for mode in Mode::ON_MORPHEUS {
        for (module, tests) in modules {
            let (alone, together): (Vec<&String>, Vec<&String>) = tests
                .iter()
                .partition(|test| Job::alone(mode, test).limit == HANG_LIMIT);
            jobs.extend(alone.into_iter().map(|test| Job::alone(mode, test)));
            if !together.is_empty() {
                jobs.push(Job {
                    mode,
                    name: module.clone(),
                    tests: together.into_iter().cloned().collect(),
                    limit: FILE_LIMIT,
                });
            }
        }
    }
    jobs
}

/// The tests in the table of differences that are none.
fn absent(modules: &BTreeMap<String, Vec<String>>) -> BTreeSet<&'static str> {
    let is_there = |name: &str| modules.values().flatten().any(|test| test == name);
    DIFFERENCES
        .iter()
        .map(|difference| difference.test)
        .filter(|test| !is_there(test))
        .collect()
}

/// The program, from cargo's messages.
fn executable(messages: &str) -> Option<PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["profile"]["test"] == true)
        .find_map(|message| Some(PathBuf::from(message["executable"].as_str()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modules() -> BTreeMap<String, Vec<String>> {
        libtest::modules(
            "rt_basic::one: test\nrt_basic::two: test\n\
             rt_blocking_thread_exhaust::spawn_blocking_with_only_scheduler_workers: test\n",
        )
    }

    #[test]
    fn each_file_has_a_process_and_so_has_a_test_that_hangs() {
        let jobs = jobs(&modules());
        let names: Vec<(Mode, &str, u64)> = jobs
            .iter()
            .map(|job| (job.mode, job.name.as_str(), job.limit.as_secs()))
            .collect();
        let hangs = "rt_blocking_thread_exhaust::spawn_blocking_with_only_scheduler_workers";
        assert_eq!(
            names,
            [
                (Mode::Unwatched, "rt_basic", 300),
                (Mode::Unwatched, hangs, 10),
                (Mode::Watched, "rt_basic", 300),
                (Mode::Watched, hangs, 10),
            ]
        );
        assert_eq!(jobs[0].tests, ["rt_basic::one", "rt_basic::two"]);
        // On tokio it ends.
        assert_eq!(Job::alone(Mode::Tokio, hangs).limit, TEST_LIMIT);
    }

    #[test]
    fn a_difference_needs_a_test() {
        let absent = absent(&modules());
        assert!(absent.contains("rt_metrics::num_workers"));
        assert!(
            !absent
                .contains("rt_blocking_thread_exhaust::spawn_blocking_with_only_scheduler_workers")
        );
    }

    #[test]
    fn the_program_is_what_cargo_built_as_a_test() {
        let messages = r#"{"reason":"compiler-artifact","profile":{"test":false},"executable":"/other"}
{"reason":"compiler-artifact","profile":{"test":true},"executable":null}
not JSON
{"reason":"compiler-artifact","profile":{"test":true},"executable":"/suite"}
{"reason":"build-finished","success":true}"#;
        assert_eq!(executable(messages), Some(PathBuf::from("/suite")));
        assert_eq!(executable("{}"), None);
    }

    #[test]
    fn what_did_not_end_is_named() {
        let job = &jobs(&modules())[0];
        let ran = |output: &str, timed_out| Ran {
            endings: libtest::endings(output, &job.tests),
            output: String::new(),
            took: Duration::from_millis(1540),
            timed_out,
            interrupted: false,
        };
        assert_eq!(
            job.line(&ran(
                "test rt_basic::one ... ok\ntest rt_basic::two ... ok",
                false
            )),
            "rt_basic (unwatched): 2 passed in 1.5 s"
        );
        assert_eq!(
            job.line(&ran("test rt_basic::one ... FAILED", true)),
            "rt_basic (unwatched): 0 passed, 1 failed (rt_basic::one), 1 did not end (rt_basic::two) in 1.5 s, the limit"
        );
    }
}
