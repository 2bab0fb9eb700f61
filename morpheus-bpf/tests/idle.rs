// SPDX-License-Identifier: GPL-2.0-only
//! Idle CPUs beside tasks that wait: each CPU that may run one is told of it.

mod common;

use std::collections::HashSet;
use std::time::{Duration, Instant};

use common::daemon::Daemon;
use common::guest::{can_run, cpus, state};
use common::load::{Busy, Talking, Timed, compute, pin_to};
use common::waiting::Trace;
use common::{now_ns, say, sleep, turn};

/// How long threads are measured.
const WHILE: Duration = Duration::from_secs(4);

/// From one thread of a class above to the next, on the next CPU.
const STEP_NS: u64 = 10_000_000;

/// The threads stay on the first CPUs, of which one is always idle.
const CPUS: usize = 2;

/// How long each of them computes: a part of [`STEP_NS`].
const PART: f64 = 0.3;

/// Takes a CPU as a real-time thread, and computes there: on one CPU after the other, so that it is never for long where
/// another thread has gone.
fn passing(cpu: usize) -> Busy {
    let round_ns = STEP_NS * CPUS as u64;
    let again = move || {
        let now = now_ns();
        let next = (now / round_ns + 1) * round_ns + STEP_NS * cpu as u64;
        sleep(Duration::from_nanos(next - now));
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_nanos(STEP_NS).mul_f64(PART) {
            compute();
        }
    };
    Busy::above(cpu, again)
}

/// Which part of the time a thread that computes has a CPU.
fn part(arguments: &[&str]) -> (f64, u64) {
    let daemon = Daemon::schedule(arguments);
    let passing: Vec<Busy> = (0..CPUS).map(passing).collect();
    let computing = Busy::new(|| pin_to(&std::array::from_fn::<_, CPUS, _>(|cpu| cpu)));
    std::thread::sleep(Duration::from_millis(500));
    let (begun_ns, before_ns) = (now_ns(), computing.cpu_ns());
    std::thread::sleep(WHILE);
    let part = (computing.cpu_ns() - before_ns) as f64 / (now_ns() - begun_ns) as f64;
    drop((computing, passing));
    let kicks = daemon.counter("kicks_idle");
    assert_eq!(state(), "enabled");
    assert!(daemon.stop().success());
    (part, kicks)
}

/// A thread that loses its CPU to a real-time thread goes on at once where another is idle.
#[test]
fn a_displaced_task_goes_to_an_idle_cpu() {
    if !can_run() {
        return;
    }
    assert!(cpus() >= CPUS, "this test needs several CPUs");
    let _turn = turn();
    let ((with, kicks), (without, none)) = (part(&[]), part(&["--without", "kick-idle"]));
    say(&format!(
        "part of the time that it has a CPU: {with:.3}, {without:.3} where idle CPUs are not told"
    ));
    assert!(kicks > 0);
    assert_eq!(none, 0);
    assert!(with > 0.95, "{with:.3}");
    assert!(without < 1.0 - PART / 2.0, "{without:.3}");
}

/// How often the next test looks, for [`WHILE`] each time: a trace of all of it would be too long.
const LOOKS: usize = 6;

/// A busy CPU looks at its ticks for tasks that wait beside an idle one, 4 ms apart.
const MOST_BESIDE_IDLE: Duration = Duration::from_millis(10);

/// A CPU may find the queues empty, and idle, while another one puts a task there that it has told no idle CPU of, as there was none.
#[test]
fn a_cpu_that_goes_idle_does_not_miss_a_task() {
    if !can_run() {
        return;
    }
    assert!(cpus() >= CPUS, "this test needs several CPUs");
    let _turn = turn();
    let daemon = Daemon::schedule(&[]);
    let pair = Talking::new(|| ());
    let sleeping = [(); 2].map(|()| Timed::sleeping(Duration::from_millis(1)));
    let mut tids = HashSet::from(pair.tids);
    tids.extend(sleeping.iter().map(|sleeping| sleeping.thread.tid));
    let longest = (0..LOOKS).map(|_| {
        let trace = Trace::start();
        std::thread::sleep(WHILE);
        trace.end(cpus(), &tids).longest_beside_idle_ns
    });
    let longest = Duration::from_nanos(longest.max().unwrap());
    let missed = daemon.numbers()["counters"]["idle_missed"].take();
    say(&format!(
        "a thread waits beside an idle CPU for {longest:?} at most; {missed} kicks of CPUs that had missed one"
    ));
    drop((pair, sleeping));
    assert_eq!(state(), "enabled");
    assert!(daemon.stop().success());
    assert!(longest < MOST_BESIDE_IDLE, "{longest:?}");
}
