//! The cases: what is done, again and again, and what counts as one operation.
//!
//! They are those of tokio's own benchmarks by name and by idea, written anew: each sets something up once, and then
//! does as many operations as it is asked for, as often as it is asked. It counts those that came to their end, by what
//! the tasks themselves did.

mod channels;
mod client;
mod locks;
mod net;
mod queue;
mod spawn;
mod timers;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::AcqRel, Ordering::Acquire};
use std::time::Duration;

use morpheus_harness::histogram::Latencies;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use super::spawner::{Plain, Spawner, Watched};

/// The runtime that a case runs on, and its number of workers.
#[derive(Clone, Debug)]
pub struct Stage {
    /// The runtime that it runs on.
    pub runtime: Handle,
    /// Workers that were asked for.
    pub workers: usize,
}

/// The results of a number of operations.
#[derive(Debug, Default)]
pub struct Done {
    /// Those that came to their end.
    pub operations: u64,
    /// The latency of each operation, where the case times them one by one.
    pub latencies: Latencies,
    /// CPU time of threads that are no part of the runtime: the other side of a connection.
    pub others_cpu: Duration,
}

impl From<u64> for Done {
    fn from(operations: u64) -> Self {
        Self {
            operations,
            ..Self::default()
        }
    }
}

/// Does as many operations as it is told; called from a thread outside of the runtime.
pub type Body = Box<dyn FnMut(u64) -> Result<Done, String>>;

/// Sets a case up.
type Start = fn(&Stage) -> Result<Body, String>;

/// A case.
pub struct Case {
    /// Its name on the command line.
    pub name: &'static str,
    /// The description of one operation.
    pub operation: &'static str,
    /// Operations come in multiples of this.
    pub batch: u64,
    /// Fewer are not measured: a percentile needs this many.
    pub least: u64,
    /// Whether other tasks compute meanwhile: the CPU time of an operation is then mostly theirs.
    pub beside_busy: bool,
    plain: Start,
    watched: Start,
}

impl Case {
    const fn new(
        name: &'static str,
        operation: &'static str,
        plain: Start,
        watched: Start,
    ) -> Self {
        Self {
            name,
            operation,
            batch: 1,
            least: 1,
            beside_busy: false,
            plain,
            watched,
        }
    }

    /// Sets it up, with every task watched or none.
    ///
    /// # Errors
    /// When threads or sockets cannot be had; the text is for people.
    pub fn start(&self, stage: &Stage, watched: bool) -> Result<Body, String> {
        let start = if watched { self.watched } else { self.plain };
        start(stage)
    }

    /// The least number of operations that is at least this one and can be asked for.
    pub fn operations(&self, wanted: u64) -> u64 {
        wanted.max(self.least).max(1).next_multiple_of(self.batch)
    }
}

/// The case with this name.
pub fn named(name: &str) -> Option<&'static Case> {
    CASES.iter().find(|case| case.name == name)
}

/// `case!(name, what an operation is, its module and function, what may differ from a case's usual fields …)`.
macro_rules! case {
    ($name:literal, $operation:literal, $module:ident :: $start:ident $([$connections:literal])? $(, $field:ident: $value:expr)*) => {
        Case {
            $($field: $value,)*
            ..Case::new(
                $name,
                $operation,
                $module::$start::<Plain $(, $connections)?>,
                $module::$start::<Watched $(, $connections)?>,
            )
        }
    };
}

/// All of them, in the order shown.
#[rustfmt::skip]
pub const CASES: &[Case] = &[
    case!("spawn_many_local", "task, started by a task", spawn::many_local),
    case!("spawn_many_remote_idle", "task, started from outside", spawn::many_remote_idle),
    case!("spawn_many_remote_busy1", "the same beside tasks that compute and yield", spawn::many_remote_busy1, beside_busy: true),
    case!("spawn_many_remote_busy2", "the same beside tasks that compute and spawn", spawn::many_remote_busy2, beside_busy: true),
    case!("yield_many", "yield of one of 200 tasks", queue::yield_many),
    case!("ping_pong", "two tasks, a message each way", queue::ping_pong),
    case!("chained_spawn", "task that starts the next", queue::chained_spawn),
    case!("spawn", "task, started from outside and joined", spawn::one),
    case!("spawn10", "the same, ten at a time", spawn::ten),
    case!("remote_spawn", "task, started by one of four threads", spawn::contended),
    case!("spawn_blocking", "call on a thread for blocking ones, joined", spawn::blocking),
    case!("timeout", "timeout that is set and not needed", timers::timeout),
    case!("sleep", "sleep of a millisecond, 500 at a time", timers::sleep, batch: timers::SLEEPERS),
    case!("mpsc", "message from one of five tasks to one", channels::mpsc),
    case!("request_reply", "request by mpsc, answer by oneshot", channels::request_reply),
    case!("notify", "wake of one of 100 waiting tasks", locks::notify),
    case!("semaphore", "permit, of two for eight tasks", locks::semaphore),
    case!("rwlock", "lock, five tasks that read and one that writes", locks::rwlock),
    case!("watch", "value seen by one of 20 tasks", channels::watch, batch: channels::WATCHING),
    case!("broadcast", "message got by one of ten tasks", channels::broadcast, batch: channels::BROADCAST),
    case!("tcp_echo_1", "round trip, on one connection", net::echo[1], least: net::LEAST),
    case!("tcp_echo_16", "round trip, on 16 connections", net::echo[16], least: net::LEAST),
    case!("tcp_echo_256", "round trip, on 256 connections", net::echo[256], least: net::LEAST),
    case!("http_hello", "HTTP/1.1 request on one of 16 connections", net::hello[16], least: net::LEAST),
];

impl Stage {
    /// A body that makes a future of the number of operations, and runs it as a task, which returns how many were done.
    fn in_task<S, F>(&self, mut root: impl FnMut(u64) -> F + 'static) -> Body
    where
        S: Spawner,
        F: Future<Output = u64> + Send + 'static,
    {
        let runtime = self.runtime.clone();
        Box::new(move |n| {
            let root = root(n);
            let joined = runtime.block_on(async { S::spawn(root).await });
            joined
                .map(Done::from)
                .map_err(|error| format!("a task ended: {error}"))
        })
    }

    /// The same, boxed: for a task that only begins what is measured. tokio's code is compiled once for each kind of task.
    fn in_boxed_task<S, F>(&self, mut root: impl FnMut(u64) -> F + 'static) -> Body
    where
        S: Spawner,
        F: Future<Output = u64> + Send + 'static,
    {
        self.in_task::<S, Pin<Box<dyn Future<Output = u64> + Send>>>(move |n| Box::pin(root(n)))
    }

    /// Spreads the operations over this many tasks, each of which returns how many it did.
    fn spread<S, T, F>(&self, tasks: u64, task: T) -> Body
    where
        S: Spawner,
        T: Fn(u64) -> F + Clone + Send + 'static,
        F: Future<Output = u64> + Send + 'static,
    {
        self.in_boxed_task::<S, _>(move |n| {
            let task = task.clone();
            async move {
                let started: Vec<_> = shares(n, tasks)
                    .map(|share| S::spawn(task(share)))
                    .collect();
                let mut done = 0;
                for task in started {
                    done += task.await.unwrap_or(0);
                }
                done
            }
        })
    }
}

/// How many of `n` each of some parts gets, none more than one more than another.
fn shares(n: u64, parts: u64) -> impl Iterator<Item = u64> {
    (0..parts).map(move |part| n / parts + u64::from(part < n % parts))
}

/// Batches of at most `most`, `n` together.
fn batches(n: u64, most: u64) -> impl Iterator<Item = u64> {
    (0..n.div_ceil(most)).map(move |number| most.min(n - number * most))
}

/// Counts tasks that are done; the last one wakes the task that waits for all.
struct Countdown {
    all: u64,
    left: AtomicU64,
    ended: Notify,
}

impl Countdown {
    fn new(all: u64) -> Arc<Self> {
        Arc::new(Self {
            all,
            left: AtomicU64::new(all),
            ended: Notify::new(),
        })
    }

    /// One is done.
    fn count(&self) {
        // AcqRel: the task that waited for the last one sees what each did before it counted.
        if self.left.fetch_sub(1, AcqRel) == 1 {
            self.ended.notify_one();
        }
    }

    /// Waits for all, and says how many were counted.
    async fn ended(&self) -> u64 {
        self.ended.notified().await;
        // Acquire: pairs with the last `count`.
        self.all - self.left.load(Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::runtime::Builder;

    #[test]
    fn nothing_is_lost_in_shares_and_batches() {
        for (n, parts) in [(0, 3), (1, 3), (10, 4), (12, 4)] {
            let all: Vec<u64> = shares(n, parts).collect();
            assert_eq!(all.iter().sum::<u64>(), n);
            assert!(all.iter().max().unwrap() - all.iter().min().unwrap() <= 1);
            let all: Vec<u64> = batches(n, parts).collect();
            assert_eq!(all.iter().sum::<u64>(), n);
            assert!(all.iter().all(|batch| (1..=parts).contains(batch)));
        }
    }

    #[test]
    fn each_case_has_a_name_of_its_own() {
        for case in CASES {
            assert_eq!(named(case.name).unwrap().operation, case.operation);
            assert!(
                case.operations(1).is_multiple_of(case.batch) && case.operations(1) >= case.least
            );
        }
        assert!(named("nonsense").is_none());
    }

    /// On plain tokio, where a watched task is an ordinary one: the counts are of the case, not of the runtime. Odd
    /// numbers, and twice, for what is left over of a batch or of the run before is easily forgotten.
    #[test]
    fn every_case_does_what_it_is_asked() {
        for watched in [false, true] {
            for case in CASES {
                let runtime = Builder::new_multi_thread()
                    .worker_threads(2)
                    .enable_all()
                    .build()
                    .unwrap();
                let stage = Stage {
                    runtime: runtime.handle().clone(),
                    workers: 2,
                };
                let mut body = case.start(&stage, watched).unwrap();
                for asked in [1_u64, 2_003] {
                    let asked = asked.next_multiple_of(case.batch);
                    let done = body(asked).unwrap();
                    assert_eq!(done.operations, asked, "{}", case.name);
                    let timed = if case.least > 1 { asked } else { 0 };
                    assert_eq!(done.latencies.len(), timed, "{}", case.name);
                }
                drop(body);
                runtime.shutdown_background();
            }
        }
    }
}
