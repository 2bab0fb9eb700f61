//! The command line, of `morpheus-doctor` and of `scx_morpheus doctor`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgGroup, Args};

/// The examples and notes after the options in `--help`.
pub const AFTER_HELP: &str = "\
Try it:
  morpheus-doctor --name my-service                 until Ctrl-C: a live table, then the five worst lines
  morpheus-doctor --pid 4711 --duration 30s --html report.html
  morpheus-doctor --duration 10s -- ./my-service --port 8080
  morpheus-doctor --pid 4711 --folded long-polls.txt --duration 30s

The process is neither stopped nor changed, and needs no preparation: any build that uses tokio 1.20 or later. Lines need line tables
(`debug = \"line-tables-only\"` in `[profile.release]`), which cost nothing at run time; without them there are names of functions.

Rights: root, or CAP_BPF, CAP_PERFMON and CAP_SYS_PTRACE. Without them, as the user of the process, threads are sampled from /proc and by perf
events: lengths are right to some milliseconds, short polls are missed, and the report says so.

Exit codes:
  0  there is a report, also when it says that nothing is wrong
  1  there is none, and standard error says why: no such process, no tokio in it, no rights
  2  wrong arguments";

/// Find the line that blocks a running tokio process
#[derive(Clone, Debug, Args)]
#[group(skip)]
#[command(group(ArgGroup::new("process").required(true).args(["pid", "name", "command"])))]
pub struct Arguments {
    /// The process with this number
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub pid: Option<u32>,

    /// The process with this name
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,

    /// Start this program, and look at it until it ends
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<OsString>,

    /// Polls longer than this are long
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = threshold)]
    pub longer_than: Duration,

    /// For how long; until Ctrl-C without it
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Duration>,

    /// Print the report as JSON on standard output, in place of the summary
    #[arg(long)]
    pub json: bool,

    /// Write a page with a flame graph of the long polls and a time line of the workers
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,

    /// Write the stacks of long polls, a line each with microseconds, as flame-graph tools read them
    #[arg(long, value_name = "FILE")]
    pub folded: Option<PathBuf>,

    /// Sample /proc, also where BPF programs could be loaded
    #[arg(long)]
    pub no_bpf: bool,

    /// Print what libbpf says
    #[arg(long, short)]
    pub verbose: bool,
}

fn threshold(text: &str) -> Result<Duration, String> {
    let time = duration(text)?;
    let bounds = Duration::from_micros(200)..=Duration::from_secs(60);
    match bounds.contains(&time) {
        true => Ok(time),
        false => {
            Err("from 200us to 60s; shorter polls are too many to copy their stacks".to_owned())
        }
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    // A number alone is one of seconds.
    let time = match text.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())?,
        Err(_) => humantime::parse_duration(text)
            .map_err(|error| format!("{error}; for example 500us, 1ms, 30s, 5m"))?,
    };
    match time.is_zero() {
        true => Err("longer than nothing".to_owned()),
        false => Ok(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        assert_eq!(duration("3"), Ok(Duration::from_secs(3)));
        assert_eq!(duration("0.5"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        for wrong in ["", "0", "-1", "NaN", "inf", "1 parsec", "1e99"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
        assert_eq!(threshold("1ms"), Ok(Duration::from_millis(1)));
        assert!(threshold("10us").is_err());
        assert!(threshold("2h").is_err());
    }
}
