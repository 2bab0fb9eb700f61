//! Long polls with one culprit that did the same, added up.

use std::collections::HashMap;

use super::polls::Seen;
use crate::model::{Doing, Finding, Stack, Wait};
use crate::report::remedy::remedy;
use crate::source::Progress;

/// The properties that the polls of one finding share.
pub(super) type Key = (Doing, Option<(String, Option<String>, Option<u32>)>);

#[derive(Default)]
pub(super) struct Group {
    finding: Option<Finding>,
    lengths: Vec<u64>,
    waits: HashMap<Wait, u64>,
    system_calls: HashMap<&'static str, u64>,
    labels: HashMap<String, u64>,
    stacks: HashMap<Stack, u64>,
    /// Until when polls of this group have counted, by runtime: two at once are held up by the same time.
    counted_until_ns: HashMap<usize, u64>,
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
        self.lengths.push(length_ns);
        if let Some(wait) = &seen.wait {
            *self.waits.entry(wait.clone()).or_default() += 1;
        }
        if let Some(call) = seen.system_call {
            *self.system_calls.entry(call).or_default() += 1;
        }
        if let Some(label) = &seen.label {
            *self.labels.entry(label.clone()).or_default() += 1;
        }
        *self.stacks.entry(seen.stack.clone()).or_default() += 1;
    }

    pub(super) fn finding(&self) -> Option<Finding> {
        let mut finding = self.finding.clone()?;
        let mut lengths = self.lengths.clone();
        lengths.sort_unstable();
        let at = |percent: usize| {
            let index = (lengths.len() * percent).div_ceil(100).saturating_sub(1);
            lengths.get(index).copied().unwrap_or(0)
        };
        (finding.p50_ns, finding.p99_ns) = (at(50), at(99));
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
