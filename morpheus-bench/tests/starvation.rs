//! The binary as its users call it.

mod common;

use std::process::Output;
use std::time::Duration;

use morpheus_bench::hdr_log;
use morpheus_bench::starvation::WIDTH;
use morpheus_bench::starvation::result::{Report, RunResult};

const PROGRAM: &str = env!("CARGO_BIN_EXE_starvation");

fn starvation(arguments: &str) -> Output {
    common::run(PROGRAM, arguments)
}

fn report(arguments: &str) -> Report {
    common::json(PROGRAM, &format!("--duration 1 --warmup 0.2 {arguments}"))
}

#[test]
fn json_is_one_object_with_the_runs() {
    let report = report("--runtime tokio,tokio+2 --hogs 0 --rounds 2");
    assert_eq!(report.bench, "starvation");
    let order: Vec<String> = report
        .runs
        .iter()
        .map(|run| run.runtime.to_string())
        .collect();
    assert_eq!(order, ["tokio", "tokio+2", "tokio+2", "tokio"]);
    for run in &report.runs {
        assert_eq!(run.failed, None);
        assert!(run.wake_ns.n >= 900 && run.timer_ns.n >= 10_000, "{run:?}");
        assert!(run.hog.is_none() && run.load.is_none() && run.escalations.is_none());
    }
    assert_eq!(report.medians.len(), 2);
}

#[test]
fn histograms_of_all_rounds_go_into_a_log() {
    let path = std::env::temp_dir().join(format!("starvation-cli-{}.hlog", std::process::id()));
    let line = format!(
        "--runtime tokio --hogs 0 --rounds 2 --histogram {}",
        path.display()
    );
    let report = report(&line);
    let log = hdr_log::read(&std::fs::read(&path).unwrap()).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(log.len(), 2);
    let n = |figure: fn(&RunResult) -> u64| -> u64 { report.runs.iter().map(figure).sum() };
    for ((tag, latencies), (name, n)) in log.iter().zip([
        ("tokio-wake", n(|run| run.wake_ns.n)),
        ("tokio-timer", n(|run| run.timer_ns.n)),
    ]) {
        assert_eq!((tag.as_str(), latencies.len()), (name, n));
    }
    assert!(!starvation("--suite --histogram x").status.success());
}

#[test]
fn ctrl_c_shows_what_was_measured_and_is_an_exit_code() {
    let arguments = "--runtime tokio --hogs 0 --duration 60";
    let report: Report = common::json_of_interrupted(PROGRAM, arguments, Duration::from_secs(3));
    assert!(report.interrupted && report.runs[0].wake_ns.n > 0);
}

/// The least that can be said of any machine: it is never shorter than was asked for, nor twice as long and more.
#[test]
fn counting_begins_when_the_wakes_have_settled_or_after_twice_the_warm_up() {
    let warmup = |arguments: &str| {
        let report = common::json::<Report>(
            PROGRAM,
            &format!("--runtime tokio --workers 1 --duration 0.1 {arguments}"),
        );
        assert_eq!(report.medians[0].warmup, report.runs[0].warmup);
        report.runs[0].warmup.unwrap()
    };
    let hogged = warmup("--hogs 1 --hog-ms 150 --warmup 0.2");
    assert!(!hogged.settled, "{hogged:?}");
    assert!((0.4..1.0).contains(&hogged.lasted_s), "{hogged:?}");
    // On a quiet machine this settles; one run of three does on any.
    let mut calm = (0..3).map(|_| warmup("--hogs 0 --warmup 1.5"));
    assert!(calm.any(|calm| {
        assert!((1.5..4.0).contains(&calm.lasted_s), "{calm:?}");
        calm.settled
    }));
}

#[test]
fn morpheus_and_smol_run_the_same_code() {
    let report =
        report("--runtime morpheus,smol --hogs 1 --hog-ms 5 --load 2 --load-rate 200 --busy 2");
    for run in &report.runs {
        assert_eq!(run.failed, None);
        let (hog, load) = (run.hog.as_ref().unwrap(), run.load.as_ref().unwrap());
        assert!(hog.polls > 0 && hog.unfinished == 0, "{run:?}");
        assert!(load.requests_per_s > 0.0 && run.busy.as_ref().unwrap().polls_per_s > 0.0);
    }
    assert!(report.runs[0].escalations.is_some());
}

#[test]
fn every_kind_of_hog_gets_stuck_and_comes_out() {
    for kind in ["cpu", "sleep", "mutex", "read"] {
        let line = format!("--runtime tokio+4 --hogs 2 --hog-ms 20 --hog-kind {kind} --fresh");
        let report = report(&line);
        let hog = report.runs[0].hog.as_ref().unwrap();
        // 50 times each if nothing else ran on the machine.
        assert!(
            (2..=110).contains(&hog.polls) && hog.unfinished == 0,
            "{kind}: {hog:?}"
        );
    }
}

/// The benchmark can fail: a hog on tokio's only worker is seen, and without one nothing is.
#[test]
fn a_hog_starves_tokio_and_its_absence_does_not() {
    let p99 = |hogs: usize| {
        let report = report(&format!(
            "--runtime tokio --workers 1 --hogs {hogs} --hog-ms 200"
        ));
        report.runs[0].timer_ns.p99.unwrap()
    };
    assert!(p99(1) >= 50_000_000);
    // The least of three: another job on the machine makes sleepers late, too.
    let calm = (0..3).map(|_| p99(0)).min().unwrap();
    assert!(calm < 50_000_000, "{calm} ns without hogs");
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
