//! Stacks of x86-64: how to get from a frame to its caller's.
//!
//! The tables for exceptions tell a caller from its callee. They need the frame pointer in functions that have
//! one, as std's do, and of a thread that was blocked it is not known. Two ways lead on, in this order:
//!
//! 1. A function with a frame pointer begins by saying how far the stack pointer is below it: pushes, and
//!    one subtraction. So it is computed ([`below_bp`]), and checked: a call must lead to the return address.
//! 2. The copy is searched upwards for a return address, as readers of crash dumps do: a word that points
//!    behind a call instruction. Best is one whose call is of the very function that is returned from, next
//!    one whose call could be of any function, by a register. Frames that were found so are marked.

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{FrameAddress, MayAllocateDuringUnwind, Unwinder as _};

use super::raw::{Raw, Registers, copy_own};
use super::walk::Walker;

pub(super) type Tables<D> = UnwinderX86_64<D>;
pub(super) type Cache = CacheX86_64<MayAllocateDuringUnwind>;

/// How far above the stack pointer a return address is searched for.
const SEARCHED: u64 = 8 * 1024;
/// Stands for an unknown frame pointer: nothing is there to be read, and it is below every stack.
const UNKNOWN_BP: u64 = 1;

/// A frame of a stack, by its registers.
#[derive(Clone, Copy)]
pub(super) struct Position {
    pub(super) ip: u64,
    sp: u64,
    bp: u64,
}

enum Step {
    To(Position),
    End,
    Lost,
}

impl Position {
    /// The innermost frame.
    pub(super) fn of(raw: &Raw) -> Position {
        Position {
            ip: raw.ip,
            sp: raw.sp,
            bp: raw.bp.unwrap_or(UNKNOWN_BP),
        }
    }
}

/// The registers of a thread that a signal has interrupted.
pub(super) fn interrupted(context: &libc::ucontext_t) -> Registers {
    let registers = &context.uc_mcontext.gregs;
    let register = |number: libc::c_int| registers[number as usize] as u64;
    Registers {
        ip: register(libc::REG_RIP),
        sp: register(libc::REG_RSP),
        bp: register(libc::REG_RBP),
        lr: None,
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
        match self.by_tables(raw, at, is_first, cache) {
            Step::To(next) => Some((next, false)),
            Step::End => None,
            Step::Lost => match self.with_computed_bp(raw, at, is_first) {
                Some(next) => Some((next, false)),
                None => Some((self.search(raw, at, is_first)?, true)),
            },
        }
    }

    fn by_tables(&self, raw: &Raw, at: Position, is_first: bool, cache: &mut Cache) -> Step {
        let address = match is_first {
            true => Some(FrameAddress::from_instruction_pointer(at.ip)),
            false => FrameAddress::from_return_address(at.ip),
        };
        let Some(address) = address else {
            return Step::End;
        };
        let mut regs = UnwindRegsX86_64::new(at.ip, at.sp, at.bp);
        let mut read = |address| raw.word(address).ok_or(());
        match self
            .unwinder
            .unwind_frame(address, &mut regs, cache, &mut read)
        {
            Ok(None) => Step::End,
            Ok(Some(ip)) if self.is_code(ip) && regs.sp() > at.sp => Step::To(Position {
                ip,
                sp: regs.sp(),
                bp: regs.bp(),
            }),
            Ok(Some(_)) | Err(_) => Step::Lost,
        }
    }

    /// Where the function begins that a position is in.
    fn function_at(&self, at: Position, is_first: bool) -> Option<u64> {
        let inside = at.ip.checked_sub(u64::from(!is_first))?;
        Some(self.function_of(inside)?.start)
    }

    /// By the tables, with the frame pointer that the function's beginning says it has; not in the innermost
    /// frame, which may be in that beginning.
    fn with_computed_bp(&self, raw: &Raw, at: Position, is_first: bool) -> Option<Position> {
        if is_first {
            return None;
        }
        let function = self.function_at(at, is_first)?;
        let bp = at.sp.checked_add(below_bp(&copy_own(function, 64))?)?;
        let mut cache = Cache::default();
        match self.by_tables(raw, Position { bp, ..at }, is_first, &mut cache) {
            Step::To(next) => self.called_before(next.ip).map(|_| next),
            Step::End | Step::Lost => None,
        }
    }

    /// The next return address above the stack pointer: the first that comes from a call of this function,
    /// else the first that comes from a call that does not say of which, else the first.
    fn search(&self, raw: &Raw, at: Position, is_first: bool) -> Option<Position> {
        let function = self.function_at(at, is_first);
        let end = at.sp.saturating_add(SEARCHED);
        let (mut unsaid, mut any) = (None, None);
        let mut place = at.sp.checked_next_multiple_of(8)?;
        while place < end {
            let Some(word) = raw.word(place) else {
                break;
            };
            match self.called_before(word) {
                Some(Some(called)) if Some(called) == function => {
                    return Some(self.returned(raw, place, word, function));
                }
                Some(None) => {
                    unsaid.get_or_insert((place, word));
                }
                Some(Some(_)) => {
                    any.get_or_insert((place, word));
                }
                None => {}
            }
            place += 8;
        }
        unsaid
            .or(any)
            .map(|(place, word)| self.returned(raw, place, word, function))
    }

    /// The registers after a return by the address at `place`.
    fn returned(&self, raw: &Raw, place: u64, ip: u64, function: Option<u64>) -> Position {
        let saved = function
            .is_some_and(saves_bp_first)
            .then(|| raw.word(place.wrapping_sub(8)))
            .flatten();
        Position {
            ip,
            sp: place + 8,
            bp: saved.unwrap_or(UNKNOWN_BP),
        }
    }

    /// Whether there is a call instruction before a word that may be a return address; and if so, which
    /// address it calls, where the instruction says.
    fn called_before(&self, word: u64) -> Option<Option<u64>> {
        if !self.is_code(word.checked_sub(1)?) {
            return None;
        }
        let code = copy_own(word - 7, 7);
        let code: [u8; 7] = code.try_into().ok()?;
        let operand = i32::from_ne_bytes([code[3], code[4], code[5], code[6]]);
        let there = word.wrapping_add_signed(i64::from(operand));
        match code {
            // call there
            [_, _, 0xe8, ..] if self.is_code(there) => Some(Some(there)),
            // call [there], by way of the table of imported functions
            [_, 0xff, 0x15, ..] => {
                let called = copy_own(there, 8);
                Some(called.try_into().ok().map(u64::from_ne_bytes))
            }
            // call register; call [register], and with an offset of one byte or four
            [.., 0xff, 0xd0..=0xd7]
            | [.., 0xff, 0x10..=0x13 | 0x16..=0x17]
            | [.., 0xff, 0x50..=0x57, _]
            | [.., 0xff, 0x54, _, _]
            | [_, 0xff, 0x90..=0x97, ..]
            | [0xff, 0x94, ..] => Some(None),
            _ => None,
        }
    }
}

/// Whether a function begins by saving the frame pointer, which then lies below its return address.
fn saves_bp_first(function: u64) -> bool {
    let code = copy_own(function, 5);
    matches!(code[..], [0x55, ..] | [0xf3, 0x0f, 0x1e, 0xfa, 0x55])
}

/// How far the stack pointer is below the frame pointer in a function, once it has made room for itself: told
/// by the instructions that it begins with. `None` where it does not begin as compilers let them.
fn below_bp(code: &[u8]) -> Option<u64> {
    // endbr64, where there is one; push rbp; mov rbp, rsp, in both encodings
    let code = code.strip_prefix(&[0xf3, 0x0f, 0x1e, 0xfa]).unwrap_or(code);
    let mut code = code
        .strip_prefix(&[0x55, 0x48, 0x89, 0xe5])
        .or_else(|| code.strip_prefix(&[0x55, 0x48, 0x8b, 0xec]))?;
    let mut below = 0;
    loop {
        code = match code {
            // push r8 to r15
            [0x41, 0x50..=0x57, rest @ ..] => rest,
            // push rax, rcx, rdx, rbx, rsi, rdi
            [0x50..=0x53 | 0x56..=0x57, rest @ ..] => rest,
            _ => break,
        };
        below += 8;
    }
    match *code {
        // sub rsp, of one byte or four; and rsp, …: aligned, so that it is not known
        [0x48, 0x83, 0xec, by, ..] => Some(below + u64::from(by)),
        [0x48, 0x81, 0xec, a, b, c, d, ..] => {
            Some(below + u64::from(u32::from_ne_bytes([a, b, c, d])))
        }
        [0x48, 0x83 | 0x81, 0xe4, ..] => None,
        _ => Some(below),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{self, return_address};
    use super::*;

    #[test]
    fn beginnings_of_functions() {
        for (code, below) in [
            (
                &[
                    0x55, 0x48, 0x89, 0xe5, 0x41, 0x57, 0x53, 0x48, 0x83, 0xec, 0x20,
                ][..],
                Some(0x30),
            ),
            (
                &[0xf3, 0x0f, 0x1e, 0xfa, 0x55, 0x48, 0x89, 0xe5, 0xc3],
                Some(0),
            ),
            (
                &[0x55, 0x48, 0x89, 0xe5, 0x48, 0x81, 0xec, 0, 0x10, 0, 0],
                Some(0x1000),
            ),
            (&[0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xe4, 0xe0], None),
            (&[0x48, 0x83, 0xec, 0x20], None),
            (&[], None),
        ] {
            assert_eq!(below_bp(code), below, "{code:x?}");
        }
    }

    #[test]
    fn a_return_address_is_found_among_other_words() {
        let walker = Walker::new();
        let returns_to = return_address();
        let called = walker.called_before(returns_to).expect("behind a call");
        let function = return_address as fn() -> u64 as usize as u64;
        assert!(called.is_none_or(|called| called == function));
        // Zeros, the address of a function (no call is before it), one in the middle of an instruction or not
        // of code, and then it.
        let words = [0, function, 1, u64::MAX, returns_to, returns_to];
        let raw = testing::raw(function + 1, 0x1000, &words);
        let at = Position {
            ip: raw.ip,
            sp: raw.sp,
            bp: UNKNOWN_BP,
        };
        let found = walker.search(&raw, at, true).expect("it is there");
        assert_eq!((found.ip, found.sp), (returns_to, 0x1000 + 5 * 8));
    }
}
