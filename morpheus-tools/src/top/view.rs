//! Draws the model. Fits into 80 × 24, uses what there is beyond, and leaves out what the daemon does not say.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Cell, Clear, Padding, Paragraph, Row, Table, Wrap};

use super::curves;
use super::decisions::{self, CELL_COLUMNS};
use super::model::{Link, Model, Page};
use super::text::{bars_of, printable, short, time_text};
use crate::reading::{Reading, TIERS};
use crate::telemetry::{Latency, mean, quantile, regime_text};

/// Below this nothing can be read.
const LEAST: (u16, u16) = (62, 14);
/// The left half of the middle.
const MACHINE_COLUMNS: u16 = 28;
/// Rows of the middle, with its title, where there are no more.
const MIDDLE_ROWS: u16 = 7;
/// Rows of the tiers and of the knobs, with their titles.
const TIERS_ROWS: u16 = 2 + TIERS.len() as u16;
const KNOBS_ROWS: u16 = 4;
/// The least of the processes: the title, the head and one.
const PROCESSES_ROWS: u16 = 3;

pub(super) const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, model: &Model) {
    let area = frame.area();
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let text = format!("{} × {} at least, please", LEAST.0, LEAST.1);
        frame.render_widget(Paragraph::new(text).wrap(Wrap { trim: true }), area);
        return;
    }
    if let Page::Curves(resolution) = model.page {
        curves::draw(frame, model, resolution);
        if model.help {
            draw_help(frame, area);
        }
        return;
    }
    let empty = Reading::default();
    let reading = model.reading.as_ref().unwrap_or(&empty);
    let cells = decisions::cells(reading, &model.rates);
    let columns = area.width.saturating_sub(MACHINE_COLUMNS) / CELL_COLUMNS;
    let cell_rows = cells.len().div_ceil(usize::from(columns.max(1))) as u16;
    let notice_rows = if matches!(model.link, Link::Gone(_)) {
        2
    } else {
        0
    };
    // The rows left after each part has its least; first for the tiers, then for the knobs, then for the decisions.
    let mut rest = area
        .height
        .saturating_sub(1 + notice_rows + MIDDLE_ROWS + PROCESSES_ROWS + 1);
    let mut take = |wanted: bool, rows: u16| {
        let taken = if wanted && rows <= rest { rows } else { 0 };
        rest -= taken;
        taken
    };
    let tiers_rows = take(reading.wake.iter().any(Option::is_some), TIERS_ROWS);
    let knobs_rows = take(!reading.knobs.is_empty(), KNOBS_ROWS);
    let more_processes = reading.connections.len().saturating_sub(1) as u16;
    let more_cells = (cell_rows + 1)
        .saturating_sub(MIDDLE_ROWS)
        .min(rest - more_processes.min(rest.div_ceil(2).max(rest.min(4))));
    let [title, notice, tiers, middle, knobs, processes, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(notice_rows),
        Constraint::Length(tiers_rows),
        Constraint::Length(MIDDLE_ROWS + more_cells),
        Constraint::Length(knobs_rows),
        Constraint::Min(PROCESSES_ROWS),
        Constraint::Length(1),
    ])
    .areas(area);
    let [machine, decided] =
        Layout::horizontal([Constraint::Length(MACHINE_COLUMNS), Constraint::Fill(1)])
            .areas(middle);
    draw_title(frame, title, model, reading);
    draw_notice(frame, notice, model);
    draw_tiers(frame, tiers, model);
    draw_machine(frame, machine, model, reading);
    decisions::draw(frame, decided, &cells, section("Decisions per second"));
    draw_knobs(frame, knobs, reading);
    draw_processes(frame, processes, model, reading);
    draw_keys(frame, keys, model);
    if model.help {
        draw_help(frame, area);
    }
}

/// A section: a line with its name, and what is below.
pub(super) fn section(name: impl Into<String>) -> Block<'static> {
    Block::new()
        .borders(Borders::TOP)
        .border_style(DIM)
        .title(Span::styled(
            format!(" {} ", name.into()),
            Style::new().add_modifier(Modifier::BOLD).fg(Color::Cyan),
        ))
}

pub(super) fn draw_title(frame: &mut Frame<'_>, area: Rect, model: &Model, reading: &Reading) {
    let mut left = vec![Span::styled(" scx_morpheus", BOLD)];
    if let Some(runs) = &reading.runs {
        left.push(Span::raw(format!("  {}", printable(runs))));
    }
    if let Some(cpus) = reading.cpus {
        left.push(Span::raw(format!(", {cpus} CPUs")));
    }
    if let Some(regime) = regime_text(reading) {
        let style = Style::new().fg(Color::Yellow).add_modifier(Modifier::BOLD);
        left.push(Span::styled(format!("  {}", printable(&regime)), style));
    }
    let right = match (&model.link, model.paused) {
        (_, true) => Span::styled("PAUSED ", Style::new().fg(Color::Black).bg(Color::Yellow)),
        (Link::Waiting, _) => Span::styled("asking … ", DIM),
        (Link::Live, _) => Span::styled(
            format!("every {} s ", model.interval.as_secs_f64()),
            Style::new().fg(Color::Green),
        ),
        (Link::Gone(_), _) => {
            Span::styled("NO DAEMON ", Style::new().fg(Color::White).bg(Color::Red))
        }
    };
    frame.render_widget(Line::from(left), area);
    frame.render_widget(Paragraph::new(right).alignment(Alignment::Right), area);
}

fn draw_notice(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    let Link::Gone(error) = &model.link else {
        return;
    };
    let mut text = format!(
        " No daemon answers at {}: {}. It is asked again and again.",
        printable(&model.socket),
        printable(error)
    );
    if model.reading.is_some() {
        text += " What is shown is the last that it said.";
    }
    let style = Style::new().fg(Color::Red).add_modifier(Modifier::BOLD);
    frame.render_widget(
        Paragraph::new(text).style(style).wrap(Wrap { trim: false }),
        area,
    );
}

fn draw_tiers(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    // A scheduler that does not count them has no column of dashes.
    let has_l2 = model.rates.all_of("l2_hits_").is_some();
    let l2_columns = if has_l2 { 6 } else { 0 };
    let widths = [
        Constraint::Length(13),
        Constraint::Length(9),
        Constraint::Length(9),
        Constraint::Length(9),
        Constraint::Length(9),
        Constraint::Length(l2_columns),
        Constraint::Fill(1),
    ];
    // Six columns, and a blank between each two.
    let bars = usize::from(area.width.saturating_sub(13 + 4 * 9 + l2_columns + 6));
    let rows = TIERS.iter().enumerate().map(|(index, tier)| {
        let histogram = model.rates.wake[index].as_ref();
        let text = |latency: Option<Latency>| {
            right(latency.map_or_else(|| "–".to_owned(), |latency| latency.to_string()))
        };
        let wakeups = model.rates.wakeups(index);
        let l2 = model.rates.l2_hits(tier);
        Row::new([
            Cell::from(format!(" {}", tier.replace('_', " "))),
            right(wakeups.map_or_else(|| "–".to_owned(), short)),
            text(histogram.and_then(mean)),
            text(histogram.and_then(|histogram| quantile(histogram, 0.5))),
            text(histogram.and_then(|histogram| quantile(histogram, 0.99))).style(BOLD),
            right(l2.map_or_else(|| "–".to_owned(), |share| format!("{:.0} %", share * 100.0))),
            Cell::from(bars_of(&model.p99[index], bars)).style(Style::new().fg(Color::Green)),
        ])
    });
    let head = Row::new([
        Cell::from(" tier"),
        right("wakeups/s"),
        right("≈ mean"),
        right("p50"),
        right("p99"),
        right(if has_l2 { "L2 hit" } else { "" }),
        Cell::from("p99 so far"),
    ])
    .style(DIM);
    let table = Table::new(rows, widths)
        .header(head)
        .block(section("Wakeup until it runs"));
    frame.render_widget(table, area);
}

fn right(text: impl Into<String>) -> Cell<'static> {
    Cell::from(Line::from(text.into()).alignment(Alignment::Right))
}

fn draw_machine(frame: &mut Frame<'_>, area: Rect, model: &Model, reading: &Reading) {
    let mut lines = Vec::new();
    if reading.observes() {
        lines.push(" It only observes: the\n kernel itself schedules.".to_owned());
    }
    if let Some(idle) = reading.idle_share {
        let full = (idle * 10.0).round() as usize;
        lines.push(format!(
            " idle {:>4.0} % {}",
            idle * 100.0,
            "█".repeat(full)
        ));
    }
    if let Some(dispatches) = model.rates.dispatches().filter(|_| !reading.observes()) {
        let columns = usize::from(area.width.saturating_sub(23));
        lines.push(format!(
            " dispatches {:>7}/s {}",
            short(dispatches),
            bars_of(&model.dispatches, columns)
        ));
    }
    if let Some(waits_ns) = reading.batch_waits_ns {
        let threshold = reading.knobs.get("sojourn_thresh_ns");
        lines.push(format!(
            " batch waits {}{}",
            time_text(waits_ns),
            threshold.map_or_else(String::new, |ns| format!(" of {}", time_text(*ns)))
        ));
    }
    if let Some(rescues) = model.rates.rescues().filter(|_| !reading.observes()) {
        lines.push(format!(" rescues {}/s", short(rescues)));
    }
    if let Some(share) = model.rates.sleeps_for_io {
        lines.push(format!(" sleeps for io {:.0} %", share * 100.0));
    }
    if let Some(profiles) = reading.procdb {
        lines.push(format!(
            " procdb {}, {} confident",
            profiles.known, profiles.confident
        ));
    }
    if let Some(lost) = model.rates.of("events_lost").filter(|rate| *rate > 0.0) {
        lines.push(format!(" EVENTS LOST {}/s", short(lost)));
    }
    if model.reading.is_some() && lines.is_empty() {
        lines.push(" measuring …".to_owned());
    }
    let text = Paragraph::new(lines.join("\n")).block(section("Machine"));
    frame.render_widget(text, area);
}

fn draw_knobs(frame: &mut Frame<'_>, area: Rect, reading: &Reading) {
    let numbers = reading
        .knobs
        .iter()
        .map(|(name, value)| match name.strip_suffix("_ns") {
            Some(name) => (name, time_text(*value)),
            None => (name.as_str(), value.to_string()),
        });
    let words = reading
        .modes
        .iter()
        .map(|(name, value)| (name.as_str(), value.clone()));
    let mut spans = Vec::new();
    for (name, value) in numbers.chain(words) {
        // A name and its value stay in one line.
        let name = printable(&name.replace('_', "\u{a0}"));
        spans.push(Span::styled(format!("{name}\u{a0}"), DIM));
        spans.push(Span::raw(printable(&value).replace(' ', "\u{a0}")));
        spans.push(Span::raw("   "));
    }
    let text = Paragraph::new(Line::from(spans))
        .wrap(Wrap { trim: false })
        .block(section("Knobs").padding(Padding::left(1)));
    frame.render_widget(text, area);
}

fn draw_processes(frame: &mut Frame<'_>, area: Rect, model: &Model, reading: &Reading) {
    let processes = model.processes();
    let count = reading.processes.unwrap_or(processes.len() as u64);
    let room = usize::from(area.height.saturating_sub(2));
    model.room.set(room);
    let above = model.above();
    let mut name = format!("Processes: {count}, by {}", model.sort.word());
    if processes.len() > room {
        name += &format!("; {} to {} shown", above + 1, above + room);
    }
    let block = section(name);
    if processes.is_empty() {
        let text = match model.reading {
            Some(_) => " no application is connected",
            None => "",
        };
        frame.render_widget(Paragraph::new(text).style(DIM).block(block), area);
        return;
    }
    let number = |count: Option<u64>, color: Color| {
        let style = match count {
            Some(1..) => Style::new().fg(color).add_modifier(Modifier::BOLD),
            _ => DIM,
        };
        right(count.map_or_else(|| "–".to_owned(), |count| count.to_string())).style(style)
    };
    let rows = processes.into_iter().skip(above).take(room).map(|process| {
        Row::new([
            right(process.pid.to_string()),
            Cell::from(printable(&process.comm)),
            right(process.workers.to_string()),
            number(process.stalled, Color::Red),
            number(process.demoted, Color::Yellow),
            number(process.throttled, Color::Magenta),
        ])
    });
    let head = Row::new([
        right("pid"),
        Cell::from("name"),
        right("workers"),
        right("stalled"),
        right("demoted"),
        right("throttled"),
    ])
    .style(DIM);
    let widths = [
        Constraint::Length(10),
        Constraint::Fill(1),
        Constraint::Length(8),
        Constraint::Length(8),
        Constraint::Length(8),
        Constraint::Length(10),
    ];
    frame.render_widget(Table::new(rows, widths).header(head).block(block), area);
}

pub(super) fn draw_keys(frame: &mut Frame<'_>, area: Rect, model: &Model) {
    let pause = if model.paused { "go on" } else { "pause" };
    let mut spans = Vec::new();
    let keys = [
        ("q", "quit"),
        ("p", pause),
        ("c", "curves"),
        ("s", "sort"),
        ("↑↓", "processes"),
        ("?", "help"),
    ];
    for (key, what) in keys {
        spans.push(Span::styled(format!(" {key}"), BOLD));
        spans.push(Span::styled(format!(" {what} "), DIM));
    }
    frame.render_widget(Line::from(spans), area);
}

const HELP: &str = " q, Esc, Ctrl-C  quit
 p, space        hold what is shown, and go on
 c               curves of the last hour, of the last day, and back
 s               sort processes by stalled, workers, pid, name
 ↑ ↓, k j        to other processes; PageUp, PageDown, Home, End
 ?, h            this

 Latencies are of the last interval, from histograms: right to a
 factor of two. Rates are per second. stalled: the present poll of
 the worker is over its budget, or sleeps. demoted: it has a tenth of
 its weight meanwhile. throttled: it is capped meanwhile.

 Totals: scx_morpheus status. Lines: scx_morpheus --monitor 1.";

fn draw_help(frame: &mut Frame<'_>, area: Rect) {
    let (width, height) = (area.width.min(68), area.height.min(15));
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
mod tests;
