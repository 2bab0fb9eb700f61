//! What is compared: a program, and what it is told.

use std::fmt;

use clap::ValueEnum;
use clap::builder::PossibleValue;
use serde::{Deserialize, Serialize};

/// Workers that a sceptic would add to tokio instead of using Morpheus: as many as Morpheus has spares.
pub const MORE_WORKERS: usize = 32;

/// One way to run the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Variant {
    /// As it is, on tokio.
    #[serde(rename = "tokio")]
    Tokio,
    /// The same with more workers.
    #[serde(rename = "tokio+32")]
    TokioMore,
    /// The handlers rewritten for tokio.
    #[serde(rename = "hand-written")]
    HandWritten,
    /// As it is, on Morpheus.
    #[serde(rename = "morpheus")]
    Morpheus,
    /// The same, watched.
    #[serde(rename = "morpheus+layer")]
    MorpheusLayer,
}

impl Variant {
    /// In the order of the table.
    pub const ALL: [Variant; 5] = [
        Variant::Tokio,
        Variant::TokioMore,
        Variant::HandWritten,
        Variant::Morpheus,
        Variant::MorpheusLayer,
    ];

    /// How it is called on the command line, in the table and in the JSON.
    pub fn name(self) -> &'static str {
        match self {
            Variant::Tokio => "tokio",
            Variant::TokioMore => "tokio+32",
            Variant::HandWritten => "hand-written",
            Variant::Morpheus => "morpheus",
            Variant::MorpheusLayer => "morpheus+layer",
        }
    }

    /// The program to start.
    pub fn program(self) -> &'static str {
        match self {
            Variant::Tokio | Variant::TokioMore | Variant::HandWritten => "http_service_tokio",
            Variant::Morpheus | Variant::MorpheusLayer => "http_service",
        }
    }

    /// What it is told beside where to listen.
    pub fn arguments(self) -> &'static [&'static str] {
        match self {
            Variant::Tokio | Variant::TokioMore | Variant::Morpheus => &[],
            Variant::HandWritten => &["--hand-written"],
            Variant::MorpheusLayer => &["--layer"],
        }
    }

    /// Workers that it has beside one for each CPU.
    pub fn more_workers(self) -> usize {
        match self {
            Variant::TokioMore => MORE_WORKERS,
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
