// SPDX-License-Identifier: GPL-2.0-only
//! The knobs of the scheduler that the adaptive loop sets, and their baseline in each regime.

use crate::adapt::regime::Regime;
use crate::scaling::Scaled;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// No slice is ever set shorter: below it, switching costs more than waiting.
pub const SLICE_FLOOR_NS: u64 = 250 * US;
/// No slice of an interactive task is ever set longer.
pub const SLICE_CEILING_NS: u64 = 4 * MS;
/// No slice of a batch task is ever set shorter.
pub const BATCH_SLICE_FLOOR_NS: u64 = 2 * MS;
/// No slice of a batch task is ever set longer.
pub const BATCH_SLICE_CEILING_NS: u64 = 25 * MS;
/// The longest slice in a burst and in longrun.
pub const BURST_SLICE_NS: u64 = MS;
/// The sojourn threshold before any dispatch rate is known; the machine's floor and ceiling go first.
pub const SOJOURN_START_NS: u64 = 5 * MS;

/// Where a woken task is placed. The numbers are those of the BPF programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[repr(u32)]
pub enum AffinityMode {
    /// On any idle CPU.
    Off = 0,
    /// On an idle CPU that shares the L2 cache with the last one, if there is one; else on any that is idle.
    Weak = 1,
    /// On an idle CPU that shares the L2 cache with the last one; else it may wait for a while
    /// before others are told of it.
    Strong = 2,
}

impl AffinityMode {
    /// Its name in what is handed out to people and programs.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            AffinityMode::Off => "off",
            AffinityMode::Weak => "weak",
            AffinityMode::Strong => "strong",
        }
    }
}

/// The values that the scheduler reads at each decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Knobs {
    /// The longest slice of tasks that are not batch.
    pub slice_ns: u64,
    /// How long a batch task runs before a tick may take its CPU for one that waits.
    pub preempt_thresh_ns: u64,
    /// The longest slice of batch tasks.
    pub batch_slice_ns: u64,
    /// The longest slice in a burst and in longrun; never more than `slice_ns`.
    pub burst_slice_ns: u64,
    /// An interactive task that runs for longer than this on average is taken for batch.
    pub cpu_bound_thresh_ns: u64,
    /// From this latency-criticality on a task is latency-critical.
    pub lat_cri_thresh_high: u32,
    /// From this latency-criticality on a task is interactive.
    pub lat_cri_thresh_low: u32,
    /// Where a woken task is placed.
    pub affinity_mode: AffinityMode,
    /// How long the oldest batch task may wait before it goes ahead of the interactive ones' overflow.
    pub sojourn_thresh_ns: u64,
}

impl Knobs {
    /// Where a regime starts from, before anything has been measured.
    ///
    /// Light: idle CPUs serve each task that wakes, so that slices may be longer and a task may compute for longer before
    /// it is taken for batch. Mixed: short slices, tasks kept near their cache. Heavy: long slices, since all tasks wait
    /// anyway and switching costs CPU time, which is short.
    #[must_use]
    pub fn baseline(regime: Regime, scaled: &Scaled) -> Knobs {
        let mixed = Knobs {
            slice_ns: MS
                .min(scaled.mixed_slice_cap_ns)
                .clamp(SLICE_FLOOR_NS, SLICE_CEILING_NS),
            preempt_thresh_ns: MS,
            batch_slice_ns: (20 * MS)
                .min(scaled.mixed_batch_cap_ns)
                .clamp(BATCH_SLICE_FLOOR_NS, BATCH_SLICE_CEILING_NS),
            burst_slice_ns: BURST_SLICE_NS,
            cpu_bound_thresh_ns: 2_500 * US,
            lat_cri_thresh_high: 32,
            lat_cri_thresh_low: 8,
            affinity_mode: AffinityMode::Strong,
            sojourn_thresh_ns: SOJOURN_START_NS
                .clamp(scaled.sojourn_floor_ns, scaled.sojourn_ceiling_ns),
        };
        let knobs = match regime {
            Regime::Light => Knobs {
                slice_ns: 2 * MS,
                batch_slice_ns: 20 * MS,
                cpu_bound_thresh_ns: 5 * MS,
                affinity_mode: AffinityMode::Weak,
                ..mixed
            },
            Regime::Mixed => mixed,
            Regime::Heavy => Knobs {
                slice_ns: 4 * MS,
                preempt_thresh_ns: 2 * MS,
                batch_slice_ns: 20 * MS,
                cpu_bound_thresh_ns: 2 * MS,
                affinity_mode: AffinityMode::Weak,
                ..mixed
            },
        };
        knobs.with_slice(knobs.slice_ns)
    }

    /// The knobs of a scheduler without an adaptive loop; they never change.
    #[must_use]
    pub fn fixed(scaled: &Scaled) -> Knobs {
        Knobs {
            affinity_mode: AffinityMode::Weak,
            ..Knobs::baseline(Regime::Mixed, scaled)
        }
    }

    /// The same with another slice, and a slice for bursts that is not longer.
    #[must_use]
    pub(crate) fn with_slice(self, slice_ns: u64) -> Knobs {
        Knobs {
            slice_ns,
            burst_slice_ns: BURST_SLICE_NS.min(slice_ns),
            ..self
        }
    }

    /// Whether every knob is within its bounds on this machine: what holds whatever was measured.
    #[must_use]
    pub fn is_sound(&self, scaled: &Scaled) -> bool {
        (SLICE_FLOOR_NS..=SLICE_CEILING_NS).contains(&self.slice_ns)
            && (BATCH_SLICE_FLOOR_NS..=BATCH_SLICE_CEILING_NS).contains(&self.batch_slice_ns)
            && (SLICE_FLOOR_NS..=self.slice_ns).contains(&self.burst_slice_ns)
            && (MS..=2 * MS).contains(&self.preempt_thresh_ns)
            && (2 * MS..=5 * MS).contains(&self.cpu_bound_thresh_ns)
            && self.lat_cri_thresh_low < self.lat_cri_thresh_high
            && (scaled.sojourn_floor_ns..=scaled.sojourn_ceiling_ns)
                .contains(&self.sojourn_thresh_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers::constants_of;

    #[test]
    fn the_bpf_programs_have_the_same_affinity_modes() {
        let constants = constants_of(include_str!("../bpf/options/options.bpf.h"), "affinity");
        let modes = [AffinityMode::Off, AffinityMode::Weak, AffinityMode::Strong];
        assert_eq!(modes.map(|mode| mode as u32), [0, 1, 2]);
        assert_eq!(
            constants,
            modes.map(|mode| format!("AFFINITY_{}", mode.name().to_uppercase()))
        );
    }

    #[test]
    fn the_baselines_of_four_cpus() {
        let scaled = Scaled::for_cpus(4);
        let of = |regime| {
            let knobs = Knobs::baseline(regime, &scaled);
            (
                knobs.slice_ns / US,
                knobs.preempt_thresh_ns / US,
                knobs.batch_slice_ns / US,
                knobs.affinity_mode,
            )
        };
        assert_eq!(of(Regime::Light), (2000, 1000, 20_000, AffinityMode::Weak));
        assert_eq!(
            of(Regime::Mixed),
            (1000, 1000, 20_000, AffinityMode::Strong)
        );
        assert_eq!(of(Regime::Heavy), (4000, 2000, 20_000, AffinityMode::Weak));
    }

    #[test]
    fn few_cpus_cap_the_mixed_regime_alone() {
        let one = Scaled::for_cpus(1);
        let mixed = Knobs::baseline(Regime::Mixed, &one);
        assert_eq!((mixed.slice_ns, mixed.batch_slice_ns), (500 * US, 5 * MS));
        assert_eq!(mixed.burst_slice_ns, 500 * US);
        let two = Knobs::baseline(Regime::Mixed, &Scaled::for_cpus(2));
        assert_eq!((two.slice_ns, two.batch_slice_ns), (MS, 10 * MS));
        let heavy = Knobs::baseline(Regime::Heavy, &one);
        assert_eq!((heavy.slice_ns, heavy.batch_slice_ns), (4 * MS, 20 * MS));
        assert_eq!(heavy.burst_slice_ns, MS);
    }

    #[test]
    fn sound_on_every_machine() {
        for cpus in 1..=512 {
            let scaled = Scaled::for_cpus(cpus);
            for regime in Regime::ALL {
                assert!(Knobs::baseline(regime, &scaled).is_sound(&scaled));
            }
            let fixed = Knobs::fixed(&scaled);
            assert!(fixed.is_sound(&scaled));
            assert_eq!(fixed.affinity_mode, AffinityMode::Weak);
        }
    }
}
