//! From the copy of a stack to the functions' addresses.
//!
//! The tables for exceptions lead from a function to its caller. Each Rust program has them, stripped or not; frame pointers are
//! not needed. The tables need the frame pointer's register in the functions that use it as one: BPF copies it, `/proc`
//! does not tell it. There the function's first instructions say where its return address is (`frame.rs`). Where they do not, the copy
//! is searched upwards for the next word that is a return address, as readers of crash dumps do. Below it lie words of calls that
//! are over: where the call before a return address tells its target, that must be the function that is left.

use std::io;
use std::ops::Range;

#[cfg(target_arch = "aarch64")]
use framehop::aarch64::{CacheAarch64, PtrAuthMask, UnwindRegsAarch64, UnwinderAarch64};
#[cfg(target_arch = "x86_64")]
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{FrameAddress, MayAllocateDuringUnwind, Unwinder as _};

#[cfg(target_arch = "x86_64")]
use crate::frame::TARGET;
use crate::frame::{self, BEGINNING, Beginning};
use crate::memory::{Mapping, Memory};
use crate::modules::{self, Budget, Bytes, Module};

#[cfg(target_arch = "x86_64")]
type Unwinder = UnwinderX86_64<Bytes>;
#[cfg(target_arch = "x86_64")]
type Cache = CacheX86_64<MayAllocateDuringUnwind>;
#[cfg(target_arch = "aarch64")]
type Unwinder = UnwinderAarch64<Bytes>;
#[cfg(target_arch = "aarch64")]
type Cache = CacheAarch64<MayAllocateDuringUnwind>;

/// The most frames of a stack: deep recursion is cut off.
const MOST_FRAMES: usize = 256;
/// More files with code are not read: a process may map one many times, and each place has tables of its own.
const MOST_MODULES: usize = 4_096;
/// How much of a stack is read of a thread that sleeps, in bytes.
pub const MOST_READ: usize = 32 * 1024;
/// How far above the stack pointer a return address is searched for.
const SEARCHED: u64 = 8 * 1024;
/// Stands for an unknown frame pointer: nothing is there to be read, and it is below every stack.
const UNKNOWN: u64 = 1;

/// The registers that lead from a function to its caller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Registers {
    /// The instruction pointer.
    pub ip: u64,
    /// The stack pointer.
    pub sp: u64,
    /// The frame pointer; None where it is not known.
    pub bp: Option<u64>,
    /// The link register, on machines that have one.
    pub lr: Option<u64>,
}

/// A stack as it was copied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StackCopy {
    /// The thread's registers.
    pub registers: Registers,
    /// The bytes from the stack pointer upwards.
    pub bytes: Vec<u8>,
}

impl StackCopy {
    /// Copies what lies above the stack pointer of a thread that sleeps, up to [`MOST_READ`] bytes.
    #[must_use]
    pub fn read(memory: Memory, registers: Registers) -> StackCopy {
        let mut bytes = vec![0; MOST_READ];
        let had = memory.read(registers.sp, &mut bytes);
        bytes.truncate(had);
        StackCopy { registers, bytes }
    }

    /// The word at an address, if it was copied.
    #[must_use]
    pub fn word(&self, address: u64) -> Option<u64> {
        let offset = usize::try_from(address.checked_sub(self.registers.sp)?).ok()?;
        let bytes = self.bytes.get(offset..offset.checked_add(8)?)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    }
}

/// One frame of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Where the function goes on: a return address, except in the innermost frame.
    pub ip: u64,
    /// The stack pointer there.
    pub sp: u64,
    /// It is a return address: the call lies before it.
    pub is_return: bool,
}

impl Position {
    /// An address within the instruction that the function is at.
    #[must_use]
    pub fn inside(self) -> u64 {
        self.ip.wrapping_sub(u64::from(self.is_return))
    }
}

/// Knows what is loaded in a process, and reads its stacks.
pub struct Walker {
    memory: Memory,
    pid: u32,
    unwinder: Unwinder,
    modules: Vec<Module>,
    /// For the tables of the modules.
    budget: Budget,
    /// What was tried, whether it is a module or none.
    code: Vec<Mapping>,
}

impl std::fmt::Debug for Walker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Walker")
            .field("pid", &self.pid)
            .field("modules", &self.modules)
            .finish_non_exhaustive()
    }
}

impl Walker {
    /// Of what is loaded in a process now.
    ///
    /// # Errors
    ///
    /// Without the right to see what is mapped there.
    pub fn new(pid: u32) -> io::Result<Walker> {
        let mut walker = Walker {
            memory: Memory::of(pid),
            pid,
            unwinder: Unwinder::new(),
            modules: Vec::new(),
            budget: Budget::default(),
            code: Vec::new(),
        };
        walker.reload()?;
        Ok(walker)
    }

    /// Reads what was loaded since, and forgets what is not there any more. A program that compiles as it runs has new code all the
    /// time, but no new files: then nothing is read but the list of mappings. Returns whether something has changed.
    ///
    /// # Errors
    ///
    /// Without the right to see what is mapped there, and of a process that has no memory any more.
    pub fn reload(&mut self) -> io::Result<bool> {
        let mut code = self.memory.mappings()?;
        code.retain(modules::may_be_module);
        code.truncate(MOST_MODULES);
        // One that has none yet is about to become another program.
        if code.is_empty() && !self.code.is_empty() {
            return Err(io::ErrorKind::NotFound.into());
        }
        let gone: Vec<Mapping> = self
            .code
            .extract_if(.., |one| !code.contains(one))
            .collect();
        let mut has_changed = !gone.is_empty();
        for gone in gone {
            self.unwinder.remove_module(gone.range.start);
            let is_gone = |module: &mut Module| module.code == gone.range;
            for module in self.modules.extract_if(.., is_gone) {
                self.budget.give_back(module.bytes);
            }
        }
        code.retain(|one| !self.code.contains(one));
        has_changed |= !code.is_empty();
        for loaded in modules::load(self.pid, &code, &mut self.budget) {
            self.unwinder.add_module(loaded.tables);
            self.modules.push(loaded.module);
        }
        self.code.append(&mut code);
        Ok(has_changed)
    }

    /// The module that an address is in.
    #[must_use]
    pub fn module_of(&self, address: u64) -> Option<&Module> {
        self.modules
            .iter()
            .find(|module| module.code.contains(&address))
    }

    /// The memory of the process.
    #[must_use]
    pub fn memory(&self) -> Memory {
        self.memory
    }

    /// The modules that are loaded into the process.
    #[must_use]
    pub fn modules(&self) -> &[Module] {
        &self.modules
    }

    /// Whether tables of a module were not read, because all of them are too long.
    #[must_use]
    pub fn lacks_tables(&self) -> bool {
        self.budget.is_exceeded()
    }

    /// Whether an address is in memory that was not of a file when this was made: in that of a program that compiles as it runs, or
    /// of something that was loaded later.
    #[must_use]
    pub fn is_unknown_code(&self, address: u64) -> bool {
        self.module_of(address).is_none()
    }

    /// The frames of a stack, innermost first. There is at least one.
    ///
    /// The part of the stack above the copy is read from the process: the outer functions do not change while the inner ones run.
    #[must_use]
    pub fn walk(&self, copy: &StackCopy) -> Vec<Position> {
        let registers = copy.registers;
        let mut frames = vec![Position {
            ip: registers.ip,
            sp: registers.sp,
            is_return: false,
        }];
        let copied = registers.sp..registers.sp.saturating_add(copy.bytes.len() as u64);
        let mut read = |address: u64| {
            if copied.contains(&address) {
                return copy.word(address).ok_or(());
            }
            // Below the stack pointer is nothing of the stack's.
            if address < copied.end {
                return Err(());
            }
            self.memory.word(address).ok_or(())
        };
        let mut cache = Cache::default();
        let mut at = self.first(registers);
        while frames.len() < MOST_FRAMES {
            let is_first = frames.len() == 1;
            let before = frames[frames.len() - 1];
            let next = match self.by_tables(&mut at, before, is_first, &mut cache, &mut read) {
                Step::To(next) => next,
                Step::End => break,
                Step::Lost => {
                    let beginning = self.beginning_of(before);
                    let exact = beginning.and_then(|begins| self.caller(copy, before, begins));
                    let Some(next) = exact.or_else(|| self.search(copy, before)) else {
                        break;
                    };
                    at = self.first(Registers {
                        ip: next.ip,
                        sp: next.sp,
                        // It is saved below the return address.
                        bp: beginning.and_then(|_| copy.word(next.sp.wrapping_sub(16))),
                        lr: None,
                    });
                    next
                }
            };
            frames.push(next);
        }
        frames
    }

    #[cfg(target_arch = "x86_64")]
    fn first(&self, registers: Registers) -> UnwindRegsX86_64 {
        UnwindRegsX86_64::new(registers.ip, registers.sp, registers.bp.unwrap_or(UNKNOWN))
    }

    #[cfg(target_arch = "aarch64")]
    fn first(&self, registers: Registers) -> UnwindRegsAarch64 {
        // Signatures of return addresses lie above the bits that addresses have.
        let highest = self.unwinder.max_known_code_address().max(registers.sp) | 1;
        UnwindRegsAarch64::new_with_ptr_auth_mask(
            PtrAuthMask::from_max_known_address(highest),
            registers.lr.unwrap_or(UNKNOWN),
            registers.sp,
            registers.bp.unwrap_or(UNKNOWN),
        )
    }

    fn by_tables(
        &self,
        at: &mut <Unwinder as framehop::Unwinder>::UnwindRegs,
        before: Position,
        is_first: bool,
        cache: &mut Cache,
        read: &mut impl FnMut(u64) -> Result<u64, ()>,
    ) -> Step {
        let address = match is_first {
            true => Some(FrameAddress::from_instruction_pointer(before.ip)),
            false => FrameAddress::from_return_address(before.ip),
        };
        let Some(address) = address else {
            return Step::End;
        };
        if self.module_of(before.inside()).is_none() {
            return Step::Lost;
        }
        match self.unwinder.unwind_frame(address, at, cache, read) {
            Ok(None) => Step::End,
            // Only the innermost function may have nothing on the stack. The tables may say anything.
            Ok(Some(ip)) if at.sp() > before.sp || (is_first && at.sp() == before.sp) => {
                Step::To(Position {
                    ip,
                    sp: at.sp(),
                    is_return: true,
                })
            }
            Ok(Some(_)) | Err(_) => Step::Lost,
        }
    }

    /// The next word above that is a return address, of a call of the function that `before` is in, as far as calls tell.
    fn search(&self, copy: &StackCopy, before: Position) -> Option<Position> {
        let mut place = before.sp.checked_next_multiple_of(8)?;
        let end = before.sp.saturating_add(SEARCHED);
        let own = self.function_of(before.inside());
        // A function that ends with a jump to another one has called none: then there is nothing better.
        let mut of_another = None;
        while place < end
            && let Some(word) = copy.word(place)
        {
            let call = self.call_that_returns_to(word);
            let found = call.is_some().then_some(Position {
                ip: word,
                sp: place + 8,
                is_return: true,
            });
            match call {
                Some(Call::To(target)) if self.function_of(target) != own => {
                    of_another = of_another.or(found);
                }
                Some(_) => return found,
                None => {}
            }
            place += 8;
        }
        of_another
    }

    /// The first instructions of the function that is left, decoded; `None` if it has no frame pointer.
    fn beginning_of(&self, left: Position) -> Option<Beginning> {
        let mut code = [0; BEGINNING];
        let had = self.memory.read(self.function_of(left.inside()), &mut code);
        frame::beginning(&code[..had])
    }

    /// The caller of a function with a frame pointer, by the room that it has made: if a return address is there.
    fn caller(&self, copy: &StackCopy, left: Position, begins: Beginning) -> Option<Position> {
        let place = left.sp.checked_add(begins.below_return)?;
        let ip = copy.word(place)?;
        self.call_that_returns_to(ip)?;
        Some(Position {
            ip,
            sp: place + 8,
            is_return: true,
        })
    }

    /// Where the function begins that an address is in; the address itself where that is not known.
    fn function_of(&self, address: u64) -> u64 {
        let begins = self.module_of(address).and_then(|module| {
            let begins = module.function_of(module.relative(address))?;
            Some(begins.wrapping_add(module.bias))
        });
        begins.unwrap_or(address)
    }

    /// The call that returns to an address, if a word of a stack is a return address.
    fn call_that_returns_to(&self, word: u64) -> Option<Call> {
        self.module_of(word.wrapping_sub(1))?;
        self.call_before(word)
    }

    /// The call before an address, if there is one.
    #[cfg(target_arch = "x86_64")]
    fn call_before(&self, address: u64) -> Option<Call> {
        let mut code = [0; 7];
        if self.memory.read(address.wrapping_sub(7), &mut code) != code.len() {
            return None;
        }
        let from_here = |offset: [u8; 4]| {
            let offset = i32::from_le_bytes(offset);
            address.wrapping_add_signed(offset.into())
        };
        match code {
            // call there
            [_, _, 0xe8, a, b, c, d] => Some(self.through_stub(from_here([a, b, c, d]))),
            // call [there]
            [_, 0xff, 0x15, a, b, c, d] => Some(self.pointed_to(from_here([a, b, c, d]))),
            // call register; call [register], without and with an offset of one byte or four
            [.., 0xff, 0xd0..=0xd7]
            | [.., 0xff, 0x10..=0x13 | 0x16..=0x17]
            | [.., 0xff, 0x50..=0x57, _]
            | [.., 0xff, 0x54, _, _]
            | [_, 0xff, 0x90..=0x97, ..]
            | [0xff, 0x94, ..] => Some(Call::Unknown),
            _ => None,
        }
    }

    /// The target of a call to this address: the function there, or the one to which the linker's stub there jumps.
    #[cfg(target_arch = "x86_64")]
    fn through_stub(&self, target: u64) -> Call {
        let mut code = [0; 11];
        let had = self.memory.read(target, &mut code);
        let mut code = &code[..had];
        let mut at = target;
        // Also behind a mark, and with a prefix for its bounds.
        for prefix in [&TARGET[..], &[0xf2]] {
            if let Some(rest) = code.strip_prefix(prefix) {
                (code, at) = (rest, at + prefix.len() as u64);
            }
        }
        match code {
            // jmp [there]
            [0xff, 0x25, a, b, c, d, ..] => {
                let offset = i32::from_le_bytes([*a, *b, *c, *d]);
                self.pointed_to((at + 6).wrapping_add_signed(offset.into()))
            }
            _ => Call::To(target),
        }
    }

    /// The target of a call through a pointer.
    #[cfg(target_arch = "x86_64")]
    fn pointed_to(&self, pointer: u64) -> Call {
        self.memory.word(pointer).map_or(Call::Unknown, Call::To)
    }

    #[cfg(target_arch = "aarch64")]
    fn call_before(&self, address: u64) -> Option<Call> {
        let mut code = [0; 4];
        if self.memory.read(address.wrapping_sub(4), &mut code) != code.len() {
            return None;
        }
        let code = u32::from_le_bytes(code);
        // bl, which may lead to a stub; blr register
        let is_call = code >> 26 == 0b100101 || code & 0xffff_fc1f == 0xd63f_0000;
        is_call.then_some(Call::Unknown)
    }

    /// Where on the stack the return address lies that leads to a frame: between its callee's stack pointer and its own.
    #[must_use]
    pub fn place_of(copy: &StackCopy, callee: Position, frame: Position) -> Option<u64> {
        let within: Range<u64> = callee.sp..frame.sp;
        // Where calls push it.
        let pushed = frame.sp.checked_sub(8)?;
        if within.contains(&pushed) && copy.word(pushed) == Some(frame.ip) {
            return Some(pushed);
        }
        // A frame may be said to lie far outside of the copy.
        let start = within.start.max(copy.registers.sp);
        let copied = copy.registers.sp.saturating_add(copy.bytes.len() as u64);
        (start..within.end.min(copied))
            .step_by(8)
            .find(|&place| copy.word(place) == Some(frame.ip))
    }
}

/// A call: of the function at this address, or by a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    #[cfg_attr(target_arch = "aarch64", expect(dead_code, reason = "not read there"))]
    To(u64),
    Unknown,
}

enum Step {
    To(Position),
    End,
    Lost,
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;
    use std::path::Path;
    use std::ptr;

    use super::*;

    #[test]
    fn each_file_is_read_once_and_forgotten_when_it_is_gone() {
        let own = std::process::id();
        let mut walker = Walker::new(own).unwrap();
        let tables = |walker: &Walker| -> Vec<_> {
            let modules = walker.modules().iter();
            let tables = modules.map(|module| module.functions.as_ref());
            tables
                .map(|table| table.map(|(_, bytes)| bytes.as_ptr()))
                .collect()
        };
        let before = tables(&walker);
        assert!(!walker.reload().unwrap());
        assert_eq!(tables(&walker), before);
        // The program's code once more, as a library that is loaded later.
        let program = std::fs::read_link("/proc/self/exe").unwrap();
        let mappings = Memory::of(own).mappings().unwrap();
        let code = mappings
            .iter()
            .find(|one| one.is_executable && Path::new(&one.path) == program);
        let (code, file) = (code.unwrap(), std::fs::File::open(&program).unwrap());
        let length = (code.range.end - code.range.start) as usize;
        // SAFETY: a new mapping, wherever the kernel likes, which nothing refers to.
        let again = unsafe {
            let rights = libc::PROT_READ | libc::PROT_EXEC;
            let offset = code.offset as libc::off_t;
            libc::mmap(
                ptr::null_mut(),
                length,
                rights,
                libc::MAP_PRIVATE,
                file.as_raw_fd(),
                offset,
            )
        };
        assert_ne!(again, libc::MAP_FAILED);
        assert!(walker.is_unknown_code(again as u64));
        walker.reload().unwrap();
        assert_eq!(tables(&walker)[..before.len()], before);
        assert_eq!(
            walker
                .module_of(again as u64)
                .map(|module| module.code.start),
            Some(again as u64)
        );
        // SAFETY: the mapping from above, to which nothing refers.
        assert_eq!(unsafe { libc::munmap(again, length) }, 0);
        walker.reload().unwrap();
        assert_eq!(tables(&walker), before);
    }

    /// Words as they lie on a stack.
    fn bytes_of(words: &[u64]) -> Vec<u8> {
        let bytes = words.iter().flat_map(|word| word.to_ne_bytes());
        bytes.collect()
    }

    #[test]
    fn a_place_is_searched_for_in_the_copy_alone() {
        let sp = 0x7fff_0000_0000;
        let words = [0, 7, 0, 0];
        let copy = StackCopy {
            registers: Registers {
                sp,
                ..Registers::default()
            },
            bytes: bytes_of(&words),
        };
        let at = |ip, sp| Position {
            ip,
            sp,
            is_return: true,
        };
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            // From there to the copy are 128 TiB.
            let callee = at(1, 16);
            let place = |ip| Walker::place_of(&copy, callee, at(ip, sp + 32));
            sender.send((place(7), place(9))).unwrap();
        });
        let limit = std::time::Duration::from_secs(60);
        assert_eq!(receiver.recv_timeout(limit), Ok((Some(sp + 8), None)));
    }

    #[test]
    fn nonsense_has_one_frame() {
        let walker = Walker::new(std::process::id()).unwrap();
        for bytes in [vec![], vec![0; 64], vec![0xff; 4096]] {
            for (ip, sp, bp) in [
                (0, 0, None),
                (5, 8, Some(16)),
                (u64::MAX, u64::MAX, Some(u64::MAX)),
            ] {
                let copy = StackCopy {
                    registers: Registers { ip, sp, bp, lr: bp },
                    bytes: bytes.clone(),
                };
                assert_eq!(walker.walk(&copy).len(), 1, "{copy:x?}");
            }
        }
    }

    // As `std::thread::sleep` is called by a function that ends with it.
    #[cfg(target_arch = "x86_64")]
    std::arch::global_asm!(
        "unwind_test_left:",
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "push rbx",
        "sub rsp, 24",
        "unwind_test_waits:",
        "call rax",
        "ud2",
        ".cfi_endproc",
        "unwind_test_ends_with_it:",
        ".cfi_startproc",
        "jmp unwind_test_left",
        ".cfi_endproc",
        "unwind_test_calls:",
        ".cfi_startproc",
        "sub rsp, 8",
        ".cfi_def_cfa_offset 16",
        "call rax",
        "unwind_test_behind_over:",
        "call unwind_test_ends_with_it",
        "unwind_test_behind_it:",
        "ud2",
        ".cfi_endproc",
    );

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn the_caller_of_a_function_with_a_frame_pointer_is_found_without_it() {
        unsafe extern "C" {
            fn unwind_test_waits();
            fn unwind_test_behind_over();
            fn unwind_test_behind_it();
        }
        let begins = |function: unsafe extern "C" fn()| function as usize as u64;
        let (over, caller) = (
            begins(unwind_test_behind_over),
            begins(unwind_test_behind_it),
        );
        let sp = 0x1000;
        // A call that is over lies in the room that was made; then rbx, the caller's frame pointer, and its return address.
        let words = [0, over, 0, 7, 0x5000, caller, 0];
        let copy = StackCopy {
            registers: Registers {
                ip: begins(unwind_test_waits),
                sp,
                ..Registers::default()
            },
            bytes: bytes_of(&words),
        };
        let walker = Walker::new(std::process::id()).unwrap();
        let frames = walker.walk(&copy);
        assert_eq!((frames[1].ip, frames[1].sp), (caller, sp + 6 * 8));
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn a_call_that_is_over_is_not_taken_for_the_caller() {
        #[inline(never)]
        extern "C" fn left() {
            std::hint::black_box(1);
        }
        #[inline(never)]
        extern "C" fn over() {
            std::hint::black_box(2);
        }
        #[inline(never)]
        extern "C" fn calls() {
            over();
            std::hint::black_box(3);
            left();
            std::hint::black_box(4);
        }
        let walker = Walker::new(std::process::id()).unwrap();
        let begins = |function: extern "C" fn()| function as usize as u64;
        // Where each goes on after its call of the other.
        let behind_call_of = |function| {
            let mut places = begins(calls)..begins(calls) + 200;
            places.find(|&place| walker.call_before(place) == Some(Call::To(begins(function))))
        };
        let (behind_over, behind_left) = (behind_call_of(over), behind_call_of(left));
        let (behind_over, behind_left) = (behind_over.unwrap(), behind_left.unwrap());
        let before = Position {
            ip: begins(left),
            sp: 0x1000,
            is_return: false,
        };
        let found = |words: &[u64]| {
            let copy = StackCopy {
                registers: Registers {
                    ip: before.ip,
                    sp: before.sp,
                    ..Registers::default()
                },
                bytes: words.iter().flat_map(|word| word.to_ne_bytes()).collect(),
            };
            walker
                .search(&copy, before)
                .map(|found| (found.ip, found.sp))
        };
        let caller = Some((behind_left, 0x1020));
        assert_eq!(found(&[7, behind_over, 0, behind_left]), caller);
        // It may have jumped here from the function that was called.
        assert_eq!(found(&[7, behind_over]), Some((behind_over, 0x1010)));
        assert_eq!(found(&[7, begins(calls)]), None);
    }
}
