// SPDX-License-Identifier: GPL-2.0-only
//! The scheduler's features for machines without any runtime, each seen at work: its counter moves under a load that calls
//! for it, and with its switch off it does not.

mod common;

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::daemon::Daemon;
use common::guest::{can_run, cpus, kernel_has, state};
use common::load::{Busy, Sleeping, Talking, Timed, compute_for, pin, set_nice};
use common::{PATIENCE, now_ns, say, sleep, tracing, turn};
use morpheus_bpf::procdb::file::{load_or_set_aside, save};
use morpheus_bpf::procdb::{COMM_BYTES, CONFIDENT_FROM, ProcDb};
use morpheus_tools::tier::Tier;
use rustix::thread::{ClockId, Timespec, clock_nanosleep_absolute};

const MS: Duration = Duration::from_millis(1);

/// Sleeps and wakes, and does next to nothing between.
fn sleeper(every: Duration) -> Busy {
    Busy::repeating(|| (), move || sleep(every))
}

/// Wants the CPU for a share of the time that is far more than its own, in pieces that look interactive.
fn greedy(pieces: Duration, nice: i32) -> Busy {
    Busy::repeating(
        move || set_nice(nice),
        move || {
            let begun = Instant::now();
            while begun.elapsed() < pieces {
                std::hint::spin_loop();
            }
            sleep(Duration::from_micros(50));
        },
    )
}

/// Threads that come and go, for a while.
fn storm(duration: Duration) {
    let until = Instant::now() + duration;
    while Instant::now() < until {
        let threads: Vec<_> = (0..16)
            .map(|_| std::thread::spawn(|| std::thread::sleep(MS / 2)))
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
    }
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

/// Sleeps often, and then computes for long.
fn moody() -> Busy {
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
}

/// Computes by itself, and has a name.
fn named(name: &str) -> Busy {
    let name = std::ffi::CString::new(name).unwrap();
    Busy::repeating(
        move || rustix::thread::set_name(&name).unwrap(),
        || sleep(5 * MS),
    )
}

/// Of much weight, and bound to its CPU.
fn heavy(cpu: usize) -> Busy {
    Busy::new(move || {
        set_nice(-10);
        pin(cpu);
    })
}

/// The threads that give each feature something to do.
fn everything() -> Vec<Busy> {
    let mut threads = Busy::many(cpus(), 0);
    threads.extend(Busy::many(cpus(), 10));
    threads.extend((0..3).map(|_| sleeper(3 * MS)));
    threads.extend((0..2 * cpus()).map(|index| heavy(index / 2)));
    threads.push(moody());
    threads.push(named("goes-first"));
    threads
}

/// Switch and counter of those that `everything` sets going.
const SEEN: [(&str, &str); 6] = [
    ("tiers", "became_lat_critical"),
    ("wakeup-preemption", "kicks_for_tier"),
    ("cpu-bound", "cpu_bound"),
    ("boost", "boosts"),
    ("overflow-rescue", "from_overflow_rescue"),
    ("longrun", "longruns"),
];

#[test]
fn each_feature_is_at_work() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let daemon = Daemon::schedule(&["--boost", "goes-first", "--with", "overflow-rescue,adapt"]);
    let threads = everything();
    let mut names = SEEN.map(|(_, name)| name).to_vec();
    names.extend([
        "to_lat_critical",
        "from_front",
        "wakeups",
        "enqueues_again",
        "to_main",
        "from_main",
        "cpu_bound_reversed",
    ]);
    daemon.all_move(&names);
    let numbers = daemon.numbers();
    let wakes = |tier: &str| -> u64 {
        let counts = numbers["tiers"][tier]["wake_latency"].as_array().unwrap();
        counts.iter().map(|count| count.as_u64().unwrap()).sum()
    };
    assert!(wakes("lat_critical") > 0 && wakes("batch") > 0, "{numbers}");
    assert!(numbers["sleeps"][1].as_u64().unwrap() > 0, "{numbers}");
    assert_eq!(numbers["longrun"], true);
    // No CPU is idle here, and that is seen after a few looks.
    let until = Instant::now() + 4 * PATIENCE;
    while daemon.numbers()["regime"] != "heavy" {
        assert!(Instant::now() < until, "{}", daemon.numbers());
        std::thread::sleep(300 * MS);
    }
    assert!(daemon.numbers()["knobs"]["slice_ns"].as_u64().unwrap() > 1_000_000);
    drop(threads);
    assert_eq!(state(), "enabled");
    assert!(daemon.stop().success());
}

#[test]
fn what_is_switched_off_stays_off() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    // All but the first, without which there would be none of them.
    let off: Vec<&str> = SEEN[1..].iter().map(|(switch, _)| *switch).collect();
    let off = off.join(",");
    let daemon = Daemon::schedule(&["--boost", "goes-first", "--without", &off]);
    let threads = everything();
    std::thread::sleep(Duration::from_millis(2500));
    let counters = daemon.numbers()["counters"].take();
    for (_, name) in &SEEN[1..] {
        assert_eq!(counters[*name], 0, "{name}");
    }
    assert_ne!(counters[SEEN[0].1], 0);
    drop(threads);
    assert!(daemon.stop().success());

    let daemon = Daemon::schedule(&["--without", "tiers"]);
    let threads = everything();
    std::thread::sleep(500 * MS);
    let numbers = daemon.numbers();
    for name in ["became_lat_critical", "to_lat_critical", "from_front"] {
        assert_eq!(numbers["counters"][name], 0, "{name}");
    }
    assert!(numbers["tiers"].is_null());
    drop(threads);
    assert!(daemon.stop().success());
}

/// A task that looks interactive and takes more than its share goes where the others are.
#[test]
fn nobody_gains_by_looking_interactive() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let daemon = Daemon::schedule(&[]);
    let honest = Busy::many(cpus(), 0);
    let posing: Vec<Busy> = (0..cpus()).map(|_| greedy(2 * MS, 0)).collect();
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

/// How late a thread wakes that sleeps for 5 ms at a time, at p99, beside a load.
fn lateness(arguments: &[&str], load: impl Fn() -> Vec<Busy>) -> Duration {
    let daemon = Daemon::schedule(arguments);
    let threads = load();
    std::thread::sleep(Duration::from_secs(1));
    let sleeping = Sleeping::new(5 * MS, || ());
    std::thread::sleep(Duration::from_secs(6));
    let late = sleeping.p99();
    drop(threads);
    assert_eq!(state(), "enabled");
    assert!(daemon.stop().success());
    late
}

/// Computes for longer than a slice, and then sleeps: when it wakes, it has as much credit as one that sleeps most of the time.
fn computing_in_parts() -> Busy {
    let again = || {
        let begun = Instant::now();
        while begun.elapsed() < 12 * MS {
            std::hint::spin_loop();
        }
        sleep(20 * MS);
    };
    Busy::repeating(|| (), again)
}

/// A thread that sleeps most of the time goes before those that have slept as well, and compute.
#[test]
fn the_front_queue_makes_wakes_early() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let load = || (0..8 * cpus()).map(|_| computing_in_parts()).collect();
    let (with, without) = (lateness(&[], load), lateness(&["--without", "tiers"], load));
    say(&format!(
        "p99 of lateness {with:?}, without tiers {without:?}"
    ));
    assert!(without >= 2 * with, "{with:?} {without:?}");
}

/// Pairs of threads that talk, beside a thread that computes for each CPU: the median time from a question to its answer.
fn round_trip(arguments: &[&str]) -> Duration {
    const PAIRS: usize = 14;
    let daemon = Daemon::schedule(arguments);
    let others = Busy::many(cpus(), 0);
    let times_ns = Arc::new(Mutex::new(Vec::new()));
    let pairs = (0..PAIRS).map(|_| {
        let (mut ask, mut answer) = UnixStream::pair().unwrap();
        // Ends with the one that asks, who closes the socket.
        std::thread::spawn(move || {
            let mut word = [0];
            while answer.read_exact(&mut word).is_ok() && answer.write_all(&word).is_ok() {}
        });
        let times_ns = Arc::clone(&times_ns);
        // No multiple of a tick.
        let again = move || {
            sleep(Duration::from_micros(3300));
            let asked_ns = now_ns();
            ask.write_all(&[1]).unwrap();
            ask.read_exact(&mut [0]).unwrap();
            times_ns.lock().unwrap().push(now_ns() - asked_ns);
        };
        Busy::repeating(|| (), again)
    });
    let pairs: Vec<Busy> = pairs.collect();
    std::thread::sleep(Duration::from_secs(1));
    times_ns.lock().unwrap().clear();
    std::thread::sleep(Duration::from_secs(2));
    drop((pairs, others));
    assert!(daemon.stop().success());
    let mut times_ns = times_ns.lock().unwrap();
    times_ns.sort_unstable();
    Duration::from_nanos(times_ns[times_ns.len() / 2])
}

#[test]
fn an_answer_is_given_before_the_next_question() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let (ahead, in_order) = (round_trip(&[]), round_trip(&["--without", "sync-ahead"]));
    say(&format!(
        "answers after {ahead:?}, by vtime alone after {in_order:?}"
    ));
    assert!(ahead < in_order * 7 / 10, "{ahead:?} {in_order:?}");
}

/// A thread that waits takes the CPU at a tick from one that computes. No control of `wakeup-preemption` is here: a thread that has
/// had less than its share preempts by its vtime as soon (11 of 1,103 wakes later than 1 ms with it, 9 of 1,118 without).
#[test]
fn preemption_at_ticks_makes_wakes_early() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let load = || Busy::many(2 * cpus(), 0);
    let at_ticks = lateness(&["--without", "wakeup-preemption,kick"], load);
    let none = lateness(
        &["--without", "wakeup-preemption,kick,tick-preemption"],
        load,
    );
    say(&format!(
        "p99 of lateness with preemption at ticks alone {at_ticks:?}, without preemption {none:?}"
    ));
    assert!(none >= 2 * at_ticks, "{at_ticks:?} {none:?}");
}

/// Enough of those that go first make the main queue go first; each bound by itself, with the others off.
#[test]
fn those_that_compute_are_served() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let bounds = [
        ("deficit", "from_deficit"),
        ("starvation-rescue", "from_starvation_rescue"),
        ("sojourn-rescue", "from_sojourn_rescue"),
    ];
    for (bound, counter) in bounds {
        let names = bounds.iter().map(|(name, _)| *name);
        let off: Vec<&str> = names.filter(|name| *name != bound).collect();
        let daemon = Daemon::schedule(&[
            "--with",
            "deficit,sojourn-rescue",
            "--without",
            &off.join(","),
        ]);
        let mut threads = Busy::many(2 * cpus(), 0);
        threads.extend((0..8).map(|_| greedy(MS / 2, 0)));
        daemon.all_move(&[counter]);
        for (_, other) in bounds.iter().filter(|(_, other)| *other != counter) {
            assert_eq!(daemon.counter(other), 0, "{other}");
        }
        drop(threads);
        assert!(daemon.stop().success());
    }
}

/// A tick is soon enough where tasks that go first follow each other.
#[test]
fn a_tick_makes_way_for_those_that_compute() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let load = || {
        let mut threads = Busy::many(cpus(), 19);
        // Of much weight, so that they keep to their share however much they compute.
        threads.extend((0..4 * cpus()).map(|_| greedy(3 * MS / 2, -15)));
        threads
    };
    let on = ["--with", "sojourn-rescue"];
    moves_only_with("preempted_for_sojourn", &on, &[], load, "from_front");
}

/// The longest time that one of these has had no CPU, beside two heavy threads that keep to each CPU.
fn wait_behind_pinned(arguments: &[&str]) -> Duration {
    let daemon = Daemon::schedule(arguments);
    let pinned: Vec<Busy> = (0..2 * cpus())
        .map(|index| {
            Busy::new(move || {
                set_nice(-20);
                pin(index / 2);
            })
        })
        .collect();
    let waiting: Vec<Timed> = (0..cpus()).map(|_| Timed::new(|| ())).collect();
    // The heavy ones begin with the vtime of usual threads.
    std::thread::sleep(Duration::from_secs(3));
    waiting.iter().for_each(|thread| {
        thread.longest();
    });
    std::thread::sleep(Duration::from_secs(4));
    let longest = waiting.iter().map(Timed::longest).max().unwrap();
    drop((pinned, waiting));
    assert_eq!(state(), "enabled");
    assert!(daemon.stop().success());
    longest
}

/// They are no less ahead of the main DSQ than those of the front DSQ.
#[test]
fn pinned_tasks_count_toward_the_deficit() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let with = wait_behind_pinned(&["--with", "deficit"]);
    let without = wait_behind_pinned(&[]);
    say(&format!(
        "behind heavy pinned threads the longest wait is {with:?}, {without:?} without the deficit"
    ));
    assert!(4 * with < without, "{with:?} {without:?}");
}

/// A frame is longer than a slice, and its rest waits no longer than its begin.
#[test]
fn a_task_that_others_wait_for_preempts_when_its_slice_is_over() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let frames = || {
        let again = || {
            compute_for(9 * MS);
            sleep(5 * MS);
        };
        let name = || rustix::thread::set_name(c"goes-first").unwrap();
        let mut threads = Busy::many(2 * cpus(), 0);
        threads.push(Busy::repeating(name, again));
        threads
    };
    let on = ["--boost", "goes-first", "--with", "requeue-preemption"];
    let off = ["--boost", "goes-first"];
    moves_only_with("claims_of_requeued", &on, &off, frames, "boosts");
}

/// By the number of forks, and by the change that they are.
#[test]
fn storms_are_found() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    for (off, counter, other) in [
        ("cusum", "bursts_by_wakes", "bursts_by_rate"),
        ("wakeup-burst", "bursts_by_rate", "bursts_by_wakes"),
    ] {
        // The formula for one CPU: emulated ones fork slowly.
        let daemon = Daemon::schedule(&["--nr-cpus", "1", "--without", off]);
        // Quiet first, so that there is a rate to change; with ticks.
        let computing = Busy::many(1, 0);
        std::thread::sleep(Duration::from_secs(1));
        let until = Instant::now() + 4 * PATIENCE;
        while daemon.counter(counter) == 0 {
            assert!(
                Instant::now() < until,
                "{counter}: {}",
                daemon.numbers()["counters"]
            );
            storm(300 * MS);
        }
        assert!(daemon.counter("immature") > 0);
        assert_eq!(daemon.counter(other), 0, "{other}");
        drop(computing);
        assert!(daemon.stop().success());
    }
}

/// The counters of the adaptive loop.
const STAGES: [&str; 5] = [
    "regimes_changed",
    "batch_slices_by_sleep",
    "sojourns_changed",
    "slices_tightened",
    "slices_relaxed",
];

/// One CPU computes all the time and the others for half of it: neither much is idle nor hardly anything.
fn mixed_load() -> Vec<Busy> {
    let half_of_it = |cpu| {
        let again = || {
            let begun = Instant::now();
            while begun.elapsed() < MS {
                std::hint::spin_loop();
            }
            sleep(MS);
        };
        Busy::repeating(move || pin(cpu), again)
    };
    let others = (1..cpus()).map(half_of_it);
    others.chain([Busy::new(|| pin(0))]).collect()
}

/// Sleep for short, and have to wait for the one that computes: enough of them that CPUs choose more than a thousand times in a
/// second, from where on the sojourn follows, and that most sleeps are short.
fn waiting_for_the_first_cpu() -> Vec<Busy> {
    let one = |_| Busy::repeating(|| pin(0), || sleep(MS / 3));
    (0..8).map(one).collect()
}

/// Without preemption, so that wakes wait for long.
#[test]
fn the_knobs_follow_what_is_seen() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let slow = "kick,wakeup-preemption,tick-preemption";
    let daemon = Daemon::schedule(&["--with", "adapt", "--without", slow]);
    let load = mixed_load();
    let waiting = waiting_for_the_first_cpu();
    daemon.all_move(&[
        "batch_slices_by_sleep",
        "sojourns_changed",
        "slices_tightened",
    ]);
    let more = Busy::many(2 * cpus(), 0);
    daemon.all_move(&["regimes_changed"]);
    drop((load, waiting, more));
    assert!(daemon.stop().success());

    let off = format!("{slow},regimes,tighten,sleep,sojourn");
    let daemon = Daemon::schedule(&["--with", "adapt", "--without", &off]);
    let load = (mixed_load(), waiting_for_the_first_cpu());
    std::thread::sleep(Duration::from_millis(3500));
    let counters = daemon.numbers()["counters"].take();
    for name in STAGES {
        assert_eq!(counters[name], 0, "{name}");
    }
    drop(load);
    assert!(daemon.stop().success());
}

/// Wakes, from the first CPU, one that may run on the second only and at once one that may run anywhere: where it is sent,
/// unless it is seen that another one was sent there before.
fn crowding() -> Busy {
    let listener = |place: Option<usize>| {
        let (sender, receiver) = channel::<()>();
        std::thread::spawn(move || {
            place.into_iter().for_each(pin);
            // Until who wakes it has ended.
            receiver.iter().for_each(drop);
        });
        sender
    };
    let listeners = [listener(Some(1)), listener(None)];
    let again = move || {
        for listener in &listeners {
            // It listens for as long as this is there.
            listener.send(()).unwrap();
        }
        sleep(MS / 2);
    };
    Busy::repeating(|| pin(0), again)
}

/// That a counter moves under a load where the scheduler was started with `on`, and not with `off`: where `beside`, which the
/// load moves as well, does.
fn moves_only_with(
    counter: &str,
    on: &[&str],
    off: &[&str],
    load: impl Fn() -> Vec<Busy>,
    beside: &str,
) {
    let daemon = Daemon::schedule(on);
    let threads = load();
    daemon.all_move(&[counter]);
    drop(threads);
    assert!(daemon.stop().success());

    let daemon = Daemon::schedule(off);
    let threads = load();
    daemon.all_move(&[beside]);
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(daemon.counter(counter), 0, "{off:?}");
    drop(threads);
    assert!(daemon.stop().success());
}

#[test]
fn an_idle_cpu_that_others_were_sent_to_gets_no_more() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let (on, off) = (["--with", "idle-depth"], []);
    let load = || vec![crowding()];
    moves_only_with("idle_cpu_full", &on, &off, load, "to_idle_cpu");
}

/// On many CPUs, which the formulas take these for: who is light is far behind after each of its slices.
#[test]
fn nobody_is_far_behind_where_the_clock_runs_fast() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let on = ["--nr-cpus", "8"];
    let off = ["--nr-cpus", "8", "--without", "vtime-ceiling"];
    let load = || {
        let mut threads = Busy::many(cpus(), 0);
        threads.extend(Busy::many(cpus(), 19));
        threads
    };
    moves_only_with("vtime_ceilings", &on, &off, load, "enqueues_again");
}

/// Until the next tick of all CPUs, where CONFIG_HZ is 250.
fn sleep_until_a_tick() {
    const TICK_NS: u64 = 4_000_000;
    let at_ns = (now_ns() / TICK_NS + 1) * TICK_NS;
    let at = Timespec {
        tv_sec: (at_ns / 1_000_000_000) as i64,
        tv_nsec: (at_ns % 1_000_000_000) as i64,
    };
    // Interrupted, it comes too early once.
    let _ = clock_nanosleep_absolute(ClockId::Monotonic, &at);
}

/// Threads of a class above take each CPU in the interrupt of each tick, and so at the end of each slice, too. All others
/// have their slices, though the kernel takes the task that ran there for one that may not move. A rescued task that loses its CPU
/// at that moment stays in front.
#[test]
fn threads_above_that_come_at_each_tick() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let daemon = Daemon::schedule(&[]);
    let mut threads = Busy::many(4 * cpus(), 0);
    let usual = threads.len();
    threads.extend(Busy::many(2 * cpus(), 19));
    threads.extend((0..cpus()).map(|cpu| Busy::above(cpu, sleep_until_a_tick)));
    let before: Vec<u64> = threads.iter().map(Busy::cpu_ns).collect();
    std::thread::sleep(Duration::from_secs(1));
    for (thread, before) in threads.iter().zip(before).take(usual) {
        assert!(thread.cpu_ns() > before, "one stood still for a second");
    }
    daemon.all_move(&["rescues"]);
    // Newer kernels put back tasks that wait there, at another moment.
    if !kernel_has("scx_bpf_dsq_reenq") {
        daemon.all_move(&["rescued_again"]);
    }
    drop(threads);
    assert!(daemon.stop().success());
}

/// One that could not preempt when it came does so at a tick.
#[test]
fn a_tick_preempts_for_who_waits() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let daemon = Daemon::schedule(&["--without", "wakeup-preemption,kick"]);
    let mut threads = Busy::many(2 * cpus(), 0);
    threads.extend((0..4).map(|_| sleeper(MS)));
    daemon.all_move(&["preempted_at_tick"]);
    drop(threads);
    assert!(daemon.stop().success());
}

/// The kernel's workers that sleep and wake whether or not the scheduler knows them.
#[test]
fn work_queues_are_not_taken_for_tasks_that_compute() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let daemon = Daemon::schedule(&[]);
    let until = Instant::now() + 4 * PATIENCE;
    while daemon.counter("kworkers_raised") == 0 {
        assert!(Instant::now() < until, "none was raised");
        fork_storm(200 * MS);
    }
    assert!(daemon.stop().success());
}

/// Observations are kept, tasks begin with what is known of their name, and a file that is no database is set aside.
#[test]
fn what_was_learnt_is_kept() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let directory = std::env::temp_dir().join(format!("morpheus-procdb-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let file = directory.join("procdb.bin");
    let path = file.to_str().unwrap();
    // As many runs of an emulated machine would have made it.
    let mut comm = [0; COMM_BYTES];
    comm[..6].copy_from_slice(b"learnt");
    let mut known = ProcDb::new();
    for _ in 0..=2 * CONFIDENT_FROM {
        known.advance();
        known.observe(comm, Tier::LatCritical, 100_000);
    }
    assert_eq!(known.confident(), 1);
    save(&known, &file).unwrap();

    let daemon = Daemon::schedule(&["--procdb", path]);
    assert_eq!(daemon.numbers()["procdb"]["confident"], 1);
    let threads = [named("learnt"), sleeper(MS), sleeper(MS)];
    daemon.all_move(&["warm_starts"]);
    let until = Instant::now() + 4 * PATIENCE;
    while daemon.numbers()["procdb"]["profiles"].as_u64().unwrap() < 2 {
        assert!(Instant::now() < until, "nothing is learnt");
        std::thread::sleep(300 * MS);
    }
    drop(threads);
    assert!(daemon.stop().success());
    let (kept, said) = load_or_set_aside(&file);
    assert!(kept.len() >= 2 && said.is_none(), "{said:?}");

    std::fs::write(&file, b"no database").unwrap();
    // It says so, and that comes first.
    let daemon = Daemon::spawn(&["--procdb", path], "set aside");
    assert!(directory.join("procdb.bin.corrupt-1").exists());
    assert!(daemon.stop().success());
    std::fs::remove_dir_all(&directory).unwrap();
}

/// Where the next tick comes as soon as the end of the pause between two kicks of other CPUs, it looks whether a task waits, and no
/// timer is set for a kick that was skipped.
#[test]
fn no_timer_is_set_for_what_a_tick_does() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let daemon = Daemon::schedule(&[]);
    let pairs: Vec<Talking> = (0..4 * cpus()).map(|_| Talking::new(|| ())).collect();
    // Until it is known how many ticks a second has.
    std::thread::sleep(4000 * MS);
    let before = daemon.counter("kicks_skipped_for_sync");
    tracing::prepare(8192);
    tracing::write("events/timer/hrtimer_start/enable", "1");
    tracing::write("tracing_on", "1");
    std::thread::sleep(2000 * MS);
    let trace = tracing::end();
    tracing::write("events/timer/hrtimer_start/enable", "0");
    let skipped = daemon.counter("kicks_skipped_for_sync") - before;
    tracing::write("trace", "");
    let of_programs = |line: &&str| line.contains("function=bpf_timer_cb");
    let timers = trace.lines().filter(of_programs).count() as u64;
    say(&format!("{timers} timers for {skipped} skipped kicks"));
    drop(pairs);
    assert_eq!(state(), "enabled");
    assert!(daemon.stop().success());
    assert!(skipped > 1000, "{skipped}");
    // Where each CPU has one for each pause, these are 500 for each.
    assert!(timers < 250 * cpus() as u64, "{timers} {skipped}");
}
