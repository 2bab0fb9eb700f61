//! The state of the link: what the joiner, the controller and the workers tell each other.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering, fence};
use std::sync::{Mutex, OnceLock};

use morpheus_common::broker::{DEFAULT_SOCKET, SOCKET_VARIABLE};

use crate::choice::ActiveLink;
use crate::ring::Ring;
use crate::table::Lease;
use morpheus_system::lock::lock;

/// Returns the path of the daemon's socket, if the environment names one.
pub fn named_socket() -> Option<PathBuf> {
    std::env::var_os(SOCKET_VARIABLE).map(PathBuf::from)
}

/// Whether a daemon has run here: it makes the directory of its default socket.
pub fn has_default_directory() -> bool {
    // The directory is in a file system in memory, so this does not block the thread.
    Path::new(DEFAULT_SOCKET).parent().is_some_and(Path::is_dir)
}

/// A new link, on its way from the joiner to the controller.
#[derive(Debug)]
pub struct Handed {
    /// The daemon's events.
    pub ring: Ring,
    /// The memory that the daemon shared.
    pub lease: Lease,
    /// When it was joined, in nanoseconds of `CLOCK_MONOTONIC`.
    pub joined_ns: u64,
}

/// The state of the link, shared by the joiner, the controller and the workers.
#[derive(Debug, Default)]
pub struct State {
    /// An [`ActiveLink`], for `Runtime::link` and metrics.
    active: AtomicU8,
    /// Wakes the joiner; set when the joiner starts.
    pub bell: OnceLock<OwnedFd>,
    /// Wakes a controller that listens to a ring.
    pub controller_bell: OnceLock<OwnedFd>,
    /// The new link that the controller has not taken yet.
    handed: Mutex<Option<Handed>>,
    is_handed: AtomicBool,
    /// Set by the joiner if the daemon has ended, and by the controller if it is silent.
    pub is_lost: AtomicBool,
    stops: AtomicBool,
    /// No daemon has run here: the joiner starts when the directory of its socket exists.
    waits_for_directory: AtomicBool,
    /// The number of times that a daemon was joined.
    pub joined: AtomicU64,
    /// The number of links that ended while the runtime was running.
    pub lost: AtomicU64,
    /// Time at which the kernel side was last found silent, in nanoseconds; 0 if it never was.
    pub silent_ns: AtomicU64,
    /// Events that the controller read.
    pub events: AtomicU64,
}

impl State {
    /// Returns the link in force.
    pub fn active(&self) -> ActiveLink {
        // Acquire, pairs with the Release in `set_active`: a link that is seen to be over is among those that were lost.
        match self.active.load(Ordering::Acquire) {
            0 => ActiveLink::Watchdog,
            1 => ActiveLink::Observer,
            _ => ActiveLink::Scheduler,
        }
    }

    /// Sets the link in force.
    pub fn set_active(&self, link: ActiveLink) {
        // Release, pairs with the Acquire in `active`.
        self.active.store(link as u8, Ordering::Release);
    }

    /// Makes the controller check for the directory of the default socket from now on. No thread waits for a daemon.
    pub fn wait_for_directory(&self) {
        // Relaxed, pairs with nothing: the controller samples the flag, and one of its samples starts the joiner.
        self.waits_for_directory.store(true, Ordering::Relaxed);
    }

    /// Whether the directory that the controller waits for exists; true once for each
    /// [`wait_for_directory`](State::wait_for_directory).
    pub fn has_found_directory(&self) -> bool {
        let found = self.waits_for_directory.load(Ordering::Relaxed) && has_default_directory();
        if found {
            self.waits_for_directory.store(false, Ordering::Relaxed);
        }
        found
    }

    /// Wakes the joiner, because the link needs it.
    pub fn wake_joiner(&self) {
        ring(&self.bell);
    }

    /// Tells the joiner that a thread took or left a slot.
    pub fn slots_changed(&self) {
        // SeqCst, pairs with the fence in `Session::begin`. Either the joiner, which checks all slots after it has
        // set `active`, finds the change, or this load finds the link active.
        fence(Ordering::SeqCst);
        if self.active() != ActiveLink::Watchdog {
            self.wake_joiner();
        }
    }

    /// Wakes a controller that waits on a ring; a controller without a ring is woken by its sleeper.
    pub fn wake_controller(&self) {
        ring(&self.controller_bell);
    }

    /// Ends the link and its thread.
    pub fn stop(&self) {
        self.stops.store(true, Ordering::Release);
        self.wake_joiner();
    }

    /// Whether [`stop`](Self::stop) was called.
    pub fn stops(&self) -> bool {
        // Acquire, pairs with the Release in `stop`.
        self.stops.load(Ordering::Acquire)
    }

    /// Takes the controller's end of a new link.
    pub fn take_handed(&self) -> Option<Handed> {
        // Acquire, pairs with the Release in `hand`. The mutex alone would do, and this load is cheaper.
        if !self.is_handed.load(Ordering::Acquire) {
            return None;
        }
        self.is_handed.store(false, Ordering::Relaxed);
        self.handed().take()
    }

    /// Hands a new link to the controller.
    pub fn hand(&self, mapped: Handed) {
        *self.handed() = Some(mapped);
        self.is_handed.store(true, Ordering::Release);
    }

    fn handed(&self) -> std::sync::MutexGuard<'_, Option<Handed>> {
        lock(&self.handed)
    }

    /// Whether the link is lost. For the controller.
    pub fn is_lost(&self) -> bool {
        // Acquire, pairs with the Release in `lose`.
        self.is_lost.load(Ordering::Acquire)
    }

    /// Marks the link as lost: the daemon has ended, or is silent.
    pub fn lose(&self) {
        self.is_lost.store(true, Ordering::Release);
    }
}

fn ring(bell: &OnceLock<OwnedFd>) {
    if let Some(bell) = bell.get() {
        // Fails only if the counter is at its limit of 2⁶⁴ − 2, and then the bell rings already.
        let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
    }
}
