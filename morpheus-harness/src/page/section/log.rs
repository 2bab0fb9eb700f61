//! Histograms that `--histogram` wrote.

use super::{Figure, Section, Table, lines, rows};
use crate::page::plot::lines::Across;
use crate::unit::Unit;
use crate::{hdr_log, report};

/// Of a log.
///
/// # Errors
/// When there is no histogram in it.
pub fn section(bytes: &[u8]) -> Result<Section, String> {
    let mut table = Table::new(&["histogram", "samples", "p50", "p99", "p99.9", "max"]);
    let mut curves = Vec::new();
    for (tag, latencies) in hdr_log::read(bytes)? {
        let found = latencies.summary();
        let times = [found.p50, found.p99, found.p999, found.max]
            .map(|ns| ns.map_or("n too small".into(), |ns| Unit::Time.show(ns as f64)));
        let cells = [tag.clone(), report::count(found.n)];
        table.rows.push(cells.into_iter().chain(times).collect());
        curves.push((tag, rows::points(&found.curve)));
    }
    Ok(Section {
        title: "histograms".into(),
        about: "a log of HdrHistogram".into(),
        figures: vec![Figure {
            title: "Percentiles".into(),
            caption: super::PERCENTILES.into(),
            plot: lines(Across::Percentiles, Unit::Time, curves),
            table,
        }],
        ..Section::default()
    })
}
