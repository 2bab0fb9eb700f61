//! One sentence at the end that says what happened, made from the rows.

use morpheus_harness::report::{count, time, times};
use morpheus_harness::rows::{Bound, Row, view};

use super::figures::{HOG_CPU, TIMER_MAX, TIMER_P99, WAKE_MAX, WAKE_P50, WAKE_P99, WAKEUPS};
use super::workload::Workload;
use crate::executor::Runtime;

/// The sentence. It compares the first runtime (Morpheus where it was measured) with tokio, or with the first other one.
pub fn sentence(workload: &Workload, rows: &[Row]) -> String {
    if workload.idle {
        return idle(rows, workload.duration_s);
    }
    let mut all = view::distinct(rows.iter().map(|row| row.contender.as_str()));
    let Some(main) = this_or_first(Runtime::Morpheus, &all) else {
        return "Nothing could be measured.".into();
    };
    let Some(own) = Slowest::of(main, rows) else {
        return format!("Too few samples to say anything of {main}.");
    };
    let beside = beside(workload);
    if own.stands_still {
        return format!(
            "{beside}, {main} stood still: half of the woken tasks and more had not run by the end."
        );
    }
    let mut text = format!(
        "{beside}, {main} ran {} % of the woken tasks within {} and of the sleepers within {} of their time",
        own.percent,
        time(own.wake as u64),
        time(own.timer as u64)
    );
    all.retain(|other| *other != main);
    let other = this_or_first(Runtime::TOKIO, &all);
    if let Some((other, slowest)) = other.and_then(|other| Some((other, Slowest::of(other, rows)?)))
    {
        text += &compared(other, &own, &slowest);
        text += &hogs(main, other, rows);
    }
    text + "."
}

fn this_or_first<'a>(runtime: Runtime, all: &[&'a str]) -> Option<&'a str> {
    let name = runtime.to_string();
    all.iter()
        .find(|own| **own == name)
        .or(all.first())
        .copied()
}

/// A figure of the one case that there is.
fn find<'a>(rows: &'a [Row], contender: &str, figure: &str) -> Option<&'a Row> {
    view::find(rows, &rows.first()?.case, contender, figure)
}

/// p99 of both probes, or their maximum where there are too few samples for that.
struct Slowest {
    percent: u32,
    wake: f64,
    timer: f64,
    stands_still: bool,
    /// Whether some had not run by the end, so that these are lower bounds.
    is_least: bool,
}

impl Slowest {
    fn of(contender: &str, rows: &[Row]) -> Option<Self> {
        let row = |figure| find(rows, contender, figure);
        let median = |figure| row(figure)?.median;
        let is_least = |figure| row(figure).is_some_and(|row| row.bound == Bound::AT_LEAST);
        let (percent, (wake, timer)) = match median(WAKE_P99).zip(median(TIMER_P99)) {
            Some(p99s) => (99, p99s),
            None => {
                let wake = median(WAKE_MAX)?;
                (100, (wake, median(TIMER_MAX).unwrap_or(wake)))
            }
        };
        Some(Self {
            percent,
            wake,
            timer,
            stands_still: is_least(WAKE_P50),
            is_least: is_least(WAKE_P99) || is_least(TIMER_P99),
        })
    }
}

fn beside(workload: &Workload) -> String {
    match workload.hogs {
        0 => "Without hogs".into(),
        1 => format!("Beside a hog of {} ms", workload.hog_ms),
        hogs => format!("Beside {hogs} hogs of {} ms", workload.hog_ms),
    }
}

fn compared(other: &str, own: &Slowest, others: &Slowest) -> String {
    if others.stands_still {
        return format!("; {other} stood still");
    }
    let factor = others.timer / own.timer.max(1.0);
    let compared = if factor >= 1.1 {
        format!("{} times later", times(others.timer, own.timer.max(1.0)))
    } else if factor > 0.9 {
        "no different".into()
    } else {
        format!("{} times sooner", times(own.timer, others.timer.max(1.0)))
    };
    let (wake, timer) = (time(others.wake as u64), time(others.timer as u64));
    let least = if others.is_least { "at least " } else { "" };
    format!("; {other} took {least}{wake} and {timer} (timers {compared})")
}

fn hogs(main: &str, other: &str, rows: &[Row]) -> String {
    let cpu = |contender| find(rows, contender, HOG_CPU)?.median;
    let both = cpu(main).zip(cpu(other));
    match both.filter(|(_, others)| *others >= 0.05) {
        Some((own, others)) => format!(
            "; hogs on {main} got {:.0} % of the CPU time that they got on {other}",
            own / others * 100.0
        ),
        None => String::new(),
    }
}

fn idle(rows: &[Row], seconds: f64) -> String {
    let woke = |row: &Row| {
        let times = count(row.median? as u64);
        Some(format!("{} woke {times} times", row.contender))
    };
    let wakeups = rows.iter().filter(|row| row.figure == WAKEUPS);
    let each: Vec<String> = wakeups.filter_map(woke).collect();
    if each.is_empty() {
        return "Nothing could be measured.".into();
    }
    format!("With nothing to do for {seconds} s, {}.", each.join(", "))
}

#[cfg(test)]
mod tests {
    use morpheus_harness::unit::Unit;

    use super::super::workload::tests::workload;
    use super::*;

    fn rows(runtime: Runtime, wake: f64, timer: f64, cpu: f64) -> Vec<Row> {
        let row = |figure: &str, unit, value| {
            Row::new("hogs", &runtime.to_string(), figure, unit, vec![value])
        };
        vec![
            row(WAKE_P50, Unit::Time, wake / 2.0),
            row(WAKE_P99, Unit::Time, wake),
            row(TIMER_P99, Unit::Time, timer),
            row(HOG_CPU, Unit::Share, cpu),
        ]
    }

    #[test]
    fn it_follows_the_figures() {
        let good = rows(Runtime::Morpheus, 200e3, 2e6, 1.9);
        let bad = rows(Runtime::TOKIO, 262e6, 400e6, 2.0);
        let both = |a: &[Row], b: &[Row]| sentence(&workload(), &[a, b].concat());
        let text = both(&bad, &good);
        assert!(
            text.contains("morpheus ran 99 % of the woken tasks within 200 µs"),
            "{text}"
        );
        assert!(
            text.contains("timers 200 times later") && text.contains("95 %"),
            "{text}"
        );
        assert!(text.contains("tokio took 262 ms and"), "{text}");
        let mut cut = bad.clone();
        cut[1].bound = Bound::AT_LEAST;
        let text = both(&good, &cut);
        assert!(text.contains("tokio took at least 262 ms and"), "{text}");
        let worse = rows(Runtime::Morpheus, 500e6, 800e6, 1.0);
        let text = both(&worse, &bad);
        assert!(text.contains("2.0 times sooner"), "{text}");
        let mut still = good;
        still[0].bound = Bound::AT_LEAST;
        let text = both(&still, &bad);
        assert!(text.contains("morpheus stood still"), "{text}");
        assert_eq!(sentence(&workload(), &[]), "Nothing could be measured.");
    }
}
