//! A file of contracts: the storage, and what tenants ask of it.

use std::collections::HashMap;
use std::fs;
use std::io::Read;
use std::ops::Range;
use std::path::Path;

use tidegate_config::{Finding, Report, Section, parse};
use tidegate_device::DeviceConfig;
use tidegate_place::{Demand, DemandError, Demands, LEAST_RATE};
use tidegate_sched::Discipline;
use tidegate_sim::offer::{Load, Offer};
use tidegate_sim::scenario::{Host, Sizes, device};
use tidegate_units::{Bytes, ConsumerName, Iops, Latency, Shares};

use crate::failure::Failure;

const ROOT_KEYS: &[&str] = &["storage", "tenant"];
const STORAGE_KEYS: &[&str] = &["preset", "device", "rate", "servers", "capacity", "depth", "scheduler"];
const TENANT_KEYS: &[&str] = &["iops", "size", "deviation", "response_time", "read", "weight"];

/// The longest queue at a storage, as in scenarios.
const GREATEST_DEPTH: u64 = 1_024;

/// A larger file is not one of contracts.
const LARGEST: u64 = 1024 * 1024;

/// What a file says.
pub(crate) struct File {
    /// What the tenants ask for; `None` where the file has no tenants.
    pub(crate) contracts: Option<Demands>,
    /// What they send, in the same order.
    pub(crate) loads: Vec<Load>,
    /// The storage's model, and what stands before it.
    storage: Option<Storage>,
    name: String,
    text: String,
    /// Where each tenant's response time is written, and where all of them begin.
    places: Places,
}

struct Storage {
    device: DeviceConfig,
    depth: u32,
    discipline: Discipline,
}

#[derive(Default)]
struct Places {
    response_times: HashMap<ConsumerName, Range<usize>>,
    tenants: Range<usize>,
}

impl File {
    /// Reads a file. One that only says what the storage is may have no tenants.
    ///
    /// # Errors
    /// When it cannot be read, or anything in it is wrong: then everything that is.
    pub(crate) fn read(path: &Path) -> Result<Self, Failure> {
        let unreadable = |source| Failure::ReadContracts { path: path.to_owned(), source };
        let mut text = String::new();
        fs::File::open(path)
            .and_then(|file| file.take(LARGEST).read_to_string(&mut text))
            .map_err(unreadable)?;
        Self::parse(path.display().to_string(), text).map_err(Failure::InvalidContracts)
    }

    fn parse(name: String, text: String) -> Result<Self, Vec<Finding>> {
        let mut report = Report::new(&name, &text);
        let read = parse(&text, &mut report).map(|document| {
            let root = Section::new(&document, 0..0, "the document".to_owned(), ROOT_KEYS, &mut report);
            let storage = storage(&root, &mut report);
            let (tenants, places) = tenants(&root, &mut report);
            (storage, tenants, places)
        });
        match read {
            Some((storage, tenants, places)) if !report.has_errors() => {
                let (contracts, loads): (Vec<_>, Vec<_>) = tenants.into_iter().unzip();
                // Each was checked where it is written; that there are none is for the reader's user to say.
                let contracts = Demands::new(contracts).ok();
                Ok(Self { contracts, loads, storage, name, text, places })
            }
            _ => Err(report.into_findings()),
        }
    }

    /// The tenants' load on the storage's model.
    ///
    /// # Errors
    /// When the file does not say what the storage is.
    pub(crate) fn offer(&self) -> Result<Offer, Failure> {
        let Some(Storage { device, depth, discipline }) = &self.storage else {
            let mut report = Report::new(&self.name, &self.text);
            let help =
                "add `storage = { preset = \"dnes-309170w\" }`, or measure the storage itself with --live";
            report.error_with_help(&(0..0), "the document needs `storage`", help);
            return Err(Failure::InvalidContracts(report.into_findings()));
        };
        let mut offer = Offer::new(device.clone(), self.loads.clone());
        (offer.host.depth, offer.host.discipline) = (*depth, *discipline);
        Ok(offer)
    }

    /// Refuses what only a model can be asked: live storage is read, in requests of one size each.
    ///
    /// # Errors
    /// Each tenant that writes, or whose requests differ in size.
    pub(crate) fn check_live(&self) -> Result<(), Failure> {
        let mut report = Report::new(&self.name, &self.text);
        for load in &self.loads {
            let place = self.places.response_times.get(&load.name).unwrap_or(&self.places.tenants);
            let name = &load.name;
            if load.reads < 1.0 {
                let help = "ask a model of it";
                report.error_with_help(
                    place,
                    format!("`{name}` writes, and a live storage is only read"),
                    help,
                );
            }
            if load.sizes != Sizes::fixed(load.sizes.greatest()) {
                let help = "remove `deviation`, or ask a model";
                let message =
                    format!("`{name}` sends requests of several sizes, and a live storage is read in one");
                report.error_with_help(place, message, help);
            }
        }
        if report.has_errors() { Err(Failure::InvalidContracts(report.into_findings())) } else { Ok(()) }
    }

    /// What the storage cannot do at all, where it is written.
    pub(crate) fn impossible(&self, error: &DemandError) -> Finding {
        let place = error.tenant().and_then(|name| self.places.response_times.get(name));
        let mut report = Report::new(&self.name, &self.text);
        report.error(place.unwrap_or(&self.places.tenants), error.to_string());
        report.into_findings().swap_remove(0)
    }
}

fn storage(root: &Section<'_>, report: &mut Report<'_>) -> Option<Storage> {
    let table = root.table("storage", STORAGE_KEYS, report)?;
    let depth = table.whole("depth", 1..=GREATEST_DEPTH, report).map(|depth| depth.value as u32);
    // By which contracts are kept, unless it is said otherwise.
    let disciplines = [("yfq", Discipline::FinishTags), ("sfq", Discipline::StartTags)];
    let discipline = table.choice("scheduler", &disciplines, report);
    let discipline = discipline.map_or(Discipline::FinishTags, |given| given.value);
    let depth = depth.unwrap_or(Host::DEFAULT_DEPTH);
    Some(Storage { device: device(&table, report)?, depth, discipline })
}

fn tenants(root: &Section<'_>, report: &mut Report<'_>) -> (Vec<(Demand, Load)>, Places) {
    let mut tenants = Vec::new();
    let mut places = Places { tenants: root.key_span("tenant").unwrap_or(0..0), ..Places::default() };
    for (name, table) in root.named_tables("tenant", TENANT_KEYS, report).unwrap_or_default() {
        let read = ConsumerName::new(name.value)
            .map_err(|error| report.error(&name.span, format!("a tenant's name: {error}")));
        let Ok(name) = read else { continue };
        if let Some(place) = table.value("response_time") {
            places.response_times.insert(name.clone(), place.span());
        }
        tenants.extend(tenant(name, &table, report));
    }
    (tenants, places)
}

fn tenant(name: ConsumerName, table: &Section<'_>, report: &mut Report<'_>) -> Option<(Demand, Load)> {
    for (key, example) in [("iops", "40"), ("size", "\"4KiB\""), ("response_time", "\"35ms\"")] {
        if !table.has(key) {
            table.missing(key, example, report);
        }
    }
    let iops = table.number("iops", report);
    let size = table.parsed::<Bytes>("size", report);
    let deviation = table.parsed::<Bytes>("deviation", report);
    let response_time = table.parsed::<Latency>("response_time", report);
    let reads = table.number("read", report);
    if let Some(reads) = reads.as_ref().filter(|reads| !(0.0..=1.0).contains(&reads.value)) {
        report.error(&reads.span, "`read` is the part of the requests that read, 0 to 1");
    }
    let least = u64::from(Shares::MIN.get())..=u64::from(Shares::MAX.get());
    let weight = table.whole("weight", least, report).and_then(|weight| Shares::new(weight.value as u32));
    let (iops, size, response_time) = (iops?, size?, response_time?);
    if iops.value < LEAST_RATE {
        // The number as it is written: a rate is never negative, and would not show it.
        let message = format!("`iops` must be at least {LEAST_RATE}, this is {}", iops.value);
        report.error(&iops.span, message);
        return None;
    }
    let contract = Demand {
        name: name.clone(),
        iops: Iops::new(iops.value),
        size: size.value,
        response_time: response_time.value,
    };
    if let Err(error) = contract.check() {
        let place = match error {
            DemandError::ResponseTime(_) => response_time.span,
            _ => size.span,
        };
        report.error(&place, error.to_string());
        return None;
    }
    let mut load = Load::random_reads(name, contract.iops, contract.size);
    if let Some(deviation) = deviation {
        let Some(sizes) = Sizes::normal(contract.size, deviation.value) else {
            report
                .error(&deviation.span, "`deviation` is no more than `size`, and both are of 512 B or more");
            return None;
        };
        load.sizes = sizes;
    }
    load.reads = reads.map_or(1.0, |reads| reads.value);
    load.shares = weight.unwrap_or_default();
    Some((contract, load))
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

    fn read(text: &str) -> Result<File, Vec<String>> {
        File::parse("c.toml".to_owned(), text.to_owned()).map_err(|findings| {
            findings.iter().map(|f| format!("{}:{}: {}", f.line(), f.column(), f.message())).collect()
        })
    }

    #[test]
    fn every_key_of_a_device_is_a_key_of_the_storage() {
        assert!(DEVICE_KEYS.iter().all(|key| STORAGE_KEYS.contains(key)));
    }

    #[test]
    fn every_key_is_documented() {
        let document = include_str!("../../../../docs/contracts.md");
        for key in TENANT_KEYS.iter().chain(&["depth", "scheduler"]) {
            assert!(document.contains(&format!("\n| `{key}` | ")), "docs/contracts.md does not have `{key}`");
        }
    }

    #[test]
    fn every_key_is_read() {
        let file = read(LEE).unwrap_or_else(|findings| panic!("{findings:?}"));
        let contracts = file.contracts.as_ref().unwrap();
        assert_eq!(contracts.total(), Iops::new(60.5));
        assert_eq!(contracts.as_slice()[1].response_time, Latency::from_millis(38));
        let offer = file.offer().unwrap_or_else(|failure| panic!("{failure}"));
        assert_eq!((offer.host.depth, &offer.loads), (4, &file.loads));
        let [first, second] = &file.loads[..] else { panic!("two loads") };
        assert_eq!((first.shares.get(), first.reads, &first.sizes), (200, 1.0, &Sizes::fixed(4_096)));
        assert_eq!((second.shares, second.reads, second.sizes.greatest()), (Shares::DEFAULT, 0.5, 8_192));
    }

    #[test]
    fn a_storage_without_tenants_is_read_as_such() {
        assert!(read("storage = { rate = \"100 IO/s\" }").is_ok_and(|file| file.contracts.is_none()));
    }

    #[test]
    fn what_is_wrong_is_found_where_it_is_written() {
        let found = |from: &str, to: &str| read(&LEE.replacen(from, to, 1)).err().unwrap_or_default();
        for (from, to, expected) in [
            ("iops = 40", "iops = 0", "7:8: `iops` must be at least 0.01, this is 0"),
            ("iops = 40", "iops = -40", "7:8: `iops` must be at least 0.01, this is -40"),
            ("iops = 40", "iops = nan", "7:8: `iops` must be a finite number, this is nan"),
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
        let Err(Failure::InvalidContracts(findings)) =
            unsaid.unwrap_or_else(|findings| panic!("{findings:?}")).offer()
        else {
            panic!("nobody said what the storage is")
        };
        assert_eq!(findings[0].message(), "the document needs `storage`");
    }

    #[test]
    fn live_storage_is_only_read_and_in_one_size() {
        let Ok(file) = read(LEE) else { panic!("it is right") };
        let Err(Failure::InvalidContracts(findings)) = file.check_live() else { panic!("w2 writes") };
        let said: Vec<_> = findings.iter().map(|f| (f.line(), f.message())).collect();
        assert_eq!(
            said,
            [
                (16, "`w2` writes, and a live storage is only read"),
                (16, "`w2` sends requests of several sizes, and a live storage is read in one"),
            ]
        );
        let plain = LEE.replace("deviation = \"1KiB\"", "").replace("read = 0.5", "");
        assert!(read(&plain).is_ok_and(|file| file.check_live().is_ok()));
    }

    #[test]
    fn what_the_storage_cannot_do_has_its_place_too() {
        let Ok(file) = read(LEE) else { panic!("it is right") };
        let name = ConsumerName::new("w2").unwrap();
        let (asked, alone) = (Latency::from_millis(38), Latency::from_millis(40));
        let finding = file.impossible(&DemandError::BelowService { name, asked, alone });
        assert_eq!((finding.line(), finding.column()), (16, 17));
        let finding = file.impossible(&DemandError::AboveCapacity { asked: 60.5, capacity: 60.0 });
        assert_eq!(finding.line(), 6);
    }
}
