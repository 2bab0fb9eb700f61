//! A handler that writes 10 MB of JSON with `serde_json`.

use std::process::ExitCode;
use std::sync::Arc;

use morpheus_patients::clock::Stopwatch;
use morpheus_patients::{handler, service};
use serde_json::{Value, json};

/// The least that the JSON is long.
const LENGTH: usize = 10_000_000;

/// Writes all readings as JSON.
#[inline(never)]
fn export(readings: &Value) -> String {
    let text = serde_json::to_string(readings); // CULPRIT
    text.unwrap_or_else(|error| format!("null // {error}"))
}

async fn report(readings: &Value) {
    let stopwatch = Stopwatch::start();
    let text = export(readings);
    stopwatch.stop();
    handler::answer(text).await;
}

async fn requests(readings: Arc<Value>) {
    loop {
        handler::request().await;
        report(&readings).await;
    }
}

fn main() -> ExitCode {
    service::run("json", || {
        let reading = |number: usize| {
            json!({
                "sensor": format!("boiler-{}", number % 97),
                "sequence": number,
                "celsius": 20.0 + (number % 1000) as f64 / 7.0,
                "remark": "measured at the \"inner\" wall",
            })
        };
        let length = reading(0).to_string().len();
        let readings: Value = (0..LENGTH / length).map(reading).collect();
        let readings = Arc::new(readings);
        handler::start(|_| requests(Arc::clone(&readings)));
        Ok(())
    })
}
