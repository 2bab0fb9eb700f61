//! `cargo xtask ablation`: what each feature of the scheduler is good for, in guests that have what it is about.
//!
//! The benchmark `scale` knows the loads of each feature and the machine for them; this boots it with a seed for each boot, all in
//! virtual time, so that what is compared shares a boot and nothing depends on the host.

use std::fs;
use std::io;
use std::process::{Command, ExitCode};

use clap::Args;
use serde_json::Value;

use crate::context::Context;
use crate::interrupt;
use crate::rounds::{self, Clock, Plan};
use crate::suite;

/// Fewer pairs give no verdict (`morpheus-harness/src/pairs.rs`).
const BOOTS: u16 = 10;
/// A boot with all features under all loads takes a few minutes.
const LIMIT_S: u64 = 3_600;
/// Of the files that both have: the records below the target directory, and the figures.
const NAME: &str = "ablation";

/// Which features to try.
#[derive(Clone, Debug, Args)]
pub(crate) struct AblationArgs {
    /// Only these features; `scx_morpheus --help` lists them
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    feature: Vec<String>,
    /// How many boots of each guest: ten pairs are the fewest that say anything
    #[arg(long, value_name = "N", default_value_t = BOOTS, value_parser = clap::value_parser!(u16).range(1..=100))]
    boots: u16,
    /// CPUs of every guest, in place of those that each feature needs
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64))]
    cpus: Option<u16>,
    /// Also under loads that a feature was not made for, to see what it costs there
    #[arg(long)]
    elsewhere: bool,
    /// Under these cases of `scale` in place of those that each feature was made for
    #[arg(long, value_name = "CASE,…", value_delimiter = ',')]
    only: Vec<String>,
    /// Seconds of each measurement, in the guest's time
    #[arg(long, value_name = "S", default_value_t = 2.0)]
    duration: f64,
    /// The kernel: a series or a file, as of `cargo xtask vm`
    #[arg(long, value_name = "SERIES|PATH", default_value = "6.18")]
    kernel: String,
    /// Print what was found as one JSON object, in place of the table
    #[arg(long)]
    json: bool,
    /// Write it to figures/ablation.json as well, and fill the tables of the documents
    #[arg(long)]
    figures: bool,
}

/// A guest, and the features that are tried in it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Guest {
    cpus: u16,
    caches: u16,
    features: String,
}

/// Measures; ends with 0, with 1 when something could not be measured, with 2 for a feature without a load, with 130 after Ctrl-C
/// (with a table of the boots until then).
pub(crate) fn run(context: &Context, args: &AblationArgs) -> ExitCode {
    interrupt::listen();
    let guests = match guests(context, args) {
        Ok(Ok(guests)) => guests,
        Ok(Err(code)) => return code,
        Err(error) if error.kind() == io::ErrorKind::Interrupted => {
            return ExitCode::from(interrupt::EXIT_CODE);
        }
        Err(error) => {
            eprintln!("{NAME}: {error}");
            return ExitCode::FAILURE;
        }
    };
    let code = rounds::run(context, &plan(args, guests));
    if !args.figures || code != ExitCode::SUCCESS {
        return code;
    }
    match write_figures(context) {
        Ok(()) => suite::fill(context),
        Err(error) => {
            eprintln!("{NAME}: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Asks the benchmark which guests it needs. The inner error is its own exit code.
fn guests(context: &Context, args: &AblationArgs) -> io::Result<Result<Vec<Guest>, ExitCode>> {
    rounds::build(context, NAME)?;
    let option = format!("--ablation={}", args.feature.join(","));
    let mut scale = Command::new(context.target.join("release/scale"));
    let answer = scale.args([&option, "--guests"]).output()?;
    if !answer.status.success() {
        eprint!("{}", String::from_utf8_lossy(&answer.stderr));
        let code = answer
            .status
            .code()
            .and_then(|code| u8::try_from(code).ok());
        return Ok(Err(code.map_or(ExitCode::FAILURE, ExitCode::from)));
    }
    let value: Value = serde_json::from_slice(&answer.stdout).map_err(io::Error::other)?;
    let guests = read(&value).ok_or_else(|| {
        io::Error::other(format!(
            "scale --guests says {value}, which is no list of guests"
        ))
    })?;
    Ok(Ok(guests))
}

fn read(value: &Value) -> Option<Vec<Guest>> {
    let guest = |value: &Value| {
        let size = |name: &str| u16::try_from(value["machine"][name].as_u64()?).ok();
        let features = value["features"].as_array()?.iter();
        let features: Option<Vec<&str>> = features.map(Value::as_str).collect();
        Some(Guest {
            cpus: size("cpus")?,
            caches: size("caches")?,
            features: features?.join(","),
        })
    };
    value.as_array()?.iter().map(guest).collect()
}

fn plan(args: &AblationArgs, guests: Vec<Guest>) -> Plan {
    let count = guests.len() as u16;
    // All guests once, and again: what was measured before a Ctrl-C is of all of them.
    let (guest, boot) = (
        move |round: u16| usize::from((round - 1) % count),
        move |round: u16| (round - 1) / count + 1,
    );
    let (sized, split, cpus) = (guests.clone(), guests.clone(), args.cpus);
    let mut more: Vec<String> = vec!["--duration".into(), args.duration.to_string()];
    more.extend(args.elsewhere.then(|| "--elsewhere".into()));
    if !args.only.is_empty() {
        more.extend(["--only".into(), args.only.join(",")]);
    }
    Plan {
        bench: "scale",
        name: NAME,
        rounds: args.boots * count,
        kernel: args.kernel.clone(),
        cpus: Box::new(move |round| cpus.unwrap_or(sized[guest(round)].cpus)),
        caches: Box::new(move |round| split[guest(round)].caches),
        seed: Box::new(move |round| boot(round).into()),
        clock: Clock::VIRTUAL,
        complaints_count: false,
        limit_s: LIMIT_S,
        peers: Vec::new(),
        arguments: Box::new(move |round| {
            let (boot, features) = (boot(round).to_string(), &guests[guest(round)].features);
            let option = format!("--ablation={features}");
            let words = ["--iterations", "1", "--first-iteration", &boot, &option];
            let words = words.into_iter().map(Into::into);
            words.chain(more.iter().map(Into::into)).collect()
        }),
        table: Vec::from_iter(args.json.then(|| "--json".into())),
    }
}

/// The same as `--json` prints.
fn write_figures(context: &Context) -> io::Result<()> {
    let records = context.target.join(format!("{NAME}.jsonl"));
    let mut scale = Command::new(context.target.join("release/scale"));
    let found = scale.args(["--json", "--from"]).arg(&records).output()?;
    if found.stdout.is_empty() {
        return Err(io::Error::other(
            String::from_utf8_lossy(&found.stderr).into_owned(),
        ));
    }
    let path = suite::figures_directory(context).join(format!("{NAME}.json"));
    fs::write(path, found.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: AblationArgs,
    }

    fn parse(line: &str) -> AblationArgs {
        let words = std::iter::once(NAME).chain(line.split_whitespace());
        Line::parse_from(words).args
    }

    fn two() -> Vec<Guest> {
        let answer = serde_json::json!([
            {"machine": {"cpus": 2, "caches": 1}, "features": ["tiers", "rescue"]},
            {"machine": {"cpus": 4, "caches": 2}, "features": ["steal"]},
        ]);
        read(&answer).unwrap()
    }

    #[test]
    fn guests_are_as_the_benchmark_says() {
        let [small, large] = &two()[..] else {
            panic!("two");
        };
        assert_eq!((small.cpus, small.features.as_str()), (2, "tiers,rescue"));
        assert_eq!((large.cpus, large.caches), (4, 2));
        assert_eq!(read(&serde_json::json!([{"machine": {}}])), None);
        assert_eq!(read(&Value::Null), None);
    }

    #[test]
    fn every_guest_is_booted_with_each_seed() {
        let plan = plan(&parse("--boots 3 --elsewhere --only pipe --json"), two());
        assert_eq!((plan.rounds, plan.clock), (6, Clock::VIRTUAL));
        let of = |round| ((plan.cpus)(round), (plan.caches)(round), (plan.seed)(round));
        assert_eq!(
            [1, 2, 5, 6].map(of),
            [(2, 1, 1), (4, 2, 1), (2, 1, 3), (4, 2, 3)]
        );
        let expected = "--iterations 1 --first-iteration 3 --ablation=steal --duration 2 --elsewhere --only pipe";
        assert!((plan.arguments)(6).iter().eq(expected.split(' ')));
        assert_eq!(plan.table, ["--json"]);
    }

    #[test]
    fn all_guests_may_have_as_many_cpus() {
        let plan = plan(&parse("--cpus 8"), two());
        assert_eq!(((plan.cpus)(1), (plan.cpus)(2), plan.rounds), (8, 8, 20));
    }
}
