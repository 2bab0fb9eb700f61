//! How many passes a password hash needs to take as long as it should, on this machine.

use std::time::Duration;

use morpheus_bench::clock;

use crate::app;

/// The work of one hash. Found once and handed to every variant, so that all have the same to do.
#[derive(Clone, Copy, Debug)]
pub struct Hash {
    /// Passes of Argon2 over its memory.
    pub passes: u32,
    /// CPU time that these take.
    pub cpu: Duration,
}

impl Hash {
    /// A hash of about `ms` milliseconds; it has at least one pass.
    pub fn calibrate(ms: f64) -> Result<Self, String> {
        // The difference leaves out what does not depend on the number of passes.
        let (short, long) = (cpu_of_hash(1)?, cpu_of_hash(3)?);
        let pass = (long.saturating_sub(short) / 2).max(Duration::from_micros(100));
        let more = (ms / 1e3 - short.as_secs_f64()).max(0.0) / pass.as_secs_f64();
        let passes = 1 + more.round() as u32;
        let cpu = cpu_of_hash(passes)?;
        Ok(Self { passes, cpu })
    }
}

/// CPU time of one hash: the fastest of several, because whatever disturbs it only makes it slower.
fn cpu_of_hash(passes: u32) -> Result<Duration, String> {
    let hasher = app::hasher(passes).map_err(|error| format!("{passes} passes: {error}"))?;
    let mut fastest = Duration::MAX;
    for _ in 0..5 {
        let before = clock::thread_cpu();
        app::hash(&hasher).map_err(|_| "no random salt to be had")?;
        fastest = fastest.min(clock::thread_cpu() - before);
    }
    Ok(fastest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_always_a_pass() {
        let hash = Hash::calibrate(0.0).unwrap();
        assert_eq!(hash.passes, 1);
        assert!(hash.cpu > Duration::ZERO);
    }
}
