//! The model of a queue, with which the self-tuning law commands a window: the law `queueing-model`.

pub(crate) mod config;
pub(crate) mod station;
