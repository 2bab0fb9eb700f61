//! A worker's two slots as atomics: the words that it writes, and the words that are written about it.
//!
//! One thread, its worker, writes a [`RuntimeSlot`]; the controller and the kernel side read it. One side,
//! the kernel's or (without one) the controller, writes a [`KernelSlot`]; the worker reads it. No word has
//! two writers, so the worker's path needs no read-modify-write. The exceptions are `flags`, which the
//! controller may set too, and `state` and `tid`, which pass to the next thread with the slot.
//!
//! `PROTOCOL.md` has the protocol and the proof that these orderings suffice. `tests/loom.rs` checks it.

use core::num::NonZeroU64;
use core::ops::BitOr;

use crate::abi;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// The state of a slot's worker. Requests and escalation happen only while it is [`Running`](Self::Running).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum WorkerState {
    /// No thread has the slot.
    Init = abi::MORPHEUS_WORKER_INIT,
    /// An active worker or a held spare.
    Running = abi::MORPHEUS_WORKER_RUNNING,
    /// The thread has ended. The slot may be given to another thread.
    Dead = abi::MORPHEUS_WORKER_DEAD,
}

/// One bit of [`RuntimeSlot::flags`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum SlotFlag {
    /// A held spare: it blocks in a poll on purpose, and is never stalled.
    Held = abi::MORPHEUS_SLOT_HELD,
    /// A handoff poll: another thread has the core, and no task waits behind the poll.
    Handoff = abi::MORPHEUS_SLOT_HANDOFF,
    /// The thread may be demoted and throttled during a handoff poll.
    Demotable = abi::MORPHEUS_SLOT_DEMOTABLE,
    /// An unwatched task keeps the worker: the thread counts as over its budget until the flag is cleared or
    /// the worker parks.
    Hog = abi::MORPHEUS_SLOT_HOG,
    /// The thread is the controller: it is never stalled, and serves the workers of its process.
    Controller = abi::MORPHEUS_SLOT_CONTROLLER,
}

/// The findings about one poll while it lasted. Several flags can be set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerdictFlags(u8);

impl VerdictFlags {
    /// No finding.
    pub const EMPTY: Self = Self(0);
    /// The poll used up its budget, on the CPU or asleep.
    pub const STALLED: Self = Self(abi::MORPHEUS_VERDICT_STALLED as u8);
    /// The thread slept in the kernel during the poll.
    pub const BLOCKED: Self = Self(abi::MORPHEUS_VERDICT_BLOCKED as u8);
    /// The poll used enough CPU time to count as a hog poll of its label.
    pub const HOG: Self = Self(abi::MORPHEUS_VERDICT_HOG as u8);
    /// The thread was demoted.
    pub const DEMOTED: Self = Self(abi::MORPHEUS_VERDICT_DEMOTED as u8);
    /// The thread was throttled.
    pub const THROTTLED: Self = Self(abi::MORPHEUS_VERDICT_THROTTLED as u8);

    /// Returns the flags as in the lower byte of a verdict word.
    #[inline]
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Whether no flag is set.
    #[inline]
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether all of `other`'s flags are set.
    #[inline]
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for VerdictFlags {
    type Output = Self;

    #[inline]
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// The words that a worker writes about itself: the atomic view of [`abi::morpheus_runtime_slot`].
///
/// The worker that has the slot writes all of them, except for those that the module's head names. The kernel
/// side may map a slot, and treats it as a claim.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct RuntimeSlot {
    /// Odd while a watched poll is in progress. Never reset, so (slot, `poll_seq`) names one poll for ever.
    pub poll_seq: AtomicU64,
    /// Odd while the worker is parked. Never reset.
    pub park_seq: AtomicU64,
    /// The `poll_seq` of the last request that was answered.
    pub ack_seq: AtomicU64,
    /// Kernel thread ID of the worker.
    pub tid: AtomicU32,
    /// A [`WorkerState`].
    pub state: AtomicU32,
    /// Number of critical sections that the thread is in.
    pub critical_depth: AtomicU32,
    /// [`SlotFlag`]s.
    pub flags: AtomicU32,
    /// Label of the running task: a number that the runtime gives to a spawn location or a name. 0 is
    /// unknown.
    pub label: AtomicU32,
    /// Number of requests that the worker's tasks answered with a yield. It wraps.
    pub yields: AtomicU32,
    reserved: [AtomicU32; 4],
}

/// Makes a function `const` with the real atomics; loom's atomics cannot be made in a constant.
macro_rules! const_unless_loom {
    ($(#[$doc:meta])* pub fn $name:ident() -> Self $body:block) => {
        $(#[$doc])*
        #[cfg(not(loom))]
        pub const fn $name() -> Self $body
        $(#[$doc])*
        #[cfg(loom)]
        pub fn $name() -> Self $body
    };
}

impl RuntimeSlot {
    const_unless_loom! {
        /// Makes a free slot: all zeroes, [`WorkerState::Init`].
        #[inline]
        #[must_use]
        pub fn new() -> Self {
            Self {
                poll_seq: AtomicU64::new(0),
                park_seq: AtomicU64::new(0),
                ack_seq: AtomicU64::new(0),
                tid: AtomicU32::new(0),
                state: AtomicU32::new(abi::MORPHEUS_WORKER_INIT),
                critical_depth: AtomicU32::new(0),
                flags: AtomicU32::new(0),
                label: AtomicU32::new(0),
                yields: AtomicU32::new(0),
                reserved: [
                    AtomicU32::new(0),
                    AtomicU32::new(0),
                    AtomicU32::new(0),
                    AtomicU32::new(0),
                ],
            }
        }
    }

    /// Begins a watched poll and returns its number, which is odd and was never used for a poll of this slot.
    ///
    /// Only for the slot's worker. Polls do not nest: if [`in_poll`](Self::in_poll) returns true, the outer
    /// poll counts. If a thread died within a poll, this call ends that poll.
    #[inline]
    pub fn begin_poll(&self) -> u64 {
        // Relaxed: the worker's own word. The thread that had the slot before passed it on with `state`.
        let seq = self.next_poll();
        // Release, pairs with the Acquire in `observe_poll`: an observer that sees this poll also sees its
        // label and flags, and none of the poll before.
        self.poll_seq.store(seq, Ordering::Release);
        seq
    }

    /// Returns the number that [`begin_poll`](Self::begin_poll) will use. Only for the slot's worker.
    #[inline]
    #[must_use]
    pub fn next_poll(&self) -> u64 {
        // Relaxed: the worker's own word.
        self.poll_seq.load(Ordering::Relaxed).wrapping_add(1) | 1
    }

    /// Returns the number of the poll in progress, if there is one. Only for the slot's worker; other threads use
    /// [`observe_poll`](Self::observe_poll).
    #[inline]
    #[must_use]
    pub fn poll_under_way(&self) -> Option<NonZeroU64> {
        // Relaxed: the worker's own word.
        let seq = self.poll_seq.load(Ordering::Relaxed);
        NonZeroU64::new(seq).filter(|seq| seq.get() & 1 == 1)
    }

    /// Ends the watched poll `seq`.
    ///
    /// Only for the slot's worker.
    ///
    /// # Panics
    ///
    /// In debug builds, if the poll in progress is not `seq`.
    #[inline]
    pub fn end_poll(&self, seq: u64) {
        debug_assert_eq!(
            self.poll_seq.load(Ordering::Relaxed),
            seq,
            "watched polls do not nest"
        );
        // Release, pairs with the Acquire in `observe_poll`: an observer that sees the end of the poll also
        // sees its yields.
        self.poll_seq.store(seq.wrapping_add(1), Ordering::Release);
    }

    /// Whether a watched poll is in progress. Only for the slot's worker; other threads use
    /// [`observe_poll`](Self::observe_poll).
    #[inline]
    #[must_use]
    pub fn in_poll(&self) -> bool {
        // Relaxed: the worker's own word.
        self.poll_seq.load(Ordering::Relaxed) & 1 == 1
    }

    /// Returns the number of the poll in progress, which is odd; an even number if there is none. For the
    /// controller.
    #[inline]
    #[must_use]
    pub fn observe_poll(&self) -> u64 {
        // Acquire, pairs with the Release in `begin_poll` and `end_poll`.
        self.poll_seq.load(Ordering::Acquire)
    }

    /// Marks the worker as parked. Does nothing if it is marked already.
    ///
    /// Only for the slot's worker.
    #[inline]
    pub fn park(&self) {
        // Relaxed: the worker's own word.
        let seq = self.park_seq.load(Ordering::Relaxed);
        if seq & 1 == 0 {
            // Release, pairs with the Acquire in `is_parked`: a reader that sees the worker parked sees what
            // it did before.
            self.park_seq.store(seq.wrapping_add(1), Ordering::Release);
        }
    }

    /// Marks the worker as not parked. Does nothing if it is not parked.
    ///
    /// Only for the slot's worker.
    #[inline]
    pub fn unpark(&self) {
        // Relaxed: the worker's own word.
        let seq = self.park_seq.load(Ordering::Relaxed);
        if seq & 1 == 1 {
            // Release, pairs with the Acquire in `is_parked`, as in `park`.
            self.park_seq.store(seq.wrapping_add(1), Ordering::Release);
        }
    }

    /// Whether the worker is parked.
    #[inline]
    #[must_use]
    pub fn is_parked(&self) -> bool {
        // Acquire, pairs with the Release in `park` and `unpark`.
        self.park_seq.load(Ordering::Acquire) & 1 == 1
    }

    /// Enters a critical section. Sections nest; the depth saturates at 2³² − 1.
    ///
    /// Only for the slot's worker.
    #[inline]
    pub fn enter_critical(&self) {
        // Relaxed: the worker's own word.
        let depth = self.critical_depth.load(Ordering::Relaxed);
        // Relaxed, pairs with nothing: a demotion loads only the depth, and a slightly old value is what an
        // earlier load would have returned.
        self.critical_depth
            .store(depth.saturating_add(1), Ordering::Relaxed);
    }

    /// Leaves a critical section. Does nothing outside of one.
    ///
    /// Only for the slot's worker.
    #[inline]
    pub fn leave_critical(&self) {
        // Relaxed: the worker's own word.
        let depth = self.critical_depth.load(Ordering::Relaxed);
        // Relaxed, pairs with nothing, as in `enter_critical`.
        self.critical_depth
            .store(depth.saturating_sub(1), Ordering::Relaxed);
    }

    /// Whether the worker is in a critical section.
    #[inline]
    #[must_use]
    pub fn in_critical(&self) -> bool {
        // Relaxed, pairs with nothing, as in `enter_critical`.
        self.critical_depth.load(Ordering::Relaxed) > 0
    }

    /// Counts a yield.
    ///
    /// Only for the slot's worker.
    #[inline]
    pub fn count_yield(&self) {
        let count = &self.yields;
        // Relaxed, both: the worker's own word, and a statistic. A reader that needs it exact as of a poll's
        // end or an answer gets that by the Release of `end_poll` or `acknowledge`.
        count.store(
            count.load(Ordering::Relaxed).wrapping_add(1),
            Ordering::Relaxed,
        );
    }

    /// Records that the request to the poll `seq` was answered.
    ///
    /// Only for the slot's worker.
    #[inline]
    pub fn acknowledge(&self, seq: u64) {
        // Release, pairs with the Acquire in `acknowledged`: a reader that sees the answer sees the yield
        // counted.
        self.ack_seq.store(seq, Ordering::Release);
    }

    /// Whether the request to the poll `seq` was answered, and no later one. For the controller.
    #[inline]
    #[must_use]
    pub fn acknowledged(&self, seq: u64) -> bool {
        // Acquire, pairs with the Release in `acknowledge`.
        self.ack_seq.load(Ordering::Acquire) == seq
    }

    /// Sets a flag. Any thread may call it.
    #[inline]
    pub fn set_flag(&self, flag: SlotFlag) {
        // Release, pairs with the Acquire in `has_flag`: a reader that sees a spare held sees what the spare
        // did before.
        self.flags.fetch_or(flag as u32, Ordering::Release);
    }

    /// Clears a flag. Any thread may call it.
    #[inline]
    pub fn clear_flag(&self, flag: SlotFlag) {
        // Release, pairs with the Acquire in `has_flag`.
        self.flags.fetch_and(!(flag as u32), Ordering::Release);
    }

    /// Whether a flag is set.
    #[inline]
    #[must_use]
    pub fn has_flag(&self, flag: SlotFlag) -> bool {
        // Acquire, pairs with the Release in `set_flag` and `clear_flag`.
        self.flags.load(Ordering::Acquire) & flag as u32 != 0
    }

    /// Moves the slot `before` of the same worker to this memory, and leaves `before` as `Dead`.
    ///
    /// Only for the slots' worker, outside of a poll, and while no other thread writes to this slot. The
    /// caller then publishes the new place with a Release store, so that readers see all words of this slot.
    pub fn continue_from(&self, before: &RuntimeSlot) {
        self.copy_from(before);
        before.tid.store(0, Ordering::Relaxed);
        before.set_state(WorkerState::Dead);
    }

    /// Copies all words of the slot `before`, which does not change. Takes no lock and allocates nothing.
    ///
    /// Only for the slots' worker, and while no other thread writes to this slot.
    pub fn copy_from(&self, before: &RuntimeSlot) {
        // Relaxed, all of these: the worker's own words, which the caller publishes. The kernel side is not
        // notified; it acquires `state`.
        let copy_u64 = |to: &AtomicU64, from: &AtomicU64| {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        };
        let copy_u32 = |to: &AtomicU32, from: &AtomicU32| {
            to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
        };
        copy_u64(&self.poll_seq, &before.poll_seq);
        copy_u64(&self.park_seq, &before.park_seq);
        copy_u64(&self.ack_seq, &before.ack_seq);
        copy_u32(&self.tid, &before.tid);
        copy_u32(&self.critical_depth, &before.critical_depth);
        copy_u32(&self.flags, &before.flags);
        copy_u32(&self.label, &before.label);
        copy_u32(&self.yields, &before.yields);
        // Release, pairs with the Acquire in `state`: a reader that sees the worker here sees its words.
        self.state
            .store(before.state.load(Ordering::Relaxed), Ordering::Release);
    }

    /// Sets the state of the worker.
    #[inline]
    pub fn set_state(&self, state: WorkerState) {
        // Release, pairs with the Acquire in `state`: a reader that sees `Running` sees the thread's `tid`. A
        // thread that sees `Dead` and takes the slot over sees the last `poll_seq`, from which it continues.
        self.state.store(state as u32, Ordering::Release);
    }

    /// Returns the state of the worker; `None` if the word is none of the states.
    #[inline]
    #[must_use]
    pub fn state(&self) -> Option<WorkerState> {
        // Acquire, pairs with the Release in `set_state`.
        match self.state.load(Ordering::Acquire) {
            abi::MORPHEUS_WORKER_INIT => Some(WorkerState::Init),
            abi::MORPHEUS_WORKER_RUNNING => Some(WorkerState::Running),
            abi::MORPHEUS_WORKER_DEAD => Some(WorkerState::Dead),
            _ => None,
        }
    }
}

impl Default for RuntimeSlot {
    fn default() -> Self {
        Self::new()
    }
}

/// The words that are written about a worker: the atomic view of [`abi::morpheus_kernel_slot`].
///
/// The kernel side writes them, or the controller if there is no kernel side. If the kernel side writes them,
/// the application has the memory mapped for reading only, and a call of [`request`](Self::request) or
/// [`give_verdict`](Self::give_verdict) faults.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct KernelSlot {
    /// The `poll_seq` of the poll that is asked to yield. The number of another poll means nothing.
    pub request_seq: AtomicU64,
    /// `poll_seq << 8 |` [`VerdictFlags`].
    pub verdict: AtomicU64,
    /// CPU time of the poll that the verdict is about, in nanoseconds.
    pub oncpu_ns: AtomicU64,
    /// A [`Step`](crate::ladder::Step).
    pub step: AtomicU32,
    // Atomics too, because another version of the other side might write to them.
    reserved0: AtomicU32,
    reserved: [AtomicU64; 4],
}

impl KernelSlot {
    const_unless_loom! {
        /// Makes a slot without a request or a verdict: all zeroes. No poll has the number 0, so neither word
        /// is about a poll.
        #[inline]
        #[must_use]
        pub fn new() -> Self {
            Self {
                request_seq: AtomicU64::new(0),
                verdict: AtomicU64::new(0),
                oncpu_ns: AtomicU64::new(0),
                step: AtomicU32::new(abi::MORPHEUS_STEP_WATCHING),
                reserved0: AtomicU32::new(0),
                reserved: [
                    AtomicU64::new(0),
                    AtomicU64::new(0),
                    AtomicU64::new(0),
                    AtomicU64::new(0),
                ],
            }
        }
    }

    const_unless_loom! {
        /// Makes a constant slot for threads without one. Its `request_seq` is neither that of a poll nor
        /// that of a fresh [`RuntimeSlot`], so [`requested`](Self::requested) ends after one comparison.
        #[inline]
        #[must_use]
        pub fn never_requested() -> Self {
            let mut slot = Self::new();
            slot.request_seq = AtomicU64::new(u64::MAX - 1);
            slot
        }
    }

    /// Asks the poll `seq` to yield. Has no effect if that poll has ended.
    ///
    /// Only for the slot's one writer.
    #[inline]
    pub fn request(&self, seq: u64) {
        // Release. `requested` needs none. This pairs with an Acquire fence after it, which gives the `step`
        // and `oncpu_ns` as of the request to code that reports why a poll yields.
        self.request_seq.store(seq, Ordering::Release);
    }

    /// Whether the poll `seq` is asked to yield. False if `seq` is even, and so not a poll.
    #[inline]
    #[must_use]
    pub fn requested(&self, seq: u64) -> bool {
        // Relaxed, pairs with nothing: the request is this one word. It names its poll, so a late request is
        // not taken for another poll's. No other memory is read because of it. A request that is seen one
        // checkpoint later is equal to a request that came later.
        //
        // The second comparison is for fresh slots, where both words are 0. It comes second, so the usual
        // case needs one comparison.
        self.request_seq.load(Ordering::Relaxed) == seq && seq & 1 == 1
    }

    /// Gives the poll `seq` a verdict: adds to the flags about this poll, and replaces those about another.
    ///
    /// The poll reads the verdict when it ends. A verdict about a poll that has ended is lost. Only for the
    /// slot's one writer.
    #[inline]
    pub fn give_verdict(&self, seq: u64, flags: VerdictFlags) {
        let about = seq << abi::MORPHEUS_VERDICT_SHIFT;
        // Relaxed: the writer's own word.
        let before = flags_if_about(self.verdict.load(Ordering::Relaxed), about);
        // Release, pairs with the Acquire in `verdict_for`: a reader that finds the verdict finds its
        // `oncpu_ns`.
        self.verdict.store(
            about | u64::from((before | flags).bits()),
            Ordering::Release,
        );
    }

    /// Returns the verdict on the poll `seq`; empty if the word is about another poll.
    #[inline]
    #[must_use]
    pub fn verdict_for(&self, seq: u64) -> VerdictFlags {
        let word = self.verdict.load(Ordering::Relaxed);
        // Acquire, pairs with the Release in `give_verdict`. A fence after a Relaxed load, and no Acquire
        // load: the memory may be mapped for reading only, where `std::sync::atomic` promises that Relaxed
        // loads work, and no other access.
        fence(Ordering::Acquire);
        flags_if_about(word, seq << abi::MORPHEUS_VERDICT_SHIFT)
    }
}

impl Default for KernelSlot {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the flags of a verdict word, if it is about the poll in `about` (a `poll_seq`, shifted); otherwise
/// none.
///
/// The word holds the lower 56 bits of a `poll_seq`. Two polls that have these in common are 2⁵⁵ polls apart:
/// at ten million polls a second, a century.
#[inline]
fn flags_if_about(word: u64, about: u64) -> VerdictFlags {
    match u8::try_from(word ^ about) {
        Ok(flags) => VerdictFlags(flags),
        Err(_) => VerdictFlags::EMPTY,
    }
}

/// Checks that the atomic views have the layout of the header. Not under loom, whose atomics are larger.
#[cfg(not(loom))]
const _: () = {
    use core::mem::{align_of, offset_of, size_of};

    macro_rules! same_layout {
        ($view:ty, $abi:ty, $($field:ident)+) => {
            assert!(size_of::<$view>() == size_of::<$abi>());
            assert!(size_of::<$view>() == 64 && align_of::<$view>() == 64);
            $(assert!(offset_of!($view, $field) == offset_of!($abi, $field));)+
        };
    }
    same_layout!(RuntimeSlot, abi::morpheus_runtime_slot,
        poll_seq park_seq ack_seq tid state critical_depth flags label yields reserved);
    same_layout!(KernelSlot, abi::morpheus_kernel_slot,
        request_seq verdict oncpu_ns step reserved0 reserved);
};

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn poll_numbers_are_odd_and_never_repeat() {
        let slot = RuntimeSlot::new();
        assert!(!slot.in_poll());
        for expected in [1, 3, 5] {
            let seq = slot.begin_poll();
            assert_eq!((seq, slot.observe_poll()), (expected, expected));
            assert!(slot.in_poll());
            slot.end_poll(seq);
            assert!(!slot.in_poll());
        }
        // A thread that died within a poll.
        assert_eq!(slot.begin_poll(), 7);
        assert_eq!(slot.begin_poll(), 9);
    }

    #[test]
    fn poll_numbers_wrap() {
        let slot = RuntimeSlot::new();
        slot.poll_seq.store(u64::MAX - 1, Ordering::Relaxed);
        let seq = slot.begin_poll();
        assert_eq!(seq, u64::MAX);
        slot.end_poll(seq);
        assert_eq!(slot.begin_poll(), 1);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "do not nest")]
    fn polls_do_not_nest() {
        let slot = RuntimeSlot::new();
        let outer = slot.begin_poll();
        let inner = slot.begin_poll();
        slot.end_poll(inner);
        slot.end_poll(outer);
    }

    #[test]
    fn parking_twice_counts_once() {
        let slot = RuntimeSlot::new();
        slot.unpark();
        assert_eq!(slot.park_seq.load(Ordering::Relaxed), 0);
        slot.park();
        slot.park();
        assert!(slot.is_parked());
        slot.unpark();
        slot.unpark();
        assert!(!slot.is_parked());
        assert_eq!(slot.park_seq.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn critical_sections_nest_and_never_underflow() {
        let slot = RuntimeSlot::new();
        slot.leave_critical();
        assert!(!slot.in_critical());
        slot.enter_critical();
        slot.enter_critical();
        slot.leave_critical();
        assert!(slot.in_critical());
        slot.leave_critical();
        assert!(!slot.in_critical());
        slot.critical_depth.store(u32::MAX, Ordering::Relaxed);
        slot.enter_critical();
        assert!(slot.in_critical());
    }

    #[test]
    fn requests_are_for_one_poll() {
        let (runtime, kernel) = (RuntimeSlot::new(), KernelSlot::new());
        assert!(
            !kernel.requested(runtime.observe_poll()),
            "0 is the number of no poll"
        );
        let seq = runtime.begin_poll();
        kernel.request(seq);
        assert!(kernel.requested(seq));
        assert!(!runtime.acknowledged(seq));
        runtime.acknowledge(seq);
        assert!(runtime.acknowledged(seq));
        runtime.end_poll(seq);
        assert!(!kernel.requested(runtime.begin_poll()));
        assert!(!KernelSlot::never_requested().requested(0));
    }

    #[test]
    fn verdicts_add_up_within_a_poll_only() {
        let slot = KernelSlot::new();
        assert_eq!(slot.verdict_for(0), VerdictFlags::EMPTY);
        slot.give_verdict(5, VerdictFlags::STALLED);
        slot.give_verdict(5, VerdictFlags::HOG);
        assert_eq!(
            slot.verdict_for(5),
            VerdictFlags::STALLED | VerdictFlags::HOG
        );
        for other in [0, 1, 3, 4, 6, 7, u64::MAX] {
            assert!(slot.verdict_for(other).is_empty(), "{other}");
        }
        slot.give_verdict(7, VerdictFlags::BLOCKED);
        assert_eq!(slot.verdict_for(7), VerdictFlags::BLOCKED);
        assert!(slot.verdict_for(5).is_empty());
        // A number of which the word holds only the lower bits.
        slot.give_verdict(u64::MAX, VerdictFlags::STALLED);
        assert!(slot.verdict_for(u64::MAX).contains(VerdictFlags::STALLED));
    }

    #[test]
    fn verdict_words_are_those_of_the_header() {
        let slot = KernelSlot::new();
        slot.give_verdict(9, VerdictFlags::STALLED | VerdictFlags::THROTTLED);
        let flags = u64::from(abi::MORPHEUS_VERDICT_STALLED | abi::MORPHEUS_VERDICT_THROTTLED);
        assert_eq!(
            slot.verdict.load(Ordering::Relaxed),
            9 << abi::MORPHEUS_VERDICT_SHIFT | flags
        );
    }

    #[test]
    fn unknown_states_are_refused() {
        let slot = RuntimeSlot::new();
        assert_eq!(slot.state(), Some(WorkerState::Init));
        for state in [WorkerState::Running, WorkerState::Dead] {
            slot.set_state(state);
            assert_eq!(slot.state(), Some(state));
        }
        slot.state.store(1, Ordering::Relaxed);
        assert_eq!(slot.state(), None);
    }

    #[test]
    fn yields_wrap_and_flags_are_independent() {
        let slot = RuntimeSlot::new();
        slot.yields.store(u32::MAX, Ordering::Relaxed);
        slot.count_yield();
        assert_eq!(slot.yields.load(Ordering::Relaxed), 0);

        slot.set_flag(SlotFlag::Held);
        slot.set_flag(SlotFlag::Demotable);
        slot.clear_flag(SlotFlag::Held);
        assert!(!slot.has_flag(SlotFlag::Held) && slot.has_flag(SlotFlag::Demotable));
        assert!(!slot.has_flag(SlotFlag::Handoff));
    }
}
