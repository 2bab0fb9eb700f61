//! Getting one stack, and reading it: what [`captor`](super::captor) and [`groups`](super::groups) need of
//! the machine. `no_source.rs` is the same for builds that cannot.

use super::blocked::{Doing, Syscall};
use super::walk::{Address, Walker};
use super::{Frame, NoStack, StallKind, signal, symbols};

pub(crate) use super::raw::Raw;
pub(crate) use super::signal::Ask;
pub(crate) use super::walk::Address as At;

/// What became of a first look at a thread.
#[derive(Debug)]
pub(crate) enum Begun {
    /// It is blocked, and this is its stack.
    Copied(Raw),
    /// It computes, and was asked.
    Asked(Ask),
    /// It moved while it was being looked at: again a moment later.
    Moved,
    /// There is no stack to be had.
    Failed(StallKind, NoStack),
}

/// Looks at the thread of a poll that is stalled; `is_same` says whether it is still in that poll.
pub(crate) fn begin(tid: u32, is_same: impl Fn() -> bool) -> Begun {
    let Some(syscall) = Syscall::open(tid) else {
        return Begun::Failed(StallKind::Blocked, NoStack::Refused);
    };
    match syscall.doing() {
        Some(Doing::Blocked { ip, sp }) => match syscall.copy(ip, sp) {
            Some(raw) if raw.bytes.is_empty() => {
                Begun::Failed(StallKind::Blocked, NoStack::Refused)
            }
            Some(raw) if is_same() => Begun::Copied(raw),
            _ => Begun::Moved,
        },
        Some(Doing::Computing) if !is_same() => Begun::Moved,
        Some(Doing::Computing) => match signal::ask(tid) {
            Ok(ask) => Begun::Asked(ask),
            Err(why) => Begun::Failed(StallKind::Computing, why),
        },
        None => Begun::Failed(StallKind::Blocked, NoStack::Refused),
    }
}

/// Reads stacks; knows what was loaded when it was made.
pub(crate) struct Reader(Walker);

impl Reader {
    pub(crate) fn new() -> Reader {
        Reader(Walker::new())
    }

    pub(crate) fn walk(&mut self, raw: &Raw) -> Vec<Address> {
        if !self.0.knows(raw) {
            self.0 = Walker::new();
        }
        self.0.walk(raw)
    }
}

/// The functions of a walked stack, innermost first.
pub(crate) fn frames(addresses: &[Address]) -> Vec<Frame> {
    addresses.iter().flat_map(symbols::frames_at).collect()
}

/// Whether a frame is of a library that is none of the plumbing.
pub(crate) fn is_library(frame: &Frame) -> bool {
    symbols::is_library(&frame.function, frame.file.as_deref())
}

/// The key under which stacks at one place are the same: the return address of each frame. The innermost instruction of a
/// thread that computes differs each time, so the addresses of 64 bytes of code count as one.
pub(crate) fn key(addresses: &[Address]) -> Vec<u64> {
    const CODE_AT_ONE_PLACE: u64 = 64;
    addresses
        .iter()
        .map(|at| match at.is_return {
            true => at.address,
            false => at.address / CODE_AT_ONE_PLACE,
        })
        .collect()
}
