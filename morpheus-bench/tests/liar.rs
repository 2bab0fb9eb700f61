//! The binary as its users call it.

mod common;

use std::process::Output;

use morpheus_bench::liar::{Report, WIDTH};

const PROGRAM: &str = env!("CARGO_BIN_EXE_liar");

fn liar(arguments: &str) -> Output {
    common::run(PROGRAM, arguments)
}

fn report(arguments: &str) -> Report {
    common::json(PROGRAM, arguments)
}

#[test]
fn honest_sections_are_not_escalated() {
    let report = report("--critical-duration-ms 30 --iterations 10 --honest-only");
    assert_eq!(
        (report.bench.as_str(), report.honest.sections),
        ("liar", 10)
    );
    assert_eq!(report.honest.pairs.differences.len(), 10);
    // Not 0 on a machine that is busy with other tests: a thread that loses its CPU between the end of its section and
    // that of its poll is in a long poll, and in no section.
    let honest = &report.honest;
    assert!(
        honest.escalations.slowed_down < honest.escalations_without.slowed_down,
        "{honest:?}"
    );
    assert!(report.honest.within_us > 0 && report.honest.guard_ns.is_some());
    assert!(report.beside.is_empty() && report.with_critical);
}

/// The control of the test above: without a section the same work is demoted, which needs 5 ms of CPU time in a poll.
#[test]
fn without_sections_the_same_work_is() {
    let report = report("--critical-duration-ms 60 --iterations 3 --without-critical");
    assert!(!report.with_critical && report.beside.is_empty());
    let honest = &report.honest;
    let demoted = honest.escalations.slowed_down + honest.escalations_without.slowed_down;
    assert!(demoted > 0, "{honest:?}");
}

#[test]
fn the_liar_is_compared_with_a_hog_and_with_nobody() {
    let report = report("--critical-duration-ms 1 --iterations 1 --duration 0.5");
    let who: Vec<String> = report
        .beside
        .iter()
        .map(|row| row.who.to_string())
        .collect();
    assert_eq!(who, ["nobody", "hog", "liar"]);
    let [nobody, hog, liar] = &report.beside[..] else {
        panic!("{report:?}");
    };
    assert!(nobody.cpu_share.is_none() && hog.cpu_share.is_some());
    assert!(
        liar.cpu_share.unwrap() > 0.0 && liar.fair_share == 0.5,
        "{liar:?}"
    );
    assert!(liar.wakes_ns.n > 0);
}

#[test]
fn people_get_tables_and_small_n_is_said() {
    let text =
        String::from_utf8(liar("--critical-duration-ms 2 --iterations 3 --honest-only").stdout)
            .unwrap();
    let expected = [
        "escalations",
        "n too small: 3 pairs",
        "by the pairs: undecided",
    ];
    common::assert_table(&text, WIDTH, &expected);
}

#[test]
fn bad_usage_exits_with_2() {
    for arguments in [
        "--critical-duration-ms 0",
        "--iterations 0",
        "--link kernel",
    ] {
        assert_eq!(liar(arguments).status.code(), Some(2), "{arguments}");
    }
}

#[test]
fn the_link_in_force_is_said_and_one_that_is_not_there_refused() {
    let line = "--critical-duration-ms 1 --iterations 1 --honest-only";
    assert_eq!(report(line).link, "watchdog");
    for (link, daemon) in [
        ("observer", "needs `scx_morpheus --observe`"),
        ("scheduler", "needs `scx_morpheus`"),
    ] {
        let output = common::command(PROGRAM, &format!("{line} --link {link}"))
            .env("MORPHEUS_SOCKET", "/nowhere/broker.sock")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            said.contains("/nowhere/broker.sock") && said.contains(daemon),
            "{said}"
        );
        assert!(output.stdout.is_empty(), "{output:?}");
    }
}
