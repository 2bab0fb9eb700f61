// SPDX-License-Identifier: GPL-2.0-only
//! Groups of threads (cgroups) that a test makes.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::load::{Busy, Many, pin};
use super::say;

/// Where the groups are.
pub const ROOT: &str = "/sys/fs/cgroup";

/// A group of threads, in the root or in another one; it goes when it is dropped.
pub struct Group {
    pub path: PathBuf,
}

impl Group {
    pub fn new(name: &str) -> Group {
        Group::at(Path::new(ROOT), name)
    }

    pub fn within(&self, name: &str) -> Group {
        Group::at(&self.path, name)
    }

    fn at(parent: &Path, name: &str) -> Group {
        fs::write(parent.join("cgroup.subtree_control"), "+cpu").unwrap();
        let path = parent.join(name);
        fs::create_dir(&path).unwrap();
        // Threads of one process may be in different ones then.
        fs::write(path.join("cgroup.type"), "threaded").unwrap();
        Group { path }
    }

    pub fn set(&self, file: &str, value: &str) {
        fs::write(self.path.join(file), value).unwrap();
    }

    /// Limits it until the guard is dropped. A thread that is to end has to run for it: made after the threads, the
    /// guard goes before them, also when a test fails.
    pub fn limit(&self, value: &str) -> Limit {
        self.set("cpu.max", value);
        Limit(self.path.join("cpu.max"))
    }

    pub fn with_weight(self, weight: u32) -> Group {
        self.set("cpu.weight", &weight.to_string());
        self
    }

    pub fn take(&self, thread: &Busy) {
        self.set("cgroup.threads", &thread.tid.to_string());
    }

    /// Puts the calling thread into it.
    pub fn join(path: &Path) {
        fs::write(path.join("cgroup.threads"), "0").unwrap();
    }

    /// A thread in it that computes, on the first CPU.
    pub fn busy(&self) -> Busy {
        let threads = self.path.join("cgroup.threads");
        Busy::new(move || {
            pin(0);
            fs::write(threads, "0").unwrap();
        })
    }

    pub fn busy_many(&self, count: usize) -> Vec<Busy> {
        (0..count).map(|_| self.busy()).collect()
    }

    /// As many threads in it that will compute, wherever they may.
    pub fn many(&self, count: usize) -> Many {
        // A thread begins in the group of the one that starts it.
        Group::join(&self.path);
        let many = Many::start(count);
        Group::join(Path::new(ROOT));
        many
    }

    /// CPU time of all that were in it so far.
    pub fn cpu_ns(&self) -> u64 {
        let text = fs::read_to_string(self.path.join("cpu.stat")).unwrap();
        let usage = text
            .lines()
            .find_map(|line| line.strip_prefix("usage_usec "));
        usage.unwrap().parse::<u64>().unwrap() * 1000
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Threads that have ended may not be out of it yet.
        let until = Instant::now() + Duration::from_secs(2);
        while let Err(error) = fs::remove_dir(&self.path) {
            if Instant::now() > until {
                say(&format!("{} stays: {error}", self.path.display()));
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

/// A group's limit, by its file; lifted when it is dropped.
pub struct Limit(PathBuf);

impl Drop for Limit {
    fn drop(&mut self) {
        let _ = fs::write(&self.0, "max");
    }
}
