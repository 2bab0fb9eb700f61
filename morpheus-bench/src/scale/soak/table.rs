//! What people see of soaks: one in a row, and what was wrong beneath.

use super::super::case::Case;
use super::super::result::{Report, Run};
use super::{Soak, Waited};
use crate::report::{self, Table, WIDTH};

/// The table of all soaks; nothing where there are none.
pub fn render(report: &Report) -> String {
    let soaks: Vec<&Run> = report
        .runs
        .iter()
        .filter(|run| run.case == Case::Soak)
        .collect();
    if soaks.is_empty() {
        return String::new();
    }
    let column = |cell: &dyn Fn(&Run) -> String| soaks.iter().map(|run| cell(run)).collect();
    let mut table = Table::default();
    table.column("soak", 0, column(&|run| run.scheduler.clone()));
    table.column("CPUs", 0, column(&|run| run.cpus.to_string()));
    table.column("lasted", 0, column(&lasted));
    table.column("longest wait", 0, of(&soaks, |soak| longest(&soak.loaded)));
    table.column("of", 2, of(&soaks, |soak| soak.loaded.task.clone()));
    table.column("without load", 0, of(&soaks, |soak| longest(&soak.quiet)));
    table.column("of", 3, of(&soaks, |soak| soak.quiet.task.clone()));
    table.column(
        "p99",
        1,
        of(&soaks, |soak| report::maybe_time(soak.loaded.p99_ns)),
    );
    table.column(
        "waits",
        4,
        of(&soaks, |soak| report::count(soak.loaded.count)),
    );
    table.column("hotplugs", 1, of(&soaks, |soak| soak.hotplugs.to_string()));
    table.column("log", 1, of(&soaks, |soak| soak.log.len().to_string()));
    let verdict = |run: &Run| match run.failed {
        Some(_) => "failed".into(),
        None => "held".into(),
    };
    table.column("", 0, column(&verdict));
    let mut text = format!("\n{}", table.render(WIDTH));
    text += "longest wait: of any runnable task until it ran; log: lines of trouble in the kernel's log\n";
    for run in &soaks {
        text += &beneath(run);
    }
    text
}

fn of(soaks: &[&Run], cell: impl Fn(&Soak) -> String) -> Vec<String> {
    let one = |run: &&Run| {
        let soak = run
            .measured
            .as_ref()
            .and_then(|measured| measured.soak.as_ref());
        soak.map_or("–".into(), &cell)
    };
    soaks.iter().map(one).collect()
}

fn lasted(run: &Run) -> String {
    let ns = run.measured.as_ref().map(|measured| measured.wall_ns);
    ns.map_or("–".into(), |ns| {
        let seconds = ns / 1_000_000_000;
        format!("{}:{:02}", seconds / 60, seconds % 60)
    })
}

fn longest(waited: &Waited) -> String {
    report::time(waited.longest_ns)
}

/// What failed, the lines of the log, and what the kernel counted.
fn beneath(run: &Run) -> String {
    let mut lines = Vec::new();
    let who = format!("{}, {} CPUs", run.scheduler, run.cpus);
    lines.extend(run.failed.iter().map(|why| format!("{who}: {why}.")));
    if let Some(soak) = run
        .measured
        .as_ref()
        .and_then(|measured| measured.soak.as_ref())
    {
        lines.extend(soak.log.iter().map(|line| format!("{who}, log: {line}")));
        let events: Vec<String> = soak
            .events
            .iter()
            .map(|(name, count)| format!("{name} {}", report::count(*count)))
            .collect();
        if !events.is_empty() {
            lines.push(format!("{who}: the kernel counted {}.", events.join(", ")));
        }
    }
    let wrapped = |line: String| report::wrap(&line, WIDTH) + "\n";
    lines.into_iter().map(wrapped).collect()
}

#[cfg(test)]
mod tests {
    use super::super::super::result::tests::run;
    use super::*;

    #[test]
    fn a_row_for_each_and_what_was_wrong_beneath() {
        let mut held = run(Case::Soak, "morpheus", 1, 150e6);
        let measured = held.measured.as_mut().unwrap();
        measured.wall_ns = 605_000_000_000;
        let waited = |longest_ns, task: &str| Waited {
            longest_ns,
            task: task.into(),
            count: 12_345,
            p99_ns: Some(4_000_000),
        };
        measured.soak = Some(Soak {
            quiet: waited(3_100_000, "kworker/0:1 (12)"),
            loaded: waited(150_000_000, "scale-hog (345)"),
            hotplugs: 149,
            events: [("SCX_EV_SELECT_CPU_FALLBACK".into(), 5)].into(),
            ..Soak::default()
        });
        let mut failed = held.clone();
        failed.cpus = 8;
        failed.failed = Some("the scheduler was thrown out".into());
        failed.measured.as_mut().unwrap().soak.as_mut().unwrap().log = vec!["sched_ext: x".into()];
        let text = render(&Report {
            host: None,
            runs: vec![held, failed],
        });
        for words in [
            "10:05",
            "150 ms",
            "3.1 ms",
            "4.0 ms",
            "149",
            "held",
            "morpheus, 8 CPUs: the scheduler was thrown out.",
            "morpheus, 8 CPUs, log: sched_ext: x",
            "SCX_EV_SELECT_CPU_FALLBACK 5",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
        assert!(
            text.lines().all(|line| line.chars().count() <= WIDTH),
            "{text}"
        );
    }

    #[test]
    fn without_soaks_there_is_no_table() {
        let report = Report {
            host: None,
            runs: vec![run(Case::Pipe, "default", 1, 1.0)],
        };
        assert_eq!(render(&report), "");
    }
}
