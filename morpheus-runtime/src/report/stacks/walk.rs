//! From a copied stack to return addresses, later and elsewhere.
//!
//! What tells a caller from its callee are the tables for exceptions, which every Rust program has, stripped
//! or not; `framehop` reads them. They need the frame pointer in functions that have one, as std's do,
//! and of a thread that was blocked it is not known. Two ways lead on, in this order:
//!
//! 1. A function with a frame pointer begins by saying how far the stack pointer is below it: pushes, and
//!    one subtraction. So it is computed ([`below_bp`]), and checked: a call must lead to the return address.
//! 2. The copy is searched upwards for a return address, as readers of crash dumps do: a word that points
//!    behind a call instruction. Best is one whose call is of the very function that is returned from, next
//!    one whose call could be of any function, by a register. Frames that were found so are marked.

use std::borrow::Cow;
use std::ffi::c_void;
use std::ops::Range;

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, FrameAddress, Module, Unwinder};

use super::raw::{Raw, copy_own};

/// Nobody needs more to find the line, and a copy has room for few more.
const MOST_FRAMES: usize = 128;
/// How far above the stack pointer a return address is searched for.
const SEARCHED: u64 = 8 * 1024;
/// Stands for an unknown frame pointer: nothing is there to be read, and it is below every stack.
const UNKNOWN_BP: u64 = 1;

/// One frame of a walked stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Address {
    pub(crate) address: u64,
    /// It is where the frame goes on, and not the instruction that it is at.
    pub(crate) is_return: bool,
    /// It was searched for, because the tables did not lead there.
    pub(crate) searched: bool,
}

type Bytes = Cow<'static, [u8]>;

/// What is loaded, and its tables.
pub(crate) struct Walker {
    unwinder: UnwinderX86_64<Bytes>,
    code: Vec<Code>,
}

/// One executable segment.
struct Code {
    range: Range<u64>,
    /// Where the functions begin, sorted: part of the module's table.
    starts: Starts,
}

/// The sorted table of an `.eh_frame_hdr`, whose entries are pairs of 32-bit offsets from its beginning.
#[derive(Clone, Default)]
struct Starts {
    hdr_address: u64,
    table: Option<Bytes>,
}

impl Starts {
    /// Where the function begins that has this address.
    fn of(&self, address: u64) -> Option<u64> {
        let table = self.table.as_deref()?;
        let at = |index: usize| {
            let entry = table.get(12 + index * 8..12 + index * 8 + 4)?;
            let offset = i32::from_ne_bytes(entry.try_into().ok()?);
            Some(self.hdr_address.wrapping_add_signed(i64::from(offset)))
        };
        let (mut low, mut high) = (0, table.len().saturating_sub(12) / 8);
        while low < high {
            let middle = low + (high - low) / 2;
            match at(middle)? <= address {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        at(low.checked_sub(1)?)
    }
}

impl Walker {
    /// Knows what is loaded at this moment.
    pub(crate) fn new() -> Walker {
        let mut walker = Walker {
            unwinder: UnwinderX86_64::new(),
            code: Vec::new(),
        };
        // SAFETY: the callback gets back the pointer to `walker`, which outlives the call, and does not unwind
        // (it indexes nothing, and allocation failure aborts).
        unsafe {
            libc::dl_iterate_phdr(Some(add_module), (&raw mut walker).cast());
        }
        walker
    }

    fn code_of(&self, address: u64) -> Option<&Code> {
        self.code.iter().find(|code| code.range.contains(&address))
    }

    /// Whether it knows the code at the top of a stack; else something was loaded since.
    pub(crate) fn knows(&self, raw: &Raw) -> bool {
        self.code_of(raw.ip).is_some()
    }

    /// The frames of a stack, innermost first. There is at least one.
    pub(crate) fn walk(&self, raw: &Raw) -> Vec<Address> {
        let mut frames = vec![Address {
            address: raw.ip,
            is_return: false,
            searched: false,
        }];
        // Of its own for each stack: a rule that failed once, for want of the frame pointer, is kept there.
        let mut cache = CacheX86_64::<_>::new();
        let mut at = Position {
            ip: raw.ip,
            sp: raw.sp,
            bp: raw.bp.unwrap_or(UNKNOWN_BP),
        };
        while frames.len() < MOST_FRAMES {
            let is_first = frames.len() == 1;
            let (next, searched) = match self.by_tables(raw, at, is_first, &mut cache) {
                Step::To(next) => (next, false),
                Step::End => break,
                Step::Lost => match self.with_computed_bp(raw, at, is_first) {
                    Some(next) => (next, false),
                    None => match self.search(raw, at, is_first) {
                        Some(next) => (next, true),
                        None => break,
                    },
                },
            };
            frames.push(Address {
                address: next.ip,
                is_return: true,
                searched,
            });
            at = next;
        }
        frames
    }

    fn by_tables(&self, raw: &Raw, at: Position, is_first: bool, cache: &mut CacheX86_64) -> Step {
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
            Ok(Some(ip)) if self.code_of(ip).is_some() && regs.sp() > at.sp => Step::To(Position {
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
        self.code_of(inside)?.starts.of(inside)
    }

    /// By the tables, with the frame pointer that the function's beginning says it has; not in the innermost
    /// frame, which may be in that beginning.
    fn with_computed_bp(&self, raw: &Raw, at: Position, is_first: bool) -> Option<Position> {
        if is_first {
            return None;
        }
        let function = self.function_at(at, is_first)?;
        let bp = at.sp.checked_add(below_bp(&copy_own(function, 64))?)?;
        let mut cache = CacheX86_64::<_>::new();
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
        self.code_of(word.checked_sub(1)?)?;
        let code = copy_own(word - 7, 7);
        let code: [u8; 7] = code.try_into().ok()?;
        let operand = i32::from_ne_bytes([code[3], code[4], code[5], code[6]]);
        let there = word.wrapping_add_signed(i64::from(operand));
        match code {
            // call there
            [_, _, 0xe8, ..] if self.code_of(there).is_some() => Some(Some(there)),
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

#[derive(Clone, Copy)]
struct Position {
    ip: u64,
    sp: u64,
    bp: u64,
}

enum Step {
    To(Position),
    End,
    Lost,
}

/// Adds one loaded object.
unsafe extern "C" fn add_module(
    info: *mut libc::dl_phdr_info,
    size: libc::size_t,
    walker: *mut c_void,
) -> libc::c_int {
    // SAFETY: the loader's own description, good during the callback, in which nothing is unloaded; the
    // pointer is the one that `Walker::new` passed.
    unsafe {
        let walker = &mut *walker.cast::<Walker>();
        let first = walker.code.is_empty();
        if size >= std::mem::offset_of!(libc::dl_phdr_info, dlpi_phnum) + size_of::<u16>() {
            walker.add(&*info, first);
        }
    }
    0
}

impl Walker {
    /// # Safety
    ///
    /// What `info` describes is loaded, and stays so during the call; if `stays`, for ever.
    unsafe fn add(&mut self, info: &libc::dl_phdr_info, stays: bool) {
        if info.dlpi_phdr.is_null() {
            return;
        }
        // SAFETY: the loader's table of so many headers.
        let headers =
            unsafe { std::slice::from_raw_parts(info.dlpi_phdr, usize::from(info.dlpi_phnum)) };
        let base = info.dlpi_addr;
        let range_of = |header: &libc::Elf64_Phdr| {
            let start = base.wrapping_add(header.p_vaddr);
            start..start.saturating_add(header.p_memsz)
        };
        let loaded = || {
            headers
                .iter()
                .filter(|header| header.p_type == libc::PT_LOAD)
        };
        let (Some(start), Some(end)) = (
            loaded().map(|header| range_of(header).start).min(),
            loaded().map(|header| range_of(header).end).max(),
        ) else {
            return;
        };
        let readable = |address: u64| {
            loaded()
                .filter(|header| header.p_flags & libc::PF_R != 0)
                .map(range_of)
                .find(|range| range.contains(&address))
        };
        // Of the program itself nothing is ever unloaded; of a library the tables are copied.
        let bytes = |range: Range<u64>| -> Bytes {
            // SAFETY: within a readable segment of a loaded object; constant there (relocations are over).
            let bytes: &'static [u8] = unsafe {
                std::slice::from_raw_parts(
                    range.start as *const u8,
                    (range.end - range.start) as usize,
                )
            };
            match stays {
                true => Cow::Borrowed(bytes),
                false => Cow::Owned(bytes.to_vec()),
            }
        };
        let mut starts = Starts::default();
        let mut sections = ExplicitModuleSectionInfo::<Bytes>::default();
        let hdr = headers
            .iter()
            .find(|header| header.p_type == libc::PT_GNU_EH_FRAME)
            .map(range_of)
            .filter(|hdr| readable(hdr.start).is_some_and(|segment| hdr.end <= segment.end));
        if let Some(hdr) = hdr {
            let table = bytes(hdr.clone());
            // The one form that linkers make: offsets of 32 bits, the first relative to itself.
            if let [1, 0x1b, 0x03, 0x3b, a, b, c, d, ..] = table[..]
                && let offset = i32::from_ne_bytes([a, b, c, d])
                && let eh_frame = (hdr.start + 4).wrapping_add_signed(i64::from(offset))
                && let Some(segment) = readable(eh_frame)
            {
                let relative = |range: &Range<u64>| {
                    range.start.wrapping_sub(base)..range.end.wrapping_sub(base)
                };
                let eh_frame = eh_frame..segment.end;
                sections.eh_frame_svma = Some(relative(&eh_frame));
                sections.eh_frame = Some(bytes(eh_frame));
                sections.eh_frame_hdr_svma = Some(relative(&hdr));
                sections.eh_frame_hdr = Some(table.clone());
                starts = Starts {
                    hdr_address: hdr.start,
                    table: Some(table),
                };
            }
        }
        let executable = loaded().filter(|header| header.p_flags & libc::PF_X != 0);
        self.code.extend(executable.map(|header| Code {
            range: range_of(header),
            starts: starts.clone(),
        }));
        self.unwinder
            .add_module(Module::new(String::new(), start..end, base, sections));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_found_by_an_address_in_it() {
        let walker = Walker::new();
        let function: fn() = a_function_is_found_by_an_address_in_it;
        let start = function as usize as u64;
        let code = walker.code_of(start).expect("this program's code");
        assert_eq!(code.starts.of(start + 1), Some(start));
        assert_eq!(Starts::default().of(start), None);
        assert!(walker.code_of(8).is_none());
    }

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

    #[inline(never)]
    fn return_address() -> u64 {
        let mut found = 0;
        backtrace::trace(|frame| {
            // The first frame that is in the caller of this function.
            let here = frame.symbol_address() as usize == return_address as fn() -> u64 as usize;
            if found == 1 {
                found = frame.ip() as u64;
            } else if here {
                found = 1;
            }
            found <= 1
        });
        found
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
        let raw = Raw {
            ip: function + 1,
            sp: 0x1000,
            bp: None,
            bytes: words
                .iter()
                .flat_map(|word: &u64| word.to_ne_bytes())
                .collect(),
        };
        let at = Position {
            ip: raw.ip,
            sp: raw.sp,
            bp: UNKNOWN_BP,
        };
        let found = walker.search(&raw, at, true).expect("it is there");
        assert_eq!((found.ip, found.sp), (returns_to, 0x1000 + 5 * 8));
    }

    #[test]
    fn nonsense_has_one_frame() {
        let walker = Walker::new();
        for bytes in [vec![], vec![0; 64], vec![0xff; 4096]] {
            for (ip, sp, bp) in [
                (0, 0, None),
                (5, 8, Some(16)),
                (u64::MAX, u64::MAX, Some(u64::MAX)),
            ] {
                let raw = Raw {
                    ip,
                    sp,
                    bp,
                    bytes: bytes.clone().into_boxed_slice(),
                };
                assert_eq!(walker.walk(&raw).len(), 1, "{raw:x?}");
            }
        }
    }
}
