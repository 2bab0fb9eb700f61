//! Finds where a worker counts its polls.
//!
//! A busy worker may go for seconds without a park, through thousands of short polls. Nothing in the kernel tells that from one poll
//! that takes seconds, and the stack of one moment does not either. But tokio's workers count: each round of the loop raises a number
//! (`tick`) in the worker's core, which lies on the heap, and the loop's frame has a pointer to it. The layout differs from build to
//! build, so the place is found by watching: words in the frames of the loop that point to data, and in what they point to a number
//!
//! - that only grows, and no faster than a loop can run (a round takes 50 ns at least),
//! - that stands still while the thread sleeps: another worker's does not,
//! - that is none of tokio's two counts of parks, of which one is the other's double, and
//! - that grows while the thread has not slept, as no count of parks does; or by far more than the thread has slept.
//!
//! Of several those are left that grow about as fast as the fastest: a count of polls grows at least as fast as one of anything that polls
//! do. Of these the one that changes at the most moments is taken: the end of the worker's queue grows as fast, but by many tasks
//! at once, when the driver has woken them. It is looked for in quick succession, too, so that the moments are shorter than a batch of
//! polls.
//! The place found holds for all workers of that kind of loop in the process.

use std::collections::{HashMap, HashSet};

use morpheus_system::threads::proc_text;

use crate::memory::Memory;
use crate::model::Flavor;
use crate::source::now_ns;
use crate::unwind::StackCopy;

/// How much is watched of what a word points to, in bytes. A core has some 200; that of a current-thread runtime of older tokio has its
/// driver in it, and the count behind that: with all features at 616 in tokio 1.20 and at 552 in 1.28.
const WATCHED: usize = 1024;
/// How far above the loop's frame words are looked at, in bytes: the frame of `run`, which has the worker's context.
const ABOVE: u64 = 1024;
/// The most rounds of the loop in a millisecond: one takes 50 ns at least.
const MOST_PER_MS: u64 = 20_000;
/// The most rounds of the loop that one sleep is for, on average: what grows faster is a time.
const MOST_PER_SLEEP: u64 = 1_000;
/// Threads that are watched at once.
const MOST_THREADS: usize = 4;
/// Looks before anything is believed.
const LEAST_LOOKS: u32 = 10;
/// Looks after which a word is believed to be a worker's that was not seen to be emptied.
const LOOKS_IN_DOUBT: u32 = 25;
/// Looks between which its thread has slept all the time before such a word is believed.
const LEAST_SLEPT_THROUGH: u32 = 5;
/// Parks before two numbers are taken for the two counts of them.
const LEAST_PARKS: u32 = 10;
/// Moments at which a number was seen to have changed before it is believed.
const LEAST_CHANGES: u32 = 12;
/// Reads in quick succession at each look, and the time between two of them, in nanoseconds.
const QUICK_READS: u32 = 16;
const BETWEEN_READS_NS: u64 = 10_000;

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
    flavor: Flavor,
    anchor: u64,
    words: Vec<Word>,
    looks: u32,
    slept_first: Option<u64>,
    slept_last: u64,
    last_ns: u64,
    /// It slept through the last look: how frequently it had run by then.
    asleep_since: Option<u64>,
    /// Looks between which it has slept all the time.
    slept_through: u32,
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
    /// Reads that found another value than the one before.
    changes: u32,
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

    /// Whether it watches a thread in this loop, or has enough to watch. Of a stripped program the loop is understood as more stacks
    /// are met: what was watched for long and was not found may have been looked for in another function's frame.
    #[must_use]
    pub fn is_served(&self, tid: u32, looped: &str) -> bool {
        match self.threads.get(&tid) {
            Some(watched) => watched.looped == looped || watched.looks < LEAST_LOOKS,
            None => self.threads.len() >= MOST_THREADS,
        }
    }

    /// Watches a worker that parks. Words from the loop's frame on are looked at, whose stack pointer is `anchor`: what lies below is
    /// the park's, and in a poll the poll's.
    pub fn watch(
        &mut self,
        tid: u32,
        looped: &str,
        flavor: Flavor,
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
                flavor,
                anchor,
                words,
                looks: 0,
                slept_first: None,
                slept_last: 0,
                last_ns: 0,
                asleep_since: None,
                slept_through: 0,
            },
        );
    }

    /// Looks once at each thread. Returns what is found by now; its loop is not watched any more.
    pub fn look(&mut self) -> Option<Found> {
        let memory = self.memory;
        let mut gone = Vec::new();
        for (&tid, watched) in &mut self.threads {
            match Switches::of(self.pid, tid) {
                Some(switches) => {
                    watched.look(memory, switches, || Switches::of(self.pid, tid));
                }
                None => gone.push(tid),
            }
        }
        for tid in gone {
            self.threads.remove(&tid);
        }
        // A worker that has moved to another thread leaves no word behind that points to its core: another one is watched instead.
        self.threads
            .retain(|_, watched| !watched.words.is_empty() || watched.looks < LEAST_LOOKS);
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
        // Copies of the pointer lie about, and other pointers, to queues that other threads change. The worker's own word is a cell's,
        // which the loop empties: it was seen to be zero, and is behind the zero of a cell that nothing borrows. Of a worker that mostly
        // sleeps it is hardly ever seen, and neither is it where this process and the worker run in turns on one CPU, so that one of the
        // two is enough in the end, if it can be no other worker's.
        let (_, _, watched, word, index) = self
            .threads
            .values()
            .flat_map(|watched| watched.words.iter().map(move |word| (watched, word)))
            .filter(|(_, word)| owners[&word.core].len() == 1)
            .filter_map(|(watched, word)| {
                let marks = u8::from(word.was_zero) + u8::from(word.is_behind_zero);
                let is_proven = watched.looks >= LOOKS_IN_DOUBT
                    && (watched.slept_through >= LEAST_SLEPT_THROUGH || watched.is_alone());
                let is_known = marks == 2 || marks == 1 && is_proven;
                let (index, field) = watched.count_in(word).filter(|_| is_known)?;
                Some((marks, field.changes, watched, word, index))
            })
            .max_by_key(|&(marks, changes, _, word, _)| (marks, changes, word.at))?;
        Some(Found {
            looped: watched.looped.clone(),
            core_distance: word.at.wrapping_sub(watched.anchor),
            tick_offset: index as u32 * 4,
        })
    }
}

impl Word {
    /// Reads what it points to.
    fn read(&mut self, memory: Memory, elapsed_ms: u64, is: Is) {
        let mut bytes = [0; WATCHED];
        let had = memory.read(self.core, &mut bytes);
        let values: Vec<u32> = bytes[..had]
            .chunks_exact(4)
            .map(|four| u32::from_ne_bytes(four.try_into().expect("four bytes")))
            .collect();
        if self.last.is_empty() {
            self.fields = vec![Field::default(); values.len()];
        }
        let fields = self.fields.iter_mut().zip(&self.last).zip(&values);
        for ((field, &before), &after) in fields {
            let grown = u64::from(after.wrapping_sub(before));
            field.is_out |= grown > MOST_PER_MS * elapsed_ms || grown > 0 && is == Is::Asleep;
            if grown > 0 {
                field.grown += grown;
                field.grew_awake += u32::from(is == Is::Awake);
                field.changes += 1;
            }
        }
        self.last = values;
    }
}

impl Word {
    /// Whether a number is one of tokio's counts of parks: one grows when the worker parks, one then and when it is unparked.
    fn counts_parks(&self, index: usize) -> bool {
        let is_double = |once: u32, twice: u32| {
            once >= LEAST_PARKS
                && (twice == once.wrapping_mul(2) || twice == once.wrapping_mul(2).wrapping_sub(1))
        };
        let Some(&own) = self.last.get(index) else {
            return false;
        };
        let mut others = self.last.iter();
        others.any(|&other| is_double(own, other) || is_double(other, own))
    }
}

impl Watched {
    fn look(&mut self, memory: Memory, before: Switches, now: impl Fn() -> Option<Switches>) {
        let now_ns = now_ns();
        let is_first = self.looks == 0;
        let elapsed_ms = (now_ns - self.last_ns) / 1_000_000 + 1;
        let asleep_now = before.is_asleep.then_some(before.runs);
        let is = match self.asleep_since {
            Some(runs) if asleep_now == Some(runs) => Is::Asleep,
            // It has run since the last look, without a sleep.
            _ if !is_first && before.sleeps == self.slept_last => Is::Awake,
            _ => Is::Either,
        };
        self.words.retain_mut(|word| {
            let Some(core) = memory.word(word.at) else {
                return false;
            };
            if core != word.core {
                // It is with the loop, or it has gone to another thread.
                word.was_zero |= core == 0;
                return core == 0;
            }
            word.read(memory, elapsed_ms, is);
            true
        });
        if !is_first {
            self.read_quickly(memory);
        }
        self.looks += 1;
        self.last_ns = now_ns;
        self.asleep_since = None;
        if let Some(after) = now() {
            self.slept_first.get_or_insert(after.sleeps);
            self.slept_last = after.sleeps;
            // It may have woken between the two; then it has run once more.
            self.asleep_since = asleep_now.filter(|&runs| after.is_asleep && after.runs == runs);
        }
        self.slept_through += u32::from(is == Is::Asleep && self.asleep_since.is_some());
    }

    /// Reads what has grown, again and again. The thread may be in the same batch of polls all the while.
    fn read_quickly(&mut self, memory: Memory) {
        let has_grown = |word: &&mut Word| {
            let mut fields = word.fields.iter();
            fields.any(|field| !field.is_out && field.grown > 0)
        };
        for _ in 0..QUICK_READS {
            let until_ns = now_ns() + BETWEEN_READS_NS;
            for word in self.words.iter_mut().filter(has_grown) {
                match memory.word(word.at) {
                    Some(core) if core == word.core => word.read(memory, 1, Is::Either),
                    Some(0) => word.was_zero = true,
                    _ => {}
                }
            }
            while now_ns() < until_ns {
                std::hint::spin_loop();
            }
        }
    }

    /// Whether its runtime has no other worker, as a current-thread one. Then the core stays where it is, and each pointer to it is
    /// as good as the loop's own.
    fn is_alone(&self) -> bool {
        self.flavor == Flavor::CurrentThread
    }

    /// The number in what a word points to that counts polls, if one does.
    fn count_in<'word>(&self, word: &'word Word) -> Option<(usize, &'word Field)> {
        if self.looks < LEAST_LOOKS {
            return None;
        }
        let slept = self.slept_last - self.slept_first.unwrap_or(self.slept_last);
        let counts = |field: &Field| {
            let by_far = slept >= 20
                && field.grown * 10 >= slept * 22
                && field.grown <= slept * MOST_PER_SLEEP;
            !field.is_out && field.grown >= 4 && (field.grew_awake >= 3 || by_far)
        };
        let counting = || {
            let fields = word.fields.iter().enumerate();
            fields.filter(|&(index, field)| counts(field) && !word.counts_parks(index))
        };
        let most = counting().map(|(_, field)| field.grown).max()?;
        let fast = || counting().filter(|(_, field)| field.grown * 3 >= most * 2);
        let changes = fast().map(|(_, field)| field.changes).max()?;
        if changes < LEAST_CHANGES {
            return None;
        }
        // Of those that change about as frequently the first: what comes after the core is something else's.
        fast().find(|(_, field)| field.changes * 5 >= changes * 4)
    }
}

/// The state of the thread from the last read to this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Is {
    /// It slept, all the time.
    Asleep,
    /// It ran, or was ready to, all the time.
    Awake,
    /// Not known.
    Either,
}

/// A thread's switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Switches {
    /// How frequently it has slept.
    sleeps: u64,
    /// How frequently it was taken from a CPU.
    runs: u64,
    is_asleep: bool,
}

impl Switches {
    fn of(pid: u32, tid: u32) -> Option<Switches> {
        let status = proc_text(format!("/proc/{pid}/task/{tid}/status")).ok()?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            Some(line.trim())
        };
        let sleeps = field("voluntary_ctxt_switches:")?.parse().ok()?;
        let taken: u64 = field("nonvoluntary_ctxt_switches:")?.parse().ok()?;
        Some(Switches {
            sleeps,
            runs: sleeps + taken,
            is_asleep: field("State:")?.starts_with('S'),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(grown: u64, grew_awake: u32, changes: u32) -> Field {
        Field {
            is_out: false,
            grown,
            grew_awake,
            changes,
        }
    }

    fn word(fields: Vec<Field>) -> Word {
        Word {
            at: 0x7000,
            core: 0x5000,
            was_zero: true,
            is_behind_zero: true,
            last: Vec::new(),
            fields,
        }
    }

    fn watched(looks: u32, slept: u64) -> Watched {
        Watched {
            looped: "run".to_owned(),
            flavor: Flavor::MultiThread,
            anchor: 0x6ff0,
            words: Vec::new(),
            looks,
            slept_first: Some(0),
            slept_last: slept,
            last_ns: 0,
            asleep_since: None,
            slept_through: LEAST_SLEPT_THROUGH,
        }
    }

    /// Growth, growth without a sleep, and changes as they were read of workers that serve 100,000 requests a second.
    #[test]
    fn a_count_of_polls_is_told_from_what_grows_beside_it() {
        let nothing = || field(0, 0, 0);
        let place = |watched: &Watched, fields| {
            let word = word(fields);
            watched.count_in(&word).map(|(index, _)| index)
        };
        // Parks, polls, both halves of the queue's head, its end: that grows most, and by batches.
        let fields = || {
            vec![
                field(29, 6, 13),
                nothing(),
                field(2461, 4, 64),
                field(2712, 4, 68),
                field(2712, 4, 68),
                field(2769, 4, 9),
            ]
        };
        assert_eq!(place(&watched(10, 3), fields()), Some(2));
        assert_eq!(
            place(&watched(LEAST_LOOKS - 1, 3), fields()),
            None,
            "too early"
        );
        // It sleeps between any two looks, and most parks end at once.
        let parks_at_once = vec![
            field(133, 0, 23),
            field(266, 0, 28),
            field(9_961, 0, 174),
            field(11_799, 0, 72),
        ];
        assert_eq!(place(&watched(10, 53), parks_at_once), Some(2));
        // A time, and a number that was seen to fall.
        let mut times = vec![field(90_000, 0, 174), field(5_000, 9, 100)];
        times[1].is_out = true;
        assert_eq!(place(&watched(10, 53), times), None);
        assert_eq!(
            place(&watched(10, 3), vec![field(200, 9, LEAST_CHANGES - 1)]),
            None
        );
    }

    #[test]
    fn counts_of_parks_and_of_other_workers_are_none_of_polls() {
        // At each wake-up one poll: the worker has parked and unparked as frequently as it has been round its loop.
        let mut quiet = word(vec![field(14, 3, 14), field(29, 3, 14), field(28, 3, 14)]);
        quiet.last = vec![1014, 2027, 3028];
        assert!(quiet.counts_parks(0) && quiet.counts_parks(1));
        // Nothing overflows, whatever the process has there.
        quiet.last = vec![1 << 31, 0, u32::MAX];
        assert!(quiet.counts_parks(0));
        quiet.last = vec![1014, 2027, 3028];
        let worker = watched(30, 12);
        assert_eq!(worker.count_in(&quiet).map(|(index, _)| index), Some(2));

        let other = Box::new([7_u32; 4]);
        let mut words = word(Vec::new());
        words.core = other.as_ptr().addr() as u64;
        let own = Memory::of(std::process::id());
        words.read(own, 1, Is::Either);
        words.last[1] -= 1;
        words.read(own, 1, Is::Asleep);
        assert!(words.fields[1].is_out && !words.fields[0].is_out);
    }

    #[test]
    fn the_word_of_a_worker_is_one_that_its_loop_empties() {
        let mut finder = Finder::new(std::process::id());
        let fields = || vec![field(2461, 9, 64)];
        let mut another = word(fields());
        (another.at, another.core, another.was_zero) = (0x7010, 0x9000, false);
        another.fields[0].changes = 90;
        let mut worker = watched(10, 3);
        worker.words = vec![another, word(fields())];
        finder.threads.insert(7, worker);
        let found = finder.found().unwrap();
        assert_eq!((found.core_distance, found.tick_offset), (0x10, 0));
        // Never seen to be emptied: in doubt, and believed in the end.
        let worker = finder.threads.get_mut(&7).unwrap();
        worker.words[1].was_zero = false;
        assert_eq!(finder.found(), None);
        finder.threads.get_mut(&7).unwrap().looks = LOOKS_IN_DOUBT;
        assert_eq!(finder.found().unwrap().core_distance, 0x20);
        // A thread that was not seen to sleep: what it points to may be another worker's, if there is one.
        finder.threads.get_mut(&7).unwrap().slept_through = 0;
        assert_eq!(finder.found(), None);
        finder.threads.get_mut(&7).unwrap().flavor = Flavor::CurrentThread;
        assert_eq!(finder.found().unwrap().core_distance, 0x20);
        finder.threads.get_mut(&7).unwrap().slept_through = LEAST_SLEPT_THROUGH;
        // It is watched again where the loop is another function.
        let mut looks = |looks| {
            finder.threads.get_mut(&7).unwrap().looks = looks;
            (finder.is_served(7, "run"), finder.is_served(7, "another"))
        };
        assert_eq!(looks(LEAST_LOOKS - 1), (true, true));
        assert_eq!(looks(LEAST_LOOKS), (true, false));
        assert_eq!(looks(LOOKS_IN_DOUBT), (true, false));
        assert!(!finder.is_served(8, "run"), "not watched yet");
        // A core that two workers point to belongs to neither.
        let mut other = watched(LOOKS_IN_DOUBT, 3);
        other.words = vec![word(fields())];
        other.words[0].core = 0x9000;
        finder.threads.insert(8, other);
        assert_eq!(finder.found().unwrap().core_distance, 0x10);
    }

    #[test]
    fn a_thread_whose_name_ends_within_a_character_has_switches() {
        let thread = std::thread::Builder::new().name("four-teen-byteé".to_owned());
        let switches = || Switches::of(std::process::id(), morpheus_system::threads::own_tid());
        assert!(thread.spawn(switches).unwrap().join().unwrap().is_some());
    }

    #[test]
    fn a_thread_that_its_worker_has_left_makes_room_for_another() {
        // The process's first thread has its number.
        let tid = std::process::id();
        let mut finder = Finder::new(tid);
        finder.threads.insert(tid, watched(LEAST_LOOKS - 2, 3));
        let mut is_served = || {
            finder.look();
            finder.is_served(tid, "run")
        };
        assert!(is_served(), "its words may come");
        assert!(!is_served());
    }
}
