//! Selection of experiments by name.

use thiserror::Error;

use super::Experiment;

/// Below this similarity (Jaro–Winkler, 0…1) a suggestion is more confusing than a list.
const SIMILAR: f64 = 0.75;

/// A name that means no experiment.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("there is no experiment `{name}`; {help}")]
pub struct UnknownExperiment {
    /// The name that was asked for.
    pub name: String,
    /// The names to ask for instead.
    pub help: String,
}

/// Keeps what the names mean, in the order of the catalogue: an experiment by its id (`parda.fig8`), by what
/// it is within its paper (`fig8`; two papers may have one), or all of a paper (`parda`). Without names, all.
///
/// # Errors
/// The first name that means nothing.
pub fn select<S: AsRef<str>>(
    catalogue: Vec<Experiment>,
    names: &[S],
) -> Result<Vec<Experiment>, UnknownExperiment> {
    for name in names.iter().map(AsRef::as_ref) {
        if !catalogue.iter().any(|experiment| means(name, experiment.id)) {
            return Err(UnknownExperiment { name: name.to_owned(), help: help(name, &catalogue) });
        }
    }
    Ok(catalogue
        .into_iter()
        .filter(|experiment| names.is_empty() || names.iter().any(|name| means(name.as_ref(), experiment.id)))
        .collect())
}

/// Whole parts only: `fig1` is not `fig10`.
fn means(name: &str, id: &str) -> bool {
    let name = name.trim_end_matches('.');
    id == name || id.split_once('.').is_some_and(|(paper, what)| paper == name || what == name)
}

fn help(name: &str, catalogue: &[Experiment]) -> String {
    let given = name.to_lowercase();
    let ids = catalogue.iter().map(|experiment| experiment.id);
    let words = ids.flat_map(|id| [id, id.split_once('.').map_or(id, |(paper, _)| paper)]);
    let nearest = words
        .map(|word| {
            let within = word.split_once('.').map_or(word, |(_, what)| what);
            (strsim::jaro_winkler(&given, word).max(strsim::jaro_winkler(&given, within)), word)
        })
        // Of equals the first: max_by would take the last.
        .fold(None, |best: Option<(f64, &str)>, next| match best {
            Some(best) if best.0 >= next.0 => Some(best),
            _ => Some(next),
        });
    match nearest {
        Some((similarity, word)) if similarity >= SIMILAR => format!("did you mean `{word}`?"),
        _ => "`tidegate-lab reproduce --list` shows all".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::catalogue;
    use super::*;

    fn ids(names: &[&str]) -> Vec<&'static str> {
        select(catalogue(), names).unwrap().iter().map(|experiment| experiment.id).collect()
    }

    #[test]
    fn a_name_means_itself_what_it_is_within_its_paper_or_a_whole_paper() {
        assert_eq!(ids(&["parda.fig8"]), ["parda.fig8"]);
        assert_eq!(ids(&["fig6", "parda.fig2", "fig6"]), ["parda.fig2", "parda.fig6"]);
        assert_eq!(
            ids(&["fig4"]),
            ["parda.fig4", "lee.fig4", "nikolow.fig4", "triage.fig4"],
            "several papers have one"
        );
        let papers = ["parda", "bjorgeengen", "lee", "nikolow", "triage"];
        assert_eq!(papers.map(|paper| ids(&[paper])).concat(), ids(&[]));
        assert_eq!(ids(&["parda."]), ids(&["parda"]));
        assert!(ids(&[]).len() > 20);
    }

    #[test]
    fn an_unknown_name_gets_the_nearest_or_a_way_to_find_out() {
        let error = |name: &str| select(catalogue(), &[name]).unwrap_err().to_string();
        assert_eq!(error("fig88"), "there is no experiment `fig88`; did you mean `parda.fig8`?");
        assert_eq!(error("prada"), "there is no experiment `prada`; did you mean `parda`?");
        assert_eq!(error("xyz"), "there is no experiment `xyz`; `tidegate-lab reproduce --list` shows all");
        assert!(select(catalogue(), &["fig1"]).is_err(), "the beginning of a name is no name");
    }
}
