//! An unchanged axum server with a handler that hashes passwords where it is called, on several runtimes.
//!
//! ```text
//! cargo run --release --example axum_hog
//! ```
//!
//! `app` is the application, `variant` starts it, `http` and `load` are its clients, `child` measures one
//! variant in a process of its own, and the rest is for reading the outcome. `--help` says what is measured.

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
use morpheus_bench::host::Host;
use morpheus_bench::{clock, report};
use serde_json::json;

use figures::{Ratios, Run};
use options::Options;
use variant::Variant;

/// Exit codes: 0 measured, 1 a variant failed, 2 bad usage.
fn main() -> ExitCode {
    let options = Options::parse();
    if let Some(variant) = options.child {
        child::main(&options, variant);
    }
    if cfg!(debug_assertions) {
        eprintln!("This build is not optimized, and a hash takes much longer: use --release.");
    }
    // Before there is any load of ours.
    let host = Host::read();
    let hash_ms = hash_ms();
    let runs = measure(&options);
    let medians = figures::medians(&runs);
    let text = if options.json {
        as_json(&options, &host, hash_ms, &runs, &medians)
    } else {
        as_text(&options, &host, hash_ms, &medians)
    };
    // A reader that closes the pipe has seen enough: no error.
    let _ = writeln!(io::stdout(), "{text}");
    ExitCode::from(u8::from(runs.iter().any(|run| run.failed.is_some())))
}

/// CPU time of one hash in milliseconds: the fastest of three, because the first meets cold memory.
fn hash_ms() -> f64 {
    let one = |_| {
        let before = clock::thread_cpu();
        let _ = app::hash("how long does it take");
        clock::thread_cpu() - before
    };
    let fastest = (0..3).map(one).min().unwrap_or_default();
    fastest.as_secs_f64() * 1e3
}

/// All variants in all rounds.
fn measure(options: &Options) -> Vec<Run> {
    let mut runs = Vec::new();
    for round in 1..=options.rounds {
        let mut variants = Variant::ALL;
        // A B B A …: a machine that gets slower over time then favours nobody.
        if round % 2 == 0 {
            variants.reverse();
        }
        for variant in variants {
            let text = format!("round {round} of {}: {} ", options.rounds, variant.name());
            progress(&format!("\r\x1b[2K{text}"));
            runs.push(child::run(options, variant, || progress(".")));
        }
    }
    progress("\r\x1b[2K");
    runs
}

/// On stderr, where a person looks.
fn progress(text: &str) {
    if io::stderr().is_terminal() {
        eprint!("{text}");
    }
}

fn as_text(options: &Options, host: &Host, hash_ms: f64, medians: &[Run]) -> String {
    format!(
        "{}\n{}\n\n{}\n{}\n{}",
        host.line(print::WIDTH),
        report::wrap(&print::title(options, hash_ms), print::WIDTH),
        print::table(medians),
        print::ratios(&Ratios::of(medians)),
        report::wrap(&print::sentence(options, medians), print::WIDTH),
    )
}

fn as_json(options: &Options, host: &Host, hash_ms: f64, runs: &[Run], medians: &[Run]) -> String {
    let object = json!({
        "bench": "axum_hog",
        "host": host,
        "config": {
            "workers": options.workers(),
            "hash_clients": options.hash_clients,
            "hash_cpu_ms": hash_ms,
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
