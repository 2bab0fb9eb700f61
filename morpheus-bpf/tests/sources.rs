// SPDX-License-Identifier: GPL-2.0-only
//! Rules for the sources of the BPF programs that no run can check.

use std::fs;
use std::path::Path;

/// The BPF sources, by name.
fn sources() -> Vec<(String, String)> {
    let mut directories = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bpf")];
    let mut found = Vec::new();
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
                continue;
            }
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            found.push((name, fs::read_to_string(path).unwrap()));
        }
    }
    found.sort();
    found
}

/// The core policy can be read in half an hour: five files, without options, groups and the link.
#[test]
fn the_policy_is_five_files_of_1500_lines() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bpf/policy");
    let sources: Vec<String> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap())
        .collect();
    assert_eq!(sources.len(), 5);
    let lines: usize = sources.iter().map(|source| lines_of_code(source)).sum();
    assert!((1000..=1500).contains(&lines), "{lines}");
}

/// Lines that have something beside a comment.
fn lines_of_code(source: &str) -> usize {
    let mut in_comment = false;
    let is_code = |line: &&str| {
        let line = line.trim();
        let begins = line.starts_with("/*");
        let comment = in_comment || begins || line.starts_with("//");
        in_comment = (in_comment || begins) && !line.ends_with("*/");
        !line.is_empty() && !comment
    };
    source.lines().filter(is_code).count()
}

#[test]
fn comments_and_blank_lines_are_no_code() {
    let source = "// a\n/* b */\n/*\n * c\n */\n\nint d; /* e */\n\treturn d;\n";
    assert_eq!(lines_of_code(source), 2);
}

/// A process writes its slots while the kernel side decides by them. So one function loads them, each word once, and all else
/// goes by what it has loaded.
#[test]
fn the_words_of_a_slot_are_loaded_once() {
    let mut reads = Vec::new();
    // The doctor copies a slot as a whole, and decides by the copy.
    let of_daemon = |(name, _): &(String, String)| name != "doctor.bpf.c";
    for (name, source) in sources().into_iter().filter(of_daemon) {
        for (index, line) in source.lines().enumerate() {
            if line.contains("morpheus_runtime_slot") || line.contains("lookup_elem(&runtime_areas")
            {
                reads.push(format!("{name}:{}: {}", index + 1, line.trim()));
            }
        }
    }
    // The pointer in `load_words_of`, and the area that it comes from.
    assert_eq!(reads.len(), 2, "{reads:#?}");
    assert!(
        reads.iter().all(|read| read.starts_with("slot.bpf.h:")),
        "{reads:#?}"
    );
    let (_, slot) = sources()
        .into_iter()
        .find(|(name, _)| name == "slot.bpf.h")
        .unwrap();
    let (_, after) = slot.split_once("load_words_of(").unwrap();
    let (body, _) = after.split_once("\n}\n").unwrap();
    for word in [
        "poll_seq",
        "park_seq",
        "state",
        "critical_depth",
        "flags",
        "label",
    ] {
        let load = format!("READ_ONCE(slot->{word})");
        assert_eq!(body.matches(&load).count(), 1, "{load}");
        assert_eq!(slot.matches(&load).count(), 1, "{load}");
    }
}
