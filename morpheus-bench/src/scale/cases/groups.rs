//! Groups of tasks (cgroups) beside each other: what one gets with a weight or a limit.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use morpheus_harness::clock;

use super::super::child::{Answer, Job};
use super::super::crowd::{self, Crowd, Member};
use super::super::result::Measured;
use super::contention::feel;
use super::wake::WARMUP;

/// Where guests have the second version of the hierarchy.
const ROOT: &str = "/sys/fs/cgroup";

/// A group with a quarter of the weights and three quarters of the threads: its share of the CPU time of both.
pub fn weight(job: &Job) -> Answer {
    let light = Group::new("scale-light", "cpu.weight", "100")?;
    let heavy = Group::new("scale-heavy", "cpu.weight", "300")?;
    let (many, few) = (light.crowd(3 * job.cpus)?, heavy.crowd(job.cpus)?);
    let (own_ns, others_ns) = used(job, &many, &few)?;
    let share = own_ns as f64 / (own_ns + others_ns).max(1) as f64;
    Ok(Measured::part(share, own_ns, job.duration_ns))
}

/// A group that may use 20 ms of each 100, beside hogs outside: the CPUs that it uses.
pub fn limit(job: &Job) -> Answer {
    let limited = Group::new("scale-limited", "cpu.max", "20000 100000")?;
    let own = limited.crowd(job.cpus)?;
    let outside = Crowd::start(vec![Member::BATCH; job.cpus])?;
    let (own_ns, _) = used(job, &own, &outside)?;
    let cpus = own_ns as f64 / job.duration_ns as f64;
    Ok(Measured::part(cpus, own_ns, job.duration_ns))
}

/// The CPU time of two crowds, in nanoseconds.
fn used(job: &Job, own: &Crowd, others: &Crowd) -> Result<(u64, u64), String> {
    std::thread::sleep(WARMUP);
    others.felt();
    let own = feel(job, own, |_| Ok(()))?;
    Ok((crowd::cpu_ns(&own), crowd::cpu_ns(&others.felt())))
}

/// A directory that is a group of threads, removed with the value; its threads have to have ended by then.
struct Group {
    path: PathBuf,
}

impl Group {
    /// With one of its settings.
    fn new(name: &str, setting: &str, value: &str) -> Result<Self, String> {
        let said = |what: &Path, error: std::io::Error| format!("{}: {error}", what.display());
        let control = Path::new(ROOT).join("cgroup.subtree_control");
        fs::write(&control, "+cpu").map_err(|error| said(&control, error))?;
        let path = Path::new(ROOT).join(name);
        fs::create_dir_all(&path).map_err(|error| said(&path, error))?;
        let group = Self { path };
        group.write("cgroup.type", "threaded")?;
        group.write(setting, value)?;
        Ok(group)
    }

    fn write(&self, file: &str, text: &str) -> Result<(), String> {
        let path = self.path.join(file);
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Hogs in this group.
    fn crowd(&self, count: usize) -> Result<Crowd, String> {
        let crowd = Crowd::start(vec![Member::BATCH; count])?;
        for tid in crowd.tids() {
            self.write("cgroup.threads", &tid.to_string())?;
        }
        Ok(crowd)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Threads that have ended leave it a moment later.
        let pause = Duration::from_millis(10);
        clock::within(pause * 100, pause, || fs::remove_dir(&self.path).is_ok());
    }
}
