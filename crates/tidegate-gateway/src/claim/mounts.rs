//! The kernel's table of mounts (proc(5)).

use std::path::Path;

/// Reads a mount point in a table of mounts: blanks and the like are in octal.
pub(super) fn mount_point(field: &str) -> String {
    field.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
}

/// Returns the device of the mount that a path is in. The fields of a line are: two numbers, the
/// device, the root in it, the mount point.
pub(super) fn mounted_device<'a>(mounts: &'a str, path: &Path) -> Option<&'a str> {
    let mounts = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ');
        let device = fields.nth(2)?;
        let place = mount_point(fields.nth(1)?);
        path.starts_with(&place).then_some((place.len(), device))
    });
    // A later mount covers an earlier one.
    mounts.max_by_key(|(length, _)| *length).map(|(_, device)| device)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
30 22 8:17 / /srv/my\\040data rw - xfs /dev/sdb1 rw
31 22 0:40 / /srv/my\\040data/nfs rw - nfs server:/ rw";

    #[test]
    fn a_path_is_in_the_mount_that_is_nearest() {
        let device = |path: &str| mounted_device(MOUNTS, Path::new(path));
        assert_eq!(device("/srv/my data/volume"), Some("8:17"));
        assert_eq!(device("/srv/my data/nfs/volume"), Some("0:40"));
        assert_eq!(device("/srv/my dataset"), Some("254:0"));
    }
}
