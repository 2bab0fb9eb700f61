//! The runtime as the joiner of its link sees it.

use std::sync::atomic::Ordering;

use morpheus_link::joiner::{Host, LinkEvent, Terms};
use morpheus_link::state::State;
use morpheus_link::table::Table;

use crate::domain::Domain;
use crate::report::event::{self, Report, Thread};

impl Host for Domain {
    fn link(&self) -> &State {
        &self.link
    }

    fn slots(&self) -> &Table {
        &self.slots
    }

    fn terms(&self) -> Terms {
        #[cfg(test)]
        self.faults.joiner.strike();
        Terms {
            // The last one is the controller's.
            slots: self.slots.room() + 1,
            policy: self.settings.policy as u32,
            budget_ns: self.settings.budget_ns,
            grace_ns: self.settings.grace_ns,
        }
    }

    fn controller_tid(&self) -> u32 {
        // Relaxed: a number; the joiner asks for it again when it is woken.
        self.controller_tid.load(Ordering::Relaxed)
    }

    fn wake_controller(&self) {
        self.wake_controller();
    }

    fn report(&self, event: LinkEvent<'_>) {
        let report = match event {
            LinkEvent::NoLink(_) if !event::wants_details() => return,
            LinkEvent::NoLink(why) => Report::NoLink(why.to_string()),
            LinkEvent::Joined(link) => Report::Joined(link),
            LinkEvent::DaemonGone(why) => Report::DaemonGone(why),
            LinkEvent::Panicked { text, restarts } => {
                let counter = &self.counters.joiner_restarts;
                counter.add(usize::from(restarts));
                Report::Panicked {
                    thread: Thread::Joiner,
                    text: text.to_owned(),
                    restarts,
                }
            }
        };
        self.reports.send(report);
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use morpheus_link::joiner::start;
    use morpheus_link::{ActiveLink, Link, LinkError};

    use crate::Builder;

    #[test]
    fn a_joiner_that_panics_starts_again_and_stays_off_in_the_end() {
        let nowhere = std::env::temp_dir().join("morpheus-no-daemon-here");
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).max_spares(1).link_socket(nowhere);
        let runtime = builder.build().unwrap();
        let domain = runtime.domain();
        let restarts = || runtime.metrics().debug.joiner_restarts;
        for expected in [1, 2, 3, 3] {
            domain.faults.joiner.arm(1);
            let until = Instant::now() + Duration::from_secs(60);
            while domain.faults.joiner.is_armed() || restarts() < expected {
                assert!(Instant::now() < until, "{expected} restarts");
                domain.link.wake_joiner();
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        assert_eq!((restarts(), runtime.link()), (3, ActiveLink::Watchdog));
        assert_eq!(runtime.block_on(async { 7 }), 7);
    }

    #[test]
    fn required_says_no_when_the_joiner_stays_off() {
        let mut builder = Builder::new_multi_thread();
        builder.worker_threads(1).max_spares(1);
        let runtime = builder.link(Link::Watchdog).build().unwrap();
        let domain = runtime.domain();
        domain.faults.joiner.arm(usize::MAX);
        let nowhere = std::env::temp_dir().join("morpheus-no-daemon-here");
        let began = Instant::now();
        let result = start(domain, Link::Required, Some(nowhere));
        assert!(
            matches!(result, Err(LinkError::Failed { .. })),
            "{result:?}"
        );
        assert!(began.elapsed() < Duration::from_secs(10));
    }
}
