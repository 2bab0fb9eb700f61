//! Waits for a daemon to appear, without periodic checks: an idle runtime has no wakeups.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

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
    wait_since(&Present::of(&socket), &socket, bell, at_most);
}

/// Waits as [`wait`] does, for a change since `before`.
fn wait_since(
    before: &Present<'_>,
    socket: &Path,
    bell: BorrowedFd<'_>,
    at_most: Option<Duration>,
) {
    let until = at_most.and_then(|at_most| Instant::now().checked_add(at_most));
    let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).ok();
    let watched = inotify.as_ref().and_then(|inotify| {
        let (directory, name) = before.deepest.as_ref()?;
        let changes = WatchFlags::CREATE
            | WatchFlags::MOVED_TO
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF;
        inotify::add_watch(inotify, directory, changes).ok()?;
        Some((inotify, *name))
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
    // A change that comes before the watch causes no event.
    if Present::of(socket) != *before {
        return;
    }
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let mut both = [
            PollFd::new(inotify, PollFlags::IN),
            PollFd::from_borrowed_fd(bell, PollFlags::IN),
        ];
        if !wait_for(&mut both, left) || !both[1].revents().is_empty() {
            return;
        }
        // Without time left `poll` still returns events, of which there may be more and more.
        if names(inotify.as_fd(), name) || left.is_some_and(|left| left.is_zero()) {
            return;
        }
    }
}

/// The part of a socket's path that exists.
#[derive(PartialEq, Eq)]
struct Present<'path> {
    /// Whether the socket itself exists.
    socket: bool,
    /// The deepest directory that exists, and the name that is to appear in it.
    deepest: Option<(PathBuf, &'path OsStr)>,
}

impl<'path> Present<'path> {
    /// `socket` is an absolute path.
    fn of(socket: &'path Path) -> Present<'path> {
        Present {
            socket: socket.exists(),
            deepest: deepest(socket),
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
    use std::sync::atomic::{AtomicBool, Ordering};

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

    #[test]
    fn changes_of_other_names_make_a_wait_no_longer() {
        let directory = directory("others");
        let bell = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Relaxed, here and below: a late end makes some more changes. A wait that each change begins anew ends with the
                // changes, and is too long.
                let until = Instant::now() + Duration::from_secs(20);
                while !is_over.load(Ordering::Relaxed) && Instant::now() < until {
                    std::fs::write(directory.join("other"), "").unwrap();
                    std::fs::remove_file(directory.join("other")).unwrap();
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
            let begun = Instant::now();
            let at_most = Some(Duration::from_millis(500));
            wait(&directory.join("socket"), bell.as_fd(), at_most);
            let waited = begun.elapsed();
            is_over.store(true, Ordering::Relaxed);
            assert!(waited < Duration::from_secs(15), "{waited:?}");
        });
        std::fs::remove_dir_all(directory).unwrap();
    }

    #[test]
    fn a_change_before_the_watch_ends_the_wait() {
        let directory = directory("before");
        let socket = directory.join("run").join("socket");
        let bell = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
        let at_most = Duration::from_secs(20);
        let begun = Instant::now();
        let before = Present::of(&socket);
        std::fs::create_dir(directory.join("run")).unwrap();
        wait_since(&before, &socket, bell.as_fd(), Some(at_most));
        let before = Present::of(&socket);
        std::fs::write(&socket, "").unwrap();
        wait_since(&before, &socket, bell.as_fd(), Some(at_most));
        assert!(begun.elapsed() < at_most);
        std::fs::remove_dir_all(directory).unwrap();
    }
}
