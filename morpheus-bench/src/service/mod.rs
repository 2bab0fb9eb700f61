//! The benchmark `service`: a real service under a real load generator, on Morpheus and on tokio.
//!
//! The example `http_service` calls SQLite and argon2 in its async handlers. It is started as it is on Morpheus and, with
//! another attribute on its main, on tokio; on tokio with more workers; on tokio with its handlers rewritten by hand; and on
//! Morpheus with a layer that has the handlers watched. Each is a process of its own, driven over loopback by wrk: some clients
//! keep it busy, others ask for `/ping` and `/db` meanwhile, and it is those that are timed.
//!
//! **wrk is a closed loop**: a connection that waits for an answer asks for nothing more. While a server stands still for a
//! second, eight connections ask it eight times instead of a thousand, and that second counts as eight slow answers. So `/ping` and `/db` are asked by a timetable (`load.lua`): what could not be sent because the answer
//! before it was late counts from when it was due, and what has no answer by the end counts with its age. How long answers took
//! from when they were sent, which is what a closed loop sees, stands beside it. The clients that keep the service busy are
//! a closed loop; of those only the rate counts. wrk gives up no request for being late: its timeout is longer than the run.
//!
//! `config` reads the command line, `variant` names what is compared, `server` starts and ends it, `wrk` is the load, `run`
//! does all of it in turns; `result` is what comes out, `table` shows it.

mod config;
mod result;
mod run;
mod server;
mod table;
mod variant;
mod wrk;

use std::process::ExitCode;

use clap::Parser;

pub use crate::report::WIDTH;
pub use config::Scene;
pub use result::{Asked, Ratio, Report, Run};
pub use variant::Variant;

use crate::report::Ended;
use crate::{interrupt, report};
use config::Options;

/// Measures. Exit codes: 0 measured, 1 something could not be, 2 bad usage or no wrk, 130 after Ctrl-C.
pub fn main() -> ExitCode {
    let options = Options::parse();
    let wrk = match wrk::version() {
        Ok(version) => version,
        Err(why) => {
            eprintln!("service: {why}");
            return ExitCode::from(2);
        }
    };
    interrupt::install();
    let measured = run::measure(&options, wrk);
    report::conclude("service", measured, options.json, table::render, |report| {
        Ended::of(report.interrupted, report.has_failures())
    })
}
