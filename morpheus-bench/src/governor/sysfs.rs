//! CPU frequencies and their governors, as the kernel shows them in `devices/system/cpu/cpufreq`.
//!
//! The directory that stands for `/sys` is a parameter, so that tests need no machine with governors. One policy is
//! a group of CPUs that change their frequency together.

use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// A policy at the time when it was read. What the driver does not tell is `None` or empty.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Policy {
    /// Its directory.
    #[serde(skip)]
    pub path: PathBuf,
    /// As the kernel calls it: `policy0`.
    pub name: String,
    /// CPUs that are online and belong to it.
    pub cpus: Vec<usize>,
    /// The driver that sets frequencies.
    pub driver: Option<String>,
    /// The governor in force.
    pub governor: String,
    /// The governors that may be set.
    pub available: Vec<String>,
    /// The lowest and the highest frequency that governors may choose now.
    pub limits_khz: (Option<u64>, Option<u64>),
    /// The lowest and the highest frequency that there is.
    pub hardware_khz: (Option<u64>, Option<u64>),
}

/// How long a policy has been at each frequency since its driver started.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TimeInState {
    /// Frequency in kHz, and time in units of 10 ms.
    pub khz_and_10ms: Vec<(u64, u64)>,
    /// Changes of frequency.
    pub transitions: Option<u64>,
}

/// All policies in order of their CPUs; none where the kernel has no control over frequencies.
///
/// # Errors
/// When a policy is there but cannot be read.
pub fn policies(root: &Path) -> Result<Vec<Policy>, String> {
    let directory = root.join("devices/system/cpu/cpufreq");
    let Ok(entries) = fs::read_dir(&directory) else {
        return Ok(Vec::new());
    };
    let mut numbers: Vec<u32> = entries
        .flatten()
        .filter_map(|entry| {
            entry
                .file_name()
                .to_str()?
                .strip_prefix("policy")?
                .parse()
                .ok()
        })
        .collect();
    numbers.sort_unstable();
    let read = |number: &u32| Policy::read(&directory, &format!("policy{number}"));
    numbers.iter().map(read).collect()
}

impl Policy {
    fn read(directory: &Path, name: &str) -> Result<Self, String> {
        let path = directory.join(name);
        let text = |file: &str| read(&path.join(file));
        let khz = |file: &str| text(file).ok().and_then(|text| text.parse().ok());
        let words = |file: &str| -> Vec<String> {
            let text = text(file).unwrap_or_default();
            text.split_whitespace().map(str::to_owned).collect()
        };
        let numbers = |file: &str| words(file).iter().filter_map(|w| w.parse().ok()).collect();
        Ok(Self {
            name: name.into(),
            cpus: numbers("affected_cpus"),
            driver: text("scaling_driver").ok(),
            governor: text("scaling_governor")?,
            available: words("scaling_available_governors"),
            limits_khz: (khz("scaling_min_freq"), khz("scaling_max_freq")),
            hardware_khz: (khz("cpuinfo_min_freq"), khz("cpuinfo_max_freq")),
            path: path.clone(),
        })
    }

    /// The file that says, and sets, which governor is in force.
    pub fn governor_file(&self) -> PathBuf {
        self.path.join("scaling_governor")
    }

    /// The file that says the frequency.
    pub fn frequency_file(&self) -> PathBuf {
        self.path.join("scaling_cur_freq")
    }

    /// The frequency now, as far as the driver knows.
    pub fn current_khz(&self) -> Option<u64> {
        read(&self.frequency_file()).ok()?.parse().ok()
    }

    /// `None` where the kernel does not count (no `CONFIG_CPU_FREQ_STAT`, or a driver that chooses by itself).
    pub fn time_in_state(&self) -> Option<TimeInState> {
        let stats = self.path.join("stats");
        Some(TimeInState {
            khz_and_10ms: parse_time_in_state(&read(&stats.join("time_in_state")).ok()?)?,
            transitions: read(&stats.join("total_trans"))
                .ok()
                .and_then(|n| n.parse().ok()),
        })
    }
}

impl TimeInState {
    /// What was added since `before`.
    pub fn since(&self, before: &TimeInState) -> TimeInState {
        let earlier = |khz: u64| {
            let found = before.khz_and_10ms.iter().find(|(other, _)| *other == khz);
            found.map_or(0, |(_, time)| *time)
        };
        TimeInState {
            khz_and_10ms: self
                .khz_and_10ms
                .iter()
                .map(|(khz, time)| (*khz, time.saturating_sub(earlier(*khz))))
                .collect(),
            transitions: self
                .transitions
                .zip(before.transitions)
                .map(|(now, then)| now.saturating_sub(then)),
        }
    }

    /// The part of the time that was spent at the lowest frequency; `None` when none has gone by.
    pub fn share_of_lowest(&self) -> Option<f64> {
        self.share(self.khz_and_10ms.iter().min()?.1)
    }

    /// At the highest.
    pub fn share_of_highest(&self) -> Option<f64> {
        self.share(self.khz_and_10ms.iter().max()?.1)
    }

    fn share(&self, time: u64) -> Option<f64> {
        let total: u64 = self.khz_and_10ms.iter().map(|(_, time)| time).sum();
        (total > 0).then(|| time as f64 / total as f64)
    }
}

fn parse_time_in_state(text: &str) -> Option<Vec<(u64, u64)>> {
    text.lines()
        .map(|line| {
            let (khz, time) = line.trim().split_once(' ')?;
            Some((khz.parse().ok()?, time.trim().parse().ok()?))
        })
        .collect()
}

fn read(path: &Path) -> Result<String, String> {
    let text = fs::read_to_string(path);
    let text = text.map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    Ok(text.trim().to_owned())
}

/// Writes a value and reads it again: some drivers take what they do not keep.
///
/// # Errors
/// When the kernel refuses it or keeps another one.
pub fn write(path: &Path, value: &str) -> Result<(), String> {
    fs::write(path, format!("{value}\n"))
        .map_err(|error| format!("{value:?} cannot be written to {}: {error}", path.display()))?;
    match read(path)? {
        now if now == value => Ok(()),
        now => Err(format!(
            "{} has {now:?} after {value:?} was written to it",
            path.display()
        )),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A directory that looks like `/sys` on a machine with two policies. It is removed in the end.
    pub struct Fake(pub PathBuf);

    impl Fake {
        pub fn new(name: &str) -> Self {
            let root = std::env::temp_dir().join(format!("governor-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&root);
            for (policy, cpus, highest) in
                [("policy0", "0", 2_064_000), ("policy4", "1", 3_204_000)]
            {
                let path = root.join("devices/system/cpu/cpufreq").join(policy);
                fs::create_dir_all(path.join("stats")).unwrap();
                let highest = format!("{highest}\n");
                for (file, text) in [
                    ("affected_cpus", cpus),
                    ("scaling_driver", "fake"),
                    ("scaling_governor", "ondemand\n"),
                    (
                        "scaling_available_governors",
                        "ondemand powersave performance schedutil \n",
                    ),
                    ("scaling_min_freq", "600000\n"),
                    ("scaling_max_freq", &highest),
                    ("scaling_cur_freq", "600000\n"),
                    ("cpuinfo_min_freq", "600000\n"),
                    ("cpuinfo_max_freq", &highest),
                    ("stats/time_in_state", "600000 300\n1200000 100\n"),
                    ("stats/total_trans", "17\n"),
                ] {
                    fs::write(path.join(file), text).unwrap();
                }
            }
            Self(root)
        }

        pub fn governors(&self) -> Vec<String> {
            policies(&self.0)
                .unwrap()
                .into_iter()
                .map(|p| p.governor)
                .collect()
        }
    }

    impl Drop for Fake {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn policies_are_read() {
        let fake = Fake::new("read");
        let policies = policies(&fake.0).unwrap();
        assert_eq!(policies.len(), 2);
        let policy = &policies[1];
        assert_eq!(
            (policy.name.as_str(), policy.cpus.as_slice()),
            ("policy4", &[1][..])
        );
        assert_eq!(policy.governor, "ondemand");
        assert_eq!(policy.available.len(), 4);
        assert_eq!(policy.limits_khz, (Some(600_000), Some(3_204_000)));
        assert_eq!(policy.current_khz(), Some(600_000));
        let times = policy.time_in_state().unwrap();
        assert_eq!(
            (times.share_of_lowest(), times.transitions),
            (Some(0.75), Some(17))
        );
    }

    #[test]
    fn a_machine_without_has_none() {
        assert_eq!(policies(Path::new("/nowhere")), Ok(Vec::new()));
    }

    #[test]
    fn times_are_counted_from_the_reading_before() {
        let of = |text, transitions| TimeInState {
            khz_and_10ms: parse_time_in_state(text).unwrap(),
            transitions,
        };
        let (before, after) = (
            of("600 5\n900 7", Some(1)),
            of("600 15\n900 7\n1200 30", Some(9)),
        );
        let gone = after.since(&before);
        assert_eq!(gone.khz_and_10ms, [(600, 10), (900, 0), (1200, 30)]);
        assert_eq!(
            (gone.transitions, gone.share_of_lowest()),
            (Some(8), Some(0.25))
        );
        assert_eq!(gone.share_of_highest(), Some(0.75));
        assert_eq!(before.since(&before).share_of_lowest(), None);
        assert_eq!(parse_time_in_state("600 x"), None);
    }

    #[test]
    fn a_refused_value_is_an_error() {
        let fake = Fake::new("write");
        let file = policies(&fake.0).unwrap()[0].governor_file();
        assert_eq!(write(&file, "powersave"), Ok(()));
        assert_eq!(fake.governors(), ["powersave", "ondemand"]);
        assert!(write(Path::new("/nowhere/file"), "x").is_err());
        // What is written is gone: the device that forgets everything.
        assert!(write(Path::new("/dev/null"), "x").is_err());
    }
}
