//! The domain of threads that belong to no runtime of Morpheus's, on which something is watched.
//!
//! It has no spares and no canary, but a controller that asks, judges and reports all the same.

use std::sync::{Arc, OnceLock};

use morpheus_common::ladder::Policy;

use crate::control::life;
use crate::domain::Domain;
use crate::settings::mechanism::Mechanisms;
use crate::settings::{self, Settings};
use morpheus_system::sleeper;

/// Slots of the domain that serves threads of other runtimes.
const PLAIN_SEATS: usize = 1024;
/// Handoff polls that run at once on the blocking pool of another runtime are bounded by the permits; this
/// bounds those asleep too.
const PLAIN_IN_PLACE: usize = 64;

/// The domain of threads that belong to no Morpheus runtime; its controller starts on first use.
pub(crate) fn domain() -> Arc<Domain> {
    static PLAIN: OnceLock<Arc<Domain>> = OnceLock::new();
    PLAIN
        .get_or_init(|| {
            sleeper::register_barrier();
            let settings = Settings {
                workers: 0,
                spares: 0,
                spares_unavailable: 0,
                reserve: 0,
                reserve_when_calm: 0,
                reserve_in_trouble: 0,
                budget_ns: settings::DEFAULT_BUDGET_NS,
                grace_ns: settings::DEFAULT_GRACE_NS,
                policy: Policy::Demote,
                demotable: true,
                nice_hogs: false,
                max_handoffs: PLAIN_IN_PLACE,
                slots: PLAIN_SEATS,
                event_interval: u64::from(settings::DEFAULT_EVENT_INTERVAL),
                report_after_ns: settings::DEFAULT_REPORT_AFTER_NS,
                refused: Vec::new(),
                confine_to_quota: false,
                is_current_thread: false,
                mechanisms: Mechanisms::default(),
            };
            let domain = Arc::new(Domain::without_workers(settings));
            // It is never joined: the domain lives as long as the process.
            drop(life::start(&domain));
            domain
        })
        .clone()
}
