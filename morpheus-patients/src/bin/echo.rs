//! A TCP echo service under load, and the load: for paired runs with and without the doctor beside it.
//!
//! The load is a process of its own, so that what is measured of the service and seen by the doctor is the service alone.

use std::io::{Read, stdin};
use std::net::SocketAddr;
use std::os::unix::process::parent_id;
use std::process::{Child, Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use clap::Parser;
use hdrhistogram::Histogram;
use morpheus_patients::beside::{Beside, Window};
use morpheus_patients::service::{self, Failure, Options, seconds};
use morpheus_patients::traffic;
use rustix::process::{Signal, getppid, kill_process};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

const PROGRAM: &str = "patient-echo";
const ABOUT: &str = "A TCP echo service on plain tokio without a fault, and a second process that loads it: on each connection the next request follows \
    the answer. At the end it prints rate and latencies as JSON; with --beside, what the command costs it.";

#[derive(Parser)]
struct Arguments {
    #[command(flatten)]
    options: Options,

    /// Connections of the load
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    connections: u32,

    /// Bytes of a request
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    bytes: u32,

    /// How long the load runs before its requests count, in seconds
    #[arg(long, value_name = "N", default_value = "1", value_parser = seconds)]
    warm_up: Duration,

    /// Take pairs of windows, alone and beside this shell command, to which ` --pid PID` is added
    #[arg(long, value_name = "COMMAND")]
    beside: Option<String>,

    /// How many pairs
    #[arg(long, value_name = "N", default_value_t = 12, requires = "beside", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pairs: u32,

    /// How long each window is, in seconds
    #[arg(long, value_name = "N", default_value = "2", requires = "beside", value_parser = seconds)]
    window: Duration,

    /// How long the command runs before its window begins, in seconds
    #[arg(long, value_name = "N", default_value = "3", requires = "beside", value_parser = seconds)]
    settle: Duration,

    /// Be the load of this service, until standard input is closed
    #[arg(long, value_name = "ADDRESS", hide = true)]
    load: Option<SocketAddr>,
}

/// The load; told to end, and to print, when this is dropped.
struct Load(Child);

impl Drop for Load {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let status = self.0.wait();
        if !status.is_ok_and(|status| status.success()) {
            eprintln!("{PROGRAM}: the load failed, so that there are no figures");
        }
    }
}

async fn accept(listener: TcpListener) {
    loop {
        if let Ok((stream, _)) = listener.accept().await {
            let _ = stream.set_nodelay(true);
            tokio::spawn(traffic::echo(stream));
        }
    }
}

fn start(arguments: &Arguments) -> Result<Load, Failure> {
    let listener = std::net::TcpListener::bind(("127.0.0.1", 0))?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    tokio::spawn(accept(TcpListener::from_std(listener)?));
    let mut command = Command::new("/proc/self/exe");
    command
        .args(["--load", &address.to_string()])
        .args(["--connections", &arguments.connections.to_string()])
        .args(["--bytes", &arguments.bytes.to_string()])
        .args(["--warm-up", &arguments.warm_up.as_secs_f64().to_string()])
        .stdin(Stdio::piped());
    if let Some(beside) = &arguments.beside {
        command
            .args(["--beside", beside])
            .args(["--pairs", &arguments.pairs.to_string()])
            .args(["--window", &arguments.window.as_secs_f64().to_string()])
            .args(["--settle", &arguments.settle.as_secs_f64().to_string()]);
    }
    Ok(Load(command.spawn()?))
}

/// The latencies that the connections have measured since they were asked for last.
struct Measured(Mutex<Histogram<u64>>);

impl Measured {
    fn latencies(&self) -> MutexGuard<'_, Histogram<u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Measures for a time.
    async fn window(&self, length: Duration) -> Window {
        self.latencies().reset();
        let began = Instant::now();
        tokio::time::sleep(length).await;
        let latencies = self.latencies();
        Window {
            rate: latencies.len() as f64 / began.elapsed().as_secs_f64(),
            p99_ns: latencies.value_at_quantile(0.99) as f64,
        }
    }
}

async fn client(address: SocketAddr, bytes: u32, measured: Arc<Measured>) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut buffer = vec![7; bytes as usize];
    loop {
        let began = Instant::now();
        stream.write_all(&buffer).await?;
        stream.read_exact(&mut buffer).await?;
        let latency = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        measured.latencies().saturating_record(latency);
    }
}

/// The figures of the load, until it is told to end.
async fn measure(
    arguments: &Arguments,
    measured: &Measured,
    mut is_closed: oneshot::Receiver<()>,
) -> Result<Value, Failure> {
    tokio::select! {
        () = tokio::time::sleep(arguments.warm_up) => {}
        _ = &mut is_closed => return Err("it was ended before the warm-up was over".into()),
    }
    if let Some(command) = &arguments.beside {
        let beside = Beside {
            command: command.clone(),
            pid: parent_id(),
            pairs: arguments.pairs,
            window: arguments.window,
            settle: arguments.settle,
        };
        return tokio::select! {
            figures = beside.measure(PROGRAM, |length| measured.window(length)) => Ok(figures?),
            _ = is_closed => Err("it was ended before all pairs were taken".into()),
        };
    }
    measured.latencies().reset();
    let began = Instant::now();
    let _ = is_closed.await;
    let (seconds, latencies) = (began.elapsed().as_secs_f64(), measured.latencies());
    Ok(serde_json::json!({
        "connections": arguments.connections,
        "bytes": arguments.bytes,
        "seconds": seconds,
        "requests": latencies.len(),
        "rate": latencies.len() as f64 / seconds,
        "p50_ns": latencies.value_at_quantile(0.5),
        "p99_ns": latencies.value_at_quantile(0.99),
        "max_ns": latencies.max(),
    }))
}

/// Loads the service at `address` until standard input is closed or all pairs are taken, and prints the figures.
fn load(address: SocketAddr, arguments: &Arguments) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let measured = Arc::new(Measured(Mutex::new(Histogram::new_with_bounds(
        1,
        60_000_000_000,
        3,
    )?)));
    let (closed, is_closed) = oneshot::channel();
    std::thread::Builder::new()
        .name("stdin".to_owned())
        .spawn(move || {
            let _ = stdin().read(&mut [0]);
            let _ = closed.send(());
        })?;
    let figures = runtime.block_on(async {
        let mut clients = tokio::task::JoinSet::new();
        for _ in 0..arguments.connections {
            clients.spawn(client(address, arguments.bytes, Arc::clone(&measured)));
        }
        tokio::select! {
            figures = measure(arguments, &measured, is_closed) => figures,
            Some(Ok(Err(error))) = clients.join_next() => Err(format!("a connection failed: {error}").into()),
        }
    })?;
    service::print(PROGRAM, &figures);
    Ok(())
}

fn main() -> ExitCode {
    let mut arguments: Arguments = service::arguments(PROGRAM, ABOUT);
    if let Some(address) = arguments.load {
        let loaded = load(address, &arguments);
        if arguments.beside.is_some() {
            // The service has nothing left to serve, and ends as if by hand.
            let _ = getppid().map(|parent| kill_process(parent, Signal::TERM));
        }
        return match loaded {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{PROGRAM}: load: {error}");
                ExitCode::FAILURE
            }
        };
    }
    // The warm-up comes on top of the measured time.
    if let Some(seconds) = &mut arguments.options.seconds {
        *seconds += arguments.warm_up;
    }
    service::serve(PROGRAM, &arguments.options, || start(&arguments))
}
