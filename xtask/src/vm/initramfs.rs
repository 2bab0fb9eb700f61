//! Packs what the guest consists of: busybox, the programs under test with their libraries, `/init`, the command.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::arch::Arch;
use super::console::MARK;
use super::cpio::Archive;
use super::kernel::Kernel;
use super::userland::Userland;

/// The contents of the guest's file system.
#[derive(Debug)]
pub(super) struct Contents<'a> {
    pub(super) arch: Arch,
    pub(super) kernel: &'a Kernel,
    pub(super) userland: &'a Userland,
    /// They go to `/usr/local/bin`.
    pub(super) programs: &'a [PathBuf],
    /// They go to `/add`, files and directories alike.
    pub(super) added: &'a [PathBuf],
    pub(super) command: &'a [OsString],
    /// The preemption mode that the kernel must have; empty for any.
    pub(super) preemption: &'a str,
    /// The CPUs must have frequencies.
    pub(super) cpufreq: bool,
}

/// Writes the archive to `path`; returns its size in bytes.
///
/// # Errors
///
/// Something cannot be read or written, two added paths have the same name, or a program's library is not on this machine.
pub(super) fn write(path: &Path, contents: &Contents<'_>) -> io::Result<u64> {
    let out = File::create(path).map_err(|error| about(path, error))?;
    let mut guest = Guest {
        arch: contents.arch,
        foreign: contents.userland.libraries.as_deref(),
        archive: Archive::new(BufWriter::new(out)),
        libraries: BTreeSet::new(),
    };
    // The kernel opens its console before devtmpfs is there.
    guest
        .archive
        .character_device(Path::new("/dev/console"), 5, 1)?;
    for directory in [
        "/proc",
        "/sys",
        "/run",
        "/tmp",
        "/root",
        "/add",
        "/usr/local/bin",
    ] {
        guest.archive.directory(Path::new(directory))?;
    }
    guest.add(&contents.userland.busybox, Path::new("/bin/busybox"))?;
    let stripped = path.with_extension("stripped");
    for program in contents.programs {
        let to = Path::new("/usr/local/bin").join(name(program)?);
        let small = strip(contents.arch, program, &stripped);
        guest.add(if small { &stripped } else { program }, &to)?;
    }
    for added in contents.added {
        let to = Path::new("/add").join(name(added)?);
        if guest.archive.has(&to) {
            let name = to.file_name().unwrap_or_default().to_string_lossy();
            return Err(io::Error::other(format!(
                "two things to add are called {name}"
            )));
        }
        guest.add(added, &to)?;
    }
    if let Some(config) = &contents.kernel.config {
        let to = format!("/boot/config-{}", contents.kernel.release);
        guest.add(config, Path::new(&to))?;
    }
    if contents.cpufreq
        && let Some(module) = &contents.kernel.cpufreq
    {
        guest.add(module, &Path::new("/modules").join(name(module)?))?;
    }
    guest.text("/etc/passwd", 0o644, b"root:x:0:0:root:/root:/bin/sh\n")?;
    guest.text("/etc/group", 0o644, b"root:x:0:\n")?;
    guest.text("/etc/hosts", 0o644, b"127.0.0.1 localhost\n::1 localhost\n")?;
    guest.text("/init", 0o755, include_bytes!("init.sh"))?;
    guest.text("/command", 0o755, &command_script(contents.command))?;
    let settings = settings(contents, &guest.libraries);
    guest.text("/settings", 0o644, &settings)?;
    guest.archive.finish()
}

/// Leaves away the lines of a program's source; the names of its functions stay. They are most of its size, and of the time
/// in which the guest's kernel unpacks all programs: 15 of 23 seconds until `/init` begins. Returns whether that was done:
/// without the linker's tools a program goes as it is.
pub(crate) fn strip(arch: Arch, program: &Path, to: &Path) -> bool {
    let status = Command::new(arch.binutils("strip"))
        .arg("--strip-debug")
        .arg("-o")
        .arg(to)
        .arg(program)
        .status();
    status.is_ok_and(|status| status.success())
}

/// The archive, and what is known about it.
struct Guest<'a, W> {
    arch: Arch,
    /// Where the libraries of a foreign machine are.
    foreign: Option<&'a Path>,
    archive: Archive<W>,
    /// The directories with libraries.
    libraries: BTreeSet<PathBuf>,
}

impl<W: Write> Guest<'_, W> {
    fn text(&mut self, path: &str, mode: u32, content: &[u8]) -> io::Result<()> {
        self.archive.file(Path::new(path), mode, content)
    }

    /// Puts a file of this machine, or a directory with all in it, into the guest.
    fn add(&mut self, from: &Path, to: &Path) -> io::Result<()> {
        // A named path may be a link and is followed; a link inside a directory stays one.
        let kind = fs::metadata(from).map_err(|error| about(from, error))?;
        if kind.is_dir() {
            self.archive.directory(to)?;
            let mut entries = fs::read_dir(from)
                .and_then(Iterator::collect::<io::Result<Vec<_>>>)
                .map_err(|error| about(from, error))?;
            entries.sort_by_key(fs::DirEntry::file_name);
            for entry in entries {
                let (from, to) = (entry.path(), to.join(entry.file_name()));
                if entry.file_type()?.is_symlink() {
                    self.archive.symlink(&to, &fs::read_link(&from)?)?;
                } else {
                    self.add(&from, &to)?;
                }
            }
            return Ok(());
        }
        if !kind.is_file() {
            return Err(about(
                from,
                io::Error::other("neither a file nor a directory"),
            ));
        }
        let content = fs::read(from).map_err(|error| about(from, error))?;
        let mode = kind.permissions().mode();
        self.archive.file(to, mode, &content)?;
        if content.starts_with(b"\x7fELF") && mode & 0o111 != 0 {
            self.add_libraries(from)?;
        }
        Ok(())
    }

    /// Puts the libraries of a program for another kind of machine into `/lib`, where its loader is, and theirs.
    fn add_foreign_libraries(&mut self, program: &Path, directory: &Path) -> io::Result<()> {
        let readelf = self.arch.binutils("readelf");
        let answer = Command::new(&readelf)
            .args(["--wide", "--program-headers", "--dynamic"])
            .arg(program)
            .env("LC_ALL", "C")
            .output()
            .map_err(|error| about(Path::new(&readelf), error))?;
        for name in needed(&String::from_utf8_lossy(&answer.stdout)) {
            let to = Path::new("/lib").join(&name);
            if !self.archive.has(&to) {
                let library = directory.join(&name);
                let content = fs::read(&library).map_err(|error| about(&library, error))?;
                self.archive.file(&to, 0o755, &content)?;
                self.add_foreign_libraries(&library, directory)?;
            }
        }
        self.libraries.insert(PathBuf::from("/lib"));
        Ok(())
    }

    fn add_libraries(&mut self, program: &Path) -> io::Result<()> {
        if let Some(directory) = self.foreign {
            return self.add_foreign_libraries(program, directory);
        }
        let program = fs::canonicalize(program)?;
        let answer = Command::new("ldd")
            .arg(&program)
            .env("LC_ALL", "C")
            .output()
            .map_err(|error| about(Path::new("ldd"), error))?;
        // It fails for what is linked statically, and then names no library.
        let libraries = libraries(&String::from_utf8_lossy(&answer.stdout))
            .map_err(|missing| about(&program, io::Error::other(missing)))?;
        for library in libraries {
            if let Some(directory) = library.parent() {
                self.libraries.insert(directory.to_path_buf());
            }
            if !self.archive.has(&library) {
                let content = fs::read(&library).map_err(|error| about(&library, error))?;
                self.archive.file(&library, 0o755, &content)?;
            }
        }
        Ok(())
    }
}

/// The names of libraries that `readelf` lists, and that of the loader.
fn needed(answer: &str) -> Vec<String> {
    let names = answer.lines().filter_map(|line| {
        let name = match line.split_once("Shared library: [") {
            Some((_, name)) => name,
            None => line.split_once("Requesting program interpreter: ")?.1,
        };
        let name = name.trim_end().trim_end_matches(']');
        Some(name.rsplit('/').next()?.to_string())
    });
    names.collect()
}

/// The files that `ldd` names; an error names a library that it did not find.
fn libraries(answer: &str) -> Result<Vec<PathBuf>, String> {
    let mut files = Vec::new();
    for line in answer.lines() {
        let line = line.trim();
        let file = match line.split_once(" => ") {
            Some((library, file)) if file.starts_with("not found") => {
                return Err(format!("its library {library} is not on this machine"));
            }
            Some((_, file)) => file,
            None => line,
        };
        // The address behind it; the kernel's own library has no file.
        let file = file.rsplit_once(" (0x").map_or(file, |(file, _)| file);
        if file.starts_with('/') && !file.ends_with(':') {
            files.push(PathBuf::from(file));
        }
    }
    Ok(files)
}

/// `exec`, since the command is a program: a shell's own `exit` or `cd` means nothing here.
fn command_script(command: &[OsString]) -> Vec<u8> {
    let mut script = b"exec".to_vec();
    for word in command {
        script.push(b' ');
        script.extend(quoted(word));
    }
    script.push(b'\n');
    script
}

fn settings(contents: &Contents<'_>, libraries: &BTreeSet<PathBuf>) -> Vec<u8> {
    let cpufreq = if contents.cpufreq { "wanted" } else { "" };
    let line = contents.arch.command_line();
    shell_settings(contents.preemption, cpufreq, line, libraries)
}

fn shell_settings(
    preemption: &str,
    cpufreq: &str,
    line: &str,
    libraries: &BTreeSet<PathBuf>,
) -> Vec<u8> {
    let libraries: Vec<&OsStr> = libraries.iter().map(|path| path.as_os_str()).collect();
    let libraries = libraries.join(OsStr::new(":"));
    let mut settings =
        format!("mark='{MARK}'\npreemption='{preemption}'\ncpufreq='{cpufreq}'\nline='/dev/{line}'\nlibraries=")
            .into_bytes();
    settings.extend(quoted(&libraries));
    settings.push(b'\n');
    settings
}

/// One word for a shell.
fn quoted(word: &OsStr) -> Vec<u8> {
    let mut quoted = b"'".to_vec();
    for &byte in word.as_bytes() {
        match byte {
            b'\'' => quoted.extend(b"'\\''"),
            _ => quoted.push(byte),
        }
    }
    quoted.push(b'\'');
    quoted
}

/// The last part of a path, also of `.` and `..`.
fn name(path: &Path) -> io::Result<OsString> {
    let path = fs::canonicalize(path)
        .map_err(|error| about(path, error))
        .map(|real| {
            path.file_name()
                .or(real.file_name())
                .map(OsStr::to_os_string)
        })?;
    path.ok_or_else(|| io::Error::other("/ cannot be added as a whole"))
}

fn about(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_that_ldd_names() {
        let answer = "\tlinux-vdso.so.1 (0x00007ffc)\n\
            \tlibgcc_s.so.1 => /lib/x86_64-linux-gnu/libgcc_s.so.1 (0x00007f1)\n\
            \tlibodd.so => /opt/a b/libodd.so (0x00007f2)\n\
            \t/lib64/ld-linux-x86-64.so.2 (0x00007f3)\n";
        let expected = [
            "/lib/x86_64-linux-gnu/libgcc_s.so.1",
            "/opt/a b/libodd.so",
            "/lib64/ld-linux-x86-64.so.2",
        ];
        assert_eq!(libraries(answer).unwrap(), expected.map(PathBuf::from));
        assert!(libraries("\tstatically linked\n").unwrap().is_empty());
        assert_eq!(
            libraries("\tlibodd.so => not found\n"),
            Err("its library libodd.so is not on this machine".to_string())
        );
    }

    #[test]
    fn libraries_that_readelf_lists() {
        let answer = "  [Requesting program interpreter: /lib/ld-linux-aarch64.so.1]\n\
             0x0000000000000001 (NEEDED)             Shared library: [libgcc_s.so.1]\n\
             0x000000000000001d (RUNPATH)            Library runpath: [/opt]\n";
        assert_eq!(needed(answer), ["ld-linux-aarch64.so.1", "libgcc_s.so.1"]);
        assert!(needed("There is no dynamic section in this file.\n").is_empty());
    }

    #[test]
    fn words_stay_whole() {
        let command = ["sh", "-c", "echo 'a b'; exit 3", ""].map(OsString::from);
        assert_eq!(
            String::from_utf8(command_script(&command)).unwrap(),
            "exec 'sh' '-c' 'echo '\\''a b'\\''; exit 3' ''\n"
        );
    }

    #[test]
    fn settings_can_be_read_by_a_shell() {
        let libraries = ["/lib64", "/opt/it's"].map(PathBuf::from).into();
        let settings = shell_settings("lazy", "wanted", "ttyS1", &libraries);
        let script = [
            settings.as_slice(),
            b"printf %s \"$mark|$preemption|$cpufreq|$line|$libraries\"",
        ]
        .concat();
        let answer = Command::new("sh")
            .arg("-c")
            .arg(OsStr::from_bytes(&script))
            .output()
            .unwrap();
        assert_eq!(
            String::from_utf8(answer.stdout).unwrap(),
            format!("{MARK}|lazy|wanted|/dev/ttyS1|/lib64:/opt/it's")
        );
    }

    #[test]
    fn names_of_what_is_added() {
        assert_eq!(name(Path::new("/usr/bin/")).unwrap(), "bin");
        assert_eq!(name(Path::new("/usr/bin/..")).unwrap(), "usr");
        assert!(name(Path::new("/")).is_err());
        let missing = name(Path::new("/no/such/file")).unwrap_err().to_string();
        assert!(missing.starts_with("/no/such/file: "), "{missing}");
    }
}
