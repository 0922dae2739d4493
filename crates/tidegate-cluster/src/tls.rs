//! Encryption of connections to a server: whom to trust, and how to show who we are.
//!
//! The files are read for every connection, so that renewed certificates are used without a restart.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use async_nats::rustls::{AlertDescription, Error as Handshake};
use tidegate_tls::{TlsError, TlsIdentity, check_authorities, check_pair};

/// Connections are encrypted, and the server shows a certificate for the name or address that it is reached
/// by.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TlsSettings {
    /// The authorities that may have signed it, in PEM form. Without them, those that the system trusts.
    pub authorities: Option<PathBuf>,
    /// Ours, where the server asks for one.
    pub identity: Option<TlsIdentity>,
}

impl TlsSettings {
    /// Checks that the files can be used now.
    ///
    /// # Errors
    /// When one of them cannot, and why.
    pub fn check(&self) -> Result<(), TlsError> {
        if let Some(path) = &self.authorities {
            check_authorities(path)?;
        }
        self.identity.as_ref().map_or(Ok(()), check_pair)
    }
}

/// Returns the meaning of a failed handshake, for people; `None` if something else failed.
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
