//! Tests that the guide's chapter on libraries has a row for each library that is tested, and a test behind each row.

use std::collections::BTreeSet;
use std::path::Path;

/// The files that the first cells of its table link to.
fn linked(document: &str) -> BTreeSet<String> {
    let rows = document.lines().filter_map(|line| line.strip_prefix("| ["));
    let links = rows.filter_map(|row| row.split_once("](")?.1.split_once(')'));
    links.map(|(link, _)| link.to_string()).collect()
}

#[test]
fn every_row_has_a_test_and_every_test_a_row() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let document = std::fs::read_to_string(own.join("../docs/src/libraries.md")).unwrap();
    let tests = std::fs::read_dir(own.join("tests")).unwrap();
    let tests = tests.map(|file| file.unwrap().file_name().into_string().unwrap());
    let tests = tests.filter(|file| file != "document.rs");
    let tests: BTreeSet<_> = tests
        .map(|file| format!("../../morpheus-ecosystem/tests/{file}"))
        .collect();
    assert!(tests.len() > 1, "{tests:?}");
    assert_eq!(linked(&document), tests);
}

#[test]
fn links_are_read_from_rows() {
    let document = "| library |\n|---|\n| [a](x/a.rs) 1.0 | [more](y) |\n[b](z)\n";
    assert_eq!(linked(document), BTreeSet::from(["x/a.rs".to_string()]));
}
