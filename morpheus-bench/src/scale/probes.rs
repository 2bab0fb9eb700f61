//! The processes that measurements are made of: this program again, as `--probe NAME`.

use std::ffi::CString;
use std::io::{self, BufRead, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitCode, Stdio};
use std::time::Duration;

use clap::ValueEnum;
use morpheus_harness::arguments::name_of;
use morpheus_harness::{clock, report, supervised, thread};

use super::corpus::Corpus;
use crate::neighbours::{self, Neighbours};

/// The work of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Probe {
    /// Ends at once.
    Nothing,
    /// Computes until it is killed.
    Hog,
    /// Compresses until it is killed.
    Grind,
    /// Compresses as many blocks as its stdin says, and ends.
    Compress,
    /// Starts bursts of processes until it is killed.
    Storm,
    /// Works a little, sleeps a little, until it is killed.
    Editor,
    /// Answers every byte with itself.
    Echo,
}

/// Between two bursts of a storm.
const STORM_PERIOD: Duration = Duration::from_millis(60);
/// Processes in a burst, for each CPU.
const STORM_SIZE: usize = 3;
/// CPU time of an editor at each wake.
pub const EDITOR_WORK: Duration = Duration::from_micros(300);
/// How long an editor then sleeps.
const EDITOR_SLEEP: Duration = Duration::from_millis(4);

impl Probe {
    /// A process that does this. Its stdout is discarded: this program's own is for records.
    pub fn command(self) -> Command {
        let mut command = supervised::own("scale");
        command
            .args(["--probe", &name_of(&self)])
            .stdout(Stdio::null());
        command
    }

    /// `count` processes that do this, until the value is dropped or the calling thread ends.
    ///
    /// # Errors
    /// When one cannot be started; the text is for people.
    pub fn start(self, count: usize) -> Result<Neighbours, String> {
        start((0..count).map(|_| self.command()))
    }

    /// `count` processes that do this, as [`start`](Self::start), and the pipes to the stdin and from the stdout of each.
    ///
    /// # Errors
    /// When one cannot be started; the text is for people.
    pub fn start_piped(
        self,
        count: usize,
    ) -> Result<(Neighbours, Vec<(ChildStdin, ChildStdout)>), String> {
        let commands = (0..count).map(|_| {
            let mut command = self.command();
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            command
        });
        let mut processes = start(commands)?;
        let ends = |child: &mut Child| child.stdin.take().zip(child.stdout.take());
        let pipes: Option<_> = processes.children().iter_mut().map(ends).collect();
        Ok((processes, pipes.ok_or("a process without pipes")?))
    }
}

fn start(commands: impl IntoIterator<Item = Command>) -> Result<Neighbours, String> {
    Neighbours::start_each(commands).map_err(|error| format!("cannot start a process: {error}"))
}

/// Whether this process is to end at once.
pub fn is_nothing() -> bool {
    std::env::args_os().skip(1).eq(["--probe", "nothing"])
}

/// A probe's whole life.
pub fn main(probe: Probe) -> ExitCode {
    let name = CString::new(format!("scale-{}", name_of(&probe)));
    thread::name_current(&name.expect("a name on the command line has no NUL"));
    let ended = match probe {
        Probe::Nothing => Ok(()),
        Probe::Hog => neighbours::burn(),
        Probe::Grind => grind(),
        Probe::Compress => compress(),
        Probe::Storm => storm(),
        Probe::Editor => editor(),
        Probe::Echo => echo(),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report::failed("scale", &error.to_string()),
    }
}

fn grind() -> ! {
    let mut corpus = Corpus::new();
    loop {
        corpus.compress();
    }
}

/// Says when its text is ready, is told how many blocks, and says when they are done.
fn compress() -> io::Result<()> {
    let mut corpus = Corpus::new();
    println!("ready");
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    let blocks: u64 = line.trim().parse().map_err(io::Error::other)?;
    for _ in 0..blocks {
        corpus.compress();
    }
    println!("{}", clock::thread_cpu().as_nanos());
    Ok(())
}

/// Ends by itself only when no process can be started.
fn storm() -> io::Result<()> {
    let cpus = morpheus_harness::host::cpus();
    loop {
        burst(cpus * STORM_SIZE)?;
        std::thread::sleep(STORM_PERIOD);
    }
}

/// Starts `count` processes one after the other, and then waits for all of them.
pub fn burst(count: usize) -> io::Result<()> {
    let children: Vec<io::Result<Child>> = (0..count)
        .map(|_| Probe::Nothing.command().spawn())
        .collect();
    for child in children {
        child?.wait()?;
    }
    Ok(())
}

fn editor() -> ! {
    loop {
        crate::work::burn(EDITOR_WORK, |_| ());
        std::thread::sleep(EDITOR_SLEEP);
    }
}

fn echo() -> io::Result<()> {
    let (mut from, mut to) = (io::stdin().lock(), io::stdout().lock());
    let mut byte = [0];
    while from.read(&mut byte)? == 1 {
        to.write_all(&byte)?;
        to.flush()?;
    }
    Ok(())
}

/// A process that answers every byte with itself, and ends when this value is dropped.
pub struct Echo {
    _process: Neighbours,
    stream: UnixStream,
}

impl Echo {
    /// Starts it, on any CPU, or on the one that it is told.
    ///
    /// # Errors
    /// When it cannot be started, or does not answer; the text is for people.
    pub fn start(cpu: Option<usize>) -> Result<Self, String> {
        let said = |error: io::Error| format!("no process that answers: {error}");
        let (stream, other) = UnixStream::pair().map_err(said)?;
        let mut command = Probe::Echo.command();
        command
            .stdin(OwnedFd::from(other.try_clone().map_err(said)?))
            .stdout(OwnedFd::from(other));
        let process = Neighbours::start_each([command]).map_err(said)?;
        if let (Some(cpu), Some(pid)) = (cpu, process.pids().first()) {
            crate::cpus::Cpus::of(&[cpu]).give_to(*pid).map_err(said)?;
        }
        let mut echo = Self {
            _process: process,
            stream,
        };
        // The first answer comes when it has started.
        echo.ask().map_err(said)?;
        Ok(echo)
    }

    /// A byte there and back.
    ///
    /// # Errors
    /// When the process has ended.
    pub fn ask(&mut self) -> io::Result<()> {
        let mut byte = [7];
        self.stream.write_all(&byte)?;
        self.stream.read_exact(&mut byte)
    }
}
