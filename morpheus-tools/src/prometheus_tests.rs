//! Tests of [`super`]: the text is read back by a reader that takes nothing but the format.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::Peekable;
use std::str::Chars;

use serde_json::json;

use super::*;
use crate::histogram::BUCKETS;

type Labels = BTreeMap<String, String>;

/// The metrics that a strict reader finds.
#[derive(Debug, Default)]
struct Read {
    kinds: BTreeMap<String, String>,
    samples: BTreeMap<(String, Labels), f64>,
}

impl Read {
    fn value(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let labels = labels
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        let key = (format!("scx_morpheus_{name}"), labels);
        *self
            .samples
            .get(&key)
            .unwrap_or_else(|| panic!("no {key:?}"))
    }
}

fn name(characters: &mut Peekable<Chars<'_>>) -> String {
    let mut name = String::new();
    while let Some(character) = characters
        .next_if(|character| character.is_ascii_alphanumeric() || matches!(character, '_' | ':'))
    {
        name.push(character);
    }
    assert!(
        name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_'),
        "a name: {name:?}"
    );
    name
}

fn labels(characters: &mut Peekable<Chars<'_>>) -> Labels {
    let mut labels = Labels::new();
    if characters.next_if_eq(&'{').is_none() {
        return labels;
    }
    loop {
        let label = name(characters);
        assert_eq!(characters.next(), Some('='));
        assert_eq!(characters.next(), Some('"'));
        let mut value = String::new();
        loop {
            match characters.next().expect("the end of a value") {
                '"' => break,
                '\\' => value.push(match characters.next() {
                    Some('\\') => '\\',
                    Some('"') => '"',
                    Some('n') => '\n',
                    other => panic!("no escape: {other:?}"),
                }),
                character => value.push(character),
            }
        }
        assert!(labels.insert(label, value).is_none(), "a label twice");
        match characters.next() {
            Some(',') => {}
            Some('}') => return labels,
            other => panic!("within labels: {other:?}"),
        }
    }
}

/// Each metric has its help, its type and its samples in one piece, and no sample comes twice.
fn read(text: &str) -> Read {
    let mut read = Read::default();
    let mut helped = BTreeSet::new();
    let mut current = String::new();
    assert!(text.is_empty() || text.ends_with('\n'));
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (metric, help) = rest.split_once(' ').expect("a help text");
            assert!(!help.is_empty() && !help.contains('\\'));
            assert!(helped.insert(metric.to_owned()), "{metric} has help twice");
            current = metric.to_owned();
            continue;
        }
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (metric, kind) = rest.split_once(' ').expect("a type");
            assert_eq!(metric, current, "type and help belong together");
            assert!(matches!(kind, "counter" | "gauge" | "histogram"));
            assert_eq!(kind == "counter", metric.ends_with("_total"), "{metric}");
            let before = read.kinds.insert(metric.to_owned(), kind.to_owned());
            assert_eq!(before, None);
            continue;
        }
        assert!(!line.starts_with('#'), "{line}");
        let mut characters = line.chars().peekable();
        let metric = name(&mut characters);
        let labels = labels(&mut characters);
        assert_eq!(characters.next(), Some(' '));
        let value: String = characters.collect();
        let value: f64 = value.parse().expect("a number");
        let histogram = read.kinds.get(&current).map(String::as_str) == Some("histogram");
        let suffix = metric
            .strip_prefix(&current)
            .expect("a sample of this metric");
        if histogram {
            assert!(matches!(suffix, "_bucket" | "_sum" | "_count"), "{metric}");
        } else {
            assert_eq!(suffix, "");
        }
        let before = read.samples.insert((metric, labels), value);
        assert_eq!(before, None, "twice: {line}");
    }
    read
}

fn sample() -> Reading {
    let mut wake = [0u64; BUCKETS];
    wake[0] = 5;
    wake[3] = 2;
    wake[15] = 1;
    Reading::parse(&json!({
        "runs": "scheduler", "processes": 1, "workers": 2, "refused": 3, "cpus": 2,
        "counters": { "to_main": 5, "to_idle_cpu": 6, "from_main": 7, "kicks_skipped": 8, "l2_hits_batch": 9,
            "l2_misses_batch": 1, "kept": 10 },
        "tiers": { "lat_critical": { "wake_latency": wake }, "batch": { "wake_latency": wake } },
        "sleeps": [1, 2, 3, 4], "regime": "mixed", "burst": true, "longrun": false,
        "knobs": { "slice_ns": 1_000_000, "affinity_mode": "weak" },
        "batch_waits_ns": 6_000_000, "idle_share": 0.25,
        "procdb": { "profiles": 42, "confident": 5 },
        "connections": [
            { "pid": 9, "comm": "a \"b\\c\nd\u{1b}[2Jé", "workers": 2, "stalled": 1, "demoted": 0, "throttled": 0 },
            { "pid": 10, "comm": "", "workers": u64::MAX },
        ],
    }))
}

#[test]
fn it_is_read_back() {
    let read = read(&text(&sample()));
    assert_eq!(read.value("info", &[("runs", "scheduler")]), 1.0);
    assert_eq!(read.value("workers", &[]), 2.0);
    assert_eq!(
        read.value("placements_total", &[("queue", "idle_cpu")]),
        6.0
    );
    assert_eq!(read.value("choices_total", &[("queue", "main")]), 7.0);
    assert_eq!(read.value("kicks_total", &[("kind", "skipped")]), 8.0);
    assert_eq!(
        read.value("l2_total", &[("tier", "batch"), ("result", "hit")]),
        9.0
    );
    assert_eq!(read.value("counts_total", &[("what", "kept")]), 10.0);
    assert_eq!(read.value("sleeps_total", &[("kind", "idle")]), 4.0);
    assert_eq!(read.value("regime", &[("regime", "mixed")]), 1.0);
    assert_eq!(read.value("regime", &[("regime", "heavy")]), 0.0);
    assert_eq!(read.value("burst", &[]), 1.0);
    assert_eq!(read.value("longrun", &[]), 0.0);
    assert_eq!(read.value("knob", &[("knob", "slice_ns")]), 1e6);
    assert_eq!(
        read.value("knob_info", &[("knob", "affinity_mode"), ("value", "weak")]),
        1.0
    );
    assert_eq!(read.value("batch_wait_seconds", &[]), 0.006);
    assert_eq!(read.value("procdb_confident_profiles", &[]), 5.0);
    let odd = [("pid", "9"), ("comm", "a \"b\\c\nd\u{1b}[2Jé")];
    assert_eq!(read.value("process_workers", &odd), 2.0);
    let stalled = [odd[0], odd[1], ("state", "stalled")];
    assert_eq!(read.value("process_ladder", &stalled), 1.0);
}

#[test]
fn a_process_with_two_runtimes_is_one() {
    let connection = |workers, stalled| Process {
        pid: 9,
        comm: "x".to_owned(),
        workers,
        stalled,
        ..Process::default()
    };
    let reading = Reading {
        connections: vec![connection(2, Some(1)), connection(3, None)],
        ..Reading::default()
    };
    let text = text(&reading);
    let samples = |name: &str| text.lines().filter(|line| line.starts_with(name)).count();
    assert_eq!(samples("scx_morpheus_process_workers{"), 1, "{text}");
    let read = read(&text);
    let labels = [("pid", "9"), ("comm", "x")];
    assert_eq!(read.value("process_workers", &labels), 5.0);
    let stalled = [labels[0], labels[1], ("state", "stalled")];
    assert_eq!(read.value("process_ladder", &stalled), 1.0);
}

#[test]
fn histograms_are_cumulative() {
    let read = read(&text(&sample()));
    let bucket = |le: &str| {
        read.value(
            "wake_latency_seconds_bucket",
            &[("tier", "batch"), ("le", le)],
        )
    };
    assert_eq!(bucket("0.000002"), 5.0);
    assert_eq!(bucket("0.000008"), 5.0);
    assert_eq!(bucket("0.000016"), 7.0);
    assert_eq!(bucket("0.032768"), 7.0);
    assert_eq!(bucket("+Inf"), 8.0);
    assert_eq!(
        read.value("wake_latency_seconds_count", &[("tier", "batch")]),
        8.0
    );
    let sum = read.value("wake_latency_seconds_sum", &[("tier", "batch")]);
    assert!(
        (sum - (5.0 * 1e-6 + 2.0 * 12e-6 + 32768e-6)).abs() < 1e-12,
        "{sum}"
    );
    assert_eq!(
        read.samples
            .keys()
            .filter(|(name, labels)| name.ends_with("_bucket") && labels["tier"] == "batch")
            .count(),
        BUCKETS
    );
    assert!(
        !text(&sample()).contains("tier=\"interactive\""),
        "not measured"
    );
}

#[test]
fn nothing_is_said_of_nothing() {
    assert_eq!(text(&Reading::default()), "");
    let mut full = sample();
    full.wake = [Some([u64::MAX; BUCKETS]); 3];
    let read = read(&text(&full));
    assert!(read.value("wake_latency_seconds_count", &[("tier", "batch")]) > 1e19);
}

#[test]
fn a_file_is_replaced_whole() {
    let directory = tempdir("prometheus");
    let path = directory.join("morpheus.prom");
    write(&path, &sample()).unwrap();
    write(
        &path,
        &Reading {
            workers: Some(77),
            ..Reading::default()
        },
    )
    .unwrap();
    let found = fs::read_to_string(&path).unwrap();
    assert_eq!(read(&found).value("workers", &[]), 77.0);
    assert_eq!(
        fs::read_dir(&directory).unwrap().count(),
        1,
        "nothing is left beside it"
    );
    // A directory in its place: the write fails, and nothing is left either.
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert!(write(&path, &sample()).is_err());
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 1);
    assert!(write(&directory.join("none/x.prom"), &sample()).is_err());
    assert!(write(Path::new("/"), &sample()).is_err());
    fs::remove_dir_all(directory).unwrap();
}

fn tempdir(what: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("morpheus-{what}-{}", std::process::id()));
    fs::create_dir_all(&path).unwrap();
    path
}
