//! A volume that was replaced or removed under its export.

use std::fmt;
use std::io;
use std::path::PathBuf;

use tidegate_units::ConsumerName;

use crate::identity::VolumeIdentity;

/// An export whose path leads to another volume than the one that it serves, or to none.
#[derive(Debug)]
pub struct DisplacedVolume {
    /// The export.
    pub export: ConsumerName,
    path: PathBuf,
    served: VolumeIdentity,
    /// `None`: nothing is at the path.
    found: Option<VolumeIdentity>,
}

impl DisplacedVolume {
    /// Looks where a path leads, for as long as its storage takes.
    pub(super) fn find(export: ConsumerName, path: PathBuf, served: VolumeIdentity) -> Option<Self> {
        let found = match path.metadata() {
            Ok(metadata) => Some(VolumeIdentity::of_file(&path, &metadata)),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                None
            }
            Err(_) => return None,
        };
        let is_right = found.as_ref().is_some_and(|found| found.is_same(&served));
        (!is_right).then_some(Self { export, path, served, found })
    }
}

impl fmt::Display for DisplacedVolume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { export, path, served, found } = self;
        write!(f, "export `{export}` serves {served}, ")?;
        match found {
            Some(found) => write!(f, "but its path leads to another volume now, {found}: ")?,
            None => {
                write!(f, "but that was deleted or moved away, and nothing is at {} now: ", path.display())?;
            }
        }
        write!(
            f,
            "what clients write goes to the volume that is served, and is not there any more after a restart; \
             move that volume back, or copy it by a client of the export (nbdcopy); to serve what is at the \
             path, restart, or remove the export, reload, add it and reload"
        )
    }
}
