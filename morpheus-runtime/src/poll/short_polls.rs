//! The tasks whose last polls were short while their label was healthy: a task without a record is no new one because of that.
//! (`--cfg tokio_unstable`)
//!
//! [`Records`](crate::decide::records::Records) begin when a label is in doubt. A connection that was served for hours has no record
//! then, as one that was accepted just now. The first must not wait behind the hogs that the second may be. So each thread counts
//! the polls of the tasks that it polls, in a table by task id, up to 255: a load for a task that has them, and a store more until it
//! has. A table has one line of the cache for sixteen tasks and one writer, so that no line moves between CPUs at a poll. A task may
//! be polled by any thread, and the sum over all tables is asked for in doubt alone.
//!
//! After `n` short polls and no long one, the next is a long one with a probability of 1 in `n + 2` (Laplace's rule of succession). So
//! the counts also say which of two tasks goes first.
//!
//! Ids are unique in the process, and so is this list of tables. **A table is never freed.** The next thread that needs one gets
//! it, with its counts: they are about tasks, and stay true. A task that another one replaced in a table is no more than unknown. After
//! a burst of threads most tables are put away without their counts, or each sum would be over thousands of them from then on.

use std::cell::Cell;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use tokio::task::Id;

use crate::decide::records;
use morpheus_system::lock::lock;

/// Tasks that a table has room for: 8 KiB.
const TASKS: usize = 2048;
/// The lowest eight bits of an entry count polls, and the others name the task.
const MOST_POLLS: u32 = u8::MAX as u32;

/// Relaxed everywhere, and pairs with nothing: a poll more or less is no matter.
type Table = [AtomicU32; TASKS];

/// The most tables without a thread that keep their counts.
const MOST_FREE: usize = 64;

struct Tables {
    all: Vec<&'static Table>,
    /// Of these, the ones of threads that have ended.
    free: Vec<&'static Table>,
    /// Empty ones, which are not among all.
    put_away: Vec<&'static Table>,
}

static TABLES: Mutex<Tables> = Mutex::new(Tables {
    all: Vec::new(),
    free: Vec::new(),
    put_away: Vec::new(),
});

impl Tables {
    fn take(&mut self) -> &'static Table {
        if let Some(free) = self.free.pop() {
            return free;
        }
        let new = self.put_away.pop();
        let new = new.unwrap_or_else(|| Box::leak(Box::new([const { AtomicU32::new(0) }; TASKS])));
        self.all.push(new);
        new
    }

    fn give_back(&mut self, table: &'static Table) {
        if self.free.len() < MOST_FREE {
            self.free.push(table);
            return;
        }
        self.all.retain(|other| !std::ptr::eq(*other, table));
        for entry in table {
            entry.store(0, Ordering::Relaxed);
        }
        self.put_away.push(table);
    }
}

thread_local! {
    static OWN: Cell<Option<&'static Table>> = const { Cell::new(None) };
    static GIVE_BACK: GiveBack = const { GiveBack };
}

/// Gives the thread's table to the next one when the thread ends.
struct GiveBack;

impl Drop for GiveBack {
    fn drop(&mut self) {
        if let Some(own) = OWN.take() {
            lock(&TABLES).give_back(own);
        }
    }
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
    if GIVE_BACK.try_with(|_| ()).is_err() {
        return;
    }
    let table = lock(&TABLES).take();
    OWN.set(Some(table));
    count_in(table, task);
}

/// Returns the number of polls that the task had under a healthy label, at most 255.
pub(crate) fn of(task: Id) -> u8 {
    let (at, name) = place(task);
    let tables = lock(&TABLES);
    let each = tables.all.iter();
    let sum: u32 = each
        .map(|table| polls(table[at].load(Ordering::Relaxed), name))
        .sum();
    sum.min(MOST_POLLS) as u8
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

    #[test]
    fn a_burst_of_threads_leaves_few_tables() {
        let task = ids(1)[0];
        let threads = 4 * MOST_FREE;
        let before = lock(&TABLES).all.len();
        for _ in 0..2 {
            let together = std::sync::Barrier::new(threads);
            std::thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| {
                        count(task);
                        together.wait();
                    });
                }
            });
        }
        // Other tests have threads with tables at the same time; a scope does not wait for what threads do at their very end.
        let is_small = || lock(&TABLES).all.len() < before + 2 * MOST_FREE;
        let begun = std::time::Instant::now();
        while !is_small() && begun.elapsed() < std::time::Duration::from_secs(10) {
            std::thread::yield_now();
        }
        assert!(is_small());
        assert!(of(task) >= 3, "those that are left keep their counts");
    }

    #[test]
    fn the_table_of_a_thread_that_has_ended_is_used_again() {
        let task = ids(1)[0];
        // Other tests have threads with tables at the same time.
        let before = lock(&TABLES).all.len();
        for _ in 0..1_000 {
            std::thread::spawn(move || count(task)).join().unwrap();
        }
        assert!(lock(&TABLES).all.len() < before + 500);
    }
}
