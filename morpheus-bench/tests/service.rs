//! The binary as its users call it, with the service that it drives. Without wrk it is only tested what it says then; with
//! `MORPHEUS_REQUIRE_WRK` set, that is a failure.

mod common;

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Once;
use std::time::Duration;

use morpheus_bench::service::{Report, Variant, WIDTH};

const PROGRAM: &str = env!("CARGO_BIN_EXE_service");

/// Whether there is a wrk; then the service is built as well, which cargo does not do for the tests of another package.
fn can_drive() -> bool {
    let there = Command::new("wrk").arg("-v").stdout(Stdio::null()).status();
    if there.is_err() {
        let missing = "no `wrk` in the path (Debian, Ubuntu: apt-get install wrk)";
        morpheus_testing::skip_unless_required(missing, "MORPHEUS_REQUIRE_WRK");
        return false;
    }
    static BUILT: Once = Once::new();
    BUILT.call_once(|| {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut build = Command::new(env!("CARGO"));
        // Of all packages, as the tests are built: a selection decides the features of what both need.
        build
            .current_dir(root)
            .args(["build", "--quiet", "--workspace"]);
        build.args(["--example", "http_service"]);
        build.args(["--example", "http_service_tokio"]);
        if !cfg!(debug_assertions) {
            build.arg("--release");
        }
        // To where this program is, whoever runs it.
        let target = Path::new(PROGRAM).ancestors().nth(2).unwrap();
        build.env("CARGO_TARGET_DIR", target);
        assert!(build.status().unwrap().success(), "{build:?}");
    });
    true
}

#[test]
fn every_variant_is_driven() {
    if !can_drive() {
        return;
    }
    // The others are built on demand, for minutes.
    let unflagged = Variant::ALL
        .into_iter()
        .filter(|variant| !variant.needs_flag());
    let unflagged: Vec<Variant> = unflagged.collect();
    let names: Vec<&str> = unflagged.iter().map(|variant| variant.name()).collect();
    let names = names.join(",");
    let report: Report = common::json(
        PROGRAM,
        &format!("--seconds 1 --warmup 0 --rounds 1 --clients 2 --hash-ms 0 --only {names}"),
    );
    let variants: Vec<Variant> = report.runs.iter().map(|run| run.variant).collect();
    assert_eq!(variants, unflagged);
    for run in &report.runs {
        assert_eq!(run.failed, None, "{run:?}");
        let figures = run.figures.as_ref().unwrap();
        // By the timetable, however slow the service is. (A connection of /db is asked 62 or 63 times.)
        assert_eq!(figures.ping.due, 1_000, "{run:?}");
        assert!((248..=252).contains(&figures.db.due), "{run:?}");
        assert!(figures.ping.answered <= figures.ping.due, "{run:?}");
        assert!(figures.db.answered <= figures.db.due, "{run:?}");
        assert!(figures.work_per_s > 0.0, "{run:?}");
        assert!(figures.ping.late_ns.p99.is_some(), "{run:?}");
        assert!(
            figures.ping.late_ns.max >= figures.ping.took_ns.max,
            "{run:?}"
        );
        assert_eq!(figures.db.late_ns.p99, None, "250 are too few: {run:?}");
    }
    assert_eq!(report.medians.len(), unflagged.len());
    assert!(!report.ratios.is_empty() && !report.interrupted);
}

#[test]
fn the_other_scene_makes_a_table_that_fits() {
    if !can_drive() {
        return;
    }
    let output = common::run(
        PROGRAM,
        "--scene blocking --seconds 1 --warmup 0 --rounds 1 --clients 8 --hash-ms 0 --only morpheus,tokio-rewritten",
    );
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let expected = [
        "8 clients of /report",
        "morpheus: no p99 of /db",
        "/report per s: morpheus / tokio-rewritten",
        "≥ 0.9",
    ];
    common::assert_table(&text, WIDTH, &expected);
}

#[test]
fn ctrl_c_shows_what_there_is() {
    if !can_drive() {
        return;
    }
    let report: Report = common::json_of_interrupted(
        PROGRAM,
        "--seconds 600 --warmup 0 --rounds 1 --hash-ms 0 --only tokio",
        Duration::from_secs(4),
    );
    assert!(report.interrupted);
    assert!(report.runs.is_empty() && report.medians.is_empty());
}

#[test]
fn without_wrk_it_says_which_package_has_it() {
    let mut command = common::command(PROGRAM, "");
    let output = command.env("PATH", "/nonexistent").output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("the package wrk"), "{said}");
}
