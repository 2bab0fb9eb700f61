//! Threads that work and sleep by turns, and notice how long they had to wait for a CPU.

use std::ffi::CStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use morpheus_harness::clock::{monotonic_ns, thread_cpu};
use morpheus_harness::thread;

use crate::jitter::sleep::Call;
use crate::{cpus, work};

/// Iterations of [`work::compute`] between two looks at the clock: 8 µs, and a quarter of a millisecond in an emulator.
const CHUNK: u64 = 4_000;
/// The same of tasks that work for less than [`SHORT`] at a time.
const SHORT_CHUNK: u64 = 500;
const SHORT: Duration = Duration::from_millis(1);
/// A chunk takes no more CPU time than this, also on an emulated CPU that is one of several.
const CHUNK_MOST_NS: u64 = 10_000_000;

/// How a thread of a crowd lives.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    /// The thread's name in the kernel.
    pub name: &'static CStr,
    /// CPU time that it works for in a turn.
    pub work: Duration,
    /// How long it sleeps then; nothing is a batch task.
    pub sleep: Duration,
    /// The CPU that it keeps to.
    pub cpu: Option<usize>,
    /// Its priority, from -20 to 19; other values than 0 need root.
    pub nice: i32,
}

impl Member {
    /// Computes all the time.
    pub const BATCH: Self = Self::new(c"scale-batch", 10_000, 0);
    /// Wants three fifths of a CPU, a little at a time.
    pub const INTERACTIVE: Self = Self::new(c"scale-inter", 1_500, 1_000);
    /// Wants four fifths of a CPU, with a pause now and then, as for a disk.
    pub const IO: Self = Self::new(c"scale-io", 20_000, 5_000);

    /// The same that keeps to a CPU.
    pub fn on(self, cpu: usize) -> Self {
        Self {
            cpu: Some(cpu),
            ..self
        }
    }

    const fn new(name: &'static CStr, work_us: u64, sleep_us: u64) -> Self {
        Self {
            name,
            work: Duration::from_micros(work_us),
            sleep: Duration::from_micros(sleep_us),
            cpu: None,
            nice: 0,
        }
    }
}

/// The waits and CPU time of a thread since the last reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Felt {
    /// The longest that it was runnable and did not run, late wakes included, and a wait that goes on.
    pub longest_wait_ns: u64,
    /// CPU time that it had.
    pub cpu_ns: u64,
    /// Turns.
    pub turns: u64,
}

/// Threads at work, until this is dropped.
pub struct Crowd {
    stop: Arc<AtomicBool>,
    threads: Vec<(Arc<Notes>, JoinHandle<()>)>,
    seen: Arc<Vec<AtomicU64>>,
}

/// The counters that a thread writes and others read.
#[derive(Debug, Default)]
struct Notes {
    longest_wait_ns: AtomicU64,
    cpu_ns: AtomicU64,
    turns: AtomicU64,
    tid: AtomicU64,
    /// Since when it may have been waiting, by [`monotonic_ns`]; 0 while it sleeps.
    since_ns: AtomicU64,
}

impl Crowd {
    /// Starts these.
    ///
    /// # Errors
    /// When a thread cannot be started; the text is for people.
    pub fn start(members: impl IntoIterator<Item = Member>) -> Result<Self, String> {
        let mut crowd = Self {
            stop: Arc::default(),
            threads: Vec::new(),
            seen: Arc::new((0..libc::CPU_SETSIZE).map(|_| AtomicU64::new(0)).collect()),
        };
        for member in members {
            let notes = Arc::new(Notes::default());
            let (stop, own, seen) = (crowd.stop.clone(), notes.clone(), crowd.seen.clone());
            let thread = thread::start(move || live(member, &stop, &own, &seen))?;
            crowd.threads.push((notes, thread));
        }
        Ok(crowd)
    }

    /// The waits and CPU time of each thread since the last call.
    pub fn felt(&self) -> Vec<Felt> {
        let now_ns = monotonic_ns();
        let one = |notes: &Notes| {
            let ended_ns = notes.longest_wait_ns.swap(0, Relaxed);
            let since_ns = notes.since_ns.load(Relaxed);
            // Of one that runs this is the chunk that it is at.
            let present_ns = match since_ns {
                0 => 0,
                _ => now_ns.saturating_sub(since_ns + CHUNK_MOST_NS),
            };
            Felt {
                longest_wait_ns: ended_ns.max(present_ns),
                cpu_ns: notes.cpu_ns.swap(0, Relaxed),
                turns: notes.turns.swap(0, Relaxed),
            }
        };
        self.threads.iter().map(|(notes, _)| one(notes)).collect()
    }

    /// When one of them was last seen to run on a CPU, by [`monotonic_ns`]; 0 is never.
    pub fn last_on(&self, cpu: usize) -> u64 {
        self.seen.get(cpu).map_or(0, |seen| seen.load(Relaxed))
    }

    /// Has all of them keep to these CPUs.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn keep_to(&self, cpus: &[usize]) -> Result<(), String> {
        let set = cpus::Cpus::of(cpus);
        for tid in self.tids() {
            set.give_to(tid)
                .map_err(|error| format!("a thread cannot be moved to CPUs {cpus:?}: {error}"))?;
        }
        Ok(())
    }

    /// The kernel's numbers of its threads, once each has begun.
    pub fn tids(&self) -> impl Iterator<Item = u32> {
        self.threads.iter().map(|(notes, _)| {
            loop {
                match notes.tid.load(Relaxed) {
                    0 => std::thread::sleep(Duration::from_millis(1)),
                    tid => return tid as u32,
                }
            }
        })
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        for (_, thread) in self.threads.drain(..) {
            // One that panicked has said so.
            let _ = thread.join();
        }
    }
}

fn live(member: Member, stop: &AtomicBool, notes: &Notes, seen: &[AtomicU64]) {
    thread::name_current(member.name);
    thread::set_timer_slack(1);
    notes.tid.store(thread::id() as u64, Relaxed);
    // A CPU that is offline: the thread then runs where it can, which the figures show.
    let _ = member.cpu.map(cpus::pin);
    if member.nice != 0 {
        // Without the right to it the thread has the usual priority, which the figures show.
        thread::set_nice(0, member.nice);
    }
    let is_short = member.work < SHORT;
    let chunk = if is_short { SHORT_CHUNK } else { CHUNK };
    let (mut now_ns, mut cpu) = (monotonic_ns(), thread_cpu());
    notes.since_ns.store(now_ns, Relaxed);
    while !stop.load(Relaxed) {
        let turn_end = cpu + member.work;
        while cpu < turn_end && !stop.load(Relaxed) {
            work::compute_in_turn(chunk);
            // The CPU time first: what is lost between the two looks would otherwise be a wait.
            let used = thread_cpu();
            let (after_ns, ran_ns) = (monotonic_ns(), (used - cpu).as_nanos() as u64);
            let waited_ns = (after_ns - now_ns).saturating_sub(ran_ns);
            notes.longest_wait_ns.fetch_max(waited_ns, Relaxed);
            notes.cpu_ns.fetch_add(ran_ns, Relaxed);
            if let Some(seen) = cpus::current().and_then(|cpu| seen.get(cpu)) {
                seen.store(after_ns, Relaxed);
            }
            (now_ns, cpu) = (after_ns, used);
            notes.since_ns.store(now_ns, Relaxed);
        }
        notes.turns.fetch_add(1, Relaxed);
        if !member.sleep.is_zero() {
            let due = monotonic_ns() + member.sleep.as_nanos() as u64;
            notes.since_ns.store(0, Relaxed);
            Call::Nanosleep.sleep_until(due);
            (now_ns, cpu) = (monotonic_ns(), thread_cpu());
            notes.since_ns.store(now_ns, Relaxed);
            let late_ns = now_ns.saturating_sub(due);
            notes.longest_wait_ns.fetch_max(late_ns, Relaxed);
        }
    }
}

/// The longest wait of some.
pub fn longest(felt: &[Felt]) -> u64 {
    let each = felt.iter().map(|felt| felt.longest_wait_ns);
    each.max().unwrap_or(0)
}

/// The CPU time of all together, in nanoseconds.
pub fn cpu_ns(felt: &[Felt]) -> u64 {
    felt.iter().map(|felt| felt.cpu_ns).sum()
}

/// The least CPU time of some, as a share of their mean.
pub fn least_share(felt: &[Felt]) -> f64 {
    let all = cpu_ns(felt);
    let least = felt.iter().map(|felt| felt.cpu_ns).min().unwrap_or(0);
    least as f64 * felt.len() as f64 / all.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_share_a_cpu_wait_and_say_so() {
        let cpu = cpus::allowed()[0];
        let member = Member {
            cpu: Some(cpu),
            ..Member::BATCH
        };
        let crowd = Crowd::start([member; 3]).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        crowd.felt();
        let begun = monotonic_ns();
        std::thread::sleep(Duration::from_millis(400));
        let felt = crowd.felt();
        let wall_ns = monotonic_ns() - begun;
        let cpu_ns: u64 = felt.iter().map(|felt| felt.cpu_ns).sum();
        // One CPU, and a chunk that began before.
        assert!(cpu_ns > 0 && cpu_ns < wall_ns * 5 / 4, "{felt:?}");
        assert!(
            longest(&felt) > 500_000 && longest(&felt) < wall_ns,
            "{felt:?}"
        );
        assert!(crowd.last_on(cpu) > begun);
    }

    #[test]
    fn who_sleeps_does_not_wait() {
        let member = Member {
            work: Duration::from_micros(100),
            sleep: Duration::from_millis(300),
            ..Member::INTERACTIVE
        };
        let crowd = Crowd::start([member]).unwrap();
        std::thread::sleep(Duration::from_millis(700));
        let felt = crowd.felt();
        assert!(
            felt[0].turns >= 1 && longest(&felt) < 250_000_000,
            "{felt:?}"
        );
    }

    #[test]
    fn shares() {
        let of = |cpu_ns: u64| Felt {
            cpu_ns,
            ..Felt::default()
        };
        assert_eq!(least_share(&[of(10), of(30)]), 0.5);
        assert_eq!(least_share(&[of(7); 4]), 1.0);
        assert_eq!(least_share(&[of(0), of(9)]), 0.0);
    }
}
