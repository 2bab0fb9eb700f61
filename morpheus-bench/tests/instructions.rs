//! The binary as its users call it. Counting takes a build with optimizations: `cargo xtask test` has a step for it.

mod common;

use morpheus_bench::instructions::{Judged, Report};

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
        let report: Report = serde_json::from_slice(&output.stdout).unwrap();
        (output.status.code(), report)
    };
    let (code, first) = run(&format!("{line} --bless"));
    assert_eq!(code, Some(0));
    let (code, second) = run(&line);
    assert_eq!(code, Some(0), "{first:?} {second:?}");
    for (a, b) in first.differences.iter().zip(&second.differences) {
        let apart = (a.instructions - b.instructions).abs();
        assert!(apart <= 0.02 * a.instructions.max(100.0), "{a:?} {b:?}");
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
    assert!(
        third
            .differences
            .iter()
            .all(|one| one.judged == Judged::Worse)
    );
}
