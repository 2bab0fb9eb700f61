//! Links: where the controller learns which workers are stuck.
//!
//! The [`watchdog`] needs nothing but Linux. Whatever a link finds, the ladder in
//! [`morpheus_common::ladder`] decides what is done about it.

pub(crate) mod watchdog;

/// Where the controller learns of stuck workers; see [`Builder::link`](crate::Builder::link).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Link {
    /// The controller looks by itself, every millisecond while anything is busy. Needs no rights.
    #[default]
    Watchdog,
}

impl std::fmt::Display for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Link::Watchdog => f.write_str("watchdog"),
        }
    }
}
