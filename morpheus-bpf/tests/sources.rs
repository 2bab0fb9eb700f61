// SPDX-License-Identifier: GPL-2.0-only
//! What the BPF programs must be like, and no run can show.

use std::fs;
use std::path::{Path, PathBuf};

/// The BPF sources, by name.
fn sources() -> Vec<(String, String)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bpf");
    let mut paths: Vec<PathBuf> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    paths
        .iter()
        .map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, fs::read_to_string(path).unwrap())
        })
        .collect()
}

/// A process writes its slots while the kernel side decides by them. So one function loads them, each word once, and all else
/// goes by what it has loaded.
#[test]
fn the_words_of_a_slot_are_loaded_once() {
    let mut reads = Vec::new();
    for (name, source) in sources() {
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
