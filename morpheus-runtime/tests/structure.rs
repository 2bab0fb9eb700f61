//! Tests the layers of the sources: a folder uses those in front of it, and none behind.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// In the order in which data flows: a layer may name itself and those to its left.
const LAYERS: [&str; 10] = [
    "settings",
    "report",
    "decide",
    "act",
    "domain",
    "poll",
    "observe",
    "control",
    "passthrough",
    "api",
];

/// Files that lie directly in `src`.
const FLAT: [&str; 2] = ["domain.rs", "lib.rs"];

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

fn files(under: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(under).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

/// The layer of a file: its folder, or its own name.
fn layer(file: &Path) -> String {
    let inside = file.strip_prefix(sources()).unwrap();
    let first = inside.components().next().unwrap().as_os_str();
    first.to_string_lossy().trim_end_matches(".rs").to_owned()
}

/// The modules that a file names in `crate::…`, in code and in comments, but not in its tests.
fn named(text: &str) -> Vec<&str> {
    let code = text
        .split("#[cfg(test)]\nmod tests")
        .next()
        .unwrap_or_default();
    code.match_indices("crate::")
        .map(|(at, prefix)| &code[at + prefix.len()..])
        .map(|rest| {
            let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_');
            &rest[..end.unwrap_or(rest.len())]
        })
        .collect()
}

/// The layers that `of` names and must not.
fn too_high<'a>(of: &str, named: &[&'a str]) -> Vec<&'a str> {
    let rank = |layer: &str| LAYERS.iter().position(|known| *known == layer);
    let own = rank(of);
    named
        .iter()
        .copied()
        .filter(|name| rank(name) > own && rank(name).is_some())
        .collect()
}

#[test]
fn no_layer_uses_one_above_it() {
    let mut all = Vec::new();
    files(&sources(), &mut all);
    let mut wrong = BTreeMap::new();
    for file in all.iter().filter(|file| !file.ends_with("lib.rs")) {
        let layer = layer(file);
        assert!(
            LAYERS.contains(&layer.as_str()),
            "{layer} is in no layer: add it to LAYERS"
        );
        let text = fs::read_to_string(file).unwrap();
        let above: Vec<String> = too_high(&layer, &named(&text))
            .into_iter()
            .map(str::to_owned)
            .collect();
        if !above.is_empty() {
            wrong.insert(file.strip_prefix(sources()).unwrap().to_owned(), above);
        }
    }
    assert!(
        wrong.is_empty(),
        "these files use layers above their own: {wrong:#?}"
    );
}

/// glibc has the function since 2.30 only, and a program that names it links with no older one.
#[test]
fn nothing_that_applications_link_names_gettid_of_the_c_library() {
    let mut all = Vec::new();
    for part in ["common", "system", "link", "stacks", "runtime"] {
        let beside = format!("../morpheus-{part}/src");
        files(
            &Path::new(env!("CARGO_MANIFEST_DIR")).join(beside),
            &mut all,
        );
    }
    all.retain(|file| fs::read_to_string(file).unwrap().contains("libc::gettid"));
    assert!(all.is_empty(), "{all:?}");
}

#[test]
fn few_files_lie_directly_in_src() {
    let mut flat: Vec<String> = fs::read_dir(sources())
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.path().is_file())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    flat.sort();
    assert_eq!(flat, FLAT);
}

#[test]
fn a_use_of_a_layer_above_is_found() {
    let text = "use crate::report::label;\n// crate::api::task\nfn f() { crate::control::start() }\n#[cfg(test)]\nmod tests { use crate::api; }";
    assert_eq!(named(text), ["report", "api", "control"]);
    assert_eq!(too_high("report", &named(text)), ["api", "control"]);
    assert_eq!(too_high("api", &named(text)), [""; 0]);
}
