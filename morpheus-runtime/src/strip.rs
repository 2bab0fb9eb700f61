//! Strip-mining: loops that pass a checkpoint every so often, at a distance they find themselves.
//!
//! What a checkpoint costs is not its own nanosecond but what it does to the loop around it: a loop that
//! the compiler could vectorise no longer is. So the loop is cut into strips, inside which nothing is
//! checked, and a strip grows or shrinks until it takes about 50 µs.

use std::time::Instant;

use crate::checkpoint::checkpoint_sync;

/// How long a strip should take, in nanoseconds: a twentieth of the default budget, and long enough that
/// reading a clock once costs less than a tenth of a percent.
const STRIP_NS: u128 = 50_000;
/// A strip's length changes by this factor at most, so that one slow strip does not make the next tiny.
const STEP: usize = 8;
const LONGEST: usize = 1 << 24;

/// Finds out how many turns take about 50 µs.
#[derive(Clone, Debug)]
pub struct Tuner {
    turns: usize,
    begun: Option<Instant>,
}

impl Default for Tuner {
    fn default() -> Self {
        Self::new()
    }
}

impl Tuner {
    /// Begins with strips of 16 turns.
    #[must_use]
    pub const fn new() -> Tuner {
        Tuner {
            turns: 16,
            begun: None,
        }
    }

    /// Turns that the next strip should have.
    #[must_use]
    pub fn begin(&mut self) -> usize {
        self.begun = Some(Instant::now());
        self.turns
    }

    /// The strip is over.
    pub fn end(&mut self) {
        if let Some(begun) = self.begun.take() {
            self.turns = next_length(self.turns, begun.elapsed().as_nanos());
        }
    }
}

fn next_length(turns: usize, took_ns: u128) -> usize {
    let wanted = (turns as u128 * STRIP_NS / took_ns.max(1)) as usize;
    wanted
        .clamp(turns / STEP, turns.saturating_mul(STEP))
        .clamp(1, LONGEST)
}

/// An iterator that passes [`checkpoint_sync`] between strips; made by [`StripMine::strip`].
///
/// It yields every item, asked or not: in code that is not async a checkpoint can only acknowledge the
/// request and free the task in the worker's LIFO slot. [`asked`](Self::asked) tells a loop that could
/// stop early. In async code use [`strip!`](macro@crate::strip), which yields.
#[derive(Clone, Debug)]
pub struct Strip<I> {
    items: I,
    tuner: Tuner,
    left: usize,
    asked: bool,
}

impl<I> Strip<I> {
    /// Whether this task was asked to yield since the last call.
    pub fn asked(&mut self) -> bool {
        std::mem::take(&mut self.asked)
    }
}

impl<I: Iterator> Iterator for Strip<I> {
    type Item = I::Item;

    #[inline]
    fn next(&mut self) -> Option<I::Item> {
        if self.left == 0 {
            self.turn();
        }
        self.left -= 1;
        self.items.next()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.items.size_hint()
    }

    /// Strips run inside the inner iterator's own loop, which can be vectorised.
    fn fold<B, F: FnMut(B, I::Item) -> B>(mut self, init: B, mut f: F) -> B {
        let mut value = init;
        loop {
            if self.left == 0 {
                self.turn();
            }
            let mut turns = 0;
            for item in self.items.by_ref().take(self.left) {
                turns += 1;
                value = f(value, item);
            }
            if turns < self.left {
                return value;
            }
            self.left = 0;
        }
    }
}

impl<I> Strip<I> {
    #[cold]
    fn turn(&mut self) {
        self.tuner.end();
        self.asked |= checkpoint_sync();
        self.left = self.tuner.begin();
    }
}

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
            tuner: Tuner::new(),
            left: 0,
            asked: false,
        }
    }
}

impl<I: Iterator> StripMine for I {}

/// One strip of an iterator: at most so many items, and afterwards it is known whether there may be more.
#[doc(hidden)]
#[derive(Debug)]
pub struct OneStrip<'a, I> {
    items: &'a mut I,
    left: usize,
    ended_by_length: &'a mut bool,
}

impl<'a, I> OneStrip<'a, I> {
    #[doc(hidden)]
    pub fn new(items: &'a mut I, turns: usize, ended_by_length: &'a mut bool) -> Self {
        OneStrip {
            items,
            left: turns,
            ended_by_length,
        }
    }
}

impl<I: Iterator> Iterator for OneStrip<'_, I> {
    type Item = I::Item;

    #[inline]
    fn next(&mut self) -> Option<I::Item> {
        if self.left == 0 {
            // Asked for one more than the strip has: the loop neither broke nor ran dry.
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
/// # #[morpheus_runtime::main(workers = 1, max_spares = 1)]
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
            let turns = tuner.begin();
            for $item in $crate::strip::OneStrip::new(&mut items, turns, &mut more) $body
            if !more {
                break;
            }
            tuner.end();
            $crate::checkpoint().await;
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
        assert_eq!(next_length(16, 1), 16 * STEP);
        assert_eq!(next_length(16, 25_000), 32);
        assert_eq!(next_length(16, u128::MAX / 2), 2);
        assert_eq!(next_length(1, 1_000_000), 1);
        assert_eq!(next_length(LONGEST, 1), LONGEST);
    }

    #[test]
    fn every_item_comes_once_whichever_way_it_is_taken() {
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
        }
    }
}
