//! What a checkpoint that nobody asked for costs, in the machine code of an executable.

use std::process::Command;

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

/// The instructions of a function: address, operation, operands.
fn disassemble(executable: &std::path::Path, function: &str) -> Vec<(u64, String, String)> {
    let output = Command::new("objdump")
        .args(["-d", "--no-show-raw-insn"])
        .arg(format!("--disassemble={function}"))
        .arg(executable)
        .output()
        .expect("objdump was found before");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines()
        .filter_map(|line| {
            let (address, code) = line.trim().split_once(":\t")?;
            let address = u64::from_str_radix(address.trim(), 16).ok()?;
            let (operation, operands) = code.trim().split_once(' ').unwrap_or((code.trim(), ""));
            Some((address, operation.to_owned(), operands.trim().to_owned()))
        })
        .filter(|(_, operation, _)| operation != "int3" && !operation.starts_with("nop"))
        .collect()
}

fn is_conditional(operation: &str) -> bool {
    operation.starts_with('j') && operation != "jmp"
}

/// Whether the code from `start` on returns without a branch or a call.
fn just_returns(code: &[(u64, String, String)], start: usize) -> bool {
    code[start..]
        .iter()
        .map(|(_, operation, _)| operation.as_str())
        .take_while(|operation| *operation != "call" && !operation.starts_with('j'))
        .any(|operation| operation == "ret")
}

#[test]
fn a_checkpoint_not_asked_is_six_instructions_and_no_call() {
    if !cfg!(target_arch = "x86_64") {
        return morpheus_testing::skip("reads x86-64 code only");
    }
    if Command::new("objdump").arg("--version").output().is_err() {
        return morpheus_testing::skip("objdump is not installed (binutils)");
    }
    if cfg!(debug_assertions) {
        return morpheus_testing::skip("needs a release build, whose machine code it reads");
    }
    // The compiler keeps what is called, and knows nothing of the arguments.
    std::hint::black_box((
        one_checkpoint(),
        checkpoint_loop(std::hint::black_box(1_000)),
    ));
    let executable = std::env::current_exe().unwrap();
    let code = disassemble(&executable, "one_checkpoint");
    let listing: Vec<String> = code
        .iter()
        .map(|(address, operation, operands)| format!("{address:x}: {operation} {operands}"))
        .collect();
    let listing = listing.join("\n");
    println!("{listing}");
    let branch = code
        .iter()
        .position(|(_, operation, _)| is_conditional(operation))
        .unwrap_or_else(|| panic!("no comparison in\n{listing}"));
    // Loads, the comparison, and the branch; what follows is the return of the function that the test
    // wraps around it.
    assert!(branch < 6, "{} instructions:\n{listing}", branch + 1);
    let before = &code[..branch];
    assert!(
        before.iter().all(|(_, operation, _)| operation != "call"),
        "a call before the comparison:\n{listing}"
    );
    let there = code[branch].2.split_whitespace().next().unwrap_or("");
    let taken = u64::from_str_radix(there, 16)
        .ok()
        .and_then(|there| code.iter().position(|(address, ..)| *address == there));
    let returns =
        just_returns(&code, branch + 1) || taken.is_some_and(|at| just_returns(&code, at));
    assert!(returns, "the path that was not asked does more:\n{listing}");
    // And it is in the loop, not called from it: `checkpoint_loop` reads the thread's slot by itself.
    let looped = disassemble(&executable, "checkpoint_loop");
    assert!(
        looped
            .iter()
            .any(|(_, _, operands)| operands.contains("%fs:")),
        "inlined"
    );
}
