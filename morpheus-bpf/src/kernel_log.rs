// SPDX-License-Identifier: GPL-2.0-only
//! The kernel's log: what it says of sched_ext, of this scheduler and of tasks that waited for too long. `scx_morpheus dmesg`
//! prints it, and [`run_log`](crate::run_log) keeps it while a daemon runs.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Where the log is. Each read gives one record.
pub const DEVICE: &str = "/dev/kmsg";
/// The most that the kernel makes of a record (`PRINTK_MESSAGE_MAX`).
const RECORD_BYTES: usize = 8192;
/// A line about scheduling holds one of these words, in upper or lower case. The watchdogs' words are there because a
/// scheduler that starves a task is first seen in them.
const WORDS: [&str; 8] = [
    "sched_ext",
    "scx",
    "morpheus",
    "soft lockup",
    "hard lockup",
    "rcu_preempt detected stalls",
    "self-detected stall",
    "blocked for more than",
];

/// Why it cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel keeps it to itself.
    #[error(
        "the kernel's log may not be read: run as root or with CAP_SYSLOG, or let everybody (sysctl kernel.dmesg_restrict=0)"
    )]
    Rights,
    /// Another reason.
    #[error("cannot read {DEVICE}: {0}")]
    Read(#[from] io::Error),
}

/// A record of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// From 0, an emergency, to 7, for debugging.
    pub level: u8,
    /// Since the machine was booted, in microseconds.
    pub at_us: u64,
    /// Its text, in one line.
    pub text: String,
}

impl Record {
    /// Whether it is about scheduling with sched_ext.
    #[must_use]
    pub fn concerns_us(&self) -> bool {
        let text = self.text.to_ascii_lowercase();
        WORDS.iter().any(|word| text.contains(word))
    }

    /// From "6,339,5140900,-;text" and further lines, which name a device and do not matter.
    #[must_use]
    pub fn parse(record: &str) -> Option<Record> {
        let (head, text) = record.split_once(';')?;
        let mut fields = head.split(',');
        let priority: u32 = fields.next()?.parse().ok()?;
        let at_us = fields.nth(1)?.parse().ok()?;
        Some(Record {
            level: (priority & 7) as u8,
            at_us,
            text: text.lines().next().unwrap_or_default().to_owned(),
        })
    }
}

impl std::fmt::Display for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (seconds, rest) = (self.at_us / 1_000_000, self.at_us % 1_000_000);
        write!(f, "[{seconds:>5}.{rest:06}] ")?;
        // A program may write to the log: what would steer the terminal is not shown.
        for character in self.text.chars() {
            let shown = if character.is_control() {
                '?'
            } else {
                character
            };
            write!(f, "{shown}")?;
        }
        Ok(())
    }
}

/// Chooses the records that are about scheduling with sched_ext, and what belongs to them: the kernel indents the lines of a
/// stack below the line that they are about.
#[derive(Debug, Default)]
pub struct Filter {
    kept: bool,
}

impl Filter {
    /// Whether to keep this record, of which the ones before were asked.
    pub fn keeps(&mut self, record: &Record) -> bool {
        let belongs = self.kept && record.text.starts_with([' ', '\t']);
        self.kept = belongs || record.concerns_us();
        self.kept
    }
}

/// The next item of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// A record.
    Record(Record),
    /// Records were overwritten before they were read.
    Lost,
    /// Nothing yet.
    End,
}

/// Reads the log record by record. Readable, for `poll`, when there is another one.
#[derive(Debug)]
pub struct Follower {
    log: File,
    bytes: Vec<u8>,
}

impl Follower {
    /// From the oldest record on that there is.
    ///
    /// # Errors
    ///
    /// When the log may not be read, or there is none.
    pub fn from_beginning(device: &Path) -> Result<Follower, Error> {
        let log = OpenOptions::new()
            .read(true)
            // The end is an error then, and not a wait for the next record.
            .custom_flags(libc::O_NONBLOCK)
            .open(device)
            .map_err(refused)?;
        Ok(Follower {
            log,
            bytes: vec![0; RECORD_BYTES],
        })
    }

    /// From the next record on.
    ///
    /// # Errors
    ///
    /// As [`from_beginning`](Follower::from_beginning).
    pub fn from_now(device: &Path) -> Result<Follower, Error> {
        let mut follower = Follower::from_beginning(device)?;
        follower.log.seek(SeekFrom::End(0)).map_err(refused)?;
        Ok(follower)
    }

    /// The next record, without waiting for one. Text that is no record is left out.
    ///
    /// # Errors
    ///
    /// When the log cannot be read.
    pub fn read_next(&mut self) -> io::Result<Next> {
        loop {
            match self.log.read(&mut self.bytes) {
                Ok(0) => return Ok(Next::End),
                Ok(length) => {
                    let text = String::from_utf8_lossy(&self.bytes[..length]);
                    if let Some(record) = Record::parse(&text) {
                        return Ok(Next::Record(record));
                    }
                }
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => return Ok(Next::End),
                    // The next read gives the oldest record that is left.
                    Some(libc::EPIPE) => return Ok(Next::Lost),
                    Some(libc::EINTR) => {}
                    _ => return Err(error),
                },
            }
        }
    }
}

impl AsFd for Follower {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.log.as_fd()
    }
}

/// All records that there are, the oldest first.
///
/// # Errors
///
/// When the log may not be read, or there is none.
pub fn read() -> Result<Vec<Record>, Error> {
    read_from(Path::new(DEVICE))
}

fn read_from(device: &Path) -> Result<Vec<Record>, Error> {
    let mut follower = Follower::from_beginning(device)?;
    let mut records = Vec::new();
    loop {
        match follower.read_next().map_err(refused)? {
            Next::Record(record) => records.push(record),
            Next::Lost => {}
            Next::End => return Ok(records),
        }
    }
}

fn refused(error: io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::PermissionDenied => Error::Rights,
        _ => Error::Read(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_a_level_a_time_and_a_text() {
        let record = Record::parse(
            "4,339,5140900,-;sched_ext: BPF scheduler \"morpheus\" enabled\n SUBSYSTEM=x\n",
        );
        let record = record.unwrap();
        assert_eq!((record.level, record.at_us), (4, 5_140_900));
        assert_eq!(
            record.to_string(),
            "[    5.140900] sched_ext: BPF scheduler \"morpheus\" enabled"
        );
        assert!(record.concerns_us());
        // The facility of a program is above the level.
        let of_a_program = Record::parse("12,1,2,-,caller=T1;a\u{1b}[2Jb").unwrap();
        assert_eq!(of_a_program.level, 4);
        assert_eq!(of_a_program.to_string(), "[    0.000002] a?[2Jb");
        assert!(!of_a_program.concerns_us());
        for bad in ["", "4,339", "x,1,2,-;text", "4,1;text", "4,1,x,-;text"] {
            assert_eq!(Record::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn what_concerns_us() {
        let says = |text: &str| Record {
            level: 0,
            at_us: 0,
            text: text.into(),
        };
        for text in [
            "Sched_ext: x",
            "watchdog: BUG: soft lockup - CPU#1 stuck for 22s!",
            "INFO: task kworker/0:1 blocked for more than 120 seconds.",
            "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
        ] {
            assert!(says(text).concerns_us(), "{text}");
        }
        assert!(!says("eth0: link up").concerns_us());
    }

    #[test]
    fn a_stack_belongs_to_the_line_above_it() {
        let mut filter = Filter::default();
        let mut keeps = |text: &str| {
            filter.keeps(&Record {
                level: 3,
                at_us: 0,
                text: text.into(),
            })
        };
        assert!(!keeps("   before_all+0x1/0x2"));
        assert!(keeps(
            "sched_ext: BPF scheduler \"morpheus\" disabled (runnable task stall)"
        ));
        assert!(keeps("   scx_watchdog_workfn+0x1aa/0x240"));
        assert!(keeps("\tprocess_one_work+0x1/0x2"));
        assert!(!keeps("eth0: link up"));
        assert!(!keeps("   of_another+0x1/0x2"));
    }

    #[test]
    fn a_log_that_is_not_there() {
        let error = read_from(Path::new("/nowhere/kmsg")).unwrap_err();
        assert!(matches!(error, Error::Read(_)), "{error}");
    }

    #[test]
    fn the_machines_own_log_is_read_to_its_end_or_refused_clearly() {
        match read() {
            Ok(records) => {
                let mut times = records.iter().map(|record| record.at_us);
                let first = times.next().unwrap_or(0);
                assert!(times.all(|time| time + 1_000_000_000 > first));
            }
            Err(error) => {
                assert!(error.to_string().contains("log") || error.to_string().contains("kmsg"))
            }
        }
    }
}
