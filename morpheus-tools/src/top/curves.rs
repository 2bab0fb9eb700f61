//! Curves over time: a chart for each figure that an operator compares with what was before.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style};
use ratatui::symbols::Marker;
use ratatui::text::Span;
use ratatui::widgets::{Axis, Chart, Dataset, GraphType, Paragraph};

use super::model::Model;
use super::text::short;
use super::view::{DIM, draw_keys, draw_title, section};
use crate::history::print::is_gap;
use crate::history::{Figure, Record, Resolution};
use crate::reading::Reading;
use crate::telemetry::Latency;

/// A chart, and its curves in their colours.
struct Panel {
    title: &'static str,
    curves: &'static [(Figure, &'static str, Color)],
    label: fn(f64) -> String,
    /// The top of the axis where all values are lower.
    least_top: f64,
}

const PANELS: [Panel; 6] = [
    Panel {
        title: "Dispatches/s",
        curves: &[(Figure::Dispatches, "", Color::Green)],
        label: short,
        least_top: 1.0,
    },
    Panel {
        title: "Wake p99:",
        curves: &[
            (Figure::LatCriticalP99, "lat critical", Color::Green),
            (Figure::InteractiveP99, "interactive", Color::Yellow),
            (Figure::BatchP99, "batch", Color::Red),
        ],
        label: latency,
        least_top: 1.0,
    },
    Panel {
        title: "Kicks/s:",
        curves: &[
            (Figure::HardKicks, "preempting", Color::Red),
            (Figure::SoftKicks, "waking", Color::Green),
        ],
        label: short,
        least_top: 1.0,
    },
    Panel {
        title: "Longest wait of batch",
        curves: &[(Figure::LongestWait, "", Color::Red)],
        label: milliseconds,
        least_top: 1.0,
    },
    Panel {
        title: "Idle",
        curves: &[(Figure::Idle, "", Color::Cyan)],
        label: percent,
        least_top: 1.0,
    },
    Panel {
        title: "Per second:",
        curves: &[
            (Figure::Rescues, "rescues", Color::Red),
            (Figure::Requests, "requests", Color::Yellow),
        ],
        label: short,
        least_top: 1.0,
    },
];
/// Panels beside each other.
const COLUMNS: usize = 2;
/// Characters of the label at the left end of the time axis, which says how long ago that is.
const AXIS_COLUMNS: u16 = 9;
/// A chart with fewer rows shows nothing.
const LEAST_ROWS: u16 = 5;

fn latency(us: f64) -> String {
    Latency { us, or_more: false }.to_string()
}

fn milliseconds(ms: f64) -> String {
    latency(ms * 1e3)
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// Draws the title, the charts that there is room for, and the keys.
pub(super) fn draw(frame: &mut Frame<'_>, model: &Model, resolution: Resolution) {
    let [title, what, charts, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(1),
        Constraint::Min(LEAST_ROWS),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let empty = Reading::default();
    draw_title(
        frame,
        title,
        model,
        model.reading.as_ref().unwrap_or(&empty),
    );
    draw_keys(frame, keys, model);
    let records = model.records(resolution);
    let span = match (&model.recorded, resolution) {
        (None, _) => {
            " Since top was started; a daemon with --history FILE records an hour and a day"
        }
        (_, Resolution::Seconds) => " The last hour, by the second; c: the last day",
        (_, Resolution::Minutes) => " The last day, by the minute; c: back",
    };
    frame.render_widget(Paragraph::new(span).style(DIM), what);
    let rows = (charts.height / LEAST_ROWS).clamp(1, PANELS.len().div_ceil(COLUMNS) as u16);
    let places = Layout::vertical(vec![Constraint::Fill(1); rows.into()]).split(charts);
    let places = places.iter().flat_map(|row| {
        let beside: [Rect; COLUMNS] = Layout::horizontal([Constraint::Fill(1); COLUMNS])
            .spacing(2)
            .areas(*row);
        beside
    });
    for (panel, place) in PANELS.iter().zip(places) {
        draw_panel(frame, place, panel, &records);
    }
}

fn draw_panel(frame: &mut Frame<'_>, area: Rect, panel: &Panel, records: &[Record]) {
    let columns = usize::from(area.width.saturating_sub(AXIS_COLUMNS)).max(1);
    // A character of braille has two columns of points.
    let thinned = thin(records, 2 * columns);
    let end_ms = records.last().map_or(0, |record| record.end_unix_ms);
    let ago = |record: &Record| -(end_ms.saturating_sub(record.end_unix_ms) as f64 / 1e3);
    let mut all = Vec::new();
    for (figure, _, color) in panel.curves {
        for curve in unbroken(&thinned, *figure, ago) {
            all.push((curve, *color));
        }
    }
    let points = all.iter().flat_map(|(curve, _)| curve);
    let top = points.clone().map(|(_, value)| *value);
    let top = top.fold(panel.least_top, f64::max);
    let first = points.map(|(ago, _)| *ago).fold(-1.0, f64::min);
    // The first interval began before its end.
    let begin = first
        - thinned
            .first()
            .map_or(0.0, |record| f64::from(record.interval_ms) / 1e3);
    let datasets = all.iter().map(|(curve, color)| {
        Dataset::default()
            .data(curve)
            .marker(Marker::Braille)
            .graph_type(GraphType::Line)
            .style(Style::new().fg(*color))
    });
    let mut title = section(panel.title);
    let names = panel.curves.iter().filter(|(_, name, _)| !name.is_empty());
    for (_, name, color) in names {
        let name = Span::styled(format!("{name} "), Style::new().fg(*color));
        title = title.title(name);
    }
    if all.is_empty() {
        frame.render_widget(Paragraph::new(" nothing yet").style(DIM).block(title), area);
        return;
    }
    let chart = Chart::new(datasets.collect())
        .block(title)
        .x_axis(
            Axis::default()
                .bounds([begin, 0.0])
                .labels([time_ago(-begin), "now".to_owned()])
                .style(DIM),
        )
        .y_axis(
            Axis::default()
                .bounds([0.0, top])
                .labels(["0".to_owned(), (panel.label)(top)])
                .style(DIM),
        );
    frame.render_widget(chart, area);
}

/// Joins neighbouring records until at most `most` are left. A joined record has the highest value of each figure, so that peaks stay.
fn thin(records: &[Record], most: usize) -> Vec<Record> {
    let of_one = records.len().div_ceil(most.max(1)).max(1);
    records.chunks(of_one).filter_map(Record::highest).collect()
}

/// The points of a figure, in pieces: none goes over a time without a daemon, or without a value.
fn unbroken(
    records: &[Record],
    figure: Figure,
    ago: impl Fn(&Record) -> f64,
) -> Vec<Vec<(f64, f64)>> {
    let mut pieces = vec![Vec::new()];
    let mut before: Option<&Record> = None;
    for record in records {
        let value = record.get(figure);
        if value.is_none() || before.is_some_and(|before| is_gap(before, record)) {
            pieces.push(Vec::new());
        }
        if let (Some(value), Some(piece)) = (value, pieces.last_mut()) {
            piece.push((ago(record), value));
        }
        before = Some(record);
    }
    pieces.retain(|piece| !piece.is_empty());
    pieces
}

fn time_ago(seconds: f64) -> String {
    match seconds {
        s if s < 120.0 => format!("-{s:.0} s"),
        s if s < 7200.0 => format!("-{:.0} min", s / 60.0),
        s => format!("-{:.0} h", s / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn records(values: &[(u64, Option<f64>)]) -> Vec<Record> {
        let second = Duration::from_secs(1);
        let of = |(end_s, value): &(u64, Option<f64>)| {
            let reading = Reading::parse(&json!({ "runs": "scheduler", "idle_share": value }));
            Record::between(&Reading::default(), &reading, second, None, end_s * 1000)
        };
        values.iter().map(of).collect()
    }

    #[test]
    fn curves_break_where_nothing_is_known() {
        let records = records(&[
            (1, Some(0.1)),
            (2, Some(0.2)),
            (3, None),
            (4, Some(0.5)),
            // No daemon for a minute.
            (64, Some(0.25)),
            // The clock was set.
            (10, Some(0.75)),
        ]);
        let pieces = unbroken(&records, Figure::Idle, |record| record.end_unix_ms as f64);
        let lengths: Vec<usize> = pieces.iter().map(Vec::len).collect();
        assert_eq!(lengths, [2, 1, 1, 1]);
        assert_eq!(pieces[2], [(64_000.0, 0.25)]);
    }

    #[test]
    fn a_peak_stays_when_records_are_joined() {
        let mut values: Vec<_> = (0..3600).map(|end| (end, Some(0.1))).collect();
        values[1234].1 = Some(1.0);
        let thinned = thin(&records(&values), 100);
        assert!(thinned.len() <= 100);
        let peaks = thinned
            .iter()
            .filter(|record| record.get(Figure::Idle) == Some(1.0));
        assert_eq!(peaks.count(), 1);
        // Joined records are no gaps.
        assert_eq!(unbroken(&thinned, Figure::Idle, |_| 0.0).len(), 1);
        assert_eq!(thin(&[], 0).len(), 0);
    }

    #[test]
    fn times_ago() {
        assert_eq!(time_ago(59.0), "-59 s");
        assert_eq!(time_ago(3600.0), "-60 min");
        assert_eq!(time_ago(86_400.0), "-24 h");
    }
}
