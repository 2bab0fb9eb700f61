//! Memory to fill caches with, in huge pages where the kernel gives them, and the ways to walk through it.
//!
//! In small pages most of a walk would be translating addresses, and which sets of the cache they fall on would be chance.
//! The first word of each line says which line is next; the second is what is written to make the line dirty.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::{fs, io, slice};

use memmap2::{Advice, MmapMut, MmapRaw};

use morpheus_harness::host;

/// A huge page where the kernel does not say how large one is.
const HUGE_BYTES: usize = 2 << 20;

/// A mapping of its own. All of it is there from the start.
pub struct Buffer {
    mapping: MmapRaw,
    /// Where the first huge page begins in it, in bytes.
    begins: usize,
    bytes: usize,
    words_of_line: usize,
}

impl Buffer {
    fn start(&self) -> *const AtomicU64 {
        self.mapping.as_ptr().wrapping_add(self.begins).cast()
    }

    /// For this many bytes, in lines of `line_bytes` (a power of two of at least 16).
    ///
    /// # Errors
    /// When there is no memory.
    pub fn new(bytes: usize, line_bytes: usize) -> Result<Self, String> {
        let huge = host::line("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size")
            .and_then(|text| text.parse::<usize>().ok())
            .filter(|bytes| bytes.is_power_of_two())
            .unwrap_or(HUGE_BYTES);
        let bytes = bytes.max(1).next_multiple_of(huge);
        // One more, so that a huge page can begin where one must.
        let mapping: MmapRaw = MmapMut::map_anon(bytes + huge)
            .map_err(|error| format!("no memory for a buffer of {bytes} bytes: {error}"))?
            .into();
        let begins = mapping.as_ptr().align_offset(huge).min(huge);
        // A refusal changes nothing, and `huge_bytes` tells.
        let _ = mapping.advise_range(Advice::HugePage, begins, bytes);
        let buffer = Self {
            mapping,
            begins,
            bytes,
            words_of_line: line_bytes.max(16) / size_of::<AtomicU64>(),
        };
        for word in buffer.words() {
            // Relaxed: no other thread knows the buffer yet.
            word.store(0, Ordering::Relaxed);
        }
        Ok(buffer)
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: `bytes` from `start` on lie within the mapping, which is zeroed, aligned to a page, and there until drop.
        unsafe { slice::from_raw_parts(self.start(), self.bytes / size_of::<AtomicU64>()) }
    }

    /// How many of its bytes are in huge pages, and how many it has; `None` where the kernel does not tell.
    pub fn huge_bytes(&self) -> Option<(usize, usize)> {
        let smaps = fs::read_to_string("/proc/self/smaps").ok()?;
        let huge = huge_of(&smaps, self.start() as usize)?;
        Some((huge.min(self.bytes), self.bytes))
    }

    /// Keeps it in RAM: for where not all memory of the process may be.
    ///
    /// # Errors
    /// Without the right to, or beyond the limit.
    pub fn lock(&self) -> io::Result<()> {
        self.mapping.lock()
    }

    /// Lays the cycle: `next[line]` is the line after `line`. Lines beyond the buffer are left out.
    pub fn lay(&self, next: &[usize]) {
        let first_words = self.words().iter().step_by(self.words_of_line);
        for (word, next) in first_words.zip(next) {
            // Relaxed, here and below: a channel or the same thread orders what others do.
            word.store((next * self.words_of_line) as u64, Ordering::Relaxed);
        }
    }

    /// Writes to each of the first `lines` lines.
    pub fn dirty(&self, lines: usize) {
        let second_words = self.words().iter().skip(1).step_by(self.words_of_line);
        for (value, word) in second_words.take(lines).enumerate() {
            word.store(value as u64, Ordering::Relaxed);
        }
    }

    /// Follows the cycle for `steps` steps, from the line where `at` is: each address is known only when the line before
    /// it has come. Returns where it ends.
    #[inline(never)]
    pub fn chase(&self, at: usize, steps: usize) -> usize {
        let words = self.words();
        let mut at = at;
        for _ in 0..steps {
            at = words[at].load(Ordering::Relaxed) as usize;
        }
        black_box(at)
    }

    /// Reads each of the first `lines` lines in their order, as one who fills a cache naively does.
    #[inline(never)]
    pub fn scan(&self, lines: usize) -> u64 {
        let first_words = self.words().iter().step_by(self.words_of_line);
        let sum = first_words.take(lines).fold(0_u64, |sum, word| {
            sum.wrapping_add(word.load(Ordering::Relaxed))
        });
        black_box(sum)
    }

    /// The cycle of `lines` lines in batches of at most `most`: where each begins, the first with line 0, and its steps.
    pub fn batches(&self, lines: usize, most: usize) -> Vec<(usize, usize)> {
        let mut at = 0;
        let batch = |done: usize| {
            let (start, steps) = (at, most.min(lines - done));
            at = self.chase(start, steps);
            (start, steps)
        };
        (0..lines).step_by(most).map(batch).collect()
    }
}

/// The bytes in huge pages of the mapping that holds `address`.
fn huge_of(smaps: &str, address: usize) -> Option<usize> {
    let range = |line: &str| {
        let (low, high) = line.split(' ').next()?.split_once('-')?;
        let number = |text| usize::from_str_radix(text, 16).ok();
        Some(number(low)?..number(high)?)
    };
    let mut lines = smaps.lines();
    lines.find(|line| range(line).is_some_and(|range| range.contains(&address)))?;
    let huge = lines.find_map(|line| line.strip_prefix("AnonHugePages:"))?;
    let kib: usize = huge.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    #[test]
    fn a_chase_visits_every_line_and_comes_back() {
        let buffer = Buffer::new(64 << 10, 64).unwrap();
        let lines = 1_000;
        buffer.lay(&Random::new(1).cycle(lines));
        // Writes that make lines dirty must not change the way.
        buffer.dirty(lines);
        let mut seen = vec![false; lines];
        let mut at = 0;
        for _ in 0..lines {
            assert_eq!(at % 8, 0);
            assert!(!std::mem::replace(&mut seen[at / 8], true));
            at = buffer.chase(at, 1);
        }
        assert_eq!((at, buffer.chase(0, lines)), (0, 0));
        assert_eq!(
            buffer.scan(lines),
            (0..lines as u64).map(|line| line * 8).sum::<u64>()
        );
    }

    #[test]
    fn batches_are_the_whole_cycle() {
        let buffer = Buffer::new(64 << 10, 64).unwrap();
        buffer.lay(&Random::new(2).cycle(100));
        let (starts, steps): (Vec<usize>, Vec<usize>) = buffer.batches(100, 30).into_iter().unzip();
        assert_eq!(steps, [30, 30, 30, 10]);
        assert_eq!(starts[0], 0);
        for pair in starts.windows(2) {
            assert_eq!(buffer.chase(pair[0], 30), pair[1]);
        }
        assert_eq!(buffer.chase(starts[3], 10), 0);
    }

    #[test]
    fn the_kernel_tells_of_huge_pages_or_not_but_never_too_many() {
        let buffer = Buffer::new(3 << 20, 64).unwrap();
        if let Some((huge, all)) = buffer.huge_bytes() {
            assert!(huge <= all && all >= 3 << 20);
        }
    }

    #[test]
    fn huge_pages_are_those_of_the_mapping_asked_for() {
        let smaps = "\
7f0000000000-7f0000200000 rw-p 00000000 00:00 0 \nSize:               2048 kB\nAnonHugePages:         0 kB\n\
7f0000200000-7f0000800000 rw-p 00000000 00:00 0 \nSize:               6144 kB\nAnonHugePages:      4096 kB\n\
VmFlags: rd wr mr mw me ac sd hg\n";
        assert_eq!(huge_of(smaps, 0x7f00_0000_0000), Some(0));
        assert_eq!(huge_of(smaps, 0x7f00_0040_0000), Some(4 << 20));
        assert_eq!(huge_of(smaps, 0x1000), None);
        assert_eq!(huge_of("", 0), None);
    }
}
