// SPDX-License-Identifier: GPL-2.0-only
//! The maps of maps, in which a lease's maps are found by its number; changed without waiting.
//!
//! The kernel ends every change of such a map with a wait: until no program can be left that has seen it as it was
//! (`synchronize_rcu`, 8 to 16 ms each time on the machine where this was found, three times for a lease). The daemon
//! needs none of that: no program uses a new lease's number before it is told, and one that still sees an old lease
//! finds it without a reader. So a thread makes the change and waits, and the daemon goes on as soon as the change can
//! be seen.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, RecvTimeoutError, bounded};
use libbpf_rs::libbpf_sys;

use crate::session::LeaseNumber;

/// How many changes may be waited for at once; the daemon waits for further ones itself.
pub(crate) const MOST_CHANGES: usize = 192;

/// How often it is looked whether a change can be seen.
const LOOK: Duration = Duration::from_micros(20);

/// A thread that makes a change calls the kernel, and no more.
const STACK_BYTES: usize = 64 << 10;

/// Makes changes.
#[derive(Debug, Default)]
pub(crate) struct Leases {
    under_way: Arc<AtomicUsize>,
}

/// An element that is being inserted.
struct Insertion<'a> {
    map: BorrowedFd<'a>,
    lease: LeaseNumber,
    result: Receiver<io::Result<()>>,
}

impl Leases {
    /// Puts maps of a lease into maps of maps. They can be found there when this returns.
    ///
    /// # Errors
    ///
    /// When the kernel refuses one of them; others may be there.
    pub(crate) fn insert(
        &self,
        lease: LeaseNumber,
        elements: &[(BorrowedFd<'_>, &OwnedFd)],
    ) -> io::Result<()> {
        let insertions: Vec<Insertion<'_>> = elements
            .iter()
            .map(|(map, element)| self.begin(*map, lease, element))
            .collect::<io::Result<_>>()?;
        insertions.iter().try_for_each(Insertion::wait)
    }

    /// Takes what a lease has out of maps of maps: soon, and without waiting for it.
    pub(crate) fn remove(&self, lease: LeaseNumber, maps: &[BorrowedFd<'_>]) {
        for map in maps {
            let Ok(map) = map.try_clone_to_owned() else {
                delete(*map, lease);
                continue;
            };
            self.run(move || delete(map.as_fd(), lease));
        }
    }

    fn begin<'a>(
        &self,
        map: BorrowedFd<'a>,
        lease: LeaseNumber,
        element: &OwnedFd,
    ) -> io::Result<Insertion<'a>> {
        let (sender, result) = bounded(1);
        // The thread may be at it when the daemon has closed them.
        let (own_map, element) = (map.try_clone_to_owned()?, element.try_clone()?);
        self.run(move || {
            // There is no receiver any more once the change has been seen.
            let _ = sender.send(insert(own_map.as_fd(), lease, element.as_fd()));
        });
        Ok(Insertion { map, lease, result })
    }

    /// Runs `change` on a thread, or here where there are too many or none can be had.
    fn run(&self, change: impl FnOnce() + Send + 'static) {
        // Relaxed: a number, which guards nothing.
        if self.under_way.fetch_add(1, Ordering::Relaxed) >= MOST_CHANGES {
            self.under_way.fetch_sub(1, Ordering::Relaxed);
            return change();
        }
        let under_way = Arc::clone(&self.under_way);
        // Taken by the thread that gets to run it: one that could not be started has dropped its half.
        let change = Arc::new(std::sync::Mutex::new(Some(change)));
        let taken = Arc::clone(&change);
        let run = move || {
            let change = taken.lock().ok().and_then(|mut change| change.take());
            if let Some(change) = change {
                change();
            }
            under_way.fetch_sub(1, Ordering::Relaxed);
        };
        let started = thread::Builder::new().stack_size(STACK_BYTES).spawn(run);
        if started.is_err() {
            self.under_way.fetch_sub(1, Ordering::Relaxed);
            let change = change.lock().ok().and_then(|mut change| change.take());
            if let Some(change) = change {
                change();
            }
        }
    }
}

impl Insertion<'_> {
    /// Waits until the element can be found, or was refused.
    fn wait(&self) -> io::Result<()> {
        loop {
            match self.result.recv_timeout(LOOK) {
                Ok(result) => return result,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(io::Error::other("the thread that changes a map has died"));
                }
                Err(RecvTimeoutError::Timeout) if is_there(self.map, self.lease) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

fn insert(map: BorrowedFd<'_>, lease: LeaseNumber, element: BorrowedFd<'_>) -> io::Result<()> {
    let fd = element.as_raw_fd();
    // SAFETY: the map's keys and values are numbers of four bytes, as are both locals.
    let result = unsafe {
        libbpf_sys::bpf_map_update_elem(
            map.as_raw_fd(),
            (&raw const lease).cast(),
            (&raw const fd).cast(),
            libbpf_sys::BPF_NOEXIST.into(),
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::from_raw_os_error(-result))
    }
}

/// Removes a lease's element. A missing one needs no removal, and nothing else can go wrong.
fn delete(map: BorrowedFd<'_>, lease: LeaseNumber) {
    // SAFETY: the map's keys are numbers of four bytes, as is the local.
    unsafe { libbpf_sys::bpf_map_delete_elem(map.as_raw_fd(), (&raw const lease).cast()) };
}

fn is_there(map: BorrowedFd<'_>, lease: LeaseNumber) -> bool {
    let mut id = 0u32;
    // SAFETY: the map's keys and what is read of its values are numbers of four bytes, as are both locals.
    let result = unsafe {
        libbpf_sys::bpf_map_lookup_elem(
            map.as_raw_fd(),
            (&raw const lease).cast(),
            (&raw mut id).cast(),
        )
    };
    result == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_is_made_once_also_when_there_are_too_many() {
        let leases = Leases::default();
        let made = Arc::new(AtomicUsize::new(0));
        let (release, wait) = bounded::<()>(0);
        for _ in 0..MOST_CHANGES {
            let (made, wait) = (Arc::clone(&made), wait.clone());
            leases.run(move || {
                // Until the sender is dropped.
                let _ = wait.recv();
                made.fetch_add(1, Ordering::SeqCst);
            });
        }
        assert_eq!(made.load(Ordering::SeqCst), 0);
        // One too many is made here and now.
        let own = thread::current().id();
        let (sender, by) = bounded(1);
        leases.run(move || sender.send(thread::current().id()).unwrap());
        assert_eq!(by.try_recv(), Ok(own));
        drop(release);
        let until = std::time::Instant::now() + Duration::from_secs(20);
        while leases.under_way.load(Ordering::SeqCst) > 0 {
            assert!(std::time::Instant::now() < until);
            thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(made.load(Ordering::SeqCst), MOST_CHANGES);
    }

    #[test]
    fn a_refusal_is_told() {
        // No map at all.
        let null = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        let leases = Leases::default();
        assert!(leases.insert(1, &[(null.as_fd(), &null)]).is_err());
        leases.remove(1, &[null.as_fd()]);
    }
}
