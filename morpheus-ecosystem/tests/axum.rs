//! Tests axum 0.8: routing, extractors, JSON, state, and a graceful shutdown that waits for what is in flight.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use axum::{Json, Router};
use morpheus_ecosystem::hog::{Kind, Until};
use morpheus_ecosystem::{Hogs, Scene, in_time, neighbour};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

#[derive(Clone)]
struct App {
    hogs: Hogs,
    sum: Arc<AtomicU64>,
}

#[derive(Serialize, Deserialize, Debug, PartialEq)]
struct Sum {
    sum: u64,
}

async fn add(State(app): State<App>, Json(numbers): Json<Vec<u64>>) -> Json<Sum> {
    let sum = numbers.iter().sum();
    app.sum.fetch_add(sum, Ordering::Relaxed);
    Json(Sum { sum })
}

async fn half(Path(number): Path<u64>) -> Result<String, (StatusCode, &'static str)> {
    if number % 2 == 1 {
        return Err((StatusCode::UNPROCESSABLE_ENTITY, "odd"));
    }
    Ok((number / 2).to_string())
}

async fn hog(State(app): State<App>) -> &'static str {
    app.hogs.hog().await;
    "grunt"
}

fn app(hogs: Hogs) -> App {
    let sum = Arc::default();
    App { hogs, sum }
}

fn router(app: App) -> Router {
    Router::new()
        .route("/ping", get(async || "pong"))
        .route("/hog", get(hog))
        .route("/add", post(add))
        .route("/half/{number}", get(half))
        .with_state(app)
}

/// A server on the current runtime, until `stop` is dropped.
async fn serve(app: App) -> (SocketAddr, oneshot::Sender<()>, tokio::task::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let server = axum::serve(listener, router(app)).with_graceful_shutdown(async {
        let _ = stopped.await;
    });
    let server = tokio::spawn(async move { server.await.unwrap() });
    (address, stop, server)
}

async fn text(client: &reqwest::Client, address: SocketAddr, path: &str) -> String {
    let response = client.get(format!("http://{address}{path}")).send();
    response.await.unwrap().text().await.unwrap()
}

#[morpheus_runtime::test(flavor = "multi_thread", worker_threads = 2)]
async fn routes_extractors_and_errors() {
    let app = app(Hogs::new(Kind::Sleeps, Until::Time, 1));
    let (address, _stop, _server) = serve(app.clone()).await;
    let client = reqwest::Client::new();
    let adding: Vec<_> = (1..=50_u64)
        .map(|last| {
            let add = client.post(format!("http://{address}/add"));
            let add = add.json(&(1..=last).collect::<Vec<_>>()).send();
            tokio::spawn(async move {
                let answer: Sum = add.await.unwrap().json().await.unwrap();
                assert_eq!(
                    answer,
                    Sum {
                        sum: last * (last + 1) / 2
                    }
                );
            })
        })
        .collect();
    for adding in adding {
        in_time(adding).await.unwrap();
    }
    assert_eq!(app.sum.load(Ordering::Relaxed), 22_100);
    assert_eq!(text(&client, address, "/half/84").await, "42");
    let odd = client.get(format!("http://{address}/half/3")).send();
    let odd = in_time(odd).await.unwrap();
    assert_eq!(odd.status().as_u16(), 422);
    let broken = client.post(format!("http://{address}/add"));
    let broken = broken
        .header("content-type", "application/json")
        .body("[1, ")
        .send();
    assert_eq!(in_time(broken).await.unwrap().status().as_u16(), 400);
}

/// A shutdown begins while a handler computes: the request is answered, and then the server ends.
#[morpheus_runtime::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_graceful_shutdown_waits_for_a_hog() {
    let hogs = Hogs::new(Kind::Computes, Until::Time, 1);
    let (address, stop, server) = serve(app(hogs.clone())).await;
    let client = reqwest::Client::new();
    let answer = tokio::spawn(async move { text(&client, address, "/hog").await });
    hogs.begin(1);
    while hogs.entered() == 0 {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    drop(stop);
    assert_eq!(in_time(answer).await.unwrap(), "grunt");
    in_time(server).await.unwrap();
    assert_eq!(hogs.left(), 1);
}

#[test]
fn a_neighbour_of_hogs() {
    let does = "`axum::serve`; JSON, paths, state, errors, graceful shutdown beside a hog";
    neighbour("axum", does, async |stage| {
        let app = app(stage.hogs.clone());
        let (address, stop, _) = stage.inside(serve(app)).await;
        // The server runs until its runtime ends.
        std::mem::forget(stop);
        let client = reqwest::Client::new();
        let hog = {
            let client = client.clone();
            move || {
                let client = client.clone();
                async move { assert_eq!(text(&client, address, "/hog").await, "grunt") }
            }
        };
        let ping = move || {
            let client = client.clone();
            async move { assert_eq!(text(&client, address, "/ping").await, "pong") }
        };
        Scene::of_server(&stage, hog, ping)
    });
}
