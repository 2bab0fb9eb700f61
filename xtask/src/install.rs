//! Puts what is missing on the machine where that is this program's to do (Debian and Ubuntu, as root; components of the
//! toolchain through rustup), and says elsewhere exactly what to install.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::process::Command;

use crate::context::Context;
use crate::interrupt;
use crate::process;
use crate::progress::{Progress, Sink};
use crate::tools::{Source, Tool, installed};

/// The kinds of system that have a line of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum System {
    Debian,
    Fedora,
    Arch,
    Other,
}

/// Sees to `wanted`; returns what is missing afterwards, and has then said how to get it.
pub(crate) fn provide(
    context: &Context,
    wanted: &[Tool],
    install: bool,
    sink: Sink,
    verbose: bool,
) -> Vec<Tool> {
    let missing = absent(context, wanted);
    if missing.is_empty() {
        return missing;
    }
    let system = system();
    if install {
        // One that fails keeps no other from what it gets: of ten package sources one may be dead.
        let run_all = |commands: Vec<Command>| {
            for mut command in commands {
                let title = title_of(&command);
                if !interrupt::came() {
                    run(title, &mut command, sink, verbose);
                }
            }
        };
        // The packages of the release are known once its lists are there.
        run_all(preparations(&missing, system));
        run_all(commands(&missing, system, &in_release));
        run_all(crate_installs(context, &missing));
    }
    let missing = absent(context, &missing);
    for line in instructions(context, &missing, system) {
        sink.print(&format!("{line}\n"));
    }
    missing
}

fn absent(context: &Context, wanted: &[Tool]) -> Vec<Tool> {
    let mut missing: Vec<Tool> = Vec::new();
    for &tool in wanted {
        if !missing.contains(&tool) && !tool.present(context) {
            missing.push(tool);
        }
    }
    missing
}

/// The commands that this program may run by itself before it gets `missing`.
fn preparations(missing: &[Tool], system: System) -> Vec<Command> {
    if !may_install_packages(system) || packages(missing, system, &|_| true).is_empty() {
        return Vec::new();
    }
    vec![apt_get(["update"])]
}

/// The commands that this program may run by itself to get `missing`.
fn commands(missing: &[Tool], system: System, has: &dyn Fn(&str) -> bool) -> Vec<Command> {
    let mut commands = Vec::new();
    let components = components(missing);
    if !components.is_empty() {
        let mut add = Command::new("rustup");
        add.args(["component", "add"]).args(components);
        commands.push(add);
    }
    let targets = targets(missing);
    if !targets.is_empty() {
        let mut add = Command::new("rustup");
        add.args(["target", "add"]).args(targets);
        commands.push(add);
    }
    let nightly = nightly_components(missing);
    if !nightly.is_empty() {
        // Adds to a toolchain that is there, and leaves its version as it is.
        let mut add = Command::new("rustup");
        add.args(["component", "add", "--toolchain", "nightly"])
            .args(nightly);
        commands.push(add);
    }
    for version in toolchains(missing) {
        let mut install = Command::new("rustup");
        install.args(["toolchain", "install", version, "--profile", "minimal"]);
        commands.push(install);
    }
    let packages = packages(missing, System::Debian, has);
    if !packages.is_empty() && may_install_packages(system) {
        let mut install = apt_get(["install", "--yes", "--no-install-recommends"]);
        install
            .args(packages)
            .env("DEBIAN_FRONTEND", "noninteractive");
        commands.push(install);
    }
    commands
}

/// Builds programs of crates, in a temporary directory: minutes, once.
fn crate_installs(context: &Context, missing: &[Tool]) -> Vec<Command> {
    let install = |name: &str| {
        let mut install = context.cargo();
        install
            .args(crate_install_args(context, name))
            .env_remove("CARGO_TARGET_DIR");
        install
    };
    crates(missing).into_iter().map(install).collect()
}

fn crate_install_args(context: &Context, name: &str) -> [OsString; 5] {
    [
        "install".into(),
        name.into(),
        "--locked".into(),
        "--root".into(),
        installed(context).into_os_string(),
    ]
}

fn may_install_packages(system: System) -> bool {
    system == System::Debian && is_root()
}

/// Networks fail now and then, and mirrors while they are updated. A new machine may be at its first updates.
fn apt_get<const N: usize>(arguments: [&str; N]) -> Command {
    let mut command = Command::new("apt-get");
    command
        .args(["-o", "Acquire::Retries=3", "-o", "DPkg::Lock::Timeout=300"])
        .args(arguments);
    command
}

/// Whether apt can install a package of this name.
fn in_release(package: &str) -> bool {
    Command::new("apt-cache")
        .args(["show", "--quiet", package])
        .output()
        .is_ok_and(|answer| answer.status.success() && !answer.stdout.is_empty())
}

fn title_of(command: &Command) -> String {
    let program = command.get_program().to_string_lossy().into_owned();
    let args: Vec<_> = command
        .get_args()
        .map(|arg| arg.to_string_lossy())
        .collect();
    format!("{program} {}", args.join(" "))
}

/// Runs a step of the setup, and shows its output when it fails. Says whether it succeeded.
pub(crate) fn run(title: String, command: &mut Command, sink: Sink, verbose: bool) -> bool {
    let mut progress = Progress::start(format!("[setup] {title}"), sink, verbose);
    match process::run(command, &mut |line| progress.line(line)) {
        Ok(finished) => {
            progress.end(if finished.success { "ok" } else { "failed" });
            if !finished.success && !verbose {
                sink.print(&format!("{}\n", finished.output.trim_end()));
            }
            if finished.interrupted {
                // The run that the setup was for must not start either.
                interrupt::put_back();
            }
            finished.success
        }
        Err(error) => {
            progress.end(&format!("failed: {error}"));
            false
        }
    }
}

/// The commands that a person has to run to get `missing`, line by line.
fn instructions(context: &Context, missing: &[Tool], system: System) -> Vec<String> {
    let mut lines = Vec::new();
    if missing.is_empty() {
        return lines;
    }
    let names: Vec<&str> = missing.iter().map(|tool| tool.name()).collect();
    lines.push(format!("missing: {}; to install:", names.join(", ")));
    let packages = packages(missing, system, &in_release).join(" ");
    if !packages.is_empty() {
        lines.push(match system {
            System::Debian => format!(
                "  sudo apt-get update && sudo apt-get install --no-install-recommends {packages}"
            ),
            System::Fedora => format!("  sudo dnf install {packages}"),
            System::Arch => format!("  sudo pacman -S --needed {packages}"),
            System::Other => {
                format!("  with your system's packager, what Debian has in: {packages}")
            }
        });
    }
    let components = components(missing).join(" ");
    if !components.is_empty() {
        lines.push(format!("  rustup component add {components}"));
    }
    let targets = targets(missing).join(" ");
    if !targets.is_empty() {
        lines.push(format!("  rustup target add {targets}"));
    }
    let nightly = nightly_components(missing).join(",");
    if !nightly.is_empty() {
        lines.push(format!(
            "  rustup toolchain install nightly --component {nightly}"
        ));
    }
    for version in toolchains(missing) {
        lines.push(format!(
            "  rustup toolchain install {version} --profile minimal"
        ));
    }
    for name in crates(missing) {
        let args = crate_install_args(context, name).join(OsStr::new(" "));
        lines.push(format!("  cargo {}", args.to_string_lossy()));
    }
    lines
}

/// The packages of `missing`. Of those that can stand for one another, the first that the release `has`, and the first of
/// all where it has none.
fn packages(missing: &[Tool], system: System, has: &dyn Fn(&str) -> bool) -> Vec<&'static str> {
    missing
        .iter()
        .filter_map(|tool| match (tool.source(), system) {
            (Source::Apt(package), _) => Some(package),
            (Source::Package { fedora, .. }, System::Fedora) => Some(fedora),
            (Source::Package { arch, .. }, System::Arch) => Some(arch),
            (Source::Package { debian: [only], .. }, _) => Some(*only),
            (Source::Package { debian, .. }, _) => debian
                .iter()
                .find(|package| has(package))
                .or(debian.first())
                .copied(),
            (
                Source::Component(_)
                | Source::Nightly(_)
                | Source::Target(_)
                | Source::Toolchain(_)
                | Source::Crate(_),
                _,
            ) => None,
        })
        .collect()
}

/// The names of those of `missing` that come from the same kind of source, of which `name` gives the name.
fn names(missing: &[Tool], name: fn(Source) -> Option<&'static str>) -> Vec<&'static str> {
    let sources = missing.iter().map(|tool| tool.source());
    sources.filter_map(name).collect()
}

fn components(missing: &[Tool]) -> Vec<&'static str> {
    names(missing, |source| match source {
        Source::Component(name) => Some(name),
        _ => None,
    })
}

fn nightly_components(missing: &[Tool]) -> Vec<&'static str> {
    names(missing, |source| match source {
        Source::Nightly(name) => Some(name),
        _ => None,
    })
}

fn targets(missing: &[Tool]) -> Vec<&'static str> {
    names(missing, |source| match source {
        Source::Target(name) => Some(name),
        _ => None,
    })
}

fn toolchains(missing: &[Tool]) -> Vec<&'static str> {
    names(missing, |source| match source {
        Source::Toolchain(version) => Some(version),
        _ => None,
    })
}

fn crates(missing: &[Tool]) -> Vec<&'static str> {
    names(missing, |source| match source {
        Source::Crate(name) => Some(name),
        _ => None,
    })
}

fn system() -> System {
    system_of(&os_release())
}

fn os_release() -> String {
    fs::read_to_string("/etc/os-release").unwrap_or_default()
}

/// Whether this system has a package of the tool.
pub(crate) fn is_offered(tool: Tool) -> bool {
    is_offered_by(tool, &os_release())
}

/// Ubuntu's package of Chromium is a script that asks for a snap.
fn is_offered_by(tool: Tool, os_release: &str) -> bool {
    tool != Tool::Browser || !os_release.lines().any(|line| line == "ID=ubuntu")
}

/// Reads `ID` and `ID_LIKE` of an `os-release` file.
fn system_of(os_release: &str) -> System {
    let ids: Vec<&str> = os_release
        .lines()
        .filter_map(|line| line.strip_prefix("ID=").or(line.strip_prefix("ID_LIKE=")))
        .flat_map(|ids| ids.trim_matches('"').split_whitespace())
        .collect();
    let any = |names: &[&str]| ids.iter().any(|id| names.contains(id));
    if any(&["debian", "ubuntu"]) {
        System::Debian
    } else if any(&["fedora", "rhel"]) {
        System::Fedora
    } else if any(&["arch"]) {
        System::Arch
    } else {
        System::Other
    }
}

/// The owner of `/proc/self` is the user that this process acts as.
fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context() -> Context {
        Context {
            root: "/project".into(),
            target: "/project/target".into(),
        }
    }

    /// Without root and on any system, since it goes into the project's own directory.
    #[test]
    fn a_crate_is_installed_beside_the_builds() {
        let line = "cargo install mdbook --locked --root /project/target/tools";
        for system in [System::Debian, System::Other] {
            let lines = instructions(&context(), &[Tool::Mdbook], system);
            assert_eq!(
                lines,
                ["missing: mdbook; to install:", &format!("  {line}")]
            );
            assert!(packages(&[Tool::Mdbook], system, &|_| true).is_empty());
        }
        let installs = crate_installs(&context(), &[Tool::Clippy, Tool::Mdbook]);
        let args: Vec<_> = installs[0].get_args().collect();
        assert_eq!(
            format!("cargo {}", args.join(OsStr::new(" ")).display()),
            line
        );
        assert_eq!(installs.len(), 1);
    }

    #[test]
    fn the_system_is_read() {
        let cases = [
            ("NAME=x\nID=debian\n", System::Debian),
            ("ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n", System::Debian),
            ("ID=fedora\n", System::Fedora),
            (
                "ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n",
                System::Fedora,
            ),
            ("ID=arch\n", System::Arch),
            ("ID=void\nVERSION_ID=debian\n", System::Other),
            ("", System::Other),
        ];
        for (text, expected) in cases {
            assert_eq!(system_of(text), expected, "{text}");
        }
    }

    #[test]
    fn ubuntu_has_no_package_of_a_browser() {
        let (ubuntu, debian) = ("NAME=x\nID=ubuntu\nID_LIKE=debian\n", "ID=debian\n");
        assert!(!is_offered_by(Tool::Browser, ubuntu) && is_offered_by(Tool::Browser, debian));
        assert!(is_offered_by(Tool::Redis, ubuntu));
    }

    #[test]
    fn instructions_name_every_package_and_component() {
        let missing = [
            Tool::Libclang,
            Tool::Clippy,
            Tool::Objdump,
            Tool::RustAarch64,
        ];
        assert_eq!(
            instructions(&context(), &missing, System::Debian),
            [
                "missing: libclang, clippy, objdump, Rust's standard library for aarch64; to install:",
                "  sudo apt-get update && sudo apt-get install --no-install-recommends libclang-dev binutils",
                "  rustup component add clippy",
                "  rustup target add aarch64-unknown-linux-gnu",
            ]
        );
        assert_eq!(
            instructions(&context(), &missing[..1], System::Fedora)[1],
            "  sudo dnf install clang-devel"
        );
        assert_eq!(
            instructions(&context(), &missing[1..2], System::Arch)[1],
            "  rustup component add clippy"
        );
        assert!(instructions(&context(), &[], System::Debian).is_empty());
    }

    #[test]
    fn targets_come_through_rustup_on_every_system() {
        let missing = [Tool::Target("x86_64-apple-darwin"), Tool::Target("other")];
        for system in [System::Debian, System::Other] {
            let commands = commands(&missing, system, &|_| true);
            let titles: Vec<_> = commands.iter().map(title_of).collect();
            assert_eq!(titles, ["rustup target add x86_64-apple-darwin other"]);
        }
        assert_eq!(
            instructions(&context(), &missing, System::Fedora),
            [
                "missing: x86_64-apple-darwin, other; to install:",
                "  rustup target add x86_64-apple-darwin other",
            ]
        );
    }

    #[test]
    fn the_first_package_that_the_release_has() {
        let clang = |has: &dyn Fn(&str) -> bool| packages(&[Tool::Clang], System::Debian, has);
        assert_eq!(clang(&|_| true), ["clang-19"]);
        assert_eq!(clang(&|name| name == "clang-18"), ["clang-18"]);
        assert_eq!(clang(&|_| false), ["clang-19"]);
    }

    #[test]
    fn only_debian_gets_its_packages_by_itself() {
        for system in [System::Fedora, System::Arch, System::Other] {
            assert!(preparations(&[Tool::Libclang], system).is_empty());
            assert!(commands(&[Tool::Libclang], system, &|_| true).is_empty());
        }
        let commands = commands(&[Tool::Rustfmt], System::Other, &|_| true);
        assert_eq!(commands.len(), 1);
        assert_eq!(commands[0].get_program(), "rustup");
    }
}
