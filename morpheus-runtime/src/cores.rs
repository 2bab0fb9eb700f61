//! What tokio's own counters say of its cores, once a sample.
//!
//! A *core* is tokio's word for what a worker thread runs: a queue and a place in the idle set. Threads
//! come and go under it (`block_in_place`), so whether work is being served is asked of cores, not of
//! threads. The stable `worker_park_unpark_count` is odd while a core is parked.

use tokio::runtime::RuntimeMetrics;

use crate::domain::Domain;

/// Busy for so long without parking, a core in play is a sign of trouble.
pub(crate) const TROUBLE_NS: u64 = 2_000_000;

#[derive(Clone, Copy, Debug)]
struct Seen {
    parks: u64,
    /// Since when the count stands, or the core was last held.
    since_ns: u64,
    /// Busy time that tokio reports, which grows when a core passes its maintenance.
    busy_ns: u64,
    /// Since when neither of the two moved.
    stands_since_ns: u64,
    poked: bool,
}

/// What one look at all cores found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Look {
    /// A core in play parked or unparked since the last look.
    pub(crate) any_parked_since: bool,
    /// Every core in play is parked.
    pub(crate) all_parked: bool,
    /// Some core in play has been busy for [`TROUBLE_NS`].
    pub(crate) trouble: bool,
    /// Some core in play was busy through the whole sample, and has not been poked for it.
    pub(crate) wants_poke: bool,
}

#[derive(Debug)]
pub(crate) struct Cores {
    seen: Vec<Seen>,
}

impl Cores {
    pub(crate) fn new(count: usize, now_ns: u64) -> Cores {
        let fresh = Seen {
            parks: 0,
            since_ns: now_ns,
            busy_ns: 0,
            stands_since_ns: now_ns,
            poked: false,
        };
        Cores {
            seen: vec![fresh; count],
        }
    }

    pub(crate) fn look(&mut self, now_ns: u64, domain: &Domain, metrics: &RuntimeMetrics) -> Look {
        let mut look = Look {
            all_parked: true,
            ..Look::default()
        };
        for (core, seen) in self.seen.iter_mut().enumerate() {
            let parks = metrics.worker_park_unpark_count(core);
            if domain.is_core_held(core) {
                *seen = Seen {
                    parks,
                    since_ns: now_ns,
                    stands_since_ns: now_ns,
                    poked: false,
                    ..*seen
                };
                continue;
            }
            let is_parked = parks % 2 == 1;
            look.all_parked &= is_parked;
            if seen.parks != parks {
                look.any_parked_since = true;
                *seen = Seen {
                    parks,
                    since_ns: now_ns,
                    stands_since_ns: now_ns,
                    poked: false,
                    ..*seen
                };
            } else if is_parked {
                seen.since_ns = now_ns;
                seen.stands_since_ns = now_ns;
            } else {
                look.trouble |= now_ns - seen.since_ns >= TROUBLE_NS;
                if !seen.poked {
                    seen.poked = true;
                    look.wants_poke = true;
                }
            }
        }
        look
    }

    /// Cores in play that have shown no sign of life for `window_ns`: a poll that long. Looks at one more
    /// counter than [`look`](Self::look), so it is asked only now and then.
    pub(crate) fn standing(
        &mut self,
        now_ns: u64,
        window_ns: u64,
        domain: &Domain,
        metrics: &RuntimeMetrics,
    ) -> Vec<usize> {
        let mut standing = Vec::new();
        for (core, seen) in self.seen.iter_mut().enumerate() {
            let busy_ns = crate::clock::nanos(metrics.worker_total_busy_duration(core));
            if seen.busy_ns != busy_ns {
                seen.busy_ns = busy_ns;
                seen.stands_since_ns = now_ns;
            } else if !domain.is_core_held(core) && now_ns - seen.stands_since_ns >= window_ns {
                standing.push(core);
            }
        }
        standing
    }

    /// Since when a core has shown no sign of life; only [`standing`](Self::standing) looks closely.
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
            let busy_ns = crate::clock::nanos(metrics.worker_total_busy_duration(core));
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
