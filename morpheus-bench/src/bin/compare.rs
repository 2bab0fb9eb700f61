//! What Morpheus costs where no poll stalls, beside tokio: see [`morpheus_bench::compare`].

fn main() -> std::process::ExitCode {
    morpheus_bench::compare::main()
}
