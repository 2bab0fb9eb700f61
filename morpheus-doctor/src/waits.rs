//! The wait of a blocked thread, by its system call and the kind of its descriptor.

use syscalls::Sysno;

use crate::model::Wait;
use crate::source::{Named, SystemCall};
use crate::target::Target;

/// The name of a system call.
#[must_use]
pub fn name_of(call: SystemCall) -> Option<&'static str> {
    Sysno::new(call.number as usize).map(|number| number.name())
}

/// Whether an executor may wait for work in this system call.
#[must_use]
pub fn may_park(call: SystemCall) -> bool {
    name_of(call).is_some_and(|name| {
        name.starts_with("futex") || name.starts_with("epoll_") || matches!(name, "poll" | "ppoll")
    })
}

/// The wait of a thread in this system call; without one it waits for memory.
#[must_use]
pub fn wait_of(target: &Target, call: Option<SystemCall>, named: &Named) -> Wait {
    let Some(call) = call else {
        return Wait::Memory;
    };
    let Some(name) = name_of(call) else {
        return Wait::Other;
    };
    match name {
        "nanosleep" | "clock_nanosleep" | "pause" => Wait::Sleep,
        "futex" | "futex_waitv" | "futex_wait" => Wait::Lock,
        "wait4" | "waitid" | "vfork" => Wait::Child,
        "sync" => Wait::File { path: None },
        "open" | "stat" | "lstat" | "unlink" | "rename" | "mkdir" | "truncate" | "execve" => {
            path(&named.paths[0])
        }
        "openat" | "openat2" | "newfstatat" | "statx" | "unlinkat" | "renameat" | "renameat2"
        | "mkdirat" => path(&named.paths[1]),
        // The polled descriptors are listed in memory: most frequently they are sockets.
        "poll" | "ppoll" | "select" | "pselect6" => Wait::Socket { name: None },
        _ if takes_descriptor(name) => of_descriptor(target, call.arguments[0], named),
        _ => Wait::Other,
    }
}

fn path(path: &str) -> Wait {
    Wait::File {
        path: (!path.is_empty()).then(|| path.to_owned()),
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

/// By what the kernel has said of the descriptor when the thread woke, and by what `/proc` says now.
fn of_descriptor(target: &Target, fd: u64, named: &Named) -> Wait {
    let now = target.descriptor(fd);
    let then = (!named.file.is_empty()).then(|| match named.directory.as_str() {
        "" | "/" => named.file.clone(),
        directory => format!("{directory}/{}", named.file),
    });
    // The descriptor may be another file's by now: then the names differ at the end.
    let path = match (&now, &then) {
        (Some(now), Some(then)) if !now.ends_with(&named.file) => Some(format!("…/{then}")),
        (Some(now), _) => Some(now.clone()),
        (None, then) => then.as_ref().map(|then| format!("…/{then}")),
    };
    let is_terminal = |path: &str| path.contains("/dev/pts/") || path.contains("/dev/tty");
    let is_fifo = |mode| mode & libc::S_IFMT == libc::S_IFIFO;
    match named.mode & libc::S_IFMT {
        libc::S_IFSOCK => Wait::Socket { name: now },
        libc::S_IFIFO => Wait::Pipe { name: path },
        libc::S_IFCHR if path.as_deref().is_some_and(is_terminal) => Wait::Terminal { path },
        0 => match now.as_deref() {
            Some(name) if name.starts_with("socket:") => Wait::Socket { name: now },
            Some(name) if name.starts_with("pipe:") => Wait::Pipe { name: now },
            Some(name) if is_terminal(name) => Wait::Terminal { path: now },
            Some(name) if name.starts_with("anon_inode:") => Wait::Other,
            Some(name) if target.mode_of(fd).is_some_and(is_fifo) => Wait::Pipe {
                name: Some(name.to_owned()),
            },
            Some(_) => Wait::File { path: now },
            None => Wait::Other,
        },
        _ => Wait::File { path },
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
        assert_eq!(
            wait_of(&own, call(Sysno::futex, 0), &Named::default()),
            Wait::Lock
        );
        assert_eq!(
            wait_of(&own, call(Sysno::clock_nanosleep, 0), &Named::default()),
            Wait::Sleep
        );
        assert_eq!(
            wait_of(&own, call(Sysno::getpid, 0), &Named::default()),
            Wait::Other
        );
        assert_eq!(wait_of(&own, None, &Named::default()), Wait::Memory);
        let parks = |number| may_park(call(number, 0).unwrap());
        assert!([Sysno::futex, Sysno::epoll_pwait].into_iter().all(parks));
        assert!(!parks(Sysno::clock_nanosleep) && !parks(Sysno::read));
        let file = std::fs::File::open("/proc/self/status").unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&file) as u64;
        assert!(matches!(
            wait_of(&own, call(Sysno::read, fd), &Named::default()),
            Wait::File { path: Some(path) } if path.ends_with("/status")
        ));
        let (reader, _writer) = std::io::pipe().unwrap();
        let fd = std::os::fd::AsRawFd::as_raw_fd(&reader) as u64;
        assert!(matches!(
            wait_of(&own, call(Sysno::read, fd), &Named::default()),
            Wait::Pipe { .. }
        ));
        assert_eq!(
            wait_of(&own, call(Sysno::read, u64::MAX), &Named::default()),
            Wait::Other
        );
    }
}
