//! The binary as its users call it, with the service that it drives.

mod common;

use std::path::Path;
use std::process::Command;
use std::sync::Once;
use std::time::Duration;

use common::{Found, median};
use morpheus_bench::service::Variant;
use morpheus_harness::report::WIDTH;

const PROGRAM: &str = env!("CARGO_BIN_EXE_service");

/// Builds the service, which cargo does not do for the tests of another package.
fn build() {
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
        // To the directory of this program, for every caller.
        let target = Path::new(PROGRAM).ancestors().nth(2).unwrap();
        build.env("CARGO_TARGET_DIR", target);
        assert!(build.status().unwrap().success(), "{build:?}");
    });
}

/// The figure of each variant, in their order.
fn medians(found: &Found, variants: &[Variant], figure: &str) -> Vec<f64> {
    let of = |variant: &Variant| median(found, variant.name(), figure);
    variants.iter().map(of).collect()
}

#[test]
fn every_variant_is_driven() {
    build();
    // The others are built on demand, for minutes.
    let unflagged = Variant::ALL
        .into_iter()
        .filter(|variant| !variant.needs_flag());
    let unflagged: Vec<Variant> = unflagged.collect();
    let names: Vec<&str> = unflagged.iter().map(|variant| variant.name()).collect();
    let names = names.join(",");
    for scene in ["compute", "hash"] {
        let found: Found = common::json(
            PROGRAM,
            &format!(
                "--scene {scene} --seconds 1.05 --warmup 0.1 --rounds 1 --clients 2 --work-ms 1 --only {names}"
            ),
        );
        assert!(found.failed.is_empty() && !found.interrupted, "{found:?}");
        // By the timetable there are more than a thousand pings, however slow the service is.
        let p99 = medians(&found, &unflagged, "/ping p99");
        let max = medians(&found, &unflagged, "/ping max");
        for (p99, max) in p99.iter().zip(&max) {
            assert!(*p99 > 0.0 && max >= p99, "{found:?}");
        }
        let rates = medians(&found, &unflagged, "answers/s");
        assert!(rates.iter().all(|rate| *rate > 0.0), "{found:?}");
        assert!(
            found.rows.iter().all(|row| row.figure != "/db p99"),
            "250 are too few: {found:?}"
        );
        let against = |figure: &str| found.rows.iter().any(|row| row.figure == figure);
        assert!(against("p99 ÷ tokio-bounded") && against("answers ÷ tokio-rewritten"));
        assert_eq!(found.cases.len(), 1);
    }
}

#[test]
fn the_other_scene_makes_a_table_that_fits() {
    build();
    let output = common::run(
        PROGRAM,
        "--scene blocking --seconds 1.05 --warmup 0 --rounds 1 --clients 8,2 --only morpheus+layer,tokio-rewritten",
    );
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let expected = [
        "8 clients of /report, medians",
        "2 clients of /report, medians",
        "morpheus+layer, answers ÷ tokio-rewritten at least 0.9800×: undecided",
        "morpheus+layer, /ping p99 at most 1.00 ms: undecided",
    ];
    common::assert_table(&text, WIDTH, &expected);
}

#[test]
fn ctrl_c_shows_what_there_is() {
    build();
    let found: Found = common::json_of_interrupted(
        PROGRAM,
        "--seconds 600 --warmup 0 --rounds 1 --only tokio",
        Duration::from_secs(4),
    );
    assert!(found.interrupted && found.failed.is_empty(), "{found:?}");
    assert!(found.rows.is_empty(), "{found:?}");
}
