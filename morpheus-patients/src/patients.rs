//! The programs with a planted fault, as a table.

use std::fmt;

/// Ends the line at fault: the line of the program's own function that computes, blocks, or calls a library that does.
pub const CULPRIT: &str = "// CULPRIT";
/// Ends the line that suffers from the line at fault, and blocks because of it.
pub const VICTIM: &str = "// VICTIM";

/// The activity of a thread in a line at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It uses the CPU.
    Computing,
    /// It sleeps in the kernel.
    Blocked,
}

impl fmt::Display for Fault {
    fn fmt(&self, form: &mut fmt::Formatter<'_>) -> fmt::Result {
        form.write_str(match self {
            Self::Computing => "computing",
            Self::Blocked => "blocked",
        })
    }
}

/// A program with a planted fault.
#[derive(Clone, Copy, Debug)]
pub struct Patient {
    /// The name of its file in `src/bin`, without the extension.
    pub name: &'static str,
    /// The name of its executable.
    pub program: &'static str,
    /// The fault of its handlers, as `--help` says it.
    pub about: &'static str,
    /// The activity of the thread in the line at fault.
    pub fault: Fault,
    /// The function with the line at fault, without its path.
    pub function: &'static str,
    /// Its source file, from the root of the workspace.
    pub file: &'static str,
    /// The text of this file.
    pub source: &'static str,
}

impl Patient {
    /// The patient of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        let mut all = PATIENTS.iter().chain([&CROWD, &LABELLED]);
        all.find(|patient| patient.name == name)
    }

    /// The number of the first line that ends with `marker`.
    #[must_use]
    pub fn line_with(&self, marker: &str) -> Option<u32> {
        let ends = |line: &str| line.trim_end().ends_with(marker);
        let index = self.source.lines().position(ends)?;
        u32::try_from(index + 1).ok()
    }
}

macro_rules! patient {
    ($name:literal, $function:literal, $fault:ident, $about:literal) => {
        Patient {
            name: $name,
            program: concat!("patient-", $name),
            about: $about,
            fault: Fault::$fault,
            function: $function,
            file: concat!("morpheus-patients/src/bin/", $name, ".rs"),
            source: include_str!(concat!("bin/", $name, ".rs")),
        }
    };
}

/// Every program with a planted fault.
#[rustfmt::skip]
pub const PATIENTS: &[Patient] = &[
    patient!("sleep", "throttle", Blocked, "a handler waits for its turn with std::thread::sleep (10 ms)"),
    patient!("files", "read_status", Blocked, "a handler reads a file with std::fs that delivers after 10 ms (a FIFO)"),
    patient!("lookup", "find_database", Blocked, "a handler looks up a host name with getaddrinfo, at a name server that answers after 10 ms"),
    patient!("mutex", "recount", Computing, "a handler computes for 10 ms while it holds a std Mutex that other handlers lock"),
    patient!("regex", "count_addresses", Computing, "a handler searches a big text with a regular expression"),
    patient!("argon2", "sign_up", Computing, "a handler hashes a password with Argon2"),
    patient!("json", "export", Computing, "a handler writes 10 MB of JSON with serde_json"),
    patient!("spin", "checksum", Computing, "a handler computes in a loop of its own for 20 ms"),
    patient!("sqlite", "count_orders", Computing, "a handler runs a query for which SQLite scans a large table"),
    patient!("println", "print_report", Blocked, "a handler prints a long report to a pipe whose reader is slow"),
];

/// The program of `sleep` once more, beside thousands of threads that do nothing.
pub const CROWD: Patient = patient!(
    "threads",
    "wait_for_turn",
    Blocked,
    "a handler waits with std::thread::sleep (10 ms), beside 10,000 idle threads"
);

/// A program on Morpheus.
pub const LABELLED: Patient = patient!(
    "labelled",
    "checksum",
    Computing,
    "handlers with the label \"reports\" compute in a loop of their own for 20 ms, others wait with std::thread::sleep (10 ms)"
);

/// File (from the root of the workspace) and line at fault of the patient of this name.
#[must_use]
pub fn culprit_line(name: &str) -> Option<(&'static str, u32)> {
    let patient = Patient::named(name)?;
    Some((patient.file, patient.line_with(CULPRIT)?))
}

/// File (from the root of the workspace) and line that suffers, where the patient of this name has one.
#[must_use]
pub fn victim_line(name: &str) -> Option<(&'static str, u32)> {
    let patient = Patient::named(name)?;
    Some((patient.file, patient.line_with(VICTIM)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines_with(patient: &Patient, marker: &str) -> usize {
        let lines = patient.source.lines();
        lines.filter(|line| line.contains(marker)).count()
    }

    #[test]
    fn each_patient_has_one_culprit() {
        for patient in PATIENTS.iter().chain([&CROWD, &LABELLED]) {
            let name = patient.name;
            assert_eq!(lines_with(patient, CULPRIT), 1, "{name}");
            let (file, line) = culprit_line(name).expect(name);
            assert_eq!(file, format!("morpheus-patients/src/bin/{name}.rs"));
            let before: Vec<&str> = patient.source.lines().take(line as usize).collect();
            // The marked line stands in the function of the table: no other function begins between the two.
            let head = before.iter().rev().find(|line| line.contains("fn "));
            let head = head.expect(name);
            assert!(
                head.contains(&format!("fn {}(", patient.function)),
                "{name}: {head}"
            );
        }
        assert_eq!(culprit_line("none"), None);
    }

    #[test]
    fn only_the_lock_has_a_victim() {
        for patient in PATIENTS {
            let expected = usize::from(patient.name == "mutex");
            assert_eq!(lines_with(patient, VICTIM), expected, "{}", patient.name);
            assert_eq!(victim_line(patient.name).is_some(), expected == 1);
        }
    }
}
