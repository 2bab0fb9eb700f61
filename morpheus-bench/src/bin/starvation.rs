//! What a task that gets stuck costs the others: see [`morpheus_bench::starvation`].

fn main() -> std::process::ExitCode {
    morpheus_bench::starvation::main()
}
