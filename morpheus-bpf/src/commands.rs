// SPDX-License-Identifier: GPL-2.0-only
//! The commands for the operator of the daemon, beside the daemon itself.

use std::error::Error;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{self, ExitCode};
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use clap_complete::Shell;
use morpheus_bpf::install::place::Place;
use morpheus_bpf::install::{self, Install, Uninstall};
use morpheus_bpf::{kernel_log, start};
use morpheus_tools::signals::StopSignals;
use morpheus_tools::{history, probe, top};

use crate::documents;

/// The benchmark that `bench` runs.
const BENCH: &str = "scale";

#[derive(Debug, Subcommand)]
pub(crate) enum Operator {
    /// Show in the terminal what the daemon does, and how the connected processes fare; ? tells the keys
    Top {
        /// How often to ask the daemon
        #[arg(long, value_name = "SECONDS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=3600))]
        interval: u32,
        /// Show the curves of this history, in place of the one that the daemon records (--history)
        #[arg(long, value_name = "FILE")]
        history: Option<PathBuf>,
    },
    /// Print what a daemon has recorded with --history
    ///
    /// A line for each record, the oldest first; a line with … alone where there was no daemon. Latencies are right to a
    /// factor of two; 33 ms is that or more.
    History {
        /// The file that the daemon writes; it may be running
        file: PathBuf,
        /// The minutes of the last day, or the seconds of the last hour
        #[arg(long, value_enum, default_value_t = Resolution::Minutes, conflicts_with = "json")]
        by: Resolution,
        /// Both, as JSON
        #[arg(long)]
        json: bool,
    },
    /// Measure how late a sleeping thread wakes up, whatever scheduler runs; needs neither daemon nor root
    Probe {
        /// For how long
        #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=86_400))]
        seconds: u32,
        /// How long each sleep is
        #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(10..=10_000_000))]
        period_us: u32,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Print what the kernel has logged of sched_ext, of this scheduler, and of tasks that waited for too long
    Dmesg,
    /// Run the benchmark `scale`, which compares schedulers, with the arguments that follow
    #[command(disable_help_flag = true)]
    Bench {
        /// The arguments of `scale`; --help lists them
        #[arg(
            value_name = "ARGUMENT",
            trailing_var_arg = true,
            allow_hyphen_values = true
        )]
        arguments: Vec<String>,
    },
    /// Install this program as a service: itself, its `doctor` as morpheus-doctor, a systemd unit, /etc/default/scx_morpheus, the manual and completions
    ///
    /// Files that differ from what an earlier install wrote are not overwritten. The options in /etc/default/scx_morpheus are
    /// the operator's: once changed, they stay. A list of all files is kept in PREFIX/lib/scx_morpheus/manifest for
    /// `uninstall`. It starts nothing.
    Install {
        #[command(flatten)]
        to: Where,
        /// Overwrite files that differ from what an earlier install wrote (not the options)
        #[arg(long)]
        force: bool,
    },
    /// Remove what `install` wrote, and say what stays: files that were changed since, what was learnt, logs
    Uninstall {
        #[command(flatten)]
        from: Where,
    },
    /// Print the manual page, or write one for each command
    Man {
        /// Write them into this directory
        #[arg(long, value_name = "DIRECTORY")]
        dir: Option<PathBuf>,
    },
    /// Print a shell's completions
    Completions {
        /// The shell
        shell: Shell,
    },
}

/// How far apart the records are that are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Resolution {
    Seconds,
    Minutes,
}

/// Where an installation is.
#[derive(Debug, Args)]
pub(crate) struct Where {
    /// Where the program and its documents go: /usr for packages
    #[arg(long, value_name = "DIRECTORY", default_value = "/usr/local")]
    prefix: PathBuf,
    /// Take this directory for /, to build a package or to look at the files; systemd is not asked
    #[arg(long, value_name = "DIRECTORY")]
    root: Option<PathBuf>,
    /// Say what would be done to each file, and do nothing
    #[arg(long)]
    dry_run: bool,
}

impl Where {
    fn place(&self) -> Result<Place, install::Error> {
        let root = self.root.as_deref().unwrap_or(Path::new("/"));
        Place::new(root, &self.prefix)
    }
}

/// Does what was asked for.
pub(crate) fn run(command: &Operator, socket: &Path) -> Result<ExitCode, Box<dyn Error>> {
    match command {
        Operator::Top { interval, history } => {
            let interval = Duration::from_secs((*interval).into());
            top::run(socket, interval, history.as_deref())?;
        }
        Operator::History { file, by, json } => run_history(file, *by, *json)?,
        Operator::Probe {
            seconds,
            period_us,
            json,
        } => {
            let options = probe::Options {
                duration: Duration::from_secs((*seconds).into()),
                period: Duration::from_micros((*period_us).into()),
            };
            run_probe(options, *json)?;
        }
        Operator::Dmesg => run_dmesg()?,
        Operator::Bench { arguments } => return Err(run_bench(arguments)),
        Operator::Man { dir } => run_man(dir.as_deref())?,
        Operator::Install { to, force } => run_install(to, *force)?,
        Operator::Uninstall { from } => run_uninstall(from)?,
        Operator::Completions { shell } => print(&documents::completions(*shell))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Writes all of it. A reader that has closed the pipe has seen enough: `| head`.
fn print(text: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}

/// Ctrl-C ends the measurement early, and what was found until then is told.
fn run_probe(options: probe::Options, json: bool) -> io::Result<()> {
    let stop = StopSignals::catch()?;
    // A signal that cannot be looked for is no reason to go on.
    let report = probe::run(options, || stop.has_come().unwrap_or(true))?;
    let text = if json {
        format!("{}\n", report.json())
    } else {
        report.to_string()
    };
    print(text.as_bytes())
}

fn run_history(file: &Path, by: Resolution, json: bool) -> Result<(), Box<dyn Error>> {
    let read = history::read(file)?;
    if json {
        print(format!("{}\n", history::print::json(&read)).as_bytes())?;
        return Ok(());
    }
    let resolution = match by {
        Resolution::Seconds => history::Resolution::Seconds,
        Resolution::Minutes => history::Resolution::Minutes,
    };
    print(history::print::table(&read, resolution).as_bytes())?;
    if read.damaged > 0 {
        eprintln!(
            "scx_morpheus: {}: {} records cannot be read (the machine went down while they were written)",
            file.display(),
            read.damaged
        );
    }
    Ok(())
}

fn run_dmesg() -> Result<(), Box<dyn Error>> {
    let records = kernel_log::read()?;
    let mut filter = kernel_log::Filter::default();
    let lines: String = records
        .iter()
        .filter(|record| filter.keeps(record))
        .map(|record| format!("{record}\n"))
        .collect();
    if lines.is_empty() {
        eprintln!(
            "scx_morpheus: of {} lines in the kernel's log none is about sched_ext, morpheus or a stall",
            records.len()
        );
    }
    print(lines.as_bytes())?;
    Ok(())
}

/// Becomes the benchmark; returns only when that fails.
fn run_bench(arguments: &[String]) -> Box<dyn Error> {
    use std::os::unix::process::CommandExt;
    let own = match std::env::current_exe() {
        Ok(own) => own,
        Err(error) => return error.into(),
    };
    let bench = own.with_file_name(BENCH);
    let error = process::Command::new(&bench).args(arguments).exec();
    if error.kind() == io::ErrorKind::NotFound {
        return format!(
            "{} is not there: build it with cargo build --release -p morpheus-bench --bin {BENCH}, and put it beside \
             scx_morpheus",
            bench.display()
        )
        .into();
    }
    format!("cannot run {}: {error}", bench.display()).into()
}

fn run_man(directory: Option<&Path>) -> io::Result<()> {
    let Some(directory) = directory else {
        return print(&documents::page()?);
    };
    std::fs::create_dir_all(directory)?;
    for (name, page) in documents::pages()? {
        std::fs::write(directory.join(name), page)?;
    }
    Ok(())
}

fn run_install(to: &Where, force: bool) -> Result<(), Box<dyn Error>> {
    let place = to.place()?;
    // Not by its name: it may have been replaced since it was started.
    let program = std::fs::read("/proc/self/exe")
        .map_err(|error| format!("cannot read this program (/proc/self/exe): {error}"))?;
    let files = install::files(&place, program, documents::all()?);
    let install = Install::plan(&place, files, force)?;
    print(install.shown().to_string().as_bytes())?;
    if to.dry_run {
        install.check()?;
        eprintln!("scx_morpheus: nothing was changed (--dry-run)");
        return Ok(());
    }
    install.run()?;
    if to.root.is_none() {
        eprintln!(
            "scx_morpheus: installed. Whether this machine can be scheduled: scx_morpheus check. Its options: {}. Start it, \
             also after each boot: systemctl daemon-reload && systemctl enable --now {}",
            start::OPTIONS,
            start::UNIT
        );
    }
    Ok(())
}

fn run_uninstall(from: &Where) -> Result<(), Box<dyn Error>> {
    let place = from.place()?;
    let uninstall = Uninstall::plan(&place)?;
    if from.root.is_none() && !from.dry_run && start::unit_is_in_use() {
        return Err(format!(
            "{0} runs or is enabled; nothing was changed. First: systemctl disable --now {0}",
            start::UNIT
        )
        .into());
    }
    print(uninstall.shown().to_string().as_bytes())?;
    if from.dry_run {
        eprintln!("scx_morpheus: nothing was changed (--dry-run)");
        return Ok(());
    }
    uninstall.run()?;
    for (what, path) in place.left() {
        eprintln!("scx_morpheus: left: {} ({what})", path.display());
    }
    Ok(())
}
