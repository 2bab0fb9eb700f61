//! Tests reqwest: the client on our runtime, its server elsewhere. The hogs are tasks that compute on what they received.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::routing::{get, post};
use futures_util::StreamExt as _;
use morpheus_ecosystem::{Scene, in_time, neighbour};
use reqwest::Client;
use tokio::net::TcpListener;

async fn serve() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let pieces = async || {
        let pieces = (0..100_u8).map(|n| Ok::<_, std::io::Error>(Bytes::from(vec![n; 10_000])));
        Body::from_stream(futures_util::stream::iter(pieces))
    };
    let router = Router::new()
        .route("/ping", get(async || "pong"))
        .route("/echo", post(async |body: Bytes| body))
        .route("/pieces", get(pieces))
        .route("/never", get(std::future::pending::<&'static str>));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    address
}

async fn ping(client: Client, address: SocketAddr) {
    let answer = client.get(format!("http://{address}/ping")).send();
    assert_eq!(answer.await.unwrap().text().await.unwrap(), "pong");
}

#[morpheus_runtime::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_of_connections_streams_and_a_timeout() {
    let address = serve().await;
    let client = Client::new();
    let pings: Vec<_> = (0..64)
        .map(|_| tokio::spawn(ping(client.clone(), address)))
        .collect();
    for ping in pings {
        in_time(ping).await.unwrap();
    }
    let pieces = client.get(format!("http://{address}/pieces")).send();
    let mut pieces = in_time(pieces).await.unwrap().bytes_stream();
    let (mut count, mut sum) = (0, 0);
    while let Some(piece) = in_time(pieces.next()).await {
        let piece = piece.unwrap();
        count += piece.len();
        sum += piece.iter().map(|byte| u64::from(*byte)).sum::<u64>();
    }
    assert_eq!((count, sum), (1_000_000, 49_500_000));
    let numbers: Vec<u32> = (0..1000).collect();
    let echo = client
        .post(format!("http://{address}/echo"))
        .json(&numbers)
        .send();
    let echo: Vec<u32> = in_time(echo).await.unwrap().json().await.unwrap();
    assert_eq!(echo, numbers);
    let never = client.get(format!("http://{address}/never"));
    let never = never.timeout(Duration::from_millis(50)).send();
    assert!(in_time(never).await.unwrap_err().is_timeout());
}

#[test]
fn a_neighbour_of_hogs() {
    let does = "client; 64 requests at once, a streamed body, JSON, a timeout";
    neighbour("reqwest", does, async |stage| {
        let address = in_time(stage.outside.spawn(serve())).await.unwrap();
        let (client, hogs) = (Client::new(), stage.hogs.clone());
        let hog = {
            let client = client.clone();
            move || {
                let (client, hogs) = (client.clone(), hogs.clone());
                async move {
                    ping(client, address).await;
                    hogs.hog().await;
                }
            }
        };
        let ping = move || ping(client.clone(), address);
        Scene::of_tasks(&stage, hog, ping)
    });
}
