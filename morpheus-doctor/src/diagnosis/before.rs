//! Threads that slept in a poll when the doctor came, until they wake.
//!
//! Nothing happens in such a thread, so no source sees it. A service that hangs has them, and that is when a doctor is called. The
//! kernel counts how many times a thread was given a CPU: while the number is the same, a thread that was asleep sleeps still.

use std::collections::HashMap;

use super::Sleeping;
use crate::source::{SystemCall, now_ns};
use crate::target::Target;
use crate::unwind::StackCopy;

/// Such a thread, as it was seen first.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    turns: u64,
    pub(super) since_ns: u64,
    /// It slept still.
    pub(super) last_ns: u64,
    pub(super) call: Option<SystemCall>,
    pub(super) copy: StackCopy,
}

/// These threads.
#[derive(Debug, Default)]
pub(super) struct Before {
    threads: HashMap<u32, Seen>,
}

impl Before {
    /// A thread sleeps in a poll.
    pub(super) fn note(&mut self, target: &Target, tid: u32, sleeping: Sleeping) {
        let Sleeping {
            call,
            copy,
            turns,
            since_ns,
        } = sleeping;
        // It may have woken, and gone to sleep elsewhere, while its stack was read.
        let Some(turns) = turns.filter(|_| target.turns(tid) == turns) else {
            return;
        };
        match self.threads.get_mut(&tid) {
            Some(seen) if seen.turns == turns => seen.last_ns = since_ns,
            // The one before is still to be taken out.
            Some(_) => {}
            None => {
                let seen = Seen {
                    turns,
                    since_ns,
                    last_ns: since_ns,
                    call,
                    copy,
                };
                self.threads.insert(tid, seen);
            }
        }
    }

    /// Whether a sleep of this thread is known.
    pub(super) fn knows(&self, tid: u32) -> bool {
        self.threads.contains_key(&tid)
    }

    /// Forgets a thread: its poll has been counted.
    pub(super) fn forget(&mut self, tid: u32) {
        self.threads.remove(&tid);
    }

    /// Takes out those that do not sleep any more: from now on they are the source's.
    pub(super) fn woken(&mut self, target: &Target) -> Vec<(u32, Seen)> {
        let woken = self.threads.extract_if(|&tid, seen| {
            let now_ns = now_ns();
            let sleeps = target.turns(tid) == Some(seen.turns) && target.sleeps_in(tid).is_some();
            if sleeps {
                seen.last_ns = now_ns;
            }
            !sleeps
        });
        woken.collect()
    }

    /// Whether a thread that sleeps has done so since then.
    pub(super) fn since(&self, tid: u32, turns: Option<u64>) -> Option<u64> {
        let seen = self.threads.get(&tid)?;
        (turns == Some(seen.turns)).then_some(seen.since_ns)
    }

    /// The threads, and since when each has slept at the latest.
    pub(super) fn all(&self) -> Vec<(u32, u64)> {
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
        let sleeping = || super::super::sleeping_stack(&target, tid);
        morpheus_testing::wait_for("the thread to sleep", || sleeping().is_some());
        let mut before = Before::default();
        before.note(&target, tid, sleeping().unwrap());
        assert!(before.woken(&target).is_empty());
        let [(known, since_ns)] = before.all()[..] else {
            panic!("not known");
        };
        assert_eq!(known, tid);
        // Seen again it sleeps since the first time.
        before.note(&target, tid, sleeping().unwrap());
        assert_eq!(before.all(), [(tid, since_ns)]);
        let turns = target.turns(tid);
        assert_eq!(before.since(tid, turns), Some(since_ns));
        // Asleep again, and not since then.
        wake.send(()).unwrap();
        morpheus_testing::wait_for("a second sleep", || {
            target.turns(tid) != turns && sleeping().is_some()
        });
        assert_eq!(before.since(tid, target.turns(tid)), None);
        let [(woken, seen)] = &before.woken(&target)[..] else {
            panic!("not woken");
        };
        assert!(*woken == tid && seen.last_ns >= seen.since_ns && before.all().is_empty());
        before.note(&target, tid, sleeping().unwrap());
        drop(wake);
        thread.join().unwrap();
        assert_eq!(before.woken(&target).len(), 1, "it has ended");
    }
}
