// SPDX-License-Identifier: GPL-2.0-only
//! CPUs that differ in capacity, as far as sysfs says so: tasks are on performance cores while these suffice.

mod common;

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use common::daemon::Daemon;
use common::guest::{can_run, cpus, state};
use common::load::{Busy, compute, pin, pin_to};
use common::{say, sleep, turn};
use rustix::mount::{UnmountFlags, mount_bind, unmount};
use rustix::thread::sched_getcpu;

const CPUS: &str = "/sys/devices/system/cpu";

/// How long threads are measured.
const WHILE: Duration = Duration::from_secs(3);

/// The first CPUs are efficient cores, as many as there are performance cores.
const EFFICIENT: usize = 2;

/// The guest's own description of its CPUs, with capacities, in place of the kernel's for as long as this lives.
struct Hybrid(tempfile::TempDir);

impl Hybrid {
    fn new() -> Hybrid {
        let described = tempfile::tempdir().unwrap();
        copy(Path::new(CPUS), described.path());
        for cpu in 0..cpus() {
            let capacity = if cpu < EFFICIENT { "400" } else { "1024" };
            let file = format!("cpu{cpu}/cpu_capacity");
            fs::write(described.path().join(file), capacity).unwrap();
        }
        mount_bind(described.path(), CPUS).unwrap();
        Hybrid(described)
    }
}

impl Drop for Hybrid {
    fn drop(&mut self) {
        unmount(CPUS, UnmountFlags::empty()).unwrap();
        assert!(self.0.path().exists());
    }
}

/// Copies directories and the files that can be read, without symbolic links.
fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            fs::create_dir(&target).unwrap();
            copy(&entry.path(), &target);
        } else if kind.is_file()
            && let Ok(text) = fs::read(entry.path())
        {
            fs::write(target, text).unwrap();
        }
    }
}

/// How often a thread was seen on efficient and on performance cores.
#[derive(Default)]
struct Seen([AtomicU64; 2]);

impl Seen {
    fn note(&self) {
        let on_fast = sched_getcpu() >= EFFICIENT;
        self.0[usize::from(on_fast)].fetch_add(1, Relaxed);
    }

    fn counts(&self) -> [u64; 2] {
        self.0.each_ref().map(|count| count.load(Relaxed))
    }
}

/// Begins on an efficient core, and may then go anywhere.
fn begin_slow() {
    // As long as it may run on all of them.
    let all: Vec<usize> = (0..cpus()).collect();
    pin(0);
    pin_to(&all);
}

/// The part of the time on performance cores of as many computing threads as there are such cores; and, of a thread that sleeps and
/// wakes, the part of the wake-ups there.
fn parts(arguments: &[&str]) -> [f64; 2] {
    let daemon = Daemon::schedule(arguments);
    let parts = [true, false].map(|computes| {
        let seen: Arc<Seen> = Arc::default();
        let threads = if computes { cpus() - EFFICIENT } else { 1 };
        let busy: Vec<Busy> = (0..threads)
            .map(|_| {
                let seen = Arc::clone(&seen);
                let again = move || {
                    compute();
                    seen.note();
                    if !computes {
                        sleep(Duration::from_millis(3));
                    }
                };
                Busy::repeating(begin_slow, again)
            })
            .collect();
        std::thread::sleep(Duration::from_millis(300));
        let before = seen.counts();
        std::thread::sleep(WHILE);
        let after = seen.counts();
        drop(busy);
        let [slow, fast] = [0, 1].map(|kind| (after[kind] - before[kind]) as f64);
        fast / (slow + fast)
    });
    assert_eq!(state(), "enabled");
    assert!(daemon.stop().success());
    parts
}

#[test]
fn tasks_prefer_performance_cores() {
    if !can_run() {
        return;
    }
    assert_eq!(cpus(), 2 * EFFICIENT, "this test needs four CPUs");
    let _turn = turn();
    let _hybrid = Hybrid::new();
    let (with, without) = (parts(&[]), parts(&["--without", "hybrid"]));
    say(&format!(
        "on performance cores: computing threads {:.3}, wake-ups {:.3}; {:.3} and {:.3} where capacity has no say",
        with[0], with[1], without[0], without[1]
    ));
    assert!(with.iter().all(|part| *part > 0.95), "{with:?}");
    assert!(without.iter().all(|part| *part < 0.7), "{without:?}");
}
