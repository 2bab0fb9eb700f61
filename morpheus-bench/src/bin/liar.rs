//! What critical sections cost, and what a task gets that claims one for ever: see [`morpheus_bench::liar`].

fn main() -> std::process::ExitCode {
    morpheus_bench::liar::main()
}
