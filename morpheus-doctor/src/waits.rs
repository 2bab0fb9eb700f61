//! What a blocked thread waits for, by its system call and what its descriptor is.

use syscalls::Sysno;

use crate::model::Wait;
use crate::source::SystemCall;
use crate::target::Target;

/// The name of a system call.
#[must_use]
pub fn name_of(call: SystemCall) -> Option<String> {
    Sysno::new(call.number as usize).map(|number| number.name().to_owned())
}

/// What a thread in this system call waits for; without one it waits for memory.
#[must_use]
pub fn wait_of(target: &Target, call: Option<SystemCall>) -> Wait {
    let Some(call) = call else {
        return Wait::Memory;
    };
    let Some(name) = name_of(call) else {
        return Wait::Other;
    };
    match name.as_str() {
        "nanosleep" | "clock_nanosleep" | "pause" => Wait::Sleep,
        "futex" | "futex_waitv" | "futex_wait" => Wait::Lock,
        "wait4" | "waitid" | "vfork" => Wait::Child,
        "flock" | "fsync" | "fdatasync" | "sync_file_range" | "fallocate" | "ftruncate"
        | "getdents64" | "fstat" | "lseek" => file(target, call),
        "open" | "openat" | "openat2" | "stat" | "lstat" | "newfstatat" | "statx" | "unlink"
        | "unlinkat" | "rename" | "renameat" | "renameat2" | "mkdir" | "mkdirat" | "sync"
        | "truncate" | "execve" => Wait::File { path: None },
        "connect" | "accept" | "accept4" | "recvfrom" | "recvmsg" | "recvmmsg" | "sendto"
        | "sendmsg" | "sendmmsg" | "shutdown" => Wait::Socket {
            name: target.descriptor(call.arguments[0]),
        },
        // What is polled lies in memory: most frequently sockets.
        "poll" | "ppoll" | "select" | "pselect6" => Wait::Socket { name: None },
        _ if takes_descriptor(&name) => of_descriptor(target, call.arguments[0]),
        _ => Wait::Other,
    }
}

fn takes_descriptor(name: &str) -> bool {
    matches!(
        name,
        "read"
            | "write"
            | "readv"
            | "writev"
            | "pread64"
            | "pwrite64"
            | "preadv"
            | "pwritev"
            | "preadv2"
            | "pwritev2"
            | "ioctl"
            | "fcntl"
            | "sendfile"
            | "splice"
            | "close"
    )
}

fn file(target: &Target, call: SystemCall) -> Wait {
    Wait::File {
        path: target.descriptor(call.arguments[0]),
    }
}

/// By what `/proc` says that the descriptor is.
fn of_descriptor(target: &Target, fd: u64) -> Wait {
    let link = target.descriptor(fd);
    match link.as_deref() {
        Some(name) if name.starts_with("socket:") => Wait::Socket { name: link },
        Some(name) if name.starts_with("pipe:") => Wait::Pipe { name: link },
        Some(name) if name.starts_with("/dev/pts/") || name.starts_with("/dev/tty") => {
            Wait::Terminal { path: link }
        }
        Some(name) if name.starts_with("anon_inode:") => Wait::Other,
        Some(name) if target.is_fifo(fd) => Wait::Pipe {
            name: Some(name.to_owned()),
        },
        Some(_) => Wait::File { path: link },
        None => Wait::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn system_calls_tell_what_is_waited_for() {
        let own = Target::by_pid(std::process::id()).unwrap();
        let call = |number: Sysno, first: u64| {
            Some(SystemCall {
                number: number.id() as u32,
                arguments: [first, 0, 0],
            })
        };
        assert_eq!(wait_of(&own, call(Sysno::futex, 0)), Wait::Lock);
        assert_eq!(wait_of(&own, call(Sysno::clock_nanosleep, 0)), Wait::Sleep);
        assert_eq!(wait_of(&own, call(Sysno::getpid, 0)), Wait::Other);
        assert_eq!(wait_of(&own, None), Wait::Memory);
        let file = std::fs::File::open("/proc/self/status").unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file) as u64;
        assert!(matches!(
            wait_of(&own, call(Sysno::read, fd)),
            Wait::File { path: Some(path) } if path.ends_with("/status")
        ));
        let (reader, _writer) = std::io::pipe().unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&reader) as u64;
        assert!(matches!(
            wait_of(&own, call(Sysno::read, fd)),
            Wait::Pipe { .. }
        ));
        assert_eq!(wait_of(&own, call(Sysno::read, u64::MAX)), Wait::Other);
    }
}
