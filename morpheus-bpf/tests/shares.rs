// SPDX-License-Identifier: GPL-2.0-only
//! The shares of the CPU under the scheduler. For guests, as `scheduler.rs` is.
//!
//! With one CPU under any emulation, with several where they run at the same time (`--accel multi`): elsewhere the
//! emulator takes them away for longer than a slice.

mod common;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use common::client::Client;
use common::daemon::Daemon;
use common::guest::{be_stalled, can_run, client, cpus, hello, stalled_worker, state};
use common::load::{
    Busy, compute, compute_for, own_cpu_ns, pin, set_nice, shares, take_precedence,
};
use common::{PATIENCE, now_ns, say, sleep, turn};
use morpheus_common::abi;
use morpheus_common::slot::{RuntimeSlot, SlotFlag};

/// How long shares are measured: a hundredth of it is several slices.
const WINDOW: Duration = Duration::from_secs(4);

/// The CPU time of a stalled worker beside busy threads, one more than there are CPUs, as a part of that of one of them.
fn part_of_an_equal(daemon: &Daemon, prepare: fn(&RuntimeSlot)) -> f64 {
    part_of_one_of(cpus() + 1, daemon, prepare)
}

/// The same beside `others` threads.
fn part_of_one_of(others: usize, daemon: &Daemon, prepare: fn(&RuntimeSlot)) -> f64 {
    let client = client(daemon, abi::MORPHEUS_POLICY_DEMOTE);
    let worker = stalled_worker(&client, 0, prepare);
    let others = Busy::many(others, 0);
    // Found, and demoted if it is to be.
    std::thread::sleep(Duration::from_millis(500));
    let threads: Vec<&Busy> = others.iter().chain([&worker]).collect();
    let shares = shares(&threads, WINDOW);
    let (worker, others) = shares.split_last().unwrap();
    worker * others.len() as f64 / others.iter().sum::<f64>()
}

#[test]
fn shares_follow_weights() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    // As sched_ext has them: 1024 is 100.
    shares_are(&[], &[(0, 100.0), (5, 33.0), (-3, 194.0)]);
    // One slice of nice 19 is further than the ceiling on vtime that machines of many CPUs have.
    shares_are(&["--nr-cpus", "8"], &[(0, 100.0), (19, 1.0)]);
}

/// Threads of nice 0 and as many of each niceness have the shares of these weights.
fn shares_are(arguments: &[&str], weights: &[(i32, f64)]) {
    let daemon = Daemon::schedule(arguments);
    for &(nice, weight) in weights {
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
    assert!(daemon.counter("from_demoted") > 0);
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

    // Where the task that runs does not compete with those that wait, a tenth is more.
    let daemon = Daemon::schedule(&["--off", "previous", "--off", "worker-slice"]);
    let part = part_of_one_of(cpus(), &daemon, |_| {});
    say(&format!("--off previous: {part:.3} of an equal"));
    assert!(part > 0.15, "{part}");
    drop(daemon);

    // A worker that says that it must not be demoted is not, nor is one that has tasks waiting behind it.
    for flag in [SlotFlag::Demotable, SlotFlag::Handoff] {
        let daemon = Daemon::schedule(&[]);
        let part = match flag {
            SlotFlag::Demotable => {
                part_of_an_equal(&daemon, |slot| slot.clear_flag(SlotFlag::Demotable))
            }
            _ => part_of_an_equal(&daemon, |slot| slot.clear_flag(SlotFlag::Handoff)),
        };
        assert!((0.9..=1.1).contains(&part), "without {flag:?}: {part}");
        assert_eq!(daemon.counter("demotions"), 0);
    }
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
            slot.set_flag(SlotFlag::Demotable);
            slot.set_flag(SlotFlag::Handoff);
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
    // Its CPU time while it was demoted is charged tenfold, and is paid back first: where the emulator stood still
    // during such a run, that is some of the window.
    let mut windows = (0..3).map(|_| part());
    let after = windows.find(|part| (0.9..=1.1).contains(part));
    let after = after.expect("an equal again, in one of three windows");
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
    assert!(unbounded >= share(1.0) + 0.04, "the control");
}

#[test]
fn an_honest_critical_section_is_let_finish() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    // Preemptions within sections, the sections, and the extensions.
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
                    // A third of the time, for 300 µs each.
                    slot.enter_critical();
                    spin(Duration::from_micros(300));
                    slot.leave_critical();
                    spin(Duration::from_micros(600));
                    counted.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let others = Busy::many(cpus() * 2, 0);
        // Their wakes end others' slices early.
        let sleepers: Vec<Busy> = (0..4 * cpus())
            .map(|_| Busy::repeating(|| (), || sleep(Duration::from_millis(1))))
            .collect();
        std::thread::sleep(WINDOW);
        drop((worker, others, sleepers));
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
    assert!(without > 0 && without >= 5 * with);
}

/// A worker that is in long polls and serves in between: how late it is then, and what its process gets of the CPU, as a
/// part of what two of the others get.
fn serves_between_long_polls(arguments: &[&str]) -> (Duration, f64, u64) {
    let daemon = Daemon::schedule(arguments);
    let client = client(&daemon, abi::MORPHEUS_POLICY_REQUEST);
    let stalled = stalled_worker(&client, 0, |_| {});
    let late = Arc::new(Mutex::new(Vec::new()));
    let serving = {
        let (client, late) = (Arc::clone(&client), Arc::clone(&late));
        let mut slot = None;
        Busy::repeating(
            || (),
            move || {
                let slot = slot.get_or_insert_with(|| client.register(1));
                slot.unpark();
                // Ends late in a slice: by its vtime it would have to wait for all the others.
                compute_for(Duration::from_micros(19_500));
                slot.park();
                let due = now_ns() + 1_000_000;
                sleep(Duration::from_millis(1));
                late.lock().unwrap().push(now_ns().saturating_sub(due));
            },
        )
    };
    let others = Busy::many(4, 0);
    std::thread::sleep(Duration::from_millis(500));
    late.lock().unwrap().clear();
    let threads: Vec<&Busy> = others.iter().chain([&stalled, &serving]).collect();
    let shares = shares(&threads, 2 * WINDOW);
    let mut late = std::mem::take(&mut *late.lock().unwrap());
    late.sort_unstable();
    let (others, own) = shares.split_at(4);
    (
        Duration::from_nanos(late[late.len() / 2]),
        2.0 * own.iter().sum::<f64>() / others.iter().sum::<f64>(),
        daemon.counter("loans_repaid"),
    )
}

#[test]
fn who_serves_goes_ahead_and_its_own_process_waits_for_it() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    // With slices of a tick, which leave it far behind; short ones make the same matter less, and so do tiers.
    let (late, part, repaid) = serves_between_long_polls(&["--off", "worker-slice,tiers"]);
    let (late_without, part_without, none) =
        serves_between_long_polls(&["--off", "worker-slice,tiers,loan"]);
    say(&format!(
        "late by {late:?}, without loans by {late_without:?}; two workers get {part:.3} of two others, without loans \
         {part_without:.3}"
    ));
    assert!(repaid > 0 && none == 0);
    assert!(3 * late < late_without, "{late:?}, {late_without:?}");
    assert!(part < 1.06, "nobody else waits for it: {part}");
}

/// The share of the CPU of a worker beside four busy threads, if it goes to sleep after each long poll, and says Hello
/// again this often: then it has another lease.
fn share_of_one_that_rebinds(every: Option<Duration>) -> f64 {
    // With slices of a tick, which leave a worker far behind when its poll ends.
    let daemon = Daemon::schedule(&["--off", "worker-slice,tiers"]);
    let path = daemon.socket.clone();
    let connect = move || {
        let client = Client::with(&path, hello(abi::MORPHEUS_POLICY_REQUEST));
        client.register(0);
        client.runtime_slot(0).unpark();
        (client, Instant::now())
    };
    let mut bound = None;
    let worker = Busy::repeating(
        || (),
        move || {
            let (client, since) = bound.take().unwrap_or_else(&connect);
            compute_for(Duration::from_micros(19_500));
            client.runtime_slot(0).park();
            sleep(Duration::from_millis(1));
            client.runtime_slot(0).unpark();
            bound = Some((client, since));
            if every.is_some_and(|every| since.elapsed() >= every) {
                let (client, _) = bound.take().unwrap();
                // SAFETY: its slots were used in this closure alone, which is done with them.
                unsafe { client.end() };
                bound = Some(connect());
            }
        },
    );
    let others = Busy::many(4, 0);
    std::thread::sleep(Duration::from_millis(500));
    let threads: Vec<&Busy> = others.iter().chain([&worker]).collect();
    let shares = shares(&threads, 2 * WINDOW);
    assert!(daemon.counter("loans") > 0);
    shares[others.len()]
}

/// The debt of a worker is its process's, whatever lease it has.
#[test]
fn a_new_lease_does_not_shed_what_a_worker_owes() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let honest = share_of_one_that_rebinds(None);
    let rebinding = share_of_one_that_rebinds(Some(Duration::from_millis(50)));
    say(&format!(
        "an honest worker gets {:.2} %, one with a new lease every 50 ms {:.2} %",
        honest * 100.0,
        rebinding * 100.0
    ));
    assert!(rebinding <= honest + 0.01, "{rebinding} {honest}");
}

/// Offences are those of a process's label: from the eighth on its polls are throttled, whatever lease they were under.
#[test]
fn a_new_lease_does_not_shed_hog_polls() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let daemon = Daemon::schedule(&[]);
    let path = daemon.socket.clone();
    let polls = std::thread::spawn(move || {
        for _ in 0..6 {
            let client = Client::with(&path, hello(abi::MORPHEUS_POLICY_THROTTLE));
            let slot = client.register(0);
            slot.set_flag(SlotFlag::Demotable);
            slot.set_flag(SlotFlag::Handoff);
            slot.label.store(7, Ordering::Relaxed);
            slot.unpark();
            for _ in 0..3 {
                let seq = slot.begin_poll();
                compute_for(Duration::from_micros(20_000));
                slot.end_poll(seq);
            }
            // SAFETY: its slots were used in this closure alone, which is done with them.
            unsafe { client.end() };
        }
    });
    polls.join().unwrap();
    let (demotions, throttles) = (daemon.counter("demotions"), daemon.counter("throttles"));
    say(&format!(
        "18 long polls under six leases: {demotions} demotions, {throttles} throttled"
    ));
    assert!(demotions >= 12 && throttles > 0, "{demotions} {throttles}");
}

/// Where no CPU looks into the queues for a while, since a real-time thread has it, a throttled worker is not forgotten.
#[test]
fn a_throttled_worker_runs_again_after_a_real_time_thread() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let daemon = Daemon::schedule(&[]);
    let client = client(&daemon, abi::MORPHEUS_POLICY_THROTTLE);
    let _others = Busy::many(2 * cpus(), 0);
    let worker = {
        let registers = Arc::clone(&client);
        let client = Arc::clone(&client);
        Busy::repeating(
            move || {
                // So heavy that it would have more than its 5 ms of each 100 by its vtime.
                set_nice(-10);
                let slot = registers.register(0);
                slot.set_flag(SlotFlag::Demotable);
                slot.set_flag(SlotFlag::Handoff);
                slot.label.store(7, Ordering::Relaxed);
                slot.unpark();
            },
            move || {
                let slot = client.runtime_slot(0);
                // Offences of one label, until the kernel side throttles its polls.
                let seq = slot.begin_poll();
                compute_for(Duration::from_micros(20_000));
                slot.end_poll(seq);
            },
        )
    };
    daemon.all_move(&["to_throttled"]);
    for _ in 0..4 {
        let before = daemon.counter("from_throttled");
        // Longer than a CPU remembers by itself that there are throttled workers.
        for cpu in 0..cpus() {
            std::thread::spawn(move || {
                pin(cpu);
                take_precedence();
                spin(Duration::from_millis(400));
            });
        }
        std::thread::sleep(Duration::from_millis(500));
        let ran = worker.cpu_ns();
        let until = Instant::now() + Duration::from_secs(2);
        while worker.cpu_ns() == ran && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(worker.cpu_ns() > ran, "it has not run for 2 s");
        std::thread::sleep(Duration::from_millis(500));
        assert!(daemon.counter("from_throttled") > before);
    }
    assert_eq!(state(), "enabled");
}

/// Where the process is that [`stalled_elsewhere`] is to make.
const STALLED_ELSEWHERE: &str = "MORPHEUS_STALLED_ELSEWHERE";

/// No test: a process of its own, whose worker is stalled for ever. It says when that has begun.
#[test]
fn stalled_elsewhere() {
    let Some(path) = std::env::var_os(STALLED_ELSEWHERE) else {
        return;
    };
    let client = Client::with(Path::new(&path), hello(abi::MORPHEUS_POLICY_REQUEST));
    be_stalled(&client, 0, |_| {});
    say("stalled");
    loop {
        compute();
    }
}

/// How often workers that wake all the time and say that they serve interrupt a stalled worker in a second: one of another
/// process, or of their own.
fn interruptions(of_another: bool) -> f64 {
    let daemon = Daemon::schedule(&[]);
    let client = client(&daemon, abi::MORPHEUS_POLICY_REQUEST);
    let mut other = None;
    let mut own = None;
    if of_another {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "stalled_elsewhere", "--nocapture"])
            .env(STALLED_ELSEWHERE, &daemon.socket)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        let mut lines = stderr.lines().map_while(Result::ok);
        assert!(lines.any(|line| line == "stalled"));
        other = Some(child);
    } else {
        own = Some(stalled_worker(&client, 7, |_| {}));
    }
    let serving: Vec<Busy> = (0..3)
        .map(|index| {
            let registers = Arc::clone(&client);
            let client = Arc::clone(&client);
            Busy::repeating(
                move || registers.register(index).unpark(),
                move || {
                    client.runtime_slot(index).park();
                    sleep(Duration::from_micros(300));
                    client.runtime_slot(index).unpark();
                },
            )
        })
        .collect();
    std::thread::sleep(Duration::from_millis(500));
    let begun = Instant::now();
    let before = daemon.counter("kicks_for_serving");
    std::thread::sleep(WINDOW);
    let kicks = daemon.counter("kicks_for_serving") - before;
    let rate = kicks as f64 / begun.elapsed().as_secs_f64();
    drop((serving, own));
    if let Some(mut child) = other {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    rate
}

/// That a worker serves is a claim. So it interrupts a stalled worker of another process up to once in 2 ms.
#[test]
fn a_process_does_not_interrupt_anothers_stalled_worker_at_will() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let (own, of_another) = (interruptions(false), interruptions(true));
    say(&format!(
        "a stalled worker is interrupted {own:.0} times in a second by its own process, {of_another:.0} times by another"
    ));
    assert!(of_another <= 525.0 * cpus() as f64, "{of_another}");
    assert!(own > 1.5 * of_another, "the control: {own} {of_another}");
}

/// How many messages one that sends all the time gets rid of before who reads them has the CPU.
fn messages_at_a_time(arguments: &[&str]) -> f64 {
    let _daemon = Daemon::schedule(arguments);
    let (mut to, mut from) = UnixStream::pair().unwrap();
    let received = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&received);
    let reader = Busy::repeating(
        || (),
        move || {
            if from.read_exact(&mut [0; 64]).is_ok() {
                count.fetch_add(1, Ordering::Relaxed);
            }
        },
    );
    // Ends first, and the reader with it.
    let writer = Busy::repeating(|| (), move || to.write_all(&[1; 64]).unwrap());
    std::thread::sleep(Duration::from_millis(300));
    let now = || (received.load(Ordering::Relaxed), reader.runs());
    let before = now();
    std::thread::sleep(Duration::from_secs(1));
    let after = now();
    drop(writer);
    (after.0 - before.0) as f64 / (after.1 - before.1) as f64
}

/// The kernel does not say of a wake on a machine with one CPU that the waker is about to sleep.
#[test]
fn a_sender_is_not_preempted_for_each_message() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let with = messages_at_a_time(&[]);
    let without = messages_at_a_time(&["--off", "sync-pause"]);
    say(&format!(
        "{with:.1} messages at a time, {without:.1} without a pause"
    ));
    assert!(with >= 4.0 && without < with / 2.0, "{with} {without}");
}

/// A demoted worker goes on after one of the kernel's own threads, at once, and with ten times its CPU time as vtime. It is
/// no measure for the others: with the clock there, tasks that compute would be far behind, and tasks that wake behind those.
#[test]
fn who_goes_on_out_of_order_does_not_take_the_clock_along() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    // A demoted worker that runs for whole slices, and is interrupted late in each.
    let daemon = Daemon::schedule(&["--off", "worker-slice"]);
    let client = client(&daemon, abi::MORPHEUS_POLICY_DEMOTE);
    let _worker = {
        let (client, mut ran_ns) = (Arc::clone(&client), 0);
        let again = move || {
            if own_cpu_ns() - ran_ns > 3_000_000 {
                have_a_kernel_thread_work();
                ran_ns = own_cpu_ns();
            }
        };
        Busy::repeating(move || be_stalled(&client, 0, |_| {}), again)
    };
    let _others = Busy::many(2 * cpus(), 0);
    let mut late = Vec::new();
    let until = Instant::now() + 3 * WINDOW;
    while Instant::now() < until {
        // Long enough for the worker to have a slice in between.
        let due = now_ns() + 7_000_000;
        sleep(Duration::from_millis(7));
        late.push(now_ns().saturating_sub(due));
    }
    let resumed = daemon.counter("resumed");
    late.sort_unstable();
    let at = |share: f64| Duration::from_nanos(late[((late.len() - 1) as f64 * share) as usize]);
    say(&format!(
        "{resumed} resumed; {} sleeps late by {:?}, at p99.7 {:?}, at most {:?}",
        late.len(),
        at(0.5),
        at(0.997),
        at(1.0)
    ));
    assert!(daemon.counter("demotions") > 0 && resumed > 0);
    // Two slices of those that compute; it was 30 to 70 ms. Some are late by what else the machine does.
    assert!(at(0.997) < Duration::from_millis(20));
}

/// A key without a holder is collected by this CPU's own thread.
fn have_a_kernel_thread_work() {
    const THREAD_KEYRING: libc::c_long = -1;
    // SAFETY: the strings end with a zero, and the payload is as long as said.
    let key = unsafe {
        libc::syscall(
            libc::SYS_add_key,
            c"user".as_ptr(),
            c"morpheus".as_ptr(),
            c"x".as_ptr(),
            1,
            THREAD_KEYRING,
        )
    };
    assert!(key > 0, "{}", std::io::Error::last_os_error());
    // SAFETY: no memory is involved.
    let gone = unsafe { libc::syscall(libc::SYS_keyctl, libc::KEYCTL_UNLINK, key, THREAD_KEYRING) };
    assert_eq!(gone, 0, "{}", std::io::Error::last_os_error());
}

/// Wall time, with the clock read all the time.
fn spin(duration: Duration) {
    let start = now_ns();
    while now_ns() - start < duration.as_nanos() as u64 {}
}
