//! Who schedules the machine.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::program;

const PREEMPT: &str = "/sys/kernel/debug/sched/preempt";
/// "enabled" while a sched_ext scheduler is loaded.
const STATE: &str = "/sys/kernel/sched_ext/state";
/// Where files that are added to a guest lie.
const ADDED: &str = "/add";
/// A scheduler that is not there by then does not come.
const WITHIN: Duration = Duration::from_secs(30);

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
    pub fn put_in_force(&self) -> Result<Scheduler, String> {
        match self {
            Variant::Default(preempt) => {
                fs::write(PREEMPT, preempt).map_err(|error| {
                    format!("{PREEMPT} does not take {preempt}: {error} (is debugfs mounted?)")
                })?;
                Ok(Scheduler(None))
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
pub struct Scheduler(Option<Child>);

impl Scheduler {
    /// Figures under a scheduler that was thrown out meanwhile would be somebody else's.
    pub fn is_still_there(&self) -> Result<(), String> {
        if self.0.is_none() || is_loaded() {
            Ok(())
        } else {
            Err("the scheduler was thrown out".into())
        }
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        let Some(child) = &mut self.0 else {
            return;
        };
        // SAFETY: a signal to our own child, which has not been waited for.
        unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) };
        let _ = wait_until(|| !is_loaded());
        // Whatever it still does.
        let _ = child.kill();
        let _ = child.wait();
    }
}

fn start(name: &str) -> Result<Scheduler, String> {
    let path = find(name);
    let child = Command::new(&path)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(|error| format!("{} does not start: {error}", path.display()))?;
    let scheduler = Scheduler(Some(child));
    if wait_until(is_loaded) {
        // It has to settle: the first tasks are moved over.
        std::thread::sleep(Duration::from_millis(500));
        Ok(scheduler)
    } else {
        Err(format!("{name} loads no scheduler here"))
    }
}

fn find(name: &str) -> PathBuf {
    let added = Path::new(ADDED).join(name);
    if added.exists() { added } else { program(name) }
}

fn is_loaded() -> bool {
    fs::read_to_string(STATE).is_ok_and(|state| state.trim() == "enabled")
}

fn wait_until(holds: impl Fn() -> bool) -> bool {
    let until = Instant::now() + WITHIN;
    while !holds() {
        if Instant::now() > until {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}
