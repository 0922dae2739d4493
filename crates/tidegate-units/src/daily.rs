//! Times of day, and what holds at which.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

const DAY: u32 = 86_400;
const HOUR: u32 = 3_600;
const MINUTE: u32 = 60;

/// A time of day in UTC, to the second.
///
/// Written `08:00` or `08:00:30`, in UTC, or with the distance from it: `08:00+02:00` is `06:00`. `24:00` is
/// midnight. There are no time zones with summer time: what two parties agreed on must mean one thing, every
/// day, wherever it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeOfDay(u32);

/// The error for a text that is no time of day.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{0}` is no time of day; write for example `08:00`, which is UTC, or `08:00+02:00`")]
pub struct ParseTimeOfDayError(String);

impl TimeOfDay {
    /// The beginning of a day.
    pub const MIDNIGHT: Self = Self(0);

    /// At so many seconds after the beginning of 1970 in UTC (before it, where they are negative). Leap
    /// seconds have no number there.
    #[must_use]
    pub const fn of_unix(seconds: i64) -> Self {
        Self(seconds.rem_euclid(DAY as i64) as u32)
    }

    /// Seconds from the other time of day on until this one comes: less than a day.
    const fn after(self, other: Self) -> u32 {
        (self.0 + DAY - other.0) % DAY
    }
}

impl fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (hour, minute, second) = (self.0 / HOUR, self.0 % HOUR / MINUTE, self.0 % MINUTE);
        write!(f, "{hour:02}:{minute:02}")?;
        if second == 0 { Ok(()) } else { write!(f, ":{second:02}") }
    }
}

impl FromStr for TimeOfDay {
    type Err = ParseTimeOfDayError;

    fn from_str(text: &str) -> Result<Self, ParseTimeOfDayError> {
        let wrong = || ParseTimeOfDayError(text.to_owned());
        let (time, zone) = match text.find(['Z', '+', '-']) {
            Some(at) => text.split_at(at),
            None => (text, "Z"),
        };
        let seconds = clock(time).filter(|&seconds| seconds <= DAY).ok_or_else(wrong)?;
        let distance = |zone| clock(zone).filter(|distance| *distance < DAY && zone.len() == 5);
        let ahead = match zone.split_at(1) {
            ("Z", "") => 0,
            ("+", zone) => distance(zone).ok_or_else(wrong)?,
            ("-", zone) => DAY - distance(zone).ok_or_else(wrong)?,
            _ => return Err(wrong()),
        };
        Ok(Self((seconds + DAY - ahead) % DAY))
    }
}

/// `HH:MM` or `HH:MM:SS` in seconds.
fn clock(text: &str) -> Option<u32> {
    let mut seconds = 0;
    let parts: Vec<_> = text.split(':').collect();
    if !(2..=3).contains(&parts.len()) {
        return None;
    }
    for ((part, unit), bound) in parts.iter().zip([HOUR, MINUTE, 1]).zip([25, 60, 60]) {
        let digits = part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
        seconds += unit * part.parse::<u32>().ok().filter(|number| digits && *number < bound)?;
    }
    Some(seconds)
}

/// A part of every day: from a time until another, which is not in it any more. Over midnight where the end
/// is before the beginning, and all day where both are one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DailyPeriod {
    from: TimeOfDay,
    until: TimeOfDay,
}

impl DailyPeriod {
    /// All of it.
    pub const DAY: Self = Self { from: TimeOfDay::MIDNIGHT, until: TimeOfDay::MIDNIGHT };

    /// The periods into which these times divide a day, in their order: at least one, which is all of it
    /// where there are no times.
    #[must_use]
    pub fn between(mut times: Vec<TimeOfDay>) -> Vec<Self> {
        times.sort_unstable();
        times.dedup();
        match times.first() {
            None => vec![Self::DAY],
            Some(&first) => {
                let ends = times.iter().copied().skip(1).chain([first]);
                times.iter().zip(ends).map(|(&from, until)| Self { from, until }).collect()
            }
        }
    }

    /// Returns its beginning.
    #[must_use]
    pub const fn from(self) -> TimeOfDay {
        self.from
    }

    /// Returns its end.
    #[must_use]
    pub const fn until(self) -> TimeOfDay {
        self.until
    }

    /// Returns true if it is all of every day.
    #[must_use]
    pub fn is_whole(self) -> bool {
        self.from == self.until
    }

    /// Returns true if this time is in it.
    #[must_use]
    pub fn contains(self, time: TimeOfDay) -> bool {
        self.is_whole() || time.after(self.from) < self.until.after(self.from)
    }
}

impl fmt::Display for DailyPeriod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, until } = self;
        if self.is_whole() { f.write_str("all day") } else { write!(f, "from {from} until {until}") }
    }
}

/// Values by time of day, the same every day: parts of a day, each with a value. No two parts overlap;
/// between them there may be times without a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DailyValues<T>(Vec<(DailyPeriod, T)>);

/// A contradiction between parts of a day. Parts are identified by their indices in the list that was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DailyError {
    /// There are none.
    #[error("nothing holds at any time")]
    Never,
    /// One ends when it begins.
    #[error("it ends when it begins")]
    Empty {
        /// The part.
        part: usize,
    },
    /// Two begin at once.
    #[error("another one begins at {at}, too")]
    Twice {
        /// The part that was given later.
        part: usize,
        /// The time at which both begin.
        at: TimeOfDay,
    },
    /// One goes on when the next one has begun.
    #[error("it goes on until {until}, and the next one begins at {next}")]
    Overlap {
        /// The part that goes on.
        part: usize,
        /// Its end.
        until: TimeOfDay,
        /// The beginning of the next one.
        next: TimeOfDay,
    },
    /// The only one has a beginning and no end.
    #[error(
        "nothing follows it, so that it holds all day whenever it begins: say until when, or leave the time \
            out"
    )]
    Alone,
}

impl DailyError {
    /// Returns the index of the part that it is about.
    #[must_use]
    pub const fn part(&self) -> usize {
        match *self {
            Self::Never | Self::Alone => 0,
            Self::Empty { part } | Self::Twice { part, .. } | Self::Overlap { part, .. } => part,
        }
    }
}

impl<T> DailyValues<T> {
    /// The same, all day.
    #[must_use]
    pub fn always(value: T) -> Self {
        Self(vec![(DailyPeriod::DAY, value)])
    }

    /// Parts, each from a time on until another, or until the next one begins. In any order; over midnight
    /// where the end is before the beginning.
    ///
    /// # Errors
    /// When there are none, two hold at once, or one holds never, or all day without saying so.
    pub fn new(given: Vec<(TimeOfDay, Option<TimeOfDay>, T)>) -> Result<Self, DailyError> {
        match given[..] {
            [] => return Err(DailyError::Never),
            [(_, None, _)] => return Err(DailyError::Alone),
            _ => {}
        }
        let mut parts: Vec<_> = given.into_iter().enumerate().collect();
        parts.sort_by_key(|&(at, (from, ..))| (from, at));
        for pair in parts.windows(2) {
            if let [(_, (first, ..)), (part, (second, ..))] = pair
                && first == second
            {
                return Err(DailyError::Twice { part: *part, at: *second });
            }
        }
        let froms: Vec<_> = parts.iter().map(|&(_, (from, ..))| from).collect();
        let nexts = froms.iter().cycle().skip(1);
        let whole = parts.into_iter().zip(nexts).map(|((part, (from, until, value)), &next)| {
            let until = until.unwrap_or(next);
            // Alone, it begins again after a day.
            let room = if next == from { DAY } else { next.after(from) };
            match until.after(from) {
                0 => Err(DailyError::Empty { part }),
                lasts if lasts > room => Err(DailyError::Overlap { part, until, next }),
                _ => Ok((DailyPeriod { from, until }, value)),
            }
        });
        whole.collect::<Result<_, _>>().map(Self)
    }

    /// Returns the value for this time; `None` if there is none.
    #[must_use]
    pub fn at(&self, time: TimeOfDay) -> Option<&T> {
        self.0.iter().find(|(period, _)| period.contains(time)).map(|(_, value)| value)
    }

    /// The times at which it changes what holds, in no order, and some of them twice. None where it is the
    /// same all day.
    pub fn changes(&self) -> impl Iterator<Item = TimeOfDay> {
        self.0
            .iter()
            .filter(|(period, _)| !period.is_whole())
            .flat_map(|(period, _)| [period.from, period.until])
    }

    /// Each value, and when it holds, in the order of the day.
    pub fn parts(&self) -> impl Iterator<Item = (DailyPeriod, &T)> {
        self.0.iter().map(|(period, value)| (*period, value))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn time(text: &str) -> TimeOfDay {
        text.parse().unwrap_or_else(|error| panic!("{error}"))
    }

    fn daily(parts: &[(&str, Option<&str>, char)]) -> Result<DailyValues<char>, DailyError> {
        DailyValues::new(
            parts.iter().map(|(from, until, value)| (time(from), until.map(time), *value)).collect(),
        )
    }

    #[test]
    fn a_time_is_written_in_utc_or_with_its_distance() {
        for (text, said) in [
            ("00:00", "00:00"),
            ("24:00", "00:00"),
            ("08:30", "08:30"),
            ("23:59:59", "23:59:59"),
            ("08:00Z", "08:00"),
            ("08:00+02:00", "06:00"),
            ("01:00+02:00", "23:00"),
            ("20:00-05:30", "01:30"),
            ("08:00:15-00:00", "08:00:15"),
        ] {
            assert_eq!(time(text).to_string(), said, "{text}");
        }
        for text in [
            "",
            "8:00",
            "08",
            "08:60",
            "24:01",
            "25:00",
            "08:00:60",
            "08:00+2",
            "08:00+24:00",
            "08:00 Z",
            "08:00+",
            "+8:00",
            "noon",
            "08:00:00:00",
            "08:00+02:00:00",
            "08:00CET",
            "é8:00",
        ] {
            assert!(text.parse::<TimeOfDay>().is_err(), "{text}");
        }
        assert_eq!(TimeOfDay::of_unix(1_795_000_000), time("11:06:40"));
        assert_eq!(TimeOfDay::of_unix(-1), time("23:59:59"));
    }

    #[test]
    fn a_part_lasts_until_the_next_one_or_its_own_end() {
        let day = daily(&[("20:00", None, 'n'), ("08:00", Some("18:00"), 'd')]).unwrap();
        let at = |text| day.at(time(text)).copied();
        for (text, value) in [
            ("08:00", Some('d')),
            ("17:59:59", Some('d')),
            ("18:00", None),
            ("20:00", Some('n')),
            ("00:00", Some('n')),
            ("07:59:59", Some('n')),
        ] {
            assert_eq!(at(text), value, "{text}");
        }
        let mut changes: Vec<_> = day.changes().map(|change| change.to_string()).collect();
        changes.sort_unstable();
        changes.dedup();
        assert_eq!(changes, ["08:00", "18:00", "20:00"]);
        let parts: Vec<_> = day.parts().map(|(period, value)| format!("{period} {value}")).collect();
        assert_eq!(parts, ["from 08:00 until 18:00 d", "from 20:00 until 08:00 n"]);
        let periods = DailyPeriod::between(day.changes().collect());
        let said: Vec<_> = periods.iter().map(ToString::to_string).collect();
        assert_eq!(said, ["from 08:00 until 18:00", "from 18:00 until 20:00", "from 20:00 until 08:00"]);
        assert_eq!(DailyPeriod::between(DailyValues::always('a').changes().collect()), [DailyPeriod::DAY]);
        let hours = daily(&[("22:00", Some("06:00"), 'n')]).unwrap();
        assert_eq!(
            ["23:00", "05:00", "06:00", "12:00"].map(|text| hours.at(time(text)).is_some()),
            [true, true, false, false]
        );
        let always = DailyValues::always('a');
        assert!(always.changes().next().is_none() && always.at(time("12:00")) == Some(&'a'));
    }

    #[test]
    fn what_contradicts_is_refused_and_named() {
        for (parts, error) in [
            (&[][..], DailyError::Never),
            (&[("08:00", None, 'a')], DailyError::Alone),
            (&[("08:00", Some("08:00"), 'a')], DailyError::Empty { part: 0 }),
            (
                &[("08:00", None, 'a'), ("10:00+02:00", None, 'b')],
                DailyError::Twice { part: 1, at: time("08:00") },
            ),
            (
                &[("20:00", None, 'n'), ("08:00", Some("20:01"), 'd')],
                DailyError::Overlap { part: 1, until: time("20:01"), next: time("20:00") },
            ),
            (
                &[("08:00", None, 'd'), ("20:00", Some("08:01"), 'n')],
                DailyError::Overlap { part: 1, until: time("08:01"), next: time("08:00") },
            ),
        ] {
            assert_eq!(daily(parts), Err(error), "{parts:?}");
        }
        assert!(daily(&[("08:00", Some("20:00"), 'd'), ("20:00", Some("08:00"), 'n')]).is_ok());
    }

    proptest! {
        /// Second by second: at most one part holds, and what holds changes at the changes and nowhere else.
        #[test]
        fn at_any_time_at_most_one_holds(
            parts in prop::collection::vec((0..DAY, prop::option::of(0..DAY)), 1..5),
            times in prop::collection::vec(0..DAY, 50),
        ) {
            let given: Vec<_> = parts.iter().enumerate()
                .map(|(value, &(from, until))| (TimeOfDay(from), until.map(TimeOfDay), value)).collect();
            let Ok(day) = DailyValues::new(given) else { return Ok(()) };
            let changes: Vec<_> = day.changes().map(|change| change.0).collect();
            for second in times.into_iter().chain(changes.iter().copied()) {
                let holding = day.0.iter().filter(|(period, _)| {
                    let (from, until) = (period.from.0, period.until.0);
                    if from < until { (from..until).contains(&second) }
                        else { second >= from || second < until }
                });
                let holding: Vec<_> = holding.map(|part| part.1).collect();
                prop_assert!(holding.len() <= 1);
                prop_assert_eq!(day.at(TimeOfDay(second)).copied(), holding.first().copied());
                let before = day.at(TimeOfDay((second + DAY - 1) % DAY));
                prop_assert!(changes.contains(&second) || before == day.at(TimeOfDay(second)));
            }
        }
    }
}
