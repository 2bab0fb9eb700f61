//! Being told to stop, as a descriptor that a loop can wait for.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Readable once SIGINT or SIGTERM has come. From its creation on, neither ends the process by itself.
#[derive(Debug)]
pub struct StopSignals(OwnedFd);

impl StopSignals {
    /// To be called before any thread is started: others inherit the mask, and one that does not block the signals
    /// would get them.
    ///
    /// # Errors
    ///
    /// When there are no more descriptors.
    pub fn catch() -> io::Result<StopSignals> {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: `sigemptyset` initializes the set, which is what the other calls need; the pointers are to a local;
        // both signals exist.
        let set = unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            libc::sigaddset(set.as_mut_ptr(), libc::SIGINT);
            libc::sigaddset(set.as_mut_ptr(), libc::SIGTERM);
            set.assume_init()
        };
        // SAFETY: `set` is initialized, and the old mask is not asked for.
        let error = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut()) };
        if error != 0 {
            return Err(io::Error::from_raw_os_error(error));
        }
        // SAFETY: `set` is initialized; -1 asks for a new descriptor.
        let fd = unsafe { libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new, and has no other owner.
        Ok(StopSignals(unsafe { OwnedFd::from_raw_fd(fd) }))
    }
}

impl StopSignals {
    /// Whether one has come. It stays so.
    ///
    /// # Errors
    ///
    /// When the descriptor cannot be looked at.
    pub fn has_come(&self) -> io::Result<bool> {
        self.wait(Duration::ZERO)
    }

    /// Waits for one, up to `most`. Returns whether one has come.
    ///
    /// # Errors
    ///
    /// When the descriptor cannot be looked at.
    pub fn wait(&self, most: Duration) -> io::Result<bool> {
        let until = Instant::now() + most;
        loop {
            let rest = until.saturating_duration_since(Instant::now());
            let timeout = Timespec {
                tv_sec: rest.as_secs() as i64,
                tv_nsec: rest.subsec_nanos().into(),
            };
            match poll(&mut [PollFd::new(self, PollFlags::IN)], Some(&timeout)) {
                Ok(ready) => return Ok(ready > 0),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for StopSignals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
