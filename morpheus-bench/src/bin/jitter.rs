//! How late a sleeping thread wakes: see [`morpheus_bench::jitter`].

fn main() -> std::process::ExitCode {
    morpheus_bench::jitter::main()
}
