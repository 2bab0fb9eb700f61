//! A source without BPF: it looks at the threads through `/proc`, as the same user.
//!
//! A thread of its own looks at each worker once a period: whether it sleeps and where, and which poll it is in by the worker's own
//! count. A sleep that is none of the executor's is a blocked poll, and its stack is read while it lasts. The stack of a poll that
//! computes is taken by a perf event, where the kernel allows it. Nothing is stopped and nothing is written into the process; what is read
//! is a claim, and may be anything.
//!
//! The looks have a share of a CPU. Where that lets them be as far apart as long polls are long, a worker that is in a poll is looked at
//! again within the turn: a poll is long if two looks are at it, and few workers are in one.

mod decide;
mod files;
mod perf;
mod service;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::labels;
use crate::memory::Memory;
use crate::model::Method;
use crate::source::{
    Counter, Event, Kind, Named, Progress, Reason, Signature, Sleep, Source, Spot, SystemCall,
    now_ns,
};
use crate::target::Target;
use crate::unwind::{Registers, StackCopy};
use decide::{Ended, Look, State, Tick, Verdict, Worker};
use files::{Files, Place};
use perf::Sampled;
use service::Services;

/// How much of a path is read, in bytes.
const PATH_BYTES: usize = 128;
/// The shortest and the longest time between two looks.
const PERIODS_NS: std::ops::RangeInclusive<u64> = 500_000..=10_000_000;
/// The looks take one part in `SHARE` of a CPU at most: with many workers they are less frequent.
const SHARE: u64 = 40;
/// The longest that looks are put off for that.
const LONGEST_NS: u64 = 100_000_000;
/// From how many thresholds between two looks on a worker that is in a poll is looked at again before: nearer looks miss no poll that is
/// much longer than the threshold.
const FAR_APART: u64 = 4;
/// Where that is so, a worker that has rested for `LONG_REST_NS` is looked at in one turn of `SELDOM`: most spare workers of Morpheus, and
/// most of a large runtime's, do nothing for minutes.
const LONG_REST_NS: u64 = 500_000_000;
const SELDOM: u32 = 16;
/// How frequently threads are looked for that are no known workers, at most.
const SCAN_NS: u64 = 100_000_000;
/// Such threads at one time: stacks that are copied, and threads that are looked at.
const UNKNOWN_COPIES: usize = 16;
const UNKNOWN_LOOKS: usize = 64;
/// How long a thread is left alone that is no worker, and one whose stack was copied.
const QUIET_NS: u64 = 1_000_000_000;
const AGAIN_NS: u64 = 20_000_000;
/// Unknown threads that run whenever they are looked at: from how many times on their stack is asked for, and of how many at once.
const RUNS_ALWAYS: u32 = 3;
const MOST_SUSPECTS: usize = 8;
/// Signatures, as many as the BPF programs have room for.
const MOST_SIGNATURES: usize = 32;
/// Events that wait to be collected.
const MOST_EVENTS: usize = 2048;
/// Polls that computed, of which is remembered when they ended.
const MOST_COMPUTED: usize = 64;
/// How far the ends of a sleep and of a poll may be apart for the one to be because of the other.
const MOST_SLACK_NS: u64 = 4_000_000;
/// Workers that are looked at; each takes three descriptors.
const MOST_WORKERS: usize = 300;
/// Of a worker: where it sleeps when it is none, as many places as are remembered.
const MOST_SPOTS: usize = 4;

/// Looks at one process until it is dropped.
#[derive(Debug)]
pub struct Sampler {
    looks: Arc<Mutex<Looks>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Sampler {
    /// Begins to look at a process; polls longer than `longer_than` are long.
    ///
    /// # Errors
    ///
    /// Without the right to see where its threads sleep, and to read its memory; when there can be no thread.
    pub fn open(pid: u32, longer_than: Duration) -> io::Result<Sampler> {
        let target = Target::by_pid(pid).map_err(io::Error::other)?;
        Memory::of(pid).check()?;
        Files::open(pid, pid)?.place()?;
        let looks = Arc::new(Mutex::new(Looks::new(target, longer_than)));
        let stop = Arc::new(AtomicBool::new(false));
        let thread = std::thread::Builder::new()
            .name("doctor-looks".to_owned())
            .spawn({
                let (looks, stop) = (Arc::clone(&looks), Arc::clone(&stop));
                move || look_until(&looks, &stop)
            })?;
        Ok(Sampler {
            looks,
            stop,
            thread: Some(thread),
        })
    }

    fn looks(&self) -> MutexGuard<'_, Looks> {
        self.looks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

fn look_until(looks: &Mutex<Looks>, stop: &AtomicBool) {
    // The cost of a turn, smoothed: a single expensive one is no reason to look less.
    let (mut cost_ns, mut cpu_before) = (0, cpu_ns());
    let locked = || looks.lock().unwrap_or_else(PoisonError::into_inner);
    while !stop.load(Ordering::Relaxed) {
        let began_ns = now_ns();
        let (turn_ns, mut next_ns) = {
            let mut looks = locked();
            looks.round();
            let turn_ns = looks.set_cost(cost_ns);
            (turn_ns, looks.next_ns(began_ns, turn_ns))
        };
        // Until the turn is over: at workers that are in a poll, again and again.
        loop {
            let left_ns = next_ns.saturating_sub(now_ns());
            if left_ns > 0 {
                std::thread::park_timeout(Duration::from_nanos(left_ns));
            }
            if next_ns >= began_ns + turn_ns || stop.load(Ordering::Relaxed) {
                break;
            }
            let mut looks = locked();
            looks.follow();
            next_ns = looks.next_ns(began_ns, turn_ns);
        }
        // To sleep and to wake are a part of it.
        let cpu_now = cpu_ns();
        cost_ns = (cost_ns * 15 + cpu_now.saturating_sub(cpu_before)) / 16;
        cpu_before = cpu_now;
    }
}

/// The CPU time of this thread.
fn cpu_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a timespec to write to. The clock exists, so that the call cannot fail.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// The watched process and the looks at its threads.
#[derive(Debug)]
struct Looks {
    target: Target,
    memory: Memory,
    threshold_ns: u64,
    /// The time between two looks that is wanted, and the one that is had.
    period_ns: u64,
    actual_ns: u64,
    longest_ns: u64,
    signatures: Vec<Signature>,
    workers: BTreeMap<u32, Watched>,
    others: HashMap<u32, Unknown>,
    suspects: HashMap<u32, Sampled>,
    /// By thread: where it keeps the address of its slot.
    handles: HashMap<u32, u64>,
    services: Services,
    events: Vec<Event>,
    lost: u64,
    /// Polls that are over by this look, and those of before that computed.
    ends: Vec<Ended>,
    computed: VecDeque<Ended>,
    last_ns: u64,
    turns: u32,
    /// Workers that are in a poll, and how long after the last look at them is the next, within the turn.
    followed: Vec<u32>,
    gap_ns: u64,
    scan_at_ns: u64,
    cursor: u32,
    copies_left: usize,
    has_exec: bool,
    /// Why there is no perf event for a worker.
    refused: Option<String>,
    too_many: bool,
    denied: bool,
}

/// A worker.
#[derive(Debug)]
struct Watched {
    files: Files,
    sampled: Option<Sampled>,
    worker: Worker,
    counter: Option<Counter>,
    /// Where its core was last.
    core: u64,
    place: Option<Place>,
    quiet_until_ns: u64,
    /// Where it sleeps when it is no worker. `block_in_place` and Morpheus move workers to threads of the pool for blocking calls, which
    /// wait there between two times as a worker.
    away_at: VecDeque<Spot>,
}

/// A thread that is no known worker.
#[derive(Clone, Copy, Debug, Default)]
struct Unknown {
    quiet_until_ns: u64,
    runs: u32,
}

impl Looks {
    fn new(target: Target, longer_than: Duration) -> Looks {
        let threshold_ns = u64::try_from(longer_than.as_nanos()).unwrap_or(u64::MAX);
        let period_ns = (threshold_ns / 2).clamp(*PERIODS_NS.start(), *PERIODS_NS.end());
        Looks {
            memory: Memory::of(target.pid),
            target,
            threshold_ns,
            period_ns,
            actual_ns: period_ns,
            longest_ns: period_ns,
            signatures: Vec::new(),
            workers: BTreeMap::new(),
            others: HashMap::new(),
            suspects: HashMap::new(),
            handles: HashMap::new(),
            services: Services::default(),
            events: Vec::new(),
            lost: 0,
            ends: Vec::new(),
            computed: VecDeque::new(),
            last_ns: now_ns(),
            turns: 0,
            followed: Vec::new(),
            gap_ns: 0,
            scan_at_ns: 0,
            cursor: 0,
            copies_left: UNKNOWN_COPIES,
            has_exec: false,
            refused: None,
            too_many: false,
            denied: false,
        }
    }

    /// Takes what a look costs. Returns the time until the next.
    fn set_cost(&mut self, cost_ns: u64) -> u64 {
        self.actual_ns = cost_ns
            .saturating_mul(SHARE)
            .clamp(self.period_ns, LONGEST_NS.max(self.period_ns));
        self.longest_ns = self.longest_ns.max(self.actual_ns);
        self.actual_ns
    }

    /// Whether all looks at the wanted times were too many.
    fn is_saving(&self) -> bool {
        self.longest_ns >= 2 * self.period_ns
    }

    /// Looks at the workers, and at some other threads if it is time.
    fn round(&mut self) {
        self.turns = self.turns.wrapping_add(1);
        let is_saving = self.is_saving();
        let is_due = |tid: u32, watched: &Watched| {
            !is_saving
                || tid.wrapping_add(self.turns).is_multiple_of(SELDOM)
                || watched.worker.rested_ns() < LONG_REST_NS
        };
        let due = self
            .workers
            .iter()
            .filter(|(tid, watched)| is_due(**tid, watched));
        let mut tids: Vec<u32> = due.map(|(&tid, _)| tid).collect();
        self.look_at(&tids);
        tids.retain(|&tid| self.age_ns(tid).is_some());
        self.followed = tids;
        self.gap_ns = self.threshold_ns;
        let now = now_ns();
        let roles = self
            .workers
            .values()
            .map(|watched| (watched.worker.runtime, watched.worker.role));
        self.services
            .settle(now.saturating_sub(self.last_ns), roles);
        self.last_ns = now;
        if now >= self.scan_at_ns {
            let before = cpu_ns();
            self.scan(now);
            let cost_ns = cpu_ns().saturating_sub(before);
            self.scan_at_ns = now + SCAN_NS.max(cost_ns.saturating_mul(2 * SHARE));
        }
    }

    /// When the next look is of a turn that began then: at its end; where turns are far apart, before, at workers that are in a poll. A
    /// poll that is seen in one look is not known to be long, and most are over when the next turn begins.
    fn next_ns(&self, began_ns: u64, turn_ns: u64) -> u64 {
        let end_ns = began_ns + turn_ns;
        match self.followed.is_empty() || turn_ns < self.threshold_ns.saturating_mul(FAR_APART) {
            true => end_ns,
            false => end_ns.min(now_ns() + self.gap_ns),
        }
    }

    /// Looks again at workers that were in a poll, and from then on at those whose poll is long. Each such look is twice as far from the
    /// last: they stay few, and a length is right to a part of it.
    fn follow(&mut self) {
        let mut tids = std::mem::take(&mut self.followed);
        self.look_at(&tids);
        let is_long = |age_ns| age_ns >= self.threshold_ns;
        tids.retain(|&tid| self.age_ns(tid).is_some_and(is_long));
        self.followed = tids;
        self.gap_ns *= 2;
    }

    /// For how long the worker has been seen in the poll that it is in.
    fn age_ns(&self, tid: u32) -> Option<u64> {
        self.workers.get(&tid)?.worker.age_ns()
    }

    /// Looks at these workers.
    fn look_at(&mut self, tids: &[u32]) {
        for &tid in tids {
            // Taken out, so that the rest of `self` can be used meanwhile.
            let Some(mut watched) = self.workers.remove(&tid) else {
                continue;
            };
            match self.look(tid, &mut watched) {
                Ok(()) => {
                    self.workers.insert(tid, watched);
                }
                Err(error) => {
                    self.denied |= error.kind() == io::ErrorKind::PermissionDenied;
                    self.ends.extend(watched.worker.leaves());
                }
            }
        }
        self.settle_ends();
    }

    fn look(&mut self, tid: u32, watched: &mut Watched) -> io::Result<()> {
        let counts = watched.files.counts()?;
        let now = now_ns();
        let last = watched.worker.last().copied();
        let mut look = Look {
            now_ns: now,
            state: State::Runs,
            tick: Tick::Unknown,
            runs: counts.runs,
            sleeps: None,
            delay_ns: counts.delay_ns,
            unserved_ns: 0,
        };
        match last {
            Some(last) if watched.worker.sleeps_on(counts.runs) => {
                (look.state, look.tick, look.sleeps) = (last.state, last.tick, last.sleeps);
                // A sleep that was unknown may have been learned since.
                if last.state == State::Sleeps
                    && let Some(place) = watched.place
                {
                    look.state = self.sleeping(watched, place);
                }
            }
            _ => {
                watched.place = watched.files.place()?;
                if let Some(place) = watched.place {
                    look.state = self.sleeping(watched, place);
                }
                look.tick = self.tick(tid, watched.counter, &mut watched.core);
                if watched.worker.asks_sleeps(counts.runs, look.tick) {
                    look.sleeps = watched.files.sleeps();
                } else {
                    look.sleeps = last.and_then(|last| last.sleeps).map(|sleeps| {
                        // It has not been given a CPU since: at most it fell asleep.
                        let fell = last.is_some_and(|last| last.state == State::Runs)
                            && look.state != State::Runs;
                        sleeps + u64::from(fell)
                    });
                }
            }
        }
        look.unserved_ns = self.services.unserved_ns(watched.worker.runtime);
        let verdict = watched.worker.look(look);
        self.act(tid, watched, look, verdict)
    }

    fn act(
        &mut self,
        tid: u32,
        watched: &mut Watched,
        look: Look,
        verdict: Verdict,
    ) -> io::Result<()> {
        self.ends.extend(verdict.ended);
        if verdict.copy_sleeper
            && let (Some(place), Some(mut progress)) = (watched.place, watched.worker.progress())
            && let Some(copy) = self.copy_of_sleeper(&watched.files, place)
        {
            let slept_ns = watched.worker.slept_ns();
            progress.label = self.label_of(tid);
            watched.worker.was_copied(look.now_ns);
            self.tell_sleeper(progress, Reason::Woke, place, copy, slept_ns);
        } else if look.state == State::Sleeps
            && look.now_ns >= watched.quiet_until_ns
            && self.copies_left > 0
            && let Some(place) = watched.place
            && let Some(copy) = self.copy_of_sleeper(&watched.files, place)
        {
            // It may be a park that is not known yet.
            self.copies_left -= 1;
            watched.quiet_until_ns = look.now_ns + AGAIN_NS;
            let progress = Progress::at(tid, look.now_ns);
            self.tell_sleeper(progress, Reason::UnknownSleep, place, copy, 0);
        }
        if let Some(sampled) = &mut watched.sampled {
            // Read in any case, so that the next one finds room; what was taken outside of this poll is of no use.
            let taken = sampled.take();
            let since_ns = watched.worker.since_ns();
            if verdict.take_sample
                && let Some(taken) = taken
                && (since_ns..=look.now_ns).contains(&taken.now_ns)
                && let Some(mut progress) = watched.worker.progress()
            {
                progress.label = self.label_of(tid);
                watched.worker.was_copied(look.now_ns);
                self.tell(Event::Stack {
                    progress,
                    reason: Reason::Computes,
                    copy: taken.copy,
                    system_call: None,
                    slept_ns: 0,
                    named: Box::default(),
                });
            } else if verdict.want_sample {
                sampled.arm();
            }
        }
        Ok(())
    }

    /// The state of a worker that sleeps there.
    fn sleeping(&mut self, watched: &mut Watched, place: Place) -> State {
        if watched.away_at.contains(&place.spot()) {
            return State::Rests(Sleep::Held);
        }
        match self.known_sleep(place) {
            Some(signature) => {
                self.rests(watched, place, signature);
                State::Rests(signature.sleep)
            }
            None => State::Sleeps,
        }
    }

    /// The signature of the sleep that a thread is in.
    fn known_sleep(&self, place: Place) -> Option<Signature> {
        let call = place.call?;
        let fits = |signature: &&Signature| {
            signature.ip == place.ip
                && signature.system_call == call.number
                && place
                    .sp
                    .checked_add(signature.return_offset.into())
                    .and_then(|at| self.memory.word(at))
                    == Some(signature.return_address)
        };
        self.signatures.iter().find(fits).copied()
    }

    /// Takes what the executor's own sleep tells of its worker.
    fn rests(&mut self, watched: &mut Watched, place: Place, signature: Signature) {
        if let Some((core_offset, tick_offset)) = signature.counter {
            watched.counter = Some(Counter {
                core_at: place.sp.wrapping_add(core_offset.into()),
                tick_offset,
            });
        }
        if signature.sleep == Sleep::Driver
            && let Some(call) = place.call
        {
            watched.worker.runtime = self.services.of_driver(call.arguments[0]);
        } else if watched.worker.runtime.is_none() {
            watched.worker.runtime = self.services.only();
        }
    }

    /// Reads the number of a worker's poll. `core` is where its core was last: it is there most of the time, and one read is enough.
    fn tick(&self, tid: u32, counter: Option<Counter>, core: &mut u64) -> Tick {
        let Some(counter) = counter else {
            return Tick::Unknown;
        };
        // The word has the number, and maybe what follows it.
        let number = |word: u64| {
            let [a, b, c, d, ..] = word.to_ne_bytes();
            Tick::Is(u32::from_ne_bytes([a, b, c, d]))
        };
        let at = |core: u64| core.wrapping_add(counter.tick_offset.into());
        if *core != 0
            && let Some([now, word]) = self.memory.words([counter.core_at, at(*core)])
            && now == *core
        {
            return number(word);
        }
        match self.memory.word(counter.core_at) {
            None => Tick::Unknown,
            Some(0) => self.watched(tid).map_or(Tick::NoCore, |watched| {
                Tick::HandedOver(watched.poll as u32)
            }),
            Some(now) => {
                *core = now;
                self.memory.word(at(now)).map_or(Tick::Unknown, number)
            }
        }
    }

    /// The stack of a thread that sleeps there, if it still did when all was read.
    fn copy_of_sleeper(&self, files: &Files, place: Place) -> Option<StackCopy> {
        let before = files.counts().ok()?;
        let registers = Registers {
            ip: place.ip,
            sp: place.sp,
            bp: None,
            lr: None,
        };
        let copy = StackCopy::read(self.memory, registers);
        let after = files.counts().ok()?;
        (before.runs == after.runs && files.place().ok()? == Some(place)).then_some(copy)
    }

    fn tell_sleeper(
        &mut self,
        progress: Progress,
        reason: Reason,
        place: Place,
        copy: StackCopy,
        slept_ns: u64,
    ) {
        let named = match (reason, place.call) {
            (Reason::Woke, Some(call)) => Box::new(self.named(call)),
            _ => Box::default(),
        };
        self.tell(Event::Stack {
            progress,
            reason,
            copy,
            system_call: place.call,
            slept_ns,
            named,
        });
    }

    /// The files and strings that the arguments of a system call name, while the thread is still in it.
    fn named(&self, call: SystemCall) -> Named {
        let mut named = Named {
            paths: [self.text(call.arguments[0]), self.text(call.arguments[1])],
            ..Named::default()
        };
        let descriptor = call.arguments[0];
        let Some(link) = self.target.descriptor(descriptor) else {
            return named;
        };
        named.mode = self.target.mode_of(descriptor).unwrap_or(0);
        let last = |path: Option<&Path>| {
            let name = path.and_then(Path::file_name);
            name.map_or_else(String::new, |name| name.to_string_lossy().into_owned())
        };
        let path = Path::new(&link);
        if path.is_absolute() {
            (named.file, named.directory) = (last(Some(path)), last(path.parent()));
        }
        named
    }

    /// The string at an address.
    fn text(&self, address: u64) -> String {
        let mut bytes = [0; PATH_BYTES];
        let had = self.memory.read(address, &mut bytes);
        let text = bytes[..had].split(|&byte| byte == 0).next();
        String::from_utf8_lossy(text.unwrap_or_default()).into_owned()
    }

    /// The poll of a task of Morpheus that a thread is in.
    fn watched(&self, tid: u32) -> Option<labels::Watched> {
        labels::watched_at(self.memory, *self.handles.get(&tid)?)
    }

    /// The label of the task that a thread polls.
    fn label_of(&self, tid: u32) -> Option<u32> {
        Some(self.watched(tid)?.label)
    }

    fn tell(&mut self, event: Event) {
        if self.events.len() < MOST_EVENTS {
            self.events.push(event);
        } else {
            self.lost += 1;
        }
    }

    /// Tells of the polls that are over, once all workers were looked at.
    fn settle_ends(&mut self) {
        let ends = std::mem::take(&mut self.ends);
        for ended in &ends {
            if self.has_computed(ended) {
                self.computed.push_back(*ended);
            }
        }
        while self.computed.len() > MOST_COMPUTED {
            self.computed.pop_front();
        }
        for ended in ends {
            self.end(ended);
        }
    }

    /// Whether a poll has computed for longer than the threshold, by looks that have seen it.
    fn has_computed(&self, ended: &Ended) -> bool {
        let seen_ns = ended.seen_ns - ended.first_ns;
        seen_ns.min(ended.progress.cpu_ns) >= self.threshold_ns
    }

    fn end(&mut self, ended: Ended) {
        let mut progress = ended.progress;
        if let Some(slept) = ended.slept
            && let Some(giver) = giver(&self.computed, progress.tid, slept, self.actual_ns)
        {
            (progress.waker, progress.woken_ns) = (Some(giver.tid), giver.now_ns);
        }
        // Of a long one without a stack, too: for the count.
        if ended.has_stack || (progress.is_exact && self.has_computed(&ended)) {
            self.tell(Event::End(progress));
        }
    }

    /// Looks for workers among the threads that are none as yet.
    fn scan(&mut self, now: u64) {
        self.copies_left = UNKNOWN_COPIES;
        if !self.has_exec && self.target.has_another_program() {
            self.has_exec = true;
            self.tell(Event::Exec);
        }
        self.take_suspects(now);
        let mut tids = self.target.threads();
        tids.sort_unstable();
        self.others.retain(|tid, _| tids.binary_search(tid).is_ok());
        self.suspects
            .retain(|tid, _| tids.binary_search(tid).is_ok());
        // From where the last scan ended, so that each has its turn.
        let start = tids.partition_point(|&tid| tid <= self.cursor);
        tids.rotate_left(start);
        let mut looks_left = UNKNOWN_LOOKS;
        for tid in tids {
            let unknown = self.others.get(&tid).copied().unwrap_or_default();
            if self.workers.contains_key(&tid) || now < unknown.quiet_until_ns {
                continue;
            }
            if looks_left == 0 || self.copies_left == 0 {
                break;
            }
            looks_left -= 1;
            self.cursor = tid;
            self.look_at_unknown(tid, unknown, now);
        }
    }

    fn look_at_unknown(&mut self, tid: u32, mut unknown: Unknown, now: u64) {
        let Ok(files) = Files::open(self.target.pid, tid) else {
            return;
        };
        let Ok(place) = files.place() else {
            return;
        };
        match place {
            Some(place) if self.known_sleep(place).is_some() => {
                self.adopt(tid, Kind::Worker, None);
                return;
            }
            Some(place) => {
                unknown.runs = 0;
                if let Some(copy) = self.copy_of_sleeper(&files, place) {
                    self.copies_left -= 1;
                    unknown.quiet_until_ns = now + AGAIN_NS;
                    self.suspects.remove(&tid);
                    let progress = Progress::at(tid, now);
                    self.tell_sleeper(progress, Reason::UnknownSleep, place, copy, 0);
                }
            }
            None => {
                unknown.runs += 1;
                if unknown.runs >= RUNS_ALWAYS
                    && self.suspects.len() < MOST_SUSPECTS
                    && !self.suspects.contains_key(&tid)
                    && let Some(mut sampled) = self.sampled(tid)
                {
                    sampled.arm();
                    self.suspects.insert(tid, sampled);
                }
            }
        }
        self.others.insert(tid, unknown);
    }

    /// Takes the stacks of unknown threads that run always.
    fn take_suspects(&mut self, now: u64) {
        let taken: Vec<(u32, StackCopy)> = self
            .suspects
            .iter_mut()
            .filter_map(|(&tid, sampled)| Some((tid, sampled.take()?.copy)))
            .collect();
        for (tid, copy) in taken {
            self.suspects.remove(&tid);
            self.others.insert(
                tid,
                Unknown {
                    quiet_until_ns: now + AGAIN_NS,
                    runs: 0,
                },
            );
            self.tell(Event::Stack {
                progress: Progress::at(tid, now),
                reason: Reason::UnknownThread,
                copy,
                system_call: None,
                slept_ns: 0,
                named: Box::default(),
            });
        }
    }

    fn adopt(&mut self, tid: u32, kind: Kind, counter: Option<Counter>) {
        match kind {
            Kind::Worker => {
                self.others.remove(&tid);
                self.suspects.remove(&tid);
                if let Some(watched) = self.workers.get_mut(&tid) {
                    watched.counter = counter.or(watched.counter);
                    return;
                }
                if self.workers.len() >= MOST_WORKERS {
                    self.too_many = true;
                    return;
                }
                // One that is gone is no loss.
                let Ok(files) = Files::open(self.target.pid, tid) else {
                    return;
                };
                let sampled = self.sampled(tid);
                self.workers.insert(
                    tid,
                    Watched {
                        files,
                        sampled,
                        worker: Worker::new(tid, self.threshold_ns, self.period_ns),
                        counter,
                        core: 0,
                        place: None,
                        quiet_until_ns: 0,
                        away_at: VecDeque::new(),
                    },
                );
            }
            Kind::Other { asleep: Some(spot) } if self.workers.contains_key(&tid) => {
                if let Some(watched) = self.workers.get_mut(&tid)
                    && !watched.away_at.contains(&spot)
                {
                    watched.away_at.truncate(MOST_SPOTS - 1);
                    watched.away_at.push_front(spot);
                }
            }
            Kind::Other { .. } => {
                if let Some(mut watched) = self.workers.remove(&tid) {
                    self.ends.extend(watched.worker.leaves());
                }
                self.suspects.remove(&tid);
                self.others.insert(
                    tid,
                    Unknown {
                        quiet_until_ns: now_ns() + QUIET_NS,
                        runs: 0,
                    },
                );
            }
        }
    }

    fn sampled(&mut self, tid: u32) -> Option<Sampled> {
        match Sampled::open(tid) {
            Ok(sampled) => Some(sampled),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => None,
            Err(error) => {
                self.refused.get_or_insert_with(|| error.to_string());
                None
            }
        }
    }

    fn learn(&mut self, signature: Signature) {
        let place = self
            .signatures
            .iter()
            .position(|known| known.is_of_same_sleep(&signature));
        match place {
            Some(place) => self.signatures[place] = signature,
            None if self.signatures.len() < MOST_SIGNATURES => self.signatures.push(signature),
            None => {}
        }
    }

    /// The polls that are asleep now.
    fn sleepers(&mut self) -> Vec<Event> {
        let mut sleepers = Vec::new();
        for watched in self.workers.values() {
            let asleep = watched
                .worker
                .last()
                .is_some_and(|last| last.state == State::Sleeps);
            let (Some(place), Some(mut progress)) = (watched.place, watched.worker.progress())
            else {
                continue;
            };
            if !asleep {
                continue;
            }
            let Some(copy) = self.copy_of_sleeper(&watched.files, place) else {
                continue;
            };
            progress.label = self.label_of(progress.tid);
            sleepers.push(Event::Stack {
                progress,
                reason: Reason::Woke,
                copy,
                system_call: place.call,
                slept_ns: watched.worker.slept_ns(),
                named: match place.call {
                    Some(call) => Box::new(self.named(call)),
                    None => Box::default(),
                },
            });
        }
        sleepers
    }

    fn notes(&self) -> Vec<String> {
        let ms = |ns: u64| ns as f64 / 1e6;
        let mut notes = vec![format!(
            "Without BPF: each worker was looked at every {:.1} ms through /proc. Lengths are right to such a period, \
             many polls that are shorter are missed, and unserved time and who held a lock are estimates. Run as root, or with CAP_BPF, \
             CAP_PERFMON and CAP_SYS_PTRACE, for exact ones.",
            ms(self.actual_ns)
        )];
        if self.is_saving() {
            notes.push(format!(
                "There is much to look at: for the doctor's CPU time to stay small, looks were up to {:.1} ms apart in place of {:.1} \
                 ms. A larger --longer-than needs fewer.",
                ms(self.longest_ns),
                ms(self.period_ns)
            ));
        }
        if let Some(error) = &self.refused {
            notes.push(format!(
                "The kernel does not let this user sample the stacks of running threads ({error}): polls that compute have no stack. \
                 `sysctl kernel.perf_event_paranoid=2` allows it, or a container's profile that permits perf_event_open; polls \
                 that block are seen as before."
            ));
        }
        if self.too_many {
            notes.push(format!(
                "There are more than {MOST_WORKERS} workers; the others were not looked at."
            ));
        }
        notes
    }
}

/// The poll that a sleeper has waited for, as far as times tell: one that computed all the while and ended when the sleep did. Not known if
/// there are several.
fn giver(
    computed: &VecDeque<Ended>,
    sleeper: u32,
    (from_ns, to_ns): (u64, u64),
    period_ns: u64,
) -> Option<Progress> {
    // The looks at the two threads are up to a period apart, and so is what they have seen.
    let slack_ns = (period_ns + period_ns / 2).min(MOST_SLACK_NS);
    let mut fitting = computed
        .iter()
        .map(|ended| (ended.first_ns, ended.progress))
        .filter(|(first_ns, progress)| {
            progress.tid != sleeper
                && *first_ns <= from_ns + slack_ns
                && progress.now_ns >= to_ns
                && progress.now_ns - to_ns <= slack_ns
        });
    match (fitting.next(), fitting.next()) {
        (Some((_, progress)), None) => Some(progress),
        _ => None,
    }
}

impl Source for Sampler {
    fn method(&self) -> Method {
        Method::Proc
    }

    fn collect(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
        let mut looks = self.looks();
        events.append(&mut looks.events);
        match looks.denied {
            true => Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "the process does not let its user look at it any more: it has other rights by now",
            )),
            false => Ok(()),
        }
    }

    fn learn(&mut self, signature: Signature) {
        self.looks().learn(signature);
    }

    fn adopt(&mut self, tid: u32, kind: Kind, counter: Option<Counter>) {
        self.looks().adopt(tid, kind, counter);
    }

    fn has_handle(&mut self, tid: u32, handle: u64) {
        self.looks().handles.insert(tid, handle);
    }

    fn sleepers(&mut self) -> Vec<Event> {
        self.looks().sleepers()
    }

    fn workers(&self) -> Vec<(u32, usize)> {
        let looks = self.looks();
        let workers = looks.workers.iter();
        workers
            .map(|(&tid, watched)| (tid, watched.worker.runtime.unwrap_or(0)))
            .collect()
    }

    fn lost(&self) -> u64 {
        self.looks().lost
    }

    fn notes(&self) -> Vec<String> {
        self.looks().notes()
    }
}

#[cfg(test)]
mod tests;
