//! See [`morpheus_bench::scale`].

fn main() -> std::process::ExitCode {
    morpheus_bench::scale::main()
}
