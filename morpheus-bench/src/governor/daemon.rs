//! The scheduler of the column `schedutil + morpheus`: whether it can be had here, and from where.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::scx::{self, Scheduler};

/// How the column is asked for.
pub const COLUMN: &str = "schedutil+morpheus";
/// The suffix that a governor's name has for it.
pub const SUFFIX: &str = "+morpheus";
/// The only governor that goes by what a scheduler asks for.
pub const GOVERNOR: &str = "schedutil";
/// The name by which the kernel knows it.
pub const NAME: &str = "morpheus";
const PROGRAM: &str = "scx_morpheus";

/// Where it comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// It is in force already, and is left so.
    Runs,
    /// It is started for the column, and ended after it.
    Start {
        /// The program.
        program: PathBuf,
        /// Where its worker finds it.
        socket: PathBuf,
    },
}

impl Source {
    /// Looks for it. `sched_ext` is the kernel's directory, `state` one for the socket; the program may be named.
    ///
    /// # Errors
    /// When it cannot be had, with what to do.
    pub fn look(sched_ext: &Path, state: &Path, program: Option<&Path>) -> Result<Self, String> {
        // SAFETY: geteuid takes nothing and cannot fail.
        let is_root = unsafe { libc::geteuid() } == 0;
        let named = program.map(Path::to_owned);
        let program = named.or_else(|| scx::find(PROGRAM));
        Self::judge(sched_ext, state, is_root, program)
    }

    fn judge(
        sched_ext: &Path,
        state: &Path,
        is_root: bool,
        program: Option<PathBuf>,
    ) -> Result<Self, String> {
        if !sched_ext.is_dir() {
            return Err(
                "this kernel has no sched_ext; take Linux 6.15 or newer with CONFIG_SCHED_CLASS_EXT, or \
                 `cargo xtask vm --cpufreq -- governor run …`"
                    .into(),
            );
        }
        if let Some(loaded) = scx::loaded(sched_ext) {
            return match &*loaded.ops {
                NAME => Ok(Self::Runs),
                other => Err(format!(
                    "another scheduler ({other}) is in force: stop it, or run {PROGRAM} instead"
                )),
            };
        }
        if !is_root {
            return Err("only root may load a scheduler: `sudo governor run …`".into());
        }
        let Some(program) = program else {
            return Err(format!(
                "there is no {PROGRAM} beside this program or in the path: `cargo build --release -p morpheus-bpf` makes it, \
                 and --scx-morpheus says where it is"
            ));
        };
        let state = std::path::absolute(state).unwrap_or_else(|_| state.to_owned());
        Ok(Self::Start {
            program,
            socket: state.join("broker.sock"),
        })
    }

    /// The socket of the one that is started.
    pub fn socket(&self) -> Option<PathBuf> {
        match self {
            Self::Runs => None,
            Self::Start { socket, .. } => Some(socket.clone()),
        }
    }

    /// Puts it in force, until what it returns is dropped; `None` where it runs by itself.
    ///
    /// # Errors
    /// When it does not start.
    pub fn put_in_force(&self, sched_ext: &Path) -> Result<Option<Scheduler>, String> {
        let Self::Start { program, socket } = self else {
            return Ok(None);
        };
        let mut command = Command::new(program);
        command.arg("--socket").arg(socket);
        Scheduler::start(command, sched_ext).map(Some)
    }

    /// A line that says how the program is started, or that it runs.
    pub fn plan(&self) -> String {
        match self {
            Self::Runs => format!("{PROGRAM} runs already, and goes on"),
            Self::Start { program, socket } => format!(
                "run {} --socket {} meanwhile",
                program.display(),
                socket.display()
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A directory that looks like the kernel's.
    fn sched_ext(name: &str, ops: Option<&str>) -> PathBuf {
        let path = std::env::temp_dir().join(format!("governor-scx-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("root")).unwrap();
        let state = ops.map_or("disabled", |_| "enabled");
        fs::write(path.join("state"), format!("{state}\n")).unwrap();
        if let Some(ops) = ops {
            fs::write(path.join("root/ops"), format!("{ops}\n")).unwrap();
        }
        path
    }

    #[test]
    fn it_is_found_or_started_or_refused_with_a_reason() {
        let state = Path::new("/run/s");
        let program = Some(PathBuf::from("/bin/scx_morpheus"));
        let none = sched_ext("none", None);
        let started = Source::judge(&none, state, true, program.clone()).unwrap();
        assert_eq!(started.socket(), Some("/run/s/broker.sock".into()));
        assert!(started.plan().contains("/bin/scx_morpheus --socket /run/s"));
        let own = sched_ext("own", Some(NAME));
        // Not even root is needed.
        assert_eq!(Source::judge(&own, state, false, None), Ok(Source::Runs));
        assert!(Source::Runs.put_in_force(&own).unwrap().is_none());
        let other = sched_ext("other", Some("bpfland_1.0"));
        for (directory, is_root, program, part) in [
            (Path::new("/nowhere"), true, &program, "has no sched_ext"),
            (&other, true, &program, "bpfland_1.0"),
            (&none, false, &program, "sudo"),
            (&none, true, &None, "cargo build"),
        ] {
            let error = Source::judge(directory, state, is_root, program.clone()).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        for path in [none, own, other] {
            fs::remove_dir_all(path).unwrap();
        }
    }
}
