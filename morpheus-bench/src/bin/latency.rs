//! Response times at a fixed rate: see [`morpheus_bench::latency`].

fn main() -> std::process::ExitCode {
    morpheus_bench::latency::main()
}
