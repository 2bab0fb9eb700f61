//! The state that the view shows: the last reading, the changes since the one before, and a little history.

use std::cell::Cell;
use std::cmp::Reverse;
use std::collections::VecDeque;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ratatui::crossterm::event::{KeyCode, KeyModifiers};

use crate::history::{self, Record, Resolution};
use crate::reading::{Process, Reading, TIERS};
use crate::telemetry::{Rates, quantile};

/// How many intervals are remembered: more than a line of a wide terminal shows.
const REMEMBERED: usize = 240;

/// The outcome of one request to the daemon.
pub(super) struct Answer {
    /// The history recorded on the disk, where there is one.
    pub(super) history: Option<history::History>,
    pub(super) result: Result<Reading, String>,
    pub(super) at: Instant,
}

/// Whether there is a daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// It has not been asked yet.
    Waiting,
    /// It answers.
    Live,
    /// It does not, and why.
    Gone(String),
}

/// The page on the screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Page {
    /// The present state of the daemon.
    Now,
    /// Curves over time.
    Curves(Resolution),
}

impl Page {
    fn next(self) -> Page {
        match self {
            Page::Now => Page::Curves(Resolution::Seconds),
            Page::Curves(Resolution::Seconds) => Page::Curves(Resolution::Minutes),
            Page::Curves(Resolution::Minutes) => Page::Now,
        }
    }
}

/// The sort order of processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    Stalled,
    Workers,
    Pid,
    Name,
}

impl Sort {
    pub(super) fn word(self) -> &'static str {
        match self {
            Sort::Stalled => "stalled",
            Sort::Workers => "workers",
            Sort::Pid => "pid",
            Sort::Name => "name",
        }
    }

    fn next(self) -> Sort {
        match self {
            Sort::Stalled => Sort::Workers,
            Sort::Workers => Sort::Pid,
            Sort::Pid => Sort::Name,
            Sort::Name => Sort::Stalled,
        }
    }
}

/// Values of past intervals, the oldest first; `None` where there was none.
pub(super) type History = VecDeque<Option<f64>>;

/// Everything that is shown.
#[derive(Debug)]
pub(super) struct Model {
    /// Where the daemon listens.
    pub(super) socket: String,
    pub(super) interval: Duration,
    pub(super) link: Link,
    /// The reading that is shown; `None` until the first answer.
    pub(super) reading: Option<Reading>,
    pub(super) rates: Rates,
    pub(super) dispatches: History,
    /// In microseconds, by tier.
    pub(super) p99: [History; TIERS.len()],
    /// The history recorded on the disk.
    pub(super) recorded: Option<history::History>,
    /// The records since the start, an interval each.
    pub(super) seen: VecDeque<Record>,
    pub(super) page: Page,
    pub(super) sort: Sort,
    pub(super) paused: bool,
    pub(super) help: bool,
    /// How many processes can be shown at once; the view says so.
    pub(super) room: Cell<usize>,
    /// The wanted number of processes above those that are shown; fewer where there are fewer.
    above: usize,
    /// The reading that the next answer is compared with; goes on while the view is paused.
    last: Option<(Reading, Instant)>,
}

impl Model {
    pub(super) fn new(socket: String, interval: Duration) -> Model {
        Model {
            socket,
            interval,
            link: Link::Waiting,
            reading: None,
            rates: Rates::default(),
            dispatches: History::new(),
            p99: Default::default(),
            recorded: None,
            seen: VecDeque::new(),
            page: Page::Now,
            sort: Sort::Stalled,
            paused: false,
            help: false,
            room: Cell::new(1),
            above: 0,
            last: None,
        }
    }

    pub(super) fn answered(&mut self, answer: Answer) {
        if !self.paused && answer.history.is_some() {
            self.recorded = answer.history;
        }
        let reading = match answer.result {
            Ok(reading) => reading,
            Err(error) => {
                self.link = Link::Gone(error);
                // The next daemon that answers may be another one, and the time without an answer is no interval.
                self.last = None;
                return;
            }
        };
        self.link = Link::Live;
        // There is nothing to compare the first one with: its totals are of unknown age.
        let rates = match &self.last {
            Some((before, since)) => {
                let elapsed = answer.at.saturating_duration_since(*since);
                if !self.paused {
                    let waits = reading.batch_waits_ns;
                    let record = Record::between(before, &reading, elapsed, waits, unix_ms());
                    if self.seen.len() == Resolution::Seconds.slots() as usize {
                        self.seen.pop_front();
                    }
                    self.seen.push_back(record);
                }
                Rates::between(before, &reading, elapsed)
            }
            None => Rates::default(),
        };
        self.last = Some((reading.clone(), answer.at));
        if self.paused {
            return;
        }
        remember(&mut self.dispatches, rates.dispatches());
        for (history, wake) in self.p99.iter_mut().zip(&rates.wake) {
            let p99 = wake.as_ref().and_then(|wake| quantile(wake, 0.99));
            remember(history, p99.map(|p99| p99.us));
        }
        self.reading = Some(reading);
        self.rates = rates;
    }

    /// Whether to go on.
    pub(super) fn key_pressed(&mut self, key: KeyCode, modifiers: KeyModifiers) -> bool {
        match key {
            KeyCode::Char('c') if modifiers.contains(KeyModifiers::CONTROL) => return false,
            KeyCode::Char('q') => return false,
            // Out of the help first.
            KeyCode::Esc if self.help => self.help = false,
            KeyCode::Esc => return false,
            KeyCode::Char('p' | ' ') => self.paused = !self.paused,
            KeyCode::Char('c') => self.page = self.page.next(),
            KeyCode::Char('s') => self.sort = self.sort.next(),
            KeyCode::Up | KeyCode::Char('k') => self.above = self.above().saturating_sub(1),
            KeyCode::Down | KeyCode::Char('j') => self.above = self.above() + 1,
            KeyCode::PageUp => self.above = self.above().saturating_sub(self.room.get()),
            KeyCode::PageDown => self.above = self.above() + self.room.get(),
            KeyCode::Home => self.above = 0,
            KeyCode::End => self.above = usize::MAX,
            KeyCode::Char('?' | 'h') => self.help = !self.help,
            _ => {}
        }
        true
    }

    /// The records that the curves of a resolution are made of, the oldest first. Without a history on the disk they are of
    /// what was seen.
    pub(super) fn records(&self, resolution: Resolution) -> Vec<Record> {
        match &self.recorded {
            Some(history) => history.of(resolution).to_vec(),
            None => self.seen.iter().copied().collect(),
        }
    }

    /// How many processes are above those that are shown: no more than leave the window full.
    pub(super) fn above(&self) -> usize {
        let reading = self.reading.as_ref();
        let count = reading.map_or(0, |reading| reading.connections.len());
        self.above.min(count.saturating_sub(self.room.get()))
    }

    /// The processes in the order in which they are shown.
    pub(super) fn processes(&self) -> Vec<&Process> {
        let connections = self.reading.iter().flat_map(|reading| &reading.connections);
        let mut processes: Vec<_> = connections.collect();
        match self.sort {
            Sort::Stalled => processes
                .sort_by_key(|process| (Reverse((process.stalled, process.workers)), process.pid)),
            Sort::Workers => {
                processes.sort_by_key(|process| (Reverse(process.workers), process.pid));
            }
            Sort::Pid => processes.sort_by_key(|process| process.pid),
            Sort::Name => processes.sort_by_key(|process| (&process.comm, process.pid)),
        }
        processes
    }
}

/// The time on the clock; 0 where it is before 1970.
fn unix_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(since.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

fn remember(history: &mut History, value: Option<f64>) {
    if history.len() == REMEMBERED {
        history.pop_front();
    }
    history.push_back(value);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn model() -> Model {
        Model::new("/run/x".into(), Duration::from_secs(1))
    }

    fn answer(at: Instant, kept: u64) -> Answer {
        Answer {
            history: None,
            result: Ok(Reading::parse(&json!({ "counters": { "kept": kept } }))),
            at,
        }
    }

    #[test]
    fn rates_begin_with_the_second_answer_and_anew_after_a_gap() {
        let (mut model, start) = (model(), Instant::now());
        let second = Duration::from_secs(1);
        assert_eq!(model.link, Link::Waiting);
        model.answered(answer(start, 1000));
        assert_eq!(model.rates.of("kept"), None);
        model.answered(answer(start + 2 * second, 1010));
        assert_eq!(model.rates.of("kept"), Some(5.0));
        model.answered(Answer {
            history: None,
            result: Err("nobody".into()),
            at: start + 3 * second,
        });
        assert_eq!(model.link, Link::Gone("nobody".into()));
        assert!(model.reading.is_some(), "the last one stays in sight");
        model.answered(answer(start + 100 * second, 7));
        assert_eq!(
            (model.link.clone(), model.rates.of("kept")),
            (Link::Live, None)
        );
    }

    #[test]
    fn a_pause_holds_what_is_shown() {
        let (mut model, start) = (model(), Instant::now());
        let second = Duration::from_secs(1);
        model.answered(answer(start, 0));
        assert!(model.key_pressed(KeyCode::Char('p'), KeyModifiers::NONE));
        model.answered(answer(start + second, 100));
        assert_eq!(model.reading.as_ref().unwrap().counter("kept"), Some(0));
        assert!(model.key_pressed(KeyCode::Char('p'), KeyModifiers::NONE));
        model.answered(answer(start + 2 * second, 110));
        assert_eq!(
            model.rates.of("kept"),
            Some(10.0),
            "of the last interval alone"
        );
    }

    #[test]
    fn keys() {
        let mut model = model();
        assert!(model.key_pressed(KeyCode::Char('c'), KeyModifiers::NONE));
        assert!(!model.key_pressed(KeyCode::Char('c'), KeyModifiers::CONTROL));
        assert!(!model.key_pressed(KeyCode::Char('q'), KeyModifiers::NONE));
        assert!(model.key_pressed(KeyCode::Char('?'), KeyModifiers::NONE));
        assert!(model.help);
        assert!(model.key_pressed(KeyCode::Esc, KeyModifiers::NONE));
        assert!(!model.help);
        assert!(!model.key_pressed(KeyCode::Esc, KeyModifiers::NONE));
        for word in ["workers", "pid", "name", "stalled"] {
            assert!(model.key_pressed(KeyCode::Char('s'), KeyModifiers::NONE));
            assert_eq!(model.sort.word(), word);
        }
    }

    #[test]
    fn processes_are_sorted() {
        let mut model = model();
        model.answered(Answer {
            history: None,
            result: Ok(Reading::parse(&json!({ "connections": [
                { "pid": 3, "comm": "b", "workers": 9 },
                { "pid": 2, "comm": "c", "workers": 1, "stalled": 1 },
                { "pid": 1, "comm": "a", "workers": 5, "stalled": 0 },
            ] }))),
            at: Instant::now(),
        });
        for (sort, pids) in [
            (Sort::Stalled, [2, 1, 3]),
            (Sort::Workers, [3, 1, 2]),
            (Sort::Pid, [1, 2, 3]),
            (Sort::Name, [1, 3, 2]),
        ] {
            model.sort = sort;
            let found: Vec<u64> = model
                .processes()
                .iter()
                .map(|process| process.pid)
                .collect();
            assert_eq!(found, pids, "{sort:?}");
        }
    }

    #[test]
    fn one_goes_through_the_processes_and_not_beyond() {
        let mut model = model();
        let of = |count: u64| {
            let connections: Vec<_> = (0..count).map(|pid| json!({ "pid": pid })).collect();
            Answer {
                history: None,
                result: Ok(Reading::parse(&json!({ "connections": connections }))),
                at: Instant::now(),
            }
        };
        assert_eq!(model.above(), 0);
        model.answered(of(25));
        model.room.set(10);
        for (key, above) in [
            (KeyCode::Up, 0),
            (KeyCode::Down, 1),
            (KeyCode::Char('j'), 2),
            (KeyCode::Char('k'), 1),
            (KeyCode::PageDown, 11),
            (KeyCode::PageDown, 15),
            (KeyCode::Down, 15),
            (KeyCode::Up, 14),
            (KeyCode::PageUp, 4),
            (KeyCode::PageUp, 0),
            (KeyCode::End, 15),
            (KeyCode::Up, 14),
            (KeyCode::Home, 0),
            (KeyCode::End, 15),
        ] {
            assert!(model.key_pressed(key, KeyModifiers::NONE));
            assert_eq!(model.above(), above, "{key:?}");
        }
        // Most of them end, and the window grows.
        model.answered(of(12));
        assert_eq!(model.above(), 2);
        model.room.set(100);
        assert_eq!(model.above(), 0);
    }

    #[test]
    fn history_has_an_end() {
        let (mut model, start) = (model(), Instant::now());
        for index in 0..REMEMBERED as u32 + 50 {
            model.answered(answer(start + index * Duration::from_secs(1), 0));
        }
        assert_eq!(model.dispatches.len(), REMEMBERED);
    }
}
