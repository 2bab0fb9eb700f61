//! Long polls with one culprit that did the same, added up.

use std::collections::HashMap;
use std::hash::Hash;

use hdrhistogram::Histogram;

use super::polls::Seen;
use crate::model::{Doing, Finding, Stack, Wait};
use crate::report::remedy::remedy;
use crate::source::Progress;

/// The properties that the polls of one finding share.
pub(super) type Key = (Doing, Option<(String, Option<String>, Option<u32>)>);

/// Of lengths: as many as a report shows.
const DIGITS: u8 = 3;
/// The most that is told apart of a kind. Each file has a name, and each depth of a recursion a stack of its own.
const MOST_KINDS: usize = 1_000;

#[derive(Clone)]
pub(super) struct Group {
    finding: Option<Finding>,
    lengths: Histogram<u32>,
    waits: HashMap<Wait, u64>,
    system_calls: HashMap<&'static str, u64>,
    labels: HashMap<String, u64>,
    stacks: HashMap<Stack, u64>,
    /// Until when polls of this group have counted, by runtime: two at once are held up by the same time.
    counted_until_ns: HashMap<usize, u64>,
}

impl Default for Group {
    fn default() -> Group {
        Group {
            finding: None,
            lengths: Histogram::new(DIGITS).expect("no more than five digits"),
            waits: HashMap::new(),
            system_calls: HashMap::new(),
            labels: HashMap::new(),
            stacks: HashMap::new(),
            counted_until_ns: HashMap::new(),
        }
    }
}

impl Group {
    pub(super) fn add(&mut self, doing: Doing, progress: Progress, length_ns: u64, seen: &Seen) {
        let finding = self.finding.get_or_insert_with(|| Finding {
            doing,
            waits_for: Vec::new(),
            system_call: None,
            label: None,
            count: 0,
            p50_ns: 0,
            p99_ns: 0,
            longest_ns: 0,
            total_ns: 0,
            cpu_ns: 0,
            blocked_ns: 0,
            unserved_ns: 0,
            held_by: None,
            stack: Stack::default(),
            remedy: String::new(),
        });
        finding.count += 1;
        finding.longest_ns = finding.longest_ns.max(length_ns);
        finding.total_ns += length_ns;
        finding.cpu_ns += progress.cpu_ns;
        finding.blocked_ns += progress.blocked_ns;
        let runtime = progress.runtime.unwrap_or(0);
        let counted = self.counted_until_ns.entry(runtime).or_default();
        let new_ns = progress
            .now_ns
            .saturating_sub(progress.began_ns.max(*counted));
        *counted = progress.now_ns.max(*counted);
        finding.unserved_ns += share(progress.unserved_ns.min(length_ns), new_ns, length_ns);
        // It grows to any length.
        let _ = self.lengths.record(length_ns);
        if let Some(wait) = &seen.wait {
            note(&mut self.waits, wait);
        }
        if let Some(call) = &seen.system_call {
            note(&mut self.system_calls, call);
        }
        if let Some(label) = &seen.label {
            note(&mut self.labels, label);
        }
        note(&mut self.stacks, &seen.stack);
    }

    pub(super) fn finding(&self) -> Option<Finding> {
        let mut finding = self.finding.clone()?;
        let at = |quantile| {
            let length_ns = self.lengths.value_at_quantile(quantile);
            length_ns.min(finding.longest_ns)
        };
        (finding.p50_ns, finding.p99_ns) = (at(0.5), at(0.99));
        let mut waits: Vec<(&Wait, &u64)> = self.waits.iter().collect();
        waits.sort_by(|a, b| b.1.cmp(a.1).then_with(|| a.0.cmp(b.0)));
        finding.waits_for = waits.into_iter().map(|(wait, _)| wait.clone()).collect();
        finding.system_call = most_frequent(&self.system_calls).map(|name| (*name).to_owned());
        finding.label = most_frequent(&self.labels).cloned();
        finding.stack = self
            .stacks
            .iter()
            .max_by_key(|(stack, count)| (**count, std::cmp::Reverse(stack.frames.len())))
            .map(|(stack, _)| stack.clone())
            .unwrap_or_default();
        finding.remedy = remedy(
            finding.doing,
            &finding.waits_for,
            finding.system_call.as_deref(),
            &finding.stack,
        );
        Some(finding)
    }
}

/// Counts one more of this kind, unless there are too many kinds.
fn note<K: Clone + Eq + Hash>(counts: &mut HashMap<K, u64>, kind: &K) {
    if let Some(count) = counts.get_mut(kind) {
        *count += 1;
    } else if counts.len() < MOST_KINDS {
        counts.insert(kind.clone(), 1);
    }
}

/// The name that was met most; of several the first by the alphabet.
fn most_frequent<N: Ord>(names: &HashMap<N, u64>) -> Option<&N> {
    names
        .iter()
        .max_by_key(|(name, count)| (**count, std::cmp::Reverse(*name)))
        .map(|(name, _)| name)
}

/// `part` of `whole`, of an amount.
fn share(amount: u64, part: u64, whole: u64) -> u64 {
    let share = u128::from(amount) * u128::from(part) / u128::from(whole.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}

pub(super) fn key_of(doing: Doing, stack: &Stack) -> Key {
    let culprit = stack.culprit().map(|frame| match frame.line {
        // A line is one place, whichever closure of it runs.
        Some(_) => (String::new(), frame.file.clone(), frame.line),
        None => (frame.function.clone(), None, None),
    });
    (doing, culprit)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn many_polls_take_no_more_memory_than_some() {
        let mut group = Group::default();
        for number in 0..1_000_000_u64 {
            let seen = Seen::of(Stack {
                culprit: Some(number as usize),
                ..Stack::default()
            });
            let length_ns = (number % 100 + 1) * MS;
            group.add(Doing::Computing, Progress::at(1, 0), length_ns, &seen);
        }
        assert_eq!(group.stacks.len(), MOST_KINDS);
        let kept = group.lengths.distinct_values();
        assert!(kept < 100_000, "{kept}");
        let finding = group.finding().unwrap();
        assert_eq!((finding.count, finding.longest_ns), (1_000_000, 100 * MS));
        let is_near = |ns: u64, ms: u64| ns.abs_diff(ms * MS) <= ms * MS / 1_000;
        assert!(is_near(finding.p50_ns, 50), "{}", finding.p50_ns);
        assert!(is_near(finding.p99_ns, 99), "{}", finding.p99_ns);
    }

    #[test]
    fn no_percentile_is_longer_than_the_longest() {
        let mut group = Group::default();
        let length_ns = 12_345_678;
        let seen = Seen::of(Stack::default());
        group.add(Doing::Computing, Progress::at(1, 0), length_ns, &seen);
        let finding = group.finding().unwrap();
        assert_eq!((finding.p50_ns, finding.p99_ns), (length_ns, length_ns));
    }
}
