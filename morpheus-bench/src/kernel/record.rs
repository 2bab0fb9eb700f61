//! A run as a line of JSON, so that rounds of several boots make one table.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::scene::{Figures, SCENES};
use super::variant::VARIANTS;
use crate::host::Host;
use crate::record;

/// A line of `--json`.
pub type Record = record::Record<Run>;

/// One run: who scheduled, what ran, what came out.
#[derive(Debug, Serialize, Deserialize)]
pub struct Run {
    /// A variant's name.
    pub scheduler: String,
    /// A scene's name.
    pub scene: String,
    /// From 0.
    pub round: u16,
    /// Why there are no figures.
    pub failed: Option<String>,
    /// What came out.
    #[serde(flatten)]
    pub figures: Figures,
}

/// What earlier runs said. Lines that are no records (a guest says other things, too) are passed over.
///
/// # Errors
///
/// A file that cannot be read, no run at all, or one of a scheduler or scene that this program does not know.
pub fn read(files: &[PathBuf]) -> Result<(Option<Host>, Vec<Run>), String> {
    let (host, runs): (_, Vec<Run>) = record::read("kernel", files)?;
    for run in &runs {
        let known = VARIANTS
            .iter()
            .any(|variant| variant.name() == run.scheduler)
            && SCENES.iter().any(|scene| scene.name == run.scene);
        if !known {
            return Err(format!(
                "{:?} under {:?} is nothing that this program measures",
                run.scene, run.scheduler
            ));
        }
    }
    Ok((host, runs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn file(name: &str, text: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("kernel-{name}-{}", std::process::id()));
        fs::write(&path, text).unwrap();
        path
    }

    #[test]
    fn what_was_printed_can_be_read() {
        let run = Run {
            scheduler: "scx_morpheus".into(),
            scene: "6 hogs".into(),
            round: 3,
            failed: None,
            figures: Figures {
                wake_p99_ns: Some(700_000),
                ..Figures::default()
            },
        };
        let line = serde_json::to_string(&Record::Run(run)).unwrap();
        let host = serde_json::to_string(&Record::Host(Host::read())).unwrap();
        let path = file(
            "both",
            &format!("booting\n{host}\n{line}kernel: [1] disabled\nvm: {{}}\n"),
        );
        let (host, runs) = read(&[path.clone(), path.clone()]).unwrap();
        fs::remove_file(path).unwrap();
        assert_eq!(host.unwrap().kernel, Host::read().kernel);
        assert_eq!(runs.len(), 2);
        assert_eq!(
            (runs[0].round, runs[0].figures.wake_p99_ns),
            (3, Some(700_000))
        );
    }

    #[test]
    fn what_is_no_result_is_refused() {
        let none = file("none", "nothing\n");
        assert!(
            read(std::slice::from_ref(&none))
                .unwrap_err()
                .contains("no run")
        );
        fs::remove_file(none).unwrap();
        let other = file(
            "other",
            r#"{"record":"run","scheduler":"x","scene":"y","round":0,"failed":null}"#,
        );
        assert!(
            read(std::slice::from_ref(&other))
                .unwrap_err()
                .contains("nothing that")
        );
        fs::remove_file(other).unwrap();
        assert!(
            read(&["/nonexistent".into()])
                .unwrap_err()
                .contains("cannot be read")
        );
    }
}
