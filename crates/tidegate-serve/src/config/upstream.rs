//! `backend = { kind = "nbd", … }` of a pool: another NBD server.

use std::num::NonZeroU16;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::str::FromStr;

use thiserror::Error;
use tidegate_config::{FindingList, PlacedValue, Section};
use tidegate_gateway::{
    BackendConfig, ClientFiles, ExportName, ExportStore, ListenConfig, ListenEndpoint, ReplayRule,
    ServerName, TlsError, TlsIdentity, UpstreamConfig,
};
use tidegate_units::{ConsumerName, Latency};

use super::listen::{self, ListenAddress};
use super::named_export::PlacedExport;
use super::{PathUse, ReadContext};

pub(super) const TLS_KEYS: &[&str] = tidegate_config::keys::pool::BACKEND_TLS.names;

/// Reads the parameters of a server. Nothing is asked of the server here: whether it is there shows when the
/// service starts, on the host where it starts.
pub(super) fn backend(section: &Section<'_>, context: &mut ReadContext<'_>) -> Option<BackendConfig> {
    let address = address(section, context);
    let report = &mut context.report;
    let most = u64::from(UpstreamConfig::MOST_CONNECTIONS);
    let connections = section.whole("connections", 1..=most, report);
    let reconnect = section.parsed::<Latency>("reconnect", report);
    let timeout = section.parsed::<Latency>("timeout", report);
    let replay = section.choice("replay", &[("reads", ReplayRule::Reads), ("all", ReplayRule::All)], report);
    if let Some(PlacedValue { value: Latency::ZERO, span }) = &timeout {
        report.error(span, "`timeout` must be more than nothing: no server answers in no time");
    }
    let tls = tls(section, address.as_ref(), context);
    let mut config = UpstreamConfig::new(address?);
    config.tls = tls;
    if let Some(connections) = connections.and_then(|given| NonZeroU16::new(given.value.try_into().ok()?)) {
        config.connections = connections;
    }
    if let Some(reconnect) = reconnect {
        config.reconnect = reconnect.value.to_duration();
    }
    if let Some(timeout) = timeout {
        config.timeout = timeout.value.to_duration();
    }
    if let Some(replay) = replay {
        config.replay = replay.value;
    }
    Some(BackendConfig::Nbd(config))
}

/// Reads the authorities to trust and the certificate to show, where the server is to be reached by TLS. The
/// files are looked at now, and read for every connection.
fn tls(
    section: &Section<'_>,
    address: Option<&ListenEndpoint>,
    context: &mut ReadContext<'_>,
) -> Option<ClientFiles> {
    let section = section.table("tls", TLS_KEYS, &mut context.report)?;
    if !section.has("ca_file") {
        section.missing("ca_file", "\"ca.pem\"", &mut context.report);
    }
    let authorities = context.file(&section, "ca_file", PathUse::Authorities);
    let certificate = context.file(&section, "certificate_file", PathUse::Certificate);
    let private_key = context.file(&section, "private_key_file", PathUse::PrivateKey);
    let identity = match (certificate, private_key) {
        (Some(certificate), Some(private_key)) => Some(TlsIdentity { certificate, private_key }),
        (None, None) => None,
        _ => {
            let message = "`certificate_file` and `private_key_file` go together";
            context.report.error(section.span(), message);
            None
        }
    };
    let server = section.parsed::<ServerName>("name", &mut context.report).map(|given| given.value);
    let server = match (server, address) {
        (Some(server), _) => Some(server),
        (None, Some(ListenEndpoint::Tcp(address))) => Some(address.ip().into()),
        (None, Some(ListenEndpoint::Unix(_))) if !section.has("name") => {
            section.missing("name", "\"nbd.example\"", &mut context.report);
            None
        }
        (None, _) => None,
    };
    let files = ClientFiles { authorities: authorities?, identity, server: server? };
    if context.reads
        && let Err(error @ TlsError::Pair { .. }) = files.load()
    {
        context.report.error(section.span(), error.to_string());
    }
    Some(files)
}

/// The address of a server, as it is written.
struct ServerAddress(ListenEndpoint);

/// The reason why a text is not such an address.
#[derive(Debug, Error)]
#[error(
    "`{0}` is not a server's address; write for example `tcp:10.0.0.1:10809` (an address, not a name) or \
        `unix:/run/x.sock`"
)]
struct AddressError(String);

impl FromStr for ServerAddress {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        // Servers and listeners are written alike.
        text.parse()
            .map(|ListenAddress(endpoint)| Self(endpoint))
            .map_err(|_| AddressError(text.escape_debug().to_string()))
    }
}

fn address(section: &Section<'_>, context: &mut ReadContext<'_>) -> Option<ListenEndpoint> {
    if !section.has("address") {
        section.missing("address", "\"tcp:10.0.0.1:10809\"", &mut context.report);
        return None;
    }
    let PlacedValue { value: ServerAddress(endpoint), span } =
        section.parsed("address", &mut context.report)?;
    match endpoint {
        ListenEndpoint::Unix(path) => {
            let path = context.folder.join(path);
            if let Err(problem) = listen::socket_path_fits(&path) {
                context.report.error(&span, problem);
            }
            Some(ListenEndpoint::Unix(path))
        }
        ListenEndpoint::Tcp(address) if address.port() == 0 => {
            context.report.error(&span, "`address` needs the server's port; that of NBD is 10809");
            None
        }
        ListenEndpoint::Tcp(address) if address.ip().is_unspecified() => {
            context
                .report
                .error(&span, "`address` must be the server's, this stands for every address of a host");
            None
        }
        tcp @ ListenEndpoint::Tcp(_) => Some(tcp),
    }
}

/// The name of an export at the server: its own, where no other is given.
pub(super) fn store(
    section: &Section<'_>,
    name: Option<&ConsumerName>,
    context: &mut ReadContext<'_>,
) -> Option<ExportStore> {
    let Some(given) = section.text("upstream", &mut context.report) else {
        // What is there and no text is reported already.
        let own = name.filter(|_| !section.has("upstream"))?;
        return ExportName::new(own.as_str()).ok().map(ExportStore::Upstream);
    };
    match ExportName::new(given.value) {
        Ok(name) => Some(ExportStore::Upstream(name)),
        Err(error) => {
            context.report.error(&given.span, format!("`upstream`: {error}"));
            None
        }
    }
}

/// Advice for two exports of one volume.
pub(super) const ONE_VOLUME: &str = "clients that do not know of each other destroy each other's data: \
     make both `read_only`, or write `shared_volume = true` in both if the clients know of each other";

/// Reports exports that are the same one at the same server, or at this gateway, unless both only read or both
/// share it. With `reads`, paths of sockets are looked at.
pub(super) fn report_same(
    exports: &[PlacedExport],
    listen: &[PlacedValue<ListenConfig>],
    reads: bool,
    report: &mut FindingList<'_>,
) {
    let is_own = |address: &ListenEndpoint| {
        listen.iter().any(|listen| reaches(address, &listen.value.endpoint.canonical(), reads))
    };
    for (at, PlacedExport { address, export }) in exports.iter().enumerate() {
        let (ExportStore::Upstream(name), Some(address)) = (&export.config.store, address) else { continue };
        let excludes = |other: &PlacedExport| {
            let (one, two) = (&export.config, &other.export.config);
            !(one.read_only && two.read_only || one.shared_volume && two.shared_volume)
        };
        let is_same = |other: &&PlacedExport| {
            let server = other.address.as_ref().is_some_and(|other| reaches(address, other, reads));
            server && export.config.store == other.export.config.store && excludes(other)
        };
        let is_its_upstream = |other: &&PlacedExport| {
            other.export.config.served_name() == *name && other.export.config.name != export.config.name
        };
        let shown = name.as_str().escape_debug();
        let problem = if exports[..at].iter().any(|other| is_same(&other)) {
            format!("upstream export `{shown}` is another export's volume, too")
        } else if is_own(address) && exports.iter().any(|other| is_its_upstream(&other) && excludes(other)) {
            format!(
                "upstream export `{shown}` is an export of this gateway, whose clients have its volume, too"
            )
        } else {
            continue;
        };
        report.error_with_help(&export.name.span, problem, ONE_VOLUME);
    }
}

/// Returns true if connections to an address come to the server at another one.
fn reaches(address: &ListenEndpoint, server: &ListenEndpoint, reads: bool) -> bool {
    match (address, server) {
        (ListenEndpoint::Tcp(address), ListenEndpoint::Tcp(server)) => {
            // Servers of this host listen at all of its loopback addresses, or nearly so: two exports that are
            // taken for one can say `shared_volume`.
            let is_here =
                address.ip().is_loopback() && (server.ip().is_loopback() || server.ip().is_unspecified());
            address == server || (address.port() == server.port() && is_here)
        }
        (ListenEndpoint::Unix(address), ListenEndpoint::Unix(server)) => {
            let socket = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
            address == server || (reads && socket(address).is_some_and(|own| Some(own) == socket(server)))
        }
        _ => false,
    }
}
