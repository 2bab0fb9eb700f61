//! What tokio's own counters say of its cores, once a sample.
//!
//! A *core* is tokio's word for what a worker thread runs: a queue and a place in the idle set. Threads
//! come and go under it (`block_in_place`), so whether work is being served is asked of cores, not of
//! threads. The stable `worker_park_unpark_count` is odd while a core is parked.

use tokio::runtime::RuntimeMetrics;

use crate::domain::Domain;
use crate::os::asleep::ThreadStat;
use crate::os::clock;
use crate::settings::DEFAULT_EVENT_INTERVAL;
use crate::settings::Settings;

/// A active core that shows no sign of life for so long is a sign of pressure, if it also [computed](COMPUTED_NS)
/// or sleeps.
const PRESSURE_NS: u64 = 3_000_000;
/// This much CPU time without a sign of life, at tokio's own interval between two signs; more at longer ones. One that used less was preempted: with more threads than CPUs each
/// stands now and then, and to answer that with more threads would feed on itself. A sample less than
/// [`PRESSURE_NS`]: that much may pass between its last sign and the first sample at it.
const COMPUTED_NS: u64 = 2_000_000;
/// Under a quota that the threads are not confined to, that many times as much: 61 polls of 160 µs. A spare that computes
/// beside a worker makes the kernel stop both for longer than such polls last.
const PATIENCE_UNDER_QUOTA: u64 = 5;
/// Where its thread is not known, because it has had its core for a short time only and has not parked since. The same.
const UNKNOWN_PRESSURE_NS: u64 = 20_000_000;

/// How many times longer than with tokio's own interval, and without a quota, a core may go without a sign of life and be
/// well.
fn patience(settings: &Settings, is_throttled: bool) -> u64 {
    let by_interval = (settings.event_interval / u64::from(DEFAULT_EVENT_INTERVAL)).max(1);
    if is_throttled {
        by_interval.saturating_mul(PATIENCE_UNDER_QUOTA)
    } else {
        by_interval
    }
}

/// Signs of life are that it parks, unparks, or passes its maintenance, as it does every `event_interval` polls.
#[derive(Clone, Copy, Debug)]
struct Seen {
    parks: u64,
    /// Busy time that tokio reports, which grows when a core passes its maintenance.
    busy_ns: u64,
    /// Since when neither of the two moved, or the core was last held or parked.
    stands_since_ns: u64,
    /// Its thread, and the CPU time of that at the first and at the last sample that saw no sign of life.
    thread: Option<Used>,
    poked: bool,
}

#[derive(Clone, Copy, Debug)]
struct Used {
    tid: u32,
    first_ns: u64,
    last_ns: u64,
}

impl Seen {
    fn alive(parks: u64, busy_ns: u64, now_ns: u64) -> Seen {
        Seen {
            parks,
            busy_ns,
            stands_since_ns: now_ns,
            thread: None,
            poked: false,
        }
    }

    /// Whether a core that gave no sign of life has been in a poll that computes or sleeps for [`PRESSURE_NS`], and is
    /// not just waiting for a CPU.
    fn suspicion(&mut self, now_ns: u64, thread: Option<u32>, patience: u64) -> Suspicion {
        let stands_ns = now_ns - self.stands_since_ns;
        let Some((tid, cpu_ns)) = thread.and_then(|tid| Some((tid, clock::cpu_ns_of(tid)?))) else {
            return match stands_ns >= UNKNOWN_PRESSURE_NS.saturating_mul(patience) {
                true => Suspicion::Pressure,
                false => Suspicion::None,
            };
        };
        let fresh = Used {
            tid,
            first_ns: cpu_ns,
            last_ns: cpu_ns,
        };
        let before = self.thread.filter(|used| used.tid == tid).unwrap_or(fresh);
        self.thread = Some(Used {
            last_ns: cpu_ns,
            ..before
        });
        if stands_ns < PRESSURE_NS {
            Suspicion::None
        } else if cpu_ns == before.last_ns {
            Suspicion::MaySleep(tid)
        } else if cpu_ns.saturating_sub(before.first_ns) >= COMPUTED_NS.saturating_mul(patience) {
            Suspicion::Pressure
        } else {
            Suspicion::None
        }
    }
}

/// What a core that stands looks like.
enum Suspicion {
    None,
    Pressure,
    /// Its thread had no CPU since the last sample: it sleeps, which is pressure, or was preempted. To tell takes a file of
    /// `/proc`, and so is left until nobody else computes.
    MaySleep(u32),
}

/// Whether a thread sleeps in the kernel; false where the kernel does not tell.
pub(crate) fn is_asleep(tid: u32) -> bool {
    ThreadStat::open(tid).is_some_and(|stat| stat.is_asleep() == Some(true))
}

/// What one sample at all cores found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    /// A active core parked or unparked since the last sample.
    pub(crate) any_parked_since: bool,
    /// Cores in play that are parked.
    pub(crate) parked: usize,
    /// Every active core is parked.
    pub(crate) all_parked: bool,
    /// Some active core has been in one poll, or in polls nearly as long, for [`PRESSURE_NS`].
    pub(crate) pressure: bool,
    /// Some active core was busy through the whole sample, and has not been poked for it.
    pub(crate) wants_poke: bool,
}

#[derive(Debug)]
pub(crate) struct Cores {
    patience: u64,
    seen: Vec<Seen>,
}

impl Cores {
    pub(crate) fn new(count: usize, settings: &Settings, is_throttled: bool, now_ns: u64) -> Cores {
        Cores {
            patience: patience(settings, is_throttled),
            seen: vec![Seen::alive(0, 0, now_ns); count],
        }
    }

    pub(crate) fn sample(
        &mut self,
        now_ns: u64,
        domain: &Domain,
        metrics: &RuntimeMetrics,
    ) -> Sample {
        let mut sample = Sample {
            all_parked: true,
            ..Sample::default()
        };
        let mut may_sleep = Vec::new();
        for (core, seen) in self.seen.iter_mut().enumerate() {
            let parks = metrics.worker_park_unpark_count(core);
            if domain.cores.is_held(core) {
                *seen = Seen::alive(parks, seen.busy_ns, now_ns);
                continue;
            }
            let is_parked = parks % 2 == 1;
            sample.all_parked &= is_parked;
            sample.parked += usize::from(is_parked);
            let busy_ns = clock::nanos(metrics.worker_total_busy_duration(core));
            if seen.parks != parks {
                sample.any_parked_since = true;
                *seen = Seen::alive(parks, busy_ns, now_ns);
                continue;
            }
            if is_parked {
                seen.stands_since_ns = now_ns;
                continue;
            }
            if seen.busy_ns != busy_ns {
                // It does not park, so whoever polls the driver for it is still to be found out.
                let poked = seen.poked;
                *seen = Seen::alive(parks, busy_ns, now_ns);
                seen.poked = poked;
            } else {
                match seen.suspicion(now_ns, domain.cores.thread(core), self.patience) {
                    Suspicion::None => {}
                    Suspicion::Pressure => sample.pressure = true,
                    Suspicion::MaySleep(tid) => may_sleep.push(tid),
                }
            }
            if !seen.poked {
                seen.poked = true;
                sample.wants_poke = true;
            }
        }
        sample.pressure = sample.pressure || may_sleep.into_iter().any(is_asleep);
        sample
    }

    /// Cores in play that have shown no sign of life for `window_ns`, at the last sample: a poll that long.
    pub(crate) fn standing(&self, now_ns: u64, window_ns: u64, domain: &Domain) -> Vec<usize> {
        let stands = |&core: &usize| {
            !domain.cores.is_held(core) && now_ns - self.seen[core].stands_since_ns >= window_ns
        };
        (0..self.seen.len()).filter(stands).collect()
    }

    /// Since when a core has shown no sign of life.
    pub(crate) fn stands_since(&self, core: usize) -> Option<u64> {
        self.seen.get(core).map(|seen| seen.stands_since_ns)
    }

    /// Whether it still shows none since then.
    pub(crate) fn still_stands(
        &self,
        core: usize,
        since_ns: u64,
        metrics: &RuntimeMetrics,
    ) -> bool {
        self.seen.get(core).is_some_and(|seen| {
            let busy_ns = clock::nanos(metrics.worker_total_busy_duration(core));
            seen.stands_since_ns == since_ns
                && seen.parks == metrics.worker_park_unpark_count(core)
                && seen.busy_ns == busy_ns
        })
    }
}

/// Whether a thread has a core at this moment, as far as tokio tells: one that was handed over counts as had until
/// another thread takes it up.
#[cfg(tokio_unstable)]
pub(crate) fn has_core(thread: std::thread::ThreadId, metrics: &RuntimeMetrics) -> bool {
    (0..metrics.num_workers()).any(|core| metrics.worker_thread_id(core) == Some(thread))
}
