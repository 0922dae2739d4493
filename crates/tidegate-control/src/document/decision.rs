//! The decision of the loop, with its input and its reason.

use std::fmt;

use serde::{Deserialize, Serialize};
use tidegate_units::{Instant, Iops, Latency, ResourceName, Window};

use crate::document::auto_decision::AutoDecision;
use crate::document::host_report::ClusterSignal;
use crate::document::output::{LawAction, LawKind, LawOutput, OutputBound};
use crate::document::point_decision::PointDecision;
use crate::document::rate_decision::{GaveWay, RateDecision, most_affected};
use crate::document::reserved::{ReservationDecision, ReservationShortage};
use crate::document::set_point_choice::SetPointChoice;
use crate::document::signal::{SignalRequests, SignalState, SignalStatistic};
use crate::document::waiting::WaitingConsumers;

/// Compensation below this explains nothing, and is not told.
const COMPENSATION_TO_TELL: f64 = 0.05;

/// One decision of the loop. [`Display`](fmt::Display) says it as a sentence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Decision {
    /// The version of this document: [`Decision::VERSION`].
    #[serde(deserialize_with = "crate::document::version::only::<{ Decision::VERSION }, _>")]
    pub version: u16,
    /// The resource decided on.
    pub resource: ResourceName,
    /// Time of the decision.
    pub at: Instant,
    /// The time since the previous decision, as the law was told: zero when the clock stood still or jumped
    /// back, bounded when it leapt forward.
    pub elapsed: Latency,
    /// Law that decided.
    pub law: LawKind,
    /// Signal of the law. For the integral and the self-tuning law, with any model, it is always everything.
    /// Input, measured and estimate are then of all requests together, and decide nothing.
    /// [`rates`](Self::rates) and [`point`](Self::point) have the figures of each consumer.
    pub signal: SignalRequests,
    /// Statistic of the signal that is measured, estimated and compared.
    pub statistic: SignalStatistic,
    /// Combined signal of all hosts, if the law steered by it.
    pub cluster: Option<ClusterSignal>,
    /// State of the signal in this interval.
    pub input: SignalState,
    /// The signal's mean response time since the previous observation, or its percentile. `None` without
    /// samples.
    pub measured: Option<Latency>,
    /// The smoothed signal. If nothing completes and the oldest request is older than that, its age instead.
    /// `None` before the first sample, and after a long idle time. [`compared`](Self::compared) is what the
    /// law made of it.
    pub estimate: Option<Latency>,
    /// Set point that the loop gave the law: the target times the set point ratio, or the knee. For the
    /// integral law it is the reference of consumers without a contract, unless another consumer's contract
    /// is stricter. The law `auto` takes it as a ceiling: [`steered_to`](Self::steered_to) is the set point
    /// now.
    pub set_point: Latency,
    /// Reason for the set point, if it was chosen automatically.
    pub choice: Option<SetPointChoice>,
    /// Action on the command.
    pub action: LawAction,
    /// β of the window law, by the shares that were at work. `None` when that law did not decide.
    pub beta: Option<f64>,
    /// By what β was multiplied because shares are of requests ([`SharesOf::Requests`](crate::SharesOf)):
    /// this host's response time over that of all hosts. `None` where shares are of slots.
    pub compensation: Option<f64>,
    /// Output of the law without bounds.
    pub raw: LawOutput,
    /// Output of the law within its bounds.
    pub bounded: LawOutput,
    /// The bound that made the difference.
    pub bound: Option<OutputBound>,
    /// The longest delay of a request that the output came to, where consumers are throttled by delays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<Latency>,
    /// Needs of reservations for the window. `None` while every consumer with a reservation is idle, or
    /// before anything completed.
    pub reserved: Option<ReservationDecision>,
    /// Decisions of the integral law, one for each eligible consumer. Empty for another law.
    pub rates: Vec<RateDecision>,
    /// The surplus that was taken back because a consumer with a contract came back from a pause.
    pub gave_way: Option<GaveWay>,
    /// Decision of the self-tuning law, with any model. `None` for another law.
    pub point: Option<PointDecision>,
    /// Figures of the law `auto`. `None` for another law, and before its first decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto: Option<AutoDecision>,
    /// Number of throttled consumers: those delayed, or waiting behind the window, or for their bucket.
    pub held: u32,
    /// Number of eligible consumers.
    pub throttled: u32,
    /// Consumers that wait for something other than the law, as far as the throttle knows.
    #[serde(default, skip_serializing_if = "WaitingConsumers::is_empty")]
    pub waiting: WaitingConsumers,
    /// Decided, not carried out: the commands let everything go.
    pub dry_run: bool,
    /// True if that is because an operator released all consumers.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub released: bool,
}

impl Decision {
    /// The version that this code writes and reads.
    pub const VERSION: u16 = 7;

    /// Returns what consumers are throttled by: the output of the law, or the delay that it came to.
    #[must_use]
    pub fn throttle(&self) -> LawOutput {
        self.delay.map_or(self.bounded, LawOutput::Delay)
    }

    /// Returns the set point now: the latency that the law steers to. Under `auto` that is the target less the
    /// measured margin, or what the storage can do.
    #[must_use]
    pub fn steered_to(&self) -> Latency {
        self.auto.map_or(self.set_point, |auto| auto.goal)
    }

    /// Returns the most that the configuration lets the set point be, under laws that find it. `None`: the
    /// set point is configured. If the storage cannot go below it, `auto` steers to what the storage can do.
    #[must_use]
    pub fn set_point_ceiling(&self) -> Option<Latency> {
        let of_auto = (self.law == LawKind::Auto).then_some(self.set_point);
        self.choice.as_ref().map(|choice| choice.ceiling).or(of_auto)
    }

    /// Returns the latency that the law compared with the set point: the estimate, or under `auto` that of the
    /// signal's worst consumer. `None` before the first sample, and after a long idle time.
    #[must_use]
    pub fn compared(&self) -> Option<Latency> {
        let of_auto = self.auto.filter(|_| !matches!(self.input, SignalState::Overload { .. }));
        self.estimate.map(|estimate| of_auto.map_or(estimate, |auto| auto.latency))
    }

    /// The window that consumers are throttled to, by whichever law. `None`: by another means, or nothing is
    /// throttled.
    #[must_use]
    pub fn window(&self) -> Option<Window> {
        match (self.throttle(), &self.point) {
            (_, Some(point)) => point.window,
            (LawOutput::Window(window), None) => Some(window),
            (LawOutput::Delay(_) | LawOutput::Rate(_), None) => None,
        }
    }
}

impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unless = match (self.released, self.dry_run) {
            (true, _) => " (released)",
            (false, true) => " (dry run)",
            (false, false) => "",
        };
        write!(f, "{}{unless}: ", self.resource)?;
        if let Some(point) = self.point.as_ref().filter(|_| self.auto.is_none()) {
            return self.write_point(f, point);
        }
        if let LawOutput::Rate(sum) = self.bounded {
            return self.write_rates(f, sum);
        }
        self.write_reason(f)?;
        if let Some(choice) = &self.choice {
            write!(f, " ({choice})")?;
        }
        f.write_str(": ")?;
        self.write_action(f)?;
        let point = self.point.as_ref().filter(|point| point.is_limit());
        if let Some((point, position)) = point.and_then(|point| Some((point, point.position?))) {
            write!(f, "; {} divided by bands, {position}", point.operating_point)?;
        }
        self.write_reservations(f)
    }
}

impl Decision {
    fn write_reason(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, one) = match self.signal {
            SignalRequests::ProtectedReads => ("protected reads", "protected read"),
            SignalRequests::Reads => ("reads", "read"),
            SignalRequests::Everything => ("response time", "request"),
        };
        let what = match self.statistic.percent() {
            None => what.to_owned(),
            Some(percent) => format!("{percent} % of {what} within"),
        };
        let set_point = self.steered_to();
        match (self.input, self.compared()) {
            (SignalState::Overload { oldest }, _) => {
                write!(
                    f,
                    "no {one} completes{}, the oldest waits {oldest} against {set_point}",
                    self.of_hosts()
                )
            }
            (SignalState::Samples { .. }, Some(latency)) => {
                write!(f, "{what}{} {latency} against {set_point}", self.of_hosts())?;
                self.auto.map_or(Ok(()), |auto| write!(f, "{auto}"))
            }
            (SignalState::Samples { .. } | SignalState::Unknown, _) => write!(f, "no {one} completed yet"),
            (SignalState::Idle, _) => write!(f, "no {one} to judge by"),
            (SignalState::NoTime, _) => f.write_str("the clock did not advance"),
        }
    }

    /// Returns a clause about the hosts that the measurements are from. Empty if they are this host's only.
    fn of_hosts(&self) -> String {
        let Some(cluster) = &self.cluster else { return String::new() };
        let silent = if cluster.stale > 0 { format!(", {} silent", cluster.stale) } else { String::new() };
        let moved = if cluster.adjusted > 0 {
            format!(", {} beyond belief", cluster.adjusted)
        } else {
            String::new()
        };
        let hosts = match cluster.hosts {
            0 => "another machine".to_owned(),
            1 => "this host alone".to_owned(),
            hosts => format!("{hosts} hosts"),
        };
        format!(" (of {hosts}{silent}{moved})")
    }

    fn write_action(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.throttled == 0 {
            return f.write_str("no consumer to throttle");
        }
        if self.held == 0 {
            f.write_str("nothing throttled")?;
            return if self.waiting.is_empty() { Ok(()) } else { write!(f, " ({})", self.waiting) };
        }
        let others = match self.signal {
            SignalRequests::ProtectedReads => "the others",
            SignalRequests::Reads => "writers",
            SignalRequests::Everything => "all",
        };
        let verb = match (self.dry_run, self.action) {
            (true, _) => "would be throttled",
            (false, LawAction::Regulate) => "throttled",
            (false, LawAction::Hold) => "still throttled",
            (false, LawAction::Relax) => "released by degrees, throttled",
        };
        match self.throttle() {
            LawOutput::Window(window) => write!(f, "{others} {verb} to a window of {window}")?,
            LawOutput::Delay(delay) => write!(f, "{others} {verb} by up to {delay} per request")?,
            LawOutput::Rate(rate) => write!(f, "{others} {verb} to {rate} in all")?,
        }
        write!(f, " ({})", self.counts("throttled"))?;
        match (self.throttle(), self.bound) {
            (LawOutput::Window(_), Some(OutputBound::Least)) => f.write_str(", the least that is allowed"),
            (LawOutput::Delay(_), Some(OutputBound::Greatest)) => {
                f.write_str(", the longest that is allowed")
            }
            (LawOutput::Delay(_), Some(OutputBound::FloorRate)) => f.write_str(", down to their floor rate"),
            (LawOutput::Window(_), Some(OutputBound::Reservation)) => {
                f.write_str(", the least that keeps reservations")
            }
            // The open end of a range is no news to a throttled consumer.
            _ => Ok(()),
        }?;
        match self.compensation {
            Some(factor) if (factor - 1.0).abs() >= COMPENSATION_TO_TELL => {
                write!(f, ", {factor:.2} times its share of the queue, for its share of requests")
            }
            _ => Ok(()),
        }
    }

    /// Returns a clause about the throttled consumers, and about those that wait for something else.
    fn counts(&self, throttled: &str) -> String {
        let others = if self.waiting.is_empty() { String::new() } else { format!(", {}", self.waiting) };
        format!("{} of {} {throttled}{others}", self.held, self.throttled)
    }

    /// Writes the needs of reservations if they decided, or are missed.
    fn write_reservations(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(reserved) = &self.reserved else { return Ok(()) };
        let ReservationDecision { rate, everywhere, latency, window, missed } = reserved;
        match missed {
            None if self.bound == Some(OutputBound::Reservation) => write!(f, " ({rate} at {latency})"),
            None => Ok(()),
            Some(ReservationShortage::Window) => {
                write!(f, "; reservations are missed: {rate} at {latency} take a window of {window}, ")?;
                f.write_str("more than is allowed")
            }
            Some(ReservationShortage::Storage) => {
                write!(f, "; reservations are missed: the storage completes less than {everywhere}")?;
                f.write_str(if everywhere > rate { " for all hosts" } else { "" })
            }
        }
    }

    fn write_point(&self, f: &mut fmt::Formatter<'_>, point: &PointDecision) -> fmt::Result {
        if self.input == SignalState::NoTime {
            return f.write_str("the clock did not advance: rates as before");
        }
        if self.throttled == 0 {
            return f.write_str("no consumer to throttle");
        }
        let held = if self.dry_run { "would be throttled" } else { "throttled" };
        write!(f, "{point} ({})", self.counts(held))
    }

    /// The rates of a few, the most affected ones, and how many there are beside them.
    fn write_rates(&self, f: &mut fmt::Formatter<'_>, sum: Iops) -> fmt::Result {
        if self.input == SignalState::NoTime {
            return f.write_str("the clock did not advance: rates as before");
        }
        if self.rates.is_empty() {
            return f.write_str("no consumer to throttle");
        }
        let held = if self.dry_run { "would be throttled" } else { "throttled" };
        write!(f, "{sum} in all ({})", self.counts(held))?;
        let (named, rest) = most_affected(&self.rates);
        for (index, rate) in named.into_iter().enumerate() {
            write!(f, "{} {rate}", if index == 0 { ":" } else { ";" })?;
        }
        if rest > 0 {
            write!(f, "; and {rest} more")?;
        }
        self.gave_way.iter().try_for_each(|gave_way| write!(f, "; {gave_way}"))
    }
}
