// SPDX-License-Identifier: GPL-2.0-only
//! The daemon `scx_morpheus`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use morpheus_bpf::broker::{self, Broker, Listener, Statistics};
use morpheus_bpf::check::{self, Verdict};
use morpheus_bpf::observer::{self, Observer};
use morpheus_bpf::peer;
use morpheus_bpf::session::Limits;
use morpheus_bpf::signals::StopSignals;
use morpheus_bpf::status;
use morpheus_common::abi;
use morpheus_common::broker::{DEFAULT_SOCKET, SOCKET_VARIABLE};

const AFTER_HELP: &str = "\
Exit codes:
  0  the daemon was told to stop (SIGINT, SIGTERM); check: nothing is missing; status: a daemon answers
  1  something failed, and standard error says what; check: something is missing; status: no daemon answers
  2  wrong arguments";

/// The kernel side of Morpheus: tells the workers of an application when one blocks or computes for too long in a poll
#[derive(Parser)]
#[command(version, after_help = AFTER_HELP)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,

    /// Observe only, with tracing programs, and leave the scheduling to the kernel
    #[arg(long)]
    observe: bool,

    /// The socket where applications connect
    #[arg(long, value_name = "PATH", env = SOCKET_VARIABLE, default_value = DEFAULT_SOCKET, global = true)]
    socket: PathBuf,

    /// How often a worker that runs is looked at: a stuck poll is found at most so much later than its budget
    #[arg(long, value_name = "N", default_value_t = 250, value_parser = clap::value_parser!(u32).range(50..=100_000))]
    timer_period_us: u32,

    /// How many processes may be connected
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=65_536))]
    processes: u32,

    /// How many processes of one user (but root) may be connected; half of all if not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    processes_per_user: Option<u32>,

    /// How many slots a process may have
    #[arg(long, value_name = "N", default_value_t = abi::MORPHEUS_MAX_SLOTS,
          value_parser = clap::value_parser!(u32).range(1..=i64::from(abi::MORPHEUS_MAX_SLOTS)))]
    slots: u32,

    /// How many requests a connection may send in a second, when it has used up its burst
    #[arg(long, value_name = "N", default_value_t = Limits::default().requests_per_second)]
    requests_per_second: u32,

    /// Print a line of statistics every so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    stats: Option<u32>,

    /// Say who connects and is refused, and what libbpf does
    #[arg(short, long)]
    verbose: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Say whether this machine has what the daemon needs
    Check,
    /// Say whether a daemon answers at the socket
    Status {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match arguments.command {
        Some(Command::Check) => run_check(),
        Some(Command::Status { json }) => run_status(&arguments.socket, json),
        None if arguments.observe => match observe(&arguments) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("scx_morpheus: {error}");
                ExitCode::FAILURE
            }
        },
        None => {
            eprintln!(
                "scx_morpheus: there is nothing to run yet without --observe: this version observes and does not \
                 schedule (scx_morpheus --help)"
            );
            ExitCode::from(2)
        }
    }
}

fn run_check() -> ExitCode {
    let findings = check::all();
    for finding in &findings {
        println!("{finding}");
    }
    if findings
        .iter()
        .any(|finding| finding.verdict == Verdict::Missing)
    {
        println!(
            "scx_morpheus --observe cannot run here; the runtime works without it, with its watchdog"
        );
        ExitCode::FAILURE
    } else {
        println!("scx_morpheus --observe can run here");
        ExitCode::SUCCESS
    }
}

fn run_status(socket: &std::path::Path, json: bool) -> ExitCode {
    let status = status::ask(socket);
    if json {
        let value = serde_json::json!({
            "socket": socket.to_string_lossy(),
            "status": status.word(),
            "well": status.is_well(),
        });
        println!("{value}");
    } else {
        println!("{}: {}", socket.display(), status.sentence());
    }
    if status.is_well() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

fn observe(arguments: &Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let stop = StopSignals::catch()?;
    raise_descriptor_limit();
    // The socket comes first: a second daemon finds out before it has attached anything.
    let listener = Listener::bind(&arguments.socket)?;
    let observer = Observer::attach(observer::Options {
        period_ns: u64::from(arguments.timer_period_us) * 1000,
        leases: arguments.processes,
        verbose: arguments.verbose,
    })?;
    let options = broker::Options {
        processes: arguments.processes as usize,
        processes_per_user: arguments
            .processes_per_user
            .unwrap_or(arguments.processes.div_ceil(2)) as usize,
        limits: Limits {
            slots: arguments.slots,
            requests_per_second: arguments.requests_per_second,
            ..Limits::default()
        },
        statistics: arguments
            .stats
            .map(|seconds| Duration::from_secs(seconds.into())),
        verbose: arguments.verbose,
    };
    let threads = if peer::threads_have_pidfds() {
        ""
    } else {
        "; this kernel has no pidfds of threads, which are looked up by their numbers instead (slower)"
    };
    eprintln!(
        "scx_morpheus: observing; applications connect at {}{threads}",
        listener.path().display()
    );
    Broker::new(listener, options, observer, print_statistics).run(&stop)?;
    eprintln!("scx_morpheus: stopped");
    Ok(())
}

fn print_statistics(observer: &Observer, statistics: Statistics) {
    let counters = observer.counters();
    println!(
        "processes {}, workers {}, events {} ({} lost), requests {}, refused {}, unseen switches {}",
        statistics.processes,
        statistics.workers,
        counters.events,
        counters.events_lost,
        counters.requests,
        statistics.refused,
        counters.unseen,
    );
}

/// Each connection takes two descriptors. Where the limit cannot be raised, connections wait to be accepted.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}
