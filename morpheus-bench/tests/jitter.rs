//! The binary as its users call it.

mod common;

use std::process::Output;

use common::{Found, median, row};
use morpheus_harness::report::WIDTH;

const PROGRAM: &str = env!("CARGO_BIN_EXE_jitter");

fn jitter(arguments: &str) -> Output {
    common::run(PROGRAM, arguments)
}

fn found(arguments: &str) -> Found {
    let found: Found = common::json(PROGRAM, arguments);
    assert!(
        found.failed.is_empty() && !found.interrupted,
        "{arguments}: {found:?}"
    );
    found
}

/// The answer of a sweep.
fn answer(found: &Found) -> Option<&String> {
    let is_answer = |note: &&String| note.starts_with("Do longer sleeps wake later?");
    found.notes.iter().find(is_answer)
}

#[test]
fn json_has_rows_for_each_slack_and_load() {
    let found = found("2 40 --load 1");
    assert_eq!(found.bench, "jitter");
    assert_eq!(found.config["interval_ms"], 2.0);
    let kinds = [
        ("slack 50.0 µs, load 0", 50_000.0),
        ("slack 1 ns, load 0", 1.0),
        ("slack 50.0 µs, load 1", 50_000.0),
        ("slack 1 ns, load 1", 1.0),
    ];
    let p50s = found.rows.iter().filter(|row| row.figure == "late p50");
    let contenders: Vec<&str> = p50s.clone().map(|row| row.contender.as_str()).collect();
    assert_eq!(contenders, kinds.map(|(kind, _)| kind));
    for (p50, (kind, slack_ns)) in p50s.zip(kinds) {
        assert_eq!((p50.n, p50.case.as_str()), (40, "sleeps of 2.0 ms"));
        assert_eq!(median(&found, kind, "samples"), 40.0);
        assert_eq!(median(&found, kind, "its slack"), slack_ns);
        assert!(median(&found, kind, "mean") > 0.0);
        assert!(row(&found, kind, "stdev").is_some());
        assert!(p50.low.unwrap() <= p50.median.unwrap() && p50.median <= p50.high);
        assert!(row(&found, kind, "late p99").is_none() && p50.curve.len() > 1);
    }
    let about = &found.cases[0].about;
    assert_eq!(about, "how late each wake is, from the intended start");
    assert!(answer(&found).is_none());
}

#[test]
fn relative_sleeps_are_raw_and_have_corrected_figures_beside_them() {
    let found = found("1 20 --relative");
    let samples = |counts: &str| median(&found, &format!("slack 1 ns, {counts}"), "samples");
    assert!(samples("raw") == 20.0 && samples("corrected") >= 20.0);
}

#[test]
fn a_sweep_answers() {
    let found = found("1 8 --sweep");
    let p50s = found.rows.iter().filter(|row| row.figure == "late p50");
    assert_eq!((p50s.count(), found.cases.len()), (15, 3));
    assert!(answer(&found).is_some());
    assert!(found.config["cpu"].is_u64());
}

#[test]
fn people_get_tables() {
    let text = String::from_utf8(jitter("1 10").stdout).unwrap();
    let expected = [
        " ms, ",
        "mean",
        "stdev",
        "slack 50.0 µs",
        "slack 1 ns",
        "95 % of late p50",
        "A p99 needs 1,000 sleeps, a p99.9 10,000.",
    ];
    common::assert_table(&text, WIDTH, &expected);
}

#[test]
fn cyclictest_lines_have_its_form() {
    let text = String::from_utf8(jitter("1 10 --cyclictest").stdout).unwrap();
    assert_eq!(text.lines().count(), 2);
    for line in text.lines() {
        assert!(line.starts_with("T: "), "{line}");
        for part in [" P: 0 I:1000 C:     10 Min:", " Act:", " Avg:", " Max:"] {
            assert!(line.contains(part), "{part}: {line}");
        }
    }
}

#[test]
fn a_histogram_log_has_a_line_for_each_kind() {
    let path = std::env::temp_dir().join(format!("jitter-{}.hlog", std::process::id()));
    let output = jitter(&format!("1 10 --relative --histogram {}", path.display()));
    assert!(output.status.success(), "{output:?}");
    let log = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let tagged = log
        .lines()
        .filter(|line| line.starts_with("Tag=nanosleep-1000us-slack-"));
    assert_eq!(tagged.count(), 4, "{log}");
    assert!(
        log.contains("HIST") && log.contains("#[StartTime:"),
        "{log}"
    );
    let refused = jitter("1 1 --histogram /nowhere/file");
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8_lossy(&refused.stdout);
    assert!(
        said.contains("late p50") && said.contains("/nowhere/file"),
        "{said}"
    );
}

/// Whether it may depends on who runs the tests; either it does it or it says why not.
#[test]
fn a_real_time_policy_is_taken_or_explained() {
    for policy in ["fifo", "rr", "deadline"] {
        let output = jitter(&format!("5 5 --json --policy {policy}"));
        let found: Found = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(found.config["policy"], policy);
        match output.status.code() {
            Some(0) => assert!(
                !found.rows.is_empty() && found.failed.is_empty(),
                "{found:?}"
            ),
            code => {
                assert_eq!(code, Some(1), "{found:?}");
                let refused = format!("refuses the policy {policy}");
                assert!(found.failed[0].contains(&refused), "{found:?}");
            }
        }
    }
}

#[test]
fn a_cpu_that_is_not_there_is_refused() {
    for form in ["", "--cyclictest"] {
        let output = jitter(&format!("1 1 --cpu 1023 {form}"));
        assert_eq!(output.status.code(), Some(1));
        let said = if form.is_empty() {
            output.stdout
        } else {
            output.stderr
        };
        let said = String::from_utf8_lossy(&said);
        assert!(said.contains("CPU 1023"), "{said}");
    }
}
