// SPDX-License-Identifier: GPL-2.0-only
//! Reads the headers of the BPF programs: what is written there and in Rust must be the same.

use morpheus_tools::histogram::BUCKETS;
use morpheus_tools::tier::Tier;

/// The constants of an `enum` in a header of the BPF programs, in their order.
pub(crate) fn constants_of<'a>(header: &'a str, name: &str) -> Vec<&'a str> {
    let (_, body) = header
        .split_once(&format!("\nenum {name} {{"))
        .expect("the header has it");
    let (body, _) = body.split_once('}').expect("it ends");
    body.lines()
        .map(str::trim)
        .filter(|line| line.starts_with(|first: char| first.is_ascii_uppercase()))
        .map(|line| line.trim_end_matches(','))
        .collect()
}

#[test]
fn the_bpf_programs_have_the_same_numbers() {
    let constants = constants_of(include_str!("bpf/policy/policy.bpf.h"), "tier");
    let mut expected: Vec<_> = Tier::ALL
        .map(|tier| format!("TIER_{}", tier.name().to_uppercase()))
        .into();
    expected.push("TIERS".into());
    assert_eq!(constants, expected);
}

#[test]
fn the_bpf_programs_have_as_many_buckets() {
    let header = include_str!("bpf/options/latency.bpf.c");
    assert!(header.contains(&format!("\n#define LATENCY_BUCKETS {BUCKETS}\n")));
}
