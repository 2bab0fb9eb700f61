//! What a switch, a migration and a cold cache cost: see [`morpheus_bench::overhead`].

fn main() -> std::process::ExitCode {
    morpheus_bench::overhead::main()
}
