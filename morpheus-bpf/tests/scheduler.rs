// SPDX-License-Identifier: GPL-2.0-only
//! The scheduler on a real kernel: whole machines belong to it, so it runs where `MORPHEUS_GUEST` says that this is one
//! that was booted for it. There, every test is mandatory.

mod common;

use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::client::Client;
use common::daemon::{Daemon, program};
use common::load::{Busy, cpu_ns, pin, shares};
use common::{BUDGET, PATIENCE, in_guest, now_ns, say, sleep, turn};
use morpheus_common::abi;
use morpheus_common::broker::Request;
use morpheus_common::slot::{RuntimeSlot, SlotFlag, VerdictFlags};

const STATE: &str = "/sys/kernel/sched_ext/state";
/// How long shares are measured: a hundredth of it is several slices.
const WINDOW: Duration = Duration::from_secs(4);

/// Where this is no guest of the tests, it says so.
fn can_run() -> bool {
    if in_guest() {
        assert!(
            fs::exists(STATE).unwrap(),
            "this guest's kernel has no sched_ext"
        );
        return true;
    }
    say("\nNOT RUN HERE: the scheduler's tests need a guest of their own (cargo xtask vm)\n");
    false
}

fn state() -> String {
    fs::read_to_string(STATE).unwrap().trim().to_owned()
}

fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < until, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn cpus() -> usize {
    std::thread::available_parallelism().unwrap().get()
}

fn hello(policy: u32) -> Request {
    Request::Hello {
        abi_version: abi::MORPHEUS_ABI_VERSION,
        slots: 8,
        policy,
        budget_ns: BUDGET.as_nanos() as u64,
        grace_ns: 1_000_000,
    }
}

fn client(daemon: &Daemon, policy: u32) -> Arc<Client> {
    Arc::new(Client::with(&daemon.socket, hello(policy)))
}

/// A worker that is in one watched poll for ever.
fn stuck_worker(client: &Arc<Client>, slot: u32, prepare: fn(&RuntimeSlot)) -> Busy {
    let client = Arc::clone(client);
    Busy::new(move || {
        let slot = client.register(slot);
        slot.set_flag(SlotFlag::Escapable);
        slot.unpark();
        prepare(slot);
        slot.begin_poll();
    })
}

/// What a stuck worker gets of the CPU beside busy threads, one more than there are CPUs, as a part of what one of them
/// gets.
fn part_of_an_equal(daemon: &Daemon, prepare: fn(&RuntimeSlot)) -> f64 {
    let client = client(daemon, abi::MORPHEUS_POLICY_DEMOTE);
    let worker = stuck_worker(&client, 0, prepare);
    let others = Busy::many(cpus() + 1, 0);
    // Found, and demoted if it is to be.
    std::thread::sleep(Duration::from_millis(500));
    let threads: Vec<&Busy> = others.iter().chain([&worker]).collect();
    let shares = shares(&threads, WINDOW);
    let (worker, others) = shares.split_last().unwrap();
    worker * others.len() as f64 / others.iter().sum::<f64>()
}

#[test]
fn comes_and_goes_twenty_times() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let _load = Busy::many(cpus(), 0);
    for _ in 0..20 {
        let daemon = Daemon::schedule(&[]);
        assert_eq!(state(), "enabled");
        assert!(daemon.stop().success());
        assert_eq!(state(), "disabled");
    }
}

#[test]
fn shares_follow_weights() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let daemon = Daemon::schedule(&[]);
    // As sched_ext has them: 1024 is 100.
    for (nice, weight) in [(0, 100.0), (5, 33.0), (-3, 194.0)] {
        let count = cpus();
        let (plain, other) = (Busy::many(count, 0), Busy::many(count, nice));
        let threads: Vec<&Busy> = plain.iter().chain(&other).collect();
        std::thread::sleep(Duration::from_millis(300));
        let shares = shares(&threads, WINDOW);
        for (index, share) in shares.iter().enumerate() {
            let own = if index < count { 100.0 } else { weight };
            let due = own / (count as f64 * (100.0 + weight));
            say(&format!(
                "nice {}: {:.2} % of {:.2}",
                if index < count { 0 } else { nice },
                share * 100.0,
                due * 100.0
            ));
            assert!((share - due).abs() <= 0.01, "{shares:?}");
        }
    }
    assert!(daemon.stop().success());
}

#[test]
fn a_demoted_worker_gets_a_tenth() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let daemon = Daemon::schedule(&[]);
    let part = part_of_an_equal(&daemon, |_| {});
    say(&format!("a demoted worker gets {part:.3} of an equal"));
    assert!((0.05..=0.15).contains(&part), "{part}");
    assert!(daemon.counter("demotions") > 0);
    assert!(daemon.counter("from_batch") > 0);
    drop(daemon);

    // Controls: the same without demotion, and by those who only look.
    for arguments in [&["--off", "demote"][..], &["--mode", "observe"][..]] {
        let daemon = Daemon::schedule(arguments);
        let part = part_of_an_equal(&daemon, |_| {});
        say(&format!("{arguments:?}: {part:.3} of an equal"));
        assert!((0.9..=1.1).contains(&part), "{arguments:?}: {part}");
        assert_eq!(daemon.counter("demotions"), 0);
        assert!(daemon.counter("requests") > 0, "it is seen all the same");
    }

    // Nobody is demoted who says that it must not be.
    let daemon = Daemon::schedule(&[]);
    let part = part_of_an_equal(&daemon, |slot| slot.clear_flag(SlotFlag::Escapable));
    assert!((0.9..=1.1).contains(&part), "{part}");
    assert_eq!(daemon.counter("demotions"), 0);
}

#[test]
fn a_marked_hog_is_demoted_and_a_controller_is_not() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let daemon = Daemon::schedule(&[]);
    let client = client(&daemon, abi::MORPHEUS_POLICY_DEMOTE);
    let worker = {
        let client = Arc::clone(&client);
        Busy::new(move || {
            let slot = client.register(2);
            slot.set_flag(SlotFlag::Escapable);
            slot.unpark();
        })
    };
    let others = Busy::many(cpus() + 1, 0);
    let threads: Vec<&Busy> = others.iter().chain([&worker]).collect();
    let part = || {
        std::thread::sleep(Duration::from_millis(300));
        let shares = shares(&threads, WINDOW);
        let (worker, others) = shares.split_last().unwrap();
        worker * others.len() as f64 / others.iter().sum::<f64>()
    };
    let slot = client.runtime_slot(2);
    let before = part();
    assert!(
        (0.9..=1.1).contains(&before),
        "no poll is watched: {before}"
    );
    slot.set_flag(SlotFlag::Hog);
    let marked = part();
    assert!((0.05..=0.15).contains(&marked), "{marked}");
    assert_eq!(
        client.ring.next(PATIENCE).map(|event| event.kind),
        Some(abi::MORPHEUS_EVENT_DEMOTED)
    );
    slot.clear_flag(SlotFlag::Hog);
    let after = part();
    assert!((0.9..=1.1).contains(&after), "it is over: {after}");
    assert_eq!(daemon.counter("undemotions"), daemon.counter("demotions"));
    // A controller has no polls, whatever its words say.
    slot.set_flag(SlotFlag::Controller);
    slot.set_flag(SlotFlag::Hog);
    slot.begin_poll();
    let controller = part();
    assert!(
        (0.9..=1.1).contains(&controller),
        "no more than its share, and no less: {controller}"
    );
    say(&format!(
        "hog: {before:.3} before, {marked:.3} marked, {after:.3} after; as a controller {controller:.3}"
    ));
}

#[test]
fn lying_about_critical_sections_gains_nothing() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let daemon = Daemon::schedule(&[]);
    let count = cpus() as f64 + 1.0;
    // As a share of all CPUs.
    let share = |part: f64| part / (count + part);
    let honest = share(part_of_an_equal(&daemon, |_| {}));
    let liar = share(part_of_an_equal(&daemon, RuntimeSlot::enter_critical));
    let outlived = daemon.counter("extensions_outlived");
    drop(daemon);
    let daemon = Daemon::schedule(&["--off", "extension-bound"]);
    let unbounded = share(part_of_an_equal(&daemon, RuntimeSlot::enter_critical));
    say(&format!(
        "honest hog {:.1} %, liar {:.1} %, liar with unbounded extensions {:.1} %; weight's share {:.1} %; \
         extensions outlived {outlived}",
        honest * 100.0,
        liar * 100.0,
        unbounded * 100.0,
        100.0 / (count + 1.0)
    ));
    assert!(outlived > 0);
    assert!(liar <= share(1.0) + 0.01 && liar <= honest + 0.02);
    assert!(unbounded >= share(1.0) + 0.10, "the control");
}

#[test]
fn an_honest_critical_section_is_let_finish() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    // Preempted within their sections, of so many that there were.
    let preempted = |arguments: &[&str]| {
        let daemon = Daemon::schedule(arguments);
        let client = client(&daemon, abi::MORPHEUS_POLICY_DEMOTE);
        let sections = Arc::new(AtomicU64::new(0));
        let worker = {
            let (client, counted) = (Arc::clone(&client), Arc::clone(&sections));
            Busy::new(move || {
                let slot = client.register(0);
                slot.unpark();
                let until = Instant::now() + WINDOW;
                while Instant::now() < until {
                    // Half of the time, for 200 µs each.
                    slot.enter_critical();
                    spin(Duration::from_micros(200));
                    slot.leave_critical();
                    spin(Duration::from_micros(200));
                    counted.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let others = Busy::many(cpus() * 2, 0);
        std::thread::sleep(WINDOW);
        drop((worker, others));
        let sum = daemon.counter("critical_preempted_at_slice_end")
            + daemon.counter("critical_preempted_by_kick");
        (
            sum,
            sections.load(Ordering::Relaxed),
            daemon.counter("extensions"),
        )
    };
    let (with, sections, extensions) = preempted(&[]);
    let (without, _, none) = preempted(&["--off", "extension"]);
    say(&format!(
        "{sections} sections: {with} preempted with {extensions} extensions, {without} without extensions"
    ));
    assert!(extensions > 0 && none == 0);
    assert!(without >= 5 * with.max(1));
}

/// Wall time, with the clock read all the time.
fn spin(duration: Duration) {
    let start = now_ns();
    while now_ns() - start < duration.as_nanos() as u64 {}
}

#[test]
fn every_step_of_the_ladder() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let daemon = Daemon::schedule(&[]);
    let client = client(&daemon, abi::MORPHEUS_POLICY_THROTTLE);
    let others = Busy::many(cpus(), 0);
    let verdicts = Arc::new(AtomicU64::new(0));
    let worker = {
        let (client, verdicts) = (Arc::clone(&client), Arc::clone(&verdicts));
        Busy::new(move || {
            let slot = client.register(5);
            let kernel = client.kernel_slot(5);
            slot.set_flag(SlotFlag::Escapable);
            slot.label.store(77, Ordering::Relaxed);
            slot.unpark();
            for _ in 0..12 {
                let seq = slot.begin_poll();
                let start = cpu_ns(common::wire::gettid());
                while cpu_ns(common::wire::gettid()) - start < 20_000_000 {}
                assert!(kernel.requested(seq));
                slot.end_poll(seq);
                for flag in [
                    VerdictFlags::STUCK,
                    VerdictFlags::OFFENCE,
                    VerdictFlags::DEMOTED,
                    VerdictFlags::THROTTLED,
                ] {
                    if kernel.verdict_for(seq).contains(flag) {
                        verdicts.fetch_or(1 << flag_bit(flag), Ordering::Relaxed);
                    }
                }
            }
            slot.park();
        })
    };
    wait_until("the worker is thrown back to watching", || {
        client.runtime_slot(5).is_parked()
    });
    drop((worker, others));
    for name in [
        "requests",
        "demotions",
        "undemotions",
        "throttles",
        "to_batch",
        "to_throttled",
    ] {
        assert!(daemon.counter(name) > 0, "{name}");
    }
    assert_eq!(verdicts.load(Ordering::Relaxed), 0b1111);
    let mut kinds = [0; 5];
    while let Some(event) = client.ring.next(Duration::from_millis(20)) {
        kinds[event.kind as usize] += 1;
        if event.kind == abi::MORPHEUS_EVENT_THROTTLED {
            assert!(event.detail >= 8, "offences of the label");
        }
    }
    for kind in [
        abi::MORPHEUS_EVENT_BUDGET,
        abi::MORPHEUS_EVENT_DEMOTED,
        abi::MORPHEUS_EVENT_THROTTLED,
    ] {
        assert!(kinds[kind as usize] > 0, "{kinds:?}");
    }
    assert!(daemon.stop().success());
}

fn flag_bit(flag: VerdictFlags) -> u32 {
    [
        VerdictFlags::STUCK,
        VerdictFlags::OFFENCE,
        VerdictFlags::DEMOTED,
        VerdictFlags::THROTTLED,
    ]
    .iter()
    .position(|other| *other == flag)
    .unwrap() as u32
}

#[test]
fn the_mode_is_told() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    for (arguments, mode) in [
        (&[][..], abi::MORPHEUS_MODE_ENFORCE),
        (&["--mode", "observe"][..], abi::MORPHEUS_MODE_OBSERVE),
    ] {
        let daemon = Daemon::schedule(arguments);
        let client = client(&daemon, abi::MORPHEUS_POLICY_OBSERVE);
        assert_eq!(client.mode, mode);
        // The same in the area's header.
        let offset = std::mem::offset_of!(abi::morpheus_kernel_header, mode);
        // SAFETY: the header has this word.
        let word = unsafe { client.kernel.at::<std::sync::atomic::AtomicU32>(offset) };
        assert_eq!(word.load(Ordering::Relaxed), mode);
    }
}

#[test]
fn pinned_threads_are_not_stalled() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let daemon = Daemon::schedule(&[]);
    let _free = Busy::many(2 * cpus(), 0);
    let _greedy = Busy::many(cpus(), -10);
    let pinned: Vec<Busy> = (0..cpus())
        .flat_map(|cpu| [cpu, cpu])
        .map(|cpu| Busy::new(move || pin(cpu)))
        .collect();
    let low: Vec<Busy> = (0..cpus())
        .map(|cpu| {
            Busy::new(move || {
                common::load::set_nice(19);
                pin(cpu);
            })
        })
        .collect();
    let mut before: Vec<u64> = pinned.iter().map(Busy::cpu_ns).collect();
    let low_before: Vec<u64> = low.iter().map(Busy::cpu_ns).collect();
    for _ in 0..8 {
        std::thread::sleep(Duration::from_secs(1));
        for (thread, before) in pinned.iter().zip(&mut before) {
            let now = thread.cpu_ns();
            assert!(now > *before, "a pinned thread stood still for a second");
            *before = now;
        }
    }
    for (thread, before) in low.iter().zip(low_before) {
        assert!(
            thread.cpu_ns() > before,
            "a pinned thread of nice 19 stood still for 8 s"
        );
    }
    say(&format!("rescues: {}", daemon.counter("rescues")));
    assert_eq!(state(), "enabled");
    assert!(daemon.stop().success());
}

#[test]
fn a_cpu_goes_and_comes() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let mut daemon = Daemon::schedule(&[]);
    let client = client(&daemon, abi::MORPHEUS_POLICY_DEMOTE);
    let worker = stuck_worker(&client, 0, |_| {});
    let mut load = Busy::many(2 * cpus(), 0);
    load.extend((0..3).map(|_| Busy::new(|| pin(1))));
    let online = "/sys/devices/system/cpu/cpu1/online";
    for _ in 0..5 {
        for state in ["0", "1"] {
            fs::write(online, state).unwrap();
            std::thread::sleep(Duration::from_millis(300));
            let before: Vec<u64> = load.iter().map(Busy::cpu_ns).collect();
            std::thread::sleep(Duration::from_millis(700));
            for (thread, before) in load.iter().zip(before) {
                assert!(thread.cpu_ns() > before, "a thread stood still");
            }
        }
    }
    assert_eq!(state(), "enabled");
    assert!(daemon.is_alive());
    assert!(daemon.numbers()["workers"] == 1, "its lease is as it was");
    let heartbeat = client.heartbeat();
    std::thread::sleep(Duration::from_millis(500));
    assert!(client.heartbeat() > heartbeat);
    drop(worker);
    assert!(daemon.stop().success());
}

#[test]
fn the_daemon_is_killed() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let mut daemon = Daemon::schedule(&[]);
    let client = client(&daemon, abi::MORPHEUS_POLICY_DEMOTE);
    let worker = stuck_worker(&client, 0, |_| {});
    wait_until("it is demoted", || daemon.counter("demotions") > 0);
    daemon.child.kill().unwrap();
    daemon.child.wait().unwrap();
    wait_until("the kernel schedules", || state() == "disabled");
    let (before, heartbeat) = (worker.cpu_ns(), client.heartbeat());
    std::thread::sleep(Duration::from_millis(500));
    assert!(worker.cpu_ns() > before, "the application goes on");
    assert_eq!(client.heartbeat(), heartbeat, "and finds nobody");
    // The next one can have the same place.
    drop(daemon);
    assert!(Daemon::schedule(&[]).stop().success());
}

#[test]
fn the_kernel_takes_it_out() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let mut daemon = Daemon::schedule(&[]);
    let client = client(&daemon, abi::MORPHEUS_POLICY_DEMOTE);
    let worker = stuck_worker(&client, 0, |_| {});
    fs::write("/proc/sysrq-trigger", "S").unwrap();
    let status = daemon.child.wait().unwrap();
    assert_eq!(status.code(), Some(3));
    assert_eq!(state(), "disabled");
    assert!(
        common::wire::receive(&client.socket).is_none(),
        "the connection is closed"
    );
    let before = worker.cpu_ns();
    std::thread::sleep(Duration::from_millis(200));
    assert!(worker.cpu_ns() > before);
}

#[test]
fn there_is_one_scheduler() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let daemon = Daemon::schedule(&[]);
    let output = Command::new(program())
        .args(["--socket", "/tmp/morpheus-second/broker.sock"])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(
        text.contains("morpheus") && text.contains("stop it first"),
        "{text}"
    );
    assert_eq!(text.lines().count(), 1, "one clear line: {text}");
    // Without rights.
    let program = std::env::split_paths(&std::env::var_os("PATH").unwrap())
        .map(|directory| directory.join(program()))
        .find(|path| path.exists())
        .unwrap();
    let output = Command::new(program)
        .args(["--socket", "/tmp/morpheus-third.sock"])
        .uid(1000)
        .gid(1000)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.contains("root"), "{text}");
    drop(daemon);
}

const OTHER: &str = "MORPHEUS_TEST_OTHER_CLIENT";

/// Not a test: the process that the next one kills.
#[test]
fn other_client() {
    let Some(socket) = std::env::var_os(OTHER) else {
        return;
    };
    let client = Arc::new(Client::with(
        &PathBuf::from(socket),
        hello(abi::MORPHEUS_POLICY_DEMOTE),
    ));
    let _workers = [0, 1, 2].map(|slot| stuck_worker(&client, slot, |_| {}));
    std::thread::sleep(PATIENCE * 6);
}

#[test]
fn an_application_is_killed() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let daemon = Daemon::schedule(&[]);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "other_client"])
        .env(OTHER, &daemon.socket)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_until("three workers are there, and demoted", || {
        daemon.numbers()["workers"] == 3 && daemon.counter("demotions") >= 3
    });
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("nothing is left of them", || {
        let numbers = daemon.numbers();
        numbers["workers"] == 0 && numbers["processes"] == 0
    });
    assert_eq!(state(), "enabled");
    assert!(daemon.stop().success());
}

/// Who serves takes the CPU from a stuck worker at once, and the control: without that, it waits until that one has run
/// for the least time.
#[test]
fn a_serving_worker_preempts_a_stuck_one() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let kicks = |arguments: &[&str], flag: Option<SlotFlag>| {
        let daemon = Daemon::schedule(arguments);
        let client = client(&daemon, abi::MORPHEUS_POLICY_REQUEST);
        let stuck: Vec<Busy> = (0..cpus() as u32)
            .map(|slot| stuck_worker(&client, slot, |_| {}))
            .collect();
        std::thread::sleep(Duration::from_millis(100));
        let serving = {
            let client = Arc::clone(&client);
            std::thread::spawn(move || {
                let slot = client.register(7);
                if let Some(flag) = flag {
                    slot.set_flag(flag);
                }
                for _ in 0..300 {
                    sleep(Duration::from_millis(1));
                    slot.unpark();
                    slot.park();
                }
            })
        };
        serving.join().unwrap();
        drop(stuck);
        (
            daemon.counter("kicks_for_serving"),
            daemon.counter("kicks_for_controller"),
        )
    };
    let (serving, controller) = kicks(&[], None);
    assert!(serving >= 100 && controller == 0, "{serving} {controller}");
    let (serving, controller) = kicks(&[], Some(SlotFlag::Controller));
    assert!(serving == 0 && controller >= 100, "{serving} {controller}");
    assert_eq!(kicks(&["--off", "kick-serving"], None), (0, 0));
    // A held spare is in nobody's service.
    assert_eq!(kicks(&[], Some(SlotFlag::Held)), (0, 0));
}

#[test]
fn each_switch_switches() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    // A scene in which everything happens, and what it counts.
    let scene = |arguments: &[&str], counter: &str| {
        let daemon = Daemon::schedule(arguments);
        let client = client(&daemon, abi::MORPHEUS_POLICY_REQUEST);
        let worker = stuck_worker(&client, 0, RuntimeSlot::enter_critical);
        let others = Busy::many(cpus(), 0);
        // Wakes all the time, beside tasks that have just begun.
        let sleepers: Vec<Busy> = (0..2 * cpus())
            .map(|_| Busy::repeating(|| (), || sleep(Duration::from_micros(300))))
            .collect();
        std::thread::sleep(Duration::from_secs(1));
        drop((worker, others, sleepers));
        daemon.counter(counter)
    };
    for (mechanism, counter) in [
        ("request", "requests"),
        ("extension", "extensions"),
        ("kick", "kicks_for_waiting"),
        ("min-run", "kicks_skipped"),
        ("make-up", "kicks_made_up"),
        ("timer", "looks"),
        ("previous", "kept"),
    ] {
        let with = scene(&[], counter);
        assert!(with > 0, "{counter}");
        let without = scene(&["--off", mechanism], counter);
        say(&format!(
            "{counter}: {with}, with --off {mechanism} {without}"
        ));
        // A CPU also keeps its task where nobody else may run.
        let most = if mechanism == "previous" { with / 2 } else { 0 };
        assert!(
            without <= most,
            "--off {mechanism}: {counter} {without} of {with}"
        );
    }
}

#[test]
fn the_monitor_and_the_help_say_what_there_is() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let daemon = Daemon::schedule(&[]);
    let mut monitor = Command::new(program())
        .args(["--monitor", "1", "--socket"])
        .arg(&daemon.socket)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(1500));
    monitor.kill().unwrap();
    let output = monitor.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("processes 0, workers 0"), "{text}");
    drop(daemon);
    let output = Command::new(program()).arg("check").output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let _ = std::io::stderr().flush();
}
