//! Cores: samples tokio's own counters, and finds cores that have stalled.
//!
//! A *core* is tokio's word for what a worker thread runs: a queue and a place in the idle set. Threads
//! come and go under it (`block_in_place`), so the controller asks cores, and not threads, whether work is
//! served. The stable `worker_park_unpark_count` is odd while a core is parked.

use tokio::runtime::RuntimeMetrics;

use crate::decide::confinement::Hog;
use crate::domain::Domain;
use crate::observe::polls::SURELY_ASLEEP_NS;
use crate::settings::DEFAULT_EVENT_INTERVAL;
use crate::settings::Settings;
use morpheus_system::asleep::ThreadStats;
use morpheus_system::clock;

/// An active core without a sign of life for this time is a sign of pressure, if it also [computed](COMPUTED_NS) or sleeps.
const PRESSURE_NS: u64 = 3_000_000;
/// CPU time without a sign of life that counts as computing, at tokio's own interval between two signs. A thread that used
/// less was preempted: with more threads than CPUs each waits now and then, and more threads in answer to that would feed
/// on themselves. One sample less than [`PRESSURE_NS`]: that much may pass between the last sign and the first sample.
const COMPUTED_NS: u64 = 2_000_000;
/// The factor to both under a quota that the threads are not confined to: 61 polls of 160 µs. A spare that computes
/// beside a worker makes the kernel stop both for longer than such polls last.
const PATIENCE_UNDER_QUOTA: u64 = 5;
/// A core that has slept for this time is no new sign: a spare stands in for it, and the sleep may never end.
const OLD_NS: u64 = 1_000_000_000;
/// A thread that computes has no CPU for the turns of the others that do: twice the kernel's longest slice each, and a few more. (Those
/// with the slice of a hog of 20 ms are counted as watched polls.)
const TURN_NS: u64 = 6_000_000;
const FEW_TURNS: u64 = 4;
/// The same as [`PRESSURE_NS`] for a core whose thread is not known, because it has not parked since it got its core.
const UNKNOWN_PRESSURE_NS: u64 = 20_000_000;

/// The factor by which a core may go longer without a sign of life than with tokio's own interval and without a quota.
fn patience(settings: &Settings, is_quota_tight: bool) -> u64 {
    let by_interval = (settings.event_interval / DEFAULT_EVENT_INTERVAL).max(1);
    if is_quota_tight {
        by_interval.saturating_mul(PATIENCE_UNDER_QUOTA)
    } else {
        by_interval
    }
}

/// The last observation of one core. Its signs of life are that it parks, unparks, or passes its maintenance, as it does
/// every `event_interval` polls.
#[derive(Clone, Copy, Debug)]
struct Core {
    parks: u64,
    /// Busy time that tokio reports, which grows when a core passes its maintenance.
    busy_ns: u64,
    /// The last sign of life, or the time at which the core was last seen held or parked.
    stalled_since_ns: u64,
    /// Its thread, and the CPU time of that at the first and at the last sample without a sign of life.
    thread: Option<ThreadTime>,
    is_poked: bool,
    /// Whether [`Cores::take_computing`] has returned it since.
    is_taken: bool,
}

#[derive(Clone, Copy, Debug)]
struct ThreadTime {
    tid: u32,
    first_ns: u64,
    last_ns: u64,
    /// Since when the thread has had no CPU.
    still_since_ns: u64,
}

impl Core {
    fn alive(parks: u64, busy_ns: u64, now_ns: u64) -> Core {
        Core {
            parks,
            busy_ns,
            stalled_since_ns: now_ns,
            thread: None,
            is_poked: false,
            is_taken: false,
        }
    }

    /// Whether a core that gave no sign of life computes or sleeps in a poll for [`PRESSURE_NS`], and does not just wait
    /// for a CPU.
    fn suspicion(&mut self, now_ns: u64, thread: Option<u32>, patience: u64) -> Suspicion {
        let stalled_ns = now_ns - self.stalled_since_ns;
        let Some((tid, cpu_ns)) = thread.and_then(|tid| Some((tid, clock::cpu_ns_of(tid)?))) else {
            self.thread = None;
            return match stalled_ns >= UNKNOWN_PRESSURE_NS.saturating_mul(patience) {
                true => Suspicion::Pressure,
                false => Suspicion::None,
            };
        };
        let fresh = ThreadTime {
            tid,
            first_ns: cpu_ns,
            last_ns: cpu_ns,
            still_since_ns: now_ns,
        };
        let before = self.thread.filter(|used| used.tid == tid).unwrap_or(fresh);
        let still_since_ns = match cpu_ns == before.last_ns {
            true => before.still_since_ns,
            false => now_ns,
        };
        self.thread = Some(ThreadTime {
            last_ns: cpu_ns,
            still_since_ns,
            ..before
        });
        if stalled_ns < PRESSURE_NS {
            Suspicion::None
        } else if cpu_ns == before.last_ns {
            Suspicion::MaySleep {
                tid,
                still_ns: now_ns - still_since_ns,
            }
        } else if cpu_ns.saturating_sub(before.first_ns) >= COMPUTED_NS.saturating_mul(patience) {
            Suspicion::Pressure
        } else {
            Suspicion::None
        }
    }
}

/// The explanation for a core without a sign of life.
enum Suspicion {
    None,
    Pressure,
    /// Its thread had no CPU since the last sample: it sleeps, which is pressure, or was preempted. Only a file of `/proc`
    /// tells the two apart, which is read last, and only if no other core computes.
    MaySleep {
        tid: u32,
        /// For how long it has had no CPU.
        still_ns: u64,
    },
}

/// Whether a thread sleeps in the kernel; None where the kernel does not tell.
pub(crate) fn is_asleep(tid: u32) -> Option<bool> {
    ThreadStats::default().is_asleep(tid, 0)
}

/// One sample of all cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    /// An active core parked or unparked since the last sample.
    pub(crate) any_parked_since: bool,
    /// Active cores that are parked.
    pub(crate) parked: usize,
    /// Every active core is parked.
    pub(crate) all_parked: bool,
    /// An active core has been in one poll, or in polls nearly as long, for [`PRESSURE_NS`].
    pub(crate) pressure: bool,
    /// The same of a core that computes, or has not slept for [`OLD_NS`] yet: a sign that more spares may be needed.
    pub(crate) is_sign: bool,
    /// An active core was busy through the whole sample, and has not been poked for it.
    pub(crate) wants_poke: bool,
}

/// The cores of a runtime, from sample to sample.
#[derive(Debug)]
pub(crate) struct Cores {
    patience: u64,
    cores: Vec<Core>,
}

impl Cores {
    pub(crate) fn new(
        count: usize,
        settings: &Settings,
        is_quota_tight: bool,
        now_ns: u64,
    ) -> Cores {
        Cores {
            patience: patience(settings, is_quota_tight),
            cores: vec![Core::alive(0, 0, now_ns); count],
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
        // Those that would be a sign, and those that sleep for long.
        let (mut may_sleep, mut may_sleep_on) = (Vec::new(), Vec::new());
        for (number, core) in self.cores.iter_mut().enumerate() {
            let parks = metrics.worker_park_unpark_count(number);
            if domain.cores.is_held(number) {
                *core = Core::alive(parks, core.busy_ns, now_ns);
                continue;
            }
            let is_parked = parks % 2 == 1;
            sample.all_parked &= is_parked;
            sample.parked += usize::from(is_parked);
            let busy_ns = clock::nanos(metrics.worker_total_busy_duration(number));
            if core.parks != parks {
                sample.any_parked_since = true;
                *core = Core::alive(parks, busy_ns, now_ns);
                continue;
            }
            if is_parked {
                core.stalled_since_ns = now_ns;
                continue;
            }
            if core.busy_ns != busy_ns {
                // The core does not park, so the I/O driver may have no thread: the poke is still due.
                let is_poked = core.is_poked;
                *core = Core::alive(parks, busy_ns, now_ns);
                core.is_poked = is_poked;
            } else {
                match core.suspicion(now_ns, domain.cores.thread(number), self.patience) {
                    Suspicion::None => {}
                    Suspicion::Pressure => sample.is_sign = true,
                    Suspicion::MaySleep { tid, still_ns } => {
                        match now_ns - core.stalled_since_ns < OLD_NS {
                            true => may_sleep.push((tid, still_ns)),
                            false => may_sleep_on.push((tid, still_ns)),
                        }
                    }
                }
            }
            if !core.is_poked {
                core.is_poked = true;
                sample.wants_poke = true;
            }
        }
        let sleeps = |(tid, still_ns)| {
            is_asleep(tid).unwrap_or_else(|| {
                domain.counters.thread_states_missing.add(1);
                still_ns >= SURELY_ASLEEP_NS
            })
        };
        sample.is_sign = sample.is_sign || may_sleep.into_iter().any(sleeps);
        sample.pressure = sample.is_sign || may_sleep_on.into_iter().any(sleeps);
        sample
    }

    /// Active cores that had shown no sign of life for `window_ns` at the last sample: a poll of that length.
    pub(crate) fn stalled(&self, now_ns: u64, window_ns: u64, domain: &Domain) -> Vec<usize> {
        let is_stalled = |&core: &usize| {
            !domain.cores.is_held(core) && now_ns - self.cores[core].stalled_since_ns >= window_ns
        };
        (0..self.cores.len()).filter(is_stalled).collect()
    }

    /// Returns the cores whose threads have computed for a while since the last sign of life, with these threads, if there are more
    /// than `few`: each once until its next sign of life. They do not sleep, as far as that can be told without a look at each: beside
    /// many others a thread has no CPU for tens of milliseconds.
    pub(crate) fn take_computing(&mut self, now_ns: u64, few: usize) -> Vec<(usize, u32)> {
        let least_ns = PRESSURE_NS.saturating_mul(self.patience);
        let tid_of = |core: &Core| {
            let thread = core.thread?;
            let used_ns = thread.last_ns.saturating_sub(thread.first_ns);
            let is_still = now_ns.saturating_sub(thread.still_since_ns) >= OLD_NS;
            (used_ns >= least_ns && !is_still).then_some(thread.tid)
        };
        if self.cores.iter().filter_map(tid_of).count() <= few {
            return Vec::new();
        }
        let cores = self.cores.iter_mut().enumerate();
        cores
            .filter_map(|(number, core)| {
                let tid = tid_of(core)?;
                (!std::mem::replace(&mut core.is_taken, true)).then_some((number, tid))
            })
            .collect()
    }

    /// The threads that have computed for a while since the last sign of life of their cores, with these cores, as
    /// [`take_computing`](Self::take_computing) knows them, each time. One that has no CPU for longer than it waits for its turn among all of these sleeps.
    pub(crate) fn computing(&self, now_ns: u64) -> Vec<(usize, Hog)> {
        let least_ns = PRESSURE_NS.saturating_mul(self.patience);
        let computed = |(number, core): (usize, &Core)| {
            let thread = core.thread?;
            let used_ns = thread.last_ns.saturating_sub(thread.first_ns);
            let hog = Hog {
                since_ns: core.stalled_since_ns,
                tid: thread.tid,
            };
            (used_ns >= least_ns).then_some((number, hog, thread.still_since_ns))
        };
        let computed: Vec<_> = self.cores.iter().enumerate().filter_map(computed).collect();
        let most_ns = TURN_NS * (computed.len() as u64 + FEW_TURNS);
        let has_turns = |still_since_ns| now_ns.saturating_sub(still_since_ns) < most_ns;
        let computes = computed
            .into_iter()
            .filter(|&(.., since_ns)| has_turns(since_ns));
        computes.map(|(number, hog, _)| (number, hog)).collect()
    }

    /// The last sign of life of a core.
    pub(crate) fn stalled_since(&self, core: usize) -> Option<u64> {
        self.cores.get(core).map(|core| core.stalled_since_ns)
    }

    /// Whether a core has still shown no sign of life since then.
    pub(crate) fn is_still_stalled(
        &self,
        number: usize,
        since_ns: u64,
        metrics: &RuntimeMetrics,
    ) -> bool {
        self.cores.get(number).is_some_and(|core| {
            let busy_ns = clock::nanos(metrics.worker_total_busy_duration(number));
            core.stalled_since_ns == since_ns
                && core.parks == metrics.worker_park_unpark_count(number)
                && core.busy_ns == busy_ns
        })
    }
}

/// The threads that have cores at this moment, as far as tokio tells: a core that was handed off counts as its old
/// thread's until another one takes it up.
#[cfg(tokio_unstable)]
pub(crate) fn threads(
    metrics: &RuntimeMetrics,
) -> std::collections::HashSet<std::thread::ThreadId> {
    (0..metrics.num_workers())
        .filter_map(|core| metrics.worker_thread_id(core))
        .collect()
}
