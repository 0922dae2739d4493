//! A TOML table read key by key: every mistake is reported, none stops the reading.

use std::fmt::Display;
use std::ops::{Range, RangeInclusive};
use std::str::FromStr;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::finding::FindingList;
use crate::nearest;
use crate::placed::PlacedValue;

/// An item of a list that may be short or detailed.
pub enum TextOrTable<'a> {
    /// A text.
    Text(PlacedValue<&'a str>),
    /// A table.
    Table(Section<'a>),
}

/// A table whose keys are known.
pub struct Section<'a> {
    table: &'a DeTable<'a>,
    keys: &'static [&'static str],
    /// Its name in messages: "pool `vg0`".
    what: String,
    /// The place where it is named, for messages about missing keys.
    span: Range<usize>,
}

impl<'a> Section<'a> {
    /// Takes a table, and reports every key that is not one of `keys`.
    pub fn new(
        table: &'a DeTable<'a>,
        span: Range<usize>,
        what: String,
        keys: &'static [&'static str],
        report: &mut FindingList<'_>,
    ) -> Self {
        for key in table.keys().filter(|key| !keys.contains(&key.get_ref().as_ref())) {
            let message = format!("unknown key `{}` in {what}", key.get_ref().escape_debug());
            report.error_with_help(&key.span(), message, nearest::help(key.get_ref(), keys));
        }
        Self { table, keys, what, span }
    }

    /// Returns its name in messages.
    #[must_use]
    pub fn what(&self) -> &str {
        &self.what
    }

    /// Returns the place where it is named.
    #[must_use]
    pub const fn span(&self) -> &Range<usize> {
        &self.span
    }

    /// The value under a key, if there is one.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<&'a Spanned<DeValue<'a>>> {
        debug_assert!(self.keys.contains(&key), "`{key}` is read and not in the list of keys");
        self.table.get(key)
    }

    /// Returns true if a key may be in it at all.
    pub(crate) fn knows(&self, key: &str) -> bool {
        self.keys.contains(&key)
    }

    /// Returns true if a key was reported as unknown. What seems to be missing may be meant by it.
    #[must_use]
    pub fn has_unknown_keys(&self) -> bool {
        self.table.keys().any(|key| !self.keys.contains(&key.get_ref().as_ref()))
    }

    /// Returns true if there is a value under a key.
    #[must_use]
    pub fn has(&self, key: &str) -> bool {
        self.value(key).is_some()
    }

    /// Returns true if the value under a key is a text.
    #[must_use]
    pub fn is_text(&self, key: &str) -> bool {
        self.value(key).is_some_and(|value| matches!(value.get_ref(), DeValue::String(_)))
    }

    /// Returns the place of a key, if it is written.
    #[must_use]
    pub fn key_span(&self, key: &str) -> Option<Range<usize>> {
        self.table.get_key_value(key).map(|(key, _)| key.span())
    }

    /// Reports that a key is missing.
    pub fn missing(&self, key: &str, example: &str, report: &mut FindingList<'_>) {
        report.error_with_help(
            &self.span,
            format!("{} needs `{key}`", self.what),
            format!("add `{key} = {example}`"),
        );
    }

    /// A text.
    pub fn text(&self, key: &str, report: &mut FindingList<'_>) -> Option<PlacedValue<&'a str>> {
        let value = self.value(key)?;
        match value.get_ref() {
            DeValue::String(text) => Some(PlacedValue { value: text.as_ref(), span: value.span() }),
            other => {
                mismatch(key, "a text in quotes", other, &value.span(), report);
                None
            }
        }
    }

    /// A text that means something: a quantity with its unit, an address.
    pub fn parsed<T: FromStr<Err: Display>>(
        &self,
        key: &str,
        report: &mut FindingList<'_>,
    ) -> Option<PlacedValue<T>> {
        let value = self.value(key)?;
        // A bare number lacks its unit, and the parser of the unit says it best.
        let text = match value.get_ref() {
            DeValue::String(text) => text.as_ref(),
            DeValue::Integer(number) => number.as_str(),
            DeValue::Float(number) => number.as_str(),
            other => {
                mismatch(key, "a text in quotes", other, &value.span(), report);
                return None;
            }
        };
        match text.parse() {
            Ok(parsed) => Some(PlacedValue { value: parsed, span: value.span() }),
            Err(error) => {
                report.error(&value.span(), format!("`{key}`: {error}"));
                None
            }
        }
    }

    /// `true` or `false`; `false` when nothing is said.
    pub fn flag(&self, key: &str, report: &mut FindingList<'_>) -> bool {
        let Some(value) = self.value(key) else { return false };
        value.get_ref().as_bool().unwrap_or_else(|| {
            mismatch(key, "`true` or `false`", value.get_ref(), &value.span(), report);
            false
        })
    }

    /// A whole number within a range.
    pub fn whole(
        &self,
        key: &str,
        range: RangeInclusive<u64>,
        report: &mut FindingList<'_>,
    ) -> Option<PlacedValue<u64>> {
        let value = self.value(key)?;
        let DeValue::Integer(number) = value.get_ref() else {
            mismatch(key, "a whole number", value.get_ref(), &value.span(), report);
            return None;
        };
        match u64::from_str_radix(number.as_str(), number.radix()) {
            Ok(number) if range.contains(&number) => Some(PlacedValue { value: number, span: value.span() }),
            _ => {
                let (least, greatest) = range.into_inner();
                report
                    .error(&value.span(), format!("`{key}` must be {least} to {greatest}, this is {number}"));
                None
            }
        }
    }

    /// A finite number.
    pub fn number(&self, key: &str, report: &mut FindingList<'_>) -> Option<PlacedValue<f64>> {
        finite(key, self.value(key)?, report)
    }

    /// The numbers in a table under a key, each under its own name, in the order in which they are written.
    /// `None` when there is something else under the key, or in the table.
    pub fn named_numbers(
        &self,
        key: &str,
        report: &mut FindingList<'_>,
    ) -> Option<Vec<(PlacedValue<&'a str>, PlacedValue<f64>)>> {
        let Some(value) = self.value(key) else { return Some(Vec::new()) };
        let Some(table) = value.get_ref().as_table() else {
            mismatch(key, "a table of numbers", value.get_ref(), &value.span(), report);
            return None;
        };
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(name, _)| name.span().start);
        let numbers = entries.into_iter().map(|(name, value)| {
            let number = finite(name.get_ref(), value, report)?;
            Some((PlacedValue { value: name.get_ref().as_ref(), span: name.span() }, number))
        });
        // Every mistake is reported before anything is given up.
        numbers.collect::<Vec<_>>().into_iter().collect()
    }

    /// The texts in a table under a key, each understood and under its own name, in the order in which they
    /// are written. `None` when there is something else under the key, or in the table.
    pub fn named_texts<T: FromStr<Err: Display>>(
        &self,
        key: &str,
        report: &mut FindingList<'_>,
    ) -> Option<Vec<(PlacedValue<&'a str>, PlacedValue<T>)>> {
        let Some(value) = self.value(key) else { return Some(Vec::new()) };
        let Some(table) = value.get_ref().as_table() else {
            mismatch(key, "a table of texts", value.get_ref(), &value.span(), report);
            return None;
        };
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(name, _)| name.span().start);
        let texts = entries.into_iter().map(|(name, value)| {
            let Some(text) = value.get_ref().as_str() else {
                mismatch(name.get_ref(), "a text", value.get_ref(), &value.span(), report);
                return None;
            };
            let understood = text.parse().map_err(|error| {
                report.error(&value.span(), format!("`{}`: {error}", name.get_ref().escape_debug()));
            });
            let given = PlacedValue { value: understood.ok()?, span: value.span() };
            Some((PlacedValue { value: name.get_ref().as_ref(), span: name.span() }, given))
        });
        texts.collect::<Vec<_>>().into_iter().collect()
    }

    /// One of a few words.
    pub fn choice<T: Copy>(
        &self,
        key: &str,
        choices: &[(&'static str, T)],
        report: &mut FindingList<'_>,
    ) -> Option<PlacedValue<T>> {
        let given = self.text(key, report)?;
        if let Some((_, choice)) = choices.iter().find(|(word, _)| *word == given.value) {
            return Some(PlacedValue { value: *choice, span: given.span });
        }
        let words: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
        let message = format!("`{key}` cannot be `{}`", given.value.escape_debug());
        report.error_with_help(&given.span, message, nearest::help(given.value, &words));
        None
    }

    /// A table under a key.
    pub fn table(
        &self,
        key: &str,
        keys: &'static [&'static str],
        report: &mut FindingList<'_>,
    ) -> Option<Section<'a>> {
        let (name, value) = self.table.get_key_value(key)?;
        let Some(table) = value.get_ref().as_table() else {
            mismatch(key, "a table", value.get_ref(), &value.span(), report);
            return None;
        };
        Some(Self::new(table, name.span(), format!("`{key}` of {}", self.what), keys, report))
    }

    /// The tables under a key, each under its own name, in the order in which they are written. `None` when
    /// there is something else under the key.
    pub fn named_tables(
        &self,
        key: &str,
        keys: &'static [&'static str],
        report: &mut FindingList<'_>,
    ) -> Option<Vec<(PlacedValue<&'a str>, Section<'a>)>> {
        let Some(value) = self.value(key) else { return Some(Vec::new()) };
        let Some(tables) = value.get_ref().as_table() else {
            mismatch(key, "tables, each under its own name", value.get_ref(), &value.span(), report);
            return None;
        };
        let mut entries: Vec<_> = tables.iter().collect();
        entries.sort_by_key(|(name, _)| name.span().start);
        let mut sections = Vec::new();
        for (name, value) in entries {
            let what = format!("{key} `{}`", name.get_ref().escape_debug());
            match value.get_ref().as_table() {
                Some(table) => {
                    let section = Self::new(table, name.span(), what, keys, report);
                    sections
                        .push((PlacedValue { value: name.get_ref().as_ref(), span: name.span() }, section));
                }
                None => mismatch(&what, "a table", value.get_ref(), &value.span(), report),
            }
        }
        Some(sections)
    }

    /// The tables in a list under a key, in their order. Messages call them by their numbers.
    pub fn tables(
        &self,
        key: &str,
        keys: &'static [&'static str],
        report: &mut FindingList<'_>,
    ) -> Vec<Section<'a>> {
        let Some(value) = self.value(key) else { return Vec::new() };
        let Some(items) = value.get_ref().as_array() else {
            mismatch(key, "a list of tables", value.get_ref(), &value.span(), report);
            return Vec::new();
        };
        let mut sections = Vec::new();
        for (number, item) in (1..).zip(items.iter()) {
            match item.get_ref().as_table() {
                Some(table) => {
                    let what = format!("number {number} of `{key}` of {}", self.what);
                    sections.push(Self::new(table, item.span(), what, keys, report));
                }
                None => mismatch(key, "a list of tables", item.get_ref(), &item.span(), report),
            }
        }
        sections
    }

    /// The texts and tables in a list under a key, in their order. Messages call the tables by their numbers.
    /// `None` when there is no list.
    pub fn texts_and_tables(
        &self,
        key: &str,
        keys: &'static [&'static str],
        report: &mut FindingList<'_>,
    ) -> Option<Vec<TextOrTable<'a>>> {
        let value = self.value(key)?;
        let Some(items) = value.get_ref().as_array() else {
            mismatch(key, "a list of texts", value.get_ref(), &value.span(), report);
            return None;
        };
        let mut found = Vec::new();
        for (number, item) in (1..).zip(items.iter()) {
            match item.get_ref() {
                DeValue::String(text) => {
                    found.push(TextOrTable::Text(PlacedValue { value: text.as_ref(), span: item.span() }));
                }
                DeValue::Table(table) => {
                    let what = format!("number {number} of `{key}`");
                    found.push(TextOrTable::Table(Self::new(table, item.span(), what, keys, report)));
                }
                other => mismatch(key, "a list of texts", other, &item.span(), report),
            }
        }
        Some(found)
    }

    /// One text that means something, or a list of them; an empty list is as good as any.
    pub fn one_or_more<T: FromStr<Err: Display>>(
        &self,
        key: &str,
        report: &mut FindingList<'_>,
    ) -> Option<Vec<PlacedValue<T>>> {
        Some(one_or_more(key, self.value(key)?, report))
    }

    /// The same under each name of a table under a key, in the order in which they are written.
    pub fn named_lists<T: FromStr<Err: Display>>(
        &self,
        key: &str,
        report: &mut FindingList<'_>,
    ) -> Vec<(PlacedValue<&'a str>, Vec<PlacedValue<T>>)> {
        let Some(value) = self.value(key) else { return Vec::new() };
        let Some(table) = value.get_ref().as_table() else {
            mismatch(key, "a table of texts or lists of texts", value.get_ref(), &value.span(), report);
            return Vec::new();
        };
        let mut entries: Vec<_> = table.iter().collect();
        entries.sort_by_key(|(name, _)| name.span().start);
        let lists = entries.into_iter().map(|(name, value)| {
            let texts = one_or_more(&name.get_ref().escape_debug().to_string(), value, report);
            (PlacedValue { value: name.get_ref().as_ref(), span: name.span() }, texts)
        });
        lists.collect()
    }

    /// A list of texts that mean something, at least one; `empty` says why.
    pub fn list<T: FromStr<Err: Display>>(
        &self,
        key: &str,
        empty: &str,
        report: &mut FindingList<'_>,
    ) -> Option<Vec<PlacedValue<T>>> {
        let value = self.value(key)?;
        let Some(items) = value.get_ref().as_array() else {
            mismatch(key, "a list of texts", value.get_ref(), &value.span(), report);
            return None;
        };
        if items.is_empty() {
            report.error(&value.span(), format!("`{key}` {empty}"));
        }
        let mut parsed = Vec::new();
        for item in items {
            let span = item.span();
            match item.get_ref().as_str().map(str::parse) {
                Some(Ok(value)) => parsed.push(PlacedValue { value, span }),
                Some(Err(error)) => report.error(&span, format!("`{key}`: {error}")),
                None => mismatch(key, "a list of texts", item.get_ref(), &span, report),
            }
        }
        Some(parsed)
    }
}

/// Reads one text that means something, or a list of them.
fn one_or_more<T: FromStr<Err: Display>>(
    key: &str,
    value: &Spanned<DeValue<'_>>,
    report: &mut FindingList<'_>,
) -> Vec<PlacedValue<T>> {
    let one = std::slice::from_ref(value);
    let items = value.get_ref().as_array().map_or(one, |items| items);
    let mut parsed = Vec::new();
    for item in items {
        let span = item.span();
        match item.get_ref().as_str().map(str::parse) {
            Some(Ok(value)) => parsed.push(PlacedValue { value, span }),
            Some(Err(error)) => report.error(&span, format!("`{key}`: {error}")),
            None => mismatch(key, "a text or a list of texts", item.get_ref(), &span, report),
        }
    }
    parsed
}

fn finite(key: &str, value: &Spanned<DeValue<'_>>, report: &mut FindingList<'_>) -> Option<PlacedValue<f64>> {
    let number = match value.get_ref() {
        DeValue::Float(number) => number.as_str().parse::<f64>().ok(),
        DeValue::Integer(number) if number.radix() == 10 => number.as_str().parse::<f64>().ok(),
        _ => None,
    };
    match number.filter(|number| number.is_finite()) {
        Some(number) => Some(PlacedValue { value: number, span: value.span() }),
        None => {
            match meant(value.get_ref()) {
                Some(number) => report.error_with_help(
                    &value.span(),
                    format!("{} must be a finite number, this is a text", quoted(key)),
                    format!("write {number}, without quotes"),
                ),
                None => mismatch(key, "a finite number", value.get_ref(), &value.span(), report),
            }
            None
        }
    }
}

/// The number that a text is: "0.5", or "50%" of one.
fn meant(value: &DeValue<'_>) -> Option<f64> {
    let text = value.as_str()?.trim();
    let number = match text.strip_suffix('%') {
        // By its digits: 33.3 divided by 100 is not 0.333.
        Some(percent) => format!("{}e-2", percent.trim()).parse::<f64>().ok()?,
        None => text.parse().ok()?,
    };
    Some(number).filter(|number| number.is_finite())
}

fn quoted(key: &str) -> String {
    if key.contains('`') { key.to_owned() } else { format!("`{key}`") }
}

fn mismatch(key: &str, wanted: &str, got: &DeValue<'_>, span: &Range<usize>, report: &mut FindingList<'_>) {
    let got = match got {
        DeValue::String(_) => "a text",
        DeValue::Integer(number) => number.as_str(),
        DeValue::Float(number) => number.as_str(),
        DeValue::Boolean(true) => "`true`",
        DeValue::Boolean(false) => "`false`",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    };
    let key = quoted(key);
    report.error(span, format!("{key} must be {wanted}, this is {got}"));
}
