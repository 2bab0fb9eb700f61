//! CPU hogs that are not watched: marks their workers for the kernel's scheduler, which cannot see such polls.
//!
//! A core that has stalled is not enough, for its thread may have had no CPU. The CPU time that the thread uses from one
//! sample to the next counts.

use std::sync::atomic::Ordering;

use morpheus_common::ladder::Policy;
use morpheus_common::slot::SlotFlag;
use tokio::runtime::RuntimeMetrics;

use crate::decide::rating;
use crate::domain::Domain;
use crate::observe::cores::Cores;
use morpheus_link::ActiveLink;
use morpheus_system::clock;

/// The cores that stalled in polls which are not watched, and the marks of their workers.
#[derive(Debug, Default)]
pub(crate) struct Hogs {
    stalled: Vec<Hog>,
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
        let has_thread = |&index: &usize| {
            // Relaxed: a number that is compared; the thread of a core that has stalled keeps its slot.
            domain.slots.runtime(index).tid.load(Ordering::Relaxed) == tid
        };
        let slot_index = (0..domain.slots.in_use()).find(has_thread)?;
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

impl Hogs {
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
