//! The cost of critical sections, and the gain of a task that claims one for ever: see [`morpheus_bench::liar`].

fn main() -> std::process::ExitCode {
    morpheus_bench::liar::main()
}
