// SPDX-License-Identifier: GPL-2.0-only
//! The requests of one connection, and the answers to them.
//!
//! A session knows neither the socket nor BPF: it is handed packets, and asks a [`KernelSide`]. Whatever comes in, it
//! answers with a reply or a refusal.
//!
//! Invariant: a slot has a thread here exactly if that thread was bound to it and not unbound.

use std::io;
use std::num::NonZeroU32;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use morpheus_common::abi;
use morpheus_common::broker::{Refusal, Reply, Request};
use rustix::param::page_size;

use crate::bucket::Bucket;
use crate::connections::Ladder;
use crate::line_writer;
use crate::peer::{self, Peer, TooManyLookups};
use crate::pressure::Pressure;
use crate::quota::{Charge, MapId};

/// Every ring of events has this size; its descriptor says so in `/proc/self/fdinfo`, as `max_entries`.
pub const RING_BYTES: u32 = 1 << 16;
/// Entries of both areas.
pub(crate) const ENTRY_BYTES: usize = 64;

/// A lease's number. None is used twice, so that remains of an old one concern no other.
pub type LeaseNumber = u32;

/// The terms of an application's lease, from its `Hello`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    /// How many slots it has.
    pub slots: u32,
    /// A `morpheus_policy`.
    pub policy: u32,
    /// Nanoseconds after which a poll is stalled.
    pub budget_ns: u64,
    /// Nanoseconds that it has to answer a request.
    pub grace_ns: u64,
}

/// The descriptors that an application gets.
#[derive(Debug)]
pub struct Areas {
    /// The runtime's: it may be mapped for writing.
    pub runtime: OwnedFd,
    /// The kernel's: frozen.
    pub kernel: OwnedFd,
    /// The events.
    pub ring: OwnedFd,
    /// The numbers of the three, in this order.
    pub maps: [MapId; 3],
}

/// Bytes of kernel memory that the runtime's area takes, and so does the kernel's: whole pages for the slots with their
/// header, and two for what the kernel notes of the map.
#[must_use]
pub fn area_bytes(slots: u32) -> u64 {
    let page = page_size() as u64;
    ((u64::from(slots) + 1) * ENTRY_BYTES as u64).next_multiple_of(page) + 2 * page
}

/// Bytes of kernel memory that a ring of events takes: its data, the pages of the two positions, and what the kernel notes.
#[must_use]
pub fn ring_bytes() -> u64 {
    u64::from(RING_BYTES) + 4 * page_size() as u64
}

/// Bytes of kernel memory that a lease takes.
#[must_use]
pub fn lease_bytes(slots: u32) -> u64 {
    2 * area_bytes(slots) + ring_bytes()
}

/// The one who is charged for a session's areas.
pub trait Payer {
    /// Charges kernel memory before it is allocated.
    ///
    /// # Errors
    ///
    /// The refusal to answer with.
    fn take(&mut self, bytes: u64) -> Result<(), Refusal>;

    /// Takes off a charge for what was not allocated.
    fn give_back(&mut self, bytes: u64);

    /// Whether one more thread may be looked up.
    fn may_look_up(&mut self) -> bool;
}

/// A thread that is to be bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding {
    /// Whose slot it is.
    pub lease: LeaseNumber,
    /// From 0.
    pub slot: u32,
    /// The thread, as the daemon sees it.
    pub tid: u32,
    /// Its process. The thread has this number after it called `execve`.
    pub tgid: u32,
}

impl Binding {
    fn of(peer: &Peer, lease: LeaseNumber, slot: u32, tid: NonZeroU32) -> Binding {
        Binding {
            lease,
            slot,
            tid: tid.get(),
            tgid: peer.tgid,
        }
    }
}

/// The operations of the kernel side that a session uses.
pub trait KernelSide {
    /// A `morpheus_kernel_mode`.
    fn mode(&self) -> u32;

    /// How the workers in these slots of a lease fare; `None` where that cannot be told.
    fn ladder(&self, _lease: LeaseNumber, _slots: &[u32]) -> Option<Ladder> {
        None
    }

    /// Makes the areas of a lease.
    ///
    /// # Errors
    ///
    /// When the kernel refuses; then there is nothing of this lease.
    fn open(&mut self, lease: LeaseNumber, terms: Terms) -> io::Result<Areas>;

    /// Binds a thread, if it is one of the process. An earlier binding of this thread ends.
    ///
    /// # Errors
    ///
    /// `NotFound` when there is no such thread in that process.
    fn bind(&mut self, binding: Binding, terms: Terms) -> io::Result<()>;

    /// Unbinds a thread, if it is bound so; or the first thread of the process, if that one is.
    fn unbind(&mut self, binding: Binding);

    /// Takes out the areas of a lease. Its bindings mean nothing from then on.
    fn close(&mut self, lease: LeaseNumber);

    /// Tells the application of a lease that the kernel side is there, and how busy the machine is.
    fn heartbeat(&mut self, lease: LeaseNumber, pressure: Pressure);

    /// Whether the last reference to this map is gone: no descriptor, no mapping, no map of maps. `true` where that cannot be told.
    fn is_gone(&self, _map: MapId) -> bool {
        true
    }

    /// Whether it was ended from outside.
    fn has_ended(&self) -> bool {
        false
    }

    /// Does what is to be done now and then, for the machine as a whole; called about as often as `look_again` says.
    fn tend(&mut self) {}

    /// How soon that has to be asked again; `None` where it cannot end.
    fn look_again(&self) -> Option<Duration> {
        None
    }
}

/// The limits of one application.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Slots of a process; at most `MORPHEUS_MAX_SLOTS`.
    pub slots: u32,
    /// Requests of a connection in a second, over the burst.
    pub requests_per_second: u32,
    /// Requests that may come at once, beside two for each slot.
    pub burst: u32,
    /// A longer budget counts as this one, in nanoseconds: it is a claim for oneself.
    pub budget_ns: u64,
    /// The same for the grace.
    pub grace_ns: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            slots: abi::MORPHEUS_MAX_SLOTS,
            requests_per_second: 1000,
            burst: 1024,
            budget_ns: 1_000_000_000,
            grace_ns: 1_000_000_000,
        }
    }
}

/// An answer that is no refusal.
#[derive(Debug)]
pub enum Answer {
    /// With these descriptors.
    Welcome(Reply, Areas),
    /// Without any.
    Plain(Reply),
}

/// One connection.
#[derive(Debug)]
pub struct Session {
    peer: Peer,
    limits: Limits,
    bucket: Bucket,
    lease: Option<Lease>,
}

#[derive(Debug)]
struct Lease {
    number: LeaseNumber,
    terms: Terms,
    /// The thread of each slot.
    threads: Box<[Option<NonZeroU32>]>,
    maps: [MapId; 3],
}

impl Lease {
    /// The maps that it is charged with, and their sizes.
    fn charges(&self) -> [Charge; 3] {
        let area = area_bytes(self.terms.slots);
        let [runtime, kernel, ring] = self.maps;
        let charge = |map, bytes| Charge { map, bytes };
        [
            charge(runtime, area),
            charge(kernel, area),
            charge(ring, ring_bytes()),
        ]
    }
}

impl Session {
    /// The session of a peer that has said nothing yet.
    #[must_use]
    pub fn new(peer: Peer, limits: Limits, now: Instant) -> Session {
        Session {
            peer,
            limits,
            bucket: Bucket::new(limits.burst, limits.requests_per_second, now),
            lease: None,
        }
    }

    /// The process on the other side.
    #[must_use]
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// The number of its lease, if it has said Hello.
    #[must_use]
    pub fn lease(&self) -> Option<LeaseNumber> {
        self.lease.as_ref().map(|lease| lease.number)
    }

    /// How many threads are bound.
    #[must_use]
    pub fn bound(&self) -> usize {
        self.lease
            .as_ref()
            .map_or(0, |lease| lease.threads.iter().flatten().count())
    }

    /// The slots that have a thread.
    pub fn bound_slots(&self) -> impl Iterator<Item = u32> {
        let threads = self.lease.iter().flat_map(|lease| lease.threads.iter());
        (0..)
            .zip(threads)
            .filter_map(|(slot, thread)| thread.map(|_| slot))
    }

    /// Answers a packet, which came with `pidfd`. `next_lease` is the number for a lease, if one is asked for, and `payer`
    /// is charged for it.
    ///
    /// # Errors
    ///
    /// The refusal to answer with. Then the session is to be [ended](Self::end).
    pub fn answer(
        &mut self,
        packet: &[u8],
        pidfd: Option<BorrowedFd<'_>>,
        next_lease: LeaseNumber,
        now: Instant,
        payer: &mut dyn Payer,
        kernel: &mut dyn KernelSide,
    ) -> Result<Answer, Refusal> {
        if !self.bucket.take(now) {
            return Err(Refusal::Rate);
        }
        match Request::decode(packet)? {
            Request::Hello {
                abi_version,
                slots,
                policy,
                budget_ns,
                grace_ns,
            } => {
                if self.lease.is_some() {
                    return Err(Refusal::Order);
                }
                if abi_version != abi::MORPHEUS_ABI_VERSION {
                    return Err(Refusal::Abi);
                }
                let terms = Terms {
                    slots,
                    policy,
                    budget_ns: budget_ns.min(self.limits.budget_ns),
                    grace_ns: grace_ns.min(self.limits.grace_ns),
                };
                self.hello(terms, next_lease, payer, kernel)
            }
            Request::Register { slot, tid } => self.register(slot, tid, pidfd, payer, kernel),
            Request::Unregister { slot } => self.unregister(slot, kernel),
            // `Request` may get more kinds; a daemon that does not know one says so.
            _ => Err(Refusal::Kind),
        }
    }

    fn hello(
        &mut self,
        terms: Terms,
        number: LeaseNumber,
        payer: &mut dyn Payer,
        kernel: &mut dyn KernelSide,
    ) -> Result<Answer, Refusal> {
        if terms.slots == 0 || terms.slots > self.limits.slots.min(abi::MORPHEUS_MAX_SLOTS) {
            return Err(Refusal::Slots);
        }
        if terms.policy > abi::MORPHEUS_POLICY_THROTTLE || terms.budget_ns == 0 {
            return Err(Refusal::Limits);
        }
        let bytes = lease_bytes(terms.slots);
        payer.take(bytes)?;
        let areas = kernel.open(number, terms).map_err(|error| {
            payer.give_back(bytes);
            line_writer::say(format!(
                "scx_morpheus: no areas for process {}: {error}",
                self.peer.tgid
            ));
            Refusal::Internal
        })?;
        // Every slot may be taken and left once, at once: programs start and end so.
        self.bucket.enlarge(2 * terms.slots);
        self.lease = Some(Lease {
            number,
            terms,
            threads: vec![None; terms.slots as usize].into_boxed_slice(),
            maps: areas.maps,
        });
        let reply = Reply::Welcome {
            mode: kernel.mode(),
            slots: terms.slots,
        };
        Ok(Answer::Welcome(reply, areas))
    }

    /// Gives a slot to a thread. One that has ended since it was named leaves the slot without a thread: that is no fault of its
    /// process.
    fn register(
        &mut self,
        slot: u32,
        tid: u32,
        pidfd: Option<BorrowedFd<'_>>,
        payer: &mut dyn Payer,
        kernel: &mut dyn KernelSide,
    ) -> Result<Answer, Refusal> {
        match self.bind(slot, tid, pidfd, payer, kernel) {
            Err(Refusal::Thread) if pidfd.is_some_and(peer::has_ended) => {
                self.unregister(slot, kernel)
            }
            answer => answer,
        }
    }

    /// Gives a slot to a thread. A slot that has one already changes hands: the thread that had it may be at its end, and
    /// both are threads of the same process.
    fn bind(
        &mut self,
        slot: u32,
        tid: u32,
        pidfd: Option<BorrowedFd<'_>>,
        payer: &mut dyn Payer,
        kernel: &mut dyn KernelSide,
    ) -> Result<Answer, Refusal> {
        let lease = self.lease.as_mut().ok_or(Refusal::Order)?;
        let thread = lease.threads.get_mut(slot as usize).ok_or(Refusal::Slot)?;
        // Its number may be another process's by now, with the socket in the hands of a child.
        if !self.peer.is_alive() {
            return Err(Refusal::Thread);
        }
        let found = self.peer.thread(tid, pidfd, || payer.may_look_up());
        let tid = found
            .map_err(|TooManyLookups| Refusal::Rate)?
            .and_then(NonZeroU32::new)
            .ok_or(Refusal::Thread)?;
        let binding = |tid| Binding::of(&self.peer, lease.number, slot, tid);
        // Before the other is bound, which may be the process's first thread: `unbind` looks at that one, too.
        if let Some(before) = thread.take_if(|before| *before != tid) {
            kernel.unbind(binding(before));
        }
        kernel.bind(binding(tid), lease.terms).map_err(|error| {
            if error.kind() == io::ErrorKind::NotFound {
                return Refusal::Thread;
            }
            line_writer::say(format!(
                "scx_morpheus: thread {tid} cannot be bound: {error}"
            ));
            Refusal::Internal
        })?;
        *thread = Some(tid);
        Ok(Answer::Plain(Reply::Registered { slot }))
    }

    fn unregister(&mut self, slot: u32, kernel: &mut dyn KernelSide) -> Result<Answer, Refusal> {
        let lease = self.lease.as_mut().ok_or(Refusal::Order)?;
        let thread = lease.threads.get_mut(slot as usize).ok_or(Refusal::Slot)?;
        if let Some(tid) = thread.take() {
            kernel.unbind(Binding::of(&self.peer, lease.number, slot, tid));
        }
        Ok(Answer::Plain(Reply::Unregistered { slot }))
    }

    /// The connection is closed: nothing is left of it but what the peer keeps of its areas, which is returned.
    pub fn end(&mut self, kernel: &mut dyn KernelSide) -> Vec<Charge> {
        let Some(lease) = self.lease.take() else {
            return Vec::new();
        };
        for (slot, thread) in lease.threads.iter().enumerate() {
            if let &Some(tid) = thread {
                kernel.unbind(Binding::of(&self.peer, lease.number, slot as u32, tid));
            }
        }
        kernel.close(lease.number);
        lease.charges().to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use rustix::process::PidfdFlags;
    use std::fs::File;
    use std::os::fd::AsFd as _;

    /// Remembers what was asked of it. It has one process, whose threads are all numbers below 1000.
    #[derive(Default)]
    struct Fake {
        open: Vec<LeaseNumber>,
        bound: Vec<Binding>,
        fails: bool,
        foreign: bool,
    }

    impl KernelSide for Fake {
        fn mode(&self) -> u32 {
            abi::MORPHEUS_MODE_OBSERVE
        }

        fn open(&mut self, lease: LeaseNumber, _terms: Terms) -> io::Result<Areas> {
            if self.fails {
                return Err(io::ErrorKind::OutOfMemory.into());
            }
            self.open.push(lease);
            let null = || File::open("/dev/null").map(OwnedFd::from);
            Ok(Areas {
                runtime: null()?,
                kernel: null()?,
                ring: null()?,
                maps: [1, 2, 3],
            })
        }

        fn bind(&mut self, binding: Binding, _terms: Terms) -> io::Result<()> {
            assert_eq!(binding.tgid, std::process::id());
            if self.foreign {
                return Err(io::ErrorKind::NotFound.into());
            }
            if self.fails {
                return Err(io::ErrorKind::OutOfMemory.into());
            }
            self.bound.push(binding);
            Ok(())
        }

        fn unbind(&mut self, binding: Binding) {
            let first = Binding {
                tid: binding.tgid,
                ..binding
            };
            self.bound
                .retain(|bound| *bound != binding && *bound != first);
        }

        fn close(&mut self, lease: LeaseNumber) {
            self.open.retain(|open| *open != lease);
        }

        fn heartbeat(&mut self, _lease: LeaseNumber, _pressure: Pressure) {}
    }

    /// Pays for up to `rest` bytes.
    struct Purse {
        rest: u64,
    }

    impl Payer for Purse {
        fn take(&mut self, bytes: u64) -> Result<(), Refusal> {
            self.rest = self.rest.checked_sub(bytes).ok_or(Refusal::Memory)?;
            Ok(())
        }

        fn give_back(&mut self, bytes: u64) {
            self.rest += bytes;
        }

        fn may_look_up(&mut self) -> bool {
            true
        }
    }

    struct Bench {
        session: Session,
        purse: Purse,
        kernel: Fake,
        now: Instant,
    }

    const HELLO: Request = Request::Hello {
        abi_version: abi::MORPHEUS_ABI_VERSION,
        slots: 4,
        policy: abi::MORPHEUS_POLICY_REQUEST,
        budget_ns: 1_000_000,
        grace_ns: 1_000_000,
    };

    impl Bench {
        fn new(limits: Limits) -> Bench {
            let (socket, _other) = socketpair(
                AddressFamily::UNIX,
                SocketType::SEQPACKET,
                SocketFlags::CLOEXEC,
                None,
            )
            .unwrap();
            let now = Instant::now();
            Bench {
                session: Session::new(Peer::of(&socket).unwrap(), limits, now),
                purse: Purse {
                    rest: lease_bytes(4),
                },
                kernel: Fake::default(),
                now,
            }
        }

        fn ask(&mut self, request: Request) -> Result<Reply, Refusal> {
            self.send(request.encode().bytes())
        }

        fn send(&mut self, packet: &[u8]) -> Result<Reply, Refusal> {
            self.send_with(packet, None)
        }

        fn send_with(
            &mut self,
            packet: &[u8],
            pidfd: Option<BorrowedFd<'_>>,
        ) -> Result<Reply, Refusal> {
            let answer = self.session.answer(
                packet,
                pidfd,
                7,
                self.now,
                &mut self.purse,
                &mut self.kernel,
            )?;
            Ok(match answer {
                Answer::Welcome(reply, _) | Answer::Plain(reply) => reply,
            })
        }
    }

    fn own_tid() -> u32 {
        rustix::thread::gettid().as_raw_pid() as u32
    }

    #[test]
    fn a_life() {
        let mut bench = Bench::new(Limits::default());
        assert_eq!(bench.session.lease(), None);
        assert_eq!(
            bench.ask(HELLO),
            Ok(Reply::Welcome {
                mode: abi::MORPHEUS_MODE_OBSERVE,
                slots: 4
            })
        );
        assert_eq!(bench.session.lease(), Some(7));
        let tid = own_tid();
        for slot in [0, 3] {
            assert_eq!(
                bench.ask(Request::Register { slot, tid }),
                Ok(Reply::Registered { slot })
            );
        }
        assert_eq!(bench.session.bound(), 2);
        assert_eq!(
            bench.ask(Request::Unregister { slot: 3 }),
            Ok(Reply::Unregistered { slot: 3 })
        );
        assert_eq!(
            bench.kernel.bound,
            [Binding {
                lease: 7,
                slot: 0,
                tid,
                tgid: std::process::id()
            }]
        );
        assert_eq!(bench.purse.rest, 0);
        let charges = bench.session.end(&mut bench.kernel);
        assert_eq!(
            charges.iter().map(|charge| charge.map).collect::<Vec<_>>(),
            [1, 2, 3]
        );
        let bytes: u64 = charges.iter().map(|charge| charge.bytes).sum();
        assert_eq!(bytes, lease_bytes(4), "what was paid for");
        assert!(bench.session.end(&mut bench.kernel).is_empty());
        assert!(bench.kernel.bound.is_empty() && bench.kernel.open.is_empty());
        assert_eq!(bench.session.bound(), 0);
    }

    #[test]
    fn a_slot_changes_hands() {
        let mut bench = Bench::new(Limits::default());
        bench.ask(HELLO).unwrap();
        bench
            .ask(Request::Register {
                slot: 1,
                tid: own_tid(),
            })
            .unwrap();
        let second = std::thread::scope(|scope| {
            scope
                .spawn(|| {
                    let tid = own_tid();
                    bench.ask(Request::Register { slot: 1, tid }).unwrap();
                    tid
                })
                .join()
                .unwrap()
        });
        assert_eq!(bench.kernel.bound.len(), 1);
        assert_eq!(bench.kernel.bound[0].tid, second);
        // The process's first thread, with whose number that of another program would be unbound.
        let first = std::process::id();
        bench
            .ask(Request::Register {
                slot: 1,
                tid: first,
            })
            .unwrap();
        assert_eq!(bench.kernel.bound.len(), 1);
        assert_eq!(bench.kernel.bound[0].tid, first);
    }

    /// A thread may end between its pidfd and the daemon's look. The connection goes on, and its slot has no thread.
    #[test]
    fn a_thread_that_has_ended_ends_no_connection() {
        if !peer::threads_have_pidfds() {
            return;
        }
        let mut bench = Bench::new(Limits::default());
        bench.ask(HELLO).unwrap();
        let register = |tid| Request::Register { slot: 1, tid };
        bench.ask(register(own_tid())).unwrap();
        let (ended, pidfd) = std::thread::spawn(|| {
            let own = rustix::thread::gettid();
            let flags = PidfdFlags::from_bits_retain(rustix::fs::OFlags::EXCL.bits());
            (own_tid(), rustix::process::pidfd_open(own, flags).unwrap())
        })
        .join()
        .unwrap();
        // It is gone a moment after it was joined.
        morpheus_testing::wait_for("end of the thread", || peer::has_ended(pidfd.as_fd()));
        let answer = bench.send_with(register(ended).encode().bytes(), Some(pidfd.as_fd()));
        assert_eq!(answer, Ok(Reply::Unregistered { slot: 1 }));
        assert_eq!(bench.session.bound(), 0);
        assert_eq!(
            bench.ask(register(own_tid())),
            Ok(Reply::Registered { slot: 1 })
        );
    }

    #[test]
    fn refusals_by_name() {
        let tid = own_tid();
        let hello = |change: fn(&mut Request)| {
            let mut request = HELLO;
            change(&mut request);
            let mut bench = Bench::new(Limits::default());
            let answer = bench.ask(request);
            assert!(bench.kernel.open.is_empty());
            answer.unwrap_err()
        };
        macro_rules! with {
            ($field:ident = $value:expr) => {
                hello(|request| {
                    let Request::Hello { $field, .. } = request else {
                        unreachable!()
                    };
                    *$field = $value;
                })
            };
        }
        assert_eq!(with!(abi_version = 2), Refusal::Abi);
        assert_eq!(with!(slots = 0), Refusal::Slots);
        assert_eq!(with!(slots = abi::MORPHEUS_MAX_SLOTS + 1), Refusal::Slots);
        assert_eq!(with!(slots = u32::MAX), Refusal::Slots);
        assert_eq!(with!(policy = 5), Refusal::Limits);
        assert_eq!(with!(budget_ns = 0), Refusal::Limits);

        let mut bench = Bench::new(Limits::default());
        assert_eq!(bench.send(b""), Err(Refusal::Magic));
        assert_eq!(bench.send(&[0xff; 65]), Err(Refusal::Magic));
        assert_eq!(
            bench.ask(Request::Register { slot: 0, tid }),
            Err(Refusal::Order)
        );
        assert_eq!(
            bench.ask(Request::Unregister { slot: 0 }),
            Err(Refusal::Order)
        );
        bench.ask(HELLO).unwrap();
        assert_eq!(bench.ask(HELLO), Err(Refusal::Order));
        for slot in [4, u32::MAX] {
            assert_eq!(
                bench.ask(Request::Register { slot, tid }),
                Err(Refusal::Slot)
            );
            assert_eq!(bench.ask(Request::Unregister { slot }), Err(Refusal::Slot));
        }
        for tid in [0, 1, u32::MAX] {
            assert_eq!(
                bench.ask(Request::Register { slot: 0, tid }),
                Err(Refusal::Thread)
            );
        }
        bench.kernel.foreign = true;
        assert_eq!(
            bench.ask(Request::Register { slot: 0, tid }),
            Err(Refusal::Thread)
        );
        assert_eq!(bench.session.bound(), 0);
    }

    #[test]
    fn a_kernel_that_fails() {
        let mut bench = Bench::new(Limits::default());
        bench.kernel.fails = true;
        assert_eq!(bench.ask(HELLO), Err(Refusal::Internal));
        assert_eq!(bench.session.lease(), None);
        assert_eq!(bench.purse.rest, lease_bytes(4), "nothing was allocated");
        bench.kernel.fails = false;
        bench.ask(HELLO).unwrap();
        bench.kernel.fails = true;
        let request = Request::Register {
            slot: 0,
            tid: own_tid(),
        };
        assert_eq!(bench.ask(request), Err(Refusal::Internal));
        assert_eq!(bench.session.bound(), 0);
    }

    #[test]
    fn nothing_is_made_that_nobody_pays_for() {
        let mut bench = Bench::new(Limits::default());
        bench.purse.rest -= 1;
        assert_eq!(bench.ask(HELLO), Err(Refusal::Memory));
        assert!(bench.kernel.open.is_empty());
        assert_eq!(bench.session.lease(), None);
    }

    #[test]
    fn too_many_requests() {
        let mut bench = Bench::new(Limits {
            burst: 2,
            requests_per_second: 10,
            ..Limits::default()
        });
        bench.ask(HELLO).unwrap();
        // One of the burst is left, and two for each of four slots.
        for _ in 0..9 {
            bench.ask(Request::Unregister { slot: 0 }).unwrap();
        }
        assert_eq!(
            bench.ask(Request::Unregister { slot: 0 }),
            Err(Refusal::Rate)
        );
        bench.now += std::time::Duration::from_millis(100);
        bench.ask(Request::Unregister { slot: 0 }).unwrap();
        assert_eq!(
            bench.ask(Request::Unregister { slot: 0 }),
            Err(Refusal::Rate)
        );
    }
}
