//! The child process: one runtime, and what it, or tasks on it, take of memory.

use std::fmt;
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use morpheus_harness::{clock, supervised, thread};
use morpheus_runtime::{Metrics, Watch as _};
use serde::{Deserialize, Serialize};
use tokio::runtime::Handle;

use super::counting::Requested;
use super::memory::{Growth, Memory};
use crate::compare::Contender;

/// Tasks that a runtime has served before it is idle.
const SERVED: usize = 64;
/// Tasks that are started before anything counts: labels and lists are then there.
const FIRST: usize = 100;
/// All tasks have been polled by then, or something is wrong.
const POLLED_WITHIN: Duration = Duration::from_secs(60);

/// The measurement that a child is to make.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Job {
    /// On what.
    pub runtime: Contender,
    /// Workers of the runtime.
    pub workers: usize,
    /// How long the runtime has to come to rest.
    pub settle_ms: u64,
    /// Tasks; without, it is the runtime itself that is measured.
    pub tasks: Option<Tasks>,
}

/// Tasks that wait.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Tasks {
    /// How they are started.
    pub via: Via,
    /// How many.
    pub count: usize,
    /// The bytes that each task keeps beyond its need: one of [`KEPT`].
    pub kept: usize,
}

/// tokio puts a task on lines of 128 bytes, so one that is 32 bytes larger takes nothing or 128 more. Over these four,
/// every length of the last line comes once.
pub const KEPT: [usize; 4] = [0, 32, 64, 96];

/// How a task is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Via {
    /// `tokio::spawn`: not watched.
    Tokio,
    /// `morpheus_runtime::spawn`.
    Spawn,
    /// `tokio::spawn(future.watched(…))`.
    Watched,
    /// `tokio::spawn(future.watched_as(…))`.
    WatchedAs,
}

impl Via {
    fn start(self, future: impl Future<Output = ()> + Send + 'static) {
        match self {
            Via::Tokio => drop(tokio::spawn(future)),
            Via::Spawn => drop(morpheus_runtime::spawn(future)),
            Via::Watched => drop(tokio::spawn(future.watched("parked"))),
            Via::WatchedAs => drop(tokio::spawn(future.watched_as("parked, as it is called"))),
        }
    }
}

/// As people write it.
impl fmt::Display for Via {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Via::Tokio => "tokio::spawn",
            Via::Spawn => "morpheus_runtime::spawn",
            Via::Watched => ".watched(…)",
            Via::WatchedAs => ".watched_as(…)",
        })
    }
}

/// The result of a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Found {
    /// The memory that the runtime adds while it has nothing to do.
    Idle(Growth),
    /// The memory that a task takes.
    Task(Task),
}

/// The memory that a task takes, in bytes: the mean over some tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Bytes that the thread which started it requested.
    pub requested: f64,
    /// In this many blocks.
    pub blocks: f64,
    /// By how much resident memory grew.
    pub resident: f64,
}

/// The answer of a child. It is `None` if the runtime was not idle: on a busy machine it may lack a CPU while it serves
/// its first tasks, take its workers for stalled and act, which leaves threads behind.
pub type Answer = Result<Option<Found>, String>;

/// Does the job and ends the process, whatever state the runtime is in by then.
pub fn main() -> ! {
    thread::die_with_parent();
    supervised::answer("footprint", measure)
}

fn measure(job: &Job) -> Answer {
    // Twice: the first reads what reading needs.
    let _ = Memory::now()?;
    let before = Memory::now()?;
    let runtime = job.runtime.build(job.workers)?;
    serve(&runtime);
    std::thread::sleep(Duration::from_millis(job.settle_ms));
    match job.tasks {
        None => {
            let growth = Growth::since(before)?;
            Ok((!has_acted(&runtime)).then_some(Found::Idle(growth)))
        }
        Some(tasks) => match tasks.kept {
            0 => parked::<0>(&runtime, tasks),
            32 => parked::<32>(&runtime, tasks),
            64 => parked::<64>(&runtime, tasks),
            96 => parked::<96>(&runtime, tasks),
            other => Err(format!("nothing keeps {other} bytes")),
        },
    }
}

/// Has the runtime do a little of everything once. A runtime that was never used has touched nothing of what it needs,
/// and Morpheus's spares have run a task each when it is built.
fn serve(runtime: &Handle) {
    let task = || async {
        tokio::task::yield_now().await;
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    runtime.block_on(async {
        let tasks: Vec<_> = (0..SERVED).map(|_| tokio::spawn(task())).collect();
        for task in tasks {
            let _ = task.await;
        }
    });
}

/// Whether Morpheus has released a spare or reported a stall, each of which starts threads.
fn has_acted(runtime: &Handle) -> bool {
    let _context = runtime.enter();
    let has_released = Metrics::current().is_some_and(|metrics| metrics.debug.spares_peak > 0);
    has_released || thread::exists("morpheus-report")
}

/// Starts tasks, and looks when each has been polled and waits.
fn parked<const KEPT: usize>(runtime: &Handle, tasks: Tasks) -> Answer {
    if !Requested::is_counted() {
        return Err("this program was not linked with the allocator that counts".into());
    }
    let polled = Arc::new(AtomicUsize::new(0));
    let _context = runtime.enter();
    let start = |count: usize| {
        for _ in 0..count {
            tasks.via.start(wait::<KEPT>(polled.clone()));
        }
    };
    start(FIRST);
    wait_for(&polled, FIRST)?;
    let (before, requested) = (Memory::now()?, Requested::so_far());
    start(tasks.count);
    let requested = Requested::so_far().since(requested);
    wait_for(&polled, FIRST + tasks.count)?;
    let count = tasks.count as f64;
    Ok(Some(Found::Task(Task {
        requested: requested.bytes as f64 / count,
        blocks: requested.blocks as f64 / count,
        resident: Growth::since(before)?.of(|memory| memory.resident) / count,
    })))
}

/// A task that keeps `KEPT` bytes, is polled once and then waits for ever.
async fn wait<const KEPT: usize>(polled: Arc<AtomicUsize>) {
    let kept = black_box([1_u8; KEPT]);
    polled.fetch_add(1, Relaxed);
    std::future::pending::<()>().await;
    black_box(&kept);
}

fn wait_for(polled: &AtomicUsize, count: usize) -> Result<(), String> {
    let pause = Duration::from_millis(1);
    match clock::within(POLLED_WITHIN, pause, || polled.load(Relaxed) >= count) {
        true => Ok(()),
        false => Err(format!(
            "only {} of {count} tasks were polled",
            polled.load(Relaxed)
        )),
    }
}
