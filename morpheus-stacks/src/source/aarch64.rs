//! Stacks of aarch64: how to get from a frame to its caller's.
//!
//! A call leaves its return address in the link register, and a function that calls another one saves it, beside the
//! caller's frame pointer: the two are a *frame record*, the frame pointer points to it, and the records are a chain. That is
//! the platform's convention, which compilers keep to unless they are told otherwise.
//!
//! Of a thread that computed all registers are known, and the tables for exceptions lead on. Of a thread that was blocked
//! the stack pointer and the instruction pointer are known alone. There, in this order:
//!
//! 1. The tables. A function that has saved the return address, as those of libc have that may be cancelled, is at a known
//!    distance from it.
//! 2. A function with a frame pointer says where it is when it begins: pushes, and an addition to the stack pointer. So it is
//!    computed ([`below_bp`]), and the record is found. A call must lead to the return address.
//! 3. A function that has not saved the return address, as `syscall` has not, lies directly on its caller's frame. The caller
//!    is known if the first record above is its own: the call before the return address there is a call of the caller, the
//!    caller begins so that its record is just there, and it has a call of the function that is blocked
//!    ([`Walker::caller_of_leaf`]). Where in the caller, is known if it has one such call; with several, the frame is marked.
//!    A caller that was itself called by a register has no name there.
//! 4. The copy is searched upwards for what may be a record: a word that points further up, and one behind a call.
//!    Frames that were found so are marked, and one may be left out below them.
//!
//! Return addresses may be signed (pointer authentication). The signature is taken off, wherever one is read.

use std::ops::Range;

use framehop::aarch64::{CacheAarch64, PtrAuthMask, UnwindRegsAarch64, UnwinderAarch64};
use framehop::{FrameAddress, MayAllocateDuringUnwind, Unwinder as _};

use super::raw::{Raw, Registers, copy_own};
use super::walk::Walker;

pub(super) type Tables<D> = UnwinderAarch64<D>;
pub(super) type Cache = CacheAarch64<MayAllocateDuringUnwind>;

/// How far above the stack pointer a record is searched for.
const SEARCHED: u64 = 8 * 1024;
/// Stands for an unknown register: nothing is there to be read, it is below every stack, and it is no code.
const UNKNOWN: u64 = 1;
/// How many of its instructions a function begins with, for what is read of them.
const BEGINNING: usize = 32;
/// How much of a function is read in search of a call.
const LONGEST_FUNCTION: u64 = 64 * 1024;
const INSTRUCTION: u64 = 4;
const RECORD: u64 = 16;

/// A frame of a stack, by its registers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) ip: u64,
    sp: u64,
    /// The stack pointer is known; else it is not below this.
    is_sp_known: bool,
    bp: u64,
    lr: u64,
}

enum Step {
    To(Position),
    /// The return address is in the link register, which is not known. The caller's stack pointer.
    Leaf(u64),
    End,
    Lost,
}

impl Position {
    /// The innermost frame.
    pub(super) fn of(raw: &Raw) -> Position {
        Position {
            ip: raw.ip,
            sp: raw.sp,
            is_sp_known: true,
            bp: raw.bp.unwrap_or(UNKNOWN),
            lr: raw.lr.unwrap_or(UNKNOWN),
        }
    }
}

/// The registers of a thread that a signal has interrupted.
pub(super) fn interrupted(context: &libc::ucontext_t) -> Registers {
    let context = &context.uc_mcontext;
    Registers {
        ip: context.pc,
        sp: context.sp,
        bp: context.regs[29],
        lr: Some(context.regs[30]),
    }
}

impl Walker {
    /// The caller's frame, and whether it was searched for; `None` at the end.
    pub(super) fn caller(
        &self,
        raw: &Raw,
        at: Position,
        is_first: bool,
        cache: &mut Cache,
    ) -> Option<(Position, bool)> {
        let found = match self.by_tables(raw, at, is_first, cache) {
            Step::To(next) => return Some((next, false)),
            Step::End => return None,
            Step::Leaf(sp) => self.caller_of_leaf(raw, at, sp),
            Step::Lost => self.by_record(raw, at, is_first).map(|next| (next, false)),
        };
        found.or_else(|| Some((self.search(raw, at)?, true)))
    }

    /// Takes the signature off a return address. Its bits lie above those that an address has, of which the stack and
    /// the libraries, mapped from the top, have all.
    fn strip(&self, raw: &Raw, word: u64) -> u64 {
        self.mask(raw).strip_ptr_auth(word)
    }

    fn mask(&self, raw: &Raw) -> PtrAuthMask {
        let highest = self.unwinder.max_known_code_address();
        PtrAuthMask::from_max_known_address(highest.max(raw.sp) | 1)
    }

    fn by_tables(&self, raw: &Raw, at: Position, is_first: bool, cache: &mut Cache) -> Step {
        let step = self.by_tables_as_is(raw, at, is_first, cache);
        if at.is_sp_known {
            return step;
        }
        // A result that rests on the stack pointer differs with another one.
        let other = Position {
            sp: at.sp.saturating_add(RECORD),
            ..at
        };
        match (step, self.by_tables_as_is(raw, other, is_first, cache)) {
            (Step::To(one), Step::To(two)) if one == two => Step::To(one),
            (Step::End, Step::End) => Step::End,
            _ => Step::Lost,
        }
    }

    fn by_tables_as_is(&self, raw: &Raw, at: Position, is_first: bool, cache: &mut Cache) -> Step {
        let address = match is_first {
            true => Some(FrameAddress::from_instruction_pointer(at.ip)),
            false => FrameAddress::from_return_address(at.ip),
        };
        let Some(address) = address else {
            return Step::End;
        };
        let mut regs =
            UnwindRegsAarch64::new_with_ptr_auth_mask(self.mask(raw), at.lr, at.sp, at.bp);
        let mut read = |address| raw.word(address).ok_or(());
        let went = self
            .unwinder
            .unwind_frame(address, &mut regs, cache, &mut read);
        match went {
            Ok(None) => Step::End,
            Ok(Some(UNKNOWN)) if is_first => Step::Leaf(regs.sp()),
            Ok(Some(ip)) => {
                let ip = self.strip(raw, ip);
                // A function that has saved nothing yet, or saves nothing, has its caller's stack pointer.
                let goes_up = regs.sp() > at.sp || is_first && regs.sp() == at.sp;
                match goes_up && self.called_before(ip).is_some() {
                    true => Step::To(Position {
                        ip,
                        sp: regs.sp(),
                        is_sp_known: true,
                        bp: regs.fp(),
                        lr: UNKNOWN,
                    }),
                    false => Step::Lost,
                }
            }
            Err(_) => Step::Lost,
        }
    }

    /// The function that a position is in.
    fn function_at(&self, at: Position, is_first: bool) -> Option<Range<u64>> {
        let before = if is_first { 0 } else { INSTRUCTION };
        self.function_of(at.ip.checked_sub(before)?)
    }

    /// By the record that the frame pointer points to: the one that is known, else the one that the function's beginning
    /// says it has.
    fn by_record(&self, raw: &Raw, at: Position, is_first: bool) -> Option<Position> {
        let known = (at.bp != UNKNOWN).then_some(at.bp);
        let bp = known.or_else(|| {
            let function = self.function_at(at, is_first)?;
            at.is_sp_known.then_some(())?;
            at.sp.checked_add(below_bp(&beginning_of(&function))?)
        })?;
        let next = self.record(raw, bp).filter(|_| bp >= at.sp)?;
        self.called_before(next.ip).map(|_| next)
    }

    /// The caller's registers, from a frame record. Its stack pointer is not below the record's end.
    fn record(&self, raw: &Raw, bp: u64) -> Option<Position> {
        Some(Position {
            ip: self.strip(raw, raw.word(bp.checked_add(8)?)?),
            sp: bp.checked_add(RECORD)?,
            is_sp_known: false,
            bp: raw.word(bp)?,
            lr: UNKNOWN,
        })
    }

    /// The caller of a function that has saved no return address, whose frame begins at `sp`; and whether it is not known where
    /// in the caller.
    fn caller_of_leaf(&self, raw: &Raw, at: Position, sp: u64) -> Option<(Position, bool)> {
        let leaf = self.function_of(at.ip)?;
        self.records(raw, sp).find_map(|(bp, next)| {
            let called = self.called_before(next.ip)??;
            let caller = self.function_of(called)?;
            let is_its_own = caller.start == called
                && sp.checked_add(below_bp(&beginning_of(&caller))?) == Some(bp);
            if !is_its_own {
                return None;
            }
            let mut calls = self.calls(&caller, leaf.start);
            let ip = calls.next()?;
            let position = Position {
                ip,
                sp,
                is_sp_known: true,
                bp,
                lr: UNKNOWN,
            };
            Some((position, calls.next().is_some()))
        })
    }

    /// Where a function goes on after each of its calls of another one.
    fn calls(&self, function: &Range<u64>, called: u64) -> impl Iterator<Item = u64> {
        let bytes = (function.end - function.start).min(LONGEST_FUNCTION);
        let code = instructions(function.start, bytes as usize);
        let after = (1..).map({
            let start = function.start;
            move |number| start + number * INSTRUCTION
        });
        let calls: Vec<u64> = code
            .into_iter()
            .zip(after)
            .filter(|&(code, after)| {
                target_of_call(code, after - INSTRUCTION)
                    .is_some_and(|there| self.behind_stub(there) == called)
            })
            .map(|(_, after)| after)
            .collect();
        calls.into_iter()
    }

    /// The possible records above an address, the lowest first, with the registers that each would give.
    fn records(&self, raw: &Raw, sp: u64) -> impl Iterator<Item = (u64, Position)> {
        let first = sp.checked_next_multiple_of(8).unwrap_or(u64::MAX);
        let end = sp.saturating_add(SEARCHED);
        let places = (0..SEARCHED / 8)
            .map(move |number| first.saturating_add(8 * number))
            .take_while(move |&place| place < end);
        places.filter_map(|bp| {
            let next = self.record(raw, bp)?;
            // The outermost record points nowhere.
            let goes_up = next.bp == 0 || next.bp > bp && next.bp.is_multiple_of(8);
            (goes_up && self.is_code(next.ip)).then_some((bp, next))
        })
    }

    /// The first that may be a record above the stack pointer.
    fn search(&self, raw: &Raw, at: Position) -> Option<Position> {
        self.records(raw, at.sp)
            .map(|(_, next)| next)
            .find(|next| self.called_before(next.ip).is_some())
    }

    /// Whether there is a call instruction before a word that may be a return address; and if so, which
    /// function it calls, where the instruction says.
    fn called_before(&self, word: u64) -> Option<Option<u64>> {
        let call = word.checked_sub(INSTRUCTION)?;
        if !word.is_multiple_of(INSTRUCTION) || !self.is_code(call) {
            return None;
        }
        let code = *instructions(call, INSTRUCTION as usize).first()?;
        if let Some(there) = target_of_call(code, call) {
            return self.is_code(there).then(|| Some(self.behind_stub(there)));
        }
        // blr, and with the signature of the address checked: blraaz, blrabz; blraa, blrab
        let is_call = code & 0xffff_fc1f == 0xd63f_0000
            || code & 0xffff_f81f == 0xd63f_081f
            || code & 0xffff_f800 == 0xd73f_0800;
        is_call.then_some(None)
    }

    /// Where a call comes to that a linker has led over a stub: by the table of imported functions, or because the function
    /// is far away. The address itself where there is none.
    fn behind_stub(&self, there: u64) -> u64 {
        // Stubs have no entry of their own in the tables.
        if self
            .function_of(there)
            .is_some_and(|function| function.start == there)
        {
            return there;
        }
        self.target_of_stub(there)
            .filter(|&target| self.is_code(target))
            .unwrap_or(there)
    }

    fn target_of_stub(&self, there: u64) -> Option<u64> {
        const BTI_C: u32 = 0xd503_245f;
        let code = instructions(there, 5 * INSTRUCTION as usize);
        let (code, at) = match code.split_first()? {
            (&BTI_C, rest) => (rest, there + INSTRUCTION),
            _ => (&code[..], there),
        };
        // adrp x16, page
        let &[adrp, next, ..] = code else {
            return None;
        };
        if adrp & 0x9f00_001f != 0x9000_0010 {
            return None;
        }
        let pages = u64::from(adrp >> 29 & 3) | u64::from(adrp >> 5 & 0x7_ffff) << 2;
        let page = (at & !0xfff).wrapping_add_signed(signed(pages, 21) << 12);
        let immediate = u64::from(next >> 10 & 0xfff);
        match next {
            // ldr x17, [x16, offset]: the table has the address
            _ if next & 0xffc0_03ff == 0xf940_0211 => {
                let word = copy_own(page + 8 * immediate, 8);
                Some(u64::from_ne_bytes(word.try_into().ok()?))
            }
            // add x16, x16, offset
            _ if next & 0xffc0_03ff == 0x9100_0210 => Some(page + immediate),
            _ => None,
        }
    }
}

/// The instructions from an address on, as far as they can be read.
fn instructions(address: u64, bytes: usize) -> Vec<u32> {
    copy_own(address, bytes)
        .as_chunks()
        .0
        .iter()
        .map(|&code| u32::from_le_bytes(code))
        .collect()
}

fn beginning_of(function: &Range<u64>) -> Vec<u32> {
    let bytes = (function.end - function.start).min(BEGINNING as u64 * INSTRUCTION);
    instructions(function.start, bytes as usize)
}

/// A signed number of `bits` bits.
fn signed(number: u64, bits: u32) -> i64 {
    (number << (64 - bits)) as i64 >> (64 - bits)
}

/// The target of the instruction at `at`, if it is a call that names one.
fn target_of_call(code: u32, at: u64) -> Option<u64> {
    // bl there
    (code >> 26 == 0b10_0101)
        .then(|| at.wrapping_add_signed(signed(u64::from(code & 0x3ff_ffff), 26) * 4))
}

/// How far the stack pointer is below the frame pointer in a function, once it has made room for itself: told by
/// the instructions that it begins with. `None` where it does not begin as compilers let them.
fn below_bp(code: &[u32]) -> Option<u64> {
    const SP: u32 = 31;
    let mut below: Option<u64> = None;
    let mut code = code.iter().copied();
    while let Some(instruction) = code.next() {
        let (to, from) = (instruction & 31, instruction >> 5 & 31);
        let shift = if instruction >> 22 & 1 == 1 { 12 } else { 0 };
        let immediate = u64::from(instruction >> 10 & 0xfff) << shift;
        let is_add = instruction & 0xff80_0000 == 0x9100_0000;
        let is_sub = instruction & 0xff80_0000 == 0xd100_0000;
        match below {
            // add x29, sp, immediate; mov x29, sp is the same with 0
            _ if is_add && (to, from) == (29, SP) => below = Some(immediate),
            // sub sp, sp, immediate
            Some(by) if is_sub && (to, from) == (SP, SP) => {
                below = Some(by.checked_add(immediate)?)
            }
            // sub register, sp, immediate, where a loop touches each page until the stack pointer is there
            Some(by) if is_sub && from == SP && is_probe(&mut code.clone(), to) => {
                below = Some(by.checked_add(immediate)?);
                code.by_ref().take(4).for_each(drop);
            }
            // Anything else that writes the stack pointer, or the frame pointer: add, sub, and.
            _ if below.is_some() && (is_add || is_sub) && to == SP => return None,
            _ if below.is_some() && instruction & 0xff80_001f == 0x9200_001f => return None,
            // stp or str of 64 bits with the stack pointer moved before: stp …, [sp, immediate]!
            Some(by) if from == SP && instruction & 0xffc0_0000 == 0xa980_0000 => {
                let moved = signed(u64::from(instruction >> 15 & 0x7f), 7) * 8;
                below = Some(by.checked_add_signed(-moved)?);
            }
            Some(by) if from == SP && instruction & 0xffe0_0c00 == 0xf800_0c00 => {
                let moved = signed(u64::from(instruction >> 12 & 0x1ff), 9);
                below = Some(by.checked_add_signed(-moved)?);
            }
            // A branch or a call: what comes then is no beginning any more.
            _ if below.is_some() && is_branch(instruction) => break,
            _ => {}
        }
    }
    below
}

/// Whether the next instructions are the loop that makes room page by page: sub sp, sp, page; cmp sp, register;
/// str xzr, [sp]; b.ne.
fn is_probe(code: &mut impl Iterator<Item = u32>, register: u32) -> bool {
    let mut next = || code.next().unwrap_or_default();
    next() & 0xff80_03ff == 0xd100_03ff
        && next() == 0xeb20_63ff | register << 16
        && next() == 0xf900_03ff
        && next() & 0xff00_001f == 0x5400_0001
}

/// b, bl; b.cond; cbz, cbnz, tbz, tbnz; br, blr, ret and their kin; svc.
fn is_branch(code: u32) -> bool {
    code >> 26 & 0x1f == 0b0_0101
        || code >> 24 == 0x54
        || code >> 26 & 0x1f == 0b0_1101
        || code >> 25 == 0b110_1011
        || code & 0xffe0_001f == 0xd400_0001
}

#[cfg(test)]
mod tests {
    use super::super::blocked::{Doing, Syscall};
    use super::super::testing::{self, return_address};
    use super::super::{Frame, symbols};
    use super::*;
    use std::sync::atomic::AtomicU32;
    use std::sync::mpsc;

    #[test]
    fn beginnings_of_functions() {
        const STP_FP: u32 = 0xa9ba_7bfd; // stp x29, x30, [sp, #-96]!
        const MOV_FP: u32 = 0x9100_03fd; // mov x29, sp
        const ADD_FP: u32 = 0x9101_43fd; // add x29, sp, #80
        const SUB_SP: u32 = 0xd101_83ff; // sub sp, sp, #96
        const SUB_SP_PAGES: u32 = 0xd140_0bff; // sub sp, sp, #2, lsl #12
        const BL: u32 = 0x9400_0010;
        const PACIASP: u32 = 0xd503_233f;
        let probe = [
            0xd140_0fe9, // sub x9, sp, #3, lsl #12
            0xd140_07ff, // sub sp, sp, #1, lsl #12
            0xeb29_63ff, // cmp sp, x9
            0xf900_03ff, // str xzr, [sp]
            0x54ff_ffa1, // b.ne
            SUB_SP,
            BL,
        ];
        for (code, below) in [
            (&[PACIASP, STP_FP, MOV_FP, BL][..], Some(0)),
            (&[SUB_SP, 0xa905_7bfd, ADD_FP, BL, SUB_SP], Some(80)),
            (&[STP_FP, MOV_FP, SUB_SP, SUB_SP_PAGES, BL], Some(96 + 8192)),
            (
                &[&[STP_FP, MOV_FP][..], &probe].concat(),
                Some(3 * 4096 + 96),
            ),
            // str x19, [sp, #-16]!
            (&[STP_FP, MOV_FP, 0xf81f_0ff3, BL], Some(16)),
            // A branch before there is a record: cbz x0
            (&[0xb400_0040, STP_FP, MOV_FP, BL], Some(0)),
            // and sp, x9, #-32: aligned
            (&[STP_FP, MOV_FP, 0x927b_e93f, BL], None),
            // mov sp, x9
            (&[STP_FP, MOV_FP, 0x9100_013f, BL], None),
            (&[SUB_SP, BL], None),
            (&[], None),
        ] {
            assert_eq!(below_bp(code), below, "{code:x?}");
        }
    }

    #[test]
    fn calls_and_what_they_call() {
        assert_eq!(target_of_call(0x9400_0010, 0x1000), Some(0x1040));
        assert_eq!(target_of_call(0x97ff_ffff, 0x1000), Some(0xffc));
        // b, blr x8, ret
        for code in [0x1400_0010, 0xd63f_0100, 0xd65f_03c0] {
            assert_eq!(target_of_call(code, 0x1000), None, "{code:x}");
        }
    }

    /// As a function of libc signs it: in the bits above those of an address, below the top byte.
    const SIGNATURE: u64 = 0x0055_0000_0000_0000;

    #[test]
    fn a_record_is_found_among_other_words() {
        let walker = Walker::new();
        let returns_to = return_address();
        let called = walker.called_before(returns_to).expect("behind a call");
        let function = return_address as fn() -> u64 as usize as u64;
        assert!(called.is_none_or(|called| called == function));
        for word in [returns_to, returns_to | SIGNATURE] {
            // Zeros; the second instruction of a function, before which there is no call (before the first there may be one,
            // another function's last); a word that points down; one in the middle of an instruction; and then a record.
            let sp = 0xffff_0000_1000;
            let words = [
                0,
                0,
                function + 4,
                sp,
                returns_to,
                sp + 64,
                returns_to + 1,
                8,
                0,
            ]
            .into_iter()
            .chain([sp + 0x100, word]);
            let raw = testing::raw(8, sp, &words.collect::<Vec<u64>>());
            let found = walker
                .search(&raw, Position::of(&raw))
                .expect("it is there");
            assert_eq!((found.ip, found.sp), (returns_to, sp + 11 * 8));
            assert_eq!((found.bp, found.is_sp_known), (sp + 0x100, false));
        }
    }

    static NEVER_CHANGES: AtomicU32 = AtomicU32::new(0);

    /// Blocks in `syscall`, which saves nothing. Calls it once, and not as its last act.
    #[inline(never)]
    fn waits_in_a_leaf() -> libc::c_long {
        let room = std::hint::black_box([0u64; 40]);
        let time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 300_000_000,
        };
        // SAFETY: the word and the time are readable for the whole call.
        let answer = unsafe {
            libc::syscall(
                libc::SYS_futex,
                NEVER_CHANGES.as_ptr(),
                libc::FUTEX_WAIT,
                0,
                &raw const time,
            )
        };
        std::hint::black_box(room);
        std::hint::black_box(answer)
    }

    /// The same, with another call of it.
    #[inline(never)]
    fn waits_in_the_second_of_two_leaves() -> libc::c_long {
        // SAFETY: wakes those that wait for the word, of which there are none.
        let woken =
            unsafe { libc::syscall(libc::SYS_futex, NEVER_CHANGES.as_ptr(), libc::FUTEX_WAKE, 0) };
        let time = libc::timespec {
            tv_sec: 0,
            tv_nsec: 300_000_000,
        };
        // SAFETY: the word and the time are readable for the whole call.
        let answer = unsafe {
            libc::syscall(
                libc::SYS_futex,
                NEVER_CHANGES.as_ptr(),
                libc::FUTEX_WAIT,
                0,
                &raw const time,
            )
        };
        std::hint::black_box(answer + woken)
    }

    /// Fails unless the frames of a thread that is blocked come to be as they should.
    fn frames_of_a_sleeper(sleep: fn() -> libc::c_long, are_right: impl Fn(&[Frame]) -> bool) {
        let (tx, rx) = mpsc::channel();
        let sleeper = std::thread::spawn(move || {
            tx.send(morpheus_system::threads::own_tid()).unwrap();
            sleep()
        });
        let syscall = Syscall::open(rx.recv().unwrap()).unwrap();
        let mut seen = String::new();
        let found = (0..1000).any(|_| {
            std::thread::sleep(std::time::Duration::from_micros(100));
            let Some(Doing::Blocked { ip, sp }) = syscall.doing() else {
                return false;
            };
            let Some(raw) = syscall.copy(ip, sp) else {
                return false;
            };
            let addresses = Walker::new().walk(&raw);
            let frames: Vec<Frame> = addresses.iter().flat_map(symbols::frames_at).collect();
            seen = format!("{frames:#?}");
            frames.len() > 3 && are_right(&frames)
        });
        assert!(found, "{seen}");
        sleeper.join().unwrap();
    }

    #[test]
    fn the_caller_of_a_function_that_saves_nothing_is_known() {
        let by_name = || std::hint::black_box(waits_in_a_leaf());
        frames_of_a_sleeper(by_name, |frames| {
            frames[1].function.contains("waits_in_a_leaf")
                && frames.iter().all(|frame| !frame.searched)
        });
    }

    #[test]
    fn a_caller_with_two_such_calls_is_marked() {
        let by_name = || std::hint::black_box(waits_in_the_second_of_two_leaves());
        frames_of_a_sleeper(by_name, |frames| {
            frames[1]
                .function
                .contains("waits_in_the_second_of_two_leaves")
                && frames.iter().filter(|frame| frame.searched).count() == 1
                && frames[1].searched
        });
    }

    /// Too many functions have a call of `syscall` and a frame of that size.
    #[test]
    fn a_caller_that_was_called_by_a_register_is_left_out_and_the_next_is_marked() {
        fn calls(sleep: fn() -> libc::c_long) -> libc::c_long {
            std::hint::black_box(std::hint::black_box(sleep)())
        }
        let by_register = || std::hint::black_box(calls(waits_in_a_leaf));
        frames_of_a_sleeper(by_register, |frames| {
            frames[1].searched
                && !frames
                    .iter()
                    .any(|frame| frame.function.contains("waits_in"))
        });
    }
}
