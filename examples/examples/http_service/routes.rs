//! The handlers, as most programs are written at first, and as tokio's documentation recommends.

use axum::Json;
use axum::Router;
use axum::extract::{MatchedPath, State};
use axum::http::StatusCode;
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use examples::{password, stall_page};
use morpheus_bench::code::Code;
use morpheus_bench::work;
use morpheus_runtime::tower::WatchLayer;
use serde::Deserialize;
use tokio::task::JoinError;

use crate::database::{Report, Row};
use crate::service::Service;
use crate::{observe, shutdown};

/// Builds the app. `layer` watches the handlers, each under its route: on Morpheus.
pub fn router(code: Code, layer: bool, service: Service) -> Router {
    let app = match code {
        Code::Inline => Router::new()
            .route("/db", get(newest).post(add))
            .route("/hash", get(hash))
            .route(
                "/compute",
                get(async |State(service): State<Service>| compute(&service)),
            )
            .route("/report", get(report)),
        rewritten => rewritten::routes(rewritten),
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

fn compute(service: &Service) -> &'static str {
    work::burn(service.computes, |_| ());
    "computed"
}

async fn report(State(service): State<Service>) -> Result<Json<Report>, Failure> {
    Ok(Json(service.database.report()?))
}

/// The same handlers, written with the knowledge which of them block or compute.
mod rewritten {
    use super::*;

    pub fn routes(code: Code) -> Router<Service> {
        let blocking = code.for_blocking();
        Router::new()
            .route(
                "/db",
                get(
                    async move |State(service): State<Service>| -> Result<_, Failure> {
                        let rows = run(blocking, service, |service| service.database.newest());
                        Ok(Json(rows.await??))
                    },
                )
                .post(
                    async move |State(service): State<Service>,
                                Json(draft): Json<Draft>|
                                -> Result<_, Failure> {
                        let row = run(blocking, service, |service| {
                            service.database.add(draft.text)
                        });
                        Ok(Json(row.await??))
                    },
                ),
            )
            .route(
                "/hash",
                get(
                    async move |State(service): State<Service>| -> Result<_, Failure> {
                        let hash = run(code, service, |service| password::hash(&service.hasher));
                        Ok(hash.await??)
                    },
                ),
            )
            .route(
                "/compute",
                get(
                    async move |State(service): State<Service>| -> Result<_, Failure> {
                        Ok(run(code, service, compute).await?)
                    },
                ),
            )
            .route(
                "/report",
                get(
                    async move |State(service): State<Service>| -> Result<_, Failure> {
                        let report = run(blocking, service, |service| service.database.report());
                        Ok(Json(report.await??))
                    },
                ),
            )
    }

    async fn run<T: Send + 'static>(
        code: Code,
        service: Service,
        work: impl FnOnce(&Service) -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let shared = service.clone();
        code.run(&service.permits, move || work(&shared)).await
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
