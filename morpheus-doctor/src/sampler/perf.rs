//! Stacks of a thread that runs, without a stop: a perf event on its CPU clock, whose samples have the user's registers and stack.
//!
//! The kernel allows it for processes of the same user while `kernel.perf_event_paranoid` is at most 2. The event is armed for one
//! sample where a stack is wanted, and costs nothing else.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::unwind::{Registers, StackCopy};

/// How much CPU time the thread uses from when a stack is asked for.
const AFTER_NS: u64 = 100_000;
/// How much of a stack is copied.
const STACK_BYTES: u32 = 16 * 1024;
/// Room for one stack, and for the rest of a second: a record that finds no room is dropped.
const DATA_BYTES: usize = 32 * 1024;

const TYPE_SOFTWARE: u32 = 1;
const TASK_CLOCK: u64 = 1;
const SAMPLE_TID: u64 = 1 << 1;
const SAMPLE_TIME: u64 = 1 << 2;
const SAMPLE_REGS_USER: u64 = 1 << 12;
const SAMPLE_STACK_USER: u64 = 1 << 13;
const DISABLED: u64 = 1 << 0;
const EXCLUDE_KERNEL: u64 = 1 << 5;
const EXCLUDE_HV: u64 = 1 << 6;
const USE_CLOCKID: u64 = 1 << 25;
const REFRESH: libc::c_ulong = 0x2402;
const FLAG_CLOEXEC: libc::c_ulong = 1 << 3;
const RECORD_SAMPLE: u32 = 9;
/// Where in the control page the kernel's and the reader's positions are.
const HEAD_AT: usize = 1024;
const TAIL_AT: usize = 1032;

/// The registers that are asked for, by their numbers in the kernel's `perf_regs.h`; samples have them in this order.
#[cfg(target_arch = "x86_64")]
const REGISTERS: [u32; 3] = [6, 7, 8]; // bp, sp, ip
#[cfg(target_arch = "aarch64")]
const REGISTERS: [u32; 4] = [29, 30, 31, 32]; // fp, lr, sp, pc

/// `struct perf_event_attr`, as of its fourth version.
#[repr(C)]
#[derive(Default)]
struct Attributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    config1: u64,
    config2: u64,
    branch_sample_type: u64,
    sample_regs_user: u64,
    sample_stack_user: u32,
    clock: i32,
}

/// A stack that was taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// When.
    pub now_ns: u64,
    /// The stack.
    pub copy: StackCopy,
}

/// The event of one thread, and the ring that its samples are written to.
#[derive(Debug)]
pub struct Sampled {
    event: File,
    ring: Ring,
    is_armed: bool,
}

impl Sampled {
    /// For a thread.
    ///
    /// # Errors
    ///
    /// The kernel's error if it does not allow that.
    pub fn open(tid: u32) -> io::Result<Sampled> {
        let attributes = Attributes {
            kind: TYPE_SOFTWARE,
            size: size_of::<Attributes>() as u32,
            config: TASK_CLOCK,
            sample_period: AFTER_NS,
            sample_type: SAMPLE_TID | SAMPLE_TIME | SAMPLE_REGS_USER | SAMPLE_STACK_USER,
            flags: DISABLED | EXCLUDE_KERNEL | EXCLUDE_HV | USE_CLOCKID,
            sample_regs_user: REGISTERS.iter().map(|&register| 1 << register).sum(),
            sample_stack_user: STACK_BYTES,
            clock: libc::CLOCK_MONOTONIC,
            ..Attributes::default()
        };
        let tid = i32::try_from(tid).map_err(|_| io::Error::from(io::ErrorKind::NotFound))?;
        // SAFETY: the attributes are a structure of the size that it says, which the kernel reads; the rest are numbers.
        let descriptor = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const attributes,
                tid,
                -1,
                -1,
                FLAG_CLOEXEC,
            )
        };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has made this descriptor just now, and nothing else has it.
        let event = unsafe { File::from_raw_fd(descriptor as i32) };
        let ring = Ring::map(&event)?;
        Ok(Sampled {
            event,
            ring,
            is_armed: false,
        })
    }

    /// Asks for one stack; one that was asked for before and has not come serves as well.
    pub fn arm(&mut self) {
        if self.is_armed {
            return;
        }
        // SAFETY: the descriptor is a perf event's, and this request takes a number.
        let armed = unsafe { libc::ioctl(self.event.as_raw_fd(), REFRESH, 1) };
        self.is_armed = armed == 0;
    }

    /// The last stack that was taken since the last call.
    pub fn take(&mut self) -> Option<Taken> {
        let mut last = None;
        while let Some(record) = self.ring.next() {
            self.is_armed = false;
            last = sample(&record).or(last);
        }
        last
    }
}

/// A record, as the kernel has written it: its type, and what follows the header.
type Record = (u32, Vec<u8>);

#[derive(Debug)]
struct Ring {
    pages: NonNull<u8>,
    page: usize,
}

// SAFETY: the pages are mapped for as long as the value lives, and belong to no thread.
unsafe impl Send for Ring {}

impl Ring {
    fn map(event: &File) -> io::Result<Ring> {
        // SAFETY: it takes a number and returns one.
        let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
        let page = usize::try_from(page).map_err(|_| io::Error::last_os_error())?;
        // SAFETY: a new mapping at an address that the kernel chooses; no memory of this process is touched.
        let pages = unsafe {
            libc::mmap(
                ptr::null_mut(),
                page + DATA_BYTES.max(page),
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                event.as_raw_fd(),
                0,
            )
        };
        if pages == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let pages = NonNull::new(pages.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Ring { pages, page })
    }

    fn size(&self) -> usize {
        DATA_BYTES.max(self.page)
    }

    fn position(&self, at: usize) -> &AtomicU64 {
        // SAFETY: `at` is HEAD_AT or TAIL_AT: an aligned word within the control page, which the kernel reads and writes as a
        // whole. It is mapped for as long as `self` lives.
        unsafe { AtomicU64::from_ptr(self.pages.as_ptr().add(at).cast()) }
    }

    fn next(&mut self) -> Option<Record> {
        // Partner: the kernel writes a record before it moves the head.
        let head = self.position(HEAD_AT).load(Ordering::Acquire);
        let tail = self.position(TAIL_AT).load(Ordering::Relaxed);
        let mut header = [0; 8];
        let filled = head.wrapping_sub(tail);
        if filled < 8 || filled > self.size() as u64 {
            return None;
        }
        self.copy(tail, &mut header);
        let kind = u32::from_ne_bytes(header[..4].try_into().expect("four bytes"));
        let length = u16::from_ne_bytes(header[6..].try_into().expect("two bytes"));
        if length < 8 || u64::from(length) > filled {
            // No record is like this; what follows cannot be found.
            self.position(TAIL_AT).store(head, Ordering::Release);
            return None;
        }
        let mut rest = vec![0; usize::from(length) - 8];
        self.copy(tail.wrapping_add(8), &mut rest);
        // Partner: the kernel reads the tail before it writes over what lies below it.
        self.position(TAIL_AT)
            .store(tail.wrapping_add(length.into()), Ordering::Release);
        Some((kind, rest))
    }

    /// Copies what the kernel has written, around the ring's end.
    fn copy(&self, from: u64, into: &mut [u8]) {
        let start = (from % self.size() as u64) as usize;
        let first = into.len().min(self.size() - start);
        let (before, after) = into.split_at_mut(first);
        // SAFETY: both parts lie within the ring's data, of `size` bytes after the control page: `into` is no longer than a record,
        // which is no longer than the ring, and the second part is shorter than that by the first. The kernel does not
        // write what lies between tail and head.
        unsafe {
            let data = self.pages.as_ptr().add(self.page);
            ptr::copy_nonoverlapping(data.add(start), before.as_mut_ptr(), before.len());
            ptr::copy_nonoverlapping(data, after.as_mut_ptr(), after.len());
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's, as `map` has made it, and nothing refers to it any more.
        unsafe { libc::munmap(self.pages.as_ptr().cast(), self.page + self.size()) };
    }
}

/// The stack of a sample; None of another record, or of one that was taken where there is no stack.
fn sample((kind, bytes): &Record) -> Option<Taken> {
    if *kind != RECORD_SAMPLE {
        return None;
    }
    let word = |index: usize| {
        let bytes = bytes.get(index * 8..index * 8 + 8)?;
        Some(u64::from_ne_bytes(bytes.try_into().ok()?))
    };
    // Process and thread, the time, and which registers there are: 0 if none.
    let (now_ns, form) = (word(1)?, word(2)?);
    if form == 0 {
        return None;
    }
    let register = |index: usize| word(3 + index);
    #[cfg(target_arch = "x86_64")]
    let registers = Registers {
        bp: register(0),
        sp: register(1)?,
        ip: register(2)?,
        lr: None,
    };
    #[cfg(target_arch = "aarch64")]
    let registers = Registers {
        bp: register(0),
        lr: register(1),
        sp: register(2)?,
        ip: register(3)?,
    };
    let at = 3 + REGISTERS.len();
    let room = usize::try_from(word(at)?).ok()?;
    let stack = bytes.get((at + 1) * 8..)?.get(..room)?;
    // After the room: how much of it was filled.
    let filled = match room {
        0 => 0,
        _ => usize::try_from(word(at + 1 + room / 8)?).ok()?,
    };
    Some(Taken {
        now_ns,
        copy: StackCopy {
            registers,
            bytes: stack.get(..filled.min(room))?.to_vec(),
        },
    })
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;
    use crate::source::now_ns;

    #[test]
    fn samples_of_any_length_are_no_panic() {
        let words: Vec<u8> = [1, 77, 2, 0xb, 0x5, 0x1, 16, 1, 2, 8]
            .iter()
            .flat_map(|word: &u64| word.to_ne_bytes())
            .collect();
        for length in 0..=words.len() {
            let _ = sample(&(RECORD_SAMPLE, words[..length].to_vec()));
        }
        assert_eq!(sample(&(1, words.clone())), None);
        if cfg!(target_arch = "x86_64") {
            let taken = sample(&(RECORD_SAMPLE, words)).unwrap();
            assert_eq!(taken.now_ns, 77);
            assert_eq!(taken.copy.registers.sp, 5);
            assert_eq!(taken.copy.bytes, 1_u64.to_ne_bytes());
        }
    }

    #[test]
    fn a_thread_that_computes_is_sampled_where_it_is_allowed() {
        let stop = Arc::new(AtomicBool::new(false));
        let (send, receive) = std::sync::mpsc::channel();
        let thread = std::thread::spawn({
            let stop = Arc::clone(&stop);
            move || {
                // SAFETY: it takes nothing and returns a number.
                send.send(unsafe { libc::gettid() } as u32).unwrap();
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            }
        });
        let tid = receive.recv().unwrap();
        let opened = Sampled::open(tid);
        if let Ok(mut sampled) = opened {
            // More than fit into the ring at once, so that it goes around.
            for _ in 0..5 {
                let before = now_ns();
                sampled.arm();
                let cell = RefCell::new(&mut sampled);
                let taken = RefCell::new(None);
                morpheus_testing::wait_for("no sample comes", || {
                    *taken.borrow_mut() = cell.borrow_mut().take();
                    taken.borrow().is_some()
                });
                let taken = taken.into_inner().unwrap();
                assert!((before..=now_ns()).contains(&taken.now_ns));
                assert!(taken.copy.word(taken.copy.registers.sp).is_some());
            }
            // It was armed for one.
            std::thread::sleep(std::time::Duration::from_millis(5));
            assert_eq!(sampled.take(), None);
        } else {
            eprintln!("not sampled here: {}", opened.unwrap_err());
        }
        stop.store(true, Ordering::Relaxed);
        thread.join().unwrap();
        assert!(Sampled::open(1 << 23).is_err());
    }
}
