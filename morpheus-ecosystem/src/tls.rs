//! Two ends of TLS that trust only each other.

use std::sync::Arc;

use tokio_rustls::rustls::crypto::ring::default_provider;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};

/// The name in the certificate.
pub const NAME: &str = "localhost";

/// Makes a server with a fresh certificate for [`NAME`], and a client that trusts it.
///
/// # Panics
///
/// When no certificate can be made.
#[must_use]
pub fn pair() -> (ServerConfig, ClientConfig) {
    let made = rcgen::generate_simple_self_signed([NAME.to_string()]).expect("a certificate");
    let certificate = made.cert.der().clone();
    let key = PrivatePkcs8KeyDer::from(made.signing_key.serialize_der());
    let mut trusted = RootCertStore::empty();
    trusted
        .add(certificate.clone())
        .expect("it is a certificate");
    let provider = Arc::new(default_provider());
    let server = ServerConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .expect("TLS 1.3")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key.into())
        .expect("the key belongs to the certificate");
    (server, client(trusted))
}

/// Makes a client that trusts no certificate.
///
/// # Panics
///
/// Never: TLS 1.3 is built in.
#[must_use]
pub fn distrustful() -> ClientConfig {
    client(RootCertStore::empty())
}

fn client(trusted: RootCertStore) -> ClientConfig {
    ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .expect("TLS 1.3")
        .with_root_certificates(trusted)
        .with_no_client_auth()
}
