//! The benchmark `service`: a real service under load, on Morpheus and on tokio.
//!
//! The example `http_service` calls SQLite and argon2 in its async handlers. It is started as it is on Morpheus and, with
//! another attribute on its main, on tokio; on tokio with more workers, and as an expert tunes it; on tokio with its handlers
//! rewritten by hand; and on Morpheus with a layer that has the handlers watched, or built with `--cfg tokio_unstable`. Each is a
//! process of its own, driven over loopback: some clients keep it busy, others ask for `/ping` and `/db` meanwhile, and it is
//! those that are timed.
//!
//! `/ping` and `/db` are asked by a timetable: what is sent late, because the answer before it was late, counts from when it was
//! due, and what has no answer by the end counts with its age. The clients that keep the service busy are a closed loop: each
//! asks again once it has its answer, and of these only the rate counts.
//!
//! `config` reads the command line, `variant` names what is compared, `server` starts and ends it, `http`, `connections` and `load` are
//! its clients, `served` counts what these were served in the window, `run` does all of it in turns and makes rows of what they saw.

mod config;
mod connections;
mod http;
mod load;
mod run;
mod served;
mod server;
mod variant;

use std::process::ExitCode;

use clap::Parser;

pub use variant::Variant;

use morpheus_harness::{interrupt, report};

use config::Options;

/// Measures. Exit codes: 0 measured, 1 something could not be, 2 bad usage, 130 after Ctrl-C.
pub fn main() -> ExitCode {
    let options = Options::parse();
    interrupt::install();
    match run::measure(&options) {
        Ok(found) => found.conclude(options.json),
        Err(why) => report::failed("service", &why),
    }
}
