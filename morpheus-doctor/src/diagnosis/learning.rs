//! Knowledge of the executor, gained from its stacks and passed to the source: which threads are workers, how their parks are known, and
//! where they count their polls.

use std::collections::HashMap;

use super::reader::{Loop, Understood};
use crate::anatomy::Does;
use crate::counter::{Finder, Found};
use crate::memory::Memory;
use crate::model::Flavor;
use crate::source::{Counter, Kind, Signature, Sleep, Source, Spot, SystemCall};
use crate::unwind::{StackCopy, Walker};
use crate::waits;

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

/// The knowledge of a process's executors.
pub(super) struct Learning {
    pid: u32,
    finder: Finder,
    found: Vec<Found>,
    signatures: HashMap<SignatureKey, Learned>,
    /// The scheduler of each thread that was seen in one's loop.
    pub(super) flavors: HashMap<u32, Flavor>,
    has_tokio: bool,
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
            has_tokio: false,
        }
    }

    /// Some thread was seen in tokio.
    pub(super) fn has_tokio(&self) -> bool {
        self.has_tokio
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
        tid: u32,
        copy: &StackCopy,
        understood: &Understood,
    ) {
        if let Some(counter) = self.counter_or_watch(tid, copy, understood) {
            source.adopt(tid, Kind::Worker, Some(counter));
        }
    }

    /// Tells the source what a thread is, and how its sleep is known.
    pub(super) fn learn(
        &mut self,
        source: &mut dyn Source,
        stack: Taken<'_>,
        understood: &Understood,
    ) {
        let Taken { tid, copy, call } = stack;
        let anatomy = understood.anatomy;
        let other = Kind::Other {
            asleep: call.map(|_| Spot::from(copy.registers)),
        };
        if anatomy.looped.is_some() {
            self.has_tokio = true;
            self.flavors.insert(tid, anatomy.flavor);
        }
        match anatomy.does {
            Does::Parks { at, in_driver } => {
                // The only worker of a stripped program shows where its loop is when it polls.
                self.has_tokio = true;
                let sleep = match in_driver {
                    true => Sleep::Driver,
                    false => Sleep::Park,
                };
                self.learn_sleep(source, stack, understood, at, sleep);
                source.adopt(tid, Kind::Worker, None);
            }
            Does::IsHeld { at } => {
                self.has_tokio = true;
                self.learn_sleep(source, stack, understood, at, Sleep::Held);
            }
            Does::Polls { .. } | Does::Executes => {
                let counter = self.counter_or_watch(tid, copy, understood);
                source.adopt(tid, Kind::Worker, counter);
            }
            Does::BlocksOn => {
                self.has_tokio = true;
                source.adopt(tid, other, None);
            }
            Does::BlocksInPlace | Does::Other => source.adopt(tid, other, None),
            // A worker's stack may be cut off, and it stays one.
            Does::Unknown if !self.flavors.contains_key(&tid) => {
                source.adopt(tid, other, None);
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
        // A stack may be read wrongly, and this is believed from now on.
        let Some(call) = call.filter(|&call| sleep == Sleep::Held || waits::may_park(call)) else {
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
        let looped = understood.looped();
        let key = (
            signature.ip,
            signature.system_call,
            signature.return_address,
            offset,
        );
        if let Some(looped) = looped.filter(|_| sleep != Sleep::Held) {
            let distance = looped.sp.saturating_sub(copy.registers.sp);
            match self.found_of(looped) {
                Some(found) => signature.counter = counter_of(found, distance),
                None => self.watch(tid, copy, looped),
            }
        }
        if self
            .signatures
            .get(&key)
            .is_some_and(|(known, ..)| *known == signature)
        {
            return;
        }
        let (function, distance) = looped.map_or_else(Default::default, |looped| {
            let distance = looped.sp.saturating_sub(copy.registers.sp);
            (looped.function.to_owned(), distance)
        });
        self.signatures.insert(key, (signature, function, distance));
        source.learn(signature);
    }

    /// Where a worker counts; where that is not known, it is looked for.
    fn counter_or_watch(
        &mut self,
        tid: u32,
        copy: &StackCopy,
        understood: &Understood,
    ) -> Option<Counter> {
        let looped = understood.looped()?;
        let counter = self.counter_at(looped);
        if counter.is_none() {
            self.watch(tid, copy, looped);
        }
        counter
    }

    /// Looks for the count of polls of a worker with this loop on its stack, if none of its kind is looked at.
    fn watch(&mut self, tid: u32, copy: &StackCopy, looped: Loop<'_>) {
        if self.finder.is_served(tid, looped.function) {
            return;
        }
        let mappings = Memory::of(self.pid).mappings().unwrap_or_default();
        let is_data = |address: u64| {
            mappings
                .iter()
                .any(|mapping| mapping.is_data() && mapping.range.contains(&address))
        };
        let Loop {
            function,
            flavor,
            sp,
        } = looped;
        self.finder.watch(tid, function, flavor, copy, sp, is_data);
    }

    /// Where workers with such a loop count.
    fn found_of(&self, looped: Loop<'_>) -> Option<&Found> {
        self.found
            .iter()
            .find(|found| found.looped == looped.function)
    }

    /// Where the worker with this loop on its stack counts.
    fn counter_at(&self, looped: Loop<'_>) -> Option<Counter> {
        let found = self.found_of(looped)?;
        Some(Counter {
            core_at: looped.sp.checked_add(found.core_distance)?,
            tick_offset: found.tick_offset,
        })
    }
}

fn counter_of(found: &Found, distance: u64) -> Option<(u32, u32)> {
    let from_sp = distance.wrapping_add(found.core_distance);
    Some((u32::try_from(from_sp).ok()?, found.tick_offset))
}
