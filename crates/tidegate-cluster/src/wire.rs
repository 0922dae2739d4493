//! The format of a message, the same on every carrier.
//!
//! Little-endian, without padding:
//!
//! ```text
//! magic "TGHR" · version u16 · cluster: u8 length, text
//! host: u8 length, text · incarnation u128 · sequence u64 · interval u32 (ms) · flags u8 (1: leaving)
//! reports: u8 count, then each:
//!     resource: u8 length, text · number u64 · flags u8 · interval u64 (ns) · completed u64
//!     total latency u64 (ns) · active shares f64 · reserved f64 (requests/s) · [oldest u64 (ns)]
//!     [window f64] · [set point u64 (ns)] · [operating point] · [load]
//! operating point, from version 2 on: flags u8 · done f64 (requests/s)
//!     [asked for f64 (requests/s) · goal u64 (ns) · [takes u64 (ns) · room f64]]
//!     [requests at the storage f64]
//!     [rest: shares f64 · most f64 (requests/s), or nothing where its flag says without bound]
//!     claims u8 count, then each:
//!         consumer: u8 length, text · flags u8 (1: without bound) · shares u32 · [most f64 (requests/s)]
//!     [consumers that are content beside a rest without bound, by a flag of the report:
//!         shares f64 · most f64 (requests/s)]
//! load, from version 3 on, in the place of an operating point: flags u8 (1: waiting, 2: has a window)
//!     rate f64 · rate of writes f64 (requests/s) · requests at the storage f64 · writes of them f64
//!     recent requests f64 · their mean u64 (ns) · the worst consumer's latency u64 (ns)
//!     [window of all hosts f64]
//! ```
//!
//! A message is of the least version that can express its content. Hosts whose laws have neither an operating
//! point nor a load write version 1, which hosts that know no other version understand.
//!
//! The bracketed fields are there when their flag is. Up to the cluster's name the layout is the same in
//! every version, so that a message of another version, or of another cluster, is told from a damaged one. A
//! receiver takes nothing on trust: each number has a range, unknown flags and leftovers are refused. A
//! sender brings its numbers into their range.

use tidegate_control::{
    HostReport, LoadReport, MOST_CLAIMS, MeanOutstanding, PointClaim, PointReport, PointRest, PointTurn,
    PointWish, SignalRequests,
};
use tidegate_units::{ConsumerName, HostName, Iops, Latency, ResourceName, Shares, Window};

use crate::limits::VERSION;
use crate::name::{ClusterName, Incarnation};
use crate::rejection::MessageRejection;

/// The oldest.
const OLDEST_VERSION: u16 = 1;

/// From this one on reports may have an operating point.
const WITH_POINTS: u16 = 2;

/// The first version whose reports may have a load.
const WITH_LOADS: u16 = 3;

const MAGIC: [u8; 4] = *b"TGHR";

/// A host tells of at most so many resources.
pub(crate) const MOST_RESOURCES: usize = 64;

/// A report and its resource need at most so many bytes.
#[cfg(test)]
const LONGEST_REPORT: usize = 1 + 255 + 8 + 1 + 5 * 8 + 3 * 8 + 1 + 8 * 8 + 1 + LONGEST_CLAIMS + 2 * 8;

/// Claims need at most so many bytes together, so that a report fits into a datagram with the longest names.
/// Consumers for which there is no room are left out: to other hosts their parts of the bands seem unused.
const LONGEST_CLAIMS: usize = 304;

const HOUR: u64 = 3_600 * 1_000_000_000;
/// No request waits longer, in nanoseconds: a day.
const LONGEST_LATENCY: u64 = 24 * HOUR;
/// The longest control interval, in nanoseconds.
const LONGEST_INTERVAL: u64 = HOUR;
/// More requests than any array completes in an hour.
const MOST_COMPLETED: u64 = 1_000_000_000_000;
const GREATEST_WINDOW: f64 = 1e9;
/// A million consumers with the most shares.
const MOST_SHARES: f64 = 1e12;
const MOST_IOPS: f64 = 1e12;
/// More requests than any storage holds.
const MOST_AT_STORAGE: f64 = 1e12;
/// Rates never leave so much room.
const MOST_ROOM: f64 = 1e3;

const LEAVING: u8 = 1;

const PROTECTED_READS: u8 = 1;
const OUTSTANDING: u8 = 2;
const HAS_OLDEST: u8 = 4;
const HAS_WINDOW: u8 = 8;
const HAS_SET_POINT: u8 = 16;
const HAS_POINT: u8 = 32;
/// A flag of the operating point, whose own flags are all taken.
const HAS_CONTENT: u8 = 64;
const HAS_LOAD: u8 = 128;

/// Flags of a load.
const WAITING: u8 = 1;
const HAS_TOTAL: u8 = 2;
const LATE: u8 = 4;

const HAS_WISH: u8 = 1;
const HAS_SAY: u8 = 2;
const ENOUGH: u8 = 4;
const ACTIVE: u8 = 8;
const HAS_REST: u8 = 16;
const REST_UNBOUNDED: u8 = 32;
const HAS_TURN: u8 = 64;
const HAS_NUMBER: u8 = 128;

const UNBOUNDED: u8 = 1;

/// A message of one host at one time.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Message {
    pub(crate) sender: Sender,
    /// Grows with every message of an incarnation.
    pub(crate) sequence: u64,
    pub(crate) reports: Vec<NumberedReport>,
    /// The host ends in order and will say no more.
    pub(crate) leaving: bool,
}

/// The sender of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sender {
    pub(crate) host: HostName,
    pub(crate) incarnation: Incarnation,
    /// The usual time between its messages, in milliseconds.
    pub(crate) interval_ms: u32,
}

/// A report on one resource. Its number grows with every report that is made, and stays when an old one is
/// sent again: a carrier that shows the same report twice does not make it younger.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct NumberedReport {
    pub(crate) resource: ResourceName,
    pub(crate) number: u64,
    pub(crate) report: HostReport,
}

impl Message {
    /// Appends the message to `out`. At most [`MOST_RESOURCES`] reports are written.
    pub(crate) fn write(&self, cluster: &ClusterName, out: &mut Vec<u8>) {
        out.extend(MAGIC);
        let has_points = self.reports.iter().any(|numbered| numbered.report.point.is_some());
        let has_loads = self.reports.iter().any(|numbered| load(&numbered.report).is_some());
        let version = match (has_loads, has_points) {
            (true, _) => WITH_LOADS,
            (false, true) => WITH_POINTS,
            (false, false) => OLDEST_VERSION,
        };
        out.extend(version.to_le_bytes());
        write_text(cluster.as_str(), out);
        write_text(self.sender.host.as_str(), out);
        out.extend(self.sender.incarnation.0.to_le_bytes());
        out.extend(self.sequence.to_le_bytes());
        out.extend(self.sender.interval_ms.to_le_bytes());
        out.push(if self.leaving { LEAVING } else { 0 });
        let count = self.reports.len().min(MOST_RESOURCES);
        out.push(count as u8);
        for numbered in &self.reports[..count] {
            write_report(numbered, out);
        }
    }

    /// Reads a message, and returns what follows it.
    ///
    /// # Errors
    /// When the bytes are not a message of this version and cluster, or a number is out of its range.
    pub(crate) fn read<'b>(
        cluster: &ClusterName,
        bytes: &'b [u8],
    ) -> Result<(Self, &'b [u8]), MessageRejection> {
        let (version, rest) = check_start(cluster, bytes)?;
        let mut input = Input(rest);
        let host =
            HostName::new(input.text()?).map_err(|_| MessageRejection::Malformed("the host's name"))?;
        let incarnation = Incarnation(u128::from_le_bytes(input.take()?));
        let sequence = input.u64()?;
        let interval_ms = u32::from_le_bytes(input.take()?);
        if u64::from(interval_ms) * 1_000_000 > LONGEST_INTERVAL {
            return Err(MessageRejection::OutOfRange("the interval between messages"));
        }
        let leaving = match input.u8()? {
            0 => false,
            LEAVING => true,
            _ => return Err(MessageRejection::Malformed("unknown flags of the message")),
        };
        let count = usize::from(input.u8()?);
        if count > MOST_RESOURCES {
            return Err(MessageRejection::OutOfRange("the number of resources"));
        }
        let mut reports: Vec<NumberedReport> = Vec::with_capacity(count);
        for _ in 0..count {
            let numbered = read_report(&mut input, version)?;
            if reports.iter().any(|other| other.resource == numbered.resource) {
                return Err(MessageRejection::Malformed("two reports on one resource"));
            }
            reports.push(numbered);
        }
        let sender = Sender { host, incarnation, interval_ms };
        Ok((Self { sender, sequence, reports, leaving }, input.0))
    }
}

/// Checks the part that every version has, and returns the version, and what follows.
///
/// # Errors
/// When the bytes are of something else, of another version, or of another cluster.
pub(crate) fn check_start<'b>(
    cluster: &ClusterName,
    bytes: &'b [u8],
) -> Result<(u16, &'b [u8]), MessageRejection> {
    let mut input = Input(bytes);
    if input.take()? != MAGIC {
        return Err(MessageRejection::Malformed("it does not begin like a message"));
    }
    let version = u16::from_le_bytes(input.take()?);
    // The cluster comes first: another cluster's versions are none of our business.
    if input.text()? != cluster.as_str() {
        return Err(MessageRejection::OtherCluster);
    }
    match version {
        OLDEST_VERSION..=VERSION => Ok((version, input.0)),
        old if old < OLDEST_VERSION => Err(MessageRejection::OldVersion(old)),
        new => Err(MessageRejection::NewVersion(new)),
    }
}

/// Returns the number of bytes that a report takes.
pub(crate) fn length(numbered: &NumberedReport) -> usize {
    let mut bytes = Vec::new();
    write_report(numbered, &mut bytes);
    bytes.len()
}

fn write_text(text: &str, out: &mut Vec<u8>) {
    // Invariant: names are at most 255 bytes long, whatever they name.
    out.push(text.len() as u8);
    out.extend(text.as_bytes());
}

fn write_report(numbered: &NumberedReport, out: &mut Vec<u8>) {
    let NumberedReport { resource, number, report } = numbered;
    let completed = report.completed.min(MOST_COMPLETED);
    let flag = |there: bool, flag: u8| if there { flag } else { 0 };
    write_text(resource.as_str(), out);
    out.extend(number.to_le_bytes());
    out.push(
        flag(report.signal == SignalRequests::ProtectedReads, PROTECTED_READS)
            | flag(report.outstanding, OUTSTANDING)
            | flag(report.oldest.is_some(), HAS_OLDEST)
            | flag(report.window.is_some(), HAS_WINDOW)
            | flag(report.set_point.is_some(), HAS_SET_POINT)
            | flag(report.point.is_some(), HAS_POINT)
            | flag(content(report).is_some(), HAS_CONTENT)
            | flag(load(report).is_some(), HAS_LOAD),
    );
    out.extend(report.interval.as_nanos().min(LONGEST_INTERVAL).to_le_bytes());
    out.extend(completed.to_le_bytes());
    out.extend(report.total_latency.as_nanos().min(most_total(completed)).to_le_bytes());
    out.extend(within(report.active_shares, MOST_SHARES).to_le_bytes());
    out.extend(within(report.reserved.per_second(), MOST_IOPS).to_le_bytes());
    if let Some(oldest) = report.oldest {
        out.extend(oldest.as_nanos().min(LONGEST_LATENCY).to_le_bytes());
    }
    if let Some(window) = report.window {
        out.extend(within(window.get(), GREATEST_WINDOW).to_le_bytes());
    }
    if let Some(set_point) = report.set_point {
        out.extend(set_point.as_nanos().min(LONGEST_LATENCY).to_le_bytes());
    }
    if let Some(point) = &report.point {
        write_point(point, out);
    }
    if let Some((shares, most)) = content(report) {
        out.extend(within(shares, MOST_SHARES).to_le_bytes());
        write_rate(most, out);
    }
    if let Some(load) = load(report) {
        write_load(load, out);
    }
}

/// The report's load. A law that has an operating point has none.
fn load(report: &HostReport) -> Option<&LoadReport> {
    report.load.as_ref().filter(|_| report.point.is_none())
}

fn write_load(load: &LoadReport, out: &mut Vec<u8>) {
    let flag = |there: bool, flag: u8| if there { flag } else { 0 };
    out.push(
        flag(load.waiting, WAITING) | flag(load.total_window.is_some(), HAS_TOTAL) | flag(load.late, LATE),
    );
    write_rate(load.iops, out);
    write_rate(load.writes, out);
    for requests in [load.outstanding, load.writing, load.recent] {
        out.extend(within(requests.get(), MOST_AT_STORAGE).to_le_bytes());
    }
    for latency in [load.recent_mean, load.worst] {
        out.extend(latency.as_nanos().min(LONGEST_LATENCY).to_le_bytes());
    }
    if let Some(window) = load.total_window {
        out.extend(within(window.get(), GREATEST_WINDOW).to_le_bytes());
    }
}

fn read_load(input: &mut Input<'_>) -> Result<LoadReport, MessageRejection> {
    let flags = input.u8()?;
    if flags & !(WAITING | HAS_TOTAL | LATE) != 0 {
        return Err(MessageRejection::Malformed("unknown flags of a load"));
    }
    let iops = input.rate("the rate of a load")?;
    let writes = input.rate("the writes of a load")?;
    let mut requests = || input.number(MOST_AT_STORAGE, "the requests of a load").map(MeanOutstanding::new);
    let (outstanding, writing, recent) = (requests()?, requests()?, requests()?);
    let recent_mean = input.nanos(LONGEST_LATENCY, "the mean latency of a load")?;
    let worst = input.nanos(LONGEST_LATENCY, "the worst latency of a load")?;
    let total = (flags & HAS_TOTAL != 0).then(|| input.number(GREATEST_WINDOW, "the window of all hosts"));
    Ok(LoadReport {
        iops,
        writes,
        outstanding,
        writing,
        waiting: flags & WAITING != 0,
        late: flags & LATE != 0,
        recent,
        recent_mean,
        worst,
        total_window: total.transpose()?.map(Window::new),
    })
}

fn write_rate(rate: Iops, out: &mut Vec<u8>) {
    out.extend(within(rate.per_second(), MOST_IOPS).to_le_bytes());
}

/// The report's other consumers that are content, and their use.
fn content(report: &HostReport) -> Option<(f64, Iops)> {
    let point = report.point.as_ref()?;
    let PointRest { shares, most } = point.content?;
    Some((shares, most?)).filter(|_| point.rest.is_some_and(|rest| rest.most.is_none()))
}

fn write_point(point: &PointReport, out: &mut Vec<u8>) {
    let flag = |there: bool, flag: u8| if there { flag } else { 0 };
    let unbounded = point.rest.is_some_and(|rest| rest.most.is_none());
    out.push(
        flag(point.wish.is_some(), HAS_WISH)
            | flag(point.has_say, HAS_SAY)
            | flag(point.enough, ENOUGH)
            | flag(point.active, ACTIVE)
            | flag(point.rest.is_some(), HAS_REST)
            | flag(unbounded, REST_UNBOUNDED)
            | flag(point.wish.is_some_and(|wish| wish.turn.is_some()), HAS_TURN)
            | flag(point.outstanding.is_some(), HAS_NUMBER),
    );
    write_rate(point.done, out);
    if let Some(PointWish { operating_point, goal, turn }) = point.wish {
        write_rate(operating_point, out);
        out.extend(goal.as_nanos().min(LONGEST_LATENCY).to_le_bytes());
        if let Some(PointTurn { takes, room }) = turn {
            out.extend(takes.as_nanos().min(LONGEST_LATENCY).to_le_bytes());
            out.extend(within(room, MOST_ROOM).to_le_bytes());
        }
    }
    if let Some(outstanding) = point.outstanding {
        out.extend(within(outstanding, MOST_AT_STORAGE).to_le_bytes());
    }
    if let Some(PointRest { shares, most }) = point.rest {
        out.extend(within(shares, MOST_SHARES).to_le_bytes());
        if let Some(most) = most {
            write_rate(most, out);
        }
    }
    let mut claims = Vec::new();
    let mut count = 0;
    for PointClaim { name, shares, most } in point.claims.iter().take(MOST_CLAIMS) {
        let before = claims.len();
        write_text(name.as_str(), &mut claims);
        claims.push(if most.is_none() { UNBOUNDED } else { 0 });
        claims.extend(shares.get().to_le_bytes());
        if let Some(most) = most {
            write_rate(*most, &mut claims);
        }
        if claims.len() > LONGEST_CLAIMS {
            claims.truncate(before);
        } else {
            count += 1;
        }
    }
    out.push(count);
    out.extend(claims);
}

fn read_point(input: &mut Input<'_>) -> Result<PointReport, MessageRejection> {
    let flags = input.u8()?;
    let is = |flag: u8| flags & flag != 0;
    let unbounded = is(REST_UNBOUNDED);
    if unbounded && !is(HAS_REST) || is(HAS_TURN) && !is(HAS_WISH) {
        return Err(MessageRejection::Malformed("unknown flags of an operating point"));
    }
    let done = input.rate("what was done")?;
    let wish = is(HAS_WISH).then(|| {
        let operating_point = input.rate("the operating point")?;
        let goal = input.nanos(LONGEST_LATENCY, "the goal")?;
        let turn = is(HAS_TURN).then(|| {
            let takes = input.nanos(LONGEST_LATENCY, "how long requests take")?;
            Ok(PointTurn { takes, room: input.number(MOST_ROOM, "the rates' room")? })
        });
        Ok(PointWish { operating_point, goal, turn: turn.transpose()? })
    });
    let wish = wish.transpose()?;
    let number = || input.number(MOST_AT_STORAGE, "the requests at the storage");
    let outstanding = is(HAS_NUMBER).then(number).transpose()?;
    let rest = is(HAS_REST).then(|| {
        let shares = input.number(MOST_SHARES, "the other consumers' shares")?;
        let most = (!unbounded).then(|| input.rate("what the other consumers use")).transpose()?;
        Ok(PointRest { shares, most })
    });
    let rest = rest.transpose()?;
    let count = usize::from(input.u8()?);
    if count > MOST_CLAIMS {
        return Err(MessageRejection::OutOfRange("the number of consumers"));
    }
    let mut claims: Vec<PointClaim> = Vec::with_capacity(count);
    for _ in 0..count {
        let claim = read_claim(input)?;
        if claims.iter().any(|other| other.name == claim.name) {
            return Err(MessageRejection::Malformed("two claims of one consumer"));
        }
        claims.push(claim);
    }
    let (has_say, enough, active) = (is(HAS_SAY), is(ENOUGH), is(ACTIVE));
    Ok(PointReport { done, outstanding, wish, has_say, enough, active, claims, rest, content: None })
}

fn read_claim(input: &mut Input<'_>) -> Result<PointClaim, MessageRejection> {
    let name =
        ConsumerName::new(input.text()?).map_err(|_| MessageRejection::Malformed("a consumer's name"))?;
    let unbounded = match input.u8()? {
        0 => false,
        UNBOUNDED => true,
        _ => return Err(MessageRejection::Malformed("unknown flags of a claim")),
    };
    let shares = Shares::new(u32::from_le_bytes(input.take()?));
    let shares = shares.ok_or(MessageRejection::OutOfRange("a consumer's shares"))?;
    let most = (!unbounded).then(|| input.rate("what a consumer uses")).transpose()?;
    Ok(PointClaim { name, shares, most })
}

fn read_report(input: &mut Input<'_>, version: u16) -> Result<NumberedReport, MessageRejection> {
    let resource =
        ResourceName::new(input.text()?).map_err(|_| MessageRejection::Malformed("the resource's name"))?;
    let number = input.u64()?;
    let flags = input.u8()?;
    let is = |flag: u8| flags & flag != 0;
    let points = if version >= WITH_POINTS { HAS_POINT | HAS_CONTENT } else { 0 };
    let loads = if version >= WITH_LOADS { HAS_LOAD } else { 0 };
    let known = PROTECTED_READS | OUTSTANDING | HAS_OLDEST | HAS_WINDOW | HAS_SET_POINT | points | loads;
    if flags & !known != 0 || is(HAS_CONTENT) && !is(HAS_POINT) || is(HAS_LOAD) && is(HAS_POINT) {
        return Err(MessageRejection::Malformed("unknown flags of a report"));
    }
    let interval = input.nanos(LONGEST_INTERVAL, "the control interval")?;
    let completed = input.u64()?;
    if completed > MOST_COMPLETED {
        return Err(MessageRejection::OutOfRange("the number of completed requests"));
    }
    let total_latency = input.nanos(most_total(completed), "the sum of response times")?;
    let active_shares = input.number(MOST_SHARES, "the active shares")?;
    let reserved = input.number(MOST_IOPS, "the rate reserved")?;
    let oldest =
        is(HAS_OLDEST).then(|| input.nanos(LONGEST_LATENCY, "the age of the oldest request")).transpose()?;
    let window = is(HAS_WINDOW).then(|| input.number(GREATEST_WINDOW, "the window")).transpose()?;
    let set_point = is(HAS_SET_POINT).then(|| input.nanos(LONGEST_LATENCY, "the set point")).transpose()?;
    let mut point = is(HAS_POINT).then(|| read_point(input)).transpose()?;
    if let Some(point) = point.as_mut().filter(|_| is(HAS_CONTENT)) {
        if point.rest.is_none_or(|rest| rest.most.is_some()) {
            return Err(MessageRejection::Malformed("content consumers, and no others"));
        }
        let shares = input.number(MOST_SHARES, "the content consumers' shares")?;
        point.content = Some(PointRest { shares, most: Some(input.rate("what the content consumers use")?) });
    }
    let load = is(HAS_LOAD).then(|| read_load(input)).transpose()?;
    let report = HostReport {
        interval,
        signal: if is(PROTECTED_READS) { SignalRequests::ProtectedReads } else { SignalRequests::Everything },
        completed,
        total_latency,
        outstanding: is(OUTSTANDING),
        oldest,
        window: window.map(Window::new),
        active_shares,
        reserved: Iops::new(reserved),
        set_point,
        point,
        load,
    };
    Ok(NumberedReport { resource, number, report })
}

/// The greatest sum of so many response times.
const fn most_total(completed: u64) -> u64 {
    completed.saturating_mul(LONGEST_LATENCY)
}

fn within(number: f64, most: f64) -> f64 {
    if number.is_nan() { 0.0 } else { number.clamp(0.0, most) }
}

/// The bytes that are left to read.
pub(crate) struct Input<'b>(pub(crate) &'b [u8]);

impl<'b> Input<'b> {
    pub(crate) fn take<const N: usize>(&mut self) -> Result<[u8; N], MessageRejection> {
        let (taken, rest) =
            self.0.split_first_chunk().ok_or(MessageRejection::Malformed("it ends too early"))?;
        self.0 = rest;
        Ok(*taken)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, MessageRejection> {
        self.take::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, MessageRejection> {
        self.take().map(u64::from_le_bytes)
    }

    pub(crate) fn text(&mut self) -> Result<&'b str, MessageRejection> {
        let length = usize::from(self.u8()?);
        let (text, rest) =
            self.0.split_at_checked(length).ok_or(MessageRejection::Malformed("it ends too early"))?;
        self.0 = rest;
        std::str::from_utf8(text).map_err(|_| MessageRejection::Malformed("a name that is not text"))
    }

    fn nanos(&mut self, most: u64, what: &'static str) -> Result<Latency, MessageRejection> {
        match self.u64()? {
            nanos if nanos <= most => Ok(Latency::from_nanos(nanos)),
            _ => Err(MessageRejection::OutOfRange(what)),
        }
    }

    fn rate(&mut self, what: &'static str) -> Result<Iops, MessageRejection> {
        self.number(MOST_IOPS, what).map(Iops::new)
    }

    fn number(&mut self, most: f64, what: &'static str) -> Result<f64, MessageRejection> {
        let number = f64::from_le_bytes(self.take()?);
        // The range holds neither NaN nor the infinities; −0.0 is in it and harmless.
        if (0.0..=most).contains(&number) { Ok(number) } else { Err(MessageRejection::OutOfRange(what)) }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(crate) fn cluster() -> ClusterName {
        ClusterName::new("test").unwrap()
    }

    pub(crate) fn report(completed: u64, millis: u64) -> HostReport {
        HostReport {
            interval: Latency::from_millis(2_000),
            signal: SignalRequests::Everything,
            completed,
            total_latency: Latency::from_millis(millis * completed),
            outstanding: true,
            oldest: Some(Latency::from_millis(7)),
            window: Some(Window::new(12.5)),
            active_shares: 250.0,
            reserved: Iops::new(80.0),
            set_point: None,
            point: None,
            load: None,
        }
    }

    fn with_point(name: &str, point: PointReport) -> NumberedReport {
        let report = HostReport { point: Some(point), ..report(40, 9) };
        NumberedReport { report, ..one(name) }
    }

    fn point() -> PointReport {
        PointReport {
            done: Iops::new(250.0),
            outstanding: Some(4.0),
            wish: Some(PointWish {
                operating_point: Iops::new(500.0),
                goal: Latency::from_millis(16),
                turn: Some(PointTurn { takes: Latency::from_millis(32), room: 1.5 }),
            }),
            has_say: true,
            enough: true,
            active: true,
            claims: vec![PointClaim {
                name: ConsumerName::new("db").unwrap(),
                shares: Shares::DEFAULT,
                most: Some(Iops::new(80.0)),
            }],
            rest: Some(PointRest { shares: 200.0, most: None }),
            content: None,
        }
    }

    pub(crate) fn message(
        host: &str,
        incarnation: u128,
        sequence: u64,
        reports: Vec<NumberedReport>,
    ) -> Message {
        let host = HostName::new(host).unwrap();
        let sender = Sender { host, incarnation: Incarnation(incarnation), interval_ms: 2_000 };
        Message { sender, sequence, reports, leaving: false }
    }

    fn one(name: &str) -> NumberedReport {
        NumberedReport { resource: ResourceName::new(name).unwrap(), number: 3, report: report(40, 9) }
    }

    fn written(message: &Message) -> Vec<u8> {
        let mut bytes = Vec::new();
        message.write(&cluster(), &mut bytes);
        bytes
    }

    fn read(bytes: &[u8]) -> Result<Message, MessageRejection> {
        Message::read(&cluster(), bytes).map(|(message, _)| message)
    }

    /// Returns the position at which the first report begins.
    fn body(message: &Message) -> usize {
        written(&Message { reports: vec![], ..message.clone() }).len()
    }

    #[test]
    fn the_layout_of_version_1_does_not_change() {
        let message = message("a", 0x0102, 5, vec![one("vg0")]);
        let hex: String = written(&message).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            concat!(
                "54474852",
                "0100",
                "0474657374",
                "0161",
                "02010000000000000000000000000000",
                "0500000000000000",
                "d0070000",
                "00",
                "01",
                "03766730",
                "0300000000000000",
                "0e",
                "0094357700000000",
                "2800000000000000",
                "002a751500000000",
                "0000000000406f40",
                "0000000000005440",
                "c0cf6a0000000000",
                "0000000000002940"
            )
        );
    }

    #[test]
    fn the_layout_of_an_operating_point_does_not_change() {
        let message = message("a", 1, 1, vec![with_point("r", point())]);
        let bytes = written(&message);
        assert_eq!(bytes[4..6], [2, 0], "version 2");
        let plain = written(&self::message("a", 1, 1, vec![one("r")]));
        let hex: String = bytes[plain.len()..].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(
            hex,
            concat!(
                "ff",
                "0000000000406f40",
                "0000000000407f40",
                "0024f40000000000",
                "0048e80100000000",
                "000000000000f83f",
                "0000000000001040",
                "0000000000006940",
                "01",
                "026462",
                "00",
                "64000000",
                "0000000000005440"
            )
        );
        assert_eq!(read(&bytes), Ok(message));
    }

    /// Behind all else, so that what there was before has its place.
    #[test]
    fn who_is_content_comes_after_the_operating_point_and_only_where_others_are_not() {
        let content = Some(PointRest { shares: 300.0, most: Some(Iops::new(20.0)) });
        let bytes = written(&message("a", 1, 1, vec![with_point("r", PointReport { content, ..point() })]));
        let before = written(&message("a", 1, 1, vec![with_point("r", point())]));
        let mut expected = before.clone();
        expected[flags_of_the_report(&before)] |= HAS_CONTENT;
        expected.extend([300.0_f64, 20.0].iter().flat_map(|number| number.to_le_bytes()));
        assert_eq!(bytes, expected);
        assert_eq!(read(&bytes).unwrap().reports[0].report.point.as_ref().unwrap().content, content);
        for (place, number) in [(16, f64::NAN), (8, -1.0)] {
            let mut changed = bytes.clone();
            let at = changed.len() - place;
            changed[at..at + 8].copy_from_slice(&number.to_le_bytes());
            assert!(matches!(read(&changed), Err(MessageRejection::OutOfRange(_))), "{place} {number}");
        }
        // Without others, or beside such as are content themselves, it is not written, and refused.
        for rest in [None, Some(PointRest { shares: 200.0, most: Some(Iops::ZERO) })] {
            let alone = PointReport { rest, ..point() };
            let with = PointReport { content, ..alone.clone() };
            let [alone, with] =
                [alone, with].map(|point| written(&message("a", 1, 1, vec![with_point("r", point)])));
            assert_eq!(with, alone);
            let mut changed = [&alone[..], &[0; 16]].concat();
            changed[flags_of_the_report(&alone)] |= HAS_CONTENT;
            assert_eq!(read(&changed), Err(MessageRejection::Malformed("content consumers, and no others")));
        }
        let mut changed = before.clone();
        changed[flags_of_the_report(&before)] ^= HAS_POINT | HAS_CONTENT;
        assert_eq!(read(&changed), Err(MessageRejection::Malformed("unknown flags of a report")));
    }

    /// Returns the position of the report's flags in a message of one report, on "r".
    fn flags_of_the_report(bytes: &[u8]) -> usize {
        body(&read(bytes).unwrap()) + 2 + 8
    }

    #[test]
    fn who_has_no_operating_point_is_understood_by_hosts_of_version_1() {
        let message = message("a", 1, 1, vec![one("r")]);
        assert_eq!(written(&message)[4..6], [1, 0]);
        // And a message of version 1 that has one is damaged.
        let mut bytes = written(&self::message("a", 1, 1, vec![with_point("r", point())]));
        bytes[4] = 1;
        assert_eq!(read(&bytes), Err(MessageRejection::Malformed("unknown flags of a report")));
    }

    #[test]
    fn operating_points_that_cannot_be_are_refused() {
        let bytes = written(&message("a", 1, 1, vec![with_point("r", point())]));
        let start = written(&message("a", 1, 1, vec![one("r")])).len();
        for (place, number) in [
            (1, f64::NAN),
            (1, -1.0),
            (9, f64::INFINITY),
            (9, 2.0 * MOST_IOPS),
            (33, 2.0 * MOST_ROOM),
            (41, -1.0),
            (49, f64::NAN),
        ] {
            let mut changed = bytes.clone();
            changed[start + place..start + place + 8].copy_from_slice(&number.to_le_bytes());
            assert!(matches!(read(&changed), Err(MessageRejection::OutOfRange(_))), "{place} {number}");
        }
        let (flags, count, shares) = (start, start + 57, start + 62);
        for (place, byte, why) in [
            (flags, 0xde, MessageRejection::Malformed("unknown flags of an operating point")),
            (flags, 0x2f, MessageRejection::Malformed("unknown flags of an operating point")),
            (count, 17, MessageRejection::OutOfRange("the number of consumers")),
            (shares, 0, MessageRejection::OutOfRange("a consumer's shares")),
        ] {
            let mut changed = bytes.clone();
            changed[place] = byte;
            assert_eq!(read(&changed), Err(why), "{place}");
        }
        let twice = PointReport { claims: vec![point().claims[0].clone(); 2], ..point() };
        let bytes = written(&message("a", 1, 1, vec![with_point("r", twice)]));
        assert_eq!(read(&bytes), Err(MessageRejection::Malformed("two claims of one consumer")));
    }

    #[test]
    fn consumers_for_whom_there_is_no_room_are_left_out() {
        let claim = |name: String| PointClaim {
            name: ConsumerName::new(&name).unwrap(),
            shares: Shares::DEFAULT,
            most: None,
        };
        let claims = [250, 100, 40].map(|length| claim("c".repeat(length)));
        let message =
            message("a", 1, 1, vec![with_point("r", PointReport { claims: claims.to_vec(), ..point() })]);
        let got = read(&written(&message)).unwrap();
        let lengths: Vec<_> = got.reports[0]
            .report
            .point
            .as_ref()
            .unwrap()
            .claims
            .iter()
            .map(|claim| claim.name.as_str().len())
            .collect();
        assert_eq!(lengths, [250, 40]);
    }

    #[test]
    fn versions_and_clusters_are_told_apart() {
        let mut bytes = written(&message("a", 1, 1, vec![]));
        bytes[4] = 0;
        assert_eq!(read(&bytes), Err(MessageRejection::OldVersion(0)));
        bytes[4] = 4;
        assert_eq!(read(&bytes), Err(MessageRejection::NewVersion(4)));
        bytes[7] = b'b';
        assert_eq!(read(&bytes), Err(MessageRejection::OtherCluster));
        assert!(matches!(read(b"GET / HTTP/1.1"), Err(MessageRejection::Malformed(_))));
    }

    #[test]
    fn numbers_that_cannot_be_are_refused() {
        let message = message("a", 1, 1, vec![one("r")]);
        let report = body(&message) + 2 + 8 + 1;
        for (place, bytes) in [
            (report, (HOUR + 1).to_le_bytes()),
            (report + 8, (MOST_COMPLETED + 1).to_le_bytes()),
            (report + 16, (40 * LONGEST_LATENCY + 1).to_le_bytes()),
            (report + 24, f64::NAN.to_le_bytes()),
            (report + 24, (-1.0f64).to_le_bytes()),
            (report + 32, f64::NAN.to_le_bytes()),
            (report + 32, (2.0 * MOST_IOPS).to_le_bytes()),
            (report + 40, (LONGEST_LATENCY + 1).to_le_bytes()),
            (report + 48, f64::INFINITY.to_le_bytes()),
        ] {
            let mut changed = written(&message);
            changed[place..place + 8].copy_from_slice(&bytes);
            assert!(matches!(read(&changed), Err(MessageRejection::OutOfRange(_))), "{place} {bytes:?}");
        }
    }

    #[test]
    fn two_reports_on_one_resource_are_refused() {
        let bytes = written(&message("a", 1, 1, vec![one("r"), one("r")]));
        assert_eq!(read(&bytes), Err(MessageRejection::Malformed("two reports on one resource")));
    }

    pub(crate) fn any_report() -> impl Strategy<Value = NumberedReport> {
        let latency = || any::<u64>().prop_map(Latency::from_nanos);
        (
            ("[a-z]{1,255}", any::<u64>(), latency(), any::<bool>(), any::<u64>(), latency()),
            (any::<bool>(), prop::option::of(latency()), prop::option::of(any::<f64>()), any::<[f64; 2]>()),
            (prop::option::of(latency()), prop::option::of(any_point()), prop::option::of(any_load())),
        )
            .prop_map(
                |((name, number, interval, protected, completed, total), rest, (set_point, point, load))| {
                    let (outstanding, oldest, window, [active_shares, reserved]) = rest;
                    let signal =
                        if protected { SignalRequests::ProtectedReads } else { SignalRequests::Everything };
                    NumberedReport {
                        resource: ResourceName::new(&name).unwrap(),
                        number,
                        report: HostReport {
                            interval,
                            signal,
                            completed,
                            total_latency: total,
                            outstanding,
                            oldest,
                            window: window.map(Window::new),
                            active_shares,
                            reserved: Iops::new(reserved),
                            set_point,
                            // A law has one or the other.
                            load: load.filter(|_| point.is_none()),
                            point,
                        },
                    }
                },
            )
    }

    fn any_load() -> impl Strategy<Value = LoadReport> {
        let requests = || any::<f64>().prop_map(MeanOutstanding::new);
        let latency = || any::<u64>().prop_map(Latency::from_nanos);
        let sums = (requests(), requests(), requests(), any::<[bool; 2]>());
        let rest = (latency(), latency(), prop::option::of(any::<f64>()));
        (any::<[f64; 2]>(), sums, rest).prop_map(|([iops, writes], sums, (recent_mean, worst, total))| {
            let (outstanding, writing, recent, [waiting, late]) = sums;
            LoadReport {
                iops: Iops::new(iops),
                writes: Iops::new(writes),
                outstanding,
                writing,
                waiting,
                late,
                recent,
                recent_mean,
                worst,
                total_window: total.map(Window::new),
            }
        })
    }

    fn any_point() -> impl Strategy<Value = PointReport> {
        let rate = || any::<f64>().prop_map(Iops::new);
        let turn = (any::<u64>(), any::<f64>())
            .prop_map(|(takes, room)| PointTurn { takes: Latency::from_nanos(takes), room });
        let wish =
            (rate(), any::<u64>(), prop::option::of(turn)).prop_map(|(operating_point, goal, turn)| {
                PointWish { operating_point, goal: Latency::from_nanos(goal), turn }
            });
        let done = (rate(), prop::option::of(any::<f64>()));
        let rest =
            (any::<f64>(), prop::option::of(rate())).prop_map(|(shares, most)| PointRest { shares, most });
        let claims =
            prop::collection::btree_map("[a-z]{1,255}", (1..=1_000_000_u32, prop::option::of(rate())), 0..20);
        let rest = (prop::option::of(rest.clone()), prop::option::of(rest));
        (done, prop::option::of(wish), rest, claims, any::<[bool; 3]>()).prop_map(
            |((done, outstanding), wish, (rest, content), claims, [has_say, enough, active])| {
                let claims = claims.into_iter().map(|(name, (shares, most))| PointClaim {
                    name: ConsumerName::new(&name).unwrap(),
                    shares: Shares::new(shares).unwrap(),
                    most,
                });
                PointReport {
                    done,
                    outstanding,
                    wish,
                    has_say,
                    enough,
                    active,
                    claims: claims.collect(),
                    rest,
                    content,
                }
            },
        )
    }

    proptest! {
        /// Whatever a host believes of itself, its peers can read it, and reading brings nothing new into it.
        #[test]
        fn what_is_written_can_be_read(reports in prop::collection::vec(any_report(), 0..4), leaving: bool) {
            let mut seen = std::collections::HashSet::new();
            let reports: Vec<_> = reports.into_iter().filter(|r| seen.insert(r.resource.clone())).collect();
            let message = Message { leaving, ..message("höst.example", u128::MAX, u64::MAX, reports) };
            let bytes = written(&message);
            let once = read(&bytes).unwrap();
            prop_assert_eq!(&once.sender, &message.sender);
            prop_assert_eq!(once.reports.len(), message.reports.len());
            prop_assert_eq!(written(&once), bytes.clone());
            for numbered in &message.reports {
                let mut alone = Vec::new();
                write_report(numbered, &mut alone);
                prop_assert!(alone.len() <= LONGEST_REPORT);
            }
            for end in 0..bytes.len() {
                prop_assert!(read(&bytes[..end]).is_err(), "cut at {}", end);
            }
        }

        #[test]
        fn any_bytes_are_borne(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = read(&bytes);
            let mut after_start = written(&message("a", 1, 1, vec![]))[..11].to_vec();
            after_start.extend(bytes);
            let _ = read(&after_start);
        }

        /// A changed message is refused, or its numbers are within their ranges.
        #[test]
        fn a_changed_message_stays_within_its_ranges(
            place in 0usize..400, byte: u8, reports in prop::collection::vec(any_report(), 1..3)
        ) {
            let mut bytes = written(&message("a", 1, 1, reports));
            let place = place % bytes.len();
            bytes[place] = byte;
            if let Ok(message) = read(&bytes) {
                for NumberedReport { report, .. } in message.reports {
                    prop_assert!(report.active_shares.is_finite() && report.active_shares >= 0.0);
                    prop_assert!(report.window.is_none_or(|window| window.get() <= GREATEST_WINDOW));
                    prop_assert!(report.completed <= MOST_COMPLETED);
                    prop_assert!(report.total_latency.as_nanos() <= most_total(report.completed));
                }
            }
        }
    }
}
