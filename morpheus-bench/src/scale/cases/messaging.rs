//! Many that talk to many: groups in which each sender writes to every receiver, over a socket for each receiver.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use morpheus_harness::clock::monotonic_ns;
use morpheus_harness::thread;

use super::super::child::{Answer, Job};
use super::super::result::Measured;

/// Groups.
const GROUPS: usize = 2;
/// Senders in a group, and receivers.
const SIDE: usize = 5;
/// Bytes of a message.
const MESSAGE: usize = 100;

/// Until the time is over; what is on its way then still arrives, and counts, with the time that it takes.
pub fn measure(job: &Job) -> Answer {
    let said = |error: io::Error| format!("no sockets: {error}");
    let stop = &AtomicBool::new(false);
    let begun = monotonic_ns();
    let received = std::thread::scope(|scope| -> Result<Vec<_>, String> {
        let mut receivers = Vec::new();
        for _ in 0..GROUPS {
            let pairs: io::Result<Vec<_>> = (0..SIDE).map(|_| UnixStream::pair()).collect();
            let pairs = pairs.map_err(said)?;
            for _ in 0..SIDE {
                let all: io::Result<Vec<_>> = pairs.iter().map(|(to, _)| to.try_clone()).collect();
                let all = all.map_err(said)?;
                scope.spawn(move || send(all, stop));
            }
            // The last sender that ends closes the sockets, and its receivers end.
            for (_, from) in pairs {
                receivers.push(scope.spawn(move || receive(from)));
            }
        }
        std::thread::sleep(job.duration());
        stop.store(true, Relaxed);
        let ended = receivers.into_iter();
        Ok(ended.flat_map(|receiver| receiver.join()).collect())
    })?;
    let wall_ns = monotonic_ns() - begun;
    let messages: io::Result<Vec<u64>> = received.into_iter().collect();
    let messages = messages.map_err(|error| format!("a receiver: {error}"))?;
    if messages.len() < GROUPS * SIDE {
        return Err("a receiver has ended before its time".into());
    }
    Ok(Measured::rate(messages.iter().sum(), wall_ns))
}

fn send(mut all: Vec<UnixStream>, stop: &AtomicBool) {
    thread::name_current(c"scale-send");
    while !stop.load(Relaxed) {
        for to in &mut all {
            // An error means that the receiver has ended, which is said there.
            if to.write_all(&[1; MESSAGE]).is_err() {
                return;
            }
        }
    }
}

/// Messages until all senders have ended.
fn receive(mut from: UnixStream) -> io::Result<u64> {
    thread::name_current(c"scale-receive");
    let mut messages = 0;
    loop {
        match from.read_exact(&mut [0; MESSAGE]) {
            Ok(()) => messages += 1,
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(messages),
            Err(error) => return Err(error),
        }
    }
}
