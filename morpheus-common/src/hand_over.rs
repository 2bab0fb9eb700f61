//! Hand-over: gives a buffer to a signal handler, and gets it back or gives the request up.
//!
//! An asker and a writer share a word and a buffer. The writer runs in a signal handler: it cannot wait, and
//! it may come late or never. The word has these states:
//!
//! ```text
//!            claim           publish           begin_write           end_write
//!  free(n) ─────────► claimed ───────► asked(n) ─────────► writing(n) ─────────► written(n)
//!     ▲                                   │ give_up                                  │ free
//!     └──────────── free(n + 1) ◄─────────┴──────────────────────────────────────────┘
//! ```
//!
//! - The thread that takes the step into a state owns the buffer in that state: the asker in *claimed* and
//!   *written*, the writer in *writing*. Every step that two threads could take is a compare-exchange, so
//!   only one of them takes it.
//! - Each request has a number *n*, which reaches the writer with the signal. A late writer finds another
//!   number or another state, and does not write.
//! - A request cannot be given up while its buffer is being written; the asker tries again a moment later.
//!   That moment is short, because the handler waits for nothing.
//!
//! `a_late_handler_writes_nowhere` in `tests/loom.rs` checks it in every interleaving.

use crate::sync::{AtomicU64, Ordering};

const FREE: u64 = 0;
const CLAIMED: u64 = 1;
const ASKED: u64 = 2;
const WRITING: u64 = 3;
const WRITTEN: u64 = 4;
/// Number of bits of the state; the other bits hold the number.
const STATE_BITS: u32 = 3;
/// Number of request numbers; the number after the last one is 0.
const NUMBERS: u64 = 1 << (64 - STATE_BITS);

const fn word(number: u64, state: u64) -> u64 {
    (number % NUMBERS) << STATE_BITS | state
}

/// The word that says which side owns the buffer.
#[derive(Debug)]
pub struct HandOver {
    word: AtomicU64,
}

/// One request, identified by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request(u64);

impl Request {
    /// Returns the number to send with the signal.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.0
    }

    /// Makes the request of a number that came with a signal. Any number is allowed.
    #[must_use]
    pub const fn from_number(number: u64) -> Request {
        Request(number)
    }
}

/// The progress of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The handler has not begun.
    Asked,
    /// The handler is writing.
    Writing,
    /// The handler has written, and the asker owns the buffer.
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
    /// Makes a free buffer's word.
    #[cfg(not(loom))]
    #[must_use]
    pub const fn new() -> HandOver {
        HandOver {
            word: AtomicU64::new(word(0, FREE)),
        }
    }

    /// Makes a free buffer's word.
    #[cfg(loom)]
    #[must_use]
    pub fn new() -> HandOver {
        HandOver {
            word: AtomicU64::new(word(0, FREE)),
        }
    }

    /// Claims the buffer if it is free. The caller then owns it until [`publish`](Self::publish).
    pub fn claim(&self) -> Option<Request> {
        // Relaxed, pairs with nothing: only a guess for the exchange.
        let seen = self.word.load(Ordering::Relaxed);
        let number = seen >> STATE_BITS;
        if seen != word(number, FREE) {
            return None;
        }
        // Acquire, pairs with the Release in `free` and `give_up`: the last owner has finished with the
        // buffer.
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

    /// Lets the handler write. The handler sees what the asker wrote before.
    pub fn publish(&self, request: Request) {
        // Release, pairs with the Acquire in `begin_write`. A store suffices: a claimed word is the asker's.
        self.word.store(word(request.0, ASKED), Ordering::Release);
    }

    /// Begins to write, in the handler. Returns whether the handler owns the buffer until
    /// [`end_write`](Self::end_write). False if the request is over or was never made.
    pub fn begin_write(&self, request: Request) -> bool {
        // Acquire, pairs with the Release in `publish`.
        self.word
            .compare_exchange(
                word(request.0, ASKED),
                word(request.0, WRITING),
                Ordering::Acquire,
                Ordering::Relaxed,
            )
            .is_ok()
    }

    /// Ends the write, in the handler.
    pub fn end_write(&self, request: Request) {
        // Release, pairs with the Acquire in `progress`. A store suffices: only the handler takes this step.
        self.word.store(word(request.0, WRITTEN), Ordering::Release);
    }

    /// Returns the progress, to the asker. In `Written` the asker owns the buffer.
    pub fn progress(&self, request: Request) -> Progress {
        // Acquire, pairs with the Release in `end_write`.
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

    /// Frees the buffer, after the asker has read it.
    pub fn free(&self, request: Request) {
        // Release, pairs with the Acquire in `claim`. A store suffices: a written word is the asker's.
        self.word
            .store(word(request.0 + 1, FREE), Ordering::Release);
    }

    /// Gives up a request, for the asker. Returns whether that succeeded: not while the handler writes, or
    /// after it has written.
    pub fn give_up(&self, request: Request) -> bool {
        // Release, pairs with the Acquire in `claim`.
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
    fn the_buffer_goes_to_the_handler_and_back() {
        let hand_over = HandOver::new();
        let request = hand_over.claim().unwrap();
        assert!(hand_over.claim().is_none());
        assert!(!hand_over.begin_write(request), "not asked yet");
        hand_over.publish(request);
        assert_eq!(hand_over.progress(request), Progress::Asked);
        assert!(hand_over.begin_write(request));
        assert!(!hand_over.begin_write(request), "one handler writes");
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
    fn a_late_handler_writes_nowhere() {
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
