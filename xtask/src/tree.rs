//! Copies the workspace's sources, to try them with other dependencies without touching the checkout.

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::Path;

/// Copies `from` to `to`, which is emptied before. Left out are `.git`, every directory that marks itself as a cache
/// (cargo's target directories do), and the one that `to` is in.
///
/// # Errors
///
/// Something cannot be read or written.
pub(crate) fn copy(from: &Path, to: &Path) -> io::Result<()> {
    if to.exists() {
        fs::remove_dir_all(to)?;
    }
    copy_directory(from, to)
}

fn copy_directory(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, copied) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_dir() {
            let left_out = entry.file_name() == ".git"
                || source.join("CACHEDIR.TAG").exists()
                || to.starts_with(&source);
            if !left_out {
                copy_directory(&source, &copied)?;
            }
        } else if kind.is_symlink() {
            symlink(fs::read_link(&source)?, &copied)?;
        } else {
            fs::copy(&source, &copied)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process;

    #[test]
    fn sources_are_copied_and_caches_are_not() {
        let base = std::env::temp_dir().join(format!("xtask-tree-{}", process::id()));
        let (from, to) = (base.join("from"), base.join("from/target/to"));
        for directory in ["src", ".git", "cache", ".cargo"] {
            fs::create_dir_all(from.join(directory)).unwrap();
            fs::write(from.join(directory).join("file"), directory).unwrap();
        }
        fs::write(from.join("cache/CACHEDIR.TAG"), "").unwrap();
        symlink("src/file", from.join("link")).unwrap();
        fs::create_dir_all(&to).unwrap();
        fs::write(to.join("stale"), "").unwrap();

        copy(&from, &to).unwrap();

        assert_eq!(fs::read_to_string(to.join("link")).unwrap(), "src");
        assert_eq!(
            fs::read_to_string(to.join(".cargo/file")).unwrap(),
            ".cargo"
        );
        for absent in [".git", "cache", "target", "stale"] {
            assert!(!to.join(absent).exists(), "{absent}");
        }
        fs::remove_dir_all(base).unwrap();
    }
}
