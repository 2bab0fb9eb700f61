//! One kernel on a worker of a Morpheus runtime that is linked to the scheduler: the column `schedutil + Morpheus`.
//!
//! The windows come by a descriptor, as a device's data would: a timer that the runtime's I/O driver waits for. So the
//! worker is parked until a window is due, and the scheduler sees it woken to serve. A window is a watched poll. The budget
//! says how long one may take, so that none is taken for stuck.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use morpheus_runtime::{Builder, Link, task};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::measure::{Measured, Plan, Series};
use crate::policy::Policy;
use crate::{clock, cpus};

/// The longest budget that the daemon allows, if it was not told otherwise.
const LONGEST_BUDGET: Duration = Duration::from_secs(1);

/// What [`morpheus_runtime::ActiveLink`] is called with a scheduler behind it.
const SCHEDULER: &str = "scheduler";

/// Measures on a worker that is registered with the daemon at `socket`; without one, with the daemon that any application
/// finds.
///
/// # Errors
/// When there is no runtime, no link to a scheduler, or the worker cannot run on that CPU.
pub fn run(plan: &Plan, socket: Option<PathBuf>, budget: Duration) -> Result<Measured, String> {
    let mut builder = Builder::new_multi_thread();
    // No other task has work to do, and a spare would have the kernel on another CPU.
    builder
        .worker_threads(1)
        .max_spares(0)
        .reserve(0)
        .budget(budget.min(LONGEST_BUDGET))
        .link(Link::Required);
    if let Some(socket) = socket {
        builder.link_socket(socket);
    }
    let runtime = builder.build().map_err(|error| error.to_string())?;
    let linked = || match runtime.link().to_string() {
        link if link == SCHEDULER => Ok(()),
        link => Err(format!(
            "the worker is not linked to the scheduler but to: {link}"
        )),
    };
    linked()?;
    let plan = plan.clone();
    let task = task::Builder::new()
        .label("kernel")
        .spawn_on(windows(plan), runtime.handle());
    let measured = runtime
        .block_on(task)
        .unwrap_or_else(|error| Err(format!("the kernel's task: {error}")))?;
    linked()?;
    Ok(measured)
}

async fn windows(plan: Plan) -> Result<Measured, String> {
    // There is one worker: it is this thread, in every poll.
    cpus::pin(plan.cpu)?;
    let timer = Timer::new().map_err(|error| format!("no timer: {error}"))?;
    let mut series = Series::new(&plan);
    while let Some(due) = series.next_due() {
        let waited = timer.sleep_until(due).await;
        waited.map_err(|error| format!("the timer fails: {error}"))?;
        if series.window().is_break() {
            break;
        }
    }
    // What sched_ext schedules is an ordinary thread.
    Ok(series.finish(Policy::Other, None))
}

/// A descriptor that can be read once a time has come.
struct Timer(AsyncFd<OwnedFd>);

impl Timer {
    fn new() -> io::Result<Self> {
        let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
        // SAFETY: it takes two numbers, and touches no memory of ours.
        let fd = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: it was made above, and has no other owner.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        // SAFETY: an `OwnedFd` stays open, and the same, for as long as it lives.
        let fd = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }?;
        Ok(Self(fd))
    }

    async fn sleep_until(&self, at: Instant) -> io::Result<()> {
        let left = at.saturating_duration_since(Instant::now());
        let at_ns = clock::monotonic_ns() + left.as_nanos() as u64;
        let zero = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let time = libc::itimerspec {
            it_interval: zero,
            it_value: libc::timespec {
                tv_sec: (at_ns / 1_000_000_000) as libc::time_t,
                tv_nsec: (at_ns % 1_000_000_000) as libc::c_long,
            },
        };
        let fd = self.0.get_ref().as_raw_fd();
        // SAFETY: `time` outlives the call, and no old value is asked for.
        let set = unsafe {
            libc::timerfd_settime(fd, libc::TFD_TIMER_ABSTIME, &time, std::ptr::null_mut())
        };
        if set != 0 {
            return Err(io::Error::last_os_error());
        }
        loop {
            let mut ready = self.0.readable().await?;
            let read = ready.try_io(|timer| {
                let mut times = [0_u8; 8];
                // SAFETY: as many bytes are read as there is room for.
                match unsafe {
                    libc::read(timer.as_raw_fd(), times.as_mut_ptr().cast(), times.len())
                } {
                    0.. => Ok(()),
                    _ => Err(io::Error::last_os_error()),
                }
            });
            // Else it was not yet, or a signal came.
            match read {
                Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
                Ok(read) => return read,
                Err(_) => {}
            }
        }
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
        use super::super::signal::{Name, eeg, tests::size};
        let size = size();
        let plan = Plan {
            kernel: Name::Noop,
            signal: eeg::generate(&size, 160, 1).into(),
            size,
            warmup: Duration::ZERO,
            duration: Duration::from_millis(100),
            cpu: cpus::allowed()[0],
            policy: Policy::Fifo,
            priority: 1,
            frequency: None,
        };
        let socket = PathBuf::from("/nowhere/broker.sock");
        let error = run(&plan, Some(socket), Duration::from_millis(1)).unwrap_err();
        assert!(error.contains("/nowhere/broker.sock"), "{error}");
    }
}
