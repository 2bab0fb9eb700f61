//! A service. `service.rs` says what it does and how to use it. `http_service_tuned` runs it on tokio as an expert tunes that; it
//! is for `cargo xtask service`, and needs a build with `--cfg tokio_unstable`.

mod database;
mod observe;
mod options;
mod routes;
mod service;
mod shutdown;

use std::process::ExitCode;

use morpheus_bench::tuned;

fn main() -> ExitCode {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = tuned::tune(builder.enable_all())
        .and_then(|()| builder.build().map_err(|error| error.to_string()));
    match runtime {
        Ok(runtime) => runtime.block_on(service::run()),
        Err(why) => {
            eprintln!("{}: {why}", env!("CARGO_CRATE_NAME"));
            ExitCode::from(2)
        }
    }
}
