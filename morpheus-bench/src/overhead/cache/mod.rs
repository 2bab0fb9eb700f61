//! What it costs to get the contents of a cache to another core: the price of a migration that comes after it.
//!
//! **The measurement.** A thread writes to lines on the source CPU, goes to the destination and follows a random cycle
//! through all of them. The control is the same thread that writes on the destination, goes to the source and back, and
//! follows the same cycle: the same calls, the same core that reads, but own lines. The difference is what the lines cost.
//! (Where a CPU that goes idle loses its L1, so does the control: its lines then come from L2, and the cost on a size within
//! L1 is that much less. On sizes past L2 both have most of their lines from the cache that the cores share.)
//! Every part of it is needed, which the two naive ways beside it show:
//!
//! - *linear*: the lines are read in their order. The prefetcher sees that and brings them while others are read.
//! - *read only*: the lines were only read on the source. Then the destination still has its copies of them from before.
//!   (Flushing them instead would have them come from memory, which no migration does.)
//!
//! **The second method** shows that it is the lines which cost, and not what else a migration leaves behind (translations of
//! addresses, the kernel's own footprint). No thread migrates: one stays on the source CPU and writes to the lines, the
//! other stays on the destination and is handed them in batches of a few, in random order, each timed by itself. Where the
//! lines are is the same at every size: in what the source's caches keep of a buffer of that size just written. So what must
//! be paid for each is the same, and the two figures must agree.

mod buffer;
mod geometry;
mod writer;

use crate::cpus;
use std::path::Path;
use std::thread;

use serde::Serialize;

use self::buffer::{Buffer, time_ns};
pub use self::geometry::Geometry;
use self::writer::Writer;
use super::conditions::Conditions;
use super::experiment::{self, Readings, Steps, Warmup};
use super::random::Random;
use super::statistics::Figure;
use crate::interrupt;

/// Where the kernel tells of caches.
const SYSFS: &str = "/sys/devices/system/cpu";
/// Lines of a batch of the second method: some microseconds, far more than a look at the clock.
const BATCH: usize = 64;
/// Within which factor the two methods must agree.
pub const FACTOR: f64 = 2.0;

// Each is followed by its control.
const REFILL: usize = 0;
const LINEAR: usize = 2;
const READ_ONLY: usize = 4;
const SECOND: usize = 6;
/// What they are called in a histogram log, where each is the whole buffer.
const WALKS: [&str; 8] = [
    "walk",
    "walk-own",
    "linear",
    "linear-own",
    "read-only",
    "read-only-own",
    "second",
    "second-own",
];

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Cache {
    /// The caches of the destination.
    pub geometry: Geometry,
    /// The seed of the cycles.
    pub seed: u64,
    /// Bytes of the buffer, and how many of them are in huge pages; `None` where the kernel does not tell.
    pub huge_bytes: Option<(usize, usize)>,
    /// By size, those that were measured.
    pub sizes: Vec<Size>,
}

/// The costs for one size. All but `walk` and `control` are differences to the same with own lines.
#[derive(Clone, Debug, Serialize)]
pub struct Size {
    /// Bytes that are dirty.
    pub bytes: usize,
    /// Lines that these are.
    pub lines: usize,
    /// Whether the L1 cache is smaller.
    pub past_l1: bool,
    /// Experiments before.
    pub warmup: Warmup,
    /// The walk over the lines of the other core, the whole buffer.
    pub walk: Figure,
    /// The walk over own lines, the whole buffer.
    pub control: Figure,
    /// The cost of refilling, the whole buffer.
    pub refill: Figure,
    /// A/A: two walks over the other core's lines, the whole buffer.
    pub same: Figure,
    /// The second method, the whole buffer.
    pub second: Figure,
    /// Read in order instead of at random, the whole buffer.
    pub linear: Figure,
    /// Only read on the source instead of written, the whole buffer.
    pub read_only: Figure,
    /// The cost of refilling a line.
    pub refill_of_line: Figure,
    /// Whether the cost is surely positive: its interval lies above 0 and above that of A/A.
    pub positive: bool,
    /// The median of the second method divided by that of the first.
    pub second_by_first: f64,
}

impl Size {
    fn of(bytes: usize, lines: usize, past_l1: bool, readings: &Readings<8>) -> Option<Self> {
        let cost = |kind| readings.difference(kind, kind + 1);
        let (refill, second, same) = (cost(REFILL)?, cost(SECOND)?, readings.same(REFILL)?);
        Some(Self {
            bytes,
            lines,
            past_l1,
            warmup: readings.warmup,
            walk: readings.of(REFILL)?,
            control: readings.of(REFILL + 1)?,
            linear: cost(LINEAR)?,
            read_only: cost(READ_ONLY)?,
            refill_of_line: refill.divided(lines as f64),
            positive: refill.is_positive_beside(&same),
            second_by_first: second.median_ns / refill.median_ns,
            refill,
            same,
            second,
        })
    }

    /// Whether the second method found about the same.
    pub fn agrees(&self) -> bool {
        (1.0 / FACTOR..=FACTOR).contains(&self.second_by_first)
    }
}

/// The first of these CPUs, and the first other that does not share its caches; `None` when there is only one.
pub fn pair(cpus: &[usize]) -> Option<(usize, usize)> {
    let (&from, others) = cpus.split_first()?;
    let apart = others
        .iter()
        .find(|cpu| !geometry::share_l2(Path::new(SYSFS), from, **cpu));
    Some((from, *apart.or(others.first())?))
}

/// Measures in the calling thread, which goes between the two CPUs of `conditions`. `sizes` in bytes; those from L1 to past
/// L2 when empty.
///
/// # Errors
/// When there is no memory or a CPU cannot be used.
pub fn measure(
    conditions: &mut Conditions,
    experiments: usize,
    sizes: &[usize],
    seed: u64,
    steps: &mut Steps,
) -> Result<Cache, String> {
    let &[from, to] = conditions.cpus.as_slice() else {
        return Err("a migration needs two CPUs".into());
    };
    let geometry = Geometry::read(Path::new(SYSFS), to);
    conditions.notes.extend(geometry.notes.clone());
    if geometry::share_l2(Path::new(SYSFS), from, to) {
        conditions.notes.push(format!(
            "CPU {from} and CPU {to} share the L1 or the L2 cache: what is in it needs no refilling."
        ));
    }
    let sizes = if sizes.is_empty() {
        geometry.sizes()
    } else {
        sizes.to_vec()
    };
    let largest = sizes.iter().copied().max().ok_or("no size to measure")?;
    let buffer = Buffer::new(largest, geometry.line_bytes)?;
    let huge_bytes = buffer.huge_bytes();
    note_huge_pages(conditions, huge_bytes);
    let mut random = Random::new(seed);
    steps.expect(experiments * sizes.len());
    let measured = thread::scope(|scope| {
        let writer = Writer::start(scope, &buffer, from)?;
        conditions.lock_memory();
        if !conditions.memory_locked && buffer.lock().is_ok() {
            conditions
                .notes
                .push("The buffer that is walked through is locked.".into());
        }
        let mut measured = Vec::new();
        for bytes in sizes {
            if interrupt::happened() {
                break;
            }
            steps.say(format!(
                "lines of CPU {from} on CPU {to}, {} KiB",
                bytes >> 10
            ));
            let lines = (bytes / geometry.line_bytes).max(1);
            let mut walker = Walker::new(from, to, &buffer, &writer, lines, &mut random);
            let names = WALKS.map(|walk| format!("{}KiB-{walk}", bytes >> 10));
            let readings =
                experiment::run(experiments, steps, names, |turn| walker.measure(turn.kind))?;
            measured.extend(Size::of(bytes, lines, bytes > geometry.l1_bytes, &readings));
        }
        Ok::<_, String>(measured)
    });
    Ok(Cache {
        geometry,
        seed,
        huge_bytes,
        sizes: measured?,
    })
}

fn note_huge_pages(conditions: &mut Conditions, huge_bytes: Option<(usize, usize)>) {
    conditions.notes.extend(match huge_bytes {
        Some((huge, all)) if huge == all => None,
        Some((huge, all)) => Some(format!(
            "Of {} KiB {} are in huge pages: addresses must be translated more often, in the walk and in its control.",
            all >> 10,
            huge >> 10
        )),
        None => Some("The kernel does not say whether it gave huge pages.".into()),
    });
}

/// Walks through the lines, now on one CPU, now on the other.
struct Walker<'a> {
    from: usize,
    to: usize,
    buffer: &'a Buffer,
    writer: &'a Writer,
    lines: usize,
    /// Where each batch begins, and how many lines it has.
    batches: Vec<(usize, usize)>,
    random: &'a mut Random,
}

impl<'a> Walker<'a> {
    fn new(
        from: usize,
        to: usize,
        buffer: &'a Buffer,
        writer: &'a Writer,
        lines: usize,
        random: &'a mut Random,
    ) -> Self {
        buffer.lay(&random.cycle(lines));
        let left = (0..lines)
            .step_by(BATCH)
            .map(|done| BATCH.min(lines - done));
        let batches = buffer.starts(lines, BATCH).into_iter().zip(left).collect();
        Self {
            from,
            to,
            buffer,
            writer,
            lines,
            batches,
            random,
        }
    }

    /// Does what comes before, and returns the nanoseconds of the walk. Always ends on the destination.
    fn measure(&mut self, kind: usize) -> Result<f64, String> {
        // What the lines are in before: in the caches of the source, or of the destination for a control.
        let control = kind % 2 == 1;
        let lines = self.lines;
        if kind - usize::from(control) == SECOND {
            cpus::pin(self.to)?;
            self.random.shuffle(&mut self.batches);
            if control {
                self.buffer.dirty(lines);
            }
            self.writer.dirty(if control { 0 } else { lines })?;
            let time =
                |&(start, steps): &(usize, usize)| time_ns(|| self.buffer.chase(start, steps));
            return Ok(self.batches.iter().map(time).sum());
        }
        let read_only = kind - usize::from(control) == READ_ONLY;
        if read_only {
            // More than once: a core that reads a dirty line of another may take it over as its own, so that it is only
            // after the second time that both have a copy.
            for cpu in [self.to, self.from, self.to] {
                cpus::pin(cpu)?;
                self.buffer.chase(0, lines);
            }
        }
        cpus::pin(if control { self.to } else { self.from })?;
        match (read_only, control) {
            (false, _) => self.buffer.dirty(lines),
            (true, false) => drop(self.buffer.scan(lines)),
            // It has just read them.
            (true, true) => {}
        }
        cpus::pin(self.from)?;
        cpus::pin(self.to)?;
        Ok(if kind - usize::from(control) == LINEAR {
            time_ns(|| self.buffer.scan(lines))
        } else {
            time_ns(|| self.buffer.chase(0, lines))
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A size of which every reading is 64 ns.
    pub fn size(bytes: usize, past_l1: bool, positive: bool, second_by_first: f64) -> Size {
        let figure = Figure::of(&[64.0; 6]).unwrap();
        Size {
            bytes,
            lines: bytes / 64,
            past_l1,
            warmup: Warmup::default(),
            walk: figure.clone(),
            control: figure.clone(),
            refill: figure.clone(),
            same: figure.clone(),
            second: figure.clone(),
            linear: figure.clone(),
            read_only: figure.clone(),
            refill_of_line: figure,
            positive,
            second_by_first,
        }
    }

    #[test]
    fn every_way_is_measured() {
        let Some((from, to)) = pair(&cpus::allowed()) else {
            return morpheus_testing::skip("needs two CPUs");
        };
        let (_, cache) = Conditions::measure(&[from, to], |conditions| {
            measure(
                conditions,
                6,
                &[8 << 10, 10_000],
                1,
                &mut Steps::new(6, true),
            )
        })
        .unwrap();
        let lines: Vec<usize> = cache.sizes.iter().map(|size| size.lines).collect();
        let line_bytes = cache.geometry.line_bytes;
        assert_eq!(lines, [(8 << 10) / line_bytes, 10_000 / line_bytes]);
        for size in &cache.sizes {
            assert_eq!(size.refill.n, 6);
            assert!(size.walk.min_ns > 0.0 && size.control.min_ns > 0.0);
            assert_eq!(
                size.refill_of_line.median_ns,
                size.refill.median_ns / size.lines as f64
            );
        }
    }

    #[test]
    fn a_pair_needs_two() {
        assert_eq!(pair(&[]), None);
        assert_eq!(pair(&[3]), None);
        assert!(pair(&[100_000, 100_001]).is_some());
    }

    #[test]
    fn agreement_is_within_a_factor_either_way() {
        let size = |second_by_first| size(64, true, true, second_by_first);
        assert!(size(0.5).agrees() && size(2.0).agrees());
        assert!(!size(0.49).agrees() && !size(2.1).agrees() && !size(-1.0).agrees());
        assert!(!size(f64::NAN).agrees());
    }
}
