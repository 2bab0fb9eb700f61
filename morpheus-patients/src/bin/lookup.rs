//! A handler that looks up a host name with the C library's `getaddrinfo`.
//!
//! The name server is the program's own and answers after 10 ms ([`name_server`]). Where the system does not let the program have
//! one, or the C library finds names elsewhere, the program says so and ends with exit code 3.

use std::net::{SocketAddr, ToSocketAddrs};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use morpheus_patients::clock::Stopwatch;
use morpheus_patients::service::{Absent, Failure};
use morpheus_patients::{handler, name_server, service};

/// A look-up that takes less has not waited for the name server.
const SHORTEST: Duration = Duration::from_millis(5);

/// Finds where the database is.
#[inline(never)]
fn find_database(name: &str) -> Option<SocketAddr> {
    let found = (name, 5432).to_socket_addrs(); // CULPRIT
    found.ok()?.next()
}

async fn report(name: &str) {
    let stopwatch = Stopwatch::start();
    let database = find_database(name);
    stopwatch.stop();
    handler::answer(database).await;
}

async fn requests() {
    loop {
        handler::request().await;
        report("database.example").await;
    }
}

fn prepare() -> Result<(), Failure> {
    name_server::start().map_err(|error| {
        Absent(format!(
            "look-ups cannot be made slow here, because there can be no name server for this program: {error}; \
             run it as root, or allow user namespaces"
        ))
    })?;
    for _ in 0..3 {
        let began = Instant::now();
        let found = find_database("database.example");
        let took = began.elapsed();
        if took < SHORTEST || found.is_none() {
            let answer = if found.is_some() { "an" } else { "no" };
            return Err(Absent(format!(
                "look-ups are not slow here: {answer} answer came after {} µs; the C library does not ask this program's name server",
                took.as_micros()
            ))
            .into());
        }
    }
    Ok(())
}

fn main() -> ExitCode {
    service::run_prepared("lookup", prepare, |()| {
        handler::start(|_| requests());
        Ok(())
    })
}
