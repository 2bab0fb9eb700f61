//! Handing a buffer to a signal handler, and getting it back, or giving it up.
//!
//! One who asks and one who writes share a word and a buffer. The writer runs in a signal handler: it
//! cannot wait, it may come late, or never. So:
//!
//! ```text
//!            claim           publish           begin_write           end_write
//!  free(n) ─────────► claimed ───────► asked(n) ─────────► writing(n) ─────────► written(n)
//!     ▲                                   │ give_up                                  │ free
//!     └──────────── free(n + 1) ◄─────────┴──────────────────────────────────────────┘
//! ```
//!
//! - Whoever takes the step into a state has the buffer there: the asker while it is *claimed* and
//!   *written*, the writer while it is *writing*. Every step that two could take is a compare-exchange, so
//!   that one of them takes it.
//! - Each request has its number *n*, which comes back to the writer with the signal. A writer that comes
//!   late finds another number, or another state, and writes nowhere.
//! - A buffer that is being written cannot be given up; the asker comes back a moment later. The handler
//!   does not wait for anything, so that it is a moment.
//!
//! `tests/loom.rs`, `a_late_handler_writes_nowhere`, checks it in every interleaving.

use crate::sync::{AtomicU64, Ordering};

const FREE: u64 = 0;
const CLAIMED: u64 = 1;
const ASKED: u64 = 2;
const WRITING: u64 = 3;
const WRITTEN: u64 = 4;
/// Bits of the state; the others have the number.
const STATE_BITS: u32 = 3;
/// The number that comes after the last one is 0 again.
const NUMBERS: u64 = 1 << (64 - STATE_BITS);

const fn word(number: u64, state: u64) -> u64 {
    (number % NUMBERS) << STATE_BITS | state
}

/// The word that says who has the buffer.
#[derive(Debug)]
pub struct HandOver {
    word: AtomicU64,
}

/// One request: its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request(u64);

impl Request {
    /// What goes with the signal.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// What came with a signal; may be any number.
    #[must_use]
    pub const fn from_number(number: u64) -> Request {
        Request(number)
    }
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The handler has not come yet.
    Asked,
    /// It is writing at this moment.
    Writing,
    /// It has written: the asker has the buffer.
    Written,
    /// The request is over.
    Over,
}

impl Default for HandOver {
    fn default() -> HandOver {
        HandOver::new()
    }
}

impl HandOver {
    /// A free buffer.
    #[cfg(not(loom))]
    #[must_use]
    pub const fn new() -> HandOver {
        HandOver {
            word: AtomicU64::new(word(0, FREE)),
        }
    }

    /// A free buffer.
    #[cfg(loom)]
    #[must_use]
    pub fn new() -> HandOver {
        HandOver {
            word: AtomicU64::new(word(0, FREE)),
        }
    }

    /// Takes the buffer, if it is free: the caller has it until [`publish`](Self::publish).
    pub fn claim(&self) -> Option<Request> {
        // Relaxed: only a guess for the exchange.
        let seen = self.word.load(Ordering::Relaxed);
        let number = seen >> STATE_BITS;
        if seen != word(number, FREE) {
            return None;
        }
        // Acquire: pairs with the Release in `free` and `give_up`; who had it before is done with it.
        self.word
            .compare_exchange(
                seen,
                word(number, CLAIMED),
                Ordering::Acquire,
                Ordering::Relaxed,
            )
            .ok()
            .map(|_| Request(number))
    }

    /// Lets the handler write. What the asker wrote beside the buffer is there for it.
    pub fn publish(&self, request: Request) {
        // Release: pairs with the Acquire in `begin_write`. A store will do: claimed, it is the asker's.
        self.word.store(word(request.0, ASKED), Ordering::Release);
    }

    /// For the handler: whether the buffer is its own until [`end_write`](Self::end_write). Not if the
    /// request is over, or was never made.
    pub fn begin_write(&self, request: Request) -> bool {
        // Acquire: pairs with the Release in `publish`.
        self.word
            .compare_exchange(
                word(request.0, ASKED),
                word(request.0, WRITING),
                Ordering::Acquire,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    /// For the handler: it has written.
    pub fn end_write(&self, request: Request) {
        // Release: pairs with the Acquire in `progress`. A store will do: only the handler takes this step.
        self.word.store(word(request.0, WRITTEN), Ordering::Release);
    }

    /// For the asker. From `Written` on it has the buffer.
    pub fn progress(&self, request: Request) -> Progress {
        // Acquire: pairs with the Release in `end_write`.
        let seen = self.word.load(Ordering::Acquire);
        if seen >> STATE_BITS != request.0 % NUMBERS {
            return Progress::Over;
        }
        match seen & ((1 << STATE_BITS) - 1) {
            CLAIMED | ASKED => Progress::Asked,
            WRITING => Progress::Writing,
            WRITTEN => Progress::Written,
            _ => Progress::Over,
        }
    }

    /// For the asker that has read what was written: the buffer is free.
    pub fn free(&self, request: Request) {
        // Release: pairs with the Acquire in `claim`; a store will do, written, it is the asker's.
        self.word
            .store(word(request.0 + 1, FREE), Ordering::Release);
    }

    /// Gives a request up that has not been answered. Whether it could be: not while the handler writes,
    /// or has written.
    pub fn give_up(&self, request: Request) -> bool {
        // Release: pairs with the Acquire in `claim`.
        self.word
            .compare_exchange(
                word(request.0, ASKED),
                word(request.0 + 1, FREE),
                Ordering::Release,
                Ordering::Relaxed,
            )
            .is_ok()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let hand_over = HandOver::new();
        let request = hand_over.claim().unwrap();
        assert!(hand_over.claim().is_none());
        assert!(!hand_over.begin_write(request), "not asked yet");
        hand_over.publish(request);
        assert_eq!(hand_over.progress(request), Progress::Asked);
        assert!(hand_over.begin_write(request));
        assert!(!hand_over.begin_write(request), "one writes");
        assert!(!hand_over.give_up(request));
        assert_eq!(hand_over.progress(request), Progress::Writing);
        hand_over.end_write(request);
        assert!(!hand_over.give_up(request));
        assert_eq!(hand_over.progress(request), Progress::Written);
        hand_over.free(request);
        assert_eq!(hand_over.progress(request), Progress::Over);
        assert_ne!(hand_over.claim(), Some(request));
    }

    #[test]
    fn who_comes_late_writes_nowhere() {
        let hand_over = HandOver::new();
        let first = hand_over.claim().unwrap();
        hand_over.publish(first);
        assert!(hand_over.give_up(first));
        assert!(!hand_over.begin_write(first));
        let second = hand_over.claim().unwrap();
        hand_over.publish(second);
        assert!(!hand_over.begin_write(first));
        assert!(!hand_over.begin_write(Request::from_number(u64::MAX)));
        assert!(hand_over.begin_write(second));
    }
}
