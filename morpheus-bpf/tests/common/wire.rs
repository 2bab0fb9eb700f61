// SPDX-License-Identifier: GPL-2.0-only
//! Packets to and from the broker, and what proves a thread.

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;

use morpheus_common::broker::{Reply, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::PATIENCE;

pub fn connect(daemon: &Path) -> OwnedFd {
    let socket = rustix::net::socket_with(
        AddressFamily::UNIX,
        SocketType::SEQPACKET,
        SocketFlags::CLOEXEC,
        None,
    )
    .unwrap();
    rustix::net::connect(&socket, &SocketAddrUnix::new(daemon).unwrap()).unwrap();
    socket
}

pub fn send(socket: &OwnedFd, packet: &[u8], fds: &[BorrowedFd<'_>]) -> rustix::io::Result<usize> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() {
        assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
    }
    rustix::net::sendmsg(
        socket,
        &[IoSlice::new(packet)],
        &mut control,
        SendFlags::NOSIGNAL,
    )
}

/// The next reply; `None` once the connection is closed.
pub fn receive(socket: &OwnedFd) -> Option<(Reply, Vec<OwnedFd>)> {
    let timeout = Timespec {
        tv_sec: PATIENCE.as_secs() as i64,
        tv_nsec: 0,
    };
    let answered = poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&timeout));
    assert_eq!(answered, Ok(1), "the daemon does not answer");
    let mut packet = [0; 64];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = rustix::net::recvmsg(
        socket,
        &mut [IoSliceMut::new(&mut packet)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )
    .ok()?;
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(more) = message {
            fds.extend(more);
        }
    }
    if received.bytes == 0 {
        return None;
    }
    Some((Reply::decode(&packet[..received.bytes]).unwrap(), fds))
}

pub fn ask(socket: &OwnedFd, request: Request, fds: &[BorrowedFd<'_>]) -> Reply {
    send(socket, request.encode().bytes(), fds).unwrap();
    receive(socket).expect("the daemon closed").0
}

pub fn gettid() -> u32 {
    rustix::thread::gettid().as_raw_pid() as u32
}

/// A pidfd of a thread (`PIDFD_THREAD`).
pub fn pidfd(tid: u32) -> OwnedFd {
    const PIDFD_THREAD: u32 = rustix::fs::OFlags::EXCL.bits();
    let flags = PidfdFlags::from_bits_retain(PIDFD_THREAD);
    pidfd_open(Pid::from_raw(tid as i32).unwrap(), flags).unwrap()
}
