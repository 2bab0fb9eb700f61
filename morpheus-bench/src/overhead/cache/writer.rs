//! A thread that stays on the source CPU and makes lines dirty there when it is asked to.

use crate::cpus;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, Scope};

use super::buffer::Buffer;

/// The thread; it ends with this value.
pub struct Writer {
    orders: SyncSender<usize>,
    done: Receiver<()>,
}

impl Writer {
    /// Starts it on a CPU.
    ///
    /// # Errors
    /// When it cannot be started there.
    pub fn start<'scope>(
        scope: &'scope Scope<'scope, '_>,
        buffer: &'scope Buffer,
        on: usize,
    ) -> Result<Self, String> {
        let (orders, received) = sync_channel::<usize>(1);
        let (answer, done) = sync_channel(1);
        let (pinned, is_pinned) = sync_channel(1);
        thread::Builder::new()
            .spawn_scoped(scope, move || {
                let result = cpus::pin(on);
                let go_on = result.is_ok();
                let _ = pinned.send(result);
                if !go_on {
                    return;
                }
                while let Ok(lines) = received.recv() {
                    buffer.dirty(lines);
                    if answer.send(()).is_err() {
                        return;
                    }
                }
            })
            .map_err(|error| format!("no thread on the source CPU: {error}"))?;
        is_pinned
            .recv()
            .unwrap_or_else(|_| Err("the thread on the source CPU ended".into()))?;
        Ok(Self { orders, done })
    }

    /// Has it write to the first `lines` lines (0: it only wakes and answers), and waits until it has.
    ///
    /// # Errors
    /// When the thread has ended.
    pub fn dirty(&self, lines: usize) -> Result<(), String> {
        let ended = || "the thread on the source CPU ended".to_owned();
        self.orders.send(lines).map_err(|_| ended())?;
        self.done.recv().map_err(|_| ended())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_writes_and_ends() {
        let buffer = Buffer::new(4_096, 64).unwrap();
        let cpus = cpus::allowed();
        thread::scope(|scope| {
            let writer = Writer::start(scope, &buffer, cpus[0]).unwrap();
            writer.dirty(0).unwrap();
            writer.dirty(10).unwrap();
            assert!(Writer::start(scope, &buffer, 100_000).is_err());
        });
    }
}
