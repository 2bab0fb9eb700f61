//! The result of a run of the doctor: the long polls, their stacks, and the findings that they add up to.
//!
//! All times are CLOCK_MONOTONIC in nanoseconds, all durations are nanoseconds. The JSON of a report is [`Report`] as it is.

use serde::{Deserialize, Serialize};

/// How a stack's function belongs to the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Owner {
    /// The application's own code.
    Application,
    /// A crate that the application uses for its work, from a registry or a git checkout.
    Library,
    /// The Rust library, the executor, and the adapters that stand between an executor and a handler.
    Plumbing,
    /// Code that is not Rust's: libc, or a C library.
    C,
    /// Nothing is known but the address.
    Unknown,
}

/// One function on a stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Frame {
    /// Its demangled name. Where there is none, the nearest symbol with an offset, or else module and address.
    pub function: String,
    /// The source file, where the program has line tables.
    pub file: Option<String>,
    /// The line in it.
    pub line: Option<u32>,
    /// The file that was mapped there, by its last path component.
    pub module: String,
    /// The address within that file, as `addr2line -e FILE` takes it.
    pub address: u64,
    /// The function was inlined into the next one of the stack.
    pub inlined: bool,
    /// Whose code it is.
    pub owner: Owner,
}

/// A stack, innermost function first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Stack {
    /// From the innermost function to the outermost that is known.
    pub frames: Vec<Frame>,
    /// The index of the frame that is named as the culprit.
    pub culprit: Option<usize>,
}

impl Stack {
    /// The frame that is named as the culprit.
    #[must_use]
    pub fn culprit(&self) -> Option<&Frame> {
        self.frames.get(self.culprit?)
    }
}

/// The state of a thread for most of a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Doing {
    /// It used the CPU, or was ready to.
    Computing,
    /// It slept in the kernel.
    Blocked,
}

/// The event that a blocked thread waits for, by its system call.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum Wait {
    /// A sleep.
    Sleep,
    /// A lock, a condition variable, or another thread: a futex.
    Lock,
    /// A file, a directory, or a file system.
    File {
        /// Its path, where it is known.
        path: Option<String>,
    },
    /// A socket.
    Socket {
        /// As `/proc/PID/fd` names it.
        name: Option<String>,
    },
    /// A pipe or a FIFO.
    Pipe {
        /// As `/proc/PID/fd` names it.
        name: Option<String>,
    },
    /// A terminal.
    Terminal {
        /// Its path.
        path: Option<String>,
    },
    /// A child process.
    Child,
    /// Memory that was not there: a page fault.
    Memory,
    /// Something else.
    Other,
}

/// A poll that was longer than the threshold, or still is.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LongPoll {
    /// The thread's number in the doctor's PID namespace.
    pub thread: u32,
    /// The runtime, as an index of [`Report::runtimes`].
    pub runtime: usize,
    /// When it began, at the latest.
    pub began_ns: u64,
    /// How long it took, or has taken until now.
    pub length_ns: u64,
    /// It had not ended when the run did.
    pub goes_on: bool,
    /// CPU time.
    pub cpu_ns: u64,
    /// Time asleep in the kernel.
    pub blocked_ns: u64,
    /// How long meanwhile no worker of the runtime served its queues and its driver.
    pub unserved_ns: u64,
    /// The finding that it belongs to, as an index of [`Report::findings`]. None where its stack was not had.
    pub finding: Option<usize>,
}

/// Long polls with the same culprit that did the same.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Whether the threads computed or were blocked.
    pub doing: Doing,
    /// The waits of blocked threads, most frequent first.
    pub waits_for: Vec<Wait>,
    /// The system call in which blocked threads slept most frequently.
    pub system_call: Option<String>,
    /// The label of the task, where the program runs on Morpheus and watches it.
    pub label: Option<String>,
    /// Long polls.
    pub count: u64,
    /// Half of them were shorter.
    pub p50_ns: u64,
    /// 99 of 100 of them were shorter.
    pub p99_ns: u64,
    /// The longest.
    pub longest_ns: u64,
    /// All of them together.
    pub total_ns: u64,
    /// CPU time of all of them.
    pub cpu_ns: u64,
    /// Time asleep of all of them.
    pub blocked_ns: u64,
    /// How long in all no worker of the runtime served its queues and its driver, while these polls lasted: findings are in this
    /// order, and then by `total_ns`.
    pub unserved_ns: u64,
    /// The finding whose polls held the lock that most of these waited for, as an index of [`Report::findings`]. Their `unserved_ns`
    /// counts there, and not here.
    pub held_by: Option<usize>,
    /// The stack that was seen most frequently.
    pub stack: Stack,
    /// The advice on how to remove it.
    pub remedy: String,
}

impl Finding {
    /// The culprit as one line: function and place.
    #[must_use]
    pub fn place(&self) -> String {
        let Some(frame) = self.stack.culprit().or(self.stack.frames.first()) else {
            return "unknown: no stack was had".to_owned();
        };
        match (&frame.file, frame.line) {
            (Some(file), Some(line)) => format!("{} at {file}:{line}", frame.function),
            (Some(file), None) => format!("{} at {file}", frame.function),
            _ => format!("{} ({}+{:#x})", frame.function, frame.module, frame.address),
        }
    }
}

/// A sample for the flame graph.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// The finding that it belongs to, as an index of [`Report::findings`].
    pub finding: Option<usize>,
    /// Whether the thread computed or was blocked.
    pub doing: Doing,
    /// The time that it stands for.
    pub weight_ns: u64,
    /// Function names, outermost first, without those of the executor's own loop.
    pub functions: Vec<String>,
}

/// Which scheduler of tokio a runtime has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Flavor {
    /// Several workers that steal from each other.
    MultiThread,
    /// One thread.
    CurrentThread,
    /// It was not found out: without symbols both look alike.
    Unknown,
}

/// A runtime of the process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Runtime {
    /// Its scheduler.
    pub flavor: Flavor,
    /// The threads that were seen to work for it, by number and name.
    pub workers: Vec<Thread>,
}

/// A thread of the process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// Its number in the doctor's PID namespace.
    pub tid: u32,
    /// Its name.
    pub name: String,
}

/// How polls were seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Method {
    /// BPF programs saw each switch and each long poll.
    Bpf,
    /// `/proc` was read regularly: lengths are right to the period, and short ones are missed.
    Proc,
}

/// The result of a run of the doctor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The form of this report; raised when a field changes its meaning or goes.
    pub version: u32,
    /// The process.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Its program file.
    pub program: String,
    /// How polls were seen.
    pub method: Method,
    /// Polls longer than this are long.
    pub longer_than_ns: u64,
    /// When the run began.
    pub began_ns: u64,
    /// How long it took.
    pub length_ns: u64,
    /// Why it ended, in words: the time was over, Ctrl-C, the process has ended.
    pub ended: String,
    /// The runtimes that were found.
    pub runtimes: Vec<Runtime>,
    /// The worst first.
    pub findings: Vec<Finding>,
    /// All long polls, or the first [`Report::MOST_POLLS`].
    pub polls: Vec<LongPoll>,
    /// Long polls in all, without the next.
    pub polls_in_all: u64,
    /// Long polls that were over before a stack was copied: they are in no finding.
    pub polls_without_stack: u64,
    /// CPU time that the host took from this machine's CPUs meanwhile, where this is a virtual machine: what it took from a poll may look
    /// as if that had computed. In steps of a tick, 10 ms on most systems.
    #[serde(default)]
    pub stolen_ns: u64,
    /// For the flame graph: samples with the same functions are one.
    pub samples: Vec<Sample>,
    /// Losses of exactness in the run, and how to avoid them; a sentence each.
    pub notes: Vec<String>,
}

impl Report {
    /// The form of the reports of this version.
    pub const VERSION: u32 = 1;
    /// How many long polls a report lists.
    pub const MOST_POLLS: usize = 20_000;
}
