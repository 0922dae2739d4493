//! Users and groups as they are written: by number, or by their names in `/etc/passwd` and `/etc/group`.

use std::fs::File;
use std::io::Read;

use tidegate_config::{FindingList, Section};

/// A file of a hundred thousand accounts has a tenth of it.
const LONGEST: u64 = 64 << 20;

/// A kind of account, and where its names are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AccountKind {
    User,
    Group,
}

impl AccountKind {
    fn file(self) -> &'static str {
        match self {
            Self::User => "/etc/passwd",
            Self::Group => "/etc/group",
        }
    }
}

/// The number of the user or group under a key.
pub(super) fn read(
    section: &Section<'_>,
    key: &str,
    account: AccountKind,
    report: &mut FindingList<'_>,
) -> Option<u32> {
    let given = section.text(key, report)?;
    if let Ok(number) = given.value.parse() {
        return Some(number);
    }
    let mut names = String::new();
    // A file that cannot be read has no names: the number helps there, too.
    let _ = File::open(account.file()).and_then(|file| file.take(LONGEST).read_to_string(&mut names));
    let number = number_of(given.value, &names);
    if number.is_none() {
        report.error_with_help(
            &given.span,
            format!("`{key}`: {} has no `{}`", account.file(), given.value.escape_debug()),
            "write a number, such as \"64055\", for an account that is elsewhere",
        );
    }
    number
}

/// In both files the name is the first field and the number the third.
fn number_of(name: &str, lines: &str) -> Option<u32> {
    lines.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_numbers() {
        let passwd = "root:x:0:0:root:/root:/bin/bash\n+nis\nqemu:x:64055:108::/:/bin/false\nbad:x:y\n";
        assert_eq!(number_of("root", passwd), Some(0));
        assert_eq!(number_of("qemu", passwd), Some(64055));
        for none in ["bad", "roo", "", "+nis"] {
            assert_eq!(number_of(none, passwd), None, "{none}");
        }
    }
}
