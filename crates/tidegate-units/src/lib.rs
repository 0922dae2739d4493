//! Units and names that every other crate of Tidegate speaks in.
//!
//! A quantity crosses a boundary only as one of these types. Their constructors decide once what a NaN, an
//! infinity or a negative number means, so that none of them travels further. Bare `f64` lives inside the
//! mathematics only.
//!
//! Serialised (journal, JSON output), a quantity is a plain number in its base unit: nanoseconds, IO/s,
//! bytes/s, bytes, requests. In configuration it is text with a unit (`"15ms"`, `"256KiB/s"`): use
//! [`FromStr`](std::str::FromStr), or `#[serde(with = "tidegate_units::text")]` on a field.

#![forbid(unsafe_code)]

mod daily;
mod name;
mod parse;
mod quantity;
mod rate;
mod scale;
pub mod text;
mod time;

pub use daily::{DailyError, DailyPeriod, DailyValues, ParseTimeOfDayError, TimeOfDay};
pub use name::{ConsumerName, HostName, NameError, ResourceName, is_unseen, shown_name, visible};
pub use parse::ParseUnitError;
pub use quantity::{Bytes, Shares, Window};
pub use rate::{ByteRate, Iops};
pub use time::{Instant, Latency};
