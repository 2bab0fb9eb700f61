//! The handlers, as most programs are written at first, and as tokio's documentation recommends.

use axum::Json;
use axum::Router;
use axum::extract::{MatchedPath, State};
use axum::http::StatusCode;
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use examples::{password, stall_page};
use morpheus_runtime::tower::WatchLayer;
use serde::Deserialize;

use crate::database::{Report, Row};
use crate::options::Options;
use crate::service::Service;
use crate::{observe, shutdown};

/// How the handlers are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handlers {
    /// The handlers call SQLite and argon2 themselves.
    AsPeopleWriteThem,
    /// The handlers call them on the pool for blocking calls.
    HandWritten,
}

impl Handlers {
    /// The kind that the command line asks for.
    pub fn of(options: &Options) -> Self {
        if options.hand_written {
            Handlers::HandWritten
        } else {
            Handlers::AsPeopleWriteThem
        }
    }
}

/// Builds the app. `layer` watches the handlers, each under its route: on Morpheus.
pub fn router(handlers: Handlers, layer: bool, service: Service) -> Router {
    let app = match handlers {
        Handlers::AsPeopleWriteThem => Router::new()
            .route("/db", get(newest).post(add))
            .route("/hash", get(hash))
            .route("/report", get(report)),
        Handlers::HandWritten => Router::new()
            .route("/db", get(hand_written::newest).post(hand_written::add))
            .route("/hash", get(hand_written::hash))
            .route("/report", get(hand_written::report)),
    };
    let app = app
        .route("/ping", get(async || "pong"))
        .route("/stalls", get(stall_page::stalls))
        .route("/metrics", get(observe::metrics));
    let app = if layer {
        app.layer(WatchLayer::by_route(|request| {
            Some(request.extensions().get::<MatchedPath>()?.as_str())
        }))
    } else {
        app
    };
    let count = middleware::from_fn_with_state(service.clone(), shutdown::count);
    app.layer(count).with_state(service)
}

/// The body of a POST.
#[derive(Debug, Deserialize)]
struct Draft {
    text: String,
}

async fn newest(State(service): State<Service>) -> Result<Json<Vec<Row>>, Failure> {
    Ok(Json(service.database.newest()?))
}

async fn add(
    State(service): State<Service>,
    Json(draft): Json<Draft>,
) -> Result<Json<Row>, Failure> {
    Ok(Json(service.database.add(draft.text)?))
}

async fn hash(State(service): State<Service>) -> Result<String, Failure> {
    Ok(password::hash(&service.hasher)?)
}

async fn report(State(service): State<Service>) -> Result<Json<Report>, Failure> {
    Ok(Json(service.database.report()?))
}

/// The same handlers, written with the knowledge which of them block or compute.
mod hand_written {
    use tokio::task::spawn_blocking;

    use super::*;

    pub async fn newest(State(service): State<Service>) -> Result<Json<Vec<Row>>, Failure> {
        Ok(Json(
            spawn_blocking(move || service.database.newest()).await??,
        ))
    }

    pub async fn add(
        State(service): State<Service>,
        Json(draft): Json<Draft>,
    ) -> Result<Json<Row>, Failure> {
        Ok(Json(
            spawn_blocking(move || service.database.add(draft.text)).await??,
        ))
    }

    pub async fn hash(State(service): State<Service>) -> Result<String, Failure> {
        Ok(spawn_blocking(move || password::hash(&service.hasher)).await??)
    }

    pub async fn report(State(service): State<Service>) -> Result<Json<Report>, Failure> {
        Ok(Json(
            spawn_blocking(move || service.database.report()).await??,
        ))
    }
}

/// Any error, reported to the client.
struct Failure(String);

impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        Self(error.to_string())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (StatusCode::INTERNAL_SERVER_ERROR, self.0 + "\n").into_response()
    }
}
