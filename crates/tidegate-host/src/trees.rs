//! Trees of files that look like a machine's, for tests and benches: captured ones as text, and made-up ones
//! of any size.
//!
//! A captured tree as text has a line for each file, with its content below it, two spaces to the right; a
//! link says where it points, an empty directory ends in a slash:
//!
//! ```text
//! proc/net/tcp
//!   sl  local_address rem_address
//! sys/block/dm-0 -> ../devices/virtual/block/dm-0
//! sys/kernel/config/target/iscsi/iqn.2026-01.lab:lv1/tpgt_1/np/10.0.0.1:3260/
//! ```
//!
//! Bytes other than printable ASCII are `\x00`, a backslash is `\\`, and `\c` ends a last line that has no
//! newline. (git keeps no empty directories, and archives cannot be reviewed.)

mod machine;

use std::fs;
use std::io;
use std::os::unix::fs::symlink;
use std::path::{Component, Path};

pub use machine::FixtureMachine;

/// Writes a captured tree below a directory.
///
/// # Errors
/// When a file cannot be written, or the text is not of the form above.
pub fn unpack(text: &str, directory: &Path) -> io::Result<()> {
    let mut file: Option<(&str, Vec<u8>)> = None;
    let write = |file: Option<(&str, Vec<u8>)>| {
        file.map_or(Ok(()), |(path, content)| write_file(directory, path, &content))
    };
    for line in text.lines() {
        if let Some(content) = line.strip_prefix("  ") {
            let Some((_, bytes)) = &mut file else {
                return Err(invalid("content before the first file", line));
            };
            unescape(content, bytes).ok_or_else(|| invalid("not an escape", line))?;
            continue;
        }
        write(file.take())?;
        if let Some((path, target)) = line.split_once(" -> ") {
            let path = directory.join(inside(path)?);
            make_parent(&path)?;
            symlink(target, path)?;
        } else if let Some(path) = line.strip_suffix('/') {
            fs::create_dir_all(directory.join(inside(path)?))?;
        } else {
            file = Some((line, Vec::new()));
        }
    }
    write(file)
}

/// Writes one file below a directory, and the directories above it.
///
/// # Errors
/// When it cannot be written, or the path would leave the directory.
pub fn write_file(directory: &Path, path: &str, content: &[u8]) -> io::Result<()> {
    let path = directory.join(inside(path)?);
    make_parent(&path)?;
    fs::write(path, content)
}

fn make_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)
}

/// A path that stays below the directory it is joined to.
fn inside(path: &str) -> io::Result<&Path> {
    let stays =
        !path.is_empty() && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
    if stays { Ok(Path::new(path)) } else { Err(invalid("not a path below the tree", path)) }
}

fn invalid(problem: &str, line: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{problem}: `{line}`"))
}

/// A line of content, with its newline; `None` if it has an escape that there is not.
fn unescape(line: &str, bytes: &mut Vec<u8>) -> Option<()> {
    let mut rest = line;
    while let Some((plain, escaped)) = rest.split_once('\\') {
        bytes.extend_from_slice(plain.as_bytes());
        rest = if let Some(after) = escaped.strip_prefix('\\') {
            bytes.push(b'\\');
            after
        } else if let Some(after) = escaped.strip_prefix('x') {
            let (digits, after) = after.split_at_checked(2)?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            after
        } else {
            return (escaped == "c").then_some(());
        };
    }
    bytes.extend_from_slice(rest.as_bytes());
    bytes.push(b'\n');
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_comes_back_as_it_was() {
        let tree = tempfile::tempdir().unwrap();
        let text = "a/b\n  one\n\n  \ta\\\\b\\x00\\c\na/l -> ../x\na/empty/\n  \n";
        assert!(unpack(text, tree.path()).is_err(), "an empty directory has no content");
        let text = "a/b\n  one\n  \n  \ta\\\\b\\x00\\c\na/l -> ../x\na/empty/\na/none\n";
        let tree = tempfile::tempdir().unwrap();
        unpack(text, tree.path()).unwrap();
        assert_eq!(fs::read(tree.path().join("a/b")).unwrap(), b"one\n\n\ta\\b\0");
        assert_eq!(fs::read_link(tree.path().join("a/l")).unwrap(), Path::new("../x"));
        assert!(tree.path().join("a/empty").is_dir());
        assert_eq!(fs::read(tree.path().join("a/none")).unwrap(), b"");
    }

    #[test]
    fn nothing_is_written_outside_the_directory() {
        let tree = tempfile::tempdir().unwrap();
        for text in ["../a\n", "/a\n", "a/../../b\n", "/x/\n", "../l -> x\n", "  x\n", "a\n  \\y\n"] {
            assert!(unpack(text, tree.path()).is_err(), "{text}");
        }
    }
}
