//! Strip-mining: loops that pass a checkpoint about every 50 µs, at a distance that they find themselves.
//! (Feature `strip`.)
//!
//! A checkpoint itself costs about a nanosecond, but a loop with a checkpoint inside is no longer vectorised.
//! So the loop is cut into strips without a checkpoint inside, and a strip grows or shrinks until it takes
//! about 50 µs.
//!
//! Each kind of loop has a form (`loops` of `morpheus-bench` measures all of them):
//!
//! | the loop | the form |
//! |---|---|
//! | goes through a slice or through indices, and may be vectorised | [`strips`]: each strip is a slice or a range, and the loop over it is the original one |
//! | is an iterator chain with a consumer (`sum`, `for_each`, `any`, …) in code that is not async | [`StripMine::strip`] |
//! | is a `for` loop with `break` and `continue`, whose iterations take some nanoseconds each | [`strip!`](macro@crate::strip) |
//!
//! `strip!` cannot keep a sum in a register. In async code a variable that outlives an `.await` lies in the
//! future, in memory. The compiler must assume that the slice that the loop reads lies there too, and
//! vectorises nothing. With [`strips`] the sum of a strip is a variable of the loop over that strip.

use std::ops::Range;
use std::time::Instant;

use crate::api::checkpoint::checkpoint_sync;

/// The time that a strip should take, in nanoseconds: a twentieth of the default budget. It is long enough
/// that reading a clock once costs less than a tenth of a percent.
const STRIP_NS: u128 = 50_000;
/// The maximum factor between the lengths of two strips, so that one slow strip does not make the next one
/// tiny.
const STEP: usize = 8;
/// The factor by which a strip may grow after one that took less than `STRIP_NS / LEAP`. From
/// 16 iterations it is then three strips to 50 µs, even where an iteration takes a tenth of a nanosecond.
const LEAP: usize = 64;
const LONGEST: usize = 1 << 24;

/// Finds the number of iterations that take about 50 µs.
#[derive(Clone, Debug)]
pub struct Tuner {
    iterations: usize,
    begun: Option<Instant>,
}

impl Default for Tuner {
    fn default() -> Self {
        Self::new()
    }
}

impl Tuner {
    /// A tuner that begins with strips of 16 iterations.
    #[must_use]
    pub const fn new() -> Tuner {
        Tuner {
            iterations: 16,
            begun: None,
        }
    }

    /// Begins a strip and returns its number of iterations. Its time begins now, or began when the last strip
    /// ended.
    #[must_use]
    pub fn begin(&mut self) -> usize {
        self.begun.get_or_insert_with(Instant::now);
        self.iterations
    }

    /// Ends a strip. The time of the next one begins, unless [`pause`](Self::pause) is called: the code
    /// between two strips takes some nanoseconds, and reading the clock again would take more.
    pub fn end(&mut self) {
        if let Some(begun) = self.begun {
            let now = Instant::now();
            self.iterations = next_length(self.iterations, (now - begun).as_nanos());
            self.begun = Some(now);
        }
    }

    /// Excludes the time until the next strip begins.
    pub fn pause(&mut self) {
        self.begun = None;
    }

    /// Ends a strip where one was begun, yields if the task was asked to, and returns the length of the next
    /// strip.
    #[doc(hidden)]
    #[inline]
    pub async fn next_or_yield(&mut self) -> usize {
        self.end();
        if checkpoint_sync() {
            self.pause();
            tokio::task::yield_now().await;
        }
        self.begin()
    }
}

fn next_length(iterations: usize, took_ns: u128) -> usize {
    let took_ns = took_ns.max(1);
    let wanted = (iterations as u128 * STRIP_NS / took_ns) as usize;
    let grow = if took_ns < STRIP_NS / LEAP as u128 {
        LEAP
    } else {
        STEP
    };
    wanted
        .clamp(iterations / STEP, iterations.saturating_mul(grow))
        .clamp(1, LONGEST)
}

/// The state that changes at the end of a strip. It is kept apart from the iterator, so that a call does not
/// pin the iterator in memory.
#[derive(Clone, Debug, Default)]
struct Pace {
    tuner: Tuner,
    asked: bool,
}

impl Pace {
    /// Ends a strip, and returns the length of the next one.
    #[cold]
    #[inline(never)]
    fn end_strip(&mut self) -> usize {
        self.tuner.end();
        self.asked |= checkpoint_sync();
        self.tuner.begin()
    }
}

/// An iterator that passes [`checkpoint_sync`] between strips; made by [`StripMine::strip`].
///
/// It returns every item, with and without a request: in code that is not async a checkpoint can only
/// acknowledge the request and flush the worker's LIFO slot. [`asked`](Self::asked) tells a loop that it may
/// stop early. In async code use [`strip!`](macro@crate::strip), which yields.
#[derive(Clone, Debug)]
pub struct Strip<I> {
    items: I,
    left: usize,
    pace: Pace,
}

impl<I> Strip<I> {
    /// Whether this task was asked to yield since the last call.
    pub fn asked(&mut self) -> bool {
        std::mem::take(&mut self.pace.asked)
    }
}

impl<I: Iterator> Iterator for Strip<I> {
    type Item = I::Item;

    #[inline]
    fn next(&mut self) -> Option<I::Item> {
        if self.left == 0 {
            self.left = self.pace.end_strip();
        }
        self.left -= 1;
        self.items.next()
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        self.items.size_hint()
    }

    /// Runs strips inside the inner iterator's own loop, which can be vectorised.
    #[inline]
    fn fold<B, F: FnMut(B, I::Item) -> B>(self, init: B, mut f: F) -> B {
        let Strip {
            mut items,
            mut left,
            mut pace,
        } = self;
        let mut value = init;
        loop {
            if left == 0 {
                left = pace.end_strip();
            }
            // The number of iterations of this loop is known in advance, which is what the compiler can
            // vectorise.
            let sized = items.size_hint().0.min(left);
            for _ in 0..sized {
                let Some(item) = items.next() else {
                    return value;
                };
                value = f(value, item);
            }
            left -= sized;
            while left > 0 && items.size_hint().0 == 0 {
                let Some(item) = items.next() else {
                    return value;
                };
                value = f(value, item);
                left -= 1;
            }
        }
    }

    /// Runs strips inside the inner iterator's own loop, as `fold` does; `any`, `position` and `find` are
    /// built on it.
    #[inline]
    fn all<F: FnMut(I::Item) -> bool>(&mut self, mut f: F) -> bool {
        loop {
            if self.left == 0 {
                self.left = self.pace.end_strip();
            }
            let sized = self.items.size_hint().0.min(self.left);
            if sized > 0 {
                // If it ends early, the rest of the strip is skipped: the next strip begins sooner.
                self.left -= sized;
                if !self.items.by_ref().take(sized).all(&mut f) {
                    return false;
                }
                continue;
            }
            let Some(item) = self.items.next() else {
                return true;
            };
            self.left -= 1;
            if !f(item) {
                return false;
            }
        }
    }

    #[inline]
    fn any<F: FnMut(I::Item) -> bool>(&mut self, mut f: F) -> bool {
        !self.all(|item| !f(item))
    }

    #[inline]
    fn position<P: FnMut(I::Item) -> bool>(&mut self, mut f: P) -> Option<usize> {
        let mut seen = 0;
        let found = self.any(|item| {
            seen += 1;
            f(item)
        });
        found.then(|| seen - 1)
    }

    #[inline]
    fn find<P: FnMut(&I::Item) -> bool>(&mut self, mut f: P) -> Option<I::Item> {
        let mut found = None;
        self.any(|item| {
            let is_it = f(&item);
            if is_it {
                found = Some(item);
            }
            is_it
        });
        found
    }
}

impl<I: ExactSizeIterator> ExactSizeIterator for Strip<I> {}

/// Strip-mining for any iterator.
pub trait StripMine: Iterator + Sized {
    /// Passes a checkpoint about every 50 µs.
    ///
    /// ```
    /// use morpheus_runtime::StripMine as _;
    ///
    /// let sum: u64 = (0..1_000_000u64).strip().sum();
    /// assert_eq!(sum, 499_999_500_000);
    /// ```
    fn strip(self) -> Strip<Self> {
        Strip {
            items: self,
            left: 0,
            pace: Pace::default(),
        }
    }
}

impl<I: Iterator> StripMine for I {}

/// A value that [`strips`] cuts into pieces: a slice, or a range of indices.
pub trait Cut: Sized {
    /// Cuts off the first `iterations` elements, or all if there are fewer; `None` when nothing is left.
    #[must_use]
    fn cut(&mut self, iterations: usize) -> Option<Self>;
}

impl Cut for Range<usize> {
    fn cut(&mut self, iterations: usize) -> Option<Self> {
        if self.start >= self.end {
            return None;
        }
        let end = self.start.saturating_add(iterations).min(self.end);
        let part = self.start..end;
        self.start = end;
        Some(part)
    }
}

impl<T> Cut for &[T] {
    fn cut(&mut self, iterations: usize) -> Option<Self> {
        let (part, rest) = self.split_at(iterations.min(self.len()));
        *self = rest;
        (!part.is_empty()).then_some(part)
    }
}

impl<T> Cut for &mut [T] {
    fn cut(&mut self, iterations: usize) -> Option<Self> {
        let whole = std::mem::take(self);
        let (part, rest) = whole.split_at_mut(iterations.min(whole.len()));
        *self = rest;
        (!part.is_empty()).then_some(part)
    }
}

/// The strips of a slice or of a range of indices; made by [`strips`].
///
/// As an iterator it passes [`checkpoint_sync`] between them; [`next_or_yield`](Self::next_or_yield) is for
/// async code.
#[derive(Clone, Debug)]
pub struct Strips<S> {
    rest: S,
    pace: Pace,
}

/// Cuts a slice or a range of indices into strips of about 50 µs. The loop over a strip is an ordinary one,
/// and can be vectorised.
///
/// ```
/// # #[morpheus_runtime::main(worker_threads = 1, max_spares = 1)]
/// # async fn main() {
/// use morpheus_runtime::strips;
///
/// let numbers: Vec<u32> = (0..100_000).collect();
/// let mut sum = 0;
/// let mut parts = strips(&numbers[..]);
/// while let Some(part) = parts.next_or_yield().await {
///     sum += part.iter().map(|n| u64::from(*n)).sum::<u64>();
/// }
/// assert_eq!(sum, 4_999_950_000);
///
/// // In code that is not async, and for more than one slice:
/// let mut doubled = vec![0; numbers.len()];
/// for part in strips(0..numbers.len()) {
///     for (to, from) in doubled[part.clone()].iter_mut().zip(&numbers[part]) {
///         *to = 2 * from;
///     }
/// }
/// assert_eq!(doubled[99_999], 199_998);
/// # }
/// ```
pub fn strips<S: Cut>(whole: S) -> Strips<S> {
    Strips {
        rest: whole,
        pace: Pace::default(),
    }
}

impl<S: Cut> Strips<S> {
    /// Passes a [`checkpoint`](crate::checkpoint()), which yields if the task was asked to, and returns the
    /// next strip.
    pub async fn next_or_yield(&mut self) -> Option<S> {
        let iterations = self.pace.tuner.next_or_yield().await;
        self.rest.cut(iterations)
    }

    /// Whether this task was asked to yield at the iterator's checkpoints since the last call.
    pub fn asked(&mut self) -> bool {
        std::mem::take(&mut self.pace.asked)
    }
}

impl<S: Cut> Iterator for Strips<S> {
    type Item = S;

    fn next(&mut self) -> Option<S> {
        let iterations = self.pace.end_strip();
        self.rest.cut(iterations)
    }
}

/// One strip of an iterator: up to a number of items. Afterwards `ended_by_length` says whether there may be
/// more.
#[doc(hidden)]
#[derive(Debug)]
pub struct OneStrip<'a, I> {
    items: &'a mut I,
    left: usize,
    ended_by_length: &'a mut bool,
}

impl<'a, I> OneStrip<'a, I> {
    #[doc(hidden)]
    pub fn new(items: &'a mut I, iterations: usize, ended_by_length: &'a mut bool) -> Self {
        OneStrip {
            items,
            left: iterations,
            ended_by_length,
        }
    }
}

impl<I: Iterator> Iterator for OneStrip<'_, I> {
    type Item = I::Item;

    #[inline]
    fn next(&mut self) -> Option<I::Item> {
        if self.left == 0 {
            // The loop asks for one item more than the strip has: it neither broke nor ran dry.
            *self.ended_by_length = true;
            return None;
        }
        self.left -= 1;
        self.items.next()
    }
}

/// A `for` loop in async code that awaits a [`checkpoint`](crate::checkpoint()) about every 50 µs.
///
/// `break` and `continue` work as in any loop.
///
/// ```
/// # #[morpheus_runtime::main(worker_threads = 1, max_spares = 1)]
/// # async fn main() {
/// let mut sum = 0u64;
/// morpheus_runtime::strip!(for i in 0..1_000_000u64 {
///     if i % 2 == 1 {
///         continue;
///     }
///     if i > 10 {
///         break;
///     }
///     sum += i;
/// });
/// assert_eq!(sum, 30);
/// # }
/// ```
#[macro_export]
macro_rules! strip {
    (for $item:pat in $($rest:tt)+) => {
        $crate::__strip!([$item] [] $($rest)+)
    };
}

/// Splits `expr { body }` at the last block, which is the only token tree left at the end.
#[doc(hidden)]
#[macro_export]
macro_rules! __strip {
    ([$item:pat] [$($items:tt)+] $body:block) => {{
        let mut items = ::core::iter::IntoIterator::into_iter($($items)+);
        let mut tuner = $crate::strip::Tuner::new();
        loop {
            let mut more = false;
            let iterations = tuner.next_or_yield().await;
            for $item in $crate::strip::OneStrip::new(&mut items, iterations, &mut more) $body
            if !more {
                break;
            }
        }
    }};
    ([$item:pat] [$($items:tt)*] $next:tt $($rest:tt)+) => {
        $crate::__strip!([$item] [$($items)* $next] $($rest)+)
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_approach_fifty_microseconds() {
        assert_eq!(next_length(16, 50_000), 16);
        assert_eq!(next_length(16, 1), 16 * LEAP);
        assert_eq!(next_length(16, 1_000), 16 * STEP);
        assert_eq!(next_length(16, 25_000), 32);
        assert_eq!(next_length(16, u128::MAX / 2), 2);
        assert_eq!(next_length(1, 1_000_000), 1);
        assert_eq!(next_length(LONGEST, 1), LONGEST);
    }

    #[test]
    fn every_item_comes_once_in_every_form() {
        for length in [0usize, 1, 15, 16, 17, 1000, 100_000] {
            let mut seen = Vec::new();
            for item in (0..length).strip() {
                seen.push(item);
            }
            assert_eq!(seen, (0..length).collect::<Vec<_>>());
            assert_eq!((0..length).strip().sum::<usize>(), (0..length).sum());
            let mut begun = (0..length).strip();
            let first = begun.by_ref().take(20).count();
            assert_eq!(first + begun.count(), length);
            // An iterator of unknown length.
            let odd = (0..length).filter(|n| n % 2 == 1).strip();
            assert_eq!(odd.count(), length / 2);
        }
    }

    #[test]
    fn searches_end_at_the_match_and_can_continue() {
        for length in [1usize, 17, 1000, 100_000] {
            let last = length - 1;
            let mut items = (0..length).strip();
            assert_eq!(items.position(|n| n == last), Some(last));
            assert_eq!(items.next(), None);
            let mut items = (0..length).filter(|_| true).strip();
            assert_eq!(items.find(|n| *n == last / 2), Some(last / 2));
            assert_eq!(items.count(), length - 1 - last / 2);
            assert!((0..length).strip().all(|n| n < length));
            assert!(!(0..length).strip().any(|n| n >= length));
            assert_eq!((0..length).strip().find(|n| *n == length), None);
            assert_eq!((0..length).strip().position(|n| n == length), None);
        }
    }

    #[test]
    fn strips_make_up_the_whole_in_order() {
        for length in [0usize, 1, 16, 17, 1000, 100_000] {
            let mut numbers: Vec<usize> = (0..length).collect();
            let ranges: Vec<usize> = strips(0..length).flatten().collect();
            assert_eq!(ranges, numbers);
            let parts: Vec<&[usize]> = strips(&numbers[..]).collect();
            assert!(parts.iter().all(|part| !part.is_empty()));
            assert_eq!(parts.concat(), numbers);
            for part in strips(&mut numbers[..]) {
                part.fill(7);
            }
            assert_eq!(numbers, vec![7; length]);
        }
        // A reversed range is empty, as everywhere.
        let nothing = std::ops::Range { start: 5, end: 3 };
        assert_eq!(strips(nothing).count(), 0);
    }

    #[test]
    fn strips_go_on_after_a_yield() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .unwrap();
        let sum = runtime.block_on(async {
            let (mut sum, mut parts) = (0, strips(0..100_000));
            while let Some(part) = parts.next_or_yield().await {
                sum += part.sum::<usize>();
            }
            sum
        });
        assert_eq!(sum, (0..100_000).sum());
    }

    #[test]
    fn a_pause_is_no_part_of_a_strip() {
        let mut tuner = Tuner::new();
        let _ = tuner.begin();
        tuner.end();
        let grown = tuner.iterations;
        tuner.pause();
        std::thread::sleep(std::time::Duration::from_millis(5));
        assert_eq!(tuner.begin(), grown);
        tuner.end();
        assert!(
            tuner.iterations > grown,
            "a strip that took no time may grow"
        );
    }
}
