//! The scheduler's decisions, by how often: a cell for each counter that is not 0.

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::widgets::{Block, Paragraph};

use super::text::{printable, short};
use super::view::DIM;
use crate::reading::Reading;
use crate::telemetry::Rates;

/// A cell of the decisions: a name and a rate.
pub(super) const CELL_COLUMNS: u16 = 26;

/// Names and rates of what has ever happened, so that the places do not change from one second to the next.
pub(super) fn cells(reading: &Reading, rates: &Rates) -> Vec<(String, Option<f64>)> {
    let group = |name: &str| {
        ["to_", "from_", "kept", "kicks_"]
            .iter()
            .position(|prefix| name.starts_with(prefix))
            .unwrap_or(usize::MAX)
    };
    let mut names: Vec<&String> = reading
        .counters
        .iter()
        .filter(|(name, count)| **count > 0 && !name.starts_with("l2_"))
        .map(|(name, _)| name)
        .collect();
    // Stable: within a group they stay in the order of their names.
    names.sort_by_key(|name| group(name));
    names
        .into_iter()
        .map(|name| (printable(&name.replace('_', " ")), rates.of(name)))
        .collect()
}

/// Draws them in columns, as many as there are room for.
pub(super) fn draw(
    frame: &mut Frame<'_>,
    area: Rect,
    cells: &[(String, Option<f64>)],
    block: Block<'_>,
) {
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let (columns, rows) = (inner.width / CELL_COLUMNS, inner.height);
    let room = usize::from(columns) * usize::from(rows);
    let shown = if cells.len() > room {
        room.saturating_sub(1)
    } else {
        cells.len()
    };
    let at = |index: usize| Rect {
        x: inner.x + (index / usize::from(rows)) as u16 * CELL_COLUMNS,
        y: inner.y + (index % usize::from(rows)) as u16,
        width: CELL_COLUMNS - 1,
        height: 1,
    };
    for (index, (name, rate)) in cells[..shown].iter().enumerate() {
        let rate = rate.map_or_else(|| "–".to_owned(), short);
        let style = if rate == "0" { DIM } else { Style::new() };
        let name_columns = usize::from(CELL_COLUMNS) - 2 - rate.chars().count();
        let name: String = name.chars().take(name_columns - 1).collect();
        let text = format!(" {name:<name_columns$}{rate}");
        frame.render_widget(Paragraph::new(text).style(style), at(index));
    }
    if shown < cells.len() && room > 0 {
        let text = format!(" … and {} more (status)", cells.len() - shown);
        frame.render_widget(Paragraph::new(text).style(DIM), at(shown));
    }
}
