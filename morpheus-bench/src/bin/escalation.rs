//! How soon Morpheus asks and takes over: see [`morpheus_bench::escalation`].

fn main() -> std::process::ExitCode {
    morpheus_bench::escalation::main()
}
