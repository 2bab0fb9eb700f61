//! Tests of [`super`]: what stands on a screen.

use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyModifiers};
use serde_json::{Value, json};

use super::super::model::Answer;
use super::*;
use crate::history::{History, Record};

fn empty() -> Model {
    Model::new("/run/morpheus/broker.sock".into(), Duration::from_secs(1))
}

/// After two answers, a second apart.
fn model(first: &Value, second: &Value) -> Model {
    let (mut model, start) = (empty(), Instant::now());
    for (numbers, at) in [(first, start), (second, start + Duration::from_secs(1))] {
        model.answered(Answer {
            history: None,
            result: Ok(Reading::parse(numbers)),
            at,
        });
    }
    model
}

fn screen(model: &Model, columns: u16, rows: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal.draw(|frame| draw(frame, model)).unwrap();
    let buffer = terminal.backend().buffer();
    let cells: Vec<&str> = buffer.content().iter().map(|cell| cell.symbol()).collect();
    cells
        .chunks(usize::from(columns))
        .map(|row| row.concat().trim_end().to_owned())
        .collect::<Vec<_>>()
        .join("\n")
}

/// A scheduler's numbers, when it has counted `scale` times as much as at first.
fn scheduler(scale: u64) -> Value {
    let buckets = |from: usize| -> Vec<u64> {
        (0..16)
            .map(|index| {
                if (from..from + 3).contains(&index) {
                    100 * scale
                } else {
                    0
                }
            })
            .collect()
    };
    let counters: serde_json::Map<String, Value> = [
        "to_main",
        "to_batch",
        "to_idle_cpu",
        "to_lat_critical",
        "to_interactive",
        "from_main",
        "from_deficit",
        "from_sojourn_rescue",
        "kept",
        "kicks_for_waiting",
        "kicks_skipped",
        "wakeups",
        "requests",
        "demotions",
        "l2_hits_batch",
        "l2_misses_batch",
        "l2_hits_lat_critical",
        "l2_misses_lat_critical",
    ]
    .iter()
    .enumerate()
    .map(|(index, name)| ((*name).to_owned(), json!(1000 * scale * (1 + index as u64))))
    .chain([("throttles".to_owned(), json!(0))])
    .collect();
    json!({
        "runs": "scheduler", "processes": 2, "workers": 6, "refused": 0, "cpus": 2,
        "counters": counters,
        "tiers": {
            "lat_critical": { "wake_latency": buckets(1) },
            "interactive": { "wake_latency": buckets(4) },
            "batch": { "wake_latency": buckets(9) },
        },
        "sleeps": [70 * scale, 10 * scale, 10 * scale, 10 * scale],
        "regime": "heavy", "burst": true, "longrun": false,
        "knobs": { "slice_ns": 1_000_000, "batch_slice_ns": 20_000_000, "sojourn_thresh_ns": 5_000_000,
            "preempt_thresh_ns": 500_000, "burst_slice_ns": 1_000_000, "lat_cri_thresh_high": 32,
            "lat_cri_thresh_low": 8, "cpu_bound_thresh_ns": 2_500_000, "affinity_mode": "weak" },
        "batch_waits_ns": 3_000_000, "idle_share": 0.05, "procdb": { "profiles": 42, "confident": 5 },
        "connections": [
            { "pid": 4711, "comm": "axum-server", "workers": 4, "stalled": 1, "demoted": 1, "throttled": 0, "lease": 1 },
            { "pid": 4712, "comm": "wörker\u{1b}[2J", "workers": 2, "lease": 2 },
        ],
    })
}

#[test]
fn curves_are_of_what_was_seen_or_of_the_history() {
    let mut model = model(&scheduler(1), &scheduler(2));
    assert!(model.key_pressed(KeyCode::Char('c'), KeyModifiers::NONE));
    for (columns, rows) in [(62, 14), (80, 24), (200, 60)] {
        let text = screen(&model, columns, rows);
        for part in [
            "Since top was started",
            "Dispatches/s",
            "24.0k",
            "now",
            "q quit",
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
    }
    let text = screen(&model, 120, 40);
    for part in [
        "Kicks/s",
        "Longest wait of batch",
        "3.0 ms",
        "Idle",
        "p99",
        "interactive",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    // A history of an hour: dots all along, and the time of its beginning.
    let seen = model.seen[0];
    let mut history = History::default();
    for second in 0..3600 {
        let mut record = seen;
        record.end_unix_ms = seen.end_unix_ms + 1000 * second;
        history.seconds.push(record);
    }
    model.answered(Answer {
        history: Some(history),
        result: Err("no daemon".into()),
        at: Instant::now(),
    });
    let text = screen(&model, 80, 24);
    for part in ["The last hour", "-60 min"] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let is_dot = |c: &char| ('\u{2801}'..='\u{28ff}').contains(c);
    let dots = text.chars().filter(is_dot).count();
    assert!(dots > 3 * 2 * 25, "{dots} in\n{text}");
    assert!(model.key_pressed(KeyCode::Char('c'), KeyModifiers::NONE));
    let text = screen(&model, 80, 24);
    assert!(
        text.contains("The last day") && text.contains("nothing yet"),
        "{text}"
    );
    assert!(model.key_pressed(KeyCode::Char('c'), KeyModifiers::NONE));
    assert!(screen(&model, 80, 24).contains("Decisions per second"));
}

#[test]
fn curves_of_any_file_are_drawn() {
    let mut model = empty();
    let mut record = Record::default();
    (record.end_unix_ms, record.interval_ms) = (u64::MAX, u32::MAX);
    let history = History {
        seconds: vec![record, Record::default(), record],
        ..History::default()
    };
    model.answered(Answer {
        history: Some(history),
        result: Err("no daemon".into()),
        at: Instant::now(),
    });
    model.key_pressed(KeyCode::Char('c'), KeyModifiers::NONE);
    for (columns, rows) in [(1, 1), (62, 14), (63, 15), (300, 100)] {
        screen(&model, columns, rows);
    }
}

#[test]
fn a_scheduler_fits_into_80_by_24() {
    let text = screen(&model(&scheduler(1), &scheduler(2)), 80, 24);
    let squeezed = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for part in [
        "scx_morpheus scheduler, 2 CPUs [HEAVY BURST]",
        "every 1 s",
        "lat critical 300",
        "L2 hit",
        "idle 5 % █",
        "dispatches 24.0k/s",
        "batch waits 3 ms of 5 ms",
        "procdb 42, 5 confident",
        "sleeps for io 70 %",
        "to main 1000",
        "demotions 14.0k",
        "slice 1 ms",
        "affinity mode weak",
        "Processes: 2, by stalled",
        "4711 axum-server",
        "4712 wörker?[2J",
        "q quit p pause c curves s sort ↑↓ processes ? help",
    ] {
        assert!(squeezed.contains(part), "{part:?} is not in\n{text}");
    }
    assert!(!text.contains("throttles"), "it has never happened");
    assert_eq!(text.lines().count(), 24);
}

#[test]
fn decisions_that_do_not_fit_are_counted() {
    let text = screen(&model(&scheduler(1), &scheduler(2)), 62, 14);
    assert!(text.contains("more (status)"), "{text}");
    assert!(
        text.contains("scx_morpheus") && text.contains("axum-server"),
        "{text}"
    );
    assert!(!text.contains("Knobs"), "no room for them\n{text}");
    let text = screen(&model(&scheduler(1), &scheduler(2)), 160, 50);
    assert!(
        text.contains("demotions") && text.contains("wakeups"),
        "{text}"
    );
    assert!(!text.contains("more (status)"), "{text}");
}

#[test]
fn what_is_not_counted_has_no_column() {
    let [mut first, mut second] = [scheduler(1), scheduler(2)];
    for numbers in [&mut first, &mut second] {
        let counters = numbers["counters"].as_object_mut().unwrap();
        counters.retain(|name, _| !name.starts_with("l2_"));
    }
    let text = screen(&model(&first, &second), 80, 24);
    assert!(!text.contains("L2"), "{text}");
    let row = text
        .lines()
        .find(|line| line.contains("lat critical  "))
        .unwrap();
    assert!(row.contains("16 µs") && row.ends_with('█'), "{text}");
}

#[test]
fn an_observer_has_no_tiers() {
    let numbers = json!({ "runs": "observer", "processes": 0, "counters": { "events": 5, "samples": 9, "from_main": 0 } });
    let text = screen(&model(&numbers, &numbers), 80, 24);
    for part in [
        "observer",
        "It only observes",
        "events",
        "no application is connected",
    ] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    for part in ["p99", "Knobs", "CPUs", "idle", "dispatches"] {
        assert!(!text.contains(part), "{part:?} is in\n{text}");
    }
}

#[test]
fn it_says_when_there_is_no_daemon() {
    let gone = |mut model: Model| {
        model.answered(Answer {
            history: None,
            result: Err("Connection refused\n".into()),
            at: Instant::now(),
        });
        screen(&model, 80, 24)
    };
    let never = gone(empty());
    assert!(never.contains("NO DAEMON"), "{never}");
    let sentence = "No daemon answers at /run/morpheus/broker.sock: Connection refused?";
    assert!(never.contains(sentence), "{never}");
    assert!(!never.contains("the last that it said"), "{never}");
    let then = gone(model(&scheduler(1), &scheduler(2)));
    assert!(then.contains("the last that it said"), "{then}");
    assert!(then.contains("axum-server"), "{then}");
    assert!(screen(&empty(), 80, 24).contains("asking …"));
}

#[test]
fn no_window_and_no_number_is_too_much() {
    let mut huge = scheduler(1);
    for (_, count) in huge["counters"].as_object_mut().unwrap() {
        *count = u64::MAX.into();
    }
    huge["tiers"]["batch"]["wake_latency"] = vec![u64::MAX; 16].into();
    huge["knobs"]["slice_ns"] = u64::MAX.into();
    huge["batch_waits_ns"] = u64::MAX.into();
    huge["processes"] = u64::MAX.into();
    huge["connections"] = (0..5000)
        .map(|pid| json!({ "pid": u64::MAX - pid, "comm": "很".repeat(40), "workers": u64::MAX, "stalled": u64::MAX }))
        .collect();
    let nothing = Value::Null;
    // All heights at some widths, and all widths at heights about the least that is drawn.
    let narrow = [1, 5, 20, 61, 62, 63, 80, 200];
    let wide = (60..=83).map(|columns| (columns, 13..=15));
    let sizes: Vec<(u16, u16)> = narrow
        .into_iter()
        .flat_map(|columns| (1..=26).chain([60]).map(move |rows| (columns, rows)))
        .chain(wide.flat_map(|(columns, rows)| rows.map(move |rows| (columns, rows))))
        .collect();
    for mut model in [
        empty(),
        model(&nothing, &nothing),
        model(&nothing, &huge),
        model(&scheduler(1), &scheduler(2)),
    ] {
        for help in [false, true] {
            model.help = help;
            for &(columns, rows) in &sizes {
                screen(&model, columns, rows);
            }
        }
    }
    assert!(screen(&empty(), 61, 14).contains("62 × 14"));
}

#[test]
fn the_last_process_can_be_reached() {
    let mut many = scheduler(2);
    many["connections"] = (1..=40)
        .map(|pid| json!({ "pid": pid, "comm": format!("server-{pid}"), "workers": 1 }))
        .collect();
    let mut model = model(&scheduler(1), &many);
    let first = screen(&model, 80, 24);
    assert!(
        first.contains("server-1 ") && !first.contains("server-40"),
        "{first}"
    );
    let room = model.room.get();
    assert!(first.contains(&format!("; 1 to {room} shown")), "{first}");
    model.key_pressed(KeyCode::End, KeyModifiers::NONE);
    let last = screen(&model, 80, 24);
    assert!(
        last.contains("server-40") && !last.contains("server-1 "),
        "{last}"
    );
    assert!(
        last.contains(&format!("; {} to 40 shown", 41 - room)),
        "{last}"
    );
    // Where there is room for all of them, all are shown.
    let all = screen(&model, 80, 70);
    assert!(
        all.contains("server-1 ") && all.contains("server-40"),
        "{all}"
    );
}

#[test]
fn help_and_pause() {
    let mut model = model(&scheduler(1), &scheduler(2));
    model.key_pressed(KeyCode::Char('?'), KeyModifiers::NONE);
    let text = screen(&model, 80, 24);
    assert!(text.contains("q, Esc, Ctrl-C  quit"), "{text}");
    assert!(text.contains("--monitor 1."), "the last line, too\n{text}");
    model.key_pressed(KeyCode::Esc, KeyModifiers::NONE);
    model.key_pressed(KeyCode::Char('p'), KeyModifiers::NONE);
    let text = screen(&model, 80, 24);
    assert!(
        text.contains("PAUSED") && text.contains("p go on"),
        "{text}"
    );
}
