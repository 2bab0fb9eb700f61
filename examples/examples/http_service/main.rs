//! A service. `service.rs` says what it does and how to use it. `http_service` and
//! `http_service_tokio` differ in one line: the attribute.

mod database;
mod observe;
mod options;
mod routes;
mod service;
mod shutdown;
#[cfg(test)]
mod tests;

#[morpheus_runtime::main]
async fn main() -> std::process::ExitCode {
    service::run().await
}
