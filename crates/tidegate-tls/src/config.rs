//! The two sides' configurations: files become what handshakes use.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::crypto::{self, CryptoProvider};
use rustls::pki_types;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::SingleCertAndKey;
use rustls::{ClientConfig, ServerConfig};
use thiserror::Error;

use crate::files::{self, TlsError, TlsIdentity};

/// The files of a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ServerFiles {
    /// The certificate that it shows.
    pub identity: TlsIdentity,
    /// The authorities, in PEM form, one of which must have signed every client's certificate. `None`:
    /// clients need none.
    pub client_authorities: Option<PathBuf>,
}

/// The files of a client.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ClientFiles {
    /// The authorities, in PEM form, one of which must have signed the server's certificate.
    pub authorities: PathBuf,
    /// The certificate that it shows where the server asks for one.
    pub identity: Option<TlsIdentity>,
    /// The name or address that the server's certificate must have.
    pub server: ServerName,
}

/// A name or an address that a server's certificate can have.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ServerName(pki_types::ServerName<'static>);

/// The error for a text that is not such a name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is neither a DNS name nor an address")]
pub struct ServerNameError(String);

impl FromStr for ServerName {
    type Err = ServerNameError;

    fn from_str(text: &str) -> Result<Self, ServerNameError> {
        pki_types::ServerName::try_from(text.to_owned())
            .map(Self)
            .map_err(|_| ServerNameError(text.escape_debug().to_string()))
    }
}

impl From<std::net::IpAddr> for ServerName {
    fn from(address: std::net::IpAddr) -> Self {
        Self(pki_types::ServerName::IpAddress(address.into()))
    }
}

impl fmt::Display for ServerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.to_str())
    }
}

/// A server's part in TLS, with the certificates of the moment when it was loaded.
#[derive(Debug, Clone)]
pub struct ServerTls(pub(crate) Arc<ServerConfig>);

/// A client's part in TLS, with the certificates of the moment when it was loaded.
#[derive(Debug, Clone)]
pub struct ClientTls {
    pub(crate) config: Arc<ClientConfig>,
    pub(crate) server: pki_types::ServerName<'static>,
}

impl ServerTls {
    /// Returns the library's settings, for handshakes that are not made here.
    #[must_use]
    pub fn settings(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.0)
    }
}

impl ClientTls {
    /// Returns the library's settings and the server's name, for handshakes that are not made here.
    #[must_use]
    pub fn settings(&self) -> (Arc<ClientConfig>, pki_types::ServerName<'static>) {
        (Arc::clone(&self.config), self.server.clone())
    }
}

/// The demand of a server for its clients' certificates.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClientCertificates {
    /// Every client shows one.
    Required,
    /// A client may show one, which is verified then.
    Optional,
}

impl ServerFiles {
    /// Reads the files. With authorities, every client must show a certificate.
    ///
    /// # Errors
    /// When one of them cannot be used.
    pub fn load(&self) -> Result<ServerTls, TlsError> {
        self.load_with(ClientCertificates::Required)
    }

    /// Reads the files, for clients that must or may show a certificate.
    ///
    /// # Errors
    /// When one of them cannot be used.
    pub fn load_with(&self, certificates: ClientCertificates) -> Result<ServerTls, TlsError> {
        let key = files::pair(&self.identity)?;
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| self.unusable(&error))?;
        let builder = match &self.client_authorities {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let roots = Arc::new(files::authorities(path)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
                let verifier = match certificates {
                    ClientCertificates::Required => verifier,
                    ClientCertificates::Optional => verifier.allow_unauthenticated(),
                };
                let verifier = verifier.build().map_err(|_| TlsError::NoCertificate(path.clone()))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(key)));
        // A resumed session would not show its certificate to the authorities of today.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
        Ok(ServerTls(Arc::new(config)))
    }

    fn unusable(&self, error: &rustls::Error) -> TlsError {
        TlsError::Pair {
            certificate: self.identity.certificate.clone(),
            private_key: self.identity.private_key.clone(),
            why: error.to_string(),
        }
    }
}

impl ClientFiles {
    /// Reads the files.
    ///
    /// # Errors
    /// When one of them cannot be used.
    pub fn load(&self) -> Result<ClientTls, TlsError> {
        let config = client_settings(Some(&self.authorities), self.identity.as_ref())?;
        Ok(ClientTls { config, server: self.server.0.clone() })
    }
}

/// Returns the library's settings of a client, for handshakes that are not made here. Without `authorities` those
/// that the system trusts must have signed the server's certificate.
///
/// # Errors
/// When one of the files cannot be used.
pub fn client_settings(
    authorities: Option<&Path>,
    identity: Option<&TlsIdentity>,
) -> Result<Arc<ClientConfig>, TlsError> {
    let roots = authorities.map_or_else(files::system_authorities, files::authorities)?;
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("the provider has suites for both versions")
        .with_root_certificates(roots);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(files::pair(identity)?)))
        }
    };
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(crypto::ring::default_provider())
}
