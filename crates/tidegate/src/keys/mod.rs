//! `tidegate check --explain KEY`: entries of the table of keys.

#[cfg(test)]
mod page;
#[cfg(test)]
mod schema;

use std::fmt;
use std::io::{self, Write};

use serde::Serialize;
use tidegate_config::keys::{Key, KeyTable, TABLES};

use crate::failure::CommandFailure;
use crate::out;

/// The JSON document of one entry.
#[derive(Serialize)]
struct KeyDocument {
    key: &'static str,
    table: &'static str,
    #[serde(rename = "type")]
    kind: String,
    default: String,
    applies_to: &'static str,
    meaning: String,
    details: String,
}

/// Prints every entry with this name, which may follow the names of tables: `window.gamma`.
pub(crate) fn explain(path: &str, json: bool) -> Result<(), CommandFailure> {
    let entries: Vec<_> = KeyTable::find(path).map(|(table, key)| document(table, key)).collect();
    if entries.is_empty() {
        return Err(CommandFailure::Usage(unknown(path)));
    }
    let mut out = out::stdout();
    if json {
        serde_json::to_writer_pretty(&mut out, &entries).map_err(io::Error::from)?;
        writeln!(out)?;
    } else {
        for (at, entry) in entries.iter().enumerate() {
            write!(out, "{}{entry}", if at == 0 { "" } else { "\n" })?;
        }
    }
    Ok(())
}

fn document(table: &KeyTable, key: &Key) -> KeyDocument {
    KeyDocument {
        key: key.name,
        table: table.id,
        kind: plain(&key.type_and_bounds()),
        default: plain(key.default),
        applies_to: key.applies_to,
        meaning: plain(key.meaning),
        details: plain(key.details),
    }
}

impl fmt::Display for KeyDocument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} (in {}): {}", self.key, self.table, self.meaning)?;
        writeln!(f, "  type        {}", self.kind)?;
        writeln!(f, "  default     {}", self.default)?;
        if !self.applies_to.is_empty() {
            writeln!(f, "  applies to  {}", self.applies_to)?;
        }
        if !self.details.is_empty() {
            writeln!(f, "  {}", self.details)?;
        }
        Ok(())
    }
}

/// Returns the message about a key that no table has, with the nearest names.
fn unknown(path: &str) -> String {
    let name = path.rsplit('.').next().unwrap_or(path).escape_debug().to_string();
    let mut names: Vec<_> = TABLES.iter().flat_map(|table| table.names).copied().collect();
    names.sort_unstable();
    names.dedup();
    let help = match tidegate_config::nearest(&name, &names) {
        Some(near) => format!("the nearest key is `{near}`"),
        None => "docs/reference/configuration.md lists all keys".to_owned(),
    };
    if names.contains(&name.as_str()) {
        let tables = TABLES.iter().filter(|table| table.names.contains(&name.as_str()));
        let tables: Vec<_> = tables.map(|table| format!("`{}`", table.id)).collect();
        format!("no table `{path}` has the key `{name}`: it stands in {}", tables.join(", "))
    } else {
        format!("there is no key `{name}`: {help}")
    }
}

/// Returns Markdown as plain text: links become their texts, and code loses its backticks.
fn plain(markdown: &str) -> String {
    let mut text = markdown.replace('`', "");
    while let Some((before, rest)) = text.clone().split_once("](") {
        let after = rest.split_once(')').map_or("", |(_, after)| after);
        let before =
            before.rsplit_once('[').map_or(before.to_owned(), |(left, link)| format!("{left}{link}"));
        text = format!("{before}{after}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_become_their_texts() {
        assert_eq!(plain("see [the `x`](a.md#b), or [y](c)"), "see the x, or y");
        assert_eq!(plain("a list [1, 2]"), "a list [1, 2]");
    }
}
