//! Events from the kernel: reads the ring of a daemon's link, and follows the workers that sleep in a poll.
//!
//! A worker that just went to sleep is left alone for [`SETTLE_NS`]: most such sleeps are a contended lock
//! and over by then. A sleep that lasts longer is *settled*.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use morpheus_common::abi;
use morpheus_common::slot::SlotFlag;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::domain::Domain;
use morpheus_link::ring::Ring;
use morpheus_link::state::Handed;
use morpheus_link::table::Lease;
use morpheus_system::clock;

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
pub(crate) struct OverBudget {
    pub(crate) slot_index: usize,
    pub(crate) poll_seq: u64,
    pub(crate) at_ns: u64,
    pub(crate) used_ns: u64,
}

/// The events that need an answer before the next sample.
#[derive(Debug, Default)]
pub(crate) struct Events {
    pub(crate) over_budget: Vec<OverBudget>,
    /// The sleep of a worker has just settled.
    pub(crate) settled: bool,
}

impl Events {
    pub(crate) fn is_empty(&self) -> bool {
        self.over_budget.is_empty() && !self.settled
    }
}

/// The controller's end of a daemon's link.
#[derive(Debug)]
pub(crate) struct KernelEvents {
    domain: Arc<Domain>,
    ring: Ring,
    lease: Lease,
    sleeping: Vec<Sleeping>,
    habit: Habit,
    joined_ns: u64,
}

impl KernelEvents {
    pub(crate) fn new(domain: Arc<Domain>, handed: Handed) -> KernelEvents {
        KernelEvents {
            domain,
            ring: handed.ring,
            lease: handed.lease,
            sleeping: Vec::new(),
            habit: Habit::default(),
            joined_ns: handed.joined_ns,
        }
    }

    /// Waits for an event, up to `at_most_ns`.
    pub(crate) fn wait(&self, at_most_ns: u64) {
        wait(&mut [pollable(self.ring.fd())], Some(at_most_ns));
    }

    /// Waits for an event, or for a thread that wakes the controller.
    pub(crate) fn sleep(&self) {
        let Some(bell) = self.domain.link.controller_bell.get() else {
            return self.wait(SILENT_NS);
        };
        let bell = std::os::fd::AsFd::as_fd(bell);
        wait(&mut [pollable(self.ring.fd()), pollable(bell)], None);
        let mut count = [0; 8];
        let _ = rustix::io::read(bell, &mut count);
    }

    /// Whether the daemon has a recent heartbeat, which is one word of memory. The joiner notices a daemon that ends.
    pub(crate) fn is_alive(&self, now_ns: u64) -> bool {
        let said_ns = self.domain.slots.heartbeat_ns(self.lease);
        now_ns.saturating_sub(said_ns.max(self.joined_ns)) < SILENT_NS
    }

    /// Reads the events that have come, and returns those that need an answer now.
    pub(crate) fn read(&mut self, now_ns: u64) -> Events {
        let mut events = Events::default();
        for _ in 0..EVENTS_AT_ONCE {
            let Some(event) = self.ring.take() else {
                break;
            };
            self.domain.link.events.fetch_add(1, Ordering::Relaxed);
            self.take(event, now_ns, &mut events);
        }
        self.settle(now_ns, &mut events);
        events
    }

    fn take(&mut self, event: abi::morpheus_event, now_ns: u64, events: &mut Events) {
        let slot_index = event.slot as usize;
        if slot_index >= self.domain.slots.in_use() {
            return;
        }
        let counters = &self.domain.counters;
        let age_ns = now_ns.saturating_sub(event.at_ns);
        match event.kind {
            abi::MORPHEUS_EVENT_BLOCKED => {
                counters.detection_latency.record(age_ns);
                self.sleeping
                    .retain(|sleeping| sleeping.slot_index != slot_index);
                let slot = self.domain.slots.runtime(slot_index);
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
                counters.detection_latency.record(age_ns);
                if self.domain.settings.policy >= morpheus_common::ladder::Policy::Request {
                    counters.requests.fetch_add(1, Ordering::Relaxed);
                    counters.last_request_ns.store(now_ns, Ordering::Relaxed);
                }
                events.over_budget.push(OverBudget {
                    slot_index,
                    poll_seq: event.poll_seq,
                    at_ns: event.at_ns.min(now_ns),
                    used_ns: event.detail,
                });
            }
            abi::MORPHEUS_EVENT_DEMOTED => {
                counters.kernel_demotions.fetch_add(1, Ordering::Relaxed);
            }
            abi::MORPHEUS_EVENT_THROTTLED => {
                counters.kernel_throttles.fetch_add(1, Ordering::Relaxed);
            }
            // An event of a later version.
            _ => {}
        }
    }

    /// Forgets sleepers that have woken, and settles those that have slept for [`SETTLE_NS`].
    fn settle(&mut self, now_ns: u64, events: &mut Events) {
        let domain = &self.domain;
        let habit = &mut self.habit;
        self.sleeping.retain_mut(|sleeping| {
            let slot = domain.slots.runtime(sleeping.slot_index);
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

    /// The time at which the next sleep settles.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        self.sleeping
            .iter()
            .filter(|sleeping| !sleeping.settled)
            .map(|sleeping| sleeping.since_ns + SETTLE_NS)
            .min()
    }

    /// Whether the controller stays on its CPU for the rest of [`SETTLE_NS`] rather than sleep: the last sleeps settled, so
    /// this one probably will. A program whose sleeps are short, as those of contended locks, does not keep it running.
    pub(crate) fn is_worth_staying(&self) -> bool {
        self.habit.is_long()
    }

    /// Settled sleepers: those in watched polls, and those in other polls whose slot `counts`.
    pub(crate) fn settled(&self, counts: impl Fn(usize) -> bool) -> (usize, usize) {
        let (mut watched, mut unwatched) = (0, 0);
        for sleeping in self.sleeping.iter().filter(|sleeping| sleeping.settled) {
            let slot = self.domain.slots.runtime(sleeping.slot_index);
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
