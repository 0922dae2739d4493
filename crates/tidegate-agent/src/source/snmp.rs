//! SNMP GET of one object (RFC 3416), by version 2c or 3 of the protocol.
//!
//! Version 2c authenticates nothing: a host on the way can read the community and forge an answer. Version 3
//! authenticates each message with a user's passphrase (RFC 3414), and can encrypt it.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::time::Duration;

use async_snmp::v3::ReportStatus;
use async_snmp::{
    Auth, AuthProtocol, Client, CryptoError, DecodeConfig, Error as LibraryError, ErrorStatus, Oid,
    PrivProtocol, Retry, UdpClient, UsmConfig, Value,
};
use thiserror::Error;
use tidegate_cluster::Secret;
use tokio::time::timeout;

/// The name of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectId(Oid);

/// A text that is no name of an object.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is no object identifier: write numbers, such as 1.3.6.1.4.1.8072.1.0")]
pub struct ObjectIdError(String);

impl FromStr for ObjectId {
    type Err = ObjectIdError;

    fn from_str(text: &str) -> Result<Self, ObjectIdError> {
        let is_whole = |oid: &Oid| oid.len() >= 2 && oid.validate_all().is_ok();
        let oid = Oid::parse(text).ok().filter(is_whole);
        oid.map(Self).ok_or_else(|| ObjectIdError(text.chars().take(64).collect()))
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The credentials that an SNMP agent asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SnmpAccess {
    /// The community of version 2c, which is a password in clear text.
    Community(Secret),
    /// A user of version 3.
    User(SnmpUser),
}

/// A user of SNMP version 3, whose messages are always authenticated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnmpUser {
    /// The name.
    pub name: String,
    /// The protocol of authentication, and its passphrase.
    pub authentication: (AuthProtocol, Secret),
    /// The protocol of encryption, and its passphrase. `None`: messages are not encrypted.
    pub privacy: Option<(PrivProtocol, Secret)>,
}

impl SnmpUser {
    /// Returns the user as the library takes it.
    fn usm(&self) -> Result<UsmConfig, CryptoError> {
        let user = UsmConfig::new(self.name.clone());
        let (protocol, passphrase) = &self.authentication;
        match &self.privacy {
            None => user.auth(*protocol, passphrase.as_str()),
            Some((privacy, secret)) => {
                user.auth_priv(*protocol, passphrase.as_str(), *privacy, secret.as_str())
            }
        }
    }
}

/// The reasons why there is no number.
#[derive(Debug, Error)]
pub(super) enum SnmpError {
    /// No answer came, to a community.
    #[error("no answer within {0:?}: is the community right, and does the agent let this host in?")]
    Silent(Duration),
    /// No answer came, to a user without encryption.
    #[error("no answer within {0:?}: does an agent with version 3 listen there, and let this host in?")]
    SilentToUser(Duration),
    /// No answer came, to a user with encryption.
    #[error(
        "no answer within {0:?}: does an agent with version 3 listen there, and are the passphrase in \
         `privacy_file` and the protocol in `privacy` right?"
    )]
    SilentToEncrypted(Duration),
    /// The user is unknown.
    #[error("the agent knows no user {0}: is `user` right?")]
    NoUser(String),
    /// The passphrase or the protocol of authentication is another one.
    #[error(
        "the agent refuses the authentication of user {0}: are the passphrase in `authentication_file` and \
         the protocol in `authentication` right?"
    )]
    WrongAuthentication(String),
    /// The passphrase or the protocol of encryption is another one.
    #[error(
        "the agent cannot decrypt the question of user {0}: are the passphrase in `privacy_file` and the \
         protocol in `privacy` right?"
    )]
    WrongPrivacy(String),
    /// The user has no encryption.
    #[error(
        "the agent has no encryption for user {0}: leave out `privacy_file`, or give the user a passphrase \
         for it"
    )]
    NoPrivacy(String),
    /// The user or community may not read the object.
    #[error(
        "the agent does not let this host read it: give the user or community a view with the object; a \
         user may need `privacy_file`"
    )]
    NoAccess,
    /// The agent refuses.
    #[error("the agent answers with error {0}")]
    Refused(ErrorStatus),
    /// There is no such object.
    #[error("the agent has no object {0}")]
    NoObject(ObjectId),
    /// The value is no number.
    #[error("the object's value is no number")]
    NoNumber,
    /// The answer has another object, or several.
    #[error("the agent answers with other objects than {0}")]
    OtherObjects(ObjectId),
    /// The network, or an answer that is none.
    #[error("{0}")]
    Library(#[from] Box<LibraryError>),
    /// The credentials are of no use.
    #[error("{0}")]
    Credentials(#[from] CryptoError),
}

/// A question to an SNMP agent, asked again and again.
#[derive(Debug)]
pub(super) struct SnmpQuestion<'a> {
    pub(super) address: SocketAddr,
    pub(super) access: &'a SnmpAccess,
    pub(super) object: &'a ObjectId,
    pub(super) timeout: Duration,
}

/// An SNMP client. It keeps what version 3 found out of the agent, until a question fails.
#[derive(Default)]
pub(super) struct SnmpClient(Option<UdpClient>);

impl SnmpClient {
    /// Gets the value of the object.
    pub(super) async fn ask(&mut self, question: &SnmpQuestion<'_>) -> Result<f64, SnmpError> {
        let answer = timeout(question.timeout, self.get(question)).await;
        let answer = answer.unwrap_or_else(|_| Err(question.silent()));
        if answer.is_err() {
            // Another engine may answer at this address after a failure, such as a second controller.
            self.0 = None;
        }
        answer
    }

    async fn get(&mut self, question: &SnmpQuestion<'_>) -> Result<f64, SnmpError> {
        if self.0.is_none() {
            self.0 = Some(question.connect().await?);
        }
        let Some(client) = &self.0 else { return Err(question.silent()) };
        let answer = client.get(&question.object.0).await.map_err(|error| question.said(error))?;
        match answer.single() {
            Some(binding) => number(&binding.value, question.object),
            None => Err(SnmpError::OtherObjects(question.object.clone())),
        }
    }
}

impl SnmpQuestion<'_> {
    async fn connect(&self) -> Result<UdpClient, SnmpError> {
        let auth = match self.access {
            SnmpAccess::Community(community) => Auth::v2c(community.as_str()),
            SnmpAccess::User(user) => Auth::Usm(user.usm()?),
        };
        let client = Client::builder(self.address, auth)
            .strict_source(true)
            .decode_config(DecodeConfig::STRICT)
            // A refusal is not authenticated, and has to be heard all the same. An answer always is.
            .allow_unauthenticated_v3_time_correction(true)
            // The next question comes anyway, and an answer that is late is none.
            .retry(Retry::none())
            .request_timeout(self.timeout);
        Ok(client.connect().await?)
    }

    fn silent(&self) -> SnmpError {
        match self.access {
            SnmpAccess::Community(_) => SnmpError::Silent(self.timeout),
            SnmpAccess::User(SnmpUser { privacy: None, .. }) => SnmpError::SilentToUser(self.timeout),
            // Agents cannot tell a question that they decrypted wrongly from noise, and may be silent.
            SnmpAccess::User(_) => SnmpError::SilentToEncrypted(self.timeout),
        }
    }

    /// Returns what an error of the library means to the administrator.
    fn said(&self, error: Box<LibraryError>) -> SnmpError {
        let user = match self.access {
            SnmpAccess::Community(_) => String::new(),
            SnmpAccess::User(user) => user.name.clone(),
        };
        match error.exchange_source() {
            LibraryError::Timeout { .. } => self.silent(),
            LibraryError::Auth { .. } => SnmpError::WrongAuthentication(user),
            LibraryError::Report { status, .. } => match **status {
                ReportStatus::UnknownUserName { .. } => SnmpError::NoUser(user),
                ReportStatus::WrongDigest { .. } => SnmpError::WrongAuthentication(user),
                ReportStatus::DecryptionError { .. } => SnmpError::WrongPrivacy(user),
                ReportStatus::UnsupportedSecurityLevel { .. } => SnmpError::NoPrivacy(user),
                _ => error.into(),
            },
            LibraryError::Snmp { status, .. } => match *status {
                ErrorStatus::AuthorizationError | ErrorStatus::NoAccess => SnmpError::NoAccess,
                status => SnmpError::Refused(status),
            },
            _ => error.into(),
        }
    }
}

/// Returns the number that a value is.
fn number(value: &Value, object: &ObjectId) -> Result<f64, SnmpError> {
    match value {
        Value::NoSuchObject | Value::NoSuchInstance | Value::EndOfMibView => {
            Err(SnmpError::NoObject(object.clone()))
        }
        Value::OctetString(_) => {
            let text = value.as_str().and_then(|text| text.trim().parse().ok());
            text.ok_or(SnmpError::NoNumber)
        }
        Value::Opaque(_) => {
            let float = value.as_opaque_float().map(f64::from);
            float.or_else(|| value.as_opaque_double()).ok_or(SnmpError::NoNumber)
        }
        _ => value.as_f64().ok_or(SnmpError::NoNumber),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object() -> ObjectId {
        "1.3.6.1.4.1.8072.9999.300000.0".parse().unwrap()
    }

    fn of(value: &Value) -> Result<f64, String> {
        number(value, &object()).map_err(|error| error.to_string())
    }

    #[test]
    fn numbers_of_every_type_are_read() {
        let octets = |text: &'static str| Value::OctetString(text.as_bytes().into());
        let opaque =
            |kind: u8, bytes: &[u8]| Value::Opaque([&[0x9f, kind, bytes.len() as u8], bytes].concat().into());
        assert_eq!(of(&Value::Integer(-1)), Ok(-1.0));
        assert_eq!(of(&Value::Gauge32(32_768)), Ok(32_768.0));
        assert_eq!(of(&Value::Counter64(u64::MAX)), Ok(u64::MAX as f64));
        assert_eq!(of(&octets(" 12.5\n")), Ok(12.5));
        assert_eq!(of(&opaque(0x78, &1.5_f32.to_be_bytes())), Ok(1.5));
        assert_eq!(of(&opaque(0x79, &0.25_f64.to_be_bytes())), Ok(0.25));
        for other in [octets("busy"), opaque(0x77, &[0; 4]), Value::Null, Value::IpAddress([10, 0, 0, 1])] {
            assert!(of(&other).unwrap_err().contains("no number"), "{other:?}");
        }
        assert!(of(&Value::NoSuchInstance).unwrap_err().contains("no object 1.3.6.1.4.1.8072.9999.300000.0"));
    }

    #[test]
    fn names_of_objects_are_numbers() {
        let long = ["1"; 129].join(".");
        for text in ["", "1", "sysUpTime.0", "1.3.", "3.1.2", "1.40.1", "1.3.6.4294967296", &long] {
            let error = text.parse::<ObjectId>().unwrap_err().to_string();
            assert!(error.contains("no object identifier"), "{text}: {error}");
        }
        assert_eq!(".1.3.6".parse::<ObjectId>().unwrap().to_string(), "1.3.6");
    }
}
