//! Statistics over time: what the daemon did, in a file of fixed size, for an hour by the second and for a day by the minute.
//!
//! - [`record`]: the figures of one interval.
//! - [`mod@file`]: the rings on the disk, for one writer and any number of readers.
//! - [`recorder`]: makes records of readings, and writes them on a thread of its own.
//! - [`mod@print`]: a table, and JSON.

pub mod file;
pub mod print;
pub mod record;
pub mod recorder;

pub use file::{Error, History, read};
pub use record::{Figure, Record};
pub use recorder::Recorder;

/// How far apart the records of a ring are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resolution {
    /// One for each second of the last hour.
    Seconds,
    /// One for each minute of the last day.
    Minutes,
}

impl Resolution {
    /// Both, in the order of the file.
    pub const ALL: [Resolution; 2] = [Resolution::Seconds, Resolution::Minutes];

    /// How many records are kept.
    #[must_use]
    pub const fn slots(self) -> u32 {
        match self {
            Resolution::Seconds => 3600,
            Resolution::Minutes => 24 * 60,
        }
    }
}
