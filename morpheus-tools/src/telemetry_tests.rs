//! Tests of [`super`].

use serde_json::json;

use super::*;

fn reading(numbers: serde_json::Value) -> Reading {
    Reading::parse(&numbers)
}

fn histogram(buckets: &[(usize, u64)]) -> WakeHistogram {
    let mut histogram = [0; BUCKETS];
    for (index, count) in buckets {
        histogram[*index] = *count;
    }
    histogram
}

#[test]
fn a_full_line() {
    let before = reading(json!({
        "counters": { "to_main": 100, "from_main": 50, "to_idle_cpu": 0, "kicks_for_waiting": 10, "rescues": 0,
            "l2_hits_batch": 0, "l2_misses_batch": 0 },
        "sleeps": [0, 0, 0, 0],
    }));
    let now = reading(json!({
        "processes": 1, "workers": 2, "refused": 0, "idle_share": 0.05,
        "counters": { "to_main": 300, "from_main": 250, "to_idle_cpu": 20, "kicks_for_waiting": 30,
            "kicks_idle": 40, "near_waits_over": 4, "kicks_skipped": 1000, "kicks_skipped_for_sync": 1000,
            "from_limited": 1000, "from_overflow_rescue": 10, "rescues": 2, "from_sojourn_rescue": 1, "demotions": 1,
            "wakeups": 80, "preempted_at_tick": 5, "locks_to_peek": 20, "locks_to_take": 201, "l2_hits_batch": 67, "l2_misses_batch": 33 },
        "tiers": { "interactive": { "wake_latency": histogram(&[(2, 100)]) } },
        "sleeps": [87, 10, 2, 1], "regime": "heavy", "burst": true, "longrun": true,
        "batch_waits_ns": 3_000_000, "knobs": { "sojourn_thresh_ns": 5_000_000 },
        "procdb": { "profiles": 42, "confident": 5 },
    }));
    let rates = Rates::between(&before, &now, Duration::from_secs(2));
    assert_eq!(
        (rates.wakeups(0), rates.wakeups(1), rates.wakeups(9)),
        (None, Some(50.0), None)
    );
    assert_eq!(
        line(&now, &rates),
        "processes 1, workers 2, refused 0; dispatches 110/s; idle 5 %; wake: interactive 6.0 µs p99 8.0 µs; \
         to: main 100/s, idle cpu 10/s; from: limited 500/s, main 100/s, overflow rescue 5.0/s, \
         sojourn rescue 0.5/s; locks per pick 1.10; preempted at tick 2.5/s; \
         kicks hard 10/s; kicks soft 22/s; wakeups 40/s; L2: batch 67 %; procdb 42/5; sleeps for io 87 %; \
         sojourn 3.0/5.0 ms; rescues 6.5/s; workers: demotions 0.5/s; [HEAVY BURST LONGRUN]"
    );
}

#[test]
fn what_is_missing_is_left_out() {
    let nothing = Reading::default();
    let rates = Rates::between(&nothing, &nothing, Duration::ZERO);
    assert_eq!(line(&nothing, &rates), "processes 0, workers 0, refused 0");
    let observer = reading(json!({ "runs": "observer", "processes": 1, "workers": 8,
        "counters": { "events": 6, "samples": 9, "kept": 0, "from_main": 0, "rescues": 0 } }));
    let rates = Rates::between(&nothing, &observer, Duration::from_secs(1));
    assert_eq!(
        line(&observer, &rates),
        "processes 1, workers 8, refused 0; workers: events 6.0/s"
    );
}

#[test]
fn a_daemon_that_was_started_anew_counts_from_zero() {
    let old = reading(json!({
        "counters": { "kept": 1000 }, "sleeps": [100, 0, 0, 0],
        "tiers": { "batch": { "wake_latency": histogram(&[(0, 50), (5, 5)]) } },
    }));
    let new = reading(json!({
        "counters": { "kept": 10 }, "sleeps": [1, 1, 0, 0],
        "tiers": { "batch": { "wake_latency": histogram(&[(0, 60), (5, 1)]) } },
    }));
    let rates = Rates::between(&old, &new, Duration::from_secs(1));
    assert_eq!(rates.of("kept"), Some(10.0));
    assert_eq!(rates.wake[2], Some(histogram(&[(0, 60), (5, 1)])));
    assert_eq!(rates.sleeps_for_io, Some(0.5));
    assert_eq!(rates.of("to_main"), None);
    assert_eq!(rates.dispatches(), None);
}

#[test]
fn quantiles_are_within_their_bucket() {
    assert_eq!(quantile(&histogram(&[]), 0.5), None);
    assert_eq!(mean(&histogram(&[])), None);
    let spread = histogram(&[(0, 98), (10, 2)]);
    let p50 = quantile(&spread, 0.5).unwrap();
    assert!((0.0..2.0).contains(&p50.us), "{p50}");
    let p99 = quantile(&spread, 0.99).unwrap();
    assert!((1024.0..=2048.0).contains(&p99.us), "{p99}");
    let long = quantile(&histogram(&[(15, 1)]), 0.5).unwrap();
    assert_eq!(long.to_string(), "≥ 33 ms");
    for share in [-1.0, 0.0, 0.5, 1.0, 2.0] {
        let huge = quantile(&[u64::MAX; BUCKETS], share).unwrap();
        assert!(huge.us.is_finite());
    }
    assert!(mean(&[u64::MAX; BUCKETS]).unwrap().us.is_finite());
}

#[test]
fn buckets_touch() {
    assert_eq!(bucket_start_us(0), 0);
    for index in 1..BUCKETS {
        assert_eq!(bucket_end_us(index - 1), Some(bucket_start_us(index)));
    }
    assert_eq!(bucket_end_us(BUCKETS - 1), None);
}

#[test]
fn latencies_and_rates_in_words() {
    let text = |us| Latency { us, or_more: false }.to_string();
    assert_eq!(text(4.25), "4.2 µs");
    assert_eq!(text(850.0), "850 µs");
    assert_eq!(text(1300.0), "1.3 ms");
    assert_eq!(text(33_000.0), "33 ms");
    assert_eq!(rate_text(0.0), "0");
    assert_eq!(rate_text(0.01), "<0.1");
    assert_eq!(rate_text(3.0), "3.0");
    assert_eq!(rate_text(251_000.4), "251000");
}
