//! A Redis server of one's own: a process on a port of loopback, which ends with the test.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::PATIENCE;

/// The program, as packages call it.
const PROGRAM: &str = "redis-server";

/// Somebody may take the port between finding it and starting.
const ATTEMPTS: usize = 5;

/// A server that answers, until this is dropped.
#[derive(Debug)]
pub struct RedisServer {
    process: Child,
    address: SocketAddr,
}

impl RedisServer {
    /// Starts one. `None`, with a line that says so, where the machine has none; with `MORPHEUS_REQUIRE_REDIS` set that is
    /// a failure.
    ///
    /// # Panics
    ///
    /// When there is one, and it does not come up.
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

    /// For `redis::Client::open`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}/", self.address)
    }

    /// Whether it answers before it ends.
    fn comes_up(&mut self) -> bool {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            // The answer of another server on that port would not count: ours then ends.
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
        // It has nothing that it would have to save.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback has a free port");
    listener.local_addr().expect("it is bound").port()
}
