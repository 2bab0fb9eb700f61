//! The switches of the mechanisms by name, so that a benchmark measures what each one gains. (Feature
//! `unstable-ablation`.)

use std::fmt;
use std::str::FromStr;

use crate::settings::mechanism::Mechanisms;

/// One mechanism of the runtime, to be switched off by [`Builder::without`](crate::Builder::without). Each
/// variant says what happens without it. (Feature `unstable-ablation`: for benchmarks; no stability promise.)
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Mechanism {
    /// The controller releases no spare, the reserve included.
    Takeover,
    /// The controller injects no canary task to see whether workers still serve.
    Canary,
    /// The controller does not sample watched polls: it makes no requests and no verdicts.
    Watch,
    /// No spare is active before one is needed, and none in advance under pressure.
    Reserve,
    /// Threads keep the slice that the kernel gives them.
    Slice,
    /// CPU hogs may run on all CPUs, however many they are.
    Confine,
    /// Slow tasks are not remembered: every poll runs inline.
    Handoffs,
    /// Handoff polls have no concurrency limit.
    Permits,
    /// No no-op task wakes another worker for the I/O driver: neither the controller sends one where a worker has not parked
    /// between two samples, nor a worker that leaves the driver while workers stall.
    Poke,
    /// Stalled polls are reported without their stacks: nothing is copied, and no signal handler is
    /// installed.
    Stacks,
}

impl Mechanism {
    /// All mechanisms.
    pub const ALL: [Mechanism; 10] = [
        Mechanism::Takeover,
        Mechanism::Canary,
        Mechanism::Watch,
        Mechanism::Reserve,
        Mechanism::Slice,
        Mechanism::Confine,
        Mechanism::Handoffs,
        Mechanism::Permits,
        Mechanism::Poke,
        Mechanism::Stacks,
    ];

    /// The mechanism's name on a command line, which [`FromStr`] reads.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Mechanism::Takeover => "takeover",
            Mechanism::Canary => "canary",
            Mechanism::Watch => "watch",
            Mechanism::Reserve => "reserve",
            Mechanism::Slice => "slice",
            Mechanism::Confine => "confine",
            Mechanism::Handoffs => "handoffs",
            Mechanism::Permits => "permits",
            Mechanism::Poke => "poke",
            Mechanism::Stacks => "stacks",
        }
    }
}

impl fmt::Display for Mechanism {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The error for a name that no mechanism has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no mechanism is called `{0}`: takeover, canary, watch, reserve, slice, confine, handoffs, permits, poke, stacks"
)]
pub struct UnknownMechanism(String);

impl FromStr for Mechanism {
    type Err = UnknownMechanism;

    fn from_str(name: &str) -> Result<Mechanism, UnknownMechanism> {
        Mechanism::ALL
            .into_iter()
            .find(|mechanism| mechanism.name() == name)
            .ok_or_else(|| UnknownMechanism(name.to_owned()))
    }
}

impl Mechanisms {
    pub(crate) fn switch_off(&mut self, mechanism: Mechanism) {
        let switch = match mechanism {
            Mechanism::Takeover => &mut self.takeover,
            Mechanism::Canary => &mut self.canary,
            Mechanism::Watch => &mut self.watch,
            Mechanism::Reserve => &mut self.reserve,
            Mechanism::Slice => &mut self.slice,
            Mechanism::Confine => &mut self.confine,
            Mechanism::Handoffs => &mut self.handoffs,
            Mechanism::Permits => &mut self.permits,
            Mechanism::Poke => &mut self.poke,
            Mechanism::Stacks => &mut self.stacks,
        };
        *switch = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_parse_back() {
        for mechanism in Mechanism::ALL {
            assert_eq!(mechanism.name().parse(), Ok(mechanism));
        }
        assert!("".parse::<Mechanism>().is_err());
    }
}
