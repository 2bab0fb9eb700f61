//! See [`morpheus_bench::kernel`].

fn main() -> std::process::ExitCode {
    morpheus_bench::kernel::main()
}
