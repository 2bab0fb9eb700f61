//! The binary as its users call it.

mod common;

use std::process::Output;

use common::{Found, median, row};
use morpheus_harness::report::WIDTH;

const PROGRAM: &str = env!("CARGO_BIN_EXE_liar");

fn liar(arguments: &str) -> Output {
    common::run(PROGRAM, arguments)
}

fn found(arguments: &str) -> Found {
    let found: Found = common::json(PROGRAM, arguments);
    assert!(found.failed.is_empty(), "{found:?}");
    found
}

/// How often the same work was demoted or throttled, within sections and without.
fn slowed_down(found: &Found) -> [f64; 2] {
    ["within a section", "without"]
        .map(|contender| median(found, contender, "demotions and throttling"))
}

fn has_attack(found: &Found) -> bool {
    found.rows.iter().any(|row| row.contender == "liar")
}

#[test]
fn honest_sections_are_not_escalated() {
    let found = found("--critical-duration-ms 30 --iterations 10 --honest-only");
    let cpu = row(&found, "within a section", "CPU time").unwrap();
    assert_eq!((found.bench.as_str(), cpu.n), ("liar", 10));
    let ratio = cpu.ratio.as_ref().unwrap();
    assert!(ratio.pairs.differences.len() == 10 && ratio.limit.is_some());
    // Not 0 on a machine that is busy with other tests: a thread that loses its CPU between the end of its section and
    // that of its poll is in a long poll, and in no section.
    let [within, without] = slowed_down(&found);
    assert!(within < without, "{found:?}");
    assert!(cpu.median.unwrap() > 1e6 && row(&found, "a section", "CPU time").is_some());
    assert!(!has_attack(&found));
}

/// The control of the test above: without a section the same work is demoted, which needs 5 ms of CPU time in a poll.
#[test]
fn without_sections_the_same_work_is() {
    let found = found("--critical-duration-ms 60 --iterations 3 --without-critical");
    assert!(!has_attack(&found));
    assert!(slowed_down(&found).iter().sum::<f64>() > 0.0, "{found:?}");
    let limits = found
        .rows
        .iter()
        .filter(|row| row.contender == "within a section");
    assert!(limits.clone().all(|row| row.limit.is_none()) && limits.count() > 3);
}

#[test]
fn the_liar_is_compared_with_a_hog_and_with_nobody() {
    let found = found("--critical-duration-ms 1 --iterations 1 --duration 0.5 --rounds 2");
    let wakes = |contender| row(&found, contender, "the others' wakes p50");
    assert!(
        ["nobody", "hog", "liar"]
            .iter()
            .all(|who| wakes(who).is_some()),
        "{found:?}"
    );
    let cpu = |contender| row(&found, contender, "its CPU");
    assert!(cpu("nobody").is_none() && cpu("hog").is_some());
    let liar = cpu("liar").unwrap();
    assert!(
        liar.n == 2 && liar.rounds.iter().all(|share| *share > 0.0),
        "{liar:?}"
    );
}

#[test]
fn people_get_tables_and_small_n_is_said() {
    let text =
        String::from_utf8(liar("--critical-duration-ms 2 --iterations 3 --honest-only").stdout)
            .unwrap();
    let expected = [
        "demotions and throttling",
        "n too small",
        "undecided: an honest section",
    ];
    common::assert_table(&text, WIDTH, &expected);
}

#[test]
fn the_link_in_force_is_said_and_one_that_is_not_there_refused() {
    let line = "--critical-duration-ms 1 --iterations 1 --honest-only";
    assert_eq!(found(line).config["link"], "watchdog");
    for (link, daemon) in [
        ("observer", "needs `scx_morpheus --observe`"),
        ("scheduler", "needs `scx_morpheus`"),
    ] {
        let output = common::command(PROGRAM, &format!("{line} --link {link}"))
            .env("MORPHEUS_SOCKET", "/nowhere/broker.sock")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said = String::from_utf8_lossy(&output.stdout).replace('\n', " ");
        assert!(
            said.contains("/nowhere/broker.sock") && said.contains(daemon),
            "{said}"
        );
    }
}
