//! From events to a report: understands each stack, tells the source what it has learned, and adds long polls up.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::anatomy::{self, Anatomy, Does, Part};
use crate::counter::{Finder, Found};
use crate::memory::Memory;
use crate::model::{
    Doing, Finding, Flavor, Frame, LongPoll, Report, Runtime, Sample, Stack, Thread, Wait,
};
use crate::names::Names;
use crate::report::remedy::remedy;
use crate::report::units::count;
use crate::source::{
    Counter, Event, Kind, Named, Progress, Reason, Signature, Sleep, Source, SystemCall, now_ns,
};
use crate::structure::Structure;
use crate::target::Target;
use crate::unwind::{Position, Registers, StackCopy, Walker};
use crate::waits;

/// How much of a stack is read of a thread that sleeps, in bytes.
const STACK_BYTES: usize = 32 * 1024;
/// Stacks whose meaning is remembered, by their return addresses.
const MOST_UNDERSTOOD: usize = 20_000;
/// What is loaded is looked at again when code is met that was not there, at most this often.
const LOADED_AGAIN: Duration = Duration::from_secs(1);
/// What a thread does is asked again.
const OTHER_AGAIN_NS: u64 = 1_000_000_000;

/// A run over a process.
pub struct Diagnosis {
    target: Target,
    walker: Walker,
    loaded: Instant,
    names: Names,
    /// It has no names of functions: its stacks are read by their form.
    is_stripped: bool,
    structure: Structure,
    finder: Finder,
    found: Vec<Found>,
    understood: HashMap<Vec<u64>, Arc<Understood>>,
    signatures: HashMap<SignatureKey, Learned>,
    flavors: HashMap<u32, Flavor>,
    open: HashMap<(u32, u64), OpenPoll>,
    groups: Vec<Group>,
    by_key: HashMap<Key, usize>,
    polls: Vec<LongPoll>,
    /// Of polls that waited for a lock: which poll, who gave it to them, and when.
    handed: Vec<(usize, u32, u64)>,
    polls_in_all: u64,
    without_stack: u64,
    samples: HashMap<(usize, Doing, Vec<String>), u64>,
    began_ns: u64,
    longer_than_ns: u64,
    has_exec: bool,
    threads_of_tokio: u64,
    inexact: u64,
    without_cpu: u64,
}

impl std::fmt::Debug for Diagnosis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Diagnosis")
            .field("target", &self.target)
            .field("polls", &self.polls_in_all)
            .finish_non_exhaustive()
    }
}

/// Where the system call returns to, its number, the return address and its place.
type SignatureKey = (u64, u32, u64, u32);
/// A signature, with the loop's function and its distance from the stack pointer.
type Learned = (Signature, String, u64);

/// A stack and what it says.
struct Understood {
    parts: Vec<Part>,
    anatomy: Anatomy,
}

/// What polls have in common that are one finding.
type Key = (Doing, Option<(String, Option<String>, Option<u32>)>);

/// A poll that goes on, of which stacks were copied.
struct OpenPoll {
    stacks: Vec<Seen>,
}

/// One copied stack of a poll.
struct Seen {
    reason: Reason,
    now_ns: u64,
    stack: Stack,
    /// The stack pointer of the culprit's caller: another activation of the function has another one.
    at: u64,
    wait: Option<Wait>,
    system_call: Option<String>,
    tokens: Vec<String>,
}

#[derive(Default)]
struct Group {
    finding: Option<Finding>,
    lengths: Vec<u64>,
    waits: HashMap<Wait, u64>,
    system_calls: HashMap<String, u64>,
    stacks: HashMap<Stack, u64>,
    /// Until when polls of this group have counted, by runtime: two at once are held up by the same time.
    counted_until_ns: HashMap<usize, u64>,
}

impl Diagnosis {
    /// Of a process; polls longer than `longer_than` are long.
    ///
    /// # Errors
    ///
    /// Without the right to see what is loaded there.
    pub fn new(target: Target, longer_than: Duration) -> io::Result<Diagnosis> {
        let walker = Walker::new(target.pid)?;
        let mut names = Names::default();
        Ok(Diagnosis {
            is_stripped: names.is_stripped_tokio(&walker),
            structure: Structure::default(),
            finder: Finder::new(target.pid),
            walker,
            loaded: Instant::now(),
            names,
            found: Vec::new(),
            understood: HashMap::new(),
            signatures: HashMap::new(),
            flavors: HashMap::new(),
            open: HashMap::new(),
            groups: Vec::new(),
            by_key: HashMap::new(),
            polls: Vec::new(),
            handed: Vec::new(),
            polls_in_all: 0,
            without_stack: 0,
            samples: HashMap::new(),
            began_ns: now_ns(),
            longer_than_ns: longer_than.as_nanos() as u64,
            has_exec: false,
            threads_of_tokio: 0,
            inexact: 0,
            without_cpu: 0,
            target,
        })
    }

    /// The process.
    #[must_use]
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The process runs another program by now.
    #[must_use]
    pub fn has_exec(&self) -> bool {
        self.has_exec
    }

    /// Some thread was seen in tokio.
    #[must_use]
    pub fn has_tokio(&self) -> bool {
        self.threads_of_tokio > 0
    }

    /// Reads the stacks of all threads that sleep now, as `/proc` tells them, and learns from them.
    pub fn survey(&mut self, source: &mut dyn Source) {
        for tid in self.target.threads() {
            let Some((call, copy)) = sleeping_stack(&self.target, tid) else {
                continue;
            };
            let understood = self.understand(&copy, call);
            self.learn(source, tid, &copy, call, &understood);
        }
    }

    /// Takes what has happened since the last call, and looks for the counts of polls.
    ///
    /// # Errors
    ///
    /// When nothing will come any more.
    pub fn advance(&mut self, source: &mut dyn Source) -> io::Result<()> {
        let mut events = Vec::new();
        source.collect(&mut events)?;
        for event in events {
            self.take(source, event);
        }
        if let Some(found) = self.finder.look() {
            self.found.push(found.clone());
            for (signature, looped, distance) in self.signatures.values_mut() {
                if *looped == found.looped {
                    signature.counter = counter_of(&found, *distance);
                    source.learn(*signature);
                }
            }
        }
        Ok(())
    }

    fn take(&mut self, source: &mut dyn Source, event: Event) {
        match event {
            Event::Stack {
                progress,
                reason,
                copy,
                system_call,
                named,
                ..
            } => {
                let sleeps = matches!(reason, Reason::UnknownSleep | Reason::Woke);
                let call = system_call.filter(|_| sleeps);
                let understood = self.understand(&copy, call);
                let learns = matches!(reason, Reason::UnknownSleep | Reason::UnknownThread);
                if learns || !matches!(understood.anatomy.does, Does::Polls { .. }) {
                    self.learn(source, progress.tid, &copy, call, &understood);
                }
                // Found since: a worker that never parks is told of it here.
                if let (Does::Polls { .. }, Some(looped), false) = (
                    understood.anatomy.does,
                    understood.anatomy.looped,
                    progress.is_exact,
                ) {
                    match self.counter_at(&understood, looped) {
                        Some(counter) => source.adopt(progress.tid, Kind::Worker, Some(counter)),
                        None => self.watch(progress.tid, &copy, &understood, looped),
                    }
                }
                if !learns {
                    self.add_stack(progress, reason, system_call, &named, &understood);
                }
            }
            Event::End(progress) => self.end(progress, false),
            Event::Exec => self.has_exec = true,
        }
    }

    fn understand(&mut self, copy: &StackCopy, call: Option<SystemCall>) -> Arc<Understood> {
        if self.walker.is_unknown_code(copy.registers.ip)
            && self.loaded.elapsed() > LOADED_AGAIN
            && let Ok(walker) = Walker::new(self.target.pid)
        {
            self.walker = walker;
            self.loaded = Instant::now();
        }
        let positions = self.walker.walk(copy);
        if self.is_stripped {
            let parts = self.parts(&positions);
            let anatomy = self.structure.read(&self.walker, &parts, call);
            return Arc::new(Understood { parts, anatomy });
        }
        // The places on the stack differ from poll to poll; what the functions are does not.
        let key: Vec<u64> = positions.iter().map(|position| position.ip).collect();
        if let Some(known) = self.understood.get(&key) {
            let parts = known
                .parts
                .iter()
                .zip(&positions)
                .map(|(part, &position)| Part {
                    position,
                    functions: part.functions.clone(),
                })
                .collect();
            return Arc::new(Understood {
                parts,
                anatomy: known.anatomy,
            });
        }
        let parts = self.parts(&positions);
        let anatomy = anatomy::read(&parts);
        let understood = Arc::new(Understood { parts, anatomy });
        if self.understood.len() >= MOST_UNDERSTOOD {
            self.understood.clear();
        }
        self.understood.insert(key, Arc::clone(&understood));
        understood
    }

    fn parts(&mut self, positions: &[Position]) -> Vec<Part> {
        positions
            .iter()
            .map(|&position| Part {
                position,
                functions: self.names.at(&self.walker, position),
            })
            .collect()
    }

    /// Tells the source what a thread is, and how its sleep is known.
    fn learn(
        &mut self,
        source: &mut dyn Source,
        tid: u32,
        copy: &StackCopy,
        call: Option<SystemCall>,
        understood: &Understood,
    ) {
        let anatomy = understood.anatomy;
        if anatomy.looped.is_some() {
            self.threads_of_tokio += 1;
            self.flavors.insert(tid, anatomy.flavor);
        }
        match anatomy.does {
            Does::Parks { at, in_driver } => {
                let sleep = match in_driver {
                    true => Sleep::Driver,
                    false => Sleep::Park,
                };
                self.learn_sleep(source, tid, copy, call, understood, at, sleep);
                source.adopt(tid, Kind::Worker, None);
            }
            Does::IsHeld { at } => {
                self.threads_of_tokio += 1;
                self.learn_sleep(source, tid, copy, call, understood, at, Sleep::Held);
            }
            Does::Polls { .. } | Does::Executes => {
                let counter = anatomy
                    .looped
                    .and_then(|looped| self.counter_at(understood, looped));
                source.adopt(tid, Kind::Worker, counter);
                if let Some(looped) = anatomy.looped.filter(|_| counter.is_none()) {
                    self.watch(tid, copy, understood, looped);
                }
            }
            Does::BlocksOn => {
                self.threads_of_tokio += 1;
                source.adopt(tid, Kind::Other, None);
            }
            Does::BlocksInPlace | Does::Other => source.adopt(tid, Kind::Other, None),
            // A worker's stack may be cut off, and it stays one.
            Does::Unknown if !self.flavors.contains_key(&tid) => {
                source.adopt(tid, Kind::Other, None);
            }
            Does::Unknown => {}
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn learn_sleep(
        &mut self,
        source: &mut dyn Source,
        tid: u32,
        copy: &StackCopy,
        call: Option<SystemCall>,
        understood: &Understood,
        at: usize,
        sleep: Sleep,
    ) {
        let parts = &understood.parts;
        let Some(call) = call else {
            return;
        };
        // The frame of the function that parks has called: its return address is in its callee's frame.
        let Some(callee) = at.checked_sub(1) else {
            return;
        };
        let (callee, parks) = (parts[callee].position, parts[at].position);
        let Some(place) = Walker::place_of(copy, callee, parks) else {
            return;
        };
        let offset = (place - copy.registers.sp) as u32;
        let mut signature = Signature {
            ip: copy.registers.ip,
            system_call: call.number,
            return_address: parks.ip,
            return_offset: offset,
            sleep,
            counter: None,
        };
        let looped = understood.anatomy.looped.map(|looped| {
            let function = parts[looped]
                .functions
                .last()
                .map(|frame| frame.function.clone());
            (function.unwrap_or_default(), parts[looped].position.sp)
        });
        let key = (
            signature.ip,
            signature.system_call,
            signature.return_address,
            offset,
        );
        if let Some((function, anchor)) = &looped
            && sleep != Sleep::Held
        {
            let distance = anchor - copy.registers.sp;
            match self.found.iter().find(|found| found.looped == *function) {
                Some(found) => signature.counter = counter_of(found, distance),
                None => self.watch(
                    tid,
                    copy,
                    understood,
                    understood.anatomy.looped.unwrap_or(0),
                ),
            }
        }
        if self
            .signatures
            .get(&key)
            .is_some_and(|(known, ..)| *known == signature)
        {
            return;
        }
        let (function, anchor) = looped.unwrap_or_default();
        let distance = anchor.saturating_sub(copy.registers.sp);
        self.signatures.insert(key, (signature, function, distance));
        source.learn(signature);
    }

    /// Looks for the count of polls of a worker whose loop is on this stack, if none of its kind is looked at.
    fn watch(&mut self, tid: u32, copy: &StackCopy, understood: &Understood, looped: usize) {
        let part = &understood.parts[looped];
        let Some(function) = part.functions.last() else {
            return;
        };
        if self.finder.is_served(tid) {
            return;
        }
        let mappings = Memory::of(self.target.pid).mappings().unwrap_or_default();
        let is_data = |address: u64| {
            mappings
                .iter()
                .any(|mapping| mapping.is_data() && mapping.range.contains(&address))
        };
        self.finder
            .watch(tid, &function.function, copy, part.position.sp, is_data);
    }

    /// Where the count of a worker is whose loop is on this stack.
    fn counter_at(&self, understood: &Understood, looped: usize) -> Option<Counter> {
        let part = &understood.parts[looped];
        let function = &part.functions.last()?.function;
        let found = self.found.iter().find(|found| found.looped == *function)?;
        Some(Counter {
            core_at: part.position.sp.checked_add(found.core_distance)?,
            tick_offset: found.tick_offset,
        })
    }

    fn add_stack(
        &mut self,
        progress: Progress,
        reason: Reason,
        system_call: Option<SystemCall>,
        named: &Named,
        understood: &Understood,
    ) {
        let Does::Polls { until } = understood.anatomy.does else {
            return;
        };
        let poll = self
            .open
            .entry((progress.tid, progress.began_ns))
            .or_insert_with(|| OpenPoll { stacks: Vec::new() });
        // The first ones tell where, the others how long.
        let frames: Vec<Frame> = understood.parts[..until]
            .iter()
            .flat_map(|part| part.functions.iter().cloned())
            .collect();
        let culprit = anatomy::culprit(&frames, |frame| self.names.is_of_main(frame));
        let mut passed = 0;
        let at = understood.parts[..until]
            .iter()
            .find(|part| {
                passed += part.functions.len();
                culprit.is_some_and(|culprit| passed > culprit)
            })
            .map_or(0, |part| part.position.sp);
        let sleeps = reason == Reason::Woke;
        let tokens = frames
            .iter()
            .rev()
            .map(|frame| frame.function.clone())
            .collect();
        poll.stacks.push(Seen {
            reason,
            now_ns: progress.now_ns,
            stack: Stack { frames, culprit },
            at,
            wait: sleeps.then(|| waits::wait_of(&self.target, system_call, named)),
            system_call: system_call.filter(|_| sleeps).and_then(waits::name_of),
            tokens,
        });
    }

    /// Counts a poll that is over, or that goes on when the run ends.
    fn end(&mut self, progress: Progress, goes_on: bool) {
        let open = self.open.remove(&(progress.tid, progress.began_ns));
        let length_ns = progress.now_ns.saturating_sub(progress.began_ns);
        let Some(open) = open else {
            // What was copied was no poll: the executor, a park that was not known yet.
            return;
        };
        if length_ns < self.longer_than_ns {
            return;
        }
        // Ready and without a CPU is no fault of a line.
        if progress.cpu_ns.max(progress.blocked_ns) < self.longer_than_ns {
            self.without_cpu += 1;
            return;
        }
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
                .filter(|seen| seen.reason == wanted)
                .collect(),
            false => open.stacks.iter().collect(),
        };
        if doing == Doing::Computing && !progress.is_exact && !is_one_activation(&fitting) {
            self.inexact += 1;
            return;
        }
        let Some(seen) = most_frequent(&fitting) else {
            return;
        };
        self.polls_in_all += 1;
        let key = key_of(doing, &seen.stack);
        let group = *self.by_key.entry(key).or_insert_with(|| {
            self.groups.push(Group::default());
            self.groups.len() - 1
        });
        self.groups[group].add(doing, progress, length_ns, seen);
        let mut from = progress.began_ns;
        for (index, seen) in fitting.iter().enumerate() {
            let to = match fitting.get(index + 1) {
                Some(_) => seen.now_ns,
                None => progress.now_ns,
            };
            *self
                .samples
                .entry((group, doing, seen.tokens.clone()))
                .or_default() += to.saturating_sub(from);
            from = from.max(to);
        }
        if self.polls.len() < Report::MOST_POLLS {
            if let (Some(waker), Some(Wait::Lock)) = (progress.waker, &seen.wait) {
                self.handed
                    .push((self.polls.len(), waker, progress.woken_ns));
            }
            self.polls.push(LongPoll {
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

    /// Counts the polls that have not ended. Call it once, when the run is over.
    pub fn finish(&mut self, source: &mut dyn Source) {
        let sleepers = source.sleepers();
        let mut going_on = HashMap::new();
        for event in sleepers {
            if let Event::Stack {
                progress,
                copy,
                system_call,
                named,
                ..
            } = event
            {
                let understood = self.understand(&copy, system_call);
                self.add_stack(progress, Reason::Woke, system_call, &named, &understood);
                going_on.insert((progress.tid, progress.began_ns), progress);
            }
        }
        // Those that compute are known by their last stack.
        let now = now_ns();
        let open: Vec<(u32, u64)> = self.open.keys().copied().collect();
        for key in open {
            let progress = match going_on.get(&key) {
                Some(&progress) => progress,
                None => {
                    let last = self.open[&key]
                        .stacks
                        .last()
                        .map_or(key.1, |seen| seen.now_ns);
                    // Its end was lost, or it ended just now.
                    if now.saturating_sub(last) > 1_000_000_000 {
                        continue;
                    }
                    Progress {
                        tid: key.0,
                        now_ns: last,
                        began_ns: key.1,
                        cpu_ns: last - key.1,
                        blocked_ns: 0,
                        unserved_ns: 0,
                        runtime: None,
                        is_exact: false,
                        waker: None,
                        woken_ns: 0,
                    }
                }
            };
            self.end(progress, true);
        }
    }

    /// What was found until now.
    #[must_use]
    pub fn report(&self, source: &dyn Source, ended: &str) -> Report {
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
        findings
            .sort_by_key(|(_, finding)| std::cmp::Reverse((finding.unserved_ns, finding.total_ns)));
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
            .polls
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
        Report {
            version: Report::VERSION,
            pid: self.target.pid,
            name: self.target.name.clone(),
            program: self.target.program.display().to_string(),
            method: source.method(),
            longer_than_ns: self.longer_than_ns,
            began_ns: self.began_ns,
            length_ns: now_ns() - self.began_ns,
            ended: ended.to_owned(),
            runtimes: self.runtimes(source),
            findings: findings.into_iter().map(|(_, finding)| finding).collect(),
            polls,
            polls_in_all: self.polls_in_all,
            polls_without_stack: self.without_stack,
            samples,
            notes: self.notes(source),
        }
    }

    /// For each pair of a finding whose polls waited for a lock and one whose polls held it then: the unserved time of the former. A
    /// lock's holder wakes the thread that waits for it, from within its own poll.
    fn holders(&self) -> HashMap<(usize, usize), u64> {
        let mut of_thread: HashMap<u32, Vec<&LongPoll>> = HashMap::new();
        for poll in &self.polls {
            of_thread.entry(poll.thread).or_default().push(poll);
        }
        for polls in of_thread.values_mut() {
            polls.sort_by_key(|poll| poll.began_ns);
        }
        let mut holders = HashMap::new();
        for &(victim, waker, woken_ns) in &self.handed {
            let victim = &self.polls[victim];
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

    fn runtimes(&self, source: &dyn Source) -> Vec<Runtime> {
        let workers = source.workers();
        let most = workers
            .iter()
            .map(|&(_, runtime)| runtime + 1)
            .max()
            .unwrap_or(0);
        (0..most)
            .map(|index| {
                let own = || workers.iter().filter(move |(_, runtime)| *runtime == index);
                let flavor = own()
                    .find_map(|(tid, _)| self.flavors.get(tid).copied())
                    .unwrap_or(Flavor::Unknown);
                let mut threads: Vec<Thread> = own()
                    .map(|&(tid, _)| Thread {
                        tid,
                        name: self.target.name_of(tid).unwrap_or_default(),
                    })
                    .collect();
                threads.sort_by_key(|thread| thread.tid);
                Runtime {
                    flavor,
                    workers: threads,
                }
            })
            .collect()
    }

    fn notes(&self, source: &dyn Source) -> Vec<String> {
        let mut notes = source.notes();
        if self.names.lacked_lines() {
            notes.push(
                "Functions of the program have no line tables: build it with `debug = \"line-tables-only\"` in `[profile.release]`, which costs \
                 nothing at run time, and the report has lines."
                    .to_owned(),
            );
        }
        if self.names.lacked_symbols() {
            notes.push(
                "The program is stripped: addresses are given, which `addr2line -f -C -e FILE ADDRESS` names from the same build \
                 with its symbols."
                    .to_owned(),
            );
        }
        if self.inexact > 0 {
            notes.push(format!(
                "Left out, as it was not known yet whether each was one poll: {} of computing between two parks.",
                count(self.inexact, "stretch", "stretches")
            ));
        }
        if self.without_cpu > 0 {
            notes.push(format!(
                "Left out, as their threads only waited for a CPU: {}. The machine, or the container's quota, was full.",
                count(self.without_cpu, "poll", "polls")
            ));
        }
        if source.lost() > 0 {
            notes.push(format!(
                "{} events were lost: there were more than could be read in time.",
                source.lost()
            ));
        }
        notes
    }

    /// Until when a thread that is no worker is left alone.
    #[must_use]
    pub fn asks_again_ns() -> u64 {
        OTHER_AGAIN_NS
    }
}

impl Group {
    fn add(&mut self, doing: Doing, progress: Progress, length_ns: u64, seen: &Seen) {
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
        if let Some(call) = &seen.system_call {
            *self.system_calls.entry(call.clone()).or_default() += 1;
        }
        *self.stacks.entry(seen.stack.clone()).or_default() += 1;
    }

    fn finding(&self) -> Option<Finding> {
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
        finding.system_call = self
            .system_calls
            .iter()
            .max_by_key(|(name, count)| (**count, std::cmp::Reverse((*name).clone())))
            .map(|(name, _)| name.clone());
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

/// `part` of `whole`, of an amount.
fn share(amount: u64, part: u64, whole: u64) -> u64 {
    let share = u128::from(amount) * u128::from(part) / u128::from(whole.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}

fn counter_of(found: &Found, distance: u64) -> Option<(u32, u32)> {
    let from_sp = distance.wrapping_add(found.core_distance);
    Some((u32::try_from(from_sp).ok()?, found.tick_offset))
}

/// The stack of a thread that sleeps, and its system call.
pub fn sleeping_stack(target: &Target, tid: u32) -> Option<(Option<SystemCall>, StackCopy)> {
    let (call, sp, ip) = target.sleeps_in(tid)?;
    let mut bytes = vec![0; STACK_BYTES];
    let had = Memory::of(target.pid).read(sp, &mut bytes);
    bytes.truncate(had);
    // It has run meanwhile, and the copy may be of two moments.
    if target.sleeps_in(tid)? != (call, sp, ip) {
        return None;
    }
    let registers = Registers {
        ip,
        sp,
        bp: None,
        lr: None,
    };
    Some((call, StackCopy { registers, bytes }))
}

/// Whether stacks of a stretch between two parks are one poll's: two or more, in the same activation of the same function.
fn is_one_activation(stacks: &[&Seen]) -> bool {
    let Some(first) = stacks.first() else {
        return false;
    };
    stacks.len() >= 2
        && stacks.iter().all(|seen| {
            seen.at == first.at
                && seen.stack.culprit().map(|frame| &frame.function)
                    == first.stack.culprit().map(|frame| &frame.function)
        })
}

fn key_of(doing: Doing, stack: &Stack) -> Key {
    let culprit = stack.culprit().map(|frame| match frame.line {
        // A line is one place, whichever closure of it runs.
        Some(_) => (String::new(), frame.file.clone(), frame.line),
        None => (frame.function.clone(), None, None),
    });
    (doing, culprit)
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
