//! The one table of keys: of configurations and of scenarios.
//!
//! Readers take their keys from it. The reference pages, the JSON schemas and `tidegate check --explain` are
//! made of it.

use std::fmt::{self, Display, Write as _};
use std::ops::Bound::{self, Excluded, Included, Unbounded};

pub mod agent;
pub mod api;
pub mod broker;
pub mod cluster;
pub mod law;
pub mod pool;
pub mod scenario;
pub mod serve;

/// A key of a table.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// Its name.
    pub name: &'static str,
    /// The type of its value.
    pub kind: KeyType,
    /// Bounds that the type does not state, in words; empty without any.
    pub bounds: &'static str,
    /// The default, in Markdown: a value in backticks, `required`, or words.
    pub default: &'static str,
    /// The laws, throttles or kinds that know the key; empty if all do.
    pub applies_to: &'static str,
    /// Its meaning, in one sentence of Markdown.
    pub meaning: &'static str,
    /// Further sentences; empty without any.
    pub details: &'static str,
}

/// The type of a key's value.
#[derive(Debug, Clone, Copy)]
pub enum KeyType {
    /// A duration, such as `"15ms"`.
    Time,
    /// A size, such as `"4GiB"`.
    Size,
    /// Requests per second, such as `"500 IO/s"`.
    Rate,
    /// Bytes per second, such as `"300MB/s"`.
    ByteRate,
    /// A text.
    Text,
    /// A path.
    Path,
    /// True or false.
    Flag,
    /// A time of day, such as `"08:00"`.
    TimeOfDay,
    /// A stretch of time, such as `"10s..20s"`.
    Span,
    /// A text of a form that is described in words.
    Format(&'static str),
    /// A number within bounds.
    Number((Bound<f64>, Bound<f64>)),
    /// A whole number, from the least to the greatest.
    Whole(i64, i64),
    /// One of these words.
    Words(&'static [&'static str]),
    /// The keys of the table with this id.
    Table(&'static str),
    /// Tables with the keys of this id, by their names.
    Tables(&'static str),
    /// A list of tables with the keys of this id.
    TableList(&'static str),
    /// Values of one type.
    List(&'static KeyType),
    /// Numbers by name.
    NamedNumbers,
    /// Texts by name.
    NamedValues,
    /// Texts, or lists of them, by name.
    NamedLists,
    /// The parameters of a storage model, with the keys of `tidegate-device`.
    Device,
    /// One of these types.
    Either(&'static [KeyType]),
}

/// The keys of one table.
#[derive(Debug, Clone, Copy)]
pub struct KeyTable {
    /// Its identity: the name of the table, with `scenario.` in front for tables of scenarios.
    pub id: &'static str,
    /// Its heading on the reference page; empty if the page has no table of it.
    pub heading: &'static str,
    /// The names of the keys, in order.
    pub names: &'static [&'static str],
    /// The keys.
    pub keys: &'static [Key],
}

/// Every table of keys.
pub const TABLES: &[KeyTable] = &[
    serve::SERVE,
    serve::LISTEN,
    serve::TLS,
    serve::ADMIT,
    api::API,
    serve::JOURNAL,
    cluster::CLUSTER,
    cluster::CARRIER,
    cluster::POLICY,
    pool::POOL,
    pool::BACKEND,
    pool::BACKEND_TLS,
    pool::EXPONENTIAL,
    pool::EXPONENTIAL_CHANGE,
    law::KNEE,
    law::AUTO,
    law::WINDOW,
    law::PID,
    law::INTEGRAL,
    law::SELF_TUNING,
    law::BANDS,
    law::RELEASE,
    law::BATCH,
    pool::LIMITS,
    pool::EXPORT,
    pool::DISK,
    pool::ALLOW,
    pool::LIMIT,
    pool::CONTRACT,
    agent::AGENT,
    agent::BRIDGE,
    agent::RESOURCE,
    agent::WRITERS,
    agent::REPORTS,
    agent::SOURCE,
    agent::REPORT_TO,
    agent::SENSOR,
    broker::BROKER,
    broker::CATALOGUE,
    broker::NODE,
    scenario::SCENARIO,
    scenario::ARRAY,
    scenario::CHANGE,
    scenario::FLASH,
    scenario::CLOUD_VOLUME,
    scenario::BURST,
    scenario::TIERS,
    scenario::HIT_CHANGE,
    scenario::LINK,
    scenario::DISK,
    scenario::HOST,
    scenario::VM,
    scenario::GOAL_CHANGE,
    scenario::LIMIT,
    scenario::CONTRACT,
    scenario::VOLUME,
    scenario::WORKLOAD,
    scenario::STEP,
    scenario::WEIGHTED_SIZE,
    scenario::REGION,
    scenario::CYCLE,
    scenario::NETWORK,
    scenario::PARTITION,
];

/// Returns the table with this id.
pub(crate) fn by_id(id: &str) -> &'static KeyTable {
    TABLES.iter().find(|table| table.id == id).expect("every id that the code names is in the list")
}

/// Makes a table of its id, its heading and its keys.
macro_rules! table {
    ($id:literal, $heading:literal, [$($key:expr),* $(,)?]) => {{
        const KEYS: &[Key] = &[$($key),*];
        const NAMES: [&str; KEYS.len()] = $crate::keys::names(KEYS);
        KeyTable { id: $id, heading: $heading, names: &NAMES, keys: KEYS }
    }};
}
use table;

const fn names<const N: usize>(keys: &[Key]) -> [&'static str; N] {
    let mut names = [""; N];
    let mut at = 0;
    while at < N {
        names[at] = keys[at].name;
        at += 1;
    }
    names
}

impl Key {
    const fn new(name: &'static str, kind: KeyType, default: &'static str, meaning: &'static str) -> Self {
        Self { name, kind, bounds: "", default, applies_to: "", meaning, details: "" }
    }

    const fn bounds(mut self, bounds: &'static str) -> Self {
        self.bounds = bounds;
        self
    }

    const fn applies_to(mut self, laws: &'static str) -> Self {
        self.applies_to = laws;
        self
    }

    const fn details(mut self, details: &'static str) -> Self {
        self.details = details;
        self
    }

    /// Returns true if a table without this key is refused.
    #[must_use]
    pub fn is_required(&self) -> bool {
        self.default == "required"
    }

    /// Returns the type with its bounds, in Markdown.
    #[must_use]
    pub fn type_and_bounds(&self) -> String {
        match self.bounds {
            "" => self.kind.to_string(),
            bounds => format!("{}, {bounds}", self.kind),
        }
    }
}

impl KeyTable {
    /// Returns the keys with this name, which may follow the names of tables: `gamma`, `window.gamma`,
    /// `pool.vg0.window.gamma`.
    pub fn find(path: &str) -> impl Iterator<Item = (&'static Self, &'static Key)> {
        let parts: Vec<_> = path.split('.').map(str::to_owned).collect();
        TABLES.iter().filter_map(move |table| {
            let (name, places) = parts.split_last()?;
            let key = table.keys.iter().find(|key| key.name == name)?;
            let own = table.id.strip_prefix("scenario.").unwrap_or(table.id);
            let is_place = |place: &String| place == own || own.rsplit('.').next() == Some(place);
            (places.is_empty() || places.iter().rev().take(2).any(is_place)).then_some((table, key))
        })
    }
}

impl Display for KeyType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = |f: &mut fmt::Formatter<'_>, words: &[&str]| {
            for (at, word) in words.iter().enumerate() {
                write!(f, "{}`\"{word}\"`", if at == 0 { "" } else { ", " })?;
            }
            Ok(())
        };
        match self {
            Self::Time => f.write_str("time"),
            Self::Size => f.write_str("size"),
            Self::Rate => f.write_str("rate of requests"),
            Self::ByteRate => f.write_str("rate of bytes"),
            Self::Text => f.write_str("text"),
            Self::Path => f.write_str("path"),
            Self::Flag => f.write_str("true, false"),
            Self::TimeOfDay => f.write_str("time of day"),
            Self::Span => f.write_str("stretch of time"),
            Self::Format(form) => f.write_str(form),
            Self::Number(bounds) => f.write_str(&number(*bounds)),
            Self::Whole(least, i64::MAX) => write!(f, "whole number from {least}"),
            Self::Whole(least, greatest) => write!(f, "{least} to {greatest}"),
            Self::Words(of) => words(f, of),
            Self::Table(_) => f.write_str("table"),
            Self::Tables(_) => f.write_str("tables"),
            Self::TableList(_) => f.write_str("list of tables"),
            Self::List(Self::Text) => f.write_str("list of texts"),
            Self::List(of) => write!(f, "list of {of}"),
            Self::NamedNumbers => f.write_str("table of numbers"),
            Self::NamedValues => f.write_str("table of values"),
            Self::NamedLists => f.write_str("table of texts, or lists of texts"),
            Self::Device => f.write_str("table of a model's parameters"),
            Self::Either(kinds) => {
                for (at, kind) in kinds.iter().enumerate() {
                    write!(f, "{}{kind}", if at == 0 { "" } else { ", or " })?;
                }
                Ok(())
            }
        }
    }
}

fn number((lower, upper): (Bound<f64>, Bound<f64>)) -> String {
    let mut text = match lower {
        Included(least) => format!("at least {least}"),
        Excluded(least) => format!("above {least}"),
        Unbounded => String::new(),
    };
    let between = if text.is_empty() { "" } else { ", " };
    let _ = match upper {
        Included(most) => write!(text, "{between}at most {most}"),
        Excluded(most) => write!(text, "{between}below {most}"),
        Unbounded => Ok(()),
    };
    if text.is_empty() { "number".to_owned() } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_by_its_name_and_by_the_tables_around_it() {
        let ids = |path| KeyTable::find(path).map(|(table, _)| table.id).collect::<Vec<_>>();
        assert_eq!(ids("gamma"), ["window"]);
        assert_eq!(ids("pool.vg0.window.gamma"), ["window"]);
        assert_eq!(ids("pool.vg0.target"), ["pool"]);
        assert_eq!(ids("resource.vg0.target"), ["resource"]);
        assert!(ids("pid.gamma").is_empty() && ids("gama").is_empty());
    }

    #[test]
    fn names_are_unique_and_sentences_are_short() {
        for table in TABLES {
            for (at, key) in table.keys.iter().enumerate() {
                assert!(!table.names[..at].contains(&key.name), "{} twice in {}", key.name, table.id);
                let words = key.meaning.split_whitespace().count();
                assert!(words <= 25, "{}.{}: {words} words", table.id, key.name);
                assert!(!key.meaning.is_empty() && !key.default.is_empty(), "{}.{}", table.id, key.name);
            }
        }
    }

    #[test]
    fn tables_that_keys_refer_to_exist() {
        fn check(kind: &KeyType) {
            match kind {
                KeyType::Table(id) | KeyType::Tables(id) | KeyType::TableList(id) => {
                    assert!(TABLES.iter().any(|table| table.id == *id), "there is no table `{id}`");
                }
                KeyType::List(of) => check(of),
                KeyType::Either(kinds) => kinds.iter().for_each(check),
                _ => {}
            }
        }
        TABLES.iter().flat_map(|table| table.keys).for_each(|key| check(&key.kind));
    }
}
