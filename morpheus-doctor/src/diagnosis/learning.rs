//! What is learned of the executor from its stacks, and told to the source: which threads are workers, how their parks are known,
//! and where they count their polls.

use std::collections::HashMap;

use super::reader::Understood;
use crate::anatomy::Does;
use crate::counter::{Finder, Found};
use crate::memory::Memory;
use crate::model::Flavor;
use crate::source::{Counter, Kind, Progress, Signature, Sleep, Source, SystemCall};
use crate::unwind::{StackCopy, Walker};

/// Where the system call returns to, its number, the return address and its place.
type SignatureKey = (u64, u32, u64, u32);
/// A signature, with the loop's function and its distance from the stack pointer.
type Learned = (Signature, String, u64);

/// A stack of a thread, and the system call that it sleeps in, if it does.
#[derive(Clone, Copy)]
pub(super) struct Taken<'copy> {
    pub(super) tid: u32,
    pub(super) copy: &'copy StackCopy,
    pub(super) call: Option<SystemCall>,
}

/// What is known of a process's executors.
pub(super) struct Learning {
    pid: u32,
    finder: Finder,
    found: Vec<Found>,
    signatures: HashMap<SignatureKey, Learned>,
    /// The scheduler of each thread that was seen in one's loop.
    pub(super) flavors: HashMap<u32, Flavor>,
    threads_of_tokio: u64,
}

impl Learning {
    /// Of the process with this number.
    pub(super) fn new(pid: u32) -> Learning {
        Learning {
            pid,
            finder: Finder::new(pid),
            found: Vec::new(),
            signatures: HashMap::new(),
            flavors: HashMap::new(),
            threads_of_tokio: 0,
        }
    }

    /// Some thread was seen in tokio.
    pub(super) fn has_tokio(&self) -> bool {
        self.threads_of_tokio > 0
    }

    /// Looks for the counts of polls.
    pub(super) fn look(&mut self, source: &mut dyn Source) {
        let Some(found) = self.finder.look() else {
            return;
        };
        for (signature, looped, distance) in self.signatures.values_mut() {
            if *looped == found.looped {
                signature.counter = counter_of(&found, *distance);
                source.learn(*signature);
            }
        }
        self.found.push(found);
    }

    /// Tells the source of the count of a worker that polls and never parks.
    pub(super) fn count(
        &mut self,
        source: &mut dyn Source,
        progress: Progress,
        copy: &StackCopy,
        understood: &Understood,
    ) {
        let (Does::Polls { .. }, Some(looped), false) = (
            understood.anatomy.does,
            understood.anatomy.looped,
            progress.is_exact,
        ) else {
            return;
        };
        match self.counter_at(understood, looped) {
            Some(counter) => source.adopt(progress.tid, Kind::Worker, Some(counter)),
            None => self.watch(progress.tid, copy, understood, looped),
        }
    }

    /// Tells the source what a thread is, and how its sleep is known.
    pub(super) fn learn(
        &mut self,
        source: &mut dyn Source,
        stack: Taken<'_>,
        understood: &Understood,
    ) {
        let Taken { tid, copy, .. } = stack;
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
                self.learn_sleep(source, stack, understood, at, sleep);
                source.adopt(tid, Kind::Worker, None);
            }
            Does::IsHeld { at } => {
                self.threads_of_tokio += 1;
                self.learn_sleep(source, stack, understood, at, Sleep::Held);
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

    fn learn_sleep(
        &mut self,
        source: &mut dyn Source,
        stack: Taken<'_>,
        understood: &Understood,
        at: usize,
        sleep: Sleep,
    ) {
        let Taken { tid, copy, call } = stack;
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
        let mappings = Memory::of(self.pid).mappings().unwrap_or_default();
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
}

fn counter_of(found: &Found, distance: u64) -> Option<(u32, u32)> {
    let from_sp = distance.wrapping_add(found.core_distance);
    Some((u32::try_from(from_sp).ok()?, found.tick_offset))
}
