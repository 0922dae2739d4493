//! Image formats by their first bytes. They are for warnings only: a guest can write such bytes into a raw
//! disk.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// The formats, and where each has its mark.
const FORMATS: [(&str, usize, &[u8]); 7] = [
    ("qcow2", 0, b"QFI\xfb"),
    ("QED", 0, b"QED\0"),
    ("VMDK", 0, b"KDMV"),
    ("VMDK", 0, b"# Disk DescriptorFile"),
    ("VHDX", 0, b"vhdxfile"),
    ("VHD", 0, b"conectix"),
    ("VDI", 64, b"\x7f\x10\xda\xbe"),
];

/// Returns the image format that a file begins like.
pub(super) fn of(file: &File) -> Option<&'static str> {
    let mut first = [0; 96];
    // A file that cannot be read, or is shorter, has none; the first read of a client tells of errors.
    let length = file.read_at(&mut first, 0).unwrap_or(0);
    format_of(&first[..length])
}

fn format_of(first: &[u8]) -> Option<&'static str> {
    let begins = |(_, offset, mark): &&(&str, usize, &[u8])| {
        first.get(*offset..).is_some_and(|rest| rest.starts_with(mark))
    };
    FORMATS.iter().find(begins).map(|(name, ..)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_is_known_by_its_mark() {
        assert_eq!(format_of(b"QFI\xfb\0\0\0\x03"), Some("qcow2"));
        assert_eq!(format_of(b"# Disk DescriptorFile\nversion=1\n"), Some("VMDK"));
        let mut disk_image = [0; 96];
        disk_image[64..68].copy_from_slice(&0xbeda_107f_u32.to_le_bytes());
        assert_eq!(format_of(&disk_image), Some("VDI"));
        assert_eq!(format_of(&[0; 96]), None);
        assert_eq!(format_of(b"QFI"), None);
        assert_eq!(format_of(b""), None);
    }
}
