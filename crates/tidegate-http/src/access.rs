//! The credentials by which an API knows its callers: processes, tokens, certificates.
//!
//! | listener | a caller without a token |
//! |---|---|
//! | Unix socket | root and the service's own user operate, other users read |
//! | loopback address | reads, unless readers have a token |
//! | TLS | by its certificate: the names of operators operate, others read |
//!
//! A token that is shown decides alone. One that is not known is refused everywhere.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use http::{HeaderMap, HeaderValue, header};
use rustix::process::geteuid;
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use thiserror::Error;

use crate::caller::{Caller, Role};
use crate::token::{BearerToken, NoRandom, TokenAdmission};

/// The TLS of a listener.
#[derive(Clone)]
pub struct ListenerTls {
    /// The server's certificate, and the authorities of its clients.
    pub config: Arc<ServerConfig>,
    /// Returns the names in a client's verified certificate.
    pub names: fn(&CertificateDer<'_>) -> Vec<String>,
}

impl fmt::Debug for ListenerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ListenerTls(..)")
    }
}

/// The credentials that an API accepts.
#[derive(Debug, Default)]
pub struct ApiCredentials {
    readers: Option<TokenAdmission>,
    operators: Option<TokenAdmission>,
    operator_names: Vec<String>,
    tls: Option<ListenerTls>,
}

impl ApiCredentials {
    /// Accepts these tokens, and certificates with `operator_names` for operators.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn new(
        readers: Option<&BearerToken>,
        operators: Option<&BearerToken>,
        operator_names: Vec<String>,
        tls: Option<ListenerTls>,
    ) -> Result<Self, NoRandom> {
        let admission =
            |token: Option<&BearerToken>| token.map(|token| TokenAdmission::new(token, [])).transpose();
        let (readers, operators) = (admission(readers)?, admission(operators)?);
        Ok(Self { readers, operators, operator_names, tls })
    }

    /// Returns the caller of a request over this connection. `None`: nothing is known of it, and it may read.
    fn caller(&self, from: &ConnectionOrigin, shown: Option<&[u8]>) -> Result<Option<Caller>, UnknownCaller> {
        let caller = |role, name: String| Some(Caller { role, name });
        if shown.is_some() {
            let is = |token: &Option<TokenAdmission>| {
                token.as_ref().is_some_and(|token| token.admits(shown, None).is_ok())
            };
            return if is(&self.operators) {
                Ok(caller(Role::Operator, "operators' token".to_owned()))
            } else if is(&self.readers) {
                Ok(caller(Role::Reader, "readers' token".to_owned()))
            } else {
                Err(UnknownCaller::Token)
            };
        }
        match from {
            ConnectionOrigin::Process { uid } => {
                let role = if operates(*uid) { Role::Operator } else { Role::Reader };
                Ok(caller(role, format!("uid {uid}")))
            }
            ConnectionOrigin::Loopback if self.readers.is_none() => Ok(None),
            ConnectionOrigin::Certificate { names } => {
                let operator = names.iter().find(|name| self.operator_names.contains(name));
                let role = if operator.is_some() { Role::Operator } else { Role::Reader };
                let name = operator.or(names.first()).map_or("without a name", String::as_str);
                Ok(caller(role, format!("certificate {name}")))
            }
            ConnectionOrigin::Loopback | ConnectionOrigin::Encrypted => Err(UnknownCaller::Nothing),
        }
    }
}

/// Returns true if processes of a user operate through a Unix socket.
pub(crate) fn operates(uid: u32) -> bool {
    uid == 0 || uid == geteuid().as_raw()
}

/// The credentials of an API, which a reload may change.
#[derive(Debug, Default)]
pub struct ApiAccess(RwLock<Arc<ApiCredentials>>);

impl ApiAccess {
    /// Accepts these credentials.
    #[must_use]
    pub fn new(credentials: ApiCredentials) -> Self {
        Self(RwLock::new(Arc::new(credentials)))
    }

    /// Accepts these credentials from now on, and no others.
    pub fn replace(&self, credentials: ApiCredentials) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(credentials);
    }

    fn now(&self) -> Arc<ApiCredentials> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn tls(&self) -> Option<ListenerTls> {
        self.now().tls.clone()
    }

    /// Returns the caller of a request over this connection. `None`: nothing is known of it, and it may read.
    ///
    /// # Errors
    /// When it must show credentials and does not, or shows a token that is not accepted.
    pub(crate) fn caller(
        &self,
        from: &ConnectionOrigin,
        headers: &HeaderMap,
    ) -> Result<Option<Caller>, UnknownCaller> {
        self.now().caller(from, headers.get(header::AUTHORIZATION).map(HeaderValue::as_bytes))
    }
}

/// The knowledge of a caller that its connection gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ConnectionOrigin {
    /// A process on this machine.
    Process {
        /// Its user.
        uid: u32,
    },
    /// Some process on this machine.
    Loopback,
    /// A client whose certificate was verified.
    Certificate {
        /// The names in it.
        names: Vec<String>,
    },
    /// A client that showed no certificate.
    Encrypted,
}

/// The reasons why a request's caller is not known, although it must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum UnknownCaller {
    #[error(
        "show the token of `readers` or `operators` in `[api]`: `Authorization: Bearer TOKEN`, \
         or `--token-file FILE`"
    )]
    Nothing,
    #[error(
        "the token that was shown is neither that of `readers` nor that of `operators`: compare its file \
         with those that `[api]` names"
    )]
    Token,
}

#[cfg(test)]
mod tests {
    use super::*;

    const READERS: &str = "the-token-of-readers";
    const OPERATORS: &str = "the-token-of-operators";

    fn credentials(readers: bool) -> ApiCredentials {
        let token = |text| BearerToken::new(text).unwrap();
        let (readers, operators) = (readers.then(|| token(READERS)), token(OPERATORS));
        ApiCredentials::new(readers.as_ref(), Some(&operators), vec!["ops.example".to_owned()], None).unwrap()
    }

    fn certificate(names: &[&str]) -> ConnectionOrigin {
        ConnectionOrigin::Certificate { names: names.iter().map(ToString::to_string).collect() }
    }

    fn role(
        from: &ConnectionOrigin,
        shown: Option<&str>,
        readers: bool,
    ) -> Result<Option<Role>, UnknownCaller> {
        let shown = shown.map(|token| format!("Bearer {token}"));
        let caller = credentials(readers).caller(from, shown.as_deref().map(str::as_bytes))?;
        Ok(caller.map(|caller| caller.role))
    }

    #[test]
    fn a_token_decides_alone() {
        let origins = [
            ConnectionOrigin::Process { uid: 0 },
            ConnectionOrigin::Loopback,
            certificate(&["ops.example"]),
            ConnectionOrigin::Encrypted,
        ];
        for from in &origins {
            assert_eq!(role(from, Some(READERS), true), Ok(Some(Role::Reader)), "{from:?}");
            assert_eq!(role(from, Some(OPERATORS), true), Ok(Some(Role::Operator)), "{from:?}");
            for wrong in ["the-token-of-operator", "the-token-of-operatorss", "", READERS] {
                assert_eq!(role(from, Some(wrong), false), Err(UnknownCaller::Token), "{from:?} {wrong}");
            }
        }
        let basic = credentials(true).caller(&ConnectionOrigin::Loopback, Some(OPERATORS.as_bytes()));
        assert_eq!(basic, Err(UnknownCaller::Token), "without its scheme");
    }

    #[test]
    fn root_and_the_own_user_operate_through_a_socket_and_others_read() {
        let own = geteuid().as_raw();
        for (uid, expected) in [(0, Role::Operator), (own, Role::Operator), (own + 1, Role::Reader)] {
            let from = ConnectionOrigin::Process { uid };
            assert_eq!(role(&from, None, true), Ok(Some(expected)), "{uid}");
        }
    }

    #[test]
    fn an_operators_certificate_is_one_of_the_names_exactly() {
        for (names, expected) in [
            (&["ops.example"][..], Role::Operator),
            (&["other.example", "ops.example"], Role::Operator),
            (&["ops.example.evil"], Role::Reader),
            (&["ops"], Role::Reader),
            (&[], Role::Reader),
        ] {
            assert_eq!(role(&certificate(names), None, true), Ok(Some(expected)), "{names:?}");
        }
    }

    #[test]
    fn without_credentials_only_loopback_reads_and_only_if_readers_have_no_token() {
        assert_eq!(role(&ConnectionOrigin::Loopback, None, false), Ok(None));
        assert_eq!(role(&ConnectionOrigin::Loopback, None, true), Err(UnknownCaller::Nothing));
        assert_eq!(role(&ConnectionOrigin::Encrypted, None, false), Err(UnknownCaller::Nothing));
    }
}
