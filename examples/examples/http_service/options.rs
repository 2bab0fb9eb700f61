//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::Parser;
use morpheus_bench::code::Code;
use morpheus_harness::arguments::measured;

const MORE: &str = "\
Examples:
  http_service
      Serves at http://localhost:3000; the file service.rs has lines to try with curl.
  http_service --layer
      The handlers watched, each under its route. (Not on tokio.)
  http_service_tokio --code spawn-blocking
      An expert's way on tokio: SQLite and argon2 on its pool.
  TOKIO_WORKER_THREADS=34 http_service_tokio
      A sceptic's first try: more threads.
  cargo xtask service
      Drives all of them with a load generator, and compares.

Exit codes: 0 ended as asked, 1 something failed or requests were left unanswered, 2 bad usage.";

/// A service with axum and SQLite whose handlers block and compute themselves.
#[derive(Clone, Debug, Parser)]
#[command(name = env!("CARGO_CRATE_NAME"), after_help = MORE, max_term_width = 110)]
pub struct Options {
    /// The address to listen on; port 0 is any free port
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:3000")]
    pub listen: SocketAddr,

    /// How the handlers call SQLite and argon2: as most programs do at first, or rewritten for tokio
    #[arg(long, value_name = "CODE", default_value = "inline")]
    pub code: Code,

    /// Have Morpheus watch each handler under its route
    #[arg(long)]
    pub layer: bool,

    /// Passes of argon2 over its 19 MiB in each hash; OWASP recommends at least 2
    #[arg(long, value_name = "N", default_value = "2", value_parser = clap::value_parser!(u32).range(1..))]
    pub passes: u32,

    /// CPU time of a request to /compute
    #[arg(long, value_name = "MS", default_value = "25", value_parser = measured(0.0, 10_000.0))]
    pub compute_ms: f64,

    /// The database; a temporary file if not given
    #[arg(long, value_name = "FILE")]
    pub database: Option<PathBuf>,

    /// Seconds that open requests have to finish at shutdown
    #[arg(long, value_name = "S", default_value = "5", value_parser = measured(0.0, 3_600.0))]
    pub grace: f64,

    /// Serve nothing: print as JSON how many passes a hash of MS milliseconds of CPU time takes on this machine
    #[arg(long, value_name = "MS", value_parser = measured(0.0, 10_000.0))]
    pub calibrate: Option<f64>,
}

impl Options {
    /// The CPU time of `/compute`.
    pub fn computes(&self) -> Duration {
        Duration::from_secs_f64(self.compute_ms / 1e3)
    }

    /// The time that open requests have at shutdown.
    pub fn grace(&self) -> Duration {
        Duration::from_secs_f64(self.grace)
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn bad_input_says_what_is_right() {
        Options::command().debug_assert();
        for (line, expected) in [
            ("--grace -1", "unexpected"),
            ("--grace nan", "a number from"),
            ("--passes 0", "0 is not in"),
            ("--compute-ms none", "a number from"),
            ("--code by-hand", "spawn-blocking"),
            ("--listen here", "invalid socket address"),
        ] {
            let words = std::iter::once("http_service").chain(line.split_whitespace());
            let error = Options::try_parse_from(words).unwrap_err();
            assert!(error.to_string().contains(expected), "{line}: {error}");
            assert_eq!(error.exit_code(), 2);
        }
    }
}
