//! Tests how many instructions a checkpoint without a request takes, in the machine code of an executable.

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

/// The properties of a machine's code that the test reads.
struct Machine {
    objdump: &'static str,
    package: &'static str,
    /// The maximum number of instructions before the path divides, the branch included.
    most: usize,
    /// Whether an operation is a branch that may not be taken.
    is_conditional: fn(&str) -> bool,
    /// Whether it is any other branch.
    is_jump: fn(&str) -> bool,
    is_call: fn(&str) -> bool,
    /// An operation or operand that reads the thread's own memory.
    thread_local: &'static str,
    /// Returns the operand of a branch that is its target.
    target: fn(&str) -> &str,
}

const X86_64: Machine = Machine {
    objdump: "objdump",
    package: "binutils",
    most: 6,
    is_conditional: |operation| operation.starts_with('j') && operation != "jmp",
    is_jump: |operation| operation == "jmp",
    is_call: |operation| operation == "call",
    thread_local: "%fs:",
    target: |operands| operands.split_whitespace().next().unwrap_or_default(),
};

/// No comparison there loads its operands. Four instructions come to the address of the slot's two references, which a loop
/// does once, before it begins. One loads both, two the words behind them; then there are the comparison and the branch.
const AARCH64: Machine = Machine {
    // The cross compiler's; on that machine the same under both names.
    objdump: "aarch64-linux-gnu-objdump",
    package: "binutils-aarch64-linux-gnu",
    most: 9,
    is_conditional: |operation| {
        operation.starts_with("b.") || operation.starts_with("cb") || operation.starts_with("tb")
    },
    is_jump: |operation| matches!(operation, "b" | "br"),
    is_call: |operation| matches!(operation, "bl" | "blr"),
    thread_local: "tpidr_el0",
    target: |operands| {
        let last = operands.split(',').next_back().unwrap_or_default();
        last.split_whitespace().next().unwrap_or_default()
    },
};

/// The instructions of a function: address, operation, operands.
fn disassemble(
    machine: &Machine,
    executable: &std::path::Path,
    function: &str,
) -> Vec<(u64, String, String)> {
    let output = Command::new(machine.objdump)
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
            let code = code.trim().replace('\t', " ");
            let (operation, operands) = code.split_once(' ').unwrap_or((&code, ""));
            Some((address, operation.to_owned(), operands.trim().to_owned()))
        })
        .filter(|(_, operation, _)| operation != "int3" && !operation.starts_with("nop"))
        .collect()
}

/// Whether the code from `start` on returns without a branch or a call.
fn just_returns(machine: &Machine, code: &[(u64, String, String)], start: usize) -> bool {
    code[start..]
        .iter()
        .map(|(_, operation, _)| operation.as_str())
        .take_while(|operation| {
            !(machine.is_call)(operation)
                && !(machine.is_jump)(operation)
                && !(machine.is_conditional)(operation)
        })
        .any(|operation| operation == "ret")
}

#[test]
fn a_checkpoint_not_asked_is_six_instructions_and_no_call() {
    // The compiler keeps what is called, and knows nothing of the arguments.
    std::hint::black_box((
        one_checkpoint(),
        checkpoint_loop(std::hint::black_box(1_000)),
    ));
    if !cfg!(target_arch = "x86_64") {
        return morpheus_testing::skip("reads x86-64 code only");
    }
    if cfg!(debug_assertions) {
        return morpheus_testing::skip("needs a release build, whose machine code it reads");
    }
    is_short(&X86_64, &std::env::current_exe().unwrap());
}

/// The program is this one, built for that machine.
#[test]
fn on_aarch64_it_is_nine_and_no_call() {
    let Some(program) = std::env::var_os("MORPHEUS_AARCH64_CHECKPOINT") else {
        return morpheus_testing::skip("needs a program for aarch64, which xtask builds");
    };
    is_short(&AARCH64, program.as_ref());
}

fn is_short(machine: &Machine, executable: &std::path::Path) {
    if Command::new(machine.objdump)
        .arg("--version")
        .output()
        .is_err()
    {
        let (objdump, package) = (machine.objdump, machine.package);
        return morpheus_testing::skip(format!("{objdump} is not installed ({package})"));
    }
    let code = disassemble(machine, executable, "one_checkpoint");
    let listing: Vec<String> = code
        .iter()
        .map(|(address, operation, operands)| format!("{address:x}: {operation} {operands}"))
        .collect();
    let listing = listing.join("\n");
    println!("{listing}");
    let branch = code
        .iter()
        .position(|(_, operation, _)| (machine.is_conditional)(operation))
        .unwrap_or_else(|| panic!("no comparison in\n{listing}"));
    // Loads, the comparison, and the branch; what follows is the return of the function that the test
    // wraps around it.
    assert!(
        branch < machine.most,
        "{} instructions:\n{listing}",
        branch + 1
    );
    let before = &code[..branch];
    assert!(
        before
            .iter()
            .all(|(_, operation, _)| !(machine.is_call)(operation)),
        "a call before the comparison:\n{listing}"
    );
    let there = (machine.target)(&code[branch].2).trim_start_matches("0x");
    let taken = u64::from_str_radix(there, 16)
        .ok()
        .and_then(|there| code.iter().position(|(address, ..)| *address == there));
    let returns = just_returns(machine, &code, branch + 1)
        || taken.is_some_and(|at| just_returns(machine, &code, at));
    assert!(returns, "the path that was not asked does more:\n{listing}");
    // And it is in the loop, not called from it: `checkpoint_loop` reads the thread's slot by itself.
    let looped = disassemble(machine, executable, "checkpoint_loop");
    assert!(
        looped
            .iter()
            .any(|(_, _, operands)| operands.contains(machine.thread_local)),
        "inlined"
    );
}
