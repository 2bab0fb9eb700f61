//! The scheduler of the machine: put in force, watched, and taken back.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;
use std::time::{Duration, Instant};

use morpheus_harness::host;

use crate::executor::morpheus::LinkName;
use crate::scx::{self, Loaded, Scheduler};

/// Where the kernel takes the mode of preemption.
const PREEMPT: &str = "/sys/kernel/debug/sched/preempt";

/// The short name of Morpheus's scheduler, and that of its program: two names of the same.
pub const OWN: [&str; 2] = ["morpheus", "scx_morpheus"];
/// The kernel ends a scheduler by itself when its process is gone, but not at once.
const GONE_WITHIN: Duration = Duration::from_secs(10);

/// A way to schedule the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contender {
    /// The one that is there, whichever that is.
    Current,
    /// The kernel's own, as it is or with a mode of preemption: `lazy` preempts a task that runs at the next tick, `full` at once.
    Default(Option<&'static str>),
    /// A program that loads a sched_ext scheduler, and its arguments, in words.
    Program(Vec<String>),
}

/// Sets a mode of preemption. Returns the one that was in force.
fn preempt(mode: &str) -> Result<String, String> {
    let before = host::preemption();
    fs::write(PREEMPT, mode).map_err(|error| {
        format!("{PREEMPT} does not take {mode}: {error} (is debugfs mounted?)")
    })?;
    Ok(before.unwrap_or_else(|| mode.to_owned()))
}

impl FromStr for Contender {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
            [] => Err(
                "a scheduler is needed: default, default/lazy, default/full, morpheus, a command line, or current alone".into(),
            ),
            ["current"] => Ok(Self::Current),
            ["default"] => Ok(Self::Default(None)),
            ["default/lazy"] => Ok(Self::Default(Some("lazy"))),
            ["default/full"] => Ok(Self::Default(Some("full"))),
            _ => Ok(Self::Program(words)),
        }
    }
}

impl fmt::Display for Contender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Current => f.write_str("current"),
            Self::Default(None) => f.write_str("default"),
            Self::Default(Some(mode)) => write!(f, "default/{mode}"),
            Self::Program(words) => f.write_str(&words.join(" ")),
        }
    }
}

/// Whether a contender's name, as [`Contender`] shows it, is Morpheus's scheduler as it is by default.
pub fn is_own(name: &str) -> bool {
    OWN.contains(&name)
}

impl Contender {
    /// How a runtime learns of stalled workers under it.
    pub fn link(&self) -> LinkName {
        match self {
            Self::Program(words) if is_own(&words[0]) => LinkName::Scheduler,
            _ => LinkName::Watchdog,
        }
    }

    /// The program that it needs; `None` where it needs none.
    ///
    /// # Errors
    /// When there is no such program, with where it was looked for.
    pub fn program(&self) -> Option<Result<PathBuf, String>> {
        let Self::Program(words) = self else {
            return None;
        };
        let [short, long] = OWN;
        let name = if words[0] == short { long } else { &words[0] };
        let path = Path::new(name);
        let found = if path.components().count() > 1 {
            path.is_file().then(|| path.to_owned())
        } else {
            scx::find(name)
        };
        Some(found.ok_or_else(|| {
            format!("there is no program {name}: neither beside this one nor in the path")
        }))
    }

    /// Lets it schedule, until what this returns is dropped: where it is a program, with arguments beside its own. `directory` is
    /// [`scx::DIRECTORY`].
    ///
    /// # Errors
    /// When it does not start, or another one does not leave.
    pub fn put_in_force(&self, arguments: &[&str], directory: &Path) -> Result<InForce, String> {
        if *self != Self::Current {
            wait_until_gone(directory)?;
        }
        let (mut before, mut scheduler) = (None, None);
        match self {
            Self::Current => {}
            Self::Default(mode) => before = mode.map(preempt).transpose()?,
            Self::Program(words) => {
                let mut command = Command::new(self.program().expect("it has one")?);
                command.args(&words[1..]).args(arguments);
                scheduler = Some(Scheduler::start(command, directory)?);
            }
        }
        Ok(InForce {
            seen: scx::loaded(directory),
            scheduler,
            directory: directory.to_owned(),
            preempt: before,
        })
    }
}

fn wait_until_gone(directory: &Path) -> Result<(), String> {
    let begun = Instant::now();
    while let Some(loaded) = scx::loaded(directory) {
        if begun.elapsed() > GONE_WITHIN {
            return Err(format!("the scheduler {} does not leave", loaded.ops));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// The scheduler in force. If it was started here, dropping this ends it.
#[derive(Debug)]
pub struct InForce {
    scheduler: Option<Scheduler>,
    seen: Option<Loaded>,
    directory: PathBuf,
    /// The mode of preemption before.
    preempt: Option<String>,
}

impl Drop for InForce {
    fn drop(&mut self) {
        if let Some(mode) = &self.preempt {
            // It was written before, so that an error would say nothing new.
            let _ = fs::write(PREEMPT, mode);
        }
    }
}

impl InForce {
    /// The name that the kernel has for it; `None` is its own.
    pub fn ops(&self) -> Option<&str> {
        self.seen.as_ref().map(|loaded| loaded.ops.as_str())
    }

    /// Checks that the scheduler is still the one that was put in force: figures under another one are not its own.
    ///
    /// # Errors
    /// When it has ended, or another scheduler is in force.
    pub fn check(&mut self) -> Result<(), String> {
        let now = scx::loaded(&self.directory);
        // Afterwards: it tells of a scheduler that goes in between, too.
        self.scheduler
            .as_mut()
            .map_or(Ok(()), Scheduler::is_still_there)?;
        if now == self.seen {
            return Ok(());
        }
        let [before, now] = [&self.seen, &now].map(|loaded| match loaded {
            Some(loaded) => loaded.ops.as_str(),
            None => "the kernel's own",
        });
        Err(if before == now {
            format!("the scheduler {now} was loaded again meanwhile")
        } else {
            format!("the scheduler was {before}, and now it is {now}")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("contender-{name}-{}", std::process::id()));
        fs::create_dir_all(path.join("root")).unwrap();
        fs::write(path.join("state"), "disabled\n").unwrap();
        path
    }

    fn load(path: &Path, ops: &str, sequence: u64) {
        fs::write(path.join("root/ops"), format!("{ops}\n")).unwrap();
        fs::write(path.join("enable_seq"), format!("{sequence}\n")).unwrap();
        fs::write(path.join("state"), "enabled\n").unwrap();
    }

    #[test]
    fn names_are_command_lines() {
        let parsed = |text: &str| text.parse::<Contender>().unwrap();
        assert_eq!(parsed("default"), Contender::Default(None));
        for name in ["default/lazy", "default/full"] {
            assert_eq!(parsed(name).to_string(), name);
        }
        assert_eq!(parsed("morpheus --off kick").link(), LinkName::Scheduler);
        assert_eq!(parsed("scx_bpfland").link(), LinkName::Watchdog);
        assert_eq!(parsed(" current "), Contender::Current);
        let own = parsed("morpheus  --off kick");
        assert_eq!(own.to_string(), "morpheus --off kick");
        assert!(is_own("morpheus") && is_own("scx_morpheus") && !is_own(&own.to_string()));
        assert!(" ".parse::<Contender>().is_err());
    }

    #[test]
    fn programs_are_looked_for() {
        let program = |text: &str| text.parse::<Contender>().unwrap().program();
        assert!(program("default").is_none());
        assert!(program("sh -c true").unwrap().unwrap().is_file());
        let missing = program("no-such-scheduler --fast").unwrap().unwrap_err();
        assert!(
            missing.contains("no program no-such-scheduler"),
            "{missing}"
        );
        assert!(program("./no/such/path").unwrap().is_err());
    }

    #[test]
    fn a_change_of_scheduler_is_seen() {
        let path = directory("change");
        let mut default = Contender::Default(None).put_in_force(&[], &path).unwrap();
        assert_eq!(default.check(), Ok(()));
        assert_eq!(default.ops(), None);
        load(&path, "intruder_1.0", 1);
        let error = default.check().unwrap_err();
        assert!(
            error.contains("the kernel's own, and now it is intruder_1.0"),
            "{error}"
        );
        let mut current = Contender::Current.put_in_force(&[], &path).unwrap();
        assert_eq!(current.ops(), Some("intruder_1.0"));
        load(&path, "intruder_1.0", 2);
        assert!(current.check().unwrap_err().contains("loaded again"));
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn a_scheduler_that_ends_has_failed() {
        let path = directory("ends");
        fs::create_dir_all(path.join("bin")).unwrap();
        let program = path.join("bin/scheduler");
        let script = format!(
            "#!/bin/sh\ncd {}\necho x >root/ops\necho 1 >enable_seq\necho enabled >state\n\
             while [ ! -e stop ]; do sleep 0.02; done\necho disabled >state\nsleep 0.3\necho 'oops, stalled' >&2\nexit 1\n",
            path.display()
        );
        fs::write(&program, script).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&program, mode).unwrap();
        let contender: Contender = program.display().to_string().parse().unwrap();
        let mut in_force = contender.put_in_force(&[], &path).unwrap();
        assert_eq!(in_force.check(), Ok(()));
        assert_eq!(in_force.ops(), Some("x"));
        fs::write(path.join("stop"), "").unwrap();
        let begun = Instant::now();
        let error = loop {
            match in_force.check() {
                Err(error) => break error,
                Ok(()) => assert!(begun.elapsed() < Duration::from_secs(20)),
            }
        };
        assert!(
            error.contains("thrown out") || error.contains("stalled"),
            "{error}"
        );
        drop(in_force);
        fs::remove_dir_all(path).unwrap();
    }
}
