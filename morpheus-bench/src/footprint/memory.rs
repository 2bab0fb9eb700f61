//! The kernel's account of this process's memory: how much there is, and what it is for.
//!
//! All by `/proc/self`. The reader must take hardly any memory itself: with 512 spares `smaps` has half a megabyte
//! of text, so it is read line by line.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};

use serde::{Deserialize, Serialize};

/// glibc's arenas begin at multiples of this (its `HEAP_MAX_SIZE` on 64-bit machines).
const ARENA: u64 = 64 << 20;
/// A mapping behind a guard that is no larger belongs to no thread that runs: alternate stacks for signals, and the
/// stacks of threads that ended, which glibc keeps.
const SMALL_STACK: u64 = 64 << 10;

/// Memory of a process, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Resident: pages that are there (`Rss`).
    pub resident: i64,
    /// The same, pages that others have too by their share (`Pss`).
    pub proportional: i64,
    /// Pages without a file behind them (`Anonymous`): stacks, heap, data that was written. `Private_Dirty` would be the same,
    /// were pages of a program that was just built not dirty as well.
    pub anonymous: i64,
    /// Addresses that are taken (`VmSize`).
    pub mapped: i64,
    /// Mappings.
    pub mappings: i64,
    /// Threads.
    pub threads: i64,
    /// The resident memory, by [`Purpose`].
    split: [i64; PURPOSES],
}

/// The purpose of resident memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Purpose {
    /// Stacks of threads, with what is thread-local.
    Stack,
    /// Small ones: alternate stacks for signals, and stacks of threads that ended.
    SmallStack,
    /// The allocator's: the heap, and the arenas of threads.
    Heap,
    /// Code and data of the program and its libraries, as far as they were used.
    File,
    /// Other memory without a file.
    #[default]
    Other,
}

const PURPOSES: usize = Purpose::Other as usize + 1;

/// Two readings, one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Growth {
    /// The first.
    pub before: Memory,
    /// The second.
    pub after: Memory,
}

impl Growth {
    /// From an earlier reading until now.
    ///
    /// # Errors
    /// As [`Memory::now`].
    pub fn since(before: Memory) -> Result<Self, String> {
        let after = Memory::now()?;
        Ok(Self { before, after })
    }

    /// The growth of a part of the memory.
    pub fn of(&self, part: fn(&Memory) -> i64) -> f64 {
        (part(&self.after) - part(&self.before)) as f64
    }
}

impl Memory {
    /// The memory of this process at this moment.
    ///
    /// # Errors
    /// When `/proc` is not there or cannot be read; the text is for people.
    pub fn now() -> Result<Self, String> {
        Self::read().map_err(|error| format!("/proc/self/smaps cannot be read: {error}"))
    }

    fn read() -> io::Result<Self> {
        let mut memory = Self {
            // Before anything is read that takes memory.
            threads: fs::read_dir("/proc/self/task")?.count() as i64,
            ..Self::default()
        };
        for line in fs::read_to_string("/proc/self/smaps_rollup")?.lines() {
            match field(line) {
                Some(("Rss", bytes)) => memory.resident = bytes,
                Some(("Pss", bytes)) => memory.proportional = bytes,
                Some(("Anonymous", bytes)) => memory.anonymous = bytes,
                _ => {}
            }
        }
        let mut last = Last::default();
        for line in BufReader::with_capacity(4096, File::open("/proc/self/smaps")?).lines() {
            memory.take(&line?, &mut last);
        }
        Ok(memory)
    }

    /// Takes in a line of `smaps`.
    fn take(&mut self, line: &str, last: &mut Last) {
        if let Some(mapping) = Mapping::parse(line) {
            self.mappings += 1;
            self.mapped += (mapping.end - mapping.start) as i64;
            last.purpose = mapping.purpose(last.guard_end == Some(mapping.start));
            last.guard_end = mapping.is_guard.then_some(mapping.end);
        } else if let Some(("Rss", bytes)) = field(line) {
            self.split[last.purpose as usize] += bytes;
        }
    }

    /// How much of it is resident for this.
    pub fn of(&self, purpose: Purpose) -> i64 {
        self.split[purpose as usize]
    }
}

/// A line such as `Rss:    12 kB`, in bytes.
fn field(line: &str) -> Option<(&str, i64)> {
    let (name, value) = line.split_once(':')?;
    let kilobytes: i64 = value.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some((name, kilobytes * 1024))
}

/// The mapping whose lines are read.
#[derive(Default)]
struct Last {
    purpose: Purpose,
    /// Where it ended, if it is a guard (no access).
    guard_end: Option<u64>,
}

/// The head of a mapping's paragraph.
struct Mapping<'a> {
    start: u64,
    end: u64,
    is_guard: bool,
    name: &'a str,
}

impl<'a> Mapping<'a> {
    /// Of a line such as `7f00-7f10 rw-p 00000000 00:00 0  [heap]`.
    fn parse(line: &'a str) -> Option<Self> {
        let (range, rest) = line.split_once(' ')?;
        let (start, end) = range.split_once('-')?;
        let [start, end] = [start, end].map(|number| u64::from_str_radix(number, 16));
        let mut words = rest.splitn(5, ' ');
        let rights = words.next()?;
        Some(Self {
            start: start.ok()?,
            end: end.ok()?,
            is_guard: rights == "---p",
            name: words.nth(3).unwrap_or("").trim(),
        })
    }

    fn purpose(&self, behind_guard: bool) -> Purpose {
        match self.name {
            "[heap]" => Purpose::Heap,
            "[stack]" => Purpose::Stack,
            name if name.starts_with('/') => Purpose::File,
            // Named ones of newer C libraries as well.
            name if !name.is_empty() && !name.starts_with("[anon:") => Purpose::Other,
            _ if self.is_guard => Purpose::Other,
            _ if self.start.is_multiple_of(ARENA) => Purpose::Heap,
            _ if behind_guard && self.end - self.start <= SMALL_STACK => Purpose::SmallStack,
            _ if behind_guard => Purpose::Stack,
            _ => Purpose::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_told_apart() {
        let text = "\
55d000000000-55d000001000 r-xp 00000000 fd:01 7      /usr/bin/a program
Rss:                   4 kB
55d000100000-55d000200000 rw-p 00000000 00:00 0      [heap]
Rss:                  16 kB
Pss:                  16 kB
7f0000000000-7f0000021000 rw-p 00000000 00:00 0 
Rss:                   8 kB
7f0000021000-7f0004000000 ---p 00000000 00:00 0 
Rss:                   0 kB
7f0010001000-7f0010002000 ---p 00000000 00:00 0 
Rss:                   0 kB
7f0010002000-7f0010202000 rw-p 00000000 00:00 0 
Rss:                  24 kB
7f0010301000-7f0010302000 ---p 00000000 00:00 0 
Rss:                   0 kB
7f0010302000-7f0010304000 rw-p 00000000 00:00 0 
Rss:                   2 kB
7f0010400000-7f0010404000 rw-p 00000000 00:00 0      [anon:something]
Rss:                   1 kB
7ffc00000000-7ffc00001000 r-xp 00000000 00:00 0      [vdso]
Rss:                  32 kB
VmFlags: rd ex mr mw me de sd";
        let (mut memory, mut last) = (Memory::default(), Last::default());
        text.lines().for_each(|line| memory.take(line, &mut last));
        for (purpose, kilobytes) in [
            (Purpose::Stack, 24),
            (Purpose::SmallStack, 2),
            (Purpose::Heap, 24),
            (Purpose::Other, 33),
            (Purpose::File, 4),
        ] {
            assert_eq!(memory.of(purpose), kilobytes * 1024, "{purpose:?}");
        }
        assert_eq!(memory.mappings, 10);
        let arena = 64 << 20;
        assert!((arena + (2 << 20)..arena + (4 << 20)).contains(&memory.mapped));
    }

    /// Pages that were written are resident, and no others.
    #[test]
    fn pages_that_were_written_are_resident() {
        let before = Memory::now().unwrap();
        assert!(before.threads > 0 && before.mappings > 0 && before.mapped > before.resident);
        let mut block = vec![0_u8; 256 << 20];
        block[..32 << 20].fill(1);
        let since = Growth::since(before).unwrap();
        std::hint::black_box(&block);
        // Other tests run beside it.
        let mebibytes = |part: fn(&Memory) -> i64| since.of(part) / f64::from(1 << 20);
        let resident = mebibytes(|memory| memory.resident);
        assert!((30.0..200.0).contains(&resident), "{since:?}");
        assert!(mebibytes(|memory| memory.anonymous) > 30.0, "{since:?}");
        let own = |memory: &Memory| memory.of(Purpose::Other) + memory.of(Purpose::Heap);
        assert!(mebibytes(own) > 30.0, "{since:?}");
        assert!(mebibytes(|memory| memory.mapped) > 200.0, "{since:?}");
    }
}
