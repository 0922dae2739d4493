//! Commands to a throttle.

use serde::{Deserialize, Serialize};
use tidegate_units::{ConsumerName, Iops, Latency, Window};

/// The complete commands that a throttle puts into force now: it releases whatever is `None`, or not named.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Commands {
    /// Greatest number of requests of all throttled consumers together that may be outstanding at the
    /// resource. Requests of protected consumers do not count. `None`: no window.
    pub window: Option<Window>,
    /// The least time between two dispatches of all throttled consumers together. Requests whose delay ends
    /// at the same time then go one by one. `None`: any time.
    pub spacing: Option<Latency>,
    /// Every throttled consumer of the observation, in its order. A protected one is never here.
    pub consumers: Vec<ConsumerCommand>,
}

/// The limits of one throttled consumer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConsumerCommand {
    /// Name of the consumer.
    pub name: ConsumerName,
    /// Delay of each of its requests before dispatch. `None`: no delay.
    pub delay: Option<Latency>,
    /// Number of its requests released per second: the rate at which its leaky bucket is filled. `None`: no
    /// limit.
    pub rate: Option<Iops>,
}
