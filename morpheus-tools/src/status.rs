//! `scx_morpheus status`: whether a daemon answers at the socket.

use std::io;
use std::path::Path;

use morpheus_common::broker::{MESSAGE_BYTES, Refusal, Reply, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendFlags, SocketAddrUnix};

use crate::socket::seqpacket;

/// How long a daemon may take. Many connections that open at once keep it busy for a while.
const ANSWERS_WITHIN: Timespec = Timespec {
    tv_sec: 5,
    tv_nsec: 0,
};

/// The request that is sent. A client that has not said Hello is refused it, so that nothing is made for it; the daemon does not count that
/// as a refusal.
pub const QUESTION: Request = Request::Unregister { slot: 0 };

/// The state of the daemon at a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// A daemon that speaks this version of the protocol.
    Answers,
    /// A daemon that has no room for another process.
    Full,
    /// A listener that speaks another version of the protocol.
    OtherVersion,
    /// A listener that does not answer.
    Silent,
    /// No listener.
    Absent,
}

impl Status {
    /// In a word, as `--json` has it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Status::Answers => "answers",
            Status::Full => "full",
            Status::OtherVersion => "other-version",
            Status::Silent => "silent",
            Status::Absent => "absent",
        }
    }

    /// In a sentence, with what to do.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        match self {
            Status::Answers => "a daemon answers",
            Status::Full => "a daemon answers, and serves as many processes as it may already",
            Status::OtherVersion => {
                "somebody answers, in another version of the protocol: use daemon and tools of the same release"
            }
            Status::Silent => "somebody listens there and does not answer: restart the daemon",
            Status::Absent => "no daemon listens there: start one (scx_morpheus --observe)",
        }
    }

    /// Whether an application can work with what is there.
    #[must_use]
    pub fn is_well(self) -> bool {
        matches!(self, Status::Answers | Status::Full)
    }
}

/// Asks at the socket `path`.
#[must_use]
pub fn ask(path: &Path) -> Status {
    match converse(path) {
        Ok(status) => status,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Status::Silent,
        Err(_) => Status::Absent,
    }
}

fn converse(path: &Path) -> io::Result<Status> {
    let socket = seqpacket()?;
    // A full backlog gives EAGAIN, which is `WouldBlock`.
    rustix::net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    // It may have been refused for want of room already, and closed: then the answer is there to be read.
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let _ = rustix::net::send(&socket, QUESTION.encode().bytes(), flags);
    let mut fds = [PollFd::new(&socket, PollFlags::IN)];
    if poll(&mut fds, Some(&ANSWERS_WITHIN))? == 0 {
        return Ok(Status::Silent);
    }
    let mut packet = [0; MESSAGE_BYTES];
    let (_, length) = match rustix::net::recv(&socket, &mut packet[..], RecvFlags::DONTWAIT) {
        // It was closed with our packet unread, which is told first.
        Err(rustix::io::Errno::CONNRESET) => {
            rustix::net::recv(&socket, &mut packet[..], RecvFlags::DONTWAIT)?
        }
        other => other?,
    };
    Ok(match Reply::decode(&packet[..length]) {
        // It may have refused the connection, because this user opens too many of them.
        Ok(Reply::Refused(Refusal::Order | Refusal::Rate)) => Status::Answers,
        Ok(Reply::Refused(Refusal::Processes)) => Status::Full,
        _ => Status::OtherVersion,
    })
}
