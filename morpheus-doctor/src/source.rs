//! Where long polls come from: what a source tells, and what it is told.

use std::io;

use crate::model::Method;
use crate::unwind::{Registers, StackCopy};

/// The role of a thread of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// It polls tasks of a runtime.
    Worker,
    /// It does something else.
    Other {
        /// Where it sleeps, if it does. The executor's threads for blocking calls do so between two times as a worker.
        asleep: Option<Spot>,
    },
}

/// Where a thread sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spot {
    /// Where the system call returns to.
    pub ip: u64,
    /// The stack pointer.
    pub sp: u64,
}

impl From<Registers> for Spot {
    fn from(Registers { ip, sp, .. }: Registers) -> Spot {
        Spot { ip, sp }
    }
}

/// The purpose of a sleep of the executor's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sleep {
    /// It waits for work.
    Park,
    /// It waits for work in the I/O driver.
    Driver,
    /// A spare worker of Morpheus is held, or the thread is no worker at present.
    Held,
}

/// Where a worker keeps the number of polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// The address of the word that points to the worker's core.
    pub core_at: u64,
    /// Where in the core the number is, in bytes.
    pub tick_offset: u32,
}

/// How a sleep of the executor's own is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Signature {
    /// Where the system call returns to.
    pub ip: u64,
    /// The system call.
    pub system_call: u32,
    /// An address in a function that parks,
    pub return_address: u64,
    /// and where it lies, from the stack pointer.
    pub return_offset: u32,
    /// The purpose of the sleep.
    pub sleep: Sleep,
    /// Where the worker's word with the address of its core lies, from the stack pointer, and where in the core the
    /// number of polls is.
    pub counter: Option<(u32, u32)>,
}

impl Signature {
    /// Whether two are of the same sleep, wherever the number of polls is.
    #[must_use]
    pub fn is_of_same_sleep(&self, other: &Signature) -> bool {
        let without_counter = |signature: &Signature| Signature {
            counter: None,
            ..*signature
        };
        without_counter(self) == without_counter(other)
    }
}

/// Why a stack was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// A poll has been over the threshold, and its thread runs.
    Computes,
    /// A thread has slept in a poll for longer than the threshold, and runs again.
    Woke,
    /// It is not known what the thread sleeps for.
    UnknownSleep,
    /// It is not known what the thread is.
    UnknownThread,
}

/// The system call that a thread is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SystemCall {
    /// Its number.
    pub number: u32,
    /// Its first arguments.
    pub arguments: [u64; 3],
}

/// A poll, as far as it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The thread.
    pub tid: u32,
    /// When this was so.
    pub now_ns: u64,
    /// When the poll began, at the latest. With the thread, it names the poll.
    pub began_ns: u64,
    /// CPU time since then.
    pub cpu_ns: u64,
    /// Time asleep since then.
    pub blocked_ns: u64,
    /// Time in which no worker of the runtime served it.
    pub unserved_ns: u64,
    /// The runtime, counted from 0, where it is known.
    pub runtime: Option<usize>,
    /// It is one poll for certain. Else there may have been several since the worker's last park.
    pub is_exact: bool,
    /// The thread of the process that has woken it last,
    pub waker: Option<u32>,
    /// and when.
    pub woken_ns: u64,
    /// The number of the task's label, where the program runs on Morpheus.
    pub label: Option<u32>,
}

impl Progress {
    /// Of a thread of which no more is known than that a poll begins now at the latest.
    #[must_use]
    pub fn at(tid: u32, now_ns: u64) -> Progress {
        Progress {
            tid,
            now_ns,
            began_ns: now_ns,
            cpu_ns: 0,
            blocked_ns: 0,
            unserved_ns: 0,
            runtime: None,
            is_exact: false,
            waker: None,
            woken_ns: 0,
            label: None,
        }
    }
}

/// The files and strings that the arguments of a system call may name. Each may be nonsense: the call says which it takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    /// The type of the file that the first argument is a descriptor of, as in `stat`; 0 where it is none.
    pub mode: u32,
    /// That file's name,
    pub file: String,
    /// and that of its directory.
    pub directory: String,
    /// The strings that the first two arguments point to.
    pub paths: [String; 2],
}

/// An event that a source reports.
#[derive(Clone, Debug)]
pub enum Event {
    /// A stack was copied.
    Stack {
        /// The poll that the thread is in, if it is a worker.
        progress: Progress,
        /// Why.
        reason: Reason,
        /// The stack.
        copy: StackCopy,
        /// The system call that the thread is in, or was when it slept.
        system_call: Option<SystemCall>,
        /// How long a thread that woke had slept.
        slept_ns: u64,
        /// The files and strings that its system call may name.
        named: Box<Named>,
    },
    /// A poll of which a stack was copied is over; `now_ns` is its end.
    End(Progress),
    /// The process runs another program.
    Exec,
}

/// Sees the threads of a process.
pub trait Source {
    /// How.
    fn method(&self) -> Method;
    /// Appends the events since the last call, in order.
    ///
    /// # Errors
    ///
    /// When nothing will come any more.
    fn collect(&mut self, events: &mut Vec<Event>) -> io::Result<()>;
    /// Tells how a sleep of the executor's is known. The same sleep replaces the one before.
    fn learn(&mut self, signature: Signature);
    /// Tells what a thread is, and where its number of polls is, if that is known.
    fn adopt(&mut self, tid: u32, kind: Kind, counter: Option<Counter>);
    /// Tells where a thread of Morpheus keeps the address of its slot.
    fn has_handle(&mut self, tid: u32, handle: u64);
    /// The polls that have not ended and whose threads sleep, with the stack and the system call of each.
    fn sleepers(&mut self) -> Vec<Event>;
    /// The workers, each with its runtime, counted from 0.
    fn workers(&self) -> Vec<(u32, usize)>;
    /// Events that were lost.
    fn lost(&self) -> u64;
    /// Losses of exactness and how to avoid them, a sentence or two each.
    fn notes(&self) -> Vec<String> {
        Vec::new()
    }
}

/// CLOCK_MONOTONIC, in nanoseconds.
#[must_use]
pub fn now_ns() -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is a timespec to write to. The call cannot fail: the clock exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
