//! The shape of the `--json` output, pinned: names and types of all fields, for programs that read them elsewhere.
//!
//! `schema/NAME.txt` has a line for each path, with the types that it may have. `[]` is any element of an array; `null`
//! says that a value may be missing, and `absent` that the field may. A field that a short run or this machine cannot
//! show stands there as well, and is not required: so a field that was `null` in every run keeps the type it was given
//! by hand, or by a run on a machine that has it.
//!
//! `kernel` and `scale` are not here: they print a record a line, and change the scheduler of the whole machine.
//!
//! A change on purpose is accepted with
//!
//! ```sh
//! MORPHEUS_ACCEPT_SCHEMA=1 cargo test -p morpheus-bench --test schema
//! ```

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

use morpheus_bench::cpus;
use serde_json::Value;

/// Where it is set, files are written and not compared.
const ACCEPT: &str = "MORPHEUS_ACCEPT_SCHEMA";

/// The fields that the runs of a program printed.
#[derive(Default)]
struct Observed {
    types: BTreeMap<String, BTreeSet<String>>,
    /// How many objects there were at a path, and in how many objects a field.
    objects: BTreeMap<String, usize>,
    fields: BTreeMap<String, usize>,
}

impl Observed {
    /// Adds what one value shows.
    fn add(&mut self, path: &str, value: &Value) {
        let own = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.is_f64() => "number",
            Value::Number(_) => "integer",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        self.types
            .entry(path.into())
            .or_default()
            .insert(own.into());
        match value {
            Value::Array(elements) => {
                for element in elements {
                    self.add(&format!("{path}[]"), element);
                }
            }
            Value::Object(fields) => {
                *self.objects.entry(path.into()).or_default() += 1;
                for (name, value) in fields {
                    let path = format!("{path}.{name}");
                    *self.fields.entry(path.clone()).or_default() += 1;
                    self.add(&path, value);
                }
            }
            _ => {}
        }
    }

    fn shape(mut self) -> Shape {
        for (path, there) in &self.fields {
            let parent = path.rsplit_once('.').map_or("", |(parent, _)| parent);
            if self.objects.get(parent).is_some_and(|all| there < all) {
                self.types
                    .entry(path.clone())
                    .or_default()
                    .insert("absent".into());
            }
        }
        Shape(self.types)
    }
}

/// Types by path.
#[derive(Clone, Debug, Default, PartialEq)]
struct Shape(BTreeMap<String, BTreeSet<String>>);

impl Shape {
    fn read(text: &str) -> Self {
        let line = |line: &str| {
            let (path, types) = line.split_once(": ")?;
            let types = types.split(" | ").map(str::to_owned).collect();
            Some((path.to_owned(), types))
        };
        Self(text.lines().filter_map(line).collect())
    }

    fn write(&self) -> String {
        let mut text = String::new();
        for (path, types) in &self.0 {
            let types: Vec<&str> = types.iter().map(String::as_str).collect();
            let _ = writeln!(text, "{path}: {}", types.join(" | "));
        }
        text
    }

    /// Whether a value was seen in which this path would have been, had it to be there.
    fn is_due(&self, path: &str) -> bool {
        match (path.strip_suffix("[]"), path.rsplit_once('.')) {
            // An array may be empty.
            (Some(_), _) => false,
            (None, Some((parent, _))) => self
                .0
                .get(parent)
                .is_some_and(|types| types.contains("object")),
            (None, None) => true,
        }
    }

    /// How what was observed differs from what is pinned, a line each.
    fn differences(&self, pinned: &Self) -> Vec<String> {
        let mut lines = Vec::new();
        for (path, types) in &self.0 {
            let types: Vec<&str> = types.iter().map(String::as_str).collect();
            match pinned.0.get(path) {
                None => lines.push(format!("+ {path}: {}", types.join(" | "))),
                Some(allowed) => {
                    let new: Vec<&str> = types
                        .into_iter()
                        .filter(|one| !allowed.contains(*one))
                        .collect();
                    if !new.is_empty() {
                        let allowed: Vec<&str> = allowed.iter().map(String::as_str).collect();
                        lines.push(format!(
                            "~ {path}: {}, and not {}",
                            new.join(" | "),
                            allowed.join(" | ")
                        ));
                    }
                }
            }
        }
        for (path, types) in &pinned.0 {
            let may_lack = types.contains("absent");
            if !self.0.contains_key(path) && !may_lack && self.is_due(path) {
                lines.push(format!("- {path}"));
            }
        }
        lines
    }

    /// The fields that are pinned from now on: those observed, and of those pinned before the ones that these runs could not show.
    fn accepted(&self, before: &Self) -> Self {
        let mut accepted = self.clone();
        for (path, old) in &before.0 {
            match accepted.0.get_mut(path) {
                Some(types) => {
                    let missing = ["null", "absent"];
                    let has_value = types.iter().any(|one| !missing.contains(&one.as_str()));
                    let keep = |one: &&String| !has_value || missing.contains(&one.as_str());
                    types.extend(old.iter().filter(keep).cloned());
                }
                None if old.contains("absent")
                    || !self.is_due(path) && self.is_below_unseen(path) =>
                {
                    accepted.0.insert(path.clone(), old.clone());
                }
                None => {}
            }
        }
        accepted
    }

    /// Whether some ancestor was there without a value: `null`, absent, or an empty array.
    fn is_below_unseen(&self, path: &str) -> bool {
        let parent = path
            .strip_suffix("[]")
            .or_else(|| path.rsplit_once('.').map(|(parent, _)| parent));
        let Some(parent) = parent else { return false };
        match self.0.get(parent) {
            Some(types) => !types.contains("object"),
            None => self.is_below_unseen(parent),
        }
    }
}

/// Compares what these runs of a program print with its file.
fn pin(name: &str, program: &str, lines: &[&str]) {
    let mut observed = Observed::default();
    for line in lines {
        let value: Value = common::json(program, line);
        observed.add("", &value);
    }
    let observed = observed.shape();
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/schema");
    let path = directory.join(format!("{name}.txt"));
    let pinned = Shape::read(&fs::read_to_string(&path).unwrap_or_default());
    if std::env::var_os(ACCEPT).is_some() {
        fs::create_dir_all(&directory).unwrap();
        fs::write(&path, observed.accepted(&pinned).write()).unwrap();
        return;
    }
    let differences = observed.differences(&pinned);
    assert!(
        differences.is_empty(),
        "`{name} --json` is not what tests/schema/{name}.txt says (+ new, - gone, ~ of another type):\n{}\n\
         If it is meant to be so: {ACCEPT}=1 cargo test -p morpheus-bench --test schema",
        differences.join("\n")
    );
}

#[test]
fn compare() {
    let lines = [
        "--case spawn10,tcp_echo_16 --pairs 2 --window-ms 1",
        "--case spawn10 --pairs 10 --window-ms 1 --runtime morpheus",
    ];
    pin("compare", env!("CARGO_BIN_EXE_compare"), &lines);
}

#[test]
fn footprint() {
    let lines = [
        "--spares 2 --workers 1 --runs 1 --settle-ms 10 --tasks 100",
        "--spares 2 --workers 1 --runs 6 --settle-ms 10 --only idle",
    ];
    pin("footprint", env!("CARGO_BIN_EXE_footprint"), &lines);
}

#[test]
fn loops() {
    let lines = [
        "--case fnv --pairs 10 --window-ms 0.5",
        "--case sum_u32,fnv --pairs 1 --window-ms 0.5",
    ];
    pin("loops", env!("CARGO_BIN_EXE_loops"), &lines);
}

#[test]
fn jitter() {
    let lines = ["1 10", "1 10 --relative", "1 2 --sweep"];
    pin("jitter", env!("CARGO_BIN_EXE_jitter"), &lines);
}

#[test]
fn latency() {
    let lines = [
        "--duration 0.1 --workers 1 --ops-per-second 100",
        "--duration 0.1 --workers 8 --ops-per-second 1000000",
        "--paired --pairs 2 --workers 1",
    ];
    pin("latency", env!("CARGO_BIN_EXE_latency"), &lines);
}

#[test]
fn liar() {
    let lines = [
        "--critical-duration-ms 1 --iterations 2 --duration 0.2",
        "--critical-duration-ms 1 --iterations 2 --without-critical",
    ];
    pin("liar", env!("CARGO_BIN_EXE_liar"), &lines);
}

#[test]
fn overhead_preemption() {
    let lines = [
        "preemption --experiments 2 --yields 5",
        "preemption --experiments 8 --yields 5",
    ];
    pin(
        "overhead-preemption",
        env!("CARGO_BIN_EXE_overhead"),
        &lines,
    );
}

#[test]
fn overhead_migration_and_cache() {
    if cpus::allowed().len() < 2 {
        return morpheus_testing::skip("needs two CPUs");
    }
    let program = env!("CARGO_BIN_EXE_overhead");
    let lines = ["migration --experiments 2", "migration --experiments 8"];
    pin("overhead-migration", program, &lines);
    let lines = [
        "cache --experiments 2 --sizes 8,300",
        "cache --experiments 8 --sizes 8,300",
    ];
    pin("overhead-cache", program, &lines);
}

#[test]
fn starvation() {
    let common = "--duration 0.2 --warmup 0.1 --runtime morpheus";
    let lines = [
        "--hogs 1 --hog-ms 5 --load 1 --load-rate 100 --busy 1 --neighbours 1 --spares 4"
            .to_owned(),
        "--hogs 1 --hog-ms 20 --lifo unknown".into(),
        "--idle".into(),
        "--hogs 1 --hog-ms 5 --label-mix".into(),
    ]
    .map(|line| format!("{common} {line}"));
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    pin("starvation", env!("CARGO_BIN_EXE_starvation"), &lines);
}

#[test]
fn escalation() {
    // Enough polls for all percentiles but the rarest.
    let lines = ["--polls 300 --chain 4 --chains 2 --stalls 2 --rest-ms 100"];
    pin("escalation", env!("CARGO_BIN_EXE_escalation"), &lines);
}

/// Where there is nothing to control, the kernels run once, as the machine is; else under each governor, in every repeat.
#[test]
fn governor() {
    let root = std::env::temp_dir().join(format!("schema-governor-{}", std::process::id()));
    let cpufreq = "devices/system/cpu/cpufreq";
    fs::create_dir_all(root.join("none").join(cpufreq)).unwrap();
    let policy = root.join("some").join(cpufreq).join("policy0");
    fs::create_dir_all(policy.join("stats")).unwrap();
    // Not the first CPU by number, but one that this process may use.
    let cpu = cpus::allowed().first().copied().unwrap_or(0);
    for (file, text) in [
        ("affected_cpus", &*cpu.to_string()),
        ("scaling_driver", "fake"),
        ("scaling_governor", "ondemand"),
        ("scaling_available_governors", "performance schedutil"),
        ("scaling_min_freq", "600000"),
        ("scaling_max_freq", "2064000"),
        ("scaling_cur_freq", "900000"),
        ("cpuinfo_min_freq", "600000"),
        ("cpuinfo_max_freq", "2064000"),
    ] {
        fs::write(policy.join(file), text).unwrap();
    }
    let at = root.display();
    let line = |machine: &str, more: &str| {
        format!(
            "--sysfs {at}/{machine} --state {at}/state run --cpu {cpu} --channels 4 --taps 9 --hop 8 --warmup 0 --duration 0.2 \
             --interval-ms 20 --policy other --output {at}/{machine}-study {more}"
        )
    };
    let lines = [
        line("none", ""),
        line("some", "--repeats 6 --load 0 --kernels noop"),
    ];
    let lines = [&*lines[0], &*lines[1]];
    pin("governor", env!("CARGO_BIN_EXE_governor"), &lines);
    fs::remove_dir_all(&root).unwrap();
}

fn shape(texts: &[&str]) -> Shape {
    let mut observed = Observed::default();
    for text in texts {
        observed.add("", &serde_json::from_str(text).unwrap());
    }
    observed.shape()
}

#[test]
fn each_kind_of_difference_is_seen() {
    let pinned = shape(&[r#"{"n": 1, "rows": [{"x": 1.5}], "who": "a"}"#]);
    assert_eq!(Shape::read(&pinned.write()), pinned);
    for (changed, expected) in [
        (r#"{"n": 1, "rows": [], "who": "b"}"#, vec![]),
        (
            r#"{"n": 1.0, "rows": [], "who": "b"}"#,
            vec!["~ .n: number, and not integer"],
        ),
        (
            r#"{"n": null, "rows": [], "who": "b"}"#,
            vec!["~ .n: null, and not integer"],
        ),
        (
            r#"{"n": 1, "rows": [{"y": 2.5}], "who": "b"}"#,
            vec!["+ .rows[].y: number", "- .rows[].x"],
        ),
        (
            r#"{"n": 1, "rows": [{"x": 1}]}"#,
            vec!["~ .rows[].x: integer, and not number", "- .who"],
        ),
    ] {
        assert_eq!(
            shape(&[changed]).differences(&pinned),
            expected,
            "{changed}"
        );
    }
}

#[test]
fn what_is_optional_stays_so_and_keeps_its_type() {
    let pinned = shape(&[
        r#"{"p99": 1, "open": {"n": 1}}"#,
        r#"{"p99": null, "open": null, "new": 1}"#,
    ]);
    assert_eq!(
        pinned.write(),
        ": object\n.new: absent | integer\n.open: null | object\n.open.n: integer\n.p99: integer | null\n"
    );
    let poor = shape(&[r#"{"p99": null, "open": null}"#]);
    assert_eq!(poor.differences(&pinned), Vec::<String>::new());
    assert_eq!(poor.accepted(&pinned), pinned);
}

#[test]
fn what_is_gone_or_changed_is_accepted() {
    let pinned = shape(&[r#"{"a": 1, "b": {"c": 1}}"#]);
    let changed = shape(&[r#"{"b": {"d": "x"}}"#]);
    assert_eq!(changed.accepted(&pinned), changed);
}
