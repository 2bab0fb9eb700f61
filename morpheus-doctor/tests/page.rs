//! The HTML page: what is on it, and that text of the target is never markup.

mod common;
#[path = "common/any.rs"]
mod generate;

use common::{harmless, healthy, hostile, huge, service, stripped};
use generate::any_report;
use morpheus_doctor::model::{Doing, Report};
use morpheus_doctor::report::text::{Look, summary};
use morpheus_doctor::report::{folded, html, json, remedy, words};
use proptest::prelude::*;

const TAGS: &[&str] = &[
    "!doctype", "html", "head", "meta", "link", "title", "style", "body", "main", "h1", "h2", "p",
    "dl", "dt", "dd", "section", "div", "table", "thead", "tbody", "tr", "th", "td", "a", "br",
    "span", "i", "b", "small", "code", "details", "summary", "ol", "ul", "li", "label", "input",
    "button", "footer", "script",
];
const ATTRIBUTES: &[&str] = &[
    "html",
    "lang",
    "charset",
    "name",
    "content",
    "http-equiv",
    "rel",
    "href",
    "class",
    "id",
    "style",
    "title",
    "scope",
    "data-head",
    "role",
    "type",
    "min",
    "max",
    "step",
    "value",
    "hidden",
    "open",
    "tabindex",
];

/// Takes a page apart, as a browser would as long as it is well-formed, and says where it is not, or has what it should not have.
fn check(page: &str) -> Result<(), String> {
    let (mut rest, mut open) = (page, Vec::new());
    while let Some(start) = rest.find('<') {
        check_text(&rest[..start])?;
        let tag = &rest[start + 1..];
        // No attribute has a `>` in it.
        let (tag, after) = tag
            .split_once('>')
            .ok_or_else(|| format!("no end: {tag:.80}"))?;
        rest = after;
        if let Some(name) = tag.strip_prefix('/') {
            match open.pop() {
                Some(opened) if opened == name => continue,
                opened => return Err(format!("</{name}> closes {opened:?}")),
            }
        }
        let (name, mut attributes) = tag.split_once(' ').unwrap_or((tag, ""));
        if !TAGS.contains(&name) {
            return Err(format!("<{tag}>"));
        }
        while !attributes.is_empty() {
            let end = attributes.find(['=', ' ']).unwrap_or(attributes.len());
            let attribute = &attributes[..end];
            if !ATTRIBUTES.contains(&attribute) {
                return Err(format!("{attribute:?} in <{tag}>"));
            }
            attributes = &attributes[end..];
            if let Some(value) = attributes.strip_prefix("=\"") {
                let (value, after) = value
                    .split_once('"')
                    .ok_or_else(|| format!("no end: <{tag}>"))?;
                check_text(value)?;
                let is_inside = value.starts_with('#') || value == "data:,";
                if attribute == "href" && !is_inside {
                    return Err(format!("a link to {value}"));
                }
                attributes = after;
            }
            attributes = attributes.strip_prefix(' ').unwrap_or(attributes);
        }
        if name == "style" || name == "script" {
            let end = rest.find(&format!("</{name}>")).ok_or("no end")?;
            let content = &rest[..end];
            // They are from files: nothing of a report is in them.
            if !include_str!("../src/report/html/style.css")
                .trim()
                .eq(content.trim())
                && !include_str!("../src/report/html/script.js")
                    .trim()
                    .eq(content.trim())
            {
                return Err(format!("<{name}> is not that of the page"));
            }
            rest = &rest[end..];
        }
        if !matches!(name, "!doctype" | "meta" | "link" | "br" | "input") {
            open.push(name);
        }
    }
    check_text(rest)?;
    match open.as_slice() {
        [] => Ok(()),
        open => Err(format!("never closed: {open:?}")),
    }
}

fn check_text(text: &str) -> Result<(), String> {
    let is_hostile = |c: char| {
        (c.is_control() && c != '\n')
            || matches!(c, '<' | '>' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    if text.contains(is_hostile) {
        return Err(format!("{text:?}"));
    }
    let mut rest = text;
    while let Some(start) = rest.find('&') {
        rest = &rest[start + 1..];
        if !["amp;", "lt;", "gt;", "quot;", "#39;"]
            .iter()
            .any(|entity| rest.starts_with(entity))
        {
            return Err(format!("a bare & in {text:?}"));
        }
    }
    Ok(())
}

#[test]
fn the_check_finds_what_is_not_escaped() {
    assert_eq!(check("<p class=\"a\">x &amp; y<br></p>"), Ok(()));
    for page in [
        "<p>",
        "</p>",
        "<p></div>",
        "a > b",
        "a & b",
        "<iframe></iframe>",
        "<p onclick=\"x\"></p>",
        "<p class=\"a\" onclick=x></p>",
        "<a href=\"http://x\"></a>",
        "<a href=\"javascript:x\"></a>",
        "<script>alert(1)</script>",
        "<p title=\"a",
        "<p>\u{202e}</p>",
    ] {
        assert!(check(page).is_err(), "{page}");
    }
}

#[test]
fn pages_are_well_formed() {
    for report in [
        service(),
        healthy(),
        harmless(),
        stripped(),
        hostile(),
        huge(),
    ] {
        assert_eq!(check(&html::page(&report)), Ok(()));
    }
}

#[test]
fn a_page_has_everything() {
    let page = html::page(&service());
    for part in [
        "<title>Long polls of orders (pid 48117)</title>",
        "<p class=\"lead\">orders::prices::load at src/prices.rs:41 held up orders",
        "<a href=\"#finding-1\">orders::prices::load at src/prices.rs:41</a>",
        "<h2>Flame graph of long polls</h2>",
        "<h2>Workers over time</h2>",
        "Runtime 1: multi-thread, 4 workers",
        "tokio-runtime-w <small>48118</small>",
        "<li class=\"culprit\"><code>orders::prices::load</code> <span title=\"src/prices.rs:41\">src/prices.rs:41</span></li>",
        "<code>orders::routes::price::{{closure}}</code>",
        "<b>Remedy:</b> Use <code>tokio::fs</code>",
        "<b>If it matters:</b>",
        "<h2>Less exact than it could be</h2>",
        "had not ended",
        "class=\"computing late\"",
        "class=\"unserved\"",
    ] {
        assert!(page.contains(part), "{part} is not on the page");
    }
    assert!(!page.contains("<h2>To see lines</h2>"));
    assert!(html::page(&stripped()).contains("<h2>To see lines</h2>"));
    let page = html::page(&healthy());
    assert!(page.contains("No poll of orders (pid 48117) was longer than 1 ms"));
    assert!(
        !page.contains("<h2>Findings")
            && !page.contains("<h2>Flame")
            && !page.contains("<h2>Workers")
    );
}

#[test]
fn widths_of_the_flame_graph_are_shares() {
    let report = service();
    let page = html::page(&report);
    let blocked = |sample: &&morpheus_doctor::model::Sample| sample.doing == Doing::Blocked;
    let sum = |samples: &mut dyn Iterator<Item = u64>| samples.sum::<u64>() as f64;
    let all = sum(&mut report.samples.iter().map(|sample| sample.weight_ns));
    let share = sum(&mut report
        .samples
        .iter()
        .filter(blocked)
        .map(|sample| sample.weight_ns))
        / all
        * 100.0;
    let expected =
        format!("<div class=\"blocked kind\" style=\"left:0.000%;width:{share:.3}%;top:20px\"");
    assert!(page.contains(&expected), "{expected}");
}

#[test]
fn a_huge_report_makes_a_page_of_bounded_size() {
    let report = huge();
    assert!(report.polls.len() > 10_000, "{}", report.polls.len());
    let page = html::page(&report);
    let boxes = page.matches(" culprit\" style=").count();
    assert!(
        (2_000..=6_000).contains(&boxes),
        "{boxes} boxes of culprits"
    );
    assert!(page.len() < 4 << 20, "{} bytes", page.len());
    for part in [
        "more workers with shorter polls or none",
        "The first 200 of 300 findings",
        "The stacks of the first 50 of 300 findings",
    ] {
        assert!(page.contains(part), "{part}");
    }
}

fn print_all(report: &Report) -> String {
    for columns in [0, 40, 100] {
        let text = summary(
            report,
            Look {
                columns,
                color: columns == 40,
            },
        );
        let is_hostile = |c: char| c.is_control() && c != '\n' && c != '\u{1b}';
        assert!(!text.contains(is_hostile), "{text:?}");
    }
    let line = words::progress_line(report);
    assert!(!line.contains(|c: char| c.is_control()), "{line:?}");
    for finding in &report.findings {
        let advice = remedy::remedy(
            finding.doing,
            &finding.waits_for,
            finding.system_call.as_deref(),
            &finding.stack,
        );
        assert!(!advice.is_empty());
    }
    let mut out = Vec::new();
    folded::write(report, &mut out).unwrap();
    json::write(report, &mut out).unwrap();
    html::page(report)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_report_is_too_strange(report in any_report()) {
        let page = print_all(&report);
        prop_assert_eq!(check(&page), Ok(()));
    }
}
