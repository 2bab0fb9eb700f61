// SPDX-License-Identifier: GPL-2.0-only
//! Tasks that may run on one CPU only, beside others that compute.

mod common;

use std::time::Duration;

use common::daemon::Daemon;
use common::guest::{can_run, cpus, state};
use common::load::{Busy, Sleeping, pin, shares};
use common::{say, turn, window};
use rustix::process::{Pid, setpriority_process};

/// Time between two wakes.
const EVERY: Duration = Duration::from_millis(5);

/// How long wakes are measured, in seconds, if not 12.
const SECONDS: &str = "MORPHEUS_PINNED_SECONDS";

/// How late a thread on the first CPU wakes, at p99, while a thread on each CPU computes.
fn lateness(arguments: &[&str]) -> Duration {
    let daemon = Daemon::schedule(arguments);
    let computing: Vec<Busy> = (0..cpus()).map(|cpu| Busy::new(move || pin(cpu))).collect();
    // The thread that runs alone on its CPU takes the clock along from here on.
    std::thread::sleep(Duration::from_secs(1));
    let sleeping = Sleeping::new(EVERY, || pin(0));
    std::thread::sleep(window(SECONDS));
    let late = sleeping.p99();
    drop(computing);
    assert_eq!(state(), "enabled");
    assert!(daemon.stop().success());
    late
}

/// One that sleeps on the first CPU, where another computes, does not wait because one on the other CPU is ahead of both.
#[test]
fn a_pinned_task_that_sleeps_does_not_wait_for_another_cpus_clock() {
    if !can_run() {
        return;
    }
    assert!(cpus() > 1, "this test needs several CPUs");
    let _turn = turn();
    let (with, without) = (lateness(&[]), lateness(&["--without", "pinned-clock"]));
    say(&format!(
        "p99 of lateness {with:?}, by the clock of all CPUs {without:?}"
    ));
    assert!(with <= Duration::from_millis(2), "{with:?}");
    assert!(without >= 5 * with, "{without:?}");
}

/// A change of a running thread takes it off its CPU and puts it back, on the CPU of the thread that makes the change. That one must
/// not be charged for it, or be rid of what it owes itself.
#[test]
fn one_that_changes_others_gets_no_more_than_its_share() {
    if !can_run() {
        return;
    }
    assert!(cpus() > 1, "this test needs several CPUs");
    let _turn = turn();
    let daemon = Daemon::schedule(&[]);
    let changed = Busy::new(|| pin(0));
    // It has more CPU time than the others by then.
    std::thread::sleep(Duration::from_secs(2));
    let (mut turns, tid) = (0, Pid::from_raw(changed.tid as i32));
    let change = move || {
        turns += 1;
        if turns % 50 == 0 {
            setpriority_process(tid, turns / 50 % 2).unwrap();
        }
    };
    let changing = Busy::repeating(|| pin(1), change);
    let equal = Busy::new(|| pin(1));
    std::thread::sleep(Duration::from_millis(500));
    let shares = shares(&[&changing, &equal], Duration::from_secs(4));
    say(&format!(
        "{:.3} of the CPU for one that changes another, {:.3} for its equal",
        shares[0], shares[1]
    ));
    assert!((0.4..=0.6).contains(&shares[0]), "{shares:?}");
    assert_eq!(state(), "enabled");
    assert!(daemon.stop().success());
}
