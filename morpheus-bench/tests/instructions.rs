//! The binary as its users call it. Counting takes a build with optimizations: `cargo xtask test` has a step for it.

mod common;

use morpheus_harness::envelope::Envelope;
use morpheus_harness::pairs::Bar;
use morpheus_harness::rows::Row;
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_instructions");

fn has_valgrind() -> bool {
    let there = std::process::Command::new("valgrind")
        .arg("--version")
        .output();
    there.is_ok_and(|output| output.status.success())
}

#[test]
fn a_debug_build_says_what_to_do() {
    if !cfg!(debug_assertions) {
        return morpheus_testing::skip("needs a debug build");
    }
    let output = common::run(PROGRAM, "");
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("--release"), "{said}");
}

/// Twice the same counts, within the tolerance; and what takes fewer than it may is no failure, and what takes more is one.
#[test]
fn counts_repeat_and_a_regression_is_seen() {
    if cfg!(debug_assertions) || !has_valgrind() {
        return morpheus_testing::skip("needs valgrind and a release build");
    }
    let file = std::env::temp_dir().join(format!("expected-{}.json", std::process::id()));
    let line = format!("--expected {} --json", file.display());
    let run = |arguments: &str| {
        let output = common::run(PROGRAM, arguments);
        let found: Envelope<Value> = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code(), found.rows)
    };
    let (code, first) = run(&format!("{line} --bless"));
    assert_eq!(code, Some(0));
    let (code, second) = run(&line);
    assert_eq!(code, Some(0), "{first:?} {second:?}");
    let counted = |rows: &[Row]| -> Vec<f64> {
        let counted = rows.iter().filter(|row| row.figure == "instructions");
        counted.filter_map(|row| row.median).collect()
    };
    assert_eq!(counted(&first).len(), 12);
    for (a, b) in counted(&first).into_iter().zip(counted(&second)) {
        assert!((a - b).abs() <= 0.02 * a.max(100.0), "{first:?} {second:?}");
    }
    // As if all had taken fewer before.
    let mut expected: Vec<serde_json::Value> =
        serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    for one in &mut expected {
        one["difference"] = (one["difference"].as_f64().unwrap() - 1_000.0).into();
    }
    std::fs::write(&file, serde_json::to_string(&expected).unwrap()).unwrap();
    let (code, third) = run(&line);
    std::fs::remove_file(&file).unwrap();
    assert_eq!(code, Some(1));
    let judged: Vec<Bar> = third.iter().filter_map(|row| row.judged).collect();
    assert_eq!(judged, [Bar::Missed; 8]);
}
