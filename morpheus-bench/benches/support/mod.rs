//! Helpers for the benches: runtimes on which nothing but the bench decides, and proofs that a slot is there or not.
//!
//! A figure of something that did not happen would look good. So each bench shows before its loop that what it is
//! about to time takes place, and panics if it does not.
#![allow(dead_code, reason = "each bench uses some of it")]

use std::future::Future;
use std::hint::black_box;
use std::time::{Duration, Instant};

use morpheus_runtime::{Builder, Link, Mechanism, Policy, Runtime, yield_requested};

/// Longer than the budget of a poll, the sample that finds it over, and what a busy machine adds.
const SURELY_ASKED: Duration = Duration::from_secs(5);
/// Many budgets: a poll that was not asked to yield by then is not watched.
const SURELY_NOT_ASKED: Duration = Duration::from_millis(20);

/// A runtime of one worker and no spares that goes as far as `policy`. It joins no daemon: figures under one differ.
pub fn runtime(policy: Policy) -> Runtime {
    build(alone(0).policy(policy))
}

/// The same with one spare, which only the bench puts in play: labels that offend stand still.
pub fn with_spare() -> Runtime {
    build(still(&mut alone(1)).without(Mechanism::Takeover))
}

/// One worker, and nothing of the runtime's own that would wake it.
pub fn undisturbed(policy: Policy) -> Runtime {
    build(still(&mut alone(0)).policy(policy))
}

/// The same, with every task marked by tokio's hooks or none.
pub fn hooked(policy: Policy, marks: bool) -> Runtime {
    build(still(&mut alone(0)).policy(policy).watch_every_task(marks))
}

fn alone(spares: usize) -> Builder {
    let mut builder = Builder::new_multi_thread();
    builder
        .worker_threads(1)
        .max_spares(spares)
        .reserve(0)
        .link(Link::Watchdog);
    builder
}

/// Without the no-ops that the runtime sends its workers.
fn still(builder: &mut Builder) -> &mut Builder {
    builder.without(Mechanism::Canary).without(Mechanism::Poke)
}

fn build(builder: &mut Builder) -> Runtime {
    builder.build().expect("a runtime with one worker")
}

/// Tokio without Morpheus, with one worker.
pub fn stock() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a tokio runtime with one worker")
}

/// Runs `measure` in a watched task of `runtime`.
pub fn watched<F>(runtime: &Runtime, measure: F) -> F::Output
where
    F: Future<Output: Send> + Send + 'static,
{
    finished(runtime.handle(), runtime.spawn(measure))
}

/// Runs `measure` in an unwatched task, on a worker.
pub fn unwatched<F>(handle: &tokio::runtime::Handle, measure: F) -> F::Output
where
    F: Future<Output: Send> + Send + 'static,
{
    finished(handle, handle.spawn(measure))
}

fn finished<T>(handle: &tokio::runtime::Handle, task: tokio::task::JoinHandle<T>) -> T {
    handle
        .block_on(task)
        .expect("the task neither panics nor is aborted")
}

/// Computes in this poll until it is asked to yield. From then on a request is pending, until the poll ends.
///
/// # Panics
/// When this poll is not asked to yield: then it has no slot, or the controller does not sample it.
pub fn until_requested() {
    let begun = Instant::now();
    while !yield_requested() {
        assert!(
            begun.elapsed() < SURELY_ASKED,
            "this poll is not asked to yield, so it has no slot: there is nothing to measure"
        );
        black_box(());
    }
}

/// Computes for many budgets.
///
/// # Panics
/// When this poll is asked to yield: then there is a slot here after all.
pub fn never_requested() {
    let begun = Instant::now();
    while begun.elapsed() < SURELY_NOT_ASKED {
        assert!(
            !yield_requested(),
            "asked to yield where no poll is watched"
        );
    }
}
