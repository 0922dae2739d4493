//! Text form of a service's status, for people. The sentence of a decision is the `Display` of `Decision`, as
//! in the log.

use std::fmt;
use std::time::Duration;

use tidegate_control::{BandPosition, WaitReason};
use tidegate_service::status::{
    ConsumerStatus, DecisionStatus, ErrorsStatus, InputStatus, LawStatus, LoadFigures, OperatingPoint,
    PromiseStatus, ResourceStatus, ServiceKind, ServiceStatus,
};
use tidegate_units::{ByteRate, Iops, Latency, Window};

use super::cluster_text::ClusterText;
use super::overrides_text::OverridesText;
use super::reports_text::ReportsText;
use crate::columns::{heading, write_rows};

/// Without a decision for so many intervals…
const INTERVALS: f64 = 3.0;
/// …and for so long, what was decided last says nothing of now.
const LEAST_OLD: f64 = 3.0;

/// The word for a figure that is not known.
pub(crate) const UNKNOWN: &str = "unknown";

/// The answer of a service.
pub(super) struct StatusText<'a> {
    pub(super) status: &'a ServiceStatus,
    pub(super) address: &'a str,
}

impl fmt::Display for StatusText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { status, address } = self;
        let service = status.service.name();
        writeln!(f, "tidegate {service} {} at {address}\n", status.program)?;
        if let Some(cluster) = &status.cluster {
            write!(f, "{}", ClusterText(cluster))?;
        }
        write!(f, "{}", OverridesText(&status.overrides))?;
        if status.resources.is_empty() {
            return writeln!(f, "it regulates nothing");
        }
        let what = match status.service {
            ServiceKind::Serve => "pool",
            ServiceKind::Agent => "resource",
        };
        status.resources.iter().try_for_each(|resource| {
            writeln!(f, "{what} {}: {}", resource.name, stands(resource, status.sees))?;
            write_resource(f, resource)
        })
    }
}

/// The one thing to know about a resource: errors first.
pub(crate) fn stands(resource: &ResourceStatus, sees: bool) -> String {
    let standing = standing(resource, sees);
    match resource.errors.as_ref().filter(|errors| errors.go_on()) {
        Some(errors) => format!("I/O ERRORS {}; {standing}", errors_of(resource, errors)),
        None => standing,
    }
}

/// Returns the errors of a resource in words: since when, how many of each kind, and whose.
fn errors_of(resource: &ResourceStatus, errors: &ErrorsStatus) -> String {
    /// The most consumers that are named.
    const NAMED: usize = 3;
    let failing: Vec<&str> =
        resource.consumers.iter().filter(|one| has_errors(one)).map(ConsumerStatus::shown_name).collect();
    let more = match failing.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let (named, since) = (&failing[..failing.len().min(NAMED)], errors.since_seconds.map_or_else(none, span));
    format!("for {since}, of {}{more}: {} so far", named.join(", "), errors.kinds_text())
}

/// Returns true if requests of a consumer fail now.
pub(crate) fn has_errors(one: &ConsumerStatus) -> bool {
    one.errors.as_ref().is_some_and(ErrorsStatus::go_on)
}

fn standing(resource: &ResourceStatus, sees: bool) -> String {
    if !sees {
        return "unknown: this machine's counters cannot be read".to_owned();
    }
    if !resource.present {
        return "unknown: its storage is not here".to_owned();
    }
    if !resource.uncounted.is_empty() {
        return format!("unknown, throttles nothing: {}", resource.uncounted.join("; "));
    }
    let Some(law) = &resource.law else { return "no law, shares and limits only".to_owned() };
    let Some(decided) = &resource.decided else { return "unknown: nothing was decided yet".to_owned() };
    if is_old(decided, law) {
        let (age, interval) = (time(decided.age_seconds), time(law.interval_seconds));
        return format!("unknown: decided last {age} ago, instead of every {interval}");
    }
    let (silence, held, throttled) = (silence(decided), decided.held, decided.throttled);
    let fails = if resource.throttle_fails {
        "; BUT the throttle fails, and none is throttled: see the log"
    } else {
        ""
    };
    let why = if law.released { "released" } else { "dry run" };
    match (operating(decided), law.dry_run) {
        (None, false) => format!("throttles nothing{silence}{fails}"),
        (None, true) => format!("{why}, throttles nothing{silence}"),
        (Some(what), false) => format!("{what}; {held} of {throttled} throttled{silence}{fails}"),
        (Some(what), true) => {
            format!(
                "{why}, throttles nothing; would be {what}; {held} of {throttled} would be throttled{silence}"
            )
        }
    }
}

/// Returns true if a decision says nothing of now.
pub(crate) fn is_old(decided: &DecisionStatus, law: &LawStatus) -> bool {
    decided.age_seconds > (INTERVALS * law.interval_seconds).max(LEAST_OLD)
}

/// Returns the throttle in force, or the one that would be, in words; `None` if there is none.
fn operating(decided: &DecisionStatus) -> Option<String> {
    let window = decided.window_requests.map(|window| format!("a window of {}", Window::new(window)));
    match &decided.operating_point {
        Some(OperatingPoint::HoldsNobody) => None,
        Some(OperatingPoint::Limits { iops, band }) => {
            let all = Iops::new(*iops);
            let at = match band {
                Some(position @ BandPosition::In { .. }) => format!("operating in {position} ({all})"),
                Some(BandPosition::Beyond { by, .. }) => {
                    format!("operating beyond the last band by {by} ({all})")
                }
                None => format!("operating at {all}"),
            };
            Some(window.map_or(at.clone(), |window| format!("{at}, {window}")))
        }
        None if decided.held == 0 => None,
        None => window
            .map(|window| format!("throttled to {window}"))
            .or_else(|| Some(format!("delayed by up to {} per request", time(decided.delay_seconds?))))
            .or_else(|| Some("throttled to rates".to_owned())),
    }
}

/// Returns a warning for a signal that was not measured: no measurement does not mean a good one.
const fn silence(decided: &DecisionStatus) -> &'static str {
    match decided.input {
        InputStatus::Samples => "",
        InputStatus::Overload => "; OVERLOAD: nothing completes",
        InputStatus::Unknown => {
            "; response times unknown: requests wait, none completed in the last interval"
        }
        InputStatus::Idle => "; response times unknown: no requests",
        InputStatus::NoTime => "; response times unknown: the clock did not advance",
    }
}

fn write_resource(f: &mut fmt::Formatter<'_>, resource: &ResourceStatus) -> fmt::Result {
    if let Some(LawStatus { kind, target_seconds, interval_seconds, .. }) = &resource.law {
        let (target, interval) = (time(*target_seconds), time(*interval_seconds));
        writeln!(f, "law {kind}, target {target}, decides every {interval}")?;
    }
    if let Some(promise) = &resource.promise {
        let broken = if promise.is_kept() == Some(false) { ": BROKEN" } else { "" };
        let (latency, parts) = (time(promise.response_time_seconds), kept_parts(promise));
        writeln!(f, "reads within {latency}: kept 1m/1h/1d {parts}{broken}")?;
    }
    if let Some(decided) = &resource.decided {
        writeln!(f, "decided {} ago: {}", time(decided.age_seconds), decided.said)?;
    }
    match &resource.recent {
        None => writeln!(f, "all together: {UNKNOWN}")?,
        Some(did) => {
            let storage = did.response_time_seconds.map_or_else(|| UNKNOWN.to_owned(), time);
            let clients =
                did.client_seconds.map_or_else(String::new, |each| format!(", client {}", time(each)));
            let (all, seconds) = (Iops::new(did.iops), did.seconds);
            let (read, written) = (bytes(did.read_bytes_per_second), bytes(did.written_bytes_per_second));
            writeln!(f, "all together: {all} in the last {seconds:.1} s, {read} read, {written} written")?;
            writeln!(f, "mean latency: storage {storage}{clients}")?;
        }
    }
    write!(f, "{}", ReportsText(resource))?;
    let consumers = &resource.consumers;
    if consumers.is_empty() {
        return writeln!(f, "no eligible consumers\n");
    }
    let columns: Vec<&StatusColumn> = COLUMNS
        .iter()
        .filter(|column| column.always || consumers.iter().any(|one| (column.cell)(one, resource) != NONE))
        .collect();
    let names: Vec<&str> = columns.iter().map(|column| column.name).collect();
    let mut rows = vec![heading(&names)];
    rows.extend(
        consumers.iter().map(|one| columns.iter().map(|column| (column.cell)(one, resource)).collect()),
    );
    write_rows(f, &rows)?;
    match resource.consumers_left_out {
        0 => Ok(()),
        more => writeln!(f, "and {more} more, which are not shown\n"),
    }
}

/// The mark of a value that does not apply.
pub(crate) const NONE: &str = "-";

struct StatusColumn {
    name: &'static str,
    /// True if the column is shown even if it has nothing to say.
    always: bool,
    cell: fn(&ConsumerStatus, &ResourceStatus) -> String,
}

const COLUMNS: [StatusColumn; 17] = [
    StatusColumn { name: "consumer", always: true, cell: |one, _| one.shown_name().to_owned() },
    StatusColumn { name: "promise", always: false, cell: promise_cell },
    StatusColumn { name: "storage", always: true, cell: |one, _| takes(one) },
    StatusColumn { name: "client", always: false, cell: |one, _| client(one) },
    StatusColumn { name: "kept 1m/1h/1d", always: false, cell: |one, _| kept(one) },
    StatusColumn {
        name: "IO/s",
        always: true,
        cell: |one, _| one.recent.map_or_else(|| UNKNOWN.to_owned(), |did| rate(did.iops)),
    },
    StatusColumn {
        name: "read",
        always: true,
        cell: |one, _| one.recent.map_or_else(|| UNKNOWN.to_owned(), |did| bytes(did.read_bytes_per_second)),
    },
    StatusColumn {
        name: "written",
        always: true,
        cell: |one, _| {
            one.recent.map_or_else(|| UNKNOWN.to_owned(), |did| bytes(did.written_bytes_per_second))
        },
    },
    StatusColumn {
        name: "flushes/s",
        always: false,
        cell: |one, _| one.recent.filter(|did| did.flushes_per_second > 0.0).map_or_else(none, flushed),
    },
    StatusColumn {
        name: "entitled",
        always: false,
        cell: |one, _| one.entitled_iops.map_or_else(none, rate),
    },
    StatusColumn { name: "rate", always: false, cell: |one, _| one.rate_iops.map_or_else(none, rate) },
    StatusColumn { name: "delay", always: false, cell: |one, _| one.delay_seconds.map_or_else(none, time) },
    StatusColumn { name: "state", always: true, cell: |one, _| state(one).to_owned() },
    StatusColumn { name: "errors", always: false, cell: |one, _| errors_cell(one) },
    StatusColumn { name: "mistakes", always: false, cell: |one, _| mistakes(one) },
    StatusColumn { name: "flushes", always: false, cell: |one, _| flushes(one).to_owned() },
    StatusColumn { name: "export", always: false, cell: |one, _| export(one).to_owned() },
];

fn none() -> String {
    NONE.to_owned()
}

/// Flushes per second, and the mean time of one.
fn flushed(did: LoadFigures) -> String {
    let each = did.flush_seconds.map_or_else(String::new, |seconds| format!(" of {}", time(seconds)));
    format!("{}{each}", rate(did.flushes_per_second))
}

/// Its promise, or its own goal, or the target where the law judges it by itself, in seconds.
pub(crate) fn promised(one: &ConsumerStatus, resource: &ResourceStatus) -> Option<f64> {
    let target = || one.set_point_seconds.and(resource.law.as_ref().map(|law| law.target_seconds));
    let promised = one.promise.map(|promise| promise.response_time_seconds);
    promised.or(one.goal_seconds).or_else(target)
}

fn promise_cell(one: &ConsumerStatus, resource: &ResourceStatus) -> String {
    let broken = one.promise.and_then(|promise| promise.is_kept()) == Some(false);
    let latency = promised(one, resource).map_or_else(none, time);
    if broken { format!("{latency} BROKEN") } else { latency }
}

pub(crate) fn kept(one: &ConsumerStatus) -> String {
    one.promise.as_ref().map_or_else(none, kept_parts)
}

/// Returns the parts of the last minute, hour and day in which a promise was kept.
fn kept_parts(promise: &PromiseStatus) -> String {
    // 99.96 % is not all.
    let percent = |part: f64| format!("{:.0}", (part * 100.0).floor());
    let [minute, hour, day] =
        [promise.minute, promise.hour, promise.day].map(|part| part.map_or_else(|| "?".to_owned(), percent));
    format!("{minute}/{hour}/{day} %")
}

fn client(one: &ConsumerStatus) -> String {
    one.recent.and_then(|did| did.client_seconds).map_or_else(none, time)
}

/// Its latency at the storage, in words.
pub(crate) fn takes(one: &ConsumerStatus) -> String {
    let lately = one.recent.and_then(|did| did.response_time_seconds);
    // A consumer that is silent now is not said to be quick, whatever it was before.
    match (one.oldest_seconds, lately.or(one.measured_seconds)) {
        (Some(oldest), None) => format!("none in {}", time(oldest)),
        (_, Some(lately)) => time(lately),
        (None, None) if one.recent.is_some() && one.outstanding == Some(0) => "idle".to_owned(),
        (None, None) => UNKNOWN.to_owned(),
    }
}

/// The reason for which its requests wait, or its standing.
pub(crate) const fn state(one: &ConsumerStatus) -> &'static str {
    match (one.held, one.waits_for) {
        (Some(true), _) => "throttled",
        (_, Some(WaitReason::Limit)) => "at its limit",
        (_, Some(WaitReason::Share)) => "waits for its share",
        (_, Some(WaitReason::Depth)) => "at the pool's depth",
        _ if one.released => "released",
        _ if one.protected => "protected",
        (Some(false), _) => "free",
        (None, _) => UNKNOWN,
    }
}

/// Its errors by kind, and the age of the last one.
pub(crate) fn errors_cell(one: &ConsumerStatus) -> String {
    let Some(errors) = one.errors.as_ref() else { return none() };
    errors.last_seconds.map_or_else(none, |last| format!("{}, last {} ago", errors.kinds_text(), span(last)))
}

fn mistakes(one: &ConsumerStatus) -> String {
    let count = one.errors.as_ref().map_or(0, |errors| errors.mistakes);
    if count == 0 { none() } else { count.to_string() }
}

const fn flushes(one: &ConsumerStatus) -> &'static str {
    if one.poisoned { "FAIL: written data is lost, see the log" } else { NONE }
}

const fn export(one: &ConsumerStatus) -> &'static str {
    if one.removed {
        "REMOVED, still in use"
    } else if one.replaced {
        "VOLUME REPLACED, see the log"
    } else {
        NONE
    }
}

/// Bytes per second, in words.
pub(crate) fn bytes(per_second: f64) -> String {
    ByteRate::new(per_second).to_string()
}

/// A span of time in whole seconds, in words.
fn span(seconds: f64) -> String {
    humantime::format_duration(Duration::from_secs(seconds as u64)).to_string()
}

/// A latency, in words.
pub(crate) fn time(seconds: f64) -> String {
    Latency::from_secs_f64(seconds).to_string()
}

/// Requests per second without their unit, which is the column's.
pub(crate) fn rate(per_second: f64) -> String {
    if per_second < 10.0 { format!("{per_second:.1}") } else { format!("{per_second:.0}") }
}

#[cfg(test)]
mod tests {
    use tidegate_control::LawKind;
    use tidegate_service::overrides::OverridesDocument;
    use tidegate_service::status::{JudgedBy, LoadFigures, PromiseCounts};

    use super::*;

    fn consumer(name: &str) -> ConsumerStatus {
        ConsumerStatus {
            name: name.to_owned(),
            selected_as: None,
            protected: false,
            goal_seconds: Some(0.015),
            set_point_seconds: Some(0.012),
            measured_seconds: Some(0.0123),
            oldest_seconds: None,
            recent: Some(LoadFigures {
                seconds: 3.0,
                iops: 348.0,
                response_time_seconds: Some(0.0121),
                client_seconds: Some(0.014),
                read_bytes_per_second: 1_572_864.0,
                written_bytes_per_second: 0.0,
                flushes_per_second: 20.0,
                flush_seconds: Some(0.0042),
            }),
            outstanding: Some(16),
            entitled_iops: Some(350.0),
            rate_iops: Some(350.0),
            delay_seconds: None,
            held: Some(true),
            released: false,
            waits_for: Some(WaitReason::Law),
            promise: Some(PromiseStatus {
                response_time_seconds: 0.015,
                judged_by: JudgedBy::Seconds,
                minute: Some(1.0),
                hour: Some(0.9996),
                day: None,
            }),
            errors: None,
            poisoned: false,
            replaced: false,
            removed: false,
        }
    }

    /// The paper's table 1 at 500 IO/s.
    fn array() -> ResourceStatus {
        let band = Some(BandPosition::In { band: 2, part: 0.2 });
        ResourceStatus {
            name: "array".to_owned(),
            present: true,
            errors: None,
            uncounted: Vec::new(),
            throttle_fails: false,
            law: Some(LawStatus {
                kind: LawKind::SelfTuning,
                target_seconds: 0.02,
                interval_seconds: 1.0,
                dry_run: false,
                released: false,
            }),
            promise: None,
            decided: Some(DecisionStatus {
                age_seconds: 0.31,
                said: "array: operating at 500 IO/s, band 2 at 20 %: business 12.3ms against 12.0ms (2 of 2 \
                    throttled)"
                    .to_owned(),
                input: InputStatus::Samples,
                measured_seconds: Some(0.0123),
                estimate_seconds: Some(0.0123),
                set_point_seconds: 0.016,
                held: 2,
                throttled: 2,
                operating_point: Some(OperatingPoint::Limits { iops: 500.0, band }),
                window_requests: None,
                delay_seconds: None,
            }),
            recent: Some(LoadFigures {
                seconds: 3.0,
                iops: 498.0,
                response_time_seconds: Some(0.012),
                client_seconds: None,
                read_bytes_per_second: 2_621_440.0,
                written_bytes_per_second: 0.0,
                flushes_per_second: 20.0,
                flush_seconds: Some(0.0042),
            }),
            consumers: vec![
                consumer("business"),
                ConsumerStatus {
                    goal_seconds: None,
                    entitled_iops: Some(150.0),
                    promise: consumer("mining")
                        .promise
                        .map(|promise| PromiseStatus { response_time_seconds: 0.02, ..promise }),
                    ..consumer("mining")
                },
            ],
            promises: PromiseCounts::default(),
            consumers_left_out: 0,
            reporters: Vec::new(),
            source: None,
            signal_origin: None,
        }
    }

    fn said(change: impl Fn(&mut ResourceStatus)) -> String {
        let mut resource = array();
        change(&mut resource);
        stands(&resource, true)
    }

    fn decided(resource: &mut ResourceStatus) -> &mut DecisionStatus {
        resource.decided.as_mut().unwrap()
    }

    #[test]
    fn the_whole_of_it() {
        let status = ServiceStatus {
            version: 1,
            service: ServiceKind::Serve,
            program: "0.1.0".to_owned(),
            sees: true,
            cluster: None,
            overrides: OverridesDocument::default(),
            resources: vec![array()],
        };
        assert_eq!(
            StatusText { status: &status, address: "http://127.0.0.1:9809" }.to_string(),
            "tidegate serve 0.1.0 at http://127.0.0.1:9809\n\n\
             pool array: operating in band 2 at 20 % (500 IO/s); 2 of 2 throttled\n\
             law self-tuning, target 20.0ms, decides every 1.00s\n\
             decided 310ms ago: array: operating at 500 IO/s, band 2 at 20 %: business 12.3ms against 12.0ms \
             (2 of 2 throttled)\n\
             all together: 498 IO/s in the last 3.0 s, 2.5 MiB/s read, 0 B/s written\n\
             mean latency: storage 12.0ms\n\
             consumer  promise  storage  client  kept 1m/1h/1d  IO/s       read  written     flushes/s  \
             entitled  rate      state\n\
             business   15.0ms   12.1ms  14.0ms     100/99/? %   348  1.5 MiB/s    0 B/s  20 of 4.20ms       \
             350   350  throttled\n\
             mining     20.0ms   12.1ms  14.0ms     100/99/? %   348  1.5 MiB/s    0 B/s  20 of 4.20ms       \
             150   350  throttled\n\n"
        );
    }

    #[test]
    fn an_operating_point_is_said_with_its_band_and_one_that_limits_nothing_holds_nobody() {
        let at =
            |point: OperatingPoint| said(|resource| decided(resource).operating_point = Some(point.clone()));
        let beyond = BandPosition::Beyond { bands: 3, by: Iops::new(100.0) };
        assert_eq!(
            at(OperatingPoint::Limits { iops: 1_000.0, band: Some(beyond) }),
            "operating beyond the last band by 100 IO/s (1000 IO/s); 2 of 2 throttled"
        );
        assert_eq!(
            at(OperatingPoint::Limits { iops: 500.0, band: None }),
            "operating at 500 IO/s; 2 of 2 throttled"
        );
        assert_eq!(at(OperatingPoint::HoldsNobody), "throttles nothing");
        assert_eq!(
            said(|resource| decided(resource).window_requests = Some(4.5)),
            "operating in band 2 at 20 % (500 IO/s), a window of 4.50; 2 of 2 throttled"
        );
    }

    #[test]
    fn laws_without_an_operating_point_say_what_holds() {
        let other = |change: fn(&mut DecisionStatus)| {
            said(|resource| {
                decided(resource).operating_point = None;
                change(decided(resource));
            })
        };
        assert_eq!(
            other(|decided| decided.window_requests = Some(8.0)),
            "throttled to a window of 8.00; 2 of 2 throttled"
        );
        assert_eq!(
            other(|decided| decided.delay_seconds = Some(0.008)),
            "delayed by up to 8.00ms per request; 2 of 2 throttled"
        );
        assert_eq!(other(|_| ()), "throttled to rates; 2 of 2 throttled");
        assert_eq!(other(|decided| decided.held = 0), "throttles nothing");
    }

    #[test]
    fn a_dry_run_and_a_throttle_that_fails_are_not_taken_for_holding() {
        let dry = |resource: &mut ResourceStatus| resource.law.as_mut().unwrap().dry_run = true;
        let released = |resource: &mut ResourceStatus| {
            dry(resource);
            resource.law.as_mut().unwrap().released = true;
        };
        assert!(said(released).starts_with("released, throttles nothing; would be"), "{}", said(released));
        assert_eq!(
            said(dry),
            "dry run, throttles nothing; would be operating in band 2 at 20 % (500 IO/s); 2 of 2 would be \
                throttled"
        );
        // If a throttle fails, the status says that none is throttled, which is no good news.
        let failing = said(|resource| {
            resource.throttle_fails = true;
            let decided = decided(resource);
            (decided.held, decided.operating_point) = (0, None);
        });
        assert_eq!(failing, "throttles nothing; BUT the throttle fails, and none is throttled: see the log");
        let nobody = |resource: &mut ResourceStatus| {
            dry(resource);
            decided(resource).operating_point = Some(OperatingPoint::HoldsNobody);
        };
        assert_eq!(said(nobody), "dry run, throttles nothing");
        assert!(
            said(|resource| resource.throttle_fails = true)
                .ends_with("BUT the throttle fails, and none is throttled: see the log")
        );
    }

    #[test]
    fn what_is_not_known_is_said_to_be_unknown() {
        for (change, expected) in [
            (
                (|resource| resource.present = false) as fn(&mut ResourceStatus),
                "unknown: its storage is not here",
            ),
            (|resource| resource.decided = None, "unknown: nothing was decided yet"),
            (
                |resource| decided(resource).age_seconds = 12.0,
                "unknown: decided last 12.0s ago, instead of every 1.00s",
            ),
            (|resource| resource.law = None, "no law, shares and limits only"),
        ] {
            assert_eq!(said(change), expected);
        }
        assert_eq!(stands(&array(), false), "unknown: this machine's counters cannot be read");
        for input in [InputStatus::Unknown, InputStatus::Idle, InputStatus::NoTime] {
            let said = said(|resource| decided(resource).input = input);
            assert!(said.contains("; response times unknown: "), "{said}");
        }
        assert!(
            said(|resource| decided(resource).input = InputStatus::Overload)
                .contains("OVERLOAD: nothing completes")
        );
    }

    #[test]
    fn an_export_whose_flushes_fail_stands_out() {
        let one = ConsumerStatus { poisoned: true, ..consumer("a") };
        assert!(flushes(&one).starts_with("FAIL"));
        assert_eq!(flushes(&consumer("a")), NONE, "and where all is well there is no such column");
    }

    #[test]
    fn a_removed_export_in_use_stands_out() {
        let one = ConsumerStatus { removed: true, ..consumer("a") };
        assert_eq!(export(&one), "REMOVED, still in use");
        assert_eq!(export(&consumer("a")), NONE);
    }

    #[test]
    fn who_is_silent_is_not_said_to_be_quick() {
        let silent = LoadFigures { seconds: 3.0, ..LoadFigures::default() };
        let one = ConsumerStatus { measured_seconds: None, recent: Some(silent), ..consumer("a") };
        assert_eq!(takes(&one), "unknown", "sixteen are outstanding");
        assert_eq!(takes(&ConsumerStatus { oldest_seconds: Some(3.2), ..one.clone() }), "none in 3.20s");
        assert_eq!(takes(&ConsumerStatus { outstanding: Some(0), ..one.clone() }), "idle");
        assert_eq!(takes(&ConsumerStatus { recent: None, outstanding: None, ..one.clone() }), "unknown");
    }

    #[test]
    fn a_consumer_that_waits_for_something_else_is_not_said_to_be_throttled() {
        let one = ConsumerStatus { held: Some(false), waits_for: None, ..consumer("a") };
        let waits = |reason| state(&ConsumerStatus { waits_for: Some(reason), ..one.clone() });
        assert_eq!(waits(WaitReason::Limit), "at its limit");
        assert_eq!(waits(WaitReason::Share), "waits for its share");
        assert_eq!(waits(WaitReason::Depth), "at the pool's depth");
        assert_eq!(state(&one), "free");
        assert_eq!(state(&ConsumerStatus { protected: true, ..one.clone() }), "protected");
        assert_eq!(state(&ConsumerStatus { held: Some(true), ..one.clone() }), "throttled");
        assert_eq!(state(&ConsumerStatus { released: true, ..one.clone() }), "released");
        assert_eq!(state(&ConsumerStatus { held: None, ..one }), "unknown");
    }

    #[test]
    fn a_broken_promise_stands_out() {
        let of = |minute| {
            let promise = consumer("a").promise.map(|promise| PromiseStatus { minute, ..promise });
            promise_cell(&ConsumerStatus { promise, ..consumer("a") }, &array())
        };
        assert_eq!(of(Some(0.95)), "15.0ms");
        assert_eq!(of(Some(0.94)), "15.0ms BROKEN");
        assert_eq!(of(None), "15.0ms", "nothing is known of the last minute");
    }
}
