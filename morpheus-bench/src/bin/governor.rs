//! The effect of the frequency governor on periodic real-time work: see [`morpheus_bench::governor`].

fn main() -> std::process::ExitCode {
    morpheus_bench::governor::main()
}
