//! One kernel on a worker of a Morpheus runtime that is linked to the scheduler: the column `schedutil + Morpheus`.
//!
//! The windows come by a descriptor, as a device's data would: a timer that the runtime's I/O driver waits for. So the
//! worker is parked until a window is due, and the scheduler sees it woken to serve. A window is a watched poll. The budget
//! says how long one may take, so that none is taken for stalled.

use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use morpheus_runtime::Builder;
use rustix::io::{read, retry_on_intr};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::oneshot;

use super::measure::{Measured, Plan, Series};
use crate::cpus;
use crate::executor::morpheus::{LinkName, Morpheus};
use crate::executor::{Executor, Spawn};

/// The longest budget that the daemon allows, if it was not told otherwise.
const LONGEST_BUDGET: Duration = Duration::from_secs(1);

/// Measures on a worker that is registered with the daemon at `socket`; without one, with the daemon that any application
/// finds.
///
/// # Errors
/// When there is no runtime, no link to a scheduler, or the worker cannot run on that CPU.
pub fn run(plan: &Plan, socket: Option<PathBuf>) -> Result<Measured, String> {
    let budget = Duration::from_millis(plan.config.deadline_ms.into());
    let options = |builder: &mut Builder| {
        // No other task has work to do, and a spare would have the kernel on another CPU.
        builder.worker_threads(1).max_spares(0).reserve(0);
        builder.budget(budget.min(LONGEST_BUDGET));
        if let Some(socket) = socket {
            builder.link_socket(socket);
        }
    };
    let morpheus = Morpheus::build_with(options, LinkName::Scheduler, &[])?;
    let (done, is_done) = oneshot::channel();
    let windows = windows(plan.clone());
    let task = async { drop(done.send(windows.await)) };
    morpheus.spawn(Spawn::Labelled("kernel"), task);
    let measured = morpheus.block_on(is_done);
    let measured = measured.map_err(|_| "the kernel's task panicked")??;
    morpheus.still_linked(LinkName::Scheduler)?;
    Ok(measured)
}

async fn windows(plan: Plan) -> Result<Measured, String> {
    // There is one worker: it is this thread, in every poll.
    cpus::pin(plan.config.cpu)?;
    let timer = Timer::new().map_err(|error| format!("no timer: {error}"))?;
    let mut series = Series::new(&plan);
    while let Some(due) = series.next_due() {
        let waited = timer.sleep_until(due).await;
        waited.map_err(|error| format!("the timer fails: {error}"))?;
        if series.window().is_break() {
            break;
        }
    }
    // As an ordinary thread: only those does sched_ext schedule.
    Ok(series.measured)
}

/// A descriptor that can be read once a time has come.
struct Timer(AsyncFd<OwnedFd>);

impl Timer {
    fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let fd = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        // SAFETY: an `OwnedFd` stays open, and the same, for as long as it lives.
        let fd = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?;
        Ok(Self(fd))
    }

    async fn sleep_until(&self, at: Instant) -> io::Result<()> {
        let left = at.saturating_duration_since(Instant::now());
        let time = Itimerspec {
            it_interval: Timespec::default(),
            it_value: Timespec {
                tv_sec: left.as_secs() as i64,
                // Nothing at all would stop the timer.
                tv_nsec: left.subsec_nanos().max(1).into(),
            },
        };
        timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &time)?;
        let times = |timer: &OwnedFd| Ok(retry_on_intr(|| read(timer, &mut [0_u8; 8]))?);
        self.0.async_io(Interest::READABLE, times).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timer_waits_and_does_not_wait_for_what_is_past() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()
            .unwrap();
        runtime.block_on(async {
            let timer = Timer::new().unwrap();
            for _ in 0..3 {
                let due = Instant::now() + Duration::from_millis(20);
                timer.sleep_until(due).await.unwrap();
                assert!(Instant::now() >= due);
                timer.sleep_until(due).await.unwrap();
            }
        });
    }

    /// Figures without the link would be of something else.
    #[test]
    fn without_a_scheduler_nothing_is_measured() {
        use super::super::config::tests::config;
        use super::super::signal::{Name, eeg};
        let cpu = cpus::allowed()[0];
        let config = config(&format!(
            "--cpu {cpu} --warmup 0 --duration 0.1 --deadline-ms 1"
        ));
        let plan = Plan {
            signal: eeg::generate(&config.size, 160, 1).into(),
            config,
            kernel: Name::Noop,
            frequency: None,
        };
        let socket = PathBuf::from("/nowhere/broker.sock");
        let error = run(&plan, Some(socket)).unwrap_err();
        assert!(error.contains("/nowhere/broker.sock"), "{error}");
    }
}
