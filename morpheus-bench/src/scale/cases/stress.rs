//! Everything at once, and no task is starved; with stress-ng where that is installed.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::super::child::{Answer, Job};
use super::super::crowd::{Crowd, Member};
use super::super::probes::{Echo, Probe};
use super::contention::{feel, ran, waits};
use super::messaging;
use super::wake::WARMUP;
use crate::neighbours::Neighbours;
use crate::scx;

/// What stress-ng is told, beside for how long: CPU, forks, switches, timers and memory.
const STRESSORS: [&str; 10] = [
    "--cpu", "2", "--fork", "2", "--switch", "2", "--timer", "1", "--vm", "1",
];
/// It needs this much longer to clean up.
const CLEANING_UP: Duration = Duration::from_secs(30);

/// Batch work, editors, storms, messages and round trips. What counts is the longest wait of the batch work.
pub fn measure(job: &Job) -> Answer {
    let batch = Crowd::start(vec![Member::BATCH; job.cpus])?;
    let _editors = Probe::Editor.start(2 * job.cpus)?;
    let _storm = Probe::Storm.start(1)?;
    let mut echo = Echo::start(None)?;
    std::thread::sleep(WARMUP);
    let felt = feel(job, &batch, |_| {
        let mut more = StressNg::start(job.duration())?;
        let until = Instant::now() + job.duration();
        std::thread::scope(|scope| {
            let messages = scope.spawn(|| messaging::measure(job));
            while Instant::now() < until {
                echo.ask()
                    .map_err(|error| format!("no answer any more: {error}"))?;
            }
            let messages = messages.join().map_err(|_| "a thread panicked")??;
            if messages.count == 0 {
                return Err("not one message arrived".to_owned());
            }
            more.as_mut().map_or(Ok(()), StressNg::end)
        })
    })?;
    ran(&felt)?;
    Ok(waits(job, &felt))
}

/// stress-ng at work.
struct StressNg(Neighbours);

impl StressNg {
    /// Runs for `duration`; `None` where it is not installed.
    fn start(duration: Duration) -> Result<Option<Self>, String> {
        let Some(program) = scx::find("stress-ng") else {
            return Ok(None);
        };
        let mut command = Command::new(program);
        let seconds = duration.as_secs().max(1);
        command
            .args(STRESSORS)
            .args(["--timeout", &seconds.to_string()]);
        command.args(["--vm-bytes", "16M", "--quiet"]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        Neighbours::start_each([command])
            .map(|started| Some(Self(started)))
            .map_err(|error| format!("stress-ng does not start: {error}"))
    }

    fn end(&mut self) -> Result<(), String> {
        let until = Instant::now() + CLEANING_UP;
        for child in self.0.children() {
            loop {
                match child.try_wait() {
                    Ok(Some(status)) if status.success() => break,
                    Ok(Some(status)) => return Err(format!("stress-ng: {status}")),
                    Ok(None) if Instant::now() < until => {
                        std::thread::sleep(Duration::from_millis(50))
                    }
                    _ => return Err("stress-ng does not end".into()),
                }
            }
        }
        Ok(())
    }
}
