//! The controller's side of a daemon's link: naps until the kernel has events, and notices that a daemon comes or goes.

use std::sync::Arc;
use std::time::Duration;

use morpheus_common::ladder::Policy;
use morpheus_link::events::{Events, KernelEvents};
use morpheus_link::joiner;

use crate::domain::Domain;
use morpheus_system::clock;
use morpheus_system::slack::OnTime;

/// Wakes by events from the kernel that the controller follows in a sample, and how many it saves up: a program that
/// blocks all the time must not keep it running.
const EVENT_WAKES_A_SAMPLE: u32 = 2;
const EVENT_WAKES_AT_ONCE: u32 = 32;
/// The interval between two searches for the directory of a daemon on a machine that had none.
const SEARCH_INTERVAL_NS: u64 = 1_000_000_000;

pub(crate) struct Daemon {
    domain: Arc<Domain>,
    /// Only while a daemon is joined.
    events: Option<KernelEvents>,
    event_wakes: u32,
    searched_ns: u64,
}

impl Daemon {
    pub(crate) fn new(domain: Arc<Domain>) -> Daemon {
        Daemon {
            domain,
            events: None,
            event_wakes: EVENT_WAKES_AT_ONCE,
            searched_ns: clock::now_ns(),
        }
    }

    /// The events of the kernel, while a daemon is joined.
    pub(crate) fn events(&self) -> Option<&KernelEvents> {
        self.events.as_ref()
    }

    /// Sleeps until `wake_ns`, until an event comes, or until a worker has slept long enough to be replaced. `is_served`
    /// tells whether a worker is free to serve what such a sleeper holds up.
    pub(crate) fn nap(&self, now_ns: u64, wake_ns: u64, is_served: impl FnOnce() -> bool) {
        // Once the wakes are used up, events wait for the next sample.
        let events = self.events.as_ref().filter(|_| self.event_wakes > 0);
        let due_ns = events
            .and_then(KernelEvents::due_ns)
            .filter(|&due_ns| due_ns < wake_ns);
        match (events, due_ns) {
            (Some(events), None) => {
                let _on_time = OnTime::begin();
                events.wait(wake_ns.saturating_sub(now_ns));
            }
            // Events that come before the sleeper is due are read then.
            (Some(events), Some(due_ns)) if events.is_worth_staying() && !is_served() => {
                // A thread that sleeps for less time than it has just run is not eligible when it wakes, and
                // waits for a tick of the kernel (EEVDF): beside hogs that delays the takeover by milliseconds.
                while clock::now_ns() < due_ns {
                    std::hint::spin_loop();
                }
            }
            (_, due_ns) => {
                let until_ns = due_ns.unwrap_or(wake_ns);
                let _on_time = OnTime::begin();
                std::thread::sleep(Duration::from_nanos(until_ns.saturating_sub(now_ns)));
            }
        }
    }

    /// Reads the events that have come; `None` if nothing is to be done about them.
    pub(crate) fn read(&mut self, now_ns: u64) -> Option<Events> {
        let domain = &self.domain;
        let events = self.events.as_mut()?;
        let events = events.read(&domain.link, &domain.slots, now_ns);
        self.count(&events, now_ns);
        if events.are_answered() {
            return None;
        }
        self.event_wakes = self.event_wakes.saturating_sub(1);
        Some(events)
    }

    fn count(&self, events: &Events, now_ns: u64) {
        let counters = &self.domain.counters;
        for &age_ns in &events.ages_ns {
            counters.detection_latency.record(age_ns);
        }
        counters.kernel_demotions.add(events.demoted);
        counters.kernel_throttles.add(events.throttled);
        let over_budget = events.over_budget.len();
        if over_budget > 0 && self.domain.settings.policy >= Policy::Request {
            counters.requests.add(over_budget);
            counters.last_request_ns.set(now_ns);
        }
    }

    /// Once a sample: takes over a link that the joiner made, and gives up one whose daemon has gone or is silent.
    pub(crate) fn sample(&mut self, now_ns: u64) {
        self.event_wakes = (self.event_wakes + EVENT_WAKES_A_SAMPLE).min(EVENT_WAKES_AT_ONCE);
        let link = &self.domain.link;
        if now_ns.saturating_sub(self.searched_ns) >= SEARCH_INTERVAL_NS {
            self.searched_ns = now_ns;
            if link.has_found_directory() {
                joiner::start_late(&self.domain);
            }
        }
        if let Some(handed) = link.take_handed() {
            self.events = Some(KernelEvents::new(handed));
        }
        let Some(events) = &self.events else {
            return;
        };
        if !link.is_lost() && !events.is_alive(&self.domain.slots, now_ns) {
            link.lose();
            link.wake_joiner();
        }
        if link.is_lost() {
            self.events = None;
        }
    }
}
