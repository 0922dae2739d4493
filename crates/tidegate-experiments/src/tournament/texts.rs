//! The words about the tournament.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::Deserialize;

use crate::texts::embedded;

/// The words about the tournament and its scenarios.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TournamentTexts {
    /// The beginning of its page, in Markdown.
    pub head: String,
    /// The title of each scenario.
    pub titles: BTreeMap<String, String>,
}

/// Returns the words about the tournament.
pub fn tournament_texts() -> &'static TournamentTexts {
    static TEXTS: OnceLock<TournamentTexts> = OnceLock::new();
    TEXTS.get_or_init(|| embedded("the tournament", include_str!("texts.toml")))
}

/// Returns the title of a scenario.
pub(super) fn title(id: &str) -> &'static str {
    tournament_texts().titles.get(id).unwrap_or_else(|| panic!("there are no words about {id}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_has_its_title_and_no_title_is_without_a_scenario() {
        let mut scenarios: Vec<_> = super::super::scenarios::all().iter().map(|one| one.id).collect();
        scenarios.sort_unstable();
        assert_eq!(tournament_texts().titles.keys().collect::<Vec<_>>(), scenarios);
    }
}
