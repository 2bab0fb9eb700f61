//! `scx_morpheus top`: what a daemon does, in a terminal.
//!
//! - `model`: what is known, and what a key or an answer changes in it; knows no terminal.
//! - `view`: draws it; knows no daemon. `decisions`: a part of that. `curves`: the other view. `text`: numbers in few
//!   characters.
//! - this file: the terminal, and a thread that asks, so that a daemon which is slow to answer does not make the view slow.

mod curves;
mod decisions;
mod model;
mod text;
mod view;

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
use ratatui::crossterm::event::{self, Event, KeyEventKind};

use crate::history;
use crate::reading::Reading;
use crate::signals::StopSignals;
use crate::stats;
use model::{Answer, Model};

/// How soon a signal or an answer is seen; a key is seen at once.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Why there is no view.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Standard input or output is no terminal.
    #[error(
        "top needs a terminal for both input and output; scx_morpheus --monitor 1 prints a line each second instead"
    )]
    NoTerminal,
    /// The history that was named cannot be shown.
    #[error(transparent)]
    History(#[from] history::Error),
    /// The terminal, or the system, refuses.
    #[error("the terminal cannot be used: {0}")]
    Terminal(#[from] io::Error),
}

/// Shows what the daemon at `socket` does, asked every `interval`, until the user has seen enough or a signal comes. It goes
/// on while there is no daemon. The curves are of the history that the daemon records, or of the file `history`; without one,
/// of what was seen since the start. The terminal is as it was when this returns, and when it panics.
///
/// # Errors
///
/// When there is no terminal, or it fails.
pub fn run(socket: &Path, interval: Duration, history: Option<&Path>) -> Result<(), Error> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(Error::NoTerminal);
    }
    if let Some(path) = history {
        // Told before the terminal is taken.
        history::read(path)?;
    }
    // Before the thread: it inherits the mask.
    let stop = StopSignals::catch()?;
    let answers = ask_again_and_again(socket.to_owned(), interval, history.map(Path::to_owned))?;
    let mut model = Model::new(socket.display().to_string(), interval);
    // Its hook restores the terminal before a panic is told.
    let mut terminal = ratatui::try_init()?;
    let _restore = Restore;
    loop {
        terminal.draw(|frame| view::draw(frame, &model))?;
        if !wait_for_change(&mut model, &answers, &stop)? {
            return Ok(());
        }
    }
}

/// Gives the terminal back, also where the loop fails.
struct Restore;

impl Drop for Restore {
    fn drop(&mut self) {
        // The terminal may have gone, which is why the loop has failed.
        let _ = ratatui::try_restore();
    }
}

/// Returns when there is something else to be drawn, with false when it is over.
fn wait_for_change(
    model: &mut Model,
    answers: &Receiver<Answer>,
    stop: &StopSignals,
) -> io::Result<bool> {
    loop {
        if stop.has_come()? {
            return Ok(false);
        }
        match answers.try_recv() {
            Ok(answer) => {
                model.answered(answer);
                return Ok(true);
            }
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => {
                return Err(io::Error::other(
                    "the thread that asks the daemon has ended",
                ));
            }
        }
        if !event::poll(LOOK_EVERY)? {
            continue;
        }
        match event::read()? {
            Event::Key(key) if key.kind != KeyEventKind::Release => {
                return Ok(model.key_pressed(key.code, key.modifiers));
            }
            Event::Resize(..) => return Ok(true),
            _ => {}
        }
    }
}

fn ask_again_and_again(
    socket: PathBuf,
    interval: Duration,
    history: Option<PathBuf>,
) -> io::Result<Receiver<Answer>> {
    let (sender, answers): (Sender<Answer>, _) = bounded(1);
    thread::Builder::new()
        .name("morpheus-asks".into())
        .spawn(move || {
            loop {
                let result = stats::ask(&socket)
                    .map(|numbers| Reading::parse(&numbers))
                    .map_err(|error| error.to_string());
                let told = result
                    .as_ref()
                    .ok()
                    .and_then(|reading| reading.history.as_ref());
                let path = history.clone().or_else(|| told.map(PathBuf::from));
                let answer = Answer {
                    // One of another user's daemon may not be read: then there are the curves of what was seen.
                    history: path.and_then(|path| history::read(&path).ok()),
                    result,
                    at: Instant::now(),
                };
                // The view has ended.
                if sender.send(answer).is_err() {
                    return;
                }
                thread::sleep(interval);
            }
        })?;
    Ok(answers)
}
