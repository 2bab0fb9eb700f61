//! What is compared: a runtime, and whether the tasks of a case are watched on it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::executor::Runtime;

/// The end of a name that says that every task is watched.
const WATCHED: &str = "-watched";

/// A runtime that cases run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contender {
    /// Which.
    pub runtime: Runtime,
    /// Whether every task of a case is watched. Only Morpheus can.
    pub watched: bool,
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let watched = if self.watched { WATCHED } else { "" };
        write!(f, "{}{watched}", self.runtime)
    }
}

impl FromStr for Contender {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        const KNOWN: &str =
            "morpheus, morpheus-watched, tokio, and tokio+N, tokio+slice, tokio+N+slice";
        if let Some(runtime) = name.strip_suffix(WATCHED) {
            return match runtime.parse() {
                Ok(Runtime::Morpheus) => Ok(Self {
                    runtime: Runtime::Morpheus,
                    watched: true,
                }),
                _ => Err(format!(
                    "nobody can be watched on '{runtime}': there are {KNOWN}"
                )),
            };
        }
        match name.parse() {
            Ok(Runtime::Smol | Runtime::Go) => Err(format!(
                "'{name}' has none of tokio's sync, time and net, which the cases use, so that other code would be \
                 compared: there are {KNOWN}"
            )),
            Ok(runtime) => Ok(Self {
                runtime,
                watched: false,
            }),
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
        for name in ["morpheus", "morpheus-watched", "tokio", "tokio+8+slice"] {
            assert_eq!(name.parse::<Contender>().unwrap().to_string(), name);
        }
    }

    #[test]
    fn what_cannot_run_the_cases_is_refused_with_what_can() {
        for (name, expected) in [
            ("smol", "has none of tokio's"),
            ("go", "has none of tokio's"),
            ("tokio-watched", "nobody can be watched on 'tokio'"),
            ("tokyo", "unknown runtime"),
            ("all", "unknown runtime"),
            ("tokio+9999", "at most 4096"),
        ] {
            let error = name.parse::<Contender>().unwrap_err();
            assert!(error.contains(expected), "{name}: {error}");
        }
    }
}
