//! The tasks whose last polls were short while their label was healthy: a task without a record is no new one because of that.
//! (`--cfg tokio_unstable`)
//!
//! [`Records`](crate::decide::records::Records) begin when a label is in doubt. A connection that was served for hours has no record
//! then, as one that was accepted just now. The first must not wait behind the hogs that the second may be. So each thread counts
//! the polls of the tasks that it polls, in a table by task id, up to 255: a load for a task that has them, and a store more until it
//! has. A table has one line of the cache for sixteen tasks and one writer, so that no line moves between CPUs at a poll. A task may
//! be polled by any thread, and the sum over all tables is asked for in doubt alone.
//!
//! **There are few tables**, however many threads there are: a sum reads each, where its worker waits to poll a task, and waits for no
//! other thread. A thread [gives its table back](give_back) before it hands its core off, and the one that takes the core counts in it
//! from then on. Only where more threads than [`limit`] have a table at once, some share one: most of these have lost their core in a
//! `block_in_place` of the application, and count nothing until they have one again.
//!
//! After `n` short polls and no long one, the next is a long one with a probability of 1 in `n + 2` (Laplace's rule of succession). So
//! the counts also say which of two tasks goes first.
//!
//! Ids are unique in the process, and so is this list of tables. **A table is never freed.** The next thread that needs one gets
//! it, with its counts: they are about tasks, and stay true. A task that another one replaced in a table is no more than unknown.

use std::cell::Cell;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};

use tokio::task::Id;

use crate::decide::records;
use morpheus_system::lock::lock;

/// Tasks that a table has room for: 8 KiB.
const TASKS: usize = 2048;
/// The lowest eight bits of an entry count polls, and the others name the task.
const MOST_POLLS: u32 = u8::MAX as u32;

/// Relaxed everywhere, and pairs with nothing: a poll more or less is no matter.
type Table = [AtomicU32; TASKS];

/// Room for tables.
const MOST_TABLES: usize = 1024;
/// As many tables there may be on the smallest machine.
const LEAST_LIMIT: usize = 64;

/// The tables. The first ones have been made, as many as threads had one at once.
static TABLES: [OnceLock<Box<Table>>; MOST_TABLES] = [const { OnceLock::new() }; MOST_TABLES];

/// The number of threads that have each table.
static USERS: Mutex<[u32; MOST_TABLES]> = Mutex::new([0; MOST_TABLES]);

/// The most tables: twice as many as threads can run at once, so that those that run have tables of their own.
fn limit() -> usize {
    static LIMIT: OnceLock<usize> = OnceLock::new();
    *LIMIT.get_or_init(|| {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        (2 * cpus).clamp(LEAST_LIMIT, MOST_TABLES)
    })
}

/// All tables that have been made.
fn tables() -> impl Iterator<Item = &'static Table> {
    TABLES.iter().map_while(OnceLock::get).map(|table| &**table)
}

thread_local! {
    static OWN: Cell<Option<&'static Table>> = const { Cell::new(None) };
    static GIVE_BACK: GiveBack = const { GiveBack { at: Cell::new(0) } };
}

/// Gives the thread's table to the next one when the thread ends.
struct GiveBack {
    /// Which table it is, while the thread has one.
    at: Cell<usize>,
}

impl GiveBack {
    fn take(&self) -> &'static Table {
        let limit = limit();
        let mut users = lock(&USERS);
        // The first of those with the fewest: a new one is made when each before it has a thread.
        let at = (0..limit).min_by_key(|&at| users[at]).unwrap_or(0);
        users[at] += 1;
        self.at.set(at);
        TABLES[at].get_or_init(|| Box::new([const { AtomicU32::new(0) }; TASKS]))
    }

    fn give_back(&self) {
        if OWN.take().is_some() {
            lock(&USERS)[self.at.get()] -= 1;
        }
    }
}

impl Drop for GiveBack {
    fn drop(&mut self) {
        self.give_back();
    }
}

/// Leaves the thread's table to the next one: the thread is about to lose its core, and counts nothing without it.
pub(crate) fn give_back() {
    // A thread that is being torn down has given it back.
    let _ = GIVE_BACK.try_with(GiveBack::give_back);
}

/// A task in a table: where, and the entry without polls.
#[inline]
fn place(task: Id) -> (usize, u32) {
    let hash = records::hash(task);
    let name = (hash >> 32) as u32 & !MOST_POLLS;
    // The upper bits of the product, which are the best spread ones.
    ((hash >> 21) as usize % TASKS, name)
}

#[inline]
fn polls(entry: u32, name: u32) -> u32 {
    match entry & !MOST_POLLS == name {
        true => entry & MOST_POLLS,
        false => 0,
    }
}

/// Counts a poll under a healthy label.
#[inline]
pub(crate) fn count(task: Id) {
    match OWN.get() {
        Some(table) => count_in(table, task),
        None => count_first(task),
    }
}

#[inline]
fn count_in(table: &Table, task: Id) {
    let (at, name) = place(task);
    let entry = &table[at];
    let before = entry.load(Ordering::Relaxed);
    // The one comparison that a poll of a long-lived task takes.
    if before != name | MOST_POLLS {
        entry.store(name | (polls(before, name) + 1), Ordering::Relaxed);
    }
}

/// Finds a table for the thread.
#[cold]
fn count_first(task: Id) {
    // A thread that is being torn down counts nothing.
    let Ok(table) = GIVE_BACK.try_with(GiveBack::take) else {
        return;
    };
    OWN.set(Some(table));
    count_in(table, task);
}

/// Returns the number of polls that the task had under a healthy label, at most 255.
pub(crate) fn of(task: Id) -> u8 {
    let (at, name) = place(task);
    let sum: u32 = tables()
        .map(|table| polls(table[at].load(Ordering::Relaxed), name))
        .sum();
    sum.min(MOST_POLLS) as u8
}

/// Whether the thread has a table.
#[cfg(test)]
pub(crate) fn has_table() -> bool {
    OWN.get().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::records::tests::ids;

    #[test]
    fn three_polls_prove_a_task_whichever_threads_polled_it() {
        let task = ids(1)[0];
        for polls in 0..3 {
            assert_eq!(of(task), polls);
            std::thread::scope(|threads| {
                threads.spawn(|| count(task)).join().unwrap();
            });
        }
        assert_eq!(of(task), 3);
        for _ in 0..1_000 {
            count(task);
        }
        assert_eq!(of(task), u8::MAX);
    }

    #[test]
    fn a_task_proves_no_other_one() {
        let ids = ids(4 * TASKS);
        let (counted, others) = ids.split_at(TASKS / 2);
        for task in counted {
            (0..3).for_each(|_| count(*task));
        }
        let proven = |tasks: &[Id]| tasks.iter().filter(|task| of(**task) >= 3).count();
        assert_eq!(proven(others), 0);
        // Some share an entry with another one.
        assert!(proven(counted) > TASKS / 4, "{}", proven(counted));
    }

    /// Counts a poll on each of `threads` threads that live at the same time, and returns what `then` does while they do. It must not
    /// panic: they wait for it.
    fn on_threads<R>(threads: usize, task: Id, then: impl FnOnce() -> R) -> R {
        let together = std::sync::Barrier::new(threads + 1);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                let counts = || {
                    count(task);
                    together.wait();
                    together.wait();
                };
                let thread = std::thread::Builder::new().stack_size(64 << 10);
                thread.spawn_scoped(scope, counts).unwrap();
            }
            together.wait();
            let result = then();
            together.wait();
            result
        })
    }

    #[test]
    fn a_sum_is_over_few_tables_beside_any_number_of_threads() {
        let task = ids(1)[0];
        let few = on_threads(10, task, || tables().count());
        let (many, sum) = on_threads(1_000, task, || (tables().count(), of(task)));
        assert!(few >= 10 && sum >= 3);
        assert!(many <= limit(), "{many} tables, and {few} before");
        assert!(of(task) >= 3, "those that are left keep their counts");
    }

    #[test]
    fn a_sum_waits_for_no_thread_that_takes_a_table() {
        let task = ids(1)[0];
        let (done, is_done) = std::sync::mpsc::channel();
        let users = lock(&USERS);
        std::thread::spawn(move || done.send(of(task)).unwrap());
        let sum = is_done.recv_timeout(std::time::Duration::from_secs(60));
        drop(users);
        assert_eq!(sum, Ok(0));
    }

    #[test]
    fn a_table_that_was_given_back_is_used_again() {
        let task = ids(1)[0];
        // Other tests have threads with tables at the same time.
        let users = || lock(&USERS).iter().sum::<u32>();
        let before = users();
        for _ in 0..1_000 {
            std::thread::spawn(move || count(task)).join().unwrap();
            count(task);
            give_back();
            give_back();
        }
        assert!(users() < before + 500);
        assert!(!has_table());
    }
}
