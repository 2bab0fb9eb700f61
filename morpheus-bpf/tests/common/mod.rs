// SPDX-License-Identifier: GPL-2.0-only
//! The common part of the tests of the kernel side: a daemon, and applications that talk to it as any other would.
//!
//! - [`daemon`]: the daemon as a child.
//! - [`client`]: an application with its lease.
//! - [`guest`]: what needs a machine of its own. [`frequency`]: what a governor asks for there.
//! - [`other`]: another scheduler, to compare with.
//! - [`tracing`]: the kernel's. [`waiting`]: CPUs that idle while a task waits.
//! - [`eject`]: the kernel's way to end a scheduler.
//! - [`load`]: threads that want the CPU. [`group`]: their groups.
//! - [`wire`]: packets on the broker's socket.
//! - [`memory`]: the shared areas. [`ring`]: the events.
//! - [`patient`]: processes whose fault is known.
//! - [`programs`]: what BPF programs take.
//! - [`random`]: for those who send anything.
// Each test program uses a part of it.
#![allow(dead_code)]

pub mod client;
pub mod daemon;
pub mod eject;
pub mod frequency;
pub mod group;
pub mod guest;
pub mod load;
pub mod memory;
pub mod other;
pub mod patient;
pub mod programs;
pub mod random;
pub mod ring;
pub mod tracing;
pub mod waiting;
pub mod wire;

use std::io::Write;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::Timespec;
use rustix::thread::{ClockId, clock_nanosleep_relative};
use rustix::time::clock_gettime;

pub const PAGE: usize = 4096;
pub const BUDGET: Duration = Duration::from_millis(1);
/// The longest wait for something that has to happen. A machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// How long a load lasts: the seconds in this environment variable, or 12.
pub fn window(variable: &str) -> Duration {
    let seconds = std::env::var(variable).map_or(12, |text| text.parse().unwrap());
    Duration::from_secs(seconds)
}

/// Prints a line of a test whether or not it passes; `eprintln!` would be kept back.
pub fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Whether this is a guest that was booted for the tests, with root and a kernel to do with as one likes.
pub fn in_guest() -> bool {
    std::env::var_os("MORPHEUS_GUEST").is_some()
}

/// Whether the tests can run here; where not, it says so loudly. They have to where the environment says so.
pub fn can_run() -> bool {
    let root = rustix::process::geteuid().is_root();
    let btf = std::path::Path::new("/sys/kernel/btf/vmlinux").exists();
    if root && btf {
        return true;
    }
    let why = if root { "a kernel with BTF" } else { "root" };
    assert!(!in_guest(), "this test needs {why}");
    morpheus_testing::skip_unless_required(format!("needs {why}"), "MORPHEUS_REQUIRE_BPF");
    false
}

/// One test at a time: they measure.
pub fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `work` on a thread of this user's. The system call is per thread; the library's function is not.
pub fn as_user<T: Send>(uid: u32, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        scope
            .spawn(|| {
                // SAFETY: it takes numbers, and changes the calling thread alone, which ends with `work`.
                let changed = unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, -1) };
                assert_eq!(changed, 0, "user {uid}");
                work()
            })
            .join()
            .unwrap()
    })
}

pub fn now_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

pub fn sleep(duration: Duration) {
    let request = Timespec {
        tv_sec: duration.as_secs() as i64,
        tv_nsec: duration.subsec_nanos().into(),
    };
    let _ = clock_nanosleep_relative(ClockId::Monotonic, &request);
}

pub fn median(values: &mut [u64]) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}
