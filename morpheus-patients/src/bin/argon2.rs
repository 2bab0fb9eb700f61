//! A handler that hashes a password with Argon2.

use std::process::ExitCode;
use std::sync::Arc;

use argon2::{Algorithm, Argon2, Params, Version};
use morpheus_patients::clock::Stopwatch;
use morpheus_patients::{handler, service};

/// 12 MiB and three passes: one of the settings that OWASP recommends.
const MEMORY_KIB: u32 = 12 << 10;
const PASSES: u32 = 3;

/// Makes what a database stores of a new user.
#[inline(never)]
fn sign_up(hasher: &Argon2<'_>, password: &str) -> Option<[u8; 32]> {
    let mut hash = [0; 32];
    let hashed = hasher.hash_password_into(password.as_bytes(), b"salt of a user", &mut hash); // CULPRIT
    hashed.ok().map(|()| hash)
}

async fn report(hasher: &Argon2<'_>, password: &str) {
    let stopwatch = Stopwatch::start();
    let user = sign_up(hasher, password);
    stopwatch.stop();
    handler::answer(user).await;
}

async fn requests(hasher: Arc<Argon2<'static>>) {
    loop {
        handler::request().await;
        report(&hasher, "correct horse battery staple").await;
    }
}

fn main() -> ExitCode {
    service::run("argon2", || {
        let params = Params::new(MEMORY_KIB, PASSES, 1, None).map_err(|error| error.to_string())?;
        let hasher = Arc::new(Argon2::new(Algorithm::Argon2id, Version::V0x13, params));
        handler::start(|_| requests(Arc::clone(&hasher)));
        Ok(())
    })
}
