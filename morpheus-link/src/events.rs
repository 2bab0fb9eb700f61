//! The controller's end of a daemon's link: reads the events, and follows the workers that sleep in a poll.
//!
//! A worker that just went to sleep is left alone for `SETTLE_NS`: most such sleeps are a contended lock
//! and over by then. A sleep that lasts longer is *settled*.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;

use morpheus_common::abi;
use morpheus_common::slot::SlotFlag;
use morpheus_system::clock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::ring::Ring;
use crate::state::{Handed, State};
use crate::table::{Lease, Table};

/// A sleep of this length is settled.
const SETTLE_NS: u64 = 50_000;
/// A daemon without a heartbeat for this time is lost. It has ten a second.
const SILENT_NS: u64 = 1_000_000_000;
/// Events that are read at once, so that a flood does not keep the controller from its other work.
const EVENTS_AT_ONCE: usize = 4096;

/// A worker that the kernel side saw go to sleep.
#[derive(Clone, Copy, Debug)]
struct Sleeping {
    slot_index: usize,
    /// The watched poll, or an even number.
    poll_seq: u64,
    park_seq: u64,
    since_ns: u64,
    settled: bool,
}

/// Predicts whether a sleep will settle: a counter of two bits, as branch predictors have, so that one exception does
/// not change the prediction.
#[derive(Debug)]
struct Habit(u8);

impl Default for Habit {
    fn default() -> Habit {
        Habit(2)
    }
}

impl Habit {
    fn was_long(&mut self) {
        self.0 = (self.0 + 1).min(3);
    }

    fn was_short(&mut self) {
        self.0 = self.0.saturating_sub(1);
    }

    fn is_long(&self) -> bool {
        self.0 >= 2
    }
}

/// A watched poll that the kernel side found over its budget.
#[derive(Clone, Copy, Debug)]
pub struct OverBudget {
    /// The slot of its thread.
    pub slot_index: usize,
    /// Its number there.
    pub poll_seq: u64,
    /// When it was found, in nanoseconds of `CLOCK_MONOTONIC`.
    pub at_ns: u64,
    /// The CPU time that it had used, in nanoseconds.
    pub used_ns: u64,
}

/// The events of the kernel side since the last call.
#[derive(Debug, Default)]
pub struct Events {
    /// Polls to be taken over before the next sample.
    pub over_budget: Vec<OverBudget>,
    /// The sleep of a worker has just settled.
    pub settled: bool,
    /// The time from each stall to now, in nanoseconds.
    pub ages_ns: Vec<u64>,
    /// Threads that the kernel side demoted.
    pub demoted: usize,
    /// Threads that the kernel side throttled.
    pub throttled: usize,
}

impl Events {
    /// Whether none needs an answer before the next sample.
    #[must_use]
    pub fn are_answered(&self) -> bool {
        self.over_budget.is_empty() && !self.settled
    }
}

/// The controller's end of a daemon's link.
#[derive(Debug)]
pub struct KernelEvents {
    ring: Ring,
    lease: Lease,
    sleeping: Vec<Sleeping>,
    habit: Habit,
    joined_ns: u64,
}

impl KernelEvents {
    /// Takes the controller's end.
    #[must_use]
    pub fn new(handed: Handed) -> KernelEvents {
        KernelEvents {
            ring: handed.ring,
            lease: handed.lease,
            sleeping: Vec::new(),
            habit: Habit::default(),
            joined_ns: handed.joined_ns,
        }
    }

    /// Waits for an event, up to `at_most_ns`.
    pub fn wait(&self, at_most_ns: u64) {
        wait(&mut [pollable(self.ring.fd())], Some(at_most_ns));
    }

    /// Waits for an event, or for a thread that wakes the controller.
    pub fn sleep(&self, link: &State) {
        let Some(bell) = link.controller_bell.get() else {
            return self.wait(SILENT_NS);
        };
        let bell = bell.as_fd();
        wait(&mut [pollable(self.ring.fd()), pollable(bell)], None);
        let mut count = [0; 8];
        let _ = rustix::io::read(bell, &mut count);
    }

    /// Whether the daemon has a recent heartbeat, which is one word of memory. The joiner notices a daemon that ends.
    #[must_use]
    pub fn is_alive(&self, slots: &Table, now_ns: u64) -> bool {
        let said_ns = slots.heartbeat_ns(self.lease);
        now_ns.saturating_sub(said_ns.max(self.joined_ns)) < SILENT_NS
    }

    /// Reads the events that have come.
    pub fn read(&mut self, link: &State, slots: &Table, now_ns: u64) -> Events {
        let mut events = Events::default();
        for _ in 0..EVENTS_AT_ONCE {
            let Some(event) = self.ring.take() else {
                break;
            };
            // Relaxed: a statistic.
            link.events.fetch_add(1, Ordering::Relaxed);
            self.take(event, slots, now_ns, &mut events);
        }
        self.settle(slots, now_ns, &mut events);
        events
    }

    fn take(
        &mut self,
        event: abi::morpheus_event,
        slots: &Table,
        now_ns: u64,
        events: &mut Events,
    ) {
        let slot_index = event.slot as usize;
        if slot_index >= slots.in_use() {
            return;
        }
        let age_ns = now_ns.saturating_sub(event.at_ns);
        match event.kind {
            abi::MORPHEUS_EVENT_BLOCKED => {
                events.ages_ns.push(age_ns);
                self.sleeping
                    .retain(|sleeping| sleeping.slot_index != slot_index);
                let slot = slots.runtime(slot_index);
                self.sleeping.push(Sleeping {
                    slot_index,
                    poll_seq: event.poll_seq,
                    // Relaxed: compared with itself, later.
                    park_seq: slot.park_seq.load(Ordering::Relaxed),
                    since_ns: event.at_ns.min(now_ns),
                    settled: false,
                });
            }
            abi::MORPHEUS_EVENT_WOKEN => {
                let habit = &mut self.habit;
                self.sleeping.retain(|sleeping| {
                    let stays = sleeping.slot_index != slot_index;
                    if !stays && !sleeping.settled {
                        habit.was_short();
                    }
                    stays
                });
            }
            abi::MORPHEUS_EVENT_BUDGET => {
                events.ages_ns.push(age_ns);
                events.over_budget.push(OverBudget {
                    slot_index,
                    poll_seq: event.poll_seq,
                    at_ns: event.at_ns.min(now_ns),
                    used_ns: event.detail,
                });
            }
            abi::MORPHEUS_EVENT_DEMOTED => {
                events.demoted += 1;
            }
            abi::MORPHEUS_EVENT_THROTTLED => {
                events.throttled += 1;
            }
            // An event of a later version.
            _ => {}
        }
    }

    /// Forgets sleepers that have woken, and settles those that have slept for `SETTLE_NS`.
    fn settle(&mut self, slots: &Table, now_ns: u64, events: &mut Events) {
        let habit = &mut self.habit;
        self.sleeping.retain_mut(|sleeping| {
            let slot = slots.runtime(sleeping.slot_index);
            let watched = sleeping.poll_seq % 2 == 1;
            let poll_seq = slot.observe_poll();
            // Relaxed: a worker that parked or unparked since has woken; seen late, it is forgotten at the next call.
            let moved = slot.park_seq.load(Ordering::Relaxed) != sleeping.park_seq
                || watched && poll_seq != sleeping.poll_seq
                || !watched && poll_seq % 2 == 1
                || slot.tid.load(Ordering::Relaxed) == 0;
            if moved || slot.has_flag(SlotFlag::Held) {
                if !sleeping.settled {
                    habit.was_short();
                }
                return false;
            }
            if !sleeping.settled && now_ns.saturating_sub(sleeping.since_ns) >= SETTLE_NS {
                sleeping.settled = true;
                habit.was_long();
                // No work waits behind a handoff poll.
                events.settled |= !slot.has_flag(SlotFlag::Handoff);
            }
            true
        });
    }

    /// The time at which the next sleep settles, in nanoseconds.
    #[must_use]
    pub fn due_ns(&self) -> Option<u64> {
        self.sleeping
            .iter()
            .filter(|sleeping| !sleeping.settled)
            .map(|sleeping| sleeping.since_ns + SETTLE_NS)
            .min()
    }

    /// Whether the controller stays on its CPU for the rest of `SETTLE_NS` rather than sleep: the last sleeps settled, so
    /// this one probably will. A program whose sleeps are short, as those of contended locks, does not keep it running.
    #[must_use]
    pub fn is_worth_staying(&self) -> bool {
        self.habit.is_long()
    }

    /// The number of settled sleepers: those in watched polls, and those in other polls whose slot `counts`.
    pub fn settled(&self, slots: &Table, counts: impl Fn(usize) -> bool) -> (usize, usize) {
        let (mut watched, mut unwatched) = (0, 0);
        for sleeping in self.sleeping.iter().filter(|sleeping| sleeping.settled) {
            let slot = slots.runtime(sleeping.slot_index);
            if slot.has_flag(SlotFlag::Handoff) {
                continue;
            }
            if sleeping.poll_seq % 2 == 1 {
                watched += 1;
            } else if counts(sleeping.slot_index) {
                unwatched += 1;
            }
        }
        (watched, unwatched)
    }
}

fn pollable(fd: BorrowedFd<'_>) -> PollFd<'_> {
    PollFd::from_borrowed_fd(fd, PollFlags::IN)
}

fn wait(fds: &mut [PollFd<'_>], at_most_ns: Option<u64>) {
    let timeout = at_most_ns.map(|ns| Timespec {
        tv_sec: (ns / clock::SECOND_NS) as i64,
        tv_nsec: (ns % clock::SECOND_NS) as _,
    });
    // Interrupted or refused: the caller reads the ring anyway, and waits again.
    let _ = poll(fds, timeout.as_ref());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_exception_does_not_change_the_prediction_two_do() {
        let mut habit = Habit::default();
        assert!(habit.is_long());
        for _ in 0..5 {
            habit.was_long();
        }
        habit.was_short();
        assert!(habit.is_long());
        habit.was_short();
        assert!(!habit.is_long());
        for _ in 0..5 {
            habit.was_short();
        }
        habit.was_long();
        assert!(!habit.is_long());
        habit.was_long();
        assert!(habit.is_long());
    }
}
