//! What is compared: a program, and what it is told.

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
    /// The same, and no more hashes at once than there are CPUs.
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

    /// How it is called on the command line, in the table and in the JSON.
    pub fn name(self) -> &'static str {
        match self {
            Variant::Tokio => "tokio",
            Variant::TokioMore => "tokio+32",
            Variant::Tuned => "tokio-tuned",
            Variant::InPlace => "tokio-in-place",
            Variant::Rewritten => "tokio-rewritten",
            Variant::Bounded => "tokio-bounded",
            Variant::Morpheus => "morpheus",
            Variant::MorpheusLayer => "morpheus+layer",
            Variant::MorpheusFlag => "morpheus+flag",
        }
    }

    /// The example to start.
    pub fn program(self) -> &'static str {
        match self {
            Variant::Tokio
            | Variant::TokioMore
            | Variant::InPlace
            | Variant::Rewritten
            | Variant::Bounded => "http_service_tokio",
            Variant::Tuned => "http_service_tuned",
            Variant::Morpheus | Variant::MorpheusLayer | Variant::MorpheusFlag => "http_service",
        }
    }

    /// Whether the program has to be built with `--cfg tokio_unstable`.
    pub fn needs_flag(self) -> bool {
        matches!(self, Variant::Tuned | Variant::MorpheusFlag)
    }

    /// What it is told beside where to listen.
    pub fn arguments(self) -> &'static [&'static str] {
        match self {
            Variant::Tokio
            | Variant::TokioMore
            | Variant::Tuned
            | Variant::Morpheus
            | Variant::MorpheusFlag => &[],
            Variant::InPlace => &["--code", "in-place"],
            Variant::Rewritten => &["--code", "spawn-blocking"],
            Variant::Bounded => &["--code", "bounded"],
            Variant::MorpheusLayer => &["--layer"],
        }
    }

    /// Workers that it has beside one for each CPU.
    pub fn more_workers(self) -> usize {
        match self {
            Variant::TokioMore | Variant::Tuned => MORE_WORKERS,
            _ => 0,
        }
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
