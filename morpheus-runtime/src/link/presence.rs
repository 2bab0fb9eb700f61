//! Waits for a daemon to appear, without looking for it again and again: an idle runtime has no wakeups.

use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};

/// Where directories cannot be watched, it is looked for so often.
const UNWATCHED: Duration = Duration::from_secs(5);

/// Waits until something changes where the socket is or should be, the bell rings, or the time is over.
///
/// What changed just before is missed: after a look that found nothing, the first waits are short.
pub(crate) fn wait(socket: &Path, bell: BorrowedFd<'_>, at_most: Option<Duration>) {
    // Absolute, or it has no directory to watch.
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
        // Not at once again, whatever the reason.
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

/// Whether anything is ready.
fn wait_for(fds: &mut [PollFd<'_>], at_most: Option<Duration>) -> bool {
    let timeout = at_most.map(|at_most| Timespec {
        tv_sec: at_most.as_secs() as i64,
        tv_nsec: at_most.subsec_nanos().into(),
    });
    poll(fds, timeout.as_ref()).is_ok_and(|ready| ready > 0)
}

/// The deepest directory on the way that exists, and what is to appear in it.
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

/// Reads what happened. Whether it concerns this name, or the directory itself.
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
    fn what_appears_step_by_step_is_noticed() {
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
    fn the_bell_ends_it() {
        let directory = directory("bell");
        let bell = eventfd(1, EventfdFlags::CLOEXEC).unwrap();
        wait(&directory.join("socket"), bell.as_fd(), None);
        std::fs::remove_dir_all(directory).unwrap();
    }
}
