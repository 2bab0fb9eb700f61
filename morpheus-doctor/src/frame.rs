//! How large a function's frame is, by its first instructions.
//!
//! The tables of a function with a frame pointer start from that register, which `/proc` does not tell. But such a function saves its
//! caller's first, then the other registers that it uses, and makes room once: in its body the stack pointer is as far below the
//! return address as these instructions say. Rust's standard library has frame pointers, and most calls that block go through it.

/// The instruction that marks the target of a jump or a call (`endbr64`).
#[cfg(target_arch = "x86_64")]
pub const TARGET: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
/// How much of a function is read: what the largest such beginning takes.
pub const BEGINNING: usize = 64;

/// The first instructions of a function with a frame pointer, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beginning {
    /// From the stack pointer in its body to the return address, in bytes: not known where it makes room otherwise. It is a claim, as
    /// what follows was not read.
    pub below_return: u64,
}

/// Reads the first instructions of a function; None if they do not save the frame pointer beside the return address.
#[cfg(target_arch = "x86_64")]
#[must_use]
pub fn beginning(code: &[u8]) -> Option<Beginning> {
    let code = code.strip_prefix(&TARGET).unwrap_or(code);
    // push rbp; mov rbp, rsp
    let mut rest = code.strip_prefix(&[0x55, 0x48, 0x89, 0xe5])?;
    let mut below_return = 8;
    loop {
        let (taken, length) = match *rest {
            // push register
            [0x50..=0x57, ..] => (8, 1),
            [0x41, 0x50..=0x57, ..] => (8, 2),
            // sub rsp, one byte; four
            [0x48, 0x83, 0xec, room @ 0..=0x7f, ..] => (u32::from(room), 4),
            [0x48, 0x81, 0xec, a, b, c, d, ..] => (u32::from_le_bytes([a, b, c, d]), 7),
            // mov qword [rsp], 0: a page of a large frame is touched before the next.
            [0x48, 0xc7, 0x04, 0x24, 0, 0, 0, 0, ..] => (0, 8),
            _ => return Some(Beginning { below_return }),
        };
        below_return += u64::from(taken);
        rest = &rest[length..];
    }
}

/// Reads the first instructions of a function. `stp x29, x30`, which saves both, may come after others there.
#[cfg(target_arch = "aarch64")]
#[must_use]
pub fn beginning(_code: &[u8]) -> Option<Beginning> {
    None
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    const SAVES: [u8; 4] = [0x55, 0x48, 0x89, 0xe5];

    #[test]
    fn room_is_what_is_pushed_and_made() {
        let of = |rest: &[u8]| {
            let beginning = beginning(&[&SAVES[..], rest].concat());
            beginning.map(|beginning| beginning.below_return)
        };
        assert_eq!(of(&[]), Some(8));
        // push r15; push rbx; sub rsp, 0x18; mov rbx, rdi
        let pushes = [0x41, 0x57, 0x53, 0x48, 0x83, 0xec, 0x18, 0x48, 0x89, 0xfb];
        assert_eq!(of(&pushes), Some(8 + 16 + 0x18));
        // sub rsp, 0x1000; mov qword [rsp], 0; sub rsp, 0x230
        let pages = [
            0x48, 0x81, 0xec, 0, 0x10, 0, 0, 0x48, 0xc7, 0x04, 0x24, 0, 0, 0, 0, 0x48, 0x81, 0xec,
            0x30, 2, 0, 0,
        ];
        assert_eq!(of(&pages), Some(8 + 0x1230));
        // Instructions that are cut off are not counted.
        for length in 0..pages.len() {
            assert!(of(&pages[..length]) <= of(&pages), "{length}");
        }
        // sub rsp, -0x80, as some compilers add 0x80: it makes no room.
        assert_eq!(of(&[0x48, 0x83, 0xec, 0x80]), Some(8));
    }

    #[test]
    fn a_frame_pointer_is_saved_by_functions_that_begin_with_it() {
        assert!(beginning(&SAVES).is_some());
        assert!(beginning(&[&TARGET[..], &SAVES].concat()).is_some());
        for another in [&[][..], &[0x55], &TARGET, &[0x41, 0x57, 0x55, 0x48, 0x89]] {
            assert_eq!(beginning(another), None, "{another:x?}");
        }
    }
}
