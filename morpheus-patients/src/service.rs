//! The common part of the programs: their arguments, their runtime, and when they end.

use std::any::Any;
use std::error::Error;
use std::fs::File;
use std::io::{self, Read, Write, stdin, stdout};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use clap::{Args, CommandFactory, FromArgMatches, Parser};
use rustix::fs::FileType;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::{Patient, clock, traffic};

/// The exit code of a program whose fault cannot be had on this machine, or that lacks the means for what it was told.
pub const ABSENT: u8 = 3;

/// Why a program did not run.
pub type Failure = Box<dyn Error + Send + Sync>;

/// The fault cannot be had on this machine: the program ends with [`ABSENT`].
#[derive(Debug)]
pub struct Absent(pub String);

impl std::fmt::Display for Absent {
    fn fmt(&self, form: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        form.write_str(&self.0)
    }
}

impl Error for Absent {}

/// The arguments of every program.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Workers of the runtime
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=1024), conflicts_with = "current_thread")]
    pub workers: u16,

    /// Run everything on the main thread: tokio's current-thread scheduler
    #[arg(long)]
    pub current_thread: bool,

    /// End after N seconds
    #[arg(long, value_name = "N", value_parser = seconds)]
    pub seconds: Option<Duration>,

    /// After N seconds replace the process by another run of the program, without this option (execve)
    #[arg(long, value_name = "N", value_parser = seconds)]
    pub exec_after: Option<Duration>,
}

/// Prints a program's figures, and says on standard error if that fails.
pub fn print(program: &str, figures: &serde_json::Value) {
    if let Err(error) = writeln!(stdout(), "{figures}") {
        eprintln!("{program}: the figures cannot be printed: {error}");
    }
}

/// Reads a number of seconds, which need not be whole.
///
/// # Errors
/// It is no number, negative, or more than a year.
pub fn seconds(text: &str) -> Result<Duration, String> {
    let number: f64 = text
        .parse()
        .map_err(|_| "a number of seconds is expected")?;
    if !(0.0..=31_536_000.0).contains(&number) {
        return Err("between 0 and 31536000 seconds are possible".to_owned());
    }
    Ok(Duration::from_secs_f64(number))
}

/// The arguments of a program that has no others.
#[derive(Debug, Parser)]
pub struct Alone {
    /// The arguments of every program
    #[command(flatten)]
    pub options: Options,
}

const ENDS: &str = "The program says `ready` on standard error when it serves. It runs until SIGTERM or Ctrl-C, until --seconds are over, or until \
    its standard input is closed, if that is a pipe.\n\nExit codes: 0 it ran; 1 it failed; 2 wrong arguments; 3 the fault cannot be had \
    on this machine.";

/// Reads the arguments of a program; `about` says what the program does. Ends the process if they are wrong.
pub fn arguments<T: CommandFactory + FromArgMatches>(program: &'static str, about: &str) -> T {
    let command = T::command()
        .name(program)
        .bin_name(program)
        .about(about.to_owned())
        .after_help(ENDS);
    match T::from_arg_matches(&command.get_matches()) {
        Ok(arguments) => arguments,
        Err(error) => error.exit(),
    }
}

/// Runs the patient of this name: `start` begins its handlers, within the runtime and beside healthy traffic. Its return value is kept
/// until the end.
///
/// At the end a line on standard error says how long the calls at fault took.
///
/// # Panics
/// There is no such patient.
pub fn run<T: Any>(name: &str, start: impl FnOnce() -> Result<T, Failure>) -> ExitCode {
    run_prepared(name, || Ok(()), |()| start())
}

/// As [`run`], and `prepare` is called before there is a second thread; `start` takes what it returns.
///
/// # Panics
/// There is no such patient.
pub fn run_prepared<P, T: Any>(
    name: &str,
    prepare: impl FnOnce() -> Result<P, Failure>,
    start: impl FnOnce(P) -> Result<T, Failure>,
) -> ExitCode {
    let patient = Patient::named(name).expect("the name of a patient");
    let about = format!(
        "A service on plain tokio with a planted fault ({}): {}",
        patient.fault, patient.about
    );
    let Alone { options } = arguments(patient.program, &about);
    let run = || {
        let prepared = prepare()?;
        try_serve::<Runtime, T>(&options, || {
            traffic::start();
            start(prepared)
        })
    };
    exit_code(patient.program, run())
}

/// The executor that a service runs on.
pub trait Executor: Sized {
    /// Makes it as the arguments want it.
    ///
    /// # Errors
    /// The machine has no thread or descriptor left.
    fn build(options: &Options) -> io::Result<Self>;
    /// Calls a function that may spawn tasks.
    fn within<R>(&self, start: impl FnOnce() -> R) -> R;
    /// Runs a future to its end.
    fn block_on<F: Future>(&self, future: F) -> F::Output;
    /// Ends its tasks, and waits for its threads for at most this time.
    fn shut_down(self, timeout: Duration);
}

impl Executor for Runtime {
    fn build(options: &Options) -> io::Result<Runtime> {
        let mut builder = if options.current_thread {
            Builder::new_current_thread()
        } else {
            Builder::new_multi_thread()
        };
        let workers = usize::from(options.workers);
        builder.worker_threads(workers).enable_all().build()
    }

    fn within<R>(&self, start: impl FnOnce() -> R) -> R {
        let _context = self.enter();
        start()
    }

    fn block_on<F: Future>(&self, future: F) -> F::Output {
        Runtime::block_on(self, future)
    }

    fn shut_down(self, timeout: Duration) {
        self.shutdown_timeout(timeout);
    }
}

/// Runs a service on plain tokio that `start` begins within the runtime, until its end.
pub fn serve<T: Any>(
    program: &str,
    options: &Options,
    start: impl FnOnce() -> Result<T, Failure>,
) -> ExitCode {
    serve_on::<Runtime, T>(program, options, start)
}

/// As [`serve`], on a runtime `E`.
pub fn serve_on<E: Executor, T: Any>(
    program: &str,
    options: &Options,
    start: impl FnOnce() -> Result<T, Failure>,
) -> ExitCode {
    exit_code(program, try_serve::<E, T>(options, start))
}

fn exit_code(program: &str, result: Result<(), Failure>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{program}: {error}");
            if error.is::<Absent>() {
                ExitCode::from(ABSENT)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

fn try_serve<E: Executor, T: Any>(
    options: &Options,
    start: impl FnOnce() -> Result<T, Failure>,
) -> Result<(), Failure> {
    let runtime = E::build(options).map_err(|error| format!("no runtime: {error}"))?;
    let began = Instant::now();
    let kept = runtime.within(start)?;
    // Before it says that it serves: from then on it may be told to end.
    let signals = runtime.within(Signals::catch)?;
    eprintln!("ready");
    let end = runtime.block_on(end(options, signals));
    if let Some(summary) = clock::summary() {
        eprintln!("{summary}");
    }
    drop(kept);
    if end == End::Exec {
        // The workers run on until the kernel ends them.
        return Err(exec(options, began.elapsed()).into());
    }
    runtime.shut_down(Duration::from_secs(1));
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Told,
    Exec,
}

/// Waits for the end, whichever comes first.
async fn end(options: &Options, mut signals: Signals) -> End {
    tokio::select! {
        _ = signals.terminate.recv() => End::Told,
        _ = signals.interrupt.recv() => End::Told,
        () = input_closed() => End::Told,
        () = over(options.seconds) => End::Told,
        () = over(options.exec_after) => End::Exec,
    }
}

/// The signals that tell a program to end.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn catch() -> io::Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }
}

async fn over(length: Option<Duration>) {
    match length {
        Some(length) => tokio::time::sleep(length).await,
        None => std::future::pending().await,
    }
}

/// Waits until standard input is closed. Of anything but a pipe it is not read: `/dev/null` is at its end at once, and a terminal
/// stops a program in the background that reads it.
async fn input_closed() {
    let is_pipe = rustix::fs::fstat(stdin().as_fd())
        .is_ok_and(|status| FileType::from_raw_mode(status.st_mode) == FileType::Fifo);
    let input = stdin().as_fd().try_clone_to_owned().map(File::from);
    let (true, Ok(mut input)) = (is_pipe, input) else {
        return std::future::pending().await;
    };
    let (closed, is_closed) = oneshot::channel();
    let read = move || {
        let mut buffer = [0; 256];
        while input.read(&mut buffer).is_ok_and(|length| length > 0) {}
        let _ = closed.send(());
    };
    // A thread of its own: tokio's pool would wait for it at the end.
    let thread = std::thread::Builder::new().name("stdin".to_owned());
    if thread.spawn(read).is_err() || is_closed.await.is_err() {
        std::future::pending().await
    }
}

/// Replaces the process. Returns why it could not.
fn exec(options: &Options, ran: Duration) -> String {
    let mut command = Command::new("/proc/self/exe");
    if options.current_thread {
        command.arg("--current-thread");
    } else {
        command.args(["--workers", &options.workers.to_string()]);
    }
    if let Some(seconds) = options.seconds {
        let left = seconds.saturating_sub(ran).as_secs_f64();
        command.args(["--seconds", &left.to_string()]);
    }
    let error = command.exec();
    format!("the process was not replaced: {error}")
}
