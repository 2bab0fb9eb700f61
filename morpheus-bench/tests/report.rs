//! The page that `report` makes of real results (in `data/report`), as its users call it.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tiny_skia::Pixmap;

/// Every result that is kept for these tests.
const RESULTS: usize = 15;

fn data() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/report")
}

/// A directory that is removed with the test.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("report-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn with(name: &str, files: &[(&str, &str)]) -> Self {
        let directory = Self::new(name);
        for (file, text) in files {
            fs::write(directory.0.join(file), text).unwrap();
        }
        directory
    }

    fn page(&self) -> String {
        fs::read_to_string(self.0.join("index.html")).unwrap()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn report(arguments: &[&dyn AsRef<std::ffi::OsStr>]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_report"));
    for argument in arguments {
        command.arg(argument);
    }
    command.output().unwrap()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, target).unwrap();
        }
    }
}

/// All results, with frequencies in the study: no machine that this was tested on has any.
fn everything(name: &str, pictures: bool) -> Directory {
    let directory = Directory::new(name);
    copy(&data(), &directory.0);
    let mut log = "elapsed_ms,policy,cpus,governor,khz,kernel,repeat\n".to_owned();
    for kernel in ["car", "notch_iir"] {
        for i in 0..200 {
            let khz = if i % 20 < 5 { 3_000_000 } else { 1_200_000 };
            log += &format!("{}.5,policy0,0 1,schedutil,{khz},{kernel},0\n", i * 100);
        }
    }
    fs::write(directory.0.join("governor/as-it-is/frequency.csv"), log).unwrap();
    let output = if pictures {
        report(&[&directory.0])
    } else {
        report(&[&directory.0, &"--no-png"])
    };
    assert!(output.status.success(), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(Path::new(said.trim_end()), directory.0.join("index.html"));
    directory
}

/// The values of an attribute.
fn attributes<'a>(page: &'a str, name: &str) -> Vec<&'a str> {
    let before = format!(" {name}=\"");
    let after = page.split(&before).skip(1);
    after.map(|rest| rest.split('"').next().unwrap()).collect()
}

/// Every element ends, and in the right order.
fn assert_well_formed(page: &str) {
    let mut open: Vec<&str> = Vec::new();
    let body = &page[page.find("</style>").unwrap()..];
    open.extend(["html", "head", "style"]);
    for tag in body.split('<').skip(1) {
        let (tag, _) = tag.split_once('>').expect("a tag ends");
        let name = tag.split([' ', '/']).find(|part| !part.is_empty()).unwrap();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "{tag}");
        } else if !tag.ends_with('/') && !["meta", "link", "br"].contains(&name) {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

#[test]
fn every_result_is_on_the_page_and_each_plot_is_a_picture() {
    let directory = everything("all", true);
    let page = directory.page();
    assert_eq!(page.matches("<h2>").count(), RESULTS);
    for plot in [
        "Wake, p99<",
        "Wake, percentiles<",
        "Wake, p99 of each round<",
        "Request, p99<",
        "What the hogs got<",
        "The bars<",
        "hogs-2: wake, p99<",
        "Response time<",
        "Operations a second<",
        "Cost: with checkpoints<",
        "Pair by pair: with a critical section<",
        "CPU of the liar<",
        "The others&#39; wakes<",
        "Lateness, median<",
        "Do longer sleeps wake later?<",
        "What a preemption costs<",
        "Where the time goes<",
        "What a cache line costs after a migration<",
        "Latency by governor<",
        "Frequency over time, without load<",
        "What waits behind a worker that blocks<",
        "Requests a second<",
        "Percentiles<",
    ] {
        assert!(page.contains(plot), "{plot}");
    }
    assert!(page.contains("<dt>Kernel</dt><dd>6.18.44</dd>"));
    assert_well_formed(&page);
    let pictures: HashSet<&str> = attributes(&page, "href")
        .into_iter()
        .filter(|href| href.ends_with(".png"))
        .collect();
    assert_eq!(pictures.len(), page.matches("<svg ").count());
    assert!(pictures.len() > 35, "{}", pictures.len());
    for name in pictures {
        let picture = Pixmap::load_png(directory.0.join(name)).unwrap();
        let (width, height) = (picture.width(), picture.height());
        assert!((1_200..1_500).contains(&width), "{width}");
        assert!(is_plain(name), "{name}");
        assert!((300..8_000).contains(&height), "{height}");
        let white = |dot: &&tiny_skia::PremultipliedColorU8| {
            (dot.red(), dot.green(), dot.blue()) == (255, 255, 255)
        };
        let inked = picture.pixels().len() - picture.pixels().iter().filter(white).count();
        let share = inked as f64 / picture.pixels().len() as f64;
        assert!((0.01..0.6).contains(&share), "{share}");
        // The margin stays empty: nothing is cut off.
        let row = width as usize;
        let edges = picture
            .pixels()
            .chunks(row)
            .flat_map(|line| [&line[..9], &line[row - 9..]]);
        assert!(edges.flatten().all(|dot| white(&dot)));
    }
}

/// A name for any system, and no path.
fn is_plain(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    name.strip_suffix(".png")
        .is_some_and(|stem| stem.chars().all(plain))
}

#[test]
fn the_page_needs_nothing_but_itself() {
    let directory = everything("alone", false);
    let page = directory.page();
    for outside in [
        "http:",
        "https:",
        " src=",
        "url(",
        "@import",
        "<script",
        "javascript:",
    ] {
        assert!(!page.contains(outside), "{outside}");
    }
    for href in attributes(&page, "href") {
        let inside = href.starts_with('#') && page.contains(&format!("id=\"{}\"", &href[1..]));
        assert!(inside || href == "data:,", "{href}");
    }
}

#[test]
fn what_cannot_be_shown_is_named_and_stops_nothing() {
    let good = fs::read_to_string(data().join("takeover.json")).unwrap();
    let deep = "[".repeat(50_000);
    let files = [
        ("a-empty.json", ""),
        ("b-text.json", "starvation: no such runtime\n"),
        ("c-deep.json", &deep),
        ("d-other.json", "{\"bench\": \"<script>alert(1)</script>\"}"),
        ("e-none.json", "{\"bench\": \"latency\", \"open\": 7}"),
        ("f-log.hlog", "hello"),
        (
            "g-huge.json",
            "{\"bench\": \"takeover\", \"waited_ns\": {\"p50\": 1e999}}",
        ),
        ("h-list.json", "[1, 2, 3]"),
        ("i-good.json", &good),
        ("j-lines.jsonl", "{\"record\": \"run\"}\n"),
        ("ignored.txt", "not a result"),
    ];
    let directory = Directory::with("bad", &files);
    let output = report(&[&directory.0]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let (said, page) = (String::from_utf8(output.stderr).unwrap(), directory.page());
    for (file, _) in files
        .iter()
        .filter(|(file, _)| !["i-good.json", "ignored.txt"].contains(file))
    {
        assert!(said.contains(file), "{file}: {said}");
        assert!(page.contains(&format!("<code>{file}</code>")), "{file}");
    }
    assert!(!said.contains("i-good") && !page.contains("ignored.txt"));
    assert!(page.contains("Not shown") && !page.contains("<script"));
    assert_well_formed(&page);

    fs::remove_file(directory.0.join("i-good.json")).unwrap();
    let output = report(&[&directory.0]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        String::from_utf8(output.stderr)
            .unwrap()
            .contains("can be shown")
    );
}

/// Numbers that no benchmark measures, in every place where a real result has one.
#[test]
fn absurd_numbers_do_no_harm() {
    for absurd in [
        "0",
        "-1",
        "1e308",
        "-1e308",
        "1e-300",
        "18446744073709551615",
        "null",
        "\"x\"",
        "[]",
        "{}",
    ] {
        let directory = Directory::new(&format!(
            "absurd-{}",
            absurd.len() + absurd.as_bytes()[0] as usize
        ));
        for entry in fs::read_dir(data()).unwrap() {
            let path = entry.unwrap().path();
            if path
                .extension()
                .is_some_and(|kind| kind == "json" || kind == "jsonl")
            {
                let mut text = String::new();
                let real = fs::read_to_string(&path).unwrap();
                let mut digits = false;
                // Every number after a colon or in a list.
                for (i, c) in real.char_indices() {
                    let before = real[..i].chars().next_back();
                    if !digits
                        && (c.is_ascii_digit() || c == '-')
                        && matches!(before, Some(':' | ',' | '['))
                    {
                        digits = true;
                        text += absurd;
                    }
                    digits &= c.is_ascii_digit() || "+-.eE".contains(c);
                    if !digits {
                        text.push(c);
                    }
                }
                fs::write(directory.0.join(path.file_name().unwrap()), text).unwrap();
            }
        }
        let output = report(&[&directory.0, &"--no-png"]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            matches!(output.status.code(), Some(0 | 1)),
            "{absurd}: {said}"
        );
        assert!(!said.contains("panicked"), "{absurd}: {said}");
        if output.status.success() {
            let page = directory.page();
            assert_well_formed(&page);
            assert!(!page.contains("NaN") && !page.contains("inf"), "{absurd}");
        }
    }
}

#[test]
fn somebody_elses_page_is_not_replaced() {
    let good = fs::read_to_string(data().join("takeover.json")).unwrap();
    let directory = Directory::with("foreign", &[("a.json", &good), ("index.html", "mine")]);
    let output = report(&[&directory.0]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("--output") && said.contains("--force"),
        "{said}"
    );
    assert_eq!(directory.page(), "mine");

    let elsewhere = directory.0.join("new/below");
    let output = report(&[&directory.0, &"--output", &elsewhere, &"--title", &"A < B"]);
    assert!(output.status.success(), "{output:?}");
    let page = fs::read_to_string(elsewhere.join("index.html")).unwrap();
    assert!(page.contains("<title>A &lt; B</title>"));

    assert!(
        report(&[&directory.0, &"--force", &"--no-png"])
            .status
            .success()
    );
    // Its own page it replaces without being told to.
    assert!(report(&[&directory.0, &"--no-png"]).status.success());
    let any_png = fs::read_dir(&directory.0).unwrap().any(|entry| {
        entry
            .unwrap()
            .path()
            .extension()
            .is_some_and(|kind| kind == "png")
    });
    assert!(!any_png);
}

#[test]
fn a_study_may_be_the_directory_itself() {
    let directory = Directory::new("study");
    copy(&data().join("governor"), &directory.0);
    let output = report(&[&directory.0, &"--no-png"]);
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
    assert!(directory.page().contains("Latency by governor"));
}

#[test]
fn refusals_say_what_to_do() {
    let empty = Directory::new("empty");
    let output = report(&[&empty.0]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("--json"));
    let output = report(&[&empty.0.join("none")]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(report(&[&"--nonsense"]).status.code(), Some(2));
    let help = String::from_utf8(report(&[&"--help"]).stdout).unwrap();
    assert!(help.contains("Examples:") && help.contains("Exit codes:"));
    assert!(help.lines().all(|line| line.chars().count() <= 120));
}
