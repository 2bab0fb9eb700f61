//! Tests that programs for tokio do the same on Morpheus after the search and replace of the README.
//!
//! `tests/programs` has them, in tokio's form. Cargo builds both forms of each in a workspace in the target directory, with
//! the checkout's versions and what the checkout has built already, and without the network.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use common::{PATIENCE, within};
use serde_json::Value;

const README: &str = include_str!("../../README.md");

/// Programs whose names begin with this are tests, as in a directory `tests`.
const TESTS: &str = "tests_";

/// The exit codes that are not 0.
const EXIT_CODES: [(&str, i32); 2] = [("main_options", 1), ("tests_of_tokio", 101)];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Tokio,
    Morpheus,
}

impl Form {
    fn name(self) -> &'static str {
        match self {
            Form::Tokio => "tokio",
            Form::Morpheus => "morpheus",
        }
    }

    /// A target of cargo's, all of which lie in one directory.
    fn target(self, program: &str) -> String {
        format!("replaced-{}-{program}", self.name())
    }
}

/// The script of the README's command.
fn script() -> &'static str {
    let command = README
        .lines()
        .find_map(|line| line.strip_prefix("sed -Ei '"))
        .expect("the README has the command");
    command.split('\'').next().unwrap()
}

/// The program in Morpheus's form.
fn replaced(source: &Path) -> String {
    let sed = Command::new("sed")
        .args(["-E", script()])
        .arg(source)
        .output()
        .unwrap();
    assert!(sed.status.success(), "{sed:?}");
    String::from_utf8(sed.stdout).unwrap()
}

fn manifest(form: Form, programs: &BTreeMap<String, PathBuf>) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut manifest = format!(
        "[package]\nname = \"replaced-{}\"\nversion = \"0.0.0\"\nedition = \"2024\"\npublish = false\n\n\
         [dependencies.tokio]\nversion = \"1\"\nfeatures = [\"full\", \"test-util\"]\n",
        form.name()
    );
    if form == Form::Morpheus {
        manifest += &format!(
            "\n[dependencies.morpheus-runtime]\npath = {root:?}\nfeatures = [\"test-util\"]\n"
        );
    }
    for program in programs.keys() {
        let kind = match program.starts_with(TESTS) {
            true => "[[test]]",
            false => "[[bin]]\ntest = false",
        };
        let name = form.target(program);
        manifest += &format!("\n{kind}\nname = {name:?}\npath = \"{program}.rs\"\n");
    }
    manifest
}

/// Writes the workspace. A file that needs no change is not written again, so that cargo has nothing to do the second time.
fn write_workspace(directory: &Path, programs: &BTreeMap<String, PathBuf>) {
    let write = |path: PathBuf, text: &str| {
        if fs::read_to_string(&path).is_ok_and(|before| before == text) {
            return;
        }
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    // The checkout's profiles, so that what both use is built once.
    write(
        directory.join("Cargo.toml"),
        "[workspace]\nmembers = [\"tokio\", \"morpheus\"]\nresolver = \"3\"\n\n\
         [profile.release]\ndebug = \"line-tables-only\"\n\n\
         [profile.dev]\ndebug = \"line-tables-only\"\n\n\
         [profile.dev.package.\"*\"]\ndebug = false\n\n\
         [profile.dev.package.replaced-tokio]\ndebug = false\n\n\
         [profile.dev.package.replaced-morpheus]\ndebug = false\n",
    );
    for form in [Form::Tokio, Form::Morpheus] {
        let package = directory.join(form.name());
        write(package.join("Cargo.toml"), &manifest(form, programs));
        for (program, source) in programs {
            let text = match form {
                Form::Tokio => fs::read_to_string(source).unwrap(),
                Form::Morpheus => replaced(source),
            };
            let replaced = ["tokio::main", "tokio::test", "tokio::runtime"];
            assert_eq!(
                replaced.iter().any(|name| text.contains(name)),
                form == Form::Tokio,
                "{program}"
            );
            write(package.join(format!("{program}.rs")), &text);
        }
    }
}

/// Builds everything; the executables by target.
fn build(directory: &Path) -> BTreeMap<String, PathBuf> {
    let shared = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.lock");
    fs::copy(lock, directory.join("Cargo.lock")).unwrap();
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build
        .current_dir(directory)
        .args(["build", "--offline", "--workspace", "--bins", "--tests"])
        .args(["--message-format", "json-render-diagnostics"])
        .arg("--target-dir")
        .arg(shared);
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    let output = build.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter_map(|message| {
            let target = message["target"]["name"].as_str()?.to_owned();
            Some((target, PathBuf::from(message["executable"].as_str()?)))
        })
        .collect()
}

/// Runs a program and returns its exit code and output, without the times of tests.
fn run(executable: PathBuf) -> (Option<i32>, String) {
    let mut command = Command::new(executable);
    command.env("RUST_BACKTRACE", "0");
    if command.get_program().to_string_lossy().contains(TESTS) {
        command.arg("--test-threads=1");
    }
    let output = within(PATIENCE, move || command.output()).unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<&str> = stdout
        .lines()
        .map(|line| line.split("; finished in").next().unwrap())
        // Of the panic in a test: the number of its thread, and the path of its file.
        .filter(|line| !line.starts_with("thread '"))
        .collect();
    (output.status.code(), lines.join("\n"))
}

#[test]
#[ignore = "builds sixteen programs: a step of its own in `cargo xtask test --all`"]
fn programs_do_the_same_on_both() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let programs: BTreeMap<String, PathBuf> = fs::read_dir(sources)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.file_stem().unwrap().to_string_lossy().into(), path))
        .collect();
    assert!(programs.len() >= 8, "{programs:?}");
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("replaced");
    write_workspace(&directory, &programs);
    let executables = build(&directory);
    for program in programs.keys() {
        let [tokio, morpheus] = [Form::Tokio, Form::Morpheus]
            .map(|form| run(executables[&form.target(program)].clone()));
        assert_eq!(morpheus, tokio, "{program}");
        let failure = EXIT_CODES.iter().find(|(name, _)| name == program);
        assert_eq!(
            tokio.0,
            Some(failure.map_or(0, |(_, code)| *code)),
            "{program}"
        );
        assert!(
            tokio.1.lines().count() >= 3,
            "{program} prints {:?}",
            tokio.1
        );
        println!("{program}: exit code {:?}\n{}\n", tokio.0, tokio.1);
    }
}
