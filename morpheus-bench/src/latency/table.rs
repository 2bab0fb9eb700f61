//! The output for people.

use super::WIDTH;
use super::result::{Cost, Open, Report};
use crate::histogram::Summary;
use crate::pairs;
use crate::report::{self, Table, maybe_time};

/// Everything, as text.
pub fn render(report: &Report) -> String {
    let mut text = report.host.line(WIDTH) + "\n";
    let mut parts = vec![
        format!("{} workers", report.workers),
        format!("link {}", report.link),
    ];
    if report.with_checkpoints {
        parts.push(format!(
            "a checkpoint every {} iterations",
            report.checkpoint_every
        ));
    }
    if report.pressure {
        parts.push("a busy process for each CPU".into());
    }
    text += &format!("{}\n\n", parts.join(", "));
    text += &report.open.as_ref().map(open).unwrap_or_default();
    text += &report.cost.as_ref().map(cost).unwrap_or_default();
    report::note_early_end(&mut text, report.interrupted);
    text
}

fn open(open: &Open) -> String {
    let rows: [(String, &Summary); 3] = [
        (
            format!("response time, {}", open.response_counts),
            &open.response_ns,
        ),
        (
            format!("service time, {}", open.service_counts),
            &open.service_ns,
        ),
        (
            "the starting thread's own lateness".into(),
            &open.clock_late_ns,
        ),
    ];
    let quantile = |ns: Option<u64>| ns.map_or("n too small".into(), report::time);
    let mut table = Table::default();
    let cells = |cell: &dyn Fn(&Summary) -> String| rows.iter().map(|row| cell(row.1)).collect();
    table.column("", 0, rows.iter().map(|row| row.0.clone()).collect());
    table.column("n", 1, cells(&|s| report::count(s.n)));
    table.column("p50", 0, cells(&|s| maybe_time(s.p50)));
    table.column("p99", 0, cells(&|s| quantile(s.p99)));
    table.column("p99.9", 0, cells(&|s| quantile(s.p999)));
    table.column("max", 0, cells(&|s| maybe_time(s.max)));
    let settled = if open.settled {
        "settled"
    } else {
        "not settled"
    };
    let rate = format!(
        "{} operations in {:.1} s (warm-up {:.1} s, {settled}): {} a second of {} that were asked for{}.",
        report::count(open.operations),
        open.duration_s,
        open.warmup_s,
        report::count(open.ops_per_s.round() as u64),
        report::count(open.asked_per_s.round() as u64),
        match &open.why_not {
            None => String::new(),
            Some(why) => format!(". Not reached: {why}"),
        }
    );
    format!("{}\n{}\n", table.render(WIDTH), report::wrap(&rate, WIDTH))
}

fn cost(cost: &Cost) -> String {
    let work = format!(
        "An operation takes {:.0} ns of CPU time and passes {} checkpoints ({} tasks, {} pairs).",
        cost.operation_ns,
        cost.checkpoints,
        cost.tasks,
        cost.pairs.differences.len()
    );
    let verdict = format!(
        "With checkpoints: {}. One takes {:.2} ns.",
        cost.verdict, cost.checkpoint_ns
    );
    let bar = pairs::percent(cost.bar);
    let judged = format!("Bar {}: {}.", bar.trim_start_matches('+'), cost.judged);
    [work, verdict, judged]
        .map(|line| report::wrap(&line, WIDTH) + "\n")
        .concat()
}

#[cfg(test)]
mod tests {
    use super::super::result::tests::open as result;
    use super::*;

    #[test]
    fn the_table_fits_and_names_what_it_counts() {
        let mut slow = result(20_000.0, 999_000_000);
        slow.why_not =
            Some("there is no CPU for it, however long this sentence grows to be".into());
        let text = open(&slow);
        assert!(
            text.lines().all(|line| line.chars().count() <= WIDTH),
            "{text}"
        );
        for expected in [
            "from the intended start",
            "service time, raw",
            "20,000 a second of 40,000",
            "n too small",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
    }
}
