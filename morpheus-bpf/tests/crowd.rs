// SPDX-License-Identifier: GPL-2.0-only
//! Crowds: hundreds of runnable threads on each CPU under the scheduler. For guests, as `scheduler.rs` is.
//!
//! The kernel ejects a scheduler when a runnable task does not run for 5 s. Each thread measures its own longest wait: the
//! time that passed between two readings of the clock, less its CPU time between them.

mod common;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use common::daemon::Daemon;
use common::group::Group;
use common::guest::{can_run, cpus, state};
use common::load::{closed_gate, own_cpu_ns, pin_to, set_nice};
use common::{now_ns, say, turn, window};

/// The longest wait allowed. The kernel's limit is 5 s.
const LONGEST: Duration = Duration::from_secs(3);

/// How long a crowd computes, in seconds, if not 12.
const SECONDS: &str = "MORPHEUS_CROWD_SECONDS";

/// How a thread of a crowd differs from others.
#[derive(Clone, Default)]
struct Member {
    nice: i32,
    /// Empty: all.
    cpus: Vec<usize>,
    group: Option<PathBuf>,
}

/// The measurements of a thread.
#[derive(Default)]
struct Measured {
    longest_ns: AtomicU64,
    cpu_ns: AtomicU64,
}

/// Threads that compute, all of which begin at the same time; they end when this is dropped.
struct Crowd {
    stop: Arc<AtomicBool>,
    measured: Vec<Arc<Measured>>,
    threads: Vec<JoinHandle<()>>,
}

impl Crowd {
    fn start(members: Vec<Member>) -> Crowd {
        let ((gate, closed), arrived) = (closed_gate(), Arc::<AtomicUsize>::default());
        let all = members.len();
        let mut crowd = Crowd {
            stop: Arc::default(),
            measured: Vec::new(),
            threads: Vec::new(),
        };
        for member in members {
            let measured = Arc::<Measured>::default();
            let arrived = Arc::clone(&arrived);
            let (stop, own) = (Arc::clone(&crowd.stop), Arc::clone(&measured));
            crowd.measured.push(measured);
            crowd.threads.push(std::thread::spawn(move || {
                if let Some(group) = &member.group {
                    Group::join(group);
                }
                if !member.cpus.is_empty() {
                    pin_to(&member.cpus);
                }
                set_nice(member.nice);
                arrived.fetch_add(1, Ordering::Relaxed);
                drop(gate.read());
                live(&stop, &own);
            }));
        }
        while arrived.load(Ordering::Relaxed) < all {
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(closed);
        crowd
    }

    /// The longest wait of any of them so far.
    fn longest(&self) -> Duration {
        let longest = |one: &Arc<Measured>| one.longest_ns.load(Ordering::Relaxed);
        Duration::from_nanos(self.measured.iter().map(longest).max().unwrap_or(0))
    }

    fn cpu_ns(&self) -> u64 {
        let used = |one: &Arc<Measured>| one.cpu_ns.load(Ordering::Relaxed);
        self.measured.iter().map(used).sum()
    }

    /// Ends them, and returns their longest wait, including the one that has just ended.
    fn end(mut self) -> Duration {
        self.join();
        self.longest()
    }

    fn join(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.join();
    }
}

fn live(stop: &AtomicBool, measured: &Measured) {
    let (mut at_ns, mut used_ns) = (now_ns(), own_cpu_ns());
    let began_ns = used_ns;
    while !stop.load(Ordering::Relaxed) {
        // The readings are all of its work: the shortest turn has to be long enough for several.
        std::hint::spin_loop();
        // The CPU time first: what is lost between the two readings must not count as a wait.
        let used = own_cpu_ns();
        let at = now_ns();
        let waited_ns = (at - at_ns).saturating_sub(used - used_ns);
        // This thread alone writes; a reader needs no order between the two.
        measured.longest_ns.fetch_max(waited_ns, Ordering::Relaxed);
        measured.cpu_ns.store(used - began_ns, Ordering::Relaxed);
        (at_ns, used_ns) = (at, used);
    }
}

/// Lets several crowds compute under the scheduler, each begun after the one before. Returns what part of the CPU time each
/// got.
fn longest_wait_is_bounded(what: &str, crowds: Vec<Vec<Member>>) -> Vec<f64> {
    let daemon = Daemon::schedule(&[]);
    let crowds: Vec<Crowd> = crowds.into_iter().map(Crowd::start).collect();
    // The time that the threads need to begin is no wait of theirs.
    std::thread::sleep(Duration::from_secs(1));
    let before: Vec<u64> = crowds.iter().map(Crowd::cpu_ns).collect();
    let (begun, step) = (Instant::now(), Duration::from_millis(500));
    let mut late = Duration::ZERO;
    while begun.elapsed() < window(SECONDS) && state() == "enabled" {
        let due = Instant::now() + step;
        std::thread::sleep(step);
        late = late.max(due.elapsed());
    }
    let (state, watched) = (state(), begun.elapsed());
    let used: Vec<u64> = crowds
        .iter()
        .zip(before)
        .map(|(crowd, before)| crowd.cpu_ns() - before)
        .collect();
    let longest = crowds.into_iter().map(Crowd::end).max().unwrap();
    let all = used.iter().sum::<u64>().max(1) as f64;
    let shares: Vec<f64> = used.iter().map(|used| *used as f64 / all).collect();
    let of_the_machine = all / cpus() as f64 / watched.as_nanos() as f64;
    say(&format!(
        "{what}: longest wait {longest:.2?}, this thread's {late:.2?}, shares {shares:.3?} of {of_the_machine:.2} of the \
         machine, {state} after {watched:.1?}"
    ));
    if state == "enabled" {
        let counters = daemon.numbers()["counters"].take();
        for name in ["rescues", "rescues_of_aged", "kicks_in_crowd"] {
            say(&format!("{name}: {}", counters[name]));
        }
    }
    assert_eq!(state, "enabled", "{what}");
    assert!(longest <= LONGEST, "{what}: a thread waited {longest:?}");
    assert!(daemon.stop().success());
    shares
}

fn members(count: usize, member: &Member) -> Vec<Member> {
    vec![member.clone(); count]
}

#[test]
fn many_of_low_priority_beside_others() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let usual = members(40, &Member::default());
    let low = members(
        300,
        &Member {
            nice: 19,
            ..Member::default()
        },
    );
    let shares = longest_wait_is_bounded("40 of nice 0, 300 of nice 19", vec![usual, low]);
    // By weight it is 0.90. The net takes some of that, and not more.
    assert!(shares[0] > 0.8, "{shares:?}");
}

#[test]
fn many_of_low_priority_on_one_of_the_cpus() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let usual = members(2 * cpus(), &Member::default());
    let low = members(
        300,
        &Member {
            nice: 19,
            cpus: vec![0],
            ..Member::default()
        },
    );
    longest_wait_is_bounded("300 of nice 19 pinned to the first CPU", vec![usual, low]);
}

#[test]
fn many_in_a_light_group_beside_others() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let (light, usual) = (
        Group::new("light").with_weight(1),
        Group::new("usual").with_weight(100),
    );
    let of = |group: &Group| Member {
        group: Some(group.path.clone()),
        ..Member::default()
    };
    let crowds = vec![members(8, &of(&usual)), members(300, &of(&light))];
    let shares = longest_wait_is_bounded("8 threads, 300 in a group of weight 1", crowds);
    // By weight it is 0.99. To let 300 threads run once in 3 s takes some of that.
    assert!(shares[0] > 0.8, "{shares:?}");
}

/// Niceness, weights and affinities of all kinds.
#[test]
fn a_thousand_of_all_kinds() {
    if !can_run() {
        return;
    }
    let _turn = turn();
    let (light, heavy) = (
        Group::new("light").with_weight(1),
        Group::new("heavy").with_weight(10_000),
    );
    let all = cpus();
    let mixed = (0..1000).map(|index| Member {
        nice: index as i32 * 7 % 40 - 20,
        cpus: match index % 4 {
            0 => vec![index / 4 % all],
            1 => vec![0],
            2 => vec![0, all / 2],
            _ => Vec::new(),
        },
        group: match index % 5 {
            0 => Some(light.path.clone()),
            1 => Some(heavy.path.clone()),
            _ => None,
        },
    });
    longest_wait_is_bounded("1,000 threads of all kinds", vec![mixed.collect()]);
}
