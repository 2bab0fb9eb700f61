//! Morpheus: tokio's own scheduler, with spares, controller and canary.

use std::io;
use std::net::TcpListener;
use std::pin::Pin;
use std::sync::Arc;

use clap::ValueEnum;
use morpheus_harness::arguments::name_of;
use morpheus_runtime::{Builder, Link, Mechanism, Runtime, task};
use serde::{Deserialize, Serialize};

use super::{Escalations, Executor, Spawn};

/// Where Morpheus's controller learns of stalled workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LinkName {
    /// It looks by itself.
    Watchdog,
    /// `scx_morpheus --observe` tells it.
    Observer,
    /// `scx_morpheus` tells it, and schedules.
    Scheduler,
}

impl LinkName {
    /// The daemon that it needs.
    fn daemon(self) -> Option<&'static str> {
        match self {
            Self::Watchdog => None,
            Self::Observer => Some("scx_morpheus --observe"),
            Self::Scheduler => Some("scx_morpheus"),
        }
    }

    /// A runtime as `builder` has it, with this link or not at all: figures under another one would mislead.
    ///
    /// # Errors
    /// When it cannot be built, or another daemon runs than is needed; the text is for people.
    pub fn build(self, builder: &mut Builder) -> Result<Runtime, String> {
        let Some(daemon) = self.daemon() else {
            let built = builder.link(Link::Watchdog).build();
            return built.map_err(|error| error.to_string());
        };
        let wanted = name_of(&self);
        let built = builder.link(Link::Required).build();
        let runtime =
            built.map_err(|error| format!("{error}; the link {wanted} needs `{daemon}`"))?;
        let active = runtime.link().to_string();
        if active == wanted {
            Ok(runtime)
        } else {
            Err(format!(
                "the daemon that runs is no {wanted} but an {active}: --observe makes the difference"
            ))
        }
    }
}

/// A Morpheus runtime.
#[derive(Clone)]
pub struct Morpheus {
    runtime: Arc<Runtime>,
}

impl Morpheus {
    /// A runtime with the link that was asked for, or none: figures under another one would mislead.
    ///
    /// # Errors
    /// When it cannot be built, or another daemon runs than is needed; the text is for people.
    pub fn build_linked(workers: usize, link: LinkName) -> Result<Self, String> {
        let options = |builder: &mut Builder| {
            builder.worker_threads(workers);
        };
        Self::build_with(options, link, &[])
    }

    /// The same with any options.
    ///
    /// # Errors
    /// As above.
    pub fn build_with(
        options: impl FnOnce(&mut Builder),
        link: LinkName,
        without: &[Mechanism],
    ) -> Result<Self, String> {
        let mut builder = Builder::new_multi_thread();
        for mechanism in without {
            builder.without(*mechanism);
        }
        options(&mut builder);
        let runtime = Arc::new(link.build(&mut builder)?);
        Ok(Self { runtime })
    }

    /// To be asked when the measurement is over: whether the link that it began with is still in force.
    ///
    /// # Errors
    /// When it is not: the figures are then of two links.
    pub fn still_linked(&self, link: LinkName) -> Result<(), String> {
        let (wanted, active) = (name_of(&link), self.link());
        if active == wanted {
            return Ok(());
        }
        Err(format!(
            "the link {wanted} was lost meanwhile, and the {active} took over: the figures are of neither alone"
        ))
    }

    /// The link in force.
    pub fn link(&self) -> String {
        self.runtime.link().to_string()
    }
}

impl Executor for Morpheus {
    // A watched task is labelled by where it is spawned: hogs and innocents come from different lines.
    #[track_caller]
    fn spawn_boxed(&self, how: Spawn, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        let handle = self.runtime.handle();
        let _context = handle.enter();
        match how {
            Spawn::Plain => drop(handle.spawn(future)),
            Spawn::Watched => drop(morpheus_runtime::spawn(future)),
            Spawn::Labelled(label) => drop(task::Builder::new().label(label).spawn(future)),
            Spawn::NeverOffender => {
                let never = task::Builder::new().handoff(task::Handoff::Never);
                drop(never.spawn(future));
            }
        }
    }

    fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.runtime.block_on(future)
    }

    fn serve_echo(&self, listener: TcpListener, iterations: u64) -> io::Result<()> {
        super::tokio::serve_echo(self.runtime.handle(), listener, iterations)
    }

    fn escalations(&self) -> Option<Escalations> {
        let metrics = self.runtime.metrics();
        Some(Escalations {
            requests: metrics.requests,
            takeovers: metrics.takeovers,
            demotions: metrics.demotions + metrics.debug.kernel_demotions,
            throttles: metrics.debug.throttles + metrics.debug.kernel_throttles,
            convictions: metrics.debug.hog_tasks,
            spares_peak: metrics.debug.spares_peak,
            in_place_peak: metrics.debug.handoffs_peak,
            in_place_polls: metrics.handoff_polls,
            controller_cpu_ns: metrics.debug.controller_cpu_ns,
            link_events: metrics.debug.link_events,
            detection_p50_ns: metrics.debug.detection_latency.p50_ns,
            detection_p99_ns: metrics.debug.detection_latency.p99_ns,
            takeover_p99_ns: metrics.takeover_latency.p99_ns,
        })
    }
}
