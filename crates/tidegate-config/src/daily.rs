//! Times of day at which the tables of a list hold, one after the other: their keys `from` and `until`.

use tidegate_units::{DailyError, DailyValues, TimeOfDay};

use crate::finding::FindingList;
use crate::placed::PlacedValue;
use crate::section::Section;

/// The keys of each.
pub const KEYS: &[&str] = &["from", "until"];

/// More changes a day than one in a quarter of an hour are not what two sides agreed on.
const MOST: usize = 96;

/// Returns the times of one table of a list: `from`, and `until` if it does not last until the next table
/// begins. Returns `None`, and reports it, if a time is wrong or missing.
fn times(table: &Section<'_>, report: &mut FindingList<'_>) -> Option<(TimeOfDay, Option<TimeOfDay>)> {
    if !table.has("from") {
        table.missing("from", "\"08:00\"", report);
    }
    let from = table.parsed::<TimeOfDay>("from", report);
    let until = table.parsed::<TimeOfDay>("until", report);
    if table.has("until") && until.is_none() {
        return None;
    }
    Some((from?.value, until.map(|given| given.value)))
}

/// Reads the times of the tables in a list, and combines each with the value that was read of it. Returns
/// `None` if a time is wrong or missing, two tables hold at once, or a value was not read. All of these are
/// reported.
pub fn read<T>(
    list: PlacedValue<&str>,
    tables: Vec<(&Section<'_>, Option<T>)>,
    report: &mut FindingList<'_>,
) -> Option<DailyValues<T>> {
    if tables.len() > MOST {
        report
            .error(&list.span, format!("`{}` has {} entries, and at most {MOST}", list.value, tables.len()));
        return None;
    }
    let whole = tables.len();
    let mut places = Vec::new();
    let mut parts = Vec::new();
    for (table, value) in tables {
        let times = times(table, report);
        if let (Some((from, until)), Some(value)) = (times, value) {
            places.push(table);
            parts.push((from, until, value));
        }
    }
    // Of those that are right, whatever is wrong with others.
    let complete = parts.len() == whole;
    if !complete && parts.len() < 2 {
        return None;
    }
    match DailyValues::new(parts) {
        Ok(daily) => Some(daily).filter(|_| complete),
        Err(error) => {
            let table = places.get(error.part());
            let key = match error {
                DailyError::Empty { .. } | DailyError::Overlap { .. } => "until",
                DailyError::Never | DailyError::Twice { .. } | DailyError::Alone => "from",
            };
            let place = table.map_or(list.span, |table| match table.value(key) {
                Some(value) => value.span(),
                None => table.span().clone(),
            });
            let what = table.map_or_else(|| format!("`{}`", list.value), |table| table.what().to_owned());
            report.error(&place, format!("{what}: {error}"));
            None
        }
    }
}
