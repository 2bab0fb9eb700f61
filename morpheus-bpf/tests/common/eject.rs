// SPDX-License-Identifier: GPL-2.0-only
//! Ejects the scheduler as the kernel does it: by an error. A BPF program of a few instructions reports one, which
//! counts as the scheduler's own.

use std::fs;

use libbpf_rs::libbpf_sys::{
    self, BPF_F_SLEEPABLE, BPF_PROG_TYPE_SYSCALL, BTF_KIND_FUNC, bpf_insn, bpf_prog_load_opts,
    bpf_test_run_opts,
};

/// The kernel's message about the reason.
pub const MESSAGE: &str = "asked to";

/// The kernel's number of its function.
fn function(name: &std::ffi::CStr) -> u32 {
    // SAFETY: the BTF is loaded, asked and freed here alone; the name ends with a zero.
    let id = unsafe {
        let btf = libbpf_sys::btf__load_vmlinux_btf();
        assert!(!btf.is_null());
        let id = libbpf_sys::btf__find_by_name_kind(btf, name.as_ptr(), BTF_KIND_FUNC);
        libbpf_sys::btf__free(btf);
        id
    };
    u32::try_from(id).unwrap_or_else(|_| panic!("the kernel has no {name:?}"))
}

/// Reports an error of the scheduler's. The kernel ejects it soon afterwards.
pub fn eject() {
    // For who reads the guest's console: the kernel's complaint is no failure.
    fs::write("/dev/kmsg", "<3>vm: a stall is meant").unwrap();
    let mut text = [0; 16];
    text[..MESSAGE.len()].copy_from_slice(MESSAGE.as_bytes());
    let [low, high] = [0, 8].map(|at| u64::from_ne_bytes(text[at..at + 8].try_into().unwrap()));
    // Code, target and source register, offset, number.
    let instruction = |code: u8, target: u64, source: u64, offset: i16, number: u32| {
        u64::from(code)
            | (target | source << 4) << 8
            | u64::from(offset as u16) << 16
            | u64::from(number) << 32
    };
    let stack = 10;
    let instructions: [u64; 15] = [
        // The text on the stack, and no arguments for it.
        instruction(0x18, 2, 0, 0, low as u32),
        u64::from((low >> 32) as u32) << 32,
        instruction(0x7b, stack, 2, -24, 0),
        instruction(0x18, 2, 0, 0, high as u32),
        u64::from((high >> 32) as u32) << 32,
        instruction(0x7b, stack, 2, -16, 0),
        instruction(0x7a, stack, 0, -8, 0),
        // scx_bpf_error_bstr(text, arguments, 8)
        instruction(0xbf, 1, stack, 0, 0),
        instruction(0x07, 1, 0, 0, -24i32 as u32),
        instruction(0xbf, 2, stack, 0, 0),
        instruction(0x07, 2, 0, 0, -8i32 as u32),
        instruction(0xb7, 3, 0, 0, 8),
        instruction(0x85, 0, 2, 0, function(c"scx_bpf_error_bstr")),
        instruction(0xb7, 0, 0, 0, 0),
        instruction(0x95, 0, 0, 0, 0),
    ];
    let mut options = bpf_prog_load_opts {
        sz: size_of::<bpf_prog_load_opts>() as _,
        prog_flags: BPF_F_SLEEPABLE,
        ..Default::default()
    };
    // SAFETY: the texts end with a zero, and there are as many instructions as is said, of eight bytes each.
    let program = unsafe {
        libbpf_sys::bpf_prog_load(
            BPF_PROG_TYPE_SYSCALL,
            c"eject".as_ptr(),
            c"GPL".as_ptr(),
            instructions.as_ptr().cast::<bpf_insn>(),
            instructions.len() as _,
            &mut options,
        )
    };
    assert!(program >= 0, "the program is refused: {program}");
    let mut run = bpf_test_run_opts {
        sz: size_of::<bpf_test_run_opts>() as _,
        ..Default::default()
    };
    // SAFETY: the descriptor is the program's, and is closed once; the structure says its own size.
    let result = unsafe {
        let result = libbpf_sys::bpf_prog_test_run_opts(program, &mut run);
        libc::close(program);
        result
    };
    assert_eq!(result, 0);
}
