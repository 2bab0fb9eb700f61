//! How code that computes or blocks in a task is written for tokio: as it is, or in one of the ways that people rewrite it.

use std::sync::LazyLock;

use clap::ValueEnum;
use morpheus_harness::{host, thread};
use serde::{Deserialize, Serialize};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::task::{JoinError, block_in_place, spawn_blocking};

/// The niceness of the threads of [`Code::Pool`].
const POOL_NICE: i32 = 10;

/// Of [`Code::Pool`]. Its one worker is never driven: it has threads for blocking calls alone.
static POOL: LazyLock<Runtime> = LazyLock::new(|| {
    let mut pool = Builder::new_current_thread();
    pool.max_blocking_threads(host::cpus()).on_thread_start(|| {
        // A lower priority is granted to anyone.
        thread::set_nice(0, POOL_NICE);
    });
    pool.build()
        .expect("a runtime without drivers needs nothing")
});

/// One way to write it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Code {
    /// As most programs are written at first: it runs in its own poll.
    Inline,
    /// On tokio's pool for blocking calls, as many at once as there are tasks.
    SpawnBlocking,
    /// The same behind a semaphore, as an expert does it: no more at once than there are workers.
    Bounded,
    /// On a pool of its own with as many threads as there are CPUs, which leave these to all others: their niceness is 10.
    Pool,
    /// In `tokio::task::block_in_place`: the other tasks of the worker move to another thread first.
    InPlace,
}

impl Code {
    /// The same for what blocks and does not compute: its number is left to the pool, which has room for it.
    #[must_use]
    pub fn for_blocking(self) -> Self {
        match self {
            Self::Bounded | Self::Pool => Self::SpawnBlocking,
            other => other,
        }
    }

    /// Runs `work` once. All but [`Code::Inline`] need a runtime of tokio's; `permits` limits [`Code::Bounded`].
    ///
    /// # Errors
    /// On the pool, `work` panicked, or the runtime ends.
    pub async fn run<T: Send + 'static>(
        self,
        permits: &Semaphore,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        match self {
            Self::Inline => Ok(work()),
            Self::InPlace => Ok(block_in_place(work)),
            Self::SpawnBlocking => spawn_blocking(work).await,
            Self::Bounded => {
                let _permit = permits.acquire().await;
                spawn_blocking(work).await
            }
            Self::Pool => POOL.spawn_blocking(work).await,
        }
    }
}
