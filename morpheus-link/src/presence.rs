//! Waits for a daemon to appear, without periodic checks: an idle runtime has no wakeups.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

/// Interval of the checks where the kernel cannot watch directories.
const UNWATCHED: Duration = Duration::from_secs(5);

/// Waits until a directory on the socket's path changes, the bell rings, or `at_most` is over.
///
/// It misses a change that comes just before the call. So the first waits after a check that found nothing are short.
pub fn wait(socket: &Path, bell: BorrowedFd<'_>, at_most: Option<Duration>) {
    // An absolute path, because a bare name has no directory to watch.
    let socket = std::path::absolute(socket).unwrap_or_else(|_| socket.to_owned());
    let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok();
    let watched = inotify.as_ref().and_then(|inotify| {
        let (directory, name) = deepest(&socket)?;
        let changes = WatchFlags::CREATE
            | WatchFlags::MOVED_TO
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF;
        inotify::add_watch(inotify, &directory, changes).ok()?;
        Some((inotify, name))
    });
    let Some((inotify, name)) = watched else {
        // A pause, so that the caller does not check in a busy loop.
        let pause = at_most.unwrap_or(UNWATCHED).min(UNWATCHED);
        wait_for(
            &mut [PollFd::from_borrowed_fd(bell, PollFlags::IN)],
            Some(pause),
        );
        return;
    };
    loop {
        let mut both = [
            PollFd::new(inotify, PollFlags::IN),
            PollFd::from_borrowed_fd(bell, PollFlags::IN),
        ];
        if !wait_for(&mut both, at_most) || !both[1].revents().is_empty() {
            return;
        }
        if names(inotify.as_fd(), name) {
            return;
        }
    }
}

/// Waits until a descriptor is ready. Returns whether one is.
fn wait_for(fds: &mut [PollFd<'_>], at_most: Option<Duration>) -> bool {
    let timeout = at_most.map(|at_most| Timespec {
        tv_sec: at_most.as_secs() as i64,
        tv_nsec: at_most.subsec_nanos().into(),
    });
    poll(fds, timeout.as_ref()).is_ok_and(|ready| ready > 0)
}

/// Returns the deepest directory of the path that exists, and the name that is to appear in it.
fn deepest(socket: &Path) -> Option<(PathBuf, &OsStr)> {
    let mut path = socket;
    loop {
        let directory = path.parent()?;
        if directory.is_dir() {
            return Some((directory.to_owned(), path.file_name()?));
        }
        path = directory;
    }
}

/// Reads the changes. Returns whether one is about this name or the directory itself.
fn names(inotify: BorrowedFd<'_>, name: &OsStr) -> bool {
    let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
    let mut events = inotify::Reader::new(inotify, &mut buffer);
    let mut concerned = false;
    while let Ok(event) = events.next() {
        let other = event
            .file_name()
            .is_some_and(|file| file.to_bytes() != name.as_encoded_bytes());
        concerned |= !other;
    }
    concerned
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::event::{EventfdFlags, eventfd};
    use std::time::Instant;

    fn directory(name: &str) -> PathBuf {
        let directory =
            std::env::temp_dir().join(format!("morpheus-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).unwrap();
        directory
    }

    #[test]
    fn a_path_that_appears_step_by_step_is_noticed() {
        let directory = directory("presence");
        let socket = directory.join("run").join("socket");
        let bell = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let begun = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !socket.exists() && begun.elapsed() < Duration::from_secs(10) {
                    wait(&socket, bell.as_fd(), Some(Duration::from_secs(10)));
                }
            });
            std::thread::sleep(Duration::from_millis(50));
            std::fs::write(directory.join("other"), "").unwrap();
            std::fs::create_dir(directory.join("run")).unwrap();
            std::thread::sleep(Duration::from_millis(50));
            std::fs::write(&socket, "").unwrap();
        });
        assert!(begun.elapsed() < Duration::from_secs(5));
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn the_bell_ends_a_wait() {
        let directory = directory("bell");
        let bell = eventfd(1, EventfdFlags::CLOEXEC).unwrap();
        wait(&directory.join("socket"), bell.as_fd(), None);
        std::fs::remove_dir_all(directory).unwrap();
    }
}
