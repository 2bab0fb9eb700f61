//! When counting begins: known from the start, or decided while everything runs already.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Between the decision and the beginning. Every thread knows the beginning before the first event that counts, unless
/// the deciding thread is preempted for this long in between.
const LEAD: Duration = Duration::from_millis(20);

/// The beginning of what counts, for all who count.
#[derive(Clone, Debug)]
pub struct Begin(Arc<OnceLock<Instant>>);

impl Begin {
    /// At a known time.
    pub fn at(from: Instant) -> Self {
        Self(Arc::new(OnceLock::from(from)))
    }

    /// At a time that [`soon`](Self::soon) decides; until then nothing counts.
    pub fn undecided() -> Self {
        Self(Arc::default())
    }

    /// Decides that it is in a moment, unless that is decided already; says when.
    pub fn soon(&self) -> Instant {
        *self.0.get_or_init(|| Instant::now() + LEAD)
    }

    /// The beginning, where it is decided.
    pub fn from(&self) -> Option<Instant> {
        self.0.get().copied()
    }

    /// Whether what is meant to happen at `due` counts.
    pub fn counts(&self, due: Instant) -> bool {
        self.from().is_some_and(|from| due >= from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_counts_before_it_is_decided_and_then_from_there_on() {
        let begin = Begin::undecided();
        let seen = begin.clone();
        assert!(!seen.counts(Instant::now() + Duration::from_secs(3_600)));
        let from = begin.soon();
        assert!(from > Instant::now() - LEAD);
        assert_eq!((begin.soon(), seen.from()), (from, Some(from)));
        assert!(seen.counts(from) && !seen.counts(from - Duration::from_nanos(1)));
    }
}
