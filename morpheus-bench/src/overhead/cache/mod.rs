//! The cost of getting the contents of a cache to another core: the price of a migration that comes after it.
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

use std::array;
use std::path::Path;
use std::thread;

pub use self::geometry::Geometry;
use morpheus_harness::interrupt;
use morpheus_harness::pairs::Limit;
use morpheus_harness::report::count;
use morpheus_harness::rows::Row;
use morpheus_harness::unit::Unit;

use self::buffer::Buffer;
use self::writer::Writer;
use super::conditions::{Found, lock_memory};
use super::costs;
use super::experiment::{self, Readings, Steps, time_ns};
use crate::cpus;
use crate::random::Random;

const BUFFER: &str = "refill a buffer";
const ABOUT_BUFFER: &str = "its lines are in the caches of the other CPU";
const LINE: &str = "refill a line";
const ABOUT_LINE: &str = "the same, divided by the lines; in the second method no thread migrates; linear and read only \
                          are how the cost is missed";
/// Where the kernel tells of caches.
const SYSFS: &str = "/sys/devices/system/cpu";
/// Lines of a batch of the second method: some microseconds, far more than a look at the clock.
const BATCH: usize = 64;
/// Within which factor the two methods must agree.
const FACTOR: f64 = 2.0;

// Each is followed by its control.
const REFILL: usize = 0;
const LINEAR: usize = 2;
const READ_ONLY: usize = 4;
const SECOND: usize = 6;
/// Their names in a histogram log, where each is the whole buffer; those of the controls end with `-own`.
const WALKS: [&str; 4] = ["walk", "linear", "read-only", "second"];

/// The rows of one size, whose contender is `name`: all that was measured, for each line. All but the two walks are differences to the same with own lines. Past L1 the cost is held against
/// the noise, and the second method against the first.
fn rows(name: &str, lines: usize, past_l1: bool, readings: &Readings<8>) -> Vec<Row> {
    let cost = |kind| readings.difference(kind, kind + 1);
    let line = |figure: &str, ns: Vec<f64>| {
        let of_line = ns.into_iter().map(|ns| ns / lines as f64).collect();
        Row::new(LINE, name, figure, Unit::Time, of_line)
    };
    let mut refill = line("random cycle", cost(REFILL));
    let same = line("A/A", readings.same(REFILL));
    let second = line("2nd method", cost(SECOND));
    let by_first = second.median.zip(refill.median).map(|(a, b)| a / b);
    let by_first = by_first.filter(|times| times.is_finite());
    let by_first = by_first.map(|times| agreement(name, times, past_l1 && refill.low.is_some()));
    if past_l1 {
        refill = costs::beside(refill, &same.rounds);
    }
    let mut rows = vec![refill, same, second];
    rows.extend(by_first);
    rows.extend([
        line("linear", cost(LINEAR)),
        line("read only", cost(READ_ONLY)),
        line("own lines", readings.of(REFILL + 1)),
        line("the walk", readings.of(REFILL)),
    ]);
    rows
}

/// How many times the first method's median that of the second is, held against [`FACTOR`] either way.
fn agreement(name: &str, times: f64, is_held: bool) -> Row {
    let row = Row::new(LINE, name, "2nd ÷ 1st", Unit::Factor, vec![times]);
    match is_held {
        true if times > 1.0 => row.held_exactly(Limit::AtMost(FACTOR)),
        true => row.held_exactly(Limit::AtLeast(1.0 / FACTOR)),
        false => row,
    }
}

/// The first of these CPUs, and the first other that does not share its caches; `None` when there is only one.
pub fn pair(cpus: &[usize]) -> Option<Vec<usize>> {
    let (&from, others) = cpus.split_first()?;
    let apart = others
        .iter()
        .find(|cpu| !geometry::share_l2(Path::new(SYSFS), from, **cpu));
    Some(vec![from, *apart.or(others.first())?])
}

/// Measures in the calling thread, which goes between the two CPUs of `found`; adds the rows. `kib` are the sizes; those
/// from L1 to past L2 when empty.
///
/// # Errors
/// When there is no memory or a CPU cannot be used.
pub fn measure(
    found: &mut Found,
    kib: &[usize],
    seed: u64,
    steps: &mut Steps,
) -> Result<(), String> {
    let &[from, to] = found.config.options.cpus.as_slice() else {
        return Err("a migration needs two CPUs".into());
    };
    let geometry = Geometry::read(Path::new(SYSFS), to, &mut found.notes);
    if geometry::share_l2(Path::new(SYSFS), from, to) {
        found.notes.push(format!(
            "CPU {from} and CPU {to} share the L1 or the L2 cache: what is in it needs no refilling."
        ));
    }
    let sizes = match kib {
        [] => geometry.sizes(),
        _ => kib.iter().map(|kib| kib << 10).collect(),
    };
    let largest = sizes.iter().copied().max().ok_or("no size to measure")?;
    let buffer = Buffer::new(largest, geometry.line_bytes)?;
    note_huge_pages(found, buffer.huge_bytes());
    let mut random = Random::new(seed);
    let experiments = found.config.options.experiments;
    *steps = Steps::new(experiments * sizes.len(), found.config.options.json);
    let past_l1 = |bytes: &usize| *bytes > geometry.l1_bytes;
    if !sizes.iter().any(past_l1) {
        found.notes.push("No size past L1 was measured.".into());
    }
    let measured = thread::scope(|scope| {
        let writer = Writer::start(scope, &buffer, from)?;
        lock_memory(found);
        if !found.config.memory_locked && buffer.lock().is_ok() {
            found
                .notes
                .push("The buffer that is walked through is locked.".into());
        }
        for bytes in interrupt::until(sizes) {
            let (kib, name) = (bytes >> 10, format!("{} KiB", count(bytes as u64 >> 10)));
            steps
                .progress
                .say(format!("lines of CPU {from} on CPU {to}, {name}"));
            let lines = (bytes / geometry.line_bytes).max(1);
            buffer.lay(&random.cycle(lines));
            let mut walker = Walker {
                from,
                to,
                buffer: &buffer,
                writer: &writer,
                lines,
                batches: buffer.batches(lines, BATCH),
                random: &mut random,
            };
            let walk = |kind: usize| WALKS[kind / 2].to_owned() + ["", "-own"][kind % 2];
            let names = array::from_fn(|kind| format!("{kib}KiB-{}", walk(kind)));
            let readings =
                experiment::run(experiments, steps, names, |turn| walker.measure(turn.kind))?;
            let buffer = costs::time(BUFFER, &name, readings.difference(REFILL, REFILL + 1));
            costs::put(found, BUFFER, ABOUT_BUFFER, [buffer]);
            let rows = rows(&name, lines, past_l1(&bytes), &readings);
            costs::put(found, LINE, ABOUT_LINE, rows);
            costs::counted(found, &name, "lines", lines as f64);
            costs::warmed_up(found, &name, readings.warmup);
        }
        Ok(())
    });
    found.config.caches = Some(geometry);
    measured
}

/// Notes how much of the buffer is in huge pages.
fn note_huge_pages(found: &mut Found, huge_bytes: Option<(usize, usize)>) {
    found.notes.push(match huge_bytes {
        Some((huge, all)) if huge == all => "The buffer is in huge pages.".into(),
        Some((huge, all)) => format!(
            "Of {} KiB {} are in huge pages: addresses must be translated more often, in the walk and in its control.",
            all >> 10,
            huge >> 10
        ),
        None => "The kernel does not say whether it gave huge pages.".into(),
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

impl Walker<'_> {
    /// Does what comes before, and returns the nanoseconds of the walk. Always ends on the destination.
    fn measure(&mut self, kind: usize) -> Result<f64, String> {
        // Before, the lines are in the caches of the source, or for a control in those of the destination.
        let (way, control) = (kind & !1, kind & 1 == 1);
        let lines = self.lines;
        if way == SECOND {
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
        let read_only = way == READ_ONLY;
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
        Ok(if way == LINEAR {
            time_ns(|| self.buffer.scan(lines))
        } else {
            time_ns(|| self.buffer.chase(0, lines))
        })
    }
}

#[cfg(test)]
mod tests {
    use morpheus_harness::pairs::Bar;
    use morpheus_harness::rows::view::find;

    use super::super::conditions::{tests::nothing, under};
    use super::*;

    #[test]
    fn every_way_is_measured() {
        let Some(cpus) = pair(&cpus::allowed()) else {
            return morpheus_testing::skip("needs two CPUs");
        };
        let mut found = nothing("cache --experiments 6 --json", &cpus);
        under(&mut found, |found| {
            measure(found, &[8, 10], 1, &mut Steps::new(6, true))
        })
        .unwrap();
        let line_bytes = found.config.caches.as_ref().unwrap().line_bytes;
        for (name, bytes) in [("8 KiB", 8 << 10), ("10 KiB", 10 << 10)] {
            let row = |case: &str, figure: &str| find(&found.rows, case, name, figure).unwrap();
            let lines = row("counted", "lines").median;
            assert_eq!(lines, Some((bytes / line_bytes) as f64));
            for figure in ["the walk", "own lines"] {
                assert!(row(LINE, figure).rounds.iter().all(|ns| *ns > 0.0));
            }
            let (line, whole) = (row(LINE, "random cycle"), row(BUFFER, costs::TIME));
            assert_eq!((line.n, whole.n), (6, 6));
            for (line, whole) in line.rounds.iter().zip(&whole.rounds) {
                assert_eq!(*line, whole / lines.unwrap());
            }
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
        let judged = |times| agreement("64 KiB", times, true).judged;
        for (times, expected) in [
            (0.5, Bar::Met),
            (2.0, Bar::Met),
            (0.49, Bar::Missed),
            (2.1, Bar::Missed),
            (-1.0, Bar::Missed),
        ] {
            assert_eq!(judged(times), Some(expected), "{times}");
        }
        assert_eq!(agreement("8 KiB", 9.0, false).judged, None);
    }
}
