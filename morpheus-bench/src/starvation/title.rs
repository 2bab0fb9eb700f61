//! What a workload is, in a line.

use super::workload::{HogKind, Lifo, Via, Workload};
use crate::code::Code;
use crate::report::count;

/// One line that says what is measured.
pub fn title(workload: &Workload) -> String {
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
