//! A typical service: axum, JSON, rows in SQLite, passwords. Its handlers contain nothing of Morpheus's: they
//! call SQLite and argon2 themselves, and occupy a worker meanwhile.
//!
//! ```text
//! cargo run --release --example http_service             on Morpheus, until Ctrl-C or SIGTERM
//! cargo run --release --example http_service_tokio       the same source on tokio
//!
//! curl localhost:3000/ping                               pong
//! curl localhost:3000/db                                 the ten newest rows, as JSON
//! curl localhost:3000/db --json '{"text":"milk"}'        adds one
//! curl localhost:3000/hash                               hashes a password: computes, and never yields
//! curl localhost:3000/compute                            computes for 25 ms without memory, and never yields
//! curl localhost:3000/report                             a query that waits for a disk: blocks for 5 ms
//! curl localhost:3000/stalls                             where it was stalled: a page with bars, for a browser
//! curl localhost:3000/metrics                            the runtime's counters, as Prometheus reads them
//! ```
//!
//! Request /hash from several terminals at once, and /ping meanwhile. On Morpheus /ping is answered in a
//! millisecond, on tokio when the hashes leave a worker free. `cargo xtask service` measures both under load. `--code spawn-blocking` moves what blocks to `spawn_blocking`, as an expert would write it for
//! tokio. `--layer` has Morpheus watch each handler under its route: handlers found slow are then handed off,
//! and a few of them run at a time.
//!
//! On Ctrl-C or SIGTERM the service accepts no new connection and finishes open requests, for at most
//! `--grace` seconds. It then prints how many it left, and exits with code 1 if there are any.
//!
//! `routes` has the handlers, `database` the rows, `observe` shows the runtime, `shutdown` ends the service,
//! `options` is the command line.

use std::num::NonZeroUsize;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use argon2::Argon2;
use clap::Parser;
use examples::password::{self, Hash};
use morpheus_runtime::Metrics;
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use crate::database::Database;
use crate::options::Options;
use crate::shutdown::{Open, Signals};
use crate::{observe, routes, shutdown};

/// Which of the two programs this is.
const PROGRAM: &str = env!("CARGO_CRATE_NAME");

/// The state that the handlers share.
pub type Service = Arc<Shared>;

/// See [`Service`].
pub struct Shared {
    pub database: Database,
    pub hasher: Argon2<'static>,
    /// The CPU time of `/compute`.
    pub computes: Duration,
    /// As many as there are CPUs, for `--code bounded`.
    pub permits: Semaphore,
    pub open: Open,
}

/// Runs the whole program. Exit codes: 0 ended as asked, 1 something failed or requests were left, 2 bad
/// usage.
pub async fn run() -> ExitCode {
    let options = Options::parse();
    let outcome = match options.calibrate {
        Some(ms) => calibrate(ms),
        None if options.layer && Metrics::current().is_none() => {
            eprintln!("{PROGRAM}: --layer needs Morpheus: tokio cannot watch handlers");
            return ExitCode::from(2);
        }
        None => serve(&options).await,
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{PROGRAM}: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Permits for what computes.
pub fn one_a_cpu() -> Semaphore {
    Semaphore::new(thread::available_parallelism().map_or(1, NonZeroUsize::get))
}

/// Prints how many passes a hash of `ms` milliseconds takes on this machine, so that several services can do
/// the same work.
fn calibrate(ms: f64) -> Result<(), String> {
    let Hash { passes, cpu } = Hash::calibrate(ms)?;
    let answer = serde_json::json!({ "passes": passes, "cpu_ns": cpu.as_nanos() as u64 });
    println!("{answer}");
    Ok(())
}

async fn serve(options: &Options) -> Result<(), String> {
    // Removed with its contents when it is dropped.
    let directory =
        tempfile::tempdir().map_err(|error| format!("no temporary directory: {error}"))?;
    let file = match &options.database {
        Some(file) => file.clone(),
        None => directory.path().join("rows.sqlite"),
    };
    let cannot = |what: String| move |error: &dyn std::fmt::Display| format!("{what}: {error}");
    let service = Arc::new(Shared {
        database: Database::open(&file)
            .map_err(|error| cannot(format!("{}", file.display()))(&error))?,
        hasher: password::hasher(options.passes)
            .map_err(|error| cannot("the hash".into())(&error))?,
        computes: options.computes(),
        permits: one_a_cpu(),
        open: Open::default(),
    });
    // Before the first request can arrive, so that no signal is lost.
    let signals = Signals::listen().map_err(|error| cannot("signals".into())(&error))?;
    observe::install()?;
    let listener = TcpListener::bind(options.listen)
        .await
        .map_err(|error| cannot(format!("cannot listen at {}", options.listen))(&error))?;
    let address = listener
        .local_addr()
        .map_err(|error| cannot("no address".into())(&error))?;
    println!(
        "http://{address} on {}; Ctrl-C ends it",
        observe::runtime_name()
    );

    let app = routes::router(options.code, options.layer, Arc::clone(&service));
    let left = shutdown::serve(
        listener,
        app,
        signals.asked(),
        options.grace(),
        &service.open,
    )
    .await
    .map_err(|error| cannot("serving".into())(&error))?;
    if left == 0 {
        println!("ended; no request was left");
        return Ok(());
    }
    // Dropping the runtime would wait for their polls without a limit, and they have had their grace.
    eprintln!(
        "{PROGRAM}: {left} requests were left unanswered after {} s",
        options.grace
    );
    drop(directory);
    std::process::exit(1)
}
