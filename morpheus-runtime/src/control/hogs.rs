//! CPU hogs that are not watched: marks their workers for the kernel's scheduler, which cannot see such polls, and gives many of them
//! longer slices.
//!
//! A core that has stalled is not enough, for its thread may have had no CPU. The CPU time that the thread uses from one
//! sample to the next counts.

use std::sync::atomic::Ordering;

use morpheus_common::ladder::Policy;
use morpheus_common::slot::SlotFlag;
use tokio::runtime::RuntimeMetrics;

use crate::decide::confinement;
use crate::decide::rating;
use crate::domain::Domain;
use crate::observe::cores::Cores;
use morpheus_link::ActiveLink;
use morpheus_system::{clock, slice};

/// From more computing workers than this for each CPU on, these get the kernel's slices. With a worker's slices their deadlines are as
/// near as those of the workers that wake, which then wait for many of them in turn: beside 20 hogs on two CPUs, wakes had a p99 of
/// 0.90 ms, and 0.49 ms with it, and of 16,000 requests a second 9,200 had an answer, and 14,500 (medians of three, `starvation
/// --hogs 20`, also with `--load 16`). A worker keeps that slice until it next parks, which costs what it serves before: `/ping` had a
/// p99 of 0.52 and 0.70 ms beside four hogs of 25 ms, 1.1 and 1.2 beside eight, and 1.9 and 1.6 beside 20 (`service --only morpheus`).
const MANY_PER_CPU: usize = 4;

/// The cores that stalled in polls which are not watched, and the marks of their workers.
#[derive(Debug)]
pub(crate) struct Hogs {
    stalled: Vec<Hog>,
    /// Computing workers of which all keep their slices.
    few: usize,
}

#[derive(Debug)]
struct Hog {
    core: usize,
    /// The last sign of life of the core.
    since_ns: u64,
    slot_index: usize,
    /// CPU time of its thread when the core was first found stalled.
    cpu_ns: u64,
    is_marked: bool,
}

impl Hog {
    /// The thread of a stalled core. `None` if it is not known, has no slot, is not demotable, or is in a watched poll,
    /// which the kernel's scheduler sees by itself.
    fn find(core: usize, since_ns: u64, domain: &Domain) -> Option<Hog> {
        let tid = domain.cores.thread(core)?;
        let slot_index = slot_of(tid, domain)?;
        let slot = domain.slots.runtime(slot_index);
        if slot.observe_poll() % 2 == 1 || !slot.has_flag(SlotFlag::Demotable) {
            return None;
        }
        Some(Hog {
            core,
            since_ns,
            slot_index,
            cpu_ns: clock::cpu_ns_of(tid)?,
            is_marked: false,
        })
    }
}

/// The slot of a thread.
fn slot_of(tid: u32, domain: &Domain) -> Option<usize> {
    let has_thread = |&index: &usize| {
        // Relaxed: a number that is compared; the thread of a core that has stalled keeps its slot.
        domain.slots.runtime(index).tid.load(Ordering::Relaxed) == tid
    };
    (0..domain.slots.in_use()).find(has_thread)
}

/// Whether the thread that had a core still has it, and may be demoted.
fn may_demote(core: usize, tid: u32, domain: &Domain) -> bool {
    let is_demotable = |index| {
        let slot = domain.slots.runtime(index);
        slot.has_flag(SlotFlag::Demotable) && !slot.in_critical()
    };
    domain.cores.thread(core) == Some(tid)
        && !domain.cores.is_held(core)
        && slot_of(tid, domain).is_some_and(is_demotable)
}

/// Those of the threads with these cores that may be demoted.
pub(crate) fn demotable(
    computing: Vec<(usize, confinement::Hog)>,
    domain: &Domain,
) -> Vec<confinement::Hog> {
    let may =
        |(core, hog): (usize, confinement::Hog)| may_demote(core, hog.tid, domain).then_some(hog);
    computing.into_iter().filter_map(may).collect()
}

impl Hogs {
    pub(crate) fn new(cpus: usize) -> Hogs {
        Hogs {
            stalled: Vec::new(),
            few: cpus.saturating_mul(MANY_PER_CPU),
        }
    }

    /// Gives computing workers the kernel's slices if there are many, so that workers that wake run before them.
    pub(crate) fn lengthen_slices(&self, now_ns: u64, cores: &mut Cores, domain: &Domain) {
        if domain.settings.policy < Policy::Demote || !domain.may_lengthen_slices() {
            return;
        }
        for (core, tid) in cores.take_computing(now_ns, self.few) {
            if may_demote(core, tid, domain) {
                slice::lengthen_workers(tid);
            }
        }
    }

    /// Marks the workers of those of the stalled cores `numbers` whose threads have computed since the call before.
    pub(crate) fn mark(&mut self, numbers: &[usize], cores: &Cores, domain: &Domain) {
        let demotes = domain.settings.policy >= Policy::Demote
            && domain.link.active() == ActiveLink::Scheduler;
        if !demotes {
            return;
        }
        for &core in numbers {
            let Some(hog) = self.stalled.iter_mut().find(|hog| hog.core == core) else {
                let since_ns = cores.stalled_since(core);
                let found = since_ns.and_then(|since_ns| Hog::find(core, since_ns, domain));
                self.stalled.extend(found);
                continue;
            };
            let slot = domain.slots.runtime(hog.slot_index);
            // Relaxed: as in `find`.
            let tid = slot.tid.load(Ordering::Relaxed);
            let used_ns = clock::cpu_ns_of(tid).map_or(0, |ns| ns.saturating_sub(hog.cpu_ns));
            if !hog.is_marked && used_ns >= rating::HOG_NS {
                hog.is_marked = true;
                slot.set_flag(SlotFlag::Hog);
                domain.counters.hogs_marked.add(1);
            }
        }
    }

    /// Clears the marks of workers whose cores have shown a sign of life since.
    pub(crate) fn clear(&mut self, cores: &Cores, metrics: &RuntimeMetrics, domain: &Domain) {
        self.stalled.retain(|hog| {
            let is_stalled = cores.is_still_stalled(hog.core, hog.since_ns, metrics);
            if !is_stalled && hog.is_marked {
                let slot = domain.slots.runtime(hog.slot_index);
                slot.clear_flag(SlotFlag::Hog);
            }
            is_stalled
        });
    }
}
