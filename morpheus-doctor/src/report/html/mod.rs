//! The report as a page: one file with nothing outside of it, readable on a phone, in the dark and on paper.
//!
//! - `flame`: the flame graph. `timeline`: the workers over time. `findings`: the table, and stacks with remedies.
//! - this file: the page around them, and `escape`, through which all text of the target goes.
//!
//! The script only zooms; without it everything is there.

mod findings;
mod flame;
mod timeline;

use std::io::{self, Write};

use crate::model::{Method, Report};
use crate::report::names::{first_columns, is_hostile};
use crate::report::units::{count, duration, grouped, threshold};
use crate::report::words;

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");
/// Nothing is loaded, and nothing is sent.
const POLICY: &str = "default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; form-action 'none'";
/// Columns of a name in tooltips and stacks: generic names have no bound.
const LONGEST_NAME: usize = 600;

/// Writes the page.
///
/// # Errors
///
/// When writing fails.
pub fn write(report: &Report, out: &mut impl Write) -> io::Result<()> {
    out.write_all(page(report).as_bytes())?;
    out.flush()
}

/// The page.
#[must_use]
pub fn page(report: &Report) -> String {
    let title = format!(
        "Long polls of {}",
        escape(&first_columns(&words::process(report), 80))
    );
    let mut text = format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
         <link rel=\"icon\" href=\"data:,\">\n<title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n\
         <h1>{title}</h1>\n<p class=\"lead\">{}</p>\n",
        escape(&words::sentence(report))
    );
    text += &facts(report);
    text += &findings::table(report);
    text += &flame::graph(report);
    text += &timeline::lanes(report);
    text += &findings::stacks(report);
    text += &list("Less exact than it could be", &words::notes(report));
    text += &list("To see lines", &words::hints(report));
    text += "</main>\n<footer>Made by the doctor of Morpheus. Times are of the monotonic clock, from the beginning of the run.</footer>\n";
    text += &format!("<script>\n{SCRIPT}</script>\n</body>\n</html>\n");
    text
}

/// Facts about the run.
fn facts(report: &Report) -> String {
    let method = match report.method {
        Method::Bpf => "BPF: each switch of a worker was seen",
        Method::Proc => "samples of /proc: lengths are right to the period, short polls are missed",
    };
    let facts = [
        ("Program", report.program.clone()),
        ("Runtimes", words::runtimes(report)),
        (
            "Run",
            format!("{}{}", duration(report.length_ns), ended(report)),
        ),
        ("Method", method.to_owned()),
        (
            "Long polls",
            format!(
                "{} longer than {}, in {}",
                grouped(report.polls_in_all),
                threshold(report.longer_than_ns),
                count(report.findings.len() as u64, "place", "places")
            ),
        ),
    ];
    let mut text = "<dl class=\"facts\">".to_owned();
    for (name, fact) in facts {
        text += &format!(
            "<dt>{name}</dt><dd>{}</dd>",
            escape(&first_columns(&fact, LONGEST_NAME))
        );
    }
    text + "</dl>\n"
}

fn ended(report: &Report) -> String {
    match report.ended.trim_end_matches('.') {
        "" => String::new(),
        ended => format!("; the run ended: {ended}"),
    }
}

fn list(title: &str, items: &[String]) -> String {
    if items.is_empty() {
        return String::new();
    }
    let items: String = items
        .iter()
        .map(|item| format!("<li>{}</li>", with_code(item)))
        .collect();
    format!("<section>\n<h2>{title}</h2>\n<ul class=\"notes\">{items}</ul>\n</section>\n")
}

/// Text that is text, wherever it is put.
pub(crate) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => safe += "&amp;",
            '<' => safe += "&lt;",
            '>' => safe += "&gt;",
            '"' => safe += "&quot;",
            '\'' => safe += "&#39;",
            // HTML has no place for them, and some turn text around.
            c if is_hostile(c) => safe.push('\u{FFFD}'),
            c => safe.push(c),
        }
    }
    safe
}

/// Text in which what stands between two backticks is code.
fn with_code(text: &str) -> String {
    let parts: Vec<&str> = text.split('`').collect();
    // Without a partner the last backtick is one.
    if parts.len().is_multiple_of(2) {
        return escape(text);
    }
    let part = |(index, part): (usize, &&str)| match index.is_multiple_of(2) {
        true => escape(part),
        false => format!("<code>{}</code>", escape(part)),
    };
    parts.iter().enumerate().map(part).collect()
}

/// A share of a whole as a length of CSS.
fn css_percent(part: u64, all: u64) -> String {
    let share = part as f64 / all.max(1) as f64 * 100.0;
    format!("{:.3}%", share.clamp(0.0, 100.0))
}

/// A duration whose unit stays with its number.
fn unbroken(ns: u64) -> String {
    duration(ns).replace(' ', "\u{A0}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_text() {
        assert_eq!(
            escape("<a href='x'>&\"\u{202E}\u{0}"),
            "&lt;a href=&#39;x&#39;&gt;&amp;&quot;\u{FFFD}\u{FFFD}"
        );
    }

    #[test]
    fn code_is_marked() {
        assert_eq!(
            with_code("Use `a<b>` or `c`."),
            "Use <code>a&lt;b&gt;</code> or <code>c</code>."
        );
        assert_eq!(with_code("a ` b"), "a ` b");
        assert_eq!(with_code(""), "");
    }
}
