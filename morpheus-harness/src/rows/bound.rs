//! How well a figure is known: what had not ended by the end of a measurement makes a bound of it.

use serde::{Deserialize, Serialize};

/// Whether a figure is a bound, and from which side. Both: it may be anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound {
    /// It is at least this.
    pub at_least: bool,
    /// It is at most this.
    pub at_most: bool,
}

impl Bound {
    /// It is this.
    pub const EXACT: Self = Self::of(false, false);
    /// It is at least this.
    pub const AT_LEAST: Self = Self::of(true, false);

    /// From one side, from the other, from both, or from none.
    pub const fn of(at_least: bool, at_most: bool) -> Self {
        Self { at_least, at_most }
    }

    /// Of a figure over another.
    #[must_use]
    pub fn over(self, other: Self) -> Self {
        Self::of(
            self.at_least || other.at_most,
            self.at_most || other.at_least,
        )
    }

    pub(super) fn is_exact(&self) -> bool {
        *self == Self::EXACT
    }

    /// Before the figure.
    pub fn sign(self) -> &'static str {
        match (self.at_least, self.at_most) {
            (false, false) => "",
            (true, false) => "≥ ",
            (false, true) => "≤ ",
            (true, true) => "? ",
        }
    }
}
