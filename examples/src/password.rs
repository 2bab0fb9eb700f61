//! Hashing a password: work that computes and never yields, with a number of passes that takes a given CPU
//! time on this machine.

use std::time::Duration;

use argon2::password_hash::{Error, PasswordHasher};
use argon2::{Argon2, Params};
use morpheus_harness::clock;

/// Argon2id on 19 MiB, the minimum that OWASP recommends, with `passes` passes over them.
///
/// # Errors
/// On fewer passes than one, or more than Argon2 has a number for.
pub fn hasher(passes: u32) -> Result<Argon2<'static>, argon2::Error> {
    let params = Params::new(Params::DEFAULT_M_COST, passes, Params::DEFAULT_P_COST, None)?;
    Ok(params.into())
}

/// Hashes a password for storage, with a salt of its own. Never yields.
///
/// # Errors
/// The system has no random salt.
pub fn hash(hasher: &Argon2<'_>) -> Result<String, Error> {
    let hash = hasher.hash_password(b"correct horse battery staple")?;
    Ok(hash.to_string())
}

/// The work of one hash. It is determined once and passed to all services that are compared, so that each
/// does the same.
#[derive(Clone, Copy, Debug)]
pub struct Hash {
    /// Passes of Argon2 over its memory.
    pub passes: u32,
    /// The CPU time of these passes.
    pub cpu: Duration,
}

impl Hash {
    /// Finds the work of a hash of about `ms` milliseconds, at least one pass.
    ///
    /// # Errors
    /// As [`hasher`] and [`hash`]; the text is for people.
    pub fn calibrate(ms: f64) -> Result<Self, String> {
        // The difference excludes the time that does not depend on the number of passes.
        let (short, long) = (cpu_of_hash(1)?, cpu_of_hash(3)?);
        let pass = (long.saturating_sub(short) / 2).max(Duration::from_micros(100));
        let more = (ms / 1e3 - short.as_secs_f64()).max(0.0) / pass.as_secs_f64();
        let passes = 1 + more.round() as u32;
        let cpu = cpu_of_hash(passes)?;
        Ok(Self { passes, cpu })
    }
}

/// Measures the CPU time of one hash: the fastest of several, because disturbances only add time.
fn cpu_of_hash(passes: u32) -> Result<Duration, String> {
    let hasher = hasher(passes).map_err(|error| format!("{passes} passes: {error}"))?;
    let mut fastest = Duration::MAX;
    for _ in 0..5 {
        let before = clock::thread_cpu();
        hash(&hasher).map_err(|_| "no random salt to be had")?;
        fastest = fastest.min(clock::thread_cpu() - before);
    }
    Ok(fastest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_what_a_database_would_store() {
        let hash = hash(&hasher(3).unwrap()).unwrap();
        assert!(
            hash.starts_with("$argon2id$v=19$m=19456,t=3,p=1$"),
            "{hash}"
        );
        assert!(hasher(0).is_err());
    }

    #[test]
    fn there_is_always_a_pass() {
        let hash = Hash::calibrate(0.0).unwrap();
        assert_eq!(hash.passes, 1);
        assert!(hash.cpu > Duration::ZERO);
    }
}
