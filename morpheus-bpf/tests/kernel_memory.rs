// SPDX-License-Identifier: GPL-2.0-only
//! The memory that users can make the daemon and the kernel hold, and whether other users still join. Needs root and a
//! kernel with BTF.

mod common;

use std::fs;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::client::hello;
use common::daemon::Daemon;
use common::memory::Mapping;
use common::wire::{connect, receive, send};
use common::{BUDGET, PAGE, as_user, can_run, in_guest, say, turn};
use morpheus_common::abi::MORPHEUS_MAX_SLOTS;
use morpheus_common::broker::{Refusal, Reply};

/// More than this, and the attack has worked.
const MOST_BYTES: u64 = 64 << 20;
/// How soon the application of another user has to have joined; natively, where other programs keep the CPUs busy, half
/// of the time.
const JOINS_WITHIN: Duration = Duration::from_millis(100);

/// The user who attacks, under its own uid and under those that its user namespaces may have.
const HOSTILE: u32 = 65_534;
const SUBORDINATE: std::ops::Range<u32> = 100_000..100_006;
/// Uids that no file names: systemd hands out such ranges on request.
const STRANGERS: std::ops::Range<u32> = 600_000..600_004;
/// The user who only wants to work.
const INNOCENT: u32 = 1_000;

/// Tells [`attacker`] where the daemon listens.
const ATTACK: &str = "MORPHEUS_TEST_ATTACK";

fn attack_for() -> Duration {
    Duration::from_secs(if in_guest() { 60 } else { 6 })
}

/// Connects and asks for areas. A connection that the daemon closes at once counts as refused for its rate.
fn join(path: &Path, slots: u32) -> Result<(OwnedFd, Vec<OwnedFd>), Refusal> {
    let socket = connect(path);
    let _ = send(&socket, hello(slots, BUDGET).encode().bytes(), &[]);
    match receive(&socket) {
        Some((Reply::Welcome { .. }, areas)) => Ok((socket, areas)),
        Some((Reply::Refused(refusal), _)) => Err(refusal),
        Some((other, _)) => panic!("{other:?}"),
        None => Err(Refusal::Rate),
    }
}

/// Not a test: the process that attacks. Each thread joins, maps a page of each area, and closes everything else.
#[test]
fn attacker() {
    let Some(path) = std::env::var_os(ATTACK) else {
        return;
    };
    let path = Path::new(&path);
    let (welcome, refused) = (AtomicU64::new(0), AtomicU64::new(0));
    let until = Instant::now() + attack_for();
    let hoard = || {
        while Instant::now() < until {
            let Ok((_socket, areas)) = join(path, MORPHEUS_MAX_SLOTS) else {
                refused.fetch_add(1, Ordering::Relaxed);
                continue;
            };
            for area in &areas {
                // Never unmapped: it lives as long as this process.
                let mapped = Mapping::for_reading(area, PAGE, 0);
                assert!(mapped.is_ok(), "{mapped:?}", mapped = mapped.err());
            }
            welcome.fetch_add(1, Ordering::Relaxed);
        }
    };
    thread::scope(|scope| {
        for uid in [HOSTILE].into_iter().chain(SUBORDINATE).chain(STRANGERS) {
            scope.spawn(move || as_user(uid, hoard));
        }
    });
    println!(
        "\n{} joined and kept the mappings, {} were refused",
        welcome.load(Ordering::Relaxed),
        refused.load(Ordering::Relaxed)
    );
}

/// Ends the process when it is dropped.
struct Attacker(Child);

impl Attacker {
    fn start(path: &Path) -> Attacker {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "attacker", "--test-threads", "1", "--nocapture"])
            .env(ATTACK, path)
            .stdout(Stdio::piped())
            .spawn();
        Attacker(child.unwrap())
    }

    fn has_ended(&mut self) -> bool {
        self.0.try_wait().unwrap().is_some()
    }

    /// The line with its counts.
    fn result(&mut self) -> String {
        let mut text = String::new();
        let _ = self.0.stdout.take().unwrap().read_to_string(&mut text);
        let line = text.lines().find(|line| line.contains("were refused"));
        line.unwrap_or("the attacker has failed").to_owned()
    }
}

impl Drop for Attacker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A group of its own for the daemon, where the kernel accounts the memory of groups.
struct Group(String);

impl Group {
    fn of(daemon: &Daemon) -> Option<Group> {
        if !in_guest() {
            return None;
        }
        let _ = fs::write("/sys/fs/cgroup/cgroup.subtree_control", "+memory");
        let path = "/sys/fs/cgroup/kernel-memory".to_owned();
        fs::create_dir_all(&path).unwrap();
        fs::write(
            format!("{path}/cgroup.procs"),
            daemon.child.id().to_string(),
        )
        .unwrap();
        Some(Group(path))
    }

    fn bytes(&self) -> u64 {
        let text = fs::read_to_string(format!("{}/memory.current", self.0)).unwrap();
        text.trim().parse().unwrap()
    }
}

/// Bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    /// The daemon's own memory.
    daemon: u64,
    /// The memory that the kernel has allocated page by page, as it does for areas and rings.
    kernel: u64,
    /// The memory of the whole machine that is not available. In a guest, where nothing else runs.
    machine: u64,
    /// The memory that the daemon's group is charged with.
    group: u64,
}

impl Usage {
    fn now(daemon: &Daemon, group: Option<&Group>) -> Usage {
        let line = |file: &str, name: &str| -> u64 {
            let text = fs::read_to_string(file).unwrap();
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            let kib = line.and_then(|line| line.split_whitespace().next());
            kib.and_then(|kib| kib.parse::<u64>().ok())
                .unwrap_or_else(|| panic!("no {name} in {file}"))
                << 10
        };
        let memory = "/proc/meminfo";
        Usage {
            daemon: line(&format!("/proc/{}/status", daemon.child.id()), "VmRSS:"),
            kernel: line(memory, "VmallocUsed:"),
            machine: match in_guest() {
                true => line(memory, "MemTotal:") - line(memory, "MemAvailable:"),
                false => 0,
            },
            group: group.map_or(0, Group::bytes),
        }
    }

    fn more_than(self, before: Usage) -> Usage {
        Usage {
            daemon: self.daemon.saturating_sub(before.daemon),
            kernel: self.kernel.saturating_sub(before.kernel),
            machine: self.machine.saturating_sub(before.machine),
            group: self.group.saturating_sub(before.group),
        }
    }

    fn most(self) -> u64 {
        let Usage {
            daemon,
            kernel,
            machine,
            group,
        } = self;
        daemon.max(kernel).max(machine).max(group)
    }
}

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        write!(
            f,
            "daemon {:.1}, VmallocUsed {:.1}, machine {:.1}, memory.current {:.1} MiB",
            mib(self.daemon),
            mib(self.kernel),
            mib(self.machine),
            mib(self.group)
        )
    }
}

/// How long each of several joins took.
struct Joins {
    times: Vec<Duration>,
    refused: Vec<Refusal>,
}

impl Joins {
    /// Joins ten times a second, up to `most` times.
    fn again_and_again(path: &Path, stop: &AtomicBool, most: usize) -> Joins {
        let (mut times, mut refused) = (Vec::new(), Vec::new());
        while !stop.load(Ordering::Relaxed) && times.len() + refused.len() < most {
            let start = Instant::now();
            match join(path, 64) {
                Ok(_) => times.push(start.elapsed()),
                Err(refusal) => refused.push(refusal),
            }
            thread::sleep(Duration::from_millis(100));
        }
        Joins { times, refused }
    }

    fn quantile(&self, part: f64) -> Duration {
        let mut times = self.times.clone();
        times.sort_unstable();
        let last = times.len().saturating_sub(1);
        let index = (last as f64 * part) as usize;
        times.get(index).copied().unwrap_or_default()
    }

    fn say(&self, what: &str) {
        let ms = |part| self.quantile(part).as_secs_f64() * 1e3;
        let longest = self
            .times
            .iter()
            .position(|time| *time == self.quantile(1.0));
        say(&format!(
            "{what}, another user joined {} times, in p50 {:.1}, p99 {:.1} and at most {:.1} ms (the {}th time); {} were \
             refused",
            self.times.len(),
            ms(0.5),
            ms(0.99),
            ms(1.0),
            longest.unwrap_or(0) + 1,
            self.refused.len()
        ));
    }
}

#[test]
fn what_users_can_make_the_kernel_hold_is_bounded() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    if in_guest() {
        // The administrator gave the hostile user subordinate uids.
        fs::create_dir_all("/etc").unwrap();
        fs::write("/etc/subuid", format!("{HOSTILE}:100000:65536\n")).unwrap();
    }
    let mut daemon = Daemon::start(&[]);
    let group = Group::of(&daemon);
    let path = daemon.socket.clone();
    // Memory that the first client costs once is no part of the attack.
    drop(join(&path, MORPHEUS_MAX_SLOTS).unwrap());
    thread::sleep(Duration::from_secs(1));
    let before = Usage::now(&daemon, group.as_ref());
    let stop = AtomicBool::new(false);
    let joins = |most| as_user(INNOCENT, || Joins::again_and_again(&path, &stop, most));
    joins(20).say("alone");
    let mut attack = Attacker::start(&path);
    let (most, joined) = thread::scope(|scope| {
        let innocent = scope.spawn(|| joins(usize::MAX));
        let mut most = Usage::default();
        while !attack.has_ended() && most.most() < 4 * MOST_BYTES {
            thread::sleep(Duration::from_millis(200));
            let now = Usage::now(&daemon, group.as_ref()).more_than(before);
            most = Usage {
                daemon: most.daemon.max(now.daemon),
                kernel: most.kernel.max(now.kernel),
                machine: most.machine.max(now.machine),
                group: most.group.max(now.group),
            };
        }
        stop.store(true, Ordering::Relaxed);
        (most, innocent.join().unwrap())
    });
    let ended = attack.has_ended();
    drop_attacker_and_say(attack, ended, most);
    joined.say("beside them");
    assert!(most.most() <= MOST_BYTES, "more memory is held: {most}");
    assert_eq!(joined.refused, [], "the other user was refused");
    assert!(joined.times.len() > 20);
    let late = joined.quantile(if in_guest() { 1.0 } else { 0.5 });
    assert!(late <= JOINS_WITHIN, "{late:?}");
    assert!(daemon.is_alive());
    // With the mappings gone, the user who had them is as welcome as any other.
    let until = Instant::now() + common::PATIENCE;
    while let Err(refusal) = as_user(HOSTILE, || join(&path, MORPHEUS_MAX_SLOTS)) {
        assert!(Instant::now() < until, "still refused: {refusal}");
        thread::sleep(Duration::from_millis(200));
    }
}

fn drop_attacker_and_say(mut attack: Attacker, ended: bool, most: Usage) {
    let result = if ended {
        attack.result()
    } else {
        "stopped before it took more".to_owned()
    };
    say(&format!("hoarders: {result}; held at most {most}"));
}
