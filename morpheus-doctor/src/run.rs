//! One run: finds the process, opens a source, looks until it is enough, and reports.

use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal as _, Write as _};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};

use morpheus_tools::signals::StopSignals;

use crate::arguments::Arguments;
use crate::diagnosis::Diagnosis;
use crate::report::live::{Key, Live};
use crate::report::text::{self, Look};
use crate::report::{folded, json, words};
use crate::source::Source;
use crate::target::{self, Target};

/// How frequently events are taken while there are stacks among them, which need room.
const TURN: Duration = Duration::from_millis(10);
/// The same while there are none: each turn takes a CPU from the process for some 0.1 ms.
const IDLE_TURN: Duration = Duration::from_millis(100);
/// The same at the beginning, when the count of polls is looked for. The beginning has at least this length and this number of turns:
/// on a slow machine a turn takes longer.
const FIRST_TURN: Duration = Duration::from_millis(2);
const FIRST: Duration = Duration::from_secs(2);
const FIRST_TURNS: u32 = 500;
/// How frequently stacks of sleeping threads are read at the beginning, and how many times.
const SURVEY: Duration = Duration::from_millis(20);
const SURVEYS: u32 = 25;
/// How frequently what was found is shown.
const SHOWN: Duration = Duration::from_millis(500);
/// A process in which no thread was seen in tokio by then does not use it.
const TOKIO_WITHIN: Duration = Duration::from_millis(1500);

/// Why there is no report.
#[derive(Debug)]
pub struct Failure(String);

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<target::Error> for Failure {
    fn from(error: target::Error) -> Failure {
        Failure(error.to_string())
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure(error.to_string())
    }
}

/// Opens a source for the process with this number.
pub type Open<'open> = &'open mut dyn FnMut(&Arguments, u32) -> Result<Box<dyn Source>, String>;

/// Runs the command: reports on standard output, progress and errors on standard error.
pub fn run(arguments: &Arguments, open: Open<'_>) -> ExitCode {
    match try_run(arguments, open) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("morpheus-doctor: {failure}");
            ExitCode::FAILURE
        }
    }
}

fn try_run(arguments: &Arguments, open: Open<'_>) -> Result<(), Failure> {
    // Before anything is begun: a file that cannot be written is found now, and not after the run.
    let html = arguments.html.as_deref().map(create).transpose()?;
    let folded_file = arguments.folded.as_deref().map(create).transpose()?;
    let stop = StopSignals::catch()?;
    let mut child = None;
    let mut target = match (&arguments.pid, &arguments.name) {
        (Some(pid), _) => Target::by_pid(*pid)?,
        (_, Some(name)) => Target::by_name(name)?,
        _ => {
            let started = start(&arguments.command)?;
            let target = Target::by_pid(started.id());
            child = Some(Started(started));
            target?
        }
    };
    if target.pid == std::process::id() {
        return Err(Failure("this is the doctor itself".to_owned()));
    }
    let mut began = None;
    let report = loop {
        let mut diagnosis = Diagnosis::new(target.clone(), arguments.longer_than).map_err(|error| {
            Failure(format!(
                "the memory of process {target} cannot be read: {error}; run as root, or as its user where ptrace is allowed"
            ))
        })?;
        let mut source = open(arguments, target.pid).map_err(Failure)?;
        // From when it looks: to load BPF programs takes a while.
        diagnosis.begin();
        let began = *began.get_or_insert_with(Instant::now);
        let ended = watch(
            (arguments, began),
            &target,
            &mut diagnosis,
            &mut *source,
            &stop,
            &mut child,
        )?;
        if let Some(ended) = ended {
            diagnosis.finish(&mut *source);
            break diagnosis.report(&*source, ended);
        }
        target = Target::by_pid(target.pid)?;
    };
    if let Some(output) = folded_file {
        write(output, |out| folded::write(&report, out))?;
    }
    if let Some(output) = html {
        write(output, |out| crate::report::html::write(&report, out))?;
    }
    let mut out = io::stdout().lock();
    let printed = match arguments.json {
        true => json::write(&report, &mut out),
        false => out.write_all(text::summary(&report, Look::of_stdout()).as_bytes()),
    };
    match printed.and_then(|()| out.flush()) {
        // The reader has seen enough: `| head`.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        printed => Ok(printed?),
    }
}

/// Looks until it is enough. Returns why it was; none of a program that the doctor has started, and that has become another one
/// without a long poll, as a script does at its end.
fn watch(
    (arguments, began): (&Arguments, Instant),
    target: &Target,
    diagnosis: &mut Diagnosis,
    source: &mut dyn Source,
    stop: &StopSignals,
    child: &mut Option<Started>,
) -> Result<Option<&'static str>, Failure> {
    let (mut surveys, mut survey_again, mut show_again) = (0, began, began + SHOWN);
    let (mut turns, mut has_said) = (0_u32, false);
    let mut shown = None;
    let mut redraw = false;
    // A program that was started writes to the same terminal.
    let mut live = match Live::is_possible() && !arguments.json && child.is_none() {
        true => Some(Live::start()?),
        false => None,
    };
    let progress = live.is_none() && io::stderr().is_terminal();
    loop {
        let now = Instant::now();
        let may_begin_later = child.is_some() && !diagnosis.has_tokio();
        // Before a stack is read, which would be the new program's: the source looks less often.
        let has_exec = child.is_some() && target.has_another_program();
        if !has_exec && (surveys < SURVEYS || may_begin_later) && now >= survey_again {
            diagnosis.survey(source);
            (surveys, survey_again) = (surveys + 1, now + SURVEY);
        }
        let is_idle = !has_exec && diagnosis.advance(source)? == 0;
        if has_exec || diagnosis.has_exec() {
            return match diagnosis.has_tokio() {
                // A stack that was read a moment ago may be the new program's.
                _ if child.is_some() && !diagnosis.has_polls() => Ok(None),
                true => Ok(Some("the process began to run another program")),
                false => Err(Failure(format!(
                    "process {target} began to run another program"
                ))),
            };
        }
        if let Some(Started(child)) = child {
            // Takes its exit status, so that it is gone.
            let _ = child.try_wait();
        }
        if !target.is_alive() {
            return match diagnosis.has_tokio() {
                true => Ok(Some("the process has ended")),
                false => Err(Failure(format!(
                    "process {target} has ended before a thread was seen in tokio"
                ))),
            };
        }
        let is_over = arguments
            .duration
            .is_some_and(|duration| now - began >= duration);
        let is_late = now - began >= TOKIO_WITHIN && !diagnosis.has_tokio();
        if is_late && child.is_some() && !has_said {
            has_said = true;
            eprintln!(
                "morpheus-doctor: process {target} does not use tokio yet, and is watched until it does; if the service is another \
                 process, name that with --pid"
            );
        }
        if is_late && (child.is_none() || is_over) {
            let threads = target.threads().len();
            return Err(Failure(format!(
                "process {target} does not use tokio, as far as can be seen: none of its {threads} threads waits or works in one of its \
                 runtimes"
            )));
        }
        if is_over {
            return Ok(Some("the time was over"));
        }
        if now >= show_again {
            show_again = now + SHOWN;
            if live.is_some() {
                redraw = true;
                shown = Some(diagnosis.report_so_far(source));
            } else if progress {
                let report = diagnosis.report_so_far(source);
                eprint!("\r\x1b[K{}", words::progress_line(&report));
            }
        }
        if let (Some(live), Some(report), true) = (&mut live, &shown, redraw) {
            live.draw(report)?;
            redraw = false;
        }
        let left = arguments
            .duration
            .map_or(IDLE_TURN, |duration| duration.saturating_sub(now - began));
        turns = turns.saturating_add(1);
        let is_beginning = now - began < FIRST || turns < FIRST_TURNS;
        let turn = match (is_beginning, is_idle) {
            (true, _) => FIRST_TURN,
            (false, false) => TURN,
            (false, true) => IDLE_TURN,
        };
        let told = match &mut live {
            Some(live) => match live.keys(turn.min(left))? {
                Some(Key::End) => true,
                Some(Key::Redraw) => {
                    redraw = true;
                    false
                }
                None => stop.has_come()?,
            },
            None => stop.wait(turn.min(left))?,
        };
        if told {
            return Ok(Some("it was told to stop"));
        }
    }
}

/// A program that the doctor has started. It goes when the doctor does.
struct Started(Child);

impl Drop for Started {
    fn drop(&mut self) {
        if matches!(self.0.try_wait(), Ok(None)) {
            // As Ctrl-C would, which the terminal has sent it already.
            let pid = i32::try_from(self.0.id()).unwrap_or(0);
            // SAFETY: a signal to a child that has not been waited for, so that the number is still its own.
            unsafe { libc::kill(pid, libc::SIGTERM) };
            let until = Instant::now() + Duration::from_secs(2);
            while matches!(self.0.try_wait(), Ok(None)) && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(10));
            }
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}

fn start(command: &[std::ffi::OsString]) -> Result<Child, Failure> {
    let [program, arguments @ ..] = command else {
        return Err(Failure("no command was given".to_owned()));
    };
    let mut command = Command::new(program);
    command.args(arguments);
    // SAFETY: between fork and exec; `sigemptyset` and `sigprocmask` are async-signal-safe, and use a local alone. The doctor has
    // blocked the signals that end it, and a child inherits that.
    unsafe {
        command.pre_exec(|| {
            let mut none = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
            libc::sigemptyset(none.as_mut_ptr());
            libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
            Ok(())
        });
    }
    command.spawn().map_err(|error| {
        Failure(format!(
            "{} cannot be started: {error}",
            Path::new(program).display()
        ))
    })
}

type Output<'path> = (&'path Path, File);

/// Opens a file that is to be written to, and leaves what it has: there may be no report in the end.
fn create(path: &Path) -> Result<Output<'_>, Failure> {
    let mut options = File::options();
    match options.write(true).create(true).truncate(false).open(path) {
        Ok(file) => Ok((path, file)),
        Err(error) => Err(unwritable(path, &error)),
    }
}

/// Writes a file anew.
fn write(
    (path, file): Output<'_>,
    content: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> Result<(), Failure> {
    // A pipe and a terminal have no length.
    let emptied = match file.metadata() {
        Ok(metadata) if metadata.is_file() => file.set_len(0),
        other => other.map(drop),
    };
    let mut out = BufWriter::new(file);
    emptied
        .and_then(|()| content(&mut out))
        .and_then(|()| out.flush())
        .map_err(|error| unwritable(path, &error))
}

fn unwritable(path: &Path, error: &io::Error) -> Failure {
    Failure(format!("{} cannot be written: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        arguments: Arguments,
    }

    #[test]
    fn a_run_without_a_report_leaves_the_one_before() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("report.html");
        fs::write(&path, "before").unwrap();
        // Above the largest number that the kernel gives.
        let line = [
            "doctor",
            "--pid",
            "8388608",
            "--html",
            path.to_str().unwrap(),
        ];
        let arguments = Line::parse_from(line).arguments;
        let failure = try_run(&arguments, &mut |_, _| Err("not opened".to_owned())).unwrap_err();
        assert_eq!(failure.to_string(), "there is no process 8388608");
        assert_eq!(fs::read_to_string(&path).unwrap(), "before");
    }

    #[test]
    fn a_file_is_written_anew() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("report.html");
        fs::write(&path, "longer than what is written").unwrap();
        write(create(&path).unwrap(), |out| out.write_all(b"short")).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "short");
    }

    #[test]
    fn a_pipe_is_written_to() {
        let path = Path::new("/dev/stderr");
        write(create(path).unwrap(), |_| Ok(())).unwrap();
    }
}
