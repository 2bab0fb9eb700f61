//! The table of watched polls, by slot: since when each is in progress, how much CPU time it used, and whether it sleeps.
//!
//! It needs nothing from the system but thread CPU clocks and `/proc/self/task`. It reads the CPU time of each poll that
//! was there at the last sample already. It reads the state of a thread only if the thread used little CPU time, and
//! of a bounded number of threads in one sample. The intervals between two reads of a sleeping thread double.

use std::sync::atomic::Ordering;

use crate::decide::rating;
use crate::domain::Domain;
use morpheus_link::events::OverBudget;
use morpheus_system::asleep::ThreadStats;
use morpheus_system::clock;

/// New polls whose CPU clock is read in one sample, at most: each read is a system call.
const NEW_POLLS_A_SAMPLE: usize = 24;
/// Thread states that are read in one sample, at most.
const STATES_A_SAMPLE: usize = 16;
/// The longest interval between two reads of the state of a thread that sleeps.
const LONGEST_STATE_NS: u64 = 32_000_000;
/// A thread whose state cannot be read counts as asleep if it used little CPU time for this time, because a preempted thread
/// seldom waits that long.
pub(super) const SURELY_ASLEEP_NS: u64 = 50_000_000;

/// The watched poll in one slot, from sample to sample.
#[derive(Debug, Default)]
pub(crate) struct Poll {
    /// Its number; 0 for none.
    pub(crate) seq: u64,
    pub(crate) since_ns: u64,
    pub(crate) asleep: bool,
    /// The thread's CPU clock when the poll was first seen; `None` until a sample had room to read it.
    cpu_at_first_ns: Option<u64>,
    next_state_ns: u64,
    state_interval_ns: u64,
}

/// The content of a slot at a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// No watched poll.
    Nothing,
    /// A poll that was not there at the last sample. `is_stamped`: its thread recorded when it began.
    New { is_stamped: bool },
    /// The poll of the last sample.
    Same,
}

/// The reading of a poll at a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reading {
    /// CPU time of the poll, in nanoseconds.
    Used { cpu_ns: u64 },
    /// It sleeps, and its state is not due yet.
    StillAsleep,
    /// Its thread has ended.
    Gone,
}

#[derive(Default)]
pub(crate) struct Polls {
    polls: Vec<Poll>,
    stats: ThreadStats,
    /// The first slot of the next sample. It moves on, so that samples that reach their limit of system calls do not always
    /// favour the same slots.
    start: usize,
    /// System calls that the sample may still make.
    clocks_left: usize,
    states_left: usize,
}

impl Polls {
    /// Begins a sample. Returns the slots in the order in which it looks at them.
    pub(crate) fn begin(
        &mut self,
        slots: usize,
        now_ns: u64,
    ) -> impl Iterator<Item = usize> + use<> {
        self.stats.close_unused(now_ns);
        self.make_room(slots);
        (self.clocks_left, self.states_left) = (NEW_POLLS_A_SAMPLE, STATES_A_SAMPLE);
        let start = self.start;
        self.start = (start + NEW_POLLS_A_SAMPLE).checked_rem(slots).unwrap_or(0);
        (0..slots).map(move |offset| (start + offset) % slots)
    }

    fn make_room(&mut self, slots: usize) {
        if self.polls.len() < slots {
            self.polls.resize_with(slots, Poll::default);
        }
    }

    /// The poll in a slot, as the last sample saw it.
    pub(crate) fn at(&self, index: usize) -> &Poll {
        &self.polls[index]
    }

    /// Looks for a poll in a slot, and notes a new one.
    pub(crate) fn find(&mut self, index: usize, now_ns: u64, domain: &Domain) -> Found {
        let seq = domain.slots.runtime(index).observe_poll();
        let poll = &mut self.polls[index];
        if seq.is_multiple_of(2) {
            poll.seq = 0;
            return Found::Nothing;
        }
        if seq == poll.seq {
            return Found::Same;
        }
        *poll = Poll::first_seen(seq, now_ns);
        let begun = domain.slots.private[index].begun(seq);
        if let Some((begun_ns, begun_cpu_ns)) = begun {
            poll.since_ns = begun_ns.min(now_ns);
            poll.cpu_at_first_ns = Some(begun_cpu_ns);
        } else if self.clocks_left > 0 {
            self.clocks_left -= 1;
            let tid = domain.slots.runtime(index).tid.load(Ordering::Acquire);
            poll.cpu_at_first_ns = clock::cpu_ns_of(tid);
        }
        Found::New {
            is_stamped: begun.is_some(),
        }
    }

    /// Reads the CPU time of a poll, and whether its thread sleeps. The state of a sleeper is read again at its own
    /// interval.
    pub(crate) fn read(
        &mut self,
        index: usize,
        now_ns: u64,
        budget_ns: u64,
        domain: &Domain,
    ) -> Reading {
        let poll = &mut self.polls[index];
        if poll.asleep && now_ns < poll.next_state_ns {
            return Reading::StillAsleep;
        }
        let tid = domain.slots.runtime(index).tid.load(Ordering::Acquire);
        let Some(cpu_now_ns) = clock::cpu_ns_of(tid) else {
            return Reading::Gone;
        };
        let cpu_ns = cpu_now_ns.saturating_sub(*poll.cpu_at_first_ns.get_or_insert(cpu_now_ns));
        let stalled_ns = now_ns - poll.since_ns;
        let may_sleep =
            stalled_ns >= budget_ns && rating::may_sleep(stalled_ns, cpu_ns) || poll.asleep;
        if !may_sleep {
            poll.asleep = false;
        } else if self.states_left > 0 {
            self.states_left -= 1;
            poll.asleep = self.stats.is_asleep(tid, now_ns).unwrap_or_else(|| {
                domain.counters.thread_states_missing.add(1);
                stalled_ns >= SURELY_ASLEEP_NS
            });
            poll.plan_next_state(now_ns);
        }
        Reading::Used { cpu_ns }
    }

    /// Takes an event of the kernel: a poll has used up its budget. Returns whether it is new; `None` if it is over.
    pub(crate) fn learn(&mut self, over: OverBudget, now_ns: u64, domain: &Domain) -> Option<bool> {
        self.make_room(over.slot_index + 1);
        let slot = domain.slots.runtime(over.slot_index);
        if slot.observe_poll() != over.poll_seq {
            return None;
        }
        let poll = &mut self.polls[over.slot_index];
        let is_new = poll.seq != over.poll_seq;
        if is_new {
            *poll = Poll::first_seen(over.poll_seq, now_ns);
        }
        poll.since_ns = poll.since_ns.min(over.at_ns.saturating_sub(over.used_ns));
        // The event does not say whether the poll used CPU time afterwards, so only `used_ns` counts as its own.
        let tid = slot.tid.load(Ordering::Acquire);
        if let Some(cpu_ns) = clock::cpu_ns_of(tid) {
            let at_first_ns = cpu_ns.saturating_sub(over.used_ns);
            let known_ns = poll.cpu_at_first_ns.unwrap_or(at_first_ns);
            poll.cpu_at_first_ns = Some(known_ns.min(at_first_ns));
        }
        Some(is_new)
    }

    /// Closes the files that only samples need, before the controller sleeps.
    pub(crate) fn close_files(&mut self) {
        self.stats.close_all();
    }
}

impl Poll {
    fn first_seen(seq: u64, now_ns: u64) -> Poll {
        Poll {
            seq,
            since_ns: now_ns,
            ..Poll::default()
        }
    }

    fn plan_next_state(&mut self, now_ns: u64) {
        self.state_interval_ns = match self.asleep {
            true => (self.state_interval_ns * 2).clamp(1_000_000, LONGEST_STATE_NS),
            false => 0,
        };
        self.next_state_ns = now_ns + self.state_interval_ns;
    }
}
