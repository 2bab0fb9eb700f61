// SPDX-License-Identifier: GPL-2.0-only
//! Work conservation: no CPU idles while a task waits that may run there, beside what the kernel's own scheduler wastes.
//! `MORPHEUS_CONSERVING_BESIDE=COMMAND` shows what another scheduler wastes.

mod common;

use std::time::{Duration, Instant};

use common::daemon::Daemon;
use common::guest::{can_run, cpus, kernel_has, state};
use common::load::Busy;
use common::other::Other;
use common::waiting::{Trace, Waiting};
use common::{say, sleep, turn};
use morpheus_tools::reading::Reading;
use morpheus_tools::telemetry::Rates;

/// Computes in steps of a few microseconds. An emulated CPU that is to wake up waits for a step of each of the others.
fn step_for(duration: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < duration {
        (0..100u64).for_each(|word| {
            std::hint::black_box(word);
        });
        std::hint::spin_loop();
    }
}

/// Threads that compute on five of eight CPUs, and one for each CPU that computes for half a millisecond and sleeps for some:
/// CPUs go idle all the time, and often there are tasks that wait.
fn mixed_load() -> Vec<Busy> {
    let computing =
        (0..cpus() * 5 / 8).map(|_| Busy::repeating(|| (), || step_for(Duration::from_millis(10))));
    let sleeping = (0..cpus() as u64).map(|number| {
        let again = move || {
            step_for(Duration::from_micros(300 + 60 * (number % 7)));
            sleep(Duration::from_micros(2500 + 300 * (number % 11)));
        };
        Busy::repeating(|| (), again)
    });
    computing.chain(sleeping).collect()
}

/// The time that CPUs waste beside waiting threads of the mixed load, under a scheduler that runs meanwhile.
fn waste() -> Waiting {
    let threads = mixed_load();
    std::thread::sleep(Duration::from_millis(500));
    let trace = Trace::start();
    std::thread::sleep(Duration::from_secs(2));
    let tids = threads.iter().map(|thread| thread.tid).collect();
    let waste = trace.end(cpus(), &tids);
    drop(threads);
    waste
}

/// Under this scheduler, with these arguments.
fn waste_with(arguments: &[&str]) -> Waiting {
    let daemon = Daemon::schedule(arguments);
    let (begun, before) = (Instant::now(), Reading::parse(&daemon.numbers()));
    let waste = waste();
    let rates = Rates::between(&before, &Reading::parse(&daemon.numbers()), begun.elapsed());
    let locks = rates.locks_per_pick().unwrap();
    say(&format!("locks of queues for each pick: {locks:.2}"));
    // Where the kernel tells without a lock which task is the first of a queue.
    if kernel_has("scx_bpf_dsq_peek") {
        assert!(locks <= 1.1, "{locks:.2}");
    }
    assert_eq!(state(), "enabled");
    assert!(daemon.stop().success());
    waste
}

#[test]
fn cpus_do_not_idle_while_tasks_wait() {
    if !can_run() {
        return;
    }
    assert!(cpus() > 1, "this test needs several CPUs");
    let _turn = turn();
    let kernels = waste();
    let with = waste_with(&[]);
    let without = waste_with(&["--without", "kick-idle,steal"]);
    let beside = std::env::var("MORPHEUS_CONSERVING_BESIDE").ok();
    let other = beside.as_ref().map(|command| {
        let _other = Other::start(command);
        let waste = waste();
        assert_eq!(state(), "enabled", "{command} was thrown out");
        (command.as_str(), waste)
    });
    let known = [
        ("scheduler", with),
        ("without kick-idle and steal", without),
        ("the kernel's", kernels),
    ];
    for (name, waste) in known.into_iter().chain(other) {
        let part = |ns: u64| 100.0 * waste.share(ns);
        say(&format!(
            "{name}: of all CPU time, idle {:.2} %, idle while a task waits {:.3} %, a task waits beside an idle CPU that had time \
             to wake up {:.3} %",
            part(waste.idle_ns),
            part(waste.idle_while_waiting_ns),
            part(waste.beside_idle_ns),
        ));
    }
    let beside = |waste: &Waiting| waste.share(waste.beside_idle_ns);
    assert!(beside(&with) <= 0.002, "{with:?}");
    assert!(beside(&without) > 2.0 * beside(&with), "{without:?}");
}
