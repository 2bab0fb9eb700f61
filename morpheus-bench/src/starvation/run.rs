//! One run in this process: probes, clients, innocents and hogs on one runtime, read over one window.

use std::io;
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use morpheus_harness::histogram::SAMPLES_FOR_P99;
use morpheus_harness::settle::Settle;
use morpheus_harness::{clock, thread};

use super::busy::Busy;
use super::child::Job;
use super::hog::Hogs;
use super::lifo::Lifo;
use super::log;
use super::mix::Mix;
use super::result::RunResult;
use super::sleepers::Sleepers;
use super::workload::Workload;
use crate::begin::Begin;
use crate::executor::{Executor, Spawn};
use crate::load::Load;
use crate::neighbours;
use crate::wake::{Clockwork, Mailbox};

/// CPU work that the echo server does for a request.
pub const REQUEST_US: f64 = 20.0;

/// How near the medians must be to each other.
const SETTLED: f64 = 0.2;

/// Measures one runtime. `stop` ends the window early.
///
/// # Errors
/// When threads, sockets or pipes cannot be had.
pub fn measure<E: Executor>(executor: &E, job: &Job, stop: &AtomicBool) -> io::Result<RunResult> {
    if job.workload.idle {
        return Ok(idle(executor, job, stop));
    }
    let workload = &job.workload;
    // Once before it matters: the first reading may set something up in the runtime or the kernel.
    let _ = executor.escalations();
    let begun = Instant::now();
    let begin = Begin::undecided();

    let period = workload.period();
    let mailbox = Mailbox::start_settling(executor, begin.clone(), Some(settle(period)));
    let woken = mailbox.clone();
    let probe = Clockwork::start(period, move |deadline| woken.wake(deadline))?;
    let (tasks, begins) = (workload.tasks, begin.clone());
    let sleepers = Sleepers::start(executor, Spawn::Plain, tasks, period, begins, || ());
    let load = start_load(executor, job, &begin)?;
    let work = Work::start(executor, job, &begin)?;

    let settled = warm_up(&mailbox, workload, begun, stop);
    let from = begin.soon();
    sleep(from, stop);
    let read = || work.read(executor, job);
    let (first, last) = watch(read, || mailbox.sent(), workload, from, stop);
    probe.stop();
    let end = Instant::now();

    let mut result = RunResult::empty(job.runtime);
    result.settled = Some(settled);
    let wakes = mailbox.close(end);
    result.wake_ns = wakes.wake.summary();
    result.wake_intended_ns = wakes.intended.summary();
    let timers = sleepers.close(end);
    result.timer_ns = timers.summary();
    if job.histogram {
        result.log = log::of_run(&wakes.wake, &timers, end - from);
    }
    result.load = load.map(|load| load.finish(end, end).seen);
    result.escalations = executor.escalations();
    work.finish(workload, (first, last), end, &mut result);
    Ok(result)
}

/// The medians of blocks of a tenth of a second are compared, or of ten wakes where those take longer.
fn settle(period: Duration) -> Settle {
    let wakes = Duration::from_millis(100).as_nanos() / period.as_nanos().max(1);
    Settle::new((wakes as usize).clamp(10, 1_000), SETTLED)
}

/// Waits for as long as was asked, and then until the wakes have settled, for as long again at most: beside some hogs
/// a runtime never does. Whether they have.
fn warm_up(mailbox: &Mailbox, workload: &Workload, begun: Instant, stop: &AtomicBool) -> bool {
    sleep(begun + workload.warmup(), stop);
    let longest = begun + workload.longest_warmup();
    while !mailbox.is_settled() && Instant::now() < longest && !stop.load(Relaxed) {
        sleep(Instant::now() + Duration::from_millis(5), stop);
    }
    mailbox.is_settled()
}

fn start_load<E: Executor>(executor: &E, job: &Job, begin: &Begin) -> io::Result<Option<Load>> {
    let workload = &job.workload;
    if workload.load == 0 {
        return Ok(None);
    }
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let server = listener.local_addr()?;
    executor.serve_echo(listener, job.iterations(REQUEST_US))?;
    Load::of_echo(server, workload.load, workload.load_rate, begin.clone()).map(Some)
}

/// The load beside the probes.
struct Work {
    hogs: Hogs,
    busy: Option<Busy>,
    mix: Option<Mix>,
    lifo: Option<Lifo>,
}

/// The counters at one end of the window.
struct Reading {
    at: Instant,
    hogs: super::hog::Reading,
    /// Of the innocents.
    polls: u64,
    controller_ns: Option<u64>,
    neighbours: Vec<Duration>,
}

impl Work {
    fn start<E: Executor>(executor: &E, job: &Job, begin: &Begin) -> io::Result<Self> {
        let workload = &job.workload;
        let iterations = job.iterations(workload.busy_us);
        let hogs = Hogs::new(workload)?;
        let mix = workload
            .label_mix
            .then(|| Mix::start(executor, workload, &hogs, iterations, begin.clone()));
        let busy = (workload.busy > 0 && mix.is_none())
            .then(|| Busy::start(executor, workload.busy_via, workload.busy, iterations));
        let lifo = workload.lifo;
        let lifo = lifo.map(|known| Lifo::start(executor, known, &hogs, begin));
        // The others have started the hogs in their own way.
        match mix.is_some() || lifo.is_some() {
            true => {}
            false if workload.fresh => hogs.spawn_fresh(executor, workload.hog_via),
            false => hogs.spawn(executor, workload.hog_via),
        }
        Ok(Self {
            hogs,
            busy,
            mix,
            lifo,
        })
    }

    fn read<E: Executor>(&self, executor: &E, job: &Job) -> Reading {
        let (busy, mix) = (self.busy.as_ref(), self.mix.as_ref());
        Reading {
            at: Instant::now(),
            hogs: self.hogs.read(),
            polls: busy.map_or(0, Busy::polls) + mix.map_or(0, Mix::polls),
            controller_ns: executor.escalations().map(|e| e.controller_cpu_ns),
            neighbours: neighbours::cpu(&job.neighbours),
        }
    }

    fn finish(
        self,
        workload: &Workload,
        (first, last): (Reading, Reading),
        end: Instant,
        result: &mut RunResult,
    ) {
        let elapsed = last.at - first.at;
        let polls_per_s = (last.polls - first.polls) as f64 / elapsed.as_secs_f64();
        result.elapsed_s = elapsed.as_secs_f64();
        result.busy_polls_per_s = self.busy.as_ref().map(|_| polls_per_s);
        self.busy.iter().for_each(Busy::stop);
        result.mix_polls_per_s = self.mix.as_ref().map(|_| polls_per_s);
        result.mix_late_ns = self.mix.map(|mix| mix.close(end).summary());
        result.lifo_ns = self.lifo.map(|lifo| lifo.close(end).summary());
        result.hog = (workload.hogs > 0).then(|| {
            let window = (first.hogs, last.hogs);
            self.hogs.finish(window, elapsed, workload.drain())
        });
        result.neighbours_cpu = neighbours::share(&first.neighbours, &last.neighbours, elapsed);
        result.controller_cpu_share = share(first.controller_ns, last.controller_ns, elapsed);
    }
}

/// Sleeps through the window, which begins now, and reads at both ends. The window goes on until `wakes`, the wakes in it so
/// far, are enough for a p99, within bounds.
pub fn watch<R>(
    read: impl Fn() -> R,
    wakes: impl Fn() -> u64,
    workload: &Workload,
    from: Instant,
    stop: &AtomicBool,
) -> (R, R) {
    // Only now: every thread that this one started would have inherited it.
    thread::precise();
    let first = read();
    sleep(from + workload.window(), stop);
    let longest = from + workload.longest_window();
    while wakes() < SAMPLES_FOR_P99 && Instant::now() < longest && !stop.load(Relaxed) {
        sleep(Instant::now() + Duration::from_millis(5), stop);
    }
    (first, read())
}

/// Sleeps until `until`, or until told to stop.
pub fn sleep(until: Instant, stop: &AtomicBool) {
    const STEP: Duration = Duration::from_millis(100);
    while !stop.load(Relaxed) && Instant::now() < until {
        clock::sleep_until(until.min(Instant::now() + STEP));
    }
}

/// Runs nothing, and counts how often the runtime's threads are woken.
fn idle<E: Executor>(executor: &E, job: &Job, stop: &AtomicBool) -> RunResult {
    // Something must have run once, or the runtime would not even have begun.
    let soon = Instant::now() + Duration::from_millis(10);
    executor.block_on(async move { E::sleep_until(soon).await });
    sleep(Instant::now() + job.workload.warmup(), stop);
    let (start, before) = (Instant::now(), thread::voluntary_sleeps());
    let controller = executor.escalations().map(|e| e.controller_cpu_ns);
    sleep(start + job.workload.window(), stop);
    let wakeups = thread::voluntary_sleeps().saturating_sub(before);
    let escalations = executor.escalations();
    let controller_now = escalations.as_ref().map(|e| e.controller_cpu_ns);
    RunResult {
        elapsed_s: start.elapsed().as_secs_f64(),
        wakeups: Some(wakeups),
        controller_cpu_share: share(controller, controller_now, start.elapsed()),
        escalations,
        ..RunResult::empty(job.runtime)
    }
}

fn share(first: Option<u64>, last: Option<u64>, elapsed: Duration) -> Option<f64> {
    Some(last?.saturating_sub(first?) as f64 / elapsed.as_nanos().max(1) as f64)
}
