//! Request schedulers and shapers: they decide which request goes next, and when.
//!
//! [`Sfq`] shares a storage resource among flows by weight, under a [window](Sfq::set_window) on what is
//! outstanding, with a [reservation](Sfq::set_reservation), a [leaky bucket](LeakyBucket), a
//! [limit](ConsumerLimit) and a [delay](Sfq::set_delay) per flow. [`TokenBucket`] is the shaper beneath
//! bucket and limit. All of it is pull-style and pure: the owner tells the time and asks, and gets a request,
//! nothing, or the time before which there will be nothing.
//!
//! ```
//! use tidegate_sched::{StorageExtent, FlowConfig, PullAnswer, Sfq, SfqConfig};
//! use tidegate_units::{Instant, Window};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let now = Instant::ZERO;
//! let mut scheduler = Sfq::new(SfqConfig { window: Some(Window::new(1.0)), ..SfqConfig::default() });
//! let backup = scheduler.add_flow(&FlowConfig::default(), now);
//! for request in ["first", "second"] {
//!     let extent = StorageExtent { offset: 0, bytes: 4_096 };
//!     scheduler.enqueue(backup, now, request, extent).map_err(|refused| refused.reason)?;
//! }
//! assert_eq!(scheduler.pull(now), PullAnswer::Request { flow: backup, request: "first", released: now });
//! assert_eq!(scheduler.pull(now), PullAnswer::Nothing, "the window is full");
//! scheduler.complete(backup, now)?;
//! assert_eq!(scheduler.pull(now), PullAnswer::Request { flow: backup, request: "second", released: now });
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]

mod bucket;
mod clock;
mod cost;
mod discipline;
mod error;
mod flow;
mod lane;
mod leaky_bucket;
mod limit;
mod reservation;
mod sfq;
mod spacing;
mod tournament;
mod window;

pub use bucket::{TokenBucket, TokenRate};
pub use cost::{CostModel, RequestCost};
pub use discipline::{Discipline, RefillTime};
pub use error::{CompleteError, QueueRefusal, RefusedRequest, UnknownFlow};
pub use flow::{FlowCapacity, FlowConfig, FlowId, FlowStatus, StorageExtent};
pub use lane::FlowBatch;
pub use leaky_bucket::{BucketRelease, BucketStatus, LeakyBucket};
pub use limit::{BeyondLimit, ConsumerLimit};
pub use reservation::ReservedService;
pub use sfq::{PullAnswer, Sfq, SfqConfig};
