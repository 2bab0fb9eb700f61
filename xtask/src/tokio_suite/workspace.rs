//! Writes a small workspace: the crate that stands in for tokio, and a crate that has tokio's tests as modules.
//!
//! One program has them all: a hundred links would take longer than all tests. A file is written only where it changed, so
//! that cargo has nothing to do the second time.

use std::collections::{BTreeMap, HashSet};
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

const SHIM: &str = include_str!("template/shim.rs");

/// The package of tokio's tests.
pub(crate) const SUITE: &str = "tokio-suite";

/// The directory in which the tests run; it is no member of the workspace.
pub(crate) const PUBLISHED: &str = "published";

/// The features that the tests are built with.
const FEATURES: [&str; 2] = ["full", "test-util"];

/// Cargo's data on a version of tokio.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Tokio {
    /// The directory of the published crate.
    directory: PathBuf,
    edition: String,
    /// Each with those that it turns on.
    features: BTreeMap<String, Vec<String>>,
    dependencies: Vec<Dependency>,
}

/// A dependency of tokio, or of its tests.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Dependency {
    /// Its name in the sources, with dashes.
    name: String,
    package: String,
    requirement: String,
    default_features: bool,
    features: Vec<String>,
    /// The platforms that have it, as a `cfg`.
    target: Option<String>,
    of_tests: bool,
}

impl Tokio {
    /// Reads the output of `cargo metadata`; `None` if it has no tokio.
    pub(crate) fn of_metadata(metadata: &Value) -> Option<Tokio> {
        let packages = metadata["packages"].as_array()?;
        let tokio = packages.iter().find(|package| package["name"] == "tokio")?;
        let features = tokio["features"].as_object()?.iter();
        Some(Tokio {
            directory: Path::new(tokio["manifest_path"].as_str()?)
                .parent()?
                .to_path_buf(),
            edition: tokio["edition"].as_str()?.to_string(),
            features: features
                .map(|(name, turns_on)| (name.clone(), strings(turns_on)))
                .collect(),
            dependencies: tokio["dependencies"]
                .as_array()?
                .iter()
                .filter_map(dependency)
                .collect(),
        })
    }
}

/// Build dependencies are `None`, and so is what only an unstable tokio or a model has.
fn dependency(dependency: &Value) -> Option<Dependency> {
    let package = dependency["name"].as_str()?;
    let target = dependency["target"].as_str();
    let of_tests = match dependency["kind"].as_str() {
        None => false,
        Some("dev") => true,
        Some(_) => return None,
    };
    if target.is_some_and(|target| target.contains("tokio_unstable") || target.contains("loom")) {
        return None;
    }
    Some(Dependency {
        name: dependency["rename"].as_str().unwrap_or(package).to_string(),
        package: package.to_string(),
        requirement: dependency["req"].as_str()?.to_string(),
        default_features: dependency["uses_default_features"].as_bool()?,
        features: strings(&dependency["features"]),
        target: target.map(str::to_string),
        of_tests,
    })
}

fn strings(list: &Value) -> Vec<String> {
    let list = list.as_array().into_iter().flatten();
    list.filter_map(|item| item.as_str().map(str::to_string))
        .collect()
}

/// Writes the workspace with the crate that stands in for tokio, which uses a tokio of this `requirement`, and Morpheus from
/// `root`.
///
/// # Errors
///
/// Something cannot be written.
pub(crate) fn write_shim(directory: &Path, root: &Path, requirement: &str) -> io::Result<()> {
    fs::create_dir_all(directory.join("shim"))?;
    // Both crates begin with an s; the second one may not be there yet. Stack traces of the tests are not read, and without line
    // tables, as in the checkout, dependencies are built once for both.
    write(
        &directory.join("Cargo.toml"),
        "[workspace]\nmembers = [\"s*\"]\nresolver = \"3\"\n\n[profile.dev]\ndebug = false\n",
    )?;
    let runtime = root.join("morpheus-runtime");
    write(
        &directory.join("shim/Cargo.toml"),
        &format!(
            "[package]\nname = \"tokio-shim\"\nedition = \"2024\"\npublish = false\n\n\
             [lib]\nname = \"tokio\"\npath = \"lib.rs\"\n\n\
             [dependencies.morpheus-runtime]\npath = {runtime:?}\nfeatures = [\"test-util\"]\n\n\
             [dependencies.real_tokio]\npackage = \"tokio\"\nversion = {requirement:?}\nfeatures = {FEATURES:?}\n"
        ),
    )?;
    write(&directory.join("shim/lib.rs"), SHIM)
}

/// Copies the tests that tokio publishes, and writes the manifest and the root of their crate.
///
/// # Errors
///
/// Something cannot be read or written; the published crate has no tests.
pub(crate) fn write_suite(directory: &Path, tokio: &Tokio) -> io::Result<()> {
    let (from, suite) = (tokio.directory.join("tests"), directory.join("suite"));
    let to = suite.join("tests");
    let mut modules = Vec::new();
    let mut used = HashSet::new();
    for (name, source) in sources(&from)? {
        note_crates(&source, &mut used);
        let source = in_module(&source, &name);
        fs::create_dir_all(&to)?;
        write(&to.join(format!("{name}.rs")), &source)?;
        modules.push(name);
    }
    if modules.is_empty() {
        return Err(io::Error::other(format!("no tests in {}", from.display())));
    }
    for (name, source) in sources(&from.join("support"))? {
        note_crates(&source, &mut used);
        fs::create_dir_all(to.join("support"))?;
        write(&to.join("support").join(format!("{name}.rs")), &source)?;
    }
    // Tests read the manifest in the current directory.
    let published = directory.join(PUBLISHED);
    fs::create_dir_all(&published)?;
    write(
        &published.join("Cargo.toml"),
        &fs::read_to_string(tokio.directory.join("Cargo.toml"))?,
    )?;
    write(&suite.join("Cargo.toml"), &manifest(tokio, &used))?;
    write(&suite.join("suite.rs"), &root(&modules))
}

/// The Rust files of a directory, sorted by name, which is without its end.
fn sources(directory: &Path) -> io::Result<Vec<(String, String)>> {
    let mut sources = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == "rs")
            && let Some(name) = path.file_stem().and_then(|name| name.to_str())
        {
            sources.push((name.to_string(), fs::read_to_string(&path)?));
        }
    }
    sources.sort();
    Ok(sources)
}

/// Writes a file whose content is another one.
fn write(path: &Path, content: &str) -> io::Result<()> {
    match fs::read_to_string(path) {
        Ok(present) if present == content => Ok(()),
        _ => fs::write(path, content),
    }
}

/// The root of the crate. A file that is loaded by a path looks for its own modules beside itself, as it did when it was a
/// root.
fn root(modules: &[String]) -> String {
    let mut root = String::new();
    for module in modules {
        let _ = writeln!(root, "#[path = \"tests/{module}.rs\"]\nmod {module};");
    }
    root
}

/// A test's source as a module: what it finds at its root is now in the module.
fn in_module(source: &str, module: &str) -> String {
    let mut changed = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("crate::") {
        let (before, from) = rest.split_at(at);
        changed.push_str(before);
        changed.push_str("crate::");
        // `$crate` in a macro, and `other_crate`, are something else.
        if !before.ends_with(|last: char| last == '$' || last == '_' || last.is_alphanumeric()) {
            changed.push_str(module);
            changed.push_str("::");
        }
        rest = &from["crate::".len()..];
    }
    changed.push_str(rest);
    changed
}

/// Notes each `name::` in a source; a file that needs an unstable tokio has nothing to note, for it compiles to nothing.
fn note_crates(source: &str, used: &mut HashSet<String>) {
    let begins = source
        .lines()
        .take_while(|line| !line.starts_with("use ") && !line.contains("fn "))
        .collect::<String>();
    if begins.contains("tokio_unstable") && !begins.contains("not(tokio_unstable") {
        return;
    }
    let mut parts = source.split("::").peekable();
    while let Some(part) = parts.next() {
        if parts.peek().is_some() {
            let name = part
                .rsplit(|c: char| c != '_' && !c.is_alphanumeric())
                .next();
            used.extend(name.map(str::to_string));
        }
    }
}

/// The manifest of the tests' crate: tokio's features, for the tests ask for them, and those of its dependencies that the
/// tests use.
fn manifest(tokio: &Tokio, used: &HashSet<String>) -> String {
    let mut manifest = format!(
        "[package]\nname = \"{SUITE}\"\nedition = {:?}\npublish = false\n\n\
         [lib]\npath = \"suite.rs\"\n\n[lints.rust]\nwarnings = \"allow\"\n\n[features]\n",
        tokio.edition
    );
    // A feature that stands for a dependency is none of the tests'.
    let is_feature = |name: &str| {
        let turns_on = tokio.features.get(name);
        name != "default"
            && turns_on.is_some_and(|list| list.iter().all(|item| !item.starts_with("dep:")))
    };
    let _ = writeln!(manifest, "default = {FEATURES:?}");
    for (name, turns_on) in &tokio.features {
        if is_feature(name) {
            let turns_on: Vec<&String> = turns_on.iter().filter(|item| is_feature(item)).collect();
            let _ = writeln!(manifest, "{name} = {turns_on:?}");
        }
    }
    let _ = writeln!(
        manifest,
        "\n[dependencies.tokio]\npackage = \"tokio-shim\"\npath = \"../shim\""
    );
    for dependency in &tokio.dependencies {
        // Tokio's own count where the tests have no other idea of them.
        let overridden = !dependency.of_tests
            && tokio
                .dependencies
                .iter()
                .any(|other| other.of_tests && other.name == dependency.name);
        if !overridden && used.contains(&dependency.name.replace('-', "_")) {
            manifest.push_str(&dependency_table(dependency));
        }
    }
    manifest
}

fn dependency_table(dependency: &Dependency) -> String {
    let of_target = match &dependency.target {
        Some(target) => format!("target.'{target}'."),
        None => String::new(),
    };
    format!(
        "\n[{of_target}dependencies.{}]\npackage = {:?}\nversion = {:?}\ndefault-features = {}\nfeatures = {:?}\n",
        dependency.name,
        dependency.package,
        dependency.requirement,
        dependency.default_features,
        dependency.features,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process;

    fn metadata() -> Value {
        let of = |name: &str, kind: Value, target: Value| {
            serde_json::json!({
                "name": name, "req": "^1.2", "kind": kind, "rename": null, "target": target,
                "uses_default_features": name != "nix", "features": [format!("of-{name}")],
            })
        };
        let unix = || Value::from("cfg(unix)");
        serde_json::json!({"packages": [
            {"name": "tokio-util"},
            {
                "name": "tokio", "manifest_path": "/registry/tokio-1.2.3/Cargo.toml", "edition": "2021",
                "features": {
                    "default": [], "full": ["rt", "bytes", "net"], "rt": [], "net": ["libc", "mio/net"],
                    "bytes": ["dep:bytes"], "libc": ["dep:libc"], "test-util": ["rt"],
                },
                "dependencies": [
                    of("bytes", Value::Null, Value::Null),
                    of("libc", Value::Null, unix()),
                    of("libc", "dev".into(), unix()),
                    of("nix", "dev".into(), unix()),
                    of("tokio-test", "dev".into(), Value::Null),
                    of("mockall", "dev".into(), Value::Null),
                    of("cc", "build".into(), Value::Null),
                    of("tracing-mock", "dev".into(), "cfg(all(tokio_unstable))".into()),
                ],
            },
        ]})
    }

    #[test]
    fn the_manifest_has_what_the_tests_ask_for() {
        let tokio = Tokio::of_metadata(&metadata()).unwrap();
        assert_eq!(tokio.directory, Path::new("/registry/tokio-1.2.3"));
        let used = ["bytes", "libc", "tokio_test", "nix", "cc", "tracing_mock"];
        let used = used.iter().map(|name| (*name).to_string()).collect();
        let manifest = manifest(&tokio, &used);

        assert!(manifest.contains("edition = \"2021\"\n"));
        let features = "default = [\"full\", \"test-util\"]\nfull = [\"rt\", \"net\"]\nnet = []\nrt = []\ntest-util = [\"rt\"]\n\n";
        assert!(manifest.contains(features), "{manifest}");
        assert!(manifest.contains(
            "\n[target.'cfg(unix)'.dependencies.nix]\npackage = \"nix\"\nversion = \"^1.2\"\ndefault-features = false\nfeatures = [\"of-nix\"]\n"
        ));
        assert!(manifest.contains("\n[dependencies.tokio-test]\n"));
        assert!(manifest.contains("\n[dependencies.bytes]\n"));
        // Once, though tokio has it too.
        assert_eq!(manifest.matches("dependencies.libc]").count(), 1);
        for absent in ["mockall", "dependencies.cc]", "tracing-mock", "dep:"] {
            assert!(!manifest.contains(absent), "{absent}");
        }
        assert_eq!(
            Tokio::of_metadata(&serde_json::json!({"packages": []})),
            None
        );
    }

    #[test]
    fn crates_that_a_source_uses() {
        let mut used = HashSet::new();
        let source = "#![cfg(not(tokio_unstable))]\nuse futures::future;\nfn f() { a.b(); ::libc::kill(Vec::<u8>::new()) }";
        note_crates(source, &mut used);
        for name in ["futures", "libc", "Vec"] {
            assert!(used.contains(name), "{name}");
        }
        assert!(!used.contains("future") && !used.contains("kill"));

        let mut none = HashSet::new();
        note_crates(
            "#![cfg(all(\n  tokio_unstable,\n))]\nuse futures::future;",
            &mut none,
        );
        assert!(none.is_empty());
    }

    #[test]
    fn a_root_becomes_a_module() {
        let source = "use crate::support::x; m!($crate::y); other_crate::z(); crate::time::w();";
        assert_eq!(
            in_module(source, "rt"),
            "use crate::rt::support::x; m!($crate::y); other_crate::z(); crate::rt::time::w();"
        );
        assert_eq!(
            root(&["a".to_string(), "b".to_string()]),
            "#[path = \"tests/a.rs\"]\nmod a;\n#[path = \"tests/b.rs\"]\nmod b;\n"
        );
    }

    #[test]
    fn the_tests_are_copied_and_stay_as_they_are() {
        let base = std::env::temp_dir().join(format!("xtask-tokio-suite-{}", process::id()));
        let published = base.join("registry/tests");
        fs::create_dir_all(published.join("support")).unwrap();
        fs::write(published.join("rt.rs"), "use bytes::Buf; use crate::x;").unwrap();
        fs::write(published.join("README"), "").unwrap();
        fs::write(base.join("registry/Cargo.toml"), "# tokio").unwrap();
        fs::write(published.join("support/panic.rs"), "use libc::kill;").unwrap();
        let tokio = Tokio {
            directory: base.join("registry"),
            ..Tokio::of_metadata(&metadata()).unwrap()
        };
        let to = base.join("to");
        write_shim(&to, Path::new("/checkout"), "=1.2.3").unwrap();
        write_suite(&to, &tokio).unwrap();

        let read = |path: &str| fs::read_to_string(to.join(path)).unwrap();
        assert_eq!(
            read("suite/tests/rt.rs"),
            "use bytes::Buf; use crate::rt::x;"
        );
        assert_eq!(read("suite/tests/support/panic.rs"), "use libc::kill;");
        assert_eq!(
            read("suite/suite.rs"),
            "#[path = \"tests/rt.rs\"]\nmod rt;\n"
        );
        assert_eq!(read("published/Cargo.toml"), "# tokio");
        assert!(read("suite/Cargo.toml").contains("[dependencies.bytes]"));
        assert!(read("shim/Cargo.toml").contains("path = \"/checkout/morpheus-runtime\""));
        assert!(read("shim/Cargo.toml").contains("version = \"=1.2.3\""));

        let written = |path: &str| fs::metadata(to.join(path)).unwrap().modified().unwrap();
        let before = written("suite/tests/rt.rs");
        std::thread::sleep(std::time::Duration::from_millis(20));
        write_suite(&to, &tokio).unwrap();
        assert_eq!(written("suite/tests/rt.rs"), before);
        fs::remove_dir_all(base).unwrap();
    }
}
