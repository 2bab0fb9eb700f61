//! CPU frequencies and their governors, as the kernel shows them in `devices/system/cpu/cpufreq`.
//!
//! The directory that stands for `/sys` is a parameter, so that tests need no machine with governors. One policy is
//! a group of CPUs that change their frequency together.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// A policy at the time when it was read. A field that the driver does not provide is `None` or empty.
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
    let number = |entry: fs::DirEntry| -> Option<u32> {
        let name = entry.file_name();
        name.to_str()?.strip_prefix("policy")?.parse().ok()
    };
    let mut numbers: Vec<u32> = entries.flatten().filter_map(number).collect();
    numbers.sort_unstable();
    let read = |number: &u32| Policy::read(&directory, &format!("policy{number}"));
    numbers.iter().map(read).collect()
}

impl Policy {
    fn read(directory: &Path, name: &str) -> Result<Self, String> {
        let path = directory.join(name);
        let text = |file: &str| read(&path.join(file));
        let khz = |file: &str| number(&path.join(file));
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
        number(&self.frequency_file())
    }

    /// `None` where the kernel does not count (no `CONFIG_CPU_FREQ_STAT`, or a driver that chooses by itself).
    pub fn time_in_state(&self) -> Option<TimeInState> {
        let stats = self.path.join("stats");
        Some(TimeInState {
            khz_and_10ms: parse_time_in_state(&read(&stats.join("time_in_state")).ok()?)?,
            transitions: number(&stats.join("total_trans")),
        })
    }

    /// Whether it has this governor. Some drivers do not list theirs.
    fn has(&self, governor: &str) -> bool {
        self.governor == governor || self.available.iter().any(|name| name == governor)
    }

    /// It in two lines.
    pub fn describe(&self) -> String {
        let mhz = |khz: Option<u64>| khz.map_or("?".into(), |khz| (khz / 1_000).to_string());
        let range = |(least, most)| format!("{}–{}", mhz(least), mhz(most));
        let driver = self.driver.iter().map(|name| format!(", driver {name}"));
        format!(
            "{}: CPUs {:?}, governor {}, {} MHz now, limits {} MHz of {}{}\n  available: {}\n",
            self.name,
            self.cpus,
            self.governor,
            mhz(self.current_khz()),
            range(self.limits_khz),
            range(self.hardware_khz),
            driver.collect::<String>(),
            self.available.join(", ")
        )
    }
}

/// Checks that every policy has a governor.
///
/// # Errors
/// When one has not, with those that it has.
pub fn check_governor(policies: &[Policy], name: &str) -> Result<(), String> {
    match policies.iter().find(|policy| !policy.has(name)) {
        None => Ok(()),
        Some(policy) => Err(format!(
            "no governor {name:?}: this machine has {}",
            policy.available.join(", ")
        )),
    }
}

/// Sets a governor on every policy.
///
/// # Errors
/// When one refuses it.
pub fn set_governor(policies: &[Policy], governor: &str) -> Result<(), String> {
    let mut files = policies.iter().map(Policy::governor_file);
    files.try_for_each(|file| write(&file, governor))
}

impl TimeInState {
    /// The parts of the time since `before` that were spent at the lowest frequency and at the highest; `None` when none has
    /// gone by.
    pub fn shares_since(&self, before: &TimeInState) -> Option<(f64, f64)> {
        let before: BTreeMap<u64, u64> = before.khz_and_10ms.iter().copied().collect();
        let since = self.khz_and_10ms.iter().map(|(khz, time)| {
            let earlier = before.get(khz).copied().unwrap_or(0);
            (*khz, time.saturating_sub(earlier))
        });
        let since: BTreeMap<u64, u64> = since.collect();
        let total: u64 = since.values().sum();
        let share = |(_, time): (&u64, &u64)| *time as f64 / total as f64;
        let shares = since.first_key_value().zip(since.last_key_value());
        shares
            .filter(|_| total > 0)
            .map(|(lowest, highest)| (share(lowest), share(highest)))
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

/// The text of a file, without the end of its line.
///
/// # Errors
/// When it cannot be read.
pub fn read(path: &Path) -> Result<String, String> {
    let text = fs::read_to_string(path);
    let text = text.map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
    Ok(text.trim().to_owned())
}

fn number(path: &Path) -> Option<u64> {
    read(path).ok()?.parse().ok()
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
        assert_eq!(times.khz_and_10ms, [(600_000, 300), (1_200_000, 100)]);
        assert_eq!(times.transitions, Some(17));
    }

    #[test]
    fn a_policy_is_described_and_a_governor_that_one_lacks_is_said() {
        let fake = Fake::new("described");
        let mut policies = policies(&fake.0).unwrap();
        assert_eq!(
            policies[0].describe(),
            "policy0: CPUs [0], governor ondemand, 600 MHz now, limits 600–2064 MHz of 600–2064, driver fake\n  \
             available: ondemand, powersave, performance, schedutil\n"
        );
        assert_eq!(check_governor(&policies, "schedutil"), Ok(()));
        policies[1].available = vec!["ondemand".into(), "powersave".into()];
        let error = check_governor(&policies, "schedutil").unwrap_err();
        assert!(
            error.contains("this machine has ondemand, powersave"),
            "{error}"
        );
    }

    #[test]
    fn a_machine_without_has_none() {
        assert_eq!(policies(Path::new("/nowhere")), Ok(Vec::new()));
    }

    #[test]
    fn times_are_counted_from_the_reading_before() {
        let of = |text| TimeInState {
            khz_and_10ms: parse_time_in_state(text).unwrap(),
            transitions: None,
        };
        let (before, after) = (of("600 5\n900 7"), of("600 15\n900 7\n1200 30"));
        assert_eq!(after.shares_since(&before), Some((0.25, 0.75)));
        assert_eq!(before.shares_since(&before), None);
        let highest_first = of("1200 30\n600 10");
        let since_start = highest_first.shares_since(&TimeInState::default());
        assert_eq!(since_start, Some((0.25, 0.75)));
        assert_eq!(parse_time_in_state("600 x"), None);
    }

    #[test]
    fn a_refused_value_is_an_error() {
        let fake = Fake::new("write");
        let file = policies(&fake.0).unwrap()[0].governor_file();
        assert_eq!(write(&file, "powersave"), Ok(()));
        assert_eq!(fake.governors(), ["powersave", "ondemand"]);
        assert!(write(Path::new("/nowhere/file"), "x").is_err());
        // `/dev/null` forgets each value, so it cannot be read back.
        assert!(write(Path::new("/dev/null"), "x").is_err());
    }
}
