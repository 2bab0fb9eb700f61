// SPDX-License-Identifier: GPL-2.0-only
//! What the daemon has counted, for whoever asks: at a second socket, beside the broker's.
//!
//! A client gets one packet of JSON, and sends nothing, so the daemon parses nothing. A user who asks too often
//! gets none.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendFlags, SocketAddrUnix, SocketFlags};
use serde_json::{Value, json};

use crate::broker::{Listener, Statistics, seqpacket};
use crate::kernel::Counters;
use crate::peer;

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

/// The numbers as they are handed out; with those of the machine, where it is looked after.
#[must_use]
pub fn describe(what: &str, counters: &Counters, machine: Value, statistics: Statistics) -> Value {
    let mut numbers = json!({
        "runs": what,
        "processes": statistics.processes,
        "workers": statistics.workers,
        "refused": statistics.refused,
        "area_bytes": statistics.area_bytes,
        "counters": counters,
    });
    if let (Some(numbers), Value::Object(machine)) = (numbers.as_object_mut(), machine) {
        numbers.extend(machine);
    }
    numbers
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

/// The next peer that waits at the listener for the numbers, and its user. `None` when there is none.
pub(crate) fn next_question(listener: &Listener) -> Option<(OwnedFd, u32)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::accept_with(listener.socket(), flags).ok()?;
    let uid = peer::uid(&socket).ok()?;
    Some((socket, uid))
}

/// Gives the numbers, as JSON, to a peer that asked. One that has gone already does not want them.
pub(crate) fn answer(socket: &OwnedFd, numbers: &str) {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let _ = rustix::net::send(socket, numbers.as_bytes(), flags);
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
    use super::*;

    #[test]
    fn zeroes_are_left_out_of_the_line() {
        let counters = Counters::from([("requests", 3), ("events_lost", 0), ("kicks_made_up", 1)]);
        let statistics = Statistics {
            processes: 1,
            workers: 2,
            refused: 0,
            area_bytes: 4096,
        };
        let numbers = describe("scheduler", &counters, json!({ "cpus": 2 }), statistics);
        assert_eq!(
            line(&numbers),
            "processes 1, workers 2, refused 0, kicks made up 1, requests 3"
        );
        assert_eq!(numbers["counters"]["events_lost"], 0);
        assert_eq!(numbers["cpus"], 2);
    }

    #[test]
    fn asked_and_answered() {
        let directory = std::env::temp_dir().join(format!("morpheus-stats-{}", std::process::id()));
        let socket_path = directory.join("broker.sock");
        let listener = Listener::bind(&path(&socket_path)).unwrap();
        let asked = std::thread::spawn({
            let socket = socket_path.clone();
            move || ask(&socket)
        });
        poll(&mut [PollFd::new(listener.socket(), PollFlags::IN)], None).unwrap();
        let (socket, uid) = next_question(&listener).unwrap();
        assert_eq!(uid, rustix::process::geteuid().as_raw());
        answer(&socket, r#"{ "processes": 7 }"#);
        assert_eq!(asked.join().unwrap().unwrap()["processes"], 7);
        assert!(next_question(&listener).is_none());
        // Closed without an answer.
        let asked = std::thread::spawn({
            let socket = socket_path.clone();
            move || ask(&socket)
        });
        poll(&mut [PollFd::new(listener.socket(), PollFlags::IN)], None).unwrap();
        drop(next_question(&listener).unwrap());
        let refused = asked.join().unwrap().unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        drop(listener);
        assert!(ask(&socket_path).is_err());
        std::fs::remove_dir_all(directory).unwrap();
    }
}
