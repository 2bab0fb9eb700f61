//! How far it is, on stderr of a terminal.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::{clock, interrupt};

/// How long is waited at once: the bar moves meanwhile, and Ctrl-C is noticed.
const LOOK: Duration = Duration::from_millis(100);

/// A bar over the expected time of all runs. Shows nothing where stderr is no terminal.
pub struct Progress {
    bar: ProgressBar,
    done: Duration,
}

impl Progress {
    /// A bar for a run that takes `total`.
    pub fn new(total: Duration, quiet: bool) -> Self {
        let target = if quiet {
            ProgressDrawTarget::hidden()
        } else {
            // Hides itself where stderr is no terminal.
            ProgressDrawTarget::stderr_with_hz(4)
        };
        let bar = ProgressBar::with_draw_target(Some(total.as_millis() as u64), target);
        let template = "{bar:28} {percent:>3} %  {msg}";
        if let Ok(style) = ProgressStyle::with_template(template) {
            bar.set_style(style);
        }
        Self {
            bar,
            done: Duration::ZERO,
        }
    }

    /// Shows the current step.
    pub fn say(&self, what: String) {
        self.bar.set_message(what);
    }

    /// The present run has lasted for `run`.
    pub fn tick(&self, run: Duration) {
        self.bar.set_position((self.done + run).as_millis() as u64);
    }

    /// Waits until `at`, or until Ctrl-C, in the present run, which began at `begun`.
    pub fn wait_until(&self, at: Instant, begun: Instant) {
        while !interrupt::happened() && Instant::now() < at {
            self.tick(begun.elapsed());
            clock::sleep_until(at.min(Instant::now() + LOOK));
        }
    }

    /// The present run, which was expected to take `expected`, is over.
    pub fn finish_run(&mut self, expected: Duration) {
        self.done += expected;
        self.tick(Duration::ZERO);
    }

    /// Prints something while the bar is out of the way.
    pub fn suspend(&self, print: impl FnOnce()) {
        self.bar.suspend(print);
    }

    /// Takes the bar away.
    pub fn clear(&self) {
        self.bar.finish_and_clear();
    }
}
