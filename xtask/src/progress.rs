//! The display of a running step: its number and name, on a terminal its last line too, at the end its outcome.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// A line on a terminal is cut here, so that it can be rewritten.
const WIDTH: usize = 79;
/// A line is rewritten at most this often.
const PACE: Duration = Duration::from_millis(200);

/// Where progress is seen: on standard output, unless that belongs to the output of something that is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sink {
    Stdout,
    Stderr,
}

impl Sink {
    /// A reader that is gone (`| head`) is noticed by the next call.
    pub(crate) fn print(self, text: &str) {
        match self {
            Sink::Stdout => {
                print!("{text}");
                let _ = io::stdout().flush();
            }
            Sink::Stderr => eprint!("{text}"),
        }
    }

    fn is_terminal(self) -> bool {
        match self {
            Sink::Stdout => io::stdout().is_terminal(),
            Sink::Stderr => io::stderr().is_terminal(),
        }
    }
}

/// How output is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Style {
    /// Every line of the step.
    Verbose,
    /// One line that is rewritten.
    Live,
    /// One line: the start, and later the outcome.
    Plain,
}

/// One step on the screen.
#[derive(Debug)]
pub(crate) struct Progress {
    title: String,
    sink: Sink,
    style: Style,
    started: Instant,
    shown: Instant,
}

impl Progress {
    pub(crate) fn start(title: String, sink: Sink, verbose: bool) -> Progress {
        let style = if verbose {
            Style::Verbose
        } else if sink.is_terminal() {
            Style::Live
        } else {
            Style::Plain
        };
        let end = if style == Style::Verbose { "\n" } else { "" };
        sink.print(&format!("{title} ...{end}"));
        let now = Instant::now();
        Progress {
            title,
            sink,
            style,
            started: now,
            shown: now,
        }
    }

    /// The step printed a line.
    pub(crate) fn line(&mut self, line: &str) {
        match self.style {
            Style::Verbose => self.sink.print(&format!("{line}\n")),
            Style::Plain => {}
            Style::Live => {
                if self.shown.elapsed() >= PACE {
                    self.shown = Instant::now();
                    let text = live_line(&self.title, self.started.elapsed(), line);
                    self.sink.print(&format!("\r\x1b[K{text}"));
                }
            }
        }
    }

    /// The step has ended so.
    pub(crate) fn end(self, outcome: &str) {
        let took = self.started.elapsed().as_secs_f64();
        let before = match self.style {
            Style::Verbose => format!("{} ...", self.title),
            Style::Live => format!("\r\x1b[K{} ...", self.title),
            Style::Plain => String::new(),
        };
        self.sink
            .print(&format!("{before} {outcome} ({took:.1} s)\n"));
    }
}

/// A line about several steps at once, on a terminal; elsewhere nothing.
#[derive(Debug)]
pub(crate) struct Live {
    sink: Sink,
    is_terminal: bool,
}

impl Live {
    pub(crate) fn start(sink: Sink) -> Live {
        Live {
            sink,
            is_terminal: sink.is_terminal(),
        }
    }

    pub(crate) fn show(&self, elapsed: Duration, what: &str) {
        if self.is_terminal {
            let text = live_line("running", elapsed, what);
            self.sink.print(&format!("\r\x1b[K{text}"));
        }
    }

    /// Before a line that stays.
    pub(crate) fn clear(&self) {
        if self.is_terminal {
            self.sink.print("\r\x1b[K");
        }
    }
}

fn live_line(title: &str, elapsed: Duration, line: &str) -> String {
    let text = format!("{title} ... {} s  {}", elapsed.as_secs(), line.trim());
    text.chars()
        .filter(|character| !character.is_control())
        .take(WIDTH)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_live_line_fits_and_moves_no_cursor() {
        let long = format!("\x1b[2J\t{}", "ä".repeat(200));
        let text = live_line("[1/2] tests", Duration::from_secs(7), &long);
        assert_eq!(text.chars().count(), WIDTH);
        assert!(text.starts_with("[1/2] tests ... 7 s  [2J"));
        assert!(!text.contains('\x1b'));
    }
}
