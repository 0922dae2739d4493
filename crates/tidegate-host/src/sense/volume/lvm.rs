//! LVM's names and UUIDs for device-mapper devices (LVM2: `dm_build_dm_name`, `build_dm_uuid`).

/// A logical volume, or a part of one that LVM keeps to itself.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LogicalVolume {
    /// Its volume group's name.
    pub group: String,
    /// Its own name.
    pub name: String,
    /// The volume group's UUID: 32 characters, without LVM's hyphens. Survives renaming.
    pub group_uuid: String,
    /// The logical volume's UUID, in the same form.
    pub uuid: String,
    /// The device's role in its logical volume, if it is a part that is not meant to be used. Examples are
    /// `real` and `cow` of a snapshot, `tpool` of a thin pool, `cdata` of a cache, `rimage_0` of a RAID
    /// volume. `None` for the volume itself.
    pub part: Option<String>,
}

/// Characters of a UUID without hyphens.
const UUID: usize = 32;

/// Suffixes that LVM gives the names of sub-volumes of mirrors and RAIDs. Their UUIDs have no suffix, unlike
/// those of snapshots, pools and caches. No other volume may have such a name.
const INTERNAL: [&str; 4] = ["_rimage_", "_rmeta_", "_mimage_", "_mlog"];

impl LogicalVolume {
    /// From what device-mapper knows; `None` if it is not of LVM.
    pub(super) fn new(dm_name: &str, dm_uuid: &str) -> Option<Self> {
        let rest = dm_uuid.strip_prefix("LVM-")?;
        let (uuids, suffix) = rest.split_at_checked(2 * UUID)?;
        let (group_uuid, uuid) = uuids.split_at_checked(UUID)?;
        let suffix = match suffix.strip_prefix('-') {
            Some(part) if !part.is_empty() => Some(part),
            _ if suffix.is_empty() => None,
            _ => return None,
        };
        let mut names = components(dm_name);
        let (group, name) = (names.next()?, names.next()?);
        if group.is_empty() || name.is_empty() {
            return None;
        }
        let part = suffix.map(str::to_owned).or_else(|| internal(&name));
        Some(Self { group, name, group_uuid: group_uuid.to_owned(), uuid: uuid.to_owned(), part })
    }
}

/// The part of a RAID or mirror that a name says.
fn internal(name: &str) -> Option<String> {
    let at = INTERNAL.iter().filter_map(|part| name.rfind(part)).max()?;
    Some(name[at + 1..].to_owned())
}

/// The parts of a name that single hyphens separate, with doubled hyphens made single.
fn components(dm_name: &str) -> impl Iterator<Item = String> {
    let mut rest = Some(dm_name);
    std::iter::from_fn(move || {
        let text = rest?;
        let mut component = String::new();
        let mut characters = text.char_indices().peekable();
        while let Some((at, character)) = characters.next() {
            if character == '-' && characters.next_if(|(_, next)| *next == '-').is_none() {
                rest = Some(&text[at + 1..]);
                return Some(component);
            }
            component.push(character);
        }
        rest = None;
        Some(component)
    })
}

/// The device-mapper name of a logical volume.
pub(super) fn dm_name(group: &str, name: &str) -> String {
    format!("{}-{}", group.replace('-', "--"), name.replace('-', "--"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const VG: &str = "cV4N3dYkuqP1Yc0yGpWJxVnV8Yyg2yRz";
    const LV: &str = "0aBcD3fGhIjKlMnOpQrStUvWxYz12345";

    fn volume(dm_name: &str, suffix: &str) -> Option<(String, String, Option<String>)> {
        let volume = LogicalVolume::new(dm_name, &format!("LVM-{VG}{LV}{suffix}"))?;
        assert_eq!((volume.group_uuid.as_str(), volume.uuid.as_str()), (VG, LV));
        Some((volume.group, volume.name, volume.part))
    }

    #[test]
    fn a_doubled_hyphen_is_a_hyphen_and_a_single_one_separates() {
        let is = |group: &str, name: &str| Some((group.to_owned(), name.to_owned(), None));
        assert_eq!(volume("vg0-lv1", ""), is("vg0", "lv1"));
        assert_eq!(volume("my--vg-my--lv", ""), is("my-vg", "my-lv"));
        assert_eq!(volume("vg-a----b", ""), is("vg", "a--b"));
        // Hyphens belong to the left: no name starts with one.
        assert_eq!(volume("a---b", ""), is("a-", "b"));
    }

    #[test]
    fn parts_that_lvm_keeps_to_itself_are_told_from_volumes() {
        let part = |dm_name, suffix| volume(dm_name, suffix).unwrap().2;
        assert_eq!(part("vg-pool-tpool", "-tpool").as_deref(), Some("tpool"));
        assert_eq!(part("vg-pool_tdata", "-tdata").as_deref(), Some("tdata"));
        assert_eq!(part("vg-origin-real", "-real").as_deref(), Some("real"));
        assert_eq!(part("vg-snap-cow", "-cow").as_deref(), Some("cow"));
        assert_eq!(part("vg-raid_rimage_0", "").as_deref(), Some("rimage_0"));
        assert_eq!(part("vg-raid_rmeta_11", "").as_deref(), Some("rmeta_11"));
        assert_eq!(part("vg-mirror_mlog", "").as_deref(), Some("mlog"));
        assert_eq!(part("vg-thin", ""), None);
    }

    #[test]
    fn what_is_not_of_lvm_is_none() {
        for (name, uuid) in [
            ("mpatha", "mpath-3600508b400105e210000900000490000".to_owned()),
            ("vg-lv", "CRYPT-LUKS2-0123".to_owned()),
            ("vg-lv", String::new()),
            ("vg-lv", "LVM-short".to_owned()),
            ("vg-lv", format!("LVM-{VG}{LV}tpool")),
            ("vg-lv", format!("LVM-{VG}{LV}-")),
            ("vg", format!("LVM-{VG}{LV}")),
            ("-lv", format!("LVM-{VG}{LV}")),
            // Not on a boundary of characters.
            ("vg-lv", format!("LVM-{}é{LV}", &VG[1..])),
        ] {
            assert_eq!(LogicalVolume::new(name, &uuid), None, "{name} {uuid}");
        }
    }

    proptest! {
        #[test]
        fn names_come_back(group in "[a-z0-9_.+][a-z0-9_.+-]{0,9}", name in "[a-z0-9.+][a-z0-9.+-]{0,9}") {
            let dm_name = dm_name(&group, &name);
            prop_assert_eq!(volume(&dm_name, ""), Some((group, name, None)));
        }

        #[test]
        fn arbitrary_names_never_panic(name in ".{0,60}", uuid in "(LVM-)?.{0,80}") {
            let _ = LogicalVolume::new(&name, &uuid);
        }
    }
}
