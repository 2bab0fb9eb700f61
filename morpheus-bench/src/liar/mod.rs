//! The benchmark `liar`: what honest critical sections cost, and what a task gets out of one that never ends.
//!
//! `config` reads the command line. `honest` computes the same work within sections and without, in pairs with a
//! control, and counts escalations meanwhile; `attack` puts a task on the runtime that is critical for ever, beside
//! more busy threads than there are CPUs, in turns with one that only computes for ever, and with none.

mod attack;
mod config;
mod honest;

use std::process::ExitCode;

use clap::Parser;

use morpheus_harness::envelope::Envelope;
use morpheus_harness::interrupt;

use crate::executor::Escalations;
use crate::neighbours;
use config::Options;

/// Measures. Exit codes: 0 measured, 1 failed, 2 bad usage, 130 after Ctrl-C.
pub fn main() -> ExitCode {
    neighbours::become_one_if_asked();
    let options = Options::parse();
    interrupt::install();
    let mut found = Envelope::new("liar", options.clone());
    let measured = measure(&options, &mut found);
    found.failed.extend(measured.err());
    found.conclude(options.json)
}

fn measure(options: &Options, found: &mut Envelope<Options>) -> Result<(), String> {
    honest::measure(options, found)?;
    match options.without_critical || options.honest_only {
        true => Ok(()),
        false => attack::measure(options, found),
    }
}

/// How often the runtime did something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counted {
    /// Asked to yield.
    requests: u64,
    /// Released a spare.
    takeovers: u64,
    /// Demoted.
    demotions: u64,
    /// Throttled.
    throttles: u64,
}

impl Counted {
    /// Between two readings.
    fn since(before: &Escalations, after: &Escalations) -> Self {
        Self {
            requests: after.requests.saturating_sub(before.requests),
            takeovers: after.takeovers.saturating_sub(before.takeovers),
            demotions: after.demotions.saturating_sub(before.demotions),
            throttles: after.throttles.saturating_sub(before.throttles),
        }
    }

    /// Demotions and throttling: none may happen in an honest section.
    fn slowed_down(&self) -> u64 {
        self.demotions + self.throttles
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escalations_are_what_came_between() {
        let of = |demotions, throttles| Escalations {
            demotions,
            throttles,
            ..Escalations::default()
        };
        let counted = Counted::since(&of(2, 1), &of(5, 5));
        assert_eq!((counted.slowed_down(), counted.requests), (7, 0));
    }
}
