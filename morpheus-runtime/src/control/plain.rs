//! The domain of threads that belong to no runtime of Morpheus's, on which something is watched.
//!
//! It has no spares and no canary, but a controller that asks, judges and reports all the same.

use std::sync::{Arc, OnceLock};

use crate::control::life;
use crate::domain::Domain;
use crate::settings::Settings;
use morpheus_system::sleeper;

/// Slots of the domain that serves threads of other runtimes.
const PLAIN_SLOTS: usize = 1024;
/// Handoff polls that run at once on the blocking pool of another runtime are bounded by the permits; this
/// bounds those asleep too.
const PLAIN_HANDOFFS: usize = 64;

/// The domain of threads that belong to no Morpheus runtime; its controller starts on first use.
pub(crate) fn domain() -> Arc<Domain> {
    static PLAIN: OnceLock<Arc<Domain>> = OnceLock::new();
    PLAIN
        .get_or_init(|| {
            sleeper::register_barrier();
            let settings = Settings {
                workers: 0,
                max_handoffs: PLAIN_HANDOFFS,
                slots: PLAIN_SLOTS,
                ..Settings::default()
            };
            let domain = Arc::new(Domain::without_workers(settings));
            // It is never joined: the domain lives as long as the process.
            drop(life::start(&domain));
            domain
        })
        .clone()
}
