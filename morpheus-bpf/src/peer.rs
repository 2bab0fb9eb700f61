// SPDX-License-Identifier: GPL-2.0-only
//! The process on the other side of a connection, and the threads that it names.
//!
//! The kernel says who it is; the peer itself is not asked. Numbers of processes and threads are those of the daemon's
//! PID namespace, and a peer's own numbers are translated, for it may be in another one.

use std::fs;
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use morpheus_system::threads::proc_text;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::PidfdFlags;

/// How many threads of a peer in another PID namespace are looked at to find one by its number.
const MOST_THREADS_LOOKED_AT: usize = 1024;

/// Whether the kernel makes pidfds of threads (Linux 6.9). Without them an application names a thread by its number, and
/// that number is looked up in `/proc`; among all the threads of the process, when it is in another PID namespace.
#[must_use]
pub fn threads_have_pidfds() -> bool {
    const PIDFD_THREAD: u32 = rustix::fs::OFlags::EXCL.bits();
    let own = rustix::process::getpid();
    rustix::process::pidfd_open(own, PidfdFlags::from_bits_retain(PIDFD_THREAD)).is_ok()
}

/// The process that connected.
#[derive(Debug)]
pub struct Peer {
    /// Its number.
    pub tgid: u32,
    /// Whose it is.
    pub uid: u32,
    /// Tells when it has ended, after which its number may be another process's. Linux 6.5.
    pidfd: Option<OwnedFd>,
}

/// The user of the process that opened the other end of `socket`, as the kernel noted it then.
///
/// # Errors
///
/// When `socket` is no socket of this kind.
pub fn uid(socket: impl AsFd) -> io::Result<u32> {
    credentials(socket.as_fd()).map(|credentials| credentials.uid)
}

fn credentials(socket: BorrowedFd<'_>) -> io::Result<libc::ucred> {
    // SAFETY: a `ucred` is three integers, for which any bytes will do.
    unsafe { option(socket, libc::SO_PEERCRED) }
}

impl Peer {
    /// The process that opened the other end of `socket`.
    ///
    /// # Errors
    ///
    /// When it has no number here, being in a PID namespace that is no descendant of the daemon's, or has ended, or when there is no
    /// descriptor left for it.
    pub fn of(socket: impl AsFd) -> io::Result<Peer> {
        let credentials = credentials(socket.as_fd())?;
        let tgid = u32::try_from(credentials.pid)
            .ok()
            .filter(|tgid| *tgid != 0)
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        // SAFETY: a `RawFd` is an integer, for which any bytes will do.
        let pidfd = match unsafe { option::<RawFd>(socket.as_fd(), libc::SO_PEERPIDFD) } {
            // SAFETY: the kernel made this descriptor for the call, so it has no other owner.
            Ok(fd) if fd >= 0 => Some(unsafe { OwnedFd::from_raw_fd(fd) }),
            // Before Linux 6.5.
            Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => None,
            // It has ended (`EINVAL` or `ESRCH`, by version), or there is no descriptor left. Without one its number would count as its
            // own for ever, also when another process has it.
            Err(error) => return Err(error),
            Ok(_) => return Err(io::ErrorKind::NotFound.into()),
        };
        Ok(Peer {
            tgid,
            uid: credentials.uid,
            pidfd,
        })
    }

    /// Readable when the process has ended.
    #[must_use]
    pub fn end(&self) -> Option<BorrowedFd<'_>> {
        self.pidfd.as_ref().map(AsFd::as_fd)
    }

    /// Whether the number is still this process's. Where the kernel has no pidfd of peers, it is taken to be.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        let Some(pidfd) = &self.pidfd else {
            return true;
        };
        let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
        rustix::event::poll(&mut fds, Some(&Timespec::default())) == Ok(0)
    }

    /// The thread's number here, when it is given by a pidfd or (without one) by `tid`, its number as the peer sees it. In
    /// another PID namespace it is then searched for, and `may_look_up` is asked before each thread that is looked at.
    ///
    /// It is not checked that the thread is one of this process: who binds it does that at the same time, when it
    /// cannot change any more. `None` when there is no such thread, or when the two do not agree.
    ///
    /// # Errors
    ///
    /// When `may_look_up` says no.
    pub fn thread(
        &self,
        tid: u32,
        pidfd: Option<BorrowedFd<'_>>,
        may_look_up: impl FnMut() -> bool,
    ) -> Result<Option<u32>, TooManyLookups> {
        match pidfd {
            Some(pidfd) => {
                Ok(thread_of(pidfd)
                    .and_then(|numbers| (numbers.own == tid).then_some(numbers.here)))
            }
            None if self.shares_namespace() => {
                let exists = fs::exists(format!("/proc/{}/task/{tid}", self.tgid));
                Ok(exists.unwrap_or(false).then_some(tid))
            }
            None => self.search(tid, may_look_up),
        }
    }

    /// Whether the peer's numbers are the daemon's.
    fn shares_namespace(&self) -> bool {
        let namespace = |process: &str| fs::read_link(format!("/proc/{process}/ns/pid"));
        let (daemon, peer) = (namespace("self"), namespace(&self.tgid.to_string()));
        matches!((daemon, peer), (Ok(daemon), Ok(peer)) if daemon == peer)
    }

    fn search(
        &self,
        tid: u32,
        mut may_look_up: impl FnMut() -> bool,
    ) -> Result<Option<u32>, TooManyLookups> {
        let Ok(threads) = fs::read_dir(format!("/proc/{}/task", self.tgid)) else {
            return Ok(None);
        };
        for entry in threads.take(MOST_THREADS_LOOKED_AT).flatten() {
            if !may_look_up() {
                return Err(TooManyLookups);
            }
            let status = proc_text(entry.path().join("status"));
            let numbers = status.ok().and_then(|status| Numbers::parse(&status));
            if let Some(numbers) = numbers
                && numbers.own == tid
            {
                return Ok(Some(numbers.here));
            }
        }
        Ok(None)
    }
}

/// A thread was not found before the threads that may be looked at were used up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyLookups;

/// The numbers of a pidfd's thread.
fn thread_of(pidfd: BorrowedFd<'_>) -> Option<Numbers> {
    Numbers::parse(&about(pidfd)?)
}

/// Whether a descriptor is a pidfd of a thread that has ended. Whose it was, the kernel does not know any more.
#[must_use]
pub fn has_ended(pidfd: BorrowedFd<'_>) -> bool {
    about(pidfd).is_some_and(|about| about.lines().any(|line| line == "Pid:\t-1"))
}

/// Whether a descriptor is a pidfd: to close one never waits. Names of files begin with a slash.
pub(crate) fn is_pidfd(descriptor: BorrowedFd<'_>) -> bool {
    let link = fs::read_link(format!("/proc/self/fd/{}", descriptor.as_raw_fd()));
    link.is_ok_and(|target| {
        let target = target.to_string_lossy();
        target.starts_with("anon_inode:[pidfd]") || target.starts_with("pidfd:")
    })
}

fn about(pidfd: BorrowedFd<'_>) -> Option<String> {
    fs::read_to_string(format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd())).ok()
}

/// A thread's numbers in the outermost and in the innermost PID namespace that are seen from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Numbers {
    here: u32,
    own: u32,
}

impl Numbers {
    /// From a pidfd's `fdinfo` or a thread's `status`, which both have a line "NSpid:". In the first it says -1, or 0,
    /// for a thread that has ended or is not seen from here; other descriptors have no such line.
    fn parse(text: &str) -> Option<Numbers> {
        let line = text.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
        let mut numbers = line.split_ascii_whitespace().map(str::parse::<u32>);
        let here = numbers.next()?.ok()?;
        let own = match numbers.next_back() {
            Some(own) => own.ok()?,
            None => here,
        };
        (here != 0 && own != 0).then_some(Numbers { here, own })
    }
}

/// A socket's option of the level `SOL_SOCKET`.
///
/// # Safety
///
/// Any bytes are a valid `T`.
unsafe fn option<T>(socket: BorrowedFd<'_>, name: libc::c_int) -> io::Result<T> {
    let mut value = MaybeUninit::<T>::zeroed();
    let mut length = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `value`, which has them.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            name,
            value.as_mut_ptr().cast(),
            &mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: every byte is initialized, and by the caller's promise any bytes will do.
    Ok(unsafe { value.assume_init() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use rustix::process::{Pid, pidfd_open};

    fn own_peer() -> Peer {
        let (socket, _other) = socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        Peer::of(&socket).unwrap()
    }

    #[test]
    fn the_peer_of_a_pair_is_oneself() {
        let peer = own_peer();
        assert_eq!(peer.tgid, std::process::id());
        assert_eq!(peer.uid, rustix::process::geteuid().as_raw());
        assert!(peer.is_alive());
    }

    #[test]
    fn threads_by_number_and_by_pidfd() {
        let peer = own_peer();
        let own = std::process::id();
        let thread = |tid, pidfd| peer.thread(tid, pidfd, || panic!("no search")).unwrap();
        assert_eq!(thread(own, None), Some(own));
        assert_eq!(thread(1, None), None, "of another process");
        assert_eq!(thread(u32::MAX, None), None);

        let pidfd = pidfd_open(Pid::from_raw(own as i32).unwrap(), PidfdFlags::empty()).unwrap();
        assert_eq!(thread(own, Some(pidfd.as_fd())), Some(own));
        assert_eq!(
            thread(own + 1, Some(pidfd.as_fd())),
            None,
            "they do not agree"
        );
        let no_pidfd = fs::File::open("/dev/null").unwrap();
        assert!(is_pidfd(pidfd.as_fd()) && !is_pidfd(no_pidfd.as_fd()));
        assert_eq!(thread(own, Some(no_pidfd.as_fd())), None);
    }

    #[test]
    fn a_search_has_a_budget() {
        let peer = own_peer();
        let own = std::process::id();
        let search = |tid, most: u32| {
            let mut looked_up = 0;
            let found = peer.search(tid, || {
                looked_up += 1;
                looked_up <= most
            });
            (found, looked_up)
        };
        // The first thread is the process's first.
        assert_eq!(search(own, u32::MAX), (Ok(Some(own)), 1));
        let (found, looked_up) = search(1, u32::MAX);
        assert_eq!(found, Ok(None));
        assert!(looked_up >= 1);
        assert_eq!(search(1, 0), (Err(TooManyLookups), 1));
    }

    #[test]
    fn a_thread_whose_name_ends_within_a_character_is_found() {
        let thread = std::thread::Builder::new().name("four-teen-byteé".to_owned());
        let search = || {
            let tid = morpheus_system::threads::own_tid();
            (own_peer().search(tid, || true), tid)
        };
        let (found, tid) = thread.spawn(search).unwrap().join().unwrap();
        assert_eq!(found, Ok(Some(tid)));
    }

    #[test]
    fn threads_have_pidfds_since_6_9() {
        let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
        let expected = crate::kernel::version(&release).unwrap() >= (6, 9);
        assert_eq!(threads_have_pidfds(), expected);
    }

    #[test]
    fn lines_of_the_kernel() {
        let parse = |line: &str| Numbers::parse(&format!("pos:\t0\nPid:\t7\n{line}\n"));
        assert_eq!(parse("NSpid:\t7"), Some(Numbers { here: 7, own: 7 }));
        assert_eq!(parse("NSpid:\t7\t5\t1"), Some(Numbers { here: 7, own: 1 }));
        for wrong in [
            "NSpid:",
            "NSpid:\t-1",
            "NSpid:\t0",
            "NSpid:\tx\t1",
            "",
            "NSpid:\t7\t0",
        ] {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
    }
}
