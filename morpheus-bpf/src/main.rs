// SPDX-License-Identifier: GPL-2.0-only
//! The daemon `scx_morpheus`.

mod arguments;

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use clap::Parser;
use morpheus_bpf::broker::{self, Broker, Listener, Statistics};
use morpheus_bpf::check::{self, Finding, Verdict};
use morpheus_bpf::kernel::Counters;
use morpheus_bpf::observer::{self, Observer};
use morpheus_bpf::scheduler::{self, Scheduler};
use morpheus_bpf::signals::StopSignals;
use morpheus_bpf::status;

use arguments::{Arguments, Command};

/// The kernel took the scheduler out.
const EJECTED: u8 = 3;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match &arguments.command {
        Some(Command::Check) => return run_check(),
        Some(Command::Status { json }) => return run_status(&arguments.socket, *json),
        None if arguments.observe => observe(&arguments),
        None => schedule(&arguments),
    };
    result.unwrap_or_else(|error| {
        eprintln!("scx_morpheus: {error}");
        ExitCode::FAILURE
    })
}

fn run_check() -> ExitCode {
    let lacks = |findings: &[Finding]| {
        for finding in findings {
            println!("{finding}");
        }
        findings
            .iter()
            .any(|finding| finding.verdict == Verdict::Missing)
    };
    let observer_lacks = lacks(&check::observer());
    let scheduler_lacks = lacks(&check::scheduler());
    println!(
        "{}",
        match (observer_lacks, scheduler_lacks) {
            (true, _) =>
                "neither scx_morpheus nor scx_morpheus --observe can run here; the runtime works without, with its \
                 watchdog",
            (false, true) => "scx_morpheus --observe can run here, and the scheduler cannot",
            (false, false) => "scx_morpheus can run here, and scx_morpheus --observe",
        }
    );
    if observer_lacks || scheduler_lacks {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

fn run_status(socket: &Path, json: bool) -> ExitCode {
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

fn observe(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let stop = StopSignals::catch()?;
    raise_descriptor_limit();
    // The socket comes first: a second daemon finds out before it has attached anything.
    let listener = Listener::bind(&arguments.socket)?;
    let observer = observer::attach(arguments.observer())?;
    eprintln!(
        "scx_morpheus: observing; applications connect at {}",
        listener.path().display()
    );
    Broker::new(
        listener,
        arguments.broker(),
        observer,
        |observer: &Observer, statistics| {
            print_statistics(&observer.counters(), statistics);
        },
    )
    .run(&stop)?;
    eprintln!("scx_morpheus: stopped");
    Ok(ExitCode::SUCCESS)
}

/// Until it is told to stop, or the kernel ends it for good.
fn schedule(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let stop = StopSignals::catch()?;
    raise_descriptor_limit();
    let mut listener = Listener::bind(&arguments.socket)?;
    loop {
        let scheduler = scheduler::attach(&arguments.scheduler())?;
        eprintln!(
            "scx_morpheus: scheduling; applications connect at {}",
            listener.path().display()
        );
        let mut broker = Broker::new(
            listener,
            arguments.broker(),
            scheduler,
            |scheduler: &Scheduler, statistics| {
                print_statistics(&scheduler.counters(), statistics);
            },
        );
        let end = broker.run(&stop)?;
        let (scheduler, socket) = broker.into_parts();
        let Some(exit) = scheduler.exit().filter(|_| end == broker::End::Kernel) else {
            drop(scheduler);
            eprintln!("scx_morpheus: stopped; the kernel's own scheduler schedules");
            return Ok(ExitCode::SUCCESS);
        };
        // Whoever was connected has been told by the end of the connection, and connects again.
        drop(scheduler);
        if !exit.dump.is_empty() {
            eprintln!("{}", exit.dump);
        }
        if !exit.wants_restart() {
            eprintln!(
                "scx_morpheus: the kernel took the scheduler out: {exit}; its own scheduler schedules"
            );
            return Ok(ExitCode::from(EJECTED));
        }
        eprintln!("scx_morpheus: starting anew: {exit}");
        listener = socket;
    }
}

fn print_statistics(counters: &Counters, statistics: Statistics) {
    let mut line = format!(
        "processes {}, workers {}, refused {}",
        statistics.processes, statistics.workers, statistics.refused,
    );
    for (name, count) in counters.iter().filter(|(_, count)| **count != 0) {
        line += &format!(", {} {count}", name.replace('_', " "));
    }
    println!("{line}");
}

/// Each connection takes two descriptors. Where the limit cannot be raised, connections wait to be accepted.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}
