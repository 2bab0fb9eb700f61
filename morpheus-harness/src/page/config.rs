//! The command line.

use std::path::PathBuf;

use clap::Parser;

const MORE: &str = "\
Examples:
  latency --json > report/latency.json && starvation --json > report/starvation.json && report report
      A page of two benchmarks: report/index.html.
  latency --json --histogram report/latency.hlog > report/latency.json
      A log of histograms beside it is shown, too.
  governor run --output report/governor && report report
      So is a study in a directory below, with its frequencies over time.
  report results --output page --title 'Before the change'
      Elsewhere, under another title.
  report figures --fill README.md,docs/src/benchmarks.md
      No page: the tables of these documents between '<!-- figures: NAME -->' and '<!-- end of figures -->', from
      figures/NAME.json.

It reads DIR/*.json, *.jsonl and *.ndjson (what --json prints, for `scale` a record a line),
DIR/*.hlog (what --histogram writes), and directories of `governor run` in DIR or DIR itself. Benchmarks: starvation,
latency, liar, jitter, overhead, governor, escalation, service, compare, loops, footprint, scale.

It writes index.html, which needs nothing but itself, and an SVG for each plot, which stands alone. The path of
the page is printed. A file that cannot be shown is named there, on the page and here, and does not stop the others.

Exit codes: 0 a page was made, 1 there was nothing to show or it could not be written, 2 bad usage.";

/// A page with plots and tables of what the benchmarks of a directory measured.
#[derive(Clone, Debug, Parser)]
#[command(name = "report", version, after_help = MORE, max_term_width = 110)]
pub struct Options {
    /// The directory with the results
    #[arg(value_name = "DIR", default_value = "report")]
    pub directory: PathBuf,

    /// Write to this directory [default: DIR]
    #[arg(long, value_name = "DIR")]
    pub output: Option<PathBuf>,

    /// The title of the page
    #[arg(long, value_name = "TEXT", default_value = "Morpheus benchmarks")]
    pub title: String,

    /// Write the page alone, without SVGs
    #[arg(long)]
    pub no_svg: bool,

    /// Replace an index.html that this program did not make
    #[arg(long)]
    pub force: bool,

    /// Make no page, but the tables of these documents
    #[arg(long, value_name = "FILE,…", value_delimiter = ',', conflicts_with_all = ["output", "force", "no_svg"])]
    pub fill: Vec<PathBuf>,

    /// With --fill: change nothing, and fail where a table is not what the file says
    #[arg(long, requires = "fill")]
    pub check: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_is_well_formed() {
        Options::command().debug_assert();
    }
}
