//! The activity of a thread, read from its stack: it parks, it polls a task, or it is no worker.
//!
//! tokio's functions tell, by their paths where the symbol table has them, and by their files where they were inlined. The paths are
//! those of tokio 1.20 and later: `thread_pool` became `scheduler::multi_thread`, `basic_scheduler` became
//! `scheduler::current_thread`. Thread names tell nothing: applications choose them.
//!
//! Read from the inside, a worker's stack is
//!
//! ```text
//! …            what the poll calls                    or  the system call that parks
//! poll         tokio::runtime::task, the poll of a task   park     tokio::runtime::…::park…, the driver
//! loop         Context::run, run_task, CoreGuard::block_on
//! …            the thread's beginning
//! ```

use crate::model::{Flavor, Frame, Owner};
use crate::unwind::Position;

/// A frame of the stack and the functions that are in it.
#[derive(Clone, Debug)]
pub struct Part {
    /// Where it is.
    pub position: Position,
    /// Innermost first, those that were inlined before the one that has the frame.
    pub functions: Vec<Frame>,
}

/// Where on a stack a function is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The part.
    pub part: usize,
    /// Which of its functions: what is inlined into the executor's poll is before it in one part.
    pub function: usize,
}

impl Place {
    /// The functions that are called from there, innermost first.
    pub fn inside(self, parts: &[Part]) -> impl Iterator<Item = &Frame> {
        let part = parts.get(self.part).map(|part| &part.functions);
        let own = part
            .into_iter()
            .flat_map(move |functions| functions.iter().take(self.function));
        let inner = parts[..self.part.min(parts.len())].iter();
        inner.flat_map(|part| &part.functions).chain(own)
    }
}

/// The functions of a poll, innermost first: those that are called from `until`, without the executor's own between them and the task.
#[must_use]
pub fn frames_of_poll(parts: &[Part], until: Place) -> Vec<Frame> {
    let is_executors = |frame: &Frame| {
        let file = frame.file.as_deref().unwrap_or_default();
        let of_tokio = file
            .split_once("/tokio-")
            .is_some_and(|(_, rest)| rest.contains("/src/runtime/") || rest.contains("/src/loom/"));
        frame.inlined && (of_tokio || frame.function.starts_with("tokio::runtime::"))
    };
    let mut frames: Vec<Frame> = until.inside(parts).cloned().collect();
    while frames.last().is_some_and(is_executors) {
        frames.pop();
    }
    frames
}

/// The activity of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Does {
    /// It waits for work in the executor: the index of the part whose function parks.
    Parks {
        /// The part that parks: the innermost of tokio's.
        at: usize,
        /// In the I/O driver.
        in_driver: bool,
    },
    /// It polls a task, maybe with its worker handed over to another thread.
    Polls {
        /// The first function that is not the task's.
        until: Place,
    },
    /// It runs the executor's own code between polls.
    Executes,
    /// It is in `block_in_place`: other tasks have left its worker.
    BlocksInPlace,
    /// A spare worker of Morpheus that is held, or a thread that hands its worker over.
    IsHeld {
        /// The part of Morpheus's function.
        at: usize,
    },
    /// It polls the future of a `block_on` beside the workers, or waits in it.
    BlocksOn,
    /// A thread of the pool for blocking calls.
    Other,
    /// Nothing of tokio is on the stack, or not enough of it: a thread of no runtime, or a stack that was cut off.
    Unknown,
}

/// A stack, understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anatomy {
    /// The activity of its thread.
    pub does: Does,
    /// The worker's loop: index of the part, where it is a worker's.
    pub looped: Option<usize>,
    /// The scheduler, where it is a worker's.
    pub flavor: Flavor,
}

/// Understands a stack.
#[must_use]
pub fn read(parts: &[Part]) -> Anatomy {
    // By part: the functions that say something, by their index.
    let marks: Vec<Vec<(usize, Mark)>> = parts
        .iter()
        .map(|part| {
            let functions = part.functions.iter().enumerate();
            functions
                .filter_map(|(index, frame)| Some((index, mark(frame)?)))
                .collect()
        })
        .collect();
    let first = |wanted: fn(Mark) -> bool| {
        marks
            .iter()
            .position(|marks| marks.iter().any(|&(_, mark)| wanted(mark)))
    };
    let is_loop = |mark: Mark| matches!(mark, Mark::MultiThread | Mark::CurrentThread);
    // `run_task` is there in polls alone; the loop itself also where the worker parks, at the same place.
    let looped = marks
        .iter()
        .zip(parts)
        .position(|(marks, part)| {
            let runs_task = |frame: &Frame| last_name(&frame.function) == "run_task";
            marks.iter().any(|&(_, mark)| is_loop(mark))
                && !(marks.iter().filter(|&&(_, mark)| is_loop(mark)).count() == 1
                    && part.functions.iter().any(runs_task))
        })
        .or_else(|| first(|mark| matches!(mark, Mark::MultiThread | Mark::CurrentThread)));
    let flavor = match looped {
        Some(at)
            if marks[at]
                .iter()
                .any(|&(_, mark)| mark == Mark::CurrentThread) =>
        {
            Flavor::CurrentThread
        }
        Some(_) => Flavor::MultiThread,
        None => Flavor::Unknown,
    };
    let anatomy = |does| Anatomy {
        does,
        looped,
        flavor,
    };
    let is_work = |frame: &Frame| matches!(frame.owner, Owner::Application | Owner::Library);
    // Morpheus's own code waits there, or calls the poll of a task of which it has handed the worker over.
    if let Some(at) = first(|mark| mark == Mark::Held) {
        let held = marks[at].iter().find(|(_, mark)| *mark == Mark::Held);
        let function = held.map_or(0, |&(function, _)| function);
        let until = Place { part: at, function };
        return anatomy(match until.inside(parts).any(is_work) {
            true => Does::Polls { until },
            false => Does::IsHeld { at },
        });
    }
    // From the inside: what comes first is what it does.
    for (at, part) in marks.iter().enumerate() {
        // Within a part, inlined functions come first.
        for &(function, mark) in part {
            let until = Place { part: at, function };
            match mark {
                Mark::InPlace => return anatomy(Does::BlocksInPlace),
                Mark::Park if looped.is_some_and(|looped| at <= looped) => {
                    let in_driver = parts[..=at]
                        .iter()
                        .flat_map(|part| &part.functions)
                        .any(is_driver);
                    return anatomy(Does::Parks { at, in_driver });
                }
                Mark::Park => return anatomy(Does::BlocksOn),
                Mark::Task if looped.is_some_and(|looped| at <= looped) => {
                    return anatomy(Does::Polls { until });
                }
                // Whether a worker polls it is not known: its loop would be further out.
                Mark::Task if first(|mark| mark == Mark::Pool).is_none() => {
                    return anatomy(Does::Unknown);
                }
                Mark::Task | Mark::Pool => return anatomy(Does::Other),
                // The future of `block_on` on a current-thread runtime is polled by the loop itself.
                Mark::CurrentThread => {
                    let is_own = |frame: &Frame| frame.owner == Owner::Application;
                    return anatomy(match until.inside(parts).any(is_own) {
                        true => Does::Polls { until },
                        false => Does::Executes,
                    });
                }
                Mark::MultiThread => return anatomy(Does::Executes),
                Mark::BlockOn => return anatomy(Does::BlocksOn),
                Mark::Held => {}
            }
        }
    }
    anatomy(Does::Unknown)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    /// Waits for work.
    Park,
    /// Polls a task.
    Task,
    /// The loop of a worker.
    MultiThread,
    /// The loop of a current-thread runtime.
    CurrentThread,
    /// The pool for blocking calls.
    Pool,
    /// `block_in_place`.
    InPlace,
    /// `block_on` beside the workers.
    BlockOn,
    /// Morpheus holds the thread.
    Held,
}

/// The evidence of a thread's activity that one function on its stack gives, if any.
fn mark(frame: &Frame) -> Option<Mark> {
    let function = frame.function.as_str();
    // The name alone, without its path and its parameters.
    let name = last_name(function);
    let file = frame.file.as_deref().unwrap_or_default();
    let of_tokio = |path: &str| {
        file.split_once("/tokio-")
            .is_some_and(|(_, rest)| rest.ends_with(path) || rest.contains(path))
    };
    if function.contains("morpheus_runtime::poll::hold")
        || function.contains("morpheus_runtime::act::spare")
        || function.contains("morpheus_runtime::poll::handoff")
        || function.contains("morpheus_runtime::poll::hooked_handoff")
        || [
            "poll/hold.rs",
            "act/spare.rs",
            "poll/handoff.rs",
            "poll/hooked_handoff.rs",
        ]
        .iter()
        .any(|path| file.contains("morpheus-runtime") && file.ends_with(path))
    {
        return Some(Mark::Held);
    }
    if name == "block_in_place"
        && (function.contains("tokio::")
            || of_tokio("/src/task/blocking.rs")
            || of_tokio("worker.rs"))
    {
        return Some(Mark::InPlace);
    }
    let in_runtime = function.contains("tokio::runtime::") || of_tokio("/src/runtime/");
    let in_old_park = function.contains("tokio::park::") || of_tokio("/src/park/");
    if !in_runtime && !in_old_park {
        return None;
    }
    let in_park = name.starts_with("park")
        || in_old_park
        || function.contains("runtime::park::Inner")
        || of_tokio("/src/runtime/park.rs") && name != "block_on" && !name.contains("closure")
        || is_driver(frame);
    let multi = function.contains("multi_thread::worker::")
        || function.contains("thread_pool::worker::")
        || of_tokio("multi_thread/worker.rs")
        || of_tokio("thread_pool/worker.rs");
    let current = function.contains("scheduler::current_thread::")
        || function.contains("basic_scheduler::")
        || of_tokio("scheduler/current_thread.rs")
        || of_tokio("scheduler/current_thread/mod.rs")
        || of_tokio("basic_scheduler.rs");
    if in_park && !is_unpark(name) {
        return Some(Mark::Park);
    }
    if multi && matches!(name, "run" | "run_task") {
        return Some(Mark::MultiThread);
    }
    if current && matches!(name, "block_on" | "run_task") {
        return Some(Mark::CurrentThread);
    }
    if name == "block_on" || function.contains("CachedParkThread") {
        return Some(Mark::BlockOn);
    }
    if (function.contains("runtime::task::") || of_tokio("/src/runtime/task/"))
        && (name.starts_with("poll") || name == "run")
    {
        return Some(Mark::Task);
    }
    if function.contains("blocking::pool::") || of_tokio("blocking/pool.rs") {
        return Some(Mark::Pool);
    }
    None
}

fn is_unpark(name: &str) -> bool {
    name.starts_with("unpark")
}

/// A function of the I/O or time driver that waits.
fn is_driver(frame: &Frame) -> bool {
    let function = frame.function.as_str();
    let file = frame.file.as_deref().unwrap_or_default();
    let name = last_name(function);
    (function.contains("io::driver::Driver")
        || file.contains("/tokio-") && file.ends_with("io/driver.rs"))
        && name.starts_with("turn")
        || function.contains("mio::poll::Poll::poll")
        || name == "epoll_wait"
        || name == "epoll_pwait"
}

/// The last part of a path, without parameters: `run` of `tokio::…::Context::run` and of `run<T>`.
fn last_name(function: &str) -> &str {
    let mut depth = 0_i32;
    let mut start = 0;
    let bytes = function.as_bytes();
    let mut end = function.len();
    for (at, &byte) in bytes.iter().enumerate() {
        match byte {
            b'<' => {
                // Of a path that begins with a type, what follows it is the name.
                if depth == 0 && at > start {
                    end = at;
                }
                depth += 1;
            }
            b'>' => depth -= 1,
            b':' if depth == 0 && bytes.get(at + 1) == Some(&b':') => {
                start = at + 2;
                end = function.len();
            }
            _ => {}
        }
    }
    function.get(start..end.max(start)).unwrap_or(function)
}

/// Which function of the poll is to blame: the innermost of the application's own; without one, the innermost of some library; else
/// the innermost of the program. `is_of_main` tells the functions of the crate that has `main`, by which those without a file are told
/// from a library's.
#[must_use]
pub fn culprit(frames: &[Frame], is_of_main: impl Fn(&Frame) -> bool) -> Option<usize> {
    let innermost = |wanted: Owner, is_wanted: &dyn Fn(&Frame) -> bool| {
        frames
            .iter()
            .position(|frame| frame.owner == wanted && is_wanted(frame))
    };
    innermost(Owner::Application, &|frame| frame.line.is_some())
        .map(|inner| named(frames, inner))
        .or_else(|| innermost(Owner::Application, &is_of_main))
        .or_else(|| innermost(Owner::Application, &|_| true))
        .or_else(|| innermost(Owner::Library, &|_| true))
        .or_else(|| {
            // Without symbols: the program's own code before that of libraries of the system.
            let program = frames.last()?.module.clone();
            innermost(Owner::Unknown, &|frame| frame.module == program)
        })
        .or_else(|| (!frames.is_empty()).then_some(0))
}

/// A closure has no name to speak of; its function has one, and is further out on the same line.
fn named(frames: &[Frame], inner: usize) -> usize {
    let closure = &frames[inner];
    if closure.line.is_none() || !last_name(&closure.function).starts_with('{') {
        return inner;
    }
    let is_function = |frame: &Frame| {
        frame.owner == closure.owner
            && frame.line == closure.line
            && frame.file == closure.file
            && !last_name(&frame.function).starts_with('{')
    };
    let outer = frames.iter().skip(inner).position(is_function);
    outer.map_or(inner, |outer| inner + outer)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(functions: &[(&str, &str)]) -> Part {
        Part {
            position: Position {
                ip: 0,
                sp: 0,
                is_return: true,
            },
            functions: functions
                .iter()
                .map(|(function, file)| Frame {
                    function: (*function).to_owned(),
                    file: (!file.is_empty()).then(|| (*file).to_owned()),
                    line: None,
                    module: "app".to_owned(),
                    address: 0,
                    inlined: functions.len() > 1,
                    owner: match function.starts_with("app::") {
                        true => Owner::Application,
                        false => Owner::Plumbing,
                    },
                })
                .collect(),
        }
    }

    /// One part for each function.
    fn stack(functions: &[&str]) -> Vec<Part> {
        functions
            .iter()
            .map(|function| part(&[(function, "")]))
            .collect()
    }

    fn polls_until(part: usize, function: usize) -> Does {
        Does::Polls {
            until: Place { part, function },
        }
    }

    #[test]
    fn names_are_cut_out() {
        for (function, name) in [
            (
                "tokio::runtime::scheduler::multi_thread::worker::Context::run",
                "run",
            ),
            ("run<alloc::sync::Arc<T>>", "run"),
            ("tokio::runtime::task::core::Core<T,S>::poll", "poll"),
            ("<a::B as c::D>::poll", "poll"),
            ("<alloc::vec::Vec<u8>>::push", "push"),
            (
                "tokio::runtime::scheduler::multi_thread::worker::<impl tokio::runtime::Handle>::shutdown_core",
                "shutdown_core",
            ),
            ("main", "main"),
            ("", ""),
            ("<<<", "<<<"),
            (">>::", ">>::"),
        ] {
            assert_eq!(last_name(function), name, "{function}");
        }
    }

    #[test]
    fn a_worker_parks() {
        let parks = stack(&[
            "epoll_wait",
            "mio::poll::Poll::poll",
            "tokio::runtime::io::driver::Driver::turn",
            "tokio::runtime::time::Driver::park_internal",
            "tokio::runtime::scheduler::multi_thread::worker::Context::park_internal",
            "tokio::runtime::scheduler::multi_thread::worker::Context::run",
            "tokio::runtime::scheduler::multi_thread::worker::run",
            "tokio::runtime::task::core::Core<T,S>::poll",
            "tokio::runtime::blocking::pool::Inner::run",
        ]);
        let read = read(&parks);
        assert!(
            matches!(
                read.does,
                Does::Parks {
                    in_driver: true,
                    ..
                }
            ),
            "{read:?}"
        );
        assert_eq!(read.looped, Some(5));
        assert_eq!(read.flavor, Flavor::MultiThread);
    }

    #[test]
    fn a_worker_polls() {
        let polls = stack(&[
            "app::hash",
            "app::handler::{{closure}}",
            "tokio::runtime::task::core::Core<T,S>::poll",
            "tokio::runtime::task::harness::Harness<T,S>::poll",
            "tokio::runtime::scheduler::multi_thread::worker::Context::run_task",
            "tokio::runtime::scheduler::multi_thread::worker::Context::run",
            "tokio::runtime::task::core::Core<T,S>::poll",
            "tokio::runtime::blocking::pool::Inner::run",
        ]);
        assert_eq!(read(&polls).does, polls_until(2, 0));
    }

    #[test]
    fn a_poll_is_inlined_into_the_executors() {
        let polls = [
            part(&[("core::num::wrapping_mul", "")]),
            part(&[
                ("app::hash", ""),
                ("app::handler::{{closure}}", ""),
                (
                    "with_mut",
                    "/registry/src/tokio-1.54.1/src/loom/std/unsafe_cell.rs",
                ),
                ("tokio::runtime::task::core::Core<T,S>::poll", ""),
                ("tokio::runtime::task::raw::poll", ""),
            ]),
            part(&[
                (
                    "tokio::runtime::scheduler::multi_thread::worker::Context::run_task",
                    "",
                ),
                (
                    "tokio::runtime::scheduler::multi_thread::worker::Context::run",
                    "",
                ),
            ]),
        ];
        let Does::Polls { until } = read(&polls).does else {
            panic!("{:?}", read(&polls));
        };
        let frames = frames_of_poll(&polls, until);
        let functions: Vec<&str> = frames.iter().map(|frame| frame.function.as_str()).collect();
        assert_eq!(
            functions,
            [
                "core::num::wrapping_mul",
                "app::hash",
                "app::handler::{{closure}}"
            ]
        );
    }

    #[test]
    fn morpheus_hands_workers_over() {
        let outside = [
            "tokio::runtime::context::runtime::enter_runtime",
            "tokio::task::blocking::block_in_place",
            "morpheus_runtime::poll::known::poll",
            "tokio::runtime::task::core::Core<T,S>::poll",
            "tokio::runtime::scheduler::multi_thread::worker::Context::run",
        ];
        let polls = [
            &[
                "app::hash",
                "morpheus_runtime::poll::handoff::poll::{{closure}}",
            ],
            &outside[..],
        ];
        assert_eq!(read(&stack(&polls.concat())).does, polls_until(1, 0));
        let waits = [
            &[
                "syscall",
                "std::thread::park",
                "morpheus_runtime::poll::hooked_handoff::hand_off",
            ],
            &outside[..],
        ];
        assert_eq!(read(&stack(&waits.concat())).does, Does::IsHeld { at: 2 });
    }

    #[test]
    fn threads_of_the_pool_are_no_workers() {
        for inside in [
            &["syscall", "tokio::runtime::blocking::pool::Inner::run"][..],
            &[
                "app::compute",
                "tokio::runtime::task::core::Core<T,S>::poll",
                "tokio::runtime::blocking::pool::Inner::run",
            ],
        ] {
            assert_eq!(read(&stack(inside)).does, Does::Other);
        }
    }

    #[test]
    fn block_in_place_is_no_stall() {
        let blocks = stack(&[
            "read",
            "app::load",
            "tokio::task::blocking::block_in_place",
            "app::handler::{{closure}}",
            "tokio::runtime::task::core::Core<T,S>::poll",
            "tokio::runtime::scheduler::multi_thread::worker::Context::run",
        ]);
        assert_eq!(read(&blocks).does, Does::BlocksInPlace);
    }

    #[test]
    fn block_on_is_beside_the_workers() {
        let waits = stack(&[
            "syscall",
            "tokio::runtime::park::Inner::park",
            "tokio::runtime::context::runtime::enter_runtime",
            "app::main",
        ]);
        assert_eq!(read(&waits).does, Does::BlocksOn);
    }

    #[test]
    fn a_current_thread_runtime_polls_its_own_future() {
        let polls = stack(&[
            "app::compute",
            "app::main::{{closure}}",
            "tokio::runtime::scheduler::current_thread::CoreGuard::block_on",
            "app::main",
        ]);
        let does = read(&polls);
        assert_eq!(does.does, polls_until(2, 0));
        assert_eq!(does.flavor, Flavor::CurrentThread);
    }

    #[test]
    fn nonsense_is_no_worker() {
        assert_eq!(read(&[]).does, Does::Unknown);
        assert_eq!(read(&stack(&["", "::", "<>", "<"])).does, Does::Unknown);
    }
}
