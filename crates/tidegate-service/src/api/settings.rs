//! `[api]`: the addresses of a service's API, and the credentials of its callers.

use std::net::SocketAddr;
use std::ops::Range;
use std::path::{Path, PathBuf};

use thiserror::Error;
use tidegate_config::keys::{api, serve};
use tidegate_config::{FindingList, PlacedValue, Section};
use tidegate_http::{ApiCredentials, BearerToken, ListenAddress, ListenerTls, NoRandom, TokenError};
use tidegate_tls::{ClientCertificates, ServerFiles, TlsError, TlsIdentity, certificate_names};

/// The API of a service, as it is configured.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ApiSettings {
    /// The addresses where it listens.
    pub listen: Vec<ListenAddress>,
    /// The files of its TLS, which every address beyond loopback needs.
    pub tls: Option<ServerFiles>,
    /// The file with the token of callers that may read.
    pub readers: Option<PathBuf>,
    /// The file with the token of callers that may change something.
    pub operators: Option<PathBuf>,
    /// The names in certificates whose holders may change something, in small letters.
    pub operator_names: Vec<String>,
    /// The names by which it may be asked.
    pub names: Vec<String>,
}

/// The reasons why the credentials of an API cannot be used.
#[derive(Debug, Error)]
pub enum CredentialsError {
    /// A token cannot be read.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// A certificate or its key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// Every reader would be an operator.
    #[error(
        "{} and {} hold one token: every reader could change something",
        .readers.display(), .operators.display()
    )]
    SameToken {
        /// The file of `readers`.
        readers: PathBuf,
        /// The file of `operators`.
        operators: PathBuf,
    },
    /// Tokens cannot be compared safely.
    #[error(transparent)]
    NoRandom(#[from] NoRandom),
}

/// The API of a service with its place in the configuration.
#[derive(Debug)]
pub struct PlacedApi {
    /// The settings.
    pub settings: ApiSettings,
    /// Its addresses.
    pub listen: Vec<PlacedValue<ListenAddress>>,
    span: Range<usize>,
}

impl PlacedApi {
    /// Returns its addresses with ports.
    pub fn tcp(&self) -> impl Iterator<Item = PlacedValue<SocketAddr>> {
        self.listen.iter().filter_map(|given| match given.value {
            ListenAddress::Tcp(value) => Some(PlacedValue { value, span: given.span.clone() }),
            ListenAddress::Unix(_) => None,
        })
    }

    /// Reports files that cannot be used.
    pub fn check_files(&self, report: &mut FindingList<'_>) {
        if let Err(error) = self.settings.credentials() {
            report.error(&self.span, error.to_string());
        }
    }
}

impl ApiSettings {
    /// Reads the table `api` without looking at the files that it names. Its paths are relative to `folder`,
    /// that of the configuration.
    pub fn read(root: &Section<'_>, folder: &Path, report: &mut FindingList<'_>) -> Option<PlacedApi> {
        let table = root.table("api", api::API.names, report)?;
        // Names count for `metrics`, too.
        if !table.has("listen") && !table.has("names") {
            table.missing("listen", "[\"unix:/run/tidegate/serve.sock\"]", report);
        }
        let listen = table.list::<ListenAddress>("listen", "names no address", report).unwrap_or_default();
        let listen: Vec<_> =
            listen.into_iter().map(|given| given.map(|address| address.below(folder))).collect();
        let tls = table.has("tls").then(|| tls(&table, folder, report));
        let readers = file(&table, "readers", folder, report);
        let operators = file(&table, "operators", folder, report);
        let operator_names = names(&table, "operator_names", report);
        let verifies = matches!(&tls, Some(Some(files)) if files.client_authorities.is_some());
        // What is wrong with `tls` itself was reported already.
        let is_broken = matches!(&tls, Some(None));
        if !operator_names.is_empty()
            && !verifies
            && !is_broken
            && let Some(span) = table.key_span("operator_names")
        {
            let help = "add `client_ca_file` to `tls`";
            report.error_with_help(&span, "certificates of clients cannot be verified", help);
        }
        for (at, given) in listen.iter().enumerate() {
            let is_unix = matches!(given.value, ListenAddress::Unix(_));
            if is_unix && listen[..at].iter().any(|other| other.value == given.value) {
                report.error(&given.span, format!("`{}` is listed twice", given.value));
            }
            if given.value.is_local() {
                continue;
            }
            if tls.is_none() {
                report.error_with_help(
                    &given.span,
                    format!("`{}` can be reached from other hosts, and would not be encrypted", given.value),
                    "add `tls = { certificate_file = \"api-cert.pem\", private_key_file = \"api-key.pem\" }`",
                );
            } else if readers.is_none() && operators.is_none() && !verifies && !is_broken {
                report.error_with_help(
                    &given.span,
                    format!(
                        "`{}` can be reached from other hosts, and no caller could show who it is",
                        given.value
                    ),
                    "add `readers` or `operators`, files with tokens, or `client_ca_file` to `tls`",
                );
            }
        }
        if let (Some(span), true) = (table.key_span("tls"), listen.iter().all(|given| given.value.is_local()))
        {
            report.warning(
                &span,
                "`tls` has no effect: only this machine reaches these addresses",
                "leave it out, or add an address to `listen`",
            );
        }
        let settings = Self {
            listen: listen.iter().map(|given| given.value.clone()).collect(),
            tls: tls.flatten(),
            readers,
            operators,
            operator_names,
            names: names(&table, "names", report),
        };
        Some(PlacedApi { settings, listen, span: table.span().clone() })
    }

    /// Reads the files, which is what a reload does again.
    ///
    /// # Errors
    /// When one of them cannot be used, or one token would be both.
    pub fn credentials(&self) -> Result<ApiCredentials, CredentialsError> {
        let token = |path: &Option<PathBuf>| path.as_deref().map(BearerToken::from_file).transpose();
        let (readers, operators) = (token(&self.readers)?, token(&self.operators)?);
        if readers.is_some()
            && readers == operators
            && let (Some(readers), Some(operators)) = (&self.readers, &self.operators)
        {
            return Err(CredentialsError::SameToken {
                readers: readers.clone(),
                operators: operators.clone(),
            });
        }
        let tls = self.tls.as_ref().map(|files| files.load_with(ClientCertificates::Optional)).transpose()?;
        let tls = tls.map(|tls| ListenerTls { config: tls.settings(), names: certificate_names });
        let (readers, operators) = (readers.as_ref(), operators.as_ref());
        Ok(ApiCredentials::new(readers, operators, self.operator_names.clone(), tls)?)
    }
}

/// Returns true if two settings differ in what needs a restart: the addresses, and the names.
#[must_use]
pub fn needs_restart(one: Option<&ApiSettings>, other: Option<&ApiSettings>) -> bool {
    let fixed = |settings: Option<&ApiSettings>| {
        settings.map(|settings| (settings.listen.clone(), settings.names.clone()))
    };
    fixed(one) != fixed(other)
}

fn tls(table: &Section<'_>, folder: &Path, report: &mut FindingList<'_>) -> Option<ServerFiles> {
    let section = table.table("tls", serve::TLS.names, report)?;
    for (key, example) in [("certificate_file", "\"api-cert.pem\""), ("private_key_file", "\"api-key.pem\"")]
    {
        if !section.has(key) {
            section.missing(key, example, report);
        }
    }
    let certificate = file(&section, "certificate_file", folder, report);
    let private_key = file(&section, "private_key_file", folder, report);
    let client_authorities = file(&section, "client_ca_file", folder, report);
    let identity = TlsIdentity { certificate: certificate?, private_key: private_key? };
    Some(ServerFiles { identity, client_authorities })
}

fn file(section: &Section<'_>, key: &str, folder: &Path, report: &mut FindingList<'_>) -> Option<PathBuf> {
    let path = section.text(key, report)?;
    Some(report.path(folder, path.value, &path.span))
}

fn names(table: &Section<'_>, key: &str, report: &mut FindingList<'_>) -> Vec<String> {
    let names = table.list::<String>(key, "names none: leave it out", report).unwrap_or_default();
    names.into_iter().map(|given| given.value.to_ascii_lowercase()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ApiSettings, String> {
        let mut report = FindingList::new("t.toml", text);
        let document = tidegate_config::parse(text, &mut report).unwrap();
        let root = Section::new(&document, 0..0, "the configuration".to_owned(), &["api"], &mut report);
        let settings = ApiSettings::read(&root, Path::new("/etc/tidegate"), &mut report);
        let findings: Vec<_> = report.into_findings().iter().map(ToString::to_string).collect();
        if findings.is_empty() { Ok(settings.unwrap().settings) } else { Err(findings.join("\n")) }
    }

    const TLS: &str = "tls = { certificate_file = 'c.pem', private_key_file = 'k.pem' }";

    #[test]
    fn sockets_and_loopback_take_nothing_more() {
        let settings = read("[api]\nlisten = ['unix:a.sock', '127.0.0.1:9809', '[::1]:9809']").unwrap();
        assert_eq!(settings.listen[0], ListenAddress::Unix("/etc/tidegate/a.sock".into()));
        assert_eq!(settings.tls, None);
    }

    #[test]
    fn names_for_metrics_alone_need_no_address() {
        let settings = read("[api]\nnames = ['Storage.Example']").unwrap();
        assert_eq!((settings.names, settings.listen), (vec!["storage.example".to_owned()], Vec::new()));
    }

    #[test]
    fn beyond_loopback_nothing_is_served_in_plain_text_or_to_unknown_callers() {
        for (address, line) in [("10.0.0.1:9810", 2), ("0.0.0.0:9810", 2), ("[::]:9810", 2)] {
            let plain = format!("[api]\nlisten = ['unix:a', '{address}']\noperators = 'token'");
            let said = read(&plain).unwrap_err();
            assert!(
                said.starts_with(&format!("t.toml:{line}:21: `{address}` can be reached from")),
                "{said}"
            );
            assert!(said.contains("would not be encrypted"), "{said}");
            let open = format!("[api]\nlisten = ['{address}']\n{TLS}");
            let said = read(&open).unwrap_err();
            assert!(said.contains("no caller could show who it is"), "{said}");
            for credentials in ["readers = 'token'", "operators = 'token'"] {
                let settings = read(&format!("{open}\n{credentials}")).unwrap();
                assert_eq!(settings.tls.unwrap().identity.certificate, Path::new("/etc/tidegate/c.pem"));
            }
        }
    }

    #[test]
    fn names_of_operators_take_an_authority_that_verifies_them() {
        let of = |tls: &str| {
            read(&format!(
                "[api]\nlisten = ['10.0.0.1:1']\nreaders = 't'\n{tls}\noperator_names = ['Ops.Example']"
            ))
        };
        assert!(of(TLS).unwrap_err().contains("certificates of clients cannot be verified"));
        let verified = "tls = { certificate_file = 'c', private_key_file = 'k', client_ca_file = 'a' }";
        assert_eq!(of(verified).unwrap().operator_names, ["ops.example"]);
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        for (text, said) in [
            ("[api]", "needs `listen`"),
            ("[api]\nlisten = []", "names no address"),
            ("[api]\nlisten = ['tcp:127.0.0.1:1']", "2:11: `listen`: `tcp:127.0.0.1:1` is no address"),
            ("[api]\nlisten = ['unix:a', 'unix:a']", "is listed twice"),
            ("[api]\nlisten = ['unix:a']\nreader = 'x'", "3:1: unknown key `reader`"),
            ("[api]\nlisten = ['unix:a']\ntls = {}", "needs `certificate_file`"),
            (&format!("[api]\nlisten = ['unix:a']\n{TLS}"), "warning: `tls` has no effect"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(said), "{text}: {error}");
        }
    }

    #[test]
    fn one_token_cannot_be_that_of_readers_and_of_operators() {
        let folder = tempfile::tempdir().unwrap();
        let [readers, operators] = ["readers", "operators"].map(|name| folder.path().join(name));
        let settings = ApiSettings {
            readers: Some(readers.clone()),
            operators: Some(operators.clone()),
            ..ApiSettings::default()
        };
        std::fs::write(&readers, "a-token-that-is-long-enough\n").unwrap();
        assert!(matches!(settings.credentials(), Err(CredentialsError::Token(TokenError::Read { .. }))));
        std::fs::write(&operators, "another-token-that-is-long").unwrap();
        settings.credentials().unwrap();
        std::fs::write(&operators, "a-token-that-is-long-enough").unwrap();
        assert!(matches!(settings.credentials(), Err(CredentialsError::SameToken { .. })));
    }
}
