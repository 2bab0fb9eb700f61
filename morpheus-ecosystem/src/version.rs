//! The release of a library that was tested.

/// The workspace's lock file, as it was when this was built.
const LOCK: &str = include_str!("../../Cargo.lock");

/// The version of `package` in `Cargo.lock`; the newest where there are several.
///
/// # Panics
///
/// When the lock file does not have it.
#[must_use]
pub fn of(package: &str) -> &'static str {
    let name = format!("name = \"{package}\"");
    let mut lines = LOCK.lines();
    let mut found = None;
    // Sorted by version within a name.
    while lines.any(|line| line == name) {
        let version = lines
            .next()
            .and_then(|line| line.strip_prefix("version = "));
        found = version.or(found);
    }
    found
        .unwrap_or_else(|| panic!("{package} is not in Cargo.lock"))
        .trim_matches('"')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_in_the_lock_file() {
        assert!(of("tokio").starts_with("1."), "{}", of("tokio"));
        assert_eq!(of("morpheus-ecosystem"), env!("CARGO_PKG_VERSION"));
    }
}
