//! The kernel's NFS server (fs/nfsd/nfs4state.c `client_info_show`, `states_show`; fs/nfsd/export.c):
//!
//! ```text
//! /proc/fs/nfsd/clients/<n>/info     name and address of a client of NFSv4
//!                          /states   what it has open, on which file system (5.3)
//!              /exports              what has been exported to whom, as far as it was asked for
//!              /versions, /portlist
//! ```
//!
//! A client of NFSv4 loads the devices that it has files open on. NFSv3 has no clients, as far as the server
//! knows: a connected host that is no client of NFSv4 may use any export that is for it.

mod text;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use self::text::{NfsClient, NfsExport};
use super::sockets::TcpSockets;
use super::{
    AddressDoubt, DoubtReason, TargetAbsence, TargetFinding, TargetKind, TargetSession, VolumeBacking,
    consumer_name,
};
use crate::device::DeviceNumber;
use crate::root::{ReadError, SystemRoot};
use crate::sense::mounts::MountTable;
use crate::sense::tree;

const NFSD: &str = "/proc/fs/nfsd";

/// Every client's use of every device.
pub(super) fn sessions(root: &SystemRoot) -> Result<TargetFinding, ReadError> {
    if !tree::exists(root, NFSD) {
        return Ok(TargetFinding::Absent(TargetAbsence::NoModule("nfsd")));
    }
    let at = Path::new(NFSD);
    let Some(exports) = tree::text(root, at.join("exports"))? else {
        return Ok(TargetFinding::Absent(TargetAbsence::NotConfigured));
    };
    let exports = text::exports(&exports);
    let mounts = MountTable::read(root)?;
    let mut reader =
        NfsdReader { mounts: &mounts, exports: &exports, volumes: BTreeMap::new(), sessions: Vec::new() };
    let mut known = BTreeSet::new();
    for name in tree::list(root, at.join("clients"))?.unwrap_or_default().directories {
        let file = at.join("clients").join(&name).join("info");
        let Some(text) = tree::text(root, &file)? else { continue };
        let client =
            text::client(&text).map_err(|(line, problem)| tree::malformed(root, &file, line, problem))?;
        known.extend(client.address);
        let states = tree::text(root, at.join("clients").join(&name).join("states"))?.unwrap_or_default();
        reader.client(&client, &text::file_systems(&states));
    }
    let versions = tree::text(root, at.join("versions"))?.unwrap_or_default();
    if versions.split_whitespace().any(|version| version == "+3") {
        let ports = text::tcp_ports(&tree::text(root, at.join("portlist"))?.unwrap_or_default());
        let sockets = TcpSockets::read(root)?;
        let peers: BTreeSet<IpAddr> = sockets
            .established
            .iter()
            .filter(|one| ports.contains(&one.local.port()))
            .map(|one| one.peer.ip())
            .filter(|peer| !known.contains(peer))
            .collect();
        for peer in peers {
            reader.peer(peer);
        }
    }
    reader.sessions.sort_by(|a, b| (&a.target, &a.consumer).cmp(&(&b.target, &b.consumer)));
    Ok(TargetFinding::Sessions(reader.sessions))
}

struct NfsdReader<'a> {
    mounts: &'a MountTable,
    exports: &'a [NfsExport],
    /// The file systems seen so far: their names and places.
    volumes: BTreeMap<DeviceNumber, Exported>,
    sessions: Vec<TargetSession>,
}

/// A file system's name, what is behind it, and where.
type Exported = (Arc<str>, Arc<VolumeBacking>, Option<DeviceNumber>);

impl NfsdReader<'_> {
    /// A client of NFSv4 and the file systems that it has files open on.
    fn client(&mut self, client: &NfsClient, file_systems: &BTreeSet<DeviceNumber>) {
        for file_system in file_systems {
            let (target, volume, device) = self.volume(*file_system);
            self.sessions.push(TargetSession {
                via: TargetKind::Nfs,
                consumer: consumer_name(&client.name),
                target,
                volume,
                device,
                addresses: client.address.into_iter().collect(),
                doubt: None,
                counters: None,
            });
        }
    }

    /// Returns a file system. Its name is its mount point, otherwise the path of the only export, otherwise
    /// its number.
    fn volume(&mut self, file_system: DeviceNumber) -> Exported {
        let (mounts, exports) = (self.mounts, self.exports);
        let volume = self.volumes.entry(file_system).or_insert_with(|| {
            let mount = mounts.of(file_system);
            let target = match (mount, exports) {
                (Some(mount), _) => mount.point.to_string_lossy().into_owned(),
                (None, [only]) => only.path.clone(),
                (None, _) => file_system.to_string(),
            };
            let backing =
                VolumeBacking { name: target.clone(), path: mount.map(|mount| mount.source.clone().into()) };
            // File systems that are not on one device, such as btrfs, have a number of their own with the
            // major 0.
            let device = match mount {
                Some(mount) => mount.device,
                None => (file_system.major != 0).then_some(file_system),
            };
            (target.into(), Arc::new(backing), device)
        });
        volume.clone()
    }

    /// A connected host that is no client of NFSv4.
    fn peer(&mut self, peer: IpAddr) {
        let for_it: Vec<&NfsExport> = self.exports.iter().filter(|export| export.may_be_for(peer)).collect();
        let (addresses, doubt) = match for_it.as_slice() {
            [_] => (vec![peer], None),
            _ => (
                Vec::new(),
                Some(Arc::new(AddressDoubt { why: DoubtReason::NotSaid, candidates: vec![peer] })),
            ),
        };
        for export in for_it {
            let mount = self.mounts.at(Path::new(&export.path));
            let backing = VolumeBacking {
                name: export.path.clone(),
                path: mount.map(|mount| mount.source.clone().into()),
            };
            self.sessions.push(TargetSession {
                via: TargetKind::Nfs,
                consumer: consumer_name(&peer.to_string()),
                target: export.path.as_str().into(),
                volume: Arc::new(backing),
                device: mount.and_then(|mount| mount.device),
                addresses: addresses.clone(),
                doubt: doubt.clone(),
                counters: None,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sense::session::captured::{sessions_in, tree};

    const CAPTURED: &str = include_str!("../../../tests/fixtures/nfsd.tree");
    const MOUNTS: &str = "proc/self/mountinfo\n  22 1 254:9 / / rw - ext4 /dev/dm-9 rw\n  \
                          30 22 7:4 / /srv/data rw,relatime shared:5 - ext4 /dev/loop4 rw\n  \
                          31 22 0:44 / /srv/tree rw - btrfs /dev/mapper/vg0-lv1 rw\n";

    fn read(root: &SystemRoot) -> Vec<TargetSession> {
        sessions_in(sessions(root))
    }

    fn summary(sessions: &[TargetSession]) -> Vec<String> {
        sessions
            .iter()
            .map(|session| {
                let device = session.device.map_or_else(|| "-".to_owned(), |device| device.to_string());
                let addresses: Vec<String> = session.addresses.iter().map(ToString::to_string).collect();
                let doubt = session.doubt.as_ref().map_or_else(String::new, |doubt| format!(" ({doubt})"));
                format!("{} {} {device} {}{doubt}", session.target, session.consumer, addresses.join(","))
            })
            .collect()
    }

    #[test]
    fn a_captured_client_loads_what_it_has_files_open_on() {
        let (_tree, root) = tree(&[CAPTURED]);
        // Its second client, by NFSv4.1, has nothing open.
        assert_eq!(summary(&read(&root)), ["/srv/data Linux NFSv4.2 lab 7:4 10.0.0.11"]);
        let (_tree, root) = tree(&[CAPTURED, MOUNTS]);
        let sessions = read(&root);
        assert_eq!(summary(&sessions), ["/srv/data Linux NFSv4.2 lab 7:4 10.0.0.11"]);
        assert_eq!(sessions[0].volume.path.as_deref(), Some(Path::new("/dev/loop4")));
    }

    #[test]
    fn a_file_system_without_a_device_of_its_own_is_found_by_its_source() {
        let states = "proc/fs/nfsd/clients/5/states\n  - 0x01: { type: deleg, access: r, superblock: \
            \"00:2c:257\", filename: \"x\" }\n";
        let without = CAPTURED.replace("proc/fs/nfsd/clients/5/states\n", "");
        let (_tree, root) = tree(&[&without, MOUNTS, states]);
        assert_eq!(summary(&read(&root))[1], "/srv/tree Linux NFSv4.1 lab 254:0 10.0.0.11");
    }

    #[test]
    fn who_uses_nfs_3_is_known_by_address_and_by_export_only_if_there_is_one() {
        let exports = "# Version 1.1\n# Path Client(Flags) # IPs\n/srv/data\t10.0.0.0/24(rw)\n";
        let three = |exports: &str| {
            let (tree, root) = tree(&[CAPTURED, MOUNTS]);
            let write =
                |path: &str, text: &str| std::fs::write(tree.path().join("proc").join(path), text).unwrap();
            write("fs/nfsd/versions", "+3 +4 +4.1 +4.2\n");
            write("fs/nfsd/exports", exports);
            let sockets = std::fs::read_to_string(tree.path().join("proc/net/tcp")).unwrap();
            write("net/tcp", &format!("{sockets}   9: 0100000A:0801 0C00000A:0312 01 0 0\n"));
            let sessions = read(&root);
            summary(&sessions)
        };
        assert_eq!(
            three(exports),
            ["/srv/data 10.0.0.12 7:4 10.0.0.12", "/srv/data Linux NFSv4.2 lab 7:4 10.0.0.11"]
        );
        let two = three(&format!("{exports}/srv/tree\t*(rw)\n/srv/other\t10.9.0.0/16(rw)\n"));
        let doubt = "(the kernel does not say which hosts are connected; candidates: 10.0.0.12)";
        assert_eq!(two[0], format!("/srv/data 10.0.0.12 7:4  {doubt}"));
        assert_eq!(two[2], format!("/srv/tree 10.0.0.12 254:0  {doubt}"));
        assert_eq!(two.len(), 3);
    }

    #[test]
    fn what_is_not_there_is_no_error() {
        for (text, absence) in
            [("", TargetAbsence::NoModule("nfsd")), ("proc/fs/nfsd/\n", TargetAbsence::NotConfigured)]
        {
            let (_tree, root) = tree(&[text]);
            assert_eq!(sessions(&root).unwrap(), TargetFinding::Absent(absence));
        }
    }

    #[test]
    fn a_malformed_client_is_named() {
        let (tree, root) = tree(&[CAPTURED]);
        let info = tree.path().join("proc/fs/nfsd/clients/3/info");
        std::fs::write(info, "clientid: 0x1\naddress: \"nowhere\"\nname: \"x\"\n").unwrap();
        let error = sessions(&root).unwrap_err().to_string();
        assert!(error.contains("clients/3/info:2: expected an address"), "{error}");
    }
}
