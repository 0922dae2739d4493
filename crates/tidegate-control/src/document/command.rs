//! What a throttle is told.

use serde::{Deserialize, Serialize};
use tidegate_units::{ConsumerName, Iops, Latency, Window};

/// What a throttle has to put into force now, completely: whatever is `None`, or not named, is let go.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Commands {
    /// How many requests of all throttled consumers together may be outstanding at the resource. Protected
    /// consumers are outside of it. `None`: no window.
    pub window: Option<Window>,
    /// The least time between two dispatches of all throttled consumers together. Requests that a delay lets
    /// go at the same time then go one by one. `None`: any time.
    pub spacing: Option<Latency>,
    /// Every throttled consumer of the observation, in its order. A protected one is never here.
    pub consumers: Vec<ConsumerCommand>,
}

/// What one throttled consumer is held to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConsumerCommand {
    /// Who.
    pub name: ConsumerName,
    /// How long each of its requests is held before it is dispatched. `None`: not at all.
    pub delay: Option<Latency>,
    /// How many of its requests are released per second: the rate at which its leaky bucket is filled.
    /// `None`: all of them.
    pub rate: Option<Iops>,
}
