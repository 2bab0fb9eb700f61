//! A checkpoint as it ends up in an executable; `tests/checkpoint_asm.rs` disassembles it.

/// One checkpoint and nothing else, under a name that a disassembler finds.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn one_checkpoint() -> bool {
    morpheus_runtime::checkpoint_sync()
}

/// Checkpoints in a loop, as programs have them.
#[unsafe(no_mangle)]
#[inline(never)]
pub fn checkpoint_loop(mut turns: u64) -> u64 {
    let mut state = 1u64;
    while turns > 0 {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
        if morpheus_runtime::checkpoint_sync() {
            break;
        }
        turns -= 1;
    }
    state
}

fn main() {
    println!("{} {}", one_checkpoint(), checkpoint_loop(1_000));
}
