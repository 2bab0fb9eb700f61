//! The benchmark `kernel`: Morpheus on the kernel's own scheduler, on another sched_ext scheduler, and on its own,
//! interleaved in one boot.
//!
//! `variant` changes who schedules the machine, `scene` measures by calling `starvation`, `table` says what
//! came out of it and judges it.

mod scene;
mod table;
mod variant;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;

use crate::host::Host;
use scene::{Figures, SCENES};
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

It changes the scheduler of the whole machine while it runs, and puts things back. Meant for a guest:
  cargo xtask vm --accel multi --timeout 3600 --add PATH/TO/scx_bpfland -- kernel

Exit codes: 0 measured, 1 something could not be measured, 2 bad usage.";

/// What Morpheus reaches under which scheduler.
#[derive(Debug, Parser)]
#[command(name = "kernel", version, after_help = MORE, max_term_width = 110)]
struct Options {
    /// Repeat everything, in the order A B B A …, and show medians
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u16).range(1..=1000))]
    rounds: u16,

    /// Seconds to measure, of each scene under each scheduler in each round
    #[arg(long, value_name = "S", default_value = "3", value_parser = seconds)]
    duration: f64,

    /// Only these schedulers (each by a word of its name)
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    only: Vec<String>,

    /// Print one JSON object a run, and nothing else
    #[arg(long)]
    json: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(s) if (0.1..=600.0).contains(&s) => Ok(s),
        _ => Err("a number from 0.1 to 600 is needed".into()),
    }
}

/// One run: who scheduled, what ran, what came out.
#[derive(Debug)]
struct Run {
    variant: usize,
    scene: usize,
    result: Result<Figures, String>,
}

/// Measures. Exit codes as in the help.
pub fn main() -> ExitCode {
    let options = Options::parse();
    // SAFETY: geteuid has no preconditions.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("kernel: changing the machine's scheduler needs root");
        return ExitCode::FAILURE;
    }
    let chosen: Vec<usize> = (0..VARIANTS.len())
        .filter(|&index| {
            let name = VARIANTS[index].name();
            options.only.is_empty() || options.only.iter().any(|word| name.contains(word.as_str()))
        })
        .collect();
    let mut runs = Vec::new();
    for round in 0..options.rounds {
        let mut order = chosen.clone();
        if round % 2 == 1 {
            order.reverse();
        }
        for index in order {
            measure(index, round, &options, &mut runs);
        }
    }
    if !options.json {
        println!("{}", Host::read().line(table::WIDTH));
        println!("{}", table::render(&chosen, &runs));
    }
    let failed = runs.iter().filter(|run| run.result.is_err()).count();
    ExitCode::from(u8::from(failed > 0 || runs.is_empty()))
}

/// All scenes under one scheduler.
fn measure(index: usize, round: u16, options: &Options, runs: &mut Vec<Run>) {
    let variant: &Variant = &VARIANTS[index];
    let in_force = variant.put_in_force();
    for (number, scene) in SCENES.iter().enumerate() {
        eprintln!("round {}: {}, {}", round + 1, variant.name(), scene.name);
        let result = match &in_force {
            Ok(scheduler) => scene
                .measure(variant.link(), options.duration)
                .and_then(|figures| scheduler.is_still_there().map(|()| figures)),
            Err(error) => Err(error.clone()),
        };
        if let Err(error) = &result {
            eprintln!("kernel: {}, {}: {error}", variant.name(), scene.name);
        }
        if options.json {
            println!("{}", table::json(variant, scene, round, &result));
        }
        runs.push(Run {
            variant: index,
            scene: number,
            result,
        });
    }
}

/// A program that stands beside this one, or in the path.
fn program(name: &str) -> PathBuf {
    std::env::current_exe()
        .ok()
        .and_then(|own| own.parent().map(|directory| directory.join(name)))
        .filter(|path| path.exists())
        .unwrap_or_else(|| Path::new(name).to_owned())
}
