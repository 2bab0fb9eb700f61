// SPDX-License-Identifier: GPL-2.0-only
//! The scheduler's features for machines without any runtime, each seen at work: its counter moves under a load that calls
//! for it, and with its switch off it does not.

mod common;

use std::process::Command;
use std::time::{Duration, Instant};

use common::daemon::Daemon;
use common::guest::{can_run, cpus, state};
use common::load::{Busy, pin, set_nice};
use common::{PATIENCE, say, sleep, turn};

const MS: Duration = Duration::from_millis(1);

/// Waits until a counter is above 0.
fn moves(daemon: &Daemon, name: &str) {
    let until = Instant::now() + 4 * PATIENCE;
    while daemon.counter(name) == 0 {
        assert!(
            Instant::now() < until,
            "{name} stays at 0: {}",
            daemon.numbers()["counters"]
        );
        std::thread::sleep(100 * MS);
    }
}

/// Sleeps and wakes, and does next to nothing between.
fn sleeper(every: Duration) -> Busy {
    Busy::repeating(|| (), move || sleep(every))
}

/// Wants the CPU for a share of the time that is far more than its own, in pieces that look interactive.
fn greedy(pieces: Duration) -> Busy {
    Busy::repeating(
        || (),
        move || {
            let begun = Instant::now();
            while begun.elapsed() < pieces {
                std::hint::spin_loop();
            }
            sleep(Duration::from_micros(50));
        },
    )
}

/// Programs that come and go, for a while.
fn fork_storm(duration: Duration) {
    let until = Instant::now() + duration;
    while Instant::now() < until {
        let children: Vec<_> = (0..16)
            .map(|_| Command::new("/bin/true").spawn().unwrap())
            .collect();
        for mut child in children {
            child.wait().unwrap();
        }
    }
}

/// Starts the daemon, then the load (beside one, loading takes long in emulation), and stops both in the other order.
fn under<L>(arguments: &[&str], load: impl FnOnce() -> L, check: impl FnOnce(&Daemon)) {
    let daemon = Daemon::schedule(arguments);
    let load = load();
    check(&daemon);
    drop(load);
    assert_eq!(state(), "enabled");
    assert!(daemon.stop().success());
}

/// What is switched off does not happen, under the load that made it happen.
fn stays<L>(arguments: &[&str], name: &str, load: impl FnOnce() -> L) {
    under(arguments, load, |daemon| {
        std::thread::sleep(500 * MS);
        assert_eq!(daemon.counter(name), 0, "{name} with {arguments:?}");
    });
}

#[test]
fn tasks_become_what_they_behave_like() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let load = || {
        let mut threads = Busy::many(2 * cpus(), 0);
        threads.extend((0..4).map(|_| sleeper(3 * MS)));
        threads
    };
    under(&[], load, |daemon| {
        for name in [
            "became_lat_critical",
            "to_lat_critical",
            "from_front",
            "kicks_for_tier",
            "wakeups",
            "enqueues_again",
            "to_main",
            "from_main",
        ] {
            moves(daemon, name);
        }
    });
    stays(&["--without", "wakeup-preemption"], "kicks_for_tier", load);
    stays(&["--without", "tiers"], "to_lat_critical", load);
}

/// Who sleeps and then computes is one that computes, until it sleeps.
#[test]
fn a_long_turn_demotes_and_a_sleep_reverses_it() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let load = || {
        Busy::repeating(
            || (),
            || {
                for _ in 0..10 {
                    sleep(2 * MS);
                }
                let begun = Instant::now();
                while begun.elapsed() < 40 * MS {
                    std::hint::spin_loop();
                }
            },
        )
    };
    under(&[], load, |daemon| {
        moves(daemon, "cpu_bound");
        moves(daemon, "cpu_bound_reversed");
    });
    stays(&["--without", "cpu-bound"], "cpu_bound", load);
}

#[test]
fn some_names_go_first_always() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let named = || {
        let thread = std::thread::Builder::new().name("goes-first".into());
        thread
            .spawn(|| {
                // By itself it would be one that computes.
                for _ in 0..50 {
                    common::load::compute();
                    sleep(5 * MS);
                }
            })
            .unwrap()
            .join()
            .unwrap();
    };
    under(&["--boost", "goes-first"], named, |daemon| {
        moves(daemon, "boosts");
    });
    stays(&["--boost", "somebody-else"], "boosts", named);
    stays(
        &["--boost", "goes-first", "--without", "boost"],
        "boosts",
        named,
    );
}

/// Whoever looks interactive and takes more than its share goes where the others are.
#[test]
fn nobody_gains_by_looking_interactive() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let load = || {
        let posing: Vec<Busy> = (0..cpus()).map(|_| greedy(2 * MS)).collect();
        (Busy::many(cpus(), 0), posing)
    };
    let daemon = Daemon::schedule(&[]);
    let (honest, posing) = load();
    std::thread::sleep(500 * MS);
    let sum = |threads: &[Busy]| threads.iter().map(Busy::cpu_ns).sum::<u64>();
    let (honest_before, posing_before) = (sum(&honest), sum(&posing));
    std::thread::sleep(Duration::from_secs(4));
    let honest_ns = (sum(&honest) - honest_before) as f64;
    let posing_ns = (sum(&posing) - posing_before) as f64;
    drop((honest, posing));
    say(&format!("posing {:.2} of honest", posing_ns / honest_ns));
    assert!(posing_ns < 1.3 * honest_ns, "{posing_ns} of {honest_ns}");
    assert!(daemon.stop().success());
}

/// Enough of those that go first make it the main queue's turn; each bound by itself, with the others off.
#[test]
fn those_that_compute_have_their_turn() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let load = || {
        let mut threads = Busy::many(2 * cpus(), 0);
        threads.extend((0..8).map(|_| greedy(MS / 2)));
        threads
    };
    let bounds = [
        ("deficit", "from_deficit"),
        ("starvation-rescue", "from_starvation_rescue"),
        ("sojourn-rescue", "from_sojourn_rescue"),
    ];
    let but = |kept: &str| {
        let names = bounds.iter().map(|(name, _)| *name);
        names
            .filter(|name| *name != kept)
            .collect::<Vec<_>>()
            .join(",")
    };
    for (bound, counter) in bounds {
        under(&["--without", &but(bound)], load, |daemon| {
            moves(daemon, counter);
            for (_, other) in bounds.iter().filter(|(_, other)| *other != counter) {
                assert_eq!(daemon.counter(other), 0, "{other}");
            }
        });
    }
}

/// Pinned tasks of much weight would keep the others away for long.
#[test]
fn who_waits_behind_pinned_tasks_is_overdue() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let load = || {
        let mut threads: Vec<Busy> = (0..2 * cpus())
            .map(|index| {
                Busy::new(move || {
                    set_nice(-20);
                    pin(index / 2);
                })
            })
            .collect();
        threads.extend(Busy::many(cpus(), 10));
        threads
    };
    under(&[], load, |daemon| moves(daemon, "from_overflow_rescue"));
    stays(
        &["--without", "overflow-rescue"],
        "from_overflow_rescue",
        load,
    );
}

#[test]
fn storms_of_strangers_are_found() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let storm = || fork_storm(500 * MS);
    under(&["--without", "cusum"], storm, |daemon| {
        moves(daemon, "bursts_by_wakes");
        moves(daemon, "immature");
    });
    stays(
        &["--without", "wakeup-burst,cusum"],
        "bursts_by_wakes",
        storm,
    );
}

#[test]
fn a_change_of_the_rate_is_found() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let load = || {
        let computing = Busy::many(cpus(), 0);
        // Quiet first, so that there is a rate to change.
        std::thread::sleep(Duration::from_secs(1));
        fork_storm(300 * MS);
        computing
    };
    under(&["--without", "wakeup-burst"], load, |daemon| {
        let until = Instant::now() + 4 * PATIENCE;
        while daemon.counter("bursts_by_rate") == 0 {
            assert!(Instant::now() < until, "no change was found");
            std::thread::sleep(300 * MS);
            fork_storm(300 * MS);
        }
    });
    stays(&["--without", "wakeup-burst,cusum"], "bursts_by_rate", load);
}

#[test]
fn long_runs_are_found() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let load = || Busy::many(2 * cpus(), 0);
    under(&[], load, |daemon| moves(daemon, "longruns"));
    stays(&["--without", "longrun"], "longruns", || {
        let computing = load();
        std::thread::sleep(Duration::from_secs(2));
        computing
    });
}

/// One that could not preempt when it came does so at a tick.
#[test]
fn a_tick_preempts_for_who_waits() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let load = || {
        let mut threads = Busy::many(2 * cpus(), 0);
        threads.extend((0..4).map(|_| sleeper(MS)));
        threads
    };
    under(&["--without", "wakeup-preemption,kick"], load, |daemon| {
        moves(daemon, "preempted_at_tick");
    });
    stays(
        &["--without", "wakeup-preemption,kick,tick-preemption"],
        "preempted_at_tick",
        load,
    );
}

/// The kernel's workers sleep and wake whether or not the scheduler knows them.
#[test]
fn work_queues_are_not_taken_for_tasks_that_compute() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let write = || {
        for number in 0..10 {
            let path = std::env::temp_dir().join(format!("morpheus-floor-{number}"));
            std::fs::write(&path, vec![1u8; 1 << 16]).unwrap();
            std::fs::remove_file(&path).unwrap();
            fork_storm(20 * MS);
        }
    };
    under(&[], write, |daemon| {
        let until = Instant::now() + 4 * PATIENCE;
        while daemon.counter("kworkers_raised") == 0 {
            assert!(Instant::now() < until, "none was raised");
            write();
        }
    });
    stays(&["--without", "kworker-floor"], "kworkers_raised", write);
}
