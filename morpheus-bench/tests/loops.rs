//! The binary as its users call it. How long a loop takes is the machine's affair and not judged here.

mod common;

use std::process::Output;

use common::Found;
use morpheus_bench::loops::{Form, names};
use morpheus_harness::pairs::Verdict;
use morpheus_harness::report::WIDTH;

const PROGRAM: &str = env!("CARGO_BIN_EXE_loops");

fn loops(arguments: &str) -> Output {
    common::run(PROGRAM, arguments)
}

fn found(arguments: &str) -> Found {
    common::json(PROGRAM, arguments)
}

#[test]
fn every_form_is_measured_against_plain() {
    let found = found("--case fnv,collatz,byte_search --pairs 2 --window-ms 0.2");
    assert!(found.failed.is_empty() && !found.interrupted, "{found:?}");
    let measured: Vec<&str> = found.cases.iter().map(|case| case.name.as_str()).collect();
    assert_eq!(measured, ["fnv", "collatz", "byte_search"]);
    let forms = Form::COMPARED.map(|form| form.to_string());
    for case in measured {
        let rows: Vec<_> = found.rows.iter().filter(|row| row.case == case).collect();
        assert!(rows[0].contender == "plain" && rows[0].median.is_some_and(|ns| ns > 0.0));
        let compared: Vec<&str> = rows[1..].iter().map(|row| row.contender.as_str()).collect();
        assert_eq!(compared, forms);
        for ratio in rows[1..].iter().filter_map(|row| row.ratio.as_ref()) {
            assert_eq!(ratio.pairs.differences.len(), 2);
            assert_eq!(ratio.verdict, Verdict::TooFew { pairs: 2 });
        }
    }
    let means = found.rows.iter().filter(|row| row.case == "mean of 3");
    assert_eq!(means.count(), forms.len());
}

/// The control: a checkpoint in each turn of a vectorised loop is seen, whatever the noise. Only where the plain loop is
/// optimised: elsewhere there is nothing to lose.
#[test]
fn a_checkpoint_in_each_turn_shows_what_is_lost() {
    if cfg!(debug_assertions) {
        return morpheus_testing::skip("needs a release build: a debug build vectorises nothing");
    }
    let found = found("--case sum_u32 --pairs 10 --window-ms 1");
    let of = |form: Form| {
        let mut rows = found.rows.iter();
        let row = rows.find(|row| row.contender == form.to_string())?;
        row.ratio.as_ref()?.median
    };
    let (every, strips) = (of(Form::EveryTurn).unwrap(), of(Form::Strips).unwrap());
    assert!(every > 3.0, "a turn with a checkpoint: {every}");
    assert!(strips < every / 2.0, "strips: {strips} beside {every}");
}

#[test]
fn people_get_a_table() {
    let output = loops("--case crc32,chase --pairs 1 --window-ms 0.2");
    let text = String::from_utf8(output.stdout).unwrap();
    let expected = [
        "crc32",
        "chase",
        "strip!",
        "plain",
        "at most 1.050 times as much: met by 0 of 2",
    ];
    common::assert_table(&text, WIDTH, &expected);
}

#[test]
fn the_list_has_every_loop() {
    let list = String::from_utf8(loops("--list").stdout).unwrap();
    assert_eq!(list.lines().count(), names().len());
}
