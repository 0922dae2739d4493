//! Settings that operators change at run time, over the agent's configuration.

use tidegate_control::LoopConfig;
use tidegate_service::overrides::{
    OverrideAction, OverrideRefusal, Overrides, OverridesDocument, ResourceInForce, ServiceSettings,
};
use tidegate_units::ConsumerName;

use crate::config::AgentConfig;
use crate::metrics::ResourceStatus;
use crate::pattern::ConsumerPattern;

/// Lays overrides over a configuration.
pub(crate) fn apply(config: &mut AgentConfig, overrides: &Overrides) {
    for resource in &mut config.resources {
        overrides.lay_over(&mut resource.law);
        let released = overrides.released_consumers(&resource.law.resource);
        resource.exempt.extend(released.map(|name| ConsumerPattern::Name(name.to_string())));
    }
    for cgroups in &mut config.cgroups {
        overrides.lay_over(&mut cgroups.law);
        cgroups.released = overrides.released_consumers(&cgroups.law.resource).cloned().collect();
    }
}

/// Checks that the agent has what an action is about, and can do it. `may_act`: it was not started with
/// `--dry-run`.
pub(crate) fn check(
    action: &OverrideAction,
    resources: &[ResourceStatus],
    may_act: bool,
) -> Result<(), OverrideRefusal> {
    if let Some(name) = action.resource()
        && !resources.iter().any(|resource| resource.name == *name)
    {
        let known = resources.iter().map(|resource| resource.name.as_str());
        return Err(OverrideRefusal::no_resource(name, known));
    }
    match action {
        OverrideAction::Resource { patch, .. } if patch.dry_run == Some(Some(false)) && !may_act => {
            let why = "the agent was started with `--dry-run`, which no operator overrides: restart it \
                       without";
            Err(OverrideRefusal::Impossible(why.to_owned()))
        }
        OverrideAction::Consumer { .. } => {
            let why = "an agent's consumers have no shares and no limits: `target` and `dry_run` of a \
                       resource can be changed, and consumers can be released";
            Err(OverrideRefusal::Impossible(why.to_owned()))
        }
        OverrideAction::Release { scope, .. } => {
            let Some(consumer) = &scope.consumer else { return Ok(()) };
            let of = |name| scope.resource.as_ref().is_none_or(|resource| resource == name);
            let known: Vec<_> = resources
                .iter()
                .filter(|resource| of(&resource.name))
                .flat_map(|resource| resource.members.keys().map(ConsumerName::as_str))
                .collect();
            if known.contains(&consumer.as_str()) {
                Ok(())
            } else {
                Err(OverrideRefusal::no_consumer(consumer, known.into_iter()))
            }
        }
        OverrideAction::Resource { .. } | OverrideAction::EndRelease { .. } => Ok(()),
    }
}

/// Returns the settings of a configuration.
pub(crate) fn settings(config: &AgentConfig, overrides: OverridesDocument) -> ServiceSettings {
    let resource = |law: &LoopConfig| ResourceInForce::of(&law.resource, Some(law), Vec::new());
    ServiceSettings {
        version: ServiceSettings::VERSION,
        service: "agent".to_owned(),
        resources: config.laws().map(resource).collect(),
        overrides,
    }
}
