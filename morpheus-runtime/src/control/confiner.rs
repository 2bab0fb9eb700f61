//! Confines CPU hogs to halves of the CPUs where they are many: [`Confinement`] says which to which half, and [`Confined`] sets
//! the affinity of their threads.

use std::collections::{HashMap, HashSet};

use morpheus_common::ladder::Policy;
use morpheus_link::ActiveLink;
use morpheus_system::run_delay;

use crate::act::confined::{self, Confined};
use crate::decide::confinement::{Confinement, Hog};
use crate::domain::Domain;

/// A thread that has a core.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Worker {
    pub(crate) tid: u32,
    /// When the core last gave a sign of life.
    pub(crate) alive_ns: u64,
}

/// The hogs of one runtime with workers.
#[derive(Debug)]
pub(crate) struct Confiner {
    decision: Confinement,
    confined: Confined,
    delays: Delays,
}

impl Confiner {
    /// `None` where nothing is to be confined. Under a quota that is less than the CPUs, what hogs use counts and not where.
    pub(crate) fn new(domain: &Domain, is_quota_tight: bool) -> Option<Confiner> {
        let confines = domain.settings.confine_hogs
            && domain.settings.mechanisms.confine
            && domain.settings.policy >= Policy::Demote
            && !is_quota_tight;
        confines.then(|| Confiner {
            decision: Confinement::new(confined::cpus()),
            confined: Confined::default(),
            delays: Delays::default(),
        })
    }

    /// Whether [`sample`](Self::sample) has something to do, given the number of hogs. The controller asks at each sample, so that the
    /// kernel is asked for CPUs only where there are two hogs.
    pub(crate) fn wants(&self, hogs: usize, domain: &Domain) -> bool {
        // The scheduler does better: it runs a worker first, on any CPU.
        let may_begin = domain.link.active() != ActiveLink::Scheduler;
        self.is_busy() || (may_begin && hogs >= 2 && hogs >= confined::cpus())
    }

    /// Whether threads are confined, or what they have started may be.
    pub(crate) fn is_busy(&self) -> bool {
        self.confined.is_busy()
    }

    /// Takes the threads that compute in long polls, and those that have cores, hogs among them. Called each time that it
    /// [`wants`](Self::wants) to.
    pub(crate) fn sample(
        &mut self,
        now_ns: u64,
        mut hogs: Vec<Hog>,
        domain: &Domain,
        workers: impl Iterator<Item = Worker>,
    ) {
        if domain.link.active() == ActiveLink::Scheduler {
            hogs.clear();
        }
        let cpus = confined::cpus();
        if cpus != self.decision.cpus() {
            self.decision = Confinement::new(cpus);
        }
        if !self.is_busy() {
            self.delays = Delays::default();
        }
        // A watched poll may also have a core that gives no sign of life.
        hogs.sort_unstable_by_key(|hog| (hog.tid, hog.since_ns));
        hogs.dedup_by_key(|hog| hog.tid);
        hogs.sort_unstable();
        let computing = hogs.iter().map(|hog| hog.tid);
        self.delays.note_hogs(computing);
        if let Some(window_ns) = self.decision.window_over(now_ns, hogs.len()) {
            let before = self
                .delays
                .end_window(now_ns, workers, window_ns, run_delay::of);
            if let Some(Window {
                delay_ns,
                window_ns,
            }) = before
            {
                self.decision.saw_delay(now_ns, delay_ns, window_ns);
            }
        }
        let confined = &self.confined;
        let parts = self
            .decision
            .parts(now_ns, &hogs, |tid| confined.is_on(tid));
        let new = self.confined.confine(now_ns, &parts);
        domain.counters.hogs_confined.add(new);
    }
}

/// The run delays of workers, window by window.
///
/// A thread that begins a long poll waits like a hog before it is known as one. So each window is judged at the end of the next one, by
/// threads whose cores gave a sign of life in the next one, and that were not hogs from the window before on.
#[derive(Debug, Default)]
struct Delays {
    /// The end of the last window.
    ended_ns: u64,
    /// Run delays since the threads began, at the end of the last window.
    totals: HashMap<u32, u64>,
    /// Those of the last window.
    last: HashMap<u32, u64>,
    /// The length of the last window in nanoseconds; 0 if it says nothing.
    last_ns: u64,
    /// The hogs of this window and of the two before.
    hogs: [HashSet<u32>; 3],
}

/// A window leaves out the longest delay of each this many workers: among many workers one always waits for long.
const ONE_WAITS_OF: usize = 8;

/// What a window tells.
struct Window {
    /// The longest run delay of a worker in nanoseconds, but for one of each [`ONE_WAITS_OF`].
    delay_ns: u64,
    window_ns: u64,
}

impl Delays {
    fn note_hogs(&mut self, tids: impl Iterator<Item = u32>) {
        self.hogs[0].extend(tids);
    }

    /// Ends a window, and judges the one before; `None` if that says nothing. `run_delay` tells a thread's run delay since it began.
    fn end_window(
        &mut self,
        now_ns: u64,
        workers: impl Iterator<Item = Worker>,
        window_ns: u64,
        run_delay: impl Fn(u32) -> Option<u64>,
    ) -> Option<Window> {
        let (mut totals, mut own, mut delays) = (HashMap::new(), HashMap::new(), Vec::new());
        let is_hog = |tid: u32| self.hogs.iter().any(|hogs| hogs.contains(&tid));
        for Worker { tid, alive_ns } in workers.filter(|worker| !is_hog(worker.tid)) {
            let Some(total_ns) = run_delay(tid) else {
                continue;
            };
            totals.insert(tid, total_ns);
            let before_ns = self.totals.get(&tid);
            own.extend(before_ns.map(|before_ns| (tid, total_ns.saturating_sub(*before_ns))));
            if alive_ns >= self.ended_ns {
                delays.extend(self.last.get(&tid));
            }
        }
        delays.sort_unstable();
        let delay_ns = delays.iter().nth_back(delays.len() / ONE_WAITS_OF);
        let delay_ns = delay_ns.copied().unwrap_or(0);
        self.totals = totals;
        self.last = own;
        self.ended_ns = now_ns;
        self.hogs.rotate_right(1);
        self.hogs[0].clear();
        let judged_ns = std::mem::replace(&mut self.last_ns, window_ns);
        (judged_ns > 0 && window_ns > 0).then_some(Window {
            delay_ns,
            window_ns: judged_ns,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const WINDOW_NS: u64 = 5 * MS;

    /// Windows of three workers. Each has waited for `100 * tid` microseconds more in each window.
    struct Case {
        delays: Delays,
        windows: u64,
    }

    impl Case {
        fn new() -> Case {
            Case {
                delays: Delays::default(),
                windows: 0,
            }
        }

        /// Ends a window, with the hogs in it and the workers whose cores gave a sign of life in it.
        fn end(&mut self, hogs: &[u32], alive: &[u32]) -> Option<u64> {
            self.end_of(hogs, alive, WINDOW_NS)
        }

        fn end_of(&mut self, hogs: &[u32], alive: &[u32], window_ns: u64) -> Option<u64> {
            let began_ns = self.windows * WINDOW_NS;
            self.windows += 1;
            let now_ns = began_ns + WINDOW_NS;
            let worker = |tid| Worker {
                tid,
                alive_ns: if alive.contains(&tid) { now_ns } else { 0 },
            };
            self.delays.note_hogs(hogs.iter().copied());
            let delay = |tid: u32| Some(self.windows * u64::from(tid) * 100_000);
            let workers = (1..=3).map(worker);
            let window = self.delays.end_window(now_ns, workers, window_ns, delay);
            window.map(|window| {
                assert_eq!(window.window_ns, WINDOW_NS);
                window.delay_ns
            })
        }
    }

    #[test]
    fn a_window_is_judged_by_the_longest_delay_at_the_end_of_the_next() {
        let mut case = Case::new();
        let all = [1, 2, 3];
        assert_eq!(case.end(&[], &all), None, "nothing before it");
        assert_eq!(case.end(&[], &all), Some(0), "no delay before it");
        assert_eq!(case.end(&[], &all), Some(300_000));
    }

    #[test]
    fn a_thread_that_begins_a_long_poll_does_not_count() {
        let mut case = Case::new();
        let all = [1, 2, 3];
        (0..3).for_each(|_| _ = case.end(&[], &all));
        assert_eq!(case.end(&[], &[1, 2]), Some(200_000), "no sign of life");
        assert_eq!(case.end(&[3], &all), Some(200_000), "a hog");
        // It was one in the window that is judged, or in the one before, when its delay was not measured.
        assert_eq!(case.end(&[], &all), Some(200_000));
        assert_eq!(case.end(&[], &all), Some(200_000));
        (0..2).for_each(|_| _ = case.end(&[], &all));
        assert_eq!(case.end(&[], &all), Some(300_000));
    }

    #[test]
    fn a_window_that_ended_late_says_nothing() {
        let mut case = Case::new();
        let all = [1, 2, 3];
        (0..3).for_each(|_| _ = case.end(&[], &all));
        assert_eq!(case.end_of(&[], &all, 0), None);
        assert_eq!(case.end(&[], &all), None);
        assert_eq!(case.end(&[], &all), Some(300_000));
    }

    #[test]
    fn of_many_workers_one_may_wait() {
        let mut delays = Delays::default();
        let mut end = |workers: u32, window: u64| {
            let worker = |tid| Worker {
                tid,
                alive_ns: window * WINDOW_NS,
            };
            let delay = |tid: u32| Some(window * u64::from(tid));
            let workers = (1..=workers).map(worker);
            let window = delays.end_window(window * WINDOW_NS, workers, WINDOW_NS, delay);
            window.map(|window| window.delay_ns)
        };
        let mut last =
            |workers: u32, first: u64| (first..first + 3).map(|window| end(workers, window)).last();
        assert_eq!(last(7, 1), Some(Some(7)));
        assert_eq!(last(8, 11), Some(Some(7)));
        assert_eq!(last(64, 21), Some(Some(56)));
    }

    #[test]
    fn a_thread_that_is_gone_does_not_count() {
        let mut delays = Delays::default();
        let worker = |tid| Worker { tid, alive_ns: 0 };
        for now_ns in [1, 2, 3] {
            let window = delays.end_window(now_ns * MS, [worker(1)].into_iter(), MS, |_| None);
            assert!(window.is_none_or(|window| window.delay_ns == 0));
        }
    }
}
