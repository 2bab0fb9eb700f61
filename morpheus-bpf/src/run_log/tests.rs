// SPDX-License-Identifier: GPL-2.0-only
//! Tests of [`super`], with a file in the place of the kernel's log.

use std::fs;
use std::io::Write;

use tempfile::TempDir;

use super::*;

/// A log from which each read takes all that there is: one record at a time is written.
#[test]
fn the_kernels_lines_and_the_daemons_are_kept_in_their_order() {
    let directory = TempDir::new().unwrap();
    let device = directory.path().join("kmsg");
    fs::write(&device, "4,1,1000000,-;sched_ext: of an earlier run\n").unwrap();
    let follower = Follower::from_now(&device).unwrap();
    let log = RunLog::following(follower, directory.path()).unwrap();
    assert_eq!(log.path().unwrap(), directory.path().join("kernel.log"));
    log.say("scx_morpheus: one\nand two");
    let mut kernel = fs::OpenOptions::new().append(true).open(&device).unwrap();
    let text = || fs::read_to_string(directory.path().join("kernel.log")).unwrap();
    kernel
        .write_all(b"3,2,2000000,-;sched_ext: BPF scheduler \"morpheus\" disabled\n")
        .unwrap();
    drop(log);
    let lines: Vec<String> = text()
        .lines()
        .map(|line| line.split_once("] ").unwrap().1.to_owned())
        .collect();
    let begins = format!("scx_morpheus {} starts", env!("CARGO_PKG_VERSION"));
    assert!(lines[0].starts_with(&begins), "{lines:?}");
    assert_eq!(
        lines[1..],
        [
            "scx_morpheus: one",
            "and two",
            "sched_ext: BPF scheduler \"morpheus\" disabled"
        ]
    );
}

#[test]
fn a_long_text_is_cut_off_and_without_a_file_nothing_is_written() {
    let directory = TempDir::new().unwrap();
    let device = directory.path().join("kmsg");
    fs::write(&device, "").unwrap();
    let log = RunLog::following(Follower::from_now(&device).unwrap(), directory.path()).unwrap();
    let dump = "ä".repeat(MOST_SAID_BYTES);
    log.capture.as_ref().unwrap().shared.note(&dump);
    drop(log);
    let length = fs::metadata(directory.path().join("kernel.log"))
        .unwrap()
        .len() as usize;
    assert!(
        (MOST_SAID_BYTES..MOST_SAID_BYTES + 200).contains(&length),
        "{length}"
    );
    assert_eq!(RunLog::without_file().path(), None);
}

#[test]
fn a_directory_that_cannot_be_made_is_told() {
    let directory = TempDir::new().unwrap();
    let device = directory.path().join("kmsg");
    fs::write(&device, "").unwrap();
    let follower = Follower::from_now(&device).unwrap();
    let error = RunLog::following(follower, &device.join("below")).unwrap_err();
    assert!(
        error.to_string().contains("kmsg/below/kernel.log"),
        "{error}"
    );
}
