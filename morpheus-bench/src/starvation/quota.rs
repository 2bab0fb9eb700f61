//! A cgroup with a CPU quota, for the time of one run.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use morpheus_harness::clock;

/// The period that quotas are counted over: the kernel's default.
const PERIOD_US: u64 = 100_000;

/// A cgroup that is removed again with this value.
pub struct Cgroup {
    path: PathBuf,
}

impl Cgroup {
    /// A cgroup (version 1 or 2) whose processes get `cpus` CPUs together.
    ///
    /// # Errors
    /// In words for people: without root, or where no CPU controller is mounted.
    pub fn create(cpus: f64) -> Result<Self, String> {
        let mounts = fs::read_to_string("/proc/self/mountinfo")
            .map_err(|error| format!("/proc/self/mountinfo: {error}"))?;
        let quota_us = (cpus * PERIOD_US as f64).round() as u64;
        let name = format!("morpheus-bench-{}", std::process::id());
        let (parent, settings) = match (v1_mount(&mounts), v2_mount(&mounts)) {
            (Some(path), _) => {
                let period = ("cpu.cfs_period_us", PERIOD_US.to_string());
                let quota = ("cpu.cfs_quota_us", quota_us.to_string());
                (path, vec![period, quota])
            }
            (None, Some(path)) => {
                // Fails where it is on already or a parent forbids it; the quota below tells.
                let _ = fs::write(path.join("cgroup.subtree_control"), "+cpu");
                (path, vec![("cpu.max", format!("{quota_us} {PERIOD_US}"))])
            }
            (None, None) => return Err("no cgroup CPU controller is mounted".into()),
        };
        let path = parent.join(name);
        fs::create_dir(&path).map_err(|error| explain(&path, &error))?;
        let cgroup = Self { path };
        for (file, value) in settings {
            let file = cgroup.path.join(file);
            fs::write(&file, value).map_err(|error| explain(&file, &error))?;
        }
        Ok(cgroup)
    }

    /// Puts a process in, which must have one thread only, so that all its later ones are in too.
    ///
    /// # Errors
    /// In words for people.
    pub fn add(&self, pid: u32) -> Result<(), String> {
        let file = self.path.join("cgroup.procs");
        fs::write(&file, pid.to_string()).map_err(|error| explain(&file, &error))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // A process that was just killed may still be in for some milliseconds.
        let pause = Duration::from_millis(20);
        if !clock::within(pause * 100, pause, || fs::remove_dir(&self.path).is_ok()) {
            eprintln!("starvation: could not remove {}", self.path.display());
        }
    }
}

fn explain(path: &Path, error: &io::Error) -> String {
    let hint = match error.kind() {
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            ": --quota needs root and a writable cgroup file system (with --uid the runs themselves can \
             be an ordinary user's)"
        }
        _ => "",
    };
    format!("{}: {error}{hint}", path.display())
}

/// Where a version 1 hierarchy with the CPU controller is mounted.
fn v1_mount(mountinfo: &str) -> Option<PathBuf> {
    mount(mountinfo, |kind, options| {
        kind == "cgroup" && options.split(',').any(|option| option == "cpu")
    })
}

/// Where version 2 is mounted, if the CPU controller belongs to it.
fn v2_mount(mountinfo: &str) -> Option<PathBuf> {
    let path = mount(mountinfo, |kind, _| kind == "cgroup2")?;
    let controllers = fs::read_to_string(path.join("cgroup.controllers")).ok()?;
    controllers
        .split_whitespace()
        .any(|name| name == "cpu")
        .then_some(path)
}

/// The mount point of the first file system whose type and super options are `wanted`.
fn mount(mountinfo: &str, wanted: impl Fn(&str, &str) -> bool) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut fields = file_system.split(' ');
        let (kind, options) = (fields.next()?, fields.nth(1)?);
        wanted(kind, options).then(|| mount.split(' ').nth(4).map(PathBuf::from))?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HYBRID: &str = "\
30 25 0:26 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
31 25 0:27 / /sys/fs/cgroup/cpuset rw,relatime - cgroup cgroup rw,cpuset
32 25 0:28 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw";

    #[test]
    fn finds_the_cpu_hierarchy() {
        let path = v1_mount(HYBRID).unwrap();
        assert_eq!(path, Path::new("/sys/fs/cgroup/cpu,cpuacct"));
        assert_eq!(v1_mount("1 2 0:1 / / rw - ext4 /dev/vda rw"), None);
    }
}
