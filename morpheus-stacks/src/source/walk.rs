//! From a copied stack to return addresses, later and elsewhere.
//!
//! The tables for exceptions, which every Rust program has, stripped or not, tell a caller from its callee; `framehop` reads them. Where
//! they do not lead on, because registers are not known of a thread that was blocked, other ways do, which depend on the machine:
//! `x86_64.rs`, `aarch64.rs`.

use std::borrow::Cow;
use std::ffi::c_void;
use std::ops::Range;

use framehop::{ExplicitModuleSectionInfo, Module, Unwinder};

use super::machine::{Cache, Position, Tables};
use super::raw::Raw;

/// The line is found with fewer, and a copy has room for few more.
const MOST_FRAMES: usize = 128;

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

/// The loaded modules, and their tables.
pub(crate) struct Walker {
    pub(super) unwinder: Tables<Bytes>,
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
    /// The function that has this address: from where it begins to where the next one does.
    fn of(&self, address: u64) -> Option<Range<u64>> {
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
        Some(at(low.checked_sub(1)?)?..at(low).unwrap_or(u64::MAX))
    }
}

impl Walker {
    /// Knows what is loaded at this moment.
    pub(crate) fn new() -> Walker {
        let mut walker = Walker {
            unwinder: Tables::new(),
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
        let mut cache = Cache::default();
        let mut at = Position::of(raw);
        while frames.len() < MOST_FRAMES {
            let is_first = frames.len() == 1;
            let Some((next, searched)) = self.caller(raw, at, is_first, &mut cache) else {
                break;
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

    /// Whether something is code.
    pub(super) fn is_code(&self, address: u64) -> bool {
        self.code_of(address).is_some()
    }

    /// The function that has this address.
    pub(super) fn function_of(&self, address: u64) -> Option<Range<u64>> {
        let code = self.code_of(address)?;
        let function = code.starts.of(address)?;
        Some(function.start..function.end.min(code.range.end))
    }
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
    /// The module that `info` describes is loaded, and stays so during the call; if `stays`, for ever.
    unsafe fn add(&mut self, info: &libc::dl_phdr_info, stays: bool) {
        if info.dlpi_phdr.is_null() {
            return;
        }
        // SAFETY: the loader's table of `dlpi_phnum` headers.
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
        assert_eq!(code.starts.of(start + 1).unwrap().start, start);
        assert_eq!(Starts::default().of(start), None);
        assert!(walker.code_of(8).is_none());
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
                    lr: bp,
                    bytes: bytes.clone().into_boxed_slice(),
                };
                assert_eq!(walker.walk(&raw).len(), 1, "{raw:x?}");
            }
        }
    }
}
