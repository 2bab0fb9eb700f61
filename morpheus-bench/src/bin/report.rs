//! `report`: see [`morpheus_harness::page`].

fn main() -> std::process::ExitCode {
    morpheus_harness::page::main(morpheus_bench::scale::page::rows_of)
}
