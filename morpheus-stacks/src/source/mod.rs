//! Takes one stack and reads it, for [`captor`](crate::captor) and [`groups`](crate::groups). `no_source.rs` replaces this in
//! builds without stacks.

mod blocked;
#[cfg_attr(target_arch = "x86_64", path = "x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "aarch64.rs")]
mod machine;
mod raw;
mod signal;
mod symbols;
mod walk;

use crate::captor::kind_of;
use crate::{Frame, NoStack, StallKind};
use blocked::{Doing, Syscall};
use morpheus_system::asleep::ThreadStat;
use morpheus_system::seccomp::Call;
use walk::{Address, Walker};

pub(crate) use raw::Raw;
pub(crate) use signal::Ask;
pub(crate) use walk::Address as At;

/// The result of the first try at a stack.
#[derive(Debug)]
pub(crate) enum Begun {
    /// The thread is blocked, and this is its stack.
    Copied(Raw),
    /// The thread computes, and was asked.
    Asked(Ask),
    /// The thread moved while its stack was copied: try again a moment later.
    Moved,
    /// No stack can be taken.
    Failed(StallKind, NoStack),
}

/// Begins to take the stack of a stalled poll's thread; `is_same` says whether it is still in that poll.
pub(crate) fn begin(tid: u32, is_same: impl Fn() -> bool) -> Begun {
    // Here, because the first question may start a process, which a signal handler must not.
    if !Call::ReadMemory.is_allowed() {
        return Begun::Failed(kind_of(tid), NoStack::Refused);
    }
    let Some(syscall) = Syscall::open(tid) else {
        return begin_without_syscall(tid, is_same);
    };
    match syscall.doing() {
        Some(Doing::Blocked { ip, sp }) => match syscall.copy(ip, sp) {
            Some(raw) if raw.bytes.is_empty() => {
                Begun::Failed(StallKind::Blocked, NoStack::Refused)
            }
            Some(raw) if is_same() => Begun::Copied(raw),
            _ => Begun::Moved,
        },
        Some(Doing::Computing) => ask(tid, is_same),
        None => begin_without_syscall(tid, is_same),
    }
}

/// Begins where the file with the thread's stack pointer cannot be read: the process is not dumpable, or the kernel has no such file.
/// The state of the thread can be read all the same, and a thread that computes gives its stack itself.
fn begin_without_syscall(tid: u32, is_same: impl Fn() -> bool) -> Begun {
    match ThreadStat::open(tid).and_then(|stat| stat.is_asleep()) {
        Some(false) => ask(tid, is_same),
        Some(true) | None => Begun::Failed(StallKind::Blocked, NoStack::Refused),
    }
}

/// Asks a thread that computes for its stack.
fn ask(tid: u32, is_same: impl Fn() -> bool) -> Begun {
    if !is_same() {
        return Begun::Moved;
    }
    match signal::ask(tid) {
        Ok(ask) => Begun::Asked(ask),
        Err(why) => Begun::Failed(StallKind::Computing, why),
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

/// Helpers for the tests of each machine.
#[cfg(test)]
mod testing {
    use super::Raw;

    /// The address in the caller to which this function returns.
    #[inline(never)]
    pub(super) fn return_address() -> u64 {
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

    /// A copied stack of these words.
    pub(super) fn raw(ip: u64, sp: u64, words: &[u64]) -> Raw {
        Raw {
            ip,
            sp,
            bp: None,
            lr: None,
            bytes: words.iter().flat_map(|word| word.to_ne_bytes()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use morpheus_system::threads::own_tid;
    use std::sync::mpsc;

    /// As in a process that is not dumpable, where the other file belongs to root.
    #[test]
    fn without_the_stack_pointer_threads_that_compute_are_asked_and_others_are_not() {
        let Begun::Asked(asked) = begin_without_syscall(own_tid(), || true) else {
            panic!("this thread computes");
        };
        assert!(asked.answer().unwrap().is_ok());
        let moved = begin_without_syscall(own_tid(), || false);
        assert!(matches!(moved, Begun::Moved), "{moved:?}");
        let (tell, told) = mpsc::channel();
        let (stop, stopped) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            tell.send(own_tid()).unwrap();
            let _ = stopped.recv();
        });
        let tid = told.recv().unwrap();
        let stat = ThreadStat::open(tid).unwrap();
        while stat.is_asleep() == Some(false) {
            std::thread::yield_now();
        }
        let sleeper = begin_without_syscall(tid, || true);
        drop(stop);
        thread.join().unwrap();
        assert!(
            matches!(sleeper, Begun::Failed(StallKind::Blocked, NoStack::Refused)),
            "{sleeper:?}"
        );
    }
}
