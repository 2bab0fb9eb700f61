//! The client: the application's side of the broker's socket.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use morpheus_common::abi;
use morpheus_common::broker::{MESSAGE_BYTES, Reply, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use crate::area::SharedArea;
use crate::choice::LinkError;
use crate::ring::Ring;

/// Time limit for the answer to Hello. It is long because the daemon may be about to attach its scheduler.
const HELLO_WITHIN: Duration = Duration::from_secs(5);
/// Time limit for all other answers. A daemon that takes longer counts as lost.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// Requests a descriptor of a thread. Since Linux 6.9; the same bit as `O_EXCL` (`linux/pidfd.h`).
const PIDFD_THREAD: u32 = rustix::fs::OFlags::EXCL.bits();

/// The parameters of a connection, sent in `Hello`.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// The slots that the runtime needs, the controller's included.
    pub slots: usize,
    /// Its policy, as the ABI numbers it.
    pub policy: u32,
    /// The time that a poll may take, in nanoseconds.
    pub budget_ns: u64,
    /// The time from one step of the ladder to the next, in nanoseconds.
    pub grace_ns: u64,
}

/// A connection on which the daemon answered `Hello`.
#[derive(Debug)]
pub struct Client {
    socket: OwnedFd,
    /// A `morpheus_kernel_mode`.
    pub mode: u32,
}

/// Connects to a daemon, and maps the memory that it hands out.
pub fn join(path: &Path, terms: Terms) -> Result<(Client, SharedArea, Ring), LinkError> {
    let named = || path.display().to_string();
    let failed = |source| LinkError::failed(path, source);
    let socket = connect(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            LinkError::Absent { path: named() }
        }
        _ => failed(error),
    })?;
    let uid = peer_uid(&socket).map_err(failed)?;
    if uid != 0 && uid != rustix::process::geteuid().as_raw() {
        return Err(LinkError::Stranger { path: named(), uid });
    }
    let hello = Request::Hello {
        abi_version: abi::MORPHEUS_ABI_VERSION,
        slots: terms.slots as u32,
        policy: terms.policy,
        budget_ns: terms.budget_ns,
        grace_ns: terms.grace_ns,
    };
    let (reply, fds) = ask(&socket, hello, None, HELLO_WITHIN).map_err(failed)?;
    let mode = match reply {
        Reply::Welcome { mode, slots } if slots as usize == terms.slots => mode,
        Reply::Refused(refusal) => {
            return Err(LinkError::Refused {
                path: named(),
                refusal,
            });
        }
        _ => return Err(failed(unexpected(reply))),
    };
    let [runtime, kernel, ring]: [OwnedFd; 3] = fds.try_into().map_err(|_| {
        // The kernel keeps those back for which this process has no room.
        failed(io::Error::new(
            io::ErrorKind::QuotaExceeded,
            "the daemon's areas have not come: does this process have too many open files?",
        ))
    })?;
    let shared = SharedArea::map(&runtime, &kernel, terms.slots).map_err(failed)?;
    let ring = Ring::map(ring).map_err(failed)?;
    Ok((Client { socket, mode }, shared, ring))
}

impl Client {
    /// Returns the socket. It is readable only after the daemon has ended: the daemon sends nothing unasked.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Binds a slot to a thread of this process. Does nothing if the thread has ended.
    pub fn register(&self, slot: usize, tid: u32) -> io::Result<()> {
        let Some(pid) = Pid::from_raw(tid as i32) else {
            return Ok(());
        };
        let pidfd = match pidfd_open(pid, PidfdFlags::from_bits_retain(PIDFD_THREAD)) {
            Ok(pidfd) => Some(pidfd),
            Err(Errno::SRCH) => return Ok(()),
            // This kernel has no descriptors of threads: the daemon looks the thread up by its ID.
            Err(_) => None,
        };
        let request = Request::Register {
            slot: slot as u32,
            tid,
        };
        match ask(
            &self.socket,
            request,
            pidfd.as_ref().map(AsFd::as_fd),
            ANSWER_WITHIN,
        )?
        .0
        {
            // The other where the thread has ended since.
            Reply::Registered { .. } | Reply::Unregistered { .. } => Ok(()),
            other => Err(unexpected(other)),
        }
    }

    pub fn unregister(&self, slot: usize) -> io::Result<()> {
        let request = Request::Unregister { slot: slot as u32 };
        match ask(&self.socket, request, None, ANSWER_WITHIN)?.0 {
            Reply::Unregistered { .. } => Ok(()),
            other => Err(unexpected(other)),
        }
    }
}

fn unexpected(reply: Reply) -> io::Error {
    match reply {
        Reply::Refused(refusal) => io::Error::other(refusal),
        other => io::Error::other(format!("unexpected answer: {other:?}")),
    }
}

fn connect(path: &Path) -> io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )?;
    let address = SocketAddrUnix::new(path)?;
    retry_on_intr(|| rustix::net::connect(&socket, &address))?;
    Ok(socket)
}

/// Returns the user ID of the process that listens. Not with rustix: a daemon outside of this process's PID namespace
/// has the process ID 0 here, which rustix cannot represent.
fn peer_uid(socket: &OwnedFd) -> io::Result<u32> {
    let mut peer = libc::ucred {
        pid: 0,
        uid: u32::MAX,
        gid: u32::MAX,
    };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes to `peer`, and `peer` has that size.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut peer).cast(),
            &raw mut length,
        )
    };
    if result == 0 {
        Ok(peer.uid)
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Sends a request and waits for the answer.
fn ask(
    socket: &OwnedFd,
    request: Request,
    fd: Option<BorrowedFd<'_>>,
    within: Duration,
) -> io::Result<(Reply, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = fd.as_slice();
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::ErrorKind::OutOfMemory.into());
    }
    let message = request.encode();
    retry_on_intr(|| {
        rustix::net::sendmsg(
            socket,
            &[IoSlice::new(message.bytes())],
            &mut control,
            SendFlags::NOSIGNAL,
        )
    })?;
    receive(socket, within)
}

/// Waits until there is an answer. A handler that interrupts the wait makes it no longer: the kernel does not restart `poll`.
fn wait_for_answer(socket: &OwnedFd, within: Duration) -> io::Result<()> {
    let until = Instant::now() + within;
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: left.as_secs() as i64,
            tv_nsec: left.subsec_nanos().into(),
        };
        match poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&timeout)) {
            Ok(0) => {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "the daemon does not answer",
                ));
            }
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn receive(socket: &OwnedFd, within: Duration) -> io::Result<(Reply, Vec<OwnedFd>)> {
    wait_for_answer(socket, within)?;
    let mut packet = [0; MESSAGE_BYTES];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = retry_on_intr(|| {
        rustix::net::recvmsg(
            socket,
            &mut [IoSliceMut::new(&mut packet)],
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        )
    })?;
    let fds = control
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        })
        .flatten()
        .collect();
    if received.bytes == 0 {
        return Err(io::ErrorKind::ConnectionAborted.into());
    }
    let reply = Reply::decode(&packet[..received.bytes]).map_err(io::Error::other)?;
    Ok((reply, fds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    static INTERRUPTIONS: AtomicUsize = AtomicUsize::new(0);

    extern "C" fn on_signal(_signal: libc::c_int) {
        // Relaxed: a number of this test's.
        INTERRUPTIONS.fetch_add(1, Ordering::Relaxed);
    }

    #[test]
    fn signals_make_the_wait_for_an_answer_neither_shorter_nor_longer() {
        // SAFETY: all-zero is a valid `sigaction` without flags; the handler is async-signal-safe.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            let handler: extern "C" fn(libc::c_int) = on_signal;
            action.sa_sigaction = handler as usize;
            libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut());
        }
        let (own, daemons) = rustix::net::socketpair(
            AddressFamily::UNIX,
            SocketType::SEQPACKET,
            SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        // SAFETY: the number of this thread, which takes part in the scope below to its end.
        let asking = unsafe { libc::pthread_self() } as usize;
        let interrupt = || {
            std::thread::sleep(Duration::from_millis(5));
            // SAFETY: the thread is there, as above, and has a handler for the signal.
            unsafe { libc::pthread_kill(asking as libc::pthread_t, libc::SIGUSR2) };
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                (0..20).for_each(|_| interrupt());
                let reply = Reply::Unregistered { slot: 7 }.encode();
                rustix::net::send(&daemons, reply.bytes(), SendFlags::empty()).unwrap();
            });
            let request = Request::Unregister { slot: 7 };
            let (reply, _) = ask(&own, request, None, Duration::from_secs(60)).unwrap();
            assert!(matches!(reply, Reply::Unregistered { slot: 7 }));
        });
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Relaxed: a wait that ends late sends some more. One that each signal begins anew ends with the signals, and is too long.
                let until = Instant::now() + Duration::from_secs(20);
                while !is_over.load(Ordering::Relaxed) && Instant::now() < until {
                    interrupt();
                }
            });
            let begun = Instant::now();
            let error = receive(&own, Duration::from_millis(50)).unwrap_err();
            assert!(begun.elapsed() < Duration::from_secs(15));
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        });
        assert!(INTERRUPTIONS.load(Ordering::Relaxed) > 0);
    }
}
