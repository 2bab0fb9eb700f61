//! Names that are made while the program runs, some of them by whoever sends requests: bounded, so that
//! nobody fills the table of labels, or the memory, with them.

use std::collections::HashMap;
use std::fmt::{self, Write as _};
use std::sync::{LazyLock, OnceLock, PoisonError, RwLock};

use crate::report::label::{self, Label, Origin};

/// A longer name is cut off here.
const LONGEST_NAME: usize = 96;

/// What was given by the program itself, as a route or by [`watched_as`](crate::Watch::watched_as).
pub(crate) static GIVEN: Names = Names::new(1024, "(more names than are kept)");
/// What was read from the paths of requests: others choose them.
#[cfg(feature = "tower")]
pub(crate) static PATHS: Names = Names::new(256, "(more paths than are kept)");

/// Names and their labels: the first so many each have one, and all others share one.
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

    /// The label of what is formatted. Takes no memory once the name is known.
    pub(crate) fn label(&self, name: fmt::Arguments<'_>) -> &'static Label {
        let mut short = ShortName::default();
        // A name that is too long is cut off, and that is no error.
        let _ = short.write_fmt(name);
        let name = short.as_str();
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        match known.get(name) {
            Some(label) => label,
            // Full: nothing is locked for writing, however many unknown names come.
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

impl Default for ShortName {
    fn default() -> Self {
        ShortName {
            bytes: [0; LONGEST_NAME],
            used: 0,
        }
    }
}

impl ShortName {
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
        // What comes after a part that was cut off belongs to nothing.
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
    fn whatever_comes_too_late_shares_one_label() {
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
        let mut short = ShortName::default();
        assert!(write!(short, "{}€ and more", "x".repeat(LONGEST_NAME - 1)).is_err());
        assert_eq!(short.as_str(), "x".repeat(LONGEST_NAME - 1));
        let mut exact = ShortName::default();
        assert!(write!(exact, "{}", "x".repeat(LONGEST_NAME)).is_ok());
        assert_eq!(exact.as_str().len(), LONGEST_NAME);
    }
}
