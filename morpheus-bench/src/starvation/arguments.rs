//! Values on the command line, and what is said when one is wrong.

use std::str::FromStr;

use morpheus_runtime::Mechanism;

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
        let known = Mechanism::ALL
            .into_iter()
            .find(|known| known.to_string() == name);
        known.map(|mechanism| Self(vec![mechanism])).ok_or_else(|| {
            let known = Mechanism::ALL.map(|known| known.to_string()).join(", ");
            format!("unknown mechanism '{name}': there are {known} and all")
        })
    }
}

/// A parser for whole numbers within bounds.
pub fn counted(
    least: usize,
    most: usize,
) -> impl Fn(&str) -> Result<usize, String> + Clone + Send + Sync + 'static {
    move |text: &str| match text.parse::<usize>() {
        Ok(n) if (least..=most).contains(&n) => Ok(n),
        _ => Err(format!("a whole number from {least} to {most} is needed")),
    }
}

/// A parser for numbers within bounds.
pub fn measured(
    least: f64,
    most: f64,
) -> impl Fn(&str) -> Result<f64, String> + Clone + Send + Sync + 'static {
    move |text: &str| match text.parse::<f64>() {
        Ok(x) if (least..=most).contains(&x) => Ok(x),
        _ => Err(format!("a number from {least} to {most} is needed")),
    }
}
