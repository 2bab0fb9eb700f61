//! Tests of the service on both runtimes, and of its shutdown.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use examples::password;
use morpheus_bench::code::Code;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::database::Database;
use crate::routes::router;
use crate::service::{self, Service, Shared};
use crate::shutdown::{Open, Signals};
use crate::{observe, shutdown};

/// A time limit that no step exceeds, even on a slow machine.
const PATIENCE: Duration = Duration::from_secs(60);

struct Running {
    address: SocketAddr,
    service: Service,
    stop: oneshot::Sender<()>,
    /// The number of requests that were left.
    ended: JoinHandle<usize>,
    _rows: TempDir,
}

impl Running {
    fn start(on: &Handle, code: Code, layer: bool, passes: u32, grace: Duration) -> Running {
        let rows = tempfile::tempdir().unwrap();
        let service = Arc::new(Shared {
            database: Database::open(&rows.path().join("rows")).unwrap(),
            hasher: password::hasher(passes).unwrap(),
            computes: Duration::from_millis(1),
            permits: service::one_a_cpu(),
            open: Open::default(),
        });
        let app = router(code, layer, Arc::clone(&service));
        let listener = on.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        let (on, shared) = (on.clone(), Arc::clone(&service));
        // As in `main`: a thread that is no worker serves.
        let ended = thread::spawn(move || {
            let asked = async { stopped.await.unwrap_or_default() };
            on.block_on(shutdown::serve(listener, app, asked, grace, &shared.open))
                .unwrap()
        });
        Running {
            address,
            service,
            stop,
            ended,
            _rows: rows,
        }
    }

    fn end(self) -> usize {
        self.stop.send(()).unwrap();
        self.ended.join().unwrap()
    }
}

/// The status, and the part after the headers.
fn ask(address: SocketAddr, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nhost: here\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.into())
}

fn answers_everything(on: &Handle, code: Code, layer: bool) -> Running {
    let running = Running::start(on, code, layer, 1, PATIENCE);
    let get = |path| ask(running.address, "GET", path, "");
    let post = |body| ask(running.address, "POST", "/db", body);
    assert_eq!(get("/ping"), (200, "pong".into()));
    let (status, row) = post(r#"{"text":"milk"}"#);
    assert_eq!(
        (status, row.as_str()),
        (200, r#"{"id":1001,"text":"milk"}"#)
    );
    let (status, rows) = get("/db");
    assert_eq!(status, 200);
    assert!(rows.starts_with(&format!("[{row},")), "{rows}");
    assert_eq!(post(r#"{"word":"milk"}"#).0, 422);
    assert_eq!(post("milk").0, 400);
    assert_eq!(get("/compute"), (200, "computed".into()));
    assert!(get("/hash").1.starts_with("$argon2id$"));
    let (status, report) = get("/report");
    assert!(
        status == 200 && report.contains(r#""rows":100"#),
        "{report}"
    );
    assert_eq!(get("/nowhere").0, 404);
    running
}

#[test]
fn it_answers_on_morpheus() {
    observe::install().unwrap();
    let runtime = morpheus_runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    for (code, layer) in [
        (Code::Inline, false),
        (Code::Inline, true),
        (Code::SpawnBlocking, false),
    ] {
        let running = answers_everything(runtime.handle(), code, layer);
        let get = |path| ask(running.address, "GET", path, "");
        let (status, page) = get("/stalls");
        assert!(
            status == 200 && page.contains("Where polls were stalled"),
            "{page}"
        );
        let (status, metrics) = get("/metrics");
        assert_eq!(status, 200);
        assert!(
            metrics.lines().any(|line| line == "morpheus_workers 2"),
            "{metrics}"
        );
        assert_eq!(running.end(), 0);
    }
}

#[test]
fn it_answers_on_tokio_and_says_what_only_morpheus_has() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for code in Code::value_variants().iter().copied() {
        let running = answers_everything(runtime.handle(), code, false);
        for path in ["/stalls", "/metrics"] {
            let (status, why) = ask(running.address, "GET", path, "");
            assert_eq!(status, 501, "{path}");
            assert!(why.contains("plain tokio"), "{path}: {why}");
        }
        assert_eq!(running.end(), 0);
    }
}

/// A client whose hash is being computed.
fn open_request(running: &Running) -> JoinHandle<(u16, String)> {
    let address = running.address;
    let client = thread::spawn(move || ask(address, "GET", "/hash", ""));
    let begun = Instant::now();
    while running.service.open.count() == 0 {
        assert!(begun.elapsed() < PATIENCE);
        thread::sleep(Duration::from_millis(1));
    }
    client
}

fn ends_gracefully(on: &Handle) {
    let running = Running::start(on, Code::Inline, false, 10, PATIENCE);
    let client = open_request(&running);
    let address = running.address;
    assert_eq!(running.end(), 0);
    let (status, hash) = client.join().unwrap();
    assert!(status == 200 && hash.starts_with("$argon2id$"), "{hash}");
    assert!(
        TcpStream::connect(address).is_err(),
        "no new connection is accepted"
    );
}

#[test]
fn an_open_request_is_finished_before_it_ends() {
    let morpheus = morpheus_runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    ends_gracefully(morpheus.handle());
    let tokio = tokio::runtime::Runtime::new().unwrap();
    ends_gracefully(tokio.handle());
}

#[test]
fn a_request_that_takes_too_long_is_left_and_counted() {
    let runtime = morpheus_runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .build()
        .unwrap();
    // The hash takes seconds, and the grace is zero.
    let running = Running::start(runtime.handle(), Code::Inline, false, 300, Duration::ZERO);
    let _client = open_request(&running);
    assert_eq!(running.end(), 1);
    // Not by a drop, which would wait for the hash.
    runtime.shutdown_background();
}

#[test]
fn a_signal_asks_it_to_end() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for signal in [libc::SIGTERM, libc::SIGINT] {
        runtime.block_on(async {
            let signals = Signals::listen().unwrap();
            // SAFETY: a plain system call; tokio's handler is installed, so that the process goes on.
            unsafe { libc::raise(signal) };
            let asked = tokio::time::timeout(PATIENCE, signals.asked()).await;
            assert!(asked.is_ok(), "{signal}");
        });
    }
}

/// The comparison is fair only if the two programs are the same.
#[test]
fn the_twin_differs_in_the_attribute_and_in_nothing_else() {
    let (own, twin) = (include_str!("main.rs"), include_str!("main_tokio.rs"));
    let differ: Vec<_> = own
        .lines()
        .zip(twin.lines())
        .filter(|(own, twin)| own != twin)
        .collect();
    assert_eq!(differ, [("#[morpheus_runtime::main]", "#[tokio::main]")]);
    assert_eq!(own.lines().count(), twin.lines().count());
}
