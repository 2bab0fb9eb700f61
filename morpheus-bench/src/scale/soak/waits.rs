//! How long tasks are runnable and do not run, from the kernel's events `sched_wakeup`, `sched_wakeup_new` and `sched_switch`.

use std::collections::HashMap;

use morpheus_harness::histogram::Latencies;

use super::Waited;

/// A task: its number, and what the kernel keeps of its name, as they lie in an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// Number 0 is a CPU's idling.
    pub pid: u32,
    /// Zeros at the end are no part of it.
    pub name: [u8; 16],
}

/// Something that happened to tasks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// One was made runnable.
    Woken(Task),
    /// A CPU went over from one to another.
    Switched {
        /// Which ran until then.
        from: Task,
        /// Whether that one is runnable still.
        preempted: bool,
        /// Which runs now.
        to: Task,
    },
    /// Events are missing before this: what tasks do is not known any more.
    Lost,
}

/// All tasks of the machine, as far as anything has happened to them.
#[derive(Debug, Default)]
pub struct Waits {
    /// Of each task that is runnable since when it waits, and which it is; `None` while it runs. Of others nothing is kept.
    tasks: HashMap<u32, Option<(u64, Task)>>,
    /// With the name and the number of the task.
    longest: (u64, String),
    ended: Latencies,
}

impl Waits {
    /// Takes in what happened. Events are to come in the order of their times.
    pub fn add(&mut self, now_ns: u64, event: Event) {
        let waiting = |task| Some((now_ns, task));
        match event {
            // A task that runs or waits already is woken for nothing: it was about to sleep and has not.
            Event::Woken(task) => {
                self.tasks.entry(task.pid).or_insert(waiting(task));
            }
            Event::Switched {
                from,
                preempted,
                to,
            } => {
                if preempted && from.pid != 0 {
                    self.tasks.insert(from.pid, waiting(from));
                } else {
                    self.tasks.remove(&from.pid);
                }
                if to.pid == 0 {
                    return;
                }
                let before = self.tasks.insert(to.pid, None).flatten();
                if let Some((since_ns, _)) = before {
                    let wait_ns = now_ns.saturating_sub(since_ns);
                    self.ended.record_ns(wait_ns);
                    self.note(wait_ns, to);
                }
            }
            Event::Lost => self.tasks.clear(),
        }
    }

    /// The longest wait since the last call, of those that go on as well, and all that have ended. A wait that goes on
    /// counts again when it ends.
    pub fn take(&mut self, now_ns: u64) -> Waited {
        for (since_ns, task) in self.tasks.clone().into_values().flatten() {
            self.note(now_ns.saturating_sub(since_ns), task);
        }
        let (longest_ns, task) = std::mem::take(&mut self.longest);
        let ended = std::mem::take(&mut self.ended).summary();
        Waited {
            longest_ns,
            task,
            count: ended.n,
            p99_ns: ended.p99,
        }
    }

    fn note(&mut self, wait_ns: u64, task: Task) {
        if wait_ns > self.longest.0 {
            let name = String::from_utf8_lossy(&task.name);
            let name = name.split('\0').next().unwrap_or_default();
            self.longest = (wait_ns, format!("{name} ({})", task.pid));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(pid: u32, text: &str) -> Task {
        let mut name = [0; 16];
        name[..text.len()].copy_from_slice(text.as_bytes());
        Task { pid, name }
    }

    fn woken(pid: u32) -> Event {
        Event::Woken(task(pid, "one"))
    }

    fn switched(from: u32, preempted: bool, to: u32) -> Event {
        Event::Switched {
            from: task(from, "one"),
            preempted,
            to: task(to, "two"),
        }
    }

    fn after(events: &[(u64, Event)], now_ns: u64) -> ((u64, String), u64) {
        let mut waits = Waits::default();
        events
            .iter()
            .for_each(|(at_ns, event)| waits.add(*at_ns, *event));
        let waited = waits.take(now_ns);
        ((waited.longest_ns, waited.task), waited.count)
    }

    fn longest(wait_ns: u64, task: &str) -> (u64, String) {
        (wait_ns, task.into())
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
        assert_eq!(waits.take(300).longest_ns, 200);
        waits.add(300, Event::Lost);
        waits.add(900, switched(0, true, 7));
        assert_eq!(waits.take(1_000), Waited::default());
    }
}
