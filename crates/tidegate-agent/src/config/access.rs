//! Whether the files that a configuration names can be used. The only part of reading a configuration that looks
//! at anything but its text.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use super::PathUse;
use super::finding::Report;

/// Reports every path that cannot be used now.
pub(super) fn check(uses: &[PathUse], report: &mut Report<'_>) {
    for path_use in uses {
        match path_use {
            PathUse::Export { file, read_only } => {
                if let Err(problem) = export(&file.value, *read_only) {
                    report.error(&file.span, format!("`{}`: {problem}", file.value.display()));
                }
            }
            PathUse::DataFile(file) => {
                if let Err(problem) = data_file(&file.value) {
                    report.error(&file.span, format!("`{}`: {problem}", file.value.display()));
                }
            }
            PathUse::Socket(file) => {
                if let Err(problem) = socket(&file.value) {
                    report.error(&file.span, format!("`{}`: {problem}", file.value.display()));
                }
            }
        }
    }
}

fn export(path: &Path, read_only: bool) -> Result<(), String> {
    let kind = fs::metadata(path).map_err(|error| plain(&error))?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err("neither a regular file nor a block device".to_owned());
    }
    let opened = File::options().read(true).write(!read_only).open(path);
    opened.map(drop).map_err(|error| plain(&error))
}

fn data_file(path: &Path) -> Result<(), String> {
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => Err("not a regular file".to_owned()),
        Ok(_) => File::options().read(true).write(true).open(path).map(drop).map_err(|error| plain(&error)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => folder_of(path),
        Err(error) => Err(plain(&error)),
    }
}

fn socket(path: &Path) -> Result<(), String> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if !metadata.file_type().is_socket() => {
            Err("exists and is not a socket; it will not be replaced".to_owned())
        }
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => folder_of(path),
        Err(error) => Err(plain(&error)),
    }
}

fn folder_of(path: &Path) -> Result<(), String> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if folder.is_dir() { Ok(()) } else { Err(format!("there is no folder `{}`", folder.display())) }
}

/// The system's words without its number.
fn plain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file".to_owned(),
        io::ErrorKind::PermissionDenied => "permission denied".to_owned(),
        _ => error.to_string(),
    }
}
