//! The title of a workload: a description in a line.

use morpheus_harness::report::count;

use super::workload::{HogKind, Lifo, Via, Workload};
use crate::code::Code;

/// One line that says what is measured.
pub fn title(workload: &Workload) -> String {
    let (load, busy, neighbours) = (workload.load, workload.busy, workload.neighbours);
    let is_busy = busy > 0 && !workload.label_mix;
    let rate = count((load as f64 * workload.load_rate) as u64);
    let window = workload.expected_window().as_secs_f64();
    let sleepers = format!("{} sleepers of {} µs", workload.tasks, workload.period_us);
    let parts = [
        Some(format!("{} workers", workload.workers)),
        workload.spares.map(|spares| format!("{spares} spares")),
        Some(match workload.idle {
            true => "nothing to do".into(),
            false => format!("{}, {sleepers}", hogs(workload)),
        }),
        (load > 0).then(|| format!("echo {rate}/s on {load} connections")),
        is_busy.then(|| format!("{busy} tasks of {} µs polls", workload.busy_us)),
        (neighbours > 0).then(|| format!("{neighbours} busy neighbours")),
        workload.quota.map(|quota| format!("quota {quota} CPUs")),
        workload.confine.then(|| "Morpheus confined to it".into()),
        (!workload.off.is_empty()).then(|| format!("without {}", workload.off.join(", "))),
        Some(match window > workload.duration_s {
            true => format!("{window:.1} s (extended for 1,000 wakes)"),
            false => format!("{window} s"),
        }),
    ];
    let parts: Vec<String> = parts.into_iter().flatten().collect();
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
        Code::Pool => ", on a pool of their own at nice 10",
        Code::InPlace => ", in block_in_place",
    };
    let fresh = match workload.fresh {
        true => ", each a new task",
        false => "",
    };
    format!(
        "{} hogs {does} {} ms via {via}{code}{fresh}",
        workload.hogs, workload.hog_ms
    )
}

#[cfg(test)]
mod tests {
    use super::super::workload::tests::workload;
    use super::*;

    #[test]
    fn the_title_says_what_is_run() {
        let text = title(&workload());
        assert!(
            text.contains("2 hogs computing 200 ms via tokio-spawn"),
            "{text}"
        );
    }
}
