//! Certificates and private keys in files, and the words for what is wrong with them.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{RootCertStore, crypto};
use webpki::EndEntityCert;

/// The bundle of all authorities that browsers trust has a quarter of it.
const LONGEST: u64 = 1 << 20;

/// The bits of a mode that let users other than a file's owner and group read or write it.
const OPEN_TO_OTHERS: u32 = 0o006;

/// The reason why a certificate of version 1 is refused, and the remedy.
const VERSION_1: &str = "the certificate is of X.509 version 1, as `openssl x509 -req` makes it without \
    extensions; sign it with `-extfile`, and subjectAltName in that file";

/// A certificate and its private key.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TlsIdentity {
    /// The certificate in PEM form, and after it those between it and the authority's.
    pub certificate: PathBuf,
    /// Its private key, in PEM form.
    pub private_key: PathBuf,
}

/// The reason that a file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// It cannot be read.
    #[error("cannot read {path}")]
    Read {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// There is no certificate in it.
    #[error("{path} holds no certificate in PEM form", path = .0.display())]
    NoCertificate(PathBuf),
    /// The certificates that the system trusts cannot be read.
    #[error(
        "cannot read the certificates that this system trusts: {0}; name the authorities in the configuration"
    )]
    System(rustls_native_certs::Error),
    /// A certificate cannot be an authority's.
    #[error("{path} holds a certificate that is not an authority's: {why}")]
    Authority {
        /// The file.
        path: PathBuf,
        /// The reason.
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
        /// The reason.
        why: String,
    },
}

/// Checks that a file holds certificates of authorities.
///
/// # Errors
/// When it does not, or cannot be read.
pub fn check_authorities(path: &Path) -> Result<(), TlsError> {
    authorities(path).map(drop)
}

/// Checks that a file holds certificates.
///
/// # Errors
/// When it does not, or cannot be read.
pub fn check_certificate(path: &Path) -> Result<(), TlsError> {
    certificates(path).map(drop)
}

/// Checks that a file holds a private key. Warns in the log if users other than its owner and group may read
/// or write it.
///
/// # Errors
/// When it does not, or cannot be read.
pub fn check_private_key(path: &Path) -> Result<(), TlsError> {
    key(path)?;
    warn_if_open(path).map_err(|source| TlsError::Read { path: path.to_owned(), source })
}

/// Checks that a certificate and a private key are a pair.
///
/// # Errors
/// When they are not, or a file cannot be used.
pub fn check_pair(identity: &TlsIdentity) -> Result<(), TlsError> {
    pair(identity).map(drop)
}

/// Warns in the log when a secret is open to others than its owner and group.
///
/// # Errors
/// When there is no such file.
pub fn warn_if_open(path: &Path) -> io::Result<()> {
    let mode = fs::metadata(path)?.mode();
    if mode & OPEN_TO_OTHERS != 0 {
        let path = path.display();
        tracing::warn!(
            "the secret {path} is open to everyone on this host (mode {:03o}): `chmod o-rwx {path}`",
            mode & 0o777
        );
    }
    Ok(())
}

pub(crate) fn system_authorities() -> Result<RootCertStore, TlsError> {
    let mut found = rustls_native_certs::load_native_certs();
    if found.certs.is_empty()
        && let Some(error) = found.errors.pop()
    {
        return Err(TlsError::System(error));
    }
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    Ok(roots)
}

/// The authorities in a file.
pub(crate) fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(path)? {
        let added = store.add(certificate);
        added.map_err(|error| TlsError::Authority { path: path.to_owned(), why: error.to_string() })?;
    }
    Ok(store)
}

/// A certificate and a private key that belong together.
pub(crate) fn pair(identity: &TlsIdentity) -> Result<CertifiedKey, TlsError> {
    let TlsIdentity { certificate, private_key } = identity;
    let (chain, key) = (certificates(certificate)?, key(private_key)?);
    let is_old = chain.first().is_some_and(is_of_version_1);
    let certified = CertifiedKey::from_der(chain, key, &crypto::ring::default_provider());
    certified.map_err(|error| TlsError::Pair {
        certificate: certificate.clone(),
        private_key: private_key.clone(),
        why: if is_old { VERSION_1.to_owned() } else { error.to_string() },
    })
}

/// Returns true for a certificate of X.509 version 1, which has no extensions and so no names of hosts.
fn is_of_version_1(certificate: &CertificateDer<'_>) -> bool {
    matches!(EndEntityCert::try_from(certificate), Err(webpki::Error::UnsupportedCertVersion))
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
