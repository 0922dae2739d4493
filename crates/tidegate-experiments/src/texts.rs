//! The words about the experiments: one file per paper, beside its code.
//!
//! The HTML report, `--json` and the pages under `docs/reproduction` are made from these files only.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::{Deserialize, Deserializer};

use super::Tolerance;

/// The papers, in the order of the catalogue, each with its words.
const FILES: [(&str, &str); 5] = [
    ("parda", include_str!("parda/texts.toml")),
    ("bjorgeengen", include_str!("bjorgeengen/texts.toml")),
    ("lee", include_str!("lee/texts.toml")),
    ("nikolow", include_str!("nikolow/texts.toml")),
    ("triage", include_str!("triage/texts.toml")),
];

/// The words about one paper and its experiments.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct PaperTexts {
    /// The beginning of the paper's page, in Markdown.
    pub head: String,
    /// The words about each experiment, by its name within the paper.
    #[serde(flatten)]
    pub experiments: BTreeMap<String, ExperimentTexts>,
}

/// The words about one experiment.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExperimentTexts {
    /// In a line.
    #[serde(deserialize_with = "one_line")]
    pub title: String,
    /// The paper's experiment and its result.
    #[serde(deserialize_with = "one_line")]
    pub paper: String,
    /// The set-up here, and the choices in it that the paper leaves open.
    #[serde(deserialize_with = "one_line")]
    pub setup: String,
    /// The reasons for the tolerances, stated before the first run.
    #[serde(deserialize_with = "one_line")]
    pub tolerances: String,
    /// The statements that are judged, each with its place in the paper, or with the word that it is ours.
    /// The first one whose word is part of a quantity's name is the quantity's; an empty word is part of
    /// any.
    #[serde(deserialize_with = "claims")]
    pub claims: Vec<JudgedClaim>,
    /// The reason for the known difference from the paper; its first sentence is the summary. Empty if all
    /// agrees.
    #[serde(default, deserialize_with = "one_line")]
    pub differs: String,
    /// The quantities known to differ, with the least and the greatest result of a seed.
    ///
    /// The bounds were written down after the results of ten seeds. They say nothing about a paper. They
    /// reveal a change that moves the results. A known difference stays a difference in every output.
    #[serde(default)]
    pub known: BTreeMap<String, (f64, f64)>,
}

impl ExperimentTexts {
    /// Returns the place of the statement that a quantity is judged by.
    #[must_use]
    pub fn claim_of(&self, quantity: &str) -> Option<usize> {
        self.claims.iter().position(|claim| quantity.contains(&claim.of))
    }

    /// Returns true if these results of a quantity are within its known difference. A seed without a
    /// measurement says nothing either way; if no seed has one, nothing is known.
    pub(super) fn covers(&self, quantity: &str, values: &[Option<f64>]) -> bool {
        self.known.get(quantity).is_some_and(|&(least, greatest)| {
            let measured = || values.iter().flatten();
            measured().next().is_some()
                && measured().all(|value| Tolerance::Between(least, greatest).agrees(*value))
        })
    }
}

/// A statement that quantities are judged by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JudgedClaim {
    /// Part of the names of its quantities.
    pub of: String,
    /// The statement, beginning with its place in the paper.
    pub says: String,
}

/// Returns the papers, in the order of the catalogue, each with its words.
pub fn paper_texts() -> &'static [(&'static str, PaperTexts)] {
    static TEXTS: OnceLock<Vec<(&str, PaperTexts)>> = OnceLock::new();
    TEXTS.get_or_init(|| FILES.iter().map(|(paper, text)| (*paper, embedded(paper, text))).collect())
}

/// Returns the words about an experiment, if there are any.
#[must_use]
pub fn experiment_texts(id: &str) -> Option<&'static ExperimentTexts> {
    let (paper, name) = id.split_once('.')?;
    let (_, texts) = paper_texts().iter().find(|(own, _)| *own == paper)?;
    texts.experiments.get(name)
}

/// Parses embedded words. They are part of the program, so that the tests show wrong ones.
pub(super) fn embedded<T: for<'de> Deserialize<'de>>(name: &str, text: &str) -> T {
    toml::from_str(text).unwrap_or_else(|error| panic!("the words about {name} are wrong: {error}"))
}

/// Pairs of a word and a statement.
fn claims<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<JudgedClaim>, D::Error> {
    let pairs = Vec::<(String, String)>::deserialize(deserializer)?;
    let in_line = |text: String| text.split_whitespace().collect::<Vec<_>>().join(" ");
    Ok(pairs.into_iter().map(|(of, says)| JudgedClaim { of, says: in_line(says) }).collect())
}

/// Line ends of the file are not line ends of the text.
fn one_line<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let text = String::deserialize(deserializer)?;
    Ok(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn only_what_lies_where_it_was_seen_is_known() {
        let known = BTreeMap::from([("rate".to_owned(), (1.0, 2.0))]);
        let texts = ExperimentTexts { known, ..ExperimentTexts::default() };
        assert!(texts.covers("rate", &[Some(1.0), Some(2.0)]));
        assert!(texts.covers("rate", &[Some(1.5), None]));
        assert!(!texts.covers("rate", &[Some(1.5), Some(2.1)]), "one seed lies beyond");
        assert!(!texts.covers("rate", &[None, None]), "nothing was measured");
        assert!(!texts.covers("wait", &[Some(1.5)]), "another quantity");
    }

    #[test]
    fn every_experiment_has_its_words_and_no_words_are_without_an_experiment() {
        let catalogue = super::super::catalogue();
        let with_words = paper_texts()
            .iter()
            .flat_map(|(paper, texts)| texts.experiments.keys().map(move |name| format!("{paper}.{name}")));
        let mut with_words: Vec<_> = with_words.collect();
        let mut experiments: Vec<_> = catalogue.iter().map(|one| one.id.to_owned()).collect();
        with_words.sort();
        experiments.sort();
        assert_eq!(with_words, experiments);
        for one in &catalogue {
            let words = [&one.texts.title, &one.texts.paper, &one.texts.setup, &one.texts.tolerances];
            assert!(words.iter().all(|words| words.len() > 5), "{}", one.id);
            assert_eq!(one.texts.differs.is_empty(), one.texts.known.is_empty(), "{}", one.id);
            let claims: BTreeSet<_> = one
                .quantities
                .iter()
                .map(|quantity| (one.texts.claim_of(&quantity.name), &quantity.name))
                .collect();
            for (claim, name) in &claims {
                assert!(claim.is_some(), "{}: no statement is judged by `{name}`", one.id);
            }
            let used: BTreeSet<_> = claims.into_iter().filter_map(|(claim, _)| claim).collect();
            assert_eq!(used.len(), one.texts.claims.len(), "{}: statements that nothing judges", one.id);
            for claim in &one.texts.claims {
                let place = ["§", "fig. ", "figs. ", "table ", "eq. ", "eqs. ", "Ours", "appendix"];
                assert!(
                    place.iter().any(|place| claim.says.starts_with(place)),
                    "{}: {}",
                    one.id,
                    claim.says
                );
            }
            for name in one.texts.known.keys() {
                assert!(one.quantities.iter().any(|quantity| quantity.name == *name), "{}: {name}", one.id);
            }
        }
    }
}
