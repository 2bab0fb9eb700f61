//! The table that gives the emulated CPUs frequencies: an ACPI table (SSDT), made for their number and compiled by `iasl`.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::tools::Tool;

/// The part of the table that all CPUs share.
const SHARED: &str = include_str!("frequencies.dsl");

/// Writes the table for `cpus` CPUs into `directory`.
///
/// # Errors
///
/// It cannot be written, or `iasl` cannot compile it.
pub(super) fn compile(directory: &Path, cpus: u16) -> io::Result<PathBuf> {
    let (source, table) = (
        directory.join("frequencies.dsl"),
        directory.join("frequencies.aml"),
    );
    fs::write(&source, definition(cpus))?;
    let answer = Command::new(Tool::Iasl.name())
        .arg("-p")
        .arg(&table)
        .arg(&source)
        .output()?;
    if answer.status.success() && table.is_file() {
        return Ok(table);
    }
    let said = [answer.stdout, answer.stderr].concat();
    Err(io::Error::other(format!(
        "iasl does not compile the table of frequencies:\n{}",
        String::from_utf8_lossy(&said)
    )))
}

/// QEMU calls its CPUs `C000`, `C001`, and so on, in hexadecimal.
fn definition(cpus: u16) -> String {
    let mut text =
        String::from("DefinitionBlock (\"\", \"SSDT\", 2, \"MORPH\", \"FREQS\", 1)\n{\n");
    for cpu in 0..cpus {
        let _ = writeln!(text, "External (\\_SB.CPUS.C{cpu:03X}, DeviceObj)");
    }
    text += SHARED;
    for cpu in 0..cpus {
        // Each CPU is a domain of its own, with nothing to coordinate (0xFC: by software; 0xFD would be any, 0xFE hardware).
        let _ = writeln!(
            text,
            "Scope (\\_SB.CPUS.C{cpu:03X})\n\
             {{\n    \
                 Method (_PCT) {{ Return (\\_SB.XPCT) }}\n    \
                 Method (_PSS) {{ Return (\\_SB.XPSS) }}\n    \
                 Method (_PPC) {{ Return (0) }}\n    \
                 Name (_PSD, Package () {{ Package () {{ 5, 0, {cpu}, 0xFC, 1 }} }})\n\
             }}"
        );
    }
    text += "}\n";
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cpu_has_its_own_domain() {
        let text = definition(17);
        for (cpu, name) in [(0, "C000"), (10, "C00A"), (16, "C010")] {
            let part = format!("Scope (\\_SB.CPUS.{name})");
            let own = text.split_once(&part).unwrap().1;
            let domain = format!("Package () {{ 5, 0, {cpu}, 0xFC, 1 }}");
            assert!(
                own.split_once("Scope")
                    .map_or(own, |(own, _)| own)
                    .contains(&domain)
            );
        }
        assert!(!text.contains("C011"));
        assert_eq!(text.matches('{').count(), text.matches('}').count());
    }
}
