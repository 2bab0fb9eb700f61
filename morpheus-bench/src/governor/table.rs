//! The study's tables and bars, as text.

use super::analyse::{Analysis, Figures, KernelFigures, percentile};
use super::signal::Name;
use super::trap::report_percent;
use crate::report::WIDTH;
use crate::report::{self, Table};

/// Columns of the longest bar.
const BAR: usize = 50;

/// All of it.
pub fn render(analysis: &Analysis) -> String {
    let config = &analysis.study.config;
    let size = &config.size;
    let mut text = format!("{}\n", analysis.study.host.line(WIDTH));
    text += &paragraph(&format!(
        "CPU {}; {} channels at {} Hz, windows of {} frames every {}; deadline {} ms; {} s each, {}",
        config.cpu,
        size.channels,
        size.rate,
        size.window,
        report::time(size.period().as_nanos() as u64),
        config.deadline_ms,
        config.duration_s,
        repeats(analysis)
    ));
    for note in &analysis.notes {
        text += &paragraph(&format!("Note: {note}."));
    }
    report::note_early_end(&mut text, analysis.interrupted);
    text += "\n";
    text += &governors(analysis);
    for kernel in config.kernels() {
        let rows = rows(analysis, kernel);
        if !rows.is_empty() {
            text += &format!("\n{}\n{}", kernel.text(), kernel_table(&rows));
        }
    }
    text += &improvement(analysis);
    text += &effect_of_load(analysis);
    text += &bars(analysis);
    text += "\n";
    for sentence in &analysis.trap.text {
        text += &paragraph(sentence);
    }
    text
}

fn repeats(analysis: &Analysis) -> String {
    let repeats = analysis.conditions.iter().map(|figures| figures.repeats);
    match repeats.max().unwrap_or(0) {
        1 => "once".into(),
        n => format!("{n} times"),
    }
}

fn paragraph(text: &str) -> String {
    report::wrap(text, WIDTH) + "\n"
}

/// A column of a table from its rows.
fn column<T>(
    table: &mut Table,
    head: &str,
    expendable: u8,
    rows: &[T],
    cell: impl Fn(&T) -> String,
) {
    table.column(head, expendable, rows.iter().map(cell).collect());
}

/// A factor with two digits after the point, or `–`.
fn factor(value: Option<f64>) -> String {
    value.map_or_else(|| "–".into(), |value| format!("{value:.2}×"))
}

fn ns(value: Option<f64>) -> String {
    report::maybe_time(value.map(|ns| ns.round() as u64))
}

/// The study's first table.
fn governors(analysis: &Analysis) -> String {
    let rows = &analysis.conditions;
    let mut table = Table::default();
    column(&mut table, "governor", 0, rows, |f| f.name.clone());
    column(&mut table, "latency", 0, rows, |f| ns(f.latency_ns));
    column(&mut table, "of repeats", 3, rows, |f| match f.range_ns {
        Some((least, most)) if f.repeats > 1 => format!("{}–{}", ns(Some(least)), ns(Some(most))),
        _ => "–".into(),
    });
    column(&mut table, "vs performance", 0, rows, |f| {
        factor(f.versus_performance)
    });
    column(&mut table, "frequency", 0, rows, |f| {
        f.mean_khz
            .map_or_else(|| "–".into(), |khz| format!("{:.0} MHz", khz / 1e3))
    });
    column(&mut table, "at lowest", 3, rows, |f| {
        f.share_of_lowest.map_or_else(|| "–".into(), report_percent)
    });
    column(&mut table, "at highest", 2, rows, |f| {
        f.share_of_highest
            .map_or_else(|| "–".into(), report_percent)
    });
    column(&mut table, "done at highest", 1, rows, |f| {
        f.done_at_highest.map_or_else(|| "–".into(), report_percent)
    });
    column(&mut table, "busy", 2, rows, |f| {
        report_percent(f.busy_share)
    });
    column(&mut table, "windows", 2, rows, |f| report::count(f.due));
    column(&mut table, "missed", 0, rows, |f| report::count(f.missed));
    table.render(WIDTH)
        + "(latency: the geometric mean of the kernels' median service times; at lowest, at highest: part of all time;\n\
           done at highest: windows that ended at that frequency; missed: not done by the deadline)\n\n\
           For each kernel its service time; how late it began; and the response, from when a window was due until it\n\
           was done.\n"
}

fn rows(analysis: &Analysis, kernel: Name) -> Vec<(&Figures, &KernelFigures)> {
    let of = |figures| Some((figures, Figures::kernel(figures, kernel)?));
    analysis.conditions.iter().filter_map(of).collect()
}

fn kernel_table(rows: &[(&Figures, &KernelFigures)]) -> String {
    let mut table = Table::default();
    column(&mut table, "governor", 0, rows, |(f, _)| f.name.clone());
    column(&mut table, "p50", 0, rows, |(_, k)| {
        percentile(k.service_ns.p50)
    });
    column(&mut table, "p99", 0, rows, |(_, k)| {
        percentile(k.service_ns.p99)
    });
    column(&mut table, "max", 2, rows, |(_, k)| {
        report::maybe_time(k.service_ns.max)
    });
    column(&mut table, "late p50", 1, rows, |(_, k)| {
        percentile(k.late_ns.p50)
    });
    column(&mut table, "late p99", 3, rows, |(_, k)| {
        percentile(k.late_ns.p99)
    });
    column(&mut table, "response p50", 1, rows, |(_, k)| {
        percentile(k.response_ns.p50)
    });
    column(&mut table, "response p99", 1, rows, |(_, k)| {
        percentile(k.response_ns.p99)
    });
    column(&mut table, "n", 0, rows, |(_, k)| {
        report::count(k.service_ns.n)
    });
    column(&mut table, "missed", 2, rows, |(_, k)| {
        report::count(k.missed)
    });
    table.render(WIDTH)
}

/// The study's table of what each kernel gains.
fn improvement(analysis: &Analysis) -> String {
    struct Row {
        kernel: Name,
        worst: (String, u64),
        best: (String, u64),
    }
    let row = |kernel: Name| {
        let p50s: Vec<(String, u64)> = rows(analysis, kernel)
            .into_iter()
            .filter(|(figures, _)| figures.condition.load == 0)
            .filter_map(|(figures, own)| Some((figures.name.clone(), own.service_ns.p50?)))
            .collect();
        Some(Row {
            kernel,
            worst: p50s
                .iter()
                .max_by_key(|(_, ns)| *ns)
                .filter(|_| p50s.len() > 1)?
                .clone(),
            best: p50s.iter().min_by_key(|(_, ns)| *ns)?.clone(),
        })
    };
    let kernels = analysis.study.config.kernels();
    let rows: Vec<Row> = kernels.into_iter().filter_map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    let side = |(name, ns): &(String, u64)| format!("{} ({name})", report::time(*ns));
    let mut table = Table::default();
    column(&mut table, "kernel, without load", 0, &rows, |row| {
        row.kernel.text().into()
    });
    column(&mut table, "slowest p50", 0, &rows, |row| side(&row.worst));
    column(&mut table, "fastest p50", 0, &rows, |row| side(&row.best));
    column(&mut table, "improvement", 0, &rows, |row| {
        factor(Some(row.worst.1 as f64 / row.best.1.max(1) as f64))
    });
    format!("\n{}", table.render(WIDTH))
}

/// What load on the other CPUs does, which helps where CPUs change their frequency together.
fn effect_of_load(analysis: &Analysis) -> String {
    let loaded = analysis
        .conditions
        .iter()
        .filter(|figures| figures.condition.load > 0);
    let pairs: Vec<(&Figures, &Figures)> = loaded
        .filter_map(|loaded| {
            let mut calm = loaded.condition.clone();
            calm.load = 0;
            let calm = analysis
                .conditions
                .iter()
                .find(|figures| figures.condition == calm)?;
            Some((calm, loaded))
        })
        .collect();
    if pairs.is_empty() {
        return String::new();
    }
    let mut table = Table::default();
    column(&mut table, "load on other CPUs", 0, &pairs, |(calm, _)| {
        calm.name.clone()
    });
    column(&mut table, "processes", 1, &pairs, |(_, loaded)| {
        loaded.condition.load.to_string()
    });
    column(&mut table, "without", 0, &pairs, |(calm, _)| {
        ns(calm.latency_ns)
    });
    column(&mut table, "with", 0, &pairs, |(_, loaded)| {
        ns(loaded.latency_ns)
    });
    column(&mut table, "with / without", 0, &pairs, |(calm, loaded)| {
        factor(
            loaded
                .latency_ns
                .zip(calm.latency_ns)
                .map(|(with, without)| with / without),
        )
    });
    format!("\n{}", table.render(WIDTH))
}

/// A chart of all kernels together, then one of each.
fn bars(analysis: &Analysis) -> String {
    let all = analysis.conditions.iter();
    let all = all.filter_map(|figures| Some((figures.name.as_str(), figures.latency_ns?)));
    let mut text = chart("latency, all kernels", &all.collect::<Vec<_>>());
    for kernel in analysis.study.config.kernels() {
        let rows = rows(analysis, kernel);
        let values = rows
            .iter()
            .filter_map(|(figures, own)| Some((figures.name.as_str(), own.service_ns.p50? as f64)));
        text += &chart(
            &format!("{}, median", kernel.text()),
            &values.collect::<Vec<_>>(),
        );
    }
    text
}

/// A bar for each value, the longest for the greatest. Nothing for a single value: there is nothing to compare.
fn chart(title: &str, values: &[(&str, f64)]) -> String {
    let greatest = values.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    if values.len() < 2 || greatest <= 0.0 {
        return String::new();
    }
    let width = values
        .iter()
        .map(|(name, _)| name.chars().count())
        .max()
        .unwrap_or(0);
    let mut text = format!("\n{title}\n");
    for (name, value) in values {
        let length = (value / greatest * BAR as f64).round() as usize;
        let bar = "█".repeat(length.max(1));
        text += &format!("  {name:<width$}  {bar} {}\n", ns(Some(*value)));
    }
    text
}

/// Two machines, condition by condition.
pub fn compare(own: &Analysis, other: &Analysis) -> String {
    struct Row {
        name: String,
        own: Option<f64>,
        other: Option<f64>,
    }
    let mut rows = Vec::new();
    for figures in &own.conditions {
        let Some(twin) = other
            .conditions
            .iter()
            .find(|twin| twin.name == figures.name)
        else {
            continue;
        };
        rows.push(Row {
            name: format!("{}, all kernels", figures.name),
            own: figures.latency_ns,
            other: twin.latency_ns,
        });
        for kernel in &figures.kernels {
            rows.push(Row {
                name: format!("  {}", kernel.kernel.text()),
                own: kernel.service_ns.p50.map(|ns| ns as f64),
                other: twin
                    .kernel(kernel.kernel)
                    .and_then(|k| k.service_ns.p50)
                    .map(|ns| ns as f64),
            });
        }
    }
    let mut text = format!(
        "this: {}\nother ({}): {}\n",
        own.study.host.line(WIDTH - 6),
        other.directory,
        other
            .study
            .host
            .line(WIDTH.saturating_sub(10 + other.directory.chars().count()))
    );
    if rows.is_empty() {
        return text + "The two have no condition in common.\n";
    }
    if own.study.config.size != other.study.config.size {
        text += "The sizes of the kernels differ: these are not times of the same work.\n";
    }
    let mut table = Table::default();
    column(&mut table, "median", 0, &rows, |row| row.name.clone());
    column(&mut table, "this", 0, &rows, |row| ns(row.own));
    column(&mut table, "other", 0, &rows, |row| ns(row.other));
    column(&mut table, "other / this", 0, &rows, |row| {
        factor(row.other.zip(row.own).map(|(other, own)| other / own))
    });
    text += &format!("\n{}\n", table.render(WIDTH));
    for (name, analysis) in [("this", own), ("other", other)] {
        text += &paragraph(&format!("{name}: {}", low_and_high(analysis)));
    }
    text
}

/// The study's line for a machine: what the lowest frequency costs there.
fn low_and_high(analysis: &Analysis) -> String {
    let find = |governor: &str| {
        let mut found = analysis.conditions.iter();
        found
            .find(|figures| figures.condition.is(governor))?
            .latency_ns
    };
    match find("powersave").zip(find("performance")) {
        Some((low, high)) => format!(
            "{} at the lowest frequency (powersave), {} at the highest (performance): {}",
            ns(Some(low)),
            ns(Some(high)),
            factor(Some(low / high))
        ),
        None => "powersave and performance were not both measured without load".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_their_values() {
        let text = chart("t", &[("slow", 1_000_000.0), ("a", 500_000.0), ("b", 1.0)]);
        let lengths: Vec<usize> = text
            .lines()
            .skip(2)
            .map(|line| line.matches('█').count())
            .collect();
        assert_eq!(lengths, [50, 25, 1]);
        assert!(text.contains("  a     █"), "{text}");
        assert_eq!(chart("t", &[("one", 1.0)]), "");
    }

    #[test]
    fn factors_have_two_digits() {
        assert_eq!(factor(Some(4.551)), "4.55×");
        assert_eq!(factor(None), "–");
    }
}
