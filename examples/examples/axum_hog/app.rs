//! The application: axum 0.8, with nothing of Morpheus's but the layer that one variant adds.

use std::sync::Arc;
use std::time::Duration;

use argon2::Argon2;
use axum::Router;
use axum::extract::{MatchedPath, State};
use axum::http::StatusCode;
use axum::routing::get;
use clap::ValueEnum;
use examples::password;
use morpheus_runtime::tower::WatchLayer;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::task::block_in_place;

/// The work of the handlers that occupy a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Work {
    /// A password is hashed: the handler computes.
    Hash,
    /// The handler blocks for 5 ms, as in a read from a disk or in a database's client. It is a sleep, so
    /// that it takes equally long in all variants.
    Read,
}

impl Work {
    /// The path of the handler.
    pub fn path(self) -> &'static str {
        match self {
            Work::Hash => "/hash",
            Work::Read => "/read",
        }
    }
}

/// The time for which `/read` blocks.
pub const READ: Duration = Duration::from_millis(5);

/// How the handlers of `/hash` and `/read` are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handler {
    /// As most programs are written at first: the handler computes itself.
    Inline,
    /// As tokio's documentation recommends: on the pool for blocking calls.
    SpawnBlocking,
    /// As an expert does it: on the pool, and no more of them at a time than there are workers.
    Bounded,
    /// With the worker's other tasks moved to another thread first.
    InPlace,
}

/// What the handlers share.
#[derive(Clone)]
struct AppState {
    hasher: Argon2<'static>,
    permits: Arc<Semaphore>,
}

/// Builds the app with one of the kinds of handlers, for a runtime with this many workers.
pub fn router(handler: Handler, hasher: Argon2<'static>, workers: usize) -> Router {
    let state = AppState {
        hasher,
        permits: Arc::new(Semaphore::new(workers)),
    };
    let app = Router::new().route("/ping", get(async || "pong"));
    let app = match handler {
        Handler::Inline => app
            .route("/hash", get(hash_inline))
            .route("/read", get(read_inline)),
        Handler::SpawnBlocking => app
            .route("/hash", get(hash_on_the_pool))
            .route("/read", get(read_on_the_pool)),
        Handler::Bounded => app
            .route("/hash", get(hash_bounded))
            .route("/read", get(read_bounded)),
        Handler::InPlace => app
            .route("/hash", get(hash_in_place))
            .route("/read", get(async || block_in_place(read))),
    };
    app.with_state(state)
}

/// Adds the line that watches all handlers, each under its route.
pub fn watched(app: Router) -> Router {
    app.layer(WatchLayer::by_route(|request| {
        Some(request.extensions().get::<MatchedPath>()?.as_str())
    }))
}

async fn read_inline() -> &'static str {
    read()
}

async fn read_on_the_pool() -> Result<&'static str, StatusCode> {
    tokio::task::spawn_blocking(read)
        .await
        .map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
}

fn read() -> &'static str {
    std::thread::sleep(READ);
    "row"
}

async fn hash_inline(State(state): State<AppState>) -> Result<String, StatusCode> {
    hash(&state.hasher)
}

async fn hash_on_the_pool(State(state): State<AppState>) -> Result<String, StatusCode> {
    tokio::task::spawn_blocking(move || hash(&state.hasher))
        .await
        .map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?
}

async fn hash_in_place(State(state): State<AppState>) -> Result<String, StatusCode> {
    block_in_place(|| hash(&state.hasher))
}

async fn hash_bounded(state: State<AppState>) -> Result<String, StatusCode> {
    let _permit = state.permits.clone().acquire_owned().await;
    hash_on_the_pool(state).await
}

/// Reads do not compute: their bound is the pool's own.
async fn read_bounded() -> Result<&'static str, StatusCode> {
    read_on_the_pool().await
}

fn hash(hasher: &Argon2<'_>) -> Result<String, StatusCode> {
    password::hash(hasher).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
}
