//! Facts about the machine that a reader needs to judge a figure.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{clock, idle, thread};

/// Facts about the machine at the start of a benchmark. A fact that cannot be read is `None`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Host {
    /// Kernel release.
    pub kernel: String,
    /// CPU model.
    pub cpu: Option<String>,
    /// CPUs that this process may use.
    pub cpus: usize,
    /// Load average over a minute, before the benchmark put any on.
    pub load: Option<f64>,
    /// Timer slack of an ordinary thread. The probes set theirs to 1.
    pub timer_slack_ns: u64,
    /// Preemption mode, as far as it can be read.
    pub preemption: Option<String>,
    /// CPU frequency governor.
    pub governor: Option<String>,
    /// The sched_ext scheduler in force; `None` is the kernel's own.
    #[serde(default)]
    pub scheduler: Option<String>,
    /// The longest wakeup from an idle state that is allowed (`/dev/cpu_dma_latency`); `None` where no process limits
    /// it, and where only root may read it.
    #[serde(default)]
    pub idle_limit_us: Option<u32>,
    /// Idle states that CPU 0 can be sent to.
    #[serde(default)]
    pub idle_states: Vec<String>,
    /// The kernel's source of time.
    #[serde(default)]
    pub clocksource: Option<String>,
    /// The least time between two readings of the clock: nothing shorter can be told.
    #[serde(default)]
    pub clock_floor_ns: u64,
    /// Whether the kernel takes a custom slice for a thread (EEVDF, Linux 6.12).
    pub short_slices: bool,
    /// Effective user id: what it may do differs.
    pub uid: u32,
}

/// The sched_ext scheduler in force; `None` is the kernel's own.
pub fn scheduler() -> Option<String> {
    line("/sys/kernel/sched_ext/root/ops")
}

impl Host {
    /// Reads the facts.
    pub fn read() -> Self {
        Self {
            kernel: line("/proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".into()),
            cpu: cpu_model(),
            cpus: cpus(),
            load: line("/proc/loadavg")
                .and_then(|text| text.split(' ').next().and_then(|load| load.parse().ok())),
            timer_slack_ns: thread::timer_slack_ns(),
            preemption: preemption(),
            governor: line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            scheduler: scheduler(),
            idle_limit_us: idle_limit_us(),
            idle_states: idle::States::read(0).names(),
            clocksource: line("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            clock_floor_ns: clock_floor_ns(),
            short_slices: takes_slices(),
            // SAFETY: geteuid takes nothing and cannot fail.
            uid: unsafe { libc::geteuid() },
        }
    }

    /// One line for people, at most `width` columns long.
    pub fn line(&self, width: usize) -> String {
        let mut parts = vec![
            format!("Linux {}", self.kernel),
            format!("{} CPUs", self.cpus),
        ];
        parts.extend(self.cpu.clone());
        parts.extend(self.load.map(|load| format!("load {load:.2}")));
        for (what, name) in [
            ("preempt", &self.preemption),
            ("governor", &self.governor),
            ("scheduler", &self.scheduler),
        ] {
            parts.extend(name.as_ref().map(|name| format!("{what} {name}")));
        }
        parts.push(format!("uid {}", self.uid));
        if !self.short_slices {
            parts.push("no short slices".into());
        }
        parts.join(", ").chars().take(width).collect()
    }
}

/// How many CPUs this process may use, a CPU quota included.
pub fn cpus() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

/// The trimmed text of a file of the kernel's; `None` where there is none.
pub fn line(path: impl AsRef<Path>) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

fn cpu_model() -> Option<String> {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    let model = line.split_once(':')?.1;
    Some(model.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// The mode of preemption: the one in parentheses in the debug file (root only), else what the kernel was built with.
pub fn preemption() -> Option<String> {
    if let Some(modes) = line("/sys/kernel/debug/sched/preempt") {
        let mode = modes.split_once('(')?.1.split_once(')')?.0;
        return Some(mode.to_owned());
    }
    let version = line("/proc/sys/kernel/version")?;
    let built = version
        .split(' ')
        .find(|word| word.starts_with("PREEMPT"))?;
    Some(built.to_lowercase())
}

/// The kernel tells the limit as four bytes; 2,000 s is its word for none.
fn idle_limit_us() -> Option<u32> {
    const NO_LIMIT_US: u32 = 2_000_000_000;
    let bytes = fs::read("/dev/cpu_dma_latency").ok()?;
    let limit = u32::from_ne_bytes(bytes.try_into().ok()?);
    (limit < NO_LIMIT_US).then_some(limit)
}

fn clock_floor_ns() -> u64 {
    let between = |_| {
        let first = clock::monotonic_ns();
        clock::monotonic_ns() - first
    };
    (0..1_000).map(between).min().unwrap_or(0)
}

/// Tried in a thread of its own: a slice stays with the thread that took it.
fn takes_slices() -> bool {
    std::thread::spawn(|| morpheus_system::slice::set_current(200_000))
        .join()
        .unwrap_or(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_is_readable_and_fits() {
        let host = Host::read();
        assert!(host.cpus > 0 && !host.kernel.is_empty());
        assert!(host.clock_floor_ns < 1_000_000, "{host:?}");
        assert!(host.line(40).chars().count() <= 40);
    }
}
