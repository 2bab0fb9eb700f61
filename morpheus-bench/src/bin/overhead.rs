//! The costs of a switch, a migration and a cold cache: see [`morpheus_bench::overhead`].

fn main() -> std::process::ExitCode {
    morpheus_bench::overhead::main()
}
