//! The binary as its users call it. How long a loop takes is the machine's affair and not judged here.

mod common;

use std::process::Output;
use std::time::Duration;

use morpheus_bench::loops::{Form, Report, WIDTH, names};
use morpheus_bench::pairs::Verdict;

const PROGRAM: &str = env!("CARGO_BIN_EXE_loops");

fn loops(arguments: &str) -> Output {
    common::run(PROGRAM, arguments)
}

fn report(arguments: &str) -> Report {
    common::json(PROGRAM, arguments)
}

#[test]
fn every_form_is_measured_against_plain() {
    let report = report("--case fnv,collatz,byte_search --pairs 2 --window-ms 0.2");
    let measured: Vec<&str> = report.loops.iter().map(|one| one.name.as_str()).collect();
    assert_eq!(measured, ["fnv", "collatz", "byte_search"]);
    for one in &report.loops {
        assert_eq!(one.failed, None);
        assert!(one.plain_ns.is_some_and(|ns| ns > 0.0));
        assert!((1..=one.turns).contains(&one.block));
        let forms: Vec<Form> = one.compared.iter().map(|form| form.form).collect();
        assert_eq!(forms, Form::COMPARED);
        for form in &one.compared {
            assert_eq!(form.cpu.pairs.differences.len(), 2);
            assert_eq!(form.cpu.verdict, Verdict::TooFew { pairs: 2 });
        }
    }
    assert_eq!(report.summaries.len(), Form::COMPARED.len());
    assert!(!report.interrupted);
}

/// The control: a checkpoint in each turn of a vectorised loop is seen, whatever the noise. Only where the plain loop is
/// optimised: elsewhere there is nothing to lose.
#[test]
fn a_checkpoint_in_each_turn_shows_what_is_lost() {
    if cfg!(debug_assertions) {
        return morpheus_testing::skip("needs a release build: a debug build vectorises nothing");
    }
    let report = report("--case sum_u32 --pairs 10 --window-ms 1");
    let of = |form| report.loops[0].of(form).and_then(|one| one.cpu.median());
    let (every, strips) = (of(Form::EveryTurn).unwrap().0, of(Form::Strips).unwrap().0);
    assert!(every > 3.0, "a turn with a checkpoint: {every}");
    assert!(strips < every / 2.0, "strips: {strips} beside {every}");
}

#[test]
fn people_get_a_table() {
    let output = loops("--case crc32,chase --pairs 1 --window-ms 0.2");
    let text = String::from_utf8(output.stdout).unwrap();
    let expected = ["crc32", "chase", "strip!", "n too small", "bar 1.050"];
    common::assert_table(&text, WIDTH, &expected);
}

#[test]
fn bad_usage_exits_with_2_and_help_teaches() {
    common::assert_refused(
        PROGRAM,
        &[
            "--case nonsense",
            "--pairs 0",
            "--window-ms 0",
            "--spares x",
        ],
    );
    let help = String::from_utf8(loops("--help").stdout).unwrap();
    assert!(help.contains("Examples:") && help.contains("Exit codes:"));
    let list = String::from_utf8(loops("--list").stdout).unwrap();
    assert_eq!(list.lines().count(), names().len() + 1);
}

#[test]
fn ctrl_c_shows_what_was_measured() {
    let arguments = "--case collatz --pairs 10000 --window-ms 1";
    let report: Report = common::json_of_interrupted(PROGRAM, arguments, Duration::from_secs(3));
    assert!(report.interrupted);
    assert!(report.loops.iter().all(|one| one.measurements < 10_000));
}
