//! Tokio without protection: stands in for the layers that need Linux, where there is no Linux.
//!
//! The seam lies below `api/`. The public API is one: its types, documentation and checks of arguments are the same on every
//! system. It needs Linux for three things, which are here a second time, under the same names:
//!
//! - `Builder::start` (`api/builder/start_alone.rs`) builds tokio's runtime with as many workers as were asked for;
//! - [`domain`] answers for a runtime that has nothing beside tokio: no spares, permits, reports, stacks or link;
//! - [`control::here`](here) polls a watched future, and nothing else; checkpoints are never asked, and critical sections have
//!   nothing to be kept from.
//!
//! As they are on every system: `settings`, `decide`, and of `report` the labels, counters and events. On Linux alone: `act`,
//! `poll`, `observe`, `control`, `domain.rs`, and the rest of `report`. `morpheus-system`, `morpheus-link` and
//! `morpheus-stacks` answer for themselves.
//!
//! On Linux `--cfg morpheus_passthrough` builds this instead, so that it can be run and tested (`tests/passthrough.rs`,
//! `examples/whole_api.rs`).

pub(crate) mod domain;
pub(crate) mod here;

pub(crate) mod act {
    pub(crate) mod wake {
        /// A wake to make. There is none, because no poll waits for a permit.
        pub(crate) enum Wake {}

        impl Wake {
            pub(crate) fn here(self) {
                match self {}
            }
        }
    }
}

pub(crate) mod control {
    pub(crate) use super::here;
}

pub(crate) mod poll {
    pub(crate) mod state {
        use crate::decide::rating::Options;

        /// A watched future carries nothing from poll to poll.
        #[derive(Debug)]
        pub(crate) struct WatchState;

        impl WatchState {
            pub(crate) fn new(_options: Options) -> WatchState {
                WatchState
            }
        }
    }
}
