//! A small service with four mistakes, and a runtime that says in which lines they are.
//!
//! ```sh
//! cargo run --release -p morpheus-runtime --example doctor
//! ```
//!
//! Each handler blocks or computes in its poll, as people write it by mistake. None of them is marked
//! in any way but by its label, and the service goes on meanwhile. At the end [`Runtime::stalls`] names the
//! lines. They have numbers because of `debug = "line-tables-only"` in the workspace's release profile.
//!
//! The lookup asks a name server as `getaddrinfo` does: it sends a query and waits for the answer. The server
//! is a socket of this program that never answers, so that the example needs no network and asks no server.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use morpheus_runtime::{Builder, Runtime, Stalls, task};
use rustix::fs::{CWD, FileType, Mode};

const MS: Duration = Duration::from_millis(1);
/// Requests of each kind.
const REQUESTS: u32 = 5;
/// Of FNV-1a with 64 bits.
const PRIME: u64 = 0x100_0000_01b3;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let stalls = examine()?;
    println!("{stalls}");
    println!("Lines to fix:");
    for group in &stalls.groups {
        let Some(frame) = group.culprit() else {
            continue;
        };
        let place = match (&frame.file, frame.line) {
            (Some(file), Some(line)) => format!("{}:{line}", short(file)),
            _ => frame.function.clone(),
        };
        println!("  {:<12} is {:<9} in {place}", group.label, group.kind);
    }
    Ok(())
}

/// Without the directories above the package.
fn short(file: &str) -> &str {
    file.rfind("examples/").map_or(file, |at| &file[at..])
}

/// Runs the service for a while, and says where it was stalled.
fn examine() -> io::Result<Stalls> {
    let runtime = Builder::new_multi_thread()
        .worker_threads(2)
        .max_spares(16)
        .build()
        .map_err(io::Error::other)?;
    let service = Arc::new(Service::start()?);
    for _ in 0..REQUESTS {
        let requests = [
            serve(&runtime, &service, "GET /hash", |_| hash(b"password")),
            serve(&runtime, &service, "POST /count", Service::count),
            serve(&runtime, &service, "POST /count", Service::count),
            serve(&runtime, &service, "GET /lookup", Service::lookup),
            serve(&runtime, &service, "GET /file", Service::read),
        ];
        for request in requests {
            runtime.block_on(request).map_err(io::Error::other)?;
        }
    }
    Ok(runtime.stalls())
}

/// One request, on a task of its own.
fn serve(
    runtime: &Runtime,
    service: &Arc<Service>,
    label: &'static str,
    handler: fn(&Service) -> u64,
) -> tokio::task::JoinHandle<()> {
    let service = service.clone();
    let request = async move {
        let answer = handler(&service);
        std::hint::black_box(answer);
    };
    task::Builder::new()
        .label(label)
        .spawn_on(request, runtime.handle())
}

/// The state that the handlers share.
struct Service {
    counter: Mutex<u64>,
    /// Where the silent name server is.
    name_server: UdpSocket,
    directory: PathBuf,
}

/// Computes for a while, as a hash for passwords does on purpose. All of it is one line, so that any sample finds that line.
fn hash(password: &[u8]) -> u64 {
    let (begun, mut state) = (Instant::now(), 0xcbf2_9ce4_8422_2325_u64);
    while begun.elapsed() < 60 * MS {
        let bytes = password.iter().cycle().take(100_000);
        state = bytes.fold(state, |sum, &b| (sum ^ u64::from(b)).wrapping_mul(PRIME)); // MISTAKE hash
    }
    state
}

impl Service {
    fn start() -> io::Result<Service> {
        let name = format!("morpheus-doctor-{}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory)?;
        Ok(Service {
            counter: Mutex::new(0),
            name_server: UdpSocket::bind("127.0.0.1:0")?,
            directory,
        })
    }

    /// Two of these at once: one is slow with the lock held, the other waits for it.
    fn count(&self) -> u64 {
        let mut counter = self.counter.lock().unwrap(); // MISTAKE lock
        // Short in every test, and slow in production.
        thread::sleep(40 * MS);
        *counter += 1;
        *counter
    }

    /// Asks for an address and waits for the answer, which does not come.
    fn lookup(&self) -> u64 {
        let ask = || -> io::Result<usize> {
            let socket = UdpSocket::bind("127.0.0.1:0")?;
            socket.set_read_timeout(Some(60 * MS))?;
            // One question of type A and class IN, for "slow.example".
            let query = b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x04slow\x07example\0\0\x01\0\x01";
            socket.send_to(query, self.name_server.local_addr()?)?;
            socket.recv(&mut [0; 512]) // MISTAKE lookup
        };
        ask().map_or(0, |bytes| bytes as u64)
    }

    /// Reads a file that is slow to come: behind it is a pipe whose writer takes its time.
    fn read(&self) -> u64 {
        let path = self.directory.join("config");
        let Ok(writer) = slow_file(&path) else {
            return 0;
        };
        let read = read_all(&path).unwrap_or_default();
        let _ = writer.join();
        let _ = std::fs::remove_file(&path);
        read.len() as u64
    }
}

fn read_all(path: &Path) -> io::Result<Vec<u8>> {
    let (mut file, mut bytes) = (File::open(path)?, Vec::new());
    file.read_to_end(&mut bytes)?; // MISTAKE file
    Ok(bytes)
}

/// Makes a named pipe, and a thread that writes into it late.
fn slow_file(path: &Path) -> io::Result<thread::JoinHandle<()>> {
    rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
    let path = path.to_owned();
    Ok(thread::spawn(move || {
        if let Ok(mut file) = File::options().write(true).open(path) {
            thread::sleep(60 * MS);
            let _ = file.write_all(b"answer = 42\n");
        }
    }))
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use morpheus_runtime::StallKind;

    /// The number of the line in this file that ends with this comment.
    fn line_of(mistake: &str) -> u32 {
        let ending = format!("// MISTAKE {mistake}");
        let mut lines = include_str!("doctor.rs").lines();
        let index = lines.position(|line| line.ends_with(&ending)).unwrap();
        u32::try_from(index).unwrap() + 1
    }

    fn names(stalls: &Stalls, label: &str, kind: StallKind, mistake: &str) -> bool {
        stalls.groups.iter().any(|group| {
            group.label == label
                && group.kind == kind
                && group.culprit().is_some_and(|frame| {
                    frame.line == Some(line_of(mistake))
                        && frame
                            .file
                            .as_deref()
                            .is_some_and(|file| file.ends_with("examples/doctor.rs"))
                })
        })
    }

    #[test]
    fn the_guide_has_these_lines() {
        let guide = include_str!("../../docs/src/stall-report.md");
        for mistake in ["hash", "lock", "lookup", "file"] {
            let place = format!("in examples/doctor.rs:{}\n", line_of(mistake));
            assert!(guide.contains(&place), "{mistake}: {place}");
        }
    }

    #[test]
    fn all_four_lines_are_named() {
        if cfg!(not(all(
            feature = "stacks",
            any(target_arch = "x86_64", target_arch = "aarch64")
        ))) {
            return;
        }
        let mut said = String::new();
        // On a machine that is busy with other things, a thread may not have reached its line at the time
        // of the sample.
        for _ in 0..5 {
            let stalls = examine().unwrap();
            said = stalls.to_string();
            let all = [
                ("GET /hash", StallKind::Computing, "hash"),
                ("POST /count", StallKind::Blocked, "lock"),
                ("GET /lookup", StallKind::Blocked, "lookup"),
                ("GET /file", StallKind::Blocked, "file"),
            ];
            if all
                .into_iter()
                .all(|(label, kind, mistake)| names(&stalls, label, kind, mistake))
            {
                return;
            }
        }
        panic!("not all four were named:\n{said}");
    }
}
