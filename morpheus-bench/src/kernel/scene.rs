//! What runs, and the figures that come out of it.

use std::fmt;
use std::process::Command;

use serde::{Deserialize, Serialize};

use super::program;
use crate::host;
use crate::report;
use crate::starvation::Report;

/// A call of `starvation`.
#[derive(Debug)]
pub struct Scene {
    /// For people.
    pub name: &'static str,
    arguments: &'static [&'static str],
}

const fn scene(name: &'static str, arguments: &'static [&'static str]) -> Scene {
    Scene { name, arguments }
}

/// The first of those with clients is what the second is compared with.
pub const SCENES: [Scene; 8] = [
    scene("2 hogs", &["--hogs", "2"]),
    scene("6 hogs", &["--hogs", "6"]),
    scene("20 hogs", &["--hogs", "20"]),
    scene("2 hogs, watched", &["--hogs", "2", "--hog-via", "spawn"]),
    scene("6 hogs, watched", &["--hogs", "6", "--hog-via", "spawn"]),
    scene("20 hogs, watched", &["--hogs", "20", "--hog-via", "spawn"]),
    scene(
        "a server, no hogs",
        &["--hogs", "0", "--load", "4", "--load-rate", "100"],
    ),
    scene(
        "a server, 6 hogs",
        &[
            "--hogs",
            "6",
            "--hog-via",
            "spawn",
            "--load",
            "4",
            "--load-rate",
            "100",
        ],
    ),
];

/// Times in nanoseconds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Figures {
    /// Wake latency, 99th percentile.
    pub wake_p99_ns: Option<u64>,
    /// How late timers are.
    pub timer_p50_ns: Option<u64>,
    /// Likewise.
    pub timer_p99_ns: Option<u64>,
    /// Of a server.
    pub requests_per_s: Option<f64>,
    /// CPUs that the other process kept.
    pub neighbours_cpu: Option<f64>,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = |ns: Option<u64>| ns.map_or("–".into(), report::time);
        let (wake, timer) = (time(self.wake_p99_ns), time(self.timer_p99_ns));
        write!(f, "wake p99 {wake}, timer p99 {timer}")
    }
}

impl Scene {
    /// Runs it once.
    pub fn measure(&self, link: &str, duration_s: f64) -> Result<Figures, String> {
        let output = Command::new(program("starvation"))
            .args(["--json", "--runtime", "morpheus", "--workers", "2"])
            .args(["--neighbours", &host::cpus().to_string()])
            .args(["--duration", &duration_s.to_string(), "--link", link])
            // Until the runtime knows its hogs: in emulation their first polls take seconds.
            .args(["--warmup", "3"])
            .args(self.arguments)
            .output()
            .map_err(|error| format!("starvation does not start: {error}"))?;
        let report: Report = serde_json::from_slice(&output.stdout).map_err(|error| {
            let said = String::from_utf8_lossy(&output.stderr);
            format!("no report from starvation ({error}): {}", said.trim())
        })?;
        let run = report
            .medians
            .first()
            .ok_or("starvation measured nothing")?;
        if let Some(why) = &run.failed {
            return Err(why.clone());
        }
        Ok(Figures {
            wake_p99_ns: run.wake_ns.p99,
            timer_p50_ns: run.timer_ns.p50,
            timer_p99_ns: run.timer_ns.p99,
            requests_per_s: run.load.as_ref().map(|load| load.requests_per_s),
            neighbours_cpu: run.neighbours_cpu,
        })
    }
}
