//! The object that a blocking hog waits for: a lock that is held outside, or a pipe that is written to outside.

use std::collections::BTreeSet;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use morpheus_harness::thread;

use super::workload::HogKind;

/// How one hog blocks in the kernel.
pub struct Blocker {
    index: usize,
    ask: Sender<(Instant, usize, u64)>,
    turns: AtomicU64,
    what: What,
}

enum What {
    /// Two locks, used in turn: the thread outside holds the other one while the hog takes this one, so
    /// that it never has to race with the hog for a lock that it just gave away.
    Locks(&'static [Mutex<()>; 2]),
    Pipe(PipeReader),
}

/// The outside thread's end of a [`Blocker`].
enum Held {
    Locks(
        &'static [Mutex<()>; 2],
        [Option<MutexGuard<'static, ()>>; 2],
    ),
    Pipe(PipeWriter),
}

impl Blocker {
    /// Starts the thread that releases blocked hogs, and returns a blocker for each of `count` hogs of this kind.
    ///
    /// # Errors
    /// When there are no descriptors left for pipes, or no thread.
    pub fn start(kind: HogKind, count: usize) -> io::Result<Vec<Self>> {
        let (ask, asked) = channel();
        let (mut blockers, mut locks, mut pipes) = (Vec::new(), Vec::new(), Vec::new());
        for index in 0..count {
            let what = if kind == HogKind::Mutex {
                // Leaked, so that a guard may live in a list beside its lock; a child process is short.
                let pair: &'static [Mutex<()>; 2] = Box::leak(Box::default());
                locks.push(pair);
                What::Locks(pair)
            } else {
                let (reader, writer) = io::pipe()?;
                pipes.push(writer);
                What::Pipe(reader)
            };
            blockers.push(Self {
                index,
                ask: ask.clone(),
                turns: AtomicU64::new(0),
                what,
            });
        }
        let (ready, is_ready) = channel();
        let builder = std::thread::Builder::new().name("releaser".into());
        builder.spawn(move || {
            thread::precise();
            // The guards must be taken in the thread that gives them up.
            let guarded = locks.into_iter().map(|pair| {
                let held = pair.each_ref().map(|lock| lock.lock().ok());
                Held::Locks(pair, held)
            });
            let mut held: Vec<Held> = guarded.chain(pipes.into_iter().map(Held::Pipe)).collect();
            let _ = ready.send(());
            release(&asked, &mut held);
        })?;
        // Without it the first hogs could find their locks free.
        let _ = is_ready.recv();
        Ok(blockers)
    }

    /// Blocks the calling thread in the kernel for about `duration`.
    pub fn block(&self, duration: Duration) {
        let turn = self.turns.fetch_add(1, Relaxed);
        // The releaser ends only after the last blocker is dropped.
        let _ = self.ask.send((Instant::now() + duration, self.index, turn));
        match &self.what {
            What::Locks(pair) => drop(pair[turn as usize % 2].lock()),
            What::Pipe(reader) => {
                let mut reader: &PipeReader = reader;
                let _ = reader.read(&mut [0]);
            }
        }
    }
}

fn release(asked: &Receiver<(Instant, usize, u64)>, held: &mut [Held]) {
    let mut due: BTreeSet<(Instant, usize, u64)> = BTreeSet::new();
    loop {
        let wait = due.first().map_or(Duration::from_secs(3_600), |(at, ..)| {
            at.saturating_duration_since(Instant::now())
        });
        match asked.recv_timeout(wait) {
            Err(RecvTimeoutError::Disconnected) => return,
            request => due.extend(request),
        }
        while due.first().is_some_and(|(at, ..)| *at <= Instant::now()) {
            let Some((_, index, turn)) = due.pop_first() else {
                break;
            };
            match &mut held[index] {
                Held::Locks(pair, guards) => {
                    let this = turn as usize % 2;
                    // The hog is done with the other one: it asked for this turn. That one is taken back
                    // first, as the hog goes for it as soon as it has this one.
                    if guards[1 - this].is_none() {
                        guards[1 - this] = pair[1 - this].lock().ok();
                    }
                    guards[this] = None;
                }
                Held::Pipe(writer) => {
                    let _ = writer.write(&[0]);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_turn_blocks_for_the_time_asked() {
        for kind in [HogKind::Mutex, HogKind::Read] {
            let blockers = Blocker::start(kind, 2).unwrap();
            for _ in 0..4 {
                let start = Instant::now();
                blockers[1].block(Duration::from_millis(20));
                assert!(start.elapsed() >= Duration::from_millis(20), "{kind:?}");
            }
        }
    }
}
