//! One sentence at the end that says what happened, made from the figures.

use super::result::RunResult;
use super::table::stands_still;
use super::workload::Workload;
use crate::executor::Runtime;
use crate::report::{count, time, times};

/// The sentence. It compares the first runtime (Morpheus where it was measured) with tokio, or with
/// whichever did worst.
pub fn sentence(workload: &Workload, runs: &[RunResult]) -> String {
    if workload.idle {
        return idle(runs, workload.duration_s);
    }
    let measured: Vec<&RunResult> = runs.iter().filter(|run| run.failed.is_none()).collect();
    let Some(main) = find(&measured, Runtime::Morpheus).or(measured.first().copied()) else {
        return "Nothing could be measured.".into();
    };
    let Some(own) = slowest_of_both(main) else {
        return format!("Too few samples to say anything of {}.", main.runtime);
    };
    let beside = beside(workload);
    if stands_still(main) {
        let waiting = count(main.wake_unserved);
        return format!(
            "{beside}, {} stood still: at the end {waiting} wakes waited.",
            main.runtime
        );
    }
    let mut text = format!(
        "{beside}, {} ran {} % of the woken tasks within {} and of the sleepers within {} of their time",
        main.runtime,
        own.percent,
        time(own.wake),
        time(own.timer)
    );
    let others: Vec<&RunResult> = measured
        .into_iter()
        .filter(|run| run.runtime != main.runtime)
        .collect();
    let other = find(&others, Runtime::TOKIO).or_else(|| others.first().copied());
    if let Some((other, figures)) = other.and_then(|other| Some((other, slowest_of_both(other)?))) {
        text += &compared(other, &own, &figures);
        text += &hogs(main, other);
    }
    text + "."
}

struct Figures {
    percent: f64,
    wake: u64,
    timer: u64,
}

/// p99 of both probes, or their maximum where there are too few samples for that.
fn slowest_of_both(run: &RunResult) -> Option<Figures> {
    if let (Some(wake), Some(timer)) = (run.wake_ns.p99, run.timer_ns.p99) {
        let percent = 99.0;
        return Some(Figures {
            percent,
            wake,
            timer,
        });
    }
    Some(Figures {
        percent: 100.0,
        wake: run.wake_ns.max?,
        timer: run.timer_ns.max.or(run.wake_ns.max)?,
    })
}

fn find<'a>(runs: &[&'a RunResult], runtime: Runtime) -> Option<&'a RunResult> {
    runs.iter().copied().find(|run| run.runtime == runtime)
}

fn beside(workload: &Workload) -> String {
    match workload.hogs {
        0 => "Without hogs".into(),
        1 => format!("Beside a hog of {} ms", workload.hog_ms),
        hogs => format!("Beside {hogs} hogs of {} ms", workload.hog_ms),
    }
}

fn compared(other: &RunResult, own: &Figures, figures: &Figures) -> String {
    if stands_still(other) {
        return format!("; {} stood still", other.runtime);
    }
    let factor = figures.timer as f64 / own.timer.max(1) as f64;
    let compared = if factor >= 1.1 {
        format!(
            "{} times later",
            times(figures.timer as f64, own.timer.max(1) as f64)
        )
    } else if factor > 0.9 {
        "no different".into()
    } else {
        let factor = times(own.timer as f64, figures.timer.max(1) as f64);
        format!("{factor} times sooner")
    };
    let (wake, timer) = (time(figures.wake), time(figures.timer));
    format!(
        "; {} took {wake} and {timer} (timers {compared})",
        other.runtime
    )
}

fn hogs(main: &RunResult, other: &RunResult) -> String {
    let (Some(own), Some(others)) = (&main.hog, &other.hog) else {
        return String::new();
    };
    if others.cpu_share < 0.05 {
        return String::new();
    }
    let share = own.cpu_share / others.cpu_share * 100.0;
    format!(
        "; hogs on {} got {share:.0} % of the CPU time that they got on {}",
        main.runtime, other.runtime
    )
}

fn idle(runs: &[RunResult], seconds: f64) -> String {
    let wakeups = runs
        .iter()
        .filter_map(|run| Some((run.runtime, run.idle.as_ref()?.wakeups)));
    let each: Vec<String> = wakeups
        .map(|(runtime, wakeups)| format!("{runtime} woke {} times", count(wakeups)))
        .collect();
    if each.is_empty() {
        return "Nothing could be measured.".into();
    }
    format!("With nothing to do for {seconds} s, {}.", each.join(", "))
}

#[cfg(test)]
mod tests {
    use super::super::result::HogSummary;
    use super::super::workload::tests::workload;
    use super::*;
    use crate::histogram::Summary;

    fn run(runtime: Runtime, wake: u64, timer: u64, cpu_share: f64) -> RunResult {
        let summary = |p99| Summary {
            n: 5_000,
            p50: Some(1),
            p99: Some(p99),
            p999: None,
            max: Some(p99),
            ..Summary::default()
        };
        RunResult {
            wake_ns: summary(wake),
            timer_ns: summary(timer),
            hog: Some(HogSummary {
                cpu_share,
                ..HogSummary::default()
            }),
            ..RunResult::empty(runtime)
        }
    }

    #[test]
    fn it_follows_the_figures() {
        let good = run(Runtime::Morpheus, 200_000, 2_000_000, 1.9);
        let bad = run(Runtime::TOKIO, 262_000_000, 400_000_000, 2.0);
        let text = sentence(&workload(), &[bad.clone(), good.clone()]);
        assert!(
            text.contains("morpheus ran 99 % of the woken tasks within 200 µs"),
            "{text}"
        );
        assert!(
            text.contains("timers 200 times later") && text.contains("95 %"),
            "{text}"
        );

        let worse = run(Runtime::Morpheus, 500_000_000, 800_000_000, 1.0);
        let text = sentence(&workload(), &[worse, bad.clone()]);
        assert!(text.contains("2.0 times sooner"), "{text}");

        let mut still = good;
        still.wake_unserved = 4_000;
        let text = sentence(&workload(), &[still, bad]);
        assert!(text.contains("morpheus stood still"), "{text}");
    }

    #[test]
    fn nothing_measured_is_said() {
        let runs = [RunResult::failed(Runtime::Go, "go not found")];
        assert_eq!(sentence(&workload(), &runs), "Nothing could be measured.");
    }
}
