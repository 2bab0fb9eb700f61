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
use morpheus_bench::work;
use morpheus_runtime::tower::WatchLayer;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;
use tokio::task::block_in_place;

/// The work of the handlers that occupy a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Work {
    /// A password is hashed: the handler computes, in 19 MiB of memory.
    Hash,
    /// The handler computes for as long without memory, so that the figures are the scheduling's alone.
    Compute,
    /// The handler blocks for 5 ms, as in a read from a disk or in a database's client. It is a sleep, so
    /// that it takes equally long in all variants.
    Read,
}

impl Work {
    /// The path of the handler.
    pub fn path(self) -> &'static str {
        match self {
            Work::Hash => "/hash",
            Work::Compute => "/compute",
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
    computes: Duration,
    permits: Arc<Semaphore>,
}

/// What a handler answers.
type Answer = Result<String, StatusCode>;

/// Builds the app with one of the kinds of handlers, for a runtime with this many workers. `computes` is the CPU time of
/// `/compute`.
pub fn router(
    handler: Handler,
    hasher: Argon2<'static>,
    computes: Duration,
    workers: usize,
) -> Router {
    let state = AppState {
        hasher,
        computes,
        permits: Arc::new(Semaphore::new(workers)),
    };
    // Reads do not compute: the bound of an expert is the pool's own.
    let read_handler = match handler {
        Handler::Bounded => Handler::SpawnBlocking,
        other => other,
    };
    let with = |handler: Handler, work: fn(&AppState) -> Answer| {
        get(move |State(state): State<AppState>| handler.answer(state, work))
    };
    Router::new()
        .route("/ping", get(async || "pong"))
        .route(Work::Hash.path(), with(handler, hash))
        .route(Work::Compute.path(), with(handler, compute))
        .route(Work::Read.path(), with(read_handler, read))
        .with_state(state)
}

/// Adds the line that watches all handlers, each under its route.
pub fn watched(app: Router) -> Router {
    app.layer(WatchLayer::by_route(|request| {
        Some(request.extensions().get::<MatchedPath>()?.as_str())
    }))
}

impl Handler {
    async fn answer(self, state: AppState, work: fn(&AppState) -> Answer) -> Answer {
        match self {
            Handler::Inline => work(&state),
            Handler::InPlace => block_in_place(|| work(&state)),
            Handler::SpawnBlocking => on_the_pool(state, work).await,
            Handler::Bounded => {
                let permits = state.permits.clone();
                let _permit = permits.acquire().await;
                on_the_pool(state, work).await
            }
        }
    }
}

async fn on_the_pool(state: AppState, work: fn(&AppState) -> Answer) -> Answer {
    tokio::task::spawn_blocking(move || work(&state))
        .await
        .map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?
}

fn hash(state: &AppState) -> Answer {
    password::hash(&state.hasher).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
}

fn compute(state: &AppState) -> Answer {
    work::burn(state.computes, |_| ());
    Ok("computed".into())
}

fn read(_: &AppState) -> Answer {
    std::thread::sleep(READ);
    Ok("row".into())
}
