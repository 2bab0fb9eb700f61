//! A sched_ext scheduler that a benchmark starts and stops, and whether one is in force.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use morpheus_harness::{clock, host};

use crate::{bustle, neighbours};

/// Where the kernel says what is in force.
pub const DIRECTORY: &str = "/sys/kernel/sched_ext";
/// Where files that are added to a guest lie.
const ADDED: &str = "/add";
/// A scheduler that is not there by then does not come.
const WITHIN: Duration = Duration::from_secs(30);
/// It is looked at this often meanwhile.
const LOOK: Duration = Duration::from_millis(20);
/// It has to settle: the first tasks are moved over.
const SETTLING: Duration = Duration::from_millis(500);

/// Whether a sched_ext scheduler is in force, by a directory such as [`DIRECTORY`].
pub fn is_loaded(directory: &Path) -> bool {
    host::line(directory.join("state")).is_some_and(|state| state == "enabled")
}

/// A sched_ext scheduler that is in force, as the kernel tells it from others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// The name that it gave itself.
    pub ops: String,
    /// How many had been loaded when this one was; `None` where the kernel does not tell. The same program, loaded again,
    /// has another number.
    pub sequence: Option<u64>,
}

/// The scheduler in force, by a directory such as [`DIRECTORY`]; `None` is the kernel's own.
pub fn loaded(directory: &Path) -> Option<Loaded> {
    let line = |name: &str| host::line(directory.join(name));
    is_loaded(directory).then(|| Loaded {
        ops: line("root/ops").unwrap_or_default(),
        sequence: line("enable_seq").and_then(|number| number.parse().ok()),
    })
}

/// A program: of those added to a guest, beside this one, or in the path.
pub fn find(name: &str) -> Option<PathBuf> {
    let own = std::env::current_exe().unwrap_or_default();
    let beside = own.parent().unwrap_or(Path::new(ADDED)).to_owned();
    let path = std::env::var_os("PATH").unwrap_or_default();
    [PathBuf::from(ADDED), beside]
        .into_iter()
        .chain(std::env::split_paths(&path))
        .map(|directory| directory.join(name))
        .find(|program| program.is_file())
}

/// A scheduler that was started here; ended when it is dropped, and with the thread that started it.
#[derive(Debug)]
pub struct Scheduler {
    child: Child,
    directory: PathBuf,
    /// Reads the program's stderr, so that the program never blocks on a full pipe; returns the last line.
    last_words: Option<JoinHandle<String>>,
}

impl Scheduler {
    /// Starts a program, and waits until its scheduler is in force by `directory`.
    ///
    /// # Errors
    /// When it is not, with what the program said.
    pub fn start(mut command: Command, directory: &Path) -> Result<Self, String> {
        let program = command.get_program().to_string_lossy().into_owned();
        // Ctrl-C is for the benchmark, which has to put back more than this.
        command
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        neighbours::end_with_caller(&mut command);
        let bustle = bustle::start();
        let mut child = command
            .spawn()
            .map_err(|error| format!("{program} does not start: {error}"))?;
        let stderr = child.stderr.take();
        let mut scheduler = Self {
            child,
            directory: directory.to_owned(),
            last_words: stderr.map(|stderr| std::thread::spawn(move || last_line(stderr))),
        };
        clock::within(WITHIN, LOOK, || is_loaded(directory) || !scheduler.runs());
        if !is_loaded(directory) {
            // So that there is an end of what it says.
            let _ = scheduler.child.kill();
            return Err(format!(
                "{program} loads no scheduler: {}",
                scheduler.last_words()
            ));
        }
        drop(bustle);
        std::thread::sleep(SETTLING);
        Ok(scheduler)
    }

    /// Checks that the scheduler was not ejected meanwhile: figures after that would belong to another scheduler.
    ///
    /// # Errors
    /// When it is gone.
    pub fn is_still_there(&mut self) -> Result<(), String> {
        match self.child.try_wait() {
            Ok(None) if is_loaded(&self.directory) => Ok(()),
            Ok(None) => Err("the scheduler was thrown out".into()),
            _ => Err(format!("the scheduler has ended: {}", self.last_words())),
        }
    }

    fn runs(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// The last thing that a program has said which has ended.
    fn last_words(&mut self) -> String {
        let said = self.last_words.take().and_then(|said| said.join().ok());
        said.filter(|said| !said.is_empty())
            .unwrap_or_else(|| "it does not say why".into())
    }
}

fn last_line(stderr: ChildStderr) -> String {
    let lines = BufReader::new(stderr).lines().map_while(Result::ok);
    let last = lines.filter(|line| !line.trim().is_empty()).last();
    last.unwrap_or_default().trim().to_owned()
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        let _bustle = bustle::start();
        if self.runs() {
            // SAFETY: a signal to our own child, which has not been waited for.
            unsafe { libc::kill(self.child.id() as libc::pid_t, libc::SIGINT) };
            clock::within(WITHIN, LOOK, || !self.runs());
        }
        // Whatever it still does: the kernel ends the scheduler of a process that is gone.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn directory(name: &str, state: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("scx-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("state"), format!("{state}\n")).unwrap();
        path
    }

    fn shell(line: &str, directory: &Path) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", line]).current_dir(directory);
        command
    }

    #[test]
    fn it_is_there_while_it_is_needed() {
        let path = directory("there", "disabled");
        assert!(!is_loaded(&path));
        let line = "trap 'echo disabled >state; exit' INT; echo enabled >state; while :; do sleep 0.02; done";
        let mut scheduler = Scheduler::start(shell(line, &path), &path).unwrap();
        assert!(is_loaded(&path));
        assert_eq!(scheduler.is_still_there(), Ok(()));
        drop(scheduler);
        assert!(!is_loaded(&path), "it was asked to stop");
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn who_does_not_come_says_why() {
        let path = directory("not", "disabled");
        let said = |line: &str| Scheduler::start(shell(line, &path), &path).unwrap_err();
        assert!(said("echo a >&2; echo b, no c >&2; exit 1").ends_with("b, no c"));
        assert!(said("exit 0").contains("does not say why"));
        let none = Scheduler::start(Command::new("/nowhere/at/all"), &path).unwrap_err();
        assert!(none.contains("does not start"), "{none}");
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn programs_are_found_in_the_path() {
        assert!(find("sh").is_some_and(|path| path.is_file()));
        assert_eq!(find("no-such-program-anywhere"), None);
    }
}
