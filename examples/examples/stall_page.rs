//! A service with a page that shows its stalls: which route, which line, how often, how long.
//!
//! ```text
//! cargo run --release --example stall_page               serves until Ctrl-C, and says where
//! cargo run --release --example stall_page -- --once     asks itself, prints the page, and ends
//! ```
//!
//! `/hash` computes in the handler and `/file` reads from a slow pipe. The handlers contain nothing of
//! Morpheus's: one line watches all routes, and the page is [`examples::stall_page`].

use std::io::{self, Read as _, Write as _, pipe};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::MatchedPath;
use axum::routing::get;
use examples::stall_page::stalls;
use morpheus_runtime::tower::WatchLayer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// The duration of each stall.
const STALLED: Duration = Duration::from_millis(50);

async fn hash() -> String {
    let (begun, mut state) = (Instant::now(), 1_u64);
    while begun.elapsed() < STALLED {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
    }
    format!("{state:x}")
}

async fn file() -> io::Result<String> {
    let (mut reader, mut writer) = pipe()?;
    // Simulates a slow disk.
    std::thread::spawn(move || {
        std::thread::sleep(STALLED);
        writer.write_all(b"content")
    });
    let mut text = String::new();
    reader.read_to_string(&mut text)?;
    Ok(text)
}

fn app() -> Router {
    Router::new()
        .route("/hash", get(hash))
        .route(
            "/file",
            get(async || file().await.map_err(|error| error.to_string())),
        )
        .route("/stalls", get(stalls))
        .layer(WatchLayer::by_route(|request| {
            Some(request.extensions().get::<MatchedPath>()?.as_str())
        }))
}

async fn ask(server: SocketAddr, path: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect(server).await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let body = answer.split_once("\r\n\r\n").map(|(_, body)| body);
    Ok(body.unwrap_or_default().into())
}

/// Sends some slow requests, and then prints the page.
async fn once(server: SocketAddr) -> io::Result<String> {
    for _ in 0..3 {
        tokio::try_join!(ask(server, "/hash"), ask(server, "/file"))?;
    }
    ask(server, "/stalls").await
}

#[morpheus_runtime::main]
async fn main() -> io::Result<()> {
    let asks_itself = std::env::args().nth(1).is_some_and(|word| word == "--once");
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let server = listener.local_addr()?;
    let ctrl_c = async {
        let _ = tokio::signal::ctrl_c().await;
    };
    let serving = tokio::spawn(async {
        axum::serve(listener, app())
            .with_graceful_shutdown(ctrl_c)
            .await
    });
    if asks_itself {
        println!("{}", once(server).await?);
        return Ok(());
    }
    println!(
        "http://{server}/stalls shows what http://{server}/hash and /file have done; Ctrl-C ends it"
    );
    serving.await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_names_both_routes_and_their_lines() {
        let runtime = morpheus_runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .build()
            .unwrap();
        let page = runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let server = listener.local_addr().unwrap();
            tokio::spawn(async { axum::serve(listener, app()).await });
            once(server).await.unwrap()
        });
        for (label, kind) in [("GET /hash", "computing"), ("GET /file", "blocked")] {
            assert!(page.contains(label) && page.contains(kind), "{page}");
        }
        assert!(page.contains("stall_page.rs:"), "{page}");
    }
}
