//! Workers that are given up to the kernel's scheduler: a task that nobody watches keeps them, which the
//! kernel side cannot see, and tokio's counters can.
//!
//! A core that stands still is not enough, for its thread may have had no CPU: what counts is the CPU time
//! that it used from one sample to the next.

use std::sync::atomic::Ordering;
use std::time::Duration;

use morpheus_common::ladder::Policy;
use morpheus_common::slot::SlotFlag;
use tokio::runtime::RuntimeMetrics;

use crate::decide::rating;
use crate::domain::Domain;
use crate::link::ActiveLink;
use crate::os::clock;

/// The cores that were found standing.
#[derive(Debug, Default)]
pub(crate) struct Hogs {
    standing: Vec<Hog>,
}

#[derive(Debug)]
struct Hog {
    core: usize,
    slot_index: usize,
    parks: u64,
    busy: Duration,
    /// CPU time of its thread when it was first found standing.
    cpu_ns: u64,
    marked: bool,
}

impl Hog {
    /// The thread that stands there; none if it is not known, watched (what is watched, the kernel side sees by
    /// itself), or has no slot.
    fn find(core: usize, domain: &Domain, metrics: &RuntimeMetrics) -> Option<Hog> {
        let tid = domain.cores.thread(core)?;
        let slot_index = (0..domain.slots.in_use()).find(|&slot_index| {
            domain.slots.runtime(slot_index).tid.load(Ordering::Relaxed) == tid
        })?;
        let slot = domain.slots.runtime(slot_index);
        if slot.observe_poll() % 2 == 1 || !slot.has_flag(SlotFlag::Demotable) {
            return None;
        }
        Some(Hog {
            core,
            slot_index,
            parks: metrics.worker_park_unpark_count(core),
            busy: metrics.worker_total_busy_duration(core),
            cpu_ns: clock::cpu_ns_of(tid)?,
            marked: false,
        })
    }

    fn still_stands(&self, metrics: &RuntimeMetrics) -> bool {
        metrics.worker_park_unpark_count(self.core) == self.parks
            && metrics.worker_total_busy_duration(self.core) == self.busy
    }
}

impl Hogs {
    /// Looks at the cores that stand still, and marks the workers of those that computed through it.
    pub(crate) fn mark(&mut self, cores: &[usize], domain: &Domain, metrics: &RuntimeMetrics) {
        let demotes = domain.settings.policy >= Policy::Demote
            && domain.link.active() == ActiveLink::Scheduler;
        if !demotes {
            return;
        }
        for &core in cores {
            let Some(known) = self.standing.iter_mut().find(|hog| hog.core == core) else {
                self.standing.extend(Hog::find(core, domain, metrics));
                continue;
            };
            let slot = domain.slots.runtime(known.slot_index);
            let tid = slot.tid.load(Ordering::Relaxed);
            let used_ns = clock::cpu_ns_of(tid).map_or(0, |ns| ns.saturating_sub(known.cpu_ns));
            if !known.marked && used_ns >= rating::HOG_NS {
                known.marked = true;
                slot.set_flag(SlotFlag::Hog);
                domain.counters.hogs_marked.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Takes the mark from those that have shown a sign of life since.
    pub(crate) fn forgive(&mut self, domain: &Domain, metrics: &RuntimeMetrics) {
        self.standing.retain(|hog| {
            let stands = hog.still_stands(metrics);
            if !stands && hog.marked {
                domain
                    .slots
                    .runtime(hog.slot_index)
                    .clear_flag(SlotFlag::Hog);
            }
            stands
        });
    }
}
