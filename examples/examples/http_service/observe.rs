//! The routes that show the runtime, beside the page of stalls: its name, and its counters for Prometheus.

use std::sync::OnceLock;

use axum::http::StatusCode;
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};
use morpheus_runtime::Metrics;

/// The exporter, which renders all that the process records with the crate `metrics`.
static EXPORTER: OnceLock<PrometheusHandle> = OnceLock::new();

/// The answer where the runtime is not Morpheus.
const NO_COUNTERS: &str = "This is plain tokio; Morpheus has counters to show here.\n";

/// Installs the exporter, once for the process.
pub fn install() -> Result<(), String> {
    let installed = PrometheusBuilder::new().install_recorder();
    let handle = installed.map_err(|error| format!("no exporter for metrics: {error}"))?;
    EXPORTER
        .set(handle)
        .map_err(|_| "the exporter is there already".into())
}

/// The handler of `/metrics`. 501 on a runtime that is not Morpheus.
pub async fn metrics() -> Result<String, (StatusCode, &'static str)> {
    let lacks = (StatusCode::NOT_IMPLEMENTED, NO_COUNTERS);
    let metrics = Metrics::current().ok_or(lacks)?;
    metrics.publish();
    let exporter = EXPORTER.get().ok_or(lacks)?;
    Ok(exporter.render())
}

/// The name of the current runtime.
pub fn runtime_name() -> &'static str {
    match Metrics::current() {
        Some(_) => "Morpheus",
        None => "tokio",
    }
}
