//! Names of cgroups. A decision journal keeps their paths only.

use std::collections::BTreeMap;

use tidegate_host::SystemRoot;
use tidegate_host::cgroup::{CgroupTree, NameKind};
use tidegate_service::explain::ResourceExplanation;
use tidegate_service::status::ServiceStatus;

/// The names of cgroups by their paths.
#[derive(Debug, Default)]
pub(super) struct CgroupNames(BTreeMap<String, String>);

impl CgroupNames {
    /// Returns the names that a running service has for its consumers.
    pub(super) fn of_service(status: ServiceStatus) -> Self {
        let consumers = status.resources.into_iter().flat_map(|resource| resource.consumers);
        Self(consumers.filter_map(|one| Some((one.name, one.selected_as?))).collect())
    }

    /// Returns the names of this machine's pods, containers and virtual machines. The path of a unit has its
    /// name already.
    pub(super) fn of_machine() -> Self {
        let tree = CgroupTree::find(&SystemRoot::default());
        let named = tree.map(|tree| tree.named()).unwrap_or_default();
        let named = named.into_iter().filter(|cgroup| cgroup.kind != NameKind::Unit);
        Self(named.map(|cgroup| (cgroup.path.clone(), cgroup.to_string())).collect())
    }

    /// Returns the path of the cgroup that a name means, or the name itself.
    pub(super) fn path<'a>(&'a self, name: &'a str) -> &'a str {
        self.0.iter().find(|(_, known)| *known == name).map_or(name, |(path, _)| path)
    }

    /// Adds the names to explanations.
    pub(super) fn add_to(&self, explanations: &mut [ResourceExplanation]) {
        for consumer in explanations.iter_mut().flat_map(|resource| &mut resource.consumers) {
            consumer.selected_as = self.0.get(&consumer.name).cloned();
        }
    }
}
