//! Which connection a request takes.

use std::collections::VecDeque;
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use clap::ValueEnum;
use morpheus_harness::thread::lock;
use serde::Serialize;

use super::http::Connection;

/// How often a request that waits for its answer looks whether all is over, where its connection is not its client's own: that one is
/// shut down.
const LOOK: Duration = Duration::from_millis(500);

/// How requests come to connections. A runtime that judges tasks judges connections here: HTTP/1.1 has a task for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Connections {
    /// Each client keeps one, and asks for one path
    Own,
    /// All clients share them, as behind a proxy: a request takes the one that has been idle for longest
    Shared,
    /// Each request makes one, so that its task is as new as it is, as in HTTP/2
    New,
}

impl Connections {
    /// The end of the name of a case.
    pub fn of_case(self) -> &'static str {
        match self {
            Connections::Own => "",
            Connections::Shared => ", shared connections",
            Connections::New => ", new connections",
        }
    }
}

/// The connections of all clients.
pub struct Pool {
    server: SocketAddr,
    connections: Connections,
    idle: Mutex<VecDeque<Connection>>,
}

impl Pool {
    /// Has none yet.
    pub fn new(server: SocketAddr, connections: Connections) -> Pool {
        Pool {
            server,
            connections,
            idle: Mutex::default(),
        }
    }

    /// The connection of the next request of a client: its own, or else one that is idle, or a new one.
    ///
    /// # Errors
    /// Those of the sockets.
    pub fn take(&self, own: Option<Connection>) -> io::Result<Connection> {
        match own.or_else(|| lock(&self.idle).pop_front()) {
            Some(connection) => Ok(connection),
            None => Connection::open(self.server, self.patience()),
        }
    }

    /// Takes the connection of a request that was answered. Returns it if it is its client's own.
    pub fn put(&self, connection: Connection) -> Option<Connection> {
        match self.connections {
            Connections::Own => return Some(connection),
            Connections::Shared => lock(&self.idle).push_back(connection),
            Connections::New => {}
        }
        None
    }

    /// The same as [`put`](Self::put) and [`take`](Self::take), for a client that asks again at once.
    ///
    /// # Errors
    /// Those of the sockets.
    pub fn exchange(&self, connection: &mut Connection) -> io::Result<()> {
        match self.connections {
            Connections::Own => {}
            Connections::Shared => {
                let mut idle = lock(&self.idle);
                if let Some(next) = idle.pop_front() {
                    idle.push_back(mem::replace(connection, next));
                }
            }
            Connections::New => *connection = self.take(None)?,
        }
        Ok(())
    }

    fn patience(&self) -> Option<Duration> {
        (self.connections != Connections::Own).then_some(LOOK)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// The ports of two requests that are under way at once, and of one that follows the second.
    fn ports(connections: Connections) -> [u16; 3] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let pool = Pool::new(listener.local_addr().unwrap(), connections);
        let port =
            |connection: &Connection| connection.stream().unwrap().local_addr().unwrap().port();
        let (one, mut other) = (pool.take(None).unwrap(), pool.take(None).unwrap());
        let ports = [port(&one), port(&other)];
        // Its request is answered first.
        let own = pool.put(one);
        assert_eq!(own.is_some(), connections == Connections::Own);
        pool.exchange(&mut other).unwrap();
        [ports[0], ports[1], port(&other)]
    }

    #[test]
    fn a_request_takes_the_connection_that_it_should() {
        let [_, other, next] = ports(Connections::Own);
        assert_eq!(next, other, "its own");
        let [one, _, next] = ports(Connections::Shared);
        assert_eq!(next, one, "it was idle for longest");
        let [one, other, next] = ports(Connections::New);
        assert!(next != one && next != other, "a new one");
    }
}
