//! The tiers that tasks are sorted into by how they behave.

/// How many tiers there are.
pub const TIERS: usize = 3;

/// The class of a task by its behaviour. The numbers are those of the BPF programs and of the process database's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Tier {
    /// Sleeps and wakes often and runs for a moment: a user or another task waits for each of its wakes.
    LatCritical = 0,
    /// Sleeps often enough that it is mostly asked for something.
    Interactive = 1,
    /// Computes.
    Batch = 2,
}

impl Tier {
    /// All of them, in the order of their numbers.
    pub const ALL: [Tier; TIERS] = [Tier::LatCritical, Tier::Interactive, Tier::Batch];

    /// The tier of a number, if it is one.
    #[must_use]
    pub fn from_number(number: u32) -> Option<Tier> {
        Tier::ALL.get(usize::try_from(number).ok()?).copied()
    }

    /// Its place in an array with one element for each tier.
    #[must_use]
    pub fn index(self) -> usize {
        self as usize
    }

    /// Its name in what is handed out to people and programs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Tier::LatCritical => "lat_critical",
            Tier::Interactive => "interactive",
            Tier::Batch => "batch",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_back() {
        for (index, tier) in Tier::ALL.into_iter().enumerate() {
            assert_eq!(tier.index(), index);
            assert_eq!(Tier::from_number(index as u32), Some(tier));
        }
        assert_eq!(Tier::from_number(3), None);
        assert_eq!(Tier::from_number(u32::MAX), None);
    }
}
