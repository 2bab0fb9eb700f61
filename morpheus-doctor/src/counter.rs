//! Finds where a worker counts its polls.
//!
//! A busy worker may go for seconds without a park, through thousands of short polls. Nothing in the kernel tells that from one poll
//! that takes seconds, and the stack of one moment does not either. But tokio's workers count: each round of the loop raises a number
//! (`tick`) in the worker's core, which lies on the heap, and the loop's frame has a pointer to it. The layout differs from build to
//! build, so the place is found by watching: words in the frames of the loop that point to data, and in what they point to a number
//!
//! - that only grows, and no faster than a loop can run (a round takes 50 ns at least),
//! - that stands still while the thread sleeps, and
//! - that grows while the thread has not slept, as no count of parks does; or by far more than the thread has slept.
//!
//! Of several the one that has grown most is taken: a count of polls grows at least as fast as one of anything that polls do.
//! What is found is right for all workers of that kind of loop in the process.

use std::collections::{HashMap, HashSet};
use std::fs;

use crate::memory::Memory;
use crate::source::now_ns;
use crate::unwind::StackCopy;

/// How much is watched of what a word points to, in bytes. A core has some 200.
const WATCHED: usize = 512;
/// How far above the loop's frame words are looked at, in bytes: the frame of `run`, which has the worker's context.
const ABOVE: u64 = 1024;
/// The most rounds of the loop in a millisecond: one takes 50 ns at least.
const MOST_PER_MS: u64 = 20_000;
/// Threads that are watched at once.
const MOST_THREADS: usize = 4;
/// Looks before anything is believed.
const LEAST_LOOKS: u32 = 10;

/// Where a kind of loop has its number of polls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The loop's function.
    pub looped: String,
    /// The word with the address of the core, from the loop's stack pointer.
    pub core_distance: u64,
    /// The number's place in the core, in bytes.
    pub tick_offset: u32,
}

/// Watches some workers.
#[derive(Debug)]
pub struct Finder {
    pid: u32,
    memory: Memory,
    threads: HashMap<u32, Watched>,
}

#[derive(Debug)]
struct Watched {
    looped: String,
    anchor: u64,
    words: Vec<Word>,
    looks: u32,
    slept_first: Option<u64>,
    slept_last: u64,
    last_ns: u64,
}

#[derive(Debug)]
struct Word {
    at: u64,
    core: u64,
    /// It was seen to be zero: the loop takes its core out at times.
    was_zero: bool,
    /// The word before it is zero, as that of a cell which is not borrowed.
    is_behind_zero: bool,
    last: Vec<u32>,
    fields: Vec<Field>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Field {
    is_out: bool,
    grown: u64,
    grew_awake: u32,
}

impl Finder {
    /// For a process.
    #[must_use]
    pub fn new(pid: u32) -> Finder {
        Finder {
            pid,
            memory: Memory::of(pid),
            threads: HashMap::new(),
        }
    }

    /// Whether it watches a kind of loop, or has enough to watch.
    #[must_use]
    pub fn is_served(&self, tid: u32) -> bool {
        self.threads.contains_key(&tid) || self.threads.len() >= MOST_THREADS
    }

    /// Watches a worker that parks. Words from the loop's frame on are looked at, whose stack pointer is `anchor`: what lies below is
    /// the park's, and in a poll the poll's.
    pub fn watch(
        &mut self,
        tid: u32,
        looped: &str,
        copy: &StackCopy,
        anchor: u64,
        is_data: impl Fn(u64) -> bool,
    ) {
        let end = anchor.saturating_add(ABOVE);
        let words: Vec<Word> = (anchor..end)
            .step_by(8)
            .filter_map(|at| {
                let core = copy.word(at)?;
                // The stack itself is data, too; what lies near is not the heap.
                let is_stack = core.abs_diff(copy.registers.sp) < 1 << 20;
                (core % 8 == 0 && !is_stack && is_data(core)).then(|| Word {
                    at,
                    core,
                    was_zero: false,
                    is_behind_zero: copy.word(at.wrapping_sub(8)) == Some(0),
                    last: Vec::new(),
                    fields: Vec::new(),
                })
            })
            .collect();
        self.threads.insert(
            tid,
            Watched {
                looped: looped.to_owned(),
                anchor,
                words,
                looks: 0,
                slept_first: None,
                slept_last: 0,
                last_ns: 0,
            },
        );
    }

    /// Looks once at each thread. Returns what is found by now; its loop is not watched any more.
    pub fn look(&mut self) -> Option<Found> {
        let memory = self.memory;
        let mut gone = Vec::new();
        for (&tid, watched) in &mut self.threads {
            match sleeps(self.pid, tid) {
                Some(slept) => watched.look(memory, slept, || sleeps(self.pid, tid)),
                None => gone.push(tid),
            }
        }
        for tid in gone {
            self.threads.remove(&tid);
        }
        let found = self.found()?;
        self.threads
            .retain(|_, watched| watched.looped != found.looped);
        Some(found)
    }

    fn found(&self) -> Option<Found> {
        // A core is one worker's; what several point to is shared.
        let mut owners: HashMap<u64, HashSet<u32>> = HashMap::new();
        for (&tid, watched) in &self.threads {
            for word in &watched.words {
                owners.entry(word.core).or_default().insert(tid);
            }
        }
        let candidates: Vec<_> = self
            .threads
            .values()
            .flat_map(|watched| watched.candidates())
            .filter(|(_, word, ..)| owners[&word.core].len() == 1)
            .collect();
        let most = candidates.iter().map(|(.., field)| field.grown).max()?;
        // Copies of the pointer lie about, and other pointers, to queues that other threads change. The worker's own word is a cell's,
        // which the loop empties. It must have been seen to be one, or to be behind the zero of one that nothing borrows.
        let best = candidates
            .iter()
            .filter(|(_, word, _, field)| {
                (word.was_zero || word.is_behind_zero) && field.grown * 2 >= most
            })
            .max_by_key(|&&(_, word, index, field)| {
                (
                    word.was_zero && word.is_behind_zero,
                    field.grown,
                    std::cmp::Reverse(index),
                    word.at,
                )
            })?;
        let &(watched, word, index, _) = best;
        Some(Found {
            looped: watched.looped.clone(),
            core_distance: word.at.wrapping_sub(watched.anchor),
            tick_offset: index as u32 * 4,
        })
    }
}

impl Watched {
    fn look(&mut self, memory: Memory, slept_before: u64, sleeps: impl Fn() -> Option<u64>) {
        let now = now_ns();
        let is_first = self.looks == 0;
        let elapsed_ms = (now - self.last_ns) / 1_000_000 + 1;
        // It has run since the last look, without a sleep.
        let is_awake = !is_first && slept_before == self.slept_last;
        self.words.retain_mut(|word| {
            let Some(core) = memory.word(word.at) else {
                return false;
            };
            if core != word.core {
                // It is with the loop, or it has gone to another thread.
                word.was_zero |= core == 0;
                return core == 0;
            }
            let mut bytes = [0; WATCHED];
            let had = memory.read(core, &mut bytes);
            let values: Vec<u32> = bytes[..had]
                .chunks_exact(4)
                .map(|four| u32::from_ne_bytes(four.try_into().expect("four bytes")))
                .collect();
            if word.last.is_empty() {
                word.fields = vec![Field::default(); values.len()];
            } else {
                let fields = word.fields.iter_mut().zip(&word.last).zip(&values);
                for ((field, &before), &after) in fields {
                    let grown = u64::from(after.wrapping_sub(before));
                    field.is_out |= grown > MOST_PER_MS * elapsed_ms;
                    if grown > 0 {
                        field.grown += grown;
                        field.grew_awake += u32::from(is_awake);
                    }
                }
            }
            word.last = values;
            true
        });
        self.looks += 1;
        self.last_ns = now;
        if let Some(slept) = sleeps() {
            self.slept_first.get_or_insert(slept);
            self.slept_last = slept;
        }
    }

    /// The numbers that may be counts of polls.
    fn candidates(&self) -> Vec<(&Watched, &Word, usize, Field)> {
        if self.looks < LEAST_LOOKS {
            return Vec::new();
        }
        let slept = self.slept_last - self.slept_first.unwrap_or(self.slept_last);
        let counts = |field: &Field| {
            let by_far = slept >= 20 && field.grown * 10 >= slept * 22 && field.grown <= slept * 50;
            !field.is_out && field.grown >= 4 && (field.grew_awake >= 3 || by_far)
        };
        self.words
            .iter()
            .flat_map(|word| {
                word.fields
                    .iter()
                    .enumerate()
                    .filter(|(_, field)| counts(field))
                    .map(move |(index, field)| (self, word, index, *field))
            })
            .collect()
    }
}

/// How frequently a thread has slept.
fn sleeps(pid: u32, tid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/task/{tid}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
    line.trim().parse().ok()
}
