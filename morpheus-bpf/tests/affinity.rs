// SPDX-License-Identifier: GPL-2.0-only
//! Tasks that may run on some CPUs of a domain only, as those of containers with CPUs of their own.

mod common;

use std::time::Duration;

use common::daemon::Daemon;
use common::guest::{can_run, cpus, state};
use common::load::{Busy, Sleeping, compute_for, pin, pin_to, set_nice, shares};
use common::{say, sleep, turn};

/// Until vtimes are what they will be.
const SETTLE: Duration = Duration::from_secs(2);
const WINDOW: Duration = Duration::from_secs(4);

/// Threads that compute on these CPUs.
fn hogs(count: usize, nice: i32, on: &'static [usize]) -> Vec<Busy> {
    let prepare = move || {
        pin_to(on);
        set_nice(nice);
    };
    (0..count).map(|_| Busy::new(prepare)).collect()
}

/// The head of the main DSQ may be a task of other CPUs, whose vtime is less because more of them share those. It says nothing of
/// what waits here.
#[test]
fn a_task_of_other_cpus_does_not_decide_what_runs_here() {
    if !can_run() {
        return;
    }
    assert!(cpus() > 3, "this test needs four CPUs");
    let _turn = turn();
    let daemon = Daemon::schedule(&[]);
    let others = hogs(12, 0, &[2, 3]);
    let beside = hogs(4, 0, &[0, 1]);
    let pinned = Busy::new(|| pin(0));
    std::thread::sleep(SETTLE);
    let threads: Vec<&Busy> = beside.iter().chain([&pinned]).collect();
    // Of two CPUs for five threads.
    let of_a_cpu = 2.0 * shares(&threads, WINDOW)[4];
    say(&format!(
        "{of_a_cpu:.3} of a CPU for one that is pinned, where 0.4 is its share"
    ));
    assert!((0.3..=0.5).contains(&of_a_cpu), "{of_a_cpu:.3}");
    drop(others);
    assert_eq!(state(), "enabled");
    assert!(daemon.stop().success());
}

/// The part of two CPUs that threads of nice 0 get beside as many of nice 10, while others have two CPUs to themselves.
fn of_heavy_beside(alone: impl FnOnce() -> Vec<Busy>) -> f64 {
    let daemon = Daemon::schedule(&[]);
    let heavy = hogs(4, 0, &[0, 1]);
    let light = hogs(4, 10, &[0, 1]);
    let alone = alone();
    std::thread::sleep(SETTLE);
    let threads: Vec<&Busy> = heavy.iter().chain(&light).collect();
    let of_heavy = shares(&threads, WINDOW)[..4].iter().sum();
    say(&format!(
        "{of_heavy:.3} of two CPUs for threads of nice 0 beside as many of nice 10, where 0.90 is their share"
    ));
    drop(alone);
    assert_eq!(state(), "enabled");
    assert!(daemon.stop().success());
    of_heavy
}

/// Tasks that have CPUs to themselves go on whatever their vtime is. By it, all others would be late, and so equal. The same holds for
/// those that sleep, and come back to an idle CPU.
#[test]
fn a_task_alone_on_its_cpus_does_not_drive_the_clock() {
    if !can_run() {
        return;
    }
    assert!(cpus() > 3, "this test needs four CPUs");
    let _turn = turn();
    let of_heavy = of_heavy_beside(|| hogs(2, 0, &[2, 3]));
    assert!(of_heavy > 0.8, "{of_heavy:.3}");
    let prepare = || {
        pin_to(&[2, 3]);
        set_nice(10);
    };
    let again = || {
        compute_for(Duration::from_millis(9));
        sleep(Duration::from_millis(1));
    };
    let of_heavy = of_heavy_beside(|| (0..2).map(|_| Busy::repeating(prepare, again)).collect());
    assert!(of_heavy > 0.8, "beside those that sleep {of_heavy:.3}");
}

/// A light task that is alone advances the clock a hundred times as fast as time passes. One that goes on elsewhere does not fall as
/// far behind: a task that wakes there would wait for as long.
#[test]
fn a_light_task_alone_on_its_cpus_keeps_no_other_waiting() {
    if !can_run() {
        return;
    }
    assert!(cpus() > 3, "this test needs four CPUs");
    let _turn = turn();
    let daemon = Daemon::schedule(&[]);
    let alone = hogs(1, 19, &[2, 3]);
    let beside = hogs(2, 0, &[0, 1]);
    std::thread::sleep(SETTLE);
    let comes = Sleeping::new(Duration::from_millis(40), || pin_to(&[0, 1]));
    std::thread::sleep(3 * SETTLE);
    let late = comes.p99();
    say(&format!(
        "{late:?} at p99 for one that comes to two CPUs with a hog each"
    ));
    assert!(late < Duration::from_millis(100), "{late:?}");
    drop((alone, beside));
    assert_eq!(state(), "enabled");
    assert!(daemon.stop().success());
}
