//! Draws a report. Fits into 80 × 24, and uses what there is beyond.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Clear, Paragraph, Row, Table, Wrap};

use super::model::{Page, State};
use crate::model::{Doing, Finding, Method, Report, Wait};
use crate::report::fold::{self, fold};
use crate::report::names::{columns, first_columns, last_columns, printable};
use crate::report::units::{count, duration, grouped, threshold};
use crate::report::words;

/// Below this nothing can be read.
const LEAST: (u16, u16) = (60, 8);
/// Rows of the sentence that interprets the report, from this height on.
const SENTENCE_ROWS: [(u16, u16); 2] = [(20, 4), (16, 3)];
/// Frames of the stack of the selected finding.
const MOST_FRAMES: usize = 60;
/// From this width on, the kind of a finding has its details.
const DETAILS_FROM: u16 = 110;

const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const LATE: Style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, report: &Report, state: &State) {
    let area = frame.area();
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let text = format!("The table needs {} × {} characters.", LEAST.0, LEAST.1);
        frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), area);
        return;
    }
    let sentence_rows = SENTENCE_ROWS
        .iter()
        .find(|(from, _)| area.height >= *from)
        .map_or(0, |(_, rows)| *rows);
    let [title, about, sentence, body, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Length(sentence_rows),
        Constraint::Min(3),
        Constraint::Length(1),
    ])
    .areas(area);
    draw_title(frame, title, report);
    draw_about(frame, about, report);
    frame.render_widget(
        Paragraph::new(words::sentence(report))
            .style(BOLD)
            .wrap(Wrap { trim: true }),
        inset(sentence),
    );
    match (state.page, report.findings.get(state.selected())) {
        (Page::Stack(from), Some(finding)) => draw_stack(frame, body, finding, from, state),
        _ => draw_findings(frame, body, report, state),
    }
    draw_keys(frame, keys, state);
    if state.help {
        draw_help(frame, area);
    }
}

fn inset(area: Rect) -> Rect {
    Rect {
        x: area.x + 1,
        width: area.width.saturating_sub(2),
        ..area
    }
}

fn section(name: String) -> Block<'static> {
    let style = Style::new().fg(Color::Cyan).add_modifier(Modifier::BOLD);
    Block::new()
        .borders(Borders::TOP)
        .border_style(DIM)
        .title(Span::styled(name, style))
}

fn draw_title(frame: &mut Frame<'_>, area: Rect, report: &Report) {
    let elapsed = format!("{} ", duration(report.length_ns));
    let room = usize::from(area.width).saturating_sub(columns(&elapsed) + 12);
    let process = first_columns(&words::process(report), room);
    let left = Line::from(vec![
        Span::styled(" doctor", BOLD),
        Span::raw(format!("  {process}")),
    ]);
    frame.render_widget(left, area);
    let elapsed = Span::styled(elapsed, Style::new().fg(Color::Green));
    frame.render_widget(Paragraph::new(elapsed).alignment(Alignment::Right), area);
}

fn draw_about(frame: &mut Frame<'_>, area: Rect, report: &Report) {
    let polls = count(report.polls_in_all, "poll", "polls");
    let mut parts = vec![format!(
        "{polls} longer than {}",
        threshold(report.longer_than_ns)
    )];
    if report.method == Method::Proc {
        parts.push("sampled from /proc".to_owned());
    }
    parts.push(words::runtimes(report));
    let text = first_columns(&parts.join(" · "), usize::from(area.width) - 1);
    frame.render_widget(Line::styled(format!(" {text}"), DIM), area);
}

/// The state of a finding's threads, in few characters.
fn kind(finding: &Finding) -> &'static str {
    match (finding.doing, finding.waits_for.first()) {
        (Doing::Computing, _) => "computing",
        (Doing::Blocked, None | Some(Wait::Other)) => "blocked",
        (Doing::Blocked, Some(wait)) => match wait {
            Wait::Sleep => "blocked: sleep",
            Wait::Lock => "blocked: lock",
            Wait::File { .. } => "blocked: file",
            Wait::Socket { .. } => "blocked: socket",
            Wait::Pipe { .. } => "blocked: pipe",
            Wait::Terminal { .. } => "blocked: tty",
            Wait::Child => "blocked: child",
            Wait::Memory => "blocked: memory",
            Wait::Other => "blocked",
        },
    }
}

fn right(text: String) -> Cell<'static> {
    Cell::from(Line::from(text).alignment(Alignment::Right))
}

fn draw_findings(frame: &mut Frame<'_>, area: Rect, report: &Report, state: &State) {
    let rows = usize::from(area.height.saturating_sub(2));
    state.room.set(rows);
    let (all, selected) = (report.findings.len(), state.selected());
    if all == 0 {
        let text = match report.polls_in_all {
            0 => " No long poll yet.",
            _ => " No stack of a long poll yet.",
        };
        let block = section(" Findings ".to_owned());
        frame.render_widget(Paragraph::new(text).style(DIM).block(block), area);
        return;
    }
    let from = (selected + 1).saturating_sub(rows);
    let to = (from + rows).min(all);
    let title = match to - from < all {
        true => format!(
            " {}; {} to {to} shown ",
            count(all as u64, "finding", "findings"),
            from + 1
        ),
        false => format!(" {} ", count(all as u64, "finding", "findings")),
    };
    let kind_columns = if area.width < DETAILS_FROM {
        15
    } else {
        area.width / 4
    };
    // The rest of the width, with a blank between each two columns.
    let place_columns = usize::from(area.width.saturating_sub(kind_columns + 7 + 3 * 7 + 8 + 6));
    let widths = [
        Constraint::Fill(1),
        Constraint::Length(kind_columns),
        Constraint::Length(7),
        Constraint::Length(7),
        Constraint::Length(7),
        Constraint::Length(7),
        Constraint::Length(8),
    ];
    let lines = report.findings[from..to]
        .iter()
        .enumerate()
        .map(|(index, finding)| {
            let doing = match area.width < DETAILS_FROM {
                true => kind(finding).to_owned(),
                false => first_columns(&words::doing(finding), kind_columns.into()),
            };
            let is_harmless = words::is_harmless(finding);
            let unserved = match is_harmless {
                true => right("–".to_owned()),
                false => right(short(finding.unserved_ns)).style(LATE),
            };
            let place = short_place(finding, place_columns.saturating_sub(1));
            let row = Row::new([
                Cell::from(format!(" {place}")),
                Cell::from(doing).style(kind_style(finding)),
                right(short_count(finding.count)),
                right(short(finding.p50_ns)),
                right(short(finding.p99_ns)),
                right(short(finding.total_ns)),
                unserved,
            ]);
            let mut style = if is_harmless { DIM } else { Style::new() };
            if from + index == selected {
                style = style.add_modifier(Modifier::REVERSED);
            }
            row.style(style)
        });
    let head = ["p50", "p99", "total", "unserved"].map(|name| right(name.to_owned()));
    let head = [
        Cell::from(" culprit"),
        Cell::from("did"),
        right("polls".to_owned()),
    ]
    .into_iter()
    .chain(head);
    let table = Table::new(lines, widths)
        .header(Row::new(head).style(DIM))
        .block(section(title));
    frame.render_widget(table, area);
}

fn kind_style(finding: &Finding) -> Style {
    match finding.doing {
        Doing::Computing => Style::new().fg(Color::Yellow),
        Doing::Blocked => Style::new().fg(Color::Blue),
    }
}

/// The culprit in at most `most` columns. Directories and modules are left out first.
fn short_place(finding: &Finding, most: usize) -> String {
    let whole = words::place(finding);
    if columns(&whole) <= most {
        return whole;
    }
    let last = |text: String, separator: &str| {
        text.rsplit(separator).next().unwrap_or_default().to_owned()
    };
    let short = match words::named_frame(finding) {
        Some(frame) if frame.line.is_some() && !frame.function.is_empty() => {
            format!(
                "{} {}",
                last(words::function(frame), "::"),
                last(words::location(frame), "/")
            )
        }
        _ => whole,
    };
    last_columns(&short, most)
}

/// A duration in at most seven characters.
fn short(ns: u64) -> String {
    match ns {
        0..59_950_000_000 => duration(ns),
        59_950_000_000..9_999_000_000_000 => format!("{} s", ns / 1_000_000_000),
        9_999_000_000_000..3_600_000_000_000_000 => format!("{} h", ns / 3_600_000_000_000),
        _ => "> 999 h".to_owned(),
    }
}

/// A count in at most seven characters.
fn short_count(number: u64) -> String {
    match number {
        0..1_000_000 => grouped(number),
        1_000_000..10_000_000_000 => format!("{} M", number / 1_000_000),
        _ => "> 10 G".to_owned(),
    }
}

fn draw_stack(frame: &mut Frame<'_>, area: Rect, finding: &Finding, from: usize, state: &State) {
    let width = usize::from(area.width);
    let place = last_columns(&words::place(finding), width.saturating_sub(4));
    let mut lines = vec![
        Line::styled(format!(" {}", words::doing(finding)), kind_style(finding)),
        Line::raw(format!(
            " {}: p50 {}, p99 {}, longest {}, total {}",
            count(finding.count, "poll", "polls"),
            duration(finding.p50_ns),
            duration(finding.p99_ns),
            duration(finding.longest_ns),
            duration(finding.total_ns)
        )),
        match words::is_harmless(finding) {
            true => Line::raw(" Harmless: other workers served what waited."),
            false => {
                let text = format!(
                    " Unserved {}: no worker served what waited.",
                    duration(finding.unserved_ns)
                );
                Line::styled(text, LATE)
            }
        },
    ];
    if let Some(label) = &finding.label {
        lines.push(Line::raw(format!(" Task {}", printable(label))));
    }
    lines.push(Line::raw(""));
    lines.extend(
        fold(&finding.stack, MOST_FRAMES)
            .iter()
            .map(|line| stack_line(line, width)),
    );
    lines.push(Line::raw(""));
    lines.extend(
        wrapped(&printable(&finding.remedy), width.saturating_sub(2))
            .into_iter()
            .map(|line| Line::raw(format!(" {line}"))),
    );
    let block = section(format!(" {place} "));
    let room = usize::from(block.inner(area).height);
    state.room.set(room);
    state.lines.set(lines.len());
    // It may have become shorter, or the window higher.
    let from = from.min(lines.len().saturating_sub(room));
    let lines: Vec<Line> = lines.into_iter().skip(from).take(room).collect();
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

fn stack_line(line: &fold::Line, width: usize) -> Line<'static> {
    match line {
        fold::Line::Folded(text) => Line::styled(
            first_columns(&format!("   {}", printable(text)), width),
            DIM,
        ),
        fold::Line::Frame { frame, culprit } => {
            let (mark, style) = match culprit {
                true => (" → ", BOLD),
                false => ("   ", Style::new()),
            };
            let location = words::location(frame);
            let location = last_columns(&location, (width / 2).saturating_sub(5));
            let room = width.saturating_sub(5 + columns(&location));
            let function = last_columns(&words::function(frame), room);
            Line::from(vec![
                Span::styled(format!("{mark}{function}"), style),
                Span::styled(format!("  {location}"), style.patch(DIM)),
            ])
        }
    }
}

/// Prose in lines.
fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if columns(line) + 1 + columns(word) <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

fn draw_keys(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let (enter, arrows) = match state.page {
        Page::Findings => ("stack", "select"),
        Page::Stack(_) => ("back", "scroll"),
    };
    let keys = [
        ("q", "end, with a summary"),
        ("↑↓", arrows),
        ("Enter", enter),
        ("?", "help"),
    ];
    let mut spans = Vec::new();
    for (key, what) in keys {
        spans.push(Span::styled(format!(" {key}"), BOLD));
        spans.push(Span::styled(format!(" {what} "), DIM));
    }
    frame.render_widget(Line::from(spans), area);
}

const HELP: &str = " q, Ctrl-C    end the run; then a summary is printed
 ↑ ↓, k j     to other findings; PageUp, PageDown, Home, End
 Enter        the stack and the remedy, and back
 ?, h         this

 A long poll: a task that did not return to the executor for
 longer than the threshold. unserved: how long meanwhile no
 worker of the runtime served what waited. Findings without it
 are harmless.";

fn draw_help(frame: &mut Frame<'_>, area: Rect) {
    let (width, height) = (area.width.min(64), area.height.min(11));
    let inside = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    frame.render_widget(Clear, inside);
    let block = Block::bordered().title(Span::styled(" Help ", BOLD));
    frame.render_widget(Paragraph::new(HELP).block(block), inside);
}

#[cfg(test)]
#[path = "view_tests.rs"]
pub(super) mod tests;
