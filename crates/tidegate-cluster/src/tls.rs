//! Encryption of connections to a server: whom to trust, and how to show who we are.
//!
//! The files are read for every connection, so that renewed certificates are used without a restart. The client library
//! reads them itself; it is the words for what is wrong with them that it lacks.

use std::error::Error;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use async_nats::rustls::pki_types::pem::{self, PemObject};
use async_nats::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use async_nats::rustls::{AlertDescription, ClientConfig, Error as Handshake, RootCertStore};

use crate::key::warn_if_open;

/// The bundle of all authorities that browsers trust has a quarter of it.
const LONGEST: u64 = 1 << 20;

/// Connections are encrypted, and the server shows a certificate for the name or address that it is reached by.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tls {
    /// Who may have signed it, in PEM form; without it those whom the system trusts.
    pub authorities: Option<PathBuf>,
    /// Ours, where the server asks for one.
    pub identity: Option<Identity>,
}

/// Who we are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Our certificate, in PEM form, and after it those between it and the authority's.
    pub certificate: PathBuf,
    /// Its private key, in PEM form.
    pub private_key: PathBuf,
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// It cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// There is no certificate in it.
    #[error("{path} holds no certificate in PEM form", path = .0.display())]
    NoCertificate(PathBuf),
    /// A certificate cannot be an authority's.
    #[error("{path} holds a certificate that is not an authority's: {why}")]
    Authority {
        /// The file.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// There is no private key in it.
    #[error("{path} holds no private key in PEM form", path = .0.display())]
    NoPrivateKey(PathBuf),
    /// The two are not a pair, or of a kind that is not known.
    #[error(
        "the certificate in {certificate} and the private key in {private_key} do not go together: {why}"
    )]
    Pair {
        /// The one file.
        certificate: PathBuf,
        /// The other.
        private_key: PathBuf,
        /// Why not.
        why: String,
    },
}

impl Tls {
    /// Whether the files can be used, now.
    ///
    /// # Errors
    /// When one of them cannot, and why.
    pub fn check(&self) -> Result<(), TlsError> {
        if let Some(path) = &self.authorities {
            check_authorities(path)?;
        }
        self.identity.as_ref().map_or(Ok(()), Identity::check)
    }
}

impl Identity {
    fn check(&self) -> Result<(), TlsError> {
        let Self { certificate, private_key } = self;
        let (chain, key) = (certificates(certificate)?, key(private_key)?);
        // Whom to trust does not matter for whether the two are a pair.
        let client = ClientConfig::builder().with_root_certificates(RootCertStore::empty());
        client.with_client_auth_cert(chain, key).map(drop).map_err(|error| TlsError::Pair {
            certificate: certificate.clone(),
            private_key: private_key.clone(),
            why: error.to_string(),
        })
    }
}

/// Whether a file holds certificates of authorities.
///
/// # Errors
/// When it does not, or cannot be read.
pub fn check_authorities(path: &Path) -> Result<(), TlsError> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(path)? {
        let added = store.add(certificate);
        added.map_err(|error| TlsError::Authority { path: path.to_owned(), why: error.to_string() })?;
    }
    Ok(())
}

/// Whether a file holds certificates.
///
/// # Errors
/// When it does not, or cannot be read.
pub fn check_certificate(path: &Path) -> Result<(), TlsError> {
    certificates(path).map(drop)
}

/// Whether a file holds a private key. Warns in the log when others than its owner and group may read or write it.
///
/// # Errors
/// When it does not, or cannot be read.
pub fn check_private_key(path: &Path) -> Result<(), TlsError> {
    key(path)?;
    warn_if_open(path).map_err(|source| TlsError::Read { path: path.to_owned(), source })
}

/// What a failed handshake means, for people; `None` when it was something else that failed.
pub(crate) fn explain(error: &(dyn Error + 'static)) -> Option<String> {
    let mut cause = Some(error);
    while let Some(error) = cause {
        // An I/O error shows what is in it only when asked.
        let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let found = inner.and_then(|inner| inner.downcast_ref()).or_else(|| error.downcast_ref());
        match found {
            Some(handshake @ Handshake::InvalidCertificate(_)) => {
                return Some(format!("its certificate is not accepted: {handshake}"));
            }
            Some(
                handshake @ Handshake::AlertReceived(
                    AlertDescription::BadCertificate
                    | AlertDescription::CertificateExpired
                    | AlertDescription::CertificateRequired
                    | AlertDescription::CertificateRevoked
                    | AlertDescription::CertificateUnknown
                    | AlertDescription::UnknownCA
                    | AlertDescription::UnsupportedCertificate,
                ),
            ) => return Some(format!("it refuses our certificate, or asks for one: {handshake}")),
            _ => cause = error.source(),
        }
    }
    None
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let none = || TlsError::NoCertificate(path.to_owned());
    let found: Result<Vec<_>, pem::Error> = CertificateDer::pem_slice_iter(&read(path)?).collect();
    found.ok().filter(|found| !found.is_empty()).ok_or_else(none)
}

fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_slice(&read(path)?).map_err(|_| TlsError::NoPrivateKey(path.to_owned()))
}

fn read(path: &Path) -> Result<Vec<u8>, TlsError> {
    let mut bytes = Vec::new();
    let read = File::open(path).and_then(|file| file.take(LONGEST).read_to_end(&mut bytes));
    read.map_err(|source| TlsError::Read { path: path.to_owned(), source })?;
    Ok(bytes)
}
