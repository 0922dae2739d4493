//! `listen` and `tls`: where clients connect, how sockets are made, and what certificate is shown.

use std::net::SocketAddr;

use tidegate_config::{FindingList, PlacedValue, Section, TextOrTable};
use tidegate_gateway::{ListenConfig, ListenEndpoint, ServerFiles, SocketFile, TlsIdentity, TlsUse};

use super::accounts::{self, AccountKind};
use super::listen::{self, ListenAddress};
use super::{PathUse, ReadContext};

pub(super) const LISTEN_KEYS: &[&str] = tidegate_config::keys::serve::LISTEN.names;

pub(super) const TLS_KEYS: &[&str] = tidegate_config::keys::serve::TLS.names;

/// The keys that are about a socket's file.
const FILE_KEYS: &[&str] = &["mode", "owner", "group"];

/// Rights of owner, group and others. A socket has no use for anything else.
const MOST_MODE: u32 = 0o777;

/// The certificate that clients are shown, and the authorities of theirs.
pub(super) fn tls(root: &Section<'_>, context: &mut ReadContext<'_>) -> Option<PlacedValue<ServerFiles>> {
    let section = root.table("tls", TLS_KEYS, &mut context.report)?;
    let certificate = context.file(&section, "certificate_file", PathUse::Certificate);
    let private_key = context.file(&section, "private_key_file", PathUse::PrivateKey);
    let client_authorities = context.file(&section, "client_ca_file", PathUse::Authorities);
    for (key, example) in [("certificate_file", "\"server.pem\""), ("private_key_file", "\"server.key\"")] {
        if !section.has(key) {
            section.missing(key, example, &mut context.report);
        }
    }
    let identity = TlsIdentity { certificate: certificate?, private_key: private_key? };
    Some(PlacedValue { value: ServerFiles { identity, client_authorities }, span: section.span().clone() })
}

/// Reads the addresses at which clients connect. `tls` says whether there is a certificate to show.
pub(super) fn read(
    root: &Section<'_>,
    tls: bool,
    context: &mut ReadContext<'_>,
) -> Vec<PlacedValue<ListenConfig>> {
    if !root.has("listen") {
        root.missing("listen", "[\"unix:/run/tidegate/nbd.sock\"]", &mut context.report);
    }
    let Some(items) = root.texts_and_tables("listen", LISTEN_KEYS, &mut context.report) else {
        return Vec::new();
    };
    if items.is_empty()
        && let Some(value) = root.value("listen")
    {
        context.report.error(&value.span(), "`listen` names no address: no client could connect");
    }
    let mut found: Vec<PlacedValue<ListenConfig>> = Vec::new();
    for item in items {
        let Some(listen) = one(&item, tls, context) else { continue };
        let endpoint = &listen.value.endpoint;
        let is_tcp = matches!(endpoint, ListenEndpoint::Tcp(_));
        if !is_tcp && found.iter().any(|other| other.value.endpoint == *endpoint) {
            context.report.error(&listen.span, format!("`{endpoint}` is listed twice"));
        }
        found.push(listen);
    }
    found
}

/// Returns an address with its port.
pub(super) fn tcp(given: &PlacedValue<ListenConfig>) -> Option<PlacedValue<SocketAddr>> {
    match given.value.endpoint {
        ListenEndpoint::Tcp(value) => Some(PlacedValue { value, span: given.span.clone() }),
        ListenEndpoint::Unix(_) => None,
    }
}

fn one(
    item: &TextOrTable<'_>,
    tls: bool,
    context: &mut ReadContext<'_>,
) -> Option<PlacedValue<ListenConfig>> {
    let section = match item {
        TextOrTable::Text(given) => {
            let endpoint = endpoint(given, context)?;
            let config = ListenConfig { tls: usual_tls(&endpoint, tls), ..ListenConfig::from(endpoint) };
            return Some(PlacedValue { value: config, span: given.span.clone() });
        }
        TextOrTable::Table(section) => section,
    };
    if !section.has("address") {
        section.missing("address", "\"tcp:0.0.0.0:10809\"", &mut context.report);
    }
    let given = section.text("address", &mut context.report);
    let endpoint = given.and_then(|given| endpoint(&given, context));
    let report = &mut context.report;
    let uses = [("off", TlsUse::Off), ("offered", TlsUse::Offered), ("required", TlsUse::Required)];
    let wanted = section.choice("tls", &uses, report);
    if let Some(PlacedValue { value: TlsUse::Offered | TlsUse::Required, span }) = &wanted
        && !tls
    {
        let help = "add `tls = { certificate_file = \"server.pem\", private_key_file = \"server.key\" }`";
        report.error_with_help(span, "there is no certificate to show", help);
    }
    let file = file(section, endpoint.as_ref(), report);
    let endpoint = endpoint?;
    let tls = wanted.map_or_else(|| usual_tls(&endpoint, tls), |given| given.value);
    Some(PlacedValue { value: ListenConfig { endpoint, tls, file }, span: section.span().clone() })
}

fn endpoint(given: &PlacedValue<&str>, context: &mut ReadContext<'_>) -> Option<ListenEndpoint> {
    match given.value.parse() {
        Ok(ListenAddress(ListenEndpoint::Unix(path))) => {
            let path = context.folder.join(path);
            if let Err(problem) = listen::socket_path_fits(&path) {
                context.report.error(&given.span, problem);
            }
            context
                .touched
                .push(PathUse::Socket(PlacedValue { value: path.clone(), span: given.span.clone() }));
            Some(ListenEndpoint::Unix(path))
        }
        Ok(ListenAddress(tcp)) => Some(tcp),
        Err(error) => {
            context.report.error(&given.span, format!("`listen`: {error}"));
            None
        }
    }
}

/// Returns the default use of TLS. If there is a certificate, clients on this host may use TLS, and others
/// must.
fn usual_tls(endpoint: &ListenEndpoint, tls: bool) -> TlsUse {
    match endpoint {
        _ if !tls => TlsUse::Off,
        endpoint if is_local(endpoint) => TlsUse::Offered,
        _ => TlsUse::Required,
    }
}

/// Returns true if only clients on this host can connect there.
pub(super) fn is_local(endpoint: &ListenEndpoint) -> bool {
    match endpoint {
        ListenEndpoint::Unix(_) => true,
        ListenEndpoint::Tcp(address) => address.ip().to_canonical().is_loopback(),
    }
}

pub(super) fn file(
    section: &Section<'_>,
    endpoint: Option<&ListenEndpoint>,
    report: &mut FindingList<'_>,
) -> SocketFile {
    let mut file = SocketFile::default();
    if matches!(endpoint, Some(ListenEndpoint::Tcp(_))) {
        for span in FILE_KEYS.iter().filter_map(|key| section.key_span(key)) {
            report.error(&span, "only a Unix socket has a mode, an owner and a group");
        }
        return file;
    }
    if let Some(given) = section.text("mode", report) {
        match u32::from_str_radix(given.value, 8).ok().filter(|mode| *mode <= MOST_MODE) {
            Some(mode) => file.mode = mode,
            None => report.error(&given.span, "`mode` is an octal number in quotes, such as \"0660\""),
        }
    }
    file.owner = accounts::read(section, "owner", AccountKind::User, report);
    file.group = accounts::read(section, "group", AccountKind::Group, report);
    file
}
