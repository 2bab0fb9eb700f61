//! One trait over the runtimes, so that each of them runs the same code.

pub mod go;
pub mod morpheus;
pub mod smol;
pub mod tokio;

use std::fmt;
use std::net::TcpListener;
use std::pin::Pin;
use std::str::FromStr;
use std::time::Instant;

use serde::{Deserialize, Serialize};

/// How a task is handed to a runtime. Runtimes other than Morpheus spawn them all alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spawn {
    /// The runtime's own spawn, as a library calls it: nothing of ours in the task.
    Plain,
    /// Watched, labelled by where it is spawned.
    Watched,
    /// Watched, under this label.
    Labelled(&'static str),
    /// Watched, but never polled in place: only checkpoints and takeover can help.
    NeverOffender,
}

/// A runtime's counts of its own interventions, since it was built.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Escalations {
    /// Tasks that were asked to yield.
    pub requests: u64,
    /// Spares released.
    pub takeovers: u64,
    /// Threads that were given less weight.
    pub demotions: u64,
    /// Threads that were capped.
    pub throttles: u64,
    /// Tasks and labels convicted of computing long.
    pub convictions: u64,
    /// Most spares active at once.
    pub spares_peak: usize,
    /// Most polls in place at once.
    pub in_place_peak: usize,
    /// Polls in place.
    pub in_place_polls: u64,
    /// CPU time of the controller thread.
    pub controller_cpu_ns: u64,
    /// Events that the kernel side sent.
    pub link_events: u64,
    /// From what the kernel side saw until the controller read of it.
    pub detection_p50_ns: u64,
    /// Likewise.
    pub detection_p99_ns: u64,
    /// From the release of a spare until it runs.
    pub takeover_p99_ns: u64,
}

/// A runtime under test. Clones are handles to the same runtime.
pub trait Executor: Clone + Send + Sync + 'static {
    /// Starts a task, from inside or outside of the runtime, and lets it run.
    #[track_caller]
    fn spawn(&self, how: Spawn, future: impl Future<Output = ()> + Send + 'static) {
        self.spawn_boxed(how, Box::pin(future));
    }

    /// Starts a boxed task. All are: a runtime's code for a task is compiled once for each kind of task, and what is measured
    /// through this trait takes microseconds.
    fn spawn_boxed(&self, how: Spawn, future: Pin<Box<dyn Future<Output = ()> + Send>>);

    /// Completes at `at`, by the runtime's own timer: tokio's, unless the runtime has another.
    fn sleep_until(at: Instant) -> impl Future<Output = ()> + Send + 'static {
        ::tokio::time::sleep_until(at.into())
    }

    /// Lets the other tasks run, as tokio does unless the runtime has a way of its own.
    fn yield_now() -> impl Future<Output = ()> + Send + 'static {
        ::tokio::task::yield_now()
    }

    /// Runs a future to its end on the calling thread.
    fn block_on<F: Future>(&self, future: F) -> F::Output;

    /// Answers every message of [`crate::load::MESSAGE`] bytes on every connection to `listener`, after
    /// `iterations` of [`crate::work::compute`].
    ///
    /// # Errors
    /// When the listener cannot be made non-blocking or registered.
    fn serve_echo(&self, listener: TcpListener, iterations: u64) -> std::io::Result<()>;

    /// The runtime's interventions against stalled tasks; `None` where it has none.
    fn escalations(&self) -> Option<Escalations> {
        None
    }
}

/// The runtimes that can be measured.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(into = "String", try_from = "String")]
pub enum Runtime {
    /// Morpheus.
    #[default]
    Morpheus,
    /// Stock tokio with this many more workers than asked for, and short slices or not.
    Tokio {
        /// Worker threads beside those asked for.
        extra: usize,
        /// Whether they take slices of 0.2 ms.
        slice: bool,
    },
    /// Tokio as an expert tunes it: 32 more workers, short slices, and the unstable switches `enable_eager_driver_handoff` and
    /// `disable_lifo_slot`. Only in a program that was built with `--cfg tokio_unstable`.
    TokioTuned,
    /// Morpheus in a program that was built with `--cfg tokio_unstable`: every task is watched.
    MorpheusFlag,
    /// `async_executor` and `async-io`, with a thread for each worker and `extra` threads.
    Smol {
        /// Threads beside one for each worker.
        extra: usize,
    },
    /// A Go program. `GOMAXPROCS` is the number of workers and `extra`.
    Go {
        /// Threads beside one for each worker.
        extra: usize,
    },
}

impl Runtime {
    /// Stock tokio.
    pub const TOKIO: Self = Self::tokio(0, false);
    /// The first thing a sceptic would try: more threads.
    pub const TOKIO_32: Self = Self::tokio(32, false);
    /// The second: more threads with short slices.
    pub const TOKIO_32_SLICE: Self = Self::tokio(32, true);
    /// smol.
    pub const SMOL: Self = Self::Smol { extra: 0 };
    /// Go.
    pub const GO: Self = Self::Go { extra: 0 };
    /// The runtimes that `all` stands for, in the order shown.
    pub const ALL: [Self; 6] = [
        Self::Morpheus,
        Self::TOKIO,
        Self::TOKIO_32,
        Self::TOKIO_32_SLICE,
        Self::SMOL,
        Self::GO,
    ];
    /// All that have a name of their own, in the order shown.
    pub const NAMED: [Self; 10] = [
        Self::Morpheus,
        Self::MorpheusFlag,
        Self::TOKIO,
        Self::TOKIO_32,
        Self::TOKIO_32_SLICE,
        Self::TokioTuned,
        Self::SMOL,
        Self::Smol { extra: 32 },
        Self::GO,
        Self::Go { extra: 32 },
    ];

    /// Stock tokio with this many more workers, and short slices or not.
    #[must_use]
    pub const fn tokio(extra: usize, slice: bool) -> Self {
        Self::Tokio { extra, slice }
    }

    /// Whether it needs a program that was built with `--cfg tokio_unstable`.
    #[must_use]
    pub fn needs_flag(self) -> bool {
        matches!(self, Self::TokioTuned | Self::MorpheusFlag)
    }
}

impl fmt::Display for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, extra) = match *self {
            Self::Morpheus => ("morpheus", 0),
            Self::Tokio { extra, .. } => ("tokio", extra),
            Self::TokioTuned => ("tokio-tuned", 0),
            Self::MorpheusFlag => ("morpheus-flag", 0),
            Self::Smol { extra } => ("smol", extra),
            Self::Go { extra } => ("go", extra),
        };
        f.write_str(name)?;
        if extra > 0 {
            write!(f, "+{extra}")?;
        }
        let has_slice = matches!(self, Self::Tokio { slice: true, .. });
        f.write_str(if has_slice { "+slice" } else { "" })
    }
}

impl FromStr for Runtime {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let mut named = Self::NAMED.into_iter();
        if let Some(known) = named.find(|runtime| runtime.to_string() == name) {
            return Ok(known);
        }
        // `tokio+N`, `smol+N` and `go+N` with any other N, `tokio+N+slice`, and `tokio+slice`.
        let unknown = || {
            let known = Self::NAMED.map(|runtime| runtime.to_string()).join(", ");
            format!("unknown runtime '{name}': there are {known} and all (any number in tokio+N)")
        };
        let mut parts = name.split('+');
        let base = parts.next().unwrap_or_default();
        let (mut extra, mut slice) = (0, false);
        for part in parts {
            match part {
                "slice" if !slice && base == "tokio" => slice = true,
                number if extra == 0 && !slice => extra = number.parse().map_err(|_| unknown())?,
                _ => return Err(unknown()),
            }
        }
        if extra > 4_096 {
            return Err(format!("'{name}': at most 4096 more worker threads"));
        }
        match base {
            "tokio" => Ok(Self::Tokio { extra, slice }),
            "smol" => Ok(Self::Smol { extra }),
            "go" => Ok(Self::Go { extra }),
            _ => Err(unknown()),
        }
    }
}

impl From<Runtime> for String {
    fn from(runtime: Runtime) -> Self {
        runtime.to_string()
    }
}

impl TryFrom<String> for Runtime {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        name.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        let more = [
            "tokio+8",
            "tokio+slice",
            "tokio+100+slice",
            "smol+8",
            "go+2",
        ]
        .map(str::to_owned);
        for name in Runtime::NAMED
            .map(|r| r.to_string())
            .into_iter()
            .chain(more)
        {
            assert_eq!(name.parse::<Runtime>().unwrap().to_string(), name);
        }
    }

    #[test]
    fn an_unknown_name_lists_the_known() {
        for name in [
            "",
            "tokyo",
            "tokio+",
            "tokio+x",
            "tokio+slice+8",
            "smol+slice",
            "morpheus+8",
            "tokio+99999",
        ] {
            let error = name.parse::<Runtime>().unwrap_err();
            assert!(
                error.contains("tokio+32+slice") || error.contains("4096"),
                "{error}"
            );
        }
    }
}
