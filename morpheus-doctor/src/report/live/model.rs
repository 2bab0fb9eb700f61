//! The selection, and what a key changes.

use std::cell::Cell;

use ratatui::crossterm::event::{KeyCode, KeyModifiers};

use super::Key;
use crate::model::{Doing, Finding, Report};

/// A view of the report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Page {
    /// All findings.
    #[default]
    Findings,
    /// The stack of the selected one, from this line on.
    Stack(usize),
}

/// By this a finding is found again in the next report, whatever its place in the order is by then.
type Identity = (String, Doing);

/// The choices that keys have made.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The view that is shown.
    pub page: Page,
    /// Help is shown over it.
    pub help: bool,
    /// Rows that the last drawing had for findings, or for the lines of a stack.
    pub room: Cell<usize>,
    /// Lines of the stack that was drawn last.
    pub lines: Cell<usize>,
    /// None: the worst one, whichever that is.
    selected: Option<Identity>,
    findings: Vec<Identity>,
}

fn identity(finding: &Finding) -> Identity {
    (finding.place(), finding.doing)
}

impl State {
    /// Takes over the findings of a report.
    pub(super) fn update(&mut self, report: &Report) {
        self.findings = report.findings.iter().map(identity).collect();
        if self.findings.is_empty() {
            self.page = Page::Findings;
        }
    }

    /// The selected finding, as an index of the report's findings.
    pub(super) fn selected(&self) -> usize {
        let place = |selected| self.findings.iter().position(|finding| finding == selected);
        self.selected.as_ref().and_then(place).unwrap_or(0)
    }

    /// Changes what is shown.
    pub(super) fn key_pressed(&mut self, code: KeyCode, modifiers: KeyModifiers) -> Option<Key> {
        if modifiers.contains(KeyModifiers::CONTROL) {
            return (code == KeyCode::Char('c')).then_some(Key::End);
        }
        let page_rows = self.room.get().max(1) as isize;
        match code {
            KeyCode::Char('q') => return Some(Key::End),
            KeyCode::Char('?' | 'h') => self.help = !self.help,
            KeyCode::Esc if self.help => self.help = false,
            KeyCode::Esc => self.page = Page::Findings,
            KeyCode::Enter | KeyCode::Char(' ') => self.open_or_close(),
            KeyCode::Up | KeyCode::Char('k') => self.move_by(-1),
            KeyCode::Down | KeyCode::Char('j') => self.move_by(1),
            KeyCode::PageUp => self.move_by(-page_rows),
            KeyCode::PageDown => self.move_by(page_rows),
            KeyCode::Home => self.move_by(isize::MIN),
            KeyCode::End => self.move_by(isize::MAX),
            _ => return None,
        }
        Some(Key::Redraw)
    }

    fn open_or_close(&mut self) {
        self.page = match self.page {
            Page::Findings if !self.findings.is_empty() => {
                // It stays the one that is looked at, even if another one gets worse.
                self.select(self.selected());
                Page::Stack(0)
            }
            _ => Page::Findings,
        };
    }

    fn move_by(&mut self, rows: isize) {
        match self.page {
            Page::Findings => {
                let last = self.findings.len().saturating_sub(1);
                let to = self.selected().saturating_add_signed(rows).min(last);
                self.select(to);
            }
            Page::Stack(line) => {
                let last = self.lines.get().saturating_sub(self.room.get());
                self.page = Page::Stack(line.saturating_add_signed(rows).min(last));
            }
        }
    }

    fn select(&mut self, index: usize) {
        // The top of the list is the worst one, and stays it.
        let is_top = index == 0 && self.page == Page::Findings && self.selected() != 0;
        self.selected = match is_top {
            true => None,
            false => self.findings.get(index).cloned(),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::super::view::tests::common::{healthy, service};
    use super::*;

    fn press(state: &mut State, code: KeyCode) -> Option<Key> {
        state.key_pressed(code, KeyModifiers::NONE)
    }

    #[test]
    fn the_selection_stays_with_its_finding() {
        let (mut state, mut report) = (State::default(), service());
        state.update(&report);
        assert_eq!(state.selected(), 0);
        press(&mut state, KeyCode::Down);
        assert_eq!(state.selected(), 1);
        report.findings.swap(1, 4);
        state.update(&report);
        assert_eq!(state.selected(), 4);
        press(&mut state, KeyCode::End);
        assert_eq!(state.selected(), 6);
        press(&mut state, KeyCode::Down);
        assert_eq!(state.selected(), 6);
        // At the top it is the worst one again, whichever that is.
        press(&mut state, KeyCode::Home);
        report.findings.swap(0, 3);
        state.update(&report);
        assert_eq!(state.selected(), 0);
        // A finding that is gone.
        press(&mut state, KeyCode::Down);
        state.update(&healthy());
        assert_eq!(state.selected(), 0);
    }

    #[test]
    fn a_stack_that_is_open_stays_when_another_gets_worse() {
        let (mut state, mut report) = (State::default(), service());
        state.update(&report);
        press(&mut state, KeyCode::Enter);
        assert_eq!(state.page, Page::Stack(0));
        report.findings.swap(0, 3);
        state.update(&report);
        assert_eq!(state.selected(), 3);
        state.lines.set(30);
        state.room.set(10);
        press(&mut state, KeyCode::PageDown);
        assert_eq!(state.page, Page::Stack(10));
        press(&mut state, KeyCode::End);
        assert_eq!(state.page, Page::Stack(20));
        press(&mut state, KeyCode::Esc);
        assert_eq!(state.page, Page::Findings);
        // Without findings there is none to open.
        state.update(&healthy());
        press(&mut state, KeyCode::Enter);
        assert_eq!(state.page, Page::Findings);
    }

    #[test]
    fn keys_that_end_and_keys_that_do_nothing() {
        let mut state = State::default();
        assert_eq!(press(&mut state, KeyCode::Char('q')), Some(Key::End));
        assert_eq!(
            state.key_pressed(KeyCode::Char('c'), KeyModifiers::CONTROL),
            Some(Key::End)
        );
        assert_eq!(press(&mut state, KeyCode::Char('c')), None);
        assert_eq!(
            state.key_pressed(KeyCode::Char('q'), KeyModifiers::CONTROL),
            None
        );
        assert_eq!(press(&mut state, KeyCode::Char('?')), Some(Key::Redraw));
        assert!(state.help);
        assert_eq!(press(&mut state, KeyCode::Esc), Some(Key::Redraw));
        assert!(!state.help);
        for code in [
            KeyCode::Up,
            KeyCode::Down,
            KeyCode::Home,
            KeyCode::End,
            KeyCode::PageUp,
            KeyCode::PageDown,
        ] {
            assert_eq!(press(&mut state, code), Some(Key::Redraw));
            assert_eq!(state.selected(), 0);
        }
    }
}
