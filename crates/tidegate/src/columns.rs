//! Tables for people.

use std::fmt;

/// More rows are not shown: a template of thousands is read from the JSON document.
const MOST_ROWS: usize = 50;

/// The row of the columns' names.
pub(crate) fn heading(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

/// The heading and what is under it, the first column to the left, the others to the right; then an empty
/// line.
pub(crate) fn write_rows(f: &mut fmt::Formatter<'_>, rows: &[Vec<String>]) -> fmt::Result {
    let shown = &rows[..rows.len().min(MOST_ROWS + 1)];
    let columns = shown.iter().map(Vec::len).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns)
        .map(|column| {
            shown.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max().unwrap_or(0)
        })
        .collect();
    for row in shown {
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            match column {
                0 => write!(f, "{cell:<width$}")?,
                _ => write!(f, "  {cell:>width$}")?,
            }
        }
        writeln!(f)?;
    }
    if rows.len() > shown.len() {
        writeln!(f, "and {} more: see --json", rows.len() - shown.len())?;
    }
    writeln!(f)
}
