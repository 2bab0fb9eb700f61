// SPDX-License-Identifier: GPL-2.0-only
//! The whole loop: examples of a day, and what holds whatever the scheduler counts.

use proptest::prelude::*;

use super::*;
use morpheus_tools::histogram::{BUCKETS, bucket_of_ns};

const US: u64 = 1_000;
const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

/// A second of a mixed load with that many interactive wakes that waited this long.
fn reading(idle_share: f64, wakes: u64, wait_ns: u64) -> Reading {
    let mut histogram = Histogram::default();
    histogram.counts[bucket_of_ns(wait_ns)] = wakes;
    let mut reading = Reading {
        elapsed_ns: SECOND,
        idle_share,
        dispatches: 10_000,
        ..Reading::default()
    };
    reading.wakes[Tier::Interactive.index()] = histogram;
    reading
}

fn calm() -> Reading {
    reading(0.3, 1000, 50 * US)
}

fn slow() -> Reading {
    reading(0.3, 1000, 10 * MS)
}

fn of_cpus(cpus: u32) -> Adaptation {
    Adaptation::new(Scaled::for_cpus(cpus), Switches::default())
}

#[test]
fn a_day() {
    let mut adaptation = of_cpus(4);
    // Nothing to do in the morning.
    adaptation.look(&reading(0.9, 100, 20 * US));
    let morning = adaptation.look(&reading(0.9, 100, 20 * US));
    assert_eq!(morning.regime, Regime::Light);
    assert!(morning.changed);
    assert_eq!(morning.knobs.slice_ns, 2 * MS);
    // Some work, and wakes that wait.
    adaptation.look(&slow());
    let work = adaptation.look(&slow());
    assert_eq!(work.regime, Regime::Mixed);
    assert_eq!(work.knobs.slice_ns, 750 * US);
    assert_eq!(work.knobs.burst_slice_ns, 750 * US);
    assert_eq!(work.knobs.affinity_mode, AffinityMode::Strong);
    let p99_ns = work.p99_ns[Tier::Interactive.index()].unwrap();
    assert!((8_192_000..16_384_000).contains(&p99_ns));
    assert_eq!(work.p99_ns[Tier::Batch.index()], None);
    // A build.
    adaptation.look(&reading(0.0, 1000, MS));
    let build = adaptation.look(&reading(0.0, 1000, MS));
    assert_eq!(build.regime, Regime::Heavy);
    assert_eq!(
        (build.knobs.slice_ns, build.knobs.preempt_thresh_ns),
        (4 * MS, 2 * MS)
    );
}

#[test]
fn tightened_and_relaxed_back_to_the_baseline() {
    let mut adaptation = of_cpus(4);
    let slices: Vec<_> = [slow(), slow(), calm(), calm(), calm(), calm()]
        .iter()
        .map(|reading| adaptation.look(reading).knobs.slice_ns / US)
        .collect();
    assert_eq!(slices, [750, 562, 562, 1000, 1000, 1000]);
    let changes = adaptation.changes();
    assert_eq!((changes.tightened, changes.relaxed), (2, 1));
}

#[test]
fn a_burst_and_slow_wakes_put_the_way_back_off() {
    let mut adaptation = of_cpus(4);
    adaptation.look(&slow());
    let burst = Reading {
        burst: true,
        ..calm()
    };
    for reading in [calm(), burst, calm()] {
        assert_eq!(adaptation.look(&reading).knobs.slice_ns, 750 * US);
    }
    assert_eq!(adaptation.look(&calm()).knobs.slice_ns, MS);
}

#[test]
fn only_the_mixed_regime_tightens() {
    for (idle_share, slice_ns) in [(0.9, 2 * MS), (0.0, 4 * MS)] {
        let mut adaptation = of_cpus(4);
        for _ in 0..10 {
            adaptation.look(&reading(idle_share, 1000, 40 * MS));
        }
        assert_eq!(adaptation.knobs().slice_ns, slice_ns);
    }
}

#[test]
fn a_few_wakes_and_those_of_batch_are_not_judged() {
    let mut adaptation = of_cpus(4);
    assert_eq!(
        adaptation.look(&reading(0.3, 19, 10 * MS)).knobs.slice_ns,
        MS
    );
    let mut batch = slow();
    batch
        .wakes
        .swap(Tier::Interactive.index(), Tier::Batch.index());
    assert_eq!(adaptation.look(&batch).knobs.slice_ns, MS);
    batch
        .wakes
        .swap(Tier::LatCritical.index(), Tier::Batch.index());
    assert_eq!(adaptation.look(&batch).knobs.slice_ns, 750 * US);
}

#[test]
fn sleeps_move_the_batch_slice_and_longrun_does_not_let_them() {
    let mut adaptation = of_cpus(4);
    let io = Reading {
        sleeps: Sleeps {
            counts: [90, 5, 5, 0],
        },
        ..calm()
    };
    let decision = adaptation.look(&io);
    assert_eq!(decision.knobs.batch_slice_ns, 25 * MS);
    assert_eq!(decision.io_percent, Some(90));
    let longrun = Reading {
        longrun: true,
        ..io
    };
    let knobs = adaptation.look(&longrun).knobs;
    assert_eq!(knobs.batch_slice_ns, 20 * MS);
    assert_eq!(knobs.affinity_mode, AffinityMode::Weak);
    let knobs = adaptation.look(&io).knobs;
    assert_eq!(knobs.batch_slice_ns, 25 * MS);
    assert_eq!(knobs.affinity_mode, AffinityMode::Strong);
}

#[test]
fn each_stage_can_be_switched_off() {
    let all = Switches::default();
    // Something for every stage: slow wakes, I/O, few dispatches, then no idle time.
    let busy = |idle_share| Reading {
        sleeps: Sleeps {
            counts: [100, 0, 0, 0],
        },
        dispatches: 100,
        idle_share,
        ..slow()
    };
    let after = |switches| {
        let mut adaptation = Adaptation::new(Scaled::for_cpus(4), switches);
        let mixed = adaptation.look(&busy(0.3)).knobs;
        adaptation.look(&busy(0.0));
        (mixed, adaptation.look(&busy(0.0)))
    };
    let (mixed, heavy) = after(all);
    assert_eq!(heavy.regime, Regime::Heavy);
    assert_eq!(mixed.slice_ns, 750 * US);
    assert_eq!(mixed.batch_slice_ns, 25 * MS);
    assert!(mixed.sojourn_thresh_ns > 5 * MS);

    let (_, without) = after(Switches {
        regimes: false,
        ..all
    });
    assert_eq!(without.regime, Regime::Mixed);
    let (without, _) = after(Switches {
        tighten: false,
        ..all
    });
    assert_eq!(without, mixed.with_slice(MS));
    let (without, _) = after(Switches {
        sleep: false,
        ..all
    });
    assert_eq!(
        without,
        Knobs {
            batch_slice_ns: 20 * MS,
            ..mixed
        }
    );
    let (without, _) = after(Switches {
        sojourn: false,
        ..all
    });
    assert_eq!(
        without,
        Knobs {
            sojourn_thresh_ns: 5 * MS,
            ..mixed
        }
    );
    let (without, last) = after(Switches {
        adapt: false,
        ..all
    });
    assert_eq!(without, Knobs::fixed(&Scaled::for_cpus(4)));
    assert_eq!(last.knobs, without);
    assert!(!last.changed);
}

#[test]
fn a_placement_that_is_asked_for_stays_whatever_the_load_is() {
    for adapt in [true, false] {
        let affinity = Some(AffinityMode::Strong);
        let switches = Switches {
            adapt,
            affinity,
            ..Switches::default()
        };
        let mut adaptation = Adaptation::new(Scaled::for_cpus(4), switches);
        assert_eq!(adaptation.knobs().affinity_mode, AffinityMode::Strong);
        let idle = reading(0.9, 100, 20 * US);
        let heavy = Reading {
            longrun: true,
            ..reading(0.0, 1000, MS)
        };
        for reading in [idle, idle, heavy, heavy] {
            let knobs = adaptation.look(&reading).knobs;
            assert_eq!(knobs.affinity_mode, AffinityMode::Strong, "{adapt}");
        }
    }
}

#[test]
fn another_number_of_cpus() {
    let mut adaptation = of_cpus(16);
    adaptation.look(&slow());
    let one = Scaled::for_cpus(1);
    adaptation.rescale(one);
    let decision = adaptation.look(&calm());
    assert!(decision.changed);
    assert!(decision.knobs.is_sound(&one));
    assert_eq!(decision.knobs.slice_ns, 500 * US);
}

fn counts<const N: usize>() -> impl Strategy<Value = [u64; N]> {
    let count =
        prop_oneof![4 => Just(0), 4 => 0..10_000u64, 1 => Just(u64::MAX), 1 => any::<u64>()];
    proptest::collection::vec(count, N).prop_map(|counts| counts.try_into().expect("as many"))
}

/// Readings that a scheduler may give, and readings that none ever would.
fn readings() -> impl Strategy<Value = Reading> {
    let idle_share = prop_oneof![4 => 0.0..=1.0f64, 1 => any::<f64>(), 1 => Just(f64::NAN)];
    let elapsed_ns = prop_oneof![4 => Just(SECOND), 1 => any::<u64>(), 1 => Just(0)];
    let dispatches = prop_oneof![4 => 0..1_000_000u64, 1 => any::<u64>()];
    let wakes =
        proptest::array::uniform3(counts::<BUCKETS>().prop_map(|counts| Histogram { counts }));
    let sleeps = counts().prop_map(|counts| Sleeps { counts });
    (
        (elapsed_ns, idle_share, dispatches),
        (wakes, sleeps, any::<bool>(), any::<bool>()),
    )
        .prop_map(
            |((elapsed_ns, idle_share, dispatches), (wakes, sleeps, longrun, burst))| Reading {
                elapsed_ns,
                idle_share,
                dispatches,
                wakes,
                sleeps,
                longrun,
                burst,
            },
        )
}

fn switches() -> impl Strategy<Value = Switches> {
    proptest::array::uniform5(any::<bool>()).prop_map(
        |[adapt, regimes, tighten, sleep, sojourn]| Switches {
            adapt,
            regimes,
            tighten,
            sleep,
            sojourn,
            affinity: None,
        },
    )
}

proptest! {
    // Each case takes hundreds of looks.
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn knobs_stay_within_bounds(
        cpus in prop_oneof![0..=512u32, any::<u32>()],
        later_cpus in 0..=512u32,
        switches in switches(),
        first in proptest::collection::vec(readings(), 0..30),
        then in proptest::collection::vec(readings(), 1..30),
    ) {
        let mut scaled = Scaled::for_cpus(cpus);
        let mut adaptation = Adaptation::new(scaled, switches);
        prop_assert!(adaptation.knobs().is_sound(&scaled));
        for reading in &first {
            prop_assert!(adaptation.look(reading).knobs.is_sound(&scaled));
        }
        scaled = Scaled::for_cpus(later_cpus);
        adaptation.rescale(scaled);
        for reading in &then {
            prop_assert!(adaptation.look(reading).knobs.is_sound(&scaled));
        }
    }

    #[test]
    fn constant_readings_come_to_rest(
        cpus in 1..=512u32,
        switches in switches(),
        before in proptest::collection::vec(readings(), 0..30),
        mut constant in readings(),
    ) {
        constant.elapsed_ns = SECOND;
        let mut adaptation = Adaptation::new(Scaled::for_cpus(cpus), switches);
        for reading in &before {
            adaptation.look(reading);
        }
        // An eighth of the way at each look: 6 ms take 130 of them.
        for _ in 0..140 {
            adaptation.look(&constant);
        }
        let rest = adaptation.look(&constant);
        prop_assert!(!rest.changed);
        for _ in 0..5 {
            prop_assert_eq!(adaptation.look(&constant), rest);
        }
    }

    #[test]
    fn the_same_readings_give_the_same_decisions(
        all in proptest::collection::vec(readings(), 1..30),
    ) {
        let (mut one, mut two) = (of_cpus(8), of_cpus(8));
        for reading in &all {
            let before = *one.knobs();
            let decision = one.look(reading);
            prop_assert_eq!(decision, two.look(reading));
            prop_assert_eq!(decision.changed, decision.knobs != before);
        }
    }

    #[test]
    fn tightened_then_calm_is_the_baseline(
        cpus in 1..=512u32,
        before in proptest::collection::vec(readings(), 0..30),
    ) {
        let scaled = Scaled::for_cpus(cpus);
        let mut adaptation = Adaptation::new(scaled, Switches::default());
        for reading in &before {
            adaptation.look(reading);
        }
        for _ in 0..5 {
            adaptation.look(&slow());
        }
        prop_assert!(adaptation.knobs().slice_ns <= 500 * US);
        for _ in 0..20 {
            adaptation.look(&calm());
        }
        let baseline = Knobs::baseline(Regime::Mixed, &scaled);
        prop_assert_eq!(adaptation.knobs().slice_ns, baseline.slice_ns);
        prop_assert_eq!(adaptation.knobs().burst_slice_ns, baseline.burst_slice_ns);
    }

    #[test]
    fn longrun_forces_weak_affinity(
        before in proptest::collection::vec(readings(), 0..30),
        switches in switches(),
        mut longrun in readings(),
    ) {
        longrun.longrun = true;
        let mut adaptation = Adaptation::new(Scaled::for_cpus(8), switches);
        for reading in &before {
            adaptation.look(reading);
        }
        let knobs = adaptation.look(&longrun).knobs;
        prop_assert_eq!(knobs.affinity_mode, AffinityMode::Weak);
        let baseline = Knobs::baseline(adaptation.regime(), &Scaled::for_cpus(8));
        prop_assert_eq!(knobs.batch_slice_ns, baseline.batch_slice_ns);
    }
}
