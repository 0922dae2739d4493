//! The table of keys states the defaults and the bounds that the reader of laws has.

use std::ops::Bound::{self, Excluded, Included};

use tidegate_config::keys::{Key, KeyTable, KeyType, agent, law as tables, pool, scenario};
use tidegate_config::law::{AvailableLaws, LawReader, default_law, read};
use tidegate_config::{FindingList, Section, parse};
use tidegate_control::{LoopConfig, WindowConfig};
use tidegate_units::ResourceName;

const LAWS: &[(&str, KeyTable)] = &[
    ("law = 'window'\nset_point = 'auto'", tables::KNEE),
    ("law = 'window'", tables::WINDOW),
    ("law = 'pid'", tables::PID),
    ("law = 'integral'", tables::INTEGRAL),
    ("law = 'self-tuning'", tables::SELF_TUNING),
];

/// Returns the loop of a pool with one more key, and the number of findings.
fn loop_with(law: &str, table: &KeyTable, written: &str) -> (Option<LoopConfig>, usize) {
    let keys = tidegate_config::keys::pool::POOL.names;
    let text = format!("target = '15ms'\n{law}\n{} = {{ {written} }}\n", table.id);
    let mut report = FindingList::new("test", &text);
    let document = parse(&text, &mut report).unwrap();
    let pool = Section::new(&document, 0..0, "the pool".to_owned(), keys, &mut report);
    let laws = AvailableLaws { reader: LawReader::Gateway, window: WindowConfig::default(), rates: true };
    let read = read(&pool, &ResourceName::new("p").unwrap(), laws, &mut report);
    (read, report.into_findings().len())
}

fn cases() -> impl Iterator<Item = (&'static str, KeyTable, &'static Key)> {
    LAWS.iter().flat_map(|(law, table)| table.keys.iter().map(|key| (*law, *table, key)))
}

#[test]
fn the_default_in_the_table_is_the_default_of_the_reader() {
    for (law, table, key) in cases() {
        let written = key.default.strip_prefix('`').and_then(|rest| rest.strip_suffix('`'));
        let Some(written) = written else { continue };
        let with = loop_with(law, &table, &format!("{} = {written}", key.name));
        let without = loop_with(law, &table, "");
        assert_eq!(with, without, "{}.{} = {written}", table.id, key.name);
        assert_eq!(with.1, 0, "{}.{} = {written}", table.id, key.name);
    }
}

#[test]
fn the_default_law_in_the_tables_is_that_of_the_readers() {
    let tables = [
        (LawReader::Gateway, pool::POOL),
        (LawReader::Agent, agent::RESOURCE),
        (LawReader::Scenario, scenario::HOST),
    ];
    for (reader, table) in tables {
        let stated = table.keys.iter().find(|key| key.name == "law").unwrap().default;
        let law = default_law(reader).name();
        assert!(stated.starts_with(&format!("`\"{law}\"`")), "{reader:?}: {law}, the table states {stated}");
    }
}

#[test]
fn the_bounds_in_the_table_are_the_bounds_of_the_reader() {
    let mut wrong = Vec::new();
    for (law, table, key) in cases() {
        let mut check = |value: &str, is_within: bool| {
            // The greatest window must not be below the least one.
            let beside = if key.name == "greatest" { ", least = 1e-9" } else { "" };
            let written = format!("{} = {value}{beside}", key.name);
            if (loop_with(law, &table, &written).1 == 0) != is_within {
                wrong.push(format!("{}.{written}: within the bounds of the table: {is_within}", table.id));
            }
        };
        match key.kind {
            KeyType::Number((lower, upper)) => {
                let mut edge = |bound: Bound<f64>, outwards: f64| match bound {
                    Included(at) => {
                        check(&format!("{at:?}"), true);
                        check(&format!("{:?}", at + outwards), false);
                    }
                    Excluded(at) => {
                        check(&format!("{at:?}"), false);
                        check(&format!("{:?}", at - outwards), true);
                    }
                    Bound::Unbounded => {}
                };
                edge(lower, -1e-6);
                edge(upper, 1e-6);
            }
            KeyType::Whole(least, greatest) => {
                check(&least.to_string(), true);
                check(&(least - 1).to_string(), false);
                check(&greatest.to_string(), true);
                check(&(greatest + 1).to_string(), false);
            }
            KeyType::Words(words) => {
                for word in words {
                    // The literal self-tuning law needs a `greatest` beside it.
                    if table.id != "self_tuning" || *word != "literal" {
                        check(&format!("'{word}'"), true);
                    }
                }
                check("'none of these'", false);
            }
            _ => {}
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
