//! The verdict of a handoff poll on itself, where the controller has seen nothing of it.
//!
//! The controller reads the states of a bounded number of threads in a sample. So where all CPUs are busy, polls of some milliseconds begin
//! and end between two of its looks. Taken for short polls, they would clear their tasks, and a label whose polls all sleep would
//! seem to mix long and short ones. A poll that was handed off can afford to measure itself: two clocks, and how often the kernel has put
//! the thread to sleep. A poll that was only preempted is not stalled, as for the controller.

use std::sync::Arc;

use morpheus_common::ladder::{self, Observation};
use morpheus_common::slot::VerdictFlags;

use crate::decide::history::History;
use crate::decide::rating;
use crate::settings::Settings;
use morpheus_system::{asleep, clock};

/// A handoff poll under way, on its own thread.
pub(crate) struct Began {
    at_ns: u64,
    at_cpu_ns: u64,
    times_asleep: u64,
}

impl Began {
    /// The poll is about to begin.
    pub(crate) fn now() -> Began {
        Began {
            at_ns: clock::now_ns(),
            at_cpu_ns: clock::own_cpu_ns(),
            times_asleep: asleep::times_own(),
        }
    }

    /// The thread's observation at the end of the poll, if that is stalled.
    pub(crate) fn ends(&self, settings: &Settings) -> Option<Stalled> {
        let limits = rating::limits(settings);
        let now_ns = clock::now_ns();
        let stalled_ns = now_ns.saturating_sub(self.at_ns);
        // No short poll pays for more.
        if stalled_ns < ladder::stalled_cpu_ns(&limits) {
            return None;
        }
        let cpu_ns = clock::own_cpu_ns().saturating_sub(self.at_cpu_ns);
        let has_slept =
            rating::may_sleep(stalled_ns, cpu_ns) && asleep::times_own() > self.times_asleep;
        let seen = Observation {
            stalled_ns,
            cpu_ns,
            asleep: has_slept,
            // The ladder takes no step with it any more.
            critical: false,
            demotable: false,
            hog_polls: 0,
        };
        ladder::is_stalled(&seen, &limits).then_some(Stalled {
            has_slept,
            is_hog: ladder::is_hog(&seen, &limits),
            begun_ns: self.at_ns,
            now_ns,
        })
    }
}

/// The verdict on a poll that has ended: the controller's, or else that of the poll on itself, which its label learns.
pub(crate) fn or_own<'a>(
    verdict: VerdictFlags,
    seen: Option<Stalled>,
    history: impl FnOnce() -> &'a Arc<History>,
) -> VerdictFlags {
    match seen {
        Some(stalled) if verdict.is_empty() => stalled.learn(history()),
        _ => verdict,
    }
}

/// A poll that its own thread has found stalled.
pub(crate) struct Stalled {
    has_slept: bool,
    is_hog: bool,
    begun_ns: u64,
    now_ns: u64,
}

impl Stalled {
    /// Tells the label. Returns the verdict for the task.
    fn learn(self, history: &History) -> VerdictFlags {
        history.learn_stalled(self.has_slept, self.begun_ns, self.now_ns);
        let mut verdict = VerdictFlags::STALLED;
        if self.has_slept {
            verdict = verdict | VerdictFlags::BLOCKED;
        }
        if self.is_hog {
            history.learn_hog();
            verdict = verdict | VerdictFlags::HOG;
        }
        verdict
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;
    use std::time::Duration;

    use morpheus_common::slot::SlotFlag;

    use super::*;
    use crate::report::label::{self, Origin};
    use crate::{Builder, Link, Runtime, Watch as _};
    use morpheus_link::handle;

    fn runtime() -> Runtime {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).max_spares(1).link(Link::Watchdog);
        builder.build().unwrap()
    }

    fn computes_for(ns: u64) {
        let begun_ns = clock::own_cpu_ns();
        while clock::own_cpu_ns() < begun_ns + ns {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn a_poll_that_sleeps_differs_from_one_that_computes_and_a_short_one() {
        let runtime = runtime();
        let settings = &runtime.domain().settings;
        let of = |does: fn()| {
            let began = Began::now();
            does();
            let seen = began.ends(settings);
            seen.map(|seen| (seen.has_slept, seen.is_hog))
        };
        let sleeps = || thread::sleep(Duration::from_millis(20));
        assert_eq!(of(sleeps), Some((true, false)));
        assert_eq!(of(|| computes_for(2_000_000)), Some((false, false)));
        assert_eq!(of(|| computes_for(rating::HOG_NS)), Some((false, true)));
        // It may have to wait for a CPU meanwhile.
        assert_eq!(of(|| ()), None);
    }

    /// The controller looks at sixteen threads in a sample, and these are more.
    #[test]
    fn each_poll_that_slept_in_a_handoff_is_found_stalled() {
        static HANDED_OFF: AtomicU64 = AtomicU64::new(0);
        const NAME: &str = "own verdict, many that sleep";
        let runtime = runtime();
        let sleeps = async || {
            for _ in 0..20 {
                if handle::current().runtime.has_flag(SlotFlag::Handoff) {
                    HANDED_OFF.fetch_add(1, Ordering::Relaxed);
                }
                thread::sleep(Duration::from_millis(3));
                tokio::task::yield_now().await;
            }
        };
        let tasks: Vec<_> = (0..64)
            .map(|_| runtime.handle().spawn(sleeps().watched(NAME)))
            .collect();
        for task in tasks {
            runtime.block_on(task).unwrap();
        }
        drop(runtime);
        let handed_off = HANDED_OFF.load(Ordering::Relaxed);
        let stalled = label::of(Origin::Named(NAME)).totals.stalled_polls.get();
        assert!(handed_off > 600, "{handed_off}");
        assert!(stalled >= handed_off, "{stalled} of {handed_off}");
    }
}
