//! Decides from looks at a worker how long its polls are, and when a stack is due.
//!
//! The rules are those of the BPF programs, of what is seen now and then in place of each switch. A poll is long if it was seen for that
//! long. It has begun before it was seen first, and it has ended after it was seen last: its length is told to the middle between the
//! looks there, so that it is right to a period, and right on average.

use crate::source::{Progress, Sleep};

/// How far a poll's ends may be from where it was seen: looks that were held up tell nothing.
const MOST_EDGE_NS: u64 = 2_000_000;
/// A stack is copied again after this time, and then after longer ones.
const AGAIN_NS: u64 = 10_000_000;

/// The number that a worker gives its polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tick {
    /// Its place is not known, or could not be read.
    Unknown,
    /// The worker's core is with the executor's own code, or with another thread.
    NoCore,
    /// This one.
    Is(u32),
    /// The core is with another thread, and Morpheus has this number for the poll.
    HandedOver(u32),
}

/// The state of the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// It runs, or is ready to.
    Runs,
    /// It is in a sleep of the executor's own.
    Rests(Sleep),
    /// It is in another sleep.
    Sleeps,
}

/// One look at a worker.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// When.
    pub now_ns: u64,
    /// Its state.
    pub state: State,
    /// The number of its poll.
    pub tick: Tick,
    /// How frequently it was given a CPU.
    pub runs: Option<u64>,
    /// How frequently it has slept, where that was asked for ([`Worker::asks_sleeps`]).
    pub sleeps: Option<u64>,
    /// How long it was ready and had no CPU, ever.
    pub delay_ns: u64,
    /// How long its runtime was not served, ever.
    pub unserved_ns: u64,
}

/// The role of the worker in its runtime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// It parks, or is not in its loop.
    #[default]
    None,
    /// It waits in the driver.
    Drives,
    /// It runs, and its poll is short as yet.
    Serves,
    /// Its poll is long, or sleeps.
    Stalled,
}

/// The actions due after a look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// A poll that is over.
    pub ended: Option<Ended>,
    /// The stack of the sleeping thread is due.
    pub copy_sleeper: bool,
    /// A stack of the running thread is wanted: one that is taken from now on, if the poll goes on.
    pub want_sample: bool,
    /// A stack of the running thread is due, if one was taken since [`Worker::since_ns`].
    pub take_sample: bool,
}

/// A poll that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// How it was at the end.
    pub progress: Progress,
    /// A stack of it was copied.
    pub has_stack: bool,
    /// When it was seen first,
    pub first_ns: u64,
    /// and last.
    pub seen_ns: u64,
    /// Its last long sleep: from when to when it was seen.
    pub slept: Option<(u64, u64)>,
}

#[derive(Clone, Copy, Debug)]
struct Poll {
    began_ns: u64,
    first_ns: u64,
    seen_ns: u64,
    ended_ns: u64,
    blocked_ns: u64,
    delay_ns: u64,
    delay_base_ns: u64,
    unserved_ns: u64,
    unserved_base_ns: u64,
    copied_ns: Option<u64>,
    slept: Option<(u64, u64)>,
    is_exact: bool,
}

/// A worker, as the looks have shown it.
#[derive(Clone, Debug)]
pub struct Worker {
    tid: u32,
    threshold_ns: u64,
    period_ns: u64,
    poll: Option<Poll>,
    tick: Option<Tick>,
    last: Option<Look>,
    sleep_since_ns: Option<u64>,
    sleep_is_copied: bool,
    /// Its runtime, counted from 0.
    pub runtime: Option<usize>,
    /// Its role in the runtime.
    pub role: Role,
}

impl Worker {
    /// That has not been looked at.
    #[must_use]
    pub fn new(tid: u32, threshold_ns: u64, period_ns: u64) -> Worker {
        Worker {
            tid,
            threshold_ns,
            period_ns,
            poll: None,
            tick: None,
            last: None,
            sleep_since_ns: None,
            sleep_is_copied: false,
            runtime: None,
            role: Role::None,
        }
    }

    /// The last look.
    #[must_use]
    pub fn last(&self) -> Option<&Look> {
        self.last.as_ref()
    }

    /// Whether a thread with this count of runs has been in the same sleep since the last look.
    #[must_use]
    pub fn sleeps_on(&self, runs: Option<u64>) -> bool {
        self.last
            .is_some_and(|last| last.state != State::Runs && runs.is_some() && last.runs == runs)
    }

    /// Whether the number of its sleeps decides if this look is at the same poll as the last.
    #[must_use]
    pub fn asks_sleeps(&self, runs: Option<u64>, tick: Tick) -> bool {
        tick == Tick::Unknown
            && self
                .last
                .is_none_or(|last| last.runs != runs || runs.is_none())
    }

    /// Since when the poll is certain to be the same as it is now: of stacks that were taken then.
    #[must_use]
    pub fn since_ns(&self) -> u64 {
        self.poll.map_or(u64::MAX, |poll| poll.first_ns)
    }

    /// For how long it has been seen in the poll that it is in.
    #[must_use]
    pub fn age_ns(&self) -> Option<u64> {
        self.poll.map(|poll| poll.seen_ns - poll.first_ns)
    }

    /// How long it has slept, in the sleep that it is in.
    #[must_use]
    pub fn slept_ns(&self) -> u64 {
        match (self.sleep_since_ns, self.last) {
            (Some(since), Some(last)) => last.now_ns.saturating_sub(since),
            _ => 0,
        }
    }

    /// How long it has been in one sleep of the executor's own.
    #[must_use]
    pub fn rested_ns(&self) -> u64 {
        match self.last {
            Some(last) if matches!(last.state, State::Rests(_)) => self.slept_ns(),
            _ => 0,
        }
    }

    /// The poll that it is in.
    #[must_use]
    pub fn progress(&self) -> Option<Progress> {
        self.poll.map(|poll| self.progress_of(&poll))
    }

    /// A stack of the poll was copied.
    pub fn was_copied(&mut self, now_ns: u64) {
        if let Some(poll) = &mut self.poll {
            poll.copied_ns = Some(now_ns);
        }
        self.sleep_is_copied = self.sleep_since_ns.is_some();
    }

    /// The thread is gone, or is no worker any more.
    pub fn leaves(&mut self) -> Option<Ended> {
        self.role = Role::None;
        self.tick = None;
        let seen_ns = self.last.map_or(0, |last| last.now_ns);
        self.end(seen_ns, None)
    }

    /// Takes a look.
    pub fn look(&mut self, look: Look) -> Verdict {
        let before = self.last.replace(look);
        let is_same_sleep = before.is_some_and(|before| {
            before.state == look.state
                && look.state != State::Runs
                && look.runs.is_some()
                && before.runs == look.runs
        });
        if !is_same_sleep {
            self.sleep_since_ns = (look.state != State::Runs).then_some(look.now_ns);
            self.sleep_is_copied = false;
        }
        match look.state {
            State::Rests(sleep) => self.rests(look, before, sleep, is_same_sleep),
            State::Runs | State::Sleeps => self.polls(look, before),
        }
    }

    fn rests(
        &mut self,
        look: Look,
        before: Option<Look>,
        sleep: Sleep,
        is_same_sleep: bool,
    ) -> Verdict {
        self.role = match sleep {
            Sleep::Driver => Role::Drives,
            Sleep::Park | Sleep::Held => Role::None,
        };
        if !is_same_sleep && let Tick::Is(_) = look.tick {
            self.tick = Some(look.tick);
        }
        Verdict {
            ended: self.end(look.now_ns, before),
            ..Verdict::default()
        }
    }

    fn polls(&mut self, look: Look, before: Option<Look>) -> Verdict {
        let mut verdict = Verdict::default();
        let is_same = match look.tick {
            Tick::NoCore => {
                // tokio has moved its core to another thread, which may block; or it is between two polls.
                self.tick = None;
                self.role = Role::None;
                verdict.ended = self.end(look.now_ns, before);
                return verdict;
            }
            Tick::Is(_) | Tick::HandedOver(_) => self.tick.replace(look.tick) == Some(look.tick),
            Tick::Unknown => {
                self.tick = None;
                before.is_some_and(|before| !may_have_parked(&before, &look))
            }
        };
        let is_exact = self.tick.is_some();
        let was_polling = before.is_some_and(|before| !matches!(before.state, State::Rests(_)));
        match (&mut self.poll, before) {
            (Some(poll), Some(before)) if is_same && was_polling => {
                let elapsed_ns = look.now_ns.saturating_sub(before.now_ns);
                poll.blocked_ns += match (before.state, look.state) {
                    (State::Runs, State::Runs) => 0,
                    (State::Sleeps, State::Sleeps) => elapsed_ns,
                    // It fell asleep, or woke, somewhere between.
                    _ => elapsed_ns / 2,
                };
                poll.seen_ns = look.now_ns;
                poll.ended_ns = look.now_ns;
                poll.delay_ns = look.delay_ns;
                poll.unserved_ns = look.unserved_ns;
                // The number was found meanwhile; it says nothing of what was before.
                poll.is_exact &= is_exact;
            }
            _ => {
                verdict.ended = self.end(look.now_ns, before);
                let edge_ns = before.map_or(0, |before| edge(before.now_ns, look.now_ns));
                self.poll = Some(Poll {
                    began_ns: look.now_ns - edge_ns,
                    first_ns: look.now_ns,
                    seen_ns: look.now_ns,
                    ended_ns: look.now_ns,
                    blocked_ns: match look.state {
                        State::Sleeps => edge_ns,
                        _ => 0,
                    },
                    delay_ns: look.delay_ns,
                    delay_base_ns: look.delay_ns,
                    unserved_ns: look.unserved_ns,
                    unserved_base_ns: look.unserved_ns,
                    copied_ns: None,
                    slept: None,
                    is_exact,
                });
            }
        }
        let Some(poll) = self.poll else {
            return verdict;
        };
        let age_ns = look.now_ns - poll.first_ns;
        let is_long = age_ns >= self.threshold_ns;
        let is_due = poll.copied_ns.is_none_or(|copied_ns| {
            let again_ns = AGAIN_NS + (copied_ns - poll.first_ns) / 4;
            look.now_ns - copied_ns >= again_ns
        });
        match look.state {
            State::Sleeps => {
                self.role = Role::Stalled;
                let slept_ns = self.slept_ns();
                if slept_ns >= self.threshold_ns
                    && let Some(poll) = &mut self.poll
                {
                    poll.slept = Some((look.now_ns - slept_ns, look.now_ns));
                }
                // A long sleep is what its poll waits for. Many short ones are copied now and then.
                let is_wanted = slept_ns >= self.threshold_ns || is_due;
                verdict.copy_sleeper = is_long && is_wanted && !self.sleep_is_copied;
            }
            _ => {
                self.role = match is_long {
                    true => Role::Stalled,
                    false => Role::Serves,
                };
                // Early, so that it is there when the poll is long: at once, where it is by the next look.
                let are_far_apart = before.is_some_and(|before| {
                    look.now_ns.saturating_sub(before.now_ns) >= self.threshold_ns
                });
                verdict.want_sample = is_due && (age_ns >= self.period_ns / 2 || are_far_apart);
                verdict.take_sample = is_due && is_long;
            }
        }
        if matches!(look.tick, Tick::HandedOver(_)) {
            self.role = Role::None;
        }
        verdict
    }

    /// The poll is over: it was not there any more at this time.
    fn end(&mut self, now_ns: u64, before: Option<Look>) -> Option<Ended> {
        let mut poll = self.poll.take()?;
        let edge_ns = edge(poll.seen_ns, now_ns);
        poll.ended_ns = poll.seen_ns + edge_ns;
        if before.is_some_and(|before| before.state == State::Sleeps) {
            poll.blocked_ns += edge_ns;
        }
        Some(Ended {
            progress: self.progress_of(&poll),
            has_stack: poll.copied_ns.is_some(),
            first_ns: poll.first_ns,
            seen_ns: poll.seen_ns,
            slept: poll.slept,
        })
    }

    fn progress_of(&self, poll: &Poll) -> Progress {
        let length_ns = poll.ended_ns - poll.began_ns;
        let delay_ns = poll.delay_ns.saturating_sub(poll.delay_base_ns);
        Progress {
            tid: self.tid,
            now_ns: poll.ended_ns,
            began_ns: poll.began_ns,
            cpu_ns: length_ns
                .saturating_sub(poll.blocked_ns)
                .saturating_sub(delay_ns),
            blocked_ns: poll.blocked_ns,
            unserved_ns: poll.unserved_ns.saturating_sub(poll.unserved_base_ns),
            runtime: self.runtime,
            is_exact: poll.is_exact,
            waker: None,
            woken_ns: 0,
            label: None,
        }
    }
}

/// The poll's part of the time between a look that has seen it and one that has not.
fn edge(from_ns: u64, to_ns: u64) -> u64 {
    (to_ns.saturating_sub(from_ns) / 2).min(MOST_EDGE_NS)
}

/// Whether the thread may have slept between two looks otherwise than the looks have shown.
fn may_have_parked(before: &Look, now: &Look) -> bool {
    if now.runs.is_some() && now.runs == before.runs {
        return false;
    }
    match (before.sleeps, now.sleeps) {
        (Some(before), Some(sleeps)) => {
            // The sleep that it is in is counted.
            let seen = u64::from(now.state != State::Runs);
            sleeps.saturating_sub(before) > seen
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests;
