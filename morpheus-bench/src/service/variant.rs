//! A variant of the service: a program, and its arguments.

use std::fmt;

use clap::ValueEnum;
use clap::builder::PossibleValue;
use serde::{Deserialize, Serialize};

use crate::tuned::MORE_WORKERS;

/// One way to run the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Variant {
    /// As it is, on tokio.
    #[serde(rename = "tokio")]
    Tokio,
    /// The same with more workers.
    #[serde(rename = "tokio+32")]
    TokioMore,
    /// The same with more workers, short slices and two of tokio's unstable switches.
    #[serde(rename = "tokio-tuned")]
    Tuned,
    /// The handlers rewritten with `block_in_place`.
    #[serde(rename = "tokio-in-place")]
    InPlace,
    /// The handlers rewritten with `spawn_blocking`.
    #[serde(rename = "tokio-rewritten")]
    Rewritten,
    /// The same, and no more requests compute at once than there are CPUs.
    #[serde(rename = "tokio-bounded")]
    Bounded,
    /// As it is, on Morpheus.
    #[serde(rename = "morpheus")]
    Morpheus,
    /// The same, watched.
    #[serde(rename = "morpheus+layer")]
    MorpheusLayer,
    /// As it is, on Morpheus, built with `--cfg tokio_unstable`.
    #[serde(rename = "morpheus+flag")]
    MorpheusFlag,
}

/// The values that the public methods of a [`Variant`] return.
struct About {
    name: &'static str,
    program: &'static str,
    needs_flag: bool,
    arguments: &'static [&'static str],
    more_workers: usize,
}

impl Variant {
    /// In the order of the table.
    pub const ALL: [Variant; 9] = [
        Variant::Tokio,
        Variant::TokioMore,
        Variant::Tuned,
        Variant::InPlace,
        Variant::Rewritten,
        Variant::Bounded,
        Variant::Morpheus,
        Variant::MorpheusLayer,
        Variant::MorpheusFlag,
    ];

    #[rustfmt::skip]
    fn about(self) -> About {
        let tokio = About { name: "tokio", program: "http_service_tokio", needs_flag: false, arguments: &[], more_workers: 0 };
        let morpheus = About { name: "morpheus", program: "http_service", ..tokio };
        match self {
            Variant::Tokio => tokio,
            Variant::TokioMore => About { name: "tokio+32", more_workers: MORE_WORKERS, ..tokio },
            Variant::Tuned => About { name: "tokio-tuned", program: "http_service_tuned", needs_flag: true, more_workers: MORE_WORKERS, ..tokio },
            Variant::InPlace => About { name: "tokio-in-place", arguments: &["--code", "in-place"], ..tokio },
            Variant::Rewritten => About { name: "tokio-rewritten", arguments: &["--code", "spawn-blocking"], ..tokio },
            Variant::Bounded => About { name: "tokio-bounded", arguments: &["--code", "bounded"], ..tokio },
            Variant::Morpheus => morpheus,
            Variant::MorpheusLayer => About { name: "morpheus+layer", arguments: &["--layer"], ..morpheus },
            Variant::MorpheusFlag => About { name: "morpheus+flag", needs_flag: true, ..morpheus },
        }
    }

    /// How it is called on the command line, in the table and in the JSON.
    pub fn name(self) -> &'static str {
        self.about().name
    }

    /// The example to start.
    pub fn program(self) -> &'static str {
        self.about().program
    }

    /// Whether the program has to be built with `--cfg tokio_unstable`.
    pub fn needs_flag(self) -> bool {
        self.about().needs_flag
    }

    /// Its arguments beside the address to listen on.
    pub fn arguments(self) -> &'static [&'static str] {
        self.about().arguments
    }

    /// Workers that it has beside one for each CPU.
    pub fn more_workers(self) -> usize {
        self.about().more_workers
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl ValueEnum for Variant {
    fn value_variants<'a>() -> &'a [Self] {
        &Self::ALL
    }

    fn to_possible_value(&self) -> Option<PossibleValue> {
        Some(PossibleValue::new(self.name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_same_everywhere() {
        for variant in Variant::ALL {
            assert_eq!(Variant::from_str(variant.name(), false), Ok(variant));
            let json = serde_json::to_string(&variant).unwrap();
            assert_eq!(json, format!("{:?}", variant.name()));
        }
        let more = format!("tokio+{MORE_WORKERS}");
        assert_eq!(Variant::TokioMore.name(), more);
    }
}
