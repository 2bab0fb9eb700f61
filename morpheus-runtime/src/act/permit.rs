//! Permits: limit how many slow tasks run a handoff poll at once.
//!
//! Every handoff poll runs on a thread of its own, and these threads share the CPUs with the workers. So at most two
//! per CPU and one more may *run*; polls asleep in the kernel do not count. CPU hogs may have one of these per CPU. One
//! hog may always run, also beside slow tasks that have all these permits. The other tasks wait, each class in the order
//! of arrival. Two hundred hogs thus run a few at a time.
//!
//! The controller sees once a sample which holders sleep. If the stalled polls of a label mostly slept, its next poll is a **sleeper's**: it
//! counts as asleep from its start until it is found to compute ([`Permits::computes`]). Otherwise only two blocking calls per CPU
//! could begin in each sample, and hundreds of sleepers that are about to fall asleep would hold all permits of other labels.
//!
//! A slow task whose poll turns out to be a hog poll gives its place among the slow tasks up at once
//! ([`Permits::becomes_hog`]): otherwise a few first hogs would hold all permits for as long as they compute.
//!
//! An **untried** task (of which no poll has shown anything yet, under a label that is in doubt) is probably short, or a hog as its
//! label's others. It must not wait behind two hundred hogs, and two hundred of them must not run at once. So these have a queue of
//! their own. A place is free while fewer polls run than may run at all, and one more each time that none of them has begun or ended
//! for a while ([`UNTRIED_WAITS_NS`], doubled with each; one more for each CPU at most). The **newest** gets a place: if it is given
//! back at once, the next is served, and a hundred short polls wait for no more than the end of one hog. In order of arrival each of
//! them would wait for all hogs before it. One that was short so far gets a place beyond one for each CPU, too. The oldest gets every
//! other place once it has waited for [`OLDEST_WAITS_NS`], so that none waits for ever. One hog that is known always runs beside them.
//!
//! A **mixed** task is of a label with long and short polls in any order: a connection behind a proxy, which carries requests of all
//! kinds, or one that carries a single request. Nothing tells what its next poll is, and most are short, so that it may not wait for
//! the end of a hog. As many as other tasks may begin at once, in the order of arrival. Once a poll has turned out to be long it counts
//! as that ([`Permits::becomes_long`]), and makes room for the next: nothing can stop it any more. So more hogs run at once than of
//! tasks that are known, up to a limit that is far away; where threads can be confined, they have a part of the CPUs. Threads that wait
//! already when their label turns out to mix become mixed.
//!
//! No task waits for ever. If no permit moves for [`STANDSTILL_NS`] (slow tasks that spin until another one runs),
//! the oldest waiter gets one beyond the limits on running polls; so does the oldest of a class of which none moves for
//! [`STANDSTILL_OF_CLASS_NS`]. A long wait alone does not lift the limit. Behind polls of 200 ms every waiter waits long, and more
//! hogs would take the CPUs from other processes. A granted permit that is not taken up for [`TAKE_UP_NS`] (its future is alive but
//! is not polled) goes to the next waiter. A task that comes for it later has a worker by then, and gets one at once: in the queue
//! it would lose that one as well, for as long as woken tasks wait for a worker that long.
//!
//! **Invariant:** a permit is either in a [`Permit`] guard, or granted to a waiter in `granted`, or free. A waiter
//! that is dropped gives its granted permit back.

use std::collections::BTreeSet;
use std::collections::btree_map::{BTreeMap, Entry};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;

use tokio::runtime::Handle;

use crate::act::queue::{Queue, Ticket};
use crate::act::wake::Wake;
use crate::decide::history::History;
use crate::decide::rating::{PROVEN_AFTER, Rating};
use morpheus_system::clock;
use morpheus_system::lock::lock;

/// If no permit moves for this time while a task waits, one more is granted, in nanoseconds.
const STANDSTILL_NS: u64 = 500_000_000;
/// If no permit of a class moves for this time while a task of that class waits, one more is granted, whatever the other classes do,
/// in nanoseconds.
const STANDSTILL_OF_CLASS_NS: u64 = 5_000_000_000;
/// If all permits are out, a task that has waited this long is polled inline, in nanoseconds.
const INLINE_AFTER_NS: u64 = 20_000_000;
/// If no untried task has begun or ended its poll for this time while one waits, one more of them may run, in nanoseconds. The next
/// one waits for twice as long, and so on up to [`STANDSTILL_NS`].
const UNTRIED_WAITS_NS: u64 = 3_000_000;
/// From this wait on, in nanoseconds, every other untried task is the oldest.
const OLDEST_WAITS_NS: u64 = 1_000_000_000;
/// The most long polls of mixed tasks for each CPU. Each takes CPU time from the workers; where there are this many, all mixed tasks wait.
const MOST_LONG: usize = 64;
/// A grant that is not taken up within this time is taken back, in nanoseconds.
const TAKE_UP_NS: u64 = 100_000_000;
/// The bit of the word of a permit that says that it is a sleeper's.
const SLEEPER: u32 = 1 << 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Class {
    Slow = 0,
    Hog = 1,
    /// Only the hooks ask for it, and for the next.
    Untried = 2,
    Mixed = 3,
    /// A mixed task whose poll has turned out to be long. Nothing asks for it.
    Long = 4,
}

/// The number of classes.
pub(crate) const CLASSES: usize = 5;

impl Class {
    const ALL: [Class; CLASSES] = [
        Class::Slow,
        Class::Hog,
        Class::Untried,
        Class::Mixed,
        Class::Long,
    ];

    /// The class of a permit as a slot has it; 0 is a thread without one.
    pub(crate) fn word(self) -> u32 {
        self as u32 + 1
    }

    /// The class of a permit by the word of its slot. That of a slow task where there is none: it has its core.
    pub(crate) fn of_word(word: u32) -> Class {
        let word = word & !SLEEPER;
        let class = Class::ALL.into_iter().find(|class| class.word() == word);
        class.unwrap_or(Class::Slow)
    }
}

/// Whether the permit of a slot is a sleeper's, by its word.
pub(crate) fn is_sleepers(word: u32) -> bool {
    word & SLEEPER != 0
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Handoff polls that may run at once.
    pub(crate) running: usize,
    /// Of these, handoff polls of CPU hogs.
    pub(crate) hogs: usize,
    /// Handoff polls beyond `running` for the sake of untried tasks. Each takes CPU time from the workers: without a limit, requests
    /// over TCP beside 20 hogs of 200 ms that begin at once took 180 to 400 ms at p99 until all had run once, and 40 with one for each
    /// CPU (`starvation --runtime morpheus-flag --hogs 20 --load 16 --warmup 2`).
    pub(crate) more_untried: usize,
    /// Long handoff polls of mixed tasks, beyond all of these.
    pub(crate) long: usize,
    /// Handoff polls in total, running or asleep: each has a thread.
    pub(crate) in_handoff: usize,
}

impl Limits {
    pub(crate) fn for_cpus(cpus: usize, in_handoff: usize) -> Limits {
        Limits {
            running: 2 * cpus + 1,
            // As many as CPUs, and they have the kernel's slices. With short ones, two of them may share a CPU while another is idle:
            // the kernel moves no thread that ran less than 0.5 ms ago. One hog more would fill that gap, and come before workers:
            // its deadlines were as near as theirs (`service --clients 40 --only tokio-tuned-bounded,morpheus+flag`).
            hogs: cpus,
            more_untried: cpus,
            long: MOST_LONG * cpus,
            in_handoff,
        }
    }
}

#[derive(Debug)]
enum Phase {
    Waiting(Waker),
    Granted {
        is_sleepers: bool,
    },
    /// The wait ended without a permit, because all are out or the controller has stopped. The waiter has left the queue, and
    /// its future is polled inline.
    Inline,
    /// Taken up, taken back or dropped. The waiter is in no list.
    Gone,
}

/// A position in the queue, owned by the future that waits.
#[derive(Debug)]
pub(crate) struct Waiter {
    /// The queue's owner: a thread of another runtime may poll or drop the future.
    permits: Arc<Permits>,
    /// [`Permits::tick`] writes it under the lock of the state, while the waiter is queued.
    class: AtomicUsize,
    /// History of the label, which may give the task another class while it waits.
    history: Option<Arc<History>>,
    ticket: Ticket,
    since_ns: u64,
    blocks_thread: bool,
    /// The runtime that polls the waiting future; `None` outside of one.
    runtime: Option<Handle>,
    phase: Mutex<Phase>,
}

impl Waiter {
    fn class(&self) -> Class {
        // Relaxed, pairs with nothing: read under the lock of the state, or after the grant, when it no longer
        // changes.
        Class::ALL[self.class.load(Ordering::Relaxed)]
    }

    /// Whether its poll will probably sleep. A label may be found to sleep while its tasks wait. By what was known when they came,
    /// those that come later would go before them, for as long as they come.
    fn sleeps(&self) -> bool {
        self.ticket.sleeps
            || self
                .history
                .as_ref()
                .is_some_and(|history| history.sleeps())
    }

    fn wake(&self, waker: Waker) -> Wake {
        Wake {
            waker,
            runtime: self.runtime.clone(),
            is_own: self.blocks_thread,
        }
    }

    /// The class that the history of its label may give it, with that as its key in [`State::may_become`].
    fn may_become(&self) -> Option<((usize, usize), &Arc<History>)> {
        let history = self.history.as_ref()?;
        let becomes = match self.class() {
            // A thread that waits polls a task that has a record of its own, which tells whether it is a hog.
            Class::Slow | Class::Hog | Class::Untried if self.blocks_thread => Class::Mixed,
            Class::Slow => Class::Hog,
            _ => return None,
        };
        let key = (becomes as usize, Arc::as_ptr(history).addr());
        Some((key, history))
    }

    /// Ends the wait of a waiter that is in no queue any more: its future is polled inline.
    fn send_inline(&self) -> Option<Wake> {
        let before = std::mem::replace(&mut *lock(&self.phase), Phase::Inline);
        match before {
            Phase::Waiting(waker) => Some(self.wake(waker)),
            Phase::Granted { .. } | Phase::Inline | Phase::Gone => None,
        }
    }

    /// Returns the permit, if it was granted; otherwise keeps the newest waker. Called in a poll of the waiting
    /// future.
    ///
    /// # Errors
    ///
    /// The wait has ended without a permit. After [`NoPermit::Inline`] every later call returns the same.
    pub(crate) fn take_up(self: &Arc<Self>, waker: &Waker) -> Result<Option<Permit>, NoPermit> {
        // A waker is code of the application, and may come back here: it is cloned before the locks are taken, and the previous one
        // is dropped after them, as the first variable of this function.
        let mut newest = waker.clone();
        // Lock order everywhere: state, then phase.
        let mut state = self.permits.lock();
        let mut phase = lock(&self.phase);
        match &mut *phase {
            Phase::Waiting(known) => {
                std::mem::swap(known, &mut newest);
                Ok(None)
            }
            &mut Phase::Granted { is_sleepers } => {
                *phase = Phase::Gone;
                state
                    .granted
                    .retain(|(granted, _)| !Arc::ptr_eq(granted, self));
                Ok(Some(Permit {
                    permits: self.permits.clone(),
                    class: self.class(),
                    is_sleepers,
                }))
            }
            Phase::Inline => Err(NoPermit::Inline),
            Phase::Gone => Err(NoPermit::TakenBack),
        }
    }

    /// Ends the wait. Called when the waiting future is dropped, or when its poll needs no permit.
    pub(crate) fn leave(self: &Arc<Self>) {
        let before = {
            let mut state = self.permits.lock();
            let before = std::mem::replace(&mut *lock(&self.phase), Phase::Gone);
            match before {
                Phase::Granted { .. } => state
                    .granted
                    .retain(|(granted, _)| !Arc::ptr_eq(granted, self)),
                Phase::Waiting(_) => drop(state.remove(self.class(), self.ticket.number)),
                Phase::Inline | Phase::Gone => {}
            }
            before
        };
        if let Phase::Granted { is_sleepers } = before {
            self.permits.give_back(self.class(), is_sleepers);
        }
    }
}

/// The history of a label, and the classes and numbers of waiters.
type OfLabel = (Arc<History>, BTreeSet<(usize, u64)>);

#[derive(Debug, Default)]
struct State {
    /// Permits out, by class: held by a guard or granted to a waiter.
    out: [usize; CLASSES],
    /// Of these, sleepers' permits.
    sleepers: [usize; CLASSES],
    /// Of the others, permits of polls that were asleep in the kernel at the last sample.
    asleep: [usize; CLASSES],
    queues: [Queue<Arc<Waiter>>; CLASSES],
    /// The number of the next waiter.
    next_number: u64,
    /// The waiters that their labels may give another class, by that class and the address of the label's history.
    may_become: BTreeMap<(usize, usize), OfLabel>,
    /// The threads that wait in the queues.
    blocked_threads: usize,
    /// Whether the next place of an untried task is the oldest one's, if that has waited for too long.
    is_turn_of_oldest: bool,
    /// How many more polls may run for the sake of untried tasks.
    more_untried: usize,
    granted: Vec<(Arc<Waiter>, u64)>,
    /// When a poll of each class last began or ended, or the first task began to wait.
    moved_at_ns: [u64; CLASSES],
    peak: usize,
    /// The runtime ends, and no thread may wait.
    threads_are_free: bool,
}

impl State {
    fn running(&self, class: Class) -> usize {
        let asleep = self.sleepers[class as usize] + self.asleep[class as usize];
        self.out[class as usize].saturating_sub(asleep)
    }

    /// All permits that are out.
    fn all_out(&self) -> usize {
        self.out.iter().sum()
    }

    fn may_start(&self, class: Class, sleeps: bool, limits: &Limits) -> bool {
        if self.all_out() >= limits.in_handoff {
            return false;
        }
        if sleeps {
            return true;
        }
        let [slow, hogs, untried, mixed, long] = Class::ALL.map(|class| self.running(class));
        match class {
            // Hogs beyond their limit were slow or untried tasks when they began, and leave the slow ones their places.
            Class::Slow => slow + (hogs + untried).min(limits.hogs) < limits.running,
            // One hog may always run, even if other tasks take all other permits in turn.
            Class::Hog => match hogs {
                0 => limits.hogs > 0,
                hogs => hogs < limits.hogs && slow + hogs + untried < limits.running,
            },
            Class::Untried => self.has_place_for_untried(limits.more_untried, limits),
            Class::Mixed => mixed < limits.running && long < limits.long,
            Class::Long => false,
        }
    }

    /// Whether fewer polls run than may run at all, and what was added for untried tasks, `most` of it at most.
    fn has_place_for_untried(&self, most: usize, limits: &Limits) -> bool {
        let classes = [Class::Slow, Class::Hog, Class::Untried];
        let running: usize = classes.map(|class| self.running(class)).iter().sum();
        running < limits.running.saturating_add(self.more_untried.min(most))
    }

    /// Whether the untried task that goes first may start beyond the limit for those that have not been short.
    fn may_start_short(&self, limits: &Limits) -> bool {
        self.was_short()
            && self.all_out() < limits.in_handoff
            && self.has_place_for_untried(usize::MAX, limits)
    }

    /// Whether the untried task that goes first has been short so far.
    fn was_short(&self) -> bool {
        let last = self.queues[Class::Untried as usize].last();
        last.is_some_and(|waiter| waiter.ticket.short_polls >= PROVEN_AFTER)
    }

    /// Lets one more untried task run if they have not moved for too long. Called once a sample.
    fn make_room_for_untried(&mut self, now_ns: u64, limits: &Limits) {
        if self.queues[Class::Untried as usize].is_empty() {
            if self.out[Class::Untried as usize] == 0 {
                self.more_untried = 0;
            }
            return;
        }
        let patience_ns = UNTRIED_WAITS_NS.saturating_mul(1 << self.more_untried.min(16));
        let waited_ns = now_ns.saturating_sub(self.moved_at_ns[Class::Untried as usize]);
        let is_stuck = waited_ns >= patience_ns.min(STANDSTILL_NS);
        let may_grow = self.more_untried < limits.more_untried || self.was_short();
        if is_stuck && may_grow && self.untried_to_start(now_ns, limits).is_none() {
            self.more_untried += 1;
            self.moved_at_ns[Class::Untried as usize] = now_ns;
        }
    }

    /// Adds a waiter to the queue of its class.
    fn insert(&mut self, waiter: Arc<Waiter>) {
        let class = waiter.class();
        if let Some((key, history)) = waiter.may_become() {
            let of_history = self.may_become.entry(key);
            let (_, waiters) = of_history.or_insert_with(|| (history.clone(), BTreeSet::new()));
            waiters.insert((class as usize, waiter.ticket.number));
        }
        self.blocked_threads += usize::from(waiter.blocks_thread);
        let ticket = Ticket {
            // Only untried tasks stand by it. One that comes from them would stand behind all that come later.
            short_polls: match class {
                Class::Untried => waiter.ticket.short_polls,
                _ => 0,
            },
            ..waiter.ticket
        };
        self.queues[class as usize].insert(ticket, waiter);
    }

    /// Takes a waiter out of the queue of its class.
    fn remove(&mut self, class: Class, number: u64) -> Option<Arc<Waiter>> {
        let waiter = self.queues[class as usize].remove(number)?;
        if let Some((key, _)) = waiter.may_become()
            && let Entry::Occupied(mut of_history) = self.may_become.entry(key)
        {
            let (_, waiters) = of_history.get_mut();
            waiters.remove(&(class as usize, number));
            if waiters.is_empty() {
                of_history.remove();
            }
        }
        self.blocked_threads -= usize::from(waiter.blocks_thread);
        Some(waiter)
    }

    /// Makes the waiters due whose time has come. Called before the queues are asked who is next.
    fn end_throttles(&mut self, now_ns: u64) {
        for queue in &mut self.queues {
            queue.end_throttles(now_ns);
        }
    }

    /// Returns the waiter that gets a permit beyond the limits because nothing moves: its class and its number.
    fn standing_still(&self, now_ns: u64) -> Option<(Class, u64)> {
        let stands = |class: Class, for_ns: u64| {
            now_ns.saturating_sub(self.moved_at_ns[class as usize]) >= for_ns
                && !self
                    .granted
                    .iter()
                    .any(|(waiter, _)| waiter.class() == class)
        };
        if Class::ALL
            .into_iter()
            .all(|class| stands(class, STANDSTILL_NS))
        {
            return self
                .oldest_due()
                .map(|(class, oldest)| (class, oldest.ticket.number));
        }
        // Its permits may be out to polls that spin until another one of the class runs.
        Class::ALL.into_iter().find_map(|class| {
            let first = self.queues[class as usize].first()?;
            stands(class, STANDSTILL_OF_CLASS_NS).then_some((class, first.ticket.number))
        })
    }

    /// Returns the untried task that may start: see the head of the module.
    fn untried_to_start(&self, now_ns: u64, limits: &Limits) -> Option<&Arc<Waiter>> {
        let queue = &self.queues[Class::Untried as usize];
        if !self.may_start(Class::Untried, false, limits) && !self.may_start_short(limits) {
            return match self.may_start(Class::Untried, true, limits) {
                true => queue
                    .last_sleeper()
                    .or(queue.last().filter(|waiter| waiter.sleeps())),
                false => None,
            };
        }
        let oldest = queue.oldest()?;
        let is_late = now_ns.saturating_sub(oldest.since_ns) >= OLDEST_WAITS_NS;
        match is_late && self.is_turn_of_oldest {
            true => Some(oldest),
            false => queue.last(),
        }
    }

    /// Ends the waits for which `ends` says so: their futures are polled inline. Returns the wakes to make.
    fn end_waits(&mut self, ends: impl Fn(&Waiter) -> bool) -> Vec<Wake> {
        let mut woken = Vec::new();
        for class in Class::ALL {
            let ending = self.queues[class as usize].iter();
            let ending = ending.filter(|waiter| ends(waiter));
            let numbers: Vec<u64> = ending.map(|waiter| waiter.ticket.number).collect();
            for number in numbers {
                woken.extend(
                    self.remove(class, number)
                        .and_then(|waiter| waiter.send_inline()),
                );
            }
        }
        woken
    }

    /// Returns the number of the first waiter that may start. One that will sleep does not wait for those that
    /// compute, and throttled waiters do not delay others.
    fn first_to_start(&self, class: Class, now_ns: u64, limits: &Limits) -> Option<u64> {
        let queue = &self.queues[class as usize];
        let first = match class {
            Class::Untried => self.untried_to_start(now_ns, limits),
            _ if self.may_start(class, false, limits) => queue.first(),
            // If neither is allowed, no waiter can start.
            _ if self.may_start(class, true, limits) => queue
                .first_sleeper()
                .or(queue.first().filter(|waiter| waiter.sleeps())),
            _ => None,
        };
        first.map(|waiter| waiter.ticket.number)
    }

    /// Returns the oldest of the waiters that are first in their classes, and its class.
    fn oldest_due(&self) -> Option<(Class, &Waiter)> {
        Class::ALL
            .into_iter()
            .filter_map(|class| Some((class, &**self.queues[class as usize].first()?)))
            .min_by_key(|(_, first)| first.since_ns)
    }

    /// Moves the waiting slow tasks whose label is now rated a CPU hog to the hogs' queue, and the waiting threads whose label now mixes
    /// long and short polls to the queue of mixed tasks, to where they would be had they come as such.
    fn move_between_classes(&mut self) {
        let moves = |becomes: Class, history: &History| match becomes {
            Class::Mixed => history.mixes(),
            _ => history.rating() == Rating::Hog,
        };
        let mut moving = Vec::new();
        for (&(becomes, _), (history, waiters)) in &self.may_become {
            let becomes = Class::ALL[becomes];
            if moves(becomes, history) {
                moving.extend(waiters.iter().map(|&waiter| (becomes, waiter)));
            }
        }
        for (becomes, (class, number)) in moving {
            if let Some(waiter) = self.remove(Class::ALL[class], number) {
                waiter.class.store(becomes as usize, Ordering::Relaxed);
                self.insert(waiter);
            }
        }
    }

    fn take(&mut self, class: Class, is_sleepers: bool, now_ns: u64) {
        self.out[class as usize] += 1;
        self.sleepers[class as usize] += usize::from(is_sleepers);
        self.moved_at_ns[class as usize] = now_ns;
        self.peak = self.peak.max(self.all_out());
    }

    /// Counts a permit no more.
    fn put_back(&mut self, class: Class, is_sleepers: bool) {
        let class = class as usize;
        self.out[class] = self.out[class].saturating_sub(1);
        self.sleepers[class] = self.sleepers[class].saturating_sub(usize::from(is_sleepers));
        self.note_asleep(class, self.asleep[class]);
    }

    /// Notes how many polls of a class are asleep, sleepers' apart.
    fn note_asleep(&mut self, class: usize, asleep: usize) {
        let others = self.out[class].saturating_sub(self.sleepers[class]);
        self.asleep[class] = asleep.min(others);
    }
}

/// The task for which a permit is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a> {
    pub(crate) class: Class,
    /// History of the label. When it is rated a CPU hog, a waiting slow task becomes a hog: many tasks of one origin
    /// may ask before the first of them has run. When it mixes long and short polls, a thread that waits has a mixed task.
    pub(crate) history: Option<&'a Arc<History>>,
    /// The poll will probably sleep.
    pub(crate) sleeps: bool,
    /// Short polls that an untried task had: it goes before those that had fewer.
    pub(crate) short_polls: u8,
    /// 0, or the time in nanoseconds until which a throttled task has to wait.
    pub(crate) not_before_ns: u64,
    /// The task waits on its thread, and not as a task that is not ready. Its waker is Morpheus's own.
    pub(crate) blocks_thread: bool,
    /// A permit was taken back that the task had waited for.
    pub(crate) returns: bool,
}

#[cfg(test)]
impl Request<'static> {
    /// A task that waits as one that is not ready, and of which nothing else is known.
    pub(crate) fn for_tests(class: Class) -> Request<'static> {
        Request {
            class,
            history: None,
            sleeps: false,
            short_polls: 0,
            not_before_ns: 0,
            blocks_thread: false,
            returns: false,
        }
    }
}

/// The answer to a request for a permit.
#[must_use]
pub(crate) enum Answer {
    Granted(Permit),
    /// Return `Pending`: the waker is called when the permit is granted.
    Wait(Arc<Waiter>),
    /// All threads for handoff polls are taken: poll inline.
    Full,
}

#[derive(Debug)]
pub(crate) struct Permits {
    limits: Limits,
    /// The controller has stopped, and calls `tick` no more. Written under the lock of the state.
    closed: AtomicBool,
    state: Mutex<State>,
}

/// The right to one handoff poll. Given back when it is dropped.
#[must_use]
#[derive(Debug)]
pub(crate) struct Permit {
    permits: Arc<Permits>,
    class: Class,
    is_sleepers: bool,
}

impl Permit {
    /// The permit as the slot of the thread has it while its poll is under way. The controller may change it there.
    pub(crate) fn word(&self) -> u32 {
        let sleeper = if self.is_sleepers { SLEEPER } else { 0 };
        self.class.word() | sleeper
    }

    /// Counts as this word says from now on.
    pub(crate) fn set_word(&mut self, word: u32) {
        (self.class, self.is_sleepers) = (Class::of_word(word), is_sleepers(word));
    }

    /// Whether it is one of these.
    pub(crate) fn is_of(&self, permits: &Arc<Permits>) -> bool {
        Arc::ptr_eq(&self.permits, permits)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.permits.give_back(self.class, self.is_sleepers);
    }
}

impl Permits {
    pub(crate) fn new(limits: Limits) -> Permits {
        Permits {
            limits,
            closed: AtomicBool::new(false),
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Wakers, which may panic, are called after the lock is released.
        lock(&self.state)
    }

    /// Asks for a permit, and queues the task if none is free. With `must_wait_when_full` the answer is not
    /// [`Answer::Full`] while handoff polls are allowed and the controller runs.
    pub(crate) fn ask(
        self: &Arc<Permits>,
        request: Request<'_>,
        must_wait_when_full: bool,
        waker: &Waker,
    ) -> Answer {
        let (class, sleeps) = (request.class, request.sleeps);
        let now_ns = clock::now_ns();
        // As in `take_up`: before the lock is taken, and dropped after it where the task does not wait.
        let waker = waker.clone();
        let mut state = self.lock();
        // The runtime ends: its pool starts nothing more, so no thread would take the core.
        if request.blocks_thread && state.threads_are_free {
            return Answer::Full;
        }
        state.end_throttles(now_ns);
        let first = sleeps || state.queues[class as usize].first().is_none();
        let due = request.not_before_ns <= now_ns;
        let may_start = match request.returns {
            true => state.all_out() < self.limits.in_handoff,
            false => first && state.may_start(class, sleeps, &self.limits),
        };
        if due && may_start {
            state.take(class, sleeps, now_ns);
            return Answer::Granted(Permit {
                permits: self.clone(),
                class,
                is_sleepers: sleeps,
            });
        }
        // No controller would end the wait.
        if self.is_closed() {
            return Answer::Full;
        }
        let mut threads = state.all_out();
        if request.blocks_thread {
            threads += state.blocked_threads;
        }
        let full = threads >= self.limits.in_handoff;
        // If no handoff poll is allowed at all, the wait would never end.
        if full && due && !(must_wait_when_full && self.limits.in_handoff > 0) {
            return Answer::Full;
        }
        if state.queues[class as usize].is_empty() {
            // The standstill clock starts with the first waiter.
            state.moved_at_ns[class as usize] = now_ns;
        }
        let waiter = Arc::new(Waiter {
            permits: self.clone(),
            class: AtomicUsize::new(class as usize),
            history: request.history.cloned(),
            ticket: Ticket {
                number: state.next_number,
                short_polls: request.short_polls,
                sleeps,
                not_before_ns: request.not_before_ns,
            },
            since_ns: now_ns,
            blocks_thread: request.blocks_thread,
            runtime: Handle::try_current().ok(),
            phase: Mutex::new(Phase::Waiting(waker)),
        });
        state.next_number += 1;
        state.insert(waiter.clone());
        Answer::Wait(waiter)
    }

    /// Counts the poll of a holder of a slow task's permit among the hogs from now on. `word` is the class of its permit; the
    /// poll that ends takes it from there.
    pub(crate) fn becomes_hog(&self, word: &AtomicU32) {
        self.change(word, Class::Slow, Class::Hog);
    }

    /// Counts the poll of a mixed task as long from now on; `word` is as for [`becomes_hog`](Self::becomes_hog). Returns whether it was
    /// one. The next [`tick`](Self::tick) gives its place to another.
    pub(crate) fn becomes_long(&self, word: &AtomicU32) -> bool {
        self.change(word, Class::Mixed, Class::Long)
    }

    /// Counts the poll of a sleeper as one that runs from now on; `word` is as for [`becomes_hog`](Self::becomes_hog).
    pub(crate) fn computes(&self, word: &AtomicU32) {
        let mut state = self.lock();
        // Relaxed: as in `change`. A word that the poll has taken out has no such bit.
        let before = word.fetch_and(!SLEEPER, Ordering::Relaxed);
        let sleepers = &mut state.sleepers[Class::of_word(before) as usize];
        *sleepers = sleepers.saturating_sub(usize::from(is_sleepers(before)));
    }

    /// Counts a permit in another class. Returns whether it was in the first one.
    fn change(&self, word: &AtomicU32, from: Class, to: Class) -> bool {
        let mut state = self.lock();
        // Relaxed: the lock orders the counts. A poll that has taken the word out before gives a permit of the first class back.
        let sleeper = word.load(Ordering::Relaxed) & SLEEPER;
        let (before, after) = (from.word() | sleeper, to.word() | sleeper);
        let is_moved = word
            .compare_exchange(before, after, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok();
        if is_moved {
            state.put_back(from, is_sleepers(before));
            state.out[to as usize] += 1;
            state.sleepers[to as usize] += usize::from(is_sleepers(after));
        }
        is_moved
    }

    fn give_back(&self, class: Class, is_sleepers: bool) {
        let now_ns = clock::now_ns();
        let woken = {
            let mut state = self.lock();
            state.put_back(class, is_sleepers);
            state.moved_at_ns[class as usize] = now_ns;
            state.end_throttles(now_ns);
            self.grant_free(&mut state, now_ns)
        };
        // This thread polls or drops tasks of the application, so it may call its wakers.
        woken.into_iter().for_each(Wake::here);
    }

    /// Records how many holders sleep, sleepers apart, grants free permits, and ends waits that are too long. The controller calls it
    /// once a sample. If spares are `scarce`, waiters wait longer before they are polled inline, because an inline
    /// poll takes a worker.
    ///
    /// Returns the wakes to make. The controller makes them elsewhere, because wakers are the application's code.
    pub(crate) fn tick(&self, now_ns: u64, asleep: [usize; CLASSES], scarce: bool) -> Vec<Wake> {
        let mut state = self.lock();
        for (class, asleep) in asleep.into_iter().enumerate() {
            state.note_asleep(class, asleep);
        }
        state.move_between_classes();
        state.end_throttles(now_ns);
        state.make_room_for_untried(now_ns, &self.limits);
        self.take_back_unused(&mut state, now_ns);
        let mut woken = self.grant_free(&mut state, now_ns);
        let patience_ns = if scarce {
            STANDSTILL_NS
        } else {
            INLINE_AFTER_NS
        };
        woken.extend(self.send_inline(&mut state, now_ns, patience_ns));
        if woken.is_empty()
            && state.all_out() < self.limits.in_handoff
            && let Some((class, number)) = state.standing_still(now_ns)
        {
            woken.extend(Self::grant(&mut state, class, number, now_ns));
        }
        woken
    }

    /// Stops granting: the controller calls `tick` no more. Every future that waits, and every one that asks from now
    /// on, is polled inline.
    ///
    /// Returns the wakes to make.
    pub(crate) fn close(&self) -> Vec<Wake> {
        let mut state = self.lock();
        // Relaxed: `ask` reads it under the lock. A read without the lock is a hint.
        self.closed.store(true, Ordering::Relaxed);
        state.end_waits(|_| true)
    }

    /// Ends the waits of threads, before the runtime waits for these threads. From now on a task that would wait on its thread
    /// is polled inline.
    ///
    /// Returns the wakes to make.
    #[cfg(tokio_unstable)]
    pub(crate) fn free_threads(&self) -> Vec<Wake> {
        let mut state = self.lock();
        state.threads_are_free = true;
        state.end_waits(|waiter| waiter.blocks_thread)
    }

    /// Whether [`free_threads`](Self::free_threads) was called.
    #[cfg(tokio_unstable)]
    pub(crate) fn has_freed_threads(&self) -> bool {
        self.lock().threads_are_free
    }

    /// Whether [`close`](Self::close) was called.
    pub(crate) fn is_closed(&self) -> bool {
        // Relaxed: see `close`.
        self.closed.load(Ordering::Relaxed)
    }

    /// Ends the longest wait if all permits are out, because their holders may wait for a task in the queue. The
    /// future is polled inline, as are those that ask now. Ends one wait a sample.
    fn send_inline(&self, state: &mut State, now_ns: u64, patience_ns: u64) -> Option<Wake> {
        if state.all_out() < self.limits.in_handoff {
            return None;
        }
        let (class, oldest) = state.oldest_due()?;
        if now_ns.saturating_sub(oldest.since_ns) < patience_ns {
            return None;
        }
        let number = oldest.ticket.number;
        state.remove(class, number)?.send_inline()
    }

    fn take_back_unused(&self, state: &mut State, now_ns: u64) {
        let unused: Vec<Arc<Waiter>> = state
            .granted
            .extract_if(.., |(_, at_ns)| now_ns.saturating_sub(*at_ns) >= TAKE_UP_NS)
            .map(|(waiter, _)| waiter)
            .collect();
        for waiter in unused {
            let before = std::mem::replace(&mut *lock(&waiter.phase), Phase::Gone);
            let is_sleepers = matches!(before, Phase::Granted { is_sleepers: true });
            state.put_back(waiter.class(), is_sleepers);
        }
    }

    /// Grants what the limits allow. Returns the wakers to call after the lock is released.
    fn grant_free(&self, state: &mut State, now_ns: u64) -> Vec<Wake> {
        let mut woken = Vec::new();
        for class in Class::ALL {
            while let Some(number) = state.first_to_start(class, now_ns, &self.limits) {
                woken.extend(Self::grant(state, class, number, now_ns));
            }
        }
        woken
    }

    fn grant(state: &mut State, class: Class, number: u64, now_ns: u64) -> Option<Wake> {
        let waiter = state.remove(class, number)?;
        if class == Class::Untried {
            state.is_turn_of_oldest = !state.is_turn_of_oldest;
        }
        let is_sleepers = waiter.sleeps();
        let granted = Phase::Granted { is_sleepers };
        let before = std::mem::replace(&mut *lock(&waiter.phase), granted);
        let Phase::Waiting(waker) = before else {
            unreachable!(
                "only waiting waiters are queued: leave and take_up remove theirs under the lock"
            )
        };
        state.take(class, is_sleepers, now_ns);
        let wake = waiter.wake(waker);
        state.granted.push((waiter, now_ns));
        Some(wake)
    }

    /// Whether a permit is out or a task waits, so that the controller must not sleep.
    pub(crate) fn is_busy(&self) -> bool {
        let state = self.lock();
        state.all_out() > 0 || state.queues.iter().any(|queue| !queue.is_empty())
    }

    /// Whether handoff polls are allowed at all.
    pub(crate) fn allows_handoffs(&self) -> bool {
        self.limits.in_handoff > 0
    }

    pub(crate) fn waiting(&self) -> usize {
        self.lock().queues.iter().map(Queue::len).sum()
    }

    /// Returns how many handoff polls run now, and the most that ran at once so far.
    #[cfg(feature = "metrics")]
    pub(crate) fn handoffs(&self) -> (usize, usize) {
        let state = self.lock();
        (state.all_out() - state.granted.len(), state.peak)
    }
}

/// The reason why a wait ended without a permit.
#[derive(Debug)]
pub(crate) enum NoPermit {
    /// The permit was not taken up in time and went to the next waiter: ask again.
    TakenBack,
    /// All permits are out for too long, or the controller has stopped: poll inline.
    Inline,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::label::{self, Origin};
    use std::task::{RawWaker, RawWakerVTable, Wake};
    use std::time::{Duration, Instant};

    #[derive(Default)]
    struct Count(AtomicUsize);
    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn permits(cpus: usize) -> Arc<Permits> {
        with_limits(cpus, 100)
    }

    /// Two polls for each CPU, of which one may be a hog's, and four more for untried tasks.
    fn with_limits(cpus: usize, in_handoff: usize) -> Arc<Permits> {
        Arc::new(Permits::new(Limits {
            running: 2 * cpus,
            hogs: cpus,
            more_untried: 4,
            long: 100,
            in_handoff,
        }))
    }

    /// `asleep`: of slow tasks, hogs and untried tasks.
    fn tick(permits: &Permits, now_ns: u64, asleep: [usize; 3], scarce: bool) {
        let [slow, hogs, untried] = asleep;
        let woken = permits.tick(now_ns, [slow, hogs, untried, 0, 0], scarce);
        woken.into_iter().for_each(crate::act::wake::Wake::here);
    }

    /// The first ones turn out to be long, and make room for those that are short.
    #[test]
    fn mixed_tasks_do_not_wait_for_the_end_of_long_polls() {
        let permits = permits(1);
        let ask = |class| permits.ask(Request::for_tests(class), false, Waker::noop());
        let begin = || {
            (
                granted(ask(Class::Mixed)),
                AtomicU32::new(Class::Mixed.word()),
            )
        };
        let mut long = Vec::new();
        for all in 1..=3 {
            let words = [(); 2].map(|()| begin());
            let waiter = waiting(ask(Class::Mixed));
            for (_, word) in &words {
                assert!(permits.becomes_long(word) && !permits.becomes_long(word));
            }
            assert_eq!(permits.lock().out[3..], [0, 2 * all]);
            tick(&permits, clock::now_ns(), [0, 0, 0], false);
            assert!(matches!(waiter.take_up(Waker::noop()), Ok(Some(_))));
            long.extend(words);
        }
        // Others do not wait for them either.
        let others = [Class::Slow, Class::Hog, Class::Untried];
        for class in others {
            drop(granted(ask(class)));
        }
        for (mut permit, word) in long {
            permit.set_word(word.load(Ordering::Relaxed));
            drop(permit);
        }
        assert_eq!(permits.lock().out[3..], [0, 0]);
    }

    fn waiting(answer: Answer) -> Arc<Waiter> {
        match answer {
            Answer::Wait(waiter) => waiter,
            Answer::Granted(_) | Answer::Full => panic!("expected to wait"),
        }
    }

    fn granted(answer: Answer) -> Permit {
        match answer {
            Answer::Granted(permit) => permit,
            Answer::Wait(_) | Answer::Full => panic!("expected a permit"),
        }
    }

    fn ask(permits: &Arc<Permits>, class: Class) -> Answer {
        permits.ask(Request::for_tests(class), false, Waker::noop())
    }

    #[test]
    fn waiting_slow_tasks_become_hogs_with_their_label() {
        let label = label::of(Origin::Named("permit, hog while waiting"));
        let history = Arc::new(History::new(label));
        let permits = permits(1);
        let ask = |class, history| {
            let request = Request {
                history,
                ..Request::for_tests(class)
            };
            permits.ask(request, false, Waker::noop())
        };
        let _running = [
            granted(ask(Class::Slow, None)),
            granted(ask(Class::Slow, None)),
        ];
        let (healthy, hog) = (
            waiting(ask(Class::Slow, None)),
            waiting(ask(Class::Slow, Some(&history))),
        );
        for _ in 0..8 {
            history.learn_stalled_alone(false);
            history.learn_hog();
        }
        tick(&permits, clock::now_ns(), [0, 0, 0], false);
        let permit = hog.take_up(Waker::noop()).unwrap().unwrap();
        assert_eq!(permit.class, Class::Hog, "the first of the hogs");
        assert!(healthy.take_up(Waker::noop()).unwrap().is_none());
    }

    /// Its connections became hogs one after the other before that was known, and their next polls are short.
    #[test]
    fn waiting_threads_become_mixed_with_their_label() {
        let label = label::of(Origin::Named("permit, mixed while waiting"));
        let history = Arc::new(History::new(label));
        let permits = permits(1);
        let ask = |class, blocks_thread| {
            let request = Request {
                history: Some(&history),
                blocks_thread,
                ..Request::for_tests(class)
            };
            permits.ask(request, false, Waker::noop())
        };
        let classes = [Class::Slow, Class::Hog, Class::Untried];
        // All permits that there are for them.
        let mut running = Vec::new();
        for class in classes {
            loop {
                match ask(class, true) {
                    Answer::Granted(permit) => running.push(permit),
                    Answer::Wait(waiter) => break waiter.leave(),
                    Answer::Full => panic!("they are fewer than the threads"),
                }
            }
        }
        let threads = classes.map(|class| waiting(ask(class, true)));
        let watched = waiting(ask(Class::Hog, false));
        let is_granted = |waiter: &Arc<Waiter>| waiter.take_up(Waker::noop()).unwrap();
        tick(&permits, clock::now_ns(), [0, 0, 0], false);
        assert!(threads.iter().all(|waiter| is_granted(waiter).is_none()));
        (0..64).for_each(|_| history.learn_repeated(false));
        tick(&permits, clock::now_ns(), [0, 0, 0], false);
        let granted: Vec<_> = threads.iter().filter_map(is_granted).collect();
        assert_eq!(granted.len(), permits.limits.running);
        assert!(granted.iter().all(|permit| permit.class == Class::Mixed));
        let are_mixed = threads.iter().all(|waiter| waiter.class() == Class::Mixed);
        assert!(are_mixed, "the last one, too");
        assert!(is_granted(&watched).is_none(), "it has its own record");
        let state = permits.lock();
        assert!(state.may_become.is_empty() && state.blocked_threads > 0);
        drop((state, running));
    }

    /// An untried task that had short polls is no later for it.
    #[test]
    fn a_thread_that_becomes_mixed_goes_before_those_that_come_later() {
        let label = label::of(Origin::Named("permit, mixed in order"));
        let history = Arc::new(History::new(label));
        let permits = permits(1);
        let ask = |class, short_polls| {
            let request = Request {
                history: Some(&history),
                blocks_thread: true,
                short_polls,
                ..Request::for_tests(class)
            };
            permits.ask(request, false, Waker::noop())
        };
        let mut untried = Vec::new();
        let waits = loop {
            match ask(Class::Untried, 5) {
                Answer::Granted(permit) => untried.push(permit),
                Answer::Wait(waiter) => break waiter,
                Answer::Full => panic!("they are fewer than the threads"),
            }
        };
        let mixed = || granted(ask(Class::Mixed, 0));
        let mut running: Vec<_> = (0..permits.limits.running).map(|_| mixed()).collect();
        (0..64).for_each(|_| history.learn_repeated(false));
        tick(&permits, clock::now_ns(), [0, 0, 0], false);
        let later = waiting(ask(Class::Mixed, 0));
        drop(running.pop());
        assert!(later.take_up(Waker::noop()).unwrap().is_none());
        assert!(waits.take_up(Waker::noop()).unwrap().is_some());
    }

    #[test]
    fn a_slow_task_that_becomes_a_hog_makes_room_for_the_next() {
        let permits = permits(1);
        let words = [(); 2].map(|()| AtomicU32::new(Class::Slow.word()));
        let mut hogs: Vec<Permit> = words
            .iter()
            .map(|_| granted(ask(&permits, Class::Slow)))
            .collect();
        let waiter = waiting(ask(&permits, Class::Slow));
        permits.becomes_hog(&words[0]);
        permits.becomes_hog(&words[1]);
        permits.becomes_hog(&words[1]);
        assert_eq!(permits.lock().out[..3], [0, 2, 0]);
        tick(&permits, 0, [0, 0, 0], false);
        let slow = waiter.take_up(Waker::noop()).unwrap().unwrap();
        assert_eq!(permits.lock().out[..3], [1, 2, 0]);
        hogs.iter_mut().for_each(|hog| hog.class = Class::Hog);
        drop((slow, hogs));
        assert_eq!(permits.lock().out[..3], [0, 0, 0]);
    }

    /// Tasks that wait on their threads take a thread each, as handoff polls do; the others wait without one.
    #[test]
    fn threads_that_wait_are_bounded_together_with_handoff_polls() {
        let permits = with_limits(1, 3);
        let on_thread = || {
            let request = Request {
                blocks_thread: true,
                ..Request::for_tests(Class::Hog)
            };
            permits.ask(request, false, Waker::noop())
        };
        let running = granted(on_thread());
        let as_task = waiting(ask(&permits, Class::Hog));
        let on_threads = [waiting(on_thread()), waiting(on_thread())];
        assert!(matches!(on_thread(), Answer::Full));
        let other_task = waiting(ask(&permits, Class::Hog));
        on_threads[0].leave();
        let again = waiting(on_thread());
        assert!(matches!(on_thread(), Answer::Full));
        drop(running);
        let permit = as_task.take_up(Waker::noop()).unwrap().unwrap();
        assert!(matches!(on_thread(), Answer::Full));
        for waiter in [&on_threads[1], &again, &other_task] {
            waiter.leave();
        }
        drop(permit);
        assert!(!permits.is_busy());
    }

    #[test]
    fn permits_are_granted_in_order_of_arrival() {
        let permits = permits(1);
        let first = granted(ask(&permits, Class::Hog));
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        let second = waiting(permits.ask(Request::for_tests(Class::Hog), false, &waker));
        let third = waiting(ask(&permits, Class::Hog));
        drop(first);
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
        assert!(third.take_up(Waker::noop()).unwrap().is_none());
        let second = second.take_up(Waker::noop()).unwrap().unwrap();
        drop(second);
        assert!(third.take_up(Waker::noop()).unwrap().is_some());
        assert!(!permits.is_busy());
    }

    fn untried(permits: &Arc<Permits>, short_polls: u8) -> Answer {
        let request = Request {
            short_polls,
            ..Request::for_tests(Class::Untried)
        };
        permits.ask(request, false, Waker::noop())
    }

    /// Takes the permits up that were granted, and returns which waiters have one.
    fn taken_up(waiters: &[Arc<Waiter>]) -> (Vec<usize>, Vec<Permit>) {
        let each = waiters.iter().enumerate();
        each.filter_map(|(at, waiter)| Some((at, waiter.take_up(Waker::noop()).ok()??)))
            .unzip()
    }

    #[test]
    fn the_newest_untried_task_goes_first_and_before_it_those_with_short_polls() {
        let permits = permits(1);
        let running = [granted(untried(&permits, 0)), granted(untried(&permits, 0))];
        let waiters = [0, 2, 0, 1, 2].map(|short_polls| waiting(untried(&permits, short_polls)));
        drop(running);
        let mut order = Vec::new();
        while order.len() < waiters.len() {
            let (at, ended) = taken_up(&waiters);
            assert!(!at.is_empty());
            order.extend(at.into_iter().rev());
            drop(ended);
        }
        assert_eq!(order, [4, 1, 3, 2, 0]);
        assert!(!permits.is_busy());
    }

    #[test]
    fn an_untried_task_that_waits_for_long_has_every_other_place() {
        let permits = permits(1);
        let mut held = vec![granted(untried(&permits, 0)), granted(untried(&permits, 0))];
        let waiters = [1, 0, 0, 1].map(|short_polls| waiting(untried(&permits, short_polls)));
        let later_ns = clock::now_ns() + OLDEST_WAITS_NS + STANDSTILL_NS;
        let mut next = |times| {
            tick(&permits, later_ns + times * STANDSTILL_NS, [0, 0, 0], false);
            let (at, permit) = taken_up(&waiters);
            held.extend(permit);
            at
        };
        let order: Vec<_> = (0..4).flat_map(&mut next).collect();
        assert_eq!(order, [3, 0, 2, 1]);
    }

    #[test]
    fn more_untried_tasks_run_the_longer_none_ends() {
        let permits = permits(1);
        let _running = [granted(untried(&permits, 0)), granted(untried(&permits, 0))];
        let waiters: Vec<_> = (0..8).map(|_| waiting(untried(&permits, 0))).collect();
        let mut now_ns = clock::now_ns();
        let mut held = Vec::new();
        for more in 0..4 {
            let patience_ns = UNTRIED_WAITS_NS << more;
            tick(&permits, now_ns + patience_ns / 2, [0, 0, 0], false);
            assert!(taken_up(&waiters).0.is_empty(), "{more} more");
            // A millisecond for the test itself: `ask` read the clock after `now_ns`.
            now_ns += patience_ns + 1_000_000;
            tick(&permits, now_ns, [0, 0, 0], false);
            let (at, permit) = taken_up(&waiters);
            assert_eq!(at.len(), 1, "{more} more");
            held.extend(permit);
        }
        tick(&permits, now_ns + (UNTRIED_WAITS_NS << 5), [0, 0, 0], false);
        assert!(taken_up(&waiters).0.is_empty(), "no fifth");
        // One that ends leaves its place to the next, and no two.
        held.pop();
        assert_eq!(taken_up(&waiters).0.len(), 1);
    }

    #[test]
    fn hogs_and_slow_tasks_run_beside_any_number_of_untried_ones() {
        let permits = permits(2);
        let _untried: Vec<Permit> = (0..4).map(|_| granted(untried(&permits, 0))).collect();
        let _waits = waiting(untried(&permits, 3));
        let _hog = granted(ask(&permits, Class::Hog));
        let _second = waiting(ask(&permits, Class::Hog));
        let _slow = [
            granted(ask(&permits, Class::Slow)),
            granted(ask(&permits, Class::Slow)),
        ];
        let _third = waiting(ask(&permits, Class::Slow));
        assert_eq!(permits.lock().out[..3], [2, 1, 4]);
    }

    #[test]
    fn a_waiter_that_is_dropped_gives_its_grant_to_the_next() {
        let permits = permits(1);
        let first = granted(ask(&permits, Class::Hog));
        let second = waiting(ask(&permits, Class::Hog));
        let third = waiting(ask(&permits, Class::Hog));
        drop(first);
        second.leave();
        assert!(third.take_up(Waker::noop()).unwrap().is_some());
        assert!(!permits.is_busy());
    }

    #[test]
    fn a_waiter_that_is_dropped_while_it_waits_is_skipped() {
        let permits = permits(1);
        let first = granted(ask(&permits, Class::Hog));
        let second = waiting(ask(&permits, Class::Hog));
        let third = waiting(ask(&permits, Class::Hog));
        second.leave();
        drop(first);
        assert!(third.take_up(Waker::noop()).unwrap().is_some());
    }

    /// A waker of which each clone asks the permits, and whose last drop ends the wait of another task: a future that is dropped with
    /// its waker does so.
    struct Returns {
        permits: Arc<Permits>,
        other: Arc<Waiter>,
    }

    impl Returns {
        const TABLE: RawWakerVTable = RawWakerVTable::new(
            |data| {
                // SAFETY: as in `drop` below.
                unsafe {
                    assert!((*data.cast::<Returns>()).permits.is_busy());
                    Arc::increment_strong_count(data.cast::<Returns>());
                }
                RawWaker::new(data, &Returns::TABLE)
            },
            |_| unreachable!("no permit is granted"),
            |_| unreachable!("no permit is granted"),
            // SAFETY: `data` is from `Arc::into_raw`, and each `RawWaker` has a count of its own.
            |data| drop(unsafe { Arc::from_raw(data.cast::<Returns>()) }),
        );

        fn waker(permits: &Arc<Permits>, other: Arc<Waiter>) -> Waker {
            let data = Arc::new(Returns {
                permits: permits.clone(),
                other,
            });
            let raw = RawWaker::new(Arc::into_raw(data).cast(), &Returns::TABLE);
            // SAFETY: the table's functions keep the count of the `Arc`, which is `Send` and `Sync`.
            unsafe { Waker::from_raw(raw) }
        }
    }

    impl Drop for Returns {
        fn drop(&mut self) {
            self.other.leave();
        }
    }

    #[test]
    fn a_waker_may_ask_and_leave_while_it_is_cloned_and_dropped() {
        let (done, is_done) = std::sync::mpsc::channel();
        // A thread of its own: it would wait for a lock that it has.
        std::thread::spawn(move || {
            let permits = permits(1);
            let _running = granted(ask(&permits, Class::Hog));
            let others = [(); 2].map(|()| waiting(ask(&permits, Class::Hog)));
            let [first, second] = others.map(|other| Returns::waker(&permits, other));
            let asks = Request::for_tests(Class::Hog);
            let waiter = waiting(permits.ask(asks, false, &first));
            drop(first);
            // The waiter has the last clone of each in turn.
            assert!(waiter.take_up(&second).unwrap().is_none());
            drop(second);
            assert_eq!(permits.waiting(), 2);
            assert!(waiter.take_up(Waker::noop()).unwrap().is_none());
            assert_eq!(permits.waiting(), 1);
            done.send(()).unwrap();
        });
        let answer = is_done.recv_timeout(Duration::from_secs(60));
        answer.expect("the permits are not locked while a waker is cloned or dropped");
    }

    #[test]
    fn sleeping_polls_do_not_count() {
        let permits = permits(1);
        let _first = granted(ask(&permits, Class::Slow));
        let _second = granted(ask(&permits, Class::Slow));
        let third = waiting(ask(&permits, Class::Slow));
        tick(&permits, clock::now_ns(), [1, 0, 0], false);
        assert!(third.take_up(Waker::noop()).unwrap().is_some());
    }

    /// Those that come later would go before it, as long as they come.
    #[test]
    fn a_task_that_waits_starts_when_its_label_is_found_to_sleep() {
        for class in [Class::Slow, Class::Untried, Class::Mixed] {
            // Before they ask, so that no time passes that makes room.
            let now_ns = clock::now_ns();
            let permits = permits(1);
            let label = label::of(Origin::Named("permit, sleeps later"));
            let history = Arc::new(History::new(label));
            let compute = [(); 2].map(|()| {
                let request = Request::for_tests(Class::Slow);
                granted(permits.ask(request, false, Waker::noop()))
            });
            let mixed = [(); 2].map(|()| {
                let request = Request::for_tests(Class::Mixed);
                granted(permits.ask(request, false, Waker::noop()))
            });
            let request = Request {
                history: Some(&history),
                ..Request::for_tests(class)
            };
            let waiter = waiting(permits.ask(request, false, Waker::noop()));
            tick(&permits, now_ns, [0; 3], false);
            assert!(matches!(waiter.take_up(Waker::noop()), Ok(None)));
            for _ in 0..4 {
                history.learn_stalled_alone(true);
            }
            assert!(history.sleeps());
            tick(&permits, now_ns, [0; 3], false);
            let permit = waiter.take_up(Waker::noop());
            assert!(matches!(permit, Ok(Some(_))), "{class:?}");
            drop((compute, mixed));
        }
    }

    #[test]
    fn polls_that_will_probably_sleep_start_at_once() {
        let permits = permits(1);
        let sleeper = || {
            let request = Request {
                sleeps: true,
                short_polls: 0,
                ..Request::for_tests(Class::Slow)
            };
            permits.ask(request, false, Waker::noop())
        };
        let mut asleep: Vec<Permit> = (0..50).map(|_| granted(sleeper())).collect();
        let _running = [
            granted(ask(&permits, Class::Slow)),
            granted(ask(&permits, Class::Slow)),
        ];
        let waits = waiting(ask(&permits, Class::Slow));
        let _another = granted(sleeper());
        // They compute after all. Those that run continue, but no more start.
        for permit in &mut asleep {
            let word = AtomicU32::new(permit.word());
            permits.computes(&word);
            permit.set_word(word.into_inner());
        }
        tick(&permits, clock::now_ns(), [0, 0, 0], false);
        assert!(waits.take_up(Waker::noop()).unwrap().is_none());
        drop(asleep);
        assert!(
            waits.take_up(Waker::noop()).unwrap().is_none(),
            "two others run"
        );
    }

    /// They wait for a CPU before they fall asleep and after that, and take nothing from those that compute.
    #[test]
    fn tasks_of_another_label_start_beside_many_that_sleep() {
        let permits = permits(1);
        let sleeps = Request {
            sleeps: true,
            ..Request::for_tests(Class::Slow)
        };
        let ask_asleep = || permits.ask(sleeps, false, Waker::noop());
        let asleep: Vec<Permit> = (0..50).map(|_| granted(ask_asleep())).collect();
        // The sample sees none of them asleep.
        tick(&permits, clock::now_ns(), [0, 0, 0], false);
        let mut running = vec![
            granted(ask(&permits, Class::Slow)),
            granted(ask(&permits, Class::Slow)),
        ];
        let waits = waiting(ask(&permits, Class::Slow));
        tick(&permits, clock::now_ns(), [0, 0, 0], false);
        assert!(waits.take_up(Waker::noop()).unwrap().is_none());
        running.pop();
        running.extend(waits.take_up(Waker::noop()).unwrap());
        assert_eq!(running.len(), 2);
        // The words of two say that they compute, and then that they are long or hogs.
        let words = [(); 2].map(|()| AtomicU32::new(asleep[0].word()));
        words.iter().for_each(|word| permits.computes(word));
        words.iter().for_each(|word| permits.computes(word));
        permits.becomes_hog(&words[0]);
        let state = permits.lock();
        assert_eq!(
            (state.out[..2].to_vec(), state.sleepers[..2].to_vec()),
            (vec![51, 1], vec![48, 0])
        );
        assert_eq!(
            [Class::Slow, Class::Hog].map(|class| state.running(class)),
            [3, 1]
        );
        drop(state);
        let mut asleep = asleep;
        for (permit, word) in asleep.iter_mut().zip(words) {
            permit.set_word(word.into_inner());
        }
        drop((asleep, running));
        let state = permits.lock();
        assert_eq!((state.out, state.sleepers), ([0; CLASSES], [0; CLASSES]));
    }

    #[test]
    fn a_standstill_ends() {
        let permits = permits(1);
        let _out: Vec<Permit> = (0..2)
            .map(|_| granted(ask(&permits, Class::Slow)))
            .collect();
        let waiter = waiting(ask(&permits, Class::Slow));
        let now_ns = clock::now_ns();
        tick(&permits, now_ns + STANDSTILL_NS / 2, [0, 0, 0], false);
        assert!(waiter.take_up(Waker::noop()).unwrap().is_none());
        tick(&permits, now_ns + STANDSTILL_NS * 2, [0, 0, 0], false);
        assert!(waiter.take_up(Waker::noop()).unwrap().is_some());
    }

    /// The hogs may spin until the one that waits has run, while other tasks come and go.
    #[test]
    fn a_standstill_of_the_hogs_ends_while_slow_tasks_move() {
        let permits = permits(1);
        let _hog = granted(ask(&permits, Class::Hog));
        let waiter = waiting(ask(&permits, Class::Hog));
        let begun_ns = clock::now_ns();
        let mut granted_after_ns = None;
        for after_ns in (0..3 * STANDSTILL_OF_CLASS_NS).step_by(STANDSTILL_NS as usize / 2) {
            let mut state = permits.lock();
            state.moved_at_ns[Class::Slow as usize] = begun_ns + after_ns;
            drop(state);
            tick(&permits, begun_ns + after_ns, [0, 0, 0], false);
            if waiter.take_up(Waker::noop()).unwrap().is_some() {
                granted_after_ns = Some(after_ns);
                break;
            }
        }
        let after_ns = granted_after_ns.expect("it gets a permit");
        assert!((STANDSTILL_OF_CLASS_NS..2 * STANDSTILL_OF_CLASS_NS).contains(&after_ns));
    }

    #[test]
    fn a_grant_that_is_not_taken_up_goes_to_the_next() {
        let permits = permits(1);
        let first = granted(ask(&permits, Class::Hog));
        let second = waiting(ask(&permits, Class::Hog));
        let third = waiting(ask(&permits, Class::Hog));
        drop(first);
        tick(&permits, clock::now_ns() + TAKE_UP_NS, [0, 0, 0], false);
        assert!(second.take_up(Waker::noop()).is_err());
        assert!(third.take_up(Waker::noop()).unwrap().is_some());
        assert!(!permits.is_busy());
    }

    /// Woken tasks may wait for a worker for longer than a grant lasts. Each of them asks anew then, and one after the other would lose
    /// its permit again.
    #[test]
    fn a_task_that_comes_too_late_for_its_permit_has_one_at_once() {
        let permits = permits(1);
        let first = granted(ask(&permits, Class::Hog));
        let waiters: Vec<_> = (0..10)
            .map(|_| waiting(ask(&permits, Class::Hog)))
            .collect();
        drop(first);
        tick(&permits, clock::now_ns() + TAKE_UP_NS, [0, 0, 0], false);
        let late = waiters[0].take_up(Waker::noop());
        assert!(matches!(late, Err(NoPermit::TakenBack)));
        let again = Request {
            returns: true,
            ..Request::for_tests(Class::Hog)
        };
        let _permit = granted(permits.ask(again, false, Waker::noop()));
        // It counts: no other one is granted meanwhile beyond the one that was when its own was taken back.
        assert_eq!(permits.lock().out[..3], [0, 2, 0]);
        waiters[1].leave();
        assert_eq!(permits.lock().out[..3], [0, 1, 0]);
        let throttled = Request {
            not_before_ns: u64::MAX,
            ..again
        };
        let _waits = waiting(permits.ask(throttled, false, Waker::noop()));
    }

    #[test]
    fn the_oldest_has_its_turn_among_those_that_have_been_short() {
        let permits = permits(1);
        let mut held = vec![granted(untried(&permits, 0)), granted(untried(&permits, 0))];
        permits.lock().more_untried = 1;
        held.push(granted(untried(&permits, 0)));
        let oldest = waiting(untried(&permits, 0));
        let later_ns = clock::now_ns() + OLDEST_WAITS_NS + 1;
        let mut newer = Vec::new();
        for more_untried in [2, 3] {
            newer.push(waiting(untried(&permits, PROVEN_AFTER)));
            // One place, which is for tasks that have been short.
            permits.lock().more_untried = more_untried;
            tick(&permits, later_ns, [0, 0, 0], false);
            held.extend(taken_up(&newer).1);
        }
        assert!(oldest.take_up(Waker::noop()).unwrap().is_some());
    }

    #[test]
    fn a_throttled_task_waits_for_its_time() {
        let permits = permits(1);
        let now_ns = clock::now_ns();
        let later = now_ns + 3_600_000_000_000;
        let waiter = waiting(permits.ask(
            Request {
                not_before_ns: later,
                ..Request::for_tests(Class::Hog)
            },
            false,
            Waker::noop(),
        ));
        tick(&permits, now_ns, [0, 0, 0], false);
        assert!(waiter.take_up(Waker::noop()).unwrap().is_none());
        tick(&permits, later, [0, 0, 0], false);
        assert!(waiter.take_up(Waker::noop()).unwrap().is_some());
    }

    #[test]
    fn with_all_threads_taken_the_answer_is_full() {
        let permits = with_limits(4, 1);
        let _first = granted(ask(&permits, Class::Slow));
        assert!(matches!(ask(&permits, Class::Slow), Answer::Full));
        let _waits = waiting(permits.ask(Request::for_tests(Class::Slow), true, Waker::noop()));
    }

    #[test]
    fn with_every_permit_asleep_waiting_tasks_are_polled_inline() {
        let permits = with_limits(1, 3);
        let _running: Vec<Permit> = (0..2)
            .map(|_| granted(ask(&permits, Class::Slow)))
            .collect();
        let waiters: Vec<_> = (0..2)
            .map(|_| waiting(ask(&permits, Class::Slow)))
            .collect();
        let now_ns = clock::now_ns();
        tick(&permits, now_ns, [2, 0, 0], false);
        let _last = waiters[0].take_up(Waker::noop()).unwrap().unwrap();
        assert!(waiters[1].take_up(Waker::noop()).unwrap().is_none());
        tick(&permits, now_ns + 2 * INLINE_AFTER_NS, [3, 0, 0], true);
        assert!(
            waiters[1].take_up(Waker::noop()).unwrap().is_none(),
            "while spares are scarce"
        );
        tick(&permits, now_ns + 2 * INLINE_AFTER_NS, [3, 0, 0], false);
        let inline = waiters[1].take_up(Waker::noop());
        assert!(matches!(inline, Err(NoPermit::Inline)));
    }

    /// What each call costs while `waiting` tasks wait and none may start: of 32 in a row, the fastest of five times.
    fn costs(waiting: usize) -> [(&'static str, Duration); 4] {
        let permits = permits(1);
        let label = label::of(Origin::Named("permit, many that wait"));
        let history = Arc::new(History::new(label));
        let running = [
            Class::Slow,
            Class::Slow,
            Class::Hog,
            Class::Mixed,
            Class::Mixed,
        ];
        let _running = running.map(|class| granted(ask(&permits, class)));
        let asked = [Class::Slow, Class::Hog, Class::Untried, Class::Mixed];
        let waiters: Vec<_> = (0..waiting)
            .map(|at| {
                let class = asked[at % asked.len()];
                let is_throttled = class == Class::Hog && at < waiting / 2;
                let request = Request {
                    history: Some(&history),
                    not_before_ns: if is_throttled { u64::MAX } else { 0 },
                    ..Request::for_tests(class)
                };
                self::waiting(permits.ask(request, false, Waker::noop()))
            })
            .collect();
        let fastest = |call: &mut dyn FnMut()| {
            let times = (0..5).map(|_| {
                let begun = Instant::now();
                (0..32).for_each(|_| call());
                begun.elapsed()
            });
            times.min().unwrap()
        };
        let with = |returns, blocks_thread| {
            let request = Request {
                returns,
                blocks_thread,
                ..Request::for_tests(Class::Hog)
            };
            permits.ask(request, true, Waker::noop())
        };
        let mut middle = waiters[waiting / 3..].iter();
        let costs = [
            (
                "a sample",
                fastest(&mut || assert!(permits.tick(0, [0; CLASSES], false).is_empty())),
            ),
            (
                "a poll that ends",
                fastest(&mut || drop(granted(with(true, false)))),
            ),
            (
                "a thread that asks and leaves",
                fastest(&mut || self::waiting(with(false, true)).leave()),
            ),
            (
                "a task that leaves",
                fastest(&mut || middle.next().unwrap().leave()),
            ),
        ];
        assert!(permits.close().len() > waiting / 2);
        costs
    }

    /// All clients of a slow service may wait, and time out together.
    #[test]
    fn no_call_goes_through_all_that_wait() {
        let (few, many) = (costs(1_000), costs(100_000));
        for ((what, few), (_, many)) in few.into_iter().zip(many) {
            // Memory that is not in the cache costs a few times as much, and one that looks at each a hundred times.
            assert!(many < 20 * few, "{what}: {few:?}, and {many:?} with more");
        }
    }

    #[test]
    fn after_close_no_task_waits() {
        let permits = permits(1);
        let _running = granted(ask(&permits, Class::Hog));
        let count = Arc::new(Count::default());
        let waker = Waker::from(count.clone());
        let waiting: Vec<_> = [Class::Hog, Class::Hog]
            .map(|class| waiting(permits.ask(Request::for_tests(class), true, &waker)))
            .into();
        let woken = permits.close();
        assert_eq!((woken.len(), count.0.load(Ordering::SeqCst)), (2, 0));
        woken.into_iter().for_each(crate::act::wake::Wake::here);
        assert_eq!(count.0.load(Ordering::SeqCst), 2);
        for waiter in waiting {
            assert!(matches!(waiter.take_up(&waker), Err(NoPermit::Inline)));
            waiter.leave();
        }
        assert_eq!(permits.waiting(), 0);
        let throttled = Request {
            not_before_ns: u64::MAX,
            ..Request::for_tests(Class::Hog)
        };
        assert!(matches!(permits.ask(throttled, true, &waker), Answer::Full));
    }
}
