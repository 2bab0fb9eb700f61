//! Walks through the table of steps, shows how each goes, and ends with the sum.

use std::io;
use std::ops::Range;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Instant;

use crate::TestArgs;
use crate::context::{Context, with_flags};
use crate::counts::Counts;
use crate::install;
use crate::interrupt;
use crate::process;
use crate::progress::{Progress, Sink};
use crate::rights;
use crate::steps::{self, ASSUMPTIONS, Cargo, CountAs, Step, Work};
use crate::tokio_range;
use crate::tools::Tool;

/// Set where BPF programs can be loaded: a test that would skip itself without them must fail instead.
const REQUIRE_BPF: (&str, &str) = ("MORPHEUS_REQUIRE_BPF", "1");

/// So many guests run at once.
const MOST_GUESTS: usize = 2;

/// How a step went.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) counts: Counts,
    /// A few words behind the result.
    pub(crate) note: String,
    pub(crate) output: String,
    pub(crate) interrupted: bool,
}

/// Prints the steps and their commands.
pub(crate) fn list(context: &Context, args: &TestArgs) {
    let host = host(context).unwrap_or_else(|_| "{host}".to_string());
    for step in chosen(args) {
        let quick = if step.quick { "  (quick)" } else { "" };
        println!("{}{quick}", step.name);
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
    let steps = chosen(args);
    if steps.is_empty() {
        eprintln!("no step has this name; `cargo xtask test --list` shows them");
        return ExitCode::from(2);
    }
    let needs: Vec<Tool> = steps.iter().flat_map(|step| step.needs).copied().collect();
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
    };
    let mut sum = Counts::default();
    let mut failed: Vec<&str> = Vec::new();
    let mut interrupted = false;
    let title = |index: usize| format!("[{:2}/{}] {}", index + 1, steps.len(), steps[index].name);
    let mut note = |index: usize, outcome: Outcome| {
        if outcome.counts.failed > 0 {
            failed.push(&steps[index].name);
            let hide = args.verbose || outcome.interrupted || outcome.output.is_empty();
            if !hide {
                println!("{}", outcome.output.trim_end());
            }
        }
        sum += outcome.counts;
        !outcome.interrupted
    };
    let mut next = 0;
    while next < steps.len() {
        // A signal that came between two steps, or while something was installed.
        if interrupt::take() {
            interrupted = true;
            break;
        }
        let guests = guests_from(&steps, next);
        let go_on = if guests > 1 && !args.verbose {
            let all = next..next + guests;
            next = all.end;
            side_by_side(&machine, &steps, all, &title, &mut note)
        } else {
            let mut progress = Progress::start(title(next), Sink::Stdout, args.verbose);
            let outcome = run(&machine, &steps[next], &mut |line| progress.line(line));
            progress.end(&result(&steps[next], &outcome));
            next += 1;
            note(next - 1, outcome)
        };
        if !go_on {
            interrupted = true;
            break;
        }
    }
    if interrupted {
        println!("interrupted: the other steps did not run");
    }
    if !failed.is_empty() {
        println!("failed: {}", failed.join("; "));
    }
    println!("{sum}");
    match (interrupted, sum.failed) {
        (true, _) => ExitCode::from(interrupt::EXIT_CODE),
        (false, 0) => ExitCode::SUCCESS,
        (false, _) => ExitCode::FAILURE,
    }
}

/// How many steps from this one on are guests, which may run beside each other.
fn guests_from(steps: &[Step], first: usize) -> usize {
    let guests = steps[first..].iter();
    guests
        .take_while(|step| matches!(step.work, Work::Guest(_)))
        .count()
}

/// Runs guests, as many at once as the machine has CPUs, two at most: an emulator of one thread leaves all others idle, and
/// more of them would need more memory than many a machine has. Each is shown when it has ended. Returns whether nobody asked
/// to end.
fn side_by_side(
    machine: &Machine<'_>,
    steps: &[Step],
    all: Range<usize>,
    title: &dyn Fn(usize) -> String,
    note: &mut dyn FnMut(usize, Outcome) -> bool,
) -> bool {
    let at_once = thread::available_parallelism().map_or(1, |cpus| cpus.get().min(MOST_GUESTS));
    let next = AtomicUsize::new(all.start);
    let (sender, ended) = mpsc::channel();
    let mut go_on = true;
    thread::scope(|scope| {
        for _ in 0..at_once {
            let (sender, next, end) = (sender.clone(), &next, all.end);
            scope.spawn(move || {
                loop {
                    // Relaxed: the number is all that is shared.
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= end || interrupt::came() {
                        break;
                    }
                    let started = Instant::now();
                    let outcome = run(machine, &steps[index], &mut |_| {});
                    if outcome.interrupted {
                        // The one beside this has not seen it.
                        interrupt::put_back();
                    }
                    // Whoever listens is there until all have ended.
                    let _ = sender.send((index, started, outcome));
                }
            });
        }
        drop(sender);
        for (index, started, outcome) in ended {
            Progress::since(started, title(index)).end(&result(&steps[index], &outcome));
            go_on &= note(index, outcome);
        }
    });
    go_on && !interrupt::take()
}

fn chosen(args: &TestArgs) -> Vec<Step> {
    let named = |step: &Step| {
        args.only
            .as_ref()
            .is_none_or(|text| step.name.contains(text))
    };
    let mut steps = steps::all();
    steps.retain(|step| (step.quick || !args.quick) && named(step));
    steps
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
        Work::TokioRange => true,
        Work::Guest(guest) => guest.counts_tests(),
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

/// What a step runs on.
struct Machine<'a> {
    context: &'a Context,
    /// Tools that are not there.
    missing: &'a [Tool],
    /// Whether a step may put something on it.
    install: bool,
}

/// Runs one step. What it needs and is missing makes it fail, though it still runs: what does not depend on the missing
/// tool is worth knowing. A guest has nothing of that kind; one that is not mandatory is skipped.
fn run(machine: &Machine<'_>, step: &Step, on_line: &mut dyn FnMut(&str)) -> Outcome {
    let absent: Vec<&str> = step
        .needs
        .iter()
        .filter(|tool| machine.missing.contains(tool))
        .map(|tool| tool.name())
        .collect();
    if let Work::Guest(guest) = &step.work
        && !absent.is_empty()
    {
        return Outcome {
            counts: if guest.is_mandatory() {
                Counts::FAILED
            } else {
                Counts::SKIPPED
            },
            note: format!("needs {}", absent.join(", ")),
            ..Outcome::default()
        };
    }
    let ran = match &step.work {
        Work::Cargo(call) => cargo(machine, step, call, on_line),
        Work::TokioRange => tokio_range::run(machine.context, on_line),
        Work::Guest(guest) => guest.run(machine.context, machine.install, on_line),
    };
    let mut outcome = ran.unwrap_or_else(|error| Outcome {
        counts: Counts::FAILED,
        output: error.to_string(),
        ..Outcome::default()
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
    if let Some(why) = nightly_lacks(call.nightly) {
        return Ok(Outcome {
            counts: Counts::SKIPPED,
            note: why,
            ..Outcome::default()
        });
    }
    let context = machine.context;
    let mut command = if call.nightly.is_empty() {
        context.cargo()
    } else {
        context.nightly_cargo()
    };
    let host = host(context)?;
    let lacks = call.without_bpf.and_then(|_| rights::bpf_lacks());
    let args = match (call.without_bpf, &lacks) {
        (Some(less), Some(_)) => less,
        _ => &call.args,
    };
    if call.without_bpf.is_some() && lacks.is_none() {
        command.env(REQUIRE_BPF.0, REQUIRE_BPF.1);
    }
    command.args(args.split(' ').map(|arg| arg.replace("{host}", &host)));
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
    let mut counts = match call.counts {
        CountAs::One => Counts::of_command(finished.success),
        CountAs::Tests => Counts::of_tests(finished.success, &finished.output),
    };
    if lacks.is_some() {
        counts += Counts::SKIPPED;
    }
    Ok(Outcome {
        counts,
        note: lacks.map_or_else(String::new, |why| {
            format!("what needs the kernel is skipped: {why}")
        }),
        output: finished.output,
        interrupted: finished.interrupted,
    })
}

/// Why a step that needs these components of a nightly toolchain cannot run; `None` when it can.
fn nightly_lacks(components: &[&str]) -> Option<String> {
    if components.is_empty() {
        return None;
    }
    let answer = Command::new("rustup")
        .args(["component", "list", "--toolchain", "nightly", "--installed"])
        // Asking must not install one.
        .env("RUSTUP_AUTO_INSTALL", "0")
        .output();
    match answer {
        Ok(answer) if answer.status.success() => {
            let installed = String::from_utf8_lossy(&answer.stdout).into_owned();
            lacking(&installed, components)
        }
        _ => Some("no nightly toolchain".to_string()),
    }
}

/// The same, from rustup's list, in which most components have a target triple behind their name.
fn lacking(installed: &str, components: &[&str]) -> Option<String> {
    let has = |component: &str| {
        installed.lines().any(|line| {
            line.trim()
                .strip_prefix(component)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
        })
    };
    let absent: Vec<&str> = components
        .iter()
        .copied()
        .filter(|component| !has(component))
        .collect();
    (!absent.is_empty()).then(|| format!("the nightly toolchain lacks {}", absent.join(", ")))
}

/// The target triple of this machine, from `cargo -vV`.
fn host(context: &Context) -> io::Result<String> {
    let answer = context.cargo().arg("-vV").output()?;
    String::from_utf8_lossy(&answer.stdout)
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .map(str::to_string)
        .ok_or_else(|| io::Error::other("cargo -vV names no host"))
}

/// What a person would type.
fn shell_line(step: &Step, host: &str) -> String {
    let call = match &step.work {
        Work::Cargo(call) => call,
        Work::TokioRange => {
            return format!(
                "cargo update --package tokio --precise <oldest, newest>; cargo {ASSUMPTIONS}"
            );
        }
        Work::Guest(guest) => return guest.shell_line(),
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
    if !call.nightly.is_empty() {
        words.push("+nightly".to_string());
    }
    words.push(call.args.replace("{host}", host));
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(quick: bool, only: Option<&str>) -> TestArgs {
        TestArgs {
            quick,
            only: only.map(str::to_string),
            no_install: false,
            list: false,
            verbose: false,
        }
    }

    #[test]
    fn components_of_nightly() {
        let installed = "cargo-x86_64-unknown-linux-gnu\nmiri-x86_64-unknown-linux-gnu\nrust-src\n";
        assert_eq!(lacking(installed, &["miri", "rust-src"]), None);
        assert_eq!(
            lacking(installed, &["rust-src", "clippy"]),
            Some("the nightly toolchain lacks clippy".to_string())
        );
        assert_eq!(
            lacking("", &["miri"]),
            Some("the nightly toolchain lacks miri".to_string())
        );
    }

    #[test]
    fn quick_is_a_part_of_all() {
        let (all, quick) = (chosen(&args(false, None)), chosen(&args(true, None)));
        assert!(!quick.is_empty() && quick.len() < all.len());
        let format = chosen(&args(false, Some("format")));
        assert_eq!(format.len(), 1);
        assert!(chosen(&args(false, Some("no such step"))).is_empty());
    }

    #[test]
    fn guests_run_side_by_side_and_all_else_by_itself() {
        let steps = chosen(&args(false, None));
        let guests = |name: &str| {
            let first = steps.iter().position(|step| step.name == name).unwrap();
            guests_from(&steps, first)
        };
        assert_eq!(guests("format"), 0);
        assert_eq!(guests("kernel side: tests"), 0);
        assert!(guests("Linux 6.18: tests") > 10);
        assert!(guests("Linux 6.18: one CPU") > 3);
    }

    #[test]
    fn every_step_can_be_typed() {
        let lines: Vec<String> = chosen(&args(false, None))
            .iter()
            .map(|step| shell_line(step, "a-b-c"))
            .collect();
        assert!(lines.contains(&"cargo fmt --all --check -- --color never".to_string()));
        assert!(lines.iter().any(|line| line.starts_with(
            "RUSTFLAGS=\"-Zsanitizer=thread\" CARGO_TARGET_DIR=target/thread-sanitizer cargo +nightly test -Zbuild-std --target a-b-c"
        )));
    }

    #[test]
    fn the_words_behind_a_step() {
        let steps = chosen(&args(false, None));
        let find = |name: &str| steps.iter().find(|step| step.name == name).unwrap();
        let outcome = |counts, note: &str| Outcome {
            counts,
            note: note.to_string(),
            ..Outcome::default()
        };
        assert_eq!(result(find("format"), &outcome(Counts::PASSED, "")), "ok");
        assert_eq!(
            result(
                find("miri"),
                &outcome(Counts::SKIPPED, "no nightly toolchain")
            ),
            "skipped: no nightly toolchain"
        );
        assert_eq!(
            result(find("tests"), &outcome(Counts::FAILED, "needs libclang")),
            "FAILED, 0 passed, 1 failed: needs libclang"
        );
    }
}
