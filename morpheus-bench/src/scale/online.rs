//! CPUs taken offline for a while, and brought back whatever ends this program.

use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode, Stdio};

use morpheus_harness::{report, supervised};
use serde::{Deserialize, Serialize};

use crate::cpus;

/// Where the kernel has a directory for each CPU.
pub const DIRECTORY: &str = "/sys/devices/system/cpu";

/// The CPUs that the restorer is to bring back online.
#[derive(Debug, Serialize, Deserialize)]
struct Job {
    directory: PathBuf,
    cpus: Vec<usize>,
}

/// CPUs that are offline as long as this lives.
///
/// They are brought back by a process of their own that waits for the end of a pipe: so they also come back when this
/// program is killed.
#[derive(Debug)]
pub struct Offline {
    /// The end of its stdin is the word to bring them back.
    restorer: Child,
}

impl Offline {
    /// Leaves `count` of the CPUs that are online, the lowest numbers; `None` where there are no more than that.
    /// `directory` is [`DIRECTORY`].
    ///
    /// # Errors
    /// When there are fewer, or the kernel does not let one go; those that are gone come back.
    pub fn all_but(count: usize, directory: &Path) -> Result<Option<Self>, String> {
        let online = online(directory)?;
        if online.len() < count {
            return Err(format!("{} CPUs are online, not {count}", online.len()));
        }
        let surplus = online[count..].to_vec();
        if surplus.is_empty() {
            return Ok(None);
        }
        Self::these(surplus, directory).map(Some)
    }

    /// Takes these offline.
    ///
    /// # Errors
    /// When the kernel does not let one go; those that are gone come back.
    pub fn these(cpus: Vec<usize>, directory: &Path) -> Result<Self, String> {
        let restorer = supervised::own("scale")
            .arg("--restorer")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            // Ctrl-C, and the end of a measurement's group, are for us.
            .process_group(0)
            .spawn()
            .map_err(|error| format!("cannot start what brings CPUs back: {error}"))?;
        let offline = Self { restorer };
        let job = Job {
            directory: directory.to_owned(),
            cpus,
        };
        let mut word = offline.restorer.stdin.as_ref().ok_or("no stdin")?;
        let told = word.write_all(report::json(&job).as_bytes());
        told.map_err(|error| format!("what brings CPUs back does not listen: {error}"))?;
        for cpu in job.cpus {
            set(directory, cpu, false)
                .map_err(|error| format!("CPU {cpu} cannot be taken offline: {error}"))?;
        }
        Ok(offline)
    }
}

impl Drop for Offline {
    fn drop(&mut self) {
        // This closes its stdin. It says itself what does not come back.
        let _ = self.restorer.wait();
    }
}

/// The restorer's whole life. Exit code 0 when all are back, 1 when one is not, 2 when its parent gave it no job.
pub fn restore() -> ExitCode {
    // SAFETY: ignoring a signal touches no memory. The terminal's end must not end us first.
    unsafe { libc::signal(libc::SIGHUP, libc::SIG_IGN) };
    let job: Job = supervised::job("scale");
    // Until the other end is closed, by its owner or by its owner's end.
    let _ = io::stdin().read_to_end(&mut Vec::new());
    let mut code = ExitCode::SUCCESS;
    for cpu in job.cpus {
        if let Err(error) = set(&job.directory, cpu, true) {
            eprintln!("scale: CPU {cpu} does not come back: {error}");
            code = ExitCode::FAILURE;
        }
    }
    code
}

fn set(directory: &Path, cpu: usize, online: bool) -> io::Result<()> {
    let path = directory.join(format!("cpu{cpu}/online"));
    fs::write(path, if online { "1" } else { "0" })
}

/// The CPUs that are online, in ascending order. `directory` is [`DIRECTORY`].
///
/// # Errors
/// When the kernel does not tell, or says what is no list of CPUs.
pub fn online(directory: &Path) -> Result<Vec<usize>, String> {
    let path = directory.join("online");
    let text = fs::read_to_string(&path)
        .map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    cpus::listed(&text)
        .ok_or_else(|| format!("{}: {:?} is no list of CPUs", path.display(), text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_says_which_are_online() {
        assert!(!online(Path::new(DIRECTORY)).unwrap().is_empty());
        let error = online(Path::new("/nonexistent")).unwrap_err();
        assert!(error.contains("cannot be read"), "{error}");
    }

    #[test]
    fn what_is_not_there_cannot_be_left() {
        let many = Offline::all_but(100_000, Path::new(DIRECTORY)).unwrap_err();
        assert!(many.contains("not 100000"), "{many}");
        let all = online(Path::new(DIRECTORY)).unwrap().len();
        assert!(
            Offline::all_but(all, Path::new(DIRECTORY))
                .unwrap()
                .is_none()
        );
    }
}
