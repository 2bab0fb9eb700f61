// SPDX-License-Identifier: GPL-2.0-only
//! The scheduler on a real kernel: whole machines belong to it, so it runs where `MORPHEUS_GUEST` says that this is one
//! that was booted for it. There, every test is mandatory.

mod common;

use std::collections::HashSet;
use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use common::client::Client;
use common::daemon::{Daemon, program};
use common::guest::{can_run, client, cpus, hello, stalled_worker, state, wait_until};
use common::load::{Busy, Timed, cpu_ns, keep_on, pin};
use common::{PATIENCE, say, sleep, turn};
use libbpf_rs::btf::{Btf, BtfType};
use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions};
use morpheus_bpf::check::symbols::{Found, Symbol, has_at_once};
use morpheus_common::abi;
use morpheus_common::slot::{RuntimeSlot, SlotFlag, VerdictFlags};
use rustix::process::Pid;

/// Of each talker.
const LISTENERS: u32 = 3;

#[test]
fn comes_and_goes_twenty_times() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let _load = Busy::many(1, 0);
    for _ in 0..20 {
        let daemon = Daemon::schedule(&[]);
        assert_eq!(state(), "enabled");
        assert!(daemon.stop().success());
        assert_eq!(state(), "disabled");
    }
}

/// In virtual time the bound is a number of instructions: the daemon's, and the kernel's while it verifies the programs.
#[test]
fn it_is_enabled_within_two_seconds() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let begun = Instant::now();
    let daemon = Daemon::schedule(&[]);
    let elapsed = begun.elapsed();
    assert_eq!(state(), "enabled");
    say(&format!("enabled after {elapsed:.2?}"));
    assert!(elapsed <= Duration::from_secs(2), "{elapsed:?}");
    assert!(daemon.stop().success());
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
            slot.set_flag(SlotFlag::Demotable);
            slot.set_flag(SlotFlag::Handoff);
            slot.label.store(77, Ordering::Relaxed);
            slot.unpark();
            for _ in 0..12 {
                let seq = slot.begin_poll();
                let start = cpu_ns(common::wire::gettid());
                while cpu_ns(common::wire::gettid()) - start < 20_000_000 {}
                assert!(kernel.requested(seq));
                slot.end_poll(seq);
                for flag in [
                    VerdictFlags::STALLED,
                    VerdictFlags::HOG,
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
        "to_demoted",
        "to_throttled",
    ] {
        assert!(daemon.counter(name) > 0, "{name}");
    }
    assert_eq!(verdicts.load(Ordering::Relaxed), 0b1111);
    let mut kinds = [0; 5];
    while let Some(event) = client.ring.next(Duration::from_millis(20)) {
        kinds[event.kind as usize] += 1;
        if event.kind == abi::MORPHEUS_EVENT_THROTTLED {
            assert!(event.detail >= 8, "hog polls of the label");
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
        VerdictFlags::STALLED,
        VerdictFlags::HOG,
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
    let worker = stalled_worker(&client, 0, |_| {});
    let mut load = Busy::many(2 * cpus(), 0);
    load.extend((0..3).map(|_| Busy::new(|| pin(1))));
    /// The next test finds it as it was.
    struct Online;
    impl Online {
        fn set(&self, state: &str) {
            fs::write("/sys/devices/system/cpu/cpu1/online", state).unwrap();
        }
    }
    impl Drop for Online {
        fn drop(&mut self) {
            self.set("1");
        }
    }
    let cpu = Online;
    let all = cpus();
    for _ in 0..5 {
        for (state, online) in [("0", all - 1), ("1", all)] {
            cpu.set(state);
            std::thread::sleep(Duration::from_millis(300));
            let before: Vec<u64> = load.iter().map(Busy::cpu_ns).collect();
            std::thread::sleep(Duration::from_millis(1500));
            for (thread, before) in load.iter().zip(before) {
                assert!(thread.cpu_ns() > before, "a thread stood still");
            }
            wait_until("the knobs are those of so many CPUs", || {
                daemon.numbers()["cpus"] == online
            });
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
    let worker = stalled_worker(&client, 0, |_| {});
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
    let worker = stalled_worker(&client, 0, |_| {});
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
    let _workers = [0, 1, 2].map(|slot| stalled_worker(&client, slot, |_| {}));
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

/// A worker that serves takes the CPU from a stalled one at once. Without that, the control, it waits until the stalled one has run
/// for the least time.
#[test]
fn a_serving_worker_preempts_a_stalled_one() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let counted = |daemon: &Daemon| {
        ["kicks_for_serving", "kicks_for_controller"].map(|name| daemon.counter(name))
    };
    let kicks = |daemon: &Daemon, flag: Option<SlotFlag>| {
        // A hog that parks is none any more.
        let parks = flag != Some(SlotFlag::Hog);
        let before = counted(daemon);
        let client = client(daemon, abi::MORPHEUS_POLICY_REQUEST);
        let stalled: Vec<Busy> = (0..cpus() as u32)
            .map(|slot| stalled_worker(&client, slot, |_| {}))
            .collect();
        std::thread::sleep(Duration::from_millis(100));
        let serving = {
            let client = Arc::clone(&client);
            std::thread::spawn(move || {
                let slot = client.register(7);
                if let Some(flag) = flag {
                    slot.set_flag(flag);
                }
                slot.unpark();
                for _ in 0..300 {
                    if parks {
                        slot.park();
                    }
                    sleep(Duration::from_millis(1));
                    if parks {
                        slot.unpark();
                    }
                }
            })
        };
        serving.join().unwrap();
        drop(stalled);
        let after = counted(daemon);
        (after[0] - before[0], after[1] - before[1])
    };
    {
        // One daemon for all of them: a start is seconds of an emulated verifier.
        let daemon = Daemon::schedule(&[]);
        let (serving, controller) = kicks(&daemon, None);
        assert!(serving >= 100 && controller == 0, "{serving} {controller}");
        let (serving, controller) = kicks(&daemon, Some(SlotFlag::Controller));
        assert!(serving == 0 && controller >= 100, "{serving} {controller}");
        // A spare that is held wakes when it is released.
        let (serving, _) = kicks(&daemon, Some(SlotFlag::Held));
        assert!(serving >= 100, "{serving}");
        // A worker that is stalled itself serves none.
        assert_eq!(kicks(&daemon, Some(SlotFlag::Hog)), (0, 0));
    }
    let daemon = Daemon::schedule(&["--off", "kick-serving"]);
    assert_eq!(kicks(&daemon, None), (0, 0));
}

#[test]
fn a_worker_that_computes_has_short_slices() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let ends = |arguments: &[&str]| {
        let daemon = Daemon::schedule(arguments);
        let client = client(&daemon, abi::MORPHEUS_POLICY_REQUEST);
        let workers: Vec<Busy> = (0..2 * cpus() as u32)
            .map(|slot| stalled_worker(&client, slot, |_| {}))
            .collect();
        std::thread::sleep(Duration::from_secs(1));
        drop(workers);
        daemon.counter("kicks_at_slice_end")
    };
    let (with, without) = (ends(&[]), ends(&["--off", "worker-slice"]));
    say(&format!(
        "slices that ended before a tick: {with}, without short ones {without}"
    ));
    assert!(with >= 100 && without == 0, "{with} {without}");
}

/// Tells others something all the time, and does not wait for them as long as they listen. Those are workers, if a client
/// registers them.
fn talker(client: Option<&Arc<Client>>, first_slot: u32) -> Busy {
    let mut sockets = Vec::new();
    for number in 0..LISTENERS {
        let (to, mut from) = UnixStream::pair().unwrap();
        sockets.push(to);
        let client = client.cloned();
        let (sender, ready) = channel();
        // Ends with the talker, who closes the sockets.
        std::thread::spawn(move || {
            let slot = client.map(|client| client.register(first_slot + number));
            sender.send(()).unwrap();
            let mut listen = || {
                if let Some(slot) = slot {
                    slot.park();
                }
                let heard = from.read_exact(&mut [0; 64]).is_ok();
                if let Some(slot) = slot {
                    slot.unpark();
                }
                heard
            };
            while listen() {}
        });
        ready.recv().unwrap();
    }
    Busy::repeating(
        || (),
        move || {
            for to in &mut sockets {
                // The listener ends when it is told to only.
                to.write_all(&[1; 64]).unwrap();
            }
        },
    )
}

/// Whatever wakes it: its slot says that others wait for it.
#[test]
fn a_worker_that_serves_is_not_one_of_many() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let of = |are_workers: bool| {
        let daemon = Daemon::schedule(&[]);
        let client = client(&daemon, abi::MORPHEUS_POLICY_REQUEST);
        let talkers: Vec<Busy> = (0..cpus() as u32)
            .map(|number| talker(are_workers.then_some(&client), number * LISTENERS))
            .collect();
        std::thread::sleep(Duration::from_secs(1));
        drop(talkers);
        daemon.counter("woken_among_many")
    };
    let (workers, others) = (of(true), of(false));
    say(&format!("of many: {workers} workers, {others} others"));
    assert!(others > 100 && workers < others / 10, "{workers} {others}");
}

/// Switches, and what each of them counts in [`scene`].
const MECHANISMS: [(&str, &str); 9] = [
    ("request", "requests"),
    ("extension", "extensions"),
    ("kick", "kicks_for_waiting"),
    ("min-run", "kicks_skipped"),
    ("make-up", "kicks_made_up"),
    ("sync-pause", "kicks_skipped_for_sync"),
    ("sync-crowd", "woken_among_many"),
    ("sync-ahead", "put_ahead"),
    ("timer", "samples"),
];

/// Everything happens here; what is counted.
fn scene(arguments: &[&str]) -> serde_json::Value {
    let daemon = Daemon::schedule(arguments);
    let client = client(&daemon, abi::MORPHEUS_POLICY_REQUEST);
    let worker = stalled_worker(&client, 0, RuntimeSlot::enter_critical);
    let others = Busy::many(cpus(), 0);
    // Wakes all the time, beside tasks that have just begun.
    let sleepers: Vec<Busy> = (0..2 * cpus())
        .map(|_| Busy::repeating(|| (), || sleep(Duration::from_micros(300))))
        .collect();
    let talkers: Vec<Busy> = (0..cpus()).map(|_| talker(None, 0)).collect();
    std::thread::sleep(Duration::from_secs(1));
    drop((worker, others, sleepers, talkers));
    daemon.numbers()["counters"].take()
}

#[test]
fn each_mechanism_is_at_work() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let counters = scene(&[]);
    for (_, counter) in MECHANISMS {
        assert!(counters[counter].as_u64().unwrap() > 0, "{counter}");
    }
}

#[test]
fn each_switch_switches() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    for (mechanism, counter) in MECHANISMS {
        let counters = scene(&["--off", mechanism]);
        assert_eq!(counters[counter], 0, "--off {mechanism}: {counter}");
    }
}

/// The sources of options, which a guest does not have. Not those without a switch (`handoff`, `hotplug`, `latency`); and of `reenqueue` a
/// function without a body stays, as the link calls it.
macro_rules! options {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("../src/bpf/options/", $name, ".bpf.c")))),*]
    };
}

/// Loaded by default on every machine, if the kernel has groups.
const USUAL: [(&str, &str); 9] =
    options!("crowd" "detect" "groups" "later" "missed" "names" "rescue" "starvation" "sync");
/// Loaded where the machine or the kernel has what they are for.
const SPECIAL: [(&str, &str); 5] = options!("hybrid" "limit" "near" "quota" "speed");

/// All their switches.
const ALL_OPTIONS: &str = "boost,cgroup-max,cgroup-weight,cpuperf,cusum,hybrid,kick-idle,l2-affinity,longrun,make-up,profiles,\
                           rescue,starvation-rescue,sync-ahead,sync-crowd,sync-pause,wakeup-burst";

/// The functions that are defined in a source: each begins in the first column, and so does its body.
fn functions_of(source: &str) -> Vec<&str> {
    let lines = source.lines().zip(source.lines().skip(1));
    let definitions = lines.filter(|(_, next)| *next == "{");
    definitions
        .filter_map(|(line, _)| line.split_once('(')?.0.rsplit([' ', '*']).next())
        .collect()
}

/// The functions of all BPF programs that the kernel has now, and the number of their instructions.
fn loaded() -> (HashSet<String>, usize) {
    let query = ProgInfoQueryOptions::default()
        .include_func_info(true)
        .include_xlated_prog_insns(true);
    let (mut functions, mut bytes) = (HashSet::new(), 0);
    for program in ProgInfoIter::with_query_opts(query) {
        let Ok(btf) = Btf::from_prog_id(program.id) else {
            continue;
        };
        bytes += program.xlated_prog_insns.len();
        for function in &program.func_info {
            let of_kind: Option<BtfType<'_>> = btf.type_by_id(function.type_id.into());
            let name = of_kind.and_then(|function| Some(function.name()?.to_owned()));
            functions.extend(name.map(|name| name.to_string_lossy().into_owned()));
        }
    }
    (functions, bytes / 8)
}

#[test]
fn what_is_switched_off_is_not_loaded() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let of_option = |source, functions: &HashSet<String>| -> Vec<&str> {
        let mut own = functions_of(source);
        own.retain(|function| functions.contains(*function));
        own
    };
    let daemon = Daemon::schedule(&[]);
    let (functions, usual) = loaded();
    for (option, source) in USUAL {
        let there = of_option(source, &functions);
        assert!(!there.is_empty(), "nothing of {option} is seen");
    }
    assert!(daemon.stop().success());

    let daemon = Daemon::schedule(&["--without", ALL_OPTIONS]);
    let (functions, core) = loaded();
    assert!(functions.contains("morpheus_dispatch"), "{functions:?}");
    for (option, source) in USUAL.into_iter().chain(SPECIAL) {
        let there = of_option(source, &functions);
        assert!(there.is_empty(), "of {option} there are {there:?}");
    }
    assert!(daemon.stop().success());
    say(&format!(
        "{usual} instructions of BPF programs are loaded, {core} without the options"
    ));
    assert!(core < usual);
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
    std::thread::sleep(Duration::from_millis(2500));
    monitor.kill().unwrap();
    let output = monitor.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.starts_with("processes 0, workers 0"), "{text}");
    drop(daemon);
    let output = Command::new(program()).arg("check").output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let _ = std::io::stderr().flush();
}

/// `check` and the kernel agree about the programs: it lets them in, and nothing that they need is missing.
#[test]
fn check_misses_nothing_where_the_scheduler_loads() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let output = std::process::Command::new(program())
        .arg("check")
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    println!("{text}");
    assert!(output.status.success(), "{text}");
    assert!(!text.contains("MISSING"), "{text}");
    for programs in ["the observer's programs", "the scheduler's programs"] {
        let all = format!("it has all that {programs} need");
        assert!(text.contains(&all), "{all} is not in\n{text}");
    }
    // Limits of groups came with 6.17.
    let has_limits = !text.contains("cgroup_set_bandwidth");
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_eq!(release.starts_with("6.16"), !has_limits, "{release}{text}");
    // The daemon looks for these one by one, and finds the same.
    let btf = libbpf_rs::btf::Btf::from_vmlinux().unwrap();
    for symbol in [
        Symbol::Constant("scx_ops_flags", "SCX_OPS_ENQ_MIGRATION_DISABLED"),
        Symbol::Constant("scx_ops_flags", "SCX_OPS_ALLOW_QUEUED_WAKEUP"),
        Symbol::Function("scx_bpf_reenqueue_local___v2"),
        Symbol::Field("sched_ext_ops", "cgroup_set_weight"),
        Symbol::Field("sched_ext_ops", "cgroup_set_bandwidth"),
    ] {
        let found = Found::of(&btf, [symbol]).has(symbol);
        assert_eq!(has_at_once(&btf, symbol), found, "{symbol}");
        assert!(
            found || matches!(symbol, Symbol::Function(_)) || !has_limits,
            "{symbol}"
        );
    }
    drop(Daemon::schedule(&[]));
}

/// From now on the calling thread is the scheduler's where that is told to leave all others alone.
fn ask_for_the_scheduler() {
    const SCHED_EXT: i32 = 7;
    let parameter = libc::sched_param { sched_priority: 0 };
    // SAFETY: the pointer is to a local that outlives the call; 0 is the calling thread.
    let result = unsafe { libc::sched_setscheduler(0, SCHED_EXT, &raw const parameter) };
    assert_eq!(result, 0, "anyone may");
}

/// With `--partial` all other threads are of a class above, and not those of a real-time policy alone.
#[test]
fn a_task_leaves_a_cpu_that_a_usual_one_takes() {
    if !can_run() {
        return;
    }
    assert!(cpus() > 1, "this test needs several CPUs");
    let _turn = turn();
    let daemon = Daemon::schedule(&["--partial"]);
    let ours = Timed::new(|| {
        pin(0);
        ask_for_the_scheduler();
    });
    std::thread::sleep(Duration::from_millis(200));
    let all: Vec<usize> = (0..cpus()).collect();
    keep_on(Pid::from_raw(ours.thread.tid as i32), &all);
    ours.longest();
    let usual = Busy::new(|| pin(0));
    std::thread::sleep(Duration::from_secs(2));
    // A wait that is not over yet is told when it is.
    drop(usual);
    std::thread::sleep(Duration::from_millis(100));
    let longest = ours.longest();
    say(&format!("without a CPU for {longest:?} at most"));
    assert_eq!(state(), "enabled");
    assert!(longest < Duration::from_millis(100), "{longest:?}");
    drop(ours);
    assert!(daemon.stop().success());
}
