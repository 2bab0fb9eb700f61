//! Links: how the controller learns which workers are stalled.
//!
//! The watchdog needs only Linux and is always available. With a daemon (`scx_morpheus`) the slots lie in memory that
//! the kernel side reads. The kernel side then reports at once what the watchdog would find at its next sample. The
//! parts of a link, in the order of their use:
//!
//! ```text
//! presence   waits until the daemon's socket appears
//! client     connects, sends Hello, maps the reply (area, ring)
//! joiner     a thread: shares the area with the slots and binds each worker that moves there, until the
//!            daemon or the runtime ends
//! mapped     the controller's end: events, sleeping workers, the heartbeat
//! ```
//!
//! The ladder in [`morpheus_common::ladder`] decides what is done about the stalls that a link finds.

pub(crate) mod choice;
pub(crate) mod client;
pub(crate) mod presence;
pub(crate) mod ring;

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering, fence};
use std::sync::{Mutex, OnceLock};

use morpheus_common::broker::{DEFAULT_SOCKET, SOCKET_VARIABLE};

use crate::slot::table::Lease;

pub use choice::{ActiveLink, Link, LinkError};

/// Returns the path of the daemon's socket, if the environment names one.
pub(crate) fn named_socket() -> Option<PathBuf> {
    std::env::var_os(SOCKET_VARIABLE).map(PathBuf::from)
}

/// Whether a daemon has run here: it makes the directory of its default socket.
pub(crate) fn has_default_directory() -> bool {
    // The directory is in a file system in memory, so this does not block the thread.
    Path::new(DEFAULT_SOCKET).parent().is_some_and(Path::is_dir)
}

/// A new link, on its way from the joiner to the controller.
#[derive(Debug)]
pub(crate) struct Handed {
    pub(crate) ring: ring::Ring,
    pub(crate) lease: Lease,
    pub(crate) joined_ns: u64,
}

/// The state of the link, shared by the joiner, the controller and the workers.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// An [`ActiveLink`], for [`Runtime::link`](crate::Runtime::link) and metrics.
    active: AtomicU8,
    /// Wakes the joiner; set when the joiner starts.
    pub(crate) bell: OnceLock<OwnedFd>,
    /// Wakes a controller that listens to a ring.
    pub(crate) controller_bell: OnceLock<OwnedFd>,
    /// The new link that the controller has not taken yet.
    handed: Mutex<Option<Handed>>,
    is_handed: AtomicBool,
    /// Set by the joiner if the daemon has ended, and by the controller if it is silent.
    pub(crate) is_lost: AtomicBool,
    stops: AtomicBool,
    /// No daemon has run here: the joiner starts when the directory of its socket exists.
    waits_for_directory: AtomicBool,
    /// How often a daemon was joined, and how often one was lost while the runtime was running.
    pub(crate) joined: AtomicU64,
    pub(crate) lost: AtomicU64,
    /// Time at which the kernel side was last found silent, in nanoseconds; 0 if it never was.
    pub(crate) silent_ns: AtomicU64,
    pub(crate) events: AtomicU64,
}

impl State {
    pub(crate) fn active(&self) -> ActiveLink {
        // Relaxed, as for all accesses to this word: it orders nothing.
        match self.active.load(Ordering::Relaxed) {
            0 => ActiveLink::Watchdog,
            1 => ActiveLink::Observer,
            _ => ActiveLink::Scheduler,
        }
    }

    pub(crate) fn set_active(&self, link: ActiveLink) {
        self.active.store(link as u8, Ordering::Relaxed);
    }

    /// Makes the controller check for the directory of the default socket from now on. No thread waits for a daemon.
    pub(crate) fn wait_for_directory(&self) {
        // Relaxed, pairs with nothing: the controller samples the flag, and one of its samples starts the joiner.
        self.waits_for_directory.store(true, Ordering::Relaxed);
    }

    /// Whether the directory that the controller waits for exists; true once.
    pub(crate) fn has_found_directory(&self) -> bool {
        let found = self.waits_for_directory.load(Ordering::Relaxed) && has_default_directory();
        if found {
            self.waits_for_directory.store(false, Ordering::Relaxed);
        }
        found
    }

    /// Wakes the joiner, because the link needs it.
    pub(crate) fn wake_joiner(&self) {
        ring(&self.bell);
    }

    /// Tells the joiner that a thread took or left a slot.
    pub(crate) fn slots_changed(&self) {
        // SeqCst, pairs with the fence in `Session::begin`. Either the joiner, which checks all slots after it has
        // set `active`, finds the change, or this load finds the link active.
        fence(Ordering::SeqCst);
        if self.active() != ActiveLink::Watchdog {
            self.wake_joiner();
        }
    }

    /// Wakes a controller that waits on a ring; a controller without a ring is woken by its sleeper.
    pub(crate) fn wake_controller(&self) {
        ring(&self.controller_bell);
    }

    /// Ends the link and its thread.
    pub(crate) fn stop(&self) {
        self.stops.store(true, Ordering::Release);
        self.wake_joiner();
    }

    pub(crate) fn stops(&self) -> bool {
        // Acquire, pairs with the Release in `stop`.
        self.stops.load(Ordering::Acquire)
    }

    /// Takes the controller's end of a new link.
    pub(crate) fn take_handed(&self) -> Option<Handed> {
        // Acquire, pairs with the Release in `hand`. The mutex alone would do, and this load is cheaper.
        if !self.is_handed.load(Ordering::Acquire) {
            return None;
        }
        self.is_handed.store(false, Ordering::Relaxed);
        self.handed().take()
    }

    pub(crate) fn hand(&self, mapped: Handed) {
        *self.handed() = Some(mapped);
        self.is_handed.store(true, Ordering::Release);
    }

    fn handed(&self) -> std::sync::MutexGuard<'_, Option<Handed>> {
        self.handed
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Whether the link is lost. For the controller.
    pub(crate) fn is_lost(&self) -> bool {
        // Acquire, pairs with the Release in `lose`.
        self.is_lost.load(Ordering::Acquire)
    }

    /// Marks the link as lost: the daemon has ended, or is silent.
    pub(crate) fn lose(&self) {
        self.is_lost.store(true, Ordering::Release);
    }
}

fn ring(bell: &OnceLock<OwnedFd>) {
    if let Some(bell) = bell.get() {
        // Fails only if the counter is at its limit of 2⁶⁴ − 2, and then the bell rings already.
        let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
    }
}
