//! A Redis server for one test: a process on a port of loopback, which ends with the test.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::PATIENCE;

/// The program, as packages name it.
const PROGRAM: &str = "redis-server";

/// Another process may take the port between the search and the start.
const ATTEMPTS: usize = 5;

/// A server that answers, until this is dropped.
#[derive(Debug)]
pub struct RedisServer {
    process: Child,
    address: SocketAddr,
}

impl RedisServer {
    /// Starts a server. Where the machine has none it prints a line and returns `None`; with
    /// `MORPHEUS_REQUIRE_REDIS` set that is a failure.
    ///
    /// # Panics
    ///
    /// When the server is installed and does not start.
    #[must_use]
    pub fn start() -> Option<RedisServer> {
        for _ in 0..ATTEMPTS {
            let port = free_port();
            let process = Command::new(PROGRAM)
                .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
                .args(["--port", &port.to_string()])
                .current_dir(std::env::temp_dir())
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .spawn();
            let process = match process {
                Ok(process) => process,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    let missing = "no `redis-server` in the path (Debian, Ubuntu: apt-get install redis-server)";
                    morpheus_testing::skip_unless_required(missing, "MORPHEUS_REQUIRE_REDIS");
                    return None;
                }
                Err(error) => panic!("{PROGRAM} cannot be started: {error}"),
            };
            let mut server = RedisServer {
                process,
                address: (Ipv4Addr::LOCALHOST, port).into(),
            };
            if server.comes_up() {
                return Some(server);
            }
        }
        panic!("{PROGRAM} ended {ATTEMPTS} times right after its start");
    }

    /// The address for `redis::Client::open`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}/", self.address)
    }

    /// Whether the server answers before it ends.
    fn comes_up(&mut self) -> bool {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            // Another server on that port may answer: then this one ends.
            if self.process.try_wait().expect("it is our child").is_some() {
                return false;
            }
            if self.answers() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("{PROGRAM} does not answer at {}", self.address);
    }

    fn answers(&self) -> bool {
        let Ok(mut connection) = TcpStream::connect(self.address) else {
            return false;
        };
        let mut answer = [0; 7];
        let limit = Some(Duration::from_secs(1));
        connection.set_read_timeout(limit).is_ok()
            && connection.write_all(b"PING\r\n").is_ok()
            && connection.read_exact(&mut answer).is_ok()
            && &answer == b"+PONG\r\n"
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // The server has nothing to save.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a free port");
    listener.local_addr().expect("it is bound").port()
}
