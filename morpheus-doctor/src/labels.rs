//! The labels of the tasks of a program on Morpheus, read from outside.
//!
//! The program's data has a directory (`morpheus_common::directory`): of each thread the word that points to its slot, and the names of
//! labels by their numbers. A source reads the number from the slot when it copies a stack, and the names are read here. All of it is a
//! claim of the process: a name may be wrong, and no more.

use std::collections::HashMap;
use std::mem::offset_of;
use std::time::{Duration, Instant};

use morpheus_common::abi::morpheus_runtime_slot;
use morpheus_common::directory::{Directory, Label, MARK, MOST_THREADS, Thread};

use crate::memory::{Mapping, Memory};
use crate::source::Source;
use crate::target::Target;

/// How often threads are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The longest name that is read, in bytes.
const LONGEST: u32 = 512;
/// How much of each file's data is searched for the mark, in bytes.
const SEARCHED: u64 = 64 << 20;

/// The labels of a process.
#[derive(Debug)]
pub struct Labels {
    memory: Memory,
    /// The address of the directory. None in a program without Morpheus.
    directory: Option<u64>,
    looked: Option<Instant>,
    /// By thread: the word that the source knows.
    told: HashMap<u32, u64>,
    known: HashMap<u32, String>,
}

impl Labels {
    /// Of the process with this memory.
    #[must_use]
    pub fn find(memory: Memory, mappings: &[Mapping]) -> Labels {
        let has_code = |path: &str| {
            mappings
                .iter()
                .any(|other| other.is_executable && other.path == path)
        };
        // The program comes before the libraries, and has the runtime.
        let directory = mappings
            .iter()
            .filter(|mapping| {
                mapping.is_writable && mapping.path.starts_with('/') && has_code(&mapping.path)
            })
            .find_map(|mapping| find_mark(memory, mapping));
        Labels {
            memory,
            directory,
            looked: None,
            told: HashMap::new(),
            known: HashMap::new(),
        }
    }

    /// Tells the source of threads that have come.
    pub fn look(&mut self, target: &Target, source: &mut dyn Source) {
        let Some(directory) = self.directory else {
            return;
        };
        if self.looked.is_some_and(|at| at.elapsed() < LOOK_EVERY) {
            return;
        }
        self.looked = Some(Instant::now());
        let handles = handles(self.memory, directory);
        let is_known = |told: &HashMap<u32, u64>, tid| told.get(&tid) == handles.get(&tid);
        if handles.keys().all(|&tid| is_known(&self.told, tid)) {
            return;
        }
        // In another PID namespace the process has other numbers for them.
        let threads: Vec<(u32, u32)> = match target.own_number_of(target.pid) == Some(target.pid) {
            true => handles.keys().map(|&own| (own, own)).collect(),
            false => target
                .threads()
                .into_iter()
                .filter_map(|tid| Some((target.own_number_of(tid)?, tid)))
                .collect(),
        };
        for (own, tid) in threads {
            if let Some(&handle) = handles.get(&own)
                && self.told.insert(own, handle) != Some(handle)
            {
                source.has_handle(tid, handle);
            }
        }
        self.told.retain(|own, _| handles.contains_key(own));
    }

    /// The name of a label.
    pub fn name(&mut self, number: u32) -> Option<&str> {
        if !self.known.contains_key(&number) {
            let name = self.read_name(number)?;
            self.known.insert(number, name);
        }
        self.known.get(&number).map(String::as_str)
    }

    fn read_name(&self, number: u32) -> Option<String> {
        let directory: [u8; size_of::<Directory>()] = self.memory.array(self.directory?)?;
        if number >= half(&directory, offset_of!(Directory, label_count)) {
            return None;
        }
        let labels = word(&directory, offset_of!(Directory, labels));
        let label = self
            .memory
            .word(labels.checked_add(u64::from(number) * 8)?)?;
        let label: [u8; size_of::<Label>()] = self.memory.array(label)?;
        let length = half(&label, offset_of!(Label, length));
        if length == 0 || length > LONGEST {
            return None;
        }
        let mut text = vec![0; length as usize];
        if self
            .memory
            .read(word(&label, offset_of!(Label, text)), &mut text)
            != text.len()
        {
            return None;
        }
        let text = String::from_utf8(text).ok()?;
        Some(match half(&label, offset_of!(Label, line)) {
            0 => text,
            line => format!("{text}:{line}"),
        })
    }
}

/// A poll of a task that Morpheus watches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watched {
    /// The number of the poll on its thread.
    pub poll: u64,
    /// The number of the task's label.
    pub label: u32,
}

/// The poll that a thread is in, by the thread's word that points to its slot. None where it polls no task that is watched.
#[must_use]
pub fn watched_at(memory: Memory, handle: u64) -> Option<Watched> {
    let slot: [u8; size_of::<morpheus_runtime_slot>()] = memory.array(memory.word(handle)?)?;
    let watched = Watched {
        poll: word(&slot, offset_of!(morpheus_runtime_slot, poll_seq)),
        label: half(&slot, offset_of!(morpheus_runtime_slot, label)),
    };
    (watched.poll % 2 == 1).then_some(watched)
}

fn find_mark(memory: Memory, mapping: &Mapping) -> Option<u64> {
    let length = (mapping.range.end - mapping.range.start).min(SEARCHED);
    let mut bytes = vec![0; usize::try_from(length).ok()?];
    let had = memory.read(mapping.range.start, &mut bytes);
    let at = memchr::memmem::find(&bytes[..had], &MARK)?;
    Some(mapping.range.start + at as u64)
}

/// Of each thread that is listed, by its own number: the address of its word.
fn handles(memory: Memory, directory: u64) -> HashMap<u32, u64> {
    let mut bytes = vec![0; size_of::<Thread>() * MOST_THREADS];
    let had = directory
        .checked_add(offset_of!(Directory, threads) as u64)
        .and_then(|at| memory.word(at))
        .map_or(0, |threads| memory.read(threads, &mut bytes));
    bytes[..had]
        .chunks_exact(size_of::<Thread>())
        .map(|thread| {
            (
                half(thread, offset_of!(Thread, tid)),
                word(thread, offset_of!(Thread, handle)),
            )
        })
        .filter(|&(tid, _)| tid != 0)
        .collect()
}

fn word(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

fn half(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;
    use std::sync::atomic::AtomicPtr;

    use morpheus_common::slot::RuntimeSlot;

    static THREADS: [Thread; MOST_THREADS] = [const { Thread::free() }; MOST_THREADS];
    static DIRECTORY: Directory = Directory::new(&THREADS);

    fn own() -> Memory {
        Memory::of(std::process::id())
    }

    fn labels() -> Labels {
        Labels::find(own(), &own().mappings().unwrap())
    }

    #[test]
    fn names_are_found_by_the_mark() {
        let made = |text, line| ptr::from_mut(Box::leak(Box::new(Label::new(text, line))));
        let by_number = [
            made("src/main.rs", 12),
            ptr::null_mut(),
            made("reports", 0),
            made("", 0),
            ptr::dangling_mut(),
        ];
        DIRECTORY.publish_labels(Box::leak(Box::new(by_number.map(AtomicPtr::new))));
        let mut labels = labels();
        assert_eq!(
            labels.directory,
            Some(ptr::from_ref(&DIRECTORY).addr() as u64)
        );
        for _ in 0..2 {
            assert_eq!(labels.name(0), Some("src/main.rs:12"));
            assert_eq!(labels.name(2), Some("reports"));
        }
        for nothing in [1, 3, 4, 5, u32::MAX] {
            assert_eq!(labels.name(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn a_thread_has_the_label_of_its_poll() {
        let slot = RuntimeSlot::new();
        let handle: *const RuntimeSlot = &slot;
        let at = ptr::from_ref(&handle).addr() as u64;
        assert!(THREADS[3].take(77, at as *mut ()));
        assert_eq!(
            handles(own(), labels().directory.unwrap()),
            HashMap::from([(77, at)])
        );
        assert_eq!(watched_at(own(), at), None);
        slot.label.store(5, std::sync::atomic::Ordering::Relaxed);
        let seq = slot.begin_poll();
        assert_eq!(
            watched_at(own(), at),
            Some(Watched {
                poll: seq,
                label: 5
            })
        );
        slot.end_poll(seq);
        assert_eq!(watched_at(own(), at), None);
        assert_eq!(watched_at(own(), 8), None);
    }

    #[test]
    fn a_program_without_morpheus_has_none() {
        let mut labels = Labels::find(own(), &[]);
        assert_eq!(labels.directory, None);
        assert_eq!(labels.name(0), None);
    }
}
