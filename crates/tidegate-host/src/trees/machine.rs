//! A made-up iSCSI target of any size.

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::write_file;
use crate::device::DeviceNumber;

/// A machine with logical volumes in groups, each exported by LIO as a target of its own with a list of
/// initiators, all of them logged in. Its files have the form of captured ones.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FixtureMachine {
    /// Logical volumes.
    pub volumes: u32,
    /// Volume groups that they are spread over, each on a disk of its own. At least one.
    pub groups: u32,
    /// Initiators of each volume.
    pub initiators: u32,
}

/// device-mapper's major number on this machine.
const DM: u32 = 254;
const SD: u32 = 8;
/// Reads and writes of a volume per tick of [`FixtureMachine::diskstats`], and the time of each.
const IOS: u64 = 12;
const MS: u64 = 8;

impl FixtureMachine {
    /// Writes the machine's files below a directory, as of tick 0.
    ///
    /// # Errors
    /// When one cannot be written.
    pub fn write(&self, directory: &Path) -> io::Result<()> {
        write_file(directory, "proc/diskstats", self.diskstats(0).as_bytes())?;
        for group in 0..self.groups {
            write_file(
                directory,
                &format!("sys/block/sd{group}/dev"),
                format!("{SD}:{}\n", 16 * group).as_bytes(),
            )?;
            write_file(directory, &format!("sys/block/sd{group}/size"), b"4194304\n")?;
        }
        for volume in 0..self.volumes {
            self.write_volume(directory, volume)?;
            self.write_target(directory, volume)?;
        }
        Ok(())
    }

    /// `/proc/diskstats` as it is after so many ticks, in each of which every device does a few requests.
    #[must_use]
    pub fn diskstats(&self, ticks: u64) -> String {
        let mut text = String::new();
        let (ios, sectors, ms) = (ticks * IOS, ticks * IOS * 8, ticks * IOS * MS);
        let mut line = |major, minor, name: &str| {
            let weighted = 2 * ms;
            // Writing to a string cannot fail.
            let _ = writeln!(
                text,
                "{major:4} {minor:7} {name} {ios} 0 {sectors} {ms} {ios} 0 {sectors} {ms} 3 {ms} {weighted} \
                    0 0 0 0 0 0"
            );
        };
        for group in 0..self.groups {
            line(SD, 16 * group, &format!("sd{group}"));
        }
        for volume in 0..self.volumes {
            line(DM, volume, &format!("dm-{volume}"));
        }
        text
    }

    /// The number of a logical volume's device.
    #[must_use]
    pub fn device(&self, volume: u32) -> DeviceNumber {
        DeviceNumber::new(DM, volume)
    }

    /// The address that an initiator comes from: each has one of its own.
    #[must_use]
    pub fn address(&self, volume: u32, initiator: u32) -> Ipv4Addr {
        let number = volume * self.initiators + initiator + 1;
        Ipv4Addr::from_bits(Ipv4Addr::new(10, 0, 0, 0).to_bits() + number)
    }

    fn group(&self, volume: u32) -> u32 {
        volume % self.groups.max(1)
    }

    fn write_volume(&self, directory: &Path, volume: u32) -> io::Result<()> {
        let group = self.group(volume);
        let at = format!("sys/block/dm-{volume}");
        let write =
            |file: &str, content: String| write_file(directory, &format!("{at}/{file}"), content.as_bytes());
        write("dev", format!("{}\n", self.device(volume)))?;
        write("size", "131072\n".to_owned())?;
        write("diskseq", format!("{}\n", volume + 100))?;
        write("dm/name", format!("vg{group}-lv{volume}\n"))?;
        write("dm/uuid", format!("LVM-{group:032}{volume:032}\n"))?;
        let slaves = directory.join(&at).join("slaves");
        fs::create_dir_all(&slaves)?;
        symlink(format!("../../sd{group}"), slaves.join(format!("sd{group}")))
    }

    fn write_target(&self, directory: &Path, volume: u32) -> io::Result<()> {
        const CONFIG: &str = "sys/kernel/config/target";
        let group = self.group(volume);
        let backstore = format!("{CONFIG}/core/iblock_{volume}/lv{volume}");
        let info = format!(
            "Status: ACTIVATED  Max Queue Depth: 0  SectorSize: 512  HwMaxSectors: 2560\n        iBlock \
                device: dm-{volume}  \
             UDEV PATH: /dev/vg{group}/lv{volume}  readonly: 0\n        Major: {DM} Minor: {volume}  \
             CLAIMED: IBLOCK\n"
        );
        write_file(directory, &format!("{backstore}/info"), info.as_bytes())?;
        let target = format!("{CONFIG}/iscsi/iqn.2026-01.synthetic:lv{volume}");
        let sessions = format!("{}\n", self.initiators);
        let accepts = format!("{target}/fabric_statistics/iscsi_login_stats/accepts");
        write_file(directory, &accepts, sessions.as_bytes())?;
        write_file(
            directory,
            &format!("{target}/fabric_statistics/iscsi_instance/sessions"),
            sessions.as_bytes(),
        )?;
        let tpg = format!("{target}/tpgt_1");
        write_file(directory, &format!("{tpg}/dynamic_sessions"), b"")?;
        fs::create_dir_all(directory.join(&tpg).join("np/0.0.0.0:3260"))?;
        let lun = directory.join(&tpg).join("lun/lun_0");
        fs::create_dir_all(&lun)?;
        symlink(format!("../../../../../../target/core/iblock_{volume}/lv{volume}"), lun.join("port"))?;
        for initiator in 0..self.initiators {
            let name = format!("iqn.2026-01.synthetic:host{volume}-{initiator}");
            let acl = format!("{tpg}/acls/{name}");
            let info = format!(
                "InitiatorName: {name}\nInitiatorAlias: host\nLIO Session ID: 1   ISID: 0x00 02 3d 00 00 01  \
                    TSIH: 1  \
                 SessionType: Normal\nSession State: TARG_SESS_STATE_LOGGED_IN\n\
                 ---------------------[iSCSI Session Values]-----------------------\n  \
                 CmdSN/WR  :  CmdSN/WC  :  ExpCmdSN  :  MaxCmdSN  :     ITT    :     TTT\n \
                 0x00000040   0x00000030   0x000000f5   0x00000124   0x00000077   0x00000061\n\
                 ----------------------[iSCSI Connections]-------------------------\n\
                 CID: 0  Connection State: TARG_CONN_STATE_LOGGED_IN\n   Address {} TCP  StatSN: \
                 0x637c24e4\n",
                self.address(volume, initiator)
            );
            write_file(directory, &format!("{acl}/info"), info.as_bytes())?;
            for (counter, value) in [("num_cmds", "249\n"), ("read_mbytes", "3\n"), ("write_mbytes", "6\n")] {
                let file = format!("{acl}/lun_0/statistics/scsi_auth_intr/{counter}");
                write_file(directory, &file, value.as_bytes())?;
            }
            let link = format!(
                "../../../../../../../target/iscsi/iqn.2026-01.synthetic:lv{volume}/tpgt_1/lun/lun_0"
            );
            symlink(link, directory.join(&acl).join("lun_0/lun"))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::net::IpAddr;

    use super::*;
    use crate::root::SystemRoot;
    use crate::sense::{DeviceGroup, DiskStats, VolumeTree, sessions};

    #[test]
    fn the_sensors_read_a_made_up_machine() {
        let machine = FixtureMachine { volumes: 7, groups: 2, initiators: 3 };
        let tree = tempfile::tempdir().unwrap();
        machine.write(tree.path()).unwrap();
        let root = SystemRoot::at(tree.path());

        let volumes = VolumeTree::read(&root).unwrap();
        assert_eq!(volumes.volume_groups(), ["vg0", "vg1"]);
        assert_eq!(volumes.members(DeviceGroup::VolumeGroup("vg0")).len(), 4);

        let before = DiskStats::read(&root).unwrap();
        write_file(tree.path(), "proc/diskstats", machine.diskstats(1).as_bytes()).unwrap();
        let after = DiskStats::read(&root).unwrap();
        let ios: Vec<u64> =
            after.since(&before).map(|(_, change)| change.delta().unwrap().reads.ios).collect();
        assert_eq!(ios, [IOS; 9]);

        let all = sessions(&root).sessions;
        assert_eq!(all.len(), 21);
        assert!(all.iter().all(|session| session.doubt.is_none() && session.counters.is_some()));
        let addresses: BTreeSet<IpAddr> = all.iter().flat_map(|session| session.addresses.clone()).collect();
        assert_eq!(addresses.len(), 21);
        assert!(addresses.contains(&machine.address(6, 2).into()));
    }
}
