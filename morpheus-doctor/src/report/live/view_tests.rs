//! Tests of [`super`]: what stands on a screen.

use proptest::prelude::ProptestConfig;
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyModifiers};

use super::*;
use common::{harmless, healthy, hostile, huge, service, stripped};

#[path = "../../../tests/common/mod.rs"]
pub(in super::super) mod common;
#[path = "../../../tests/common/any.rs"]
mod generate;

fn screen_of(report: &Report, state: &State, columns: u16, rows: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal.draw(|frame| draw(frame, report, state)).unwrap();
    let buffer = terminal.backend().buffer();
    let cells: Vec<&str> = buffer.content().iter().map(|cell| cell.symbol()).collect();
    cells
        .chunks(usize::from(columns))
        .map(|row| row.concat().trim_end().to_owned())
        .collect::<Vec<_>>()
        .join("\n")
}

fn after(report: &Report, keys: &[KeyCode]) -> State {
    let mut state = State::default();
    state.update(report);
    for key in keys {
        state.key_pressed(*key, KeyModifiers::NONE);
    }
    state
}

fn screen(report: &Report, keys: &[KeyCode], columns: u16, rows: u16) -> String {
    screen_of(report, &after(report, keys), columns, rows)
}

fn has(text: &str, parts: &[&str]) {
    let squeezed = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in parts {
        assert!(squeezed.contains(part), "{part:?} is not in\n{text}");
    }
}

#[test]
fn findings_fit_into_80_by_24() {
    let text = screen(&service(), &[], 80, 24);
    has(
        &text,
        &[
            "doctor orders (pid 48117)",
            "30.0 s",
            "longer than 1 ms · 2 runtimes (multi-thread, 4 workers; current-thre…",
            "orders::prices::load at src/prices.rs:41 held up orders",
            "5 other places held up work, too.",
            "culprit did polls p50 p99 total unserved",
            "load prices.rs:41 blocked: file 312 11.0 ms 33.0 ms 3.4 s 3.4 s",
            "verify auth.rs:19 computing 95 24.0 ms 72.0 ms 2.3 s 1.1 s",
            "daily report.rs:64 computing 140 2.00 ms 6.00 ms 280 ms –",
            "q end, with a summary ↑↓ select Enter stack ? help",
        ],
    );
    assert_eq!(text.lines().count(), 24);
}

#[test]
fn a_wide_screen_has_details() {
    let text = screen(&service(), &[], 180, 40);
    has(
        &text,
        &[
            "orders::prices::load at src/prices.rs:41 blocked on file /var/lib/orders/prices.csv (…",
            "blocked on a lock (futex) 64",
        ],
    );
}

#[test]
fn enter_shows_the_stack() {
    let text = screen(&service(), &[KeyCode::Down, KeyCode::Enter], 100, 30);
    has(
        &text,
        &[
            "orders::auth::verify at src/auth.rs:19 ─",
            "95 polls: p50 24.0 ms",
            "Unserved 1.1 s: no worker served what waited.",
            "→ orders::auth::verify src/auth.rs:19",
            "orders::routes::login src/routes.rs:33",
            "… 9 frames of tokio, axum, core, …",
            "Hash passwords in `tokio::task::spawn_blocking`",
            "Enter back",
        ],
    );
    assert!(!text.contains("culprit  "), "{text}");
    // Lines that do not fit can be reached.
    let report = service();
    let mut state = after(&report, &[KeyCode::Enter]);
    let first = screen_of(&report, &state, 80, 12);
    assert!(!first.contains("Use `tokio::fs`"), "{first}");
    state.key_pressed(KeyCode::End, KeyModifiers::NONE);
    let last = screen_of(&report, &state, 80, 12);
    assert!(last.contains("Use `tokio::fs`"), "{last}");
}

#[test]
fn the_last_finding_can_be_reached() {
    let report = huge();
    let first = screen(&report, &[], 80, 24);
    has(&first, &["300 findings; 1 to"]);
    let last = screen(&report, &[KeyCode::End], 80, 24);
    has(&last, &["to 300 shown"]);
}

#[test]
fn other_reports() {
    has(
        &screen(&healthy(), &[], 80, 24),
        &[
            "No poll of orders (pid 48117) was longer",
            "No long poll yet.",
        ],
    );
    has(
        &screen(&harmless(), &[KeyCode::Enter], 80, 24),
        &["Harmless: other workers"],
    );
    has(
        &screen(&stripped(), &[], 80, 24),
        &["sampled from /proc", "orders+0x4"],
    );
    has(
        &screen(&service(), &[KeyCode::Char('?')], 80, 24),
        &["Help", "are harmless."],
    );
}

#[test]
fn no_window_and_no_report_is_too_much() {
    let mut numbers = service();
    for finding in &mut numbers.findings {
        finding.count = u64::MAX;
        finding.total_ns = u64::MAX;
        finding.unserved_ns = u64::MAX;
    }
    (numbers.length_ns, numbers.polls_in_all) = (u64::MAX, u64::MAX);
    for report in [service(), healthy(), hostile(), numbers] {
        for keys in [
            &[][..],
            &[KeyCode::Enter],
            &[KeyCode::Char('?')],
            &[KeyCode::End, KeyCode::Enter, KeyCode::End],
        ] {
            let state = after(&report, keys);
            for (columns, rows) in [
                (1, 1),
                (59, 8),
                (60, 7),
                (60, 8),
                (61, 15),
                (80, 16),
                (109, 24),
                (110, 24),
                (250, 70),
            ] {
                let text = screen_of(&report, &state, columns, rows);
                assert!(
                    !text.contains(|c: char| c.is_control() && c != '\n'),
                    "{text:?}"
                );
            }
        }
    }
    has(
        &screen(&service(), &[], 59, 20),
        &["The table needs 60 × 8 characters."],
    );
}

#[test]
fn durations_are_short() {
    let s = 1_000_000_000;
    for (ns, text) in [
        (0, "0 ns"),
        (48_200_000, "48.2 ms"),
        (59 * s, "59.0 s"),
        (125 * s, "125 s"),
        (36_000 * s, "10 h"),
        (u64::MAX, "> 999 h"),
    ] {
        assert_eq!(short(ns), text);
        assert!(text.chars().count() <= 7);
    }
}

#[test]
fn counts_are_short() {
    for (number, text) in [
        (312, "312"),
        (999_999, "999,999"),
        (1_000_000, "1 M"),
        (9_999_999_999, "9999 M"),
        (u64::MAX, "> 10 G"),
    ] {
        assert_eq!(short_count(number), text);
        assert!(text.chars().count() <= 7);
    }
}

proptest::proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_report_is_too_strange(report in generate::any_report()) {
        for keys in [&[][..], &[KeyCode::End, KeyCode::Enter]] {
            for (columns, rows) in [(60, 8), (80, 24), (140, 40)] {
                screen(&report, keys, columns, rows);
            }
        }
    }
}
