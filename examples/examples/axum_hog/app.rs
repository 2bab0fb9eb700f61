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
use morpheus_bench::code::Code;
use morpheus_bench::work;
use morpheus_runtime::tower::WatchLayer;
use serde::{Deserialize, Serialize};
use tokio::sync::Semaphore;

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

/// What the handlers share.
#[derive(Clone)]
struct AppState {
    hasher: Argon2<'static>,
    computes: Duration,
    permits: Arc<Semaphore>,
}

/// What a handler answers.
type Answer = Result<String, StatusCode>;

/// Builds the app with one way of writing the handlers, for a runtime with this many workers. `computes` is the CPU time of
/// `/compute`.
pub fn router(code: Code, hasher: Argon2<'static>, computes: Duration, workers: usize) -> Router {
    let state = AppState {
        hasher,
        computes,
        permits: Arc::new(Semaphore::new(workers)),
    };
    let with = |code: Code, work: fn(&AppState) -> Answer| {
        get(move |State(state): State<AppState>| answer(code, state, work))
    };
    Router::new()
        .route("/ping", get(async || "pong"))
        .route(Work::Hash.path(), with(code, hash))
        .route(Work::Compute.path(), with(code, compute))
        .route(Work::Read.path(), with(code.for_blocking(), read))
        .with_state(state)
}

/// Adds the line that watches all handlers, each under its route.
pub fn watched(app: Router) -> Router {
    app.layer(WatchLayer::by_route(|request| {
        Some(request.extensions().get::<MatchedPath>()?.as_str())
    }))
}

async fn answer(code: Code, state: AppState, work: fn(&AppState) -> Answer) -> Answer {
    let permits = state.permits.clone();
    let answer = code.run(&permits, move || work(&state)).await;
    answer.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?
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
