//! The documents of the repository, checked: links, lines, sentences, words, and the examples that they show.

mod examples;
pub(crate) mod glossary;
mod links;
mod words;
