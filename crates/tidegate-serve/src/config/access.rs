//! Checks that the files of a configuration can be used. The only part of reading a configuration that
//! looks at anything but its text.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::{Duration, Instant};

use tidegate_cluster::{ClusterKey, KeyError, Secret, SecretError, check_credentials};
use tidegate_config::{FindingList, PlacedValue};
use tidegate_gateway::VolumeFacts;
use tidegate_http::{BearerToken, TokenError};
use tidegate_service::config::read_bounded;
use tidegate_tls::{TlsError, check_authorities, check_certificate, check_private_key};

use super::PathUse;
use super::upstream::ONE_VOLUME;

/// The time in which the files of all exports must answer. Chosen above a disk that has to spin up.
const PATIENCE: Duration = Duration::from_secs(8);

/// The time that each of them has, when one before it has used up all the time.
const LEAST_PATIENCE: Duration = Duration::from_millis(50);

/// The unit in which QEMU and the kernel count the size of a disk.
const SECTOR: u64 = 512;

/// Reports every path that cannot be used now, and what can be used and is probably not meant.
pub(super) fn check(uses: &[PathUse], report: &mut FindingList<'_>) {
    let mut volumes = Vec::new();
    let end = Instant::now() + PATIENCE;
    for path_use in uses {
        let (file, outcome) = match path_use {
            PathUse::Export { file, read_only, shared } => {
                match export_within(&file.value, *read_only, end) {
                    Some(Ok(facts)) => {
                        volumes.push(Volume { file, facts, read_only: *read_only, shared: *shared });
                        continue;
                    }
                    Some(Err(problem)) => (file, Err(problem)),
                    None => {
                        report.warning(
                            &file.span,
                            format!("`{}` is not checked: its storage does not answer", file.value.display()),
                            "look for storage that hangs",
                        );
                        continue;
                    }
                }
            }
            PathUse::DataFile(file) => (file, data_file(&file.value)),
            PathUse::Socket(file) => (file, socket(&file.value)),
            PathUse::Key(file) => (file, ClusterKey::from_file(&file.value).map(drop).map_err(Problem::from)),
            PathUse::Secret(file) => (file, Secret::from_file(&file.value).map(drop).map_err(Problem::from)),
            PathUse::Credentials(file) => (file, check_credentials(&file.value).map_err(Problem::from)),
            PathUse::Authorities(file) => (file, check_authorities(&file.value).map_err(Problem::from)),
            PathUse::Certificate(file) => (file, check_certificate(&file.value).map_err(Problem::from)),
            PathUse::PrivateKey(file) => (file, check_private_key(&file.value).map_err(Problem::from)),
            PathUse::Token(file) => {
                (file, BearerToken::from_file(&file.value).map(drop).map_err(Problem::from))
            }
            PathUse::Admitted(file) => (file, read_bounded(&file.value).map(drop).map_err(Problem::from)),
        };
        match outcome {
            Ok(()) => {}
            Err(Problem { what, help }) => {
                let message = format!("`{}`: {what}", file.value.display());
                match help {
                    Some(help) => report.error_with_help(&file.span, message, help),
                    None => report.error(&file.span, message),
                }
            }
        }
    }
    judge(&volumes, report);
}

/// An export's volume, and the use that the export makes of it.
struct Volume<'a> {
    file: &'a PlacedValue<PathBuf>,
    facts: VolumeFacts,
    read_only: bool,
    shared: bool,
}

/// Reports volumes that are in use already, and those that are probably not meant.
fn judge(volumes: &[Volume<'_>], report: &mut FindingList<'_>) {
    for (at, volume) in volumes.iter().enumerate() {
        let (span, shown) = (&volume.file.span, volume.file.value.display());
        match volume.facts.file_size {
            Some(0) => {
                report.warning(span, format!("`{shown}` is empty"), "give it a size, with `truncate -s`");
            }
            Some(size) if !size.is_multiple_of(SECTOR) => {
                let (rest, whole) = (size % SECTOR, size.next_multiple_of(SECTOR));
                report.warning(
                    span,
                    format!(
                        "`{shown}` has {size} bytes: clients such as QEMU and the kernel miss the last {rest}"
                    ),
                    format!("give it a multiple of {SECTOR} bytes, with `truncate -s {whole}`"),
                );
            }
            Some(_) | None => {}
        }
        if let Some(format) = volume.facts.format {
            report.warning(
                span,
                format!("`{shown}` begins like a {format} image"),
                "clients see its bytes as they are, and not the disk in it",
            );
        }
        if let Some(occupied) = volume.facts.occupied.as_ref().filter(|_| !volume.shared) {
            report.error_with_help(
                span,
                format!("`{shown}` is in use: {occupied}"),
                "end that use, or write `shared_volume = true` if both may write to it",
            );
        }
        let conflicts = |other: &&Volume<'_>| {
            let both_read = other.read_only && volume.read_only;
            other.facts.id == volume.facts.id && !both_read && !(other.shared && volume.shared)
        };
        if volumes[..at].iter().any(|other| conflicts(&other)) {
            report.error_with_help(span, format!("`{shown}` is another export's volume, too"), ONE_VOLUME);
        }
    }
}

/// The reason why a path cannot be used, and the remedy where it is known.
struct Problem {
    what: String,
    help: Option<&'static str>,
}

impl From<&str> for Problem {
    fn from(what: &str) -> Self {
        Self { what: what.to_owned(), help: None }
    }
}

impl From<io::Error> for Problem {
    /// The system's words without its number.
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::NotFound => "there is no such file".into(),
            io::ErrorKind::PermissionDenied => "permission denied".into(),
            _ => Self { what: error.to_string(), help: None },
        }
    }
}

/// Looks at an export's file on another thread, which is left behind when its storage hangs.
fn export_within(path: &Path, read_only: bool, end: Instant) -> Option<Result<VolumeFacts, Problem>> {
    let (sender, outcome) = sync_channel(1);
    let body = {
        let path = path.to_owned();
        // The reader may have given up waiting.
        move || drop(sender.send(VolumeFacts::of(&path, read_only).map_err(Problem::from)))
    };
    if let Err(error) = thread::Builder::new().name("tg-check".to_owned()).spawn(body) {
        return Some(Err(error.into()));
    }
    outcome.recv_timeout(end.saturating_duration_since(Instant::now()).max(LEAST_PATIENCE)).ok()
}

fn data_file(path: &Path) -> Result<(), Problem> {
    match fs::metadata(path) {
        Ok(metadata) if !metadata.is_file() => Err("not a regular file".into()),
        Ok(_) => Ok(File::options().read(true).write(true).open(path).map(drop)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => folder_of(path),
        Err(error) => Err(error.into()),
    }
}

fn socket(path: &Path) -> Result<(), Problem> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if !metadata.file_type().is_socket() => {
            Err("exists and is not a socket; it will not be replaced".into())
        }
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => folder_of(path),
        Err(error) => Err(error.into()),
    }
}

impl From<KeyError> for Problem {
    fn from(error: KeyError) -> Self {
        match error {
            KeyError::Read { source, .. } => source.into(),
            other @ KeyError::Length(_) => Self { what: other.to_string(), help: None },
        }
    }
}

impl From<TokenError> for Problem {
    fn from(error: TokenError) -> Self {
        match error {
            TokenError::Read { source, .. } => source.into(),
            none @ TokenError::NoToken(_) => Self { what: none.to_string(), help: None },
        }
    }
}

impl From<SecretError> for Problem {
    fn from(error: SecretError) -> Self {
        match error {
            SecretError::Read { source, .. } => source.into(),
            SecretError::NoSecret(_) => "holds no secret: one line of text is needed".into(),
            SecretError::NoCredentials(_) => {
                "holds no credentials: a user's JWT and the seed of its key, as `nsc` writes them".into()
            }
        }
    }
}

impl From<TlsError> for Problem {
    fn from(error: TlsError) -> Self {
        match error {
            TlsError::Read { source, .. } => source.into(),
            TlsError::NoCertificate(_) => "holds no certificate in PEM form".into(),
            TlsError::NoPrivateKey(_) => "holds no private key in PEM form".into(),
            TlsError::Authority { why, .. } => {
                Self { what: format!("holds a certificate that is not an authority's: {why}"), help: None }
            }
            pair @ (TlsError::Pair { .. } | TlsError::System(_)) => {
                Self { what: pair.to_string(), help: None }
            }
        }
    }
}

/// The folder of the packaged service. systemd makes it at each start, so that a check finds none before.
const SERVICE_FOLDER: &str = "/run/tidegate";

fn folder_of(path: &Path) -> Result<(), Problem> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    if folder.is_dir() || folder == Path::new(SERVICE_FOLDER) {
        return Ok(());
    }
    let what = format!("there is no folder `{}`", folder.display());
    Err(Problem { what, help: Some("create it first") })
}
