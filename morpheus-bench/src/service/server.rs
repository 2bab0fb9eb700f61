//! The service: started, found to answer, asked to end.

use std::env;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use morpheus_harness::supervised::Supervised;
use morpheus_harness::{clock, host, interrupt, report};
use serde::Deserialize;

use super::http::{self, Connection};
use super::variant::Variant;
use crate::flagged::{self, Program};
use crate::neighbours;

/// How long a service may take to come up, on a slow and busy machine.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long it has for requests whose clients are gone.
const GRACE_S: &str = "1";
/// Another process may take the port between finding it and starting.
const ATTEMPTS: usize = 5;

/// Where the programs of the examples are.
#[derive(Clone, Debug)]
pub struct Programs(PathBuf);

/// How much there is to do in a request that computes. The same for all variants.
#[derive(Clone, Copy, Debug, Deserialize)]
pub struct Work {
    /// Passes of argon2 in `/hash`.
    pub passes: u32,
    /// CPU time that these take, and that of `/compute`.
    pub cpu_ns: u64,
}

impl Work {
    /// For `/compute` alone.
    pub fn of_ms(ms: f64) -> Self {
        Self {
            passes: 1,
            cpu_ns: (ms * 1e6) as u64,
        }
    }
}

impl Programs {
    /// In this directory, or beside this program, as cargo puts them.
    ///
    /// # Errors
    /// They are not there; the text says how to build them.
    pub fn find(directory: Option<&Path>) -> Result<Self, String> {
        let directory = match directory {
            Some(directory) => directory.to_owned(),
            None => env::current_exe()
                .map_err(|error| format!("where this program is cannot be found out: {error}"))?
                .with_file_name("examples"),
        };
        let without_flag = |variant: &Variant| !variant.needs_flag();
        for variant in Variant::ALL.into_iter().filter(without_flag) {
            let example = variant.about().program;
            let program = directory.join(example);
            if !program.is_file() {
                return Err(format!(
                    "{} is not there: cargo xtask service builds it, and so does cargo build --release --example {example}",
                    program.display()
                ));
            }
        }
        Ok(Self(directory))
    }

    /// The program of a variant. One that needs the flag is built on the first call.
    ///
    /// # Errors
    /// It cannot be built; the text says why.
    pub fn of(&self, variant: Variant) -> Result<PathBuf, String> {
        match variant.needs_flag() {
            true => flagged::build(Program::Example(variant.about().program)),
            false => Ok(self.0.join(variant.about().program)),
        }
    }

    /// Finds out how much work a hash of `hash_ms` milliseconds is here. Once, so that all variants have the same to do.
    ///
    /// # Errors
    /// The program does not say.
    pub fn calibrate(&self, hash_ms: f64) -> Result<Work, String> {
        let program = self.0.join(Variant::Tokio.about().program);
        let output = Command::new(&program)
            .args(["--calibrate", &hash_ms.to_string()])
            .stderr(Stdio::inherit())
            .output()
            .map_err(|error| format!("{} does not start: {error}", program.display()))?;
        report::from_json(&String::from_utf8_lossy(&output.stdout))
            .map_err(|_| format!("{} --calibrate: {}", program.display(), output.status))
    }
}

/// A service that answers, until this is dropped.
pub struct Server {
    process: Supervised,
    address: SocketAddr,
}

impl Server {
    /// Starts one and waits until it answers.
    ///
    /// # Errors
    /// It does not; the text is for people.
    pub fn start(programs: &Programs, variant: Variant, work: Work) -> Result<Self, String> {
        let program = programs.of(variant)?;
        for _ in 0..ATTEMPTS {
            let address = free_address()?;
            let mut command = Command::new(&program);
            command
                .args(["--listen", &address.to_string(), "--grace", GRACE_S])
                .args(["--passes", &work.passes.to_string()])
                .args(["--compute-ms", &(work.cpu_ns as f64 / 1e6).to_string()])
                .args(variant.about().arguments);
            match variant.about().more_workers {
                // Whatever the user's environment says: one for each CPU, as Morpheus has.
                0 => command.env_remove("TOKIO_WORKER_THREADS"),
                more => command.env("TOKIO_WORKER_THREADS", (host::cpus() + more).to_string()),
            };
            let process = supervised(&mut command)?;
            let mut server = Self { process, address };
            if server.comes_up()? {
                return Ok(server);
            }
        }
        Err(format!(
            "{} ended {ATTEMPTS} times right after its start",
            variant.about().program
        ))
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The CPU time that it has used; `None` where it has ended.
    pub fn cpu(&self) -> Option<Duration> {
        clock::cpu_of_process(self.process.id()).ok()
    }

    /// Whether it answers before it ends.
    fn comes_up(&mut self) -> Result<bool, String> {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until && !interrupt::happened() {
            // The answer of another server at that port would not count: ours then ends.
            if self
                .process
                .wait(Duration::from_millis(10), |_| ())
                .is_some()
            {
                return Ok(false);
            }
            if self.answers() {
                return Ok(true);
            }
        }
        Err(format!(
            "it does not answer at {} within {} s",
            self.address,
            PATIENCE.as_secs()
        ))
    }

    fn answers(&self) -> bool {
        let connection = Connection::open(self.address, Some(Duration::from_secs(1)));
        connection.is_ok_and(|mut one| {
            one.ask(&http::get(self.address, "/ping"), &AtomicBool::new(true))
                .is_ok()
        })
    }

    /// Asks it to end, by SIGTERM, as a service manager would.
    ///
    /// # Errors
    /// It has ended before, or does not.
    pub fn end(mut self) -> Result<(), String> {
        if let Some(status) = self.process.wait(Duration::ZERO, |_| ()) {
            return Err(format!("the service ended meanwhile, {status}"));
        }
        // SAFETY: kill touches no memory; the child has not been waited for, so that the number is its own.
        unsafe { libc::kill(self.process.id() as libc::pid_t, libc::SIGTERM) };
        match self.process.wait(PATIENCE, |_| ()) {
            Some(_) => Ok(()),
            None => Err("the service did not end when it was asked to".into()),
        }
    }
}

/// A child in the background, which is gone when this program is, however it ends.
fn supervised(command: &mut Command) -> Result<Supervised, String> {
    let program = command.get_program().to_string_lossy().into_owned();
    neighbours::end_with_caller(command);
    Supervised::start(command).map_err(|error| format!("{program}: {error}"))
}

fn free_address() -> Result<SocketAddr, String> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
        .and_then(|listener| listener.local_addr())
        .map_err(|error| format!("no free port on loopback: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_said_with_how_to_get_it() {
        let error = Programs::find(Some(Path::new("/nonexistent"))).unwrap_err();
        assert!(error.contains("/nonexistent/http_service_tokio is not there"));
        assert!(error.contains("cargo xtask service"), "{error}");
    }
}
