//! The summary at the end of a run, for people: what the result means, the worst findings with stack and remedy, what was less exact.

use std::fmt::Write as _;
use std::io::IsTerminal;

use crate::model::{Doing, Finding, Report};
use crate::report::fold::{Line, fold};
use crate::report::names::{columns, first_columns, last_columns, printable};
use crate::report::units::{count, duration, grouped, percent};
use crate::report::words;

/// Findings that are shown with stack and remedy.
const MOST_FINDINGS: usize = 5;
/// Further findings that are shown as a line.
const MOST_LINES: usize = 10;
/// Lines of a stack.
const MOST_FRAMES: usize = 14;
/// Where there is no terminal.
const COLUMNS: usize = 100;
/// Text is never broken into narrower lines.
const LEAST_COLUMNS: usize = 40;

const BOLD: &str = "\u{1b}[1m";
const DIM: &str = "\u{1b}[2m";
const RED: &str = "\u{1b}[1;31m";
const GREEN: &str = "\u{1b}[32m";

/// How the summary looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look {
    /// The length of its lines; stacks and names are cut to it, prose is broken.
    pub columns: usize,
    /// With colours and bold type.
    pub color: bool,
}

impl Default for Look {
    /// For a pipe or a file.
    fn default() -> Self {
        Self {
            columns: COLUMNS,
            color: false,
        }
    }
}

impl Look {
    /// For standard output: of a terminal its width, at most 140 columns, with colours unless `NO_COLOR` is set; otherwise the default.
    #[must_use]
    pub fn of_stdout() -> Self {
        if !std::io::stdout().is_terminal() {
            return Self::default();
        }
        let columns =
            ratatui::crossterm::terminal::size().map_or(COLUMNS, |(columns, _)| columns.into());
        Self {
            columns: columns.clamp(LEAST_COLUMNS, 140),
            color: std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
        }
    }
}

/// The summary of a report, with a newline at the end.
#[must_use]
pub fn summary(report: &Report, look: Look) -> String {
    let mut page = Page {
        text: String::new(),
        look: Look {
            columns: look.columns.max(LEAST_COLUMNS),
            ..look
        },
    };
    page.prose("", BOLD, &words::sentence(report));
    page.blank();
    page.prose("", DIM, &words::run(report));
    if !report.ended.is_empty() {
        page.prose(
            "",
            DIM,
            &format!(
                "The run ended: {}.",
                printable(report.ended.trim_end_matches('.'))
            ),
        );
    }
    for (index, finding) in report.findings.iter().take(MOST_FINDINGS).enumerate() {
        page.blank();
        page.finding(index + 1, finding, report.length_ns);
    }
    page.others(report);
    page.list("Less exact than it could be:", &words::notes(report));
    page.list("To see lines:", &words::hints(report));
    page.text
}

struct Page {
    text: String,
    look: Look,
}

impl Page {
    fn blank(&mut self) {
        self.text.push('\n');
    }

    fn line(&mut self, style: &str, line: &str) {
        match self.look.color && !style.is_empty() {
            true => self.text.push_str(&format!("{style}{line}\u{1b}[0m\n")),
            false => {
                self.text += line.trim_end();
                self.blank();
            }
        }
    }

    /// Text in lines that are not too long, each after the first indented as the first one's `lead` is long.
    fn prose(&mut self, lead: &str, style: &str, text: &str) {
        let indent = " ".repeat(columns(lead));
        let mut line = lead.to_owned();
        let mut is_empty = true;
        for word in text.split_whitespace() {
            if !is_empty && columns(&line) + 1 + columns(word) > self.look.columns {
                self.line(style, &line);
                line.clone_from(&indent);
                is_empty = true;
            }
            if !is_empty {
                line.push(' ');
            }
            line += word;
            is_empty = false;
        }
        self.line(style, &line);
    }

    fn list(&mut self, title: &str, items: &[String]) {
        if items.is_empty() {
            return;
        }
        self.blank();
        self.line(BOLD, title);
        for item in items {
            self.prose("- ", "", item);
        }
    }

    fn finding(&mut self, number: usize, finding: &Finding, run_ns: u64) {
        let lead = format!("{number}. ");
        let place = last_columns(&words::place(finding), self.look.columns - lead.len());
        self.line(BOLD, &format!("{lead}{place}"));
        let indent = "   ";
        let mut doing = words::doing(finding);
        if let Some(label) = &finding.label {
            let _ = write!(doing, "; task {}", printable(label));
        }
        self.prose(indent, "", &doing);
        self.prose(indent, "", &figures(finding));
        if let Some(holder) = finding.held_by {
            let text = format!(
                "The lock was held by polls of place {}: what that cost counts there.",
                holder + 1
            );
            self.prose(indent, "", &text);
        }
        match words::is_harmless(finding) {
            true => self.prose(indent, GREEN, "Harmless: other workers served what waited."),
            false => {
                let share = match finding.unserved_ns <= run_ns {
                    true => format!(", {} of the run", percent(finding.unserved_ns, run_ns)),
                    false => String::new(),
                };
                let text = format!(
                    "Unserved {}{share}: no worker served what waited.",
                    duration(finding.unserved_ns)
                );
                self.prose(indent, RED, &text);
            }
        }
        self.stack(finding);
        if !finding.remedy.is_empty() && !words::is_harmless(finding) {
            self.prose("   Remedy: ", "", &printable(&finding.remedy));
        } else if !finding.remedy.is_empty() {
            self.prose("   If it matters: ", DIM, &printable(&finding.remedy));
        }
    }

    fn stack(&mut self, finding: &Finding) {
        let lines = fold(&finding.stack, MOST_FRAMES);
        // Two columns: functions, and where they are. The longer ones are cut.
        let room = self.look.columns - 7;
        let wanted = lines.iter().map(|line| match line {
            Line::Frame { frame, .. } => columns(&words::function(frame)),
            Line::Folded(_) => 0,
        });
        let functions = wanted.max().unwrap_or(0).min(room * 3 / 5);
        for line in &lines {
            match line {
                Line::Folded(text) => {
                    let text = first_columns(&printable(text), room);
                    self.line(DIM, &format!("       {text}"));
                }
                Line::Frame { frame, culprit } => {
                    let function = last_columns(&words::function(frame), functions);
                    let pad = " ".repeat(functions - columns(&function));
                    let location = last_columns(&words::location(frame), room - functions - 2);
                    let (mark, style) = match culprit {
                        true => ("→", BOLD),
                        false => (" ", ""),
                    };
                    self.line(style, &format!("     {mark} {function}{pad}  {location}"));
                }
            }
        }
    }

    /// Findings that there is no room for.
    fn others(&mut self, report: &Report) {
        let rest = report.findings.get(MOST_FINDINGS..).unwrap_or_default();
        if rest.is_empty() {
            return;
        }
        self.blank();
        self.line(BOLD, "Others:");
        for finding in rest.iter().take(MOST_LINES) {
            let unserved = match finding.unserved_ns {
                0 => "harmless".to_owned(),
                ns => format!("unserved {}", duration(ns)),
            };
            let figures = format!(
                ", {}, {} × up to {}, {unserved}",
                words::verb(finding.doing),
                grouped(finding.count),
                duration(finding.longest_ns)
            );
            let room = self
                .look
                .columns
                .saturating_sub(2 + columns(&figures))
                .max(LEAST_COLUMNS / 2);
            let place = last_columns(&words::place(finding), room);
            self.prose("- ", "", &format!("{place}{figures}"));
        }
        if rest.len() > MOST_LINES {
            let more = count(
                (rest.len() - MOST_LINES) as u64,
                "more place",
                "more places",
            );
            self.prose(
                "- ",
                DIM,
                &format!("… and {more}, which the JSON and the HTML report have."),
            );
        }
    }
}

/// `312 polls: p50 8.21 ms, p99 45.0 ms, longest 48.2 ms, total 4.1 s`
fn figures(finding: &Finding) -> String {
    let mut text = format!(
        "{}: p50 {}, p99 {}, longest {}, total {}",
        count(finding.count, "poll", "polls"),
        duration(finding.p50_ns),
        duration(finding.p99_ns),
        duration(finding.longest_ns),
        duration(finding.total_ns)
    );
    let (part_ns, what) = match finding.doing {
        Doing::Computing => (finding.cpu_ns, "of CPU time"),
        Doing::Blocked => (finding.blocked_ns, "asleep"),
    };
    if part_ns > 0 {
        let _ = write!(text, " ({} {what})", duration(part_ns));
    }
    text
}
