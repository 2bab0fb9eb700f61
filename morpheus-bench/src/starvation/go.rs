//! A run of the Go program: this process is its probe thread and its clients.
//!
//! Inside a Go program nothing is outside of its scheduler: even a locked thread needs a free processor
//! to go on. So the wake comes from this process, as a message on the program's standard input, which a
//! goroutine reads through Go's network poller. The measurement is therefore of I/O readiness, Go's only
//! wake from outside, where the other runtimes are woken through a channel.

use std::io::{self, BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use morpheus_harness::arguments::name_of;
use morpheus_harness::histogram::Latencies;
use morpheus_harness::thread::lock;
use morpheus_harness::{clock, report};
use serde::Deserialize;

use super::child::Job;
use super::log;
use super::result::{HogSummary, RunResult};
use super::run;
use super::workload::Workload;
use crate::begin::Begin;
use crate::load::Load;
use crate::neighbours;
use crate::wake::Clockwork;

/// The program's first line.
#[derive(Deserialize)]
struct Ready {
    port: u16,
}

/// Its last line. Times in nanoseconds.
#[derive(Deserialize)]
struct Figures {
    /// Wakes fetched, those before the window included.
    served: usize,
    wake: Vec<u64>,
    intended: Vec<u64>,
    timer: Vec<u64>,
    /// Times that had not come: their ages.
    timer_pending: Vec<u64>,
    hog_polls: u64,
    hog_cpu_ns: u64,
    unfinished: usize,
    without_a_poll: usize,
    busy_polls: u64,
    elapsed_ns: u64,
}

/// The reason why the Go program cannot run a workload, if there is one.
pub fn unsupported(workload: &Workload) -> Option<&'static str> {
    let lacks = [
        (workload.label_mix, "--label-mix is about Morpheus' labels"),
        (workload.lifo.is_some(), "--lifo is about tokio's LIFO slot"),
        (workload.idle, "--idle counts threads of the own process"),
    ];
    lacks
        .into_iter()
        .find_map(|(is_so, why)| is_so.then_some(why))
}

/// Runs the Go program through one window.
///
/// # Errors
/// In words for people.
pub fn measure(job: &Job, extra: usize, stop: &AtomicBool) -> Result<RunResult, String> {
    let program = job.go_program.as_ref().ok_or("go not found")?;
    let mut program = Program::start(program, &job.workload, extra)?;
    let said = |error: io::Error| error.to_string();
    let ready: Ready = program.line()?;

    let workload = &job.workload;
    // The program prints nothing from here to its end, so this process cannot see whether it has settled.
    let from = Instant::now() + workload.warmup();
    let load = (workload.load > 0).then(|| {
        let server = ([127, 0, 0, 1], ready.port).into();
        Load::of_echo(server, workload.load, workload.load_rate, Begin::at(from))
    });
    let load = load.transpose().map_err(said)?;
    let stdin = program.child.stdin.take().ok_or("no stdin")?;
    let stamps = Arc::new(Mutex::new(Stamps::start(stdin, from)));
    let writer = stamps.clone();
    let probe = Clockwork::start(workload.period(), move |deadline| {
        lock(&writer).wake(deadline)
    });
    let probe = probe.map_err(said)?;

    let read = || (Instant::now(), neighbours::cpu(&job.neighbours));
    let wakes = || lock(&stamps).counted();
    run::sleep(from, stop);
    let (first, last) = run::watch(read, wakes, workload, from, stop);
    probe.stop();
    let (end, end_ns) = (Instant::now(), clock::monotonic_ns());
    let load = load.map(|load| load.finish(end, end).seen);
    let (sent, from_ns) = lock(&stamps).close();
    let figures: Figures = program.line()?;

    let mut wake = of(&figures.wake);
    let mut intended = of(&figures.intended);
    let unserved = sent.iter().skip(figures.served);
    for (due, at) in unserved.filter(|(due, _)| *due >= from_ns) {
        wake.record_pending_ns(end_ns.saturating_sub(*at));
        intended.record_pending_ns(end_ns.saturating_sub(*due));
    }
    let mut timer = of(&figures.timer);
    let pending_ns = figures.timer_pending.iter();
    pending_ns.for_each(|age_ns| timer.record_pending_ns(*age_ns));
    let elapsed = Duration::from_nanos(figures.elapsed_ns.max(1)).as_secs_f64();
    Ok(RunResult {
        elapsed_s: elapsed,
        wake_ns: wake.summary(),
        wake_intended_ns: intended.summary(),
        timer_ns: timer.summary(),
        load,
        hog: (workload.hogs > 0).then(|| HogSummary {
            polls: figures.hog_polls,
            cpu_share: figures.hog_cpu_ns as f64 / 1e9 / elapsed,
            unfinished: figures.unfinished,
            without_a_poll: figures.without_a_poll,
        }),
        busy_polls_per_s: (workload.busy > 0).then(|| figures.busy_polls as f64 / elapsed),
        neighbours_cpu: neighbours::share(&first.1, &last.1, last.0 - first.0),
        log: job
            .histogram
            .then(|| log::of_run(&wake, &timer, Duration::from_secs_f64(elapsed)))
            .flatten(),
        ..RunResult::empty(job.runtime)
    })
}

fn of(samples: &[u64]) -> Latencies {
    let mut latencies = Latencies::default();
    samples.iter().for_each(|ns| latencies.record_ns(*ns));
    latencies
}

/// The program at work.
struct Program {
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Program {
    fn start(path: &std::path::Path, workload: &Workload, extra: usize) -> Result<Self, String> {
        let mut child = Command::new(path)
            .arg(format!("-workers={}", workload.workers + extra))
            .arg(format!("-tasks={}", workload.tasks))
            .arg(format!("-period-us={}", workload.period_us))
            .arg(format!("-hogs={}", workload.hogs))
            .arg(format!("-hog-ms={}", workload.hog_ms))
            .arg(format!("-hog-kind={}", name_of(&workload.hog_kind)))
            .arg(format!("-fresh={}", workload.fresh))
            .arg(format!("-busy={}", workload.busy))
            .arg(format!("-busy-us={}", workload.busy_us))
            .arg(format!("-echo={}", workload.load > 0))
            .arg(format!("-request-us={}", run::REQUEST_US))
            .arg(format!("-drain-ms={}", workload.drain().as_millis()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("cannot start the Go program: {error}"))?;
        let stdout = BufReader::new(child.stdout.take().ok_or("no stdout")?);
        Ok(Self { child, stdout })
    }

    fn line<T: for<'a> Deserialize<'a>>(&mut self) -> Result<T, String> {
        let mut line = String::new();
        let read = self.stdout.read_line(&mut line);
        read.map_err(|error| error.to_string())?;
        report::from_json(&line).map_err(|error| format!("the Go program said {line:?}: {error}"))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The wakes on their way: pairs of the time meant and the time sent, on the monotonic clock that all
/// processes share.
struct Stamps {
    stdin: Option<ChildStdin>,
    sent: Vec<(u64, u64)>,
    epoch: (Instant, u64),
    from_ns: u64,
}

impl Stamps {
    /// The first pair says that wakes count `from` then on.
    fn start(stdin: ChildStdin, from: Instant) -> Self {
        // Room for 65,536 wakes; a goroutine that is later than that makes the probe wait.
        const ROOM: libc::c_int = 1 << 20;
        // SAFETY: F_SETPIPE_SZ takes a number and touches no memory of ours; a refusal leaves 64 KiB.
        unsafe { libc::fcntl(stdin.as_raw_fd(), libc::F_SETPIPE_SZ, ROOM) };
        let mut stamps = Self {
            stdin: Some(stdin),
            sent: Vec::new(),
            epoch: (Instant::now(), clock::monotonic_ns()),
            from_ns: 0,
        };
        stamps.from_ns = stamps.ns(from);
        stamps.write(stamps.from_ns, 0);
        stamps
    }

    fn ns(&self, at: Instant) -> u64 {
        self.epoch.1 + at.saturating_duration_since(self.epoch.0).as_nanos() as u64
    }

    fn wake(&mut self, deadline: Instant) {
        let (due, now) = (self.ns(deadline), clock::monotonic_ns());
        self.sent.push((due, now));
        self.write(due, now);
    }

    fn write(&mut self, due: u64, now: u64) {
        let message = [due, now].map(u64::to_le_bytes);
        if let Some(stdin) = &mut self.stdin {
            // Fails when the program has ended; the wake is unserved then.
            let _ = stdin.write_all(message.as_flattened());
        }
    }

    /// Wakes so far that count.
    fn counted(&self) -> u64 {
        let before = self.sent.partition_point(|(due, _)| *due < self.from_ns);
        (self.sent.len() - before) as u64
    }

    /// The end of the program's input ends its window. Returns what was sent, and from when on it counts.
    fn close(&mut self) -> (Vec<(u64, u64)>, u64) {
        self.stdin = None;
        (std::mem::take(&mut self.sent), self.from_ns)
    }
}
