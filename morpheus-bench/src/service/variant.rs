//! A variant of the service: a program, and its arguments.

use std::fmt;

use clap::ValueEnum;
use clap::builder::PossibleValue;
use serde::Serialize;

use crate::tuned::MORE_WORKERS;

/// One way to run the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "&str")]
pub enum Variant {
    /// As it is, on tokio.
    Tokio,
    /// The same with more workers.
    TokioMore,
    /// The same with more workers, short slices and two of tokio's unstable switches.
    Tuned,
    /// The handlers rewritten with `block_in_place`.
    InPlace,
    /// The handlers rewritten with `spawn_blocking`.
    Rewritten,
    /// The same, and no more requests compute at once than there are CPUs.
    Bounded,
    /// The same, tuned, with a worker for each CPU.
    TunedBounded,
    /// The handlers rewritten with a pool of their own, of as many threads as there are CPUs, at a lower priority; tuned likewise.
    TunedPool,
    /// As it is, on Morpheus.
    Morpheus,
    /// The same, watched.
    MorpheusLayer,
    /// As it is, on Morpheus, built with `--cfg tokio_unstable`.
    MorpheusFlag,
}

/// The names and the program of a [`Variant`].
pub struct About {
    name: &'static str,
    /// The example to start.
    pub program: &'static str,
    needs_flag: bool,
    /// Its arguments beside the address to listen on.
    pub arguments: &'static [&'static str],
    /// Workers that it has beside one for each CPU.
    pub more_workers: usize,
}

impl Variant {
    /// In the order of the table.
    pub const ALL: [Variant; 11] = [
        Variant::Tokio,
        Variant::TokioMore,
        Variant::Tuned,
        Variant::InPlace,
        Variant::Rewritten,
        Variant::Bounded,
        Variant::TunedBounded,
        Variant::TunedPool,
        Variant::Morpheus,
        Variant::MorpheusLayer,
        Variant::MorpheusFlag,
    ];

    /// Its names and its program.
    #[rustfmt::skip]
    pub fn about(self) -> About {
        let tokio = About { name: "tokio", program: "http_service_tokio", needs_flag: false, arguments: &[], more_workers: 0 };
        let morpheus = About { name: "morpheus", program: "http_service", ..tokio };
        match self {
            Variant::Tokio => tokio,
            Variant::TokioMore => About { name: "tokio+32", more_workers: MORE_WORKERS, ..tokio },
            Variant::Tuned => About { name: "tokio-tuned", program: "http_service_tuned", needs_flag: true, more_workers: MORE_WORKERS, ..tokio },
            Variant::InPlace => About { name: "tokio-in-place", arguments: &["--code", "in-place"], ..tokio },
            Variant::Rewritten => About { name: "tokio-rewritten", arguments: &["--code", "spawn-blocking"], ..tokio },
            Variant::Bounded => About { name: "tokio-bounded", arguments: &["--code", "bounded"], ..tokio },
            Variant::TunedBounded => About { name: "tokio-tuned-bounded", program: "http_service_tuned", needs_flag: true, arguments: &["--code", "bounded"], ..tokio },
            Variant::TunedPool => About { name: "tokio-tuned-pool", program: "http_service_tuned", needs_flag: true, arguments: &["--code", "pool"], ..tokio },
            Variant::Morpheus => morpheus,
            Variant::MorpheusLayer => About { name: "morpheus+layer", arguments: &["--layer"], ..morpheus },
            Variant::MorpheusFlag => About { name: "morpheus+flag", needs_flag: true, ..morpheus },
        }
    }

    /// How it is called on the command line, in the table and in the JSON.
    pub fn name(self) -> &'static str {
        self.about().name
    }

    /// Whether the program has to be built with `--cfg tokio_unstable`.
    pub fn needs_flag(self) -> bool {
        self.about().needs_flag
    }
}

impl From<Variant> for &str {
    fn from(variant: Variant) -> Self {
        variant.name()
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
