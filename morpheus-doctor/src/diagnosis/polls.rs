//! The long polls: those that go on, with the stacks that were copied of them, and those that are over.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::rc::Rc;

use super::groups::{Group, Key, key_of};
use super::reader::Understood;
use crate::anatomy::{self, Does};
use crate::model::{Doing, Finding, LongPoll, Report, Sample, Stack, Wait};
use crate::names::Names;
use crate::report::units::{count, duration};
use crate::source::{Named, Progress, Reason, SystemCall, now_ns};
use crate::target::Target;
use crate::unwind::StackCopy;
use crate::waits;

/// A poll that computes is copied again and again, less often the older it is: without a stack for this time, and half of the age that it
/// had, its end was lost.
const LOST_NS: u64 = 1_000_000_000;

/// Stacks that are alike before computing is taken for one poll's, without its number.
const ALIKE: usize = 4;

/// At most this many stacks of one poll are kept, of some 10 KB each.
const MOST_STACKS: usize = 1_024;

/// The time of at most this many ways through the program is told apart, ...
const MOST_PATHS: usize = 20_000;
/// ... and that of further ones added up under this name.
const OTHER_PATHS: &str = "(other stacks)";

/// A poll that goes on, of which stacks were copied.
#[derive(Clone)]
pub(super) struct OpenPoll {
    /// Of its last stack.
    last: Progress,
    stacks: Vec<Rc<Seen>>,
}

impl OpenPoll {
    fn at(last: Progress) -> OpenPoll {
        OpenPoll {
            last,
            stacks: Vec::new(),
        }
    }

    /// Keeps every second stack where there are many: a poll that never ends may sleep a thousand times a second.
    fn thin_out(&mut self) {
        if self.stacks.len() < MOST_STACKS {
            return;
        }
        let mut keep = false;
        self.stacks.retain(|_| {
            keep = !keep;
            keep
        });
    }
}

/// The details that a source reports with a stack.
#[derive(Clone, Copy)]
pub(super) struct Copied<'event> {
    pub(super) progress: Progress,
    pub(super) reason: Reason,
    pub(super) system_call: Option<SystemCall>,
    pub(super) named: &'event Named,
    pub(super) copy: &'event StackCopy,
    /// The label of the task, where the program runs on Morpheus.
    pub(super) label: Option<&'event str>,
}

/// One copied stack of a poll.
pub(super) struct Seen {
    reason: Reason,
    now_ns: u64,
    pub(super) stack: Stack,
    /// A hash of the frames between the loop and the culprit: while the culprit runs it does not change, and another poll has another
    /// task's addresses there.
    ///
    /// None where the culprit is inlined into the loop: nothing tells two polls apart.
    identity: Option<u64>,
    pub(super) wait: Option<Wait>,
    pub(super) system_call: Option<&'static str>,
    pub(super) label: Option<String>,
}

#[cfg(test)]
impl Seen {
    pub(super) fn of(stack: Stack) -> Seen {
        Seen {
            reason: Reason::Woke,
            now_ns: 0,
            stack,
            identity: None,
            wait: None,
            system_call: None,
            label: None,
        }
    }
}

/// The long polls of a run. Stacks and groups are shared with the copy that shows the run so far.
#[derive(Clone, Default)]
pub(super) struct Polls {
    longer_than_ns: u64,
    /// By thread.
    open: HashMap<u32, OpenPoll>,
    groups: Vec<Rc<Group>>,
    by_key: HashMap<Key, usize>,
    list: Vec<LongPoll>,
    /// Of polls that waited for a lock: which poll, which thread gave it to them, and when.
    handed: Vec<(usize, u32, u64)>,
    /// Time by group, by what the thread did, and by functions.
    samples: HashMap<(usize, Doing, Vec<String>), u64>,
    pub(super) in_all: u64,
    pub(super) without_stack: u64,
    without_stack_ns: u64,
    inexact: u64,
    without_cpu: u64,
}

impl Polls {
    /// Polls longer than `longer_than_ns` are long.
    pub(super) fn new(longer_than_ns: u64) -> Polls {
        Polls {
            longer_than_ns,
            ..Polls::default()
        }
    }

    /// Adds a stack to the poll that it is of.
    pub(super) fn add_stack(
        &mut self,
        target: &Target,
        names: &Names,
        copied: Copied<'_>,
        understood: &Understood,
    ) {
        let Copied {
            progress,
            reason,
            system_call,
            named,
            copy,
            label,
        } = copied;
        let poll = self.open.entry(progress.tid);
        let poll = poll.or_insert_with(|| OpenPoll::at(progress));
        if poll.last.began_ns != progress.began_ns {
            // The end of the one before was lost.
            *poll = OpenPoll::at(progress);
        }
        poll.last = progress;
        // The executor, or a park that was not known yet: the poll keeps no stack.
        let Does::Polls { until } = understood.anatomy.does else {
            return;
        };
        let frames = anatomy::frames_of_poll(&understood.parts, until);
        let culprit = anatomy::culprit(&frames, |frame| names.is_of_main(frame));
        let identity = identity_of(understood, culprit, copy);
        let sleeps = reason == Reason::Woke;
        poll.thin_out();
        poll.stacks.push(Rc::new(Seen {
            reason,
            now_ns: progress.now_ns,
            stack: Stack { frames, culprit },
            identity,
            wait: sleeps.then(|| waits::wait_of(target, system_call, named)),
            system_call: system_call.filter(|_| sleeps).and_then(waits::name_of),
            label: label.map(str::to_owned),
        }));
    }

    /// Counts a poll that is over, or that goes on when the run ends.
    pub(super) fn end(&mut self, progress: Progress, goes_on: bool) {
        let length_ns = progress.now_ns.saturating_sub(progress.began_ns);
        let open = self
            .open
            .remove(&progress.tid)
            .filter(|open| open.last.began_ns == progress.began_ns);
        if length_ns < self.longer_than_ns {
            return;
        }
        // Ready and without a CPU is no fault of a line.
        if progress.cpu_ns.max(progress.blocked_ns) < self.longer_than_ns {
            self.without_cpu += 1;
            return;
        }
        let Some(open) = open else {
            self.without_stack += 1;
            self.without_stack_ns += progress.cpu_ns.max(progress.blocked_ns);
            return;
        };
        let doing = match progress.blocked_ns > progress.cpu_ns {
            true => Doing::Blocked,
            false => Doing::Computing,
        };
        let wanted = match doing {
            Doing::Blocked => Reason::Woke,
            Doing::Computing => Reason::Computes,
        };
        let fitting: Vec<&Seen> = match open.stacks.iter().any(|seen| seen.reason == wanted) {
            true => open
                .stacks
                .iter()
                .map(Rc::as_ref)
                .filter(|seen| seen.reason == wanted)
                .collect(),
            false => open.stacks.iter().map(Rc::as_ref).collect(),
        };
        let is_one = match doing {
            Doing::Computing => fitting.len() >= ALIKE && are_alike(&fitting),
            // Of one that has slept once. The sleeps of a task's next poll are like those of this one.
            Doing::Blocked => fitting.len() < 2,
        };
        if !progress.is_exact && !is_one {
            self.inexact += 1;
            return;
        }
        let Some(seen) = most_frequent(&fitting) else {
            return;
        };
        self.in_all += 1;
        let key = key_of(doing, &seen.stack);
        let group = *self.by_key.entry(key).or_insert_with(|| {
            self.groups.push(Rc::default());
            self.groups.len() - 1
        });
        Rc::make_mut(&mut self.groups[group]).add(doing, progress, length_ns, seen);
        let mut from = progress.began_ns;
        for (index, seen) in fitting.iter().enumerate() {
            let to = match fitting.get(index + 1) {
                Some(_) => seen.now_ns,
                None => progress.now_ns,
            };
            let mut path = (group, doing, functions_of(&seen.stack));
            if self.samples.len() >= MOST_PATHS && !self.samples.contains_key(&path) {
                path.2 = vec![OTHER_PATHS.to_owned()];
            }
            *self.samples.entry(path).or_default() += to.saturating_sub(from);
            from = from.max(to);
        }
        if self.list.len() < Report::MOST_POLLS {
            if let (Some(waker), Some(Wait::Lock)) = (progress.waker, &seen.wait) {
                self.handed
                    .push((self.list.len(), waker, progress.woken_ns));
            }
            self.list.push(LongPoll {
                thread: progress.tid,
                runtime: progress.runtime.unwrap_or(0),
                began_ns: progress.began_ns,
                length_ns,
                goes_on,
                cpu_ns: progress.cpu_ns,
                blocked_ns: progress.blocked_ns,
                unserved_ns: progress.unserved_ns.min(length_ns),
                finding: Some(group),
            });
        }
    }

    /// Whether a stack of this poll was copied while it went on.
    pub(super) fn has_stacks(&self, progress: Progress) -> bool {
        let open = self.open.get(&progress.tid);
        open.is_some_and(|open| open.last.began_ns == progress.began_ns && !open.stacks.is_empty())
    }

    /// The poll of this thread that goes on, taken out for [`Polls::put_open`].
    pub(super) fn take_open(&mut self, tid: u32) -> Option<OpenPoll> {
        self.open.remove(&tid)
    }

    /// Puts it back.
    pub(super) fn put_open(&mut self, open: Option<OpenPoll>) {
        self.open.extend(open.map(|open| (open.last.tid, open)));
    }

    /// A copy to be shown while the run goes on, without the samples so far: they are many, and only a whole report shows them.
    pub(super) fn so_far(&mut self) -> Polls {
        let samples = std::mem::take(&mut self.samples);
        let copy = self.clone();
        self.samples = samples;
        copy
    }

    /// Counts the polls that have not ended; `asleep` are those whose threads sleep. Of the others their last stack tells.
    pub(super) fn finish(&mut self, asleep: &HashMap<u32, Progress>) {
        let now = now_ns();
        let open: Vec<Progress> = self.open.values().map(|poll| poll.last).collect();
        for last in open {
            let progress = match asleep.get(&last.tid) {
                Some(&progress) if progress.began_ns == last.began_ns => progress,
                // Its end was lost.
                _ if now.saturating_sub(last.now_ns)
                    > LOST_NS + last.now_ns.saturating_sub(last.began_ns) / 2 =>
                {
                    continue;
                }
                _ => last,
            };
            self.end(progress, true);
        }
    }

    /// The findings, the worst first, with the polls and the samples that belong to each.
    pub(super) fn sum(&self) -> (Vec<Finding>, Vec<LongPoll>, Vec<Sample>) {
        let mut findings: Vec<(usize, Finding)> = self
            .groups
            .iter()
            .enumerate()
            .filter_map(|(index, group)| Some((index, group.finding()?)))
            .collect();
        let holders = self.holders();
        for (index, finding) in &mut findings {
            for ((victim, _), unserved_ns) in &holders {
                if victim == index {
                    finding.unserved_ns = finding.unserved_ns.saturating_sub(*unserved_ns);
                }
            }
        }
        // Less than is long at all is chance: a host that takes the CPU away for a moment makes as much.
        let counted = |unserved_ns: u64| match unserved_ns < self.longer_than_ns {
            true => 0,
            false => unserved_ns,
        };
        findings.sort_by_key(|(_, finding)| {
            std::cmp::Reverse((counted(finding.unserved_ns), finding.total_ns))
        });
        let mut place = vec![0; self.groups.len()];
        for (new, (old, _)) in findings.iter().enumerate() {
            place[*old] = new;
        }
        for (index, finding) in &mut findings {
            let held_by = holders
                .iter()
                .filter(|((victim, _), _)| victim == index)
                .max_by_key(|(_, unserved_ns)| **unserved_ns);
            finding.held_by = held_by.map(|((_, holder), _)| place[*holder]);
        }
        let polls = self
            .list
            .iter()
            .map(|poll| LongPoll {
                finding: poll.finding.map(|group| place[group]),
                ..poll.clone()
            })
            .collect();
        let mut samples: Vec<Sample> = self
            .samples
            .iter()
            .map(|((group, doing, functions), &weight_ns)| Sample {
                finding: Some(place[*group]),
                doing: *doing,
                weight_ns,
                functions: functions.clone(),
            })
            .collect();
        samples.sort_by(|a, b| {
            b.weight_ns
                .cmp(&a.weight_ns)
                .then_with(|| a.functions.cmp(&b.functions))
        });
        let findings = findings.into_iter().map(|(_, finding)| finding).collect();
        (findings, polls, samples)
    }

    /// For each pair of a finding whose polls waited for a lock and one whose polls held it then: the unserved time of the former. A
    /// lock's holder wakes the thread that waits for it, from within its own poll.
    fn holders(&self) -> HashMap<(usize, usize), u64> {
        let mut of_thread: HashMap<u32, Vec<&LongPoll>> = HashMap::new();
        for poll in &self.list {
            of_thread.entry(poll.thread).or_default().push(poll);
        }
        for polls in of_thread.values_mut() {
            polls.sort_by_key(|poll| poll.began_ns);
        }
        let mut holders = HashMap::new();
        for &(victim, waker, woken_ns) in &self.handed {
            let victim = &self.list[victim];
            let Some(polls) = of_thread.get(&waker) else {
                continue;
            };
            let next = polls.partition_point(|poll| poll.began_ns <= woken_ns);
            let Some(holder) = next.checked_sub(1).map(|index| polls[index]) else {
                continue;
            };
            // Its end is seen a little early at times.
            let ended_ns = holder.began_ns + holder.length_ns + self.longer_than_ns;
            if let (Some(victim_group), Some(holder_group)) = (victim.finding, holder.finding)
                && woken_ns <= ended_ns
                && victim_group != holder_group
            {
                *holders.entry((victim_group, holder_group)).or_default() += victim.unserved_ns;
            }
        }
        holders
    }

    /// The counts of polls that were left out, a sentence each.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.inexact > 0 {
            notes.push(format!(
                "Left out, as it was not known yet whether each was one poll: {} between two parks.",
                count(self.inexact, "stretch", "stretches")
            ));
        }
        if self.without_stack > 0 {
            notes.push(format!(
                "Left out, as they were over before a stack was copied: {}, {} in all.",
                count(self.without_stack, "long poll", "long polls"),
                duration(self.without_stack_ns)
            ));
        }
        if self.without_cpu > 0 {
            notes.push(format!(
                "Left out, as their threads only waited for a CPU: {}. The machine, its host, or the container's quota, was full.",
                count(self.without_cpu, "poll", "polls")
            ));
        }
        notes
    }
}

/// The names of a stack's functions, outermost first.
fn functions_of(stack: &Stack) -> Vec<String> {
    let frames = stack.frames.iter().rev();
    frames.map(|frame| frame.function.clone()).collect()
}

/// A hash of the stack's bytes from the culprit's caller to the worker's loop.
fn identity_of(understood: &Understood, culprit: Option<usize>, copy: &StackCopy) -> Option<u64> {
    let parts = &understood.parts;
    let mut passed = 0;
    let inner = parts.iter().position(|part| {
        passed += part.functions.len();
        culprit.is_some_and(|culprit| passed > culprit)
    });
    let from = inner
        .and_then(|inner| parts.get(inner + 1))
        .map_or(0, |part| part.position.sp);
    let to = understood
        .anatomy
        .looped
        .map_or(from, |looped| parts[looped].position.sp);
    if from >= to {
        return None;
    }
    let mut hasher = DefaultHasher::new();
    from.hash(&mut hasher);
    // Addresses from the process's stack may be anything: only the copy is read.
    let copied = copy.registers.sp.saturating_add(copy.bytes.len() as u64);
    for place in (from.max(copy.registers.sp)..to.min(copied)).step_by(8) {
        copy.word(place).hash(&mut hasher);
    }
    Some(hasher.finish())
}

/// Whether stacks of a stretch between two parks are of one activation of one function. Two that are alike may be of two polls of one
/// task, where there are few tasks.
fn are_alike(stacks: &[&Seen]) -> bool {
    let Some(first) = stacks.first() else {
        return false;
    };
    first.identity.is_some()
        && stacks.iter().all(|seen| {
            seen.identity == first.identity
                && seen.stack.culprit().map(|frame| &frame.function)
                    == first.stack.culprit().map(|frame| &frame.function)
        })
}

/// The stack whose culprit was met most.
fn most_frequent<'seen>(stacks: &[&'seen Seen]) -> Option<&'seen Seen> {
    let mut counts: HashMap<Key, u64> = HashMap::new();
    for seen in stacks {
        *counts
            .entry(key_of(Doing::Computing, &seen.stack))
            .or_default() += 1;
    }
    // Of several the first: it was there when the poll became long.
    stacks
        .iter()
        .rev()
        .max_by_key(|seen| counts[&key_of(Doing::Computing, &seen.stack)])
        .copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of a poll that is known by its number and has lasted for this long.
    fn exact(tid: u32, length_ns: u64) -> Progress {
        let now = now_ns();
        Progress {
            began_ns: now - length_ns,
            runtime: Some(0),
            is_exact: true,
            ..Progress::at(tid, now)
        }
    }

    /// A stack of no frame, of a poll that has not ended.
    fn open(last: Progress, reason: Reason) -> OpenPoll {
        let seen = Seen {
            reason,
            now_ns: last.now_ns,
            stack: Stack {
                frames: Vec::new(),
                culprit: None,
            },
            identity: None,
            wait: None,
            system_call: None,
            label: None,
        };
        OpenPoll {
            last,
            stacks: vec![Rc::new(seen)],
        }
    }

    #[test]
    fn a_poll_that_never_ends_keeps_some_of_its_stacks() {
        let mut poll = OpenPoll::at(exact(1, 1_000_000));
        for now_ns in 0..1_000_000 {
            poll.thin_out();
            poll.stacks.push(Rc::new(Seen {
                now_ns,
                ..Seen::of(Stack::default())
            }));
        }
        let times: Vec<u64> = poll.stacks.iter().map(|seen| seen.now_ns).collect();
        assert!(times.len() <= MOST_STACKS, "{}", times.len());
        assert!(times.is_sorted() && times[0] == 0 && times.last() == Some(&999_999));
    }

    #[test]
    fn less_unserved_time_than_is_long_does_not_rank() {
        let first = |unserved_ns: u64| {
            let computed = Progress {
                cpu_ns: 2_000_000,
                unserved_ns,
                ..exact(1, 2_000_000)
            };
            let blocked = Progress {
                blocked_ns: 20_000_000,
                ..exact(2, 20_000_000)
            };
            let mut polls = Polls::new(1_000_000);
            for (progress, reason) in [(computed, Reason::Computes), (blocked, Reason::Woke)] {
                polls.open.insert(progress.tid, open(progress, reason));
                polls.end(progress, false);
            }
            let (findings, ..) = polls.sum();
            assert_eq!(findings.len(), 2);
            findings[0].doing
        };
        assert_eq!(first(900_000), Doing::Blocked);
        assert_eq!(first(1_100_000), Doing::Computing);
    }

    #[test]
    fn a_poll_that_goes_on_is_shown_meanwhile_and_counts_once() {
        let mut polls = Polls::new(1_000_000);
        let first = Progress {
            cpu_ns: 2_000_000,
            ..exact(1, 2_000_000)
        };
        polls.open.insert(1, open(first, Reason::Computes));
        polls.end(first, false);
        let second = Progress {
            cpu_ns: 30_000_000,
            ..exact(1, 30_000_000)
        };
        polls.open.insert(1, open(second, Reason::Computes));
        for _ in 0..2 {
            let mut so_far = polls.so_far();
            so_far.finish(&HashMap::new());
            let (findings, shown, samples) = so_far.sum();
            assert_eq!((findings[0].count, shown.len()), (2, 2));
            assert!(findings[0].longest_ns >= 30_000_000);
            // Of the one that goes on.
            assert_eq!(samples.len(), 1);
        }
        let (findings, shown, samples) = polls.sum();
        assert_eq!((findings[0].count, shown.len(), samples.len()), (1, 1, 1));
        polls.end(second, false);
        assert_eq!(polls.sum().0[0].count, 2);
    }

    #[test]
    fn a_poll_that_goes_on_has_what_its_last_stack_told() {
        let last = Progress {
            cpu_ns: 5_000_000,
            unserved_ns: 40_000_000,
            runtime: Some(3),
            ..exact(7, 50_000_000)
        };
        let mut polls = Polls::new(1_000_000);
        polls.open.insert(7, open(last, Reason::Computes));
        polls.finish(&HashMap::new());
        let [poll] = &polls.list[..] else {
            panic!("{:?}", polls.list);
        };
        assert!(poll.goes_on);
        assert_eq!((poll.cpu_ns, poll.unserved_ns), (5_000_000, 40_000_000));
        assert_eq!((poll.runtime, poll.length_ns), (3, 50_000_000));
    }
}
