//! Threads that are confined to a part of the CPUs, and what they start meanwhile.
//!
//! The affinity of a thread can be changed without rights and changed back, unlike its niceness. But threads and processes that it starts
//! inherit the affinity, and would keep it. So while threads are confined, and for some searches after that, this looks for threads and
//! child processes that are new and have just such an affinity, and gives them all CPUs. A process that has left its parent by then (a
//! daemon that forks twice) is not found, and keeps the part of the CPUs.
//!
//! A thread is confined only if it may run on the controller's CPUs, so that an affinity that the application has set stays.

use std::collections::{HashMap, HashSet};

use morpheus_system::affinity::{self, Cpus};
use morpheus_system::asleep::ThreadStat;
use morpheus_system::family;
use morpheus_system::seccomp::Call;

use crate::decide::confinement::{Part, narrow};

/// The interval between two searches for threads and processes that confined threads have started. One takes about 0.1 ms beside 60
/// threads, and next to nothing where the system has started none.
const SEARCH_INTERVAL_NS: u64 = 20_000_000;
/// Searches that may find a new child, or one below it: the kernel copies the affinity when a `fork` begins, and lists the child when it
/// ends.
const SEARCHES: u32 = 2;
/// The most threads of a child process and its descendants that are looked at.
const MOST_DESCENDANTS: usize = 1_000;

/// The threads of a runtime that are confined at the moment.
#[derive(Debug, Default)]
pub(crate) struct Confined {
    threads: HashMap<u32, Part>,
    /// Threads that are to be confined and cannot be.
    refused: HashSet<u32>,
    /// There while threads are confined, and until nothing that they have started can be missing.
    episode: Option<Episode>,
}

#[derive(Debug)]
struct Episode {
    all: Cpus,
    narrow: Cpus,
    wide: Cpus,
    /// What a thread gets that is released: no limit, if none holds for the process, so that CPUs that come later are its own, too.
    free: Cpus,
    /// Threads of this process that do not have the affinity of a confined one by inheritance.
    known: HashSet<u32>,
    /// Threads that were confined, with the searches to come that look for their children.
    parents: HashMap<u32, u32>,
    /// Their children, with the searches that have found them.
    children: HashMap<u32, u32>,
    searched_ns: u64,
    /// The last thread or process of the system at the search before.
    last_pid: Option<u32>,
    /// Searches that found the same one.
    quiet: u32,
    /// Searches since threads were confined.
    empty: u32,
}

/// The number of CPUs that the calling thread, a controller, may keep threads to.
pub(crate) fn cpus() -> usize {
    Cpus::of(0).map_or(0, |cpus| cpus.count())
}

impl Confined {
    /// Confines these threads and no others. Returns how many were not confined before.
    pub(crate) fn confine(&mut self, now_ns: u64, wanted: &[(u32, Part)]) -> usize {
        // The CPUs of the process may be others by now (`cpuset`).
        if self.episode.as_ref().is_some_and(Episode::is_old) {
            self.release_all();
        }
        if self.episode.is_none() && !wanted.is_empty() {
            self.episode = Episode::new(now_ns);
        }
        let Some(episode) = &mut self.episode else {
            return 0;
        };
        let wanted: HashMap<u32, Part> = wanted.iter().copied().collect();
        self.refused.retain(|tid| wanted.contains_key(tid));
        self.threads.retain(|&tid, part| {
            let stays = wanted.contains_key(&tid);
            if !stays {
                episode.release(tid, *part);
            }
            stays
        });
        let before = self.threads.len();
        for (&tid, &part) in &wanted {
            match self.threads.get_mut(&tid) {
                Some(own) if *own != part && episode.shift(tid, *own, part) => *own = part,
                Some(_) => {}
                None if self.refused.contains(&tid) => {}
                None if episode.take(tid, part) => drop(self.threads.insert(tid, part)),
                None => drop(self.refused.insert(tid)),
            }
        }
        if now_ns.saturating_sub(episode.searched_ns) >= SEARCH_INTERVAL_NS {
            episode.searched_ns = now_ns;
            if episode.search(&self.threads) {
                self.episode = None;
            }
        }
        self.threads.len() - before
    }

    /// The part of the CPUs on which a thread runs or last ran, while others are confined.
    pub(crate) fn is_on(&self, tid: u32) -> Option<Part> {
        let episode = self.episode.as_ref()?;
        let cpu = ThreadStat::open(tid)?.cpu()?;
        let is_on = |part: &Part| episode.of(*part).contains(cpu);
        [Part::Wide, Part::Narrow].into_iter().find(is_on)
    }

    /// Whether there is something left to be done, though no thread is to be confined.
    pub(crate) fn is_busy(&self) -> bool {
        self.episode.is_some()
    }

    fn release_all(&mut self) {
        let Some(mut episode) = self.episode.take() else {
            return;
        };
        // All threads of the process may have got another affinity meanwhile (`taskset -a`), which stays.
        if let Some(all) = Cpus::of(0).filter(|all| *all != episode.all) {
            episode.free = free(all);
        }
        for (tid, part) in self.threads.drain() {
            episode.release(tid, part);
        }
        episode.give_back(&self.threads);
    }
}

impl Drop for Confined {
    /// A controller that ends, also by a panic, leaves nothing confined.
    fn drop(&mut self) {
        self.release_all();
    }
}

impl Episode {
    /// `None` where threads cannot be confined, or what they start would not be found.
    fn new(now_ns: u64) -> Option<Episode> {
        if !Call::SetAffinity.is_allowed() || !family::has_children() {
            return None;
        }
        let all = Cpus::of(0)?;
        let [narrow, wide] = halves(&affinity::cores(&all));
        Some(Episode {
            all,
            narrow: narrow.into_iter().collect(),
            wide: wide.into_iter().collect(),
            free: free(all),
            known: family::threads()?.into_iter().collect(),
            parents: HashMap::new(),
            children: HashMap::new(),
            searched_ns: now_ns,
            last_pid: None,
            quiet: 0,
            empty: 0,
        })
    }

    fn of(&self, part: Part) -> Cpus {
        match part {
            Part::Narrow => self.narrow,
            Part::Wide => self.wide,
        }
    }

    /// Whether the controller may run on other CPUs than at the beginning.
    fn is_old(&self) -> bool {
        Cpus::of(0) != Some(self.all)
    }

    /// Whether an affinity is that of a part, also of what the kernel has left of it.
    fn is_part(&self, own: Cpus, part: Part) -> bool {
        let part = self.of(part);
        let left = || Cpus::of(0).map(|now| part.and(&now));
        own == part || left().is_some_and(|left| left == own)
    }

    /// Whether a thread that this module has not confined has the affinity of one that it has.
    fn inherits(&self, tid: u32) -> bool {
        let is_part = |own| [Part::Narrow, Part::Wide].map(|part| self.is_part(own, part));
        Cpus::of(tid).is_some_and(|own| own != self.all && is_part(own).contains(&true))
    }

    /// Confines a thread. Returns false if it has another affinity than the controller, or has ended.
    fn take(&mut self, tid: u32, part: Part) -> bool {
        // Another confined thread may have started it a moment ago.
        let inherits = !self.known.contains(&tid) && self.inherits(tid);
        self.known.insert(tid);
        if !inherits && Cpus::of(tid) != Some(self.all) {
            return false;
        }
        if !inherits {
            let before = family::children(tid).into_iter();
            self.children.extend(before.map(|pid| (pid, SEARCHES)));
        }
        self.parents.insert(tid, SEARCHES);
        self.of(part).apply_to(tid)
    }

    /// Confines a thread to another part, unless its affinity was changed meanwhile. Returns whether it did.
    fn shift(&self, tid: u32, from: Part, to: Part) -> bool {
        Cpus::of(tid) == Some(self.of(from)) && self.of(to).apply_to(tid)
    }

    /// Lets a thread run on all CPUs again, unless its affinity was changed meanwhile.
    fn release(&self, tid: u32, part: Part) {
        let Some(own) = Cpus::of(tid) else {
            return;
        };
        // Where the process has lost all CPUs of the part, the kernel keeps that in mind, and shows those that are left.
        let has_lost_all = || {
            let left = Cpus::of(0).map(|now| (now, self.of(part).and(&now)));
            left.is_some_and(|(now, left)| left.count() == 0 && own == now)
        };
        if self.is_part(own, part) || has_lost_all() {
            self.free.apply_to(tid);
        }
    }

    /// Gives all CPUs to a thread that has inherited a part. Returns whether it has.
    fn widen(&self, tid: u32) -> bool {
        let inherits = self.inherits(tid);
        if inherits {
            self.free.apply_to(tid);
        }
        inherits
    }

    /// Gives all CPUs to what these confined threads have started, or released ones a moment ago. Returns whether that was the last search.
    fn search(&mut self, confined: &HashMap<u32, Part>) -> bool {
        self.empty = match confined.is_empty() {
            true => self.empty + 1,
            false => 0,
        };
        let last_pid = family::last_pid();
        self.quiet = match last_pid.is_some() && last_pid == self.last_pid {
            true => self.quiet + 1,
            false => 0,
        };
        self.last_pid = last_pid;
        if self.quiet < SEARCHES {
            self.give_back(confined);
        }
        self.empty > SEARCHES
    }

    fn give_back(&mut self, confined: &HashMap<u32, Part>) {
        let threads = HashSet::from_iter(family::threads().unwrap_or_default());
        for &tid in threads.difference(&self.known) {
            if self.widen(tid) {
                self.parents.insert(tid, SEARCHES);
            }
        }
        self.known = threads;
        let before = std::mem::take(&mut self.children);
        for tid in self.parents.keys() {
            for pid in family::children(*tid) {
                let searches = before.get(&pid).copied().unwrap_or(0);
                if searches < SEARCHES {
                    family::descendants(pid, MOST_DESCENDANTS, |tid| {
                        self.widen(tid);
                    });
                }
                self.children.insert(pid, searches + 1);
            }
        }
        self.parents.retain(|tid, searches| {
            *searches = match confined.contains_key(tid) {
                true => SEARCHES,
                false => searches.saturating_sub(1),
            };
            *searches > 0
        });
    }
}

/// The narrow and the wide part of CPUs that are given core by core. Cores go to them in turn, so that both have cores of each kind, the
/// CPUs of one core are in one part where that can be, and a part is seldom what an application would keep a thread to.
fn halves(cores: &[Vec<usize>]) -> [Vec<usize>; 2] {
    let in_turn = |first: usize| cores.iter().rev().skip(first).step_by(2).flatten().copied();
    let mut order: Vec<usize> = in_turn(0).chain(in_turn(1)).collect();
    let wide = order.split_off(narrow(order.len()));
    [order, wide]
}

/// No limit, if that leaves the calling thread the CPUs that it has; else these.
fn free(all: Cpus) -> Cpus {
    let every = Cpus::every();
    if every.apply_to(0) && Cpus::of(0) == Some(all) {
        return every;
    }
    all.apply_to(0);
    all
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};
    use std::sync::mpsc;
    use std::thread::JoinHandle;

    use morpheus_system::threads::own_tid;
    use morpheus_testing::{in_own_process, wait_for};

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
        let episode = Episode::new(0).expect("this process may set its affinity");
        (cpus() > 1).then_some([episode.all, episode.narrow, episode.wide])
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
        if !in_own_process(module_path!(), "threads_are_confined_and_released") {
            return;
        }
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
        if !in_own_process(
            module_path!(),
            "what_a_confined_thread_starts_has_all_cpus_in_the_end",
        ) {
            return;
        }
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
        // And what it starts last: the next search finds it, though nothing is confined any more.
        let (last, last_child) = hog.run(|| (Worker::start(), sleep()));
        confined.confine(SEARCH_INTERVAL_NS + 1, &[]);
        assert!(confined.is_busy());
        let mut at_ns = SEARCH_INTERVAL_NS;
        while confined.is_busy() {
            at_ns += SEARCH_INTERVAL_NS;
            assert!(at_ns < 10 * SEARCH_INTERVAL_NS);
            confined.confine(at_ns, &[]);
        }
        let started = [hog.tid, last.tid, last_child.id()];
        assert_eq!(started.map(Cpus::of), [Some(all); 3]);
        assert_eq!(Cpus::of(before.id()), Some(narrow));
        [before, child, grandchild, last_child]
            .into_iter()
            .for_each(end);
        [thread, last, hog].into_iter().for_each(Worker::end);
    }

    /// It is new, and a hog itself, when it is first seen.
    #[test]
    fn a_confined_thread_that_is_confined_has_children_with_all_cpus() {
        let name = "a_confined_thread_that_is_confined_has_children_with_all_cpus";
        if !in_own_process(module_path!(), name) {
            return;
        }
        let Some([all, narrow, _]) = parts() else {
            return;
        };
        let hog = Worker::start();
        let mut confined = Confined::default();
        confined.confine(0, &[(hog.tid, Part::Narrow)]);
        let thread = hog.run(Worker::start);
        let child = thread.run(sleep);
        wait_for("it has begun", || Cpus::of(child.id()) == Some(narrow));
        let both = [hog.tid, thread.tid].map(|tid| (tid, Part::Narrow));
        assert_eq!(confined.confine(1, &both), 1);
        confined.confine(SEARCH_INTERVAL_NS, &both);
        assert_eq!(Cpus::of(child.id()), Some(all));
        drop(confined);
        assert_eq!([hog.tid, thread.tid].map(Cpus::of), [Some(all); 2]);
        end(child);
        [thread, hog].into_iter().for_each(Worker::end);
    }

    /// Their numbers come again.
    #[test]
    fn threads_and_children_that_have_ended_are_forgotten() {
        let name = "threads_and_children_that_have_ended_are_forgotten";
        if !in_own_process(module_path!(), name) {
            return;
        }
        if parts().is_none() {
            return;
        }
        let hog = Worker::start();
        let mut confined = Confined::default();
        let wanted = [(hog.tid, Part::Narrow)];
        confined.confine(0, &wanted);
        let (thread, child) = hog.run(|| (Worker::start(), sleep()));
        let (tid, pid) = (thread.tid, child.id());
        let is_known = |confined: &Confined| {
            let episode = confined.episode.as_ref().unwrap();
            [
                episode.known.contains(&tid),
                episode.children.contains_key(&pid),
            ]
        };
        confined.confine(SEARCH_INTERVAL_NS, &wanted);
        assert_eq!(is_known(&confined), [true; 2]);
        thread.end();
        hog.run(move || end(child));
        // A search looks again where something has started.
        std::thread::spawn(|| ()).join().unwrap();
        confined.confine(2 * SEARCH_INTERVAL_NS, &wanted);
        assert_eq!(is_known(&confined), [false; 2]);
        hog.end();
    }

    /// All threads of the process are kept to other CPUs than before: the controller's affinity tells it.
    #[test]
    fn what_was_confined_on_other_cpus_is_released() {
        let name = "what_was_confined_on_other_cpus_is_released";
        if !in_own_process(module_path!(), name) {
            return;
        }
        let Some([all, ..]) = parts() else {
            return;
        };
        let (one, other) = (Worker::start(), Worker::start());
        let mut confined = Confined::default();
        let wanted = [(one.tid, Part::Narrow), (other.tid, Part::Wide)];
        assert_eq!(confined.confine(0, &wanted), 2);
        // As `taskset -a` does.
        let first: Cpus = all.numbers().into_iter().take(1).collect();
        let threads = [0, one.tid, other.tid];
        assert!(threads.iter().all(|&tid| first.apply_to(tid)));
        confined.confine(1, &[]);
        assert_eq!(threads.map(Cpus::of), [Some(first); 3], "it stays");
        assert!(!confined.is_busy());
        assert!(threads[1..].iter().all(|&tid| all.apply_to(tid)));
        assert_eq!(confined.confine(2, &wanted), 0, "they may use more CPUs");
        assert!(all.apply_to(0));
        [one, other].into_iter().for_each(Worker::end);
    }

    #[test]
    fn both_parts_have_cores_of_each_kind() {
        let single = |count| (0..count).map(|cpu| vec![cpu]).collect::<Vec<_>>();
        assert_eq!(halves(&single(2)), [vec![1], vec![0]]);
        assert_eq!(halves(&single(5)), [vec![4, 2, 0], vec![3, 1]]);
        // Two threads a core, numbered as on most machines.
        let cores: Vec<_> = (0..4).map(|cpu| vec![cpu, cpu + 4]).collect();
        assert_eq!(halves(&cores), [vec![3, 7, 1, 5], vec![2, 6, 0, 4]]);
        assert_eq!(halves(&[vec![0, 1]]), [vec![0], vec![1]]);
        assert_eq!(halves(&[]), [vec![], vec![]]);
        for cpus in 1..20 {
            assert_eq!(halves(&single(cpus))[0].len(), narrow(cpus));
        }
    }

    #[test]
    fn an_affinity_of_the_application_stays() {
        if !in_own_process(module_path!(), "an_affinity_of_the_application_stays") {
            return;
        }
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
        if !in_own_process(module_path!(), "threads_that_have_ended_are_no_trouble") {
            return;
        }
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
