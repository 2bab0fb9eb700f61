//! The page that `report` makes of real results (in `data/report`), as its users call it.
//!
//! One test opens it in a browser, and is skipped where there is none; with `MORPHEUS_REQUIRE_BROWSER=1` it fails.

use std::collections::HashSet;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

/// Every result that is kept for these tests.
const RESULTS: usize = 17;

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
    let path = directory.0.join("governor/study.json");
    let mut study: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
    let khz = |i: u64| if i % 20 < 5 { 3_000_000 } else { 1_200_000 };
    let points: Vec<[u64; 2]> = (0..400).map(|i| [i * 100_000_000, khz(i)]).collect();
    study["courses"] = json!([{
        "title": "frequency over time, without load", "contender": "schedutil", "unit": "frequency", "points": points,
    }]);
    fs::write(path, study.to_string()).unwrap();
    let output = if pictures {
        report(&[&directory.0])
    } else {
        report(&[&directory.0, &"--no-svg"])
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
        "2 hogs: wake<",
        "2 hogs: wake p50<",
        "operations at a fixed rate: time<",
        "with checkpoints against without checkpoints: CPU time<",
        "within a section against without: CPU time<",
        "beside busy processes: its CPU<",
        "beside busy processes: the others&#39; wakes<",
        "sleeps of 2.0 ms: late p50<",
        "sleeps of 2.0 ms: late<",
        "sleeps, slack 1 ns: late p50<",
        "a preemption: time<",
        "where the time goes: time<",
        "refill a line: random cycle<",
        "latency: all kernels<",
        "frequency over time, without load<",
        "a worker that blocks is replaced: next task<",
        "a poll that computes is asked to yield: CPU time<",
        "an idle runtime: resident<",
        "morpheus against tokio: operations/s<",
        "morpheus-watched against tokio: CPU time<",
        "morpheus against tokio: p99<",
        "every turn against plain: CPU time<",
        "Percentiles<",
    ] {
        assert!(page.contains(plot), "{plot}");
    }
    assert!(page.contains("Do longer sleeps wake later? By clock_nanosleep"));
    assert!(page.contains("<dt>Kernel</dt><dd>6.18.44</dd>"));
    assert_well_formed(&page);
    let pictures: HashSet<&str> = attributes(&page, "href")
        .into_iter()
        .filter(|href| href.ends_with(".svg"))
        .collect();
    assert_eq!(pictures.len(), page.matches("<svg ").count());
    assert!(pictures.len() > 35, "{}", pictures.len());
    for name in pictures {
        assert!(is_plain(name), "{name}");
        let picture = fs::read_to_string(directory.0.join(name)).unwrap();
        assert!(picture.starts_with("<svg xmlns=") && picture.ends_with("</svg>\n"));
        let size = |of: &str| attributes(&picture, of)[0].parse::<f64>().unwrap();
        let (width, height) = (size("width"), size("height"));
        assert!((400.0..500.0).contains(&width), "{width}");
        assert!((100.0..2_700.0).contains(&height), "{height}");
        // Nothing begins outside: the margin stays empty.
        let texts = picture.split("<text ").skip(1).map(|rest| {
            let at = |of: &str| {
                attributes(&format!(" {rest}"), of)[0]
                    .parse::<f64>()
                    .unwrap()
            };
            (at("x"), at("y"))
        });
        let texts: Vec<(f64, f64)> = texts.collect();
        let is_inside = |(x, y): &(f64, f64)| {
            (3.0..=width - 3.0).contains(x) && (3.0..=height - 3.0).contains(y)
        };
        assert!(
            texts.len() > 3 && texts.iter().all(is_inside),
            "{name}: {texts:?}"
        );
        let shapes = ["<polyline ", "<rect ", "<g "].map(|shape| picture.matches(shape).count());
        assert!(shapes.iter().sum::<usize>() > 3, "{name}: {shapes:?}");
    }
}

/// A name for any system, and no path.
fn is_plain(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    name.strip_suffix(".svg")
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
    let good = fs::read_to_string(data().join("escalation.json")).unwrap();
    let deep = "[".repeat(50_000);
    let files = [
        ("a-empty.json", ""),
        ("b-text.json", "starvation: no such runtime\n"),
        ("c-deep.json", &deep),
        ("d-other.json", "{\"bench\": \"<script>alert(1)</script>\"}"),
        ("e-none.json", "{\"bench\": \"latency\", \"rows\": 7}"),
        ("f-log.hlog", "hello"),
        (
            "g-huge.json",
            "{\"bench\": \"liar\", \"rows\": [{\"median\": 1e999}]}",
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
        let output = report(&[&directory.0, &"--no-svg"]);
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
    let good = fs::read_to_string(data().join("escalation.json")).unwrap();
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
        report(&[&directory.0, &"--force", &"--no-svg"])
            .status
            .success()
    );
    // Its own page it replaces without being told to.
    assert!(report(&[&directory.0, &"--no-svg"]).status.success());
    let any_svg = fs::read_dir(&directory.0).unwrap().any(|entry| {
        entry
            .unwrap()
            .path()
            .extension()
            .is_some_and(|kind| kind == "svg")
    });
    assert!(!any_svg);
}

#[test]
fn a_study_may_be_the_directory_itself() {
    let directory = Directory::new("study");
    copy(&data().join("governor"), &directory.0);
    let output = report(&[&directory.0, &"--no-svg"]);
    assert!(
        output.status.success() && output.stderr.is_empty(),
        "{output:?}"
    );
    assert!(directory.page().contains("latency: all kernels"));
}

#[test]
fn refusals_say_what_to_do() {
    let empty = Directory::new("empty");
    let output = report(&[&empty.0]);
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("--json"));
    let output = report(&[&empty.0.join("none")]);
    assert_eq!(output.status.code(), Some(1));
}

/// Chromium and its kin.
const BROWSERS: [&str; 4] = [
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
];

/// The findings of a script in the page. It runs in a copy of it: the page itself has none.
#[derive(Debug, Deserialize)]
struct Found {
    /// Errors of scripts, of policies, and of what could not be loaded.
    errors: Vec<String>,
    /// Plots that take no room.
    invisible: usize,
    /// Plots that do.
    visible: usize,
    /// Labels that stand on each other or reach out of their plot.
    labels: Vec<String>,
    /// The elements that are wider than a small phone.
    too_wide: Vec<String>,
}

const PROBE: &str = r#"<script>
const errors = [];
addEventListener("error", e => errors.push(e.message || "not loaded: " + e.target.outerHTML), true);
addEventListener("securitypolicyviolation", e => errors.push(e.violatedDirective));
const error = console.error;
console.error = (...all) => { errors.push(all.join(" ")); error(...all); };
addEventListener("load", () => {
  const phone = 360;
  document.documentElement.style.width = phone + "px";
  document.querySelectorAll("details").forEach(details => details.open = true);
  const found = { errors, invisible: 0, visible: 0, labels: [], too_wide: [] };
  for (const svg of document.querySelectorAll("svg")) {
    const size = svg.getBoundingClientRect();
    if (size.width > 100 && size.height > 30) found.visible++; else found.invisible++;
    const { width, height } = svg.viewBox.baseVal;
    const texts = [...svg.querySelectorAll("text")].map(text => [text.textContent, text.getBBox()]);
    texts.forEach(([name, a], i) => {
      if (a.x < -1 || a.y < -1 || a.x + a.width > width + 1 || a.y + a.height > height + 3)
        found.labels.push("cut off: " + name);
      for (const [other, b] of texts.slice(i + 1)) {
        const across = Math.min(a.x + a.width, b.x + b.width) - Math.max(a.x, b.x);
        const down = Math.min(a.y + a.height, b.y + b.height) - Math.max(a.y, b.y);
        // Boxes of lines are higher than their letters.
        if (across > 1 && down > 4) found.labels.push(name + " on " + other);
      }
    });
  }
  for (const element of document.querySelectorAll("h1,h2,h3,p,li,dl,svg,figure,.table"))
    if (element.getBoundingClientRect().right > phone + 1) found.too_wide.push(element.outerHTML.slice(0, 80));
  document.body.setAttribute("data-found", JSON.stringify(found));
});
</script>"#;

/// Opens a page with the probe in it, and says what it and the browser's console have to say.
fn open(browser: &str, directory: &Path, page: &str) -> (Found, String) {
    let probed = page.replacen("<title>", &format!("{PROBE}<title>"), 1);
    let file = directory.join("probe.html");
    fs::write(&file, probed).unwrap();
    let (stdout, stderr) = (directory.join("dom.txt"), directory.join("console.txt"));
    let mut child = Command::new(browser)
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
        ])
        .args(["--enable-logging=stderr", "--v=0", "--window-size=1280,900"])
        .arg(format!(
            "--user-data-dir={}",
            directory.join("profile").display()
        ))
        .arg("--dump-dom")
        .arg(format!("file://{}", file.display()))
        .env("HOME", directory)
        .stdin(Stdio::null())
        .stdout(File::create(&stdout).unwrap())
        .stderr(File::create(&stderr).unwrap())
        .spawn()
        .unwrap();
    let until = Instant::now() + Duration::from_secs(120);
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > until {
            let _ = child.kill();
            panic!(
                "{browser} does not end: {}",
                fs::read_to_string(&stderr).unwrap()
            );
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    let log = String::from_utf8_lossy(&fs::read(&stderr).unwrap()).into_owned();
    assert!(status.success(), "{browser}: {log}");
    let dom = String::from_utf8_lossy(&fs::read(&stdout).unwrap()).into_owned();
    let found = attributes(&dom, "data-found");
    let found = found
        .first()
        .unwrap_or_else(|| panic!("the probe did not run: {log}"));
    let json = found
        .replace("&quot;", "\"")
        .replace("&lt;", "<")
        .replace("&gt;", ">")
        .replace("&nbsp;", " ")
        .replace("&amp;", "&");
    let console: String = log
        .lines()
        .filter(|line| line.contains("CONSOLE"))
        .collect::<Vec<_>>()
        .join("\n");
    (serde_json::from_str(&json).unwrap(), console)
}

#[test]
fn a_browser_shows_every_plot_without_an_error() {
    let answers = |name: &&&str| {
        let call = Command::new(name).arg("--version").output();
        call.is_ok_and(|output| output.status.success())
    };
    let Some(browser) = BROWSERS.iter().find(answers) else {
        let missing = format!("no browser found ({BROWSERS:?})");
        return morpheus_testing::skip_unless_required(missing, "MORPHEUS_REQUIRE_BROWSER");
    };
    let directory = everything("browser", false);
    let page = directory.page();
    let (found, console) = open(browser, &directory.0, &page);
    assert!(
        found.errors.is_empty() && console.is_empty(),
        "{found:?}\n{console}"
    );
    assert_eq!(
        (found.invisible, found.visible),
        (0, page.matches("<svg ").count())
    );
    assert!(found.labels.is_empty(), "{:#?}", found.labels);
    assert!(found.too_wide.is_empty(), "{:#?}", found.too_wide);

    // The script finds the faults that it is to find.
    let bad = "<svg style=\"display:none\"></svg><img src=\"missing.png\"><script>nothing()</script>\
               <svg viewBox=\"0 0 400 100\"><text x=\"9\" y=\"50\">one</text><text x=\"12\" y=\"52\">two</text>\
               <text x=\"390\" y=\"90\">outside</text></svg><p style=\"width:900px\">wide</p></main>";
    let (found, console) = open(browser, &directory.0, &page.replacen("</main>", bad, 1));
    assert_eq!((found.errors.len(), found.invisible), (2, 1), "{found:?}");
    assert!(console.contains("nothing is not defined"), "{console}");
    assert_eq!(found.labels, ["one on two", "cut off: outside"]);
    assert_eq!(found.too_wide.len(), 1, "{found:?}");
}
