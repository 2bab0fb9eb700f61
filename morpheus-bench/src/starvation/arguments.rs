//! Values on the command line, and what is said when one is wrong.

use std::str::FromStr;

use morpheus_runtime::{Mechanism, UnknownMechanism};

use crate::executor::Runtime;

/// One name in `--runtime`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Choice {
    /// Each of them.
    All,
    /// This one.
    One(Runtime),
}

impl FromStr for Choice {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "all" => Ok(Self::All),
            name => name.parse().map(Self::One),
        }
    }
}

/// The mechanisms that one name stands for.
#[derive(Clone, Debug)]
pub struct Off(pub Vec<Mechanism>);

impl FromStr for Off {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        if name == "all" {
            return Ok(Self(Mechanism::ALL.to_vec()));
        }
        name.parse()
            .map(|mechanism| Self(vec![mechanism]))
            .map_err(|error: UnknownMechanism| format!("{error}, all"))
    }
}
