//! The application: axum 0.8, with nothing of Morpheus's but the layer that one variant adds.

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
}

/// Builds the app with one of the two kinds of handlers.
pub fn router(handler: Handler, hasher: Argon2<'static>) -> Router {
    let app = Router::new().route("/ping", get(async || "pong"));
    let app = match handler {
        Handler::Inline => app
            .route("/hash", get(hash_inline))
            .route("/read", get(read_inline)),
        Handler::SpawnBlocking => app
            .route("/hash", get(hash_on_the_pool))
            .route("/read", get(read_on_the_pool)),
    };
    app.with_state(hasher)
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

async fn hash_inline(State(hasher): State<Argon2<'static>>) -> Result<String, StatusCode> {
    hash(&hasher)
}

async fn hash_on_the_pool(State(hasher): State<Argon2<'static>>) -> Result<String, StatusCode> {
    tokio::task::spawn_blocking(move || hash(&hasher))
        .await
        .map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?
}

fn hash(hasher: &Argon2<'_>) -> Result<String, StatusCode> {
    password::hash(hasher).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
}
