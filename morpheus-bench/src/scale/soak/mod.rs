//! The suite `soak`: everything at once for long, and whether the machine lived through it.
//!
//! The longest wait of a runnable task is seen from outside, for all tasks of the machine, the processes of fork storms and the
//! kernel's threads among them: `watch` takes the events of wakes and switches from the kernel's tracing (`ring` reads its
//! pages), and `waits` puts them together. A wait begins with `sched_wakeup`, or when a task loses its CPU, and ends when it
//! runs; one that does not end counts as well. It is measured without load first: in a guest with more CPUs than the machine
//! has, a virtual CPU itself waits, and that column shows how long.
//!
//! `log` has what the kernel complained of meanwhile. The load is `cases::soak`.

pub mod log;
mod ring;
mod waits;
mod watch;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use morpheus_harness::report;

use super::child::Answer;
use super::result::Measured;
use super::{case, tracing};
use log::Log;
use watch::Watch;

/// How long the machine is watched without load: a tenth of what follows, within these.
const QUIET: [Duration; 2] = [Duration::from_secs(3), Duration::from_secs(30)];
/// The kernel's counters of what a sched_ext scheduler did not do as it should, of the one that is in force.
const EVENTS: &str = "root/events";
/// The kernel ran the machine in the scheduler's place, for a while.
const BYPASSED: &str = "SCX_EV_BYPASS_ACTIVATE";
/// More lines of the kernel's log tell nothing new.
const LINES: usize = 10;

/// The waits, counters and log lines that were seen from outside.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Soak {
    /// Without load.
    pub quiet: Waited,
    /// With it.
    pub loaded: Waited,
    /// How often events of the kernel's tracing were lost: who was waiting then was not seen to the end.
    pub gaps: u64,
    /// How often a CPU was taken offline and brought back.
    pub hotplugs: u64,
    /// The kernel's sched_ext counters that increased meanwhile, and by how much.
    pub events: BTreeMap<String, u64>,
    /// Lines of the kernel's log that tell of trouble.
    pub log: Vec<String>,
    /// The faults that were found.
    pub broken: Vec<String>,
}

/// Waits of runnable tasks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Waited {
    /// The longest, in nanoseconds.
    pub longest_ns: u64,
    /// Whose it was: a name and a number.
    pub task: String,
    /// How many waits ended.
    pub count: u64,
    /// A 99th percentile of these, in nanoseconds.
    pub p99_ns: Option<u64>,
}

/// For how long to watch without load, before `duration` with it.
pub fn quiet(duration: Duration) -> Duration {
    let [least, most] = QUIET;
    (duration / 10).clamp(least, most)
}

/// A soak that goes on.
pub struct Soaking<'a> {
    watch: Watch,
    log: Log,
    /// As [`crate::scx::DIRECTORY`].
    directory: &'a Path,
    before: BTreeMap<String, u64>,
    quiet: Waited,
}

impl<'a> Soaking<'a> {
    /// Begins, without load.
    ///
    /// # Errors
    /// When the kernel's tracing or its log cannot be used, with what to do about it.
    pub fn start(directory: &'a Path) -> Result<Self, String> {
        Ok(Self {
            watch: Watch::start(Path::new(tracing::DIRECTORY))?,
            log: Log::from_now(Path::new(log::DEVICE))?,
            before: events(directory),
            directory,
            quiet: Waited::default(),
        })
    }

    /// The load begins.
    pub fn load(&mut self) {
        self.quiet = self.watch.take();
    }

    /// The load has ended so: what came out, also where that is why the scheduler is gone.
    pub fn end(mut self, answer: Answer, wall_ns: u64) -> Measured {
        let mut soak = Soak {
            loaded: self.watch.take(),
            quiet: self.quiet,
            gaps: self.watch.gaps(),
            events: since(&self.before, &events(self.directory)),
            ..Soak::default()
        };
        match &answer {
            Ok(measured) => soak.hotplugs = measured.count,
            Err(why) => soak.broken.push(why.clone()),
        }
        match self.log.troubles() {
            Ok(lines) => soak.log = lines,
            Err(why) => soak.broken.push(why),
        }
        soak.judge();
        soak.log.truncate(LINES);
        let mut measured = Measured::longest(soak.loaded.longest_ns, soak.loaded.count, wall_ns);
        measured.cpu_ns = answer.ok().and_then(|measured| measured.cpu_ns);
        measured.soak = Some(soak);
        measured
    }
}

impl Soak {
    /// Adds what is wrong beside a wait that was too long, which the case's own limit is for.
    fn judge(&mut self) {
        let lines = report::count(self.log.len() as u64);
        let logged = |first| format!("the kernel logged {lines} lines of trouble, first: {first}");
        let bypassed = |times| format!("the scheduler was bypassed {times} times");
        let gaps = report::count(self.gaps);
        let lost =
            || format!("{gaps} times events were lost, so longer waits may not have been seen");
        let wrong = [
            self.log.first().map(logged),
            self.events.get(BYPASSED).map(bypassed),
            (self.gaps > 0).then(lost),
            (self.loaded.count == 0).then(|| "not one wait was seen".into()),
        ];
        self.broken.extend(wrong.into_iter().flatten());
    }

    /// Why it has failed, where it has.
    pub fn failed(&self) -> Option<String> {
        let mut reasons = self.broken.clone();
        if self.loaded.longest_ns as f64 > case::LONGEST_WAIT_NS {
            reasons.push(format!(
                "{} waited for {}, and at most {} is allowed",
                self.loaded.task,
                report::time(self.loaded.longest_ns),
                report::time(case::LONGEST_WAIT_NS as u64)
            ));
        }
        (!reasons.is_empty()).then(|| reasons.join("; "))
    }
}

/// Opens a file of the kernel whose end is an error then, and not a wait for more.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(libc::O_NONBLOCK).open(path)
}

/// The counters of the scheduler in force; none where there is no scheduler, or the kernel has none (before Linux 6.15).
fn events(directory: &Path) -> BTreeMap<String, u64> {
    let text = fs::read_to_string(directory.join(EVENTS)).unwrap_or_default();
    let line = |line: &str| {
        let (name, count) = line.split_once(' ')?;
        Some((name.to_owned(), count.trim().parse().ok()?))
    };
    text.lines().filter_map(line).collect()
}

/// Those that are more than before.
fn since(before: &BTreeMap<String, u64>, now: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let more = |(name, count): (&String, &u64)| {
        let more = count.saturating_sub(before.get(name).copied().unwrap_or(0));
        (more > 0).then(|| (name.clone(), more))
    };
    now.iter().filter_map(more).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quiet_part_is_a_tenth_within_bounds() {
        let seconds = |s| quiet(Duration::from_secs(s)).as_secs();
        assert_eq!([1, 100, 600].map(seconds), [3, 10, 30]);
    }

    #[test]
    fn counters_count_from_the_beginning() {
        let path = std::env::temp_dir().join(format!("soak-{}", std::process::id()));
        fs::create_dir_all(path.join("root")).unwrap();
        fs::write(path.join(EVENTS), "SCX_EV_A 5\nSCX_EV_B 2\nodd\n").unwrap();
        let before = events(&path);
        fs::write(path.join(EVENTS), "SCX_EV_A 5\nSCX_EV_B 9\nSCX_EV_C 1\n").unwrap();
        let more = since(&before, &events(&path));
        assert_eq!(
            more,
            [("SCX_EV_B".into(), 7), ("SCX_EV_C".into(), 1)].into()
        );
        assert!(events(Path::new("/nowhere")).is_empty());
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn each_thing_that_is_wrong_is_said() {
        let mut soak = Soak::default();
        soak.loaded.count = 9;
        soak.judge();
        assert_eq!(soak.failed(), None);
        soak.log = vec!["BUG: x".into(), "BUG: y".into()];
        soak.events.insert(BYPASSED.into(), 3);
        soak.gaps = 2;
        soak.loaded.longest_ns = 1_500_000_000;
        soak.loaded.task = "hog (7)".into();
        soak.judge();
        let why = soak.failed().unwrap();
        for words in [
            "2 lines of trouble, first: BUG: x",
            "bypassed 3 times",
            "2 times events were lost",
            "hog (7) waited for 1.50 s",
        ] {
            assert!(why.contains(words), "{words}: {why}");
        }
    }
}
