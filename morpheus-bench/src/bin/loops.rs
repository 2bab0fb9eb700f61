//! What checkpoints and strip-mining cost loops: see [`morpheus_bench::loops`].

fn main() -> std::process::ExitCode {
    morpheus_bench::loops::main()
}
