// SPDX-License-Identifier: GPL-2.0-only
//! An application.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use morpheus_common::abi;
use morpheus_common::broker::{Reply, Request};
use morpheus_common::slot::{KernelSlot, RuntimeSlot, WorkerState};

use super::daemon::Daemon;
use super::memory::{Mapping, area_bytes};
use super::ring::Ring;
use super::wire::{ask, connect, gettid, pidfd, receive, send};
use super::{BUDGET, sleep};

/// A watched poll in which the calling thread, whose slot it is, sleeps.
pub fn sleep_in_poll(slot: &RuntimeSlot, duration: Duration) -> u64 {
    slot.unpark();
    let seq = slot.begin_poll();
    sleep(duration);
    slot.end_poll(seq);
    slot.park();
    seq
}

/// An application.
pub struct Client {
    pub socket: OwnedFd,
    /// A `morpheus_kernel_mode`.
    pub mode: u32,
    pub slots: u32,
    pub runtime: Mapping,
    pub runtime_fd: OwnedFd,
    pub kernel: Mapping,
    pub kernel_fd: OwnedFd,
    pub ring: Ring,
}

pub const HELLO: Request = hello(8, BUDGET);

pub const fn hello(slots: u32, budget: Duration) -> Request {
    Request::Hello {
        abi_version: abi::MORPHEUS_ABI_VERSION,
        slots,
        policy: abi::MORPHEUS_POLICY_TAKEOVER,
        budget_ns: budget.as_nanos() as u64,
        grace_ns: 1_000_000,
    }
}

impl Client {
    pub fn new(daemon: &Daemon) -> Client {
        Client::at(&daemon.socket)
    }

    pub fn at(path: &Path) -> Client {
        Client::with(path, HELLO)
    }

    pub fn with(path: &Path, hello: Request) -> Client {
        let socket = connect(path);
        send(&socket, hello.encode().bytes(), &[]).unwrap();
        let (reply, fds) = receive(&socket).unwrap();
        let Reply::Welcome { mode, slots } = reply else {
            panic!("not welcome: {reply:?}");
        };
        assert!(matches!(hello, Request::Hello { slots: asked, .. } if asked == slots));
        let [runtime, kernel, ring] = fds.try_into().unwrap();
        Client {
            runtime: Mapping::new(&runtime, area_bytes(slots), 0).unwrap(),
            kernel: Mapping::for_reading(&kernel, area_bytes(slots), 0).unwrap(),
            runtime_fd: runtime,
            kernel_fd: kernel,
            ring: Ring::map(ring),
            socket,
            mode,
            slots,
        }
    }

    /// Registers the calling thread, parked: else each of its waits, for an event too, would be an event.
    pub fn register(&self, slot: u32) -> &'static RuntimeSlot {
        self.bind(slot, gettid());
        let runtime = self.runtime_slot(slot);
        runtime.park();
        runtime.set_state(WorkerState::Running);
        runtime
    }

    /// Gives a slot to a thread of this process.
    pub fn bind(&self, slot: u32, tid: u32) {
        let reply = ask(
            &self.socket,
            Request::Register { slot, tid },
            &[pidfd(tid).as_fd()],
        );
        assert_eq!(reply, Reply::Registered { slot });
    }

    pub fn runtime_slot(&self, slot: u32) -> &'static RuntimeSlot {
        assert!(slot < self.slots);
        // SAFETY: the area has `slots` entries after its header, and is mapped for writing.
        unsafe { self.runtime.at(64 * (1 + slot as usize)) }
    }

    pub fn kernel_slot(&self, slot: u32) -> &'static KernelSlot {
        assert!(slot < self.slots);
        // SAFETY: as above; only words are read here.
        unsafe { self.kernel.at(64 * (1 + slot as usize)) }
    }

    /// Ends the lease, and gives back its memory.
    ///
    /// # Safety
    ///
    /// No slot of this client is used from now on.
    pub unsafe fn end(self) {
        for mapping in [
            self.runtime,
            self.kernel,
            self.ring.consumer,
            self.ring.producer,
        ] {
            // SAFETY: the client is gone, and the caller promises that none of its slots is used again.
            unsafe { mapping.unmap() };
        }
    }

    pub fn heartbeat(&self) -> u64 {
        let offset = std::mem::offset_of!(abi::morpheus_kernel_header, heartbeat_ns);
        // SAFETY: the header has this word.
        unsafe { self.kernel.at::<AtomicU64>(offset) }.load(Ordering::Relaxed)
    }
}
