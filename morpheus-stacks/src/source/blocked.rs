//! The stack of a thread that is blocked in the kernel, without disturbing it.
//!
//! A signal would end its call early: `nanosleep`, `poll` and a `recv` with a timeout return `EINTR`
//! whatever the handler's flags say. But `/proc/self/task/TID/syscall` has the stack pointer and the
//! instruction pointer of a thread that is off the CPU, and its stack lies still. It is copied from outside,
//! and counts if the thread is found in the same place after that, in the same poll.
//!
//! Neither the frame pointer nor a link register is known this way; [`walk`](super::walk) finds its way without.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::raw::{MOST, Raw, copy_own};

/// The state of a thread at this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Doing {
    /// It has the CPU, or waits for it.
    Computing,
    /// It is blocked, with this instruction and stack pointer.
    Blocked { ip: u64, sp: u64 },
}

/// The open file of one thread.
pub(crate) struct Syscall {
    file: File,
}

impl Syscall {
    /// `None` when the thread is gone, or the kernel does not have this file.
    pub(crate) fn open(tid: u32) -> Option<Syscall> {
        let file = File::open(format!("/proc/self/task/{tid}/syscall")).ok()?;
        Some(Syscall { file })
    }

    fn read(&self) -> Option<String> {
        let mut line = [0; 256];
        let read = self.file.read_at(&mut line, 0).ok()?;
        Some(String::from_utf8_lossy(&line[..read]).into_owned())
    }

    /// The present state of the thread; `None` once it is gone.
    pub(crate) fn doing(&self) -> Option<Doing> {
        parse(&self.read()?)
    }

    /// The stack of a thread that is blocked; `None` if it moved meanwhile.
    pub(crate) fn copy(&self, ip: u64, sp: u64) -> Option<Raw> {
        let before = self.read()?;
        if parse(&before)? != (Doing::Blocked { ip, sp }) {
            return None;
        }
        let bytes = copy_own(sp, MOST).into_boxed_slice();
        (self.read()? == before).then_some(Raw {
            ip,
            sp,
            bp: None,
            lr: None,
            bytes,
        })
    }
}

/// `running`, or the number of the system call and its arguments, the stack pointer and the instruction
/// pointer; where it is blocked outside of a system call (in a page fault), `-1` and the two.
fn parse(line: &str) -> Option<Doing> {
    let mut words = line.split_ascii_whitespace();
    if words.next()? == "running" {
        return Some(Doing::Computing);
    }
    let mut last = words.map(|word| u64::from_str_radix(word.trim_start_matches("0x"), 16).ok());
    let ip = last.next_back()??;
    let sp = last.next_back()??;
    Some(Doing::Blocked { ip, sp })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn lines_of_the_kernel() {
        assert_eq!(parse("running\n"), Some(Doing::Computing));
        assert_eq!(
            parse("35 0x7f 0x0 0x0 0x0 0x0 0x0 0x7ffc01 0x7f02\n"),
            Some(Doing::Blocked {
                ip: 0x7f02,
                sp: 0x7f_fc01
            })
        );
        assert_eq!(
            parse("-1 0x10 0x20\n"),
            Some(Doing::Blocked { ip: 0x20, sp: 0x10 })
        );
        for bad in ["", "35", "35 0x", "-1 x y", "35 0x10"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_sleeper_s_stack_is_copied_and_its_sleep_is_not_cut_short() {
        let (tx, rx) = mpsc::channel();
        let sleeper = std::thread::spawn(move || {
            tx.send(morpheus_system::threads::own_tid()).unwrap();
            let time = libc::timespec {
                tv_sec: 0,
                tv_nsec: 300_000_000,
            };
            // SAFETY: `time` is readable; what is left of the sleep is not asked for.
            unsafe { libc::nanosleep(&raw const time, std::ptr::null_mut()) }
        });
        let syscall = Syscall::open(rx.recv().unwrap()).unwrap();
        let copied = (0..1000).any(|_| {
            std::thread::sleep(Duration::from_micros(100));
            match syscall.doing() {
                Some(Doing::Blocked { ip, sp }) => syscall
                    .copy(ip, sp)
                    .is_some_and(|raw| raw.bytes.len() > 256),
                _ => false,
            }
        });
        assert!(copied);
        assert_eq!(sleeper.join().unwrap(), 0, "the sleep was interrupted");
    }
}
