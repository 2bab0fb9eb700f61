//! The cost of checkpoints and strip-mining in loops: see [`morpheus_bench::loops`].

fn main() -> std::process::ExitCode {
    morpheus_bench::loops::main()
}
