//! Timer slack: lets the sleeps of the controller end on time.
//!
//! The kernel may end a sleep up to 50 µs late, to end several at once. Threads and processes inherit that
//! slack when they start. So the controller sets its slack to 1 ns only while it sleeps: code that runs on
//! its thread may start other threads at any other time.

/// Lets the calling thread's sleeps end on time until this is dropped.
pub struct OnTime {
    before_ns: libc::c_long,
}

impl OnTime {
    /// Lets them from now on.
    #[must_use]
    pub fn begin() -> OnTime {
        // SAFETY: takes no pointers, and concerns the calling thread only. The call itself and not `prctl`,
        // whose result is an `int`: a slack of more than two seconds does not fit.
        let before_ns =
            unsafe { libc::syscall(libc::SYS_prctl, libc::PR_GET_TIMERSLACK, 0, 0, 0, 0) };
        set(1);
        OnTime { before_ns }
    }
}

impl Drop for OnTime {
    fn drop(&mut self) {
        // The kernel reports no slack after an error: 0 sets the thread's default.
        set(self.before_ns.max(0));
    }
}

fn set(slack_ns: libc::c_long) {
    // SAFETY: takes a number, and concerns the calling thread only.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, slack_ns, 0, 0, 0) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_gets_back_the_slack_that_it_had() {
        std::thread::spawn(|| {
            // SAFETY: as in `set`.
            let slack = || unsafe { libc::prctl(libc::PR_GET_TIMERSLACK, 0, 0, 0, 0) };
            set(77_000);
            let on_time = OnTime::begin();
            assert_eq!(slack(), 1);
            drop(on_time);
            assert_eq!(slack(), 77_000);
        })
        .join()
        .unwrap();
    }
}
