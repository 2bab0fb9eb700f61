// SPDX-License-Identifier: GPL-2.0-only
//! All parameters of the scheduler that depend on the number of CPUs: thresholds, budgets and caps.
//!
//! With few CPUs a queue drains slowly and one hog is a large share of the machine, so thresholds are short and budgets
//! small. With more CPUs both grow, up to a clamp: no task waits longer because the machine is larger. Every value is a
//! formula, so a machine of an odd size gets what lies between its neighbours, and `--nr-cpus` is just another argument.

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// From how many CPUs on the batch queue needs a ceiling on vtime. On fewer it is so short that its rescue gets to every
/// task.
const VTIME_CEILING_FROM_CPUS: u32 = 8;
/// From how many CPUs on two tasks may be placed on one CPU's own queue.
const DEEP_QUEUES_FROM_CPUS: u32 = 4;

/// The scheduler's parameters for a number of CPUs.
///
/// | parameter | formula | 1 | 2 | 4 | 8 | 12 |
/// |---|---|---|---|---|---|---|
/// | [`sojourn_floor_ns`](Scaled::sojourn_floor_ns) | 1 ms × n, in 2..=6 ms | 2 ms | 2 ms | 4 ms | 6 ms | 6 ms |
/// | [`sojourn_ceiling_ns`](Scaled::sojourn_ceiling_ns) | twice the floor | 4 ms | 4 ms | 8 ms | 12 ms | 12 ms |
/// | [`overflow_rescue_ns`](Scaled::overflow_rescue_ns) | 2 ms × n, in 4..=10 ms | 4 ms | 4 ms | 8 ms | 10 ms | 10 ms |
/// | [`starvation_rescue_ns`](Scaled::starvation_rescue_ns) | min(25 ms × n, 500 ms ÷ max(1, ⌊n ÷ 4⌋)), in 20..=500 ms | 25 ms | 50 ms | 100 ms | 200 ms | 167 ms |
/// | [`deficit_budget`](Scaled::deficit_budget) | n × min(4, 2 + ⌊n ÷ 2⌋) | 2 | 6 | 16 | 32 | 48 |
/// | [`longrun_deficit_budget`](Scaled::longrun_deficit_budget) | n | 1 | 2 | 4 | 8 | 12 |
/// | [`cpu_queue_depth`](Scaled::cpu_queue_depth) | 1 below 4 CPUs, else 2 | 1 | 1 | 2 | 2 | 2 |
/// | [`mixed_batch_cap_ns`](Scaled::mixed_batch_cap_ns) | 5 ms × n | 5 ms | 10 ms | 20 ms | 40 ms | 60 ms |
/// | [`mixed_slice_cap_ns`](Scaled::mixed_slice_cap_ns) | 0.5 ms × n | 0.5 ms | 1 ms | 2 ms | 4 ms | 6 ms |
/// | [`vtime_ceiling_ns`](Scaled::vtime_ceiling_ns) | 30 ms from 8 CPUs on | – | – | – | 30 ms | 30 ms |
/// | [`burst_wakeups_per_tick`](Scaled::burst_wakeups_per_tick) | 2 × n | 2 | 4 | 8 | 16 | 24 |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scaled {
    /// For how many CPUs this is.
    pub cpus: u32,
    /// The least that the sojourn threshold (how long the oldest batch task may wait) is ever set to.
    pub sojourn_floor_ns: u64,
    /// The most that the sojourn threshold is ever set to.
    pub sojourn_ceiling_ns: u64,
    /// How long a task may wait in an overflow queue before it goes ahead of the CPUs' own queues.
    pub overflow_rescue_ns: u64,
    /// How long a batch task may wait before it goes ahead of all others, whatever the budgets say.
    pub starvation_rescue_ns: u64,
    /// How many interactive dispatches in a row make one of batch due, where batch waits.
    pub deficit_budget: u32,
    /// The same while batch has been waiting for long (longrun).
    pub longrun_deficit_budget: u32,
    /// How many tasks may wait in a CPU's own queue.
    pub cpu_queue_depth: u32,
    /// The longest slice of batch tasks in the mixed regime.
    pub mixed_batch_cap_ns: u64,
    /// The longest slice of the other tasks in the mixed regime.
    pub mixed_slice_cap_ns: u64,
    /// How far after the present vtime a batch task's deadline may be; none where no ceiling is needed.
    pub vtime_ceiling_ns: Option<u64>,
    /// As many wakeups between two ticks are a burst (a fork storm).
    pub burst_wakeups_per_tick: u32,
}

impl Scaled {
    /// The parameters for `cpus` CPUs. 0 counts as 1. Numbers beyond any machine saturate.
    #[must_use]
    pub fn for_cpus(cpus: u32) -> Scaled {
        let cpus = cpus.max(1);
        let n = u64::from(cpus);
        let sojourn_floor_ns = n.saturating_mul(MS).clamp(2 * MS, 6 * MS);
        Scaled {
            cpus,
            sojourn_floor_ns,
            sojourn_ceiling_ns: 2 * sojourn_floor_ns,
            overflow_rescue_ns: (n * 2 * MS).clamp(4 * MS, 10 * MS),
            // Rises while few CPUs starve fast, falls where many get into each other's way.
            starvation_rescue_ns: (n * 25 * MS)
                .min(500 * MS / (n / 4).max(1))
                .clamp(20 * MS, 500 * MS),
            deficit_budget: cpus.saturating_mul((2 + cpus / 2).min(4)),
            longrun_deficit_budget: cpus,
            cpu_queue_depth: if cpus < DEEP_QUEUES_FROM_CPUS { 1 } else { 2 },
            mixed_batch_cap_ns: n * 5 * MS,
            mixed_slice_cap_ns: n * 500 * US,
            vtime_ceiling_ns: (cpus >= VTIME_CEILING_FROM_CPUS).then_some(30 * MS),
            burst_wakeups_per_tick: cpus.saturating_mul(2),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Columns of the table: floor, overflow, starvation, each in µs; budget, depth, batch cap and slice cap in µs.
    type Row = (u32, u64, u64, u64, u32, u32, u64, u64);

    #[test]
    fn the_table() {
        const ROWS: [Row; 9] = [
            (1, 2_000, 4_000, 25_000, 2, 1, 5_000, 500),
            (2, 2_000, 4_000, 50_000, 6, 1, 10_000, 1_000),
            (3, 3_000, 6_000, 75_000, 9, 1, 15_000, 1_500),
            (4, 4_000, 8_000, 100_000, 16, 2, 20_000, 2_000),
            (8, 6_000, 10_000, 200_000, 32, 2, 40_000, 4_000),
            (12, 6_000, 10_000, 166_666, 48, 2, 60_000, 6_000),
            (16, 6_000, 10_000, 125_000, 64, 2, 80_000, 8_000),
            (128, 6_000, 10_000, 20_000, 512, 2, 640_000, 64_000),
            (512, 6_000, 10_000, 20_000, 2048, 2, 2_560_000, 256_000),
        ];
        for (cpus, floor, overflow, starvation, budget, depth, batch, slice) in ROWS {
            let scaled = Scaled::for_cpus(cpus);
            let found = (
                scaled.cpus,
                scaled.sojourn_floor_ns / US,
                scaled.overflow_rescue_ns / US,
                scaled.starvation_rescue_ns / US,
                scaled.deficit_budget,
                scaled.cpu_queue_depth,
                scaled.mixed_batch_cap_ns / US,
                scaled.mixed_slice_cap_ns / US,
            );
            let expected = (
                cpus, floor, overflow, starvation, budget, depth, batch, slice,
            );
            assert_eq!(found, expected);
            assert_eq!(scaled.sojourn_ceiling_ns, 2 * floor * US);
            assert_eq!(scaled.longrun_deficit_budget, cpus);
            assert_eq!(scaled.burst_wakeups_per_tick, 2 * cpus);
        }
    }

    #[test]
    fn every_size_keeps_to_the_clamps_and_grows_with_the_machine() {
        for cpus in 1..=512 {
            let (one, next) = (Scaled::for_cpus(cpus), Scaled::for_cpus(cpus + 1));
            assert!((2 * MS..=6 * MS).contains(&one.sojourn_floor_ns));
            assert!((4 * MS..=12 * MS).contains(&one.sojourn_ceiling_ns));
            assert!((4 * MS..=10 * MS).contains(&one.overflow_rescue_ns));
            assert!((20 * MS..=500 * MS).contains(&one.starvation_rescue_ns));
            // Each rescue is a net under the one before.
            assert!(one.overflow_rescue_ns < one.starvation_rescue_ns);
            assert!(one.sojourn_ceiling_ns < one.starvation_rescue_ns);
            // Longrun gives batch more, never less, and at most all that a budget of four a CPU gives.
            assert!(one.longrun_deficit_budget < one.deficit_budget);
            assert!((2 * cpus..=4 * cpus).contains(&one.deficit_budget));

            let grows = |value: fn(&Scaled) -> u64| value(&one) <= value(&next);
            assert!(grows(|scaled| scaled.sojourn_floor_ns));
            assert!(grows(|scaled| scaled.sojourn_ceiling_ns));
            assert!(grows(|scaled| scaled.overflow_rescue_ns));
            assert!(grows(|scaled| scaled.deficit_budget.into()));
            assert!(grows(|scaled| scaled.longrun_deficit_budget.into()));
            assert!(grows(|scaled| scaled.cpu_queue_depth.into()));
            assert!(grows(|scaled| scaled.mixed_batch_cap_ns));
            assert!(grows(|scaled| scaled.mixed_slice_cap_ns));
            assert!(grows(|scaled| scaled.burst_wakeups_per_tick.into()));
            assert!(grows(|scaled| scaled.vtime_ceiling_ns.unwrap_or(0)));
        }
    }

    #[test]
    fn the_starvation_rescue_has_one_peak() {
        let at = |cpus| Scaled::for_cpus(cpus).starvation_rescue_ns;
        assert!((1..10).all(|cpus| at(cpus) < at(cpus + 1)));
        assert!((10..512).all(|cpus| at(cpus) >= at(cpus + 1)));
        assert_eq!(at(10), 250 * MS);
    }

    #[test]
    fn the_vtime_ceiling_begins_at_eight() {
        assert_eq!(Scaled::for_cpus(7).vtime_ceiling_ns, None);
        assert_eq!(Scaled::for_cpus(8).vtime_ceiling_ns, Some(30 * MS));
    }

    #[test]
    fn no_cpu_and_too_many() {
        assert_eq!(Scaled::for_cpus(0), Scaled::for_cpus(1));
        let most = Scaled::for_cpus(u32::MAX);
        assert_eq!(most.deficit_budget, u32::MAX);
        assert_eq!(most.burst_wakeups_per_tick, u32::MAX);
        assert_eq!(most.starvation_rescue_ns, 20 * MS);
        assert_eq!(most.mixed_batch_cap_ns, u64::from(u32::MAX) * 5 * MS);
    }
}
