//! Walks through the table of steps, shows how each goes, and ends with the sum.

use std::io;
use std::mem::discriminant;
use std::process::{Command, ExitCode};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use crate::TestArgs;
use crate::aarch64;
use crate::context::{Context, with_flags};
use crate::counts::Counts;
use crate::guests::{self, Guest, Programs};
use crate::install;
use crate::interrupt;
use crate::process;
use crate::progress::{Live, Progress, Sink};
use crate::rights;
use crate::steps::{self, ASSUMPTIONS, Cargo, CountAs, Lane, Part, Step, TEST_BUILD, Work};
use crate::tokio_range;
use crate::tokio_suite;
use crate::tools::Tool;

/// Set where BPF programs can be loaded: a test that would skip itself without them must fail instead.
const REQUIRE_BPF: (&str, &str) = ("MORPHEUS_REQUIRE_BPF", "1");

/// How a step went.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) counts: Counts,
    /// A few words behind the result.
    pub(crate) note: String,
    pub(crate) output: String,
    pub(crate) interrupted: bool,
}

impl Outcome {
    fn failed(note: String) -> Outcome {
        Outcome {
            counts: Counts::FAILED,
            note,
            ..Outcome::default()
        }
    }

    /// Adds a line to the output, and shows it.
    pub(crate) fn say(&mut self, line: &str, on_line: &mut dyn FnMut(&str)) {
        on_line(line);
        self.output.push_str(line);
        self.output.push('\n');
    }

    /// The same for a failure, which counts as one.
    pub(crate) fn fail(&mut self, why: &str, on_line: &mut dyn FnMut(&str)) {
        self.say(why, on_line);
        self.counts += Counts::FAILED;
    }
}

/// Prints the steps and their commands.
pub(crate) fn list(context: &Context, args: &TestArgs) {
    let host = host(context).unwrap_or_else(|_| "{host}".to_string());
    for step in chosen(args) {
        println!("{}", step.name);
        println!("    {}", shell_line(&step, &host));
        if !step.needs.is_empty() {
            let needs: Vec<&str> = step.needs.iter().map(|tool| tool.name()).collect();
            println!("    needs {}", needs.join(", "));
        }
    }
}

/// Runs the steps; the last line it prints is the sum.
pub(crate) fn test(context: &Context, args: &TestArgs) -> ExitCode {
    interrupt::listen();
    let mut steps = chosen(args);
    if steps.is_empty() {
        eprintln!("no step has this name; `cargo xtask test --all --list` shows them");
        return ExitCode::from(2);
    }
    leave_out_what_is_not_offered(context, &mut steps);
    let started = Instant::now();
    let needs: Vec<Tool> = steps.iter().flat_map(|step| &step.needs).copied().collect();
    let missing = install::provide(
        context,
        &needs,
        !args.no_install,
        Sink::Stdout,
        args.verbose,
    );
    let machine = Machine {
        context,
        missing: &missing,
        install: !args.no_install,
        all: args.all,
        steps: &steps,
        tests: OnceLock::new(),
        optimized: OnceLock::new(),
    };
    let mut report = Report {
        steps: &steps,
        verbose: args.verbose,
        started,
        sum: Counts::default(),
        failed: Vec::new(),
        interrupted: false,
    };
    // A signal that came while something was installed.
    report.interrupted = interrupt::take();
    if !report.interrupted {
        if args.verbose {
            one_by_one(&machine, &mut report);
        } else {
            in_lanes(&machine, &mut report);
        }
    }
    report.end()
}

/// The steps that have ended so far, summed up.
struct Report<'a> {
    steps: &'a [Step],
    verbose: bool,
    started: Instant,
    sum: Counts,
    failed: Vec<&'a str>,
    interrupted: bool,
}

impl<'a> Report<'a> {
    fn title(&self, index: usize) -> String {
        let (number, of) = (index + 1, self.steps.len());
        format!("[{number:2}/{of}] {}", self.steps[index].name)
    }

    fn add(&mut self, index: usize, outcome: Outcome) {
        if outcome.counts.failed > 0 {
            self.failed.push(&self.steps[index].name);
            if !(self.verbose || outcome.interrupted || outcome.output.is_empty()) {
                println!("{}", outcome.output.trim_end());
            }
        }
        self.sum += outcome.counts;
        self.interrupted |= outcome.interrupted;
    }

    fn end(self) -> ExitCode {
        if self.interrupted {
            println!("interrupted: the other steps did not run");
        }
        if !self.failed.is_empty() {
            println!("failed: {}", self.failed.join("; "));
        }
        println!("took {} s", self.started.elapsed().as_secs());
        println!("{}", self.sum);
        match (self.interrupted, self.sum.failed) {
            (true, _) => ExitCode::from(interrupt::EXIT_CODE),
            (false, 0) => ExitCode::SUCCESS,
            (false, _) => ExitCode::FAILURE,
        }
    }
}

/// Runs all steps in order, and shows what each prints.
fn one_by_one(machine: &Machine<'_>, report: &mut Report<'_>) {
    for index in 0..report.steps.len() {
        if interrupt::take() {
            report.interrupted = true;
        }
        if report.interrupted {
            break;
        }
        let mut progress = Progress::start(report.title(index), Sink::Stdout, true);
        let outcome = run(machine, &report.steps[index], &mut |line| {
            progress.line(line);
        });
        progress.end(&result(&report.steps[index], &outcome));
        report.add(index, outcome);
    }
}

/// A message of a lane.
enum News {
    Begun(usize),
    Ended(usize, Duration, Outcome),
}

/// Runs the steps of both lanes at the same time; once the front lane has ended, its thread takes steps of the back lane.
fn in_lanes(machine: &Machine<'_>, report: &mut Report<'_>) {
    let steps = report.steps;
    let (front, back) = (Queue::of(steps, Lane::Front), Queue::of(steps, Lane::Back));
    let has_two_cpus = thread::available_parallelism().is_ok_and(|cpus| cpus.get() > 1);
    let (sender, news) = mpsc::channel();
    thread::scope(|scope| {
        let others = sender.clone();
        let (front, back) = (&front, &back);
        scope.spawn(move || {
            work(machine, steps, front, &sender);
            work(machine, steps, back, &sender);
        });
        if has_two_cpus {
            scope.spawn(move || {
                take_lowest_priority();
                work(machine, steps, back, &others);
            });
        } else {
            drop(others);
        }
        show(report, &news);
    });
    // A thread has seen the signal and ended its child.
    report.interrupted |= interrupt::take();
}

/// The steps of a lane that are still to begin.
struct Queue {
    steps: Vec<usize>,
    next: AtomicUsize,
}

impl Queue {
    fn of(steps: &[Step], lane: Lane) -> Queue {
        let numbers = 0..steps.len();
        Queue {
            steps: numbers.filter(|&at| steps[at].lane == lane).collect(),
            next: AtomicUsize::new(0),
        }
    }

    fn take(&self) -> Option<usize> {
        // Relaxed: the number is all that is shared.
        let at = self.next.fetch_add(1, Ordering::Relaxed);
        self.steps.get(at).copied()
    }
}

/// Applies to the calling thread, and to what it starts.
fn take_lowest_priority() {
    const LOWEST: libc::c_int = 19;
    // SAFETY: takes numbers alone; 0 is the calling thread.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, LOWEST) };
}

/// Runs what is in the queue until it is empty or a signal asks to end.
fn work(machine: &Machine<'_>, steps: &[Step], queue: &Queue, news: &Sender<News>) {
    while !interrupt::came()
        && let Some(index) = queue.take()
    {
        // The receiver stays until all have ended.
        let _ = news.send(News::Begun(index));
        let started = Instant::now();
        let outcome = run(machine, &steps[index], &mut |_| {});
        if outcome.interrupted {
            // The other lane has not seen it.
            interrupt::put_back();
        }
        let _ = news.send(News::Ended(index, started.elapsed(), outcome));
    }
}

/// Prints a line for each step that has ended, and on a terminal one with those that run.
fn show(report: &mut Report<'_>, news: &Receiver<News>) {
    let mut running: Vec<usize> = Vec::new();
    let live = Live::start(Sink::Stdout);
    loop {
        match news.recv_timeout(Duration::from_secs(1)) {
            Ok(News::Begun(index)) => running.push(index),
            Ok(News::Ended(index, took, outcome)) => {
                running.retain(|&other| other != index);
                live.clear();
                let result = result(&report.steps[index], &outcome);
                println!(
                    "{} ... {result} ({:.1} s)",
                    report.title(index),
                    took.as_secs_f64()
                );
                report.add(index, outcome);
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        let names: Vec<&str> = running
            .iter()
            .map(|&index| report.steps[index].name.as_str())
            .collect();
        live.show(report.started.elapsed(), &names.join(", "));
    }
    live.clear();
}

fn chosen(args: &TestArgs) -> Vec<Step> {
    let parts: &[Part] = match (args.quick, args.all) {
        (true, _) => &[Part::Quick, Part::Always],
        (false, true) => &[Part::Always, Part::Default, Part::All],
        // A name finds a step whichever run it is part of.
        (false, false) if args.only.is_some() => &[Part::Always, Part::Default, Part::All],
        (false, false) => &[Part::Always, Part::Default],
    };
    let named = |step: &Step| {
        args.only
            .as_ref()
            .is_none_or(|text| step.name.contains(text))
    };
    let mut steps = steps::all();
    steps.retain(|step| parts.contains(&step.part) && named(step));
    steps
}

/// Takes tools out of what the steps need that are not there, and of which the system has no package: tests that need them are skipped.
fn leave_out_what_is_not_offered(context: &Context, steps: &mut [Step]) {
    let mut lacks = Vec::new();
    for step in steps {
        step.needs.retain(|&tool| {
            let stays = install::is_offered(tool) || tool.present(context);
            if !stays && !lacks.contains(&tool) {
                lacks.push(tool);
            }
            stays
        });
    }
    for tool in lacks {
        println!(
            "no {}, and this system has no package of it: tests that need it are skipped",
            tool.name()
        );
    }
}

/// The words behind a step's name.
fn result(step: &Step, outcome: &Outcome) -> String {
    let counts = outcome.counts;
    let word = if outcome.interrupted {
        "interrupted"
    } else if counts.failed > 0 {
        "FAILED"
    } else if counts == Counts::SKIPPED {
        "skipped"
    } else {
        "ok"
    };
    let counts_tests = match &step.work {
        Work::Cargo(call) => call.counts == CountAs::Tests,
        Work::TokioRange
        | Work::TokioSuite
        | Work::ReleaseTests(_)
        | Work::Aarch64
        | Work::Aarch64Code => true,
        Work::Guest(guest) => guest.counts_tests(),
        Work::Tests | Work::Release | Work::Program(_) => false,
    };
    let mut words = word.to_string();
    if counts_tests && counts != Counts::SKIPPED {
        words = format!("{words}, {counts}");
    }
    if !outcome.note.is_empty() {
        words = format!("{words}: {}", outcome.note);
    }
    words
}

/// The machine and the run that a step belongs to.
struct Machine<'a> {
    context: &'a Context,
    /// Tools that are not there.
    missing: &'a [Tool],
    /// Whether a step may put something on it.
    install: bool,
    /// Whether this is the run that leaves nothing out.
    all: bool,
    /// The steps of this run.
    steps: &'a [Step],
    /// The programs of the tests' build that guests run, once it is there; or why it is not.
    tests: OnceLock<Result<Programs, String>>,
    /// The same of the release build.
    optimized: OnceLock<Result<Programs, String>>,
}

impl Machine<'_> {
    /// Whether a step of this run does this.
    fn builds(&self, work: &Work) -> bool {
        let mut steps = self.steps.iter();
        steps.any(|step| discriminant(&step.work) == discriminant(work))
    }
}

/// Runs one step. A missing tool makes it fail, though it still runs: the result of the part that does not depend on the tool is worth
/// knowing. A guest has nothing of that kind.
fn run(machine: &Machine<'_>, step: &Step, on_line: &mut dyn FnMut(&str)) -> Outcome {
    let absent: Vec<&str> = step
        .needs
        .iter()
        .filter(|tool| machine.missing.contains(tool))
        .map(|tool| tool.name())
        .collect();
    if matches!(step.work, Work::Guest(_) | Work::Aarch64) && !absent.is_empty() {
        return Outcome::failed(format!("needs {}", absent.join(", ")));
    }
    let ran = match &step.work {
        Work::Cargo(call) => cargo(machine, step, call, on_line),
        Work::TokioRange => tokio_range::run(machine.context, on_line),
        Work::TokioSuite => tokio_suite::run(machine.context, machine.all, on_line),
        Work::Tests => build_tests(machine, on_line),
        Work::Release => build_release(machine, on_line),
        Work::Program(name) => program(machine, name, on_line),
        Work::ReleaseTests(names) => release_tests(machine, names, on_line),
        Work::Guest(guest) => in_guest(machine, guest, on_line),
        Work::Aarch64 => aarch64::run(machine.context, machine.install, on_line),
        Work::Aarch64Code => match optimized(machine, on_line) {
            Ok(Ok(programs)) => {
                aarch64::read_code(machine.context, programs.of(aarch64::CODE), on_line)
            }
            Ok(Err(outcome)) => Ok(outcome),
            Err(error) => Err(error),
        },
    };
    let mut outcome = ran.unwrap_or_else(|error| Outcome {
        output: error.to_string(),
        ..Outcome::failed(String::new())
    });
    if !absent.is_empty() {
        outcome.note = format!("needs {}", absent.join(", "));
        // Where nothing else is wrong, the note says it all.
        if outcome.counts.failed == 0 {
            outcome.counts += Counts::FAILED;
            outcome.output.clear();
        }
    }
    outcome
}

fn cargo(
    machine: &Machine<'_>,
    step: &Step,
    call: &Cargo,
    on_line: &mut dyn FnMut(&str),
) -> io::Result<Outcome> {
    let context = machine.context;
    let mut command = match call.toolchain {
        Some(toolchain) => context.cargo_of(toolchain),
        None => context.cargo(),
    };
    let host = host(context)?;
    if rights::bpf_lacks().is_none() {
        command.env(REQUIRE_BPF.0, REQUIRE_BPF.1);
    }
    command.args(call.args.split(' ').map(|arg| arg.replace("{host}", &host)));
    if let Some(directory) = call.target {
        command.env("CARGO_TARGET_DIR", context.target.join(directory));
    }
    for (variable, flags) in call.flags {
        command.env(variable, with_flags(variable, flags));
    }
    for tool in step
        .needs
        .iter()
        .filter(|tool| !machine.missing.contains(tool))
    {
        if let Some((variable, value)) = tool.required() {
            command.env(variable, value);
        }
    }
    let finished = process::run(&mut command, on_line)?;
    let counts = match call.counts {
        CountAs::One => Counts::of_command(finished.success),
        CountAs::Tests => Counts::of_tests(finished.success, &finished.output),
    };
    Ok(Outcome {
        counts,
        output: finished.output,
        interrupted: finished.interrupted,
        ..Outcome::default()
    })
}

/// Calls cargo so that it names what it builds, and finds programs in what it says.
fn build(
    machine: &Machine<'_>,
    arguments: &[&str],
    built: &OnceLock<Result<Programs, String>>,
    find: impl FnOnce(&str) -> io::Result<Programs>,
    on_line: &mut dyn FnMut(&str),
) -> io::Result<Outcome> {
    let mut command = machine.context.cargo();
    command.args(arguments);
    let ran = process::run(&mut command, &mut |line| {
        if !line.starts_with('{') {
            on_line(line);
        }
    });
    // A step of the other lane may wait for them.
    let finished = ran.inspect_err(|error| {
        let _ = built.set(Err(error.to_string()));
    })?;
    let programs = match finished.success {
        true => find(&finished.output).map_err(|error| error.to_string()),
        false => Err("the build fails".to_string()),
    };
    let note = match &programs {
        Err(error) if finished.success => error.clone(),
        _ => String::new(),
    };
    let counts = Counts::of_command(programs.is_ok());
    // Only one step builds; were there two, both would find the same.
    let _ = built.set(programs);
    Ok(Outcome {
        counts,
        note,
        output: guests::without_json(&finished.output),
        interrupted: finished.interrupted,
    })
}

/// Builds all tests, and notes which programs are for guests.
fn build_tests(machine: &Machine<'_>, on_line: &mut dyn FnMut(&str)) -> io::Result<Outcome> {
    let arguments: Vec<&str> = TEST_BUILD.split(' ').chain(guests::MESSAGES).collect();
    let find = |messages: &str| Programs::of_tests(machine.context, messages);
    build(machine, &arguments, &machine.tests, find, on_line)
}

/// Builds what has to be optimized.
fn build_release(machine: &Machine<'_>, on_line: &mut dyn FnMut(&str)) -> io::Result<Outcome> {
    let arguments = guests::release_build();
    let find = |messages: &str| Programs::of_release(machine.context, messages);
    build(machine, &arguments, &machine.optimized, find, on_line)
}

/// The programs, once they are built. `build` builds them here, where no step of this run does, as with `--only`; else this
/// waits for that step, which may be in the other lane. The outcome is that of a step that cannot go on.
fn wait_for(
    built: &OnceLock<Result<Programs, String>>,
    build: Option<impl FnOnce() -> io::Result<Outcome>>,
) -> io::Result<Result<&Programs, Outcome>> {
    const LOOK: Duration = Duration::from_millis(100);
    if built.get().is_none()
        && let Some(build) = build
    {
        let outcome = build()?;
        if outcome.counts.failed > 0 {
            return Ok(Err(Outcome {
                note: "the build fails".to_string(),
                ..outcome
            }));
        }
    }
    loop {
        match built.get() {
            Some(Ok(programs)) => return Ok(Ok(programs)),
            Some(Err(error)) => return Ok(Err(Outcome::failed(error.clone()))),
            // The other lane takes no further step.
            None if interrupt::came() => {
                return Ok(Err(Outcome {
                    interrupted: true,
                    ..Outcome::default()
                }));
            }
            None => thread::sleep(LOOK),
        }
    }
}

/// The optimized test programs. Builds them where no step does.
fn optimized<'a>(
    machine: &'a Machine<'_>,
    on_line: &mut dyn FnMut(&str),
) -> io::Result<Result<&'a Programs, Outcome>> {
    let build = (!machine.builds(&Work::Release)).then_some(|| build_release(machine, on_line));
    wait_for(&machine.optimized, build)
}

fn program(
    machine: &Machine<'_>,
    name: &str,
    on_line: &mut dyn FnMut(&str),
) -> io::Result<Outcome> {
    if let Err(outcome) = optimized(machine, on_line)? {
        return Ok(outcome);
    }
    let mut command = Command::new(machine.context.target.join("release").join(name));
    command.current_dir(&machine.context.root);
    let finished = process::run(&mut command, on_line)?;
    Ok(Outcome {
        counts: Counts::of_command(finished.success),
        output: finished.output,
        interrupted: finished.interrupted,
        ..Outcome::default()
    })
}

/// One after the other, also after one has failed.
fn release_tests(
    machine: &Machine<'_>,
    names: &[&str],
    on_line: &mut dyn FnMut(&str),
) -> io::Result<Outcome> {
    let programs = match optimized(machine, on_line)? {
        Ok(programs) => programs,
        Err(outcome) => return Ok(outcome),
    };
    let mut sum = Outcome::default();
    for name in names {
        let mut command = Command::new(programs.of(name));
        command.current_dir(&machine.context.root);
        let finished = process::run(&mut command, on_line)?;
        sum.counts += Counts::of_tests(finished.success, &finished.output);
        sum.output.push_str(&finished.output);
        sum.interrupted |= finished.interrupted;
        if sum.interrupted {
            break;
        }
    }
    Ok(sum)
}

fn in_guest(
    machine: &Machine<'_>,
    guest: &Guest,
    on_line: &mut dyn FnMut(&str),
) -> io::Result<Outcome> {
    let programs = if guest.is_optimized() {
        optimized(machine, on_line)?
    } else {
        let build = (!machine.builds(&Work::Tests)).then_some(|| build_tests(machine, on_line));
        wait_for(&machine.tests, build)?
    };
    match programs {
        Ok(programs) => guest.run(machine.context, programs, machine.install, on_line),
        Err(outcome) => Ok(outcome),
    }
}

/// The target triple of this machine, from `cargo -vV`.
pub(crate) fn host(context: &Context) -> io::Result<String> {
    let answer = context.cargo().arg("-vV").output()?;
    String::from_utf8_lossy(&answer.stdout)
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .map(str::to_string)
        .ok_or_else(|| io::Error::other("cargo -vV names no host"))
}

/// The command line that does the same by hand.
fn shell_line(step: &Step, host: &str) -> String {
    let call = match &step.work {
        Work::Cargo(call) => call,
        Work::TokioRange => {
            return format!(
                "cargo update --package tokio --precise <oldest, newest>; cargo {ASSUMPTIONS}"
            );
        }
        Work::Release => {
            let quiet = |arg: &&str| !arg.contains("json") && *arg != "--message-format";
            let words: Vec<&str> = guests::release_build().into_iter().filter(quiet).collect();
            return format!("cargo {}", words.join(" "));
        }
        Work::Tests => return format!("cargo {TEST_BUILD}"),
        Work::TokioSuite => return tokio_suite::shell_line(),
        Work::Program(name) => return format!("target/release/{name}"),
        Work::ReleaseTests(names) => {
            let programs: Vec<String> = names
                .iter()
                .map(|name| format!("target/release/deps/{name}-*"))
                .collect();
            return programs.join("; ");
        }
        Work::Guest(guest) => return guest.shell_line(),
        Work::Aarch64 => return aarch64::shell_line(),
        Work::Aarch64Code => return aarch64::code_shell_line(),
    };
    let mut words: Vec<String> = call
        .flags
        .iter()
        .map(|(variable, flags)| format!("{variable}=\"{flags}\""))
        .collect();
    if let Some(directory) = call.target {
        words.push(format!("CARGO_TARGET_DIR=target/{directory}"));
    }
    words.push("cargo".to_string());
    if let Some(toolchain) = call.toolchain {
        words.push(format!("+{toolchain}"));
    }
    words.push(call.args.replace("{host}", host));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_shown_kept_and_counted() {
        let mut shown = Vec::new();
        let mut outcome = Outcome::default();
        outcome.say("begun", &mut |line| shown.push(line.to_string()));
        outcome.fail("no tokio", &mut |line| shown.push(line.to_string()));
        assert_eq!(shown, ["begun", "no tokio"]);
        assert_eq!(outcome.output, "begun\nno tokio\n");
        assert_eq!(outcome.counts, Counts::FAILED);
    }

    fn args(quick: bool, all: bool, only: Option<&str>) -> TestArgs {
        TestArgs {
            quick,
            all,
            only: only.map(str::to_string),
            no_install: false,
            list: false,
            verbose: false,
        }
    }

    fn names(args: &TestArgs) -> Vec<String> {
        chosen(args).into_iter().map(|step| step.name).collect()
    }

    #[test]
    fn each_run_has_more_than_the_one_before() {
        let quick = names(&args(true, false, None));
        let usual = names(&args(false, false, None));
        let all = names(&args(false, true, None));
        assert!(quick.len() < usual.len() && usual.len() < all.len());
        assert!(usual.iter().all(|name| all.contains(name)));
        assert!(quick.contains(&"format".to_string()) && usual.contains(&"format".to_string()));
        assert!(
            !all.iter()
                .any(|name| name == "tests of what applications link")
        );
    }

    #[test]
    fn a_name_finds_a_step_of_any_run() {
        assert_eq!(names(&args(false, false, Some("format"))), ["format"]);
        assert_eq!(names(&args(false, false, Some("miri"))), ["miri"]);
        assert!(names(&args(false, false, Some("no such step"))).is_empty());
        assert!(names(&args(true, false, Some("miri"))).is_empty());
    }

    #[test]
    fn every_step_can_be_typed() {
        let lines: Vec<String> = chosen(&args(false, true, None))
            .iter()
            .map(|step| shell_line(step, "a-b-c"))
            .collect();
        assert!(lines.contains(&"cargo fmt --all --check -- --color never".to_string()));
        assert!(lines.iter().any(|line| line.starts_with(
            "RUSTFLAGS=\"-Zsanitizer=thread\" CARGO_TARGET_DIR=target/thread-sanitizer cargo +nightly test -Zbuild-std --target a-b-c"
        )));
        assert!(lines.iter().any(|line| {
            line.starts_with("cargo build --release --bins --package morpheus-bpf")
                && !line.contains("json")
        }));
    }

    #[test]
    fn a_queue_gives_each_step_of_its_lane_once() {
        let steps = chosen(&args(false, true, None));
        for lane in [Lane::Front, Lane::Back] {
            let queue = Queue::of(&steps, lane);
            let mut taken = 0;
            while let Some(index) = queue.take() {
                assert_eq!(steps[index].lane, lane);
                taken += 1;
            }
            assert!(taken > 3 && queue.take().is_none());
        }
    }

    #[test]
    fn the_words_behind_a_step() {
        let steps = chosen(&args(false, true, None));
        let find = |name: &str| steps.iter().find(|step| step.name == name).unwrap();
        let outcome = |counts, note: &str| Outcome {
            counts,
            note: note.to_string(),
            ..Outcome::default()
        };
        assert_eq!(result(find("format"), &outcome(Counts::PASSED, "")), "ok");
        assert_eq!(
            result(find("miri"), &outcome(Counts::FAILED, "needs miri")),
            "FAILED, 0 passed, 1 failed: needs miri"
        );
        let mut counts = Counts::SKIPPED;
        counts += Counts::PASSED;
        assert_eq!(
            result(find("tests"), &outcome(counts, "")),
            "ok, 1 passed, 0 failed, 1 skipped"
        );
    }
}
