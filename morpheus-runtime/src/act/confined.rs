//! Threads that are confined to a part of the CPUs, and what they start meanwhile.
//!
//! The affinity of a thread can be changed without rights and changed back, unlike its niceness. But threads and processes that it starts
//! inherit the affinity, and would keep it. So while threads are confined, and once they are not any more, this
//! looks for threads and child processes that are new and have just such an affinity, and gives them all CPUs. A process that has left
//! its parent by then (a daemon that forks twice) is not found, and keeps the part of the CPUs.
//!
//! A thread is confined only if it may run on the controller's CPUs, so that an affinity that the application has set stays.

use std::collections::HashSet;

use morpheus_system::affinity::Cpus;
use morpheus_system::family;
use morpheus_system::seccomp::Call;

use crate::decide::confinement::{Part, narrow};

/// The interval between two searches for threads and processes that confined threads have started. One takes about 0.1 ms beside 60
/// threads.
const SEARCH_INTERVAL_NS: u64 = 20_000_000;
/// The most threads of a child process and its descendants that are looked at.
const MOST_DESCENDANTS: usize = 1_000;

/// The threads of a runtime that are confined at the moment.
#[derive(Debug, Default)]
pub(crate) struct Confined {
    threads: Vec<(u32, Part)>,
    /// There while threads are confined.
    parts: Option<Parts>,
}

#[derive(Debug)]
struct Parts {
    all: Cpus,
    narrow: Cpus,
    wide: Cpus,
    /// Threads of this process, and their children, that do not have the affinity of a confined one by inheritance.
    known: HashSet<u32>,
    searched_ns: u64,
}

/// The number of CPUs that the calling thread, a controller, may keep threads to.
pub(crate) fn cpus() -> usize {
    Cpus::of(0).map_or(0, |cpus| cpus.numbers().len())
}

impl Confined {
    /// Confines these threads and no others. Returns how many were not confined before.
    pub(crate) fn confine(&mut self, now_ns: u64, wanted: &[(u32, Part)]) -> usize {
        if wanted.is_empty() {
            self.release_all();
            return 0;
        }
        // The CPUs of the process may be others by now (`cpuset`).
        if self.parts.as_ref().is_some_and(Parts::are_old) {
            self.release_all();
        }
        if self.parts.is_none() {
            self.parts = Parts::new(now_ns);
        }
        let Some(parts) = &mut self.parts else {
            return 0;
        };
        self.threads.retain(|&(tid, part)| {
            let stays = wanted.iter().any(|(wanted, _)| *wanted == tid);
            if !stays {
                parts.release(tid, part);
            }
            stays
        });
        let before = self.threads.len();
        for &(tid, part) in wanted {
            match self.threads.iter_mut().find(|(known, _)| *known == tid) {
                Some((_, own)) => parts.shift(tid, std::mem::replace(own, part), part),
                None if parts.take(tid, part) => self.threads.push((tid, part)),
                None => {}
            }
        }
        if now_ns.saturating_sub(parts.searched_ns) >= SEARCH_INTERVAL_NS {
            parts.searched_ns = now_ns;
            parts.give_back(&self.threads);
        }
        self.threads.len() - before
    }

    fn release_all(&mut self) {
        let Some(mut parts) = self.parts.take() else {
            return;
        };
        for (tid, part) in self.threads.drain(..) {
            parts.release(tid, part);
        }
        parts.give_back(&[]);
    }
}

impl Drop for Confined {
    /// A controller that ends, also by a panic, leaves nothing confined.
    fn drop(&mut self) {
        self.release_all();
    }
}

impl Parts {
    /// `None` where threads cannot be confined, or what they start would not be found.
    fn new(now_ns: u64) -> Option<Parts> {
        let all = Cpus::of(0)?;
        let numbers = all.numbers();
        let (wide, narrow) = numbers.split_at(numbers.len() - narrow(numbers.len()));
        let [wide, narrow] = [wide, narrow].map(|part| part.iter().copied().collect());
        let known = HashSet::from_iter(family::threads()?);
        Call::SetAffinity.is_allowed().then_some(Parts {
            all,
            narrow,
            wide,
            known,
            searched_ns: now_ns,
        })
    }

    fn of(&self, part: Part) -> Cpus {
        match part {
            Part::Narrow => self.narrow,
            Part::Wide => self.wide,
        }
    }

    /// Whether the controller may run on other CPUs than at the beginning.
    fn are_old(&self) -> bool {
        Cpus::of(0) != Some(self.all)
    }

    /// Whether a thread that this module has not confined has the affinity of one that it has.
    fn inherits(&self, tid: u32) -> bool {
        Cpus::of(tid).is_some_and(|own| own == self.narrow || own == self.wide)
    }

    /// Confines a thread. Returns false if it has another affinity than the controller.
    fn take(&mut self, tid: u32, part: Part) -> bool {
        // Another confined thread may have started it a moment ago.
        let inherits = !self.known.contains(&tid) && self.inherits(tid);
        self.known.insert(tid);
        self.known.extend(family::children(tid));
        (inherits || Cpus::of(tid) == Some(self.all)) && self.of(part).apply_to(tid)
    }

    /// Confines a thread to another part, unless its affinity was changed meanwhile.
    fn shift(&self, tid: u32, from: Part, to: Part) {
        if from != to && Cpus::of(tid) == Some(self.of(from)) {
            self.of(to).apply_to(tid);
        }
    }

    /// Lets a thread run on all CPUs again, unless its affinity was changed meanwhile.
    fn release(&mut self, tid: u32, part: Part) {
        match Cpus::of(0) {
            // The kernel has narrowed both affinities, and keeps ours in mind.
            Some(now) if now != self.all => drop(now.apply_to(tid)),
            _ if Cpus::of(tid) == Some(self.of(part)) => drop(self.all.apply_to(tid)),
            _ => {}
        }
        self.search_children(tid);
    }

    fn widen(&self, tid: u32) {
        if self.inherits(tid) {
            self.all.apply_to(tid);
        }
    }

    /// Gives all CPUs to what confined threads have started.
    fn give_back(&mut self, confined: &[(u32, Part)]) {
        for tid in family::threads().unwrap_or_default() {
            if self.known.insert(tid) {
                self.widen(tid);
                self.search_children(tid);
            }
        }
        for (tid, _) in confined {
            self.search_children(*tid);
        }
    }

    fn search_children(&mut self, tid: u32) {
        for pid in family::children(tid) {
            if self.known.insert(pid) {
                let descendants = family::descendants(pid, MOST_DESCENDANTS);
                descendants.into_iter().for_each(|tid| self.widen(tid));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};
    use std::sync::mpsc;
    use std::thread::JoinHandle;

    use morpheus_system::threads::own_tid;
    use morpheus_testing::wait_for;

    use super::*;

    /// A thread that runs what it is sent.
    struct Worker {
        tid: u32,
        jobs: mpsc::Sender<Box<dyn FnOnce() + Send>>,
        thread: JoinHandle<()>,
    }

    impl Worker {
        fn start() -> Worker {
            let (jobs, todo) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
            let (says, hears) = mpsc::channel();
            let thread = std::thread::spawn(move || {
                says.send(own_tid()).unwrap();
                todo.into_iter().for_each(|job| job());
            });
            let tid = hears.recv().unwrap();
            Worker { tid, jobs, thread }
        }

        fn run<T: Send + 'static>(&self, job: impl FnOnce() -> T + Send + 'static) -> T {
            let (says, hears) = mpsc::channel();
            let job = Box::new(move || says.send(job()).unwrap());
            self.jobs.send(job).unwrap();
            hears.recv().unwrap()
        }

        fn end(self) {
            drop(self.jobs);
            self.thread.join().unwrap();
        }
    }

    /// `None` where there is one CPU, and nothing to confine to.
    fn parts() -> Option<[Cpus; 3]> {
        let parts = Parts::new(0).expect("this process may set its affinity");
        (cpus() > 1).then_some([parts.all, parts.narrow, parts.wide])
    }

    fn sleep() -> Child {
        let sleep = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn();
        sleep.unwrap()
    }

    fn end(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn threads_are_confined_and_released() {
        let Some([all, narrow, wide]) = parts() else {
            return;
        };
        let (one, other) = (Worker::start(), Worker::start());
        let mut confined = Confined::default();
        let of = || [&one, &other].map(|worker| Cpus::of(worker.tid).unwrap());
        assert_eq!(confined.confine(0, &[(one.tid, Part::Narrow)]), 1);
        assert_eq!(of(), [narrow, all]);
        let both = [(other.tid, Part::Narrow), (one.tid, Part::Wide)];
        assert_eq!(confined.confine(1, &both), 1);
        assert_eq!(of(), [wide, narrow]);
        assert_eq!(confined.confine(2, &both[..1]), 0);
        assert_eq!(of(), [all, narrow]);
        drop(confined);
        assert_eq!(of(), [all, all]);
        [one, other].into_iter().for_each(Worker::end);
    }

    #[test]
    fn what_a_confined_thread_starts_has_all_cpus_in_the_end() {
        let Some([all, narrow, _]) = parts() else {
            return;
        };
        let hog = Worker::start();
        let before = hog.run(sleep);
        assert!(narrow.apply_to(before.id()), "as the application wants it");
        let mut confined = Confined::default();
        confined.confine(0, &[(hog.tid, Part::Narrow)]);
        let (thread, child) = hog.run(|| (Worker::start(), sleep()));
        assert_eq!(Cpus::of(thread.tid), Some(narrow), "it inherits");
        let grandchild = thread.run(sleep);
        wait_for("both have begun", || {
            [&child, &grandchild]
                .iter()
                .all(|child| Cpus::of(child.id()).is_some())
        });
        // While the thread is confined.
        confined.confine(SEARCH_INTERVAL_NS, &[(hog.tid, Part::Narrow)]);
        let started = [thread.tid, child.id(), grandchild.id()];
        assert_eq!(started.map(Cpus::of), [Some(all); 3]);
        // And what it starts last.
        let (last, last_child) = hog.run(|| (Worker::start(), sleep()));
        confined.confine(SEARCH_INTERVAL_NS + 1, &[]);
        let started = [hog.tid, last.tid, last_child.id()];
        assert_eq!(started.map(Cpus::of), [Some(all); 3]);
        assert_eq!(Cpus::of(before.id()), Some(narrow));
        [before, child, grandchild, last_child]
            .into_iter()
            .for_each(end);
        [thread, last, hog].into_iter().for_each(Worker::end);
    }

    #[test]
    fn an_affinity_of_the_application_stays() {
        let Some([all, narrow, _]) = parts() else {
            return;
        };
        let first: Cpus = all.numbers().into_iter().take(1).collect();
        let (pinned, moved) = (Worker::start(), Worker::start());
        let changed = pinned.run(move || first.apply_to(0));
        assert!(changed && first != narrow);
        let mut confined = Confined::default();
        assert_eq!(
            confined.confine(0, &[pinned.tid, moved.tid].map(|tid| (tid, Part::Narrow))),
            1
        );
        moved.run(move || assert!(first.apply_to(0)));
        confined.confine(1, &[]);
        assert_eq!([pinned.tid, moved.tid].map(Cpus::of), [Some(first); 2]);
        [pinned, moved].into_iter().for_each(Worker::end);
    }

    #[test]
    fn threads_that_have_ended_are_no_trouble() {
        let Some([_, narrow, _]) = parts() else {
            return;
        };
        let hog = Worker::start();
        let tid = hog.tid;
        let mut confined = Confined::default();
        confined.confine(0, &[(tid, Part::Narrow)]);
        assert_eq!(Cpus::of(tid), Some(narrow));
        hog.end();
        assert_eq!(
            confined.confine(1, &[tid, i32::MAX as u32].map(|tid| (tid, Part::Wide))),
            0
        );
        drop(confined);
    }
}
