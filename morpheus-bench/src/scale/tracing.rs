//! A private instance of the kernel's tracing: other programs that trace are not disturbed.

use std::fs;
use std::path::{Path, PathBuf};

/// Where the kernel has its tracing.
pub const DIRECTORY: &str = "/sys/kernel/tracing";

/// An instance of the kernel's tracing, removed when this is dropped.
#[derive(Debug)]
pub struct Instance {
    /// Its directory.
    path: PathBuf,
}

impl Instance {
    /// Makes one, which traces nothing yet. `tracing` is [`DIRECTORY`].
    ///
    /// # Errors
    /// When the kernel's tracing cannot be used, with what to do about it.
    pub fn new(tracing: &Path, name: &str) -> Result<Self, String> {
        let path = tracing.join(format!("instances/{name}-{}", std::process::id()));
        fs::create_dir(&path).map_err(|error| {
            format!(
                "{} cannot be made: {error} (is tracefs mounted there, and are you root?)",
                path.display()
            )
        })?;
        Ok(Self { path })
    }

    /// A file of it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Writes to a file of it.
    ///
    /// # Errors
    /// When the kernel does not take it, with the file's name.
    pub fn set(&self, name: &str, value: &str) -> Result<(), String> {
        let path = self.file(name);
        fs::write(&path, value)
            .map_err(|error| format!("{} does not take {value}: {error}", path.display()))
    }

    /// A directory that stands for one.
    #[cfg(test)]
    pub fn at(path: PathBuf) -> Self {
        Self { path }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // With the instance goes all that it traced; where that fails, nothing more can be done.
        let _ = fs::remove_dir(&self.path);
    }
}
