//! The reasons why a broker refuses.

use thiserror::Error;
use tidegate_placement::PlaceError;
use tidegate_units::Bytes;

use crate::catalogue::CatalogueError;
use crate::name::ObjectName;
use crate::sensor_reports::ReportError;
use crate::wire::AWAY;

/// The reason why the broker does not do what it is asked for.
#[derive(Debug, Error)]
pub enum BrokerError {
    /// The rules of placement refuse it.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The catalogue refuses it.
    #[error(transparent)]
    Catalogue(#[from] CatalogueError),
    /// A write without a size.
    #[error("a write needs `size`: how much there is to be stored")]
    NoSize,
    /// A read, or a further replica, without a name.
    #[error("reading, and writing a further replica, need the `name` of an object")]
    NoName,
    /// No such object.
    #[error("there is no object `{0}`")]
    NoObject(ObjectName),
    /// Another transfer writes an object of this name.
    #[error("an object `{0}` is being written: choose another name, or wait until that has ended")]
    BeingWritten(ObjectName),
    /// It has ended, or was never known.
    #[error(
        "no transfer is known by this id: it has ended, or nothing was heard of it for longer than its \
            lease; ask anew"
    )]
    Gone,
    /// The id belongs to another transfer.
    #[error("another transfer has this id: draw 16 digits at random for each")]
    Taken,
    /// The object that was written differs from the one that was asked for.
    #[error("this transfer was to store {asked} as {}, not \
        {stored}", .name.as_ref().map_or("nothing", |name| name.as_str()))]
    Otherwise {
        /// The object that was asked for.
        name: Option<ObjectName>,
        /// The size that was asked for.
        asked: Bytes,
        /// The size that is reported now.
        stored: Bytes,
    },
    /// The report of a node's sensor is not taken.
    #[error(transparent)]
    Report(#[from] ReportError),
    /// The result of a probe, or the time of a first byte, is out of range.
    #[error("{0} cannot be: rates are within 0 and 10¹⁵ bytes per second, times within 0 and a day")]
    Unbelievable(f64),
    /// Too many transfers.
    #[error("{0} transfers are under way, which is as many as may be: come back later")]
    TooMany(usize),
}

impl BrokerError {
    /// Returns a word for programs that does not change.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Place(PlaceError::NoRate) => "no-rate",
            Self::Place(PlaceError::Unknown(_)) => "unknown-node",
            Self::Place(PlaceError::NoReplica) => "no-replica",
            Self::Place(PlaceError::Excluded) => "excluded",
            Self::Place(PlaceError::NoClass { .. }) => "no-class",
            Self::Place(PlaceError::TooLarge { .. }) => "too-large",
            Self::Place(PlaceError::TooFast { .. }) => "too-fast",
            Self::Place(PlaceError::TooSoon { .. }) => "too-soon",
            Self::Place(PlaceError::QueueFull(_)) | Self::TooMany(_) => "busy",
            Self::Catalogue(CatalogueError::Duplicate(_)) | Self::BeingWritten(_) => "duplicate",
            Self::Catalogue(CatalogueError::Full(_)) => "full",
            // Another broker has it, and knows its transfers: a client that asks again meets that one.
            Self::Catalogue(CatalogueError::Away { .. } | CatalogueError::TakenOver { .. }) => AWAY,
            Self::Catalogue(_) => "catalogue",
            Self::NoSize => "no-size",
            Self::NoName => "no-name",
            Self::NoObject(_) => "unknown-object",
            Self::Gone => "gone",
            Self::Taken => "taken",
            Self::Otherwise { .. } => "otherwise",
            Self::Report(ReportError::NotAsked(_)) => "no-agent",
            Self::Report(ReportError::Another | ReportError::Late(..)) => "another-report",
            Self::Report(_) | Self::Unbelievable(_) => "unbelievable",
        }
    }
}
