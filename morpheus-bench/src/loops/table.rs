//! The output for people.

use super::WIDTH;
use super::cases;
use super::form::Form;
use super::result::{Measured, Report, Summary};
use crate::pairs::Verdict;
use crate::report::{Table, count, note_early_end, time, wrap};

/// Everything, as text.
pub fn render(report: &Report) -> String {
    let mut text = report.host.line(WIDTH) + "\n";
    text += &format!(
        "{} pairs, {} ms a measurement; CPU time against the plain loop, in a watched task, one worker, {} spares\n\n",
        report.pairs, report.window_ms, report.spares
    );
    text += &loops(&report.loops);
    text += "\nv: vectorised where nothing is in the way.\n\n";
    for summary in &report.summaries {
        text += &(wrap(&line(summary), WIDTH) + "\n");
    }
    for one in &report.loops {
        if let Some(why) = &one.failed {
            let line = format!("{}: not measured to its end: {why}", one.name);
            text += &(wrap(&line, WIDTH) + "\n");
        }
    }
    note_early_end(&mut text, report.interrupted);
    text
}

fn loops(loops: &[Measured]) -> String {
    let rows: Vec<&Measured> = loops.iter().filter(|one| one.measurements > 0).collect();
    let column = |cell: &dyn Fn(&Measured) -> String| -> Vec<String> {
        rows.iter().map(|one| cell(one)).collect()
    };
    let mut table = Table::default();
    table.column("loop", 0, column(&|one| one.name.clone()));
    table.column(
        "",
        0,
        column(&|one| {
            if one.vectorised {
                "v".into()
            } else {
                String::new()
            }
        }),
    );
    table.column("turns", 2, column(&|one| count(one.turns as u64)));
    let plain = |one: &Measured| one.plain_ns.map_or("–".into(), |ns| time(ns as u64));
    table.column("plain", 1, column(&plain));
    for form in Form::COMPARED {
        let cells = column(&|one| ratio(one, form));
        table.column(&form.to_string(), 0, cells);
    }
    table.column("A/A", 0, column(&noise));
    table.render(WIDTH)
}

fn ratio(one: &Measured, form: Form) -> String {
    let Some((median, _)) = one.of(form).and_then(|compared| compared.cpu.median()) else {
        return "–".into();
    };
    match median {
        median if median < 9.95 => format!("{median:.3}"),
        median => format!("{median:.1}"),
    }
}

fn noise(one: &Measured) -> String {
    match one.compared.first().map(|compared| compared.cpu.verdict) {
        Some(Verdict::InsideNoise { noise, .. } | Verdict::Differs { noise, .. }) => {
            format!("±{:.2} %", noise * 100.0)
        }
        Some(Verdict::TooFew { .. }) => "n too small".into(),
        None => "–".into(),
    }
}

/// What is said of a form over all loops.
fn line(summary: &Summary) -> String {
    let name = summary.form;
    let mut line = match summary.mean {
        Some(mean) => format!(
            "{name}: mean of {} loops {:.4} ({:.4} to {:.4})",
            summary.loops, mean.median, mean.low, mean.high
        ),
        None => format!("{name}: n too small for a mean"),
    };
    if let (Some(bar), Some(judged)) = (summary.mean_bar, summary.mean_judged) {
        line += &format!(", bar {bar:.3}: {judged}");
    }
    if let Some(worst) = &summary.worst {
        line += &format!("; worst {:.3} ({})", worst.ratio, worst.name);
    }
    if let Some(bar) = summary.bar {
        line += &format!(", bar {bar:.3}: met by {}", summary.met);
        let lists = [
            ("missed", &summary.missed),
            ("undecided", &summary.undecided),
        ];
        for (word, names) in lists.into_iter().filter(|(_, names)| !names.is_empty()) {
            line += &format!(", {word}: {}", names.join(", "));
        }
    }
    line + "."
}

/// The loops, a line each.
pub fn list() -> String {
    let mut table = Table::default();
    let names = cases::all().map(|case| case.name.to_owned()).collect();
    table.column("loop", 0, names);
    let width = cases::all()
        .map(|case| case.about.chars().count())
        .max()
        .unwrap_or(0);
    let about = |case: &super::form::Case| format!("{:<width$}", case.about);
    table.column("", 0, cases::all().map(about).collect());
    let turns = cases::all().map(|case| count(case.turns as u64)).collect();
    table.column("turns", 0, turns);
    let kind = |case: &super::form::Case| if case.vectorised { "vectorised" } else { "" };
    table.column(
        "",
        0,
        cases::all().map(|case| kind(case).to_owned()).collect(),
    );
    table.render(WIDTH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loops::result::tests::report;

    #[test]
    fn the_table_says_what_was_missed() {
        let report = report(
            12,
            [1.002, 1.0, 3.0, 4.0, 19.0],
            [1.02, 1.02, 1.0, 1.001, 2.0],
        );
        let text = render(&report);
        for expected in [
            "19.0",
            ".strip(): mean of 2 loops 1.7",
            "missed: sum_u32",
            "every turn: mean",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= WIDTH));
    }
}
