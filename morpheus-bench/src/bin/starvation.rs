//! The cost of a stalled task to the other tasks: see [`morpheus_bench::starvation`].

fn main() -> std::process::ExitCode {
    morpheus_bench::starvation::main()
}
