//! Histograms that `--histogram` wrote.

use super::{Figure, SUMMARY, Section, Table, curve_points, curves_of, summary_cells};
use crate::hdr_log;

/// Of a log.
///
/// # Errors
/// When there is no histogram in it.
pub fn section(bytes: &[u8]) -> Result<Section, String> {
    let entries = hdr_log::read(bytes)?;
    let mut table = Table::new(&["histogram"]);
    table.heads.extend(SUMMARY.map(str::to_owned));
    let mut lines = Vec::new();
    for (tag, latencies) in entries {
        let summary =
            serde_json::to_value(latencies.summary()).map_err(|error| error.to_string())?;
        let mut cells = vec![tag.clone()];
        cells.extend(summary_cells(&summary));
        table.rows.push(cells);
        lines.push((tag, curve_points(&summary)));
    }
    Ok(Section {
        title: "histograms".into(),
        about: "a log of HdrHistogram".into(),
        figures: vec![Figure {
            title: "Percentiles".into(),
            caption: super::PERCENTILES.into(),
            plot: curves_of(lines),
            table,
        }],
        ..Section::default()
    })
}
