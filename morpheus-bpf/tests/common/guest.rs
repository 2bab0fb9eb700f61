// SPDX-License-Identifier: GPL-2.0-only
//! The common part of the tests of the scheduler.

use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use morpheus_common::abi;
use morpheus_common::broker::Request;
use morpheus_common::slot::{RuntimeSlot, SlotFlag};

use super::client::Client;
use super::daemon::Daemon;
use super::load::Busy;
use super::{BUDGET, PATIENCE, in_guest};

const STATE: &str = "/sys/kernel/sched_ext/state";

/// Where this is no guest of the tests, it says so.
pub fn can_run() -> bool {
    if in_guest() {
        assert!(
            fs::exists(STATE).unwrap(),
            "this guest's kernel has no sched_ext"
        );
        return true;
    }
    morpheus_testing::leave_to_guest();
    false
}

pub fn state() -> String {
    fs::read_to_string(STATE).unwrap().trim().to_owned()
}

/// Whether the kernel has a function of this name.
pub fn kernel_has(function: &str) -> bool {
    let symbols = fs::read_to_string("/proc/kallsyms").unwrap();
    symbols.contains(&format!(" {function}\n"))
}

pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + PATIENCE;
    while !condition() {
        assert!(Instant::now() < until, "in vain: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub fn cpus() -> usize {
    std::thread::available_parallelism().unwrap().get()
}

pub fn hello(policy: u32) -> Request {
    Request::Hello {
        abi_version: abi::MORPHEUS_ABI_VERSION,
        slots: 8,
        policy,
        budget_ns: BUDGET.as_nanos() as u64,
        grace_ns: 1_000_000,
    }
}

pub fn client(daemon: &Daemon, policy: u32) -> Arc<Client> {
    Arc::new(Client::with(&daemon.socket, hello(policy)))
}

/// A worker that is in one watched poll for ever.
pub fn stalled_worker(client: &Arc<Client>, slot: u32, prepare: fn(&RuntimeSlot)) -> Busy {
    let client = Arc::clone(client);
    Busy::new(move || be_stalled(&client, slot, prepare))
}

/// Makes the calling thread one.
pub fn be_stalled(client: &Client, slot: u32, prepare: fn(&RuntimeSlot)) {
    let slot = client.register(slot);
    slot.set_flag(SlotFlag::Demotable);
    slot.set_flag(SlotFlag::Handoff);
    slot.unpark();
    prepare(slot);
    slot.begin_poll();
}
