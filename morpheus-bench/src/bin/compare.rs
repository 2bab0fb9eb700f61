//! What Morpheus costs where nobody is stuck, beside tokio: see [`morpheus_bench::compare`].

fn main() -> std::process::ExitCode {
    morpheus_bench::compare::main()
}
