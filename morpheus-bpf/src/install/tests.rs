// SPDX-License-Identifier: GPL-2.0-only
//! Tests of [`super`]: in a root of their own, as an operator and as an attacker left it.

use std::collections::BTreeSet;
use std::os::unix::fs::{PermissionsExt, symlink};

use tempfile::TempDir;

use super::*;

const PREFIX: &str = "/usr/local";

fn place(root: &TempDir) -> Place {
    Place::new(root.path(), Path::new(PREFIX)).unwrap()
}

fn documents() -> Vec<Document> {
    let document = |kind, name: &str| Document {
        kind,
        name: name.into(),
        content: format!("of {name}").into(),
    };
    vec![
        document(DocumentKind::Manual, "scx_morpheus.1"),
        document(DocumentKind::Manual, "scx_morpheus-top.1"),
        document(DocumentKind::Bash, "scx_morpheus"),
        document(DocumentKind::Zsh, "_scx_morpheus"),
        document(DocumentKind::Fish, "scx_morpheus.fish"),
    ]
}

fn of_version(place: &Place, program: &str) -> Vec<File> {
    files(place, program.into(), documents())
}

fn install(place: &Place, program: &str, force: bool) -> Result<Plan, Error> {
    let install = Install::plan(place, of_version(place, program), force)?;
    install.run()?;
    Ok(install.shown())
}

fn uninstall(place: &Place) -> Result<Plan, Error> {
    let uninstall = Uninstall::plan(place)?;
    uninstall.run()?;
    Ok(uninstall.shown())
}

/// Every file and directory below the root, without it.
fn tree(root: &TempDir) -> BTreeSet<String> {
    fn add(directory: &Path, root: &Path, found: &mut BTreeSet<String>) {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            found.insert(path.strip_prefix(root).unwrap().display().to_string());
            if fs::symlink_metadata(&path).unwrap().is_dir() {
                add(&path, root, found);
            }
        }
    }
    let mut found = BTreeSet::new();
    add(root.path(), root.path(), &mut found);
    found
}

fn actions(plan: &Plan) -> BTreeSet<String> {
    let actions = plan.steps.iter();
    actions.map(|(action, _)| action.to_string()).collect()
}

fn only(action: &str) -> BTreeSet<String> {
    BTreeSet::from([action.to_owned()])
}

fn root() -> TempDir {
    TempDir::new().unwrap()
}

/// Writes a manifest with these lines, whose checksum is right.
fn forge(place: &Place, lines: &str) {
    let path = place.on_disk(&place.manifest());
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut text = format!("scx_morpheus manifest 1\n{lines}");
    text += &format!("end {:08x}\n", crc32fast::hash(text.as_bytes()));
    fs::write(path, text).unwrap();
}

#[test]
fn all_is_where_the_system_looks_and_goes_without_a_trace() {
    let root = root();
    fs::create_dir_all(root.path().join("etc")).unwrap();
    let before = tree(&root);
    let place = place(&root);
    let plan = install(&place, "program", false).unwrap();
    assert_eq!(actions(&plan), only("write"), "{plan}");
    for path in [
        "usr/local/bin/scx_morpheus",
        "usr/local/bin/morpheus-doctor",
        "usr/local/lib/systemd/system/scx_morpheus.service",
        "etc/default/scx_morpheus",
        "usr/local/share/man/man1/scx_morpheus-top.1",
        "usr/local/share/bash-completion/completions/scx_morpheus",
        "usr/local/share/zsh/site-functions/_scx_morpheus",
        "usr/local/share/fish/vendor_completions.d/scx_morpheus.fish",
        "usr/local/lib/scx_morpheus/manifest",
    ] {
        assert!(tree(&root).contains(path), "{path}");
    }
    let mode = |path: &Path| {
        let metadata = fs::metadata(place.on_disk(path)).unwrap();
        metadata.permissions().mode() & 0o7777
    };
    assert_eq!(mode(&place.program()), 0o755);
    assert_eq!(mode(&place.doctor()), 0o755);
    assert_eq!(mode(&place.unit()), 0o644);
    let unit = fs::read_to_string(place.on_disk(&place.unit())).unwrap();
    assert!(
        unit.contains("\nExecStart=/usr/local/bin/scx_morpheus $SCX_MORPHEUS_FLAGS\n"),
        "without the root"
    );
    // Again: nothing is to be done, and nothing is.
    let after = tree(&root);
    let again = install(&place, "program", false).unwrap();
    assert_eq!(actions(&again), only("same"));
    assert_eq!(tree(&root), after);

    let gone = uninstall(&place).unwrap();
    assert_eq!(actions(&gone), only("remove"), "{gone}");
    assert_eq!(tree(&root), before);
    assert!(matches!(uninstall(&place), Err(Error::NotInstalled(_))));
}

#[test]
fn a_plan_alone_changes_nothing() {
    let root = root();
    let place = place(&root);
    let planned = Install::plan(&place, of_version(&place, "x"), false).unwrap();
    planned.check().unwrap();
    assert!(planned.shown().to_string().contains("write    "));
    assert!(tree(&root).is_empty());
    install(&place, "x", false).unwrap();
    let before = tree(&root);
    let _ = Uninstall::plan(&place).unwrap().shown();
    assert_eq!(tree(&root), before);
}

#[test]
fn a_new_version_replaces_what_the_old_one_wrote_and_nothing_else() {
    let root = root();
    let place = place(&root);
    install(&place, "old", false).unwrap();
    let program = place.on_disk(&place.program());
    let plan = install(&place, "new", false).unwrap();
    assert_eq!(plan.steps[0].0, Action::Replace);
    assert_eq!(fs::read(&program).unwrap(), b"new");
    // Another program takes its place.
    fs::write(&program, "own").unwrap();
    let before = tree(&root);
    let refused = install(&place, "newer", false).unwrap_err();
    assert!(refused.to_string().contains("--force"), "{refused}");
    assert!(
        refused.to_string().contains("bin/scx_morpheus"),
        "{refused}"
    );
    assert_eq!(fs::read(&program).unwrap(), b"own");
    assert_eq!(tree(&root), before);
    install(&place, "newer", true).unwrap();
    assert_eq!(fs::read(&program).unwrap(), b"newer");
    uninstall(&place).unwrap();
    assert!(tree(&root).is_empty());
}

#[test]
fn the_operators_options_stay() {
    let root = root();
    let place = place(&root);
    install(&place, "x", false).unwrap();
    let options = place.on_disk(&place.defaults());
    fs::write(&options, "SCX_MORPHEUS_FLAGS=--observe\n").unwrap();
    for force in [false, true] {
        let plan = install(&place, "y", force).unwrap();
        let kept = (Action::Keep, options.clone());
        assert!(plan.steps.contains(&kept), "{plan}");
    }
    let plan = uninstall(&place).unwrap();
    assert!(plan.steps.contains(&(Action::Keep, options.clone())));
    assert_eq!(
        fs::read_to_string(&options).unwrap(),
        "SCX_MORPHEUS_FLAGS=--observe\n"
    );
    let names: Vec<_> = tree(&root).into_iter().collect();
    assert_eq!(names, ["etc", "etc/default", "etc/default/scx_morpheus"]);
    assert_eq!(place.left(), [("your options", options)]);
}

#[test]
fn what_was_changed_or_is_gone_does_not_stop_an_uninstall() {
    let root = root();
    let place = place(&root);
    install(&place, "x", false).unwrap();
    let unit = place.on_disk(&place.unit());
    fs::write(&unit, "changed").unwrap();
    fs::remove_file(place.on_disk(&place.program())).unwrap();
    // A link in the place of a page is not followed, nor removed.
    let page = place.on_disk(&place.document(DocumentKind::Manual, "scx_morpheus.1"));
    let elsewhere = root.path().join("elsewhere");
    fs::write(&elsewhere, "of scx_morpheus.1").unwrap();
    fs::remove_file(&page).unwrap();
    symlink(&elsewhere, &page).unwrap();
    let plan = uninstall(&place).unwrap();
    assert!(plan.steps.contains(&(Action::Keep, unit.clone())));
    assert!(plan.steps.contains(&(Action::Keep, page.clone())));
    assert_eq!(plan.steps[0].0, Action::Gone);
    assert!(unit.exists() && page.is_symlink() && elsewhere.exists());
}

#[test]
fn a_manifest_that_names_other_files_removes_none() {
    let root = root();
    let place = place(&root);
    let victim = root.path().join("etc/passwd");
    fs::create_dir_all(victim.parent().unwrap()).unwrap();
    fs::write(&victim, "x").unwrap();
    let checksum = format!("{:08x}", crc32fast::hash(b"x"));
    for path in [
        "/etc/passwd",
        "etc/passwd",
        "/usr/local/share/man/man1/../../../../../etc/passwd",
        "/usr/local/bin/../../../etc/scx_morpheus",
        "/usr/local/share/man/man1/passwd",
        "/usr/bin/scx_morpheus",
        "/usr/bin/morpheus-doctor",
        "/usr/local/share/scx_morpheus",
        "",
    ] {
        forge(&place, &format!("file 1 {checksum} {path}\n"));
        let error = Uninstall::plan(&place).unwrap_err();
        assert!(
            matches!(
                error,
                Error::Manifest {
                    reason: manifest::Invalid::Path(_),
                    ..
                }
            ),
            "{path}: {error}"
        );
        // Nor is it the ground of an install.
        assert!(Install::plan(&place, of_version(&place, "x"), true).is_err());
    }
    for path in [
        "/etc/cron.d",
        "/usr/local/../../etc",
        "/",
        "relative",
        "/var",
    ] {
        forge(&place, &format!("directory {path}\n"));
        let error = Uninstall::plan(&place);
        if path == "/" {
            // Is above all files, never empty, and so never removed.
            error.unwrap().run().unwrap();
        } else {
            assert!(error.is_err(), "{path}");
        }
    }
    assert!(victim.exists());
}

#[test]
fn a_damaged_manifest_changes_nothing() {
    let root = root();
    let place = place(&root);
    install(&place, "x", false).unwrap();
    let path = place.on_disk(&place.manifest());
    let whole = fs::read(&path).unwrap();
    let before = tree(&root);
    for length in 0..whole.len() {
        fs::write(&path, &whole[..length]).unwrap();
        assert!(Uninstall::plan(&place).is_err(), "{length} bytes");
    }
    for index in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[index] ^= 0x15;
        fs::write(&path, bytes).unwrap();
        assert!(Uninstall::plan(&place).is_err(), "byte {index}");
    }
    fs::write(&path, vec![b'\n'; 1 << 20]).unwrap();
    assert!(Uninstall::plan(&place).is_err());
    fs::remove_file(&path).unwrap();
    symlink("/dev/zero", &path).unwrap();
    assert!(Uninstall::plan(&place).is_err());
    assert_eq!(tree(&root), before);
    fs::remove_file(&path).unwrap();
    fs::write(&path, whole).unwrap();
    uninstall(&place).unwrap();
    assert!(tree(&root).is_empty());
}

#[test]
fn links_do_not_lead_out_of_the_root() {
    let (root, outside) = (root(), TempDir::new().unwrap());
    let place = place(&root);
    fs::create_dir_all(root.path().join("usr/local")).unwrap();
    symlink(outside.path(), root.path().join("usr/local/share")).unwrap();
    let error = install(&place, "x", true).unwrap_err();
    assert!(matches!(error, Error::Outside(_)), "{error}");
    assert!(tree(&outside).is_empty());
    // Inside it may: /lib is one on many systems.
    fs::remove_file(root.path().join("usr/local/share")).unwrap();
    fs::create_dir_all(root.path().join("opt")).unwrap();
    symlink("../../opt", root.path().join("usr/local/share")).unwrap();
    install(&place, "x", false).unwrap();
    assert!(root.path().join("opt/man/man1/scx_morpheus.1").exists());
    uninstall(&place).unwrap();
    let left: Vec<_> = tree(&root).into_iter().collect();
    assert_eq!(left, ["opt", "usr", "usr/local", "usr/local/share"]);
}

#[test]
fn prefixes() {
    let of = |prefix: &str| Place::new(Path::new("/"), Path::new(prefix));
    for bad in [
        "",
        "usr",
        "/usr/../etc",
        "/a b",
        "/a\"b",
        "/a$b",
        "/a%b",
        "/ä",
    ] {
        assert!(of(bad).is_err(), "{bad}");
    }
    let unit = |prefix| of(prefix).unwrap().unit().display().to_string();
    assert_eq!(
        unit("/usr/"),
        "/usr/lib/systemd/system/scx_morpheus.service"
    );
    assert_eq!(unit("/opt/m"), "/etc/systemd/system/scx_morpheus.service");
    assert_eq!(of("/usr//").unwrap(), of("/usr").unwrap());
}

#[test]
fn a_directory_in_the_way_is_told() {
    let root = root();
    let place = place(&root);
    fs::create_dir_all(place.on_disk(&place.program())).unwrap();
    let error = install(&place, "x", true).unwrap_err();
    assert!(error.to_string().contains("bin/scx_morpheus: "), "{error}");
}

/// As when the disk is full: the list of files is written, and the program is not.
#[test]
fn an_upgrade_that_was_interrupted_is_repeated_or_undone() {
    for is_repeated in [true, false] {
        let root = root();
        let place = place(&root);
        install(&place, "old", false).unwrap();
        let program = place.on_disk(&place.program());
        let beside = program.with_file_name(".scx_morpheus.new");
        fs::create_dir(&beside).unwrap();
        install(&place, "new", false).unwrap_err();
        fs::remove_dir(&beside).unwrap();
        assert_eq!(fs::read(&program).unwrap(), b"old");
        if is_repeated {
            install(&place, "new", false).unwrap();
            assert_eq!(fs::read(&program).unwrap(), b"new");
            let manifest = read_manifest(&place).unwrap().unwrap();
            let paths: BTreeSet<_> = manifest.entries.iter().map(|entry| &entry.path).collect();
            assert_eq!(paths.len(), manifest.entries.len(), "{manifest:?}");
        }
        uninstall(&place).unwrap();
        assert_eq!(tree(&root), BTreeSet::new());
    }
}
