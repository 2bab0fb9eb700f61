//! Everything at once, and no task is starved; with stress-ng where that is installed.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use morpheus_harness::{clock, thread};

use super::super::child::{Answer, Job};
use super::super::crowd::{Crowd, Member};
use super::super::probes::{Echo, Probe};
use super::contention::longest_wait;
use super::messaging;
use super::wake::WARMUP;
use crate::neighbours::Neighbours;
use crate::scx;

/// The arguments of stress-ng, without the duration: CPU, forks, switches, timers and memory.
const STRESSORS: [&str; 10] = [
    "--cpu", "2", "--fork", "2", "--switch", "2", "--timer", "1", "--vm", "1",
];
/// It needs this much longer to clean up.
const CLEANING_UP: Duration = Duration::from_secs(30);

/// Batch work, editors, storms, messages and round trips. The figure is the longest wait of the batch work.
pub fn measure(job: &Job) -> Answer {
    let batch = Crowd::start(vec![Member::BATCH; job.cpus])?;
    let _editors = Probe::Editor.start(2 * job.cpus)?;
    let _storm = Probe::Storm.start(1)?;
    let mut echo = Echo::start(None)?;
    std::thread::sleep(WARMUP);
    longest_wait(job, &batch, |_| {
        let mut more = stress_ng(job.duration())?;
        let until = Instant::now() + job.duration();
        std::thread::scope(|scope| {
            let messages = scope.spawn(|| messaging::measure(job));
            while Instant::now() < until {
                echo.ask()
                    .map_err(|error| format!("no answer any more: {error}"))?;
            }
            let messages = thread::joined(messages)??;
            if messages.count == 0 {
                return Err("not one message arrived".to_owned());
            }
            end(&mut more)
        })
    })
}

/// stress-ng, for `duration`; nothing where it is not installed.
fn stress_ng(duration: Duration) -> Result<Neighbours, String> {
    let Some(program) = scx::find("stress-ng") else {
        return Ok(Neighbours::default());
    };
    let seconds = duration.as_secs().max(1).to_string();
    let mut command = Command::new(program);
    command
        .args(STRESSORS)
        .args(["--timeout", &seconds, "--vm-bytes", "16M", "--quiet"])
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    Neighbours::start_each([command]).map_err(|error| format!("stress-ng does not start: {error}"))
}

/// Waits until it has ended by itself.
fn end(stress_ng: &mut Neighbours) -> Result<(), String> {
    let until = Instant::now() + CLEANING_UP;
    for child in stress_ng.children() {
        let left = until.saturating_duration_since(Instant::now());
        clock::within(left, Duration::from_millis(50), || {
            !matches!(child.try_wait(), Ok(None))
        });
        match child.try_wait() {
            Ok(Some(status)) if status.success() => {}
            Ok(Some(status)) => return Err(format!("stress-ng: {status}")),
            _ => return Err("stress-ng does not end".into()),
        }
    }
    Ok(())
}
