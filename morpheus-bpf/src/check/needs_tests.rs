// SPDX-License-Identifier: GPL-2.0-only
//! Tests of [`super`]: the lists name what the sources of the programs use, all of it and nothing else.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::*;

/// All sources together, without comments and macros.
fn sources() -> String {
    without_macros(&all_sources())
}

/// All sources together, without comments.
fn all_sources() -> String {
    fn add(directory: &Path, text: &mut String) {
        let mut paths: Vec<_> = fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        paths.sort();
        for path in paths {
            // The doctor is a command of its own, which needs no daemon.
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if path.is_dir() {
                add(&path, text);
            } else if !name.starts_with("doctor.") {
                *text += &fs::read_to_string(path).unwrap();
            }
        }
    }
    let mut text = String::new();
    add(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("src/bpf"),
        &mut text,
    );
    without_comments(&text)
}

/// Without lines for the preprocessor, and those that they go on in.
fn without_macros(code: &str) -> String {
    let mut goes_on = false;
    let is_code = |line: &&str| {
        let is_macro = goes_on || line.trim_start().starts_with('#');
        goes_on = is_macro && line.trim_end().ends_with('\\');
        !is_macro
    };
    code.lines().filter(is_code).collect::<Vec<_>>().join("\n")
}

fn without_comments(text: &str) -> String {
    let mut parts = text.split("/*");
    let mut code = parts.next().unwrap().to_owned();
    for part in parts {
        code += part.split_once("*/").unwrap().1;
    }
    code
}

/// The last word before this text.
fn word_before<'a>(code: &'a str, end: &str) -> &'a str {
    let before = code.split(end).next().unwrap().trim_end();
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let start = before.rfind(|c| !is_part(c)).map_or(0, |at| at + 1);
    &before[start..]
}

/// Names of external functions and variables, without what libbpf takes away, and whether they may be missing.
fn externals(code: &str) -> (BTreeSet<(String, bool)>, BTreeSet<String>) {
    let (mut functions, mut variables) = (BTreeSet::new(), BTreeSet::new());
    for statement in code
        .split([';', '}'])
        .filter(|text| text.contains(" __ksym"))
    {
        let declared = statement.split(" __ksym").next().unwrap();
        if declared.trim_end().ends_with(')') {
            let name = word_before(declared, "(");
            let name = match name.rsplit_once("___") {
                Some((name, _)) => name,
                None => name,
            };
            functions.insert((name.to_owned(), statement.contains("__weak")));
        } else {
            variables.insert(word_before(statement, " __ksym").to_owned());
        }
    }
    (functions, variables)
}

/// The fields of structures that are relocated, with their structures.
fn fields(code: &str) -> BTreeSet<(String, String)> {
    let mut fields = BTreeSet::new();
    for (body, _) in code
        .match_indices("} __attribute__((preserve_access_index))")
        .map(|(end, _)| (&code[..end], ()))
    {
        let (head, body) = body.rsplit_once('{').unwrap();
        let name = head.trim_end().rsplit(' ').next().unwrap();
        for field in body
            .split(';')
            .map(str::trim)
            .filter(|field| !field.is_empty())
        {
            let field = field.split('[').next().unwrap();
            fields.insert((name.to_owned(), word_before(field, ";").to_owned()));
        }
    }
    fields
}

fn needs() -> impl Iterator<Item = &'static Need> {
    OBSERVER.iter().chain(SCHEDULER)
}

fn named<T: Ord>(of: impl Fn(Symbol) -> Option<T>) -> BTreeSet<T> {
    needs().flat_map(Need::symbols).filter_map(of).collect()
}

#[test]
fn functions_and_variables_are_those_of_the_programs() {
    let (functions, variables) = externals(&sources());
    assert!(functions.len() > 30, "{functions:?}");
    let names: BTreeSet<&str> = functions.iter().map(|(name, _)| name.as_str()).collect();
    let listed = named(|symbol| match symbol {
        Function(name) => Some(name),
        _ => None,
    });
    assert_eq!(names, listed);
    let listed = named(|symbol| match symbol {
        Variable(name) => Some(name.to_owned()),
        _ => None,
    });
    assert_eq!(variables, listed);
    // One without which nothing loads is not declared weak, and the other way round.
    for (name, weak) in functions {
        let stands_alone = needs().any(|need| {
            need.without.is_none()
                && need.one_of.len() == 1
                && need.symbols().any(|symbol| symbol == symbol_of(&name))
        });
        assert_eq!(stands_alone, !weak, "{name}");
    }
}

fn symbol_of(function: &str) -> Symbol {
    let listed = needs().flat_map(Need::symbols);
    let mut same = listed.filter(|symbol| matches!(symbol, Function(name) if *name == function));
    same.next().unwrap()
}

#[test]
fn fields_constants_and_tracepoints_are_those_of_the_programs() {
    let code = sources();
    let listed = named(|symbol| match symbol {
        Field(of, name) if of != "sched_ext_ops" => Some((of.to_owned(), name.to_owned())),
        _ => None,
    });
    let mut used = fields(&code);
    // Each task has one, through which the count is reached.
    used.remove(&("task_struct".to_owned(), "thread_info".to_owned()));
    assert_eq!(used, listed);
    let with_macros = all_sources();
    let constants = with_macros.split("bpf_core_enum_value(enum ").skip(1);
    let mut used: BTreeSet<(&str, &str)> = constants
        .map(|text| text.split(')').next().unwrap().split_once(", ").unwrap())
        .collect();
    // The daemon sets these.
    for flag in [
        "ENQ_LAST",
        "SWITCH_PARTIAL",
        "ENQ_MIGRATION_DISABLED",
        "ALLOW_QUEUED_WAKEUP",
    ] {
        let daemon = include_str!("../scheduler.rs");
        assert!(daemon.contains(&format!("`SCX_OPS_{flag}`")), "{flag}");
    }
    let listed = named(|symbol| match symbol {
        Constant("scx_ops_flags", _) => None,
        Constant(of, name) => Some((of, name)),
        _ => None,
    });
    used.retain(|(of, _)| *of != "scx_ops_flags");
    assert_eq!(used, listed);
    let attached = code.split("SEC(\"tp_btf/").skip(1);
    let attached: BTreeSet<&str> = attached
        .map(|text| text.split('"').next().unwrap())
        .collect();
    let listed = named(|symbol| match symbol {
        Tracepoint(name) => Some(name),
        _ => None,
    });
    assert_eq!(attached, listed);
}

#[test]
fn callbacks_are_those_of_the_table() {
    let code = sources();
    let (_, table) = code
        .split_once("struct sched_ext_ops morpheus = {")
        .unwrap();
    let table = table.split('}').next().unwrap();
    let set = table.split('.').skip(1);
    let mut set: BTreeSet<&str> = set.map(|text| text.split(' ').next().unwrap()).collect();
    // The daemon sets these.
    set.extend(["flags", "exit_dump_len", "hotplug_seq"]);
    let listed = named(|symbol| match symbol {
        Field("sched_ext_ops", name) => Some(name),
        _ => None,
    });
    assert_eq!(set, listed);
}

#[test]
fn one_alternative_suffices_and_the_oldest_is_told() {
    let need = Need {
        what: "x",
        one_of: &[&[Function("new"), Struct("new_args")], &[Function("old")]],
        since: "6.13",
        without: None,
    };
    let missing = |symbols: &[Symbol]| need.missing(&Found::only(symbols.iter().copied()));
    assert!(missing(&[Function("old")]).is_empty());
    assert!(missing(&[Function("new"), Struct("new_args")]).is_empty());
    assert_eq!(missing(&[Function("new")]), [Function("old")]);
    assert_eq!(missing(&[Struct("old")]), [Function("old")]);
}

#[test]
fn the_reader_of_sources_finds_what_it_is_for() {
    let code = "#define m(x) ({ \\\n\tf() __ksym; })\n/* int no(void) __ksym; */\nint a(int x) __ksym;\nbool b___v2___second(struct t *t,\n\tint y) __ksym __weak;\n\
         extern const struct s v __ksym __weak;\nstruct t {\n\tint f;\n\tchar c[16];\n} __attribute__((preserve_access_index));\n";
    let code = without_macros(&without_comments(code));
    let (functions, variables) = externals(&code);
    let functions: Vec<_> = functions.into_iter().collect();
    assert_eq!(
        functions,
        [("a".to_owned(), false), ("b___v2".to_owned(), true)]
    );
    assert_eq!(variables, BTreeSet::from(["v".to_owned()]));
    let of = |name: &str| ("t".to_owned(), name.to_owned());
    assert_eq!(fields(&code), BTreeSet::from([of("c"), of("f")]));
}
