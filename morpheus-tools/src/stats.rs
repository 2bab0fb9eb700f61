//! A daemon's counters, asked for at a second socket beside the broker's.
//!
//! A client gets one packet of JSON, and sends nothing.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SocketAddrUnix};
use serde_json::Value;

use crate::socket::seqpacket;

/// More than all counters and connections take; a packet may be about 200 kB.
const MOST_BYTES: usize = 1 << 17;
/// How long a daemon may take.
const ANSWERS_WITHIN: Timespec = Timespec {
    tv_sec: 5,
    tv_nsec: 0,
};

/// Where the numbers are to be had of the daemon that listens at `socket`.
#[must_use]
pub fn path(socket: &Path) -> PathBuf {
    socket.with_extension("stats")
}

/// The numbers in a line, without those that are 0.
#[must_use]
pub fn line(numbers: &Value) -> String {
    let number = |name: &str| numbers[name].as_u64().unwrap_or(0);
    let mut line = format!(
        "processes {}, workers {}, refused {}",
        number("processes"),
        number("workers"),
        number("refused")
    );
    for (name, count) in numbers["counters"].as_object().into_iter().flatten() {
        if count.as_u64() != Some(0) {
            line += &format!(", {} {count}", name.replace('_', " "));
        }
    }
    line
}

/// Asks the daemon that listens at `socket`.
///
/// # Errors
///
/// When none is there, or it does not answer; `WouldBlock` when this user asks too often.
pub fn ask(socket: &Path) -> io::Result<Value> {
    let own: OwnedFd = seqpacket()?;
    rustix::net::connect(&own, &SocketAddrUnix::new(path(socket))?)?;
    if poll(
        &mut [PollFd::new(&own, PollFlags::IN)],
        Some(&ANSWERS_WITHIN),
    )? == 0
    {
        return Err(io::ErrorKind::TimedOut.into());
    }
    let mut packet = vec![0; MOST_BYTES];
    let (_, length) = rustix::net::recv(&own, &mut packet[..], RecvFlags::DONTWAIT)?;
    if length == 0 {
        return Err(io::Error::new(
            io::ErrorKind::WouldBlock,
            "this user asks the daemon too often: try again in a second",
        ));
    }
    Ok(serde_json::from_slice(&packet[..length])?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn zeroes_are_left_out_of_the_line() {
        let numbers = json!({
            "processes": 1, "workers": 2, "refused": 0,
            "counters": { "requests": 3, "events_lost": 0, "kicks_made_up": 1 },
        });
        assert_eq!(
            line(&numbers),
            "processes 1, workers 2, refused 0, kicks made up 1, requests 3"
        );
    }
}
