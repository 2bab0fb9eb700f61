//! Reads a version requirement from a `Cargo.toml`, as far as its lower end goes.

use std::fmt;

/// A version without pre-release and build parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version {
    pub(crate) major: u64,
    pub(crate) minor: u64,
    pub(crate) patch: u64,
}

impl Version {
    /// Reads `1`, `1.54` or `1.54.1`; what is left out is 0. Pre-releases are none of ours: `None`.
    pub(crate) fn parse(text: &str) -> Option<Version> {
        let text = text.trim();
        let without_build = text.split_once('+').map_or(text, |(version, _)| version);
        let mut parts = without_build.split('.');
        let major = parts.next()?.parse().ok()?;
        let mut rest = || parts.next().map_or(Some(0), |part| part.parse().ok());
        let version = Version {
            major,
            minor: rest()?,
            patch: rest()?,
        };
        parts.next().is_none().then_some(version)
    }

    pub(crate) fn next_patch(self) -> Version {
        Version {
            patch: self.patch + 1,
            ..self
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// The oldest version that a requirement such as `1.54`, `^1.54.1`, `~1.54` or `>=1.54, <1.60` lets in.
///
/// `None` for what has no lowest version that one could name (`*`, `<2`, `>1.54`).
pub(crate) fn oldest(requirement: &str) -> Option<Version> {
    requirement
        .split(',')
        .filter_map(|comparator| {
            let comparator = comparator.trim();
            let version = comparator
                .strip_prefix(">=")
                .or_else(|| comparator.strip_prefix(['^', '~', '=']))
                .unwrap_or(comparator);
            Version::parse(version)
        })
        .max()
}

/// The requirement that `[workspace.dependencies]` in `manifest` states for `package`, on one line, as a string or as a
/// table with `version`.
pub(crate) fn of_workspace<'a>(manifest: &'a str, package: &str) -> Option<&'a str> {
    manifest
        .lines()
        .skip_while(|line| line.trim() != "[workspace.dependencies]")
        .skip(1)
        .take_while(|line| !line.trim_start().starts_with('['))
        .find_map(|line| {
            let (name, value) = line.split_once('=')?;
            if name.trim() != package {
                return None;
            }
            let value = value.trim();
            if value.starts_with('"') {
                return quoted(value);
            }
            let (_, after) = value.split_once("version")?;
            quoted(after.trim_start().strip_prefix('=')?.trim_start())
        })
}

fn quoted(text: &str) -> Option<&str> {
    Some(text.strip_prefix('"')?.split_once('"')?.0)
}

/// The version of `package` that a `Cargo.lock` has; the newest if it has several.
pub(crate) fn of_lock(lock: &str, package: &str) -> Option<Version> {
    let name = format!("name = \"{package}\"");
    let mut lines = lock.lines();
    let mut newest = None;
    while lines.by_ref().any(|line| line.trim() == name) {
        let version = lines.next()?.trim().strip_prefix("version = ")?;
        newest = newest.max(Version::parse(quoted(version)?));
    }
    newest
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(major: u64, minor: u64, patch: u64) -> Option<Version> {
        Some(Version {
            major,
            minor,
            patch,
        })
    }

    #[test]
    fn versions() {
        assert_eq!(Version::parse("1"), version(1, 0, 0));
        assert_eq!(Version::parse("1.54"), version(1, 54, 0));
        assert_eq!(Version::parse(" 1.54.3 "), version(1, 54, 3));
        assert_eq!(Version::parse("0.2.1+build.5"), version(0, 2, 1));
        for wrong in ["", "*", "1.*", "1.54.x", "1.2.3.4", "1.0.0-rc.1", "v1"] {
            assert_eq!(Version::parse(wrong), None, "{wrong}");
        }
        assert!(Version::parse("1.9.9") < Version::parse("1.10"));
        let next = Version::parse("1.54.9").unwrap().next_patch();
        assert_eq!(next.to_string(), "1.54.10");
    }

    #[test]
    fn the_lower_end_of_a_range() {
        for requirement in [
            "1.54",
            "^1.54",
            "~1.54.0",
            "=1.54.0",
            ">=1.54",
            ">= 1.54, <1.60",
            "<2, >=1.54.0",
            ">=1.40, ^1.54",
        ] {
            assert_eq!(oldest(requirement), version(1, 54, 0), "{requirement}");
        }
        assert_eq!(oldest("1.54.1"), version(1, 54, 1));
        for open in ["*", "<2", ">1.54", ""] {
            assert_eq!(oldest(open), None, "{open}");
        }
    }

    #[test]
    fn the_requirement_is_found_in_the_workspace() {
        let manifest = r#"
[package]
tokio = "9"
[workspace.dependencies]
# tokio = "8"
tokio-util = { version = "0.7" }
tokio = { version = "1.54", default-features = false }
libc = "0.2"

[profile.release]
serde = "1"
"#;
        assert_eq!(of_workspace(manifest, "tokio"), Some("1.54"));
        assert_eq!(of_workspace(manifest, "libc"), Some("0.2"));
        assert_eq!(of_workspace(manifest, "serde"), None);
        assert_eq!(of_workspace(manifest, "util"), None);
    }

    #[test]
    fn this_workspace_states_a_tokio() {
        let manifest = include_str!("../../Cargo.toml");
        let requirement = of_workspace(manifest, "tokio").unwrap();
        assert!(oldest(requirement).is_some(), "{requirement}");
    }

    #[test]
    fn the_version_is_found_in_the_lock() {
        let lock = r#"
[[package]]
name = "tokio"
version = "1.54.1"

[[package]]
name = "tokio-macros"
version = "2.7.2"

[[package]]
name = "syn"
version = "2.0.100"

[[package]]
name = "syn"
version = "3.0.9"
"#;
        assert_eq!(of_lock(lock, "tokio"), version(1, 54, 1));
        assert_eq!(of_lock(lock, "syn"), version(3, 0, 9));
        assert_eq!(of_lock(lock, "absent"), None);
    }
}
