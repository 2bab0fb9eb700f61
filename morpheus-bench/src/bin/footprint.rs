//! The memory that a Morpheus runtime takes, compared with tokio: see [`morpheus_bench::footprint`].

use morpheus_bench::footprint::{self, counting::Counting};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() -> std::process::ExitCode {
    footprint::main()
}
