//! The storage nodes that a client may use, and their places: from its own configuration, never from a
//! broker.
//!
//! A broker may lie, or a host on the way to it. It could otherwise name any folder of the client's machine,
//! or any server that the client reaches. The broker names only the *node* that carries a transfer. The place
//! of that node comes from the client's administrator.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;
use tidegate_config::{FindingList, Section};
use tidegate_units::ResourceName;

use crate::config::{self, ConfigError};
use crate::store::NodePlace;
use crate::wire::one_line;

/// Storage nodes by their names.
#[derive(Debug, Clone)]
pub struct NodePlaces(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// The file that has them, or should have.
    file: PathBuf,
    nodes: BTreeMap<ResourceName, NodePlace>,
}

/// The reason why nothing is sent to, read from or removed from a node that a broker named.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum PlacesError {
    /// Nothing is configured.
    #[error(
        "no storage node is configured on this machine: copy the `[node.NAME]` tables of the broker's \
         configuration to {}, or name a file that has them by `--nodes FILE` or TIDEGATE_NODES",
        .0.display()
    )]
    NoNodes(PathBuf),
    /// The node is not among the configured ones.
    #[error(
        "the broker names node `{node}`, which is not in {}: if it is one of yours, add `[node.{node}]` with \
            its \
         `place` there",
        file.display()
    )]
    NoNode {
        /// The node.
        node: ResourceName,
        /// The client's configuration.
        file: PathBuf,
    },
    /// The node is configured, with another place.
    #[error(
        "the broker says that node `{node}` is at {told}, and {} says {ours}: find out which is right, and \
         correct the other",
        file.display()
    )]
    Elsewhere {
        /// The node.
        node: ResourceName,
        /// The place that the broker names.
        told: String,
        /// The client's configuration.
        file: PathBuf,
        /// The place that it names.
        ours: Box<NodePlace>,
    },
}

impl NodePlaces {
    /// Returns no nodes, since a file is not there.
    #[must_use]
    pub fn none(file: &Path) -> Self {
        Self(Arc::new(Inner { file: file.to_owned(), nodes: BTreeMap::new() }))
    }

    /// Reads the tables `[node.NAME]` of a file, and from each its `place`. The configuration of a broker is
    /// such a file, too.
    ///
    /// # Errors
    /// When the file cannot be read, or a table is wrong.
    pub fn load(file: &Path) -> Result<Self, ConfigError> {
        let read = || {
            let mut text = String::new();
            fs::File::open(file)?.take(config::LARGEST_FILE).read_to_string(&mut text)?;
            Ok(text)
        };
        let text = read().map_err(|source| ConfigError::Read { path: file.to_owned(), source })?;
        Self::parse(file, &text)
    }

    /// Reads the tables of a text, as of this file.
    ///
    /// # Errors
    /// When a table is wrong.
    pub fn parse(file: &Path, text: &str) -> Result<Self, ConfigError> {
        let name = file.display().to_string();
        let mut report = FindingList::new(&name, text);
        let nodes = tidegate_config::parse(text, &mut report).map(|document| {
            let what = "the configuration".to_owned();
            let root = Section::new(&document, 0..0, what, config::ROOT_KEYS, &mut report);
            config::places(&root, &mut report)
        });
        if report.has_errors() {
            return Err(ConfigError::Invalid(report.into_findings()));
        }
        Ok(Self(Arc::new(Inner { file: file.to_owned(), nodes: nodes.unwrap_or_default() })))
    }

    /// Returns the place of a node, if the broker names the place that is configured.
    ///
    /// # Errors
    /// When it is not.
    pub fn find(&self, node: &ResourceName, told: &str) -> Result<&NodePlace, PlacesError> {
        let Inner { file, nodes } = &*self.0;
        if nodes.is_empty() {
            return Err(PlacesError::NoNodes(file.clone()));
        }
        let (node, file) = (node.clone(), file.clone());
        let Some(ours) = nodes.get(&node) else { return Err(PlacesError::NoNode { node, file }) };
        if told.parse::<NodePlace>().is_ok_and(|told| told == *ours) {
            return Ok(ours);
        }
        Err(PlacesError::Elsewhere { node, told: one_line(told), file, ours: Box::new(ours.clone()) })
    }

    /// Checks that there are any.
    ///
    /// # Errors
    /// When there are none.
    pub fn any(&self) -> Result<(), PlacesError> {
        if self.0.nodes.is_empty() { Err(PlacesError::NoNodes(self.0.file.clone())) } else { Ok(()) }
    }

    /// Nodes whose data goes over a network without encryption.
    pub fn unencrypted(&self) -> impl Iterator<Item = &ResourceName> {
        self.0.nodes.iter().filter(|(_, place)| place.is_plain_beyond_this_host()).map(|(node, _)| node)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BROKERS: &str = r#"
listen = "127.0.0.1:7311"
state = "state"
token_file = "is not read"
[node.a]
place = "file:///srv/a"
peak = "60MB/s"
[node.b]
place = "s3://data/x"
endpoint = "http://10.0.0.9:9000"
"#;

    #[test]
    fn a_place_is_that_of_our_own_configuration_or_none() {
        let places = NodePlaces::parse(Path::new("nodes.toml"), BROKERS).unwrap();
        let find = |node: &str, told: &str| places.find(&ResourceName::new(node).unwrap(), told).cloned();
        assert_eq!(find("a", "file:///srv/a").unwrap().to_string(), "file:///srv/a");
        find("b", "s3://data/x?endpoint=http%3A%2F%2F10.0.0.9%3A9000").unwrap();
        for (node, told) in [
            ("a", "file:///srv"),
            ("a", "file:///srv/a/../../home"),
            ("a", "file:///srv/b"),
            ("a", "http://127.0.0.1:1/"),
            ("a", ""),
            ("b", "s3://data/x"),
            ("b", "s3://data/x?endpoint=http%3A%2F%2Fevil.example"),
        ] {
            let refused = find(node, told).unwrap_err();
            assert!(matches!(refused, PlacesError::Elsewhere { .. }), "{told}: {refused}");
        }
        assert!(matches!(find("c", "file:///srv/a"), Err(PlacesError::NoNode { .. })));
        let none = NodePlaces::none(Path::new("nodes.toml"));
        let refused = none.find(&ResourceName::new("a").unwrap(), "file:///srv/a").unwrap_err();
        assert_eq!(refused, PlacesError::NoNodes("nodes.toml".into()));
        assert_eq!(places.unencrypted().map(ResourceName::as_str).collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn a_file_that_is_wrong_says_where() {
        for (text, expected) in [
            ("[node.a]\nplace = \"/srv\"", "nodes.toml:2:9"),
            ("[node.a]\n", "place"),
            ("[nodes.a]\n", "unknown key `nodes`"),
        ] {
            let error = NodePlaces::parse(Path::new("nodes.toml"), text).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
