//! A contender: a runtime, and whether the tasks of a case are watched on it.

use std::fmt;
use std::str::FromStr;

use morpheus_runtime::Builder;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use tokio::runtime::Handle;

use crate::executor::morpheus::LinkName;
use crate::executor::{Runtime, tokio::Tokio};
use crate::flagged;

/// The end of a name that says that every task is watched.
const WATCHED: &str = "-watched";
/// The end of a name that says that no worker has a LIFO slot.
const NO_LIFO: &str = "-no-lifo";
/// Morpheus in a program that was built with `--cfg tokio_unstable`.
const FLAG: &str = "morpheus-flag";
/// More threads than this no runtime starts.
const MOST_SPARES: usize = 4_000;

/// A runtime that cases run on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contender {
    /// Which.
    pub runtime: Runtime,
    /// Whether every task of a case is watched. Only Morpheus can.
    pub watched: bool,
    /// How many spares Morpheus has; without a number, its default.
    pub spares: Option<usize>,
    /// Whether Morpheus's workers do without their LIFO slots, which needs the flag.
    pub no_lifo: bool,
}

impl Contender {
    /// Builds the runtime. It lasts as long as the process: dropping a runtime waits for polls to end.
    ///
    /// # Errors
    /// When it cannot be built; the text is for people.
    pub fn build(&self, workers: usize) -> Result<Handle, String> {
        if self.runtime.needs_flag() {
            flagged::require()?;
        }
        match self.runtime {
            Runtime::Morpheus | Runtime::MorpheusFlag => {
                let mut builder = Builder::new_multi_thread();
                builder
                    .worker_threads(workers)
                    .disable_lifo_slot(self.no_lifo);
                if let Some(spares) = self.spares {
                    builder.max_spares(spares);
                }
                let runtime = LinkName::Watchdog.build(&mut builder)?;
                let handle = runtime.handle().clone();
                std::mem::forget(runtime);
                Ok(handle)
            }
            Runtime::Tokio { .. } | Runtime::TokioTuned => {
                let (_, runtime) = Tokio::build(self.runtime, workers)
                    .map_err(|error| format!("no runtime: {error}"))?;
                let handle = runtime.handle().clone();
                std::mem::forget(runtime);
                Ok(handle)
            }
            Runtime::Smol { .. } | Runtime::Go { .. } => {
                Err("it has none of tokio's sync, time and net".into())
            }
        }
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let watched = if self.watched { WATCHED } else { "" };
        let lifo = if self.no_lifo { NO_LIFO } else { "" };
        match self.spares {
            Some(spares) => write!(f, "{}+{spares}{lifo}{watched}", self.runtime),
            None => write!(f, "{}{lifo}{watched}", self.runtime),
        }
    }
}

impl FromStr for Contender {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        const KNOWN: &str = "morpheus, morpheus-watched, tokio, and morpheus+N (with N spares), morpheus+N-watched, \
                             morpheus-flag, morpheus-flag+N, morpheus-flag-no-lifo, tokio+N, tokio+slice, tokio+N+slice, tokio-tuned";
        let own = name.strip_suffix(WATCHED).unwrap_or(name);
        let watched = own != name;
        let (own, no_lifo) = match own.strip_suffix(NO_LIFO) {
            Some(flagged) if flagged.starts_with(FLAG) => (flagged, true),
            _ => (own, false),
        };
        let runtime = match own.starts_with(FLAG) {
            true => Runtime::MorpheusFlag,
            false => Runtime::Morpheus,
        };
        // A number of spares, as tokio has one of its workers.
        let after = own.strip_prefix(&format!("{runtime}+"));
        let spares = after.map(|number| {
            let known = number.parse().ok().filter(|n| *n <= MOST_SPARES);
            known.ok_or_else(|| {
                format!("'{name}': after the plus stands a number of spares, at most {MOST_SPARES}")
            })
        });
        let found = Self {
            runtime,
            watched,
            spares: spares.transpose()?,
            no_lifo,
        };
        if found.spares.is_some() || own == runtime.to_string() {
            return Ok(found);
        }
        if watched {
            return Err(format!(
                "nobody can be watched on '{own}': there are {KNOWN}"
            ));
        }
        match name.parse() {
            Ok(Runtime::Smol { .. } | Runtime::Go { .. }) => Err(format!(
                "'{name}' has none of tokio's sync, time and net, which the cases use, so that other code would be \
                 compared: there are {KNOWN}"
            )),
            Ok(runtime) => Ok(Self { runtime, ..found }),
            Err(error) if error.contains("at most") => Err(error),
            Err(_) => Err(format!("unknown runtime '{name}': there are {KNOWN}")),
        }
    }
}

impl Serialize for Contender {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Contender {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        name.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for name in [
            "morpheus",
            "morpheus-watched",
            "morpheus+128",
            "morpheus+8-watched",
            "morpheus-flag-no-lifo",
            "morpheus-flag+4-no-lifo-watched",
            "tokio",
            "tokio+8+slice",
        ] {
            assert_eq!(name.parse::<Contender>().unwrap().to_string(), name);
        }
        let spares = |name: &str| name.parse::<Contender>().unwrap().spares;
        assert_eq!((spares("morpheus"), spares("morpheus+0")), (None, Some(0)));
    }

    #[test]
    fn what_cannot_run_the_cases_is_refused_with_what_can() {
        for (name, expected) in [
            ("smol", "has none of tokio's"),
            ("go", "has none of tokio's"),
            ("tokio-watched", "nobody can be watched on 'tokio'"),
            ("tokyo", "unknown runtime"),
            ("morpheus-no-lifo", "unknown runtime"),
            ("tokio-no-lifo", "unknown runtime"),
            ("all", "unknown runtime"),
            ("morpheus+", "a number of spares"),
            ("morpheus+x-watched", "a number of spares"),
            ("morpheus+9999", "at most 4000"),
            ("tokio+9999", "at most 4096"),
        ] {
            let error = name.parse::<Contender>().unwrap_err();
            assert!(error.contains(expected), "{name}: {error}");
        }
    }
}
