// SPDX-License-Identifier: GPL-2.0-only
//! Closes what strangers have made: sockets of peers, and descriptors that they sent.
//!
//! To close one may wait, and for as long as its maker likes: a socket that lingers until its other end has taken all, a file of a
//! file system in user space. The last owner waits, and a socket owns the descriptors in packets that were never read. The daemon's one
//! thread must not be that owner: its heartbeats would stop, and every application would take it for dead. So other threads close,
//! and a user who has them wait gets no new connection until they have done.
//!
//! Where one thread waits, another one takes its place, up to [`MOST_THREADS`]. Then nothing is closed any more until one of them is
//! done: descriptors run out at worst. Then no application connects, and those that are connected notice nothing. On Linux 6.16 it
//! does not come to that: a connection without a lease can send no descriptor (`broker::take_rights`), and leases are limited by user.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::accounts::Account;

/// The most threads that close.
const MOST_THREADS: usize = 64;
/// How long a close may take before another thread takes over, and its maker is thought to be to blame.
const LONG: Duration = Duration::from_millis(50);
/// How long a thread waits for more before it ends.
const IDLE: Duration = Duration::from_secs(2);

#[derive(Debug, Default)]
struct State {
    /// Whose descriptors are to be closed.
    queue: VecDeque<(Account, OwnedFd)>,
    /// Whose descriptors threads close now, and since when.
    closing: Vec<(Account, Instant)>,
    threads: usize,
}

impl State {
    /// For whom threads have waited for long, once for each thread.
    fn waiting(&self) -> impl Iterator<Item = Account> {
        let long = |(_, since): &&(Account, Instant)| since.elapsed() >= LONG;
        self.closing
            .iter()
            .filter(long)
            .map(|(account, _)| *account)
    }
}

/// The threads that close.
#[derive(Debug, Default)]
pub(crate) struct Closer {
    shared: Arc<(Mutex<State>, Condvar)>,
}

impl Closer {
    /// Has a descriptor closed that a user made. Returns at once.
    pub(crate) fn close(&self, descriptor: OwnedFd, account: Account) {
        let mut state = lock(&self.shared.0);
        state.queue.push_back((account, descriptor));
        self.provide(&mut state);
        self.shared.1.notify_one();
    }

    /// Whether descriptors of this user take long to close.
    pub(crate) fn waits_for(&self, account: Account) -> bool {
        let state = lock(&self.shared.0);
        state.waiting().any(|of| of == account)
    }

    /// When to call [`look`](Self::look) again, if there is a reason.
    pub(crate) fn next(&self, now: Instant) -> Option<Instant> {
        (!lock(&self.shared.0).queue.is_empty()).then_some(now + LONG)
    }

    /// Starts one more thread where all that there are wait.
    pub(crate) fn look(&self) {
        self.provide(&mut lock(&self.shared.0));
    }

    fn provide(&self, state: &mut State) {
        let all_wait = state.waiting().count() == state.threads;
        if state.queue.is_empty() || !all_wait || state.threads >= MOST_THREADS {
            return;
        }
        let shared = self.shared.clone();
        let builder = thread::Builder::new().name("morpheus-close".into());
        // Where there is no thread for it, the next look tries again.
        if builder.spawn(move || work(&shared)).is_ok() {
            state.threads += 1;
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The life of a thread.
fn work(shared: &(Mutex<State>, Condvar)) {
    let mut state = lock(&shared.0);
    loop {
        let Some((account, descriptor)) = state.queue.pop_front() else {
            let waited = shared
                .1
                .wait_timeout_while(state, IDLE, |state| state.queue.is_empty());
            let (now, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = now;
            if timeout.timed_out() {
                state.threads -= 1;
                return;
            }
            continue;
        };
        let this = (account, Instant::now());
        state.closing.push(this);
        drop(state);
        drop(descriptor);
        state = lock(&shared.0);
        if let Some(index) = state.closing.iter().position(|entry| *entry == this) {
            state.closing.swap_remove(index);
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use morpheus_testing::{lingering, wait_for};

    use super::*;

    #[test]
    fn a_close_that_waits_holds_up_neither_the_caller_nor_others() {
        let (one, other) = (Account::User(1), Account::User(2));
        let closer = Closer::default();
        let (socket, listener) = lingering(Duration::from_secs(2));
        let start = Instant::now();
        closer.close(socket.into(), one);
        assert!(start.elapsed() < Duration::from_secs(1));
        wait_for("it waits", || closer.waits_for(one));
        assert!(!closer.waits_for(other));
        // The reader's end finds the writer's closed.
        let (reader, writer) = std::io::pipe().unwrap();
        closer.close(writer.into(), other);
        wait_for("another thread closes it", || {
            closer.look();
            let mut fds = [PollFd::new(&reader, PollFlags::IN)];
            poll(&mut fds, Some(&Timespec::default())) == Ok(1)
        });
        assert!(closer.waits_for(one) && closer.next(Instant::now()).is_none());
        wait_for("it is over", || !closer.waits_for(one));
        drop(listener);
        wait_for("they end", || lock(&closer.shared.0).threads == 0);
    }
}
