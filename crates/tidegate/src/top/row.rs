//! A line of a table: a resource, or a consumer of one, with its figures and their words.

use std::cmp::Ordering;

use tidegate_service::status::{
    ConsumerStatus, DecisionStatus, ErrorsStatus, InputStatus, LawStatus, OperatingPoint, ResourceStatus,
};
use tidegate_units::{Iops, Window};

use crate::status::text::{self, NONE, UNKNOWN, bytes, rate, time};

/// The state of those whose requests fail.
const IO_ERRORS: &str = "I/O ERRORS";

/// A column of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Column {
    Name,
    Latency,
    Target,
    Trend,
    Promise,
    Throttled,
    Iops,
    Read,
    Written,
    State,
}

impl Column {
    /// The columns of the table of resources.
    pub(super) const OF_RESOURCES: &'static [Self] = &[
        Self::Name,
        Self::Latency,
        Self::Target,
        Self::Trend,
        Self::Promise,
        Self::Throttled,
        Self::Iops,
        Self::Read,
        Self::Written,
        Self::State,
    ];

    /// The columns of the table of consumers.
    pub(super) const OF_CONSUMERS: &'static [Self] = &[
        Self::Name,
        Self::Latency,
        Self::Target,
        Self::Trend,
        Self::Promise,
        Self::Iops,
        Self::Read,
        Self::Written,
        Self::State,
    ];

    /// The least width.
    pub(super) const fn width(self) -> u16 {
        match self {
            Self::Name => 10,
            Self::Target => 7,
            Self::Latency | Self::Trend => 8,
            Self::Promise => 11,
            Self::Throttled => 10,
            Self::Iops => 6,
            Self::Read | Self::Written => 11,
            Self::State => 13,
        }
    }

    /// The order in which columns get room, the most needed first.
    pub(super) const fn rank(self) -> u8 {
        match self {
            Self::Name => 0,
            Self::State => 1,
            Self::Latency => 2,
            Self::Target => 3,
            Self::Promise => 4,
            Self::Throttled => 5,
            Self::Trend => 6,
            Self::Iops => 7,
            Self::Written => 8,
            Self::Read => 9,
        }
    }

    /// True if its cells begin at its left edge.
    pub(super) const fn is_left(self) -> bool {
        matches!(self, Self::Name | Self::Trend | Self::Promise | Self::State)
    }

    /// True if it is sorted from the greatest value down at first.
    pub(super) const fn is_descending(self) -> bool {
        !matches!(self, Self::Name)
    }

    pub(super) const fn title(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Latency => "latency",
            Self::Target => "target",
            Self::Trend => "trend",
            Self::Promise => "promise",
            Self::Throttled => "throttled",
            Self::Iops => "IO/s",
            Self::Read => "read",
            Self::Written => "written",
            Self::State => "state",
        }
    }
}

/// The fulfilment of promises in the last minute.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Fulfilment {
    /// Nothing was promised.
    NoPromise,
    /// Nothing to judge by.
    Unknown,
    /// The promise was kept, in this part of the minute.
    Kept(f64),
    /// The promise was not kept, in this part of the minute.
    Broken(f64),
}

/// A resource, or one of its consumers.
#[derive(Debug, Clone, Copy)]
pub(super) struct TopRow<'a> {
    pub(super) resource: &'a ResourceStatus,
    /// `None`: the resource as a whole.
    pub(super) consumer: Option<&'a ConsumerStatus>,
    /// True if the service can read the machine's counters.
    pub(super) sees: bool,
    /// False: the service does not answer, and no figure holds any more.
    pub(super) is_current: bool,
}

impl<'a> TopRow<'a> {
    pub(super) fn name(&self) -> &'a str {
        self.consumer.map_or(&self.resource.name, ConsumerStatus::shown_name)
    }

    /// Returns the law and its last decision, if it says something of now.
    fn decided(&self) -> Option<(&'a LawStatus, &'a DecisionStatus)> {
        let (law, decided) = (self.resource.law.as_ref()?, self.resource.decided.as_ref()?);
        let is_known = self.is_current && self.sees && self.resource.present;
        (is_known && !text::is_old(decided, law)).then_some((law, decided))
    }

    /// Returns the latency in seconds: the signal of a resource, and that of a consumer at the storage.
    pub(super) fn latency(&self) -> Option<f64> {
        if !self.is_current {
            return None;
        }
        match (self.consumer, &self.resource.law) {
            (Some(one), _) => {
                let lately = one.recent.and_then(|did| did.response_time_seconds);
                lately.or(one.measured_seconds).or(one.oldest_seconds)
            }
            (None, None) => self.resource.recent.and_then(|did| did.response_time_seconds),
            (None, Some(_)) => {
                let (_, decided) = self.decided()?;
                let is_measured = decided.input == InputStatus::Samples;
                decided.measured_seconds.or(decided.estimate_seconds).filter(|_| is_measured)
            }
        }
    }

    /// Returns the latency in words.
    pub(super) fn latency_words(&self) -> String {
        match self.consumer {
            _ if !self.is_current => UNKNOWN.to_owned(),
            Some(one) => text::takes(one),
            None => match self.decided().map(|(_, decided)| decided.input) {
                Some(InputStatus::Idle) => "idle".to_owned(),
                Some(InputStatus::Overload) => "OVERLOAD".to_owned(),
                _ => self.latency().map_or_else(|| UNKNOWN.to_owned(), time),
            },
        }
    }

    /// Returns the latency promised, in seconds.
    pub(super) fn target(&self) -> Option<f64> {
        match self.consumer {
            Some(one) => text::promised(one, self.resource),
            None => self.resource.law.as_ref().map(|law| law.target_seconds),
        }
    }

    /// Returns the latency to compare with, in seconds: that of the resource, where nothing is promised.
    pub(super) fn reference(&self) -> Option<f64> {
        self.target().or_else(|| self.resource.law.as_ref().map(|law| law.target_seconds))
    }

    /// Returns the fulfilment of its promise; of a resource, the worst of its consumers.
    pub(super) fn fulfilment(&self) -> Fulfilment {
        let of = |one: &ConsumerStatus| match one.promise {
            None => Fulfilment::NoPromise,
            Some(_) if !self.is_current => Fulfilment::Unknown,
            Some(promise) => match (promise.minute, promise.is_kept()) {
                (Some(part), Some(true)) => Fulfilment::Kept(part),
                (Some(part), Some(false)) => Fulfilment::Broken(part),
                _ => Fulfilment::Unknown,
            },
        };
        match self.consumer {
            Some(one) => of(one),
            None => {
                let worst = |a: Fulfilment, b: Fulfilment| if b.rank() > a.rank() { b } else { a };
                self.resource.consumers.iter().map(of).fold(Fulfilment::NoPromise, worst)
            }
        }
    }

    /// Returns true if the law throttles it now, or one of its consumers. `None`: not known.
    pub(super) fn is_throttled(&self) -> Option<bool> {
        match self.consumer {
            _ if !self.is_current => None,
            Some(one) => one.held,
            None => self.decided().map(|(law, decided)| decided.held > 0 && !law.dry_run),
        }
    }

    /// Returns how many of its eligible consumers are throttled, or would be on a dry run.
    fn throttled_of(&self) -> Option<(u32, u32)> {
        self.decided().map(|(_, decided)| (decided.held, decided.throttled))
    }

    pub(super) fn iops(&self) -> Option<f64> {
        self.recent().map(|did| did.iops)
    }

    fn recent(&self) -> Option<tidegate_service::status::LoadFigures> {
        let recent = self.consumer.map_or(self.resource.recent, |one| one.recent);
        recent.filter(|_| self.is_current)
    }

    /// Returns the throttle in force: of the consumer, or of the resource.
    pub(super) fn throttle(&self) -> Option<String> {
        let (_, decided) = self.decided()?;
        let of_consumer = self.consumer.and_then(|one| {
            let delay = one.delay_seconds.map(|delay| format!("delay {}", time(delay)));
            delay.or_else(|| Some(format!("rate {}", Iops::new(one.rate_iops?))))
        });
        let window = || Some(format!("window {}", Window::new(decided.window_requests?)));
        let of_resource = || {
            let point = match decided.operating_point {
                Some(OperatingPoint::Limits { iops, .. }) => Some(format!("{}", Iops::new(iops))),
                _ => None,
            };
            let delay = || Some(format!("delay {}", time(decided.delay_seconds?)));
            window().or(point).or_else(delay)
        };
        of_consumer.or_else(of_resource)
    }

    /// Returns the one thing to know, in few words.
    pub(super) fn state(&self) -> String {
        if !self.is_current {
            return UNKNOWN.to_owned();
        }
        let by = || self.throttle().map_or_else(String::new, |throttle| format!(": {throttle}"));
        let resource = self.resource;
        if let Some(one) = self.consumer {
            return match text::state(one) {
                _ if one.poisoned => "FLUSHES FAIL".to_owned(),
                _ if text::has_errors(one) => IO_ERRORS.to_owned(),
                _ if one.removed => "REMOVED, still in use".to_owned(),
                throttled @ "throttled" => format!("{throttled}{}", by()),
                other => other.to_owned(),
            };
        }
        if resource.errors.as_ref().is_some_and(ErrorsStatus::go_on) {
            return IO_ERRORS.to_owned();
        }
        let Some(law) = &resource.law else { return "no law".to_owned() };
        match self.decided() {
            None if !self.sees => "unknown: no counters".to_owned(),
            None if !resource.present => "unknown: no storage".to_owned(),
            None if !resource.uncounted.is_empty() => "unknown: not counted".to_owned(),
            None => UNKNOWN.to_owned(),
            Some(_) if resource.throttle_fails => "THROTTLE FAILS".to_owned(),
            Some(_) if law.released => "released".to_owned(),
            Some((_, decided)) if decided.held == 0 && law.dry_run => "dry run".to_owned(),
            Some((_, decided)) if decided.held == 0 => "free".to_owned(),
            // The column beside it says how many are throttled.
            Some(_) if law.dry_run => format!("dry{}", by()),
            Some(_) => self.throttle().unwrap_or_else(|| "throttles".to_owned()),
        }
    }

    /// Returns the need of attention: the greater, the sooner.
    pub(super) fn severity(&self) -> u8 {
        let is_unknown = self.state().starts_with(UNKNOWN);
        let is_broken = matches!(self.fulfilment(), Fulfilment::Broken(_));
        let waits = self.consumer.is_some_and(|one| one.waits_for.is_some());
        let fails = self.consumer.map_or_else(
            || self.resource.errors.as_ref().is_some_and(ErrorsStatus::go_on),
            |one| one.poisoned || text::has_errors(one),
        );
        if fails || self.resource.throttle_fails {
            6
        } else if is_broken {
            5
        } else if self.is_throttled() == Some(true) {
            4
        } else if waits {
            3
        } else {
            u8::from(is_unknown) * 2
        }
    }

    /// Returns the text of a cell. The trend is drawn.
    pub(super) fn cell(&self, column: Column) -> String {
        let or_unknown = |figure: Option<String>| figure.unwrap_or_else(|| UNKNOWN.to_owned());
        match column {
            Column::Name => self.name().to_owned(),
            Column::Latency => self.latency_words(),
            Column::Target => self.target().map_or_else(|| NONE.to_owned(), time),
            Column::Trend => String::new(),
            Column::Promise => self.fulfilment().words(),
            Column::Throttled if self.resource.law.is_none() => NONE.to_owned(),
            Column::Throttled => {
                or_unknown(self.throttled_of().map(|(some, all)| format!("{some} of {all}")))
            }
            Column::Iops => self.iops().map_or_else(|| "?".to_owned(), rate),
            Column::Read => or_unknown(self.recent().map(|did| bytes(did.read_bytes_per_second))),
            Column::Written => or_unknown(self.recent().map(|did| bytes(did.written_bytes_per_second))),
            Column::State => self.state(),
        }
    }

    /// Compares two rows by a column. Rows with an unknown figure come last, in both directions.
    pub(super) fn compare(&self, other: &Self, column: Column, is_descending: bool) -> Ordering {
        let directed = |order: Ordering| if is_descending { order.reverse() } else { order };
        let by_name = self.name().cmp(other.name());
        if column == Column::Name {
            return directed(by_name);
        }
        let order = match (self.figure(column), other.figure(column)) {
            (Some(one), Some(two)) => directed(one.total_cmp(&two)),
            (one, two) => one.is_none().cmp(&two.is_none()),
        };
        order.then(by_name)
    }

    fn figure(&self, column: Column) -> Option<f64> {
        match column {
            Column::Name => None,
            Column::Latency => self.latency(),
            Column::Target => self.target(),
            Column::Trend => Some(self.latency()? / self.reference()?),
            Column::Promise => match self.fulfilment() {
                Fulfilment::Kept(part) | Fulfilment::Broken(part) => Some(part),
                Fulfilment::Unknown | Fulfilment::NoPromise => None,
            },
            Column::Throttled => self.throttled_of().map(|(some, _)| f64::from(some)),
            Column::Iops => self.iops(),
            Column::Read => self.recent().map(|did| did.read_bytes_per_second),
            Column::Written => self.recent().map(|did| did.written_bytes_per_second),
            Column::State => Some(f64::from(self.severity())),
        }
    }
}

impl Fulfilment {
    /// The lower, the better known to be good.
    const fn rank(self) -> u8 {
        match self {
            Self::NoPromise => 0,
            Self::Kept(_) => 1,
            Self::Unknown => 2,
            Self::Broken(_) => 3,
        }
    }

    pub(super) fn words(self) -> String {
        // 99.96 % is not all.
        let percent = |part: f64| (part * 100.0).floor();
        match self {
            Self::NoPromise => NONE.to_owned(),
            Self::Unknown => UNKNOWN.to_owned(),
            Self::Kept(part) => format!("kept {:.0} %", percent(part)),
            Self::Broken(part) => format!("BROKEN {:.0} %", percent(part)),
        }
    }
}
