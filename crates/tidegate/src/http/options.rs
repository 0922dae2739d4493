//! The options by which commands find a service and show it who asks.

use std::env;
use std::fs;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Once;

use rustix::fs::{Access, AtFlags, CWD, accessat};
use rustix::process::geteuid;
use tidegate_agent::is_agents;
use tidegate_http::{BearerToken, ListenAddress};
use tidegate_service::config::{ServiceAddresses, service_addresses};
use tidegate_service::operator_socket;
use tidegate_service::status::ServiceKind;
use tidegate_tls::{ClientFiles, TlsIdentity};
use tidegate_transfer::config::is_brokers;

use super::address::ServiceAddress;
use super::error::{ServiceError, USUAL};
use super::{Endpoint, ServiceClient};
use crate::failure::CommandFailure;
use crate::out;

/// The sockets of the services that the packages install.
const PACKAGED: [&str; 2] = ["/run/tidegate/serve.sock", "/run/tidegate-agent/agent.sock"];

/// The authorities that the system trusts.
const SYSTEM_AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// A running service.
#[derive(Debug, clap::Args)]
pub(crate) struct ServiceOptions {
    /// The service's configuration, which says where it answers: through its Unix socket if it has one
    #[arg(short, long, value_name = "FILE", conflicts_with = "url")]
    config: Option<PathBuf>,

    /// Address of the service: http://HOST:PORT, https://HOST:PORT or unix:PATH [default: TIDEGATE_URL, or the
    /// sockets of this machine's services, or http://127.0.0.1:9809]
    #[arg(long, value_name = "URL")]
    url: Option<String>,

    #[command(flatten)]
    caller: CallerOptions,
}

/// The credentials of a caller.
#[derive(Debug, clap::Args)]
pub(crate) struct CallerOptions {
    /// File with the token of a caller [default: TIDEGATE_TOKEN_FILE]
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// With https: authorities one of which must have signed the service's certificate, in PEM form
    /// [default: those that the system trusts]
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,

    /// With https: the caller's certificate, in PEM form
    #[arg(long, value_name = "FILE", requires = "private_key")]
    certificate: Option<PathBuf>,

    /// With https: the private key of the caller's certificate
    #[arg(long, value_name = "FILE", requires = "certificate")]
    private_key: Option<PathBuf>,
}

impl ServiceOptions {
    /// Makes a client of the service that the options mean, or of the first one of this machine.
    pub(crate) fn client(&self) -> Result<ServiceClient, CommandFailure> {
        match self.named()? {
            Some(client) => Ok(client),
            None => {
                let addresses = sockets().chain([ServiceAddress::Http(USUAL.to_owned())]);
                self.caller.client_at(addresses.collect(), false)
            }
        }
    }

    /// Makes a client of the service that the options mean, or of each one of this machine.
    pub(crate) fn clients(&self) -> Result<Vec<ServiceClient>, CommandFailure> {
        match self.named()? {
            Some(client) => Ok(vec![client]),
            None => self.caller.clients_of_machine(),
        }
    }

    /// Makes a client of the service that options or the environment name.
    pub(crate) fn named(&self) -> Result<Option<ServiceClient>, CommandFailure> {
        let client = match (&self.config, self.url.clone().or_else(url_of_environment)) {
            (Some(path), _) => self.caller.client_of(path),
            (None, Some(url)) => self.caller.client(&url),
            (None, None) => return Ok(None),
        };
        client.map(Some)
    }
}

impl CallerOptions {
    /// Makes a client of the service at this address.
    pub(crate) fn client(&self, url: &str) -> Result<ServiceClient, CommandFailure> {
        self.client_at(vec![url.parse().map_err(usage)?], true)
    }

    /// Makes a client of the service with this configuration, which names the service's addresses.
    pub(crate) fn client_of(&self, config: &Path) -> Result<ServiceClient, CommandFailure> {
        self.client_at(configured(config)?, true)
    }

    /// Makes a client of each service of this machine that has an operator's socket. None has: one of the
    /// address that every example has.
    pub(crate) fn clients_of_machine(&self) -> Result<Vec<ServiceClient>, CommandFailure> {
        let mut addresses: Vec<_> = sockets().collect();
        if addresses.is_empty() {
            addresses.push(ServiceAddress::Http(USUAL.to_owned()));
        }
        addresses.into_iter().map(|address| self.client_at(vec![address], false)).collect()
    }

    /// Makes a client of each service of this machine that a reader may watch: at its operator's socket. For
    /// the sockets that this user may not open there is one client, which asks the address that every example
    /// has.
    pub(crate) fn watchers_of_machine(&self) -> Result<Vec<ServiceClient>, CommandFailure> {
        let may_open = |socket: &Path| accessat(CWD, socket, Access::WRITE_OK, AtFlags::EACCESS).is_ok();
        let sockets = operator_socket::all().into_iter().map(|socket| (may_open(&socket), socket));
        watched(sockets).into_iter().map(|addresses| self.client_at(addresses, false)).collect()
    }

    /// Makes a client of the service at these addresses, which the caller named or which are found.
    fn client_at(
        &self,
        addresses: Vec<ServiceAddress>,
        is_named: bool,
    ) -> Result<ServiceClient, CommandFailure> {
        let from_environment =
            env::var_os("TIDEGATE_TOKEN_FILE").filter(|file| !file.is_empty()).map(PathBuf::from);
        // Through a socket of this machine root is an operator without a token, and a token decides alone.
        let needs_none = geteuid().is_root() && matches!(addresses.first(), Some(ServiceAddress::Unix(_)));
        let file = self.token_file.clone().or_else(|| from_environment.filter(|_| !needs_none));
        let token = file.as_deref().map(token_of).transpose()?;
        let endpoints = addresses.into_iter().map(|address| self.endpoint(address, is_named));
        Ok(ServiceClient::new(endpoints.collect::<Result<_, _>>()?, token))
    }

    fn endpoint(&self, address: ServiceAddress, is_named: bool) -> Result<Endpoint, CommandFailure> {
        let Some(server) = address.server() else { return Ok(Endpoint { address, tls: None, is_named }) };
        let identity = self.certificate.clone().zip(self.private_key.clone());
        let files = ClientFiles {
            authorities: self.ca.clone().unwrap_or_else(|| SYSTEM_AUTHORITIES.into()),
            identity: identity.map(|(certificate, private_key)| TlsIdentity { certificate, private_key }),
            server: server.parse().map_err(usage)?,
        };
        let tls = Some(files.load().map_err(|error| {
            CommandFailure::Usage(format!("{error}; name the authorities of the service with `--ca FILE`"))
        })?);
        Ok(Endpoint { address, tls, is_named })
    }
}

/// Returns the addresses of each client that watches services with these sockets, which the user may open or
/// not. An address is asked if those before it could not be reached. The error is about the first one.
fn watched(sockets: impl Iterator<Item = (bool, PathBuf)>) -> Vec<Vec<ServiceAddress>> {
    let (open, closed): (Vec<_>, Vec<_>) = sockets.partition(|(may_open, _)| *may_open);
    let unix = |(_, socket): (bool, PathBuf)| ServiceAddress::Unix(socket);
    let mut clients: Vec<_> = open.into_iter().map(|socket| vec![unix(socket)]).collect();
    if clients.is_empty() || !closed.is_empty() {
        let usual = ServiceAddress::Http(USUAL.to_owned());
        clients.push(closed.into_iter().map(unix).chain([usual]).collect());
    }
    clients
}

/// Reads the token of a caller. The first file that is open to others is warned of.
pub(crate) fn token_of(file: &Path) -> Result<BearerToken, CommandFailure> {
    static WARNED: Once = Once::new();
    let (token, warning) = BearerToken::read(file).map_err(usage)?;
    if let Some(warning) = warning {
        WARNED.call_once(|| {
            // Without stderr the warning has no reader.
            let _ = writeln!(out::stderr(), "tidegate: warning: {warning}");
        });
    }
    Ok(token)
}

/// Returns the address that the environment names.
pub(crate) fn url_of_environment() -> Option<String> {
    env::var("TIDEGATE_URL").ok().filter(|url| !url.is_empty())
}

fn usage(error: impl std::fmt::Display) -> CommandFailure {
    CommandFailure::Usage(error.to_string())
}

/// The operators' sockets of this machine's services.
fn sockets() -> impl Iterator<Item = ServiceAddress> {
    operator_socket::all().into_iter().map(ServiceAddress::Unix)
}

/// The addresses of a service with this configuration, the best first: at sockets and loopback addresses a
/// reader needs no token.
fn configured(path: &Path) -> Result<Vec<ServiceAddress>, CommandFailure> {
    let text = fs::read_to_string(path).unwrap_or_default();
    if is_brokers(&text) {
        return Err(ServiceError::Broker(path.to_owned()).into());
    }
    let ServiceAddresses { api, metrics } = service_addresses(path)?;
    let is_agents = is_agents(&text);
    let kind = if is_agents { ServiceKind::Agent } else { ServiceKind::Serve };
    let own = operator_socket::expected(kind, path);
    // A service that systemd started has it.
    let packaged = PathBuf::from(PACKAGED[usize::from(is_agents)]);
    let packaged = Some(packaged).filter(|socket| api.is_none() && !own.exists() && socket.exists());
    let api = api.unwrap_or_default();
    let metrics = metrics.map(ListenAddress::Tcp);
    let (near, far): (Vec<_>, Vec<_>) = api.into_iter().partition(ListenAddress::is_local);
    let (sockets, loopback): (Vec<_>, Vec<_>) =
        near.into_iter().partition(|address| matches!(address, ListenAddress::Unix(_)));
    let sockets = sockets.into_iter().chain(packaged.map(ListenAddress::Unix));
    let own = [ListenAddress::Unix(own)];
    let plain = own.into_iter().chain(sockets).chain(loopback).chain(metrics).map(|address| (address, false));
    let all = plain.chain(far.into_iter().map(|address| (address, true)));
    Ok(all.filter_map(|(address, encrypted)| reachable(address, encrypted)).collect())
}

/// Returns the address to ask: this machine's own for a service that listens on all addresses. `None`: the
/// port is not known.
fn reachable(address: ListenAddress, encrypted: bool) -> Option<ServiceAddress> {
    let address = match address {
        ListenAddress::Unix(path) => return Some(ServiceAddress::Unix(path)),
        ListenAddress::Tcp(address) if address.port() == 0 => return None,
        ListenAddress::Tcp(address) => address,
    };
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    let authority = SocketAddr::new(ip, address.port()).to_string();
    Some(if encrypted { ServiceAddress::Https(authority) } else { ServiceAddress::Http(authority) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_that_listens_everywhere_is_asked_here() {
        for (listens, asked) in [
            ("0.0.0.0:1", "http://127.0.0.1:1"),
            ("[::]:1", "http://[::1]:1"),
            ("10.0.0.1:1", "http://10.0.0.1:1"),
        ] {
            assert_eq!(reachable(listens.parse().unwrap(), false).unwrap().to_string(), asked);
        }
    }

    #[test]
    fn where_sockets_may_not_be_opened_the_usual_address_is_asked() {
        let clients = |sockets: &[(bool, &str)]| {
            let sockets = sockets.iter().map(|(may_open, path)| (*may_open, PathBuf::from(path)));
            let clients = watched(sockets).into_iter();
            let shown = clients.map(|one| one.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "));
            shown.collect::<Vec<_>>()
        };
        let usual = format!("http://{USUAL}");
        assert_eq!(clients(&[]), [usual.as_str()]);
        assert_eq!(clients(&[(true, "/a"), (true, "/b")]), ["unix:/a", "unix:/b"]);
        assert_eq!(
            clients(&[(false, "/a"), (true, "/b")]),
            ["unix:/b".to_owned(), format!("unix:/a {usual}")]
        );
        assert_eq!(clients(&[(false, "/a"), (false, "/b")]), [format!("unix:/a unix:/b {usual}")]);
    }

    #[test]
    fn the_socket_is_asked_before_anything_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.toml");
        let text = "metrics = '127.0.0.1:1'\n[api]\n\
                    listen = ['10.0.0.1:2', '127.0.0.1:3', '[::1]:0', 'unix:s']\n\
                    readers = 'r'\ntls = { certificate_file = 'c', private_key_file = 'k' }\n";
        fs::write(&path, text).unwrap();
        let shown: Vec<_> = configured(&path).unwrap().iter().map(ToString::to_string).collect();
        let sockets = [operator_socket::expected(ServiceKind::Serve, &path), folder.path().join("s")];
        let sockets = sockets.map(|socket| format!("unix:{}", socket.display()));
        let others = ["http://127.0.0.1:3", "http://127.0.0.1:1", "https://10.0.0.1:2"];
        assert_eq!(shown, [&sockets[..], &others.map(str::to_owned)].concat());
    }
}
