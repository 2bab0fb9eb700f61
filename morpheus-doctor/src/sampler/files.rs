//! The data of `/proc` on one thread, from files that stay open: a look costs a read, and no search for a name.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use morpheus_system::threads::proc_text;

use crate::source::{Spot, SystemCall};
use crate::target::{parse_system_call, turns};

/// Where a thread sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The system call; None of a page fault.
    pub call: Option<SystemCall>,
    /// The stack pointer.
    pub sp: u64,
    /// The instruction pointer.
    pub ip: u64,
}

impl Place {
    /// Where that is on the thread's stack.
    #[must_use]
    pub fn spot(self) -> Spot {
        Spot {
            ip: self.ip,
            sp: self.sp,
        }
    }
}

/// The scheduler's counts for a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// How long it was ready, and had no CPU.
    pub delay_ns: u64,
    /// How frequently it was given a CPU; None where the kernel does not count.
    pub runs: Option<u64>,
}

/// The files of one thread.
#[derive(Debug)]
pub struct Files {
    system_call: File,
    counts: File,
    status: String,
}

impl Files {
    /// Opens them.
    ///
    /// # Errors
    ///
    /// Of a thread that is gone, or of another user.
    pub fn open(pid: u32, tid: u32) -> io::Result<Files> {
        let directory = format!("/proc/{pid}/task/{tid}");
        Ok(Files {
            system_call: File::open(format!("{directory}/syscall"))?,
            counts: File::open(format!("{directory}/schedstat"))?,
            status: format!("{directory}/status"),
        })
    }

    /// Where the thread sleeps; None of one that runs, or is ready to.
    ///
    /// # Errors
    ///
    /// Of a thread that is gone, or that this process may not trace.
    pub fn place(&self) -> io::Result<Option<Place>> {
        let mut bytes = [0; 256];
        let had = self.system_call.read_at(&mut bytes, 0)?;
        let line = str::from_utf8(&bytes[..had]).unwrap_or_default();
        if line.is_empty() {
            return Err(io::Error::from(io::ErrorKind::NotFound));
        }
        let place = parse_system_call(line);
        Ok(place.map(|(call, sp, ip)| Place { call, sp, ip }))
    }

    /// The scheduler's counts.
    ///
    /// # Errors
    ///
    /// Of a thread that is gone.
    pub fn counts(&self) -> io::Result<Counts> {
        let mut bytes = [0; 128];
        let had = self.counts.read_at(&mut bytes, 0)?;
        Ok(parse_counts(
            str::from_utf8(&bytes[..had]).unwrap_or_default(),
        ))
    }

    /// How frequently the thread has slept. Expensive: the kernel formats some fifty lines for it.
    #[must_use]
    pub fn sleeps(&self) -> Option<u64> {
        let status = proc_text(&self.status).ok()?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
        line.trim().parse().ok()
    }
}

fn parse_counts(line: &str) -> Counts {
    let delay_ns = line.split_whitespace().nth(1);
    Counts {
        delay_ns: delay_ns.and_then(|ns| ns.parse().ok()).unwrap_or(0),
        runs: turns(line),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn counts_are_read() {
        let of = |delay_ns, runs| Counts { delay_ns, runs };
        assert_eq!(parse_counts("123 45 6\n"), of(45, Some(6)));
        assert_eq!(parse_counts("0 0 0\n"), of(0, None));
        for line in ["", "x", "1", "1 x 3"] {
            assert_eq!(parse_counts(line).delay_ns, 0, "{line}");
        }
    }

    #[test]
    fn a_thread_whose_name_ends_within_a_character_is_read() {
        let thread = std::thread::Builder::new().name("four-teen-byteé".to_owned());
        let sleeps = || {
            let files = Files::open(std::process::id(), morpheus_system::threads::own_tid());
            files.unwrap().sleeps()
        };
        assert!(thread.spawn(sleeps).unwrap().join().unwrap().is_some());
    }

    #[test]
    fn a_thread_that_sleeps_is_told_from_one_that_runs() {
        let pid = std::process::id();
        let (send, receive) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let link = fs::read_link("/proc/thread-self").unwrap();
            let tid: u32 = link.file_name().unwrap().to_str().unwrap().parse().unwrap();
            send.send(tid).unwrap();
            std::thread::park();
        });
        let tid = receive.recv().unwrap();
        let files = Files::open(pid, tid).unwrap();
        morpheus_testing::wait_for("the thread does not sleep", || {
            let place = files.place().unwrap();
            place.is_some_and(|place| {
                place
                    .call
                    .is_some_and(|call| call.number == libc::SYS_futex as u32)
            })
        });
        assert!(files.sleeps().unwrap() >= 1);
        let before = files.counts().unwrap();
        assert_eq!(files.counts().unwrap(), before);
        thread.thread().unpark();
        thread.join().unwrap();
        morpheus_testing::wait_for("the thread is still there", || files.place().is_err());
        assert!(Files::open(pid, 1 << 23).is_err());
    }
}
