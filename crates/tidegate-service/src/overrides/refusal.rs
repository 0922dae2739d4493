//! Refusals of what operators ask.

use thiserror::Error;
use tidegate_config::nearest;
use tidegate_units::{ConsumerName, ResourceName};

/// Reasons why a service does not do what an operator asks.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum OverrideRefusal {
    /// The service has no resource of this name.
    #[error("there is no resource `{asked}`{}", hint(nearest.as_deref()))]
    NoResource {
        /// The name that was asked for.
        asked: ResourceName,
        /// The known name that looks most like it.
        nearest: Option<String>,
    },
    /// The resource has no consumer of this name.
    #[error("there is no consumer `{asked}`{}", hint(nearest.as_deref()))]
    NoConsumer {
        /// The name that was asked for.
        asked: ConsumerName,
        /// The known name that looks most like it.
        nearest: Option<String>,
    },
    /// The service cannot do it.
    #[error("{0}")]
    Impossible(String),
    /// The change stands, and what the kernel has in force does not follow it yet.
    #[error(
        "the change stands, but the limits in force cannot be changed yet: the guardian removes all of them \
         within 10 s; ask `tidegate status`"
    )]
    StillThrottled,
}

fn hint(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}

impl OverrideRefusal {
    /// The refusal for a resource that is not among the known ones.
    pub fn no_resource<'a>(asked: &ResourceName, known: impl Iterator<Item = &'a str>) -> Self {
        let nearest = nearest(asked.as_str(), &known.collect::<Vec<_>>()).map(str::to_owned);
        Self::NoResource { asked: asked.clone(), nearest }
    }

    /// The refusal for a consumer that is not among the known ones.
    pub fn no_consumer<'a>(asked: &ConsumerName, known: impl Iterator<Item = &'a str>) -> Self {
        let nearest = nearest(asked.as_str(), &known.collect::<Vec<_>>()).map(str::to_owned);
        Self::NoConsumer { asked: asked.clone(), nearest }
    }
}
