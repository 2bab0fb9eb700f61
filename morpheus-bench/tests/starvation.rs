//! The binary as its users call it.

mod common;

use std::process::Output;

use common::{Found, median, row};
use morpheus_harness::hdr_log;
use morpheus_harness::report::WIDTH;

const PROGRAM: &str = env!("CARGO_BIN_EXE_starvation");

fn starvation(arguments: &str) -> Output {
    common::run(PROGRAM, arguments)
}

fn found(arguments: &str) -> Found {
    let line = format!("--duration 1 --warmup 0.2 {arguments}");
    let found: Found = common::json(PROGRAM, &line);
    assert!(found.failed.is_empty(), "{found:?}");
    found
}

#[test]
fn json_has_the_rounds_of_each_figure() {
    let found = found("--runtime tokio,tokio+2 --hogs 0 --rounds 2");
    assert_eq!(found.bench, "starvation");
    for runtime in ["tokio", "tokio+2"] {
        for figure in ["wakes", "wake p50", "timer p99"] {
            let row = row(&found, runtime, figure).unwrap();
            assert_eq!((row.n, row.rounds.len()), (2, 2), "{row:?}");
        }
        assert!(median(&found, runtime, "wakes") >= 900.0, "{found:?}");
        for figure in ["hogs' CPU", "requests/s", "takeovers"] {
            assert!(row(&found, runtime, figure).is_none(), "{figure}");
        }
    }
    let curves = found.rows.iter().filter(|row| row.curve.len() > 5);
    assert_eq!(curves.count(), 4, "wakes and timers of both");
}

#[test]
fn histograms_of_all_rounds_go_into_a_log() {
    let path = std::env::temp_dir().join(format!("starvation-cli-{}.hlog", std::process::id()));
    let line = format!(
        "--runtime tokio --hogs 0 --rounds 2 --histogram {}",
        path.display()
    );
    let found = found(&line);
    let log = hdr_log::read(&std::fs::read(&path).unwrap()).unwrap();
    std::fs::remove_file(&path).unwrap();
    let tags: Vec<&str> = log.iter().map(|(tag, _)| tag.as_str()).collect();
    assert_eq!(tags, ["tokio-wake", "tokio-timer"]);
    let wakes: f64 = row(&found, "tokio", "wakes").unwrap().rounds.iter().sum();
    assert_eq!(log[0].1.len() as f64, wakes);
    assert!(!starvation("--suite --histogram x").status.success());
}

/// The least that can be said of any machine: hogs on every worker do not let the wakes settle, and their absence does in one
/// of sixteen runs. The first of them share the CPUs with this file's other tests, which have hogs of their own.
#[test]
fn counting_begins_when_the_wakes_have_settled_or_is_said_to_have_begun_before() {
    let has_settled = |arguments: &str| {
        let line = format!("--runtime tokio --workers 1 --duration 0.1 {arguments}");
        let found: Found = common::json(PROGRAM, &line);
        !found
            .notes
            .iter()
            .any(|note| note.contains("had not settled"))
    };
    assert!(!has_settled("--hogs 1 --hog-ms 150 --warmup 0.2"));
    assert!((0..16).any(|_| has_settled("--hogs 0 --warmup 1.5")));
}

#[test]
fn morpheus_and_smol_run_the_same_code() {
    let found =
        found("--runtime morpheus,smol --hogs 1 --hog-ms 5 --load 2 --load-rate 200 --busy 2");
    for runtime in ["morpheus", "smol"] {
        for figure in ["hog polls", "requests/s", "polls/s"] {
            assert!(median(&found, runtime, figure) > 0.0, "{figure}: {found:?}");
        }
        assert_eq!(median(&found, runtime, "unfinished"), 0.0, "{found:?}");
    }
    assert!(row(&found, "morpheus", "takeovers").is_some());
}

#[test]
fn every_kind_of_hog_stalls_and_comes_out() {
    for kind in ["cpu", "sleep", "mutex", "read"] {
        let line = format!("--runtime tokio+4 --hogs 2 --hog-ms 20 --hog-kind {kind} --fresh");
        let found = found(&line);
        // 50 times each if nothing else ran on the machine.
        let polls = median(&found, "tokio+4", "hog polls");
        let unfinished = median(&found, "tokio+4", "unfinished");
        assert!(
            (2.0..=110.0).contains(&polls) && unfinished == 0.0,
            "{kind}: {found:?}"
        );
    }
}

/// The benchmark can fail: a hog on tokio's only worker is seen, and without one nothing is.
#[test]
fn a_hog_starves_tokio_and_its_absence_does_not() {
    let p99 = |hogs: usize| {
        let found = found(&format!(
            "--runtime tokio --workers 1 --hogs {hogs} --hog-ms 200"
        ));
        median(&found, "tokio", "timer p99")
    };
    assert!(p99(1) >= 50e6);
    // The least of three: another job on the machine makes sleepers late, too.
    let calm = (0..3).map(|_| p99(0)).fold(f64::INFINITY, f64::min);
    assert!(calm < 50e6, "{calm} ns without hogs");
}

#[test]
fn people_get_a_table_and_a_sentence() {
    let output = starvation("--runtime tokio --hogs 0 --duration 0.3 --warmup 0.1");
    let text = String::from_utf8(output.stdout).unwrap();
    // Whether it ran or stood still is for the machine to say.
    let expected = ["timer p50", "Without hogs, tokio "];
    common::assert_table(&text, WIDTH, &expected);
}

#[test]
fn bad_usage_exits_with_2_and_says_what_is_right() {
    for (arguments, expected) in [
        ("--runtime tokyo", "tokio+32+slice"),
        ("--workers 0", "from 1 to 1024"),
        ("--period-us 0", "from 10 to"),
        ("--suite --suite-only nothing", "hogs-2"),
    ] {
        let output = starvation(arguments);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments}");
        assert!(said.contains(expected), "{arguments}: {said}");
    }
}
