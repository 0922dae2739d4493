//! Contracts: the promise to a consumer, as it stands among the keys of an export or a virtual machine.

use tidegate_control::{Contract, ContractError};
use tidegate_units::{Bytes, DailyValues, Iops, Latency};

use crate::daily;
use crate::finding::FindingList;
use crate::placed::PlacedValue as Value;
use crate::section::Section;

/// The keys of the table `contract`.
pub const KEYS: &[&str] = crate::keys::scenario::CONTRACT.names;

/// The keys if there is admission, which allows a list of tables, one for each part of the day.
pub const ADMITTED_KEYS: &[&str] = crate::keys::pool::CONTRACT.names;

/// More at once is no burst any more.
const GREATEST_BUCKET: u64 = 65_536;

/// The factor between a latency that can be promised and the expected one, in admission control (Lee §2: a
/// margin of 20 %).
const MARGIN: f64 = 1.2;

/// A contract, and how it is kept.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ContractTerms {
    /// The promise.
    pub contract: Contract,
    /// σ, if it is written.
    pub bucket: Option<u32>,
}

/// One of the requirements of a contract: the promise, and the facts that admission control uses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ContractRequirement {
    /// The promise.
    pub given: ContractTerms,
    /// True if the expected latency is written; otherwise it is the promised one divided by `MARGIN`.
    pub expects: bool,
    /// The mean size of the requests, if it is written.
    pub size: Option<Bytes>,
}

/// Reads the table `contract`; `None` without one, and when it is wrong (which is then reported).
pub fn read(of: &Section<'_>, report: &mut FindingList<'_>) -> Option<ContractTerms> {
    promise(&of.table("contract", KEYS, report)?, report)
}

/// Reads `contract` as a table, which holds all day, or as a list of tables, which say when each of them
/// does; `None` without either, and when it is wrong (which is then reported).
pub fn read_daily(
    of: &Section<'_>,
    report: &mut FindingList<'_>,
) -> Option<DailyValues<ContractRequirement>> {
    let value = of.value("contract")?;
    if value.get_ref().as_array().is_some() {
        let tables = of.tables("contract", ADMITTED_KEYS, report);
        let read = tables.iter().map(|table| (table, requirement(table, report))).collect();
        return daily::read(Value { value: "contract", span: value.span() }, read, report);
    }
    let section = of.table("contract", ADMITTED_KEYS, report)?;
    for place in daily::KEYS.iter().filter_map(|key| section.key_span(key)) {
        let help = "write `contract = [{ from = \"08:00\", … }, { from = \"20:00\", … }]`";
        report.error_with_help(&place, "a time is said in a list of requirements", help);
    }
    requirement(&section, report).map(DailyValues::always)
}

fn requirement(section: &Section<'_>, report: &mut FindingList<'_>) -> Option<ContractRequirement> {
    let size = section.parsed::<Bytes>("size", report);
    if let Some(size) = size.as_ref().filter(|size| size.value == Bytes::ZERO) {
        report.error(&size.span, "`size` must be more than nothing");
    }
    let given = promise(section, report)?;
    Some(ContractRequirement { given, expects: section.has("expected"), size: size.map(|size| size.value) })
}

fn promise(section: &Section<'_>, report: &mut FindingList<'_>) -> Option<ContractTerms> {
    for (key, example) in [("iops", "\"500 IO/s\""), ("response_time", "\"20ms\"")] {
        if !section.has(key) {
            section.missing(key, example, report);
        }
    }
    let iops = section.parsed::<Iops>("iops", report);
    let response_time = section.parsed::<Latency>("response_time", report);
    let expected = section.parsed::<Latency>("expected", report);
    let bucket = section.whole("bucket", 1..=GREATEST_BUCKET, report);
    if section.has("expected") && expected.is_none() {
        return None;
    }
    let (iops, response_time) = (iops?, response_time?);
    let usual = response_time.value.scale(1.0 / MARGIN);
    let reference = expected.as_ref().map_or(usual, |expected| expected.value);
    match Contract::new(iops.value, response_time.value, reference) {
        Ok(contract) => Some(ContractTerms { contract, bucket: bucket.map(|given| given.value as u32) }),
        Err(error) => {
            let span = match (&error, &expected) {
                (ContractError::Iops, _) => &iops.span,
                (ContractError::Expected { .. }, Some(expected)) => &expected.span,
                (ContractError::ResponseTime | ContractError::Expected { .. }, _) => &response_time.span,
            };
            report.error(span, error.to_string());
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Finding;

    fn read_list(text: &str) -> (Option<DailyValues<ContractRequirement>>, Vec<String>) {
        let mut report = FindingList::new("test", text);
        let document = crate::parse(text, &mut report).unwrap();
        let export = Section::new(&document, 0..0, "the export".to_owned(), &["contract"], &mut report);
        let daily = read_daily(&export, &mut report);
        let said = report.into_findings();
        (daily, said.iter().map(|f| format!("{}:{}: {}", f.line(), f.column(), f.message())).collect())
    }

    #[test]
    fn a_contract_of_several_requirements_says_when_each_holds() {
        let (daily, findings) = read_list(
            "contract = [
                { from = '20:00', iops = '10 IO/s', response_time = '100ms', size = '64KiB' },
                { from = '08:00', until = '18:00', iops = '40 IO/s', response_time = '36ms', expected = \
                '29ms' },
            ]",
        );
        assert!(findings.is_empty(), "{findings:?}");
        let daily = daily.unwrap();
        let at = |text: &str| daily.at(text.parse().unwrap());
        let (day, night) = (at("08:00").unwrap(), at("00:00").unwrap());
        assert!(day.expects && day.size.is_none() && at("19:00").is_none());
        assert_eq!((night.expects, night.size), (false, Some(Bytes::from_kib(64))));
        assert_eq!(night.given.contract.iops(), Iops::new(10.0));
        let (always, findings) =
            read_list("contract = { iops = '40 IO/s', response_time = '36ms', size = '4KiB' }");
        assert!(
            findings.is_empty() && always.is_some_and(|always| always.changes().next().is_none()),
            "{findings:?}"
        );
    }

    #[test]
    fn requirements_that_contradict_are_found_where_they_stand() {
        let list = |first: &str, second: &str| {
            let of = |times: &str| format!("{{ {times}iops = '40 IO/s', response_time = '35ms' }}");
            format!("contract = [\n{},\n{}]", of(first), of(second))
        };
        for (text, expected) in [
            ("contract = []".to_owned(), "1:12: `contract`: nothing holds at any time"),
            (
                "contract = [{ from = '08:00', iops = '40 IO/s', response_time = '35ms' }]".to_owned(),
                "1:22: number 1 of `contract` of the export: nothing follows it, so that it holds all day \
                    whenever it begins: \
                 say until when, or leave the time out",
            ),
            (list("from = '08:00', ", ""), "3:1: number 2 of `contract` of the export needs `from`"),
            (
                list("from = '08:00', ", "from = '8 pm', "),
                "3:10: `from`: `8 pm` is no time of day; write for example `08:00`, which is UTC, or \
                    `08:00+02:00`",
            ),
            (
                list("from = '08:00', ", "from = '08:00Z', "),
                "3:10: number 2 of `contract` of the export: another one begins at 08:00, too",
            ),
            (
                list("from = '08:00', until = '20:30', ", "from = '20:00', "),
                "2:27: number 1 of `contract` of the export: it goes on until 20:30, and the next one begins \
                    at 20:00",
            ),
            (
                list("from = '08:00', until = '08:00', ", "from = '20:00', "),
                "2:27: number 1 of `contract` of the export: it ends when it begins",
            ),
            (
                list("from = '08:00', ", "from = '20:00', size = '0B', "),
                "3:26: `size` must be more than nothing",
            ),
            (
                "contract = { from = '08:00', iops = '40 IO/s', response_time = '35ms' }".to_owned(),
                "1:14: a time is said in a list of requirements",
            ),
        ] {
            let (_, findings) = read_list(&text);
            assert_eq!(findings, [expected], "{text}");
        }
        let many: String =
            (0..97).map(|_| "{ from = '08:00', iops = '1 IO/s', response_time = '1s' },").collect();
        assert_eq!(
            read_list(&format!("contract = [{many}]")).1,
            ["1:12: `contract` has 97 entries, and at most 96"]
        );
    }

    fn read_text(text: &str) -> (Option<ContractTerms>, Vec<Finding>) {
        let mut report = FindingList::new("test", text);
        let document = crate::parse(text, &mut report).unwrap();
        let vm = Section::new(&document, 0..0, "the machine".to_owned(), &["contract"], &mut report);
        let given = read(&vm, &mut report);
        (given, report.into_findings())
    }

    #[test]
    fn a_contract_is_read_with_every_key() {
        let (given, findings) = read_text(
            "contract = { iops = '40 IO/s', response_time = '35ms', expected = '29ms', bucket = 8 }",
        );
        assert!(findings.is_empty(), "{findings:?}");
        let ms = Latency::from_millis;
        let contract = Contract::new(Iops::new(40.0), ms(35), ms(29)).unwrap();
        assert_eq!(given, Some(ContractTerms { contract, bucket: Some(8) }));
    }

    #[test]
    fn without_an_expectation_the_usual_margin_is_below_the_promise() {
        let (given, findings) = read_text("contract = { iops = '40 IO/s', response_time = '36ms' }");
        assert!(findings.is_empty(), "{findings:?}");
        let given = given.unwrap();
        assert_eq!((given.contract.expected(), given.bucket), (Latency::from_millis(30), None));
    }

    #[test]
    fn what_cannot_be_promised_is_said_where_it_stands() {
        let cases = [
            ("iops = '0 IO/s', response_time = '35ms'", "rate must be greater than zero"),
            ("iops = '40 IO/s', response_time = '0ms'", "response time must be greater than zero"),
            ("iops = '40 IO/s', response_time = '35ms', expected = '36ms'", "at most the promised one"),
            ("iops = '40 IO/s'", "needs `response_time`"),
            ("response_time = '35ms'", "needs `iops`"),
            ("iops = '40 IO/s', response_time = '35ms', bucket = 0", "`bucket` must be 1 to 65536"),
            ("iops = '40 IO/s', response_time = '35ms', size = '4KiB'", "unknown key `size`"),
        ];
        for (text, said) in cases {
            let (_, findings) = read_text(&format!("contract = {{ {text} }}"));
            assert!(findings.len() == 1 && findings[0].message().contains(said), "{text}: {findings:?}");
        }
    }
}
