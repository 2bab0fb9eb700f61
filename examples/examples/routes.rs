//! An axum app with one line that watches its handlers. The stall report names the route, and the other
//! routes are answered meanwhile. At the end, with `MORPHEUS_SUMMARY=1`, a table of the routes.
//!
//! ```text
//! MORPHEUS_SUMMARY=1 cargo run --release --example routes
//! ```

use std::io::IsTerminal;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{MatchedPath, Path};
use axum::routing::get;
use morpheus_runtime::Metrics;
use morpheus_runtime::tower::WatchLayer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Computes for 200 ms without `spawn_blocking`.
async fn render(Path(id): Path<u32>) -> String {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(200) {
        std::hint::spin_loop();
    }
    format!("report {id}")
}

/// An exporter would call `publish` on these, and render them all.
async fn show() -> String {
    let metrics = Metrics::current().expect("a handler runs on the runtime");
    format!(
        "{} stalled polls were taken over, {} polls were handed off",
        metrics.debug.takeovers_watched, metrics.handoff_polls
    )
}

async fn ask(server: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(server).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer.rsplit("\r\n\r\n").next().unwrap_or_default().into())
}

#[morpheus_runtime::main(worker_threads = 2)]
async fn main() -> std::io::Result<()> {
    // No colours in a file.
    tracing_subscriber::fmt()
        .with_ansi(std::io::stdout().is_terminal())
        .init();
    let app = Router::new()
        .route("/reports/{id}", get(render))
        .route("/ping", get(async || "pong"))
        .route("/metrics", get(show))
        .layer(WatchLayer::by_route(|request| {
            Some(request.extensions().get::<MatchedPath>()?.as_str())
        }));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let server = listener.local_addr()?;
    tokio::spawn(async { axum::serve(listener, app).await });

    let slow: Vec<_> = (0..8)
        .map(|id| tokio::spawn(async move { ask(server, &format!("/reports/{id}")).await }))
        .collect();
    tokio::time::sleep(Duration::from_millis(20)).await;
    let begun = Instant::now();
    ask(server, "/ping").await?;
    println!("beside 8 slow requests /ping took {:.1?}", begun.elapsed());
    for slow in slow {
        slow.await.expect("no task panics")?;
    }
    println!("{}", ask(server, "/metrics").await?);
    Ok(())
}
