//! From events to a report.
//!
//! ```text
//! events ──► reader.rs    walks, names and understands each stack
//!              ├────────► learning.rs  tells the source which threads are workers, and how parks and polls are known
//!              └────────► polls.rs     keeps the stacks of long polls, and counts those that are over
//!                           └────────► groups.rs  adds up those with one culprit
//! /proc  ──► before.rs     knows the threads that slept in a poll when the run began: they have no events
//! ```

mod before;
mod groups;
mod learning;
mod polls;
mod reader;

use std::collections::{HashMap, HashSet};
use std::io;
use std::time::{Duration, Instant};

use morpheus_system::steal;

use crate::anatomy::Does;
use crate::labels::Labels;
use crate::memory::Memory;
use crate::model::{Flavor, Method, Report, Runtime, Thread};
use crate::modules::MOST_BYTES;
use crate::report::units::duration;
use crate::source::{Event, Named, Progress, Reason, Source, SystemCall, now_ns};
use crate::target::Target;
use crate::unwind::{Registers, StackCopy};
use before::Before;
use learning::{Learning, Taken};
use polls::{Copied, Polls};
use reader::Reader;

/// Less stolen time than a thousandth of one CPU's is not worth a note.
const NOTICED_PART: u64 = 1000;
/// How frequently threads that slept when the run began are looked at.
const LOOKED_AGAIN: Duration = Duration::from_millis(500);

/// A run over a process.
pub struct Diagnosis {
    target: Target,
    reader: Reader,
    learning: Learning,
    polls: Polls,
    before: Before,
    /// Polls that a park has ended which the source did not know yet: by thread, when each began.
    parked: HashMap<u32, u64>,
    looked: Instant,
    labels: Labels,
    began_ns: u64,
    /// The CPU time that the host had taken before.
    stolen_before_ns: Option<u64>,
    longer_than_ns: u64,
    has_exec: bool,
}

impl std::fmt::Debug for Diagnosis {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Diagnosis")
            .field("target", &self.target)
            .field("polls", &self.polls.in_all)
            .finish_non_exhaustive()
    }
}

impl Diagnosis {
    /// Of a process; polls longer than `longer_than` are long.
    ///
    /// # Errors
    ///
    /// Without the right to see what is loaded there.
    pub fn new(target: Target, longer_than: Duration) -> io::Result<Diagnosis> {
        let longer_than_ns = longer_than.as_nanos() as u64;
        let memory = Memory::of(target.pid);
        Ok(Diagnosis {
            labels: Labels::find(memory, &memory.mappings()?),
            reader: Reader::new(target.pid)?,
            learning: Learning::new(target.pid),
            polls: Polls::new(longer_than_ns),
            before: Before::default(),
            parked: HashMap::new(),
            looked: Instant::now(),
            began_ns: now_ns(),
            stolen_before_ns: steal::stolen_ns(),
            longer_than_ns,
            has_exec: false,
            target,
        })
    }

    /// The source looks from now on: what was before is no part of the run.
    pub fn begin(&mut self) {
        self.began_ns = now_ns();
        self.stolen_before_ns = steal::stolen_ns();
        self.looked = Instant::now();
    }

    /// The process runs another program by now.
    #[must_use]
    pub fn has_exec(&self) -> bool {
        self.has_exec
    }

    /// Some thread was seen in tokio.
    #[must_use]
    pub fn has_tokio(&self) -> bool {
        self.learning.has_tokio()
    }

    /// A long poll was seen.
    #[must_use]
    pub fn has_polls(&self) -> bool {
        self.polls.in_all > 0
    }

    /// Reads the stacks of all threads that sleep now, as `/proc` tells them, and learns from them.
    pub fn survey(&mut self, source: &mut dyn Source) {
        let mut asleep = Vec::new();
        for tid in self.target.threads() {
            let Some(sleeping) = sleeping_stack(&self.target, tid) else {
                continue;
            };
            let (call, copy) = (sleeping.call, &sleeping.copy);
            let understood = self.reader.read(tid, copy, call);
            self.learning
                .learn(source, Taken { tid, copy, call }, &understood);
            if let Does::Polls { .. } = understood.anatomy.does {
                asleep.push((tid, sleeping));
            }
        }
        let is_new = asleep.iter().any(|(tid, _)| !self.before.knows(*tid));
        // By now it has adopted them, and knows those that fell asleep before its eyes.
        let seen: HashSet<u32> = match source.method() == Method::Bpf && is_new {
            true => tids(source.sleepers()).collect(),
            false => HashSet::new(),
        };
        for (tid, sleeping) in asleep {
            if !seen.contains(&tid) {
                self.before.note(&self.target, tid, sleeping);
            }
        }
    }

    /// Takes what has happened since the last call, and looks for the counts of polls. Returns how many stacks there were.
    ///
    /// # Errors
    ///
    /// When nothing will come any more.
    pub fn advance(&mut self, source: &mut dyn Source) -> io::Result<usize> {
        let mut events = Vec::new();
        source.collect(&mut events)?;
        let mut stacks = 0;
        for event in events {
            stacks += usize::from(matches!(event, Event::Stack { .. }));
            self.take(source, event);
        }
        self.learning.look(source);
        self.labels.look(&self.target, source);
        if self.looked.elapsed() >= LOOKED_AGAIN {
            self.end_woken(source);
        }
        Ok(stacks)
    }

    /// Counts the polls that slept when the run began, and that do not any more.
    fn end_woken(&mut self, source: &dyn Source) {
        self.looked = Instant::now();
        let all = self.before.all();
        let woken = self.before.woken(&self.target);
        // Without BPF they were sampled all the time.
        if source.method() != Method::Bpf || woken.is_empty() {
            return;
        }
        let workers = source.workers();
        for (tid, seen) in woken {
            let progress = self.slept(tid, (seen.since_ns, seen.last_ns), &workers, &all);
            let newer = self.polls.take_open(tid);
            self.goes_on(progress, &seen.copy, seen.call, &Named::default());
            self.polls.end(progress, false);
            self.polls.put_open(newer);
        }
    }

    /// A poll in which a thread has slept, from one time to another. `asleep` are all that sleep in polls, and since when.
    fn slept(
        &self,
        tid: u32,
        (since_ns, now_ns): (u64, u64),
        workers: &[(u32, usize)],
        asleep: &[(u32, u64)],
    ) -> Progress {
        let own = workers.iter().find(|(worker, _)| *worker == tid);
        let runtime = own.map(|&(_, runtime)| runtime);
        let unserved_since_ns = match self.learning.flavors.get(&tid) {
            // There is no other worker.
            Some(Flavor::CurrentThread) => Some(since_ns),
            _ => before::unserved_since(workers, runtime, asleep),
        };
        Progress {
            now_ns,
            blocked_ns: now_ns.saturating_sub(since_ns),
            unserved_ns: unserved_since_ns.map_or(0, |since_ns| now_ns.saturating_sub(since_ns)),
            runtime,
            is_exact: true,
            ..Progress::at(tid, since_ns)
        }
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
                let understood = self.reader.read(progress.tid, &copy, call);
                let learns = matches!(reason, Reason::UnknownSleep | Reason::UnknownThread);
                if learns || !matches!(understood.anatomy.does, Does::Polls { .. }) {
                    let stack = Taken {
                        tid: progress.tid,
                        copy: &copy,
                        call,
                    };
                    self.learning.learn(source, stack, &understood);
                } else if !progress.is_exact {
                    self.learning
                        .count(source, progress.tid, &copy, &understood);
                }
                let is_over = self.is_parked(progress);
                if reason == Reason::UnknownSleep
                    && matches!(
                        understood.anatomy.does,
                        Does::Parks { .. } | Does::IsHeld { .. }
                    )
                    && !is_over
                    && self.polls.has_stacks(progress)
                {
                    self.parked.insert(progress.tid, progress.began_ns);
                    self.polls.end(progress, false);
                }
                if !learns && !is_over {
                    let (target, names) = (&self.target, &self.reader.names);
                    self.polls.add_stack(
                        target,
                        names,
                        Copied {
                            progress,
                            reason,
                            system_call,
                            named: &named,
                            copy: &copy,
                            label: progress.label.and_then(|label| self.labels.name(label)),
                        },
                        &understood,
                    );
                }
            }
            Event::End(progress) if self.is_parked(progress) => {}
            Event::End(progress) => self.polls.end(progress, false),
            Event::Exec => self.has_exec = true,
        }
    }

    /// The source takes a park for a sleep in this poll, which has been counted.
    fn is_parked(&self, progress: Progress) -> bool {
        self.parked.get(&progress.tid) == Some(&progress.began_ns)
    }

    /// Counts the polls that have not ended. Call it once, when the run is over; [`Diagnosis::report_so_far`] is for before.
    pub fn finish(&mut self, source: &mut dyn Source) {
        self.end_woken(source);
        for tid in self.count_open(source) {
            self.before.forget(tid);
        }
        // Those that woke meanwhile.
        self.end_woken(source);
    }

    /// Counts the polls that go on. Returns the threads of those that sleep.
    fn count_open(&mut self, source: &mut dyn Source) -> Vec<u32> {
        let mut asleep = HashMap::new();
        let mut unseen = self.before.all();
        for event in source.sleepers() {
            if let Event::Stack {
                progress,
                copy,
                system_call,
                named,
                ..
            } = event
                // A source that samples does not know that it is one poll.
                && (progress.is_exact || unseen.iter().all(|(tid, _)| *tid != progress.tid))
                && !self.is_parked(progress)
            {
                self.goes_on(progress, &copy, system_call, &named);
                asleep.insert(progress.tid, progress);
            }
        }
        unseen.retain(|(tid, _)| !asleep.contains_key(tid));
        if !unseen.is_empty() {
            let asleep_since = asleep.values().map(|one| (one.tid, one.began_ns));
            let all: Vec<_> = asleep_since.chain(unseen.iter().copied()).collect();
            let workers = source.workers();
            for (tid, _) in unseen {
                let Some(sleeping) = sleeping_stack(&self.target, tid) else {
                    continue;
                };
                let Some(since_ns) = self.before.since(tid, sleeping.turns) else {
                    continue;
                };
                let progress = self.slept(tid, (since_ns, now_ns()), &workers, &all);
                self.goes_on(progress, &sleeping.copy, sleeping.call, &Named::default());
                asleep.insert(tid, progress);
            }
        }
        self.polls.finish(&asleep);
        asleep.into_keys().collect()
    }

    /// Adds the stack of a poll that has not ended, and whose thread sleeps.
    fn goes_on(
        &mut self,
        progress: Progress,
        copy: &StackCopy,
        system_call: Option<SystemCall>,
        named: &Named,
    ) {
        let understood = self.reader.read(progress.tid, copy, system_call);
        let copied = Copied {
            progress,
            reason: Reason::Woke,
            system_call,
            named,
            copy,
            label: progress.label.and_then(|label| self.labels.name(label)),
        };
        let (target, names) = (&self.target, &self.reader.names);
        self.polls.add_stack(target, names, copied, &understood);
    }

    /// The report of a run that goes on, to be shown meanwhile: polls that have not ended count until now. Of samples it has
    /// theirs alone.
    pub fn report_so_far(&mut self, source: &mut dyn Source) -> Report {
        self.end_woken(source);
        let so_far = self.polls.so_far();
        let polls = std::mem::replace(&mut self.polls, so_far);
        self.count_open(source);
        let report = self.report(source, "");
        self.polls = polls;
        report
    }

    /// The report of the run until now.
    #[must_use]
    pub fn report(&self, source: &dyn Source, ended: &str) -> Report {
        let (findings, polls, samples) = self.polls.sum();
        let length_ns = now_ns() - self.began_ns;
        let stolen_ns = self.stolen_ns();
        Report {
            version: Report::VERSION,
            pid: self.target.pid,
            name: self.target.name.clone(),
            program: self.target.program.display().to_string(),
            method: source.method(),
            longer_than_ns: self.longer_than_ns,
            began_ns: self.began_ns,
            length_ns,
            ended: ended.to_owned(),
            runtimes: self.runtimes(source),
            findings,
            polls,
            polls_in_all: self.polls.in_all,
            polls_without_stack: self.polls.without_stack,
            stolen_ns,
            samples,
            notes: self.notes(source, length_ns, stolen_ns),
        }
    }

    /// The CPU time that the host has taken since the run began.
    fn stolen_ns(&self) -> u64 {
        let both = self.stolen_before_ns.zip(steal::stolen_ns());
        both.map_or(0, |(before, now)| now.saturating_sub(before))
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
                    .find_map(|(tid, _)| self.learning.flavors.get(tid).copied())
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

    fn notes(&self, source: &dyn Source, length_ns: u64, stolen_ns: u64) -> Vec<String> {
        let mut notes = source.notes();
        if self.reader.names.lacked_lines() {
            notes.push(
                "Functions of the program have no line tables: build it with `debug = \"line-tables-only\"` in `[profile.release]`, which costs \
                 nothing at run time, and the report has lines."
                    .to_owned(),
            );
        }
        if self.reader.names.lacked_symbols() {
            notes.push(
                "The program is stripped: addresses are given, which `addr2line -f -C -e FILE ADDRESS` names from the same build \
                 with its symbols."
                    .to_owned(),
            );
        }
        if self.reader.lacks_sections() {
            notes.push(format!(
                "The program and its libraries have more than {} MiB of tables: some were not read. Stacks may end early, and functions may \
                 have no names.",
                MOST_BYTES >> 20
            ));
        }
        notes.extend(self.polls.notes());
        if stolen_ns.saturating_mul(NOTICED_PART) > length_ns {
            notes.push(format!(
                "The host of this virtual machine took {} of CPU time away meanwhile: what it took from a poll may look as if that had computed.",
                duration(stolen_ns)
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
}

/// The threads of events that have stacks.
fn tids(events: Vec<Event>) -> impl Iterator<Item = u32> {
    events.into_iter().filter_map(|event| match event {
        Event::Stack { progress, .. } => Some(progress.tid),
        Event::End(_) | Event::Exec => None,
    })
}

/// A thread that sleeps.
#[derive(Debug)]
struct Sleeping {
    call: Option<SystemCall>,
    copy: StackCopy,
    /// How many times it was given a CPU until then.
    turns: Option<u64>,
    /// It slept at this time.
    since_ns: u64,
}

/// The stack of a thread that sleeps, and its system call.
fn sleeping_stack(target: &Target, tid: u32) -> Option<Sleeping> {
    let (call, sp, ip) = target.sleeps_in(tid)?;
    let (turns, since_ns) = (target.turns(tid), now_ns());
    let registers = Registers {
        ip,
        sp,
        bp: None,
        lr: None,
    };
    let copy = StackCopy::read(Memory::of(target.pid), registers);
    // It has run meanwhile, and the copy may be of two moments.
    if target.sleeps_in(tid)? != (call, sp, ip) {
        return None;
    }
    Some(Sleeping {
        call,
        copy,
        turns,
        since_ns,
    })
}
