// SPDX-License-Identifier: GPL-2.0-only
//! The adaptive loop: from what the scheduler has counted to what it is told.
//!
//! ```text
//!  Reading ─► regime ─► baseline ─► batch slice ─► sojourn ─► tighten ─► longrun ─► Decision
//!  (counts)  (idle)    (knobs)     (sleeps)       (rate)     or relax   (weak)     (knobs)
//! ```
//!
//! [`Adaptation`] is one step of that loop as a state machine: the same readings in the same order give the same decisions.
//! It reads no clock and no map and starts no thread; its owner does, about once in a second. Whatever it is told, the
//! knobs stay within their bounds ([`Knobs::is_sound`]), and under readings that stay the same it comes to rest.
//!
//! - [`regime`]: light, mixed or heavy.
//! - [`knobs`]: what is set, and the baseline of each regime.
//! - [`sleep`]: slices of batch tasks by how tasks sleep.
//! - [`sojourn`]: how long batch may wait, from the dispatch rate.
//! - [`relax`]: shorter slices while wakes wait too long, and the way back.

pub mod knobs;
pub mod regime;
pub mod relax;
pub mod sleep;
pub mod sojourn;

use crate::adapt::knobs::{AffinityMode, Knobs};
use crate::adapt::regime::{Detector, Regime};
use crate::adapt::relax::Slice;
use crate::adapt::sleep::Sleeps;
use crate::adapt::sojourn::Sojourn;
use crate::scaling::Scaled;
use morpheus_tools::histogram::Histogram;
use morpheus_tools::tier::{TIERS, Tier};

/// As many wakes it takes in one look before their p99 is judged: of fewer, it is the luck of one.
const JUDGED_FROM_WAKES: u64 = 20;

/// Which stages work. One that does not leaves the knobs as the stages before it made them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Switches {
    /// All of them but the detector: without, the knobs are [`Knobs::fixed`] for ever.
    pub adapt: bool,
    /// The detector: without, the load counts as mixed.
    pub regimes: bool,
    /// Tightening by p99, and so relaxing.
    pub tighten: bool,
    /// Batch slices by how tasks sleep.
    pub sleep: bool,
    /// The sojourn threshold from the dispatch rate.
    pub sojourn: bool,
    /// Where a woken task is placed, whatever the load is; none leaves that to the regime.
    pub affinity: Option<AffinityMode>,
}

impl Default for Switches {
    /// All on.
    fn default() -> Switches {
        Switches {
            adapt: true,
            regimes: true,
            tighten: true,
            sleep: true,
            sojourn: true,
            affinity: None,
        }
    }
}

impl Switches {
    /// The same knobs, with the placement that is asked for.
    fn place(&self, mut knobs: Knobs) -> Knobs {
        knobs.affinity_mode = self.affinity.unwrap_or(knobs.affinity_mode);
        knobs
    }
}

/// The counts of the scheduler since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reading {
    /// The time since then, as it really was.
    pub elapsed_ns: u64,
    /// How much of the CPUs' time was idle, from 0 to 1. Not a number where that is not known; then the regime stays.
    pub idle_share: f64,
    /// How many tasks were dispatched.
    pub dispatches: u64,
    /// How long woken tasks waited, by tier.
    pub wakes: [Histogram; TIERS],
    /// How long tasks slept.
    pub sleeps: Sleeps,
    /// Whether batch has been waiting without a break for long.
    pub longrun: bool,
    /// Whether there is a fork storm, or was since the last look.
    pub burst: bool,
}

/// The knobs to set, and the observations behind them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The knobs from now on.
    pub knobs: Knobs,
    /// Whether they differ from those of the last decision.
    pub changed: bool,
    /// The regime in force.
    pub regime: Regime,
    /// The slowest hundredth of the wakes of each tier, at best; none where no task woke. See
    /// [`Histogram::quantile_ns`] for how exact that is.
    pub p99_ns: [Option<u64>; TIERS],
    /// How many of the sleeps were waits for I/O, in percent; none where there were too few to tell.
    pub io_percent: Option<u64>,
}

/// At how many looks each stage has made a difference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Another regime.
    pub regimes: u64,
    /// A batch slice longer or shorter than the baseline, by how tasks sleep.
    pub batch_slices: u64,
    /// Another sojourn threshold.
    pub sojourns: u64,
    /// A shorter slice.
    pub tightened: u64,
    /// A longer one.
    pub relaxed: u64,
}

impl Changes {
    /// By the names that they are counted under.
    #[must_use]
    pub fn named(&self) -> [(&'static str, u64); 5] {
        [
            ("regimes_changed", self.regimes),
            ("batch_slices_by_sleep", self.batch_slices),
            ("sojourns_changed", self.sojourns),
            ("slices_tightened", self.tightened),
            ("slices_relaxed", self.relaxed),
        ]
    }
}

/// The adaptive loop's state.
#[derive(Clone, Debug)]
pub struct Adaptation {
    scaled: Scaled,
    switches: Switches,
    detector: Detector,
    slice: Slice,
    sojourn: Sojourn,
    knobs: Knobs,
    changes: Changes,
}

impl Adaptation {
    /// A loop that has seen nothing yet. Its [`knobs`](Adaptation::knobs) are to be set before the first look.
    #[must_use]
    pub fn new(scaled: Scaled, switches: Switches) -> Adaptation {
        let detector = Detector::default();
        let baseline = Knobs::baseline(detector.regime(), &scaled);
        let knobs = if switches.adapt {
            baseline
        } else {
            Knobs::fixed(&scaled)
        };
        Adaptation {
            scaled,
            switches,
            detector,
            slice: Slice::new(baseline.slice_ns),
            sojourn: Sojourn::new(&scaled),
            knobs: switches.place(knobs),
            changes: Changes::default(),
        }
    }

    /// At how many looks each stage has made a difference.
    #[must_use]
    pub fn changes(&self) -> Changes {
        self.changes
    }

    /// The knobs of the last decision.
    #[must_use]
    pub fn knobs(&self) -> &Knobs {
        &self.knobs
    }

    /// The regime in force.
    #[must_use]
    pub fn regime(&self) -> Regime {
        self.detector.regime()
    }

    /// The number of CPUs has changed. The next look decides by the new one.
    pub fn rescale(&mut self, scaled: Scaled) {
        self.scaled = scaled;
        self.sojourn.rescale(&scaled);
        self.slice = Slice::new(Knobs::baseline(self.regime(), &scaled).slice_ns);
    }

    /// Takes a look: what the knobs are from now on.
    pub fn look(&mut self, reading: &Reading) -> Decision {
        let is_another = self.watch(reading.idle_share);
        let knobs = if self.switches.adapt {
            self.decide(reading, is_another)
        } else {
            Knobs::fixed(&self.scaled)
        };
        let knobs = self.switches.place(knobs);
        debug_assert!(knobs.is_sound(&self.scaled), "{knobs:?}");
        let changed = knobs != self.knobs;
        self.knobs = knobs;
        Decision {
            knobs,
            changed,
            regime: self.regime(),
            p99_ns: reading.wakes.map(|wakes| wakes.p99_ns()),
            io_percent: reading.sleeps.io_percent(),
        }
    }

    /// Whether the regime is another one now. It is worth knowing, also where the knobs do not follow.
    fn watch(&mut self, idle_share: f64) -> bool {
        let before = self.regime();
        if self.switches.regimes {
            self.detector.look(idle_share);
        }
        let is_another = self.regime() != before;
        self.changes.regimes += u64::from(is_another);
        is_another
    }

    /// All stages after the regime, in their order.
    fn decide(&mut self, reading: &Reading, is_another: bool) -> Knobs {
        let mut knobs = Knobs::baseline(self.regime(), &self.scaled);
        if is_another {
            // Measurements under another load say nothing about this one.
            self.slice = Slice::new(knobs.slice_ns);
        }

        // In longrun batch waits for a CPU, not for devices.
        if self.switches.sleep && !reading.longrun {
            let baseline_ns = knobs.batch_slice_ns;
            knobs.batch_slice_ns = sleep::batch_slice_ns(baseline_ns, &reading.sleeps);
            self.changes.batch_slices += u64::from(knobs.batch_slice_ns != baseline_ns);
        }
        if self.switches.sojourn {
            let before_ns = self.sojourn.thresh_ns();
            knobs.sojourn_thresh_ns =
                self.sojourn
                    .look(reading.dispatches, reading.elapsed_ns, &self.scaled);
            self.changes.sojourns += u64::from(knobs.sojourn_thresh_ns != before_ns);
        }
        if self.switches.tighten {
            self.tighten_or_relax(reading, knobs.slice_ns);
            knobs = knobs.with_slice(self.slice.slice_ns());
        }
        if reading.longrun {
            // All CPUs have batch to do: waiting for one near the cache is waiting for nothing.
            knobs.affinity_mode = AffinityMode::Weak;
        }
        knobs
    }

    fn tighten_or_relax(&mut self, reading: &Reading, baseline_ns: u64) {
        let regime = self.regime();
        let slow = [Tier::LatCritical, Tier::Interactive]
            .map(|tier| &reading.wakes[tier.index()])
            .into_iter()
            .filter(|wakes| wakes.total() >= JUDGED_FROM_WAKES)
            .filter_map(Histogram::p99_ns)
            .any(|p99_ns| p99_ns > relax::p99_ceiling_ns(regime));
        let before_ns = self.slice.slice_ns();
        if slow && relax::tightens(regime) {
            self.slice.tighten();
        } else if slow || reading.burst {
            // In a burst the scheduler shortens slices by itself: that waits are short then is no reason to relax.
            self.slice.hold();
        } else {
            self.slice.relax(baseline_ns, reading.elapsed_ns);
        }
        let now_ns = self.slice.slice_ns();
        self.changes.tightened += u64::from(now_ns < before_ns);
        self.changes.relaxed += u64::from(now_ns > before_ns);
    }
}

#[cfg(test)]
mod tests;
