//! Threads that slept in a poll when the doctor came, and have slept since.
//!
//! Nothing happens in such a thread, so no source sees it. A service that hangs has them, and that is when a doctor is called. The
//! kernel counts how many times a thread was taken off its CPU: while the number is the same and the thread is asleep, it is asleep in
//! the same poll.

use std::collections::HashMap;

use crate::source::now_ns;
use crate::target::Target;

/// What was seen of such a thread first.
#[derive(Clone, Copy, Debug)]
struct Seen {
    switches: u64,
    since_ns: u64,
}

/// These threads.
#[derive(Debug, Default)]
pub(super) struct Before {
    threads: HashMap<u32, Seen>,
}

impl Before {
    /// A thread sleeps in a poll; `switches` was read before that was seen.
    pub(super) fn note(&mut self, target: &Target, tid: u32, switches: Option<u64>) {
        // It may have woken and gone to sleep elsewhere in between.
        let Some(switches) = switches.filter(|_| target.switches(tid) == switches) else {
            return;
        };
        let since_ns = now_ns();
        let seen = self
            .threads
            .entry(tid)
            .or_insert(Seen { switches, since_ns });
        if seen.switches != switches {
            *seen = Seen { switches, since_ns };
        }
    }

    /// Those that sleep still, and since when at the latest. Others are the source's from now on.
    pub(super) fn still(&mut self, target: &Target) -> Vec<(u32, u64)> {
        self.threads.retain(|&tid, seen| {
            target.switches(tid) == Some(seen.switches) && target.sleeps_in(tid).is_some()
        });
        let threads = self.threads.iter();
        threads.map(|(&tid, seen)| (tid, seen.since_ns)).collect()
    }
}

/// Since when no worker serves a runtime: where each of its workers is among those that sleep in polls. Of a thread that is no worker
/// any more the runtime is not known.
pub(super) fn unserved_since(
    workers: &[(u32, usize)],
    runtime: Option<usize>,
    asleep: &[(u32, u64)],
) -> Option<u64> {
    let runtime = runtime?;
    let own = workers.iter().filter(|(_, of)| *of == runtime);
    let since = own.map(|(tid, _)| {
        let asleep = asleep.iter().find(|(sleeper, _)| sleeper == tid);
        asleep.map(|&(_, since_ns)| since_ns)
    });
    since.collect::<Option<Vec<u64>>>()?.into_iter().max()
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    #[test]
    fn a_runtime_is_unserved_where_each_worker_sleeps() {
        let workers = [(1, 0), (2, 0), (3, 1)];
        let asleep = [(1, 100), (3, 300)];
        assert_eq!(unserved_since(&workers, Some(0), &asleep), None);
        assert_eq!(unserved_since(&workers, Some(1), &asleep), Some(300));
        assert_eq!(unserved_since(&workers, None, &asleep), None);
        let asleep = [(2, 200), (1, 100)];
        assert_eq!(unserved_since(&workers, Some(0), &asleep), Some(200));
    }

    #[test]
    fn a_thread_is_known_until_it_wakes() {
        let target = Target::by_pid(std::process::id()).unwrap();
        let (tell, told) = mpsc::channel();
        let (wake, woken) = mpsc::channel::<()>();
        let thread = thread::spawn(move || {
            // SAFETY: gettid takes nothing and cannot fail.
            tell.send(unsafe { libc::gettid() } as u32).unwrap();
            let _ = woken.recv();
            let _ = woken.recv();
        });
        let tid = told.recv().unwrap();
        let is_asleep = || target.sleeps_in(tid).is_some();
        morpheus_testing::wait_for("the thread to sleep", is_asleep);
        let mut before = Before::default();
        before.note(&target, tid, target.switches(tid));
        let [(known, since_ns)] = before.still(&target)[..] else {
            panic!("not known");
        };
        assert_eq!(known, tid);
        // Seen again it sleeps since the first time.
        before.note(&target, tid, target.switches(tid));
        assert_eq!(before.still(&target), [(tid, since_ns)]);
        // Asleep again, and not since then.
        let switches = target.switches(tid);
        wake.send(()).unwrap();
        morpheus_testing::wait_for("a second sleep", || {
            target.switches(tid) != switches && is_asleep()
        });
        assert!(before.still(&target).is_empty());
        drop(wake);
        thread.join().unwrap();
        before.note(&target, tid, target.switches(tid));
        assert!(before.still(&target).is_empty());
    }
}
