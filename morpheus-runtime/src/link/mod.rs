//! Links: where the controller learns which workers are stalled.
//!
//! The watchdog needs nothing but Linux, and is always there. With a daemon (`scx_morpheus`) the slots
//! lie in memory that the kernel side reads, which then says at once what the watchdog would find at its
//! next sample. Life of a link:
//!
//! ```text
//! presence   waits for the daemon's socket to appear
//! client     connects, says Hello, maps what comes back (area, ring)
//! joiner     a thread: shares the area to the slots, binds each worker that moves there, until the daemon
//!            or the runtime goes
//! mapped     the controller's end: events, sleepers, the heartbeat
//! ```
//!
//! Whatever a link finds, the ladder in [`morpheus_common::ladder`] decides what is done about it.

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

/// Where the daemon listens, where that was said for this process.
pub(crate) fn named_socket() -> Option<PathBuf> {
    std::env::var_os(SOCKET_VARIABLE).map(PathBuf::from)
}

/// Whether a daemon has been here: it makes the directory of its default socket.
pub(crate) fn has_default_directory() -> bool {
    // Of a file system in memory, so that this blocks no thread.
    Path::new(DEFAULT_SOCKET).parent().is_some_and(Path::is_dir)
}

/// A link that was just made, on its way to the controller.
#[derive(Debug)]
pub(crate) struct Handed {
    pub(crate) ring: ring::Ring,
    pub(crate) lease: Lease,
    pub(crate) joined_ns: u64,
}

/// What the joiner, the controller and the workers tell each other of the link.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// An [`ActiveLink`], for who asks.
    active: AtomicU8,
    /// Wakes the joiner; there from its start on.
    pub(crate) bell: OnceLock<OwnedFd>,
    /// Wakes a controller that listens to a ring.
    pub(crate) controller_bell: OnceLock<OwnedFd>,
    /// From the joiner to the controller.
    handed: Mutex<Option<Handed>>,
    is_handed: AtomicBool,
    /// The joiner says that the daemon has gone, the controller that it is silent.
    pub(crate) is_lost: AtomicBool,
    stops: AtomicBool,
    /// No daemon has been here: the joiner starts when the directory of its socket is there.
    waits_for_directory: AtomicBool,
    /// How often a daemon was joined, and how often it went while the runtime was there.
    pub(crate) joined: AtomicU64,
    pub(crate) lost: AtomicU64,
    /// When the kernel side was last found silent; 0 if it never was.
    pub(crate) silent_ns: AtomicU64,
    pub(crate) events: AtomicU64,
}

impl State {
    pub(crate) fn active(&self) -> ActiveLink {
        // Relaxed, as all of these: it orders nothing.
        match self.active.load(Ordering::Relaxed) {
            0 => ActiveLink::Watchdog,
            1 => ActiveLink::Observer,
            _ => ActiveLink::Scheduler,
        }
    }

    pub(crate) fn set_active(&self, link: ActiveLink) {
        self.active.store(link as u8, Ordering::Relaxed);
    }

    /// The controller looks for the directory of the default socket from now on, and no thread waits for a daemon.
    pub(crate) fn wait_for_directory(&self) {
        // Relaxed: the controller samples it, and one of its samples starts the joiner.
        self.waits_for_directory.store(true, Ordering::Relaxed);
    }

    /// Whether the directory is there that was waited for; true once.
    pub(crate) fn has_found_directory(&self) -> bool {
        let found = self.waits_for_directory.load(Ordering::Relaxed) && has_default_directory();
        if found {
            self.waits_for_directory.store(false, Ordering::Relaxed);
        }
        found
    }

    /// Something is to be done about the link.
    pub(crate) fn wake_joiner(&self) {
        ring(&self.bell);
    }

    /// Somebody took or left a slot.
    pub(crate) fn slots_changed(&self) {
        // SeqCst, pairs with the fence in `Session::begin`: either the joiner, which looks at all slots after it
        // has set `active`, finds the change, or this finds the link active.
        fence(Ordering::SeqCst);
        if self.active() != ActiveLink::Watchdog {
            self.wake_joiner();
        }
    }

    /// Wakes a controller that listens to a ring; another one has its own way.
    pub(crate) fn wake_controller(&self) {
        ring(&self.controller_bell);
    }

    /// Ends the link, and its thread.
    pub(crate) fn stop(&self) {
        self.stops.store(true, Ordering::Release);
        self.wake_joiner();
    }

    pub(crate) fn stops(&self) -> bool {
        // Acquire, pairs with the Release in `stop`.
        self.stops.load(Ordering::Acquire)
    }

    /// The controller's end of a link that was just made.
    pub(crate) fn take_handed(&self) -> Option<Handed> {
        // Acquire, pairs with the Release in `hand`; the mutex would do, and this is cheaper.
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

    /// The joiner found the daemon gone. For the controller.
    pub(crate) fn is_lost(&self) -> bool {
        // Acquire, pairs with the Release in `lose`.
        self.is_lost.load(Ordering::Acquire)
    }

    /// Says that the daemon has gone, or is silent.
    pub(crate) fn lose(&self) {
        self.is_lost.store(true, Ordering::Release);
    }
}

fn ring(bell: &OnceLock<OwnedFd>) {
    if let Some(bell) = bell.get() {
        // Fails only when it rings already, 2⁶⁴ times.
        let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
    }
}
