//! A minimal HTTP/1.1 client for the load, on a connection that is kept alive.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::http::is_whole;

/// How long a connection may take to come about: the kernel accepts it for the service.
const PATIENCE: Duration = Duration::from_secs(5);

/// The bytes of a GET.
pub fn get(server: SocketAddr, path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: {server}\r\n\r\n").into_bytes()
}

/// The bytes of a POST of JSON.
pub fn post(server: SocketAddr, path: &str, json: &str) -> Vec<u8> {
    let head = format!("POST {path} HTTP/1.1\r\nhost: {server}\r\ncontent-type: application/json");
    format!("{head}\r\ncontent-length: {}\r\n\r\n{json}", json.len()).into_bytes()
}

/// A connection.
pub struct Connection {
    stream: TcpStream,
    answer: Vec<u8>,
}

impl Connection {
    /// Connects. `patience` is how long it waits for bytes of an answer: `None` is for ever.
    ///
    /// # Errors
    /// Those of the sockets.
    pub fn open(server: SocketAddr, patience: Option<Duration>) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&server, PATIENCE)?;
        // A request must not wait for the acknowledgement of the previous one.
        stream.set_nodelay(true)?;
        stream.set_read_timeout(patience)?;
        Ok(Self {
            stream,
            answer: Vec::new(),
        })
    }

    /// A second handle of the socket, to shut it down while another thread waits on this one.
    ///
    /// # Errors
    /// There are too many files.
    pub fn stream(&self) -> io::Result<TcpStream> {
        self.stream.try_clone()
    }

    /// Sends a request.
    ///
    /// # Errors
    /// The connection has ended.
    pub fn send(&mut self, request: &[u8]) -> io::Result<()> {
        self.answer.clear();
        self.stream.write_all(request)
    }

    /// Reads once of the answer, which blocks where there is nothing to read. Whether it is whole.
    ///
    /// # Errors
    /// When the connection ends, and on an answer that is not 200, has no length, or has another length than
    /// it says.
    pub fn receive(&mut self) -> io::Result<bool> {
        read_more(&mut self.stream, &mut self.answer)?;
        is_whole(&self.answer)
    }

    /// Sends a request and reads the answer to its last byte. It waits on after its patience has ended, until `is_over`.
    ///
    /// # Errors
    /// As [`Connection::receive`].
    pub fn ask(&mut self, request: &[u8], is_over: &AtomicBool) -> io::Result<()> {
        self.send(request)?;
        loop {
            match self.receive() {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                // Acquire: what made it over happened before.
                Err(error)
                    if error.kind() == ErrorKind::WouldBlock
                        && !is_over.load(Ordering::Acquire) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl AsRawFd for Connection {
    fn as_raw_fd(&self) -> RawFd {
        self.stream.as_raw_fd()
    }
}

fn read_more(stream: &mut impl Read, answer: &mut Vec<u8>) -> io::Result<()> {
    let mut chunk = [0; 1024];
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(n) => {
                answer.extend_from_slice(&chunk[..n]);
                return Ok(());
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an answer a few bytes at a time, as a network may.
    struct Trickle<'a>(&'a [u8], usize);

    impl Read for Trickle<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let n = self.1.min(self.0.len()).min(buffer.len());
            buffer[..n].copy_from_slice(&self.0[..n]);
            self.0 = &self.0[n..];
            Ok(n)
        }
    }

    fn read(text: &str, step: usize) -> io::Result<Vec<u8>> {
        let (mut stream, mut answer) = (Trickle(text.as_bytes(), step), Vec::new());
        loop {
            read_more(&mut stream, &mut answer)?;
            if is_whole(&answer)? {
                return Ok(answer);
            }
        }
    }

    #[test]
    fn an_answer_may_come_in_any_pieces() {
        let text = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\ndate: today\r\n\r\npong";
        for step in 1..=text.len() {
            assert_eq!(read(text, step).unwrap(), text.as_bytes(), "{step}");
        }
        assert!(read("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", 7).is_ok());
    }

    #[test]
    fn what_is_wrong_is_said() {
        let cases = [
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\npo",
                "end of file",
            ),
            (
                "HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\npong!",
                "more bytes",
            ),
            ("HTTP/1.1 200 OK\r\n\r\n", "without content-length"),
            ("HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n", "500 Oh"),
            ("", "end of file"),
        ];
        for (text, expected) in cases {
            let error = read(text, 1_000).unwrap_err().to_string();
            assert!(error.contains(expected), "{text:?}: {error}");
        }
        let endless = "x".repeat(2 * crate::http::LONGEST_HEAD);
        assert!(
            read(&endless, 1_000)
                .unwrap_err()
                .to_string()
                .contains("without end")
        );
    }
}
