//! The names that a certificate gives its holder.

use rustls::pki_types::CertificateDer;
use webpki::EndEntityCert;

/// The tags of DER that occur in a subject.
mod tag {
    pub(super) const OBJECT_IDENTIFIER: u8 = 0x06;
    pub(super) const UTF8_STRING: u8 = 0x0c;
    pub(super) const PRINTABLE_STRING: u8 = 0x13;
    pub(super) const IA5_STRING: u8 = 0x16;
    pub(super) const SEQUENCE: u8 = 0x30;
    pub(super) const SET: u8 = 0x31;
}

/// `commonName`, 2.5.4.3.
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];

/// The DNS names in a verified certificate's subjectAltName, in small letters. Where there is none, its
/// common name: the certificates that the manuals of QEMU and libvirt have clients make carry no other.
#[must_use]
pub fn names(certificate: &CertificateDer<'_>) -> Vec<String> {
    let Ok(certificate) = EndEntityCert::try_from(certificate) else { return Vec::new() };
    let names: Vec<_> = certificate.valid_dns_names().map(str::to_ascii_lowercase).collect();
    if !names.is_empty() {
        return names;
    }
    common_name(certificate.subject()).map(str::to_ascii_lowercase).into_iter().collect()
}

/// The last common name of a subject: the most specific one. `None` too when it would not be readable in a
/// log.
fn common_name(subject: &[u8]) -> Option<&str> {
    let mut rest = subject;
    let mut found = None;
    while !rest.is_empty() {
        let mut set = element(&mut rest, tag::SET)?;
        while !set.is_empty() {
            let mut attribute = element(&mut set, tag::SEQUENCE)?;
            let kind = element(&mut attribute, tag::OBJECT_IDENTIFIER)?;
            if kind == COMMON_NAME {
                found = [tag::UTF8_STRING, tag::PRINTABLE_STRING, tag::IA5_STRING]
                    .into_iter()
                    .find_map(|tag| element(&mut { attribute }, tag));
            }
        }
    }
    std::str::from_utf8(found?).ok().filter(|name| !name.is_empty() && !name.contains(char::is_control))
}

/// The contents of the first element, if it has this tag; `rest` begins behind it then.
fn element<'a>(rest: &mut &'a [u8], tag: u8) -> Option<&'a [u8]> {
    let (&[found, first], tail) = rest.split_first_chunk()?;
    let (length, tail) = match first {
        0..=0x7f => (usize::from(first), tail),
        // A subject of 64 KiB is none.
        0x81 => tail.split_first().map(|(length, tail)| (usize::from(*length), tail))?,
        0x82 => {
            tail.split_first_chunk().map(|(length, tail)| (usize::from(u16::from_be_bytes(*length)), tail))?
        }
        _ => return None,
    };
    let (contents, tail) = tail.split_at_checked(length)?;
    if found != tag {
        return None;
    }
    *rest = tail;
    Some(contents)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn der(tag: u8, contents: &[u8]) -> Vec<u8> {
        let mut bytes = vec![tag];
        match contents.len() {
            length @ 0..0x80 => bytes.push(length as u8),
            length @ 0x80..0x100 => bytes.extend([0x81, length as u8]),
            length => bytes.extend([0x82, (length >> 8) as u8, length as u8]),
        }
        bytes.extend_from_slice(contents);
        bytes
    }

    fn attribute(kind: &[u8], tag: u8, text: &[u8]) -> Vec<u8> {
        let pair = [der(tag::OBJECT_IDENTIFIER, kind), der(tag, text)].concat();
        der(tag::SET, &der(tag::SEQUENCE, &pair))
    }

    #[test]
    fn the_last_common_name_counts() {
        let organization: &[u8] = &[0x55, 0x04, 0x0a];
        let subject = [
            attribute(COMMON_NAME, tag::UTF8_STRING, b"hosts"),
            attribute(organization, tag::PRINTABLE_STRING, &[b'x'; 300]),
            attribute(COMMON_NAME, tag::PRINTABLE_STRING, b"db1"),
        ]
        .concat();
        assert_eq!(common_name(&subject), Some("db1"));
        assert_eq!(common_name(&subject[..subject.len() - 1]), None);
        assert_eq!(common_name(b""), None);
        assert_eq!(common_name(&attribute(organization, tag::UTF8_STRING, b"x")), None);
        for unreadable in [&b"a\nb"[..], b"\xff", b""] {
            assert_eq!(common_name(&attribute(COMMON_NAME, tag::UTF8_STRING, unreadable)), None);
        }
    }

    #[test]
    fn arbitrary_bytes_are_no_subject() {
        // Every prefix and every single-byte change of a subject is read without a panic.
        let subject = attribute(COMMON_NAME, tag::UTF8_STRING, b"name");
        for at in 0..subject.len() {
            for byte in 0..=255 {
                let mut changed = subject.clone();
                changed[at] = byte;
                let _ = common_name(&changed);
                let _ = common_name(&changed[..at]);
            }
        }
    }
}
