//! The gate `instructions`: how many instructions a spawn, a wake, a poll and a checkpoint take, on tokio and on Morpheus.
//!
//! Times on a shared machine tell a regression of one percent from nothing only after hours. Instructions do at once:
//! valgrind's callgrind counts them, one by one, and the same program takes as many in each run. It costs some seconds.
//!
//! Two things are in the way of exact counts, and both are dealt with. **Threads:** the controller and the main thread work
//! by time, so each thread is counted by itself, and the worker's is the one that counts; there is only one. Work that reaches
//! it by time is switched off: no spares, no canary, a budget that no poll uses up. **Work done once:** each operation is
//! done N times and then 2 N times; what these differ by is the operations alone. Of several such rounds the median is taken,
//! and how far they lie apart is said. **Memory:** the C library's allocator takes as long as what was allocated before makes
//! it; the binary has one that takes as long each time, so that the count is the runtime's own.
//!
//! The gate is on differences (Morpheus without tokio, watched without unwatched) against those in
//! `morpheus-bench/instructions.json`: absolute counts change with each compiler, differences hardly. The tolerance of a
//! difference is in `gate`. `--bless` writes that file.
//!
//! This runs valgrind by itself. `gungraun`, which does it for many projects, needs a second program, `gungraun-runner` of
//! exactly the same version, to be installed beside cargo: nothing that a fresh machine has after `cargo test`; and it
//! counts what one function does from its beginning to its end, where a spawn ends in another poll.
//!
//! `ops` has the operations, `callgrind` counts them, `gate` compares.

mod callgrind;
mod gate;
mod ops;

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use serde::Serialize;

use morpheus_harness::envelope::Envelope;
use morpheus_harness::{interrupt, report};

use gate::{Expected, Judged};

const MORE: &str = "\
Examples:
  instructions            counts, compares with what is expected, and says what differs; some seconds
  instructions --json     the same for programs
  instructions --bless    writes what was counted to instructions.json: the diff is part of the change

Needs valgrind (apt-get install valgrind). Build it with --release: other builds count something else.

Exit codes: 0 as expected or better, 1 something takes more, or could not be counted, 2 bad usage, 130 after Ctrl-C.";

/// How many instructions a spawn, a wake, a poll and a checkpoint take, on tokio and on Morpheus.
#[derive(Clone, Debug, Parser, Serialize)]
#[command(name = "instructions", version, after_help = MORE, max_term_width = 110)]
pub struct Options {
    /// Write what was counted as what is expected from now on
    #[arg(long)]
    pub bless: bool,

    /// The file of what is expected [default: the project's]
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub expected: Option<PathBuf>,

    /// Print one JSON object and nothing else
    #[arg(long)]
    #[serde(skip)]
    pub json: bool,

    /// Do the operations: how this program calls itself, under valgrind.
    #[arg(long, hide = true)]
    #[serde(skip)]
    pub child: bool,
}

impl Options {
    fn path(&self) -> PathBuf {
        let own = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("instructions.json");
        self.expected.clone().unwrap_or_else(own)
    }
}

/// Counts. Exit codes: 0 as expected or better, 1 more or not counted, 2 bad usage, 130 after Ctrl-C.
pub fn main() -> ExitCode {
    let options = Options::parse();
    if options.child {
        return match ops::run_all() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => report::failed("instructions", &error),
        };
    }
    interrupt::install();
    let found = count(&options);
    if interrupt::happened() {
        // Half of a count is none.
        eprintln!("instructions: ended early by Ctrl-C; nothing was counted to its end");
        return ExitCode::from(130);
    }
    let judged = match found {
        Ok(judged) => judged,
        Err(why) => return report::failed("instructions", &why),
    };
    let mut found = Envelope::new("instructions", options.clone());
    for row in &judged.rows {
        found.begin(
            &row.case,
            "instructions of one operation, on one worker, counted by callgrind",
        );
    }
    (found.rows, found.notes) = (judged.rows, judged.notes);
    found.print(options.json);
    report::exit_code(false, judged.takes_more)
}

fn count(options: &Options) -> Result<Judged, String> {
    if cfg!(debug_assertions) {
        return Err("this is a debug build: cargo run --release --bin instructions".into());
    }
    let path = options.path();
    let expected = match fs::read_to_string(&path) {
        Ok(text) => morpheus_harness::report::from_json::<Vec<Expected>>(&text)
            .map_err(|error| format!("{}: {error}", path.display()))?,
        Err(_) if options.bless => Vec::new(),
        Err(error) => return Err(format!("{}: {error}; --bless makes it", path.display())),
    };
    let counted = callgrind::count()?;
    let judged = Judged::new(&counted, &expected);
    if options.bless {
        let text = judged.as_expected();
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        return Ok(Judged::new(&counted, &judged.differences));
    }
    Ok(judged)
}
