//! An unchanged axum server with a handler that hashes passwords itself, on several runtimes.
//!
//! ```text
//! cargo run --release --example axum_hog
//! ```
//!
//! `app` is the application, `variant` starts it, `http` and `load` are its clients, `child` measures one
//! variant in a process of its own, and `figures` and `print` show the result. `--help` says what is
//! measured.

mod app;
mod child;
mod figures;
mod http;
mod load;
mod options;
mod print;
mod variant;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use clap::Parser;
use examples::password::Hash;
use morpheus_bench::host::Host;
use morpheus_bench::report;
use serde_json::json;

use figures::{Ratios, Run};
use options::Options;

/// Exit codes: 0 measured, 1 a variant failed, 2 bad usage.
fn main() -> ExitCode {
    let options = Options::parse();
    if let Some(variant) = options.child {
        child::main(&options, variant);
    }
    if cfg!(debug_assertions) {
        eprintln!("This build is not optimized, and a hash takes much longer: use --release.");
    }
    // Before the load begins.
    let host = Host::read();
    let hash = match Hash::calibrate(options.hash_ms) {
        Ok(hash) => hash,
        Err(why) => {
            eprintln!("axum_hog: cannot hash a password: {why}");
            return ExitCode::FAILURE;
        }
    };
    let runs = measure(&options, hash.passes);
    let medians = figures::medians(&runs);
    let text = if options.json {
        as_json(&options, &host, &hash, &runs, &medians)
    } else {
        as_text(&options, &host, &hash, &medians)
    };
    // A reader that closes the pipe has seen enough: this is no error.
    let _ = writeln!(io::stdout(), "{text}");
    ExitCode::from(u8::from(runs.iter().any(|run| run.failed.is_some())))
}

/// Measures all variants in all rounds.
fn measure(options: &Options, passes: u32) -> Vec<Run> {
    let mut runs = Vec::new();
    for round in 1..=options.rounds {
        let mut variants = options.variants();
        // A B B A …: a machine that slows down over time then favours no variant.
        if round % 2 == 0 {
            variants.reverse();
        }
        for variant in variants {
            let text = format!("round {round} of {}: {} ", options.rounds, variant.name());
            progress(&format!("\r\x1b[2K{text}"));
            runs.push(child::run(options, variant, passes, || progress(".")));
        }
    }
    progress("\r\x1b[2K");
    runs
}

/// Prints progress on stderr.
fn progress(text: &str) {
    if io::stderr().is_terminal() {
        eprint!("{text}");
    }
}

fn as_text(options: &Options, host: &Host, hash: &Hash, medians: &[Run]) -> String {
    format!(
        "{}\n{}\n\n{}\n{}\n{}",
        host.line(print::WIDTH),
        report::wrap(&print::title(options, hash), print::WIDTH),
        print::table(options.work, medians),
        print::ratios(&Ratios::of(medians)),
        report::wrap(&print::sentence(options, medians), print::WIDTH),
    )
}

fn as_json(options: &Options, host: &Host, hash: &Hash, runs: &[Run], medians: &[Run]) -> String {
    let object = json!({
        "bench": "axum_hog",
        "host": host,
        "config": {
            "workers": options.workers(),
            "work": options.work,
            "clients": options.clients,
            "hash_passes": hash.passes,
            "hash_cpu_ns": hash.cpu.as_nanos() as u64,
            "pings_per_s": load::PINGS_PER_S,
            "duration_s": options.duration,
            "warmup_s": options.warmup,
            "rounds": options.rounds,
        },
        "runs": runs,
        "medians": medians,
        "ratios": Ratios::of(medians),
    });
    object.to_string()
}
