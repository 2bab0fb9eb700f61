//! Whether longer sleeps wake later, and why: what a sweep says.
//!
//! Three things can make them: the timer slack of the call (`select`, `poll` and `epoll_wait` allow themselves a
//! thousandth of the timeout, up to 100 ms; `clock_nanosleep` does not), idle states that take longer to leave, and
//! a CPU that has slowed down. The first shows in the difference between the calls, the second in the residency.

use super::result::Row;
use super::sleep::Call;
use crate::host::Host;
use crate::policy::Policy;
use crate::report::time;
use crate::stats::Median;

/// The median lateness at the shortest and the longest interval of one kind of sleep.
struct Growth<'a> {
    shortest: &'a Row,
    longest: &'a Row,
    from: Median,
    to: Median,
}

impl<'a> Growth<'a> {
    fn of(rows: &'a [Row], call: Call, slack_ns: u64) -> Option<Self> {
        let mut own = rows
            .iter()
            .filter(|row| row.call == call && row.slack_ns == slack_ns);
        let shortest = own.next()?;
        let longest = own.next_back()?;
        Some(Self {
            from: shortest.median_ns?,
            to: longest.median_ns?,
            shortest,
            longest,
        })
    }

    fn is_growth(&self) -> bool {
        self.to.low > self.from.high
    }

    fn shown(&self) -> String {
        format!(
            "{} at {} and {} at {}",
            time(self.from.median as u64),
            time(self.shortest.interval_ns),
            time(self.to.median as u64),
            time(self.longest.interval_ns)
        )
    }

    fn ns(&self) -> f64 {
        self.to.median - self.from.median
    }
}

/// The answer, in a few sentences.
pub fn answer(rows: &[Row], host: &Host, policy: Policy) -> String {
    let growths = (
        Growth::of(rows, Call::Nanosleep, 1),
        Growth::of(rows, Call::Nanosleep, 50_000),
        Growth::of(rows, Call::Select, 50_000),
    );
    let (Some(precise), Some(slack), Some(select)) = growths else {
        return "Do longer sleeps wake later? n too small: a median with its interval needs 6 sleeps of each kind."
            .into();
    };
    let mut sentences = vec!["Do longer sleeps wake later?".to_owned()];
    let medians = format!("median lateness {}", precise.shown());
    if precise.is_growth() {
        sentences.push(format!(
            "By clock_nanosleep without slack they do: {medians}."
        ));
        sentences.push(idle(&precise, host));
    } else {
        sentences.push(format!(
            "By clock_nanosleep without slack they do not: {medians}."
        ));
        if precise.longest.idle.is_empty() {
            sentences.push(idle(&precise, host));
        }
    }
    sentences.push(format!("With a slack of 50 µs: {}.", slack.shown()));
    sentences.push(by_select(&select, &slack, policy));
    sentences.join(" ")
}

fn by_select(select: &Growth, slack: &Growth, policy: Policy) -> String {
    let shown = select.shown();
    if policy != Policy::Other {
        return format!("By select: {shown}; a real-time thread has no slack in it.");
    }
    let more = select.to.median - slack.to.median;
    let allowed = (select.longest.interval_ns / 1_000).clamp(50_000, 100_000_000);
    let apart = select.to.low > slack.to.high;
    if select.is_growth() && apart && select.ns() > 2.0 * slack.ns() {
        format!(
            "By select they do: {shown}, {} more than clock_nanosleep. It is timer slack: select, poll and \
             epoll_wait allow themselves a thousandth of the timeout (here up to {}), clock_nanosleep does not.",
            time(more.max(0.0) as u64),
            time(allowed)
        )
    } else {
        format!(
            "By select: {shown}; the slack of a thousandth of the timeout (here up to {}) does not show beyond that.",
            time(allowed)
        )
    }
}

/// What the idle states say of a growth that is no slack.
fn idle(growth: &Growth, host: &Host) -> String {
    let (short, long) = (&growth.shortest.idle, &growth.longest.idle);
    let deepest = short.iter().zip(long).next_back();
    let virtual_only =
        |name: &str| name == "POLL" || name == "haltpoll" || name.starts_with("haltpoll");
    if host.idle_states.is_empty() || deepest.is_none() {
        return "Whether idle states have a part in that this machine cannot tell: the kernel shows none, or the \
                thread was on no CPU of its own."
            .into();
    }
    if host.idle_states.iter().all(|name| virtual_only(name)) {
        return format!(
            "It is no slack. Which idle state the real CPU was in this virtual machine cannot tell: it only has {}.",
            host.idle_states.join(" and ")
        );
    }
    let Some((short, long)) = deepest else {
        return String::new();
    };
    let shares = format!(
        "the CPU was in {} for {:.0} % of the time at {} and {:.0} % at {}, and leaving it takes {} µs by the \
         kernel's word",
        long.name,
        short.share * 100.0,
        time(growth.shortest.interval_ns),
        long.share * 100.0,
        time(growth.longest.interval_ns),
        long.latency_us
    );
    if long.share > short.share + 0.1 {
        format!("It is no slack but idling: {shares}.")
    } else {
        format!(
            "It is no slack, and the deepest idle state does not explain it: {shares}. A CPU that slows down may."
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::tests::row;
    use super::*;
    use crate::idle::Residency;

    /// Median lateness in µs at 1 ms and at 100 ms, of each kind.
    fn rows(precise: [f64; 2], slack: [f64; 2], select: [f64; 2]) -> Vec<Row> {
        [0, 1]
            .into_iter()
            .flat_map(|i| {
                let ms = [1, 100][i];
                [
                    row(ms, Call::Nanosleep, 50_000, slack[i]),
                    row(ms, Call::Nanosleep, 1, precise[i]),
                    row(ms, Call::Select, 50_000, select[i]),
                ]
            })
            .collect()
    }

    fn host(states: &[&str]) -> Host {
        let idle_states = states.iter().map(|name| (*name).to_owned()).collect();
        Host {
            idle_states,
            ..Host::read()
        }
    }

    #[test]
    fn slack_of_select_is_told_from_the_rest() {
        let rows = rows([15.0, 15.0], [65.0, 65.0], [65.0, 115.0]);
        let text = answer(&rows, &host(&["POLL", "C1"]), Policy::Other);
        assert!(text.contains("without slack they do not"), "{text}");
        assert!(
            text.contains("By select they do: 65.0 µs at 1.0 ms and 115 µs at 100 ms"),
            "{text}"
        );
        assert!(text.contains("It is timer slack"), "{text}");
    }

    #[test]
    fn growth_without_slack_is_idling_or_not() {
        let mut rows = rows([15.0, 95.0], [65.0, 145.0], [65.0, 146.0]);
        for row in &mut rows {
            let share = if row.interval_ns > 10_000_000 {
                0.9
            } else {
                0.1
            };
            row.idle = vec![Residency {
                name: "C6".into(),
                latency_us: 133,
                share,
                entries: 9,
            }];
        }
        let text = answer(&rows, &host(&["POLL", "C1", "C6"]), Policy::Other);
        assert!(
            text.contains("no slack but idling: the CPU was in C6 for 10 %"),
            "{text}"
        );
        assert!(text.contains("does not show beyond that"), "{text}");
        rows.iter_mut().for_each(|row| row.idle[0].share = 0.1);
        let text = answer(&rows, &host(&["POLL", "C1", "C6"]), Policy::Other);
        assert!(text.contains("does not explain it"), "{text}");
    }

    #[test]
    fn a_machine_that_cannot_tell_says_so() {
        let mut rows = rows([15.0, 95.0], [65.0, 145.0], [65.0, 146.0]);
        let text = answer(&rows, &host(&[]), Policy::Other);
        assert!(text.contains("this machine cannot tell"), "{text}");
        for row in &mut rows {
            row.idle = vec![Residency {
                name: "haltpoll".into(),
                latency_us: 1,
                share: 0.9,
                entries: 9,
            }];
        }
        let text = answer(&rows, &host(&["POLL", "haltpoll"]), Policy::Other);
        assert!(text.contains("virtual machine cannot tell"), "{text}");
        rows.iter_mut().for_each(|row| row.median_ns = None);
        assert!(answer(&rows, &host(&[]), Policy::Other).contains("n too small"));
    }
}
