// SPDX-License-Identifier: GPL-2.0-only
//! The socket where applications ask for their slots, and the daemon's loop.
//!
//! One thread, which does not block: a peer that does not read its replies is dropped, other threads wait for what takes the
//! kernel its time, and close what peers have made. In each turn every connection gets to say one packet, but the connections of one user together
//! take no longer than `SERVES_FOR` and one packet more. A heartbeat that is due goes before the next packet: many connections
//! at once may not look like a daemon that has died.

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use morpheus_common::broker::{MESSAGE_BYTES, Message, Refusal, Reply};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
};
use serde_json::Value;

use crate::accounts::{Account, Accounts};
use crate::closer::Closer;
use crate::connections;
use crate::line_writer;
use crate::peer::{self, Peer};
use crate::pressure::Pressure;
use crate::quota::{Purse, Quota};
use crate::reporter::{Plan, Reporter};
use crate::session::{Answer, KernelSide, LeaseNumber, Limits, Session};
use crate::stats;
use morpheus_tools::signals::StopSignals;
use morpheus_tools::socket::seqpacket;
use morpheus_tools::status;

/// How often an application is told that the kernel side is there.
pub const HEARTBEAT: Duration = Duration::from_millis(100);
/// How long a peer may be connected without a lease.
pub const HELLO_WITHIN: Duration = Duration::from_secs(5);
/// How many new connections are taken in one turn.
const ACCEPTED_IN_A_TURN: usize = 32;
/// How long it answers no question for the numbers when it refused one.
const ANSWERS_AGAIN: Duration = Duration::from_millis(4);
/// How long refusing may take in one turn, before the other connections are served.
const REFUSES_FOR: Duration = Duration::from_micros(500);
/// After refusals no connection is taken for four times as long as they took, within these bounds: users who connect in a
/// loop get a fifth of the daemon's time at most, and it sleeps often enough to be woken soon for others.
const PAUSES: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(4));
/// How long the connections of one account are served in one turn, and how long connections are closed: one user's many
/// requests do not hold up another user's one.
const SERVES_FOR: Duration = Duration::from_millis(2);
/// For how many times that long an account is not served then, and how long at most. Root is served always.
const RESTS: u32 = 3;
const RESTS_FOR: Duration = Duration::from_millis(50);
/// How many may wait to be taken. A longer queue makes an application wait behind users who connect in a loop; in a shorter
/// one they leave no room for it.
const BACKLOG: i32 = 1024;
/// How many areas of closed connections the kernel is asked for in one turn.
const ASKED_IN_A_TURN: usize = 256;
/// The most descriptors that come with a packet (`SCM_MAX_FD` of the kernel). There is room for all: the kernel closes those that
/// find none, and the daemon's thread would wait for that.
const MOST_DESCRIPTORS: usize = 253;

/// The limits, reports and verbosity of a daemon.
#[derive(Clone, Debug)]
pub struct Options {
    /// How much one process may take.
    pub limits: Limits,
    /// The reports to make unasked, and how often.
    pub reports: Plan,
    /// Whether to say who comes and goes.
    pub verbose: bool,
}

/// Why there is no socket.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Another daemon answers there.
    #[error("another daemon listens at {}: stop it, or name another socket with --socket", .0.display())]
    InUse(PathBuf),
    /// Something else is there.
    #[error("{} exists and is no socket: remove it, or name another one with --socket", .0.display())]
    NoSocket(PathBuf),
    /// The system refuses.
    #[error("cannot listen at {}: {source}", path.display())]
    Listen {
        /// Where.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// A socket that listens; removed when this is dropped.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    path: PathBuf,
}

impl Listener {
    /// Listens at `path`, for every user of the machine. The directory is made if there is none.
    ///
    /// # Errors
    ///
    /// When another daemon listens there, or the system refuses. A socket without a listener is replaced.
    pub fn bind(path: &Path) -> Result<Listener, Error> {
        let failed = |source: io::Error| Error::Listen {
            path: path.to_owned(),
            source,
        };
        let address = SocketAddrUnix::new(path).map_err(|error| failed(error.into()))?;
        if let Some(directory) = path.parent().filter(|path| !path.as_os_str().is_empty())
            && !directory.exists()
        {
            fs::create_dir_all(directory).map_err(failed)?;
            fs::set_permissions(directory, Permissions::from_mode(0o755)).map_err(failed)?;
        }
        remove_stale(path, &address)?;
        let listen = || -> io::Result<OwnedFd> {
            let socket = seqpacket()?;
            // Each connection begins as its listener is.
            take_rights(&socket, false);
            rustix::net::bind(&socket, &address)?;
            fs::set_permissions(path, Permissions::from_mode(0o666))?;
            rustix::net::listen(&socket, BACKLOG)?;
            Ok(socket)
        };
        Ok(Listener {
            socket: listen().map_err(failed)?,
            path: path.to_owned(),
        })
    }

    pub(crate) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Where it listens.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Another process may have removed it, which is as good.
        let _ = fs::remove_file(&self.path);
    }
}

/// Removes a socket that a daemon left which did not get to do it.
fn remove_stale(path: &Path, address: &SocketAddrUnix) -> Result<(), Error> {
    use std::os::unix::fs::FileTypeExt;
    let Ok(metadata) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !metadata.file_type().is_socket() {
        return Err(Error::NoSocket(path.to_owned()));
    }
    let failed = |source: io::Error| Error::Listen {
        path: path.to_owned(),
        source,
    };
    let probe = seqpacket().map_err(failed)?;
    if rustix::net::connect(&probe, address) == Err(rustix::io::Errno::CONNREFUSED) {
        fs::remove_file(path).map_err(failed)
    } else {
        Err(Error::InUse(path.to_owned()))
    }
}

/// The counts of the broker itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Processes that have a lease.
    pub processes: usize,
    /// Threads that are bound.
    pub workers: usize,
    /// Refusals since the start.
    pub refused: u64,
    /// Bytes of kernel memory that the areas take, those included that processes keep after they left.
    pub area_bytes: u64,
}

/// The daemon: a listener, its connections, and what it hands out.
pub struct Broker<K> {
    listener: Listener,
    options: Options,
    kernel: K,
    connections: Vec<Connection>,
    /// Where a turn begins.
    first: usize,
    /// Until when accounts are not served, because they have used up more than a turn's time.
    resting: BTreeMap<Account, Instant>,
    next_lease: LeaseNumber,
    next_heartbeat: Instant,
    reporter: Reporter,
    accounts: Accounts,
    closer: Closer,
    quota: Quota,
    /// When the kernel is asked for areas of closed connections.
    next_sweep: Instant,
    /// Set while no connection is taken: there is no descriptor for another one, or too many were refused.
    accept_again: Option<Instant>,
    refused: u64,
    /// Set while no question for the numbers is answered: there is no descriptor for its connection, or too many were refused.
    answer_again: Option<Instant>,
    /// The numbers as JSON, as of then: for users who are not root, who make the daemon count no more often than
    /// every [`HEARTBEAT`].
    counted: Option<(Instant, String)>,
    /// Where the numbers are handed out, if anywhere.
    numbers: Option<Listener>,
    /// Says what was counted.
    describe: fn(&K, Statistics) -> Value,
}

struct Connection {
    socket: OwnedFd,
    session: Session,
    account: Account,
    since: Instant,
    closing: bool,
}

/// Why a broker ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// It was told to.
    Asked,
    /// There is no kernel side any more.
    Kernel,
}

/// The descriptors that are ready.
struct Ready {
    stop: bool,
    listener: bool,
    numbers: bool,
    /// For each connection.
    packet: Vec<bool>,
    ended: Vec<bool>,
}

impl<K: KernelSide> Broker<K> {
    /// A daemon that has no connections yet, within `quota`. The result of `describe` and the list of connections are
    /// handed out at `numbers`, and reported unasked where the options say so.
    #[must_use]
    pub fn new(
        listener: Listener,
        options: Options,
        quota: Quota,
        kernel: K,
        numbers: Option<Listener>,
        describe: fn(&K, Statistics) -> Value,
    ) -> Broker<K> {
        let now = Instant::now();
        Broker {
            listener,
            reporter: Reporter::new(options.reports.clone(), now),
            options,
            kernel,
            connections: Vec::new(),
            first: 0,
            resting: BTreeMap::new(),
            next_lease: 1,
            next_heartbeat: now,
            accounts: Accounts::new(now),
            closer: Closer::default(),
            quota,
            next_sweep: now,
            accept_again: None,
            refused: 0,
            answer_again: None,
            counted: None,
            numbers,
            describe,
        }
    }

    /// Serves until a signal comes, or the kernel side has ended.
    ///
    /// # Errors
    ///
    /// When it cannot wait for its descriptors. An error of one connection ends that one.
    pub fn run(&mut self, stop: &StopSignals) -> io::Result<End> {
        let end = self.serve_until_end(stop);
        line_writer::flush();
        end
    }

    fn serve_until_end(&mut self, stop: &StopSignals) -> io::Result<End> {
        loop {
            if self.kernel.has_ended() {
                return Ok(End::Kernel);
            }
            self.heartbeat_if_due();
            self.kernel.tend();
            self.sweep_if_due();
            self.report_if_due();
            self.closer.look();
            let now = Instant::now();
            self.accept_again.take_if(|then| *then <= now);
            self.answer_again.take_if(|then| *then <= now);
            self.resting.retain(|_, until| *until > now);
            let ready = self.wait(stop.as_fd())?;
            if ready.stop {
                return Ok(End::Asked);
            }
            self.serve_all(&ready);
            self.drop_closed();
            if ready.numbers {
                self.answer_questions();
            }
            if ready.listener {
                self.accept();
            }
        }
    }

    /// Lets every connection say one packet, within the time of its account. Those that are left out come first in one of
    /// the next turns: each turn begins with another connection.
    fn serve_all(&mut self, ready: &Ready) {
        let now = Instant::now();
        let mut spent: BTreeMap<Account, Duration> = BTreeMap::new();
        let count = self.connections.len();
        self.first = self.first.wrapping_add(1);
        for offset in 0..count {
            let index = (self.first % count + offset) % count;
            let connection = &mut self.connections[index];
            if ready.ended[index] || connection.is_late(now) {
                connection.closing = true;
            } else if ready.packet[index] && !connection.closing {
                let spent = spent.entry(connection.account).or_default();
                if *spent < SERVES_FOR {
                    let start = Instant::now();
                    self.serve(index);
                    *spent += start.elapsed();
                    self.heartbeat_if_due();
                }
            }
        }
        for (account, spent) in spent {
            if spent >= SERVES_FOR && account != Account::Root {
                let rest = (RESTS * spent).min(RESTS_FOR);
                self.resting.insert(account, Instant::now() + rest);
            }
        }
    }

    /// The kernel side, which has ended or not, the sockets, and what processes still hold. All connections are closed.
    pub fn into_parts(mut self) -> (K, Listener, Option<Listener>, Quota) {
        for mut connection in self.connections.drain(..) {
            let areas = connection.session.end(&mut self.kernel);
            self.quota.disconnect(connection.account, &areas);
            self.closer.close(connection.socket, connection.account);
        }
        (self.kernel, self.listener, self.numbers, self.quota)
    }

    fn leases(&self) -> impl Iterator<Item = LeaseNumber> {
        self.connections
            .iter()
            .filter_map(|connection| connection.session.lease())
    }

    fn wait(&self, stop: BorrowedFd<'_>) -> io::Result<Ready> {
        let input = PollFlags::IN;
        let mut fds = vec![
            PollFd::from_borrowed_fd(stop, input),
            PollFd::new(
                &self.listener.socket,
                if self.accept_again.is_none() {
                    input
                } else {
                    PollFlags::empty()
                },
            ),
        ];
        // Where it is not there, or has to wait, the other one stands in, and is not asked.
        fds.push(match &self.numbers {
            Some(numbers) if self.answer_again.is_none() => PollFd::new(numbers.socket(), input),
            _ => PollFd::new(&self.listener.socket, PollFlags::empty()),
        });
        for connection in &self.connections {
            let flags = match self.resting.contains_key(&connection.account) {
                true => PollFlags::empty(),
                false => input,
            };
            fds.push(PollFd::new(&connection.socket, flags));
        }
        // Where a connection has no such descriptor, its socket stands in: the other list is asked for that one.
        for connection in &self.connections {
            let end = connection.session.peer().end();
            let fd = end.unwrap_or(connection.socket.as_fd());
            let flags = if end.is_some() {
                input
            } else {
                PollFlags::empty()
            };
            fds.push(PollFd::from_borrowed_fd(fd, flags));
        }
        let timeout = self.until_next_chore(Instant::now()).map(timespec);
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
        let (sockets, ends) = fds[3..].split_at(self.connections.len());
        Ok(Ready {
            stop: ready(&fds[0]),
            listener: ready(&fds[1]),
            numbers: fds[2].revents().contains(input),
            packet: sockets
                .iter()
                .map(|fd| fd.revents().contains(input))
                .collect(),
            ended: sockets
                .iter()
                .zip(ends)
                .map(|(socket, end)| {
                    // Poll reports these unasked: a peer that has gone reads no answers to what it sent before.
                    let gone = PollFlags::HUP | PollFlags::ERR;
                    socket.revents().intersects(gone) || end.revents().contains(input)
                })
                .collect(),
        })
    }

    /// How long nothing has to be done unless a client asks; `None` is for ever.
    fn until_next_chore(&self, now: Instant) -> Option<Duration> {
        let heartbeat = self.leases().next().map(|_| self.next_heartbeat);
        let hello = self
            .connections
            .iter()
            .filter(|connection| connection.session.lease().is_none())
            .map(|connection| connection.since + HELLO_WITHIN)
            .min();
        let kernel = self.kernel.look_again().map(|interval| now + interval);
        let closing = self
            .connections
            .iter()
            .any(|connection| connection.closing)
            .then_some(now);
        let sweep = self.quota.has_kept().then_some(self.next_sweep);
        [
            heartbeat,
            hello,
            kernel,
            closing,
            self.resting.values().min().copied(),
            sweep,
            self.reporter.next(),
            self.accept_again,
            self.answer_again,
            self.closer.next(now),
        ]
        .into_iter()
        .flatten()
        .min()
        .map(|then| then.saturating_duration_since(now))
    }

    fn heartbeat_if_due(&mut self) {
        let now = Instant::now();
        if now < self.next_heartbeat {
            return;
        }
        self.next_heartbeat = now + HEARTBEAT;
        if self.leases().next().is_none() {
            return;
        }
        let pressure = Pressure::read();
        for connection in &self.connections {
            if let Some(lease) = connection.session.lease() {
                self.kernel.heartbeat(lease, pressure);
            }
        }
    }

    /// Asks the kernel for areas of closed connections: those that are gone are charged no longer.
    fn sweep_if_due(&mut self) {
        let now = Instant::now();
        if self.quota.has_kept() && self.next_sweep <= now {
            self.next_sweep = now + HEARTBEAT;
            let kernel = &self.kernel;
            self.quota
                .sweep(ASKED_IN_A_TURN, now, |map| kernel.is_gone(map));
        }
    }

    fn report_if_due(&mut self) {
        let now = Instant::now();
        if self.reporter.is_due(now) {
            let numbers = self.count();
            self.reporter.report(&numbers, now);
        }
    }

    /// Hands out the numbers to those who ask, within what their accounts may ask.
    fn answer_questions(&mut self) {
        let now = Instant::now();
        let mut refused = false;
        for _ in 0..ACCEPTED_IN_A_TURN {
            let Some(numbers) = &self.numbers else {
                return;
            };
            let (socket, uid) = match stats::next_question(numbers) {
                Ok(Some(question)) => question,
                Ok(None) => break,
                // No descriptor is left: the peer goes on waiting.
                Err(_) => {
                    self.answer_again = Some(now + HEARTBEAT);
                    return;
                }
            };
            let account = self.accounts.of(uid, now);
            if !self.quota.may_ask(account, now) {
                refused = true;
                self.closer.close(socket, account);
                continue;
            }
            let is_fresh = |(counted, _): &(Instant, String)| {
                account != Account::Root && now.saturating_duration_since(*counted) < HEARTBEAT
            };
            let numbers = match self.counted.take().filter(is_fresh) {
                Some(counted) => counted,
                None => (now, self.count().to_string()),
            };
            stats::answer(&socket, &numbers.1);
            self.closer.close(socket, account);
            self.counted = Some(numbers);
        }
        if refused {
            self.answer_again = Some(Instant::now() + ANSWERS_AGAIN);
        }
    }

    fn count(&self) -> Value {
        let statistics = Statistics {
            processes: self.leases().count(),
            workers: self.connections.iter().map(|c| c.session.bound()).sum(),
            refused: self.refused,
            area_bytes: self.quota.bytes(),
        };
        let mut numbers = (self.describe)(&self.kernel, statistics);
        let sessions = self.connections.iter().map(|c| &c.session);
        connections::add_to(&mut numbers, sessions, &self.kernel);
        if let Some(path) = self.reporter.history() {
            numbers["history"] = path.to_string_lossy().into();
        }
        numbers
    }

    fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let now = Instant::now();
        let mut refused = false;
        for _ in 0..ACCEPTED_IN_A_TURN {
            let socket = match rustix::net::accept_with(&self.listener.socket, flags) {
                Ok(socket) => socket,
                Err(rustix::io::Errno::AGAIN) => break,
                // No descriptor is left: the peer goes on waiting.
                Err(_) => {
                    self.accept_again = Some(now + HEARTBEAT);
                    return;
                }
            };
            // The kernel tells it of each such socket.
            let Ok(uid) = peer::uid(&socket) else {
                refused = true;
                continue;
            };
            let account = self.accounts.of(uid, now);
            match self.admit(&socket, account, now) {
                Ok(peer) => self.connections.push(Connection {
                    socket,
                    session: Session::new(peer, self.options.limits, now),
                    account,
                    since: now,
                    closing: false,
                }),
                Err(refusal) => {
                    refused = true;
                    // A peer that does not get the reply finds the connection closed.
                    let _ = send(&socket, &Reply::Refused(refusal).encode(), &[]);
                    self.closer.close(socket, account);
                    self.count_refusal(refusal, None);
                    if now.elapsed() > REFUSES_FOR {
                        break;
                    }
                }
            }
        }
        if refused {
            let pause = (4 * now.elapsed()).clamp(PAUSES.0, PAUSES.1);
            self.accept_again = Some(Instant::now() + pause);
        }
    }

    /// Says who a new peer is, if it may connect, and charges the account for it. Little is asked of the kernel before that.
    fn admit(&mut self, socket: &OwnedFd, account: Account, now: Instant) -> Result<Peer, Refusal> {
        if account != Account::Root && self.closer.waits_for(account) {
            return Err(Refusal::Rate);
        }
        self.quota.connect(account, now)?;
        // One that has ended has no threads to bind either.
        let peer = Peer::of(socket).map_err(|_| {
            self.quota.disconnect(account, &[]);
            Refusal::Thread
        })?;
        if self.options.verbose {
            line_writer::say(format!(
                "scx_morpheus: process {} (user {}) connects",
                peer.tgid, peer.uid
            ));
        }
        Ok(peer)
    }

    /// Reads one packet of a connection and answers it.
    fn serve(&mut self, index: usize) {
        let connection = &mut self.connections[index];
        // One more than a message has, to know a longer one from a full one.
        let mut packet = [0; MESSAGE_BYTES + 1];
        let (length, mut descriptors) = match receive(&connection.socket, &mut packet) {
            Ok(received) => received,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return,
            Err(_) => {
                connection.closing = true;
                return;
            }
        };
        let pidfd = match descriptors.first() {
            Some(first) if peer::is_pidfd(first.as_fd()) => Some(descriptors.remove(0)),
            _ => None,
        };
        // No thread has such a descriptor.
        let is_stranger = !descriptors.is_empty();
        for descriptor in descriptors {
            self.closer.close(descriptor, connection.account);
        }
        if length == 0 {
            connection.closing = true;
            return;
        }
        let lease_before = connection.session.lease();
        let now = Instant::now();
        let mut purse = Purse {
            quota: &mut self.quota,
            account: connection.account,
            now,
        };
        let answer = match is_stranger {
            true => Err(Refusal::Thread),
            false => connection.session.answer(
                &packet[..length],
                pidfd.as_ref().map(AsFd::as_fd),
                self.next_lease,
                now,
                &mut purse,
                &mut self.kernel,
            ),
        };
        if connection.session.lease() != lease_before {
            // After four billion leases numbers come again; 0 is no lease's.
            self.next_lease = self.next_lease.checked_add(1).unwrap_or(1);
            take_rights(&connection.socket, true);
        }
        let sent = match answer {
            Ok(Answer::Plain(reply)) => send(&connection.socket, &reply.encode(), &[]),
            Ok(Answer::Welcome(reply, areas)) => send(
                &connection.socket,
                &reply.encode(),
                &[
                    areas.runtime.as_fd(),
                    areas.kernel.as_fd(),
                    areas.ring.as_fd(),
                ],
            ),
            Err(refusal) => {
                connection.closing = true;
                let tgid = connection.session.peer().tgid;
                let is_question = lease_before.is_none()
                    && &packet[..length] == status::QUESTION.encode().bytes();
                let reply = Reply::Refused(refusal).encode();
                // It is closed in any case.
                let _ = send(&self.connections[index].socket, &reply, &[]);
                if !is_question {
                    self.count_refusal(refusal, Some(tgid));
                }
                return;
            }
        };
        // A peer that does not read what it asked for.
        if sent.is_err() {
            connection.closing = true;
        }
    }

    fn count_refusal(&mut self, refusal: Refusal, tgid: Option<u32>) {
        self.refused += 1;
        if self.options.verbose {
            let who = tgid.map_or_else(String::new, |tgid| format!(" process {tgid}"));
            line_writer::say(format!("scx_morpheus: refused{who}: {refusal}"));
        }
    }

    /// Closes what is to be closed; the rest in the next turn, which then begins at once.
    fn drop_closed(&mut self) {
        let start = Instant::now();
        let mut index = 0;
        while start.elapsed() < SERVES_FOR && index < self.connections.len() {
            if !self.connections[index].closing {
                index += 1;
                continue;
            }
            let mut connection = self.connections.swap_remove(index);
            if self.options.verbose {
                let tgid = connection.session.peer().tgid;
                line_writer::say(format!("scx_morpheus: process {tgid} leaves"));
            }
            let areas = connection.session.end(&mut self.kernel);
            self.quota.disconnect(connection.account, &areas);
            self.closer.close(connection.socket, connection.account);
            self.heartbeat_if_due();
        }
    }
}

impl Connection {
    fn is_late(&self, now: Instant) -> bool {
        self.session.lease().is_none() && now.saturating_duration_since(self.since) >= HELLO_WITHIN
    }
}

fn timespec(duration: Duration) -> Timespec {
    // One nanosecond more, so that what it waits for is due when it returns.
    let duration = duration + Duration::from_nanos(1);
    Timespec {
        tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: duration.subsec_nanos().into(),
    }
}

/// Says whether a socket takes descriptors from its other end, and one that listens whether new connections do. Linux 6.16; before,
/// all do, always.
fn take_rights(socket: &OwnedFd, takes: bool) {
    /// `asm-generic/socket.h`
    const SO_PASSRIGHTS: libc::c_int = 83;
    let takes = libc::c_int::from(takes);
    // SAFETY: the option's value is an integer, of this length.
    unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            SO_PASSRIGHTS,
            (&raw const takes).cast(),
            size_of_val(&takes) as libc::socklen_t,
        );
    }
}

/// Reads a packet, and the descriptors that came with it.
fn receive(
    socket: &OwnedFd,
    packet: &mut [u8],
) -> Result<(usize, Vec<OwnedFd>), rustix::io::Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::net::recvmsg(
        socket,
        &mut [IoSliceMut::new(packet)],
        &mut control,
        RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC,
    )?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            descriptors.extend(received);
        }
    }
    Ok((received.bytes, descriptors))
}

/// Sends a packet whole, or not at all.
pub(crate) fn send(
    socket: &OwnedFd,
    message: &Message,
    fds: &[BorrowedFd<'_>],
) -> Result<(), rustix::io::Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        // There is room for three, which is the most that is sent.
        let _ = control.push(SendAncillaryMessage::ScmRights(fds));
    }
    rustix::net::sendmsg(
        socket,
        &[IoSlice::new(message.bytes())],
        &mut control,
        SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
    )
    .map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::quota;
    use crate::session::{Areas, Binding, Terms};

    /// A kernel side of which nothing is asked.
    struct Unasked;

    impl KernelSide for Unasked {
        fn mode(&self) -> u32 {
            unreachable!()
        }

        fn open(&mut self, _lease: LeaseNumber, _terms: Terms) -> io::Result<Areas> {
            unreachable!()
        }

        fn bind(&mut self, _binding: Binding, _terms: Terms) -> io::Result<()> {
            unreachable!()
        }

        fn unbind(&mut self, _binding: Binding) {}

        fn close(&mut self, _lease: LeaseNumber) {}

        fn heartbeat(&mut self, _lease: LeaseNumber, _pressure: Pressure) {}
    }

    /// The descriptor stays ready, so that the daemon would ask it again at once, and again.
    #[test]
    fn a_socket_that_gives_no_connection_is_asked_again_later() {
        let directory = tempfile::tempdir().unwrap();
        // Neither listens: `accept` fails, as it does without a descriptor for the connection.
        let deaf = |name: &str| Listener {
            socket: seqpacket().unwrap(),
            path: directory.path().join(name),
        };
        let options = Options {
            limits: Limits::default(),
            reports: Plan::default(),
            verbose: false,
        };
        let mut broker = Broker::new(
            deaf("broker"),
            options,
            Quota::new(quota::Limits::default()),
            Unasked,
            Some(deaf("numbers")),
            |_, _| Value::Null,
        );
        broker.accept();
        assert!(broker.accept_again.is_some());
        broker.answer_questions();
        assert!(broker.answer_again.is_some());
    }
}
