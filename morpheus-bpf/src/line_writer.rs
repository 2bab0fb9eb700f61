// SPDX-License-Identifier: GPL-2.0-only
//! Writes the lines on standard error that the thread says which serves applications.
//!
//! A write waits where a pipe or a terminal is full, and clients cause lines. So a thread of its own writes them, and lines that find
//! too many before them are left out and counted.

use std::io::{self, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

/// How many lines may wait to be written.
const MOST_LINES: usize = 1024;
/// How long [`flush`] waits.
const LAST_LINES: Duration = Duration::from_millis(500);

/// The lines of this process; none where no thread could be started for them.
static LINES: OnceLock<Option<Lines>> = OnceLock::new();

/// Has a line written on standard error, or leaves it out. Returns at once.
pub(crate) fn say(line: String) {
    let lines = LINES.get_or_init(|| {
        let started = Lines::start(|line| {
            // As with `say!`: a line that cannot be written is no reason to end.
            let _ = writeln!(io::stderr(), "{line}");
        });
        started.ok()
    });
    if let Some(lines) = lines {
        lines.say(line);
    }
}

/// Waits until the lines that were said are written, for up to [`LAST_LINES`].
pub(crate) fn flush() {
    if let Some(Some(lines)) = LINES.get() {
        lines.flush();
    }
}

enum Item {
    Line(String),
    /// Dropped when all before it is written.
    Flush(Sender<()>),
}

/// A thread that writes lines.
struct Lines {
    items: SyncSender<Item>,
    /// Lines that were left out, and of which no line says so yet.
    left_out: Arc<AtomicU64>,
}

impl Lines {
    fn start(mut write: impl FnMut(&str) + Send + 'static) -> io::Result<Lines> {
        let (items, queue) = sync_channel(MOST_LINES);
        let left_out = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&left_out);
        let thread = thread::Builder::new().name("morpheus-lines".into());
        thread.spawn(move || {
            for item in queue {
                // Relaxed: the count is all that there is to know.
                let left_out = counted.swap(0, Ordering::Relaxed);
                if left_out > 0 {
                    write(&format!("scx_morpheus: {left_out} lines were left out"));
                }
                match item {
                    Item::Line(line) => write(&line),
                    Item::Flush(done) => drop(done),
                }
            }
        })?;
        Ok(Lines { items, left_out })
    }

    fn say(&self, line: String) {
        if self.items.try_send(Item::Line(line)).is_err() {
            // Relaxed, as above.
            self.left_out.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn flush(&self) {
        let (done, written) = channel();
        // A full queue means that no line is being read: a wait would not help.
        if self.items.try_send(Item::Flush(done)).is_ok() {
            let _ = written.recv_timeout(LAST_LINES);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_write_that_waits_holds_no_line_up() {
        let (gate, opened) = channel::<()>();
        let (sender, written) = channel();
        let lines = Lines::start(move |line| {
            // Until the other end is dropped.
            let _ = opened.recv();
            sender.send(line.to_owned()).unwrap();
        });
        let lines = lines.unwrap();
        let said = MOST_LINES + 10;
        for line in 0..said {
            lines.say(line.to_string());
        }
        lines.flush();
        drop((gate, lines));
        let written: Vec<String> = written.iter().collect();
        let left_out: usize = written
            .iter()
            .filter_map(|line| line.strip_prefix("scx_morpheus: ")?.split(' ').next())
            .map(|count| count.parse::<usize>().unwrap())
            .sum();
        let lines: Vec<usize> = written
            .iter()
            .filter_map(|line| line.parse().ok())
            .collect();
        assert!(left_out >= 9, "one is with the writer: {left_out}");
        assert_eq!(lines.len() + left_out, said);
        assert!(lines.is_sorted());
    }
}
