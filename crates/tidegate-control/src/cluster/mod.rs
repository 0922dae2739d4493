//! Conclusions that hosts which share a resource draw from each other's reports.

pub(crate) mod agreement;
pub(crate) mod hosts;
mod loads;
