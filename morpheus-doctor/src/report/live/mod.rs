//! The table of findings in a terminal, while a run goes on.
//!
//! - `model`: the selection, and what a key changes; knows no terminal. `view`: draws a report; knows no keys.
//! - this file: the terminal.

mod model;
mod view;

use std::io::{self, IsTerminal};
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use crate::model::Report;
use model::State;

pub use crate::report::words::progress_line;

/// A key's request to the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// To end the run: `q` or Ctrl-C.
    End,
    /// To draw the report again: another finding is selected, or the window has another size.
    Redraw,
}

/// A terminal that shows a report. It is as it was before when this is dropped, and when the thread panics.
#[derive(Debug)]
pub struct Live {
    terminal: DefaultTerminal,
    state: State,
}

impl Live {
    /// Whether there is a terminal for both input and output. Where there is none, [`progress_line`] tells how the run goes on.
    #[must_use]
    pub fn is_possible() -> bool {
        io::stdin().is_terminal() && io::stdout().is_terminal()
    }

    /// Takes the terminal: an empty screen, keys without echo. Ctrl-C is a key from now on, and no signal.
    ///
    /// # Errors
    ///
    /// When standard input or standard output is no terminal, or the terminal refuses.
    pub fn start() -> io::Result<Self> {
        if !Self::is_possible() {
            return Err(io::Error::other(
                "the live table needs a terminal for both input and output",
            ));
        }
        // Its hook restores the terminal before a panic is told.
        match ratatui::try_init() {
            Ok(terminal) => Ok(Self {
                terminal,
                state: State::default(),
            }),
            Err(error) => {
                // It may have failed half-way. That it cannot be restored is no news then.
                let _ = ratatui::try_restore();
                Err(error)
            }
        }
    }

    /// Draws a report, as it is by now.
    ///
    /// # Errors
    ///
    /// When the terminal cannot be written.
    pub fn draw(&mut self, report: &Report) -> io::Result<()> {
        self.state.update(report);
        let state = &self.state;
        self.terminal
            .draw(|frame| view::draw(frame, report, state))?;
        Ok(())
    }

    /// Waits for a key or another size of the window, at most `timeout`. None: nothing came, or nothing that matters.
    ///
    /// # Errors
    ///
    /// When the terminal cannot be read.
    pub fn keys(&mut self, timeout: Duration) -> io::Result<Option<Key>> {
        if !event::poll(timeout)? {
            return Ok(None);
        }
        Ok(match event::read()? {
            Event::Key(key) if key.kind != KeyEventKind::Release => {
                self.state.key_pressed(key.code, key.modifiers)
            }
            Event::Resize(..) => Some(Key::Redraw),
            _ => None,
        })
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        // The terminal may have gone, and nothing can be done about it.
        let _ = ratatui::try_restore();
    }
}
