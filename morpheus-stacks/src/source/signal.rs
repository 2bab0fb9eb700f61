//! Stacks of threads that compute: a signal asks the thread, and its handler copies the stack.
//!
//! **The signal** is the highest real-time signal that is not in use: its disposition is the default one when
//! the first thread is asked, which is when a handler is installed, and it is asked for again before each
//! request. Where another part of the program has taken it meanwhile, the next free one is used; where there
//! is none, stalls are reported without a stack ([`NoStack::NoSignal`]). Only threads that the kernel says
//! are computing are signalled. One that goes to sleep in the microseconds between that and the signal may
//! find its call interrupted, as by any signal with `SA_RESTART`.
//!
//! **The handler** does what a handler may: it takes the registers from the context, has the kernel
//! copy the stack ([`raw`](super::raw)) and puts `errno` back. No lock, no allocation, no thread-local.
//!
//! **The hand-over** of the buffers is [`HandOver`]'s, proven there: a handler that fires late writes
//! nowhere, because the signal carries the number of its request. The buffers belong to the process and are
//! never freed, for a signal may be pending as long as a thread masks it. They are a quarter of a MiB,
//! allocated when first needed. A child after `fork` takes new ones: threads that had the old ones are not
//! in it.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use morpheus_common::hand_over::{HandOver, Progress, Request};

use super::raw::{MOST, Raw, read_own};
use super::{NoStack, machine};
use morpheus_system::lock::lock;
use morpheus_system::threads::{own_tid, status_field};

/// Threads that can be asked at once. As many are stalled at once only in a storm, and then those that come
/// first are enough.
const BUFFERS: usize = 8;
const INDEX_BITS: u32 = BUFFERS.trailing_zeros();

struct Buffer {
    hand_over: HandOver,
    /// The thread that is asked; the asker that claims the buffer writes it, the handler reads it.
    tid: AtomicU32,
    /// A request without a waiter that could not be given up because the handler was writing: its number, and 1. The next
    /// request frees the buffer.
    left: AtomicU64,
    copy: UnsafeCell<Copy>,
}

struct Copy {
    ip: u64,
    sp: u64,
    bp: u64,
    lr: Option<u64>,
    len: usize,
    bytes: [MaybeUninit<u8>; MOST],
}

// SAFETY: `copy` is accessed only by the side that has it, by the rules of `HandOver`.
unsafe impl Sync for Buffer {}

struct Buffers {
    /// The process that they are for.
    process: u32,
    all: [Buffer; BUFFERS],
}

/// Null until the first request; then leaked, and replaced only in a child process.
static BUFFERS_OF_THIS_PROCESS: AtomicPtr<Buffers> = AtomicPtr::new(std::ptr::null_mut());
/// The signal that the handler is installed for; 0 when none is.
static SIGNAL: AtomicI32 = AtomicI32::new(0);

/// One thread was asked.
#[derive(Debug)]
pub(crate) struct Ask {
    buffer: &'static Buffer,
    request: Request,
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Buffer")
            .field("hand_over", &self.hand_over)
            .finish_non_exhaustive()
    }
}

fn buffers() -> Option<&'static Buffers> {
    // Acquire: pairs with the Release in `buffers_of`.
    // SAFETY: null, or a leaked box.
    unsafe { BUFFERS_OF_THIS_PROCESS.load(Ordering::Acquire).as_ref() }
}

/// The buffers, made on first use in a process.
fn buffers_of(process: u32) -> &'static Buffers {
    static MAKING: Mutex<()> = Mutex::new(());
    let _making = lock(&MAKING);
    if let Some(buffers) = buffers().filter(|buffers| buffers.process == process) {
        return buffers;
    }
    let mut new = Box::<Buffers>::new_uninit();
    // SAFETY: every field but the copies is written, and in those any bytes are good; `Box` is aligned.
    let new: &'static Buffers = unsafe {
        let to = new.as_mut_ptr();
        (&raw mut (*to).process).write(process);
        for index in 0..BUFFERS {
            let buffer = (&raw mut (*to).all).cast::<Buffer>().add(index);
            (&raw mut (*buffer).hand_over).write(HandOver::new());
            (&raw mut (*buffer).tid).write(AtomicU32::new(0));
            (&raw mut (*buffer).left).write(AtomicU64::new(0));
            let copy = UnsafeCell::raw_get(&raw const (*buffer).copy);
            (&raw mut (*copy).ip).write(0);
            (&raw mut (*copy).sp).write(0);
            (&raw mut (*copy).bp).write(0);
            (&raw mut (*copy).lr).write(None);
            (&raw mut (*copy).len).write(0);
        }
        Box::leak(new.assume_init())
    };
    // Release: pairs with the Acquire in `buffers`, which the handler calls.
    BUFFERS_OF_THIS_PROCESS.store(std::ptr::from_ref(new).cast_mut(), Ordering::Release);
    new
}

/// The signal that is ours at this moment, installed if it is not.
fn signal() -> Result<i32, NoStack> {
    // Relaxed, both: the number alone is of interest, and the kernel has the handler.
    let known = SIGNAL.load(Ordering::Relaxed);
    if known != 0 && is_ours(known) {
        return Ok(known);
    }
    static INSTALLING: Mutex<()> = Mutex::new(());
    let _installing = lock(&INSTALLING);
    let known = SIGNAL.load(Ordering::Relaxed);
    if known != 0 && is_ours(known) {
        return Ok(known);
    }
    let free = (libc::SIGRTMIN()..=libc::SIGRTMAX())
        .rev()
        .find(|&signal| install(signal));
    SIGNAL.store(free.unwrap_or(0), Ordering::Relaxed);
    free.ok_or(NoStack::NoSignal)
}

fn action_of(signal: i32) -> Option<libc::sigaction> {
    let mut action = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: only asks; writes the action where it says that it did.
    unsafe {
        (libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) == 0)
            .then(|| action.assume_init())
    }
}

fn handler_address() -> usize {
    let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) = on_signal;
    handler as usize
}

fn is_ours(signal: i32) -> bool {
    action_of(signal).is_some_and(|action| action.sa_sigaction == handler_address())
}

/// Installs the handler, if the program has none for this signal.
fn install(signal: i32) -> bool {
    if action_of(signal).is_none_or(|action| action.sa_sigaction != libc::SIG_DFL) {
        return false;
    }
    // SAFETY: all-zero is a valid `sigaction`; the handler below is async-signal-safe.
    unsafe {
        let mut ours: libc::sigaction = std::mem::zeroed();
        ours.sa_sigaction = handler_address();
        // On the alternate stack, where the thread has one: it may be at the end of its own.
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
        libc::sigfillset(&raw mut ours.sa_mask);
        let mut before = MaybeUninit::<libc::sigaction>::uninit();
        if libc::sigaction(signal, &raw const ours, before.as_mut_ptr()) != 0 {
            return false;
        }
        let before = before.assume_init();
        if before.sa_sigaction != libc::SIG_DFL {
            // Another part of the program was faster: the signal is its own.
            libc::sigaction(signal, &raw const before, std::ptr::null_mut());
            return false;
        }
    }
    true
}

/// Whether a thread has blocked a signal, so that it would stay pending. `None` when the thread is gone.
fn is_masked(tid: u32, signal: i32) -> Option<bool> {
    let status = std::fs::read(format!("/proc/self/task/{tid}/status")).ok()?;
    let mask = str::from_utf8(status_field(&status, "SigBlk")?).ok()?;
    let mask = u64::from_str_radix(mask, 16).ok()?;
    Some(mask >> (signal - 1) & 1 == 1)
}

/// Asks a thread for its stack.
pub(crate) fn ask(tid: u32) -> Result<Ask, NoStack> {
    let signal = signal()?;
    if is_masked(tid, signal).ok_or(NoStack::Over)? {
        return Err(NoStack::SignalsBlocked);
    }
    let process = std::process::id();
    let (index, buffer, request) = buffers_of(process)
        .all
        .iter()
        .enumerate()
        .find_map(|(index, buffer)| {
            buffer.free_what_is_left();
            Some((index, buffer, buffer.hand_over.claim()?))
        })
        .ok_or(NoStack::TooMany)?;
    // Relaxed: `publish` releases it.
    buffer.tid.store(tid, Ordering::Relaxed);
    buffer.hand_over.publish(request);
    let ask = Ask { buffer, request };
    if send(
        process,
        tid,
        signal,
        request.number() << INDEX_BITS | index as u64,
    ) {
        return Ok(ask);
    }
    ask.give_up();
    Err(NoStack::Over)
}

impl Buffer {
    /// Frees the buffer of a request without a waiter, once it has been written.
    fn free_what_is_left(&self) {
        // Acquire: pairs with the Release in `Ask`'s drop; the request was its until then.
        let left = self.left.load(Ordering::Acquire);
        if left == 0 {
            return;
        }
        let request = Request::from_number(left - 1);
        let is_ours = || {
            // Acquire, for the same reason. Relaxed otherwise: another one frees it.
            self.left
                .compare_exchange(left, 0, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
        };
        if self.hand_over.progress(request) == Progress::Written && is_ours() {
            self.hand_over.free(request);
        }
    }
}

/// Sends a signal with a value to one thread of this process.
fn send(process: u32, tid: u32, signal: i32, value: u64) -> bool {
    /// The part of the kernel's `siginfo_t` that goes with a queued signal.
    #[repr(C)]
    struct Queued {
        signo: i32,
        errno: i32,
        code: i32,
        pad: i32,
        pid: u32,
        uid: u32,
        value: u64,
        rest: [u64; 12],
    }
    const { assert!(size_of::<Queued>() == size_of::<libc::siginfo_t>()) };
    let info = Queued {
        signo: signal,
        errno: 0,
        code: libc::SI_QUEUE,
        pad: 0,
        pid: process,
        // SAFETY: getuid has no preconditions.
        uid: unsafe { libc::getuid() },
        value,
        rest: [0; 12],
    };
    // SAFETY: takes numbers and a readable `siginfo_t`.
    unsafe {
        libc::syscall(
            libc::SYS_rt_tgsigqueueinfo,
            process as libc::pid_t,
            tid as libc::pid_t,
            signal,
            &raw const info,
        ) == 0
    }
}

impl Ask {
    /// The thread's answer; `None` while there is none.
    pub(crate) fn answer(&self) -> Option<Result<Raw, NoStack>> {
        match self.buffer.hand_over.progress(self.request) {
            Progress::Asked | Progress::Writing => None,
            Progress::Over => Some(Err(NoStack::Over)),
            Progress::Written => {
                // SAFETY: written, so the buffer is the asker's until `free`; `len` bytes were written.
                let raw = unsafe {
                    let copy = &*self.buffer.copy.get();
                    let bytes = std::slice::from_raw_parts(copy.bytes.as_ptr().cast(), copy.len);
                    Raw {
                        ip: copy.ip,
                        sp: copy.sp,
                        bp: Some(copy.bp),
                        lr: copy.lr,
                        bytes: Box::from(bytes),
                    }
                };
                self.buffer.hand_over.free(self.request);
                Some(if raw.bytes.is_empty() {
                    Err(NoStack::Refused)
                } else {
                    Ok(raw)
                })
            }
        }
    }

    /// The answer is not wanted any more. Whether that is the end of it: not while the handler writes.
    pub(crate) fn give_up(&self) -> bool {
        if self.buffer.hand_over.give_up(self.request) {
            return true;
        }
        self.answer().is_some()
    }
}

impl Drop for Ask {
    fn drop(&mut self) {
        // It does not wait for a handler that is writing: its thread may be off the CPU just then.
        let is_over = self.buffer.hand_over.progress(self.request) == Progress::Over;
        if !is_over && !self.give_up() {
            // Release: pairs with the Acquire in `free_what_is_left`.
            self.buffer
                .left
                .store(self.request.number() + 1, Ordering::Release);
        }
    }
}

/// The signal handler. It runs in the thread that was asked, or in any thread at any time if another process sends the signal.
extern "C" fn on_signal(_signal: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a `siginfo_t` and a `ucontext_t` with SA_SIGINFO; `errno` is the thread's
    // own. The copy is written by the rules of `HandOver`.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        if (*info).si_code == libc::SI_QUEUE && (*info).si_pid() == libc::getpid() {
            let value = (*info).si_value().sival_ptr as u64;
            answer(value, context.cast());
        }
        *errno = before;
    }
}

/// # Safety
///
/// `context` is that of a signal handler.
unsafe fn answer(value: u64, context: *const libc::ucontext_t) {
    let Some(buffers) = buffers() else {
        return;
    };
    let buffer = &buffers.all[value as usize % BUFFERS];
    let request = Request::from_number(value >> INDEX_BITS);
    // Relaxed: turns away signals of other senders; `begin_write` decides.
    if buffer.tid.load(Ordering::Relaxed) != own_tid() || !buffer.hand_over.begin_write(request) {
        return;
    }
    // SAFETY: the caller's context; the buffer is this handler's until `end_write`.
    unsafe {
        let registers = machine::interrupted(&*context);
        let copy = &mut *buffer.copy.get();
        copy.ip = registers.ip;
        copy.sp = registers.sp;
        copy.bp = registers.bp;
        copy.lr = registers.lr;
        copy.len = read_own(copy.sp, &mut copy.bytes);
    }
    buffer.hand_over.end_write(request);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::{Duration, Instant};

    /// Asks a thread that computes until it is told to stop, and says what came of it.
    fn ask_a_busy_thread() -> (Result<Raw, NoStack>, Duration) {
        let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
        let (tx, rx) = mpsc::channel();
        let inside = stop.clone();
        let thread = std::thread::spawn(move || {
            tx.send(morpheus_system::threads::own_tid()).unwrap();
            while !inside.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let (begun, mut found) = (Instant::now(), Err(NoStack::NoAnswer));
        let ask = ask(rx.recv().unwrap()).unwrap();
        while begun.elapsed() < Duration::from_secs(20) {
            if let Some(answer) = ask.answer() {
                found = answer;
                break;
            }
            std::thread::yield_now();
        }
        let took = begun.elapsed();
        stop.store(true, Ordering::Relaxed);
        thread.join().unwrap();
        (found, took)
    }

    #[test]
    fn a_busy_thread_answers() {
        for _ in 0..20 {
            let (raw, _) = ask_a_busy_thread();
            let raw = raw.unwrap();
            assert!(raw.bp.is_some() && raw.bytes.len() > 256 && raw.ip != 0);
        }
    }

    #[test]
    fn a_thread_whose_name_was_cut_within_a_character_is_asked() {
        std::thread::spawn(|| {
            // SAFETY: names this thread only; the string is nul-terminated.
            unsafe { libc::prctl(libc::PR_SET_NAME, c"fourteen bytes\u{e9}".as_ptr()) };
            let own = morpheus_system::threads::own_tid();
            assert_eq!(is_masked(own, libc::SIGUSR1), Some(false));
            assert_eq!(
                ask(own).unwrap().answer().map(|found| found.is_ok()),
                Some(true)
            );
        })
        .join()
        .unwrap();
    }

    #[test]
    fn a_thread_that_is_gone_is_not_asked() {
        let tid = std::thread::spawn(morpheus_system::threads::own_tid)
            .join()
            .unwrap();
        while std::path::Path::new(&format!("/proc/self/task/{tid}")).exists() {
            std::thread::yield_now();
        }
        assert_eq!(ask(tid).unwrap_err(), NoStack::Over);
    }

    #[test]
    fn a_request_that_is_given_up_frees_its_buffer() {
        // More often than there are buffers.
        for _ in 0..4 * BUFFERS {
            drop(ask(morpheus_system::threads::own_tid()).unwrap());
        }
    }
}
