//! A file of contracts: the storage, and what tenants ask of it.

use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::ops::Range;
use std::path::Path;

use tidegate_admission::{DemandError, LEAST_RATE, TenantDemand, TenantDemands};
use tidegate_config::{Finding, FindingList, PlacedValue, Section, daily, parse};
use tidegate_device::DeviceConfig;
use tidegate_sched::Discipline;
use tidegate_sim::offer::{ConsumerLoad, LoadOffer};
use tidegate_sim::scenario::{ScenarioHost, SizeWeights, device};
use tidegate_units::{Bytes, ConsumerName, DailyPeriod, DailyValues, Iops, Latency, Shares};

use crate::failure::CommandFailure;

const ROOT_KEYS: &[&str] = &["storage", "tenant"];
const STORAGE_KEYS: &[&str] = &["preset", "device", "rate", "servers", "capacity", "depth", "scheduler"];
const TENANT_KEYS: &[&str] =
    &["iops", "size", "deviation", "response_time", "read", "weight", "requirements"];
/// The keys that may differ over the day. `weight` is not among them: it is for the scheduler, and stays.
const REQUIREMENT_KEYS: &[&str] =
    &["iops", "size", "deviation", "response_time", "read", daily::KEYS[0], daily::KEYS[1]];

/// The keys that a requirement needs, with an example of each.
const NEEDED: [(&str, &str); 3] = [("iops", "40"), ("size", "\"4KiB\""), ("response_time", "\"35ms\"")];

/// The longest queue at a storage, as in scenarios.
const GREATEST_DEPTH: u64 = 1_024;

/// A larger file is not one of contracts.
const LARGEST: u64 = 1024 * 1024;

/// The content of a file.
pub(crate) struct ContractFile {
    /// The requirements that hold together, in the order of the day; none where the file has no tenants. At
    /// times without any requirement, nothing is asked for.
    pub(crate) sets: Vec<RequirementSet>,
    /// The storage's model, and what stands before it.
    storage: Option<Storage>,
    name: String,
    text: String,
    /// The position at which the tenants begin.
    tenants: Range<usize>,
}

/// Requirements that hold together.
#[derive(Debug)]
pub(crate) struct RequirementSet {
    /// The time of day.
    pub(crate) period: DailyPeriod,
    /// The tenants' demands.
    pub(crate) contracts: TenantDemands,
    /// The tenants' loads, in the same order.
    pub(crate) loads: Vec<ConsumerLoad>,
    /// The position at which each tenant's response time is written.
    places: HashMap<ConsumerName, Range<usize>>,
}

struct Storage {
    device: DeviceConfig,
    depth: u32,
    discipline: Discipline,
}

/// One requirement of a tenant.
#[derive(Debug, Clone)]
struct Requirement {
    demand: TenantDemand,
    load: ConsumerLoad,
    /// The position at which its response time is written.
    place: Range<usize>,
}

impl ContractFile {
    /// Reads a file. One that only says what the storage is may have no tenants.
    ///
    /// # Errors
    /// When it cannot be read, or anything in it is wrong: then everything that is.
    pub(crate) fn read(path: &Path) -> Result<Self, CommandFailure> {
        let unreadable = |source| CommandFailure::ReadContracts { path: path.to_owned(), source };
        let mut text = String::new();
        fs::File::open(path)
            .and_then(|file| file.take(LARGEST).read_to_string(&mut text))
            .map_err(unreadable)?;
        Self::parse(path.display().to_string(), text).map_err(CommandFailure::InvalidContracts)
    }

    fn parse(name: String, text: String) -> Result<Self, Vec<Finding>> {
        let mut report = FindingList::new(&name, &text);
        let read = parse(&text, &mut report).map(|document| {
            let root = Section::new(&document, 0..0, "the document".to_owned(), ROOT_KEYS, &mut report);
            let storage = storage(&root, &mut report);
            let tenants = tenants(&root, &mut report);
            (storage, tenants, root.key_span("tenant").unwrap_or(0..0))
        });
        match read {
            Some((storage, requirements, tenants)) if !report.has_errors() => {
                Ok(Self { sets: sets(&requirements), storage, name, text, tenants })
            }
            _ => Err(report.into_findings()),
        }
    }

    /// The requirements of a file in which they are the same all day; `None` where it has no tenants.
    ///
    /// # Errors
    /// Where they change.
    pub(crate) fn only_set(&self) -> Result<Option<&RequirementSet>, CommandFailure> {
        match &self.sets[..] {
            [] => Ok(None),
            [set] if set.period.is_whole() => Ok(Some(set)),
            _ => {
                let mut report = FindingList::new(&self.name, &self.text);
                let help = "give each tenant one `iops`, `size` and `response_time`, of the time of day that \
                    matters";
                report.error_with_help(
                    &self.tenants,
                    "a profile is of one mixture, and these change over the day",
                    help,
                );
                Err(CommandFailure::InvalidContracts(report.into_findings()))
            }
        }
    }

    /// Load on the storage's model.
    ///
    /// # Errors
    /// When the file does not say what the storage is.
    pub(crate) fn offer(&self, loads: Vec<ConsumerLoad>) -> Result<LoadOffer, CommandFailure> {
        let Some(Storage { device, depth, discipline }) = &self.storage else {
            let mut report = FindingList::new(&self.name, &self.text);
            let help =
                "add `storage = { preset = \"dnes-309170w\" }`, or measure the storage itself with --live";
            report.error_with_help(&(0..0), "the document needs `storage`", help);
            return Err(CommandFailure::InvalidContracts(report.into_findings()));
        };
        let mut offer = LoadOffer::new(device.clone(), loads);
        (offer.host.depth, offer.host.discipline) = (*depth, *discipline);
        Ok(offer)
    }

    /// Refuses what only a model can be asked: live storage has requests of one size each, and writes only
    /// where the export may be overwritten.
    ///
    /// # Errors
    /// Each tenant that writes all the same, or whose requests differ in size.
    pub(crate) fn check_live(&self, set: &RequirementSet, overwrite: bool) -> Result<(), CommandFailure> {
        let mut report = FindingList::new(&self.name, &self.text);
        for load in &set.loads {
            let place = set.places.get(&load.name).unwrap_or(&self.tenants);
            let name = &load.name;
            if load.reads < 1.0 && !overwrite {
                let help = "give an export whose content may be lost, with `--overwrite`; or ask a model";
                report.error_with_help(
                    place,
                    format!("`{name}` writes, and a live storage is only read"),
                    help,
                );
            }
            if load.sizes != SizeWeights::fixed(load.sizes.greatest()) {
                let help = "remove `deviation`, or ask a model";
                let message =
                    format!("`{name}` sends requests of several sizes, and a live storage is read in one");
                report.error_with_help(place, message, help);
            }
        }
        if report.has_errors() {
            Err(CommandFailure::InvalidContracts(report.into_findings()))
        } else {
            Ok(())
        }
    }

    /// Returns a finding for a demand that the storage cannot meet at all, at the place where it is written.
    pub(crate) fn impossible(&self, error: &DemandError, set: Option<&RequirementSet>) -> Finding {
        let place = error.tenant().and_then(|name| set?.places.get(name));
        let when = set.map_or(DailyPeriod::DAY, |set| set.period);
        let message = if when.is_whole() { error.to_string() } else { format!("{when}: {error}") };
        let mut report = FindingList::new(&self.name, &self.text);
        report.error(place.unwrap_or(&self.tenants), message);
        report.into_findings().swap_remove(0)
    }
}

/// Returns the sets of requirements that hold together, one for each period between two changes.
fn sets(tenants: &[DailyValues<Requirement>]) -> Vec<RequirementSet> {
    let periods = DailyPeriod::between(tenants.iter().flat_map(DailyValues::changes).collect());
    let sets = periods.into_iter().filter_map(|period| {
        let holding: Vec<_> = tenants.iter().filter_map(|tenant| tenant.at(period.from())).collect();
        let of = |requirement: &&Requirement| requirement.demand.clone();
        // Each was checked where it is written; that there are none is for the reader's user to say.
        let contracts = TenantDemands::new(holding.iter().map(of).collect()).ok()?;
        let places = holding.iter().map(|one| (one.demand.name.clone(), one.place.clone())).collect();
        Some(RequirementSet {
            period,
            contracts,
            loads: holding.iter().map(|one| one.load.clone()).collect(),
            places,
        })
    });
    sets.collect()
}

fn storage(root: &Section<'_>, report: &mut FindingList<'_>) -> Option<Storage> {
    let table = root.table("storage", STORAGE_KEYS, report)?;
    let depth = table.whole("depth", 1..=GREATEST_DEPTH, report).map(|depth| depth.value as u32);
    // By which contracts are kept, unless it is said otherwise.
    let disciplines = [("yfq", Discipline::FinishTags), ("sfq", Discipline::StartTags)];
    let discipline = table.choice("scheduler", &disciplines, report);
    let discipline = discipline.map_or(Discipline::FinishTags, |given| given.value);
    let depth = depth.unwrap_or(ScenarioHost::DEFAULT_DEPTH);
    Some(Storage { device: device(&table, report)?, depth, discipline })
}

fn tenants(root: &Section<'_>, report: &mut FindingList<'_>) -> Vec<DailyValues<Requirement>> {
    let mut tenants = Vec::new();
    for (name, table) in root.named_tables("tenant", TENANT_KEYS, report).unwrap_or_default() {
        let read = ConsumerName::new(name.value)
            .map_err(|error| report.error(&name.span, format!("a tenant's name: {error}")));
        let Ok(name) = read else { continue };
        tenants.extend(tenant(&name, &table, report));
    }
    tenants
}

/// Reads a tenant: its demand for all day, or its list of requirements. Keys that a requirement lacks are
/// taken from the tenant itself.
fn tenant(
    name: &ConsumerName,
    table: &Section<'_>,
    report: &mut FindingList<'_>,
) -> Option<DailyValues<Requirement>> {
    let least = u64::from(Shares::MIN.get())..=u64::from(Shares::MAX.get());
    let weight = table.whole("weight", least, report).and_then(|weight| Shares::new(weight.value as u32));
    let weight = weight.unwrap_or_default();
    let Some(list) = table.value("requirements") else {
        for (key, example) in NEEDED.into_iter().filter(|(key, _)| !table.has(key)) {
            table.missing(key, example, report);
        }
        return Terms::read(table, report).check(name, weight, report).map(DailyValues::always);
    };
    let own = Terms::read(table, report);
    let entries = table.tables("requirements", REQUIREMENT_KEYS, report);
    let read = entries.iter().map(|entry| {
        for (key, example) in NEEDED.into_iter().filter(|(key, _)| !table.has(key) && !entry.has(key)) {
            entry.missing(key, example, report);
        }
        (entry, Terms::read(entry, report).or(own.clone()).check(name, weight, report))
    });
    let read = read.collect();
    // Something else is reported already.
    list.get_ref().as_array()?;
    daily::read(PlacedValue { value: "requirements", span: list.span() }, read, report)
}

/// The terms of a demand, as far as they are given and can be read.
#[derive(Clone, Default)]
struct Terms {
    iops: Option<PlacedValue<f64>>,
    size: Option<PlacedValue<Bytes>>,
    deviation: Option<PlacedValue<Bytes>>,
    response_time: Option<PlacedValue<Latency>>,
    reads: Option<PlacedValue<f64>>,
}

/// A number, as the paper writes it, or a rate with its unit, as the contracts of `serve` have it.
fn rate(table: &Section<'_>, report: &mut FindingList<'_>) -> Option<PlacedValue<f64>> {
    if !table.is_text("iops") {
        return table.number("iops", report);
    }
    let PlacedValue { value, span } = table.parsed::<Iops>("iops", report)?;
    Some(PlacedValue { value: value.per_second(), span })
}

impl Terms {
    fn read(table: &Section<'_>, report: &mut FindingList<'_>) -> Self {
        Self {
            iops: rate(table, report),
            size: table.parsed("size", report),
            deviation: table.parsed("deviation", report),
            response_time: table.parsed("response_time", report),
            reads: table.number("read", report),
        }
    }

    /// With others where nothing is said.
    fn or(self, others: Self) -> Self {
        Self {
            iops: self.iops.or(others.iops),
            size: self.size.or(others.size),
            deviation: self.deviation.or(others.deviation),
            response_time: self.response_time.or(others.response_time),
            reads: self.reads.or(others.reads),
        }
    }

    /// Converts the terms to a contract and its load; `None` if one is missing or wrong. A wrong one is
    /// reported.
    fn check(self, name: &ConsumerName, weight: Shares, report: &mut FindingList<'_>) -> Option<Requirement> {
        if let Some(reads) = self.reads.as_ref().filter(|reads| !(0.0..=1.0).contains(&reads.value)) {
            report.error(&reads.span, "`read` is the part of the requests that read, 0 to 1");
        }
        let (iops, size, response_time) = (self.iops?, self.size?, self.response_time?);
        if iops.value < LEAST_RATE {
            // The number as it is written: a rate is never negative, and would not show it.
            let message = format!("`iops` must be at least {LEAST_RATE}, this is {}", iops.value);
            report.error(&iops.span, message);
            return None;
        }
        let demand = TenantDemand {
            name: name.clone(),
            iops: Iops::new(iops.value),
            size: size.value,
            response_time: response_time.value,
        };
        if let Err(error) = demand.check() {
            let place = match error {
                DemandError::ResponseTime(_) => response_time.span,
                _ => size.span,
            };
            report.error(&place, error.to_string());
            return None;
        }
        let mut load = ConsumerLoad::random_reads(name.clone(), demand.iops, demand.size);
        if let Some(deviation) = self.deviation {
            let Some(sizes) = SizeWeights::normal(demand.size, deviation.value) else {
                report.error(
                    &deviation.span,
                    "`deviation` is no more than `size`, and both are of 512 B or more",
                );
                return None;
            };
            load.sizes = sizes;
        }
        load.reads = self.reads.map_or(1.0, |reads| reads.value);
        load.shares = weight;
        Some(Requirement { demand, load, place: response_time.span })
    }
}

#[cfg(test)]
mod tests {
    use tidegate_sim::scenario::DEVICE_KEYS;

    use super::*;

    const LEE: &str = r#"
[storage]
preset = "dnes-309170w"
depth = 4

[tenant.w1]
iops = 40
size = "4KiB"
response_time = "35ms"
weight = 200

[tenant.w2]
iops = 20.5
size = "4KiB"
deviation = "1KiB"
response_time = "38ms"
read = 0.5
"#;

    fn read(text: &str) -> Result<ContractFile, Vec<String>> {
        ContractFile::parse("c.toml".to_owned(), text.to_owned()).map_err(|findings| {
            findings.iter().map(|f| format!("{}:{}: {}", f.line(), f.column(), f.message())).collect()
        })
    }

    #[test]
    fn every_key_of_a_device_is_a_key_of_the_storage() {
        assert!(DEVICE_KEYS.iter().all(|key| STORAGE_KEYS.contains(key)));
    }

    #[test]
    fn every_key_is_documented() {
        let document = include_str!("../../../../docs/guide/contracts.md");
        for key in TENANT_KEYS.iter().chain(&["depth", "scheduler"]) {
            assert!(
                document.contains(&format!("\n| `{key}` | ")),
                "docs/guide/contracts.md does not have `{key}`"
            );
        }
    }

    #[test]
    fn every_key_is_read() {
        let file = read(LEE).unwrap_or_else(|findings| panic!("{findings:?}"));
        let [set] = &file.sets[..] else { panic!("the same all day") };
        assert_eq!(set.contracts.total(), Iops::new(60.5));
        assert_eq!(set.contracts.as_slice()[1].response_time, Latency::from_millis(38));
        let offer = file.offer(set.loads.clone()).unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!((offer.host.depth, &offer.loads), (4, &set.loads));
        let [first, second] = &set.loads[..] else { panic!("two loads") };
        assert_eq!((first.shares.get(), first.reads, &first.sizes), (200, 1.0, &SizeWeights::fixed(4_096)));
        assert_eq!((second.shares, second.reads, second.sizes.greatest()), (Shares::DEFAULT, 0.5, 8_192));
    }

    #[test]
    fn a_storage_without_tenants_is_read_as_such() {
        assert!(read("storage = { rate = \"100 IO/s\" }").is_ok_and(|file| file.sets.is_empty()));
    }

    /// The second tenant's, from 20:00 on, is all that changes.
    const DAY: &str = r#"
tenant.w1 = { iops = 40, size = "4KiB", response_time = "35ms", weight = 200 }
[tenant.w2]
size = "4KiB"
response_time = "38ms"
requirements = [
  { from = "08:00", until = "18:00", iops = 20 },
  { from = "20:00", iops = 5, size = "64KiB", response_time = "100ms" },
]
"#;

    #[test]
    fn what_holds_together_is_one_set_for_each_change() {
        let file = read(DAY).unwrap_or_else(|findings| panic!("{findings:?}"));
        let said = file.sets.iter().map(|set| {
            let of =
                |one: &TenantDemand| format!("{} {} {} {}", one.name, one.iops, one.size, one.response_time);
            let said: Vec<_> = set.contracts.as_slice().iter().map(of).collect();
            format!("{}: {}", set.period, said.join(", "))
        });
        assert_eq!(
            said.collect::<Vec<_>>(),
            [
                "from 08:00 until 18:00: w1 40 IO/s 4 KiB 35.0ms, w2 20 IO/s 4 KiB 38.0ms",
                "from 18:00 until 20:00: w1 40 IO/s 4 KiB 35.0ms",
                "from 20:00 until 08:00: w1 40 IO/s 4 KiB 35.0ms, w2 5.0 IO/s 64 KiB 100ms",
            ]
        );
        assert_eq!(file.sets[2].loads[1].sizes, SizeWeights::fixed(65_536));
        assert!(file.only_set().is_err(), "there is no profile of several mixtures");
        let Ok(only_in_the_day) = read(
            "tenant.w.requirements = [{ from = '08:00', until = '18:00', iops = 1, size = '4KiB', \
                response_time = '1s' }]",
        ) else {
            panic!("it is right")
        };
        let [set] = &only_in_the_day.sets[..] else { panic!("nothing is asked for at night") };
        assert_eq!(set.period.to_string(), "from 08:00 until 18:00");
    }

    #[test]
    fn requirements_that_are_wrong_are_found_where_they_are_written() {
        for (from, to, expected) in [
            ("iops = 20", "iops = 0", "7:45: `iops` must be at least 0.01, this is 0"),
            ("iops = 20", "", "7:3: number 1 of `requirements` of tenant `w2` needs `iops`"),
            (
                "response_time = \"38ms\"",
                "",
                "7:3: number 1 of `requirements` of tenant `w2` needs `response_time`",
            ),
            (
                "18:00",
                "20:01",
                "7:29: number 1 of `requirements` of tenant `w2`: it goes on until 20:01, and the next one \
                    begins at 20:00",
            ),
            (
                "iops = 5",
                "weight = 5",
                "8:21: unknown key `weight` in number 2 of `requirements` of tenant `w2`",
            ),
        ] {
            let found = read(&DAY.replacen(from, to, 1)).err().unwrap_or_default();
            assert!(found.contains(&expected.to_owned()), "{to}: {found:?}");
        }
        assert_eq!(
            read("tenant.w = { requirements = 'all' }").err().unwrap_or_default(),
            ["1:29: `requirements` must be a list of tables, this is a text"]
        );
    }

    #[test]
    fn what_is_wrong_is_found_where_it_is_written() {
        let found = |from: &str, to: &str| read(&LEE.replacen(from, to, 1)).err().unwrap_or_default();
        for (from, to, expected) in [
            ("iops = 40", "iops = 0", "7:8: `iops` must be at least 0.01, this is 0"),
            ("iops = 40", "iops = -40", "7:8: `iops` must be at least 0.01, this is -40"),
            ("iops = 40", "iops = nan", "7:8: `iops` must be a finite number, this is nan"),
            ("iops = 40", "iops = '0 IO/s'", "7:8: `iops` must be at least 0.01, this is 0"),
            ("iops = 40", "", "6:9: tenant `w1` needs `iops`"),
            (
                "\"35ms\"",
                "\"0ms\"",
                "9:17: `w1` asks for a response time of nothing: give each request the time that its \
                                    service takes, and more",
            ),
            (
                "\"35ms\"",
                "\"-1ms\"",
                "9:17: `response_time`: `-1ms` does not start with a number; write for example `15ms`",
            ),
            ("\"4KiB\"", "\"0B\"", "8:8: `w1` asks for requests of 0 B, and a request has 1 B to 32 MiB"),
            ("1KiB", "5KiB", "15:13: `deviation` is no more than `size`, and both are of 512 B or more"),
            ("read = 0.5", "read = 1.5", "17:8: `read` is the part of the requests that read, 0 to 1"),
            ("weight", "wait", "10:1: unknown key `wait` in tenant `w1`"),
            ("depth = 4", "depth = 0", "4:9: `depth` must be 1 to 1024, this is 0"),
        ] {
            assert_eq!(found(from, to), [expected], "{to}");
        }
        let unsaid =
            read(LEE.split_once("[tenant").map(|(_, tenants)| format!("[tenant{tenants}")).unwrap().as_str());
        let Err(CommandFailure::InvalidContracts(findings)) =
            unsaid.unwrap_or_else(|findings| panic!("{findings:?}")).offer(Vec::new())
        else {
            panic!("the storage is not given")
        };
        assert_eq!(findings[0].message(), "the document needs `storage`");
    }

    #[test]
    fn a_rate_may_have_its_unit() {
        let [plain, with] = [LEE.to_owned(), LEE.replacen("iops = 40", "iops = '40 IO/s'", 1)].map(|text| {
            let Ok(file) = read(&text) else { panic!("it is right") };
            file.sets[0].contracts.clone()
        });
        assert_eq!(plain, with);
    }

    #[test]
    fn live_storage_is_only_read_unless_overwritten_and_in_one_size() {
        let Ok(file) = read(LEE) else { panic!("it is right") };
        let Err(CommandFailure::InvalidContracts(findings)) = file.check_live(&file.sets[0], false) else {
            panic!("w2 writes")
        };
        let said: Vec<_> = findings.iter().map(|f| (f.line(), f.message())).collect();
        assert_eq!(
            said,
            [
                (16, "`w2` writes, and a live storage is only read"),
                (16, "`w2` sends requests of several sizes, and a live storage is read in one"),
            ]
        );
        let one_size = LEE.replace("deviation = \"1KiB\"", "");
        assert!(read(&one_size).is_ok_and(|file| file.check_live(&file.sets[0], true).is_ok()));
        let plain = one_size.replace("read = 0.5", "");
        assert!(read(&plain).is_ok_and(|file| file.check_live(&file.sets[0], false).is_ok()));
    }

    #[test]
    fn what_the_storage_cannot_do_has_its_place_too() {
        let Ok(file) = read(LEE) else { panic!("it is right") };
        let name = ConsumerName::new("w2").unwrap();
        let (asked, alone) = (Latency::from_millis(38), Latency::from_millis(40));
        let finding = file.impossible(&DemandError::BelowService { name, asked, alone }, file.sets.first());
        assert_eq!((finding.line(), finding.column()), (16, 17));
        let finding =
            file.impossible(&DemandError::AboveCapacity { asked: 60.5, capacity: 60.0 }, file.sets.first());
        assert_eq!(finding.line(), 6);
    }
}
