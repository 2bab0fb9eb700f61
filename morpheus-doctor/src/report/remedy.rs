//! The remedy for a finding, by what its threads did, what they waited for, and the functions on its stack.
//!
//! `RULES` is a table: the first rule that fits gives the advice. A rule looks at the functions between the innermost one and the
//! culprit, which are what the culprit called, and at the crate names in them.

use crate::model::{Doing, Frame, Owner, Stack, Wait};

/// Kinds of [`Wait`], without their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum On {
    Sleep,
    Lock,
    File,
    Socket,
    Pipe,
    Terminal,
    Child,
    Memory,
}

/// When a rule fits: all conditions that are not empty must hold.
struct Rule {
    /// The state of the threads.
    doing: Option<Doing>,
    /// One of these is what they waited for.
    waits: &'static [On],
    /// One of these is in a function's name.
    functions: &'static [&'static str],
    /// There is a function of C's between.
    c_library: bool,
    /// The advice.
    remedy: &'static str,
}

const ANY: Rule = Rule {
    doing: None,
    waits: &[],
    functions: &[],
    c_library: false,
    remedy: "",
};
const BLOCKED: Rule = Rule {
    doing: Some(Doing::Blocked),
    ..ANY
};
const COMPUTING: Rule = Rule {
    doing: Some(Doing::Computing),
    ..ANY
};

const MORPHEUS: &str = "Or run on Morpheus: with `#[morpheus_runtime::main]`, other workers serve what waits while a poll is long, and \
                        `morpheus_runtime::checkpoint().await` in the loop yields when asked to.";

/// The first that fits is the advice; so the special ones stand before the general ones.
const RULES: &[Rule] = &[
    Rule {
        functions: &[
            "getaddrinfo",
            "gethostbyname",
            "ToSocketAddrs",
            "to_socket_addrs",
            "resolve_socket_addr",
            "LookupHost",
        ],
        remedy: "Look names up with `tokio::net::lookup_host(…).await`, or pass the name to tokio's `connect`, which does the same: the \
                 lookup of the C library blocks until the name server answers.",
        ..ANY
    },
    Rule {
        waits: &[On::Child],
        remedy: "Use `tokio::process::Command`: its `output`, `status` and `wait` are async. The one of `std::process` blocks until the \
                 child process ends.",
        ..BLOCKED
    },
    Rule {
        functions: &[
            "std::process::",
            "std::sys::process",
            "process_common",
            "posix_spawn",
            "process::Command",
        ],
        remedy: "Use `tokio::process::Command`: its `output`, `status` and `wait` are async, and its `spawn` needs no pipe to be read in \
                 between.",
        ..BLOCKED
    },
    Rule {
        functions: &["sqlite3", "rusqlite", "libsqlite"],
        remedy: "Give SQLite a thread of its own that takes queries from a channel and answers through a `oneshot` (`tokio-rusqlite` and \
                 `sqlx` work like this), or call it in `tokio::task::spawn_blocking`. Its calls compute, read files and wait for locks.",
        ..ANY
    },
    Rule {
        functions: &["rocksdb", "lmdb", "mdb_", "duckdb", "sled::", "redb::"],
        remedy: "Call the database in `tokio::task::spawn_blocking`, or give it a thread of its own that takes queries from a channel: an \
                 embedded database reads files and takes locks in its caller's thread.",
        ..ANY
    },
    Rule {
        functions: &[
            "diesel::",
            "postgres::client",
            "mysql::conn",
            "PQexec",
            "PQgetResult",
            "mysql_real_query",
        ],
        remedy: "Use an async client (`tokio-postgres`, `sqlx`, `diesel-async`), or call this one in `tokio::task::spawn_blocking`: it \
                 waits for the server in its caller's thread.",
        ..BLOCKED
    },
    Rule {
        waits: &[On::Pipe, On::Terminal, On::Socket, On::File, On::Lock],
        functions: &[
            "std::io::stdio",
            "io::stdio::",
            "Stdout",
            "Stderr",
            "tracing_subscriber::fmt",
            "env_logger",
            "fern::",
            "slog_term",
        ],
        remedy: "Take the output off the workers: for logs a non-blocking writer such as `tracing_appender::non_blocking` (lossy, so that it \
                 never waits), otherwise `tokio::io::stdout()`. `println!` blocks while the reader at the other end is slow and the \
                 pipe or terminal is full, and all threads that print wait for the lock meanwhile.",
        ..BLOCKED
    },
    Rule {
        waits: &[On::Lock],
        functions: &["block_on"],
        remedy: "Do not call `block_on` in a task: make the function async and `.await` the future, or run the whole call in \
                 `tokio::task::spawn_blocking`. The worker sleeps until the future is ready, which may need that very worker.",
        ..BLOCKED
    },
    Rule {
        waits: &[On::Lock, On::Sleep],
        functions: &[
            "mpsc::",
            "mpmc::",
            "crossbeam_channel",
            "flume::",
            "kanal::",
        ],
        remedy: "Use a channel that can be awaited, such as `tokio::sync::mpsc`: `recv` of a channel between threads blocks until there is \
                 a message. At the edge to threads that are not tokio's, `blocking_send` and `blocking_recv` are for these threads.",
        ..BLOCKED
    },
    Rule {
        waits: &[On::Lock],
        functions: &[
            "thread::JoinHandle",
            "JoinInner",
            "pthread_join",
            "thread::scope",
            "scoped::",
        ],
        remedy: "Do not join a thread in a task: start the work with `tokio::task::spawn_blocking(…)` and `.await` its handle, or let the \
                 thread answer through `tokio::sync::oneshot`.",
        ..BLOCKED
    },
    Rule {
        waits: &[On::Lock],
        functions: &["rayon"],
        remedy: "Do not wait for rayon in a task: `rayon::spawn` the work and let it answer through `tokio::sync::oneshot`, or enter the \
                 pool in `tokio::task::spawn_blocking`.",
        ..BLOCKED
    },
    Rule {
        waits: &[On::Lock],
        functions: &[
            "Condvar",
            "condvar",
            "pthread_cond",
            "Barrier",
            "OnceLock",
            "sync::once",
            "LazyLock",
        ],
        remedy: "Wait for other threads with something that can be awaited: `tokio::sync::Notify`, `watch`, `Barrier` or `OnceCell`. A \
                 condition variable, a barrier or a lazily made value of `std` blocks the worker until another thread is done.",
        ..BLOCKED
    },
    Rule {
        waits: &[On::Sleep],
        remedy: "Use `tokio::time::sleep(…).await`: `std::thread::sleep` keeps the worker from all other tasks while it sleeps.",
        ..BLOCKED
    },
    Rule {
        functions: &["thread::sleep", "sleep_ms", "usleep", "nanosleep"],
        remedy: "Use `tokio::time::sleep(…).await`: `std::thread::sleep` keeps the worker from all other tasks while it sleeps.",
        ..BLOCKED
    },
    Rule {
        waits: &[On::Lock],
        remedy: "Shorten the critical section: move computing and I/O out of the place that holds this lock, so that waiting for it is \
                 short. Then `std::sync::Mutex` is right. `tokio::sync::Mutex` only if the lock must be held across an `.await`.",
        ..BLOCKED
    },
    Rule {
        waits: &[On::Socket],
        functions: &[
            "reqwest::blocking",
            "ureq::",
            "minreq::",
            "attohttpc",
            "curl",
        ],
        remedy: "Use an async HTTP client (`reqwest::Client`, `hyper`), or call this one in `tokio::task::spawn_blocking`: a blocking \
                 client waits for the answer in its caller's thread.",
        ..BLOCKED
    },
    Rule {
        waits: &[On::Socket],
        remedy: "Use `tokio::net` or the async client of the protocol. Where the library knows blocking sockets only, call it in \
                 `tokio::task::spawn_blocking`.",
        ..BLOCKED
    },
    Rule {
        waits: &[On::File],
        functions: &["sync_all", "sync_data", "fsync", "fdatasync", "msync"],
        remedy: "Call it in `tokio::task::spawn_blocking`, or use `sync_all` of `tokio::fs::File`: it waits until the device has written \
                 everything. One thread that syncs for many requests at once is better still.",
        ..BLOCKED
    },
    Rule {
        waits: &[On::File],
        remedy: "Use `tokio::fs` for whole files. Where a function reads or writes many small pieces, call all of it in \
                 `tokio::task::spawn_blocking`, so that it changes threads once.",
        ..BLOCKED
    },
    Rule {
        waits: &[On::Memory],
        remedy: "The poll touched memory that had to be read from disk: a mapped file, or memory that was swapped out. Read mapped files in \
                 `tokio::task::spawn_blocking`, or ask for the pages before they are needed (`madvise` with `WILLNEED`, `MAP_POPULATE`). \
                 If the machine swaps, give the process more memory.",
        ..BLOCKED
    },
    Rule {
        waits: &[On::Terminal],
        remedy: "Use `tokio::io::stdin()`, `stdout()` or `stderr()`, or a thread of its own for the terminal: it blocks while the person or \
                 the program at the other end is slow.",
        ..BLOCKED
    },
    Rule {
        waits: &[On::Pipe],
        remedy: "Use `tokio::net::unix::pipe`, or a thread of its own for the pipe: a full pipe blocks its writer, an empty one its reader, \
                 until the other end goes on.",
        ..BLOCKED
    },
    Rule {
        c_library: true,
        remedy: "Give the C library a thread of its own that takes requests from a channel, or call it in \
                 `tokio::task::spawn_blocking`: it waits in its caller's thread.",
        ..BLOCKED
    },
    Rule {
        remedy: "Call it in `tokio::task::spawn_blocking`, or use an async version of it: the worker can serve no other task while it sleeps \
                 in the kernel.",
        ..BLOCKED
    },
    Rule {
        functions: &[
            "argon2",
            "bcrypt",
            "scrypt",
            "pbkdf2",
            "balloon_hash",
            "blowfish",
        ],
        remedy: "Hash passwords in `tokio::task::spawn_blocking`, with a `tokio::sync::Semaphore` of as many permits as CPUs may be busy with \
                 it: such a hash is meant to compute for long.",
        ..COMPUTING
    },
    Rule {
        functions: &[
            "serde",
            "simd_json",
            "sonic_rs",
            "ciborium",
            "bincode",
            "prost::",
            "rmp_serde",
            "quick_xml",
            "toml::",
            "csv::",
        ],
        remedy: "Parse and print large documents in `tokio::task::spawn_blocking`, and limit the size of those that are handled in place. A \
                 document of many parts can be read part by part, with `tokio::task::yield_now().await` between them.",
        ..COMPUTING
    },
    Rule {
        functions: &["regex", "aho_corasick", "pcre", "onig", "fancy_regex"],
        remedy: "Limit the length of the text that is searched, compile the expression once (`std::sync::LazyLock`), and search long texts in \
                 `tokio::task::spawn_blocking`.",
        ..COMPUTING
    },
    Rule {
        functions: &[
            "flate2", "miniz", "zstd", "brotli", "lz4", "snap::", "deflate", "inflate", "bzip2",
            "xz2", "lzma",
        ],
        remedy: "Compress in `tokio::task::spawn_blocking`, or in pieces of some 64 KiB with `tokio::task::yield_now().await` between them \
                 (`async-compression` over a reader does so).",
        ..COMPUTING
    },
    Rule {
        functions: &["spin_loop", "spin::", "Backoff::spin", "sched_yield"],
        remedy: "Do not spin in a task: wait with `tokio::sync::Notify`, a lock or a channel of `tokio::sync`. The task that \
                 ends the wait may need this very worker.",
        ..COMPUTING
    },
    Rule {
        functions: &["thread::sleep"],
        remedy: "Use `tokio::time::sleep(…).await` in place of `std::thread::sleep`.",
        ..COMPUTING
    },
    Rule {
        c_library: true,
        remedy: "Call the C library in `tokio::task::spawn_blocking`, or give it a thread of its own that takes requests from a channel: it \
                 cannot yield. {morpheus}",
        ..COMPUTING
    },
    Rule {
        remedy: "Move the computation to `tokio::task::spawn_blocking` (or rayon, with a `oneshot` for the result). If it is a loop of the \
                 task, let the loop yield: `tokio::task::yield_now().await` after each piece of some 100 µs, or \
                 `tokio::task::consume_budget().await` in each turn. {morpheus}",
        ..COMPUTING
    },
];

/// System calls that tell what a thread waits for, where nothing else does.
const CALLS: &[(On, &[&str])] = &[
    (On::Sleep, &["nanosleep", "clock_nanosleep"]),
    (On::Lock, &["futex", "futex_wait", "futex_waitv"]),
    (
        On::File,
        &[
            "open",
            "openat",
            "openat2",
            "stat",
            "lstat",
            "statx",
            "newfstatat",
            "getdents64",
            "fsync",
            "fdatasync",
            "sync_file_range",
            "syncfs",
            "rename",
            "renameat",
            "renameat2",
            "unlink",
            "unlinkat",
            "mkdir",
            "mkdirat",
            "rmdir",
            "fallocate",
            "ftruncate",
            "truncate",
            "flock",
            "pread64",
            "preadv",
            "preadv2",
            "pwrite64",
            "pwritev",
            "pwritev2",
            "copy_file_range",
        ],
    ),
    (
        On::Socket,
        &[
            "accept", "accept4", "connect", "recvfrom", "recvmsg", "recvmmsg", "sendto", "sendmsg",
            "sendmmsg",
        ],
    ),
    (On::Child, &["wait4", "waitid", "waitpid"]),
    (
        On::Memory,
        &["page_fault", "page fault", "madvise", "mlock"],
    ),
];

/// Modules that belong to every program: a frame in them is no library of its own.
const LIBC: &[&str] = &[
    "libc.so",
    "libc-",
    "ld-linux",
    "ld-musl",
    "libpthread",
    "libm.so",
    "libgcc",
    "libstdc++",
    "vdso",
    "linux-vdso",
];

/// Advice for a finding: one to three sentences.
#[must_use]
pub fn remedy(
    doing: Doing,
    waits_for: &[Wait],
    system_call: Option<&str>,
    stack: &Stack,
) -> String {
    let seen = Seen {
        doing,
        waits: waits(doing, waits_for, system_call),
        called: called(stack),
    };
    // The last rule of each kind fits always.
    let rule = RULES.iter().find(|rule| seen.fits(rule));
    rule.map_or_else(String::new, |rule| {
        rule.remedy.replace("{morpheus}", MORPHEUS)
    })
}

struct Seen<'a> {
    doing: Doing,
    waits: Vec<On>,
    called: &'a [Frame],
}

impl Seen<'_> {
    fn fits(&self, rule: &Rule) -> bool {
        let contains = |frame: &Frame| {
            rule.functions
                .iter()
                .any(|name| has_name(&frame.function, name))
        };
        rule.doing.is_none_or(|doing| doing == self.doing)
            && (rule.waits.is_empty() || self.waits.iter().any(|on| rule.waits.contains(on)))
            && (rule.functions.is_empty() || self.called.iter().any(contains))
            && (!rule.c_library || self.called.iter().any(is_of_a_library))
    }
}

/// Whether a function's name has another one in it, which begins there: `spin::` is not in `my_spin::run`.
fn has_name(function: &str, name: &str) -> bool {
    function.match_indices(name).any(|(at, _)| {
        let before = function[..at].chars().next_back();
        !before.is_some_and(|before| before.is_alphanumeric() || before == '_')
    })
}

/// Of C's, and not libc's: every program is in libc when it waits.
fn is_of_a_library(frame: &Frame) -> bool {
    frame.owner == Owner::C
        && !LIBC.iter().any(|name| frame.module.starts_with(name))
        && !is_libc_function(&frame.function)
}

/// Of a program that is linked statically, libc's functions are in the program itself.
fn is_libc_function(function: &str) -> bool {
    const STARTS: &[&str] = &[
        "__",
        "_start",
        "start_thread",
        "clone",
        "syscall",
        "mem",
        "str",
        "pthread_",
        "malloc",
        "free",
        "realloc",
        "_int_",
    ];
    STARTS.iter().any(|start| function.starts_with(start))
}

/// From the innermost function to the culprit.
fn called(stack: &Stack) -> &[Frame] {
    match stack.culprit {
        Some(culprit) if culprit < stack.frames.len() => &stack.frames[..=culprit],
        _ => &stack.frames,
    }
}

/// The most frequent kind of wait; where it is not known, the kind that the system call implies.
fn waits(doing: Doing, waits_for: &[Wait], system_call: Option<&str>) -> Vec<On> {
    if doing == Doing::Computing {
        return Vec::new();
    }
    let known = waits_for.iter().find_map(|wait| match wait {
        Wait::Sleep => Some(On::Sleep),
        Wait::Lock => Some(On::Lock),
        Wait::File { .. } => Some(On::File),
        Wait::Socket { .. } => Some(On::Socket),
        Wait::Pipe { .. } => Some(On::Pipe),
        Wait::Terminal { .. } => Some(On::Terminal),
        Wait::Child => Some(On::Child),
        Wait::Memory => Some(On::Memory),
        Wait::Other => None,
    });
    let of_call = || {
        let call = system_call?;
        let row = CALLS.iter().find(|(_, calls)| calls.contains(&call));
        row.map(|(on, _)| *on)
    };
    known.or_else(of_call).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(function: &str, owner: Owner) -> Frame {
        Frame {
            function: function.into(),
            file: None,
            line: None,
            module: if owner == Owner::C {
                "libfoo.so.1"
            } else {
                "app"
            }
            .into(),
            address: 0x1000,
            inlined: false,
            owner,
        }
    }

    /// The functions, innermost first; the last one is the culprit. Behind it is the executor.
    fn stack(functions: &[&str]) -> Stack {
        let mut frames: Vec<Frame> = functions
            .iter()
            .map(|name| frame(name, Owner::Plumbing))
            .collect();
        frames.push(frame("app::handler::{{closure}}", Owner::Application));
        let culprit = Some(frames.len() - 1);
        frames.push(frame(
            "tokio::runtime::context::blocking::block_on",
            Owner::Plumbing,
        ));
        Stack { frames, culprit }
    }

    fn file() -> Wait {
        Wait::File {
            path: Some("/var/x".into()),
        }
    }

    #[test]
    fn each_fault_has_its_remedy() {
        use Doing::{Blocked, Computing};
        let socket = || Wait::Socket { name: None };
        let pipe = || Wait::Pipe {
            name: Some("pipe:[7]".into()),
        };
        type Case<'a> = (Doing, Vec<Wait>, Option<&'a str>, &'a [&'a str], &'a str);
        let cases: &[Case] = &[
            (
                Blocked,
                vec![Wait::Sleep],
                Some("clock_nanosleep"),
                &["std::thread::sleep"],
                "tokio::time::sleep",
            ),
            (
                Blocked,
                vec![],
                Some("clock_nanosleep"),
                &[],
                "tokio::time::sleep",
            ),
            (
                Blocked,
                vec![Wait::Other],
                Some("nanosleep"),
                &[],
                "tokio::time::sleep",
            ),
            (
                Blocked,
                vec![file()],
                Some("read"),
                &["std::fs::read::inner"],
                "tokio::fs",
            ),
            (
                Blocked,
                vec![file()],
                Some("fsync"),
                &["std::fs::File::sync_all"],
                "sync_all",
            ),
            (Blocked, vec![], Some("openat"), &[], "tokio::fs"),
            (
                Blocked,
                vec![socket()],
                Some("poll"),
                &["getaddrinfo"],
                "tokio::net::lookup_host",
            ),
            (
                Computing,
                vec![],
                None,
                &["<str as std::net::ToSocketAddrs>::to_socket_addrs"],
                "tokio::net::lookup_host",
            ),
            (
                Blocked,
                vec![Wait::Lock],
                Some("futex"),
                &["std::sys::sync::mutex::futex::Mutex::lock_contended"],
                "critical section",
            ),
            (
                Blocked,
                vec![Wait::Lock],
                Some("futex"),
                &["std::sync::mpsc::Receiver<T>::recv"],
                "tokio::sync::mpsc",
            ),
            (
                Blocked,
                vec![Wait::Lock],
                Some("futex"),
                &["std::thread::JoinHandle<T>::join"],
                "spawn_blocking",
            ),
            (
                Blocked,
                vec![Wait::Lock],
                Some("futex"),
                &["futures_executor::local_pool::block_on"],
                "`block_on`",
            ),
            (
                Blocked,
                vec![Wait::Lock],
                Some("futex"),
                &["std::sync::Condvar::wait"],
                "Notify",
            ),
            (
                Blocked,
                vec![Wait::Lock],
                Some("futex"),
                &["rayon_core::registry::Registry::in_worker_cold"],
                "rayon",
            ),
            (
                Blocked,
                vec![Wait::Lock],
                Some("futex"),
                &["std::io::stdio::Stdout::lock"],
                "tracing_appender",
            ),
            (
                Blocked,
                vec![pipe()],
                Some("write"),
                &["write", "std::io::stdio::_print"],
                "tracing_appender",
            ),
            (Blocked, vec![pipe()], Some("write"), &[], "unix::pipe"),
            (
                Blocked,
                vec![Wait::Terminal { path: None }],
                Some("read"),
                &[],
                "tokio::io::stdin",
            ),
            (
                Blocked,
                vec![socket()],
                Some("recvfrom"),
                &["ureq::stream::Stream::read"],
                "reqwest::Client",
            ),
            (
                Blocked,
                vec![socket()],
                Some("recvfrom"),
                &["std::net::TcpStream::read"],
                "tokio::net",
            ),
            (
                Blocked,
                vec![Wait::Child],
                Some("wait4"),
                &["std::process::Child::wait"],
                "tokio::process",
            ),
            (
                Blocked,
                vec![pipe()],
                Some("poll"),
                &["std::process::Command::output"],
                "tokio::process",
            ),
            (
                Blocked,
                vec![Wait::Memory],
                None,
                &["core::slice::memchr"],
                "WILLNEED",
            ),
            (
                Blocked,
                vec![file()],
                Some("pread64"),
                &["sqlite3_step", "rusqlite::statement::Statement::step"],
                "SQLite",
            ),
            (Computing, vec![], None, &["sqlite3VdbeExec"], "SQLite"),
            (
                Computing,
                vec![],
                None,
                &["argon2::Argon2::fill_blocks"],
                "Semaphore",
            ),
            (
                Computing,
                vec![],
                None,
                &["serde_json::de::Deserializer<R>::parse_str"],
                "documents",
            ),
            (
                Computing,
                vec![],
                None,
                &["regex_automata::dfa::search::find_fwd"],
                "LazyLock",
            ),
            (
                Computing,
                vec![],
                None,
                &["core::hint::spin_loop"],
                "Do not spin",
            ),
            (
                Computing,
                vec![],
                None,
                &["miniz_oxide::deflate::core::compress"],
                "Compress",
            ),
            (Computing, vec![], None, &[], "consume_budget"),
            (
                Blocked,
                vec![Wait::Other],
                Some("ioctl"),
                &[],
                "async version",
            ),
            (Blocked, vec![], None, &[], "async version"),
        ];
        for (doing, waits, call, functions, part) in cases {
            let text = remedy(*doing, waits, *call, &stack(functions));
            assert!(
                text.contains(part),
                "{part:?} is not in the remedy for {functions:?}, {waits:?}, {call:?}: {text}"
            );
        }
    }

    #[test]
    fn a_c_library_gets_a_thread() {
        let mut stack = stack(&["x", "y"]);
        stack.frames[0] = frame("foo_transform", Owner::C);
        for doing in [Doing::Computing, Doing::Blocked] {
            assert!(remedy(doing, &[], None, &stack).contains("the C library"));
        }
        // libc is on each stack that waits.
        stack.frames[0].module = "libc.so.6".into();
        assert!(!remedy(Doing::Blocked, &[], None, &stack).contains("C library"));
        stack.frames[0] = frame("__memmove_avx_unaligned", Owner::C);
        assert!(!remedy(Doing::Computing, &[], None, &stack).contains("C library"));
    }

    #[test]
    fn functions_beyond_the_culprit_do_not_count() {
        // The executor's own `block_on` is on the stack of each task.
        let text = remedy(Doing::Blocked, &[Wait::Lock], Some("futex"), &stack(&[]));
        assert!(!text.contains("`block_on`"), "{text}");
    }

    #[test]
    fn a_remedy_is_always_there_and_complete() {
        let none = Stack::default();
        let broken = Stack {
            frames: vec![],
            culprit: Some(7),
        };
        for stack in [&none, &broken] {
            for doing in [Doing::Computing, Doing::Blocked] {
                assert!(!remedy(doing, &[], None, stack).is_empty());
            }
        }
        for rule in RULES {
            let text = rule.remedy.replace("{morpheus}", MORPHEUS);
            assert!(
                !text.contains(['{', '}']) && text.ends_with('.') && !text.contains("  "),
                "{text}"
            );
            assert_eq!(text.matches('`').count() % 2, 0, "{text}");
        }
    }

    #[test]
    fn no_rule_is_hidden_by_an_earlier_one() {
        for (later, rule) in RULES.iter().enumerate() {
            for earlier in &RULES[..later] {
                let covers = |all: &[On], of: &[On]| {
                    all.is_empty() || (!of.is_empty() && of.iter().all(|on| all.contains(on)))
                };
                let hides = earlier.functions.is_empty()
                    && !earlier.c_library
                    && earlier.doing.is_none_or(|doing| rule.doing == Some(doing))
                    && covers(earlier.waits, rule.waits);
                assert!(!hides, "{:?} is never reached", rule.remedy);
            }
        }
    }
}
