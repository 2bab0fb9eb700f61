//! The table of findings, and their stacks with remedies.

use super::{LONGEST_NAME, escape, unbroken, with_code};
use crate::model::{Finding, Frame, Owner, Report};
use crate::report::fold::folded;
use crate::report::names::{first_columns, printable};
use crate::report::units::{count, duration, grouped};
use crate::report::words;

/// Findings that the table has.
const MOST_ROWS: usize = 200;
/// Findings of the part of it that is open.
const MOST_OPEN_ROWS: usize = 20;
/// Findings with a stack.
const MOST_STACKS: usize = 50;
/// Frames of a stack.
const MOST_FRAMES: usize = 160;

/// Where a finding's stack is on the page, if it is there.
pub(super) fn anchor(finding: usize) -> Option<String> {
    (finding < MOST_STACKS).then(|| format!("finding-{}", finding + 1))
}

const HEADS: [&str; 7] = [
    "Place", "Polls", "p50", "p99", "Longest", "Total", "Unserved",
];

/// The table of findings, the worst first.
pub(super) fn table(report: &Report) -> String {
    let findings: Vec<(usize, &Finding)> =
        report.findings.iter().enumerate().take(MOST_ROWS).collect();
    if findings.is_empty() {
        return String::new();
    }
    let (open, folded) = findings.split_at(findings.len().min(MOST_OPEN_ROWS));
    let mut text = "<section>\n<h2>Findings</h2>\n<p class=\"about\">Long polls with the same culprit, by the time in which meanwhile no \
                    worker of the runtime served what waited (unserved).</p>\n"
        .to_owned();
    text += &rows(open);
    if !folded.is_empty() {
        let more = count(folded.len() as u64, "more finding", "more findings");
        text += &format!(
            "<details class=\"more\"><summary>{more}</summary>\n{}</details>\n",
            rows(folded)
        );
    }
    if report.findings.len() > MOST_ROWS {
        text += &format!(
            "<p class=\"about\">The first {MOST_ROWS} of {} findings; the JSON report has all.</p>\n",
            grouped(report.findings.len() as u64)
        );
    }
    text + "</section>\n"
}

/// A table of some of them.
fn rows(findings: &[(usize, &Finding)]) -> String {
    let mut text = "<div class=\"table\"><table class=\"findings\"><thead><tr>".to_owned();
    for head in HEADS {
        text += &format!("<th scope=\"col\">{head}</th>");
    }
    text += "</tr></thead><tbody>\n";
    for (index, finding) in findings {
        let place = escape(&first_columns(&words::place(finding), 200));
        let place = match anchor(*index) {
            Some(anchor) => format!("<a href=\"#{anchor}\">{place}</a>"),
            None => place,
        };
        let doing = escape(&first_columns(&words::doing(finding), 200));
        let kind = words::verb(finding.doing);
        let (harmless, unserved) = match words::is_harmless(finding) {
            true => (" class=\"harmless\"", "none".to_owned()),
            false => ("", unbroken(finding.unserved_ns)),
        };
        text += &format!(
            "<tr{harmless}><td data-head=\"Place\">{place}<br><span class=\"what\"><i class=\"key {kind}\"></i>{doing}</span></td>"
        );
        let cells = [
            grouped(finding.count),
            unbroken(finding.p50_ns),
            unbroken(finding.p99_ns),
            unbroken(finding.longest_ns),
            unbroken(finding.total_ns),
            unserved,
        ];
        for (head, cell) in HEADS[1..].iter().zip(cells) {
            text += &format!("<td data-head=\"{head}\">{cell}</td>");
        }
        text += "</tr>\n";
    }
    text + "</tbody></table></div>\n"
}

/// The stacks, with remedies.
pub(super) fn stacks(report: &Report) -> String {
    if report.findings.is_empty() {
        return String::new();
    }
    let mut text = "<section>\n<h2>Stacks and remedies</h2>\n<p class=\"about\">The stack that was seen most frequently, innermost \
                    function first; the culprit is marked.</p>\n"
        .to_owned();
    for (index, finding) in report.findings.iter().enumerate() {
        let Some(anchor) = anchor(index) else {
            text += &format!(
                "<p class=\"about\">The stacks of the first {MOST_STACKS} of {} findings; the JSON report has all.</p>\n",
                grouped(report.findings.len() as u64)
            );
            break;
        };
        let open = if index < 3 { " open" } else { "" };
        text += &format!(
            "<details id=\"{anchor}\" class=\"finding\"{open}><summary>{}</summary>\n",
            escape(&first_columns(&words::place(finding), 200))
        );
        text += &about(finding);
        text += &stack(finding);
        text += "</details>\n";
    }
    text + "</section>\n"
}

fn about(finding: &Finding) -> String {
    let mut facts = vec![
        words::doing(finding),
        format!(
            "{}, up to {}",
            count(finding.count, "poll", "polls"),
            duration(finding.longest_ns)
        ),
        match words::is_harmless(finding) {
            true => "harmless: other workers served what waited".to_owned(),
            false => format!("unserved {}", duration(finding.unserved_ns)),
        },
    ];
    if let Some(label) = &finding.label {
        facts.push(format!("task {label}"));
    }
    let mut text = format!(
        "<p class=\"what\">{}</p>\n",
        escape(&first_columns(&facts.join(" · "), LONGEST_NAME))
    );
    if !finding.remedy.is_empty() {
        let remedy = with_code(&first_columns(&finding.remedy, 4 * LONGEST_NAME));
        let head = if words::is_harmless(finding) {
            "If it matters"
        } else {
            "Remedy"
        };
        text += &format!("<p class=\"remedy\"><b>{head}:</b> {remedy}</p>\n");
    }
    text
}

fn stack(finding: &Finding) -> String {
    let stack = &finding.stack;
    if stack.frames.is_empty() {
        return "<p class=\"about\">No stack was seen.</p>\n".to_owned();
    }
    let mut text = "<ol class=\"stack\">\n".to_owned();
    let frames = &stack.frames[..stack.frames.len().min(MOST_FRAMES)];
    // Below the last of the application's functions there is the executor only.
    let is_own = |frame: &Frame| frame.owner != Owner::Plumbing;
    let last = frames
        .iter()
        .rposition(is_own)
        .max(stack.culprit)
        .unwrap_or(0);
    let split = last.saturating_add(1).min(frames.len());
    for (index, frame) in frames[..split].iter().enumerate() {
        text += &line(frame, stack.culprit == Some(index));
    }
    text += "</ol>\n";
    if split < frames.len() {
        text += &format!(
            "<details class=\"executor\"><summary>{}</summary>\n<ol class=\"stack\">\n",
            escape(&folded(&frames[split..]))
        );
        for frame in &frames[split..] {
            text += &line(frame, false);
        }
        text += "</ol></details>\n";
    }
    if stack.frames.len() > MOST_FRAMES {
        let more = count(
            (stack.frames.len() - MOST_FRAMES) as u64,
            "more frame",
            "more frames",
        );
        text += &format!("<p class=\"about\">… {more}; the JSON report has all.</p>\n");
    }
    text
}

fn line(frame: &Frame, is_culprit: bool) -> String {
    let class = match (is_culprit, frame.owner) {
        (true, _) => "culprit",
        (_, Owner::Application) => "own",
        (_, Owner::Plumbing) => "plumbing",
        _ => "other",
    };
    let inlined = if frame.inlined {
        " <small>inlined</small>"
    } else {
        ""
    };
    let location = words::location(frame);
    // The whole path is in the tooltip.
    let path = frame.file.as_ref().map_or_else(String::new, |file| {
        let line = frame
            .line
            .map_or_else(String::new, |line| format!(":{line}"));
        format!(
            " title=\"{}\"",
            escape(&first_columns(
                &printable(&format!("{file}{line}")),
                LONGEST_NAME
            ))
        )
    });
    format!(
        "<li class=\"{class}\"><code>{}</code>{inlined} <span{path}>{}</span></li>\n",
        escape(&first_columns(&printable(&frame.function), LONGEST_NAME)),
        escape(&first_columns(&location, LONGEST_NAME))
    )
}
