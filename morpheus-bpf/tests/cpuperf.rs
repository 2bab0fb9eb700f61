// SPDX-License-Identifier: GPL-2.0-only
//! The scheduler's requests to a frequency governor, in a guest whose CPUs have frequencies: there, schedutil decides, and
//! the kernel's tracing says what it asked for and when. No CPU is any faster for it.

mod common;

use std::ffi::CString;
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::client::Client;
use common::daemon::Daemon;
use common::frequency::{
    Event, Governor, Start, Trace, highest_khz, lowest_khz, present_khz, starts, tick_ns,
};
use common::guest::{can_run, cpus, wait_until};
use common::load::{Busy, compute_for, pin};
use common::{PATIENCE, say, sleep, turn};
use morpheus_common::abi;
use morpheus_common::broker::Request;
use morpheus_common::slot::SlotFlag;

/// So often a worker begins.
const STARTS: usize = 100;
/// Longer than full speed is kept.
const PAUSE: Duration = Duration::from_millis(60);
/// Longer than a tick.
const WORK: Duration = Duration::from_millis(6);

/// An application whose polls may take as long as these do.
fn client(daemon: &Daemon) -> Arc<Client> {
    let hello = Request::Hello {
        abi_version: abi::MORPHEUS_ABI_VERSION,
        slots: 8,
        policy: abi::MORPHEUS_POLICY_REQUEST,
        budget_ns: 10 * WORK.as_nanos() as u64,
        grace_ns: 1_000_000,
    };
    Arc::new(Client::with(&daemon.socket, hello))
}

/// A worker that begins a poll now and then, on a machine that is nearly idle, and one that does little beside it.
/// Returns its starts.
fn serve(daemon: &Daemon, flag: Option<SlotFlag>) -> Vec<Start> {
    let client = client(daemon);
    let _little = Busy::repeating(|| (), || sleep(Duration::from_millis(20)));
    traced(move || {
        let slot = client.register(3);
        // A hog that parks is none any more.
        let parks = flag != Some(SlotFlag::Hog);
        if !parks {
            slot.unpark();
        }
        if let Some(flag) = flag {
            slot.set_flag(flag);
        }
        let trace = Trace::start(common::wire::gettid());
        for _ in 0..STARTS {
            if parks {
                slot.park();
            }
            sleep(PAUSE);
            if parks {
                slot.unpark();
            }
            let seq = slot.begin_poll();
            compute_for(WORK);
            slot.end_poll(seq);
        }
        if parks {
            slot.park();
        }
        trace.events()
    })
}

/// A task of this name that wakes now and then and computes for a while, on a machine that is nearly idle. Returns its
/// starts.
fn wake(name: &str) -> Vec<Start> {
    let name = CString::new(name).unwrap();
    traced(move || {
        rustix::thread::set_name(&name).unwrap();
        let trace = Trace::start(common::wire::gettid());
        for _ in 0..STARTS {
            sleep(PAUSE);
            compute_for(WORK);
        }
        trace.events()
    })
}

/// The starts of a thread that runs `task`: it pauses between them, and returns the traced events.
fn traced(task: impl FnOnce() -> Vec<Event> + Send + 'static) -> Vec<Start> {
    // As the scheduler begins, CPUs may be at any speed.
    settle();
    let initial: Vec<u64> = (0..cpus()).map(present_khz).collect();
    let events = std::thread::spawn(task).join().unwrap();
    let starts = starts(
        &events,
        &initial,
        PAUSE.as_nanos() as u64 / 2,
        highest_khz(0),
    );
    assert!(starts.len() > STARTS * 9 / 10, "{} traced", starts.len());
    starts
}

/// Waits until every CPU is at its lowest frequency, or for some time.
fn settle() {
    let until = Instant::now() + Duration::from_secs(1);
    while Instant::now() < until && (0..cpus()).any(|cpu| present_khz(cpu) > lowest_khz(cpu)) {
        sleep(Duration::from_millis(50));
    }
}

/// Of those that began below the highest frequency, how long until it was asked for, in order; `None` as the longest.
fn delays(starts: &[Start]) -> Vec<u64> {
    let below = starts
        .iter()
        .filter(|start| start.before_khz < highest_khz(0));
    let mut delays: Vec<u64> = below
        .map(|start| start.until_highest_ns.unwrap_or(u64::MAX))
        .collect();
    delays.sort_unstable();
    delays
}

fn us(ns: u64) -> String {
    match ns {
        u64::MAX => "never".into(),
        ns => format!("{} µs", ns / 1000),
    }
}

#[test]
fn a_worker_that_serves_has_full_speed_within_a_tick() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let _governor = Governor::set("schedutil", cpus());
    let daemon = Daemon::schedule(&[]);
    let starts = serve(&daemon, None);
    let delays = delays(&starts);
    let at = |percent: usize| us(delays[(delays.len() - 1) * percent / 100]);
    let tick = tick_ns();
    let within = delays.iter().filter(|delay| **delay <= tick).count();
    let (asked, kept) = (
        daemon.counter("full_speed"),
        daemon.counter("full_speed_kept"),
    );
    say(&format!(
        "{} starts of a worker, {} of them below the highest frequency; from the switch until schedutil asked for the \
         highest: p0 {}, p50 {}, p90 {}, p99 {}, longest {}; within a tick ({}): {within}; asked anew {asked}, again {kept}",
        starts.len(),
        delays.len(),
        at(0),
        at(50),
        at(90),
        at(99),
        at(100),
        us(tick),
    ));
    assert!(
        delays.len() > STARTS / 2,
        "it is below the highest frequency before: {starts:?}"
    );
    // Emulated CPUs take turns, and one may wait for longer than a tick until it can go on. One alone is exact.
    let late = delays.len() - within;
    assert!(
        late <= if cpus() > 1 { STARTS / 20 } else { 0 },
        "{delays:?}"
    );
    assert!(asked >= delays.len() as u64);
    wait_until("idle CPUs ask for nothing", || {
        (0..cpus()).all(|cpu| present_khz(cpu) == lowest_khz(cpu))
            && daemon.counter("speed_dropped") > 0
    });
    assert!(daemon.stop().success());
}

#[test]
fn switched_off_it_does_nothing() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let _governor = Governor::set("schedutil", cpus());
    let daemon = Daemon::schedule(&["--off", "cpuperf"]);
    let risen = delays(&serve(&daemon, None));
    let risen = risen.iter().filter(|delay| **delay <= tick_ns()).count();
    let asked = daemon.counter("full_speed") + daemon.counter("full_speed_kept");
    say(&format!(
        "with --off cpuperf: {risen} of {STARTS} starts raised the frequency to the highest, asked {asked} times"
    ));
    assert_eq!(asked, 0);
    assert_eq!(daemon.counter("speed_dropped"), 0);
    // The kernel wakes threads of its own that raise it.
    assert!(risen <= STARTS / 20, "{risen}");
    assert!(daemon.stop().success());
}

/// One that is in the list of those that go first is LAT_CRITICAL from the beginning.
#[test]
fn who_goes_first_has_full_speed_within_a_tick() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let _governor = Governor::set("schedutil", cpus());
    let cases: [(&[&str], bool); 3] = [
        (&["--boost", "goes-first"], true),
        (
            &["--boost", "goes-first", "--without", "cpuperf-tiers"],
            false,
        ),
        // INTERACTIVE.
        (&[], false),
    ];
    for (arguments, fast) in cases {
        let daemon = Daemon::schedule(arguments);
        let delays = delays(&wake("goes-first"));
        let within = delays.iter().filter(|delay| **delay <= tick_ns()).count();
        let counted = [
            "full_speed_for_tier",
            "full_speed_for_tier_kept",
            "full_speed",
        ]
        .map(|name| daemon.counter(name));
        say(&format!(
            "with {arguments:?}: {within} of {} starts below the highest frequency raised it to that within a tick; for \
             its tier {} anew and {} again",
            delays.len(),
            counted[0],
            counted[1],
        ));
        assert!(delays.len() > STARTS / 2, "it is below the highest before");
        if fast {
            let late = delays.len() - within;
            assert!(
                late <= if cpus() > 1 { STARTS / 20 } else { 0 },
                "{delays:?}"
            );
            assert!(counted[0] >= delays.len() as u64, "{counted:?}");
            assert!(counted[1] > 0, "{counted:?}");
        } else {
            // Where tiers count, another task may become LAT_CRITICAL now and then.
            let off = arguments.contains(&"cpuperf-tiers");
            let most = if off { 0 } else { STARTS as u64 / 20 };
            assert!(counted[0] <= most, "{counted:?}");
            // The kernel wakes threads of its own that raise it.
            assert!(within <= STARTS / 20, "{within}");
        }
        assert_eq!(counted[2], 0, "there is no worker");
        assert!(daemon.stop().success());
    }
}

#[test]
fn who_does_not_serve_gets_what_it_uses() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let _governor = Governor::set("schedutil", cpus());
    let daemon = Daemon::schedule(&[]);
    for flag in [SlotFlag::Hog, SlotFlag::Controller, SlotFlag::Handoff] {
        let before = daemon.counter("full_speed") + daemon.counter("full_speed_kept");
        let starts = serve(&daemon, Some(flag));
        let delays = delays(&starts);
        let risen = delays.iter().filter(|delay| **delay <= tick_ns()).count();
        let asked = daemon.counter("full_speed") + daemon.counter("full_speed_kept") - before;
        say(&format!(
            "{flag:?}: {risen} of {} starts raised the frequency to the highest, asked {asked} times",
            starts.len()
        ));
        // Before the flag was set it was a worker like others.
        assert!(asked <= 2, "{flag:?}: {asked}");
        assert!(risen <= STARTS / 20, "{flag:?}: {risen}");
    }
    assert!(daemon.stop().success());
}

#[test]
fn a_busy_cpu_becomes_fast_and_an_idle_one_slow() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let _governor = Governor::set("schedutil", cpus());
    // The task that waits here wakes often, and asks for full speed itself once its tier is LAT_CRITICAL.
    let daemon = Daemon::schedule(&["--without", "cpuperf-tiers"]);
    settle();
    let (lowest, highest) = (lowest_khz(0), highest_khz(0));
    for _ in 0..5 {
        wait_until("an idle CPU asks for nothing", || present_khz(0) == lowest);
        let start = Instant::now();
        let busy = Busy::new(|| pin(0));
        wait_until("a busy CPU asks for all", || present_khz(0) == highest);
        let rose = start.elapsed();
        let start = Instant::now();
        drop(busy);
        wait_until("it is idle again", || present_khz(0) == lowest);
        say(&format!(
            "no worker: at the highest frequency {} ms after it began, at the lowest {} ms after it ended",
            rose.as_millis(),
            start.elapsed().as_millis()
        ));
        assert!(rose < PATIENCE);
    }
    assert_eq!(
        daemon.counter("full_speed") + daemon.counter("full_speed_kept"),
        0
    );
    assert!(daemon.stop().success());
}
