//! A slow name server for this process alone.
//!
//! The C library asks the name servers in `/etc/resolv.conf`, at port 53. So that a look-up takes the same time on every machine,
//! with and without a network, the process enters namespaces of its own: for mounts, where `/etc` holds nothing but
//! the two files that the C library reads, and for the network, where the loopback interface is all there is and port 53
//! is free. Root may do so; any other user may within a user namespace, which most systems allow.

use std::ffi::CStr;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::thread;
use std::time::Duration;

/// The time that the server waits before it answers.
pub const DELAY: Duration = Duration::from_millis(10);

/// Enters the namespaces and starts the server, which knows every name by the address 127.0.0.1. The process must not have a
/// second thread yet.
///
/// # Errors
/// The system allows no such namespaces, or something in them failed; the text says which step.
pub fn start() -> Result<(), String> {
    enter()?;
    private_etc()?;
    raise_loopback().map_err(|error| format!("no loopback interface: {error}"))?;
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 53))
        .map_err(|error| format!("no socket at port 53: {error}"))?;
    let thread = thread::Builder::new().name("name server".to_owned());
    let serve = move || {
        let mut packet = [0; 512];
        while let Ok((length, client)) = socket.recv_from(&mut packet) {
            let Some((answer, is_first)) = answer(&packet[..length]) else {
                continue;
            };
            // Both address families are asked for at once.
            if is_first {
                thread::sleep(DELAY);
            }
            let _ = socket.send_to(&answer, client);
        }
    };
    let spawned = thread.spawn(serve);
    spawned.map_err(|error| format!("no thread: {error}"))?;
    Ok(())
}

fn enter() -> Result<(), String> {
    // SAFETY: both return a number and touch no memory.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    let own = libc::CLONE_NEWNS | libc::CLONE_NEWNET;
    if unshare(own).is_ok() {
        return Ok(());
    }
    unshare(own | libc::CLONE_NEWUSER)
        .map_err(|error| format!("namespaces of its own are not allowed: {error}"))?;
    // Without them files in the new namespace have no owner, and cannot be made.
    let maps = [
        ("setgroups", "deny".to_owned()),
        ("uid_map", format!("{user} {user} 1")),
        ("gid_map", format!("{group} {group} 1")),
    ];
    for (file, text) in maps {
        let written = fs::write(format!("/proc/self/{file}"), text);
        written.map_err(|error| format!("/proc/self/{file}: {error}"))?;
    }
    Ok(())
}

fn unshare(flags: libc::c_int) -> io::Result<()> {
    // SAFETY: it takes a number. Namespaces and file system attributes are what the process gives up; file descriptors,
    // whose table must not change under a caller, are not in `flags`.
    check(unsafe { libc::unshare(flags) })
}

fn check(returned: libc::c_int) -> io::Result<()> {
    if returned == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Mounts an empty file system at `/etc` and writes what the C library reads of it.
fn private_etc() -> Result<(), String> {
    let private = libc::MS_REC | libc::MS_PRIVATE;
    // A minimal system may have its root where mounts cannot change their propagation, and then nothing propagates.
    let _ = mount(c"none", c"/", c"none", private);
    mount(c"etc", c"/etc", c"tmpfs", libc::MS_NOSUID | libc::MS_NODEV)
        .map_err(|error| format!("no file system of its own at /etc: {error}"))?;
    let files = [
        ("/etc/nsswitch.conf", "hosts: dns\n"),
        (
            "/etc/resolv.conf",
            "nameserver 127.0.0.1\noptions timeout:2 attempts:2\n",
        ),
    ];
    for (file, text) in files {
        fs::write(file, text).map_err(|error| format!("{file}: {error}"))?;
    }
    Ok(())
}

fn mount(source: &CStr, target: &CStr, kind: &CStr, flags: libc::c_ulong) -> io::Result<()> {
    // SAFETY: all three are strings that live until it returns, and there is no data.
    check(unsafe {
        libc::mount(
            source.as_ptr(),
            target.as_ptr(),
            kind.as_ptr(),
            flags,
            std::ptr::null(),
        )
    })
}

/// A new network namespace has a loopback interface that is down.
fn raise_loopback() -> io::Result<()> {
    use std::os::fd::AsRawFd;
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    // SAFETY: all zeroes are a name without characters and flags without a bit.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(c"lo".to_bytes()) {
        *to = from.cast_signed() as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the request reads the interface's name and flags from a structure that is alive and complete.
    check(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) })
}

/// The answer to a question about a name, and whether it asks for an IPv4 address. `None` if it is no question.
fn answer(question: &[u8]) -> Option<(Vec<u8>, bool)> {
    const HEADER: usize = 12;
    const ADDRESS: [u8; 2] = [0, 1];
    // The name ends with an empty label; behind it are type and class.
    let mut at = HEADER;
    loop {
        match *question.get(at)? {
            0 => break,
            length => at += 1 + usize::from(length),
        }
    }
    let is_address = question.get(at + 1..at + 3)? == ADDRESS;
    let asked = question.get(HEADER..at + 5)?;
    let mut answer = question[..2].to_vec();
    // A response without an error; one question, and one answer or none.
    answer.extend([0x81, 0x80, 0, 1, 0, u8::from(is_address), 0, 0, 0, 0]);
    answer.extend(asked);
    if is_address {
        // The name asked for, an address, of the Internet, valid for no time, four bytes long.
        answer.extend([0xC0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
        answer.extend(Ipv4Addr::LOCALHOST.octets());
    }
    Some((answer, is_address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_is_answered() {
        let question =
            b"\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x02db\x00\x00\x01\x00\x01";
        let (text, is_first) = answer(question).unwrap();
        assert!(is_first);
        assert_eq!(&text[..4], b"\x12\x34\x81\x80");
        assert!(text.ends_with(&[0, 4, 127, 0, 0, 1]));
        let mut other = question.to_vec();
        other[17] = 28;
        let (text, is_first) = answer(&other).unwrap();
        assert!(!is_first);
        assert_eq!(text[7], 0);
    }

    #[test]
    fn what_is_no_question_is_not_answered() {
        assert_eq!(answer(b""), None);
        assert_eq!(answer(&[0; 12]), None);
        assert_eq!(answer(&[255; 40]), None);
    }
}
