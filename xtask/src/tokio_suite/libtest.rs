//! Reads what a program of tests prints: the list of its tests, and how each ended.

use std::collections::{BTreeMap, HashMap};

/// How a test ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Passed,
    Failed,
    Ignored,
    /// The program ended before it, or the time was up.
    Unfinished,
}

/// The tests by module, from `--list --format terse`; each name has its module in front.
pub(crate) fn modules(list: &str) -> BTreeMap<String, Vec<String>> {
    let mut modules: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for line in list.lines() {
        if let Some(test) = line.strip_suffix(": test")
            && let Some((module, _)) = test.split_once("::")
        {
            let tests = modules.entry(module.to_string()).or_default();
            tests.push(test.to_string());
        }
    }
    modules
}

/// How the tests with these names ended, from `test NAME ... ok`. A child of a test may print to the same line, in front.
pub(crate) fn endings(output: &str, names: &[String]) -> HashMap<String, Ended> {
    let mut endings: HashMap<String, Ended> = names
        .iter()
        .map(|name| (name.clone(), Ended::Unfinished))
        .collect();
    for line in output.lines() {
        let Some((before, result)) = line.split_once(" ... ") else {
            continue;
        };
        let Some((_, name)) = before.rsplit_once("test ") else {
            continue;
        };
        let name = name.strip_suffix(" - should panic").unwrap_or(name);
        let ended = match result {
            "ok" => Ended::Passed,
            "FAILED" => Ended::Failed,
            _ if result.starts_with("ignored") => Ended::Ignored,
            _ => continue,
        };
        if let Some(entry) = endings.get_mut(name) {
            *entry = ended;
        }
    }
    endings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_string()).collect()
    }

    #[test]
    fn tests_are_listed_by_module() {
        let list = "rt_basic::one: test\nrt_basic::inner::two: test\nfs::three: test\nfs::four: benchmark\nfive: test\n";
        let modules = modules(list);
        assert_eq!(modules.len(), 2);
        assert_eq!(modules["fs"], ["fs::three"]);
        assert_eq!(
            modules["rt_basic"],
            ["rt_basic::one", "rt_basic::inner::two"]
        );
    }

    #[test]
    fn each_test_has_its_ending() {
        let output = "\
running 6 tests
test a::passes ... ok
test a::must_panic - should panic ... ok
test a::fails ... FAILED
test a::left_out ... ignored, too slow
hello from a childtest a::noisy ... ok
test a::hangs has been running for over 60 seconds
test b::of_nobody ... ok
---- a::fails stdout ----
I test a::hangs ... and go on
";
        let names = names(&[
            "a::passes",
            "a::must_panic",
            "a::fails",
            "a::left_out",
            "a::noisy",
            "a::hangs",
        ]);
        let endings = endings(output, &names);
        assert_eq!(endings.len(), 6);
        assert_eq!(endings["a::passes"], Ended::Passed);
        assert_eq!(endings["a::must_panic"], Ended::Passed);
        assert_eq!(endings["a::fails"], Ended::Failed);
        assert_eq!(endings["a::left_out"], Ended::Ignored);
        assert_eq!(endings["a::noisy"], Ended::Passed);
        assert_eq!(endings["a::hangs"], Ended::Unfinished);
    }
}
