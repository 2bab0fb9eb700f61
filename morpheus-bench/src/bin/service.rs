//! The example `http_service` under load, on Morpheus and on tokio: see [`morpheus_bench::service`].

fn main() -> std::process::ExitCode {
    morpheus_bench::service::main()
}
