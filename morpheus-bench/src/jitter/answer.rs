//! Whether longer sleeps wake later, and why: what a sweep says.
//!
//! Three things can make them: the timer slack of the call (`select`, `poll` and `epoll_wait` allow themselves a
//! thousandth of the timeout, up to 100 ms; `clock_nanosleep` does not), idle states that take longer to leave, and
//! a CPU that has slowed down. The first shows in the difference between the calls, the second in the residency.

use morpheus_harness::host::Host;
use morpheus_harness::report::time;
use morpheus_harness::stats::Median;

use super::plan::Series;
use super::sleep::{Call, Sleeper};
use crate::policy::Policy;

/// The median lateness at the shortest and the longest interval of one kind of sleep.
struct Growth<'a> {
    shortest: &'a Series,
    longest: &'a Series,
    from: Median,
    to: Median,
}

impl<'a> Growth<'a> {
    fn of(all: &'a [Series], call: Call, slack_ns: u64) -> Option<Self> {
        let is_own = |sleeper: &Sleeper| sleeper.call == call && sleeper.slack_ns == slack_ns;
        let mut own = all.iter().filter(|series| is_own(&series.sleeper));
        let shortest = own.next()?;
        let longest = own.next_back()?;
        Some(Self {
            from: Median::of(&shortest.values)?,
            to: Median::of(&longest.values)?,
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
            interval(self.shortest),
            time(self.to.median as u64),
            interval(self.longest)
        )
    }

    fn ns(&self) -> f64 {
        self.to.median - self.from.median
    }
}

fn interval(series: &Series) -> String {
    time(series.sleeper.interval.as_nanos() as u64)
}

/// The answer, in a few sentences.
pub fn answer(all: &[Series], host: &Host, policy: Policy) -> String {
    let growths = (
        Growth::of(all, Call::Nanosleep, 1),
        Growth::of(all, Call::Nanosleep, 50_000),
        Growth::of(all, Call::Select, 50_000),
    );
    let (Some(precise), Some(slack), Some(select)) = growths else {
        return "Do longer sleeps wake later? n too small: a median with its interval needs 6 sleeps of each kind."
            .into();
    };
    let (grows, shown) = (precise.is_growth(), precise.shown());
    let do_they = if grows { "they do" } else { "they do not" };
    let mut sentences = vec![
        "Do longer sleeps wake later?".to_owned(),
        format!("By clock_nanosleep without slack {do_they}: median lateness {shown}."),
    ];
    if grows || precise.longest.idle.is_empty() {
        sentences.push(idle(&precise, host));
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
    let longest_ns = select.longest.sleeper.interval.as_nanos() as u64;
    let allowed = time((longest_ns / 1_000).clamp(50_000, 100_000_000));
    let more = time((select.to.median - slack.to.median).max(0.0) as u64);
    let apart = select.to.low > slack.to.high;
    if select.is_growth() && apart && select.ns() > 2.0 * slack.ns() {
        format!(
            "By select they do: {shown}, {more} more than clock_nanosleep. It is timer slack: select, poll and \
             epoll_wait allow themselves a thousandth of the timeout (here up to {allowed}), clock_nanosleep does not."
        )
    } else {
        format!(
            "By select: {shown}; the slack of a thousandth of the timeout (here up to {allowed}) does not show beyond that."
        )
    }
}

/// The sentence on the idle states, for a growth that is no slack.
fn idle(growth: &Growth, host: &Host) -> String {
    let (short, long) = (&growth.shortest.idle, &growth.longest.idle);
    let is_virtual = |name: &String| name == "POLL" || name.starts_with("haltpoll");
    let deepest = short.iter().zip(long).next_back();
    let Some((short, long)) = deepest.filter(|_| !host.idle_states.is_empty()) else {
        return "Whether idle states have a part in that this machine cannot tell: the kernel shows none, or the \
                thread was on no CPU of its own."
            .into();
    };
    if host.idle_states.iter().all(is_virtual) {
        return format!(
            "It is no slack. Which idle state the real CPU was in this virtual machine cannot tell: it only has {}.",
            host.idle_states.join(" and ")
        );
    }
    let shares = format!(
        "the CPU was in {} for {:.0} % of the time at {} and {:.0} % at {}, and leaving it takes {} µs by the \
         kernel's word",
        long.name,
        short.share * 100.0,
        interval(growth.shortest),
        long.share * 100.0,
        interval(growth.longest),
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
    use morpheus_harness::idle::Residency;

    use super::super::plan::tests::measured;
    use super::*;

    /// Median lateness in µs at 1 ms and at 100 ms, of each kind.
    fn sweep(precise: [f64; 2], slack: [f64; 2], select: [f64; 2]) -> Vec<Series> {
        measured("10 --sweep", |sleeper| {
            let longest = usize::from(sleeper.interval.as_millis() == 100);
            match (sleeper.call, sleeper.slack_ns) {
                (Call::Select, _) => select[longest],
                (Call::Nanosleep, 1) => precise[longest],
                (Call::Nanosleep, _) => slack[longest],
            }
        })
    }

    /// Time in an idle state of this name, by the length of the sleep.
    fn in_state(all: &mut [Series], name: &str, share: impl Fn(&Sleeper) -> f64) {
        for series in all {
            series.idle = vec![Residency {
                name: name.into(),
                latency_us: 133,
                share: share(&series.sleeper),
                entries: 9,
            }];
        }
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
        let all = sweep([15.0, 15.0], [65.0, 65.0], [65.0, 115.0]);
        let text = answer(&all, &host(&["POLL", "C1"]), Policy::Other);
        assert!(text.contains("without slack they do not"), "{text}");
        assert!(
            text.contains("By select they do: 65.0 µs at 1.0 ms and 115 µs at 100 ms"),
            "{text}"
        );
        assert!(text.contains("It is timer slack"), "{text}");
    }

    #[test]
    fn growth_without_slack_is_idling_or_not() {
        let mut all = sweep([15.0, 95.0], [65.0, 145.0], [65.0, 146.0]);
        in_state(&mut all, "C6", |sleeper| {
            match sleeper.interval.as_millis() {
                11.. => 0.9,
                _ => 0.1,
            }
        });
        let text = answer(&all, &host(&["POLL", "C1", "C6"]), Policy::Other);
        assert!(
            text.contains("no slack but idling: the CPU was in C6 for 10 %"),
            "{text}"
        );
        assert!(text.contains("does not show beyond that"), "{text}");
        in_state(&mut all, "C6", |_| 0.1);
        let text = answer(&all, &host(&["POLL", "C1", "C6"]), Policy::Other);
        assert!(text.contains("does not explain it"), "{text}");
    }

    #[test]
    fn a_machine_that_cannot_tell_says_so() {
        let mut all = sweep([15.0, 95.0], [65.0, 145.0], [65.0, 146.0]);
        let text = answer(&all, &host(&[]), Policy::Other);
        assert!(text.contains("this machine cannot tell"), "{text}");
        in_state(&mut all, "haltpoll", |_| 0.9);
        let text = answer(&all, &host(&["POLL", "haltpoll"]), Policy::Other);
        assert!(text.contains("virtual machine cannot tell"), "{text}");
        all.iter_mut().for_each(|series| series.values.truncate(5));
        assert!(answer(&all, &host(&[]), Policy::Other).contains("n too small"));
    }
}
