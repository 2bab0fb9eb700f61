//! `cargo xtask bench`: every benchmark once, at a size that fits, and the page that shows them.
//!
//! A table of programs and what they are asked. Each prints one JSON object, which goes into the report's directory as it
//! is (a study of `governor` is a directory there); the program `report` makes the page of what lies there. A program that fails or cannot
//! run here is reported, and the others go on.
//!
//! `cargo xtask figures` does the same for what the documents show: into `figures/`, at sizes that can be quoted, and then `report`
//! fills the tables of the documents.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;

use crate::context::Context;
use crate::process::{self, Stream};
use crate::progress::{Progress, Sink};
use crate::{criterion, interrupt, rights, service, tools};

/// Longer than the longest row takes, on a slow machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(900);
/// Likewise of what documents show.
const FIGURES_LIMIT: Duration = Duration::from_secs(7_200);
/// How long the observer may take to load.
const PATIENCE: Duration = Duration::from_secs(20);

/// The rows to run, and where the page goes.
#[derive(Clone, Debug, Args)]
pub(crate) struct SuiteArgs {
    /// Less of everything, in two minutes: to see that it works, not to quote
    #[arg(long)]
    quick: bool,
    /// Only the rows whose name has this in it
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Where the figures and the page go
    #[arg(long, value_name = "DIR", default_value = "report")]
    output: PathBuf,
    /// Show the rows and their commands, and run none
    #[arg(long)]
    list: bool,
}

/// Stands for the row's own directory in the report's, for programs that write one.
const DIRECTORY: &str = "{}";

/// The program that must run beside a row, or under it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Needs {
    Nothing,
    /// `scx_morpheus --observe`, and so root.
    Observer,
    /// valgrind, which is installed.
    Valgrind,
}

/// One run of one program.
struct Row {
    /// Of its file, and what `--only` goes by.
    name: &'static str,
    /// The program and its arguments.
    full: &'static [&'static str],
    /// The same in a fraction of the time; without, it is not in the quick suite.
    quick: Option<&'static [&'static str]>,
    needs: Needs,
}

const fn row(
    name: &'static str,
    full: &'static [&'static str],
    quick: Option<&'static [&'static str]>,
) -> Row {
    Row {
        name,
        full,
        quick,
        needs: Needs::Nothing,
    }
}

const fn observed(
    name: &'static str,
    full: &'static [&'static str],
    quick: Option<&'static [&'static str]>,
) -> Row {
    Row {
        needs: Needs::Observer,
        ..row(name, full, quick)
    }
}

#[rustfmt::skip]
const ROWS: &[Row] = &[
    row("starvation-computing", &["starvation", "--rounds", "3"], Some(&["starvation", "--duration", "1"])),
    row("starvation-blocked", &["starvation", "--hog-kind", "read", "--hogs", "20", "--rounds", "3"], None),
    row("escalation-watchdog", &["escalation", "--neighbours", "2"], Some(&["escalation", "--neighbours", "2", "--polls", "500", "--chains", "5", "--stalls", "10"])),
    observed("escalation-observer", &["escalation", "--link", "observer", "--neighbours", "2"], Some(&["escalation", "--link", "observer", "--neighbours", "2", "--polls", "500", "--chains", "5", "--stalls", "10"])),
    row("compare", &["compare", "--window-ms", "15", "--runtime", "morpheus"], Some(&["compare", "--case", "spawn_many_local,yield_many,ping_pong,tcp_echo_16", "--window-ms", "5", "--runtime", "morpheus"])),
    row("loops", &["loops"], None),
    Row { needs: Needs::Valgrind, ..row("instructions", &["instructions"], Some(&["instructions"])) },
    row("service", &["service", "--clients", "4,40"], None),
    row("footprint", &["footprint"], Some(&["footprint", "--spares", "8,128", "--runs", "6"])),
    row("latency", &["latency", "--duration", "15"], Some(&["latency", "--duration", "2"])),
    row("latency-pressure", &["latency", "--duration", "15", "--pressure"], None),
    row("latency-checkpoints", &["latency", "--paired", "--workers", "2"], Some(&["latency", "--paired", "--workers", "2", "--pairs", "10"])),
    row("liar", &["liar"], Some(&["liar", "--critical-duration-ms", "20", "--duration", "1"])),
    observed("liar-observer", &["liar", "--link", "observer"], None),
    row("jitter", &["jitter", "5", "1000"], Some(&["jitter", "5", "200"])),
    row("jitter-load", &["jitter", "5", "1000", "--load", "2"], None),
    row("jitter-sweep", &["jitter", "10", "50", "--sweep"], None),
    row("overhead-preemption", &["overhead", "preemption"], Some(&["overhead", "preemption", "--experiments", "20"])),
    row("overhead-migration", &["overhead", "migration"], Some(&["overhead", "migration", "--experiments", "20"])),
    row("governor", &["governor", "run", "--load", "1", "--duration", "15", "--warmup", "2", "--repeats", "1", "--output", DIRECTORY], Some(&["governor", "run", "--kernels", "goertzel,bandpass_fir", "--load", "0", "--duration", "3", "--warmup", "1", "--repeats", "1", "--output", DIRECTORY])),
    row("overhead-cache", &["overhead", "cache"], Some(&["overhead", "cache", "--experiments", "10"])),
];

/// The rows of the documents, at sizes that can be quoted.
#[rustfmt::skip]
const FIGURES: &[Row] = &[
    row("starvation", &["starvation", "--suite", "--suite-only", "hogs-2,hogs-20,load,lifo", "--runtime", "all,morpheus-flag,tokio-tuned,smol+32,go+32", "--uid", "65534", "--rounds", "10", "--duration", "3"], None),
    row("compare", &["compare", "--pairs", "20"], None),
    row("compare-flag", &["compare", "--pairs", "20", "--runtime", "morpheus-flag"], None),
    row("loops", &["loops", "--pairs", "30"], None),
    row("footprint", &["footprint"], None),
    row("service", &["service", "--clients", "4,40,200", "--rounds", "10"], None),
    row("service-blocking", &["service", "--scene", "blocking", "--clients", "64,256", "--rounds", "10", "--warmup", "2", "--seconds", "5"], None),
];
/// Where they are kept.
const FIGURES_DIRECTORY: &str = "figures";

/// Which figures to measure.
#[derive(Clone, Debug, Args)]
pub(crate) struct FiguresArgs {
    /// Only the rows whose name has this in it
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Measure nothing, and fill the tables of the documents from the files that are there
    #[arg(long)]
    fill: bool,
    /// Show the rows and their commands, and run none
    #[arg(long, conflicts_with = "fill")]
    list: bool,
}

/// Measures what the documents show and fills their tables; exit codes as for [`run`].
pub(crate) fn figures(context: &Context, args: &FiguresArgs) -> ExitCode {
    let rows = chosen(FIGURES, args.only.as_ref(), false);
    if rows.is_empty() {
        return none("figures");
    }
    if args.list {
        return list(&rows);
    }
    interrupt::listen();
    ended("figures", measure_figures(context, args, &rows))
}

fn measure_figures(
    context: &Context,
    args: &FiguresArgs,
    rows: &[(&Row, &[&str])],
) -> io::Result<ExitCode> {
    let directory = figures_directory(context);
    build_for(context, rows)?;
    let mut missing = 0;
    if !args.fill {
        // Not where they stay: each says whether the checkout had changes when it was measured.
        let measured = context.target.join("figures");
        if measured.exists() {
            fs::remove_dir_all(&measured)?;
        }
        missing = measure_all(context, &measured, rows, FIGURES_LIMIT)?.1;
        for file in fs::read_dir(&measured)? {
            let file = file?.path();
            if file.extension().is_some_and(|ending| ending == "json") {
                fs::copy(&file, directory.join(file.file_name().unwrap_or_default()))?;
            }
        }
    }
    if interrupt::take() {
        return Err(io::ErrorKind::Interrupted.into());
    }
    let is_filled = fill_documents(context)?;
    Ok(ExitCode::from(u8::from(missing > 0 || !is_filled)))
}

/// Where figures of documents are.
pub(crate) fn figures_directory(context: &Context) -> PathBuf {
    context.root.join(FIGURES_DIRECTORY)
}

/// Fills the tables of the documents; exit codes as for [`run`].
pub(crate) fn fill(context: &Context) -> ExitCode {
    let filled = fill_documents(context);
    ended(
        "figures",
        filled.map(|is_filled| ExitCode::from(u8::from(!is_filled))),
    )
}

/// Whether all of the documents' tables could be filled.
fn fill_documents(context: &Context) -> io::Result<bool> {
    let guide = fs::read_dir(context.root.join("docs/src"))?;
    let mut documents: Vec<PathBuf> = guide.flatten().map(|entry| entry.path()).collect();
    documents.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    documents.push(context.root.join("README.md"));
    let documents: Vec<&str> = documents.iter().filter_map(|path| path.to_str()).collect();
    let mut fill = Command::new(program(context, "report"));
    fill.arg(figures_directory(context));
    fill.args(["--fill", &documents.join(",")]);
    Ok(fill.status()?.success())
}

/// The rows that have this in their name, and what each is asked.
fn chosen<'a>(
    rows: &'a [Row],
    only: Option<&String>,
    quick: bool,
) -> Vec<(&'a Row, &'a [&'static str])> {
    let named = rows
        .iter()
        .filter(|row| only.is_none_or(|only| row.name.contains(only.as_str())));
    let command = |row: &'a Row| match quick {
        true => row.quick,
        false => Some(row.full),
    };
    named.filter_map(|row| Some((row, command(row)?))).collect()
}

/// Says that no row was chosen, which is bad usage.
fn none(name: &str) -> ExitCode {
    eprintln!("{name}: no row has that in its name; --list shows them");
    ExitCode::from(2)
}

/// Shows rows and their commands.
fn list(rows: &[(&Row, &[&str])]) -> ExitCode {
    for (row, command) in rows {
        let needs = match row.needs {
            Needs::Nothing => "",
            Needs::Observer => "   (scx_morpheus --observe, root)",
            Needs::Valgrind => "   (valgrind)",
        };
        println!("{:22} {}{needs}", row.name, command.join(" "));
    }
    ExitCode::SUCCESS
}

fn ended(name: &str, result: io::Result<ExitCode>) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
            ExitCode::from(interrupt::EXIT_CODE)
        }
        Err(error) => {
            eprintln!("{name}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Measures and draws; ends with 0, with 1 when something could not be measured, with 130 after Ctrl-C.
pub(crate) fn run(context: &Context, args: &SuiteArgs) -> ExitCode {
    let rows = chosen(ROWS, args.only.as_ref(), args.quick);
    let only_criterion = !args.quick && args.only.as_deref() == Some("criterion");
    if rows.is_empty() && !only_criterion {
        return none("bench");
    }
    if args.list {
        return list(&rows);
    }
    interrupt::listen();
    ended("bench", suite(context, args, &rows))
}

fn suite(context: &Context, args: &SuiteArgs, rows: &[(&Row, &[&str])]) -> io::Result<ExitCode> {
    build_for(context, rows)?;
    let (measured, mut missing) = measure_all(context, &args.output, rows, LIMIT)?;
    let criterion = !args.quick
        && args
            .only
            .as_ref()
            .is_none_or(|only| "criterion".contains(only.as_str()));
    if criterion && !interrupt::came() {
        let progress = Progress::start("criterion's benches".to_owned(), Sink::Stdout, false);
        match criterion::measure(context, &args.output.join("criterion.json")) {
            Ok(count) => progress.end(&format!("{count} measured")),
            Err(error) => {
                missing += 1;
                progress.end(&format!("FAILED: {error}"));
            }
        }
    }
    let interrupted = interrupt::take();
    if interrupted && measured == 0 {
        return Err(io::ErrorKind::Interrupted.into());
    }
    // The figures present are shown, even if others are missing.
    let mut page = Command::new(program(context, "report"));
    let status = page.arg(&args.output).status()?;
    if interrupted {
        return Err(io::ErrorKind::Interrupted.into());
    }
    Ok(ExitCode::from(u8::from(missing > 0 || !status.success())))
}

/// Measures rows into a directory. Returns how many were measured, and how many could not be.
fn measure_all(
    context: &Context,
    output: &Path,
    rows: &[(&Row, &[&str])],
    limit: Duration,
) -> io::Result<(usize, usize)> {
    fs::create_dir_all(output)
        .map_err(|error| io::Error::other(format!("{}: {error}", output.display())))?;
    let wants_observer = rows.iter().any(|(row, _)| row.needs == Needs::Observer);
    let observer = wants_observer.then(|| can_observe(context));
    if let Some(Err(why)) = &observer {
        println!("bench: what needs the observer is left out: {why}");
    }
    let mut missing = 0;
    let mut measured = 0;
    for (number, (row, command)) in rows.iter().enumerate() {
        let _observer = match (row.needs, &observer) {
            (Needs::Valgrind, _) if tools::in_path("valgrind").is_none() => {
                println!("bench: {} is left out: it needs valgrind", row.name);
                continue;
            }
            (Needs::Nothing | Needs::Valgrind, _) => None,
            (Needs::Observer, Some(Ok(()))) => Some(Observer::start(context)?),
            (Needs::Observer, _) => continue,
        };
        let title = format!("[{}/{}] {}", number + 1, rows.len(), row.name);
        let progress = Progress::start(title, Sink::Stdout, false);
        let place = output.join(format!("{}.json", row.name));
        // Where it cannot be measured now, nothing of an earlier run stands in its place.
        if place.is_dir() {
            fs::remove_dir_all(&place)?;
        }
        for place in [&place, &place.with_extension(FAILED)] {
            if place.exists() {
                fs::remove_file(place)?;
            }
        }
        let outcome = measure(context, command, &place, limit);
        if interrupt::came() {
            progress.end("interrupted");
            break;
        }
        match outcome {
            Ok(()) => {
                measured += 1;
                progress.end("measured");
            }
            Err(error) => {
                missing += 1;
                progress.end(&format!("FAILED: {error}"));
            }
        }
    }
    Ok((measured, missing))
}

fn program(context: &Context, name: &str) -> PathBuf {
    context.target.join("release").join(name)
}

/// Builds the programs of these rows.
fn build_for(context: &Context, rows: &[(&Row, &[&str])]) -> io::Result<()> {
    build(context, "morpheus-bench")?;
    match rows.iter().any(|(_, command)| command[0] == "service") {
        true => service::build(context),
        false => Ok(()),
    }
}

fn build(context: &Context, package: &str) -> io::Result<()> {
    let mut build = context.cargo();
    build.args(["build", "--release", "--bins", "-p", package]);
    let built = process::run(&mut build, &mut |line| eprintln!("{line}"))?;
    if built.interrupted {
        return Err(io::ErrorKind::Interrupted.into());
    }
    if !built.success {
        return Err(io::Error::other(format!("{package} does not build")));
    }
    Ok(())
}

/// Whether the observer can run here; it is built for that.
fn can_observe(context: &Context) -> Result<(), String> {
    if let Some(lack) = rights::bpf_lacks() {
        return Err(lack);
    }
    build(context, "morpheus-bpf").map_err(|error| error.to_string())
}

/// Runs a row and keeps what it printed, or lets it write a directory of that name.
fn measure(context: &Context, command: &[&str], place: &Path, limit: Duration) -> io::Result<()> {
    let (name, arguments) = command.split_first().expect("a row names a program");
    let mut command = Command::new(program(context, name));
    let writes = arguments.contains(&DIRECTORY);
    if writes {
        for argument in arguments {
            match *argument {
                DIRECTORY => command.arg(place),
                other => command.arg(other),
            };
        }
    } else {
        command.args(arguments).arg("--json");
    }
    let mut printed = Vec::new();
    let ended = stream_to_end(&mut command, limit, &mut printed);
    if writes {
        return ended;
    }
    let Err(why) = ended else {
        return fs::write(place, printed);
    };
    if printed.is_empty() {
        return Err(why);
    }
    // An hour of measurements, and what failed.
    let place = place.with_extension(FAILED);
    fs::write(&place, printed)?;
    let text = format!("{why}; what it has measured is in {}", place.display());
    Err(io::Error::new(why.kind(), text))
}

/// The ending of the file with what a row has that failed or was interrupted.
const FAILED: &str = "json.failed";

/// The output of a program, if it ended well.
pub(crate) fn run_to_end(command: &mut Command, limit: Duration) -> io::Result<Vec<u8>> {
    let mut printed = Vec::new();
    stream_to_end(command, limit, &mut printed)?;
    Ok(printed)
}

/// Adds the output of a program to what is `printed`. An error if it does not end well.
fn stream_to_end(command: &mut Command, limit: Duration, printed: &mut Vec<u8>) -> io::Result<()> {
    let mut said = Vec::new();
    let ending = process::stream(
        command,
        limit,
        &mut |_| {},
        &mut |stream, chunk| match stream {
            Stream::Stdout => printed.extend_from_slice(chunk),
            Stream::Stderr => said.extend_from_slice(chunk),
        },
    )?;
    if ending.interrupted {
        // The code that waits for a child takes the signal; the suite is to see it, too.
        interrupt::put_back();
        return Err(io::ErrorKind::Interrupted.into());
    }
    if ending.timed_out {
        return Err(io::Error::other(format!("longer than {limit:?}")));
    }
    if !ending.status.success() {
        let said = String::from_utf8_lossy(&said);
        let last = said.lines().last().unwrap_or("it says nothing");
        return Err(io::Error::other(format!("{}: {last}", ending.status)));
    }
    Ok(())
}

/// The observer, for as long as this lives.
struct Observer(Child);

impl Observer {
    fn start(context: &Context) -> io::Result<Observer> {
        let mut command = Command::new(program(context, "scx_morpheus"));
        command.arg("--observe");
        // A Ctrl-C is for this program, which ends the observer after the row that needs it.
        command.process_group(0);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        let mut child = command.spawn()?;
        // It says so when it observes, and then its socket is open.
        let stderr = child.stderr.take().expect("it was piped");
        let (sender, lines) = std::sync::mpsc::channel();
        thread::spawn(move || {
            for line in io::BufRead::lines(io::BufReader::new(stderr)).map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        let observer = Observer(child);
        let until = Instant::now() + PATIENCE;
        while let Ok(line) = lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            if line.contains("observing") {
                return Ok(observer);
            }
        }
        Err(io::Error::other(
            "scx_morpheus --observe does not come up: scx_morpheus check says why",
        ))
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        // SAFETY: a plain system call; the child is not reaped yet, so that its number is its own.
        unsafe { libc::kill(self.0.id() as libc::pid_t, libc::SIGINT) };
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_row_has_a_name_of_its_own_and_the_same_program_in_both_sizes() {
        let mut names: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ROWS.len());
        for row in ROWS {
            assert!(row.name.starts_with(row.full[0]), "{}", row.name);
            assert!(
                row.quick.is_none_or(|quick| quick[0] == row.full[0]),
                "{}",
                row.name
            );
            let asks = row.full.contains(&"observer");
            assert_eq!(asks, row.needs == Needs::Observer, "{}", row.name);
        }
    }
}
