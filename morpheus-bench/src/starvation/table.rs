//! The table of one workload over the runtimes.

use super::WIDTH;
use super::result::RunResult;
use super::workload::{HogKind, Lifo, Via, Workload};
use crate::code::Code;
use crate::report::{self, Table, count, maybe_time};

/// One line that says what is measured.
pub fn title(workload: &Workload, rounds: usize) -> String {
    let mut parts = vec![format!("{} workers", workload.workers)];
    parts.extend(workload.spares.map(|spares| format!("{spares} spares")));
    if workload.idle {
        parts.push("nothing to do".into());
    } else {
        parts.push(hogs(workload));
        let sleepers = format!("{} sleepers of {} µs", workload.tasks, workload.period_us);
        parts.push(sleepers);
    }
    if workload.load > 0 {
        let rate = workload.load as f64 * workload.load_rate;
        parts.push(format!(
            "echo {}/s on {} connections",
            count(rate as u64),
            workload.load
        ));
    }
    if workload.busy > 0 && !workload.label_mix {
        parts.push(format!(
            "{} tasks of {} µs polls",
            workload.busy, workload.busy_us
        ));
    }
    if workload.neighbours > 0 {
        parts.push(format!("{} busy neighbours", workload.neighbours));
    }
    parts.extend(workload.quota.map(|quota| format!("quota {quota} CPUs")));
    if workload.confine {
        parts.push("Morpheus confined to it".into());
    }
    if !workload.off.is_empty() {
        parts.push(format!("without {}", workload.off.join(", ")));
    }
    let window = workload.expected_window().as_secs_f64();
    parts.push(if window > workload.duration_s {
        format!("{window:.1} s (extended for 1,000 wakes)")
    } else {
        format!("{window} s")
    });
    if rounds > 1 {
        parts.push(format!("medians of {rounds} rounds"));
    }
    parts.join(", ")
}

fn hogs(workload: &Workload) -> String {
    if workload.hogs == 0 {
        return "no hogs".into();
    }
    let does = match workload.hog_kind {
        HogKind::Cpu => "computing",
        HogKind::Sleep => "sleeping in the kernel",
        HogKind::Mutex => "waiting for a lock",
        HogKind::Read => "reading a pipe",
    };
    let via = match (workload.hog_via, workload.lifo) {
        (_, Some(Lifo::Known | Lifo::Checkpoint)) | (Via::Spawn, None) => "spawn",
        (_, Some(Lifo::Unknown)) | (Via::TokioSpawn, None) => "tokio-spawn",
    };
    let code = match workload.hog_code {
        Code::Inline => "",
        Code::SpawnBlocking => ", in spawn_blocking",
        Code::Bounded => ", in spawn_blocking behind a semaphore",
        Code::InPlace => ", in block_in_place",
    };
    let fresh = if workload.fresh {
        ", each a new task"
    } else {
        ""
    };
    format!(
        "{} hogs {does} {} ms via {via}{code}{fresh}",
        workload.hogs, workload.hog_ms
    )
}

/// The table, and notes below it for what it cannot hold.
pub fn render(runs: &[RunResult]) -> String {
    let mut table = Table::default();
    let mut column = |head: &str, expendable: u8, cell: &dyn Fn(&RunResult) -> Option<String>| {
        let cells: Vec<Option<String>> = runs
            .iter()
            .map(|run| {
                if run.failed.is_some() && head != "runtime" {
                    None
                } else {
                    cell(run)
                }
            })
            .collect();
        // A column that nobody has a figure for is left out.
        if cells.iter().any(Option::is_some) {
            let cells = cells
                .into_iter()
                .map(|cell| cell.unwrap_or_else(|| "–".into()));
            table.column(head, expendable, cells.collect());
        }
    };
    let names = |run: &RunResult| Some(run.runtime.to_string());
    let latency = |ns: Option<u64>, n: u64| (n > 0).then(|| maybe_time(ns));
    column("runtime", 0, &names);
    column("wake p50", 0, &|run| {
        latency(run.wake_ns.p50, run.wake_ns.n)
    });
    column("p99", 0, &|run| latency(run.wake_ns.p99, run.wake_ns.n));
    column("p99.9", 4, &|run| run.wake_ns.p999.map(report::time));
    column("max", 3, &|run| latency(run.wake_ns.max, run.wake_ns.n));
    column("timer p50", 0, &|run| {
        latency(run.timer_ns.p50, run.timer_ns.n)
    });
    column("p99", 0, &|run| latency(run.timer_ns.p99, run.timer_ns.n));
    column("max", 2, &|run| latency(run.timer_ns.max, run.timer_ns.n));
    column("LIFO p50", 0, &|run| {
        Some(maybe_time(run.lifo_ns.as_ref()?.p50))
    });
    column("max", 0, &|run| Some(maybe_time(run.lifo_ns.as_ref()?.max)));
    column("mixed p50", 0, &|run| {
        Some(maybe_time(run.mix.as_ref()?.late_ns.p50))
    });
    column("p99", 0, &|run| {
        Some(maybe_time(run.mix.as_ref()?.late_ns.p99))
    });
    column("polls/s", 0, &|run| {
        Some(count(run.mix.as_ref()?.polls_per_s as u64))
    });
    column("requests/s", 0, &|run| {
        Some(count(run.load.as_ref()?.requests_per_s as u64))
    });
    column("p50", 5, &|run| {
        Some(maybe_time(run.load.as_ref()?.latency_ns.p50))
    });
    column("p99", 0, &|run| {
        Some(maybe_time(run.load.as_ref()?.latency_ns.p99))
    });
    column("polls/s", 0, &|run| {
        Some(count(run.busy.as_ref()?.polls_per_s as u64))
    });
    column("hogs' CPU", 0, &|run| {
        Some(percent(run.hog.as_ref()?.cpu_share))
    });
    column("polls", 1, &|run| Some(count(run.hog.as_ref()?.polls)));
    column("neighbours", 0, &|run| run.neighbours_cpu.map(percent));
    column("wakeups", 0, &|run| Some(count(run.idle.as_ref()?.wakeups)));
    column("controller", 6, &|run| {
        run.controller_cpu_share
            .map(|x| format!("{:.2} %", x * 100.0))
    });
    let mut text = table.render(WIDTH);
    for run in runs {
        for note in notes(run) {
            let note = report::wrap(&format!("{}: {note}", run.runtime), WIDTH - 4);
            text += &format!("  {}\n", note.replace('\n', "\n    "));
        }
    }
    text
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// What a reader must know beside the figures.
fn notes(run: &RunResult) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(why) = &run.failed {
        notes.push(why.clone());
        return notes;
    }
    if stands_still(run) {
        notes.push(format!(
            "stands still: {} wakes were not served by the end and count with their age",
            count(run.wake_unserved)
        ));
    }
    if let Some(warmup) = run.warmup.filter(|warmup| !warmup.settled) {
        notes.push(format!(
            "the median wake had not settled after {:.1} s, when counting began",
            warmup.lasted_s
        ));
    }
    if run.idle.is_none() && run.wake_ns.p99.is_none() {
        let n = run.wake_ns.n;
        notes.push(format!(
            "no p99 of wakes: n too small ({n}, 1,000 are needed)"
        ));
    }
    if let Some(link) = run.escalations.as_ref().filter(|e| e.link_events > 0) {
        notes.push(format!(
            "link {}: {} events, read {} after what they tell of (p99 {}); a spare ran {} after its release (p99 {})",
            link.link,
            count(link.link_events),
            report::time(link.detection_p50_ns),
            report::time(link.detection_p99_ns),
            report::time(link.takeover_p50_ns),
            report::time(link.takeover_p99_ns)
        ));
    }
    if let Some(hog) = run.hog.as_ref().filter(|hog| hog.unfinished > 0) {
        notes.push(format!("{} hogs did not end their poll", hog.unfinished));
    }
    notes
}

/// Whether the woken task did not run at all for the last quarter of the window, or longer.
pub fn stands_still(run: &RunResult) -> bool {
    run.wake_ns.n > 0 && run.wake_unserved * 4 >= run.wake_ns.n
}

#[cfg(test)]
mod tests {
    use super::super::result::{HogSummary, Warmup};
    use super::super::workload::tests::workload;
    use super::*;
    use crate::executor::{Escalations, Runtime};
    use crate::histogram::Summary;
    use crate::load::LoadSummary;

    fn full(runtime: Runtime) -> RunResult {
        let slow = Summary {
            n: 10_000,
            p50: Some(199_900_000),
            p99: Some(999_000_000),
            p999: Some(1_234_000_000),
            max: Some(2_345_000_000),
            ..Summary::default()
        };
        RunResult {
            wake_ns: slow.clone(),
            timer_ns: slow.clone(),
            load: Some(LoadSummary {
                requests_per_s: 15_999.0,
                wanted_per_s: 16_000.0,
                latency_ns: slow,
            }),
            busy: Some(super::super::result::BusySummary {
                polls_per_s: 85_000.0,
            }),
            hog: Some(HogSummary {
                polls: 12_345,
                cpu_share: 1.987,
                unfinished: 3,
                ..HogSummary::default()
            }),
            controller_cpu_share: Some(0.012),
            escalations: Some(Escalations::default()),
            ..RunResult::empty(runtime)
        }
    }

    #[test]
    fn a_full_table_fits_and_says_what_failed() {
        let runs = [
            full(Runtime::Morpheus),
            full(Runtime::TOKIO_32_SLICE),
            RunResult::failed(Runtime::Go, "go not found"),
        ];
        let text = render(&runs);
        assert!(
            text.lines().all(|line| line.chars().count() <= WIDTH),
            "{text}"
        );
        assert!(text.contains("go: go not found") && text.contains("3 hogs did not end"));
        assert!(text.contains("15,999"), "{text}");
        assert!(!text.contains("neighbours"), "{text}");
    }

    #[test]
    fn small_n_and_standing_still_are_said() {
        let mut run = full(Runtime::TOKIO);
        run.wake_ns.n = 500;
        run.wake_ns.p99 = None;
        run.wake_unserved = 125;
        run.warmup = Some(Warmup {
            lasted_s: 1.02,
            settled: false,
        });
        let text = render(&[run]);
        assert!(text.contains("not settled after 1.0 s"), "{text}");
        assert!(
            text.contains("n too small (500") && text.contains("stands still"),
            "{text}"
        );
    }

    #[test]
    fn the_title_says_what_is_run() {
        let text = title(&workload(), 3);
        assert!(
            text.contains("2 hogs computing 200 ms via tokio-spawn"),
            "{text}"
        );
        assert!(text.contains("medians of 3 rounds"), "{text}");
    }
}
