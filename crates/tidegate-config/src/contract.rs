//! What is promised to a consumer, as it stands among the keys of an export or a virtual machine.

use tidegate_control::{Contract, ContractError};
use tidegate_units::{Iops, Latency};

use crate::finding::Report;
use crate::section::Section;

/// The keys of the table `contract`.
pub const KEYS: &[&str] = &["iops", "response_time", "expected", "bucket"];

/// More at once is no burst any more.
const GREATEST_BUCKET: u64 = 65_536;

/// By what admission control divides a response time that can be promised to find what it expects (Lee §2: a margin of 20 %).
const MARGIN: f64 = 1.2;

/// A contract, and how it is kept.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Given {
    /// What is promised.
    pub contract: Contract,
    /// σ, where it is said.
    pub bucket: Option<u32>,
}

/// Reads the table `contract`; `None` without one, and when it is wrong (which is then reported).
pub fn read(of: &Section<'_>, report: &mut Report<'_>) -> Option<Given> {
    let section = of.table("contract", KEYS, report)?;
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
        Ok(contract) => Some(Given { contract, bucket: bucket.map(|given| given.value as u32) }),
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

    fn read_text(text: &str) -> (Option<Given>, Vec<Finding>) {
        let mut report = Report::new("test", text);
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
        assert_eq!(given, Some(Given { contract, bucket: Some(8) }));
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
