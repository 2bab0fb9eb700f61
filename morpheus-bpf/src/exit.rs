// SPDX-License-Identifier: GPL-2.0-only
//! Why the kernel ended the scheduler.

/// The kernel's report of the end of the scheduler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exit {
    /// An `enum scx_exit_kind`.
    pub kind: i32,
    /// The exit code; see [`Exit::wants_restart`].
    pub code: i64,
    /// In a few words.
    pub reason: String,
    /// The details.
    pub message: String,
    /// The state of tasks and CPUs at that time, where there is one.
    pub dump: String,
}

/// From here on, kinds are errors.
const ERROR: i32 = 1024;
/// `SCX_ECODE_ACT_RESTART`
const RESTART: i64 = 1 << 48;

impl Exit {
    /// The kernel found the scheduler at fault: an error, a task that waited for too long.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.kind >= ERROR
    }

    /// The machine has changed (a CPU came or went), and the scheduler may start anew.
    #[must_use]
    pub fn wants_restart(&self) -> bool {
        !self.is_error() && self.code & RESTART != 0
    }
}

impl std::fmt::Display for Exit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.reason)?;
        if !self.message.is_empty() {
            write!(f, " ({})", self.message)?;
        }
        Ok(())
    }
}

/// A text of the kernel's, which ends with a zero byte.
pub(crate) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_exit_means() {
        let exit = |kind, code| Exit {
            kind,
            code,
            reason: "unregistered from the main kernel".into(),
            message: String::new(),
            dump: String::new(),
        };
        assert!(exit(66, 1 << 48 | 1 << 32).wants_restart());
        assert!(!exit(66, 0).wants_restart());
        assert!(exit(1026, 0).is_error());
        assert!(!exit(1026, 1 << 48).wants_restart());
        assert!(!exit(67, 0).is_error());
        let full = Exit {
            message: "task x".into(),
            ..exit(1026, 0)
        };
        assert_eq!(
            full.to_string(),
            "unregistered from the main kernel (task x)"
        );
    }

    #[test]
    fn texts_end_with_a_zero() {
        assert_eq!(text(b"ab\0c"), "ab");
        assert_eq!(text(b"ab"), "ab");
        assert_eq!(text(b""), "");
    }
}
