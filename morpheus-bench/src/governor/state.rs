//! The changes made to the machine, in a file, so that they can be undone: also after this program was killed.
//!
//! The file is complete on disk before the first change, and goes when all is as it was. A run holds a lock on
//! it, which ends with its process however that ends: a file without one was left over by a crash. A governor that
//! was set to stay has a file of its own, which no run touches and only `restore` takes away.

use std::fs::{self, File, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use morpheus_harness::report;
use serde::{Deserialize, Serialize};

use super::sysfs::{self, Policy};

/// For how long something is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Until the process ends.
    Run,
    /// Until `restore`.
    Set,
}

impl Purpose {
    fn file(self, directory: &Path) -> PathBuf {
        directory.join(match self {
            Purpose::Run => "run.json",
            Purpose::Set => "set.json",
        })
    }
}

/// A file and what it said before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Before {
    /// The file.
    pub path: PathBuf,
    /// Its text.
    pub value: String,
}

impl Before {
    /// The governors as they are.
    pub fn of(policies: &[Policy]) -> Vec<Self> {
        let of = |policy: &Policy| Self {
            path: policy.governor_file(),
            value: policy.governor.clone(),
        };
        policies.iter().map(of).collect()
    }
}

#[derive(Serialize, Deserialize)]
struct State {
    pid: u32,
    /// Which boot of the machine it belongs to: the next one begins with its own governors.
    boot: String,
    before: Vec<Before>,
}

/// The result of a restore: the files that were put back, and the failures.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Restored {
    /// Files that have their old text again.
    pub done: Vec<Before>,
    /// Failures, in sentences.
    pub failed: Vec<String>,
}

/// Puts everything back when it goes.
pub struct Keeper {
    file: PathBuf,
    before: Vec<Before>,
    /// Keeps the lock.
    lock: Option<File>,
}

impl Keeper {
    /// Writes down what is to be put back. Change nothing before it returns.
    ///
    /// # Errors
    /// When the file cannot be written, or is there already.
    pub fn new(directory: &Path, purpose: Purpose, before: Vec<Before>) -> Result<Self, String> {
        let file = purpose.file(directory);
        let failed = |error| {
            format!(
                "what is to be put back cannot be written to {}: {error}",
                file.display()
            )
        };
        fs::create_dir_all(directory).map_err(failed)?;
        let state = State {
            pid: std::process::id(),
            boot: boot(),
            before,
        };
        // Complete under another name first; the link then makes it appear at once, or not if there is one.
        let draft = directory.join(format!("draft-{}.json", state.pid));
        let _ = fs::remove_file(&draft);
        let written = File::create_new(&draft).and_then(|mut open| {
            open.try_lock().map_err(io::Error::from)?;
            open.write_all(&serde_json::to_vec(&state)?)?;
            open.sync_all()?;
            fs::hard_link(&draft, &file)?;
            Ok(open)
        });
        let _ = fs::remove_file(&draft);
        let lock = written.map_err(failed)?;
        // The name, too, must be there after a power cut. An error leaves it to the file system.
        let _ = File::open(directory).and_then(|directory| directory.sync_all());
        Ok(Self {
            file,
            before: state.before,
            lock: Some(lock),
        })
    }

    /// Leaves the change, and the file, when this value goes. Returns what would have been put back.
    pub fn leave(mut self) -> Vec<Before> {
        self.lock = None;
        std::mem::take(&mut self.before)
    }

    /// Puts everything back now.
    pub fn restore(&mut self) -> Restored {
        let mut restored = Restored::default();
        for before in &self.before {
            if sysfs::read(&before.path).as_ref() == Ok(&before.value) {
                continue;
            }
            match sysfs::write(&before.path, &before.value) {
                Ok(()) => restored.done.push(before.clone()),
                Err(why) => restored.failed.push(why),
            }
        }
        if restored.failed.is_empty() {
            let _ = fs::remove_file(&self.file);
        }
        self.lock = None;
        restored
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        if self.lock.is_some() {
            for why in self.restore().failed {
                eprintln!("governor: not put back: {why}");
            }
        }
    }
}

/// The changes left by a process that is gone, locked while this value lives; `None` when there is nothing.
///
/// # Errors
/// When its owner lives, or the file cannot be read.
fn left_over(directory: &Path, purpose: Purpose) -> Result<Option<Keeper>, String> {
    let file = purpose.file(directory);
    let Ok(open) = File::open(&file) else {
        // A file that only root may read is in the way of root's changes alone.
        return Ok(None);
    };
    let unreadable = |error: io::Error| {
        format!(
            "{} cannot be read: {error}; put the governors back by hand, then remove it",
            file.display()
        )
    };
    let state: State = io::read_to_string(&open)
        .and_then(|text| Ok(report::from_json(&text)?))
        .map_err(unreadable)?;
    match open.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            return Err(format!(
                "another run (process {}) has changed governors; it puts them back when it ends",
                state.pid
            ));
        }
        Err(TryLockError::Error(error)) => return Err(unreadable(error)),
    }
    if state.boot != boot() {
        // The machine has booted since, with governors of its own.
        let _ = fs::remove_file(&file);
        return Ok(None);
    }
    Ok(Some(Keeper {
        file,
        before: state.before,
        lock: Some(open),
    }))
}

/// Puts back what is left over of a purpose; in a dry run only says what that is.
///
/// # Errors
/// When a run is at work, or its file cannot be read.
pub fn restore(directory: &Path, purpose: Purpose, is_dry: bool) -> Result<Restored, String> {
    Ok(match left_over(directory, purpose)? {
        None => Restored::default(),
        Some(keeper) if is_dry => Restored {
            done: keeper.leave(),
            failed: Vec::new(),
        },
        Some(mut keeper) => keeper.restore(),
    })
}

fn boot() -> String {
    sysfs::read(Path::new("/proc/sys/kernel/random/boot_id")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::sysfs::tests::Fake;
    use super::*;

    fn before(fake: &Fake) -> Vec<Before> {
        Before::of(&sysfs::policies(&fake.0).unwrap())
    }

    fn would_restore(directory: &Path) -> Restored {
        restore(directory, Purpose::Set, true).unwrap()
    }

    fn change(fake: &Fake) {
        sysfs::set_governor(&sysfs::policies(&fake.0).unwrap(), "powersave").unwrap();
    }

    #[test]
    fn going_puts_back_and_takes_the_file_away() {
        let fake = Fake::new("going");
        let directory = fake.0.join("state");
        let keeper = Keeper::new(&directory, Purpose::Run, before(&fake)).unwrap();
        assert!(directory.join("run.json").exists());
        change(&fake);
        drop(keeper);
        assert_eq!(fake.governors(), ["ondemand", "ondemand"]);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 0);
    }

    #[test]
    fn a_second_one_is_refused_while_the_first_lives() {
        let fake = Fake::new("second");
        let directory = fake.0.join("state");
        let mut first = Keeper::new(&directory, Purpose::Run, before(&fake)).unwrap();
        assert!(Keeper::new(&directory, Purpose::Run, Vec::new()).is_err());
        let error = restore(&directory, Purpose::Run, false).unwrap_err();
        assert!(error.contains("another run"), "{error}");
        assert_eq!(first.restore(), Restored::default());
        assert_eq!(
            restore(&directory, Purpose::Run, false),
            Ok(Restored::default())
        );
    }

    #[test]
    fn what_is_left_is_put_back_by_the_next() {
        let fake = Fake::new("left");
        let directory = fake.0.join("state");
        let keeper = Keeper::new(&directory, Purpose::Set, before(&fake)).unwrap();
        assert_eq!(keeper.leave(), before(&fake));
        change(&fake);
        assert_eq!(would_restore(&directory).done.len(), 2);
        assert_eq!(fake.governors(), ["powersave", "powersave"]);
        let restored = restore(&directory, Purpose::Set, false).unwrap();
        assert_eq!((restored.done.len(), restored.failed.len()), (2, 0));
        assert_eq!(fake.governors(), ["ondemand", "ondemand"]);
        assert_eq!(would_restore(&directory), Restored::default());
    }

    #[test]
    fn what_cannot_be_put_back_stays_written_down() {
        let fake = Fake::new("cannot");
        let directory = fake.0.join("state");
        let gone = Before {
            path: fake.0.join("gone/scaling_governor"),
            value: "ondemand".into(),
        };
        Keeper::new(&directory, Purpose::Run, vec![gone])
            .unwrap()
            .leave();
        assert_eq!(
            restore(&directory, Purpose::Run, false)
                .unwrap()
                .failed
                .len(),
            1
        );
        assert!(directory.join("run.json").exists());
    }

    #[test]
    fn another_boot_has_its_own_governors_and_nonsense_is_said() {
        let fake = Fake::new("boot");
        let directory = fake.0.join("state");
        fs::create_dir_all(&directory).unwrap();
        let state = State {
            pid: 1,
            boot: "another".into(),
            before: before(&fake),
        };
        fs::write(
            directory.join("run.json"),
            serde_json::to_vec(&state).unwrap(),
        )
        .unwrap();
        change(&fake);
        assert_eq!(
            restore(&directory, Purpose::Run, false),
            Ok(Restored::default())
        );
        assert_eq!(fake.governors(), ["powersave", "powersave"]);
        fs::write(directory.join("run.json"), "{").unwrap();
        assert!(
            restore(&directory, Purpose::Run, false)
                .unwrap_err()
                .contains("by hand")
        );
    }
}
