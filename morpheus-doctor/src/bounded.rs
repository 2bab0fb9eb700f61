//! A cache in bounded memory. The process chooses how many things there are to know of it, and how long their names are.

use std::collections::HashMap;
use std::hash::Hash;

/// Values by their keys, which take `MOST_BYTES` at most: when one more does not fit, all others are forgotten.
pub(crate) struct Bounded<K, V, const MOST_BYTES: usize> {
    known: HashMap<K, V>,
    bytes: usize,
}

impl<K, V, const MOST_BYTES: usize> Default for Bounded<K, V, MOST_BYTES> {
    fn default() -> Self {
        Bounded {
            known: HashMap::new(),
            bytes: 0,
        }
    }
}

impl<K: Eq + Hash, V, const MOST_BYTES: usize> Bounded<K, V, MOST_BYTES> {
    /// The value of a key.
    pub(crate) fn get(&self, key: &K) -> Option<&V> {
        self.known.get(key)
    }

    /// Keeps a value of a key that has none. Both take `bytes`; where that is too much by itself, nothing is kept.
    pub(crate) fn insert(&mut self, key: K, value: V, bytes: usize) {
        if bytes > MOST_BYTES {
            return;
        }
        if self.bytes > MOST_BYTES - bytes {
            self.clear();
        }
        self.bytes += bytes;
        self.known.insert(key, value);
    }

    /// Forgets all.
    pub(crate) fn clear(&mut self) {
        self.known.clear();
        self.bytes = 0;
    }

    /// How many values there are.
    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_too_much_is_forgotten() {
        let mut known = Bounded::<u64, &str, 100>::default();
        known.insert(1, "one", 60);
        known.insert(2, "two", 40);
        assert_eq!(known.get(&1), Some(&"one"));
        assert_eq!(known.get(&2), Some(&"two"));
        known.insert(3, "three", 1);
        assert_eq!((known.get(&3), known.len()), (Some(&"three"), 1));
        known.insert(4, "four", 101);
        assert_eq!((known.get(&4), known.len()), (None, 1));
        known.clear();
        known.insert(5, "five", 100);
        assert_eq!(known.get(&5), Some(&"five"));
    }
}
