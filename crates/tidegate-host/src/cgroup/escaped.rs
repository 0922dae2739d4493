//! Paths of cgroups as text that people can read and write.
//!
//! A cgroup's name may have any bytes. Anyone with a delegated cgroup makes names, also some that would break a
//! line or a terminal, and such a cgroup is a consumer like any other. Its name is then written as systemd
//! writes names of units: each byte that cannot be shown, and each backslash, as `\xNN`. Ordinary names stay as
//! they are, those that systemd has escaped as well (`machine-qemu\x2d1\x2ddb.scope`). Every name has one text,
//! and no two names have the same.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use tidegate_units::is_unseen;

/// Returns the text of a path.
pub(crate) fn path_text(path: &Path) -> String {
    path.iter().map(name_text).collect::<Vec<_>>().join("/")
}

/// Returns the text of a name.
pub(super) fn name_text(name: &OsStr) -> String {
    let bytes = name.as_bytes();
    match str::from_utf8(bytes) {
        Ok(text) if !text.chars().any(is_unseen) && decoded(text).is_none() => return text.to_owned(),
        _ => {}
    }
    let mut text = String::with_capacity(bytes.len() + 8);
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if is_unseen(c) || c == '\\' {
                c.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| push_escaped(&mut text, byte));
            } else {
                text.push(c);
            }
        }
        chunk.invalid().iter().for_each(|byte| push_escaped(&mut text, *byte));
    }
    text
}

fn push_escaped(text: &mut String, byte: u8) {
    // Writing to a text does not fail.
    let _ = write!(text, "\\x{byte:02x}");
}

/// Returns the path of a text. A text that [`path_text`] never gives is taken as it is.
pub(crate) fn text_path(text: &str) -> PathBuf {
    let name = |name: &str| match decoded(name) {
        Some(bytes) => OsString::from_vec(bytes),
        None => OsString::from(name),
    };
    text.split('/').map(name).collect()
}

/// Returns the bytes of a name whose text has escaped ones; `None` if the text is the name itself.
fn decoded(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut is_escaped) = (Vec::with_capacity(text.len()), false);
    let mut rest = text.as_bytes();
    while let Some(first) = rest.first() {
        let mut run = Vec::new();
        while let Some(byte) = escaped_byte(rest) {
            run.push(byte);
            rest = &rest[4..];
        }
        if run.is_empty() {
            bytes.push(*first);
            rest = &rest[1..];
        }
        let is_plain = |text: &str| !text.chars().any(|c| c == '\\' || is_unseen(c));
        is_escaped |= !str::from_utf8(&run).is_ok_and(is_plain);
        bytes.extend(run);
    }
    is_escaped.then_some(bytes)
}

/// Returns the byte that a text begins with in its escaped form. A name has no zero and no slash.
fn escaped_byte(text: &[u8]) -> Option<u8> {
    let digits = text.strip_prefix(b"\\x")?.get(..2)?;
    let is_digit = |digit: &u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
    let digits = str::from_utf8(digits).ok().filter(|text| text.bytes().all(|digit| is_digit(&digit)))?;
    u8::from_str_radix(digits, 16).ok().filter(|byte| !matches!(byte, 0 | b'/'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(name: &[u8]) -> String {
        name_text(OsStr::from_bytes(name))
    }

    #[test]
    fn ordinary_names_stay_and_others_can_be_shown() {
        for name in
            ["db.service", "Größe", "machine-qemu\\x2d1\\x2ddb.scope", "\\xc3\\xa4.service", "a\\nb", "\\x2f"]
        {
            assert_eq!(text(name.as_bytes()), name);
        }
        assert_eq!(text(b"a\x1b[2J"), "a\\x1b[2J");
        assert_eq!(text("a\u{202e}b".as_bytes()), "a\\xe2\\x80\\xaeb");
        assert_eq!(text(b"a\xff"), "a\\xff");
        // Would be taken for the first one.
        assert_eq!(text(b"a\\x1b[2J"), "a\\x5cx1b[2J");
        assert_eq!(path_text(Path::new("a.slice/b\n")), "a.slice/b\\x0a");
        assert_eq!(text_path("a.slice/b\\x0a"), Path::new("a.slice/b\n"));
    }

    proptest! {
        #[test]
        fn a_name_is_its_text_and_no_other_name(
            name in prop_oneof![
                prop::collection::vec(any::<u8>(), 1..12),
                "(\\\\|x|5c|1b|2d|c3|a4|\u{1b}|ä|\u{202e}|a){1,8}".prop_map(String::into_bytes),
            ],
        ) {
            prop_assume!(!name.iter().any(|byte| matches!(byte, 0 | b'/')));
            prop_assume!(name != b"." && name != b"..");
            let text = text(&name);
            prop_assert!(!text.chars().any(is_unseen));
            let path = text_path(&text);
            prop_assert_eq!(path.as_os_str().as_bytes(), &name[..]);
        }
    }
}
