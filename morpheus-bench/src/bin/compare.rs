//! The cost of Morpheus where no poll stalls, compared with tokio: see [`morpheus_bench::compare`].

fn main() -> std::process::ExitCode {
    morpheus_bench::compare::main()
}
