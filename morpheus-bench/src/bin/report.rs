//! `report`: see [`morpheus_bench::page`].

fn main() -> std::process::ExitCode {
    morpheus_bench::page::main()
}
