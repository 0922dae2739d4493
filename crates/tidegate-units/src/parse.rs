//! Text with a unit, parsed once at the edge.

use thiserror::Error;

/// The reason that a text is not a quantity.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum ParseUnitError {
    /// There is no number in front.
    #[error("`{text}` does not start with a number; write for example `{example}`")]
    NoNumber {
        /// The text that was given.
        text: String,
        /// A valid value of the same kind.
        example: &'static str,
    },
    /// The unit is missing or unknown.
    #[error("`{text}`: {}; use one of {expected}, for example `{example}`", missing_or_unknown(.unit))]
    Unit {
        /// The text that was given.
        text: String,
        /// The part after the number.
        unit: String,
        /// The units that are understood.
        expected: &'static str,
        /// A valid value of the same kind.
        example: &'static str,
    },
    /// The number is outside of what the type can hold.
    #[error("`{text}` is out of range: {range}")]
    Range {
        /// The text that was given.
        text: String,
        /// The range, in words.
        range: &'static str,
    },
}

fn missing_or_unknown(unit: &str) -> String {
    if unit.is_empty() { "the unit is missing".to_owned() } else { format!("unknown unit `{unit}`") }
}

/// The grammar of a kind of quantity: its units with their factors, and the words for errors.
pub(crate) struct QuantityGrammar {
    pub(crate) units: &'static [(&'static str, f64)],
    pub(crate) expected: &'static str,
    pub(crate) example: &'static str,
    pub(crate) range: &'static str,
}

impl QuantityGrammar {
    /// Parses `<number><spaces?><unit>` into the base unit, a finite number ≥ 0.
    pub(crate) fn parse(&self, text: &str) -> Result<f64, ParseUnitError> {
        let trimmed = text.trim();
        let split = trimmed.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(split);
        let number: f64 = number
            .parse()
            .map_err(|_| ParseUnitError::NoNumber { text: text.to_owned(), example: self.example })?;
        let unit = unit.trim();
        let factor =
            self.units.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor).ok_or_else(
                || ParseUnitError::Unit {
                    text: text.to_owned(),
                    unit: unit.to_owned(),
                    expected: self.expected,
                    example: self.example,
                },
            )?;
        let value = number * factor;
        if value.is_finite() { Ok(value) } else { Err(self.out_of_range(text)) }
    }

    pub(crate) fn out_of_range(&self, text: &str) -> ParseUnitError {
        ParseUnitError::Range { text: text.to_owned(), range: self.range }
    }
}
