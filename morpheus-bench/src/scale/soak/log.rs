//! The kernel's log of schedulers and of itself during a measurement.

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;

/// Where the log is. Each read gives one record.
pub const DEVICE: &str = "/dev/kmsg";
/// The most that the kernel makes of a record.
const RECORD_BYTES: usize = 8_192;
/// The marks of a line that tells of trouble. While no scheduler is started or stopped, sched_ext has nothing to say either.
const TROUBLE: [&str; 10] = [
    "sched_ext",
    "WARNING:",
    "BUG:",
    "Oops",
    "general protection fault",
    "soft lockup",
    "hard LOCKUP",
    "detected stall",
    "self-detected stall",
    "blocked for more than",
];

/// Errors after which the next read gives a record: the oldest that is left, where some were overwritten (a broken pipe).
const PASSING: [ErrorKind; 2] = [ErrorKind::Interrupted, ErrorKind::BrokenPipe];

/// The log from now on.
#[derive(Debug)]
pub struct Log(File);

impl Log {
    /// `device` is [`DEVICE`].
    ///
    /// # Errors
    /// When it may not be read, with what to do about it.
    pub fn from_now(device: &Path) -> Result<Self, String> {
        super::open(device)
            .and_then(|mut log| log.seek(SeekFrom::End(0)).map(|_| Self(log)))
            .map_err(|error| {
                format!(
                    "{} cannot be read: {error} (are you root?)",
                    device.display()
                )
            })
    }

    /// The lines since the last call that tell of trouble.
    ///
    /// # Errors
    /// When reading fails.
    pub fn troubles(&mut self) -> Result<Vec<String>, String> {
        let mut lines = Vec::new();
        let mut bytes = vec![0; RECORD_BYTES];
        loop {
            match self.0.read(&mut bytes) {
                Ok(0) => return Ok(lines),
                Ok(length) => lines.extend(trouble(&String::from_utf8_lossy(&bytes[..length]))),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(lines),
                Err(error) if PASSING.contains(&error.kind()) => {}
                Err(error) => return Err(format!("the kernel's log cannot be read: {error}")),
            }
        }
    }
}

/// The text of a record (`4,339,5140900,-;text`) that tells of trouble. A program that may write to the log could steer a terminal by it.
fn trouble(record: &str) -> Option<String> {
    let (_, text) = record.split_once(';')?;
    let line = text.lines().next()?;
    let told = TROUBLE.iter().any(|words| line.contains(words));
    told.then(|| line.chars().filter(|c| !c.is_control()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trouble_is_told_from_the_rest() {
        for line in [
            "sched_ext: morpheus: runnable task stall (a[1] failed to run for 30.1s)",
            "WARNING: CPU: 1 PID: 9 at kernel/sched/ext.c:1 x",
            "watchdog: BUG: soft lockup - CPU#1 stuck for 22s!",
            "rcu: INFO: rcu_preempt self-detected stall on CPU",
            "INFO: task kworker/0:1:9 blocked for more than 120 seconds.",
        ] {
            let record = format!("4,339,5140900,-;{line}\n SUBSYSTEM=x\n");
            assert_eq!(trouble(&record).as_deref(), Some(line));
        }
        let of_hotplug = "6,1,2,-;smpboot: CPU 1 is now offline\n";
        assert_eq!(trouble(of_hotplug), None);
        assert_eq!(trouble("no record"), None);
        let steering = "3,1,2,-;BUG:\u{1b}[2J x";
        assert_eq!(trouble(steering).as_deref(), Some("BUG:[2J x"));
    }

    #[test]
    fn what_was_there_before_does_not_count() {
        let path = std::env::temp_dir().join(format!("kmsg-{}", std::process::id()));
        std::fs::write(&path, "4,1,1,-;BUG: old\n").unwrap();
        let mut log = Log::from_now(&path).unwrap();
        assert_eq!(log.troubles(), Ok(Vec::new()));
        let mut file = std::fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .unwrap();
        std::io::Write::write_all(&mut file, b"4,2,2,-;BUG: new\n").unwrap();
        assert_eq!(log.troubles(), Ok(vec!["BUG: new".into()]));
        std::fs::remove_file(path).unwrap();
        let error = Log::from_now(Path::new("/nowhere/kmsg")).unwrap_err();
        assert!(error.contains("are you root"), "{error}");
    }
}
