//! The application: axum 0.8, nothing of Morpheus in it.

use argon2::Argon2;
use argon2::password_hash::PasswordHasher;
use axum::Router;
use axum::http::StatusCode;
use axum::routing::get;

/// How the handler of `/hash` is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handler {
    /// As most people write it first: it computes where it is called.
    Inline,
    /// As tokio's documentation wants it: on the pool for blocking calls.
    SpawnBlocking,
}

/// The app with one of the two handlers.
pub fn router(handler: Handler) -> Router {
    let app = Router::new().route("/ping", get(async || "pong"));
    match handler {
        Handler::Inline => app.route("/hash", get(hash_inline)),
        Handler::SpawnBlocking => app.route("/hash", get(hash_on_the_pool)),
    }
}

async fn hash_inline() -> Result<String, StatusCode> {
    hash("correct horse battery staple")
}

async fn hash_on_the_pool() -> Result<String, StatusCode> {
    tokio::task::spawn_blocking(|| hash("correct horse battery staple"))
        .await
        .map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?
}

/// Hashes a password for storage: Argon2id with the crate's default parameters (19 MiB, two passes, the
/// least that OWASP recommends), which take about 50 ms, and never yields.
pub fn hash(password: &str) -> Result<String, StatusCode> {
    let hash = Argon2::default().hash_password(password.as_bytes());
    hash.map(|hash| hash.to_string())
        .map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_hash_is_what_a_database_would_store() {
        let hash = super::hash("secret").unwrap();
        assert!(
            hash.starts_with("$argon2id$v=19$m=19456,t=2,p=1$"),
            "{hash}"
        );
    }
}
