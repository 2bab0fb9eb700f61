// SPDX-License-Identifier: GPL-2.0-only
//! `scx_morpheus dmesg`: what the kernel has logged of sched_ext, of this scheduler and of tasks that waited for too long.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Where the log is. Each read gives one record.
pub const DEVICE: &str = "/dev/kmsg";
/// The most that the kernel makes of a record (`PRINTK_MESSAGE_MAX`).
const RECORD_BYTES: usize = 8192;
/// What a line has to hold, whatever the case, to be about this. The watchdogs' words are there because a scheduler that
/// starves somebody is first seen in them.
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
    /// What it says, in one line.
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

/// All records that there are, the oldest first.
///
/// # Errors
///
/// When the log may not be read, or there is none.
pub fn read() -> Result<Vec<Record>, Error> {
    read_from(Path::new(DEVICE))
}

fn read_from(device: &Path) -> Result<Vec<Record>, Error> {
    let refused = |error: io::Error| match error.kind() {
        io::ErrorKind::PermissionDenied => Error::Rights,
        _ => Error::Read(error),
    };
    let log = OpenOptions::new()
        .read(true)
        // The end is an error then, and not a wait for the next record.
        .custom_flags(libc::O_NONBLOCK)
        .open(device)
        .map_err(refused)?;
    records(log).map_err(refused)
}

fn records(mut log: File) -> io::Result<Vec<Record>> {
    let mut records = Vec::new();
    let mut bytes = vec![0; RECORD_BYTES];
    loop {
        match log.read(&mut bytes) {
            Ok(0) => return Ok(records),
            Ok(length) => records.extend(Record::parse(&String::from_utf8_lossy(&bytes[..length]))),
            Err(error) => match error.raw_os_error() {
                Some(libc::EAGAIN) => return Ok(records),
                // The record was overwritten meanwhile: the next read gives the oldest that is left.
                Some(libc::EPIPE | libc::EINTR) => {}
                _ => return Err(error),
            },
        }
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
