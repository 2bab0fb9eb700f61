// SPDX-License-Identifier: GPL-2.0-only
//! The connected processes and the state of their workers: a read-only summary of sessions and of the areas that they share.

use std::fs::File;
use std::io::Read;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use memmap2::{MmapOptions, MmapRaw};
use morpheus_common::abi;
use morpheus_common::slot::{KernelSlot, RuntimeSlot, SlotFlag, VerdictFlags};
use serde_json::{Value, json};

use crate::session::{KernelSide, LeaseNumber, Session};

/// How many processes are told of; those with the most workers. A packet is read whole, and has to have an end.
const MOST_LISTED: usize = 256;
/// How long areas are looked at for one answer; of processes that are left then it is not told how they fare. All
/// clients wait for it, and large areas take their time.
const LOOKS_FOR: Duration = Duration::from_millis(10);
/// Entries of both areas.
const ENTRY_BYTES: usize = 64;
const _: () =
    assert!(size_of::<RuntimeSlot>() == ENTRY_BYTES && size_of::<KernelSlot>() == ENTRY_BYTES);

/// Workers of a process by what is so of what they are busy with now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ladder {
    /// Over the budget, or went to sleep in the kernel within a poll.
    pub stalled: u32,
    /// Have a tenth of their weight.
    pub demoted: u32,
    /// Are capped.
    pub throttled: u32,
    /// Requests that tasks of these workers answered with a yield. It wraps with each worker's own count.
    pub yields: u64,
}

impl Ladder {
    /// Counts one worker. A held spare blocks on purpose; and who is between polls is busy only if the runtime has marked
    /// it as a hog, of which the step tells more, because a verdict is about a poll.
    fn count(&mut self, runtime: &RuntimeSlot, kernel: &KernelSlot) {
        // Relaxed: a statistic.
        let yields = runtime.yields.load(Ordering::Relaxed);
        self.yields += u64::from(yields);
        if runtime.has_flag(SlotFlag::Held) {
            return;
        }
        let seq = runtime.observe_poll();
        let (stalled, demoted, throttled) = if seq & 1 == 1 {
            let verdict = kernel.verdict_for(seq);
            (
                verdict.contains(VerdictFlags::STALLED) || verdict.contains(VerdictFlags::BLOCKED),
                verdict.contains(VerdictFlags::DEMOTED),
                verdict.contains(VerdictFlags::THROTTLED),
            )
        } else if runtime.has_flag(SlotFlag::Hog) {
            // Relaxed: it is a number to be shown, and nothing hangs on it.
            let step = kernel.step.load(Ordering::Relaxed);
            (
                true,
                step >= abi::MORPHEUS_STEP_DEMOTED,
                step >= abi::MORPHEUS_STEP_THROTTLED,
            )
        } else {
            return;
        };
        self.stalled += u32::from(stalled);
        self.demoted += u32::from(demoted);
        self.throttled += u32::from(throttled);
    }
}

/// Adds the connections to the numbers that are handed out.
pub(crate) fn add_to<'a>(
    numbers: &mut Value,
    sessions: impl Iterator<Item = &'a Session>,
    kernel: &impl KernelSide,
) {
    let mut sessions: Vec<_> = sessions
        .filter_map(|session| Some((session.bound(), session.lease()?, session)))
        .collect();
    sessions.sort_by_key(|(workers, lease, _)| (std::cmp::Reverse(*workers), *lease));
    let left_out = sessions.len().saturating_sub(MOST_LISTED);
    let listed = sessions.iter().take(MOST_LISTED);
    let start = Instant::now();
    numbers["connections"] = listed
        .map(|(workers, lease, session)| {
            let slots: Vec<u32> = session.bound_slots().collect();
            let ladder = if slots.is_empty() {
                Some(Ladder::default())
            } else if start.elapsed() < LOOKS_FOR {
                kernel.ladder(*lease, &slots)
            } else {
                None
            };
            json!({
                "pid": session.peer().tgid,
                "comm": comm(session.peer().tgid),
                "workers": workers,
                "stalled": ladder.map(|ladder| ladder.stalled),
                "demoted": ladder.map(|ladder| ladder.demoted),
                "throttled": ladder.map(|ladder| ladder.throttled),
                "yields": ladder.map(|ladder| ladder.yields),
                "lease": lease,
            })
        })
        .collect();
    if left_out > 0 {
        numbers["connections_left_out"] = left_out.into();
    }
}

/// A process's name; empty when it has just ended.
fn comm(tgid: u32) -> String {
    let mut bytes = [0; 64];
    let length = File::open(format!("/proc/{tgid}/comm"))
        .and_then(|mut file| file.read(&mut bytes))
        .unwrap_or(0);
    let name = String::from_utf8_lossy(&bytes[..length]);
    name.strip_suffix('\n').unwrap_or(&name).to_owned()
}

/// Counts the workers in `slots` of a lease, whose areas are found in these maps of maps. `None` when they cannot be read:
/// the lease has just ended, or the daemon has no CAP_SYS_ADMIN, which the kernel wants for it.
pub(crate) fn ladder(
    runtime_areas: &MapHandle,
    kernel_areas: &MapHandle,
    lease: LeaseNumber,
    slots: &[u32],
) -> Option<Ladder> {
    let runtime = Area::open(runtime_areas, lease)?;
    let kernel = Area::open(kernel_areas, lease)?;
    let mut ladder = Ladder::default();
    for slot in slots {
        ladder.count(runtime.slot(*slot)?, kernel.slot(*slot)?);
    }
    Some(ladder)
}

/// An area of a lease, mapped for reading while this lives.
struct Area {
    memory: MmapRaw,
    entries: usize,
}

impl Area {
    fn open(areas: &MapHandle, lease: LeaseNumber) -> Option<Area> {
        // A map of maps says by which number a map can be opened.
        let number = areas.lookup(&lease.to_ne_bytes(), MapFlags::ANY).ok()??;
        let number = u32::from_ne_bytes(number.try_into().ok()?);
        let map = MapHandle::from_map_id(number).ok()?;
        let entries = map.max_entries() as usize;
        if map.value_size() as usize != ENTRY_BYTES {
            return None;
        }
        let memory = MmapOptions::new()
            .len(entries * ENTRY_BYTES)
            .map_raw_read_only(map.as_fd().as_raw_fd())
            .ok()?;
        Some(Area { memory, entries })
    }

    /// Slot `index`, behind the header. Not to be written to: the mapping is read-only.
    fn slot<T: SlotWords>(&self, index: u32) -> Option<&T> {
        let entry = index as usize + 1;
        // SAFETY: the entry is within the mapping, which lives as long as `self`, never shrinks, and is aligned to a page;
        // `T` has an entry's size and consists of atomics, for which all bytes are good, even if a process writes them
        // meanwhile.
        (entry < self.entries).then(|| unsafe { &*self.memory.as_ptr().cast::<T>().add(entry) })
    }
}

/// The types of an area's entries behind the header.
trait SlotWords {}
impl SlotWords for RuntimeSlot {}
impl SlotWords for KernelSlot {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_counts_as_stalled() {
        let count = |runtime: &RuntimeSlot, kernel: &KernelSlot| {
            let mut ladder = Ladder::default();
            ladder.count(runtime, kernel);
            (ladder.stalled, ladder.demoted, ladder.throttled)
        };
        let (runtime, kernel) = (RuntimeSlot::new(), KernelSlot::new());
        assert_eq!(count(&runtime, &kernel), (0, 0, 0), "idle");
        let seq = runtime.begin_poll();
        assert_eq!(count(&runtime, &kernel), (0, 0, 0), "in its budget");
        kernel.give_verdict(seq, VerdictFlags::STALLED);
        assert_eq!(count(&runtime, &kernel), (1, 0, 0));
        kernel.give_verdict(seq, VerdictFlags::DEMOTED | VerdictFlags::THROTTLED);
        assert_eq!(count(&runtime, &kernel), (1, 1, 1));
        runtime.set_flag(SlotFlag::Held);
        assert_eq!(count(&runtime, &kernel), (0, 0, 0), "a held spare");
        runtime.clear_flag(SlotFlag::Held);
        runtime.end_poll(seq);
        assert_eq!(count(&runtime, &kernel), (0, 0, 0), "the poll is over");
        let seq = runtime.begin_poll();
        kernel.give_verdict(seq, VerdictFlags::BLOCKED);
        assert_eq!(count(&runtime, &kernel), (1, 0, 0), "asleep");
        runtime.end_poll(seq);
        runtime.set_flag(SlotFlag::Hog);
        kernel
            .step
            .store(abi::MORPHEUS_STEP_DEMOTED, Ordering::Relaxed);
        assert_eq!(count(&runtime, &kernel), (1, 1, 0), "a hog between polls");
    }

    #[test]
    fn yields_of_all_workers_add_up() {
        let (one, other, kernel) = (RuntimeSlot::new(), RuntimeSlot::new(), KernelSlot::new());
        one.count_yield();
        other.count_yield();
        other.count_yield();
        other.set_flag(SlotFlag::Held);
        let mut ladder = Ladder::default();
        ladder.count(&one, &kernel);
        ladder.count(&other, &kernel);
        assert_eq!(ladder.yields, 3);
    }

    #[test]
    fn names_of_processes() {
        assert!(!comm(std::process::id()).is_empty());
        assert!(!comm(std::process::id()).contains('\n'));
        assert_eq!(comm(0), "");
    }
}
