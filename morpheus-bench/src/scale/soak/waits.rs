//! How long tasks are runnable and do not run, from the kernel's events `sched_wakeup`, `sched_wakeup_new` and `sched_switch`.

use std::collections::HashMap;

use crate::histogram::Latencies;

/// What the kernel keeps of a task's name, as it lies in an event.
pub type Name = [u8; 16];

/// Something that happened to tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// One was made runnable.
    Woken {
        /// Which.
        task: u32,
        /// Its name.
        name: Name,
    },
    /// A CPU went over from one to another. Number 0 is the CPU's idling.
    Switched {
        /// Which ran until then.
        from: u32,
        /// Its name.
        from_name: Name,
        /// Whether that one is runnable still.
        preempted: bool,
        /// Which runs now.
        to: u32,
        /// Its name.
        to_name: Name,
    },
    /// Events are missing before this: what tasks do is not known any more.
    Lost,
}

/// What is known of a task that is runnable; of others nothing is kept.
#[derive(Clone, Copy, Debug)]
enum State {
    Running,
    Waiting { since_ns: u64, name: Name },
}

/// A wait, and whose it was.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Longest {
    /// How long.
    pub wait_ns: u64,
    /// The task's name and number.
    pub task: String,
}

/// All tasks of the machine, as far as anything has happened to them.
#[derive(Debug, Default)]
pub struct Waits {
    tasks: HashMap<u32, State>,
    longest: Longest,
    ended: Latencies,
}

impl Waits {
    /// Takes in what happened. Events are to come in the order of their times.
    pub fn add(&mut self, now_ns: u64, event: Event) {
        match event {
            // A task that runs or waits already is woken for nothing: it was about to sleep and has not.
            Event::Woken { task, name } => {
                self.tasks.entry(task).or_insert(State::Waiting {
                    since_ns: now_ns,
                    name,
                });
            }
            Event::Switched {
                from,
                from_name,
                preempted,
                to,
                to_name,
            } => {
                if preempted && from != 0 {
                    let waits = State::Waiting {
                        since_ns: now_ns,
                        name: from_name,
                    };
                    self.tasks.insert(from, waits);
                } else {
                    self.tasks.remove(&from);
                }
                if to == 0 {
                    return;
                }
                let before = self.tasks.insert(to, State::Running);
                if let Some(State::Waiting { since_ns, .. }) = before {
                    let wait_ns = now_ns.saturating_sub(since_ns);
                    self.ended.record_ns(wait_ns);
                    self.note(wait_ns, to, to_name);
                }
            }
            Event::Lost => self.tasks.clear(),
        }
    }

    /// The longest wait since the last call, of those that go on as well, and all that have ended. What goes on counts again
    /// when it ends.
    pub fn take(&mut self, now_ns: u64) -> (Longest, Latencies) {
        let waiting: Vec<(u32, u64, Name)> = self
            .tasks
            .iter()
            .filter_map(|(task, state)| match state {
                State::Waiting { since_ns, name } => Some((*task, *since_ns, *name)),
                State::Running => None,
            })
            .collect();
        for (task, since_ns, name) in waiting {
            self.note(now_ns.saturating_sub(since_ns), task, name);
        }
        (
            std::mem::take(&mut self.longest),
            std::mem::take(&mut self.ended),
        )
    }

    fn note(&mut self, wait_ns: u64, task: u32, name: Name) {
        if wait_ns > self.longest.wait_ns {
            let length = name.iter().position(|byte| *byte == 0);
            let name = String::from_utf8_lossy(&name[..length.unwrap_or(name.len())]);
            self.longest = Longest {
                wait_ns,
                task: format!("{name} ({task})"),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        let mut name = [0; 16];
        name[..text.len()].copy_from_slice(text.as_bytes());
        name
    }

    fn woken(task: u32) -> Event {
        Event::Woken {
            task,
            name: name("one"),
        }
    }

    fn switched(from: u32, preempted: bool, to: u32) -> Event {
        Event::Switched {
            from,
            from_name: name("one"),
            preempted,
            to,
            to_name: name("two"),
        }
    }

    fn after(events: &[(u64, Event)], now_ns: u64) -> (Longest, u64) {
        let mut waits = Waits::default();
        events
            .iter()
            .for_each(|(at_ns, event)| waits.add(*at_ns, *event));
        let (longest, ended) = waits.take(now_ns);
        (longest, ended.len())
    }

    fn longest(wait_ns: u64, task: &str) -> Longest {
        Longest {
            wait_ns,
            task: task.into(),
        }
    }

    #[test]
    fn from_the_wake_until_it_runs() {
        let events = [
            (100, woken(7)),
            (130, switched(0, true, 7)),
            (900, switched(7, false, 0)),
        ];
        assert_eq!(after(&events, 5_000), (longest(30, "two (7)"), 1));
    }

    #[test]
    fn who_is_preempted_waits_and_who_sleeps_does_not() {
        let events = [
            (100, switched(7, true, 8)),
            (140, switched(8, false, 7)),
            (150, switched(7, false, 0)),
        ];
        assert_eq!(after(&events, 9_000), (longest(40, "two (7)"), 1));
    }

    #[test]
    fn who_never_gets_to_run_waits_as_long_as_anybody_looks() {
        let events = [(100, woken(7)), (200, switched(9, true, 8))];
        assert_eq!(after(&events, 5_100), (longest(5_000, "one (7)"), 0));
    }

    #[test]
    fn a_wake_of_one_that_runs_or_waits_begins_no_wait() {
        let events = [
            (10, switched(0, true, 7)),
            (100, woken(7)),
            (900, switched(7, true, 8)),
            (950, woken(7)),
            (1_000, switched(8, true, 7)),
        ];
        assert_eq!(after(&events, 1_000).0, longest(100, "two (7)"));
    }

    #[test]
    fn what_was_taken_counts_no_more_and_missing_events_end_all_waits() {
        let mut waits = Waits::default();
        waits.add(100, woken(7));
        assert_eq!(waits.take(300).0.wait_ns, 200);
        waits.add(300, Event::Lost);
        waits.add(900, switched(0, true, 7));
        assert_eq!(waits.take(1_000).0, Longest::default());
    }
}
