// SPDX-License-Identifier: GPL-2.0-only
//! The command line of `scx_morpheus`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand, ValueEnum};
use morpheus_bpf::adapt::knobs::AffinityMode;
use morpheus_bpf::broker;
use morpheus_bpf::observer;
use morpheus_bpf::procdb;
use morpheus_bpf::quota;
use morpheus_bpf::reporter::Plan;
use morpheus_bpf::scheduler::{self, Mechanism};
use morpheus_bpf::session::{self, Limits};
use morpheus_common::abi;
use morpheus_common::broker::{DEFAULT_SOCKET, SOCKET_VARIABLE};

use crate::commands::Operator;

const AFTER_HELP: &str = "\
Try it:
  scx_morpheus check             say whether this machine can be scheduled, and what to do where not
  scx_morpheus                   schedule; Ctrl-C gives the machine back to the kernel's own scheduler
  scx_morpheus top               in another terminal: what it does, and for whom
  scx_morpheus --monitor 1       in another terminal: what it does, once a second
  scx_morpheus install --dry-run list the files that make a service of it; without --dry-run, write them
  scx_morpheus --observe         on a kernel without sched_ext: see and tell, and schedule nothing

Applications connect by themselves where they find the socket; MORPHEUS_SOCKET names another one.

Exit codes:
  0  it was told to stop (SIGINT, SIGTERM); check: nothing is missing; status: a daemon answers
  1  something failed, and standard error says what; check: something is missing; status: no daemon answers
  2  wrong arguments
  3  the kernel took the scheduler out by SysRq-S, or five times in ten minutes (a task that waited too long, an error), and
     standard error says why; the kernel's own scheduler schedules again. Before the fifth time the daemon starts it again,
     after 1, 2, 4 and 8 seconds";

/// Schedules the machine, and tells the workers of applications when one blocks or computes for too long in a poll
#[derive(Debug, Parser)]
#[command(name = "scx_morpheus", version, after_help = AFTER_HELP, disable_version_flag = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Option<Command>,

    /// Observe only, with tracing programs, and leave the scheduling to the kernel: needs no sched_ext
    #[arg(long)]
    pub(crate) observe: bool,

    /// How the scheduler treats stalled workers
    #[arg(long, value_enum, default_value_t = Mode::Enforce, conflicts_with = "observe")]
    pub(crate) mode: Mode,

    /// The socket where applications connect
    #[arg(long, value_name = "PATH", env = SOCKET_VARIABLE, default_value = DEFAULT_SOCKET, global = true)]
    pub(crate) socket: PathBuf,

    /// How long a task may run while others wait, before they are considered
    #[arg(long, value_name = "N", default_value_t = 4000, value_parser = clap::value_parser!(u32).range(100..=1_000_000))]
    slice_us: u32,

    /// How long a worker may run while others wait that have had less; seen at its next sample
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(50..=1_000_000))]
    worker_slice_us: u32,

    /// The most that a poll may compute before it is stalled; an application may ask for less
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(100..=60_000_000))]
    budget_us: u32,

    /// The most that it may then take to answer a request; an application may ask for less
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(0..=60_000_000))]
    grace_us: u32,

    /// How long a critical section may go on when its slice is over
    #[arg(long, value_name = "N", default_value_t = 500, value_parser = clap::value_parser!(u32).range(10..=10_000))]
    critical_extension_us: u32,

    /// How often a running worker is sampled: a stalled poll is found at most this time after its budget
    #[arg(long, value_name = "N", default_value_t = 250, value_parser = clap::value_parser!(u32).range(50..=100_000))]
    timer_period_us: u32,

    /// Schedule only tasks of the policy SCHED_EXT. All others go before them, whatever they do
    #[arg(long)]
    partial: bool,

    /// How much of the kernel's dump to keep for when it takes the scheduler out; 0 is the kernel's own choice
    #[arg(long, value_name = "BYTES", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=1 << 24))]
    exit_dump_len: u32,

    /// Switch a mechanism off, to see what it is good for (may be repeated)
    #[arg(
        long = "without",
        visible_alias = "off",
        value_name = "MECHANISM",
        value_enum,
        value_delimiter = ',',
        conflicts_with = "observe",
        hide_possible_values = false
    )]
    off: Vec<Mechanism>,

    /// Switch on a mechanism that is off by default, as --without says of some (may be repeated); --without wins
    #[arg(
        long = "with",
        value_name = "MECHANISM",
        value_enum,
        value_delimiter = ',',
        conflicts_with = "observe",
        hide_possible_values = true
    )]
    on: Vec<Mechanism>,

    /// Let tasks of this name (/proc/PID/comm) go first always, as compositors do (may be repeated)
    #[arg(long, value_name = "NAME", conflicts_with = "observe", value_parser = task_name)]
    boost: Vec<String>,

    /// Let the formulas count with N CPUs, in place of those that are online
    #[arg(long, value_name = "N", conflicts_with = "observe", value_parser = clap::value_parser!(u32).range(1..=8192))]
    nr_cpus: Option<u32>,

    /// How far a task that wakes may go from its last CPU, where CPUs share second-level caches. Without this, weak; with
    /// --with adapt, as the load is
    #[arg(long, value_name = "MODE", value_enum, conflicts_with = "observe")]
    affinity: Option<AffinityMode>,

    /// Where to keep what was learnt of processes, for the next start
    #[arg(long, value_name = "FILE", default_value = procdb::DEFAULT_PATH)]
    procdb: PathBuf,

    /// Keep nothing of that
    #[arg(long)]
    no_procdb: bool,

    /// How many processes may be connected
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    processes: u32,

    /// How many processes of one user (but root) may be connected; half of all if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    processes_per_user: Option<u32>,

    /// How much of the kernel's memory all users (but root) may hold together, for slots and events; one user alone may hold
    /// half. It counts until no process has it mapped any more
    #[arg(long, value_name = "MIB", default_value_t = 48, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    users_memory: u32,

    /// How many slots a process may have
    #[arg(long, value_name = "N", default_value_t = abi::MORPHEUS_MAX_SLOTS,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(abi::MORPHEUS_MAX_SLOTS)))]
    slots: u32,

    /// How many requests a connection may send in a second, when it has used up its burst
    #[arg(long, value_name = "N", default_value_t = Limits::default().requests_per_second)]
    requests_per_second: u32,

    /// Schedule, and print a line every SECONDS seconds: what happened since the one before, per second
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    stats: Option<u32>,

    /// Write the statistics for Prometheus to a file, again and again; the textfile collector of its node exporter reads
    /// files that end in .prom
    #[arg(long, value_name = "FILE")]
    prometheus: Option<PathBuf>,

    /// How often to write that file
    #[arg(long, value_name = "SECONDS", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    prometheus_interval: u32,

    /// Record the statistics in a file of fixed size (630 KiB): by the second for an hour, by the minute for a day.
    /// `scx_morpheus top` shows them as curves, `scx_morpheus history FILE` prints them
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,

    /// Print what the daemon that runs does, every SECONDS seconds, and schedule nothing
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..), conflicts_with_all = ["stats", "observe", "prometheus", "history"])]
    pub(crate) monitor: Option<u32>,

    /// Say who connects and is refused, and what libbpf does
    #[arg(short, long)]
    pub(crate) verbose: bool,

    /// Print the version
    #[arg(short = 'V', long, action = clap::ArgAction::Version)]
    version: Option<bool>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Say whether this machine has what the daemon needs, and what to do where not; with --observe before it, what that needs
    Check,
    /// Say whether a daemon answers at the socket, and what it has counted
    Status {
        /// As JSON
        #[arg(long)]
        json: bool,
        /// As Prometheus's text
        #[arg(long, conflicts_with = "json")]
        prometheus: bool,
    },
    /// Start the daemon: systemd's unit where it is installed (its options are in /etc/default/scx_morpheus), else here
    ///
    /// Where it runs here, what the kernel logs of sched_ext meanwhile, and the kernel's report when it takes the scheduler
    /// out, is in kernel.log of the log directory: at most 1 MiB, and four older files. Under systemd the journal has it.
    Start {
        /// Where to keep the log of a daemon that runs here; /var/log/scx_morpheus if not given
        #[arg(long, value_name = "DIRECTORY")]
        log_dir: Option<PathBuf>,
    },
    /// Find the line that blocks a running tokio process; needs no daemon, and neither Morpheus nor sched_ext
    #[command(after_help = morpheus_doctor::arguments::AFTER_HELP)]
    Doctor(morpheus_doctor::arguments::Arguments),
    #[command(flatten)]
    Operator(Operator),
}

/// The treatment of stalled workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mode {
    /// See, tell, demote and throttle
    Enforce,
    /// See and tell
    Observe,
}

/// A task's name has an end: what is longer would never be found.
fn task_name(text: &str) -> Result<String, String> {
    match text.len() {
        0 => Err("a task's name is not empty".to_owned()),
        1..=scheduler::NAME_MOST => Ok(text.to_owned()),
        _ => Err(format!(
            "the kernel keeps {} bytes of a task's name: \"{}\" is what /proc/PID/comm would say",
            scheduler::NAME_MOST,
            String::from_utf8_lossy(&text.as_bytes()[..scheduler::NAME_MOST])
        )),
    }
}

fn ns(us: u32) -> u64 {
    u64::from(us) * 1000
}

impl Arguments {
    pub(crate) fn observer(&self) -> observer::Options {
        observer::Options {
            period_ns: ns(self.timer_period_us),
            leases: self.processes,
            verbose: self.verbose,
        }
    }

    pub(crate) fn scheduler(&self) -> scheduler::Options {
        scheduler::Options {
            period_ns: ns(self.timer_period_us),
            slice_ns: ns(self.slice_us),
            worker_slice_ns: ns(self.worker_slice_us),
            extension_ns: ns(self.critical_extension_us),
            leases: self.processes,
            enforce: self.mode == Mode::Enforce,
            partial: self.partial,
            exit_dump_bytes: self.exit_dump_len,
            off: self.switched_off(),
            boosts: self.boost.clone(),
            cpus: self.nr_cpus,
            affinity: self.affinity,
            procdb: (!self.no_procdb).then(|| self.procdb.clone()),
            verbose: self.verbose,
        }
    }

    /// The mechanisms that --without names, and those that are off by default and not named by --with.
    fn switched_off(&self) -> Vec<Mechanism> {
        let unasked = scheduler::OFF_BY_DEFAULT
            .into_iter()
            .filter(|mechanism| !self.on.contains(mechanism) && !self.off.contains(mechanism));
        self.off.iter().copied().chain(unasked).collect()
    }

    pub(crate) fn quota(&self) -> quota::Limits {
        quota::Limits {
            processes: self.processes as usize,
            processes_per_user: self
                .processes_per_user
                .unwrap_or(self.processes.div_ceil(2)) as usize,
            users_bytes: u64::from(self.users_memory) << 20,
            // As many of the largest leases as there may be connections: no root's process is refused for its memory
            // unless others of root's keep what they had.
            root_bytes: u64::from(self.processes) * session::lease_bytes(self.slots),
            ..quota::Limits::default()
        }
    }

    pub(crate) fn broker(&self) -> broker::Options {
        broker::Options {
            limits: Limits {
                slots: self.slots,
                requests_per_second: self.requests_per_second,
                budget_ns: ns(self.budget_us),
                grace_ns: ns(self.grace_us),
                ..Limits::default()
            },
            reports: Plan {
                lines: self
                    .stats
                    .map(|seconds| Duration::from_secs(seconds.into())),
                file: self.prometheus.clone(),
                file_interval: Duration::from_secs(self.prometheus_interval.into()),
                history: self.history.clone(),
            },
            verbose: self.verbose,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn names_that_no_task_can_have_are_refused() {
        assert_eq!(task_name("gamescope").unwrap(), "gamescope");
        assert!(task_name("").is_err());
        let error = task_name("a-name-that-is-too-long").unwrap_err();
        assert!(error.contains("\"a-name-that-is-\""), "{error}");
    }

    #[test]
    fn microseconds_become_nanoseconds() {
        let arguments =
            Arguments::parse_from(["scx_morpheus", "--slice-us", "2000", "--off", "demote"]);
        assert_eq!(arguments.scheduler().slice_ns, 2_000_000);
        assert!(arguments.scheduler().enforce);
        assert_eq!(arguments.broker().limits.budget_ns, 1_000_000_000);
    }

    #[test]
    fn some_mechanisms_are_off_unless_asked_for() {
        let off = |arguments: &[&str]| {
            let program = ["scx_morpheus"];
            Arguments::parse_from(program.iter().chain(arguments))
                .scheduler()
                .off
        };
        let by_default = scheduler::OFF_BY_DEFAULT;
        assert_eq!(off(&[]), by_default);
        assert_eq!(off(&["--with", "kick"]), by_default);
        let values = by_default.map(|mechanism| mechanism.to_possible_value().unwrap());
        let names: Vec<&str> = values.iter().map(|value| value.get_name()).collect();
        assert_eq!(off(&["--with", &names.join(",")]), []);
        let others = by_default
            .iter()
            .filter(|other| **other != Mechanism::Deficit);
        let others: Vec<Mechanism> = others.copied().collect();
        assert_eq!(off(&["--with", "deficit"]), others);
        assert_eq!(off(&["--off", "demote"])[0], Mechanism::Demote);
        assert_eq!(off(&["--off", "demote"])[1..], by_default);
        let both = off(&["--with", "deficit", "--without", "deficit"]);
        assert!(both.contains(&Mechanism::Deficit));
        // And the help says so of each.
        for mechanism in Mechanism::value_variants() {
            let value = mechanism.to_possible_value().unwrap();
            let help = value.get_help().unwrap().to_string();
            assert_eq!(
                help.contains("unless --with"),
                by_default.contains(mechanism),
                "{help}"
            );
        }
    }
}
