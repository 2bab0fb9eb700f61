//! Idle states of a CPU: which there are, and how much time was spent in each.

use std::path::Path;

use crate::host;

/// Readings of the idle states of one CPU. Empty where the kernel has none to choose from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct States(Vec<State>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    name: String,
    latency_us: u64,
    time_us: u64,
    entries: u64,
}

/// The use of one idle state between two readings.
#[derive(Clone, Debug, PartialEq)]
pub struct Residency {
    /// The state.
    pub name: String,
    /// How long the kernel thinks leaving it takes.
    pub latency_us: u64,
    /// The share of the time that was spent in it.
    pub share: f64,
    /// How often it was entered.
    pub entries: u64,
}

impl States {
    /// Reads those of a CPU.
    pub fn read(cpu: usize) -> Self {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/cpuidle");
        Self::read_from(Path::new(&path))
    }

    fn read_from(directory: &Path) -> Self {
        let state = |number: usize| {
            let directory = directory.join(format!("state{number}"));
            let text = |name: &str| host::line(directory.join(name));
            let number = |name: &str| text(name).and_then(|text| text.parse().ok());
            Some(State {
                name: text("name")?,
                latency_us: number("latency").unwrap_or(0),
                time_us: number("time")?,
                entries: number("usage")?,
            })
        };
        Self((0..).map_while(state).collect())
    }

    /// Their names, the shallowest first.
    pub fn names(&self) -> Vec<String> {
        self.0.iter().map(|state| state.name.clone()).collect()
    }

    /// The use of each state since an earlier reading, `elapsed_us` ago.
    pub fn since(&self, earlier: &Self, elapsed_us: u64) -> Vec<Residency> {
        let both = self.0.iter().zip(&earlier.0);
        both.map(|(now, then)| Residency {
            name: now.name.clone(),
            latency_us: now.latency_us,
            share: now.time_us.saturating_sub(then.time_us) as f64 / elapsed_us.max(1) as f64,
            entries: now.entries.saturating_sub(then.entries),
        })
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn write(directory: &Path, number: usize, values: [&str; 4]) {
        let directory = directory.join(format!("state{number}"));
        fs::create_dir_all(&directory).unwrap();
        for (name, value) in ["name", "latency", "time", "usage"].iter().zip(values) {
            fs::write(directory.join(name), format!("{value}\n")).unwrap();
        }
    }

    #[test]
    fn residency_is_the_difference_of_two_readings() {
        let directory = std::env::temp_dir().join(format!("idle-{}", std::process::id()));
        write(&directory, 0, ["POLL", "0", "1000", "5"]);
        write(&directory, 1, ["C6", "133", "50000", "7"]);
        let first = States::read_from(&directory);
        write(&directory, 1, ["C6", "133", "80000", "9"]);
        let second = States::read_from(&directory);
        fs::remove_dir_all(&directory).unwrap();
        assert_eq!(first.names(), ["POLL", "C6"]);
        let since = second.since(&first, 40_000);
        assert_eq!((since[0].share, since[0].entries), (0.0, 0));
        assert_eq!((since[1].share, since[1].entries), (0.75, 2));
        assert_eq!(since[1].latency_us, 133);
    }

    #[test]
    fn no_states_are_no_error() {
        assert_eq!(States::read(1 << 20), States::default());
    }
}
