//! A thread that stays on the source CPU and makes lines dirty there when it is asked to.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, Scope};

use super::buffer::Buffer;
use crate::cpus;

/// The thread; it ends with this value.
pub struct Writer {
    orders: SyncSender<usize>,
    /// First whether it is on its CPU, and then that an order is done.
    answers: Receiver<Result<(), String>>,
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
        let (orders, ordered) = sync_channel(1);
        let (sender, answers) = sync_channel(1);
        thread::Builder::new()
            .spawn_scoped(scope, move || {
                let mut answer = cpus::pin(on);
                while sender.send(answer).is_ok()
                    && let Ok(lines) = ordered.recv()
                {
                    buffer.dirty(lines);
                    answer = Ok(());
                }
            })
            .map_err(|error| format!("no thread on the source CPU: {error}"))?;
        let writer = Self { orders, answers };
        writer.answer()?;
        Ok(writer)
    }

    /// Has it write to the first `lines` lines (0: it only wakes and answers), and waits until it has.
    ///
    /// # Errors
    /// When the thread has ended.
    pub fn dirty(&self, lines: usize) -> Result<(), String> {
        // Where it has ended, no answer comes.
        let _ = self.orders.send(lines);
        self.answer()
    }

    fn answer(&self) -> Result<(), String> {
        let ended = |_| Err("the thread on the source CPU ended".into());
        self.answers.recv().unwrap_or_else(ended)
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
