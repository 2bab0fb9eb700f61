//! Why nothing was done, and the exit code for it.

use std::process::ExitCode;

/// Why nothing was done.
pub enum Refusal {
    /// The request makes no sense here.
    Usage(String),
    /// It cannot be done.
    Failed(String),
}

impl From<String> for Refusal {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

impl Refusal {
    /// Says it. Returns 2 for bad usage, 1 else.
    pub fn conclude(self, bench: &str) -> ExitCode {
        let (code, why) = match self {
            Self::Usage(why) => (2, why),
            Self::Failed(why) => (1, why),
        };
        eprintln!("{bench}: {why}");
        ExitCode::from(code)
    }
}
