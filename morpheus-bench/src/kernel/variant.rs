//! Who schedules the machine.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::program;
use crate::scx::{self, Scheduler};

const PREEMPT: &str = "/sys/kernel/debug/sched/preempt";

/// A way to schedule the machine.
#[derive(Debug)]
pub enum Variant {
    /// The kernel's own scheduler with this preemption mode.
    Default(&'static str),
    /// A program that loads a sched_ext scheduler.
    Program {
        /// Its name.
        name: &'static str,
        /// What `starvation` calls the link.
        link: &'static str,
    },
}

/// In the order of the table.
pub const VARIANTS: [Variant; 4] = [
    Variant::Default("lazy"),
    Variant::Default("full"),
    Variant::Program {
        name: "scx_bpfland",
        link: "watchdog",
    },
    Variant::Program {
        name: "scx_morpheus",
        link: "scheduler",
    },
];

impl Variant {
    /// For people.
    pub fn name(&self) -> String {
        match self {
            Variant::Default(preempt) => format!("default, {preempt}"),
            Variant::Program { name, .. } => (*name).to_owned(),
        }
    }

    /// What `starvation --link` is to say.
    pub fn link(&self) -> &'static str {
        match self {
            Variant::Default(_) => "watchdog",
            Variant::Program { link, .. } => link,
        }
    }

    /// Until what it returns is dropped.
    pub fn put_in_force(&self) -> Result<InForce, String> {
        match self {
            Variant::Default(preempt) => {
                fs::write(PREEMPT, preempt).map_err(|error| {
                    format!("{PREEMPT} does not take {preempt}: {error} (is debugfs mounted?)")
                })?;
                Ok(InForce(None))
            }
            Variant::Program { name, .. } => {
                // As most kernels are set up; a sched_ext scheduler preempts by itself.
                let _ = fs::write(PREEMPT, "lazy");
                start(name)
            }
        }
    }
}

/// What is in force; ended when it is dropped.
#[derive(Debug)]
pub struct InForce(Option<Scheduler>);

impl InForce {
    /// Figures under a scheduler that was thrown out meanwhile would be somebody else's.
    pub fn is_still_there(&mut self) -> Result<(), String> {
        self.0.as_mut().map_or(Ok(()), Scheduler::is_still_there)
    }
}

fn start(name: &str) -> Result<InForce, String> {
    Scheduler::start(Command::new(program(name)), Path::new(scx::DIRECTORY))
        .map(|started| InForce(Some(started)))
}
