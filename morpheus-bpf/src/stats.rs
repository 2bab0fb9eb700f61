// SPDX-License-Identifier: GPL-2.0-only
//! The counters of the daemon, on request: at a second socket, beside the broker's.
//!
//! A client gets one packet of JSON, and sends nothing, so the daemon parses nothing. A user who asks too often
//! gets none. `morpheus_tools::stats` asks.

use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{SendFlags, SocketFlags};
use serde_json::{Value, json};

use crate::broker::{Listener, Statistics};
use crate::kernel::Counters;
use crate::peer;

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

/// The next peer that waits at the listener for the numbers, and its user. `None` when there is none.
///
/// # Errors
///
/// When no connection can be taken, as without a descriptor for it: the peer goes on waiting.
pub(crate) fn next_question(listener: &Listener) -> Result<Option<(OwnedFd, u32)>, Errno> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = match rustix::net::accept_with(listener.socket(), flags) {
        Ok(socket) => socket,
        Err(Errno::AGAIN) => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(peer::uid(&socket).ok().map(|uid| (socket, uid)))
}

/// Gives the numbers, as JSON, to a peer that asked. One that has gone already does not want them.
pub(crate) fn answer(socket: &OwnedFd, numbers: &str) {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let _ = rustix::net::send(socket, numbers.as_bytes(), flags);
}

#[cfg(test)]
mod tests {
    use std::io;

    use morpheus_tools::stats::{ask, line, path};
    use rustix::event::{PollFd, PollFlags, poll};

    use super::*;

    #[test]
    fn counters_that_are_zero_are_handed_out() {
        let counters = Counters::from([("requests", 3), ("events_lost", 0), ("kicks_made_up", 1)]);
        let statistics = Statistics {
            processes: 1,
            workers: 2,
            refused: 0,
            area_bytes: 4096,
        };
        let numbers = describe("scheduler", &counters, json!({ "cpus": 2 }), statistics);
        assert_eq!(numbers["counters"]["events_lost"], 0);
        assert_eq!(
            line(&numbers),
            "processes 1, workers 2, refused 0, kicks made up 1, requests 3"
        );
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
        let (socket, uid) = next_question(&listener).unwrap().unwrap();
        assert_eq!(uid, rustix::process::geteuid().as_raw());
        answer(&socket, r#"{ "processes": 7 }"#);
        assert_eq!(asked.join().unwrap().unwrap()["processes"], 7);
        assert!(next_question(&listener).unwrap().is_none());
        // Closed without an answer.
        let asked = std::thread::spawn({
            let socket = socket_path.clone();
            move || ask(&socket)
        });
        poll(&mut [PollFd::new(listener.socket(), PollFlags::IN)], None).unwrap();
        drop(next_question(&listener).unwrap().unwrap());
        let refused = asked.join().unwrap().unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        drop(listener);
        assert!(ask(&socket_path).is_err());
        std::fs::remove_dir_all(directory).unwrap();
    }
}
