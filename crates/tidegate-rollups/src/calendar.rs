//! Minutes and months, in UTC. Daylight saving time has no part in them.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use tidegate_journal::WallTime;

const NANOS_PER_MINUTE: u64 = 60_000_000_000;
const MINUTES_PER_DAY: u32 = 1_440;

/// The first month of a [`WallTime`] is January 1970, the last one that is whole December 2553.
const YEARS: Range<u16> = 1970..2554;

/// A minute, counted from 1970, UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Minute(u32);

impl Minute {
    /// Returns the minute that a time is in.
    #[must_use]
    pub const fn of(time: WallTime) -> Self {
        // Times end in the year 2554: 307 million minutes.
        Self((time.as_nanos() / NANOS_PER_MINUTE) as u32)
    }

    /// Returns the beginning of the minute.
    #[must_use]
    pub const fn begin(self) -> WallTime {
        WallTime::from_nanos((self.0 as u64).saturating_mul(NANOS_PER_MINUTE))
    }

    /// Returns the minute this many minutes later.
    #[must_use]
    pub const fn later(self, minutes: u32) -> Self {
        Self(self.0.saturating_add(minutes))
    }

    /// Returns the minute before.
    #[must_use]
    pub const fn previous(self) -> Self {
        Self(self.0.saturating_sub(1))
    }

    /// Returns the number of minutes since `earlier`; 0 if that is later.
    #[must_use]
    pub const fn since(self, earlier: Self) -> u32 {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the month that the minute is in.
    #[must_use]
    pub fn month(self) -> Month {
        let days = u64::from(self.0 / MINUTES_PER_DAY);
        // The mean length of a month of the Gregorian calendar is 146,097 days in 4,800 months. The month of
        // that length is the right one or a neighbour.
        let guess = Month::from_index(u32::try_from(days * 4_800 / 146_097).unwrap_or(u32::MAX));
        let candidates = [guess.next(), guess, guess.previous()];
        candidates.into_iter().find(|month| month.first_minute() <= self).unwrap_or(guess)
    }

    /// Returns the day of the month, from 1.
    #[must_use]
    pub fn day(self) -> u32 {
        self.since(self.month().first_minute()) / MINUTES_PER_DAY + 1
    }
}

/// A month of the Gregorian calendar, UTC. It is written as `2026-11`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Month {
    year: u16,
    /// Month of the year, from 1 to 12.
    month: u8,
}

/// The reason that a text is no month.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is no month; write for example `2026-11`")]
pub struct InvalidMonth(String);

impl Month {
    /// Returns the number of months since January 1970.
    #[must_use]
    pub const fn index(self) -> u32 {
        (self.year - YEARS.start) as u32 * 12 + self.month as u32 - 1
    }

    /// Returns the month of this number. A number beyond the last month is the last month.
    #[must_use]
    pub const fn from_index(index: u32) -> Self {
        let last = (YEARS.end - YEARS.start) as u32 * 12 - 1;
        let index = if index > last { last } else { index };
        // The year is below 2554 and the month at most 12.
        Self { year: YEARS.start + (index / 12) as u16, month: (index % 12) as u8 + 1 }
    }

    /// Returns the next month; the last month is its own.
    #[must_use]
    pub const fn next(self) -> Self {
        Self::from_index(self.index() + 1)
    }

    /// Returns the month before; the first month is its own.
    #[must_use]
    pub const fn previous(self) -> Self {
        Self::from_index(self.index().saturating_sub(1))
    }

    /// Returns the first minute of the month.
    #[must_use]
    pub const fn first_minute(self) -> Minute {
        // Hinnant, *chrono-Compatible Low-Level Date Algorithms*, `days_from_civil`. Years begin in March
        // there, so that a leap day is the last day of its year.
        let month = self.month as u32;
        let year = self.year as u32 - (month <= 2) as u32;
        let (era, of_era) = (year / 400, year % 400);
        let of_year = (153 * ((month + 9) % 12) + 2) / 5;
        let day_of_era = of_era * 365 + of_era / 4 - of_era / 100 + of_year;
        Minute((era * 146_097 + day_of_era - 719_468) * MINUTES_PER_DAY)
    }

    /// Returns the number of days of the month.
    #[must_use]
    pub const fn days(self) -> u32 {
        match self.month {
            4 | 6 | 9 | 11 => 30,
            2 if self.year.is_multiple_of(4)
                && (!self.year.is_multiple_of(100) || self.year.is_multiple_of(400)) =>
            {
                29
            }
            2 => 28,
            _ => 31,
        }
    }

    /// Returns the number of minutes of the month.
    #[must_use]
    pub const fn minutes(self) -> u32 {
        self.days() * MINUTES_PER_DAY
    }

    /// Returns the first minute of a day of the month, from 1.
    #[must_use]
    pub const fn day(self, day: u32) -> Minute {
        self.first_minute().later(day.saturating_sub(1).saturating_mul(MINUTES_PER_DAY))
    }
}

impl FromStr for Month {
    type Err = InvalidMonth;

    fn from_str(text: &str) -> Result<Self, InvalidMonth> {
        let invalid = || InvalidMonth(text.escape_debug().to_string());
        let is_month = |text: &str| {
            text.len() == 7
                && text
                    .bytes()
                    .enumerate()
                    .all(|(place, byte)| if place == 4 { byte == b'-' } else { byte.is_ascii_digit() })
        };
        if !is_month(text) {
            return Err(invalid());
        }
        let year = text[..4].parse().map_err(|_| invalid())?;
        let month = text[5..].parse().map_err(|_| invalid())?;
        if !YEARS.contains(&year) || !(1..=12).contains(&month) {
            return Err(invalid());
        }
        Ok(Self { year, month })
    }
}

impl TryFrom<String> for Month {
    type Error = InvalidMonth;

    fn try_from(text: String) -> Result<Self, InvalidMonth> {
        text.parse()
    }
}

impl From<Month> for String {
    fn from(month: Month) -> Self {
        month.to_string()
    }
}

impl fmt::Display for Month {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04}-{:02}", self.year, self.month)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn month(text: &str) -> Month {
        text.parse().unwrap()
    }

    #[test]
    fn months_follow_each_other_without_a_gap() {
        let mut month = Month::from_index(0);
        assert_eq!(month.first_minute(), Minute::of(WallTime::MIN));
        loop {
            let next = month.next();
            if next == month {
                break;
            }
            let first = next.first_minute();
            assert_eq!(first.since(month.first_minute()), month.minutes(), "{month}");
            assert_eq!((first.month(), first.previous().month()), (next, month));
            assert_eq!(first.day(), 1);
            assert_eq!(first.previous().day(), month.days());
            month = next;
        }
        assert_eq!(month.to_string(), "2553-12");
        assert_eq!(Minute::of(WallTime::MAX).month(), month, "the end of time is in the last month");
    }

    #[test]
    fn a_month_begins_where_its_first_time_says() {
        for (text, first) in [
            ("2026-11", "2026-11-01T00:00:00.000Z"),
            ("2000-03", "2000-03-01T00:00:00.000Z"),
            ("2024-02", "2024-02-01T00:00:00.000Z"),
        ] {
            assert_eq!(month(text).first_minute().begin().to_string(), first);
        }
        assert_eq!((month("2024-02").days(), month("2100-02").days(), month("2000-02").days()), (29, 28, 29));
        assert_eq!(month("2026-11").day(27).begin().to_string(), "2026-11-27T00:00:00.000Z");
    }

    #[test]
    fn other_texts_are_no_months() {
        for text in
            ["2026-13", "2026-00", "2026-1", "26-11", "2026/11", "2026-11-01", "1969-12", "", "２０２６-11"]
        {
            let error = text.parse::<Month>().unwrap_err().to_string();
            assert!(error.ends_with("is no month; write for example `2026-11`"), "{error}");
        }
    }
}
