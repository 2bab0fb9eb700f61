//! The documents: their links resolve, the guide's table of contents has every chapter, and the guide builds as a book.

use std::collections::{BTreeSet, HashMap};
use std::env;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

/// The documents in the root, which readers of the repository see.
const ROOT_DOCUMENTS: [&str; 4] = [
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
];

/// The chapters of the guide.
const CHAPTERS: &str = "docs/src";

/// Where `docs/book.toml` puts the book.
const BOOK: &str = "target/guide";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(file: &str) -> String {
    let path = root().join(file);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// The files of the guide, the table of contents among them.
fn chapters() -> BTreeSet<String> {
    let files = fs::read_dir(root().join(CHAPTERS)).unwrap();
    files
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .filter(|file| file.ends_with(".md"))
        .collect()
}

fn documents() -> Vec<String> {
    let chapters = chapters()
        .into_iter()
        .map(|file| format!("{CHAPTERS}/{file}"));
    ROOT_DOCUMENTS
        .map(String::from)
        .into_iter()
        .chain(chapters)
        .collect()
}

/// The lines outside of fenced code.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut in_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        in_code ^= is_fence;
        !in_code && !is_fence
    })
}

/// A line without its code spans.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

/// The targets of a document's links.
fn links(text: &str) -> Vec<String> {
    let mut links = Vec::new();
    for line in prose(text) {
        let line = without_code(line);
        for (at, _) in line.match_indices("](") {
            let rest = &line[at + 2..];
            links.push(rest[..rest.find(')').unwrap_or(rest.len())].to_string());
        }
        // `[name]: target`, the other form.
        if let Some((_, target)) = line
            .strip_prefix('[')
            .and_then(|rest| rest.split_once("]: "))
        {
            links.push(target.trim().to_string());
        }
    }
    links
}

/// The anchors of a document, which GitHub and mdBook make of its headings in the same way.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let headings = prose(text).filter(|line| line.starts_with('#'));
    headings
        .map(|heading| {
            let words = heading.trim_start_matches('#').trim().to_lowercase();
            let anchor: String = words
                .chars()
                .filter_map(|c| match c {
                    ' ' => Some('-'),
                    c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c),
                    _ => None,
                })
                .collect();
            let times = seen.entry(anchor.clone()).or_default();
            *times += 1;
            match *times {
                1 => anchor,
                times => format!("{anchor}-{}", times - 1),
            }
        })
        .collect()
}

/// A path inside the repository without `..`; `None` if it leads out of it.
fn inside(path: &Path) -> Option<PathBuf> {
    let mut inside = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => inside.push(name),
            Component::CurDir => {}
            Component::ParentDir => inside.pop().then_some(())?,
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(inside)
}

/// Why a link of `document` leads nowhere.
fn fault(document: &str, text: &str, link: &str) -> Option<&'static str> {
    if link.contains("://") || link.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = link
        .split_once('#')
        .map_or((link, None), |(path, anchor)| (path, Some(anchor)));
    let target = match path {
        "" => PathBuf::from(document),
        path => match inside(&Path::new(document).parent().unwrap().join(path)) {
            Some(target) => target,
            None => return Some("leads out of the repository"),
        },
    };
    if !root().join(&target).exists() {
        return Some("there is no such file");
    }
    let is_document = target
        .extension()
        .is_some_and(|extension| extension == "md");
    let is_chapter = target.starts_with(CHAPTERS);
    if document.starts_with(CHAPTERS) && is_document && !is_chapter {
        return Some("the book has no page of it");
    }
    let anchor = anchor?;
    if !is_document {
        return Some("an anchor in something that has no headings");
    }
    let has_it = match path {
        "" => anchors(text).contains(anchor),
        _ => anchors(&read(target.to_str().unwrap())).contains(anchor),
    };
    (!has_it).then_some("there is no such heading")
}

/// The links of a document that lead nowhere, each with why.
fn broken(document: &str, text: &str) -> Vec<String> {
    let links = links(text);
    let faults = links.iter().filter_map(|link| {
        Some(format!(
            "{document}: {link}: {}",
            fault(document, text, link)?
        ))
    });
    faults.collect()
}

#[test]
fn every_link_resolves() {
    let documents = documents();
    let broken: Vec<String> = documents
        .iter()
        .flat_map(|document| broken(document, &read(document)))
        .collect();
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
    let all: usize = documents.iter().map(|file| links(&read(file)).len()).sum();
    assert!(all > 50, "only {all} links were found");
}

#[test]
fn a_broken_link_is_found() {
    let text = "# A `b` c!\n[x](gone.md) [`y`](README.md#gone) ![z](../out.png)\n[s](#a-b-c) [t](#gone)\n\
                [u](Cargo.toml#a) [v](https://example.org/gone)\n[w]: gone.rs\n`[code](gone)`\n```text\n[code](gone)\n```\n";
    assert_eq!(
        broken("README.md", text),
        [
            "README.md: gone.md: there is no such file",
            "README.md: README.md#gone: there is no such heading",
            "README.md: ../out.png: leads out of the repository",
            "README.md: #gone: there is no such heading",
            "README.md: Cargo.toml#a: an anchor in something that has no headings",
            "README.md: gone.rs: there is no such file",
        ]
    );
    assert_eq!(
        broken(
            "docs/src/adopt.md",
            "[x](../../README.md) [y](../../Cargo.toml)"
        ),
        ["docs/src/adopt.md: ../../README.md: the book has no page of it"]
    );
}

#[test]
fn headings_of_one_name_have_numbers() {
    let anchors = anchors("# One\n## Two: `x_y`\n## One\n```sh\n# no heading\n```\n");
    let expected = ["one", "one-1", "two-x_y"].map(String::from);
    assert_eq!(anchors, BTreeSet::from(expected));
}

#[test]
fn every_chapter_is_in_the_table_of_contents() {
    let listed = links(&read("docs/src/SUMMARY.md"));
    let once: BTreeSet<String> = listed.iter().cloned().collect();
    assert_eq!(once.len(), listed.len(), "a chapter is there twice");
    let mut files = chapters();
    assert!(files.remove("SUMMARY.md"));
    assert_eq!(once, files);
}

/// The source files that a document names, code blocks included: `poll/mark.rs` as well as `mark.rs`.
fn named_sources(text: &str) -> BTreeSet<&str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    let words = text.split(|c: char| !is_part(c));
    let words = words.map(|word| word.trim_end_matches('.'));
    words
        .filter(|word| [".rs", ".h", ".c"].iter().any(|end| word.ends_with(end)))
        .collect()
}

/// The files below a directory of the repository, as `/` and the path from its root.
fn sources(under: &str, found: &mut Vec<String>) {
    for entry in fs::read_dir(root().join(under)).unwrap() {
        let entry = entry.unwrap();
        let path = format!("{under}/{}", entry.file_name().to_string_lossy());
        let skipped = ["./target", "./.git", "./report"].contains(&path.as_str());
        match entry.file_type().unwrap().is_dir() {
            true if !skipped => sources(&path, found),
            true => {}
            false => found.push(path),
        }
    }
}

#[test]
fn the_map_names_files_that_are_there() {
    let mut files = Vec::new();
    sources(".", &mut files);
    let is_there = |name: &&str| files.iter().any(|file| file.ends_with(&format!("/{name}")));
    let map = read("ARCHITECTURE.md");
    let named = named_sources(&map);
    let gone: Vec<&str> = named
        .iter()
        .copied()
        .filter(|name| !is_there(name))
        .collect();
    assert!(gone.is_empty(), "no such files: {gone:?}");
    assert!(named.len() > 60, "only {} files were found", named.len());
    let text = "`a/b.rs`, c.bpf.h. and `d.rs`: `e.md` f.c)";
    let expected = ["a/b.rs", "c.bpf.h", "d.rs", "f.c"];
    assert_eq!(named_sources(text), BTreeSet::from(expected));
}

/// `examples/src/guide.rs` has them as documentation.
#[test]
fn programs_of_every_chapter_are_compiled() {
    let compiled = read("examples/src/guide.rs");
    for chapter in chapters() {
        let line = format!("include_str!(\"../../docs/src/{chapter}\")");
        assert_eq!(
            compiled.contains(&line),
            chapter != "SUMMARY.md",
            "{chapter}"
        );
    }
}

/// The first cells of a table's rows, without their backticks and quotes.
fn first_cells<'a>(text: &'a str, heading: &str) -> Vec<&'a str> {
    let table = text.lines().skip_while(|line| !line.starts_with(heading));
    let rows = table.take_while(|line| line.starts_with('|')).skip(2);
    let cells = rows.flat_map(|row| row[2..].split(" | ").next().unwrap().split(", "));
    cells.map(|cell| cell.trim_matches(['`', '"'])).collect()
}

#[test]
fn the_guide_quotes_the_events() {
    let (guide, program) = (
        read("docs/src/stall-report.md"),
        read("morpheus-runtime/src/report/event.rs"),
    );
    let events = first_cells(&guide, "| event |");
    let steps = first_cells(&guide, "| `step` |");
    assert_eq!((events.len(), steps.len()), (4, 7));
    for quoted in events.iter().chain(&steps) {
        assert!(program.contains(quoted), "no event says {quoted:?}");
    }
}

/// The values of `attribute="…"` on a page of the book.
fn attributes<'a>(page: &'a str, attribute: &str) -> Vec<&'a str> {
    let begin = format!(" {attribute}=\"");
    let values = page.match_indices(&begin);
    values
        .filter_map(|(at, _)| page[at + begin.len()..].split('"').next())
        .collect()
}

/// mdBook from the path, or where `cargo xtask test` installs it.
fn mdbook() -> PathBuf {
    let target = env::var_os("CARGO_TARGET_DIR").map_or(root().join("target"), PathBuf::from);
    let installed = target.join("tools/bin/mdbook");
    match installed.is_file() {
        true => installed,
        false => PathBuf::from("mdbook"),
    }
}

/// With each link between its pages: mdBook does not look at them.
#[test]
#[ignore = "needs mdBook: a step of its own in `cargo xtask test --all`"]
fn the_guide_builds() {
    let book = root().join(BOOK);
    let built = Command::new(mdbook())
        .arg("build")
        .arg(root().join("docs"))
        .output()
        .unwrap_or_else(|error| panic!("mdbook: {error}; cargo install mdbook --locked"));
    let said = String::from_utf8_lossy(&built.stderr);
    assert!(built.status.success(), "{said}");
    assert!(!said.contains("WARN") && !said.contains("ERROR"), "{said}");
    let mut pages = chapters();
    pages.remove("SUMMARY.md");
    let mut checked = 0;
    for chapter in pages {
        let name = chapter.replace(".md", ".html");
        let page = fs::read_to_string(book.join(&name)).unwrap();
        let content = page.split("<main>").nth(1).expect("a page has a <main>");
        let content = content.split("</main>").next().unwrap();
        for link in attributes(content, "href") {
            if link.contains("://") {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = match path {
                "" => book.join(&name),
                path => book.join(path),
            };
            assert!(target.exists(), "{name}: {link}");
            if !anchor.is_empty() {
                let page = fs::read_to_string(target).unwrap();
                assert!(attributes(&page, "id").contains(&anchor), "{name}: {link}");
            }
            checked += 1;
        }
    }
    assert!(checked > 30, "only {checked} links were found");
    println!("{}", book.join("index.html").display());
}
