// SPDX-License-Identifier: GPL-2.0-only
//! The daemon `scx_morpheus`.

mod arguments;
mod commands;
mod documents;

use std::error::Error;
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use morpheus_bpf::broker::{self, Broker, Listener};
use morpheus_bpf::check::{self, Finding, Verdict};
use morpheus_bpf::doctor;
use morpheus_bpf::kernel;
use morpheus_bpf::observer::{self, Observer};
use morpheus_bpf::peer;
use morpheus_bpf::quota::Quota;
use morpheus_bpf::restart::{self, Next, Restarts};
use morpheus_bpf::run_log::{self, RunLog};
use morpheus_bpf::scheduler::{self, Scheduler};
use morpheus_bpf::start;
use morpheus_bpf::stats::describe;
use morpheus_tools::reading::Reading;
use morpheus_tools::signals::StopSignals;
use morpheus_tools::telemetry::{self, Rates};
use morpheus_tools::{prometheus, stats, status};

use serde_json::Value;

use arguments::{Arguments, Command};

/// The kernel took the scheduler out.
const EJECTED: u8 = 3;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match &arguments.command {
        Some(Command::Check) => return run_check(arguments.observe),
        Some(Command::Status { json, prometheus }) => {
            let form = match (json, prometheus) {
                (true, _) => Form::Json,
                (_, true) => Form::Prometheus,
                _ => Form::Words,
            };
            return run_status(&arguments.socket, form);
        }
        Some(Command::Doctor(arguments)) => return doctor::run(arguments),
        Some(Command::Operator(command)) => commands::run(command, &arguments.socket),
        Some(Command::Start { log_dir }) => start(&arguments, log_dir.as_deref()),
        None => match arguments.monitor {
            Some(seconds) => monitor(&arguments.socket, seconds),
            None => serve(&arguments, &RunLog::without_file()),
        },
    };
    result.unwrap_or_else(|error| {
        morpheus_bpf::say!("scx_morpheus: {error}");
        ExitCode::FAILURE
    })
}

/// The daemon itself.
fn serve(arguments: &Arguments, log: &RunLog) -> Result<ExitCode, Box<dyn Error>> {
    if arguments.observe {
        observe(arguments)
    } else {
        schedule(arguments, log)
    }
}

/// In the background where systemd knows it, and else here.
fn start(arguments: &Arguments, log_dir: Option<&Path>) -> Result<ExitCode, Box<dyn Error>> {
    if start::unit_is_installed() {
        if arguments.observe {
            return Err(format!(
                "{} is installed and has its options in {}: write --observe there, or run scx_morpheus --observe",
                start::UNIT,
                start::OPTIONS
            )
            .into());
        }
        if log_dir.is_some() {
            return Err(format!(
                "{0} is installed and logs to the journal: journalctl -u {0}, and journalctl -k -g 'sched_ext|morpheus' for \
                 the kernel's lines. Leave --log-dir out",
                start::UNIT
            )
            .into());
        }
        start::start_unit(&arguments.socket)?;
        println!(
            "scx_morpheus runs; its log: journalctl -fu {}; the kernel's lines: journalctl -k -g 'sched_ext|morpheus'; its \
             options: {}; stop it: systemctl stop {0}",
            start::UNIT,
            start::OPTIONS
        );
        return Ok(ExitCode::SUCCESS);
    }
    // Before the thread of the log: it inherits the mask. The daemon waits for the same signals again.
    let _stop = StopSignals::catch()?;
    let log = match RunLog::to(log_dir.unwrap_or(Path::new(run_log::DIRECTORY))) {
        Ok(log) => log,
        Err(error) if log_dir.is_some() => return Err(error.into()),
        // It was not asked for.
        Err(error) => {
            morpheus_bpf::say!("scx_morpheus: the kernel's log is not kept: {error}");
            RunLog::without_file()
        }
    };
    let kept = log.path().map_or_else(String::new, |path| {
        format!("; what the kernel says is kept in {}", path.display())
    });
    morpheus_bpf::say!(
        "scx_morpheus: {} is not installed: the daemon runs here, until Ctrl-C, and this is its log{kept}",
        start::UNIT
    );
    let result = serve(arguments, &log);
    if let Err(error) = &result {
        log.note(&format!("scx_morpheus: {error}"));
    }
    result
}

/// With `observe`, what the scheduler needs beside is told and does not count.
fn run_check(observe: bool) -> ExitCode {
    let lacks = |findings: &[Finding]| {
        for finding in findings {
            println!("{finding}");
        }
        findings
            .iter()
            .any(|finding| finding.verdict == Verdict::Limitation)
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
    if observer_lacks || (scheduler_lacks && !observe) {
        ExitCode::FAILURE
    } else {
        ExitCode::SUCCESS
    }
}

/// How `status` says it.
enum Form {
    Words,
    Json,
    Prometheus,
}

fn run_status(socket: &Path, form: Form) -> ExitCode {
    let status = status::ask(socket);
    // A daemon that is there and does not tell them is an older one.
    let numbers = stats::ask(socket).unwrap_or_default();
    match form {
        Form::Json => {
            let value = serde_json::json!({
                "socket": socket.to_string_lossy(),
                "status": status.word(),
                "well": status.is_well(),
                "statistics": numbers,
            });
            println!("{value}");
        }
        Form::Prometheus => {
            print!("{}", prometheus::text(&Reading::parse(&numbers)));
            if !status.is_well() {
                morpheus_bpf::say!("scx_morpheus: {}: {}", socket.display(), status.sentence());
            }
        }
        Form::Words => {
            println!("{}: {}", socket.display(), status.sentence());
            if status.is_well() && !numbers.is_null() {
                println!(
                    "{}: {}",
                    numbers["runs"].as_str().unwrap_or("unknown"),
                    stats::line(&numbers)
                );
            }
        }
    }
    if status.is_well() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// Until it is interrupted, or the daemon has gone.
fn monitor(socket: &Path, seconds: u32) -> Result<ExitCode, Box<dyn Error>> {
    let ask = || match stats::ask(socket) {
        Ok(numbers) => Ok((Reading::parse(&numbers), Instant::now())),
        Err(error) => Err(format!(
            "no daemon answers at {}: {error}",
            socket.display()
        )),
    };
    let (mut before, mut since) = ask()?;
    loop {
        std::thread::sleep(Duration::from_secs(seconds.into()));
        let (reading, now) = ask()?;
        let rates = Rates::between(&before, &reading, now.duration_since(since));
        match writeln!(io::stdout(), "{}", telemetry::line(&reading, &rates)) {
            // The reader has seen enough: `| head`.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                return Ok(ExitCode::SUCCESS);
            }
            written => written?,
        }
        (before, since) = (reading, now);
    }
}

fn observe(arguments: &Arguments) -> Result<ExitCode, Box<dyn Error>> {
    let stop = StopSignals::catch()?;
    raise_descriptor_limit();
    // The sockets come first: a second daemon finds out before it has attached anything.
    let listener = Listener::bind(&arguments.socket)?;
    let numbers = Listener::bind(&stats::path(&arguments.socket))?;
    let observer = observer::attach(arguments.observer())?;
    morpheus_bpf::say!("scx_morpheus: observing; {}", where_to_connect(&listener));
    Broker::new(
        listener,
        arguments.broker(),
        Quota::new(arguments.quota()),
        observer,
        Some(numbers),
        |observer: &Observer, statistics| {
            describe("observer", &observer.counters(), Value::Null, statistics)
        },
    )
    .run(&stop)?;
    morpheus_bpf::say!("scx_morpheus: stopped");
    Ok(ExitCode::SUCCESS)
}

/// Until it is told to stop, or the kernel ends it for good. After an ejection it starts again, a few times.
fn schedule(arguments: &Arguments, log: &RunLog) -> Result<ExitCode, Box<dyn Error>> {
    let stop = StopSignals::catch()?;
    raise_descriptor_limit();
    let (mut listener, mut numbers) = listen(arguments)?;
    let mut quota = Quota::new(arguments.quota());
    let mut restarts = Restarts::default();
    loop {
        let scheduler = scheduler::attach(&arguments.scheduler())?;
        log.say(&format!(
            "scx_morpheus: scheduling; {}",
            where_to_connect(&listener)
        ));
        let mut broker = Broker::new(
            listener,
            arguments.broker(),
            quota,
            scheduler,
            numbers,
            |scheduler: &Scheduler, statistics| {
                describe(
                    "scheduler",
                    &scheduler.all_counters(),
                    scheduler.machine(),
                    statistics,
                )
            },
        );
        let end = broker.run(&stop)?;
        // Connected applications are told by the end of the connection, and connect again.
        let (scheduler, socket, numbers_again, held) = broker.into_parts();
        let exit = scheduler.exit().filter(|_| end == broker::End::Kernel);
        drop(scheduler);
        let Some(exit) = exit else {
            return stopped(log);
        };
        if !exit.dump.is_empty() {
            log.say(&exit.dump);
        }
        let out = format!("the kernel took the scheduler out: {exit}");
        match restarts.next(&exit, Instant::now()) {
            Next::StayOut => {
                log.say(&format!("scx_morpheus: {out}; its own scheduler schedules"));
                return Ok(ExitCode::from(EJECTED));
            }
            Next::GiveUp => {
                log.say(&format!(
                    "scx_morpheus: {out}; ejection {0} of {0} in {1} minutes: its own scheduler schedules from now on",
                    restart::MOST_EJECTIONS,
                    restart::WINDOW.as_secs() / 60
                ));
                return Ok(ExitCode::from(EJECTED));
            }
            Next::Start {
                after,
                ejections: 0,
            } => {
                log.say(&format!("scx_morpheus: starting anew: {exit}"));
                if stop.wait(after)? {
                    return stopped(log);
                }
                (listener, numbers) = (socket, numbers_again);
            }
            Next::Start { after, ejections } => {
                log.say(&format!(
                    "scx_morpheus: {out}; ejection {ejections} of {} in {} minutes: starting again in {after:?}",
                    restart::MOST_EJECTIONS,
                    restart::WINDOW.as_secs() / 60
                ));
                // No application connects meanwhile: one that did would wait in vain, and give up. A socket that
                // appears again is what it waits for.
                drop((socket, numbers_again));
                if stop.wait(after)? {
                    return stopped(log);
                }
                (listener, numbers) = listen(arguments)?;
            }
        }
        quota = held;
    }
}

/// The socket of the applications, and the one of the numbers.
fn listen(arguments: &Arguments) -> Result<(Listener, Option<Listener>), Box<dyn Error>> {
    let listener = Listener::bind(&arguments.socket)?;
    let numbers = Listener::bind(&stats::path(&arguments.socket))?;
    Ok((listener, Some(numbers)))
}

fn stopped(log: &RunLog) -> Result<ExitCode, Box<dyn Error>> {
    log.say("scx_morpheus: stopped; the kernel's own scheduler schedules");
    Ok(ExitCode::SUCCESS)
}

fn where_to_connect(listener: &Listener) -> String {
    let threads = if peer::threads_have_pidfds() {
        ""
    } else {
        "; this kernel has no pidfds of threads, which are looked up by their numbers instead (slower)"
    };
    let maps = if kernel::can_see_maps() {
        ""
    } else {
        "; without CAP_SYS_ADMIN the kernel's memory that processes keep mapped after they leave is not limited"
    };
    format!(
        "applications connect at {}{threads}{maps}",
        listener.path().display()
    )
}

/// Each connection takes two descriptors. Where the limit cannot be raised, connections wait to be accepted.
fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
}
