//! The output for people.

use super::WIDTH;
use super::child::Via;
use super::result::{IDLE_BAR_BYTES, Idle, Report, TASK_BAR_BYTES, Task};
use crate::pairs::Bar;
use crate::report::{Table, count, note_early_end, wrap};

/// Everything, as text.
pub fn render(report: &Report) -> String {
    let mut text = report.host.line(WIDTH) + "\n";
    text += &format!(
        "{} workers, {} rounds, each measurement in a process of its own\n",
        report.workers, report.runs
    );
    if !report.idle.is_empty() {
        text += "\nAn idle runtime: what it adds to a process, in KiB, medians\n";
        text += &idle_table(&report.idle);
        text += &idle_bar(&report.idle);
    }
    if !report.tasks.is_empty() {
        let tasks = count(report.tasks_started as u64);
        text += &format!("\nA task, in bytes: {tasks} that wait, the mean of four sizes\n");
        text += &task_table(&report.tasks);
        text += &task_bar(&report.tasks);
    }
    if let Some(why) = &report.failed {
        text += &(wrap(&format!("Not measured to its end: {why}"), WIDTH) + "\n");
    }
    note_early_end(&mut text, report.interrupted);
    text
}

/// Bytes as KiB, with thousands separated.
fn kib(bytes: f64) -> String {
    let rounded = (bytes / 1024.0).round();
    let sign = if rounded < 0.0 { "-" } else { "" };
    sign.to_owned() + &count(rounded.abs() as u64)
}

fn idle_table(rows: &[Idle]) -> String {
    let mut table = Table::default();
    let mut column = |head: &str, expendable: u8, cell: &dyn Fn(&Idle) -> String| {
        table.column(head, expendable, rows.iter().map(cell).collect());
    };
    let figure = |bytes: i64| kib(bytes as f64);
    column("", 0, &|row| row.runtime.to_string());
    column("threads", 0, &|row| row.memory.threads.to_string());
    column("resident", 0, &|row| figure(row.memory.resident));
    column("over tokio", 0, &|row| {
        row.over_tokio_bytes.map_or("".into(), kib)
    });
    column("anonymous", 0, &|row| figure(row.memory.anonymous));
    column("stacks", 0, &|row| figure(row.memory.split.stacks));
    column("small", 1, &|row| figure(row.memory.split.small_stacks));
    column("heap", 0, &|row| figure(row.memory.split.heap));
    column("other", 1, &|row| figure(row.memory.split.other));
    column("files", 0, &|row| figure(row.memory.split.files));

    column("Pss", 4, &|row| figure(row.memory.proportional));
    column("mapped", 2, &|row| figure(row.memory.mapped));
    column("mappings", 5, &|row| row.memory.mappings.to_string());
    table.render(WIDTH)
}

fn idle_bar(rows: &[Idle]) -> String {
    let Some((row, judged)) = rows.iter().find_map(|row| Some((row, row.judged?))) else {
        return String::new();
    };
    let mut over = row.over_tokio_bytes.map_or("–".into(), kib) + " KiB";
    if let Some(interval) = row.over_tokio {
        over += &format!(" ({} to {})", kib(interval.low), kib(interval.high));
    }
    let why = match judged {
        Bar::Undecided => " (the interval takes six rounds, and has to be on one side of the bar)",
        Bar::Met | Bar::Missed => "",
    };
    let anonymous = row.anonymous_over_tokio_bytes.map_or("–".into(), kib);
    let line = format!(
        "Bar, at most {} KiB over tokio at the default number of spares: {over}, {judged}{why}. {anonymous} KiB are \
         anonymous, the others pages of the program and its libraries: code, which more processes may share.",
        kib(IDLE_BAR_BYTES)
    );
    wrap(&line, WIDTH) + "\n"
}

/// How a task was started, as people write it.
fn name(via: Via) -> &'static str {
    match via {
        Via::Tokio => "tokio::spawn",
        Via::Spawn => "morpheus_runtime::spawn",
        Via::Watched => ".watched(…)",
        Via::WatchedAs => ".watched_as(…)",
    }
}

fn task_table(rows: &[Task]) -> String {
    let mut table = Table::default();
    let mut column = |head: &str, expendable: u8, cell: &dyn Fn(&Task) -> String| {
        table.column(head, expendable, rows.iter().map(cell).collect());
    };
    let each = |row: &Task, figure: &dyn Fn(&super::result::Size) -> u64| -> String {
        let all = row.sizes.iter().map(figure);
        let all: Vec<String> = all.map(count).collect();
        all.join(", ")
    };
    column("", 0, &|row| format!("{}, {}", row.runtime, name(row.via)));
    column("future", 1, &|row| {
        each(row, &|size| size.future_bytes as u64)
    });
    column("requested", 1, &|row| {
        each(row, &|size| size.requested_bytes.round() as u64)
    });
    column("mean", 0, &|row| format!("{:.1}", row.requested_bytes));
    column("over tokio", 0, &|row| {
        row.over_tokio_bytes
            .map_or("".into(), |bytes| format!("{bytes:.1}"))
    });
    column("resident", 0, &|row| format!("{:.0}", row.resident_bytes));
    table.render(WIDTH)
}

fn task_bar(rows: &[Task]) -> String {
    let judged: Vec<&Task> = rows.iter().filter(|row| row.judged.is_some()).collect();
    let missed: Vec<&str> = judged
        .iter()
        .filter(|row| row.judged == Some(Bar::Missed))
        .map(|row| name(row.via))
        .collect();
    if judged.is_empty() {
        return String::new();
    }
    let verdict = match missed.is_empty() {
        true => "met".into(),
        false => format!("missed by {}", missed.join(", ")),
    };
    format!("Bar, at most {TASK_BAR_BYTES} bytes more than tokio's: {verdict}.\n")
}

#[cfg(test)]
mod tests {
    use super::super::result::tests::report;
    use super::*;

    #[test]
    fn the_tables_fit_and_say_what_there_is_to_say() {
        let text = render(&report(700_000, 6, 32.0));
        for expected in [
            "morpheus+8",
            "Bar, at most 1,024 KiB over tokio at the default number of spares: 684 KiB (684 to 684), met. 342 KiB",
            "morpheus, morpheus_runtime::spawn",
            "288, 288, 288, 416",
            "Bar, at most 32 bytes more than tokio's: met.",
        ] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert!(
            text.lines().all(|line| line.chars().count() <= WIDTH),
            "{text}"
        );
    }

    #[test]
    fn bars_that_are_missed_or_undecided_are_said() {
        let text = render(&report(2 << 20, 6, 40.0));
        assert!(
            text.contains("2,048 KiB (2,048 to 2,048), missed."),
            "{text}"
        );
        assert!(
            text.contains("missed by morpheus_runtime::spawn."),
            "{text}"
        );
        let mut few = report(0, 2, 0.0);
        few.failed = Some("morpheus: no threads".into());
        let text = render(&few);
        assert!(text.contains("0 KiB, undecided (the interval"), "{text}");
        assert!(
            text.contains("Not measured to its end: morpheus: no threads"),
            "{text}"
        );
    }

    #[test]
    fn less_than_tokio_is_negative() {
        assert_eq!([-5_000.0, 0.0, 3e6].map(kib), ["-5", "0", "2,930"]);
    }
}
