//! The documents of the repository, checked: links, paths, the words that the glossary replaces, and the
//! examples that documents show.

mod examples;
pub(crate) mod glossary;
mod links;
mod paths;
mod walks;
