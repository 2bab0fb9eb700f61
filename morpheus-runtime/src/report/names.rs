//! Names that are made while the program runs. Senders of requests choose some of them, so their number is bounded:
//! requests must not fill the table of labels or the memory.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::sync::{LazyLock, OnceLock, PoisonError, RwLock};

use crate::report::label::{self, Label, Origin};

/// Longest name in bytes; a longer one is cut off.
const LONGEST_NAME: usize = 96;

/// Names from the program itself: routes, and those given to [`watched_as`](crate::Watch::watched_as).
pub(crate) static GIVEN: Names = Names::new(1024, "(more names than are kept)");
/// Names from the paths of requests, which senders choose.
#[cfg(feature = "tower")]
pub(crate) static PATHS: Names = Names::new(256, "(more paths than are kept)");

/// Names and their labels: the first `most` names have a label each, and all others share one.
pub(crate) struct Names {
    most: usize,
    rest: &'static str,
    rest_label: OnceLock<&'static Label>,
    known: LazyLock<RwLock<HashMap<&'static str, &'static Label>>>,
}

impl Names {
    pub(crate) const fn new(most: usize, rest: &'static str) -> Names {
        Names {
            most,
            rest,
            rest_label: OnceLock::new(),
            known: LazyLock::new(RwLock::default),
        }
    }

    /// Returns the label of a formatted name. Allocates nothing for a known name.
    pub(crate) fn label(&self, name: fmt::Arguments<'_>) -> &'static Label {
        let mut short = ShortName::EMPTY;
        // Formatting fails if the name is too long. The name is then cut off, which is no error.
        let _ = short.write_fmt(name);
        let name = short.as_str();
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        match known.get(name) {
            Some(label) => label,
            // Full: unknown names never lock for writing.
            None if known.len() >= self.most => self.rest(),
            None => {
                drop(known);
                self.learn(name)
            }
        }
    }

    fn rest(&self) -> &'static Label {
        self.rest_label
            .get_or_init(|| label::of(Origin::Named(self.rest)))
    }

    fn learn(&self, name: &str) -> &'static Label {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(label) = known.get(name) {
            return label;
        }
        if known.len() >= self.most {
            return self.rest();
        }
        let name: &'static str = Box::leak(name.into());
        let label = label::of(Origin::Named(name));
        known.insert(name, label);
        label
    }
}

/// The beginning of a text, on the stack.
struct ShortName {
    bytes: [u8; LONGEST_NAME],
    used: usize,
}

impl ShortName {
    const EMPTY: ShortName = ShortName {
        bytes: [0; LONGEST_NAME],
        used: 0,
    };

    fn as_str(&self) -> &str {
        // Only whole characters are ever written.
        std::str::from_utf8(&self.bytes[..self.used]).unwrap_or_default()
    }
}

impl fmt::Write for ShortName {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = LONGEST_NAME - self.used;
        let fits = text.floor_char_boundary(room);
        self.bytes[self.used..self.used + fits].copy_from_slice(&text.as_bytes()[..fits]);
        self.used += fits;
        // After a part that was cut off, the rest is refused.
        if fits < text.len() {
            return Err(fmt::Error);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_name_has_one_label_and_two_have_two() {
        let names = Names::new(4, "(rest of the first test)");
        let a = names.label(format_args!("{} {}", "names", "a"));
        assert!(std::ptr::eq(a, names.label(format_args!("names a"))));
        assert!(std::ptr::eq(a, label::of(Origin::Named("names a"))));
        assert!(!std::ptr::eq(a, names.label(format_args!("names b"))));
    }

    #[test]
    fn names_beyond_the_limit_share_one_label() {
        let names = Names::new(2, "(rest of the second test)");
        let first = names.label(format_args!("early 1"));
        names.label(format_args!("early 2"));
        let rest = label::of(Origin::Named("(rest of the second test)"));
        for number in 0..1000 {
            assert!(std::ptr::eq(
                rest,
                names.label(format_args!("late {number}"))
            ));
        }
        assert!(std::ptr::eq(first, names.label(format_args!("early 1"))));
    }

    #[test]
    fn long_names_are_cut_off_between_characters() {
        let mut short = ShortName::EMPTY;
        assert!(write!(short, "{}€ and more", "x".repeat(LONGEST_NAME - 1)).is_err());
        assert_eq!(short.as_str(), "x".repeat(LONGEST_NAME - 1));
        let mut exact = ShortName::EMPTY;
        assert!(write!(exact, "{}", "x".repeat(LONGEST_NAME)).is_ok());
        assert_eq!(exact.as_str().len(), LONGEST_NAME);
    }
}
