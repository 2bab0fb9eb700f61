// SPDX-License-Identifier: GPL-2.0-only
//! Tests of learning, predicting and forgetting.

use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000_000;

/// A name from a text.
pub(super) fn comm(text: &str) -> [u8; COMM_BYTES] {
    let mut comm = [0; COMM_BYTES];
    comm[..text.len()].copy_from_slice(text.as_bytes());
    comm
}

/// Observes a name this number of times.
pub(super) fn observe(database: &mut ProcDb, text: &str, tier: Tier, runtime_ns: u64, times: u32) {
    for _ in 0..times {
        database.observe(comm(text), tier, runtime_ns);
    }
}

#[test]
fn predicted_once_nine_observations_agree() {
    let mut database = ProcDb::new();
    observe(&mut database, "cc1", Tier::Batch, 8 * MS, CONFIDENT_FROM);
    assert_eq!((database.len(), database.confident()), (1, 0));
    observe(&mut database, "cc1", Tier::Batch, 8 * MS, 1);
    let predictions: Vec<_> = database.predictions().collect();
    assert_eq!(
        predictions,
        [Prediction {
            comm: comm("cc1"),
            tier: Tier::Batch,
            avg_runtime_ns: 8 * MS,
        }]
    );
}

#[test]
fn another_tier_ends_the_confidence() {
    let mut database = ProcDb::new();
    observe(&mut database, "bash", Tier::Interactive, MS, 100);
    assert_eq!(database.confident(), 1);
    observe(&mut database, "bash", Tier::Batch, MS, 1);
    assert_eq!(database.confident(), 0);
    observe(&mut database, "bash", Tier::Batch, MS, CONFIDENT_FROM);
    assert_eq!(database.predictions().next().unwrap().tier, Tier::Batch);
}

#[test]
fn one_tier_but_any_run_time_is_never_predicted() {
    let mut database = ProcDb::new();
    for turn in 0..200 {
        let runtime_ns = if turn % 2 == 0 { MS / 10 } else { 10 * MS };
        database.observe(comm("python3"), Tier::Batch, runtime_ns);
        assert_eq!(database.confident(), 0, "{turn}");
    }
}

#[test]
fn the_average_arrives_and_doubt_comes_first() {
    let mut database = ProcDb::new();
    observe(&mut database, "make", Tier::Batch, MS, 100);
    // Two that disagree by far are enough: 32, 16, 8, 4.
    observe(&mut database, "make", Tier::Batch, 100 * MS, 3);
    assert_eq!(database.confident(), 0);
    observe(&mut database, "make", Tier::Batch, 100 * MS, 300);
    let profile = database.profile(comm("make")).unwrap();
    assert_eq!(profile.avg_runtime_ns, 100 * MS);
    assert!(profile.is_confident());
    assert_eq!(profile.observations, 403);
}

#[test]
fn a_few_microseconds_agree_though_they_vary() {
    let mut database = ProcDb::new();
    for turn in 0..20 {
        database.observe(comm("kworker"), Tier::LatCritical, turn % 10 * 1_000);
    }
    assert_eq!(database.confident(), 1);
}

#[test]
fn names_end_at_the_first_zero() {
    let mut database = ProcDb::new();
    database.observe(*b"sh\0ft over here\0", Tier::Batch, MS);
    database.observe(comm("sh"), Tier::Batch, MS);
    database.observe([0; COMM_BYTES], Tier::Batch, MS);
    database.observe(*b"\0left over here\0", Tier::Batch, MS);
    assert_eq!(database.len(), 1);
    assert_eq!(database.profile(comm("sh")).unwrap().observations, 2);
    // And need not have one.
    database.observe([0xff; COMM_BYTES], Tier::Batch, MS);
    assert_eq!(
        database.profile([0xff; COMM_BYTES]).unwrap().observations,
        1
    );
}

fn full() -> ProcDb {
    let mut database = ProcDb::new();
    for number in 0..CAPACITY {
        observe(&mut database, &format!("n{number:04}"), Tier::Batch, MS, 2);
    }
    database
}

#[test]
fn the_stalest_goes_then_the_least_seen_then_the_first_by_name() {
    let mut database = full();
    // All but two were seen again, an age later.
    for _ in 0..LOOKS_PER_AGE {
        database.advance();
    }
    for number in (0..CAPACITY).filter(|number| ![500, 600].contains(number)) {
        observe(&mut database, &format!("n{number:04}"), Tier::Batch, MS, 1);
    }
    let gone = |database: &ProcDb, text: &str| database.profile(comm(text)).is_none();
    observe(&mut database, "new 1", Tier::Batch, MS, 10);
    assert!(gone(&database, "n0500") && !gone(&database, "n0600"));
    observe(&mut database, "new 2", Tier::Batch, MS, 2);
    assert!(gone(&database, "n0600"));
    // None is staler now. The least seen is the newer of the new ones.
    observe(&mut database, "new 3", Tier::Batch, MS, 10);
    assert!(gone(&database, "new 2") && !gone(&database, "new 1"));
    observe(&mut database, "new 4", Tier::Batch, MS, 1);
    assert!(gone(&database, "n0000") && !gone(&database, "n0001"));
    assert_eq!(database.len(), CAPACITY);
}

#[test]
fn a_flood_of_names_does_not_wash_out_what_is_known() {
    let mut database = ProcDb::new();
    for number in 0..CAPACITY / 2 {
        observe(&mut database, &format!("n{number:04}"), Tier::Batch, MS, 20);
    }
    for number in 0..3 * CAPACITY {
        observe(
            &mut database,
            &format!("x{number}"),
            Tier::LatCritical,
            MS,
            1,
        );
    }
    assert_eq!(database.len(), CAPACITY);
    assert_eq!(database.confident(), CAPACITY / 2);
}

proptest! {
    // Each case evicts thousands.
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn the_same_observations_make_the_same_database(
        all in proptest::collection::vec(
            (any::<[u8; COMM_BYTES]>(), 0..3u32, any::<u64>(), any::<bool>()),
            0..3 * CAPACITY,
        ),
    ) {
        let (mut one, mut two) = (ProcDb::new(), ProcDb::new());
        for database in [&mut one, &mut two] {
            for (comm, tier, runtime_ns, advance) in &all {
                database.observe(*comm, Tier::from_number(*tier).expect("one of three"), *runtime_ns);
                if *advance {
                    database.advance();
                }
            }
        }
        prop_assert_eq!(&one, &two);
        prop_assert!(one.len() <= CAPACITY);
        prop_assert!(one.confident() <= one.len());
    }
}
