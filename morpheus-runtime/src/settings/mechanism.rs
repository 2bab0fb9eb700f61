//! The mechanisms that are on: all of them, or those that [`Policy::Observe`](morpheus_common::ladder::Policy::Observe) leaves.

/// The mechanisms that are on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mechanisms {
    pub(crate) takeover: bool,
    pub(crate) canary: bool,
    pub(crate) watch: bool,
    pub(crate) reserve: bool,
    pub(crate) slice: bool,
    pub(crate) confine: bool,
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
            confine: true,
            handoffs: true,
            permits: true,
            poke: true,
            stacks: true,
        }
    }
}

impl Mechanisms {
    /// Keeps the mechanisms that only observe, and switches the others off.
    pub(crate) fn that_observe(self) -> Mechanisms {
        Mechanisms {
            takeover: false,
            reserve: false,
            slice: false,
            confine: false,
            handoffs: false,
            permits: false,
            poke: false,
            ..self
        }
    }
}
