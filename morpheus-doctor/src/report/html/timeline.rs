//! The workers over time: a lane for each, with its long polls, and a lane for each runtime with the times in which all of its workers
//! were in long polls.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use super::findings::anchor;
use super::{css_percent, escape};
use crate::model::{Doing, LongPoll, Report};
use crate::report::names::first_columns;
use crate::report::units::{count, duration, grouped};
use crate::report::words;

/// Lanes of workers; those with the longest polls.
const MOST_LANES: usize = 64;
/// About this many bars are drawn in all.
const MOST_BARS: u64 = 12_000;
/// Bars that a lane has room for.
const BARS_OF_A_LANE: Range<u64> = 100..2_000;
/// Ticks of the time axis.
const TICKS: u64 = 6;

/// Long polls of a worker that are drawn as one bar.
struct Bar<'a> {
    begins_ns: u64,
    ends_ns: u64,
    polls: u64,
    sum_ns: u64,
    unserved_ns: u64,
    cpu_ns: u64,
    blocked_ns: u64,
    longest: &'a LongPoll,
}

impl Bar<'_> {
    fn doing(&self) -> Doing {
        match self.blocked_ns > self.cpu_ns {
            true => Doing::Blocked,
            false => Doing::Computing,
        }
    }
}

/// A worker and its long polls.
struct Lane<'a> {
    thread: u32,
    name: &'a str,
    polls: Vec<&'a LongPoll>,
}

impl Lane<'_> {
    fn sum_ns(&self) -> u64 {
        self.polls
            .iter()
            .fold(0, |sum, poll| sum.saturating_add(poll.length_ns))
    }

    /// When it was in long polls: disjoint, in order.
    fn times(&self) -> Vec<Range<u64>> {
        let mut times: Vec<Range<u64>> = Vec::new();
        for poll in &self.polls {
            let (begins, ends) = (poll.began_ns, poll.began_ns.saturating_add(poll.length_ns));
            match times.last_mut() {
                Some(last) if begins <= last.end => last.end = last.end.max(ends),
                // An empty one would end before it begins.
                _ if begins < ends => times.push(begins..ends),
                _ => {}
            }
        }
        times
    }
}

/// The time line with its heading.
pub(super) fn lanes(report: &Report) -> String {
    if report.polls.is_empty() || report.length_ns == 0 {
        return String::new();
    }
    let runtimes = by_runtime(report);
    let lanes: u64 = runtimes.values().map(|lanes| lanes.len() as u64).sum();
    let room = (MOST_BARS / 2 / lanes.clamp(1, MOST_LANES as u64))
        .clamp(BARS_OF_A_LANE.start, BARS_OF_A_LANE.end);
    let grain_ns = (report.length_ns / room).max(1);
    let mut text = "<section>\n<h2>Workers over time</h2>\n<p class=\"about\">A lane for each worker, with its long polls. The red lane above \
                    shows when all workers of the runtime were in long polls at the same time. A bar with a red edge is of polls during \
                    which no worker served what waited. A bar leads to the stack.</p>\n<p class=\"legend\"><span><i class=\"key computing\"></i>computing</span><span>\
                    <i class=\"key blocked\"></i>blocked</span><span><i class=\"key unserved\"></i>all workers in long polls</span>\
                    <label class=\"script\">zoom <input id=\"zoom\" type=\"range\" min=\"0\" max=\"6\" step=\"0.5\" value=\"0\"></label></p>\n\
                    <div class=\"scroller\"><div class=\"lanes\" id=\"lanes\">\n"
        .to_owned();
    // The lanes with the longest polls are shown, in the order of the threads.
    let of_runtime = |(runtime, lanes): (&usize, &Vec<Lane>)| {
        let key = |lane: &Lane| (Reverse(lane.sum_ns()), *runtime, lane.thread);
        lanes.iter().map(key).collect::<Vec<_>>()
    };
    let mut order: Vec<(Reverse<u64>, usize, u32)> = runtimes.iter().flat_map(of_runtime).collect();
    order.sort_unstable();
    order.truncate(MOST_LANES);
    let shown: HashSet<(usize, u32)> = order
        .into_iter()
        .map(|(_, runtime, thread)| (runtime, thread))
        .collect();
    for (runtime, lanes) in &runtimes {
        let mut drawn = lanes
            .iter()
            .filter(|lane| shown.contains(&(*runtime, lane.thread)))
            .peekable();
        if drawn.peek().is_some() {
            text += &head(report, *runtime, lanes);
        }
        for lane in drawn {
            text += &draw(report, lane, grain_ns);
        }
    }
    text += &axis(report.length_ns);
    text += "</div></div>\n";
    let hidden = lanes.saturating_sub(shown.len() as u64);
    if hidden > 0 {
        text += &format!(
            "<p class=\"about\">… and {} with shorter polls or none.</p>\n",
            count(hidden, "more worker", "more workers")
        );
    }
    text + "</section>\n"
}

/// All workers, with their long polls in order.
fn by_runtime(report: &Report) -> BTreeMap<usize, Vec<Lane<'_>>> {
    let mut lanes: BTreeMap<(usize, u32), Lane> = BTreeMap::new();
    for (index, runtime) in report.runtimes.iter().enumerate() {
        for worker in &runtime.workers {
            lanes.insert(
                (index, worker.tid),
                Lane {
                    thread: worker.tid,
                    name: &worker.name,
                    polls: Vec::new(),
                },
            );
        }
    }
    for poll in &report.polls {
        let lane = lanes.entry((poll.runtime, poll.thread)).or_insert(Lane {
            thread: poll.thread,
            name: "thread",
            polls: Vec::new(),
        });
        lane.polls.push(poll);
    }
    let mut runtimes: BTreeMap<usize, Vec<Lane>> = BTreeMap::new();
    for ((runtime, _), mut lane) in lanes {
        lane.polls.sort_by_key(|poll| poll.began_ns);
        runtimes.entry(runtime).or_default().push(lane);
    }
    runtimes
}

/// When all lanes are in long polls.
fn all_at_once(lanes: &[Lane]) -> Vec<Range<u64>> {
    let mut changes: Vec<(u64, bool)> = Vec::new();
    for time in lanes.iter().flat_map(Lane::times) {
        changes.push((time.start, true));
        changes.push((time.end, false));
    }
    // Ends before beginnings, so that times which touch are no overlap.
    changes.sort_unstable();
    let (mut busy, mut since, mut times) = (0, None, Vec::new());
    for (at, begins) in changes {
        busy = if begins { busy + 1 } else { busy - 1 };
        match since {
            None if busy == lanes.len() => since = Some(at),
            Some(from) if busy < lanes.len() => {
                if at > from {
                    times.push(from..at);
                }
                since = None;
            }
            _ => {}
        }
    }
    times
}

fn head(report: &Report, runtime: usize, lanes: &[Lane]) -> String {
    let what = match report.runtimes.get(runtime) {
        Some(of) => words::runtime(of),
        None => "runtime unknown".to_owned(),
    };
    let times = all_at_once(lanes);
    let sum_ns = times
        .iter()
        .fold(0u64, |sum, time| sum.saturating_add(time.end - time.start));
    let grain_ns = (report.length_ns / BARS_OF_A_LANE.end).max(1);
    let mut text = format!(
        "<div class=\"lane runtime\"><span class=\"of\">Runtime {}: {what}<br>all in long polls: {}</span><div class=\"track\">",
        runtime.saturating_add(1),
        duration(sum_ns)
    );
    // Those that are drawn at the same place are one.
    let mut merged: Vec<Range<u64>> = Vec::new();
    for time in times {
        match merged.last_mut() {
            Some(last) if time.start.saturating_sub(last.end) < grain_ns => last.end = time.end,
            _ => merged.push(time),
        }
    }
    for time in merged {
        let (from_ns, length_ns) = within(report, time.start, time.end);
        text += &format!(
            "<i class=\"unserved\" style=\"left:{};width:{}\" title=\"{} from {}\"></i>",
            css_percent(from_ns, report.length_ns),
            css_percent(length_ns, report.length_ns),
            duration(length_ns),
            duration(from_ns)
        );
    }
    text + "</div></div>\n"
}

/// From when, since the beginning of the run, and how long: the part that is within the run.
fn within(report: &Report, begins_ns: u64, ends_ns: u64) -> (u64, u64) {
    let since = |at: u64| at.saturating_sub(report.began_ns).min(report.length_ns);
    (since(begins_ns), since(ends_ns) - since(begins_ns))
}

fn draw(report: &Report, lane: &Lane, grain_ns: u64) -> String {
    let mut text = format!(
        "<div class=\"lane\"><span class=\"of\">{} <small>{}</small><br><small>{} · {}</small></span><div class=\"track\">",
        escape(&first_columns(lane.name, 40)),
        lane.thread,
        count(lane.polls.len() as u64, "long poll", "long polls"),
        duration(lane.sum_ns())
    );
    for bar in bars(&lane.polls, grain_ns) {
        let (from_ns, length_ns) = within(report, bar.begins_ns, bar.ends_ns);
        let unserved = if bar.unserved_ns > 0 { " late" } else { "" };
        let goes_on = if bar.longest.goes_on { " on" } else { "" };
        let anchor = bar.longest.finding.and_then(anchor);
        let href = anchor.map_or_else(String::new, |anchor| format!(" href=\"#{anchor}\""));
        text += &format!(
            "<a class=\"{}{unserved}{goes_on}\"{href} tabindex=\"-1\" style=\"left:{};width:{}\" title=\"{}\"></a>",
            words::verb(bar.doing()),
            css_percent(from_ns, report.length_ns),
            css_percent(length_ns, report.length_ns),
            escape(&tooltip(report, &bar, from_ns))
        );
    }
    text + "</div></div>\n"
}

/// Polls as bars. Those too close to each other to be told apart are one.
fn bars<'a>(polls: &[&'a LongPoll], grain_ns: u64) -> Vec<Bar<'a>> {
    let mut bars: Vec<Bar> = Vec::new();
    for poll in polls {
        let ends_ns = poll.began_ns.saturating_add(poll.length_ns);
        let next = Bar {
            begins_ns: poll.began_ns,
            ends_ns,
            polls: 1,
            sum_ns: poll.length_ns,
            unserved_ns: poll.unserved_ns,
            cpu_ns: poll.cpu_ns,
            blocked_ns: poll.blocked_ns,
            longest: poll,
        };
        match bars.last_mut() {
            Some(last) if are_one(last, &next, grain_ns) => {
                last.ends_ns = last.ends_ns.max(ends_ns);
                last.polls += 1;
                last.sum_ns = last.sum_ns.saturating_add(next.sum_ns);
                last.unserved_ns = last.unserved_ns.saturating_add(next.unserved_ns);
                last.cpu_ns = last.cpu_ns.saturating_add(next.cpu_ns);
                last.blocked_ns = last.blocked_ns.saturating_add(next.blocked_ns);
                if poll.length_ns > last.longest.length_ns {
                    last.longest = poll;
                }
            }
            _ => bars.push(next),
        }
    }
    bars
}

fn are_one(last: &Bar, next: &Bar, grain_ns: u64) -> bool {
    let are_within_a_grain = next.ends_ns.saturating_sub(last.begins_ns) < grain_ns;
    let touch = next.begins_ns.saturating_sub(last.ends_ns) < grain_ns
        && next.sum_ns < grain_ns
        && last.sum_ns / last.polls < grain_ns;
    are_within_a_grain || (touch && next.doing() == last.doing())
}

fn tooltip(report: &Report, bar: &Bar, from_ns: u64) -> String {
    let finding = bar
        .longest
        .finding
        .and_then(|finding| report.findings.get(finding));
    let place = finding.map_or_else(
        || "no stack was seen".to_owned(),
        |finding| first_columns(&words::place(finding), 120),
    );
    let mut text = match bar.polls {
        1 => format!("{place}: {}", duration(bar.sum_ns)),
        polls => format!(
            "{} polls, {} in all; the longest: {place}, {}",
            grouped(polls),
            duration(bar.sum_ns),
            duration(bar.longest.length_ns)
        ),
    };
    text += &format!("; at {}", duration(from_ns));
    if bar.cpu_ns > 0 && bar.blocked_ns > 0 {
        text += &format!(
            "; computing {}, blocked {}",
            duration(bar.cpu_ns),
            duration(bar.blocked_ns)
        );
    } else {
        text += &format!("; {}", words::verb(bar.doing()));
    }
    if bar.unserved_ns > 0 {
        text += &format!("; unserved {}", duration(bar.unserved_ns));
    }
    if bar.longest.goes_on {
        text += "; had not ended";
    }
    text
}

/// A lane with times, from the beginning of the run.
fn axis(length_ns: u64) -> String {
    let step_ns = step(length_ns);
    let mut text =
        "<div class=\"lane axis\"><span class=\"of\"></span><div class=\"track\">".to_owned();
    let mut at_ns = 0u64;
    // The last label has no room at the right end.
    while at_ns as f64 <= length_ns as f64 * 0.95 {
        text += &format!(
            "<span style=\"left:{}\">{}</span>",
            css_percent(at_ns, length_ns),
            tick(at_ns, step_ns)
        );
        let Some(next) = at_ns.checked_add(step_ns) else {
            break;
        };
        at_ns = next;
    }
    text + "</div></div>\n"
}

/// A round step with about [`TICKS`] in a length.
fn step(length_ns: u64) -> u64 {
    let least = (length_ns / TICKS).max(1);
    let minute = 60_000_000_000u64;
    if least > minute / 2 {
        let minutes = least.div_ceil(minute);
        let round = [1, 2, 5, 10, 15, 30, 60, 120, 240, 480, 1440]
            .into_iter()
            .find(|round| *round >= minutes);
        return round.unwrap_or(minutes).saturating_mul(minute);
    }
    let power = 10u64.pow(least.ilog10());
    let round = [1, 2, 5].into_iter().find(|factor| factor * power >= least);
    round.unwrap_or(10) * power
}

fn tick(at_ns: u64, step_ns: u64) -> String {
    let minute = 60_000_000_000;
    match at_ns {
        0 => "0".to_owned(),
        _ if step_ns >= minute => format!("{} min", at_ns / minute),
        _ if step_ns >= 1_000_000_000 => format!("{} s", at_ns / 1_000_000_000),
        _ if step_ns >= 100_000_000 => format!("{:.1} s", at_ns as f64 / 1e9),
        _ if step_ns >= 1_000_000 => format!("{} ms", at_ns / 1_000_000),
        _ => duration(at_ns),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn poll(began_ns: u64, length_ns: u64) -> LongPoll {
        LongPoll {
            thread: 1,
            runtime: 0,
            began_ns,
            length_ns,
            goes_on: false,
            cpu_ns: length_ns,
            blocked_ns: 0,
            unserved_ns: 0,
            finding: None,
        }
    }

    fn lane(polls: &[LongPoll]) -> Lane<'_> {
        Lane {
            thread: 1,
            name: "",
            polls: polls.iter().collect(),
        }
    }

    #[test]
    fn none_serves_when_all_are_in_long_polls() {
        let (one, two) = ([poll(0, 10), poll(20, 10)], [poll(5, 20), poll(29, 5)]);
        assert_eq!(
            all_at_once(&[lane(&one), lane(&two)]),
            [5..10, 20..25, 29..30]
        );
        assert_eq!(all_at_once(&[lane(&one)]), [0..10, 20..30]);
        assert_eq!(all_at_once(&[lane(&one), lane(&[])]), []);
        assert_eq!(all_at_once(&[]), []);
        // Polls of a thread that overlap, as in no true report, are one.
        let overlap = [poll(0, 10), poll(5, 10)];
        assert_eq!(
            all_at_once(&[lane(&overlap), lane(&overlap)]).first(),
            Some(&(0..15))
        );
    }

    #[test]
    fn bars_that_cannot_be_told_apart_are_one() {
        let polls: Vec<LongPoll> = (0..10_000).map(|nth| poll(nth * 100, 50)).collect();
        let polls: Vec<&LongPoll> = polls.iter().collect();
        assert_eq!(bars(&polls, 1).len(), 10_000);
        let merged = bars(&polls, 1_000);
        assert_eq!(merged.len(), 1);
        assert_eq!((merged[0].polls, merged[0].sum_ns), (10_000, 500_000));
        // Of different kinds: a bar for each grain.
        let mut polls: Vec<LongPoll> = (0..10_000).map(|nth| poll(nth * 100, 50)).collect();
        for poll in polls.iter_mut().step_by(2) {
            (poll.cpu_ns, poll.blocked_ns) = (0, 50);
        }
        let polls: Vec<&LongPoll> = polls.iter().collect();
        assert!(bars(&polls, 1_000).len() <= 2_000);
    }

    #[test]
    fn ticks_are_round() {
        let s = 1_000_000_000;
        assert_eq!(step(30 * s), 5 * s);
        assert_eq!(step(10 * s), 2 * s);
        assert_eq!(step(600 * s), 120 * s);
        assert_eq!(step(1), 1);
        assert_eq!(tick(4 * s, 2 * s), "4 s");
        for length_ns in [1, 999, 12_345_678, 61 * s, 86_400 * s, u64::MAX] {
            let ticks = length_ns / step(length_ns);
            assert!(ticks <= 6, "{length_ns}: {ticks}");
            assert!(axis(length_ns).matches("<span style").count() <= 7);
        }
    }
}
