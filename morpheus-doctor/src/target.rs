//! The process that is looked at, by `/proc`.
//!
//! Numbers of processes and threads are those of the doctor's own PID namespace throughout. A process in a container is seen
//! there under such a number, and its files are reached through `/proc/PID/root`.

use std::ffi::CString;
use std::fmt;
use std::fs;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use morpheus_system::threads::proc_text;

use crate::report::names::printable;
use crate::source::SystemCall;

/// Why there is no process to look at.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No such number.
    #[error("there is no process {0}")]
    NoProcess(u32),
    /// The number is a thread's.
    #[error("{0} is a thread of process {1}: use --pid {1}")]
    NotAProcess(u32, u32),
    /// A thread of the kernel.
    #[error("process {0} is a kernel thread: it runs no program")]
    Kernel(u32),
    /// No such name.
    #[error("no process has the name {0}; names are those of `ps -e`, of at most 15 characters")]
    NoName(String),
    /// More than one.
    #[error("{count} processes have the name {name}: choose one with --pid ({pids})")]
    Ambiguous {
        /// The name.
        name: String,
        /// How many there are.
        count: usize,
        /// The first few.
        pids: String,
    },
    /// `/proc` says no.
    #[error("/proc/{pid}/{file} cannot be read: {source}{}", hint(source))]
    Unreadable {
        /// The process.
        pid: u32,
        /// The file in its directory.
        file: &'static str,
        /// Why.
        source: io::Error,
    },
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "; run as the process's user or as root (sudo), outside of sandboxes"
        }
        _ => "",
    }
}

/// A process.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its number.
    pub pid: u32,
    /// Its name.
    pub name: String,
    /// Its program file, as it sees it itself.
    pub program: PathBuf,
    /// When it began, in the kernel's clock ticks: a number is given again, this pair is not.
    started: u64,
    /// Its program file, whatever its name becomes.
    identity: Option<Identity>,
}

/// A file: its device, in two numbers, and its number there.
type Identity = (u32, u32, u64);

impl Target {
    /// The process with this number.
    ///
    /// # Errors
    ///
    /// If there is none, or `/proc` does not tell.
    pub fn by_pid(pid: u32) -> Result<Target, Error> {
        let status = match proc_text(format!("/proc/{pid}/status")) {
            Ok(status) => status,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Error::NoProcess(pid));
            }
            Err(source) => {
                return Err(Error::Unreadable {
                    pid,
                    file: "status",
                    source,
                });
            }
        };
        let field = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name))?;
            line.split_whitespace().nth(1)
        };
        if let Some(leader) = field("Tgid:").and_then(|tgid| tgid.parse().ok())
            && leader != pid
        {
            return Err(Error::NotAProcess(pid, leader));
        }
        // The kernel's own threads have no memory.
        if field("VmSize:").is_none() {
            return match field("State:") {
                Some("Z" | "X") => Err(Error::NoProcess(pid)),
                _ => Err(Error::Kernel(pid)),
            };
        }
        let program =
            fs::read_link(format!("/proc/{pid}/exe")).map_err(|source| Error::Unreadable {
                pid,
                file: "exe",
                source,
            })?;
        Ok(Target {
            pid,
            name: name_of(pid, pid).unwrap_or_default(),
            program,
            started: started(pid).ok_or(Error::NoProcess(pid))?,
            identity: program_of(pid),
        })
    }

    /// The process with this name: that of its main thread, or the file name of its program, also if that was replaced
    /// or removed since.
    ///
    /// # Errors
    ///
    /// If none has it, or more than one.
    pub fn by_name(name: &str) -> Result<Target, Error> {
        let mut found: Vec<u32> = numbers(Path::new("/proc"))
            .filter(|&pid| pid != std::process::id())
            .filter(|&pid| {
                name_of(pid, pid).is_some_and(|comm| comm == name)
                    || fs::read_link(format!("/proc/{pid}/exe"))
                        .is_ok_and(|exe| file_name_of(&exe) == Some(name.as_bytes()))
            })
            .collect();
        found.sort_unstable();
        match found[..] {
            [] => Err(Error::NoName(name.to_owned())),
            [pid] => Target::by_pid(pid),
            _ => {
                let mut pids: Vec<String> = found.iter().take(8).map(u32::to_string).collect();
                if found.len() > pids.len() {
                    pids.push("…".to_owned());
                }
                Err(Error::Ambiguous {
                    name: name.to_owned(),
                    count: found.len(),
                    pids: pids.join(", "),
                })
            }
        }
    }

    /// Whether it is still there.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        started(self.pid) == Some(self.started)
    }

    /// Whether it runs another program by now.
    #[must_use]
    pub fn has_another_program(&self) -> bool {
        // By the file and not by its path: one that was renamed or removed is still the same program.
        program_of(self.pid).is_some_and(|identity| Some(identity) != self.identity)
    }

    /// Its threads.
    #[must_use]
    pub fn threads(&self) -> Vec<u32> {
        numbers(Path::new(&format!("/proc/{}/task", self.pid))).collect()
    }

    /// The name of one of its threads.
    #[must_use]
    pub fn name_of(&self, tid: u32) -> Option<String> {
        name_of(self.pid, tid)
    }

    /// The number of one of its threads as the process itself has it: in its own PID namespace.
    #[must_use]
    pub fn own_number_of(&self, tid: u32) -> Option<u32> {
        let status = proc_text(format!("/proc/{}/task/{tid}/status", self.pid)).ok()?;
        let numbers = status
            .lines()
            .find_map(|line| line.strip_prefix("NSpid:"))?;
        numbers.split_whitespace().next_back()?.parse().ok()
    }

    /// The file of one of its descriptors, as `/proc` names it.
    #[must_use]
    pub fn descriptor(&self, fd: u64) -> Option<String> {
        let link = fs::read_link(format!("/proc/{}/fd/{fd}", self.pid)).ok()?;
        Some(link.to_string_lossy().into_owned())
    }
}

impl Target {
    /// The type of the file of one of its descriptors, as in `st_mode`.
    #[must_use]
    pub fn mode_of(&self, fd: u64) -> Option<u32> {
        let status = status_at_hand(&format!("/proc/{}/fd/{fd}", self.pid))?;
        Some(status.stx_mode.into())
    }

    /// How many times one of its threads was given a CPU; None of one that is gone, and where the kernel does not count
    /// (`CONFIG_SCHED_INFO`).
    #[must_use]
    pub fn turns(&self, tid: u32) -> Option<u64> {
        let counts = fs::read_to_string(format!("/proc/{}/task/{tid}/schedstat", self.pid)).ok()?;
        turns(&counts)
    }

    /// The system call in which one of its threads sleeps, with the stack pointer and the instruction pointer. None of a thread that
    /// runs, or that is gone; the inner None where it sleeps in none.
    #[must_use]
    pub fn sleeps_in(&self, tid: u32) -> Option<(Option<SystemCall>, u64, u64)> {
        let words = fs::read_to_string(format!("/proc/{}/task/{tid}/syscall", self.pid)).ok()?;
        parse_system_call(&words)
    }
}

/// How many times a thread was given a CPU, of a line of its `schedstat`. A thread that exists has run: without delay accounting some
/// kernels have the line, and only zeros in it.
pub(crate) fn turns(line: &str) -> Option<u64> {
    let turns = line.split_whitespace().nth(2)?.parse().ok();
    turns.filter(|&turns| turns > 0)
}

/// A line of `/proc/PID/syscall`.
pub(crate) fn parse_system_call(line: &str) -> Option<(Option<SystemCall>, u64, u64)> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let word = |index: usize| {
        let text = words.get(index)?.strip_prefix("0x")?;
        u64::from_str_radix(text, 16).ok()
    };
    match words[..] {
        // Asleep, and in no system call.
        ["-1", _, _] => Some((None, word(1)?, word(2)?)),
        [number, ..] => {
            let call = SystemCall {
                number: number.parse().ok()?,
                arguments: [word(1)?, word(2)?, word(3)?],
            };
            Some((Some(call), word(7)?, word(8)?))
        }
        [] => None,
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The process has chosen its name.
        write!(f, "{} ({})", printable(&self.name), self.pid)
    }
}

/// The directories there whose names are numbers.
fn numbers(directory: &Path) -> impl Iterator<Item = u32> + use<> {
    fs::read_dir(directory)
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
}

fn name_of(pid: u32, tid: u32) -> Option<String> {
    let name = fs::read(format!("/proc/{pid}/task/{tid}/comm")).ok()?;
    Some(
        String::from_utf8_lossy(&name)
            .trim_end_matches('\n')
            .to_owned(),
    )
}

/// The program file of a process.
fn program_of(pid: u32) -> Option<Identity> {
    let status = status_at_hand(&format!("/proc/{pid}/exe"))?;
    Some((status.stx_dev_major, status.stx_dev_minor, status.stx_ino))
}

/// The type and the number of a file, as far as the kernel has them at hand. A file system that does not answer, which may be the
/// fault that is looked for, is not asked.
fn status_at_hand(path: &str) -> Option<libc::statx> {
    let path = CString::new(path).ok()?;
    let mut status = MaybeUninit::<libc::statx>::zeroed();
    // SAFETY: both pointers are to locals that outlive the call, and the kernel writes a `statx` at most.
    let result = unsafe {
        libc::statx(
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::AT_STATX_DONT_SYNC,
            libc::STATX_TYPE | libc::STATX_INO,
            status.as_mut_ptr(),
        )
    };
    // SAFETY: integers alone, all of which are 0 or were written.
    (result == 0).then(|| unsafe { status.assume_init() })
}

/// When a process began. None of one that has ended and is still in the table.
fn started(pid: u32) -> Option<u64> {
    let stat = proc_text(format!("/proc/{pid}/stat")).ok()?;
    // The name before may contain anything.
    let (_, rest) = stat.rsplit_once(')')?;
    let mut fields = rest.split_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

/// The file name of a program, by its link in `/proc`: without the words that the kernel adds for a file that was replaced
/// or removed.
fn file_name_of(exe: &Path) -> Option<&[u8]> {
    let name = exe.file_name()?.as_bytes();
    Some(name.strip_suffix(b" (deleted)").unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_found() {
        let target = Target::by_pid(std::process::id()).unwrap();
        assert_eq!(target.program, std::env::current_exe().unwrap());
        assert!(target.is_alive());
        assert!(!target.has_another_program());
        assert!(target.threads().contains(&target.pid));
        assert_eq!(target.name_of(target.pid), Some(target.name.clone()));
        assert_eq!(target.own_number_of(target.pid), Some(target.pid));
        assert_eq!(target.turns(u32::MAX), None);
        assert_eq!(
            (turns("5 7 9\n"), turns("0 0 0\n"), turns("")),
            (Some(9), None, None)
        );
    }

    #[test]
    fn a_program_that_is_renamed_or_removed_is_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let (path, renamed) = (
            directory.path().join("program"),
            directory.path().join("old"),
        );
        fs::copy("/bin/sleep", &path).unwrap();
        let mut child = std::process::Command::new(&path).arg("60").spawn().unwrap();
        let target = Target::by_pid(child.id()).unwrap();
        fs::rename(&path, &renamed).unwrap();
        fs::copy("/bin/sleep", &path).unwrap();
        let after_rename = target.has_another_program();
        fs::remove_file(&renamed).unwrap();
        let after_removal = target.has_another_program();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((after_rename, after_removal), (false, false));
    }

    #[test]
    fn a_program_that_was_removed_has_its_name() {
        let directory = tempfile::tempdir().unwrap();
        // Longer than what the kernel keeps of a thread's name.
        let name = format!("a-service-of-{}", std::process::id());
        let path = directory.path().join(&name);
        fs::copy("/bin/sleep", &path).unwrap();
        let mut child = std::process::Command::new(&path).arg("60").spawn().unwrap();
        let pid = || Target::by_name(&name).map(|target| target.pid).ok();
        let before = pid();
        fs::remove_file(&path).unwrap();
        let after = pid();
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!((before, after), (Some(child.id()), Some(child.id())));
    }

    #[test]
    fn a_process_whose_name_ends_within_a_character_is_found() {
        let directory = tempfile::tempdir().unwrap();
        // The kernel keeps 15 bytes of it, and the last character has two.
        let path = directory.path().join("four-teen-byteé");
        fs::copy("/bin/sleep", &path).unwrap();
        let mut child = std::process::Command::new(&path).arg("60").spawn().unwrap();
        let target = Target::by_pid(child.id());
        let read = target
            .as_ref()
            .map(|target| (target.is_alive(), target.own_number_of(target.pid)));
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(read.unwrap(), (true, Some(child.id())));
    }

    #[test]
    fn another_program_is_noticed() {
        let mut shell = std::process::Command::new("sh");
        shell.args(["-c", "read line; exec sleep 60"]);
        let mut child = shell.stdin(std::process::Stdio::piped()).spawn().unwrap();
        let target = Target::by_pid(child.id()).unwrap();
        assert!(!target.has_another_program());
        drop(child.stdin.take());
        morpheus_testing::wait_for("another program", || target.has_another_program());
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn a_name_does_not_reach_the_terminal_as_it_is() {
        let mut target = Target::by_pid(std::process::id()).unwrap();
        target.name = "\x1b[2J\x1b]0;x".to_owned();
        assert!(
            !target.to_string().chars().any(char::is_control),
            "{target}"
        );
    }

    #[test]
    fn system_calls_are_read() {
        let line = "202 0x7f 0x80 0x1 0x0 0x0 0x0 0x7ffd 0x55\n";
        let (call, sp, ip) = parse_system_call(line).unwrap();
        assert_eq!(call.unwrap().number, 202);
        assert_eq!(call.unwrap().arguments, [0x7f, 0x80, 1]);
        assert_eq!((sp, ip), (0x7ffd, 0x55));
        assert_eq!(parse_system_call("-1 0x7 0x8"), Some((None, 7, 8)));
        for line in [
            "",
            "running",
            "-1 7 8",
            "202 0x1",
            "x 0x1 0x1 0x1 0x1 0x1 0x1 0x1 0x1",
        ] {
            assert_eq!(parse_system_call(line), None, "{line}");
        }
    }

    #[test]
    fn what_is_no_process_is_said() {
        // Above the largest that the kernel gives.
        assert!(matches!(Target::by_pid(1 << 23), Err(Error::NoProcess(_))));
        let name = "no process has this";
        assert!(matches!(Target::by_name(name), Err(Error::NoName(_))));
        let (send, receive) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let link = fs::read_link("/proc/thread-self").unwrap();
            let tid: u32 = link.file_name().unwrap().to_str().unwrap().parse().unwrap();
            send.send(tid).unwrap();
            std::thread::park();
        });
        let tid = receive.recv().unwrap();
        assert!(
            matches!(Target::by_pid(tid), Err(Error::NotAProcess(_, leader)) if leader == std::process::id())
        );
        thread.thread().unpark();
        thread.join().unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let target = Target::by_pid(child.id());
        child.wait().unwrap();
        if let Ok(target) = target {
            assert!(!target.is_alive());
        }
    }
}
