//! Busy threads in another process, and the CPU that they keep.

use std::env;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::Duration;

use morpheus_harness::{clock, thread};

use crate::work;

/// How a program starts itself as a neighbour.
const ARGUMENT: &str = "--neighbour";

/// [Computes](burn), if that is what the program was started for. The first call of a `main` whose benchmark has
/// neighbours.
pub fn become_one_if_asked() {
    if env::args_os().nth(1).is_some_and(|first| first == ARGUMENT) {
        burn();
    }
}

/// Computes until killed.
pub fn burn() -> ! {
    loop {
        work::compute_in_turn(1_000_000);
    }
}

/// Lets a program end with the thread that starts it, however that ends.
pub fn end_with_caller(command: &mut Command) {
    let own = std::process::id();
    let bound = move || {
        thread::die_with_parent();
        // If the parent died before that call, no signal comes any more, and nothing would end the program.
        if std::os::unix::process::parent_id() != own {
            return Err(io::ErrorKind::Interrupted.into());
        }
        Ok(())
    };
    // After a change of user, which would undo it, and before the program.
    // SAFETY: it makes two system calls and allocates nothing.
    unsafe { command.pre_exec(bound) };
}

/// Neighbours that end with this value.
#[derive(Default)]
pub struct Neighbours(Vec<Child>);

impl Neighbours {
    /// Starts `count` processes of one busy thread each, by `command`. They end with the calling thread.
    ///
    /// # Errors
    /// When one cannot be started.
    pub fn start(count: usize, command: impl Fn() -> Command) -> io::Result<Self> {
        Self::start_each((0..count).map(|_| {
            let mut command = command();
            command.arg(ARGUMENT);
            command
        }))
    }

    /// Starts `count` processes of this program, each a busy thread. They end with the calling thread.
    ///
    /// # Errors
    /// When one cannot be started; the text is for people.
    pub fn own(count: usize) -> Result<Self, String> {
        Self::start(count, || Command::new("/proc/self/exe"))
            .map_err(|error| format!("no busy process beside it: {error}"))
    }

    /// Starts a process for each command, whatever it does. They end with the calling thread.
    ///
    /// # Errors
    /// When one cannot be started.
    pub fn start_each(commands: impl IntoIterator<Item = Command>) -> io::Result<Self> {
        let mut neighbours = Self::default();
        for mut command in commands {
            end_with_caller(&mut command);
            neighbours.0.push(command.spawn()?);
        }
        Ok(neighbours)
    }

    /// The processes, for a caller that talks to them.
    pub fn children(&mut self) -> &mut [Child] {
        &mut self.0
    }

    /// Their process ids.
    pub fn pids(&self) -> Vec<u32> {
        self.0.iter().map(Child::id).collect()
    }
}

impl Drop for Neighbours {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // Errors mean that it has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The CPU time that each has used.
pub fn cpu(pids: &[u32]) -> Vec<Duration> {
    pids.iter()
        .map(|pid| clock::cpu_of_process(*pid).unwrap_or_default())
        .collect()
}

/// The CPUs that they had together between two readings; `None` without neighbours.
pub fn share(first: &[Duration], last: &[Duration], elapsed: Duration) -> Option<f64> {
    let both = last.iter().zip(first);
    let used: Duration = both.map(|(last, first)| last.saturating_sub(*first)).sum();
    (!first.is_empty()).then(|| used.as_secs_f64() / elapsed.as_secs_f64())
}
