//! The benchmark `kernel`: Morpheus on the kernel's own scheduler, on another sched_ext scheduler, and on its own,
//! interleaved in one boot.
//!
//! `variant` changes who schedules the machine, `scene` measures by calling `starvation`, `record` writes a run
//! down, `table` says what came out of all of them and judges it.

mod record;
mod scene;
mod table;
mod variant;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;

use crate::host::Host;
use crate::{arguments, report, scx};
use record::{Record, Run};
use scene::SCENES;
use variant::{VARIANTS, Variant};

const MORE: &str = "\
What is compared, each in every round:
  default, lazy      the kernel's own scheduler, preempt=lazy; Morpheus with its watchdog
  default, full      the same with preempt=full
  scx_bpfland        that sched_ext scheduler, with the watchdog
  scx_morpheus       Morpheus's scheduler, which shares a control block with the runtime

What is measured: wakes and timers of Morpheus with 2 workers beside 2, 6 and 20 computing hogs of its own,
and one busy thread of another process for each CPU; and how many requests a server answers in the same scene
with 6 hogs and without.

It changes the scheduler of the whole machine while it runs, and puts things back. Meant for a guest. This boots
one for each round, and makes one table of all:
  cargo xtask kernel

Exit codes: 0 measured, 1 something could not be measured, 2 bad usage.";

/// What Morpheus reaches under which scheduler.
#[derive(Debug, Parser)]
#[command(name = "kernel", version, after_help = MORE, max_term_width = 110)]
struct Options {
    /// Repeat everything, in the order A B B A …, and show medians
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,

    /// Seconds to measure, of each scene under each scheduler in each round
    #[arg(long, value_name = "S", default_value = "3", value_parser = arguments::measured(0.1, 600.0))]
    duration: f64,

    /// Only these schedulers (each by a word of its name)
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    only: Vec<String>,

    /// The number of the first round, when others were measured elsewhere
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u16).range(1..=1000))]
    first_round: u16,

    /// Print one JSON object a run as soon as it is there, and nothing else
    #[arg(long)]
    json: bool,

    /// Measure nothing; show the table of what --json printed into these files
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["json", "duration", "rounds", "first_round"])]
    from: Vec<PathBuf>,
}

/// Measures. Exit codes as in the help.
pub fn main() -> ExitCode {
    let options = Options::parse();
    let chosen: Vec<&Variant> = VARIANTS
        .iter()
        .filter(|variant| {
            let name = variant.name();
            options.only.is_empty() || options.only.iter().any(|word| name.contains(word.as_str()))
        })
        .collect();
    let (host, runs) = if options.from.is_empty() {
        // SAFETY: geteuid has no preconditions.
        if unsafe { libc::geteuid() } != 0 {
            eprintln!("kernel: changing the machine's scheduler needs root");
            return ExitCode::FAILURE;
        }
        let host = Host::read();
        if options.json {
            Record::Host(host.clone()).print();
        }
        (Some(host), measure_all(&chosen, &options))
    } else {
        match record::read(&options.from) {
            Ok(read) => read,
            Err(error) => {
                eprintln!("kernel: {error}");
                return ExitCode::from(2);
            }
        }
    };
    if !options.json {
        if let Some(host) = host {
            println!("{}", host.line(report::WIDTH));
        }
        println!("{}", table::render(&chosen, &runs));
    }
    let failed = runs.iter().any(|run| run.failed.is_some());
    ExitCode::from(u8::from(failed || runs.is_empty()))
}

fn measure_all(chosen: &[&Variant], options: &Options) -> Vec<Run> {
    let mut runs = Vec::new();
    for round in (options.first_round - 1..).take(options.rounds.into()) {
        let mut order = chosen.to_vec();
        if round % 2 == 1 {
            order.reverse();
        }
        for variant in order {
            measure(variant, round, options, &mut runs);
        }
    }
    runs
}

/// All scenes under one scheduler.
fn measure(variant: &Variant, round: u16, options: &Options, runs: &mut Vec<Run>) {
    let mut in_force = variant.put_in_force();
    for scene in &SCENES {
        let result = match &mut in_force {
            Ok(scheduler) => scene
                .measure(variant.link(), options.duration)
                .and_then(|figures| scheduler.is_still_there().map(|()| figures)),
            Err(error) => Err(error.clone()),
        };
        let name = variant.name();
        match &result {
            Ok(figures) => eprintln!("round {}: {name}, {}: {figures}", round + 1, scene.name),
            Err(error) => eprintln!(
                "kernel: round {}: {name}, {}: {error}",
                round + 1,
                scene.name
            ),
        }
        let failed = result.as_ref().err().cloned();
        let record = Record::Run(Run {
            scheduler: name,
            scene: scene.name.into(),
            round,
            failed,
            figures: result.unwrap_or_default(),
        });
        if options.json {
            record.print();
        }
        if let Record::Run(run) = record {
            runs.push(run);
        }
    }
}

/// A program; where there is none, its name, for the message that says so.
fn program(name: &str) -> PathBuf {
    scx::find(name).unwrap_or_else(|| name.into())
}
