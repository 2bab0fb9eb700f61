//! The printers, over made-up reports.

mod common;

use common::{HOSTILE, harmless, healthy, hostile, huge, service, stripped};
use morpheus_doctor::model::{Doing, Method, Report};
use morpheus_doctor::report::text::{Look, summary};
use morpheus_doctor::report::{folded, json, words};

fn text(report: &Report) -> String {
    summary(report, Look::default())
}

fn has(text: &str, parts: &[&str]) {
    let squeezed = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in parts {
        assert!(squeezed.contains(part), "{part:?} is not in\n{text}");
    }
}

#[test]
fn the_summary_begins_with_its_meaning() {
    let text = text(&service());
    let first = text.split("\n\n").next().unwrap().replace('\n', " ");
    assert_eq!(
        first,
        "orders::prices::load at src/prices.rs:41 held up orders (pid 48117): 312 polls blocked on file \
         /var/lib/orders/prices.csv (read), up to 44.0 ms each. Meanwhile no worker served what waited, for 3.4 s of 30.0 s (11 %). \
         5 other places held up work, too."
    );
}

#[test]
fn the_summary_has_the_worst_five_with_stack_and_remedy() {
    let text = text(&service());
    has(
        &text,
        &[
            "orders (pid 48117), 30.0 s observed with BPF: 2 runtimes (multi-thread, 4 workers; current-thread);",
            "1. orders::prices::load at src/prices.rs:41",
            "312 polls: p50 11.0 ms, p99 33.0 ms, longest 44.0 ms, total 3.4 s (3.3 s asleep)",
            "Unserved 3.4 s, 11 % of the run",
            "→ orders::prices::load src/prices.rs:41",
            "std::fs::read library/std/src/fs.rs:321",
            "frames of tokio, axum, core",
            "Remedy: Use `tokio::fs`",
            "2. orders::auth::verify at src/auth.rs:19 computing",
            "argon2-0.5.3/src/block.rs:120",
            "`tokio::net::lookup_host(…).await`",
            "5. orders::audit::record at src/audit.rs:27 blocked on pipe:[48100] and another (write)",
            "Others: - orders::import::parse at src/import.rs:77, computing, 33 × up to 12.0 ms, unserved 12.0 ms",
            "orders::report::daily at src/report.rs:64, computing, 140 × up to 8.00 ms, harmless",
            "Less exact than it could be: - Of 12 files",
            "1 long poll had not ended when the run did.",
        ],
    );
    assert!(
        !text.contains("6. ") && !text.contains("To see lines"),
        "{text}"
    );
}

#[test]
fn a_healthy_service_is_told_so() {
    let mut report = healthy();
    has(
        &text(&report),
        &[
            "No poll of orders (pid 48117) was longer than 1 ms in 30.0 s: no task held up its 5 workers.",
        ],
    );
    report.method = Method::Proc;
    has(&text(&report), &["as far as samples of /proc tell"]);
    report.runtimes.clear();
    has(
        &text(&report),
        &["No tokio worker of orders (pid 48117) was seen in 30.0 s"],
    );
    report.polls_in_all = 3;
    has(
        &text(&report),
        &["3 polls of orders", "no stack of them was seen"],
    );
}

#[test]
fn harmless_polls_are_called_so() {
    let text = text(&harmless());
    has(
        &text,
        &[
            "No long poll of orders (pid 48117) held up other tasks: other workers served what waited.",
            "Harmless: other workers served what waited.",
            "If it matters: Move the computation",
        ],
    );
    assert!(!text.contains("Remedy:"), "{text}");
}

#[test]
fn little_is_not_called_much() {
    let mut report = service();
    report.findings.drain(..5);
    has(
        &text(&report),
        &[
            "orders (pid 48117) was hardly held up: no worker served what waited for 12.0 ms of 30.0 s (< 0.1 %)",
        ],
    );
}

#[test]
fn a_stripped_program_gets_hints() {
    let mut report = stripped();
    has(
        &text(&report),
        &[
            "sampled from /proc",
            "`debug = \"line-tables-only\"` under `[profile.release]`",
            "`addr2line -f -i -C -e /opt/orders/bin/orders 0x4",
            "names the first place",
        ],
    );
    // Its functions are known, its lines are not.
    for frame in report
        .findings
        .iter_mut()
        .flat_map(|finding| &mut finding.stack.frames)
    {
        frame.function = "orders::f".into();
        frame.owner = morpheus_doctor::model::Owner::Application;
    }
    let text = text(&report);
    has(&text, &["line-tables-only", "1. orders::f (orders+0x4"]);
    assert!(!text.contains("addr2line"), "{text}");
}

#[test]
fn a_terminal_gets_no_characters_that_steer_it() {
    for color in [false, true] {
        let text = summary(
            &hostile(),
            Look {
                columns: 100,
                color,
            },
        );
        let text = text
            .replace("\u{1b}[0m", "")
            .replace("\u{1b}[1m", "")
            .replace("\u{1b}[2m", "");
        let text = text.replace("\u{1b}[1;31m", "").replace("\u{1b}[32m", "");
        let is_hostile = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}';
        assert!(!text.contains(is_hostile), "{text:?}");
    }
}

#[test]
fn lines_are_as_long_as_they_may_be() {
    for report in [service(), stripped(), healthy(), huge()] {
        for columns in [40, 80, 100, 140] {
            let text = summary(
                &report,
                Look {
                    columns,
                    color: false,
                },
            );
            for line in text.lines() {
                // A word that is longer than a line is not broken, so that paths and commands can be copied.
                let is_a_word = line
                    .split_whitespace()
                    .any(|word| word.chars().count() > columns - 20);
                assert!(
                    line.chars().count() <= columns || is_a_word,
                    "{columns}: {line}"
                );
            }
        }
    }
}

#[test]
fn folded_stacks_are_a_line_each() {
    for report in [service(), hostile()] {
        let mut out = Vec::new();
        folded::write(&report, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.lines().count(), report.samples.len());
        let mut weights_us = 0;
        for (line, sample) in text.lines().zip(&report.samples) {
            let (stack, weight) = line.rsplit_once(' ').unwrap();
            weights_us += weight.parse::<u64>().unwrap();
            assert_eq!(
                stack.split(';').count(),
                sample.functions.len() + 1,
                "{line}"
            );
            let kind = if sample.doing == Doing::Computing {
                "computing;"
            } else {
                "blocked;"
            };
            assert!(stack.starts_with(kind), "{line}");
        }
        let weights_ns: u64 = report.samples.iter().map(|sample| sample.weight_ns).sum();
        assert!(weights_us.abs_diff(weights_ns / 1_000) <= report.samples.len() as u64);
    }
}

#[test]
fn json_is_the_report() {
    for report in [service(), hostile(), healthy()] {
        let mut out = Vec::new();
        json::write(&report, &mut out).unwrap();
        let read: Report = serde_json::from_slice(&out).unwrap();
        assert_eq!(read, report);
        assert!(out.ends_with(b"}\n"));
    }
}

/// The form that other programs read. If it changes so that a reader breaks, [`Report::VERSION`] has to be raised.
#[test]
fn the_form_of_json_is_stable() {
    let golden = include_str!("golden/report.json");
    let report: Report = serde_json::from_str(golden).expect("a reader of this version reads it");
    assert_eq!(report.version, Report::VERSION);
    let mut out = Vec::new();
    json::write(&report, &mut out).unwrap();
    assert_eq!(String::from_utf8(out).unwrap(), golden);
}

#[test]
fn progress_is_a_line() {
    let line = words::progress_line(&service());
    has(
        &line,
        &[
            "30.0 s: ",
            "polls longer than 1 ms; worst: orders::prices::load at src/prices.rs:41, blocked on file",
            "unserved 3.4 s",
        ],
    );
    assert_eq!(
        words::progress_line(&healthy()),
        "30.0 s: 0 polls longer than 1 ms"
    );
    assert!(!words::progress_line(&hostile()).contains(|c: char| c.is_control()));
    assert!(HOSTILE.contains(|c: char| c.is_control()));
}
