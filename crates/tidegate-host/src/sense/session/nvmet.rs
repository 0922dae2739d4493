//! The kernel's NVMe target over TCP, as configfs shows it (drivers/nvme/target/configfs.c), and debugfs
//! where the kernel has it there (6.11, drivers/nvme/target/debugfs.c):
//!
//! ```text
//! config/nvmet/ports/<n>/{addr_trtype,addr_traddr,addr_trsvcid}
//!                       /subsystems/<subsystem> → subsystems/<subsystem>
//! config/nvmet/subsystems/<subsystem>/attr_allow_any_host, /allowed_hosts/<host>
//!                                    /namespaces/<n>/{enable,device_path}
//! debug/nvmet/<subsystem>/ctrl<n>/{hostnqn,host_traddr,state}
//! ```
//!
//! configfs does not say which hosts are connected. Without debugfs there is the socket table: a host
//! connected to a port uses one of the subsystems there, and where there is only one, that one. A host that
//! only looks at the discovery service is among them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::sockets::{self, TcpSockets};
use super::{
    AddressDoubt, DoubtReason, TargetAbsence, TargetFinding, TargetKind, TargetSession, VolumeBacking,
    consumer_name, distinct,
};
use crate::device::DeviceNumber;
use crate::root::{ReadError, SystemRoot};
use crate::sense::tree;
use crate::sense::volume::VolumeTree;

const CONFIG: &str = "/sys/kernel/config";
const NVMET: &str = "/sys/kernel/config/nvmet";
const DEBUG: &str = "/sys/kernel/debug/nvmet";

/// Every session of every subsystem.
pub(super) fn sessions(root: &SystemRoot) -> Result<TargetFinding, ReadError> {
    if tree::list(root, CONFIG)?.is_none_or(|config| config.directories.is_empty()) {
        return Ok(TargetFinding::Absent(TargetAbsence::NoConfigfs));
    }
    if tree::list(root, NVMET)?.is_none() {
        return Ok(TargetFinding::Absent(TargetAbsence::NoModule("nvmet")));
    }
    let ports = ports(root)?;
    let mut subsystems = Vec::new();
    for name in tree::list(root, format!("{NVMET}/subsystems"))?.unwrap_or_default().directories {
        subsystems.push(subsystem(root, name, &ports)?);
    }
    if subsystems.is_empty() {
        return Ok(TargetFinding::Absent(TargetAbsence::NotConfigured));
    }
    resolve_devices(root, &mut subsystems)?;
    let mut found = Vec::new();
    if tree::exists(root, DEBUG) {
        for subsystem in &subsystems {
            for (host, addresses) in controllers(root, &subsystem.name)? {
                subsystem.add(&host, &addresses, None, &mut found);
            }
        }
    } else if subsystems.iter().any(|subsystem| !subsystem.portals.is_empty()) {
        by_sockets(&subsystems, &TcpSockets::read(root)?, &mut found);
    }
    Ok(TargetFinding::Sessions(found))
}

/// A port over TCP.
struct Port {
    portal: SocketAddr,
    subsystems: Vec<String>,
}

struct Subsystem {
    name: Arc<str>,
    /// The hosts that may connect; `None` for any.
    hosts: Option<Vec<String>>,
    namespaces: Vec<(Arc<VolumeBacking>, Option<DeviceNumber>)>,
    portals: Vec<SocketAddr>,
}

impl Subsystem {
    fn add(
        &self,
        host: &str,
        addresses: &[IpAddr],
        doubt: Option<&Arc<AddressDoubt>>,
        found: &mut Vec<TargetSession>,
    ) {
        for (volume, device) in &self.namespaces {
            found.push(TargetSession {
                via: TargetKind::Nvme,
                consumer: consumer_name(host),
                target: Arc::clone(&self.name),
                volume: Arc::clone(volume),
                device: *device,
                addresses: addresses.to_vec(),
                doubt: doubt.cloned(),
                counters: None,
            });
        }
    }
}

fn ports(root: &SystemRoot) -> Result<Vec<Port>, ReadError> {
    let mut ports = Vec::new();
    let all = Path::new(NVMET).join("ports");
    for name in tree::list(root, &all)?.unwrap_or_default().directories {
        let at = all.join(name);
        if word(root, &at.join("addr_trtype"))?.as_deref() != Some("tcp") {
            continue;
        }
        let file = at.join("addr_traddr");
        let (Some(address), Some(service)) = (word(root, &file)?, word(root, &at.join("addr_trsvcid"))?)
        else {
            continue;
        };
        let bracketed = if address.contains(':') { format!("[{address}]") } else { address.clone() };
        let portal = sockets::portal(&format!("{bracketed}:{service}")).ok_or_else(|| {
            let problem = format!(
                "expected an IP address (and in addr_trsvcid a port), not `{}`",
                tree::shown(&address)
            );
            tree::malformed(root, &file, 1, problem)
        })?;
        let subsystems = tree::list(root, at.join("subsystems"))?.unwrap_or_default().links;
        ports.push(Port { portal, subsystems });
    }
    Ok(ports)
}

fn subsystem(root: &SystemRoot, name: String, ports: &[Port]) -> Result<Subsystem, ReadError> {
    let at = Path::new(NVMET).join("subsystems").join(&name);
    let any = word(root, &at.join("attr_allow_any_host"))?.as_deref() == Some("1");
    let hosts =
        if any { None } else { Some(tree::list(root, at.join("allowed_hosts"))?.unwrap_or_default().links) };
    let mut namespaces = Vec::new();
    for number in tree::list(root, at.join("namespaces"))?.unwrap_or_default().directories {
        let namespace = at.join("namespaces").join(&number);
        if word(root, &namespace.join("enable"))?.as_deref() != Some("1") {
            continue;
        }
        let path = word(root, &namespace.join("device_path"))?.map(PathBuf::from);
        namespaces.push((Arc::new(VolumeBacking { name: number, path }), None));
    }
    let portals =
        ports.iter().filter(|port| port.subsystems.contains(&name)).map(|port| port.portal).collect();
    Ok(Subsystem { name: name.into(), hosts, namespaces, portals })
}

/// Finds the devices of the configured paths.
fn resolve_devices(root: &SystemRoot, subsystems: &mut [Subsystem]) -> Result<(), ReadError> {
    if subsystems.iter().all(|subsystem| subsystem.namespaces.is_empty()) {
        return Ok(());
    }
    let volumes = VolumeTree::read(root)?;
    for (volume, device) in subsystems.iter_mut().flat_map(|subsystem| &mut subsystem.namespaces) {
        *device = volume.path.as_deref().and_then(|path| volumes.find_path(root, path));
    }
    Ok(())
}

/// The hosts that debugfs says are connected to a subsystem, with their addresses. A host has a controller
/// for each path.
fn controllers(root: &SystemRoot, subsystem: &str) -> Result<BTreeMap<String, Vec<IpAddr>>, ReadError> {
    let mut hosts: BTreeMap<String, Vec<IpAddr>> = BTreeMap::new();
    let at = Path::new(DEBUG).join(subsystem);
    for name in tree::list(root, &at)?.unwrap_or_default().directories {
        let Some(host) = word(root, &at.join(&name).join("hostnqn"))? else { continue };
        let file = at.join(&name).join("host_traddr");
        let Some(text) = word(root, &file)? else { continue };
        // Empty while the host's connection is being made or has gone.
        let address = match text.as_str() {
            "" => None,
            text => Some(address(text).ok_or_else(|| {
                tree::malformed(
                    root,
                    &file,
                    1,
                    format!("expected an IP address, not `{}`", tree::shown(text)),
                )
            })?),
        };
        hosts.entry(host).or_default().extend(address);
    }
    for addresses in hosts.values_mut() {
        *addresses = distinct(std::mem::take(addresses));
    }
    Ok(hosts)
}

/// `10.0.0.11`, `fd00::11`, also with a port as the kernel writes socket addresses elsewhere.
fn address(text: &str) -> Option<IpAddr> {
    text.parse().ok().or_else(|| Some(text.parse::<SocketAddr>().ok()?.ip()))
}

/// Adds the sessions that the socket table tells of.
fn by_sockets(subsystems: &[Subsystem], sockets: &TcpSockets, found: &mut Vec<TargetSession>) {
    // The hosts connected to each portal.
    let mut peers: BTreeMap<SocketAddr, BTreeSet<IpAddr>> = BTreeMap::new();
    for portal in subsystems.iter().flat_map(|subsystem| &subsystem.portals) {
        let connected = sockets.established.iter().filter(|one| one.is_to(*portal)).map(|one| one.peer.ip());
        peers.entry(*portal).or_insert_with(|| connected.collect());
    }
    let shared = |portal: &SocketAddr| {
        subsystems.iter().filter(|subsystem| subsystem.portals.contains(portal)).count() > 1
    };
    for subsystem in subsystems {
        let connected = |wanted: bool| -> Vec<IpAddr> {
            let portals = subsystem.portals.iter().filter(|portal| shared(portal) == wanted);
            distinct(portals.filter_map(|portal| peers.get(portal)).flatten().copied())
        };
        let certain = connected(false);
        let mut candidates = connected(true);
        candidates.retain(|address| !certain.contains(address));
        let doubt =
            |candidates: Vec<IpAddr>| Arc::new(AddressDoubt { why: DoubtReason::NotSaid, candidates });
        if let Some([host]) = subsystem.hosts.as_deref() {
            // No other thread may use it.
            if !certain.is_empty() || !candidates.is_empty() {
                let doubt = (!candidates.is_empty()).then(|| doubt(candidates));
                subsystem.add(host, &certain, doubt.as_ref(), found);
            }
            continue;
        }
        for address in certain {
            subsystem.add(&address.to_string(), &[address], None, found);
        }
        for address in candidates {
            subsystem.add(&address.to_string(), &[], Some(&doubt(vec![address])), found);
        }
    }
}

/// The one line of a file.
fn word(root: &SystemRoot, file: &Path) -> Result<Option<String>, ReadError> {
    Ok(tree::text(root, file)?.map(|text| text.trim_end().to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sense::session::captured::{sessions_in, tree};
    use crate::trees;

    const CAPTURED: &str = include_str!("../../../tests/fixtures/nvmet.tree");
    const HOST: &str = "nqn.2014-08.org.nvmexpress:uuid:11111111-1111-1111-1111-111111111111";

    fn read(root: &SystemRoot) -> Vec<TargetSession> {
        sessions_in(sessions(root))
    }

    /// Target, consumer, device, addresses, candidates.
    fn summary(sessions: &[TargetSession]) -> Vec<String> {
        let list =
            |addresses: &[IpAddr]| addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
        sessions
            .iter()
            .map(|session| {
                let device = session.device.map_or_else(|| "-".to_owned(), |device| device.to_string());
                let candidates =
                    session.doubt.as_ref().map_or_else(String::new, |doubt| list(&doubt.candidates));
                let target = session.target.rsplit(':').next().unwrap();
                let consumer = session.consumer.as_str().replace(HOST, "HOST");
                format!("{target} {consumer} {device} [{}] [{candidates}]", list(&session.addresses))
            })
            .collect()
    }

    #[test]
    fn a_captured_target_whose_subsystems_share_a_port_leaves_doubt() {
        let (_tree, root) = tree(&[CAPTURED]);
        assert_eq!(
            summary(&read(&root)),
            [
                "volume1 HOST 254:2 [] [10.0.0.11,10.0.0.12]",
                "volume2 10.0.0.11 254:3 [] [10.0.0.11]",
                "volume2 10.0.0.12 254:3 [] [10.0.0.12]",
            ]
        );
    }

    #[test]
    fn a_subsystem_with_a_port_of_its_own_has_who_is_connected_there() {
        let (tree, root) = tree(&[CAPTURED]);
        let link = "sys/kernel/config/nvmet/ports/1/subsystems/nqn.2026-01.lab:volume1";
        std::fs::remove_file(tree.path().join(link)).unwrap();
        assert_eq!(
            summary(&read(&root)),
            ["volume2 10.0.0.11 254:3 [10.0.0.11] []", "volume2 10.0.0.12 254:3 [10.0.0.12] []"]
        );
    }

    #[test]
    fn debugfs_says_who_is_connected() {
        let control = |subsystem: &str, number: u32, host: &str, address: &str| {
            let at = format!("sys/kernel/debug/nvmet/nqn.2026-01.lab:{subsystem}/ctrl{number}");
            format!("{at}/hostnqn\n  {host}\\c\n{at}/host_traddr\n  {address}\n{at}/state\n  ready\n")
        };
        let controls = [
            control("volume1", 1, HOST, "10.0.0.11"),
            control("volume1", 3, HOST, "fd00::11"),
            control("volume2", 2, "nqn.other", "10.0.0.12"),
            control("volume2", 4, "nqn.gone", ""),
        ]
        .concat();
        let (_tree, root) = tree(&[CAPTURED, &controls]);
        assert_eq!(
            summary(&read(&root)),
            [
                "volume1 HOST 254:2 [10.0.0.11,fd00::11] []",
                "volume2 nqn.gone 254:3 [] []",
                "volume2 nqn.other 254:3 [10.0.0.12] []",
            ]
        );
        let (_tree, root) = tree(&[CAPTURED, &control("volume1", 1, HOST, "somewhere")]);
        let error = sessions(&root).unwrap_err().to_string();
        assert!(error.ends_with("ctrl1/host_traddr:1: expected an IP address, not `somewhere`"), "{error}");
    }

    #[test]
    fn what_is_not_there_is_no_error() {
        for (text, absence) in [
            ("", TargetAbsence::NoConfigfs),
            ("sys/kernel/config/target/\n", TargetAbsence::NoModule("nvmet")),
            ("sys/kernel/config/nvmet/subsystems/\n", TargetAbsence::NotConfigured),
        ] {
            let (_tree, root) = tree(&[text]);
            assert_eq!(sessions(&root).unwrap(), TargetFinding::Absent(absence));
        }
    }

    #[test]
    fn a_malformed_address_of_a_port_is_named() {
        let (tree, root) = tree(&[CAPTURED]);
        let file = "sys/kernel/config/nvmet/ports/1/addr_traddr";
        trees::write_file(tree.path(), file, b"10.0.0\n").unwrap();
        let error = sessions(&root).unwrap_err().to_string();
        assert!(error.contains("ports/1/addr_traddr:1: expected an IP address"), "{error}");
    }

    #[test]
    fn disabled_namespaces_and_other_transports_do_not_count() {
        for (file, content) in [
            ("subsystems/nqn.2026-01.lab:volume1/namespaces/1/enable", "0\n"),
            ("ports/1/addr_trtype", "rdma\n"),
        ] {
            let (tree, root) = tree(&[CAPTURED]);
            let path = format!("sys/kernel/config/nvmet/{file}");
            std::fs::write(tree.path().join(path), content).unwrap();
            assert!(read(&root).iter().all(|session| !session.target.ends_with("volume1")), "{file}");
        }
    }
}
