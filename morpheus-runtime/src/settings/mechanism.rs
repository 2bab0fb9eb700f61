//! Every mechanism has a switch, so that what it buys can be measured.

use std::fmt;
use std::str::FromStr;

/// One mechanism of the runtime; see [`Builder::without`](crate::Builder::without).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Mechanism {
    /// No spare is ever released, the reserve included.
    Takeover,
    /// No no-op task is injected to see whether workers still serve.
    Canary,
    /// Watched polls are not looked at: no requests, no verdicts.
    Watch,
    /// No spare is active before one is needed, and none more in pressure.
    Reserve,
    /// Threads keep the slice that the kernel gives them.
    Slice,
    /// Slow tasks are not remembered: every poll runs inline.
    Handoffs,
    /// Any number of slow tasks is handed off at once.
    Permits,
    /// A worker that has not parked for a whole sample is not followed by a no-op.
    Poke,
    /// Stalled polls are reported without their stacks: nothing is copied, no signal handler is installed.
    Stacks,
}

impl Mechanism {
    /// All of them.
    pub const ALL: [Mechanism; 9] = [
        Mechanism::Takeover,
        Mechanism::Canary,
        Mechanism::Watch,
        Mechanism::Reserve,
        Mechanism::Slice,
        Mechanism::Handoffs,
        Mechanism::Permits,
        Mechanism::Poke,
        Mechanism::Stacks,
    ];

    /// Its name on a command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Mechanism::Takeover => "takeover",
            Mechanism::Canary => "canary",
            Mechanism::Watch => "watch",
            Mechanism::Reserve => "reserve",
            Mechanism::Slice => "slice",
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

/// A name that no mechanism has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "no mechanism is called `{0}`: takeover, canary, watch, reserve, slice, handoffs, permits, poke, stacks"
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

/// Which mechanisms are on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mechanisms {
    pub(crate) takeover: bool,
    pub(crate) canary: bool,
    pub(crate) watch: bool,
    pub(crate) reserve: bool,
    pub(crate) slice: bool,
    pub(crate) handoffs: bool,
    pub(crate) permits: bool,
    pub(crate) poke: bool,
    pub(crate) stacks: bool,
}

impl Default for Mechanisms {
    fn default() -> Self {
        Mechanisms {
            takeover: true,
            canary: true,
            watch: true,
            reserve: true,
            slice: true,
            handoffs: true,
            permits: true,
            poke: true,
            stacks: true,
        }
    }
}

impl Mechanisms {
    /// Those of them that look, and change nothing.
    pub(crate) fn that_observe(self) -> Mechanisms {
        Mechanisms {
            takeover: false,
            canary: self.canary,
            watch: self.watch,
            reserve: false,
            slice: false,
            handoffs: false,
            permits: false,
            poke: false,
            stacks: self.stacks,
        }
    }

    pub(crate) fn switch_off(&mut self, mechanism: Mechanism) {
        let switch = match mechanism {
            Mechanism::Takeover => &mut self.takeover,
            Mechanism::Canary => &mut self.canary,
            Mechanism::Watch => &mut self.watch,
            Mechanism::Reserve => &mut self.reserve,
            Mechanism::Slice => &mut self.slice,
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
