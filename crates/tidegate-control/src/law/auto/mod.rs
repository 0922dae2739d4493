//! The law `auto`: a window for any storage, without a parameter to tune.
//!
//! | file | content |
//! |---|---|
//! | `auto_law` | the law: one window of all hosts together, decided once per epoch |
//! | `agreement` | how hosts come to one window |
//! | `host_part` | the part of that window that is one host's |
//! | `band_rates` | the division of what the window gives by bands |
//! | `epoch` | measurements, gathered until they say enough |
//! | `consumers` | the worst consumer, and the scatter that sets the margin below the target |
//! | `elasticity` | the model: by how much latency follows the window |
//! | `storms` | the slow bound beside a cache that takes writes at once |
//! | `futility` | experiments that prove a smaller window useful before it stays |
//! | `decision` | the law in the loop |

mod agreement;
pub(crate) mod auto_law;
mod band_rates;
pub(crate) mod config;
pub(crate) mod consumers;
pub(crate) mod decision;
pub(crate) mod elasticity;
pub(crate) mod epoch;
pub(crate) mod futility;
mod host_part;
pub(crate) mod storms;
