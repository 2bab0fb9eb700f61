//! The application: axum 0.8, nothing of Morpheus in it.

use argon2::password_hash::PasswordHasher;
use argon2::{Argon2, Params};
use axum::Router;
use axum::extract::State;
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
pub fn router(handler: Handler, hasher: Argon2<'static>) -> Router {
    let app = Router::new().route("/ping", get(async || "pong"));
    let app = match handler {
        Handler::Inline => app.route("/hash", get(hash_inline)),
        Handler::SpawnBlocking => app.route("/hash", get(hash_on_the_pool)),
    };
    app.with_state(hasher)
}

async fn hash_inline(State(hasher): State<Argon2<'static>>) -> Result<String, StatusCode> {
    hash(&hasher)
}

async fn hash_on_the_pool(State(hasher): State<Argon2<'static>>) -> Result<String, StatusCode> {
    tokio::task::spawn_blocking(move || hash(&hasher))
        .await
        .map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?
}

/// Hashes a password for storage, with a salt of its own. Never yields.
pub fn hash(hasher: &Argon2<'_>) -> Result<String, StatusCode> {
    let hash = hasher.hash_password(b"correct horse battery staple");
    hash.map(|hash| hash.to_string())
        .map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)
}

/// Argon2id on 19 MiB, as OWASP recommends at the least, with so many passes over them.
pub fn hasher(passes: u32) -> Result<Argon2<'static>, argon2::Error> {
    let params = Params::new(Params::DEFAULT_M_COST, passes, Params::DEFAULT_P_COST, None)?;
    Ok(params.into())
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
}
